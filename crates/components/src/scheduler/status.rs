//! What the scheduler tells the world: events, the PodScheduled condition, nominations, and the removal of victims.
//!
//! Reports never hold up a decision: they are sent off and, if they fail, made again with the next attempt.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};

use super::info::PodInfo;
use crate::clock::Clock;
use crate::events::{EventType, Recorder, regarding};
use crate::runtime::{cause, revision_of};

#[derive(Clone)]
pub(super) struct Reporter {
    pub client: Client,
    pub recorder: Recorder,
    pub clock: Clock,
}

/// A patch that puts one condition into the Pod's list: where it is, or at the end.
fn condition_patch(pod: &Pod, condition: Value) -> Value {
    let mut types: Vec<&str> = pod.status.iter().flat_map(|status| status.conditions.iter().flatten()).map(|c| c.type_.as_str()).collect();
    let own = condition["type"].as_str().unwrap_or_default().to_owned();
    if !types.contains(&own.as_str()) {
        types.push(&own);
    }
    let order: Vec<Value> = types.into_iter().map(|name| json!({"type": name})).collect();
    json!({"status": {"$setElementOrder/conditions": order, "conditions": [condition]}})
}

/// The status patch that says why the Pod has no node, or `None` if its status says so already.
fn unscheduled_patch(pod: &Pod, reason: &str, message: &str, nominated: Option<&str>, now: &Value) -> Option<Value> {
    let status = pod.status.as_ref();
    let current =
        status.and_then(|status| status.conditions.as_ref()).and_then(|conditions| conditions.iter().find(|c| c.type_ == "PodScheduled"));
    let same = |condition: &&PodCondition| {
        condition.status == "False" && condition.reason.as_deref() == Some(reason) && condition.message.as_deref() == Some(message)
    };
    let nominated_now = status.and_then(|status| status.nominated_node_name.as_deref()).unwrap_or_default();
    let nominate = nominated.filter(|name| *name != nominated_now);
    let current = current.filter(|condition| condition.status == "False");
    if current.as_ref().is_some_and(same) && nominate.is_none() {
        return None;
    }
    let since = current.and_then(|condition| condition.last_transition_time.as_ref()).map_or_else(|| now.clone(), |time| json!(time));
    let mut condition = json!({
        "type": "PodScheduled", "status": "False", "reason": reason, "message": message, "lastProbeTime": null, "lastTransitionTime": since,
    });
    if let Some(generation) = pod.metadata.generation {
        condition["observedGeneration"] = generation.into();
    }
    let mut patch = condition_patch(pod, condition);
    patch["metadata"] = json!({"uid": pod.metadata.uid});
    if let Some(name) = nominate {
        patch["status"]["nominatedNodeName"] = if name.is_empty() { Value::Null } else { name.into() };
    }
    Some(patch)
}

impl Reporter {
    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(super) fn scheduled(&self, pod: &PodInfo, node: &str) {
        let message = format!("Successfully assigned {} to {node}", pod.key);
        self.recorder.eventf(&regarding(&*pod.pod), None, EventType::Normal, "Scheduled", "Binding", message);
    }

    pub(super) fn failed_scheduling(&self, pod: &PodInfo, message: &str) {
        self.recorder.eventf(&regarding(&*pod.pod), None, EventType::Warning, "FailedScheduling", "Scheduling", message);
    }

    pub(super) fn pod_scheduled_false(&self, pod: &Arc<PodInfo>, reason: &str, message: String, nominated: Option<String>) {
        let now = json!(self.clock.time());
        let Some(patch) = unscheduled_patch(&pod.pod, reason, &message, nominated.as_deref(), &now) else { return };
        let request = kube::core::Request::new(Pod::url_path(&(), Some(&pod.namespace)));
        let Ok(request) = request.patch_subresource("status", pod.name(), &PatchParams::default(), &Patch::Strategic(patch)) else {
            return;
        };
        let (client, pod, clock) = (self.client.clone(), pod.clone(), self.clock.clone());
        tokio::spawn(async move {
            let _busy = clock.busy();
            let written = async { client.request_text(cause::marked(request)).await };
            if let Err(error) = cause::because(revision_of(&pod.pod.metadata), written).await {
                tracing::debug!(pod = %pod.key, %error, "the PodScheduled condition could not be written");
            }
        });
    }

