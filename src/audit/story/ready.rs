//! When an object is where its maker wanted it, and what a change of its status means in a few words.

use serde_json::Value;

/// Whether a condition of the status is true.
fn condition(object: &Value, name: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == name && condition["status"] == "True")
}

fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// Whether everything that the object asks for is there. What has no status to wait for is ready when it is written.
pub fn is_ready(object: &Value) -> bool {
    if object["metadata"]["deletionTimestamp"].is_string() {
        return false;
    }
    let count = |field: &str| number(object, &format!("/status/{field}")).unwrap_or(0);
    let wanted = number(object, "/spec/replicas").unwrap_or(1);
    let observed = match number(object, "/status/observedGeneration") {
        Some(observed) => observed >= number(object, "/metadata/generation").unwrap_or(0),
        None => false,
    };
    match object["kind"].as_str().unwrap_or_default() {
        "Pod" => condition(object, "Ready") || object["status"]["phase"] == "Succeeded",
        "Deployment" => {
            observed && count("updatedReplicas") == wanted && count("replicas") == wanted && count("availableReplicas") == wanted
        }
        "ReplicaSet" | "ReplicationController" => observed && count("readyReplicas") == wanted,
        "StatefulSet" => observed && count("updatedReplicas") == wanted && count("readyReplicas") == wanted,
        "DaemonSet" => observed && count("numberReady") == count("desiredNumberScheduled"),
        "Job" => condition(object, "Complete"),
        "Namespace" => object["status"]["phase"] == "Active",
        "PersistentVolumeClaim" => object["status"]["phase"] == "Bound",
        "Node" => condition(object, "Ready"),
        "CustomResourceDefinition" => condition(object, "Established"),
        _ => match object["status"]["conditions"].as_array() {
            Some(conditions) if !conditions.is_empty() => condition(object, "Ready") || condition(object, "Available"),
            _ => true,
        },
    }
}

