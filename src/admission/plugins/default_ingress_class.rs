//! `DefaultIngressClass`: an Ingress that names no class gets the default one.

use futures::future::BoxFuture;
use serde_json::json;

use super::default_class::default_class;
use crate::admission::{Cluster, Mutate, Write};
use crate::status::Status;

/// The plugin.
pub struct DefaultIngressClass(pub Cluster);

impl Mutate for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn handles(&self, write: &Write) -> bool {
        write.creates("networking.k8s.io", "ingresses")
            && write.object()["spec"]["ingressClassName"].is_null()
            && write.object()["metadata"]["annotations"]["kubernetes.io/ingress.class"].is_null()
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let classes = self.0.list("ingressclasses", "").await?;
            if let Some(class) = default_class(classes, &["ingressclass.kubernetes.io/is-default-class"]) {
                write.object_mut()["spec"]["ingressClassName"] = json!(class.name());
            }
            Ok(())
        })
    }
}
