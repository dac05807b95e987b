//! PATCH: which patch it is, and how it makes the new object of the old one. The patches themselves are in [`super::patch`]
//! and [`super::apply`].

use std::time::Instant;

use http::{HeaderMap, header};
use serde_json::{Map, Value, json};

use super::negotiate::{self, PatchType};
use super::options::WriteOptions;
use super::representation::header_text;
use super::target::Target;
use super::write::{Before, Written};
use super::{Api, apply, fields, patch};
use crate::object::{meta, meta_mut};
use crate::schema::decode::{DecodeError, Expected, FieldValidation, conform, is_of_kind, read_noting};
use crate::schema::{default, yaml};
use crate::status::{FieldError, Status};

/// The body of a patch.
pub struct Patch {
    /// Which patch it is.
    pub kind: PatchType,
    /// What it says.
    pub body: Value,
    /// What it says twice.
    pub duplicates: Vec<String>,
}

impl Api {
    /// Patches an object, or by an apply creates it.
    pub async fn patch(&self, target: Target, headers: &HeaderMap, bytes: &[u8]) -> Result<Written, Status> {
        let kind = negotiate::patch(header_text(headers, header::CONTENT_TYPE), target.resource.custom.is_some())?;
        let options = patch_options(&target, kind)?;
        let target = Target { options, ..target };
        let patch = read_patch(&target, kind, bytes)?;
        if kind == PatchType::Apply {
            self.check_applied(&target, &patch.body)?;
        }
        let make = |old: Option<&Before>| {
            let since = Instant::now();
            let made = match kind {
                PatchType::Apply => self.make_applied(&target, old, &patch.body),
                _ => self.make_patched(&target, old, &patch),
            };
            // One that waits for a conversion is made again.
            if made.is_ok() || !target.conversions.is_wanted() {
                target.context.trace.step("decode", kind.name(), if made.is_ok() { "applied" } else { "refused" }, since);
            }
            made
        };
        self.update(&target, &make, kind == PatchType::Apply && target.subresource.is_empty()).await
    }

    /// The old object with a patch on it, decoded anew so that types and unknown fields are checked.
    fn make_patched(&self, target: &Target, old: Option<&Before>, patch: &Patch) -> Result<Value, Status> {
        let resource = &target.resource;
        let old = old.map_or(&Value::Null, |old| &*old.value);
        let schema = resource.schema();
        let custom = resource.custom.is_some();
        let expected = Expected { group: &resource.group, version: &resource.version, kind: &resource.kind, schema: &schema, custom };
        let mut new = patched(target, old, patch, expected)?;
        if custom {
            check_custom_kind(resource, &new)?;
        }
        default::apply_defaults(&mut new, resource);
        check_identity(target, old, &new)?;
        // A patch that does not speak of the resourceVersion is about whatever is there.
        if meta(&new, "resourceVersion") == meta(old, "resourceVersion") {
            meta_mut(&mut new).remove("resourceVersion");
        }
        Ok(new)
    }

