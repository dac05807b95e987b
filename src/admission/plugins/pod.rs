//! Where things are in a Pod, and where Pods are in other kinds: read by many plugins, changed by none here.

use serde_json::{Value, json};

/// The annotation of a Pod that stands for one that a kubelet runs by itself.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// Whether a Pod is such a stand-in.
pub fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR_POD).is_some()
}

/// The three lists of containers, in the order in which messages tell them.
pub const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Every container of a Pod's spec, init containers first, then the containers, then ephemeral ones.
pub fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten())
}

/// The same of some of the lists, to change.
pub fn containers_mut<'a>(spec: &'a mut Value, lists: &'a [&str]) -> impl Iterator<Item = &'a mut Value> {
    let fields = spec.as_object_mut().into_iter().flat_map(|spec| spec.iter_mut());
    fields.filter(|(name, _)| lists.contains(&name.as_str())).flat_map(|(_, list)| list.as_array_mut().into_iter().flatten())
}

/// The metadata and the spec of the Pod that an object is or makes, and whether it is one itself.
pub fn pod_of<'a>(kind: &str, object: &'a Value) -> Option<(&'a Value, &'a Value)> {
    let template = match kind {
        "Pod" => return Some((&object["metadata"], &object["spec"])),
        "PodTemplate" => &object["template"],
        "ReplicationController" | "ReplicaSet" | "Deployment" | "StatefulSet" | "DaemonSet" | "Job" => &object["spec"]["template"],
        "CronJob" => &object["spec"]["jobTemplate"]["spec"]["template"],
        _ => return None,
    };
    template.is_object().then_some((&template["metadata"], &template["spec"]))
}

/// An array member of an object, made if it is not there.
pub fn array_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut Vec<Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let member = &mut object[field];
    if !member.is_array() {
        *member = json!([]);
    }
    // A member that was just made an array is one.
    match member {
        Value::Array(list) => list,
        _ => unreachable!("the member is an array"),
    }
}
