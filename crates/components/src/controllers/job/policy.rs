//! A Job's policies: what the failure of a Pod means, and when enough indexes have succeeded.

use k8s_openapi::api::{
    batch::v1::{Job, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule},
    core::v1::{ContainerStatus, Pod},
};

use super::indexes::Indexes;
use crate::controllers::pods;

/// What a failed Pod means for its Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It counts towards the back-off limit.
    Count,
    /// It does not count.
    Ignore,
    /// Its index has failed.
    FailIndex,
    /// The Job has failed, for this reason.
    FailJob(String),
}

/// Whether a Pod counts as failed.
pub fn is_failed(job: &Job, pod: &Pod) -> bool {
    if pods::phase(pod) == "Failed" {
        return true;
    }
    let spec = job.spec.as_ref();
    // With a failure policy, or if only failed Pods are replaced, a Pod has failed when it has ended and not before.
    let waits = spec.is_some_and(|s| s.pod_failure_policy.is_some() || s.pod_replacement_policy.as_deref() == Some("Failed"));
    !waits && pods::is_terminating(pod) && pods::phase(pod) != "Succeeded"
}

/// Matches a failed Pod against the Job's policy.
pub fn failure(job: &Job, pod: &Pod) -> Failure {
    let rules = job.spec.as_ref().and_then(|spec| spec.pod_failure_policy.as_ref()).map(|policy| policy.rules.as_slice());
    for (number, rule) in rules.unwrap_or_default().iter().enumerate() {
        if let Some(cause) = matched(rule, pod) {
            return match rule.action.as_str() {
                "Ignore" => Failure::Ignore,
                "FailIndex" => Failure::FailIndex,
                "FailJob" => Failure::FailJob(format!("{cause} matching FailJob rule at index {number}")),
                _ => Failure::Count,
            };
        }
    }
    Failure::Count
}

fn matched(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let name = format!("{}/{}", pod.metadata.namespace.as_deref()?, pod.metadata.name.as_deref()?);
    if let Some(codes) = &rule.on_exit_codes {
        let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
        let (container, code) = containers.filter_map(|container| Some((container, exit_code(codes, container)?))).next()?;
        return Some(format!("Container {} for pod {name} failed with exit code {code}", container.name));
    }
    let patterns = rule.on_pod_conditions.iter().flatten();
    let mut conditions = patterns.flat_map(|pattern| {
        let wanted = pattern.status.as_deref().unwrap_or("True");
        status.conditions.iter().flatten().filter(move |c| c.type_ == pattern.type_ && c.status == wanted)
    });
    conditions.next().map(|condition| format!("Pod {name} has condition {}", condition.type_))
}

fn exit_code(codes: &PodFailurePolicyOnExitCodesRequirement, container: &ContainerStatus) -> Option<i32> {
    if codes.container_name.as_ref().is_some_and(|name| *name != container.name) {
        return None;
    }
    let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
    let listed = codes.values.contains(&code);
    let hit = code != 0 && if codes.operator == "NotIn" { !listed } else { listed };
    hit.then_some(code)
}

/// Whether the success policy is fulfilled, and by which rule.
pub fn success(job: &Job, succeeded: &Indexes) -> Option<String> {
    let spec = job.spec.as_ref()?;
    let completions = spec.completions?;
    if succeeded.is_empty() {
        return None;
    }
    let rules = &spec.success_policy.as_ref()?.rules;
    let number = rules.iter().position(|rule| {
        let enough = rule.succeeded_count.map(|count| usize::try_from(count).unwrap_or(0));
        match &rule.succeeded_indexes {
            Some(text) => {
                let required = Indexes::parse(text, completions);
                !required.is_empty() && succeeded.count_of(&required) >= enough.unwrap_or(required.len())
            }
            None => enough.is_some_and(|enough| succeeded.len() >= enough),
        }
    })?;
    Some(format!("Matched rules at index {number}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(spec: serde_json::Value) -> Job {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    #[test]
    fn an_exit_code_can_fail_the_whole_job() {
        let job = job(json!({"template": {}, "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}}));
        let pod = |status| serde_json::from_value::<Pod>(json!({"metadata": {"name": "p", "namespace": "a"}, "status": status})).unwrap();
        let exited = |code: i32| {
            json!({"phase": "Failed", "containerStatuses": [{"name": "c", "image": "", "imageID": "",
            "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": code}}}]})
        };
        let message = "Container c for pod a/p failed with exit code 42 matching FailJob rule at index 1";
        assert_eq!(failure(&job, &pod(exited(42))), Failure::FailJob(message.into()));
        assert_eq!(failure(&job, &pod(exited(1))), Failure::Count);
        let evicted = json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]});
        assert_eq!(failure(&job, &pod(evicted)), Failure::Ignore);
    }

    #[test]
    fn a_success_policy_needs_its_indexes() {
        let job = job(
            json!({"template": {}, "completions": 5, "successPolicy": {"rules": [{"succeededIndexes": "0,2-4", "succeededCount": 2}]}}),
        );
        assert_eq!(success(&job, &Indexes::parse("1,2", 5)), None);
        assert_eq!(success(&job, &Indexes::parse("2,3", 5)), Some("Matched rules at index 0".into()));
    }
}
