//! `NamespaceAutoProvision`: a namespace comes into being when something is first created in it.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::json;

use crate::admission::{Cluster, Mutate, Operation, Write};
use crate::object::canonical;
use crate::status::Status;
use crate::store::{self, Batch, Error, Expect};
use crate::validation;

/// The plugin.
pub struct NamespaceAutoProvision(pub Cluster);

impl Mutate for NamespaceAutoProvision {
    fn name(&self) -> &'static str {
        "NamespaceAutoProvision"
    }

    fn handles(&self, write: &Write) -> bool {
        write.operation == Operation::Create && write.resource.namespaced && !write.dry_run && self.0.namespace(&write.namespace).is_none()
    }

    fn is_compared(&self) -> bool {
        false
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let name = &write.namespace;
            let now = self.0.clock.now();
            let object = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {
                    "name": name, "uid": uuid::Uuid::new_v4().to_string(),
                    "creationTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                    "labels": {"kubernetes.io/metadata.name": name},
                },
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            });
            // It is made like any other; a name that is none is told as the reason.
            if let Some(resource) = self.0.registry.lookup("", "v1", "namespaces") {
                let errors = validation::create(&resource, &object);
                if !errors.is_empty() {
                    return Err(write.forbidden(Status::invalid("", "Namespace", name, errors).message));
                }
            }
            let key: Arc<str> = format!("/registry/namespaces/{name}").into();
            let operation = store::Operation::Put { key, value: canonical(&object), expect: Expect::Absent };
            let batch = Batch { operations: vec![operation], time: now.as_microsecond(), audit_id: Some(write.context.audit_id.clone()) };
            match self.0.state.store().commit(batch).await {
                // Somebody else had the same idea.
                Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
                Err(other) => Err(Status::internal(other)),
            }
        })
    }
}
