//! The one integration-test binary: a module per room.
#![allow(clippy::unwrap_used)]

mod controllers;
mod door;
mod identity;
mod nodes;
mod store;