/// The state of an object in a few words; empty where there is nothing to say.
pub fn state(object: &Value) -> String {
    let count = |field: &str| number(object, &format!("/status/{field}")).unwrap_or(0);
    let wanted = number(object, "/spec/replicas").unwrap_or(1);
    match object["kind"].as_str().unwrap_or_default() {
        "Pod" => {
            let phase = object["status"]["phase"].as_str().unwrap_or_default().to_owned();
            match (condition(object, "Ready"), object["spec"]["nodeName"].as_str()) {
                (true, _) => format!("{phase}, Ready"),
                _ if trouble(object).is_some() => format!("{phase}, {}", trouble(object).unwrap_or_default()),
                (false, Some(node)) if phase == "Pending" => format!("{phase} on {node}"),
                _ => phase,
            }
        }
        // Those of an older template are available too.
        "Deployment" if count("availableReplicas") > 0 && count("updatedReplicas") < wanted => {
            format!("{}/{wanted} available, {}/{wanted} updated", count("availableReplicas"), count("updatedReplicas"))
        }
        "Deployment" => format!("{}/{wanted} available", count("availableReplicas")),
        "ReplicaSet" | "StatefulSet" | "ReplicationController" => format!("{}/{wanted} ready", count("readyReplicas")),
        "DaemonSet" => format!("{}/{} ready", count("numberReady"), count("desiredNumberScheduled")),
        "Job" => {
            let ended = ["Complete", "Failed", "Suspended"].into_iter().find(|name| condition(object, name));
            let ended = ended.map(|name| format!(", {name}")).unwrap_or_default();
            format!("{} active, {} succeeded, {} failed{ended}", count("active"), count("succeeded"), count("failed"))
        }
        "Namespace" | "PersistentVolume" | "PersistentVolumeClaim" => object["status"]["phase"].as_str().unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

/// What keeps an object from being ready, as far as it says so itself: finalizers that its deletion waits for, its state, and the
/// condition that complains.
pub fn standing(object: &Value) -> String {
    if object["metadata"]["deletionTimestamp"].is_string() {
        let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        let finalizers: Vec<&str> = finalizers.filter_map(Value::as_str).collect();
        return match finalizers.is_empty() {
            true => "it is being deleted".into(),
            false => format!("it is being deleted, and waits for {}", finalizers.join(", ")),
        };
    }
    let complains = |condition: &&Value| match condition["type"].as_str().unwrap_or_default() {
        "Failed" | "ReplicaFailure" => condition["status"] == "True",
        "Progressing" | "Ready" | "Available" | "Established" => condition["status"] == "False",
        _ => false,
    };
    // A failure says more than that something is not available because of it.
    let weight = |condition: &&Value| !matches!(condition["type"].as_str(), Some("Failed" | "ReplicaFailure" | "Progressing"));
    // What keeps a Pod is part of its state.
    let conditions = object["status"]["conditions"].as_array().filter(|_| object["kind"] != "Pod");
    let complaint = conditions.into_iter().flatten().filter(complains).min_by_key(weight).map(|condition| {
        let word = |field: &str| condition[field].as_str().unwrap_or_default();
        [word("reason"), word("message")].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ")
    });
    let said = [state(object), complaint.unwrap_or_default()];
    said.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
}

/// The containers of a Pod's status.
const CONTAINERS: [&str; 3] = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];

/// What keeps a Pod from running: no node for it, or a container that waits for more than its turn.
fn trouble(pod: &Value) -> Option<String> {
    let said = |what: String, message: &Value| match message.as_str() {
        Some(message) if !message.is_empty() => format!("{what}: {message}"),
        _ => what,
    };
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let unplaced = conditions.into_iter().find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False");
    if let Some(condition) = unplaced {
        return Some(said(condition["reason"].as_str().unwrap_or("not scheduled").to_owned(), &condition["message"]));
    }
    CONTAINERS.iter().flat_map(|list| pod["status"][*list].as_array().into_iter().flatten()).find_map(|status| {
        let waiting = &status["state"]["waiting"];
        let reason = waiting["reason"].as_str().filter(|reason| !matches!(*reason, "ContainerCreating" | "PodInitializing"))?;
        Some(said(format!("{} {reason}", status["name"].as_str().unwrap_or_default()), &waiting["message"]))
    })
}

/// What the kubelet had its container runtime do between two states of a Pod.
pub fn runtime_steps(before: Option<&Value>, after: &Value) -> Vec<String> {
    let mut steps = Vec::new();
    let empty = Value::Null;
    let before = before.unwrap_or(&empty);
    let text = |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let address = text(after, "/status/podIP");
    if !address.is_empty() && text(before, "/status/podIP").is_empty() {
        steps.push(format!("RunPodSandbox: {address}"));
    }
    for list in CONTAINERS {
        for status in after["status"][list].as_array().into_iter().flatten() {
            let name = status["name"].as_str().unwrap_or_default();
            let was = before["status"][list].as_array().and_then(|all| all.iter().find(|s| s["name"] == name)).unwrap_or(&empty);
            let (id, before_id) = (text(status, "/containerID"), text(was, "/containerID"));
            if !text(status, "/imageID").is_empty() && text(was, "/imageID").is_empty() {
                steps.push(format!("PullImage {}", status["image"].as_str().unwrap_or_default()));
            }
            let waits_for = |status: &Value| text(status, "/state/waiting/reason");
            if waits_for(status) == "ErrImagePull" && waits_for(was) != "ErrImagePull" {
                steps.push(format!(
                    "PullImage {} ✗ {}",
                    status["image"].as_str().unwrap_or_default(),
                    text(status, "/state/waiting/message")
                ));
            }
            // One that is started again has its end in the state before this one.
            let ended = [&status["state"]["terminated"], &status["lastState"]["terminated"]].into_iter().find(|ended| ended.is_object());
            let known = [&was["state"]["terminated"], &was["lastState"]["terminated"]];
            let is_known = |ended: &Value| known.iter().any(|known| known.is_object() && known["containerID"] == ended["containerID"]);
            let ended = ended.filter(|ended| !is_known(ended)).map(|ended| {
                let why = ended["reason"].as_str().unwrap_or_default();
                let step = format!("{name} ended: exit code {} {why}", ended["exitCode"]).trim_end().to_owned();
                (step, ended["containerID"] == id.as_str())
            });
            let started = (!id.is_empty() && id != before_id).then(|| format!("CreateContainer, StartContainer {name}"));
            match ended {
                Some((ended, true)) => steps.extend(started.into_iter().chain([ended])),
                Some((ended, false)) => steps.extend([ended].into_iter().chain(started)),
                None => steps.extend(started),
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deployment_is_ready_when_all_of_its_newest_replicas_are_available() {
        let mut object = json!({"kind": "Deployment", "metadata": {"generation": 2}, "spec": {"replicas": 2},
            "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}});
        assert!(!is_ready(&object), "the controller has not seen it yet");
        object["status"]["observedGeneration"] = json!(2);
        assert!(is_ready(&object));
        assert_eq!(state(&object), "2/2 available");
    }

    #[test]
    fn what_waits_for_nothing_is_ready_at_once() {
        assert!(is_ready(&json!({"kind": "ConfigMap"})));
        assert!(!is_ready(&json!({"kind": "Widget", "status": {"conditions": [{"type": "Ready", "status": "False"}]}})));
    }

    #[test]
    fn the_runtimes_steps_are_read_off_the_status() {
        let before = json!({"status": {"phase": "Pending"}});
        let after = json!({"status": {"podIP": "10.0.0.1", "containerStatuses": [
            {"name": "web", "image": "nginx", "imageID": "sha", "containerID": "mock://1", "state": {"running": {}}}]}});
        let steps = runtime_steps(Some(&before), &after);
        assert_eq!(steps, ["RunPodSandbox: 10.0.0.1", "PullImage nginx", "CreateContainer, StartContainer web"]);
        assert!(runtime_steps(Some(&after), &after).is_empty());
    }

    #[test]
    fn what_keeps_a_pod_from_running_is_said() {
        let pod = |status: Value| json!({"kind": "Pod", "spec": {"nodeName": "n"}, "status": status});
        let unplaced = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]});
        assert_eq!(state(&pod(unplaced)), "Pending, Unschedulable: 0/3 nodes are available");
        let waits = |reason: &str| {
            json!({"phase": "Pending", "containerStatuses": [
            {"name": "c", "image": "nope", "state": {"waiting": {"reason": reason, "message": "no such image"}}}]})
        };
        assert_eq!(state(&pod(waits("ErrImagePull"))), "Pending, c ErrImagePull: no such image");
        assert_eq!(state(&pod(waits("ContainerCreating"))), "Pending on n");
        assert_eq!(runtime_steps(None, &pod(waits("ErrImagePull"))), ["PullImage nope ✗ no such image"]);
        let ran = json!({"status": {"containerStatuses": [{"name": "c", "containerID": "1", "state": {"running": {}}}]}});
        let again = json!({"status": {"containerStatuses": [{"name": "c", "containerID": "2", "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "containerID": "1"}}}]}});
        assert_eq!(runtime_steps(Some(&ran), &again), ["c ended: exit code 1 Error", "CreateContainer, StartContainer c"]);
        assert!(runtime_steps(Some(&again), &again).is_empty());
    }

    #[test]
    fn what_keeps_an_object_from_being_ready_is_said() {
        let failed = json!({"kind": "Job", "status": {"failed": 2, "conditions": [
            {"type": "FailureTarget", "status": "True"},
            {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "it failed too often"}]}});
        assert_eq!(standing(&failed), "0 active, 0 succeeded, 2 failed, Failed; BackoffLimitExceeded: it failed too often");
        let stuck = json!({"kind": "Deployment", "spec": {"replicas": 2}, "status": {"availableReplicas": 2, "updatedReplicas": 1,
            "conditions": [{"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"},
                {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}});
        assert_eq!(standing(&stuck), "2/2 available, 1/2 updated; ProgressDeadlineExceeded");
        let held = json!({"kind": "ConfigMap", "metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": ["a/b", "c"]}});
        assert_eq!(standing(&held), "it is being deleted, and waits for a/b, c");
        assert_eq!(standing(&json!({"kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}})), "Pending");
    }
}