    fn make_applied(&self, target: &Target, old: Option<&Before>, applied: &Value) -> Result<Value, Status> {
        let resource = &*target.resource;
        let schema = resource.schema();
        let live = old.map(|old| &*old.value);
        let given = meta(applied, "resourceVersion");
        if let Some(old) = old
            && !given.is_empty()
            && given != old.object.revision.to_string()
        {
            return Err(Status::modified(&resource.group, &resource.plural, &target.name));
        }
        let (api_version, now) = (resource.group_version(), fields::timestamp(self.clock.now()));
        let context = apply::Context {
            manager: target.options.field_manager.as_deref().unwrap_or_default(),
            subresource: &target.subresource,
            api_version: &api_version,
            kind: &resource.kind,
            force: target.options.force.unwrap_or(false),
            now: &now,
            reset_fields: fields::reset_fields(target),
            versions: &fields::KindVersions { resource, api: self, conversions: &target.conversions },
        };
        let uid = meta(applied, "uid");
        if let (true, false) = (live.is_none(), uid.is_empty()) {
            let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(&resource.group, &resource.plural, &target.name, &why));
        }
        let mut new = apply::apply(live, applied, &schema, &context)?;
        if resource.custom.is_none() {
            // What a type leaves out when it is empty is not kept either.
            let expected =
                Expected { group: &resource.group, version: &resource.version, kind: &resource.kind, schema: &schema, custom: false };
            (new, _) = conform(new, expected, FieldValidation::Ignore).map_err(|why| Status::unclassified(why.to_string()))?;
        }
        default::apply_defaults(&mut new, resource);
        let metadata = meta_mut(&mut new);
        metadata.remove("resourceVersion");
        metadata.insert("name".into(), target.name.clone().into());
        if resource.namespaced {
            metadata.insert("namespace".into(), target.namespace.clone().into());
        }
        Ok(new)
    }

    fn check_applied(&self, target: &Target, applied: &Value) -> Result<(), Status> {
        let resource = &target.resource;
        let text = |key: &str| applied.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("apiVersion") != resource.group_version() || text("kind") != &*resource.kind {
            let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
            return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={}", text("kind"))));
        }
        let name = meta(applied, "name");
        if !name.is_empty() && name != target.name {
            return Err(Status::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                target.name
            )));
        }
        let namespace = meta(applied, "namespace");
        if resource.namespaced && !namespace.is_empty() && namespace != target.namespace {
            return Err(Status::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
        }
        if applied.pointer("/metadata/managedFields").is_some_and(|m| !m.is_null()) {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        Ok(())
    }
}

/// The fields of an object that a merge patch or a JSON patch reaches into.
fn touched(patch: &Value) -> Vec<&str> {
    match patch {
        Value::Object(fields) => fields.keys().map(String::as_str).collect(),
        Value::Array(operations) => {
            let paths = operations.iter().filter_map(|operation| operation["path"].as_str());
            paths.filter_map(|path| path.trim_start_matches('/').split('/').next()).collect()
        }
        _ => Vec::new(),
    }
}

/// Takes what a patch does not reach into out of a patched object. It was read when it was stored and need not be read again.
fn set_aside(document: &mut Value, patch: &Value) -> Map<String, Value> {
    let reached: Vec<&str> = match patch {
        Value::Array(operations) => {
            let paths = operations.iter().flat_map(|operation| [&operation["path"], &operation["from"]]).filter_map(Value::as_str);
            paths.map(|path| path.split('/').nth(1).unwrap_or_default()).collect()
        }
        patch => touched(patch),
    };
    let Some(fields) = document.as_object_mut() else { return Map::new() };
    // The whole object, a directive about all of its fields, or a name that is written in another way.
    if reached.iter().any(|field| field.is_empty() || field.starts_with('$') || field.contains('~')) {
        return Map::new();
    }
    let is_apart = |field: &&String| !matches!(field.as_str(), "apiVersion" | "kind") && !reached.contains(&field.as_str());
    let apart: Vec<String> = fields.keys().filter(is_apart).cloned().collect();
    apart.into_iter().filter_map(|field| fields.remove_entry(&field)).collect()
}

/// An object whose name is asked for and not told.
pub fn undeterminable(name: &str) -> Status {
    Status::bad_request(format!("the name of the object ({name} based on URL) was undeterminable: name must be provided"))
}

