//! The `scale` subresource: the number of replicas of an object, wherever its kind keeps it, and who set it. A write of a Scale is one of its
//! object, of which nothing but that number changes.

use std::sync::Arc;

use http::request::Parts;
use serde_json::{Value, json};

use super::Api;
use super::apply::{self, scale as owners};
use super::body::decode_part;
use super::fields;
use super::negotiate::{self, PatchType};
use super::options::WriteOptions;
use super::patch_verb::{Patch, patch_options, patched, read_patch};
use super::representation::header_text;
use super::subresource::Answer;
use super::target::Target;
use super::write::check_name;
use crate::admission::Operation;
use crate::object::{Object, meta, meta_mut};
use crate::registry::Resource;
use crate::schema::Schema;
use crate::schema::decode::Expected;
use crate::status::{FieldError, Status};

const SCALE: (&str, &str, &str) = ("autoscaling", "v1", "Scale");
const SCALE_VERSION: &str = "autoscaling/v1";

/// What a client wants of a Scale.
enum Wanted {
    Whole(Value),
    Patched(Patch),
}

impl Api {
    /// Shows or changes a Scale.
    pub(super) async fn scale(&self, target: &Target, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        if target.context.info.verb == "get" {
            let current = self.get(&target.context, &target.resource).await?;
            return Ok(Answer::Value(200, scale_of(target, current.value())));
        }
        let (target, wanted) = match target.context.info.verb {
            "patch" => {
                let kind = negotiate::patch(header_text(&parts.headers, http::header::CONTENT_TYPE), false)?;
                let target = Target { options: patch_options(target, kind)?, ..target.clone() };
                let patch = read_patch(&target, kind, bytes)?;
                (target, Wanted::Patched(patch))
            }
            _ => {
                let target = Target { options: WriteOptions::parse(&target.context, "UpdateOptions")?, ..target.clone() };
                let scale = decode_part(&target.context, &parts.headers, bytes, SCALE, target.options.field_validation)?;
                check_name(&target.name, meta(&scale, "name"))?;
                (target, Wanted::Whole(scale))
            }
        };
        let schema = crate::schema::builtin::of_kind(SCALE.0, SCALE.1, SCALE.2).unwrap_or_default();
        // What is admitted is the Scale, before and after, and who owns the number is worked out on it; the object follows from it.
        let options = WriteOptions { is_apply: true, is_admitted: true, ..target.options.clone() };
        let owned = Target { options, ..target.clone() };
        loop {
            let current = self.get(&target.context, &target.resource).await?;
            let object = (*self.in_version(&current, &target.resource)).clone();
            let (before, mut scale) = self.wanted_scale(&target, &object, &wanted, &schema)?;
            let said = said(&scale, &before, "resourceVersion");
            normalize(&before, &mut scale);
            let mut write = target.operation(Operation::Update, Some(scale), Some(Arc::new(before.clone())));
            self.admission.mutate(&mut write).await?;
            let replicas = write.object()["spec"]["replicas"].as_i64().unwrap_or(0);
            if replicas < 0 && target.resource.custom.is_none() {
                let error = FieldError::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0");
                return Err(Status::invalid(SCALE.0, SCALE.2, &target.name, vec![error]));
            }
            let mut scale = write.object.take().unwrap_or_default();
            complete(&before, &mut scale);
            let mut scaled = self.scaled(&target, object, &before, &scale)?;
            // Validating admission is shown the Scale of what will be.
            write.object = Some(scale_of(&target, &scaled));
            self.admission.validate(&write).await?;
            let revision = said.clone().unwrap_or_else(|| current.revision.to_string());
            meta_mut(&mut scaled).insert("resourceVersion".into(), revision.into());
            match self.update(&owned, &|_| Ok(scaled.clone()), false).await {
                // Somebody else was quicker, and the client did not say which state it means.
                Err(status) if status.reason == "Conflict" && said.is_none() && self.is_newer(&target, &current).await => {}
                written => return Ok(Answer::Value(200, scale_of(&target, written?.object.value()))),
            }
        }
    }

    async fn is_newer(&self, target: &Target, seen: &Object) -> bool {
        self.get(&target.context, &target.resource).await.is_ok_and(|now| now.revision > seen.revision)
    }

    /// The paths to the replicas in each version of a kind.
    fn replicas_paths(&self, resource: &Resource) -> Vec<(String, String)> {
        let versions = self.registry.table();
        let versions = versions.versions_of(&resource.group, &resource.plural);
        versions.map(|version| (version.group_version(), replicas_path(version))).collect()
    }

    /// The Scale of an object as it is and as the client wants it, both with their owners.
    fn wanted_scale(&self, target: &Target, object: &Value, wanted: &Wanted, schema: &Schema) -> Result<(Value, Value), Status> {
        let paths = self.replicas_paths(&target.resource);
        let mut before = scale_of(target, object);
        if let Some(entries) = owners::to_scale(&object["metadata"]["managedFields"], &parts_of(&paths)).map_err(unreadable)? {
            before["metadata"]["managedFields"] = entries;
        }
        let now = fields::timestamp(self.clock.now());
        let manager = apply::manager_name(target.options.field_manager.as_deref().unwrap_or_default(), &target.context.user_agent);
        let context = apply::Context {
            manager: &manager,
            subresource: "scale",
            api_version: SCALE_VERSION,
            kind: SCALE.2,
            force: target.options.force.unwrap_or(false),
            now: &now,
            reset_fields: None,
            versions: &apply::OneVersion,
        };
        let mut scale = match wanted {
            Wanted::Whole(scale) => scale.clone(),
            Wanted::Patched(patch) if patch.kind == PatchType::Apply => apply::apply(Some(&before), &patch.body, schema, &context)?,
            Wanted::Patched(patch) => {
                let expected = Expected { group: SCALE.0, version: SCALE.1, kind: SCALE.2, schema, custom: false };
                patched(target, &before, patch, expected)?
            }
        };
        check_name(&target.name, meta(&scale, "name"))?;
        if !target.options.is_apply {
            apply::track_update(Some(&before), &mut scale, schema, &context);
        }
        Ok((before, scale))
    }

