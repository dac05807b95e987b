//! The OpenAPI v2 document, for clients that know nothing newer. It is made from the v3 documents, one group version at a
//! time, so that no more than one of them is ever held as a value. What v2 has no words for is left out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::extension::{self, Extension};
use super::{SERVED, gnostic, v3};
use crate::registry::Table;

/// The document as JSON.
pub(super) fn json(table: &Table, extensions: &[Arc<Extension>]) -> Vec<u8> {
    let (mut paths, mut definitions) = (BTreeMap::new(), BTreeMap::new());
    for_each(
        table,
        extensions,
        |path, item| {
            paths.insert(path.to_owned(), item.to_string());
        },
        |name, schema| {
            definitions.insert(name.to_owned(), schema.to_string());
        },
    );
    let members = |all: BTreeMap<String, String>| {
        let members: Vec<String> = all.into_iter().map(|(name, value)| format!("{}:{value}", Value::from(name))).collect();
        members.join(",")
    };
    let mut out =
        json!({"swagger": "2.0", "info": info(), "security": [{"BearerToken": []}], "securityDefinitions": {"BearerToken": token()}})
            .to_string();
    out.pop();
    out.push_str(&format!(",\"paths\":{{{}}}", members(paths)));
    out.push_str(&format!(",\"definitions\":{{{}}}}}", members(definitions)));
    out.into_bytes()
}

/// The document as protobuf.
pub(super) fn protobuf(table: &Table, extensions: &[Arc<Extension>]) -> Vec<u8> {
    let (mut paths, mut definitions) = (gnostic::Message::default(), gnostic::Message::default());
    for_each(
        table,
        extensions,
        |path, item| gnostic::add_path(&mut paths, path, item),
        |name, schema| gnostic::add_definition(&mut definitions, name, schema),
    );
    gnostic::document(&info(), &token(), paths, definitions)
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": format!("v{SERVED}.0")})
}

fn token() -> Value {
    json!({"type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication"})
}

/// Every path and every definition, once each; those of extension servers last.
fn for_each(table: &Table, extensions: &[Arc<Extension>], mut path: impl FnMut(&str, &Value), mut definition: impl FnMut(&str, &Value)) {
    // What a definition says matters only to those who may say something else.
    let mut seen: HashMap<String, String> = HashMap::new();
    for document in v3::paths(table) {
        let document = v3::document(table, &document);
        for (name, item) in document["paths"].as_object().into_iter().flatten() {
            path(name, &path_item(item));
        }
        for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
            if !seen.contains_key(name) {
                let mut schema = schema.clone();
                // Here they stand for all groups at once.
                if let Some(kind @ ("DeleteOptions" | "WatchEvent")) = name.strip_prefix("io.k8s.apimachinery.pkg.apis.meta.v1.") {
                    schema["x-kubernetes-group-version-kind"] = everywhere(table, kind);
                }
                let schema = self::schema(name, &schema);
                let hash = if extensions.is_empty() { String::new() } else { extension::hash_of(&schema) };
                seen.insert(name.clone(), hash);
                definition(name, &schema);
            }
        }
    }
    for extension in extensions {
        extension.tell(&mut seen, &mut path, &mut definition);
    }
}

fn everywhere(table: &Table, kind: &str) -> Value {
    let all = table
        .groups
        .iter()
        .flat_map(|group| group.versions.iter().map(|version| json!({"group": *group.name, "kind": kind, "version": **version})));
    all.collect()
}

fn path_item(item: &Value) -> Value {
    let mut out = Map::new();
    for (method, value) in item.as_object().into_iter().flatten() {
        let converted = if method == "parameters" { parameters(value).into() } else { operation(value) };
        out.insert(method.clone(), converted);
    }
    Value::Object(out)
}

fn parameters(given: &Value) -> Vec<Value> {
    let parameters = given.as_array().into_iter().flatten();
    parameters
        .map(|parameter| {
            let mut out = parameter.clone();
            if let Value::Object(fields) = &mut out
                && let Some(Value::Object(schema)) = fields.remove("schema")
            {
                fields.extend(schema);
            }
            out
        })
        .collect()
}

fn operation(given: &Value) -> Value {
    let mut out = given.clone();
    let Value::Object(fields) = &mut out else { return out };
    let mut all = fields.remove("parameters").map(|p| parameters(&p)).unwrap_or_default();
    let mut consumes = json!(["*/*"]);
    if let Some(body) = fields.remove("requestBody") {
        let content = body["content"].as_object();
        if let Some(content) = content {
            consumes = content.keys().map(|media| Value::from(media.as_str())).collect();
        }
        let schema = content.and_then(|c| c.values().next()).map(|media| self::schema("", &media["schema"])).unwrap_or_default();
        let mut body_parameter = json!({"in": "body", "name": "body", "schema": schema});
        if body["required"] == true {
            body_parameter["required"] = true.into();
        }
        all.push(body_parameter);
    }
    if !all.is_empty() {
        fields.insert("parameters".into(), all.into());
    }
    let mut produces = json!([]);
    if let Some(Value::Object(responses)) = fields.get_mut("responses") {
        for response in responses.values_mut() {
            let Value::Object(response) = response else { continue };
            if let Some(Value::Object(content)) = response.remove("content") {
                if let Some(media) = content.values().next() {
                    response.insert("schema".into(), schema("", &media["schema"]));
                }
                produces = content.keys().map(|media| Value::from(media.as_str())).collect();
            }
        }
    }
    fields.insert("consumes".into(), consumes);
    fields.insert("produces".into(), produces);
    fields.insert("schemes".into(), json!(["https"]));
    out
}

/// A schema without what v2 cannot say.
fn schema(name: &str, given: &Value) -> Value {
    match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => return json!({"description": given["description"], "type": "string"}),
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => {
            return json!({"description": given["description"], "type": "string", "format": "int-or-string"});
        }
        _ => {}
    }
    let Some(given) = given.as_object() else { return given.clone() };
    let int_or_string = given.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    // A value that may be null is of no type that v2 knows.
    let nullable = given.get("nullable") == Some(&Value::Bool(true));
    let mut out = Map::new();
    for (key, value) in given {
        match key.as_str() {
            "default" | "enum" | "oneOf" | "anyOf" | "not" | "nullable" => {}
            "type" | "items" | "properties" | "additionalProperties" if nullable || int_or_string => {}
            "allOf" => {
                if let Some(reference) = value.pointer("/0/$ref") {
                    out.insert("$ref".into(), rename(reference));
                }
            }
            "$ref" => {
                out.insert("$ref".into(), rename(value));
            }
            "description" => {
                let text = value.as_str().unwrap_or_default();
                let text = text.split_once("\n\nPossible enum values:").map_or(text, |(text, _)| text);
                out.insert(key.clone(), text.into());
            }
            "properties" => {
                let properties = value.as_object().into_iter().flatten();
                out.insert(key.clone(), properties.map(|(name, value)| (name.clone(), schema("", value))).collect::<Map<_, _>>().into());
            }
            "items" | "additionalProperties" => {
                out.insert(key.clone(), schema("", value));
            }
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(out)
}

fn rename(reference: &Value) -> Value {
    reference.as_str().map(|r| r.replace("#/components/schemas/", "#/definitions/")).into()
}
