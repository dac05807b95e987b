//! `LimitPodHardAntiAffinityTopology`: no Pod keeps others out of more than one node.

use futures::future::BoxFuture;

use crate::admission::{Operation, Validate, Write};
use crate::status::Status;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// The plugin.
pub struct LimitPodHardAntiAffinityTopology;

impl Validate for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    fn handles(&self, write: &Write) -> bool {
        write.is("", "pods") && matches!(write.operation, Operation::Create | Operation::Update)
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let required = &write.object()["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
            for term in required.as_array().into_iter().flatten() {
                let key = term["topologyKey"].as_str().unwrap_or_default();
                if key != HOSTNAME {
                    return Err(write.forbidden(format!(
                        "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
                    )));
                }
            }
            Ok(())
        })
    }
}
