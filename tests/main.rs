//! The one integration-test binary: a module per room.
#![allow(clippy::unwrap_used)]

mod admission;
mod controllers;
mod door;
mod hostile;
mod identity;
mod nodes;
mod recorded;
mod store;
