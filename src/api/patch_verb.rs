//! PATCH: which patch it is, and how it makes the new object of the old one. The patches themselves are in [`super::patch`]
//! and [`super::apply`].

use std::sync::Arc;

use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::negotiate::{self, PatchType};
use super::options::WriteOptions;
use super::representation::header_text;
use super::write::{Target, Written};
use super::{Api, apply, fields, patch};
use crate::object::{Object, meta, meta_mut};
use crate::schema::decode::{DecodeError, Expected, FieldValidation, conform};
use crate::schema::{default, yaml};
use crate::status::{FieldError, Status};

impl Api {
    /// Patches an object, or by an apply creates it.
    pub async fn patch(&self, target: Target, headers: &HeaderMap, bytes: &[u8]) -> Result<Written, Status> {
        let kind = negotiate::patch(header_text(headers, header::CONTENT_TYPE), target.resource.custom.is_some())?;
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
        let target = Target { options, ..target };
        let body = read_patch(kind, bytes)?;
        if kind == PatchType::Apply {
            self.check_applied(&target, &body)?;
        }
        let make = |old: Option<&Arc<Object>>| match kind {
            PatchType::Apply => self.make_applied(&target, old, &body),
            _ => self.make_patched(&target, old, kind, &body),
        };
        self.update(&target, &make, kind == PatchType::Apply && target.subresource.is_empty()).await
    }

    /// The old object with a patch on it, decoded anew so that types and unknown fields are checked.
    fn make_patched(&self, target: &Target, old: Option<&Arc<Object>>, kind: PatchType, body: &Value) -> Result<Value, Status> {
        let resource = &target.resource;
        let old = old.map(|object| (*self.in_version(object, resource)).clone()).unwrap_or_default();
        let mut document = old.clone();
        patch_value(&mut document, kind, body, &target.resource.schema())?;
        let schema = resource.schema();
        let custom = resource.custom.is_some();
        let expected = Expected { group: &resource.group, version: &resource.version, kind: &resource.kind, schema: &schema, custom };
        let shown = match kind {
            PatchType::StrategicMerge => patch::go::plain(body),
            _ if custom => document.to_string(),
            _ => patch::go::patched(&document, &touched(body)),
        };
        let validation = target.options.field_validation;
        // What strict validation says of the patch itself comes before what it says of the object.
        let mut complaints = match (kind, validation) {
            (PatchType::Json, FieldValidation::Strict | FieldValidation::Warn) => patch::json::unknown_fields(body),
            _ => Vec::new(),
        };
        let invalid = |why: String| Status::invalid("", "", "", vec![FieldError::invalid("patch", &json!(shown), why)]);
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
        for warning in complaints.into_iter().chain(warnings) {
            target.context.trace.warn(warning);
        }
        default::apply_defaults(&mut new, resource);
        check_identity(target, &old, &new)?;
        // A patch that does not speak of the resourceVersion is about whatever is there.
        if meta(&new, "resourceVersion") == meta(&old, "resourceVersion") {
            meta_mut(&mut new).remove("resourceVersion");
        }
        Ok(new)
    }

    fn make_applied(&self, target: &Target, old: Option<&Arc<Object>>, applied: &Value) -> Result<Value, Status> {
        let resource = &*target.resource;
        let schema = resource.schema();
        let live = old.map(|object| self.in_version(object, resource));
        let given = meta(applied, "resourceVersion");
        if let Some(old) = old
            && !given.is_empty()
            && given != old.revision.to_string()
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
        let mut new = apply::apply(live.as_deref(), applied, &schema, &context)?;
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

/// A patch must not turn an object into another one.
fn check_identity(target: &Target, old: &Value, new: &Value) -> Result<(), Status> {
    let (name, given) = (meta(old, "name"), meta(new, "name"));
    if given != name {
        return Err(Status::bad_request(format!("the name of the object ({given}) does not match the name on the URL ({})", target.name)));
    }
    if meta(new, "namespace") != meta(old, "namespace") {
        return Err(Status::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
    }
    Ok(())
}

/// The body of a patch as a value.
pub fn read_patch(kind: PatchType, bytes: &[u8]) -> Result<Value, Status> {
    if kind == PatchType::Apply {
        let text = String::from_utf8_lossy(bytes);
        let document =
            yaml::parse(&text).map_err(|e| Status::bad_request(format!("error decoding patch: error converting YAML to JSON: {e}")))?;
        return Ok(document.value);
    }
    serde_json::from_slice(bytes).map_err(|_| match kind {
        PatchType::Merge => Status::bad_request("invalid JSON patch"),
        _ => Status::bad_request(format!("error decoding patch: {}", crate::schema::syntax::explain(bytes))),
    })
}

/// Applies a patch that keeps no ownership to a document.
pub fn patch_value(document: &mut Value, kind: PatchType, body: &Value, schema: &crate::schema::Schema) -> Result<(), Status> {
    match kind {
        PatchType::Json => patch::json::apply(document, body)?,
        PatchType::Merge => patch::merge::apply(document, body.clone())?,
        PatchType::StrategicMerge => patch::strategic::apply(document, body.clone(), schema)?,
        PatchType::Apply => {}
    }
    Ok(())
}