/// A patch must not turn an object into another one.
fn check_identity(target: &Target, old: &Value, new: &Value) -> Result<(), Status> {
    let (name, given) = (meta(old, "name"), meta(new, "name"));
    if given.is_empty() {
        return Err(undeterminable(&target.name));
    }
    if given != name {
        return Err(Status::bad_request(format!("the name of the object ({given}) does not match the name on the URL ({})", target.name)));
    }
    if meta(new, "namespace") != meta(old, "namespace") {
        return Err(Status::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
    }
    Ok(())
}

/// The options of a patch.
pub fn patch_options(target: &Target, kind: PatchType) -> Result<WriteOptions, Status> {
    let mut options = WriteOptions::parse(&target.context, "PatchOptions")?;
    let invalid = |error| Err(Status::invalid("meta.k8s.io", "PatchOptions", "", vec![error]));
    match kind {
        PatchType::Apply if options.field_manager.is_none() => {
            return invalid(FieldError::required("fieldManager", "is required for apply patch"));
        }
        PatchType::Apply => options.is_apply = true,
        _ if options.force.is_some() => return invalid(FieldError::forbidden("force", "may not be specified for non-apply patch")),
        _ => {}
    }
    Ok(options)
}

/// A custom object says of itself what it is; a patch or a body that says otherwise makes it invalid.
pub fn check_custom_kind(resource: &crate::registry::Resource, object: &Value) -> Result<(), Status> {
    let kind = object["kind"].as_str().unwrap_or_default();
    if kind == &*resource.kind {
        return Ok(());
    }
    let error = FieldError::invalid("kind", &json!(kind), format!("must be {}", resource.kind));
    Err(Status::invalid(&resource.group, kind, meta(object, "name"), vec![error]))
}

/// What Go calls a value that should have been an object; nothing for null.
fn word(value: &Value) -> Option<&'static str> {
    match value {
        Value::Null => None,
        Value::Array(_) => Some("array"),
        Value::String(_) => Some("string"),
        Value::Bool(_) => Some("bool"),
        Value::Object(_) => Some("object"),
        Value::Number(_) => Some("number"),
    }
}

/// Reads the body of a patch. What an apply says twice is told here; of other patches that is told with the rest.
pub fn read_patch(target: &Target, kind: PatchType, bytes: &[u8]) -> Result<Patch, Status> {
    let validation = target.options.field_validation;
    if kind != PatchType::Apply {
        let text = String::from_utf8_lossy(bytes);
        let (body, mut duplicates) = read_noting(&text).map_err(|_| Status::bad_request("invalid JSON patch"))?;
        if kind == PatchType::Json || validation == FieldValidation::Ignore {
            duplicates.clear();
        }
        if kind == PatchType::Merge && !body.is_object() {
            return Err(Status::bad_request(match word(&body) {
                None => "Invalid JSON Patch".to_owned(),
                Some(word) => {
                    format!("error decoding patch: json: cannot unmarshal {word} into Go value of type map[string]interface {{}}")
                }
            }));
        }
        return Ok(Patch { kind, body, duplicates });
    }
    let bad = |why: String| Status::bad_request(why);
    // What begins like JSON is first looked at when it is read.
    let opening =
        if bytes.trim_ascii_start().starts_with(b"{") { "decoding patch: error converting YAML to JSON" } else { "encoding patch" };
    if std::str::from_utf8(bytes).is_err() {
        return Err(bad(format!("error {opening}: yaml: invalid leading UTF-8 octet")));
    }
    let document = yaml::parse(&String::from_utf8_lossy(bytes)).map_err(|why| bad(format!("error {opening}: {why}")))?;
    if !document.value.is_object() && !document.value.is_null() {
        let word = word(&document.value).unwrap_or_default();
        let why = format!("json: cannot unmarshal {word} into Go value of type map[string]interface {{}}");
        return Err(bad(format!("error decoding patch: error unmarshaling JSON: while decoding JSON: {why}")));
    }
    match validation {
        FieldValidation::Strict if !document.duplicates.is_empty() => {
            let lines = document.duplicates.join("\n  ");
            return Err(bad(format!("error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  {lines}")));
        }
        FieldValidation::Warn => document.duplicates.into_iter().for_each(|line| target.context.trace.warn(line)),
        _ => {}
    }
    Ok(Patch { kind, body: document.value, duplicates: Vec::new() })
}

