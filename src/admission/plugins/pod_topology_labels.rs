//! `PodTopologyLabels`: a Pod learns the zone and the region of its node, from the Binding that puts it there.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::admission::{Cluster, Mutate, Operation, Write};
use crate::object::meta_mut;
use crate::status::Status;

/// What is copied.
const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// The plugin.
pub struct PodTopologyLabels(pub Cluster);

impl Mutate for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn handles(&self, write: &Write) -> bool {
        write.operation == Operation::Create && write.is_of("", "pods") && !node_of(write).is_empty()
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let Some(node) = self.0.peek("nodes", "", node_of(write)) else { return Ok(()) };
            let labels = &node.value()["metadata"]["labels"];
            let found: Vec<(&str, &Value)> = LABELS.iter().filter_map(|label| Some((*label, labels.get(label)?))).collect();
            if found.is_empty() {
                return Ok(());
            }
            let metadata = meta_mut(write.object_mut());
            if let Some(all) = metadata.entry("labels").or_insert_with(|| json!({})).as_object_mut() {
                all.extend(found.into_iter().map(|(label, value)| (label.to_owned(), value.clone())));
            }
            Ok(())
        })
    }
}

/// The node that a new Pod or a Binding names.
fn node_of(write: &Write) -> &str {
    let object = write.object();
    let node = match write.subresource.as_str() {
        "" => &object["spec"]["nodeName"],
        "binding" if object["target"]["kind"] == "Node" => &object["target"]["name"],
        _ => &Value::Null,
    };
    node.as_str().unwrap_or_default()
}
