//! The schemas that documents publish, in the form of OpenAPI v3: those of built-in kinds with descriptions, defaults and
//! every `x-kubernetes-` extension, those of custom kinds as their definition says, and the lists of both.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::enumerations::possible;
use crate::registry::Resource;
use crate::schema::builtin::definition_name;
use crate::schema::overlay::{self, Field};
use crate::schema::source;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// The name of a resource's kind among the schemas.
pub(super) fn name_of_resource(resource: &Resource) -> String {
    if resource.custom.is_some() {
        return custom_name(&resource.group, &resource.version, &resource.kind);
    }
    definition_name(&resource.group, &resource.version, &resource.kind)
}

/// The name of a kind that a subresource takes: a custom kind has itself as its status.
pub(super) fn name_of_kind(resource: &Resource, group: &str, version: &str, kind: &str) -> String {
    if resource.custom.is_some() && *resource.group == *group {
        return custom_name(group, version, kind);
    }
    definition_name(group, version, kind)
}

/// `com.example.v1.Wid`.
fn custom_name(group: &str, version: &str, kind: &str) -> String {
    let group: Vec<&str> = group.rsplit('.').collect();
    format!("{}.{version}.{kind}", group.join("."))
}

/// All schemas that `wanted` and what they refer to need. `resources` are those of the document's group version.
pub(super) fn closure(wanted: Vec<String>, resources: &[&Resource], group: &str, version: &str) -> Map<String, Value> {
    let mut made: BTreeMap<String, Value> = BTreeMap::new();
    let mut sources: Map<String, Value> = Map::new();
    let mut open = wanted;
    open.push(format!("{META}.ListMeta"));
    open.push(format!("{META}.ObjectMeta"));
    open.push(RAW_EXTENSION.to_owned());
    let builtin: Vec<&str> =
        open.iter().map(|name| name.strip_suffix("List").unwrap_or(name)).chain(open.iter().map(String::as_str)).collect();
    sources.append(&mut source::definitions_of_all(builtin));
    // The three that were added above are only there if somebody refers to them.
    open.truncate(open.len() - 3);
    while let Some(name) = open.pop() {
        if made.contains_key(&name) {
            continue;
        }
        let schema = match sources.get(&name) {
            Some(json) => definition(&name, json, group, version),
            None if name == format!("{META}.WatchEvent") => watch_event(group, version),
            None => match resources.iter().find_map(|resource| of_resource(&name, resource)) {
                Some(schema) => schema,
                None => continue,
            },
        };
        references(&schema, &mut open);
        made.insert(name, schema);
    }
    made.into_iter().collect()
}

