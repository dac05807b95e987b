//! Who a component is, and where it gets the client that speaks for it.
//!
//! In one process with the server every component has a client of its own, whose requests carry its identity; against
//! a kubeconfig one client serves them all. A component does not know which of the two it lives in.

use std::{fmt, sync::Arc};

use kube::Client;

/// The user a component acts as.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The user's name, such as `system:kube-scheduler`.
    pub name: String,
    /// The groups, without `system:authenticated`, which every one of them is in.
    pub groups: Vec<String>,
}

impl Identity {
    /// A user with groups.
    pub fn user(name: impl Into<String>, groups: &[&str]) -> Self {
        Identity { name: name.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect() }
    }

    /// The service account of a controller, in `kube-system`.
    pub fn controller(service_account: &str) -> Self {
        Self::user(
            format!("system:serviceaccount:kube-system:{service_account}"),
            &["system:serviceaccounts", "system:serviceaccounts:kube-system"],
        )
    }

    /// Who keeps the caches that all components of a process share.
    pub fn controller_manager() -> Self {
        Self::user("system:kube-controller-manager", &[])
    }

    /// The scheduler.
    pub fn scheduler() -> Self {
        Self::user("system:kube-scheduler", &[])
    }

    /// The kubelet of a node.
    pub fn node(name: &str) -> Self {
        Self::user(format!("system:node:{name}"), &["system:nodes"])
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Hands out clients by identity.
pub trait ClientFor: Send + Sync + 'static {
    /// The client that speaks for `identity`. Called once per component and kept.
    fn client(&self, identity: &Identity) -> Client;
}

/// One client for everybody: what a kubeconfig gives.
impl ClientFor for Client {
    fn client(&self, _: &Identity) -> Client {
        self.clone()
    }
}

impl<T: ClientFor + ?Sized> ClientFor for Arc<T> {
    fn client(&self, identity: &Identity) -> Client {
        (**self).client(identity)
    }
}
