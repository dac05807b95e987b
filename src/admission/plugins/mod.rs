//! Kubernetes' built-in admission plugins, one file each, under Kubernetes' names and with its messages. Which of them run is decided
//! in [`super::registry`].

pub mod default_toleration_seconds;
pub mod limit_ranger;
pub mod namespace_lifecycle;
pub mod node_restriction;
pub mod pod;
pub mod priority;
pub mod resource_quota;
pub mod resources;
pub mod service_account;
pub mod taint_nodes_by_condition;
