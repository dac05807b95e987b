//! Between the versions of a kind that is stored in one of them.

use serde_json::Value;

use crate::registry::Resource;

/// From the stored version to the one of `resource`.
pub fn to_version(mut object: Value, resource: &Resource) -> Value {
    object["apiVersion"] = resource.group_version().into();
    object
}

/// From the version of `resource` to the stored one.
pub fn to_storage(mut object: Value, resource: &Resource) -> Value {
    object["apiVersion"] = resource.storage_group_version().into();
    object
}
