//! Who set which field: `metadata.managedFields`, kept by every write.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde_json::Value;

use super::apply::{Context, ConversionError, Converted, FieldSet, ResetFields, Versions, manager_name, track_update};
use super::write::Target;
use super::{Api, convert};
use crate::registry::Resource;
use crate::schema::Schema;

static RESET_STATUS: LazyLock<ResetFields> = LazyLock::new(|| ResetFields::Reset(FieldSet::of_fields(&[&["status"]])));
static RESET_SPEC: LazyLock<ResetFields> = LazyLock::new(|| ResetFields::Reset(FieldSet::of_fields(&[&["spec"]])));
static RESET_ALL_BUT_STATUS: LazyLock<ResetFields> = LazyLock::new(|| ResetFields::AllBut(FieldSet::of_fields(&[&["status"]])));

/// What a write of a target cannot change, and so does not come to own.
pub fn reset_fields(target: &Target) -> Option<&'static ResetFields> {
    let resource = &target.resource;
    match target.subresource.as_str() {
        "" if resource.subresource("status").is_some() => Some(&RESET_STATUS),
        "status" if resource.custom.is_some() => Some(&RESET_ALL_BUT_STATUS),
        "status" => Some(&RESET_SPEC),
        _ => None,
    }
}

/// The versions of a kind, for managers that wrote in another one.
pub struct KindVersions<'a> {
    /// The resource of the request.
    pub resource: &'a Resource,
    /// Where its other versions are found.
    pub api: &'a Api,
}

impl Versions for KindVersions<'_> {
    fn convert(&self, object: &Value, api_version: &str) -> Result<Converted, ConversionError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let other = self.api.registry.lookup(group, version, &self.resource.plural).ok_or(ConversionError::NoSuchVersion)?;
        let stored = convert::to_storage(object.clone(), self.resource);
        Ok(Converted { object: convert::to_version(stored, &other), schema: other.schema() })
    }
}

/// RFC 3339 in seconds.
pub fn timestamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Records what a create or update changed as its manager's.
pub fn track(api: &Api, target: &Target, schema: &Arc<Schema>, old: Option<&Value>, new: &mut Value) {
    let resource = &*target.resource;
    let manager = manager_name(target.options.field_manager.as_deref().unwrap_or_default(), &target.context.user_agent);
    let (api_version, now) = (resource.group_version(), timestamp(api.clock.now()));
    let context = Context {
        manager: &manager,
        subresource: &target.subresource,
        api_version: &api_version,
        kind: &resource.kind,
        force: false,
        now: &now,
        reset_fields: reset_fields(target),
        versions: &KindVersions { resource, api },
    };
    track_update(old, new, schema, &context);
}
