//! `PersistentVolumeClaimResize`: a claim grows only where its class can make volumes grow.

use futures::future::BoxFuture;

use super::resources::amounts;
use crate::admission::{Cluster, Operation, Validate, Write};
use crate::status::Status;

/// The plugin.
pub struct PersistentVolumeClaimResize(pub Cluster);

impl Validate for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, write: &Write) -> bool {
        write.operation == Operation::Update && write.is("", "persistentvolumeclaims")
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let size = |claim: &serde_json::Value| amounts(&claim["spec"]["resources"]["requests"]).get("storage").map_or(0, |q| q.nanos());
            if size(write.object()) <= size(write.old()) {
                return Ok(());
            }
            if write.old()["status"]["phase"] != "Bound" {
                return Err(write.forbidden("Only bound persistent volume claims can be expanded"));
            }
            let class = write.object()["spec"]["storageClassName"].as_str().unwrap_or_default();
            let grows = match class.is_empty() {
                true => false,
                false => self.0.get("storageclasses", "", class).await?.is_some_and(|c| c.value()["allowVolumeExpansion"] == true),
            };
            match grows {
                true => Ok(()),
                false => Err(write.forbidden(
                    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
                )),
            }
        })
    }
}
