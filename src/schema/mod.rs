//! What an object of a kind looks like: one schema type for built-in kinds and for custom ones, used to decode, prune,
//! default, validate, merge and apply. Published OpenAPI documents are made elsewhere ([`crate::api`]), from the same sources.
//!
//! Built-in kinds come from `k8s-openapi` plus our overlay and are compiled on first use; custom kinds come from their
//! CustomResourceDefinition.

mod blank;
pub mod builtin;
pub mod custom;
pub mod decode;
pub mod default;
mod defaults;
pub mod overlay;
pub mod prune;
pub mod quantity;
pub mod source;
pub mod syntax;
pub mod time;
pub mod yaml;

pub use blank::blank;
pub use default::apply_defaults;
pub use prune::prune;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// The shape of a value, and what else is said of it.
#[derive(Debug, Default)]
pub struct Schema {
    /// The definition's full name where it has one (`io.k8s.api.core.v1.PodSpec`).
    pub name: Option<Arc<str>>,
    /// What kind of value it is.
    pub shape: Shape,
    /// Whether `null` is a value of its own rather than absence.
    pub nullable: bool,
    /// What stands in for an absent value.
    pub default: Option<Value>,
    /// The constraints beyond the shape; empty for most schemas.
    pub constraints: Option<Box<Constraints>>,
}

/// What kind of value a schema describes.
#[derive(Debug, Default)]
pub enum Shape {
    /// Anything; unknown content is kept.
    #[default]
    Any,
    /// An object with known fields, or a map.
    Object(ObjectShape),
    /// A list.
    Array {
        /// The schema of its items.
        items: SchemaRef,
        /// How lists of two writers are brought together.
        list_type: ListType,
        /// How a strategic merge patch brings them together.
        patch: PatchStrategy,
    },
    /// A string; the format is one of OpenAPI's (`date-time`, `byte`, `int-or-string`, `quantity`, …).
    String {
        /// The format, if any.
        format: Option<Arc<str>>,
    },
    /// A whole number; `format` tells int32 from int64.
    Integer {
        /// `int32` or `int64`.
        format: Option<Arc<str>>,
    },
    /// Any number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// An integer or a string.
    IntOrString,
}

/// The fields of an object schema.
#[derive(Debug, Default)]
pub struct ObjectShape {
    /// Known fields.
    pub properties: BTreeMap<Box<str>, SchemaRef>,
    /// Fields that must be there.
    pub required: Vec<Box<str>>,
    /// The schema of all other fields, where it is a map.
    pub additional: Option<SchemaRef>,
    /// Whether unknown fields are kept (`x-kubernetes-preserve-unknown-fields`).
    pub preserve_unknown: bool,
    /// Whether it is a whole object with apiVersion, kind and metadata (`x-kubernetes-embedded-resource`).
    pub embedded: bool,
    /// Whether the object is merged as one value (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Whether a strategic merge patch replaces the object or keeps only named keys.
    pub patch: PatchStrategy,
    /// What stands in for an absent field, where the field's own schema does not say it: what a typed server writes for it.
    /// `null` among them, since that is how it writes an absent list that it does not leave out.
    pub defaults: BTreeMap<Box<str>, Value>,
    /// Fields that a typed server holds as plain values and not as pointers, so that even a new object has them, with their
    /// zero value (which is then in `defaults`); sorted. Who sets such a field to its zero value has set nothing.
    pub plain: Vec<Box<str>>,
    /// Fields that are left out when they hold their type's zero value, as a typed server writes them; sorted.
    pub omit_empty: Vec<Box<str>>,
}

/// `x-kubernetes-list-type` with its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// One value as a whole.
    #[default]
    Atomic,
    /// Items are unique scalars.
    Set,
    /// Items are objects, told apart by these keys.
    Map(Vec<Arc<str>>),
}

/// `x-kubernetes-patch-strategy` and `-merge-key`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// `merge` is among the strategies (otherwise a list is replaced).
    pub merge: bool,
    /// `retainKeys` is among the strategies.
    pub retain_keys: bool,
    /// `replace` is named: the object is not merged into.
    pub replace: bool,
    /// The key by which items of a merged list are told apart.
    pub merge_key: Option<Arc<str>>,
}

/// What a value must satisfy beyond its shape. Names are OpenAPI's.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Constraints {
    pub enumeration: Vec<Value>,
    pub pattern: Option<Box<str>>,
    pub minimum: Option<f64>,
    pub maximum: Option<f64>,
    pub exclusive_minimum: bool,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub all_of: Vec<SchemaRef>,
    pub any_of: Vec<SchemaRef>,
    pub one_of: Vec<SchemaRef>,
    pub not: Option<SchemaRef>,
    /// `x-kubernetes-validations`, as written.
    pub rules: Vec<Value>,
}

/// A schema, or the name of a built-in definition that is compiled when it is first looked at (definitions may recur).
#[derive(Clone, Debug)]
pub enum SchemaRef {
    /// The schema itself.
    Inline(Arc<Schema>),
    /// A built-in definition by its full name.
    Named(Arc<str>),
}

impl SchemaRef {
    /// The schema itself. A name that nothing defines gives a schema that takes anything.
    pub fn get(&self) -> Arc<Schema> {
        match self {
            SchemaRef::Inline(schema) => schema.clone(),
            SchemaRef::Named(name) => builtin::of_definition(name).unwrap_or_default(),
        }
    }
}

impl Schema {
    /// The object shape, where it is one.
    pub fn object(&self) -> Option<&ObjectShape> {
        match &self.shape {
            Shape::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The schema of a field, known or of a map.
    pub fn field(&self, name: &str) -> Option<Arc<Schema>> {
        let object = self.object()?;
        object.properties.get(name).or(object.additional.as_ref()).map(SchemaRef::get)
    }

    /// The schema of a list's items.
    pub fn items(&self) -> Option<Arc<Schema>> {
        match &self.shape {
            Shape::Array { items, .. } => Some(items.get()),
            _ => None,
        }
    }
}

/// Whether a value is the zero value of its type, as `omitempty` understands it. An empty object counts as one only where
/// it is a map, which the caller knows.
pub(crate) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}
