//! What exists. A [`Resource`] describes a built-in kind exactly as a CustomResourceDefinition describes a custom one,
//! and one generic REST implementation serves both. The table is replaced as a whole when a definition changes and read
//! lock-free by everybody.

mod builtin;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use serde_json::Value;

use crate::schema::Schema;

/// One resource in one version of its group, as discovery tells it.
#[derive(Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The version this record serves.
    pub version: Arc<str>,
    /// The kind of its objects.
    pub kind: Arc<str>,
    /// The kind of its lists.
    pub list_kind: Arc<str>,
    /// The name in paths.
    pub plural: Arc<str>,
    /// The name for people.
    pub singular: Arc<str>,
    /// Abbreviations that kubectl takes.
    pub short_names: Vec<Arc<str>>,
    /// Groups of resources such as `all`.
    pub categories: Vec<Arc<str>>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// What can be done with it, in the words of discovery.
    pub verbs: Vec<Arc<str>>,
    /// `status`, `scale` and the others.
    pub subresources: Vec<Subresource>,
    /// The version whose form is stored.
    pub storage_version: Arc<str>,
    /// What discovery shows clients so that they notice a change of the stored form.
    pub storage_version_hash: Arc<str>,
    /// The part of the key behind `/registry/`: shared by all versions of a resource (and by core and events.k8s.io Events).
    pub storage: Arc<str>,
    /// The columns of a Table, besides those that [`crate::api`] computes in code.
    pub columns: Vec<Column>,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`, as dotted paths.
    pub selectable: Vec<Arc<str>>,
    /// Where a custom resource comes from; `None` for a built-in one.
    pub custom: Option<Arc<Custom>>,
    /// The compiled schema, made on first use.
    pub(crate) schema: OnceLock<Arc<Schema>>,
}

/// A subresource of a resource.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// `status`, `scale`, `log`, …
    pub name: Arc<str>,
    /// The group, version and kind of the objects it takes and gives.
    pub group: Arc<str>,
    /// See `group`.
    pub version: Arc<str>,
    /// See `group`.
    pub kind: Arc<str>,
    /// What can be done with it.
    pub verbs: Vec<Arc<str>>,
}

/// One column of a Table.
#[derive(Clone, Debug)]
pub struct Column {
    /// The header.
    pub name: Arc<str>,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: Arc<str>,
    /// `name` for the name column.
    pub format: Arc<str>,
    /// What `kubectl explain` would say of it.
    pub description: Arc<str>,
    /// Zero is always shown; above it, with `-o wide`.
    pub priority: i32,
    /// The JSON path of a custom resource's column.
    pub json_path: Option<Arc<str>>,
}

/// What a custom resource's definition adds.
#[derive(Debug)]
pub struct Custom {
    /// The definition as it was last written.
    pub definition: Value,
    /// The version's entry of `spec.versions`.
    pub version: Value,
}

/// The registry as it is now.
#[derive(Debug, Default)]
pub struct Table {
    /// Every resource of every version, in the order of discovery.
    pub resources: Vec<Arc<Resource>>,
    /// Group names in the order of discovery, each with its versions, the preferred one first.
    pub groups: Vec<Group>,
    by_path: HashMap<(Arc<str>, Arc<str>, Arc<str>), Arc<Resource>>,
}

/// A group and its versions, the preferred one first.
#[derive(Clone, Debug)]
pub struct Group {
    /// The group's name; empty for the core group.
    pub name: Arc<str>,
    /// Its versions.
    pub versions: Vec<Arc<str>>,
}

/// Read lock-free by everybody, replaced as a whole by whoever changes a definition.
#[derive(Debug)]
pub struct Registry {
    table: ArcSwap<Table>,
}
