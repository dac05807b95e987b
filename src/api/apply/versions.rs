//! The seam to conversion: a manager's paths are in the version that it wrote in, which need not be the one of the request.

use std::sync::Arc;

use serde_json::Value;

use crate::schema::Schema;

/// An object in another version, with that version's schema.
#[derive(Clone, Debug)]
pub struct Converted {
    /// The object.
    pub object: Value,
    /// Its schema.
    pub schema: Arc<Schema>,
}

/// Why an object could not be had in another version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// The version is not served any more: what was written in it is owned by nobody.
    #[error("no such version")]
    NoSuchVersion,
    /// It is, but converting failed.
    #[error("{0}")]
    Failed(String),
}

/// Converts objects of one kind between its versions. Called only for entries of another version than the request's.
pub trait Versions: Sync {
    /// `object` in `api_version`.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Converted, ConversionError>;
}

/// A kind with one version.
#[derive(Clone, Copy, Debug)]
pub struct OneVersion;

impl Versions for OneVersion {
    fn convert(&self, _object: &Value, _api_version: &str) -> Result<Converted, ConversionError> {
        Err(ConversionError::NoSuchVersion)
    }
}
