//! `NamespaceExists`: the older and weaker sibling of NamespaceLifecycle; nothing is done in a namespace that is not there.

use futures::future::BoxFuture;

use crate::admission::{Cluster, Operation, Validate, Write};
use crate::status::Status;

/// The plugin.
pub struct NamespaceExists(pub Cluster);

impl Validate for NamespaceExists {
    fn name(&self) -> &'static str {
        "NamespaceExists"
    }

    fn handles(&self, write: &Write) -> bool {
        write.resource.namespaced && write.operation != Operation::Connect
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            match self.0.namespace(&write.namespace) {
                Some(_) => Ok(()),
                None => Err(Status::not_found("", "namespaces", &write.namespace)),
            }
        })
    }
}