    /// An object with the replicas and owners that its Scale has.
    fn scaled(&self, target: &Target, mut object: Value, before: &Value, scale: &Value) -> Result<Value, Status> {
        let resource = &*target.resource;
        let paths = self.replicas_paths(resource);
        let (owned, now_owned) = (&object["metadata"]["managedFields"], &scale["metadata"]["managedFields"]);
        let entries = owners::to_parent(owned, now_owned, &resource.group_version(), &parts_of(&paths)).map_err(unreadable)?;
        // What the client says of the uid is about the object.
        let uid = said(scale, before, "uid");
        let metadata = meta_mut(&mut object);
        if let Some(uid) = uid {
            metadata.insert("uid".into(), uid.into());
        }
        match entries {
            Some(entries) => drop(metadata.insert("managedFields".into(), entries)),
            None => drop(metadata.remove("managedFields")),
        }
        set_path(&mut object, &replicas_path(resource), json!(scale["spec"]["replicas"].as_i64().unwrap_or(0)));
        Ok(object)
    }
}

fn unreadable(error: apply::managers::InvalidManagedFields) -> Status {
    Status::unclassified(format!("failed to decode managed fields: {error}"))
}

fn parts_of(paths: &[(String, String)]) -> Vec<owners::ReplicasPath<'_>> {
    paths.iter().map(|(version, path)| (version.as_str(), path.split('.').filter(|part| !part.is_empty()).collect())).collect()
}

/// What a client says of a field that it need not know.
fn said(scale: &Value, before: &Value, field: &str) -> Option<String> {
    Some(meta(scale, field)).filter(|given| !matches!(*given, "" | "0") && *given != meta(before, field)).map(str::to_owned)
}

/// What only the server says of a Scale is as it was.
fn complete(before: &Value, scale: &mut Value) {
    fill(before, scale, &["name", "namespace", "uid", "creationTimestamp"]);
}

fn fill(before: &Value, scale: &mut Value, fields: &[&str]) {
    for field in fields {
        if meta(scale, field).is_empty() {
            meta_mut(scale).insert((*field).into(), before["metadata"][field].clone());
        }
    }
}

/// A Scale as it is sent about: it has a place, and all of its parts.
fn normalize(before: &Value, scale: &mut Value) {
    fill(before, scale, &["name", "namespace"]);
    if !scale["spec"].is_object() {
        scale["spec"] = json!({});
    }
    // No replicas are left out, as everywhere in this kind; a status is never without its number.
    if let (true, Some(spec)) = (scale["spec"]["replicas"] == 0, scale["spec"].as_object_mut()) {
        spec.remove("replicas");
    }
    if scale["status"]["replicas"].is_null() {
        scale["status"]["replicas"] = json!(0);
    }
}

/// Where a version has its replicas; empty for a custom one that cannot be scaled.
fn replicas_path(resource: &Resource) -> String {
    match &resource.custom {
        None => ".spec.replicas".to_owned(),
        Some(custom) => {
            custom.version.pointer("/subresources/scale/specReplicasPath").and_then(Value::as_str).unwrap_or_default().to_owned()
        }
    }
}

/// The `Scale` of an object.
fn scale_of(target: &Target, object: &Value) -> Value {
    let custom = target.resource.custom.as_ref().and_then(|c| c.version.pointer("/subresources/scale"));
    let path = |name: &str, usual: &str| custom.and_then(|c| c[name].as_str()).unwrap_or(usual).to_owned();
    let replicas = get_path(object, &path("specReplicasPath", ".spec.replicas")).and_then(Value::as_i64);
    let actual = get_path(object, &path("statusReplicasPath", ".status.replicas")).and_then(Value::as_i64);
    let selector = match custom {
        Some(custom) => {
            custom["labelSelectorPath"].as_str().and_then(|p| get_path(object, p)).and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        None => selector_text(&object["spec"]["selector"]),
    };
    let mut metadata = json!({"name": meta(object, "name"), "namespace": meta(object, "namespace")});
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        metadata[field] = object["metadata"][field].clone();
    }
    let mut status = json!({"replicas": actual.unwrap_or(0)});
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let mut spec = json!({});
    if let Some(replicas) = replicas.filter(|r| *r != 0) {
        spec["replicas"] = json!(replicas);
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// A selector as `Scale` tells it: `a=b,c in (d,e)`. A ReplicationController's is a plain map.
fn selector_text(selector: &Value) -> String {
    let mut terms = Vec::new();
    let labels = selector.get("matchLabels").unwrap_or(if selector.get("matchExpressions").is_some() { &Value::Null } else { selector });
    for (key, value) in labels.as_object().into_iter().flatten() {
        terms.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<&str> = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        terms.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({})", values.join(",")),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.join(",")
}

fn get_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.').split('.').try_fold(object, |value, part| value.get(part))
}

fn set_path(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for part in path.trim_start_matches('.').split('.') {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    *at = value;
}
