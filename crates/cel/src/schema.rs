//! OpenAPI schemas as the language sees them: which type a field has, how its JSON is to be read, how large it
//! can be at most, and how lists of type set or map compare and add. Reads structural schemas as they stand in a
//! CustomResourceDefinition; does not validate objects against them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::parser::RESERVED;
use crate::types::Type;

/// The largest request, from which the size of what has no bound is estimated.
pub const MAX_REQUEST_SIZE_BYTES: i64 = 3_145_728;

const MAX_NAME: i64 = 253;

/// A schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    kind: Kind,
    max_elements: i64,
    min_serialized_size: i64,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Dyn,
    Bool,
    Int,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Schema>, ListType),
    Map(Arc<Schema>),
    Object(Object),
}

/// What `x-kubernetes-list-type` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListType {
    Atomic,
    Set,
    /// The keys by which elements are told apart.
    Map(Vec<String>),
}

#[derive(Debug, Clone, PartialEq)]
struct Object {
    name: Arc<str>,
    /// By the name that expressions use.
    fields: BTreeMap<Arc<str>, Field>,
    /// From the property's name to the name that expressions use.
    escaped: HashMap<String, Arc<str>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Field {
    property: String,
    schema: Arc<Schema>,
}

impl Schema {
    /// Reads a structural schema. `resource_root` adds `apiVersion`, `kind` and `metadata` with `name` and
    /// `generateName`, as Kubernetes does for the root of a resource. Gives nothing for a schema without a type.
    ///
    /// ```
    /// use serde_json::json;
    /// use usher_cel::{Schema, Type};
    ///
    /// let schema = Schema::from_openapi(&json!({"type": "array", "items": {"type": "integer"}}), false).unwrap();
    /// assert_eq!(schema.cel_type(), Type::list(Type::Int));
    /// ```
    pub fn from_openapi(schema: &Json, resource_root: bool) -> Option<Schema> {
        Self::named(schema, resource_root, "selfType")
    }

    /// The same under a name of its own, so that several can stand side by side in one environment.
    pub fn from_openapi_as(name: &str, schema: &Json) -> Option<Schema> {
        Self::named(schema, false, name)
    }

    fn named(schema: &Json, resource_root: bool, name: &str) -> Option<Schema> {
        let max_length = integer(schema, "maxLength").map(|n| n.max(0));
        if flag(schema, "x-kubernetes-int-or-string") {
            let max = max_length.map_or(MAX_REQUEST_SIZE_BYTES - 2, |n| n.saturating_mul(4));
            return Some(Schema::simple(Kind::Dyn, max, 1));
        }
        let with_meta;
        let schema = if resource_root {
            with_meta = with_type_and_object_meta(schema);
            &with_meta
        } else {
            schema
        };
        match schema.get("type").and_then(Json::as_str)? {
            "array" => {
                let items = schema.get("items")?;
                let element = Self::named(items, flag(items, "x-kubernetes-embedded-resource"), &format!("{name}.@idx"))?;
                let max = integer(schema, "maxItems")
                    .map_or_else(|| (MAX_REQUEST_SIZE_BYTES - 2) / (element.min_serialized_size + 1), |n| n.max(0));
                Some(Schema::simple(Kind::List(Arc::new(element), list_type(schema)), max, 2))
            }
            "object" => Self::object(schema, name),
            "string" => Some(Self::string(schema, max_length)),
            "boolean" => Some(Schema::simple(Kind::Bool, 0, 4)),
            "number" => Some(Schema::simple(Kind::Double, 0, 1)),
            "integer" => Some(Schema::simple(Kind::Int, 0, 1)),
            _ => None,
        }
    }

    fn object(schema: &Json, name: &str) -> Option<Schema> {
        if let Some(values @ Json::Object(_)) = schema.get("additionalProperties") {
            let value = Self::named(values, flag(values, "x-kubernetes-embedded-resource"), &format!("{name}.@elem"))?;
            let max = integer(schema, "maxProperties")
                .map_or_else(|| (MAX_REQUEST_SIZE_BYTES - 2) / (value.min_serialized_size + 6), |n| n.max(0));
            return Some(Schema::simple(Kind::Map(Arc::new(value)), max, 2));
        }
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Json::as_array)
            .map(|names| names.iter().filter_map(Json::as_str).collect())
            .unwrap_or_default();
        let mut object = Object { name: name.into(), fields: BTreeMap::new(), escaped: HashMap::new() };
        let mut min_size = 2;
        for (property, field) in schema.get("properties").and_then(Json::as_object).into_iter().flatten() {
            let escaped = escape(property);
            let type_name = format!("{name}.{}", escaped.as_deref().unwrap_or(property));
            let embedded = flag(field, "x-kubernetes-embedded-resource");
            let Some(field_schema) = Self::named(field, embedded, &type_name) else {
                continue;
            };
            if required.contains(&property.as_str()) && field.get("default").is_none() {
                min_size += property.len() as i64 + field_schema.min_serialized_size + 4;
            }
            if let Some(escaped) = escaped {
                let escaped: Arc<str> = escaped.into();
                object.escaped.insert(property.clone(), escaped.clone());
                let field = Field { property: property.clone(), schema: Arc::new(field_schema) };
                object.fields.insert(escaped, field);
            }
        }
        Some(Schema::simple(Kind::Object(object), 0, min_size))
    }

