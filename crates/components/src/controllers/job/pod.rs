//! The Pods of a Job: what the controller puts on them, and how it makes new ones.

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod},
};

use super::policy;
use crate::controllers::{owner::controller_reference, pod_control::from_template};

/// Keeps a Pod until it has been counted.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The completion index, as annotation and label.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";

/// Whether the Pod has not been counted yet.
pub fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TRACKING)
}

/// The Pod's completion index.
pub fn index(pod: &Pod) -> Option<i32> {
    pod.metadata.annotations.as_ref()?.get(INDEX)?.parse().ok().filter(|index| *index >= 0)
}

/// How often the Pod's index had failed before it.
pub fn earlier_failures(pod: &Pod) -> i32 {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.and_then(|a| a.get(INDEX_FAILURES)).and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// How often an index has failed, by its Pods.
pub fn index_failures(job: &Job, pods: &[std::sync::Arc<Pod>], of: i32) -> i32 {
    let counts = pods.iter().filter(|pod| index(pod) == Some(of)).map(|pod| {
        let counted = policy::is_failed(job, pod) && policy::failure(job, pod) != policy::Failure::Ignore;
        earlier_failures(pod) + i32::from(counted)
    });
    counts.max().unwrap_or(0)
}

/// A new Pod, for an index if the Job is indexed; `failures` is how often that index has failed.
pub fn new(job: &Job, of: Option<i32>, failures: Option<i32>) -> Option<Pod> {
    let namespace = job.metadata.namespace.as_deref()?;
    let owner = controller_reference::<Job>(&job.metadata);
    let mut pod = from_template(&job.spec.as_ref()?.template, namespace, &owner);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == TRACKING) {
        finalizers.push(TRACKING.into());
    }
    if let Some(of) = of {
        let text = of.to_string();
        pod.metadata.annotations.get_or_insert_default().insert(INDEX.into(), text.clone());
        pod.metadata.labels.get_or_insert_default().insert(INDEX.into(), text);
        pod.metadata.generate_name = Some(format!("{}-{of}-", owner.name));
        if let Some(failures) = failures {
            pod.metadata.annotations.get_or_insert_default().insert(INDEX_FAILURES.into(), failures.to_string());
        }
        if let Some(spec) = &mut pod.spec {
            spec.hostname = Some(format!("{}-{of}", owner.name));
            spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()).for_each(tell_index);
        }
    }
    Some(pod)
}

fn tell_index(container: &mut Container) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == NAME) {
        return;
    }
    let field = ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), ..ObjectFieldSelector::default() };
    variables.push(EnvVar {
        name: NAME.into(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        ..EnvVar::default()
    });
}