    /// Removes the victims of a preemption; `false` if one of them could not be removed.
    pub(super) async fn preempt(&self, preemptor: &PodInfo, node: &str, victims: Vec<Arc<PodInfo>>) -> bool {
        let _busy = self.clock.busy();
        let mut all = true;
        for victim in victims.iter().filter(|victim| !victim.is_terminating()) {
            let pods = self.pods(&victim.namespace);
            let scheduler = preemptor.spec().and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or(super::DEFAULT_SCHEDULER_NAME);
            let mut condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
                "lastProbeTime": null, "lastTransitionTime": self.clock.time(),
            });
            if let Some(generation) = victim.pod.metadata.generation {
                condition["observedGeneration"] = generation.into();
            }
            let patch = condition_patch(&victim.pod, condition);
            let marked = pods.patch_status(victim.name(), &PatchParams::default(), &Patch::Strategic(patch)).await;
            let parameters = DeleteParams {
                preconditions: Some(Preconditions { uid: Some(victim.uid.clone()), resource_version: None }),
                ..DeleteParams::default()
            };
            let removed = match marked {
                Ok(_) => pods.delete(victim.name(), &parameters).await.map(|_| ()),
                Err(error) => Err(error),
            };
            match removed {
                Ok(()) => {
                    let message = format!("Preempted by pod {} on node {node}", preemptor.uid);
                    let (victim, preemptor) = (regarding(&*victim.pod), regarding(&*preemptor.pod));
                    self.recorder.eventf(&victim, Some(&preemptor), EventType::Normal, "Preempted", "Preempting", message);
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => {
                    tracing::debug!(victim = %victim.key, %error, "a victim could not be removed");
                    all = false;
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_is_written_once_and_keeps_its_transition_time() {
        let mut pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u", "generation": 1}})).unwrap();
        let now = json!("2026-01-01T00:00:00Z");
        let patch = unscheduled_patch(&pod, "Unschedulable", "m", None, &now).unwrap();
        assert_eq!(patch["status"]["conditions"][0]["lastTransitionTime"], now);
        pod.status = serde_json::from_value(patch["status"].clone()).unwrap();
        assert_eq!(unscheduled_patch(&pod, "Unschedulable", "m", None, &json!("2026-01-02T00:00:00Z")), None);
        let changed = unscheduled_patch(&pod, "Unschedulable", "other", None, &json!("2026-01-02T00:00:00Z")).unwrap();
        assert_eq!(changed["status"]["conditions"][0]["lastTransitionTime"], now);
    }

    #[test]
    fn a_condition_comes_after_those_that_are_there() {
        let pod: Pod = serde_json::from_value(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})).unwrap();
        let patch = condition_patch(&pod, json!({"type": "DisruptionTarget"}));
        assert_eq!(patch["status"]["$setElementOrder/conditions"], json!([{"type": "Ready"}, {"type": "DisruptionTarget"}]));
    }

    #[test]
    fn a_nomination_is_written_and_cleared() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}})).unwrap();
        let patch = unscheduled_patch(&pod, "Unschedulable", "m", Some("n"), &Value::Null).unwrap();
        assert_eq!(patch["status"]["nominatedNodeName"], "n");
        let pod: Pod = serde_json::from_value(json!({"status": {"nominatedNodeName": "n"}})).unwrap();
        let patch = unscheduled_patch(&pod, "Unschedulable", "m", Some(""), &Value::Null).unwrap();
        assert_eq!(patch["status"]["nominatedNodeName"], Value::Null);
    }
}
