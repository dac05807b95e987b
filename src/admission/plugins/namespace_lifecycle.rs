//! `NamespaceLifecycle`: nothing is created in a namespace that does not exist or is going away, and the namespaces that the system
//! lives in stay.

use futures::future::BoxFuture;

use crate::admission::{Cluster, Mutate, Operation, Write};
use crate::status::Status;

/// Namespaces that cannot be deleted.
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

/// Namespaces that a server always has, also in the moment before they are first written.
const ALWAYS_THERE: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// The plugin.
pub struct NamespaceLifecycle(pub Cluster);

impl Mutate for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, write: &Write) -> bool {
        match write.is_of("", "namespaces") {
            true => write.operation == Operation::Delete,
            false => matches!(write.operation, Operation::Create | Operation::Update) && write.resource.namespaced,
        }
    }

    fn is_compared(&self) -> bool {
        false
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move { self.check(write) })
    }
}

impl NamespaceLifecycle {
    fn check(&self, write: &Write) -> Result<(), Status> {
        if write.is_of("", "namespaces") {
            return match IMMORTAL.contains(&write.name.as_str()) {
                true => Err(write.forbidden("this namespace may not be deleted")),
                false => Ok(()),
            };
        }
        let is_review = &*write.resource.group == "authorization.k8s.io";
        if is_review {
            return Ok(());
        }
        let name = &write.namespace;
        let Some(namespace) = self.0.namespace(name) else {
            return match ALWAYS_THERE.contains(&name.as_str()) {
                true => Ok(()),
                false => Err(Status::not_found("", "namespaces", name)),
            };
        };
        if write.operation == Operation::Create && namespace.value()["status"]["phase"] == "Terminating" {
            let why = format!("unable to create new content in namespace {name} because it is being terminated");
            let status = write.forbidden(why);
            return Err(status.cause("NamespaceTerminating", format!("namespace {name} is being terminated"), "metadata.namespace"));
        }
        Ok(())
    }
}