/// An object with a patch on it that keeps no ownership, read anew.
pub fn patched(target: &Target, old: &Value, patch: &Patch, expected: Expected<'_>) -> Result<Value, Status> {
    let (kind, body) = (patch.kind, &patch.body);
    let mut document = old.clone();
    patch_value(&mut document, kind, body, expected.schema)?;
    if kind == PatchType::StrategicMerge {
        // The object that is read anew has its type already, and whole numbers of any spelling fit into whole numbers.
        for field in ["apiVersion", "kind"] {
            document[field] = old[field].clone();
        }
        patch::go::whole_numbers(&mut document);
    }
    let shown = match kind {
        PatchType::StrategicMerge => patch::go::plain(body),
        _ if expected.custom => document.to_string(),
        _ => patch::go::patched(&document, &touched(body)),
    };
    let validation = target.options.field_validation;
    // What strict validation says of the patch itself comes before what it says of the object.
    let mut complaints = patch.duplicates.clone();
    if let (PatchType::Json, FieldValidation::Strict | FieldValidation::Warn) = (kind, validation) {
        complaints.extend(patch::json::unknown_fields(body));
    }
    let invalid = |why: String| Status::invalid("", "", "", vec![FieldError::invalid("patch", &json!(shown), why)]);
    if !expected.custom {
        is_of_kind(&document, expected).map_err(invalid)?;
    }
    let aside = if expected.custom { Map::new() } else { set_aside(&mut document, body) };
    // Nobody owns anything any more, says an empty list, which types leave out.
    let resets_owners = document.pointer("/metadata/managedFields").and_then(Value::as_array).is_some_and(Vec::is_empty);
    let (mut new, warnings) = match conform(document, expected, validation) {
        Err(DecodeError::Strict(noted)) => {
            complaints.extend(noted);
            return Err(invalid(DecodeError::Strict(complaints).to_string()));
        }
        Err(error) if kind == PatchType::StrategicMerge => return Err(invalid(patch::go::restored(&error.to_string()))),
        Err(error) => return Err(invalid(error.to_string())),
        Ok(_) if validation == FieldValidation::Strict && !complaints.is_empty() => {
            return Err(invalid(DecodeError::Strict(complaints).to_string()));
        }
        Ok(read) => read,
    };
    if let Some(fields) = new.as_object_mut() {
        fields.extend(aside);
    }
    for warning in complaints.into_iter().chain(warnings) {
        target.context.trace.warn(warning);
    }
    if !expected.custom {
        new["apiVersion"] = crate::registry::api_version(expected.group, expected.version).into();
        new["kind"] = expected.kind.into();
    }
    if resets_owners {
        meta_mut(&mut new).insert("managedFields".into(), json!([]));
    }
    Ok(new)
}

/// Applies a patch that keeps no ownership to a document.
fn patch_value(document: &mut Value, kind: PatchType, body: &Value, schema: &crate::schema::Schema) -> Result<(), Status> {
    match kind {
        PatchType::Json => patch::json::apply(document, body)?,
        PatchType::Merge => patch::merge::apply(document, body.clone())?,
        PatchType::StrategicMerge => patch::strategic::apply(document, body.clone(), schema)?,
        PatchType::Apply => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_patch_reaches_into_is_read_again() {
        let aside = |patch: Value| -> Vec<String> {
            let mut document = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}, "status": {}});
            let aside = set_aside(&mut document, &patch);
            assert_eq!(document.as_object().map(Map::len), Some(5 - aside.len()));
            aside.into_iter().map(|(field, _)| field).collect()
        };
        assert_eq!(aside(json!({"status": {"phase": "Running"}})), ["metadata", "spec"]);
        assert_eq!(aside(json!([{"op": "move", "from": "/metadata/labels", "path": "/spec/a/b"}])), ["status"]);
        for whole in [json!({"$patch": "replace"}), json!([{"op": "replace", "path": ""}]), json!([{"op": "add", "path": "/s~1t"}])] {
            assert!(aside(whole).is_empty());
        }
    }
}
