//! Telling what happened and why, from what was recorded: pure functions from audit events and kept revisions to what a person
//! wants to know. The server computes these ([`crate::gateway::operations`]), the command line draws them.
//!
//! [`fields`] takes objects apart and compares them; [`blame`] says who set a field; [`explain`] tells the way of one request, with
//! [`permission`] what allowed it or was missing and [`failed`] why a policy's expression was false; [`sequence`] tells what followed from a write, and [`draw`], [`mermaid`] and [`svg`]
//! draw that.

pub mod actor;
pub mod blame;
pub mod draw;
pub mod explain;
pub mod failed;
pub mod fields;
pub mod mermaid;
pub mod ownership;
pub mod permission;
pub mod ready;
pub mod sequence;
pub mod svg;

pub use actor::Lane;