    fn string(schema: &Json, max_length: Option<i64>) -> Schema {
        let unbounded = MAX_REQUEST_SIZE_BYTES - 2;
        match schema.get("format").and_then(Json::as_str) {
            Some("byte") => Schema::simple(Kind::Bytes, max_length.unwrap_or(unbounded), 2),
            Some("duration") => Schema::simple(Kind::Duration, 32, 3),
            Some("date") => Schema::simple(Kind::Timestamp, 12, 12),
            Some("date-time") => Schema::simple(Kind::Timestamp, 32, 21),
            _ => {
                let longest_enum = || {
                    let values = schema.get("enum")?.as_array()?;
                    values.iter().filter_map(Json::as_str).map(|s| s.len() as i64).max()
                };
                let max = max_length.map(|n| n.saturating_mul(4)).or_else(longest_enum).unwrap_or(unbounded);
                Schema::simple(Kind::String, max, 2)
            }
        }
    }

    fn simple(kind: Kind, max_elements: i64, min_serialized_size: i64) -> Schema {
        Schema { kind, max_elements, min_serialized_size }
    }

    /// The type that expressions see.
    pub fn cel_type(&self) -> Type {
        match &self.kind {
            Kind::Dyn => Type::Dyn,
            Kind::Bool => Type::Bool,
            Kind::Int => Type::Int,
            Kind::Double => Type::Double,
            Kind::String => Type::String,
            Kind::Bytes => Type::Bytes,
            Kind::Duration => Type::Duration,
            Kind::Timestamp => Type::Timestamp,
            Kind::List(element, _) => Type::list(element.cel_type()),
            Kind::Map(value) => Type::map(Type::String, value.cel_type()),
            Kind::Object(object) => Type::Object(object.name.clone()),
        }
    }

    pub(crate) fn value_type(&self) -> Type {
        match &self.kind {
            Kind::Object(object) => Type::Object(object.name.clone()),
            _ => Type::map(Type::Dyn, Type::Dyn),
        }
    }

    /// The most elements, characters or bytes that a value can have.
    pub fn max_elements(&self) -> u64 {
        // Scalars and the keys of maps count as 0, as in Kubernetes.
        u64::try_from(self.max_elements).unwrap_or(0)
    }

    /// How often a value of this schema can occur at most in one request. Kubernetes multiplies the cost of a
    /// rule by this where the schema gives no bound for the lists and maps around it.
    pub fn max_cardinality(&self) -> u64 {
        (MAX_REQUEST_SIZE_BYTES / (self.min_serialized_size + 1)) as u64
    }

    /// The smallest JSON that a value of this schema can have.
    pub fn min_serialized_size(&self) -> i64 {
        self.min_serialized_size
    }

    /// The schema of list elements, or of map values.
    pub fn element(&self) -> Option<&Schema> {
        match &self.kind {
            Kind::List(element, _) | Kind::Map(element) => Some(element),
            _ => None,
        }
    }

    /// The schema of a field, by the name that expressions use.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        match &self.kind {
            Kind::Object(object) => object.fields.get(name).map(|f| &*f.schema),
            _ => None,
        }
    }

    pub(crate) fn list_type(&self) -> Option<&ListType> {
        match &self.kind {
            Kind::List(_, kind) => Some(kind),
            _ => None,
        }
    }

    /// The JSON name and the schema of what an expression calls `name`.
    pub(crate) fn property<'s: 'n, 'n>(&'s self, name: &'n str) -> (&'n str, Option<&'s Schema>) {
        match &self.kind {
            Kind::Map(value) => (name, Some(value)),
            Kind::Object(object) => match object.fields.get(name) {
                Some(field) => (&field.property, Some(&field.schema)),
                None => (name, None),
            },
            _ => (name, None),
        }
    }

    pub(crate) fn property_by_json_name(&self, name: &str) -> Option<&Schema> {
        match &self.kind {
            Kind::Map(value) => Some(value),
            Kind::Object(object) => self.field(object.escaped.get(name)?),
            _ => None,
        }
    }

    /// Calls back for this schema and all schemas of objects inside it.
    pub(crate) fn each_object(&self, found: &mut impl FnMut(&Arc<str>, &BTreeMap<Arc<str>, Type>)) {
        match &self.kind {
            Kind::List(inner, _) | Kind::Map(inner) => inner.each_object(found),
            Kind::Object(object) => {
                let fields = object.fields.iter().map(|(n, f)| (n.clone(), f.schema.cel_type())).collect();
                found(&object.name, &fields);
                for field in object.fields.values() {
                    field.schema.each_object(found);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn reading(&self) -> Reading {
        match self.kind {
            Kind::Double => Reading::Double,
            Kind::Int => Reading::Int,
            Kind::Bytes => Reading::Bytes,
            Kind::Duration => Reading::Duration,
            Kind::Timestamp => Reading::Timestamp,
            _ => Reading::Plain,
        }
    }
}

/// How a JSON scalar is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Plain,
    Int,
    Double,
    Bytes,
    Duration,
    Timestamp,
}

fn integer(schema: &Json, key: &str) -> Option<i64> {
    schema.get(key).and_then(Json::as_i64)
}

fn flag(schema: &Json, key: &str) -> bool {
    schema.get(key).and_then(Json::as_bool).unwrap_or(false)
}

fn list_type(schema: &Json) -> ListType {
    match schema.get("x-kubernetes-list-type").and_then(Json::as_str) {
        Some("set") => ListType::Set,
        Some("map") => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Json::as_array);
            ListType::Map(keys.into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect())
        }
        _ => ListType::Atomic,
    }
}

