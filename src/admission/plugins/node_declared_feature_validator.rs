//! `NodeDeclaredFeatureValidator`: a Pod on a node is not changed into something that the node does not say it can do
//! (`status.declaredFeatures`). Of what a Pod that runs can be changed in, that concerns resizing.

use futures::future::BoxFuture;
use serde_json::Value;

use crate::admission::{Cluster, Operation, Validate, Write};
use crate::status::Status;

/// The plugin.
pub struct NodeDeclaredFeatureValidator(pub Cluster);

impl Validate for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn handles(&self, write: &Write) -> bool {
        write.operation == Operation::Update
            && write.is_of("", "pods")
            && matches!(write.subresource.as_str(), "" | "resize")
            && write.object()["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
            && write.object()["metadata"]["generation"] != write.old()["metadata"]["generation"]
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let spec = &write.object()["spec"];
            let mut needed = needed(&write.old()["spec"], spec);
            if needed.is_empty() {
                return Ok(());
            }
            let name = spec["nodeName"].as_str().unwrap_or_default();
            let Some(node) = self.0.peek("nodes", "", name) else {
                return Err(write.forbidden(format!("node {name:?} not found")));
            };
            let declared = node.value()["status"]["declaredFeatures"].as_array().cloned().unwrap_or_default();
            needed.retain(|feature| !declared.iter().any(|declared| declared == feature));
            match needed.is_empty() {
                true => Ok(()),
                false => {
                    let features = needed.join(", ");
                    Err(write.forbidden(format!("pod update requires features {features} which are not available on node {name:?}")))
                }
            }
        })
    }
}

/// The features that a change of a Pod needs.
fn needed(old: &Value, new: &Value) -> Vec<&'static str> {
    let mut needed = Vec::new();
    if old["resources"] != new["resources"] {
        needed.push("InPlacePodLevelResourcesVerticalScaling");
    }
    let pairs = |list: &str| {
        let of = |spec: &Value| spec[list].as_array().cloned().unwrap_or_default();
        of(old).into_iter().zip(of(new))
    };
    let is_resized = |(old, new): (Value, Value)| old["restartPolicy"] != "Always" && old["resources"] != new["resources"];
    if pairs("initContainers").any(is_resized) {
        needed.push("InPlacePodVerticalScalingInitContainers");
    }
    let is_grown = |(old, new): (Value, Value)| {
        let (before, after) = (&old["emptyDir"], &new["emptyDir"]);
        let limits = (&before["sizeLimit"], &after["sizeLimit"]);
        old["name"] == new["name"] && after["medium"] == "Memory" && limits.0 != limits.1 && !limits.0.is_null() && !limits.1.is_null()
    };
    if pairs("volumes").any(is_grown) {
        needed.push("InPlacePodVerticalScalingMemoryBackedVolumes");
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_not_every_node_can_resize_is_needed() {
        let spec = |pod: &str, init: &str, policy: &str, container: &str| {
            json!({"resources": {"limits": {"cpu": pod}}, "containers": [{"resources": {"limits": {"cpu": container}}}],
                "initContainers": [{"restartPolicy": policy, "resources": {"limits": {"cpu": init}}}]})
        };
        let old = spec("1", "1", "Always", "1");
        assert!(needed(&old, &spec("1", "2", "Always", "2")).is_empty(), "containers and sidecars are resized everywhere");
        assert_eq!(needed(&old, &spec("2", "1", "Always", "1")), ["InPlacePodLevelResourcesVerticalScaling"]);
        let old = spec("1", "1", "Never", "1");
        assert_eq!(needed(&old, &spec("1", "2", "Never", "1")), ["InPlacePodVerticalScalingInitContainers"]);
    }
}
