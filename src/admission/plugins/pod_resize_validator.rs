//! `PodResizeValidator`: a Pod on a node does not grow beyond what the node can give, and only where a node can resize at all.

use futures::future::BoxFuture;
use serde_json::Value;

use super::resources::{amounts, pod_amounts};
use crate::admission::{Cluster, Operation, Validate, Write};
use crate::status::Status;

/// The plugin.
pub struct PodResizeValidator(pub Cluster);

impl Validate for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn handles(&self, write: &Write) -> bool {
        write.operation == Operation::Update
            && write.is_of("", "pods")
            && write.subresource == "resize"
            && write.object()["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
            && write.object()["metadata"]["generation"] != write.old()["metadata"]["generation"]
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let spec = &write.object()["spec"];
            let name = spec["nodeName"].as_str().unwrap_or_default();
            let Some(node) = self.0.peek("nodes", "", name) else {
                return Err(write.forbidden(format!("node {name:?} not found")));
            };
            let node = node.value();
            if let Some(system) = node["metadata"]["labels"]["kubernetes.io/os"].as_str().filter(|system| *system != "linux") {
                let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
                return Err(write.forbidden(why).cause("UnsupportedPlatform", "", ""));
            }
            match lacking(spec, &node["status"]["allocatable"]) {
                missing if missing.is_empty() => Ok(()),
                missing => {
                    let why = format!("node didn't have enough allocatable resources: {}", missing.join("; "));
                    Err(write.forbidden(why).cause("NodeCapacity", "", ""))
                }
            }
        })
    }
}

/// What a Pod asks for beyond what there is: CPU in thousandths, memory in bytes.
fn lacking(spec: &Value, allocatable: &Value) -> Vec<String> {
    const NANO: i128 = 1_000_000_000;
    let (wanted, there) = (pod_amounts(spec, "requests"), amounts(allocatable));
    let units = [("cpu", NANO / 1000), ("memory", NANO)];
    let up = |nanos: i128, unit: i128| (nanos + unit - 1) / unit;
    let over = |(resource, unit): (&str, i128)| {
        let nanos = |of: &super::resources::Amounts| of.get(resource).map_or(0, |amount| amount.nanos());
        let (wanted, there) = (nanos(&wanted), nanos(&there));
        (wanted > there).then(|| format!("{resource}, requested: {}, allocatable: {}", up(wanted, unit), up(there, unit)))
    };
    units.into_iter().filter_map(over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_node_lacks_is_told_in_its_units() {
        let spec = json!({"containers": [{"resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}]});
        assert_eq!(lacking(&spec, &json!({"cpu": "1", "memory": "2Gi"})), ["cpu, requested: 1500, allocatable: 1000"]);
        assert_eq!(lacking(&spec, &json!({"cpu": "2"})), ["memory, requested: 1073741824, allocatable: 0"]);
        assert!(lacking(&spec, &json!({"cpu": "2", "memory": "1Gi"})).is_empty());
    }
}
