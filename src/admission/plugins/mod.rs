//! Kubernetes' built-in admission plugins, one file each, under Kubernetes' names and with its messages. Which of them run is decided
//! in [`super::registry`].

pub mod always;
pub mod always_pull_images;
pub mod certificates;
mod default_class;
pub mod default_ingress_class;
pub mod default_storage_class;
pub mod default_toleration_seconds;
pub mod deny_service_external_ips;
pub mod event_rate_limit;
pub mod extended_resource_toleration;
pub mod image_policy_webhook;
pub mod limit_pod_hard_anti_affinity_topology;
pub mod limit_ranger;
pub mod namespace_auto_provision;
pub mod namespace_exists;
pub mod namespace_lifecycle;
pub mod node_declared_feature_validator;
pub mod node_restriction;
pub mod owner_references_permission_enforcement;
pub mod persistent_volume_claim_resize;
pub mod pod;
pub mod pod_group_protection;
pub mod pod_node_selector;
pub mod pod_resize_validator;
pub mod pod_security;
pub mod pod_toleration_restriction;
pub mod pod_topology_labels;
pub mod priority;
pub mod resource_quota;
pub mod resources;
pub mod runtime_class;
pub mod service_account;
pub mod storage_object_in_use_protection;
pub mod taint_nodes_by_condition;
