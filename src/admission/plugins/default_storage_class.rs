//! `DefaultStorageClass`: a claim that names no class gets the default one.

use futures::future::BoxFuture;
use serde_json::json;

use super::default_class::default_class;
use crate::admission::{Cluster, Mutate, Write};
use crate::status::Status;

/// The plugin.
pub struct DefaultStorageClass(pub Cluster);

impl Mutate for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn handles(&self, write: &Write) -> bool {
        write.creates("", "persistentvolumeclaims")
            && write.object()["spec"]["storageClassName"].is_null()
            && write.object()["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].is_null()
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let classes = self.0.list("storageclasses", "").await?;
            let annotations = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
            if let Some(class) = default_class(classes, &annotations) {
                write.object_mut()["spec"]["storageClassName"] = json!(class.name());
            }
            Ok(())
        })
    }
}
