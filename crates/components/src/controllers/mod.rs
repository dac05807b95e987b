//! The controllers of a kube-controller-manager, one per file, under the names it gives them.

pub mod certificates;
pub mod cluster_role_aggregation;
pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod disruption;
pub mod endpoints;
pub mod garbage_collector;
pub mod hash;
pub mod job;
pub mod namespace;
pub mod node;
pub mod node_fit;
pub mod owner;
pub mod percent;
pub mod pod_control;
pub mod pod_gc;
pub mod pods;
pub mod replicaset;
pub mod resource_quota;
pub mod revisions;
pub mod root_ca;
pub mod service_account;
pub mod service_account_token;
pub mod statefulset;
pub mod ttl_after_finished;
pub mod volume;

use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    core::v1::{PersistentVolume, PersistentVolumeClaim, ReplicationController},
};

use crate::runtime::{Entry, Selectable};

/// All controllers, in the order in which they start.
pub fn entries() -> Vec<Entry> {
    let entry = |name, aliases, run| Entry { names: Selectable { name, aliases, controller: true }, lease: "kube-controller-manager", run };
    vec![
        entry("deployment-controller", &["deployment"], deployment::run),
        entry("replicaset-controller", &["replicaset"], replicaset::run::<ReplicaSet>),
        entry("replicationcontroller-controller", &["replicationcontroller"], replicaset::run::<ReplicationController>),
        entry("statefulset-controller", &["statefulset"], statefulset::run),
        entry("daemonset-controller", &["daemonset"], daemonset::run),
        entry("job-controller", &["job"], job::run),
        entry("cronjob-controller", &["cronjob"], cronjob::run),
        entry("ttl-after-finished-controller", &["ttl-after-finished"], ttl_after_finished::run),
        entry("endpointslice-controller", &["endpointslice"], endpoints::slice::run),
        entry("endpoints-controller", &["endpoint"], endpoints::legacy::run),
        entry("namespace-controller", &["namespace"], namespace::run),
        entry("serviceaccount-controller", &["serviceaccount"], service_account::run),
        entry("serviceaccount-token-controller", &["serviceaccount-token"], service_account_token::run),
        entry("root-ca-certificate-publisher-controller", &["root-ca-cert-publisher"], root_ca::run),
        entry("clusterrole-aggregation-controller", &["clusterrole-aggregation"], cluster_role_aggregation::run),
        entry("certificatesigningrequest-signing-controller", &["csrsigning"], certificates::signing::run),
        entry("certificatesigningrequest-approving-controller", &["csrapproving"], certificates::approving::run),
        entry("certificatesigningrequest-cleaner-controller", &["csrcleaner"], certificates::cleaner::run),
        entry("node-ipam-controller", &["nodeipam"], node::ipam::run),
        entry("node-lifecycle-controller", &["nodelifecycle"], node::lifecycle::run),
        entry("ttl-controller", &["ttl"], node::ttl::run),
        entry("taint-eviction-controller", &[], node::taint_eviction::run),
        entry("pod-garbage-collector-controller", &["podgc"], pod_gc::run),
        entry("persistentvolume-binder-controller", &["persistentvolume-binder"], volume::binder::run),
        entry("persistentvolumeclaim-protection-controller", &["pvc-protection"], volume::protection::run::<PersistentVolumeClaim>),
        entry("persistentvolume-protection-controller", &["pv-protection"], volume::protection::run::<PersistentVolume>),
        entry("ephemeral-volume-controller", &["ephemeral-volume"], volume::ephemeral::run),
        entry("disruption-controller", &["disruption"], disruption::run),
        entry("resourcequota-controller", &["resourcequota"], resource_quota::run),
        // Last, because it reads along with what the others watch.
        entry("garbage-collector-controller", &["garbagecollector"], garbage_collector::run),
    ]
}
