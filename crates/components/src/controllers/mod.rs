//! The controllers of a kube-controller-manager, one per file, under the names it gives them.

pub mod cluster_role_aggregation;
pub mod deployment;
pub mod endpoints;
pub mod garbage_collector;
pub mod hash;
pub mod namespace;
pub mod owner;
pub mod percent;
pub mod pod_control;
pub mod pods;
pub mod replicaset;
pub mod root_ca;
pub mod service_account;

use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::ReplicationController};

use crate::runtime::{Entry, Selectable};

/// All controllers, in the order in which they start.
pub fn entries() -> Vec<Entry> {
    let entry = |name, aliases, run| Entry { names: Selectable { name, aliases, controller: true }, run };
    vec![
        entry("deployment-controller", &["deployment"], deployment::run),
        entry("replicaset-controller", &["replicaset"], replicaset::run::<ReplicaSet>),
        entry("replicationcontroller-controller", &["replicationcontroller"], replicaset::run::<ReplicationController>),
        entry("endpointslice-controller", &["endpointslice"], endpoints::slice::run),
        entry("endpoints-controller", &["endpoint"], endpoints::legacy::run),
        entry("namespace-controller", &["namespace"], namespace::run),
        entry("serviceaccount-controller", &["serviceaccount"], service_account::run),
        entry("root-ca-certificate-publisher-controller", &["root-ca-cert-publisher"], root_ca::run),
        entry("clusterrole-aggregation-controller", &["clusterrole-aggregation"], cluster_role_aggregation::run),
        // Last, because it reads along with what the others watch.
        entry("garbage-collector-controller", &["garbagecollector"], garbage_collector::run),
    ]
}
