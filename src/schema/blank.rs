//! An object of which nothing is known yet, as a typed server writes it: the fields that it never leaves out, with their zero
//! values. A bookmark is such an object, with nothing but a resourceVersion.

use serde_json::{Map, Value};

use super::{ObjectShape, Schema, Shape};
use crate::registry::Resource;

/// The blank object of a built-in kind without apiVersion, kind and metadata. Custom kinds have no fields of their own in it.
pub fn blank(resource: &Resource) -> Map<String, Value> {
    if resource.custom.is_some() {
        return Map::new();
    }
    let mut fields = match &resource.schema().shape {
        Shape::Object(object) => fields(object),
        _ => Map::new(),
    };
    fields.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
    // What is a pointer on the wire and a plain value where such an object is made, and the other way round.
    let mut part = |name: &str, field: &str, value: Option<Value>| {
        if let Some(Value::Object(part)) = fields.get_mut(name) {
            match value {
                Some(value) => part.insert(field.into(), value),
                None => part.remove(field),
            };
        }
    };
    match (&*resource.group, &*resource.plural) {
        ("apps", "deployments" | "replicasets" | "statefulsets") => part("spec", "replicas", Some(0.into())),
        ("networking.k8s.io", "ipaddresses") => part("spec", "parentRef", None),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => part("roleRef", "apiGroup", Some("".into())),
        _ => {}
    }
    fields
}

fn fields(object: &ObjectShape) -> Map<String, Value> {
    let holds = |list: &[Box<str>], name: &str| list.iter().any(|one| **one == *name);
    let mut out = Map::new();
    for (name, reference) in &object.properties {
        let default = object.defaults.get(name);
        let is_plain = holds(&object.plain, name);
        let is_required = object.required.iter().any(|one| **one == **name) && !holds(&object.omit_empty, name);
        if default.is_some_and(Value::is_null) {
            out.insert(name.to_string(), Value::Null);
        } else if is_plain || is_required {
            out.insert(name.to_string(), zero(&reference.get()));
        }
    }
    out
}

fn zero(schema: &Schema) -> Value {
    match &schema.shape {
        Shape::Object(object) if object.additional.is_some() => Value::Null,
        Shape::Object(object) => Value::Object(fields(object)),
        Shape::String { format } if matches!(format.as_deref(), Some("byte" | "date-time")) => Value::Null,
        Shape::String { .. } => "".into(),
        Shape::Integer { .. } | Shape::Number | Shape::IntOrString => 0.into(),
        Shape::Boolean => false.into(),
        Shape::Array { .. } | Shape::Any => Value::Null,
    }
}
