//! What clients ask for: REST verbs, discovery, OpenAPI, tables, patches and apply.

pub mod apply;
pub mod patch;
