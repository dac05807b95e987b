//! What an extension server says of its group version in OpenAPI v2: taken into the document of this server, and made into a v3 document for
//! those who ask for one where the extension server has none.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::super::discovery::{Document, hash};

const DEFINITIONS: &str = "#/definitions/";

/// The part of an extension server's v2 document that is about its group version.
#[derive(Debug, Default)]
pub struct Extension {
    /// Changes with the content.
    pub hash: String,
    paths: Map<String, Value>,
    definitions: Map<String, Value>,
}

impl Extension {
    /// Takes the paths of a group version out of a document, and the definitions that they need.
    pub fn of(mut document: Value, group: &str, version: &str) -> Extension {
        let prefix = format!("/apis/{group}/{version}/");
        let mut paths = std::mem::take(&mut document["paths"]);
        let Some(paths) = paths.as_object_mut() else { return Extension::default() };
        paths.retain(|path, _| path.starts_with(&prefix));
        let mut all = std::mem::take(&mut document["definitions"]);
        let mut definitions = Map::new();
        let mut needed = Vec::new();
        paths.values().for_each(|item| references(item, &mut needed));
        while let Some(name) = needed.pop() {
            if let Some(definition) = all.as_object_mut().and_then(|all| all.remove(&name)) {
                references(&definition, &mut needed);
                definitions.insert(name, definition);
            }
        }
        let paths = std::mem::take(paths);
        let hash = hash(&[Value::Object(paths.clone()).to_string().as_bytes(), Value::Object(definitions.clone()).to_string().as_bytes()]);
        Extension { hash, paths, definitions }
    }

    /// Hands on paths and definitions. A definition that `known` has with another content gets a name of its own; `known` holds hashes.
    pub(super) fn tell(
        &self,
        known: &mut HashMap<String, String>,
        path: &mut dyn FnMut(&str, &Value),
        definition: &mut dyn FnMut(&str, &Value),
    ) {
        let mut names: HashMap<&str, String> = HashMap::new();
        let mut new = Vec::new();
        for (name, content) in &self.definitions {
            let content_hash = hash_of(content);
            let numbered = (2..).map(|number| format!("{name}_v{number}"));
            for candidate in std::iter::once(name.clone()).chain(numbered) {
                match known.get(&candidate) {
                    Some(other) if *other != content_hash => continue,
                    Some(_) => {}
                    None => {
                        known.insert(candidate.clone(), content_hash);
                        new.push((candidate.clone(), content));
                    }
                }
                if candidate != *name {
                    names.insert(name, candidate);
                }
                break;
            }
        }
        for (name, content) in new {
            definition(&name, &renamed(content, &names));
        }
        for (name, item) in &self.paths {
            path(name, &renamed(item, &names));
        }
    }

    /// The same as a v3 document.
    pub fn v3(&self) -> Document {
        let paths: Map<String, Value> = self.paths.iter().map(|(path, item)| (path.clone(), path_item(item))).collect();
        let schemas: Map<String, Value> = self.definitions.iter().map(|(name, content)| (name.clone(), schema(content))).collect();
        Document::json(&json!({
            "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": format!("v{}.0", super::SERVED)},
            "paths": paths, "components": {"schemas": schemas},
        }))
    }
}

/// A hash by which two definitions are told apart.
pub(super) fn hash_of(definition: &Value) -> String {
    hash(&[definition.to_string().as_bytes()])
}

/// The names of the definitions that a value refers to.
fn references(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(name) = fields.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix(DEFINITIONS)) {
                out.push(name.to_owned());
            }
            fields.values().for_each(|value| references(value, out));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, out)),
        _ => {}
    }
}