/// Every schema that a value refers to.
pub(super) fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(name) = fields.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix("#/components/schemas/")) {
                found.push(name.to_owned());
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// A custom kind, or a list of any kind.
fn of_resource(name: &str, resource: &Resource) -> Option<Value> {
    let kind = name_of_resource(resource);
    let custom = resource.custom.as_ref();
    if name == kind {
        return Some(custom_kind(resource, &custom?.version["schema"]["openAPIV3Schema"]));
    }
    (name.strip_suffix("List") == Some(&kind)).then(|| list(resource, &kind))
}

fn custom_kind(resource: &Resource, schema: &Value) -> Value {
    let mut schema = if schema.is_object() { schema.clone() } else { json!({"type": "object"}) };
    for (field, value) in object_fields("ObjectMeta") {
        schema["properties"][field] = value;
    }
    schema["x-kubernetes-group-version-kind"] = gvk(&resource.group, &resource.kind, &resource.version);
    schema
}

/// What every object and every list has.
fn object_fields(meta: &str) -> [(&'static str, Value); 3] {
    let (api_version, kind) = type_meta();
    let metadata = json!({"description": "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata",
        "allOf": [{"$ref": format!("#/components/schemas/{META}.{meta}")}]});
    [("apiVersion", api_version), ("kind", kind), ("metadata", metadata)]
}

/// `apiVersion` and `kind` are described alike everywhere; any kind's own description will do.
fn type_meta() -> (Value, Value) {
    let name = format!("{META}.APIVersions");
    let definitions = source::definitions_of(&name);
    let properties = definitions.get(&name).map(|d| d["properties"].clone()).unwrap_or_default();
    (properties["apiVersion"].clone(), properties["kind"].clone())
}

fn list(resource: &Resource, kind: &str) -> Value {
    let [api_version, kind_field, mut metadata] = object_fields("ListMeta");
    metadata.1["description"] =
        "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds".into();
    if resource.custom.is_none() {
        metadata.1["default"] = json!({});
    }
    let mut properties: Map<String, Value> = [api_version, kind_field, metadata].into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    let items = json!({"description": format!("List of {}.", resource.plural), "type": "array",
        "items": {"$ref": format!("#/components/schemas/{kind}")}});
    properties.insert("items".into(), items);
    json!({
        "description": format!("{} is a list of {}.", resource.list_kind, resource.kind), "type": "object", "required": ["items"],
        "properties": properties, "x-kubernetes-group-version-kind": gvk(&resource.group, &resource.list_kind, &resource.version),
    })
}

fn gvk(group: &str, kind: &str, version: &str) -> Value {
    json!([{"group": group, "kind": kind, "version": version}])
}

/// Kinds that belong to no group are each group's own.
fn shared_gvk(kind: &str, group: &str, version: &str) -> Value {
    let mut all = vec![json!({"group": "", "kind": kind, "version": "v1"})];
    if !group.is_empty() {
        all.push(json!({"group": group, "kind": kind, "version": version}));
    }
    all.into()
}

fn watch_event(group: &str, version: &str) -> Value {
    json!({
        "description": "Event represents a single event to a watched resource.", "type": "object", "required": ["type", "object"],
        "properties": {
            "object": {"description": "The object as the event leaves it; for an error, a Status.", "allOf": [{"$ref": format!("#/components/schemas/{RAW_EXTENSION}")}]},
            "type": {"type": "string", "default": ""},
        },
        "x-kubernetes-group-version-kind": shared_gvk("WatchEvent", group, version),
    })
}

/// A built-in definition: what the source says and what the overlay says.
fn definition(name: &str, json: &Value, group: &str, version: &str) -> Value {
    let mut out = json.clone();
    let overlay = overlay::definition(name);
    let kind = name.rsplit('.').next().unwrap_or_default();
    match kind {
        "Quantity" => {
            remove(&mut out, "x-kubernetes-int-or-string");
            out["oneOf"] = json!([{"type": "string"}, {"type": "number"}]);
        }
        "IntOrString" => {
            remove(&mut out, "x-kubernetes-int-or-string");
            out["format"] = "int-or-string".into();
            out["oneOf"] = json!([{"type": "integer"}, {"type": "string"}]);
        }
        "JSON" => remove(&mut out, "type"),
        "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => remove(&mut out, "oneOf"),
        _ => {}
    }
    remove(&mut out, "required");
    if !overlay.required.is_empty() {
        out["required"] = overlay.required.iter().map(|&field| Value::from(field)).collect();
    }
    if let Some(Value::Object(properties)) = out.get_mut("properties") {
        for (field, property) in properties {
            publish(property, overlay.fields.get(field.as_str()), |values| possible(name, field, values));
        }
    }
    if let Some(map_type) = overlay.map_type {
        out["x-kubernetes-map-type"] = map_type.into();
    }
    if let Some(unions) = overlay.unions {
        out["x-kubernetes-unions"] = unions;
    }
    if let Some(kinds) = kinds_of(name, kind, group, version) {
        out["x-kubernetes-group-version-kind"] = kinds;
    }
    out
}

/// Which kinds a definition describes.
fn kinds_of(name: &str, kind: &str, group: &str, version: &str) -> Option<Value> {
    let meta = name.strip_prefix(META).is_some();
    match kind {
        "DeleteOptions" if meta => Some(shared_gvk(kind, group, version)),
        "APIGroup" | "APIGroupList" | "APIResourceList" | "APIVersions" | "Status" if meta => Some(gvk("", kind, "v1")),
        _ if name == definition_name(group, version, kind) => source::is_kind(name).then(|| gvk(group, kind, version)),
        "Scale" if name == definition_name("autoscaling", "v1", "Scale") => Some(gvk("autoscaling", kind, "v1")),
        "Eviction" if name == definition_name("policy", "v1", "Eviction") => Some(gvk("policy", kind, "v1")),
        "TokenRequest" if name == definition_name("authentication.k8s.io", "v1", "TokenRequest") => {
            Some(gvk("authentication.k8s.io", kind, "v1"))
        }
        "PersistentVolumeClaim" => Some(gvk("", kind, "v1")),
        _ => None,
    }
}

fn publish(property: &mut Value, field: Option<&Field>, possible: impl Fn(&[String]) -> String) {
    rename_references(property);
    let nothing = Field::default();
    let field = field.unwrap_or(&nothing);
    if let Some(default) = &field.default {
        property["default"] = default.clone();
    }
    if let Some(list_type) = field.list_type {
        property["x-kubernetes-list-type"] = list_type.into();
    }
    if !field.list_keys.is_empty() {
        property["x-kubernetes-list-map-keys"] = field.list_keys.iter().map(|&key| Value::from(key)).collect();
    }
    if let Some(strategy) = field.patch_strategy {
        property["x-kubernetes-patch-strategy"] = strategy.into();
    }
    if let Some(key) = field.patch_merge_key {
        property["x-kubernetes-patch-merge-key"] = key.into();
    }
    if let Some(map_type) = field.map_type {
        property["x-kubernetes-map-type"] = map_type.into();
    }
    if !field.enumeration.is_empty() {
        property["enum"] = field.enumeration.iter().map(|value| Value::from(value.as_str())).collect();
        describe(property, &possible(&field.enumeration));
    }
    if !field.item_enumeration.is_empty() {
        let part = if property.get("items").is_some() { "items" } else { "additionalProperties" };
        property[part]["enum"] = field.item_enumeration.iter().map(|value| Value::from(value.as_str())).collect();
        describe(property, &possible(&field.item_enumeration));
    }
    // A reference may have no siblings.
    if let Value::Object(fields) = property
        && fields.len() > 1
        && let Some(reference) = fields.remove("$ref")
    {
        fields.insert("allOf".into(), json!([{"$ref": reference}]));
    }
}

fn describe(property: &mut Value, more: &str) {
    let text = format!("{}{more}", property["description"].as_str().unwrap_or_default());
    property["description"] = text.into();
}

fn rename_references(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get_mut("$ref")
                && let Some(name) = reference.strip_prefix("#/definitions/")
            {
                *reference = format!("#/components/schemas/{name}");
            }
            fields.values_mut().for_each(rename_references);
        }
        Value::Array(items) => items.iter_mut().for_each(rename_references),
        _ => {}
    }
}

fn remove(value: &mut Value, field: &str) {
    if let Value::Object(fields) = value {
        fields.remove(field);
    }
}
