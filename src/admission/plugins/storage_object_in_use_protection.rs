//! `StorageObjectInUseProtection`: volumes and claims get the finalizer that keeps them while somebody uses them.

use futures::future::BoxFuture;
use serde_json::json;

use super::pod::array_mut;
use crate::admission::{Mutate, Operation, Write};
use crate::status::Status;

/// The plugin.
pub struct StorageObjectInUseProtection;

fn finalizer(write: &Write) -> Option<&'static str> {
    match (&*write.resource.group, &*write.resource.plural) {
        ("", "persistentvolumeclaims") => Some("kubernetes.io/pvc-protection"),
        ("", "persistentvolumes") => Some("kubernetes.io/pv-protection"),
        ("storage.k8s.io", "volumeattributesclasses") => Some("kubernetes.io/vac-protection"),
        _ => None,
    }
}

impl Mutate for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, write: &Write) -> bool {
        write.operation == Operation::Create && write.subresource.is_empty() && finalizer(write).is_some()
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            if let Some(finalizer) = finalizer(write) {
                let finalizers = array_mut(&mut write.object_mut()["metadata"], "finalizers");
                if !finalizers.contains(&json!(finalizer)) {
                    finalizers.push(json!(finalizer));
                }
            }
            Ok(())
        })
    }
}
