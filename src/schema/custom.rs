//! The schema of a custom kind: one version's `openAPIV3Schema`, compiled. Whether it is structural, and whether its
//! rules make sense, is checked elsewhere before a definition is stored; here anything compiles to something.

use std::sync::Arc;

use serde_json::Value;

use super::{Constraints, ListType, ObjectShape, PatchStrategy, Schema, SchemaRef, Shape};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The schema of a version of a CustomResourceDefinition, given its entry of `spec.versions`.
pub fn compile(version: &Value) -> Schema {
    let mut schema = compile_schema(&version["schema"]["openAPIV3Schema"]);
    match &mut schema.shape {
        Shape::Object(object) => object.embedded = true,
        // A schema that keeps unknown fields and names none says no type either; the object still has its metadata.
        shape => *shape = Shape::Object(ObjectShape { preserve_unknown: true, embedded: true, ..ObjectShape::default() }),
    }
    add_object_fields(&mut schema);
    schema
}

/// The schema that a JSONSchemaProps describes.
pub fn compile_schema(json: &Value) -> Schema {
    let mut schema = Schema {
        name: None,
        shape: shape(json),
        nullable: json["nullable"] == true,
        default: json.get("default").cloned(),
        constraints: constraints(json),
    };
    if schema.object().is_some_and(|o| o.embedded) {
        add_object_fields(&mut schema);
    }
    schema
}

/// A whole object has its type and metadata, whatever else the schema says of them.
fn add_object_fields(schema: &mut Schema) {
    let Shape::Object(object) = &mut schema.shape else { return };
    for name in ["apiVersion", "kind"] {
        let text = || SchemaRef::Inline(Arc::new(Schema { shape: Shape::String { format: None }, ..Schema::default() }));
        object.properties.entry(name.into()).or_insert_with(text);
    }
    object.properties.insert("metadata".into(), SchemaRef::Named(OBJECT_META.into()));
}

fn shape(json: &Value) -> Shape {
    if json["x-kubernetes-int-or-string"] == true {
        return Shape::IntOrString;
    }
    let format = || json["format"].as_str().map(Arc::from);
    let preserve_unknown = json["x-kubernetes-preserve-unknown-fields"] == true;
    match json["type"].as_str() {
        Some("string") => Shape::String { format: format() },
        Some("integer") => Shape::Integer { format: format() },
        Some("number") => Shape::Number,
        Some("boolean") => Shape::Boolean,
        Some("array") => Shape::Array { items: reference(&json["items"]), list_type: list_type(json), patch: PatchStrategy::default() },
        Some("object") => Shape::Object(object(json, preserve_unknown)),
        // Without a type there are still fields to look at, as in the branches of `anyOf`.
        _ if json.get("properties").is_some() || json.get("required").is_some() => Shape::Object(object(json, preserve_unknown)),
        _ => Shape::Any,
    }
}

fn object(json: &Value, preserve_unknown: bool) -> ObjectShape {
    ObjectShape {
        properties: json["properties"].as_object().into_iter().flatten().map(|(name, p)| (name.as_str().into(), reference(p))).collect(),
        required: json["required"].as_array().into_iter().flatten().filter_map(|f| f.as_str().map(Box::from)).collect(),
        additional: match json.get("additionalProperties") {
            None | Some(Value::Null | Value::Bool(false)) => None,
            Some(schema) => Some(reference(schema)),
        },
        preserve_unknown,
        embedded: json["x-kubernetes-embedded-resource"] == true,
        atomic: json["x-kubernetes-map-type"] == "atomic",
        ..ObjectShape::default()
    }
}

fn list_type(json: &Value) -> ListType {
    match json["x-kubernetes-list-type"].as_str() {
        Some("set") => ListType::Set,
        Some("map") => {
            let keys = json["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            ListType::Map(keys.filter_map(|k| k.as_str().map(Arc::from)).collect())
        }
        _ => ListType::Atomic,
    }
}

fn reference(json: &Value) -> SchemaRef {
    SchemaRef::Inline(Arc::new(compile_schema(json)))
}

fn constraints(json: &Value) -> Option<Box<Constraints>> {
    const WORDS: [&str; 19] = [
        "enum",
        "pattern",
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "x-kubernetes-validations",
        "exclusiveMinimum",
        "exclusiveMaximum",
    ];
    if !WORDS.iter().any(|word| json.get(word).is_some()) {
        return None;
    }
    let all = |word: &str| json[word].as_array().into_iter().flatten().map(reference).collect();
    Some(Box::new(Constraints {
        enumeration: json["enum"].as_array().cloned().unwrap_or_default(),
        pattern: json["pattern"].as_str().map(Box::from),
        minimum: json["minimum"].as_f64(),
        maximum: json["maximum"].as_f64(),
        exclusive_minimum: json["exclusiveMinimum"] == true,
        exclusive_maximum: json["exclusiveMaximum"] == true,
        multiple_of: json["multipleOf"].as_f64(),
        min_length: json["minLength"].as_u64(),
        max_length: json["maxLength"].as_u64(),
        min_items: json["minItems"].as_u64(),
        max_items: json["maxItems"].as_u64(),
        unique_items: json["uniqueItems"] == true,
        min_properties: json["minProperties"].as_u64(),
        max_properties: json["maxProperties"].as_u64(),
        all_of: all("allOf"),
        any_of: all("anyOf"),
        one_of: all("oneOf"),
        not: json.get("not").filter(|n| n.is_object()).map(reference),
        rules: json["x-kubernetes-validations"].as_array().cloned().unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_whole_object_has_its_metadata_whatever_the_schema_says() {
        let schema = compile(&json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}}));
        let object = schema.object().expect("object");
        assert_eq!(object.properties.keys().map(|k| &**k).collect::<Vec<_>>(), ["apiVersion", "kind", "metadata", "spec"]);
        assert!(matches!(&object.properties["metadata"], SchemaRef::Named(name) if **name == *OBJECT_META));
        assert!(compile(&json!({})).object().expect("object").preserve_unknown);
    }

    #[test]
    fn lists_numbers_and_rules_are_read() {
        let schema = compile_schema(&json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "maxItems": 3,
            "items": {"type": "object", "x-kubernetes-validations": [{"rule": "self.k > 0"}], "properties": {
                "k": {"type": "integer", "default": 1, "nullable": true}, "v": {"x-kubernetes-int-or-string": true}}}}));
        assert!(matches!(&schema.shape, Shape::Array { list_type: ListType::Map(keys), .. } if *keys == ["k".into()]));
        let items = schema.items().expect("items");
        assert_eq!(items.constraints.as_ref().expect("rules").rules.len(), 1);
        assert_eq!(items.field("k").map(|k| (k.nullable, k.default.clone())), Some((true, Some(json!(1)))));
        assert!(matches!(items.field("v").expect("v").shape, Shape::IntOrString));
        assert_eq!(schema.constraints.expect("constraints").max_items, Some(3));
    }
}
