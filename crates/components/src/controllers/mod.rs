//! The controllers of a kube-controller-manager, one per file, under the names it gives them.

pub mod deployment;
pub mod hash;
pub mod owner;
pub mod percent;
pub mod pod_control;
pub mod pods;
pub mod replicaset;

use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::ReplicationController};

use crate::runtime::{Entry, Selectable};

/// All controllers, in the order in which they start.
pub fn entries() -> Vec<Entry> {
    let entry = |name, aliases, run| Entry { names: Selectable { name, aliases, controller: true }, run };
    vec![
        entry("deployment-controller", &["deployment"], deployment::run),
        entry("replicaset-controller", &["replicaset"], replicaset::run::<ReplicaSet>),
        entry("replicationcontroller-controller", &["replicationcontroller"], replicaset::run::<ReplicationController>),
    ]
}