fn with_type_and_object_meta(schema: &Json) -> Json {
    let mut schema = schema.clone();
    let pointer = |path: &str| schema.pointer(path).and_then(Json::as_i64);
    let name = pointer("/properties/metadata/properties/name/maxLength").map_or(MAX_NAME, |n| n.min(MAX_NAME));
    let generate = pointer("/properties/metadata/properties/generateName/maxLength").map_or(MAX_NAME - 1, |n| n.min(MAX_NAME - 1));
    if let Some(object) = schema.as_object_mut() {
        let properties = object.entry("properties").or_insert_with(|| serde_json::json!({}));
        if let Some(properties) = properties.as_object_mut() {
            properties.insert("kind".into(), serde_json::json!({"type": "string"}));
            properties.insert("apiVersion".into(), serde_json::json!({"type": "string"}));
            let meta = serde_json::json!({"type": "object", "properties": {
                "name": {"type": "string", "maxLength": name},
                "generateName": {"type": "string", "maxLength": generate},
            }});
            properties.insert("metadata".into(), meta);
        }
    }
    schema
}

/// Whether a word is the language's own, so that nothing can be called by it.
pub fn is_reserved(word: &str) -> bool {
    matches!(word, "true" | "false" | "null" | "in") || RESERVED.contains(&word)
}

/// The name under which an expression reaches a property: reserved words and `.`, `-`, `/`, `__` are escaped.
/// A property whose name cannot be escaped is out of reach.
///
/// ```
/// assert_eq!(usher_cel::escape_property("x-y").as_deref(), Some("x__dash__y"));
/// assert_eq!(usher_cel::escape_property("namespace").as_deref(), Some("__namespace__"));
/// assert_eq!(usher_cel::escape_property("a b"), None);
/// ```
pub fn escape(name: &str) -> Option<String> {
    if name.bytes().next().is_none_or(|b| b.is_ascii_digit()) {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let (text, used) = match c {
            _ if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            c if c.is_ascii_alphanumeric() || c == '_' => (&rest[..1], 1),
            _ => return None,
        };
        escaped.push_str(text);
        rest = &rest[used..];
    }
    Some(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn formats_decide_how_strings_are_read() {
        let of = |format: &str| Schema::from_openapi(&json!({"type": "string", "format": format}), false).unwrap().cel_type();
        assert_eq!(of("date-time"), Type::Timestamp);
        assert_eq!(of("date"), Type::Timestamp);
        assert_eq!(of("duration"), Type::Duration);
        assert_eq!(of("byte"), Type::Bytes);
        assert_eq!(of("other"), Type::String);
        let either = Schema::from_openapi(&json!({"x-kubernetes-int-or-string": true}), false).unwrap();
        assert_eq!(either.cel_type(), Type::Dyn);
    }

    #[test]
    fn a_resource_root_has_its_name_but_no_other_metadata() {
        let root = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a-b": {"type": "integer"}}}}});
        let schema = Schema::from_openapi(&root, true).unwrap();
        let metadata = schema.field("metadata").unwrap();
        assert_eq!(metadata.field("name").map(Schema::max_elements), Some(253 * 4));
        assert!(metadata.field("labels").is_none());
        assert!(schema.field("spec").unwrap().field("a__dash__b").is_some());
    }

    #[test]
    fn bounds_come_from_the_schema_or_from_the_largest_request() {
        let bounded =
            Schema::from_openapi(&json!({"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 10}}), false).unwrap();
        assert_eq!(bounded.max_elements(), 5);
        assert_eq!(bounded.element().unwrap().max_elements(), 40);
        let unbounded = Schema::from_openapi(&json!({"type": "array", "items": {"type": "integer"}}), false).unwrap();
        assert_eq!(unbounded.max_elements(), (3_145_728 - 2) / 2);
        let map = Schema::from_openapi(&json!({"type": "object", "additionalProperties": {"type": "string"}}), false).unwrap();
        assert_eq!(map.max_elements(), (3_145_728 - 2) / 8);
        assert_eq!(map.cel_type(), Type::map(Type::String, Type::String));
    }

    #[test]
    fn property_names_are_escaped() {
        assert_eq!(escape("a__b").as_deref(), Some("a__underscores__b"));
        assert_eq!(escape("a.b/c").as_deref(), Some("a__dot__b__slash__c"));
        assert_eq!(escape("1a"), None);
        assert_eq!(escape(""), None);
        assert_eq!(escape("é"), None);
    }
}
