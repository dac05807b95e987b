//! The scheduler: gives every Pod that has no node a node, through the API's `pods/binding`.

pub mod cache;
pub mod event;
pub mod framework;
pub mod info;
pub mod plugins;
pub mod quantity;
pub mod queue;
pub mod resource;
pub mod schedule;
pub mod selector;
#[cfg(test)]
pub(crate) mod testing;
