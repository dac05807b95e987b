//! The API as clients see it: content types, discovery, and the REST verbs over the registry.

pub mod compress;
pub mod negotiate;
pub mod protobuf;
