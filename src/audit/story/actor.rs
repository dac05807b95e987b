//! Who acts, told by the name of the user: somebody from outside, or one of the cluster's own components.

use serde::{Deserialize, Serialize};

/// One of the parties of a story; a lane of its diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lane {
    /// Whoever is no component: kubectl, a pipeline, a person.
    Client,
    /// The API server.
    #[serde(rename = "API server")]
    ApiServer,
    /// Where objects are kept.
    #[serde(rename = "store")]
    Store,
    /// The controllers.
    #[serde(rename = "controllers")]
    Controllers,
    /// The scheduler.
    #[serde(rename = "scheduler")]
    Scheduler,
    /// The kubelets.
    #[serde(rename = "kubelet")]
    Kubelet,
    /// The container runtime.
    #[serde(rename = "CRI")]
    Cri,
}

impl Lane {
    /// All of them, from left to right.
    pub const ALL: [Lane; 7] = [Lane::Client, Lane::ApiServer, Lane::Store, Lane::Controllers, Lane::Scheduler, Lane::Kubelet, Lane::Cri];

    /// The lane of a user.
    pub fn of(user: &str) -> Lane {
        match user {
            "system:kube-scheduler" => Lane::Scheduler,
            "system:kube-controller-manager" => Lane::Controllers,
            "system:apiserver" => Lane::ApiServer,
            _ if user.starts_with("system:serviceaccount:kube-system:") => Lane::Controllers,
            _ if user.starts_with("system:node:") => Lane::Kubelet,
            _ => Lane::Client,
        }
    }

    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Lane::Client => "Client",
            Lane::ApiServer => "API server",
            Lane::Store => "store",
            Lane::Controllers => "controllers",
            Lane::Scheduler => "scheduler",
            Lane::Kubelet => "kubelet",
            Lane::Cri => "CRI",
        }
    }
}

/// A user's name without what its lane says already: `deployment-controller`, `node-1`.
pub fn short(user: &str) -> &str {
    for prefix in ["system:serviceaccount:kube-system:", "system:node:"] {
        if let Some(rest) = user.strip_prefix(prefix) {
            return rest;
        }
    }
    match user {
        "system:kube-scheduler" | "system:kube-controller-manager" | "system:apiserver" => &user["system:".len()..],
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_known_by_their_user() {
        assert_eq!(Lane::of("system:serviceaccount:kube-system:job-controller"), Lane::Controllers);
        assert_eq!(Lane::of("system:node:n1"), Lane::Kubelet);
        assert_eq!(Lane::of("system:serviceaccount:team:robot"), Lane::Client);
        assert_eq!((short("system:node:n1"), short("system:kube-scheduler"), short("jane")), ("n1", "kube-scheduler", "jane"));
    }
}
