//! Server-side apply and the tracking of who owns which field, after structured-merge-diff: [`apply()`] merges an applied
//! configuration into the live object, and [`track_update()`] notes what a create, update or patch has changed. Both are
//! pure: schema, versions and clock are handed in.
//!
//! What the REST layer has to do:
//! - before: require `fieldManager` for apply and refuse `force` for other patches (422 on `PatchOptions`); decode the body
//!   as YAML ("error decoding patch: …", 400); check its name, namespace, resourceVersion and uid as for an update. Apply on
//!   an object that is not there creates it (201), without asking for a uid or resourceVersion of its own;
//! - order: decode, prune and default first, then [`track_update()`], then mutating admission, whose changes nobody owns. The
//!   object that [`apply()`] returns is not yet defaulted, and what defaults add to it is not owned either;
//! - `status` and other subresources: hand in what the subresource (or the main resource) resets as `reset_fields`;
//! - `scale`: [`scale`] turns the entries of the resource into those of its scale and back;
//! - after admission: [`validate_managed_fields()`] on what a mutating webhook made of them (put the old ones back and warn), then
//!   [`keep_timestamps()`], so that a write that changes nothing but times is no write;
//! - an [`ApplyError`] becomes a `Status`: 409 with a `FieldManagerConflict` cause for each field, 400, or 500 without a
//!   reason for a configuration that does not fit the schema, as a real server has it.

#[allow(clippy::module_inception)]
pub mod apply;
pub mod conflict;
pub mod element;
mod fields_v1;
pub mod fieldset;
pub mod last_applied;
pub mod managers;
mod prune;
pub mod scale;
pub mod typed;
pub mod update;
pub mod versions;

pub use apply::apply;
pub use conflict::{ApplyError, Conflict};
pub use fieldset::FieldSet;
pub use managers::manager_name;
pub use update::{keep_timestamps, track_update, validate_managed_fields};
pub use versions::{ConversionError, Converted, OneVersion, Versions};

use managers::{Manager, Operation};

/// Who writes, how and when.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    /// The field manager; see [`manager_name()`].
    pub manager: &'c str,
    /// The subresource written through, or empty.
    pub subresource: &'c str,
    /// The version of the request: `v1`, `apps/v1`.
    pub api_version: &'c str,
    /// The kind that is served there.
    pub kind: &'c str,
    /// Whether an apply takes fields from their managers.
    pub force: bool,
    /// The time, RFC 3339 in seconds and UTC.
    pub now: &'c str,
    /// What a write through this resource or subresource does not change.
    pub reset_fields: Option<&'c ResetFields>,
    /// Conversion to the versions of other managers.
    pub versions: &'c dyn Versions,
}

impl Context<'_> {
    fn manager(&self, operation: Operation) -> Manager {
        Manager {
            name: if self.manager.is_empty() { "unknown" } else { self.manager }.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }
}

/// What a write does not change, and so its manager does not come to own.
#[derive(Clone, Debug)]
pub enum ResetFields {
    /// These fields with all that is below them; `status` for most resources, `spec` for their status.
    Reset(FieldSet),
    /// All but these fields with what is below them; a Pod's `resize` changes resources only.
    AllBut(FieldSet),
}

impl ResetFields {
    fn filter(&self, set: &mut FieldSet) {
        match self {
            ResetFields::Reset(fields) => set.subtract_with_children(fields),
            ResetFields::AllBut(fields) => set.keep_below(fields),
        }
    }
}

#[cfg(test)]
mod tests;