fn renamed(value: &Value, names: &HashMap<&str, String>) -> Value {
    if names.is_empty() {
        return value.clone();
    }
    match value {
        Value::Object(fields) => {
            let rename = |(key, value): (&String, &Value)| {
                let target = value.as_str().filter(|_| key == "$ref").and_then(|text| text.strip_prefix(DEFINITIONS));
                let value = match target.and_then(|name| names.get(name)) {
                    Some(name) => format!("{DEFINITIONS}{name}").into(),
                    None => renamed(value, names),
                };
                (key.clone(), value)
            };
            fields.iter().map(rename).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(|item| renamed(item, names)).collect(),
        other => other.clone(),
    }
}

fn path_item(item: &Value) -> Value {
    let convert = |(key, value): (&String, &Value)| {
        let value = match key.as_str() {
            "parameters" => value.as_array().into_iter().flatten().map(parameter).collect(),
            "get" | "put" | "post" | "delete" | "options" | "head" | "patch" => operation(value),
            _ => value.clone(),
        };
        (key.clone(), value)
    };
    item.as_object().into_iter().flatten().map(convert).collect::<Map<_, _>>().into()
}

fn operation(given: &Value) -> Value {
    let mut out = given.clone();
    let Value::Object(fields) = &mut out else { return out };
    let media = |list: Option<Value>, schema: &Value| -> Value {
        let types = list.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        types.map(|media| (media.to_owned(), json!({"schema": schema}))).collect::<Map<_, _>>().into()
    };
    fields.remove("schemes");
    let (consumes, produces) = (fields.remove("consumes"), fields.remove("produces"));
    let all = fields.remove("parameters");
    let (bodies, others): (Vec<&Value>, Vec<&Value>) =
        all.as_ref().and_then(Value::as_array).into_iter().flatten().partition(|one| one["name"] == "body" && one["schema"].is_object());
    if !others.is_empty() {
        fields.insert("parameters".into(), others.into_iter().map(parameter).collect());
    }
    if let Some(body) = bodies.last() {
        fields.insert("requestBody".into(), json!({"content": media(consumes, &schema(&body["schema"]))}));
    }
    for response in fields.get_mut("responses").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        if let Some(given) = response.as_object_mut().and_then(|response| response.remove("schema")) {
            response["content"] = media(produces.clone(), &schema(&given));
        }
    }
    out
}

fn parameter(given: &Value) -> Value {
    let mut out = given.clone();
    let Value::Object(fields) = &mut out else { return out };
    let mut simple = Map::new();
    for name in ["type", "format", "uniqueItems"] {
        simple.extend(fields.remove(name).map(|value| (name.to_owned(), value)));
    }
    let schema = fields.get("schema").map_or(Value::Object(simple), schema);
    fields.insert("schema".into(), schema);
    out
}

/// References lead elsewhere, and where something stands beside one it is wrapped.
fn schema(given: &Value) -> Value {
    match given {
        Value::Object(fields) => {
            let mut out: Map<String, Value> = fields.iter().map(|(key, value)| (key.clone(), schema(value))).collect();
            if let Some(name) = fields.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix(DEFINITIONS)) {
                let reference = json!({"$ref": format!("#/components/schemas/{name}")});
                if out.len() == 1 {
                    return reference;
                }
                out.remove("$ref");
                out.insert("allOf".into(), json!([reference]));
            }
            out.into()
        }
        Value::Array(items) => items.iter().map(schema).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension() -> Extension {
        let document = json!({
            "paths": {
                "/apis/g/v1/things": {"get": {"operationId": "list", "produces": ["application/json"], "consumes": ["*/*"], "schemes": ["https"],
                    "parameters": [{"name": "limit", "in": "query", "type": "integer"}, {"name": "body", "in": "body", "schema": {"$ref": "#/definitions/Thing"}}],
                    "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Thing"}}}}},
                "/apis/g/v2/things": {"get": {}}, "/version": {"get": {}},
            },
            "definitions": {
                "Thing": {"type": "object", "properties": {"meta": {"description": "d", "$ref": "#/definitions/Meta"}}},
                "Meta": {"type": "object", "description": "theirs"}, "Unused": {"type": "object"},
            },
        });
        Extension::of(document, "g", "v1")
    }

    #[test]
    fn only_the_group_version_and_what_it_needs_is_taken() {
        let extension = extension();
        assert_eq!(extension.paths.keys().collect::<Vec<_>>(), ["/apis/g/v1/things"]);
        assert_eq!(extension.definitions.keys().collect::<Vec<_>>(), ["Meta", "Thing"]);
    }

    #[test]
    fn a_definition_that_means_something_else_here_gets_another_name() {
        let mut known = HashMap::from([("Meta".to_owned(), hash_of(&json!({"description": "ours"})))]);
        let (mut paths, mut definitions) = (Vec::new(), HashMap::new());
        extension().tell(&mut known, &mut |path, _| paths.push(path.to_owned()), &mut |name, content| {
            drop(definitions.insert(name.to_owned(), content.clone()))
        });
        assert_eq!(definitions["Thing"]["properties"]["meta"]["$ref"], "#/definitions/Meta_v2");
        assert_eq!(definitions["Meta_v2"]["description"], "theirs");
        assert_eq!((definitions.len(), paths.len()), (2, 1));
    }

    #[test]
    fn a_v2_document_becomes_a_v3_one() {
        let document: Value = serde_json::from_slice(&extension().v3().body).unwrap();
        let expected = json!({"operationId": "list",
            "parameters": [{"name": "limit", "in": "query", "schema": {"type": "integer"}}],
            "requestBody": {"content": {"*/*": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}}}});
        assert_eq!(document["paths"]["/apis/g/v1/things"]["get"], expected);
        let meta = json!({"description": "d", "allOf": [{"$ref": "#/components/schemas/Meta"}]});
        assert_eq!(document["components"]["schemas"]["Thing"]["properties"]["meta"], meta);
    }
}
