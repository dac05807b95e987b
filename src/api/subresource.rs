//! The subresources that are more than a half of their object: scale, finalize, log and the rest. Binding and eviction are [`super::placement`].

use std::sync::Arc;

use axum::body::Body;
use http::Response;
use http::request::Parts;
use serde_json::{Value, json};

use super::Api;
use super::body::decode_part;
use super::negotiate::{self, PatchType};
use super::options::WriteOptions;
use super::patch_verb::{patch_value, read_patch};
use super::representation::header_text;
use super::write::{Target, Written};
use crate::admission::Operation;
use crate::object::{Object, meta, meta_mut};
use crate::status::{FieldError, Status};

/// What a subresource answers with.
pub enum Answer {
    /// The object of the resource itself.
    Object(Arc<Object>),
    /// Something else, with its code.
    Value(u16, Value),
    /// A response of its own making.
    Response(Response<Body>),
}

impl Api {
    /// Answers a request about a subresource other than `status`.
    pub(super) async fn subresource(&self, target: &Target, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        let verb = target.context.info.verb;
        self.admit_connection(target).await?;
        match (&*target.resource.plural, target.subresource.as_str()) {
            (_, "scale") => self.scale(target, parts, bytes).await,
            ("pods", "binding") => self.bind(target, target.resource.clone(), parts, bytes).await,
            ("serviceaccounts", "token") => {
                let target = Target { options: WriteOptions::parse(&target.context, "CreateOptions")?, ..target.clone() };
                let kind = ("authentication.k8s.io", "v1", "TokenRequest");
                let body = decode_part(&target.context, &parts.headers, bytes, kind, target.options.field_validation)?;
                let body = self.admit(&target, Operation::Create, body).await?;
                let issued = self.reviews.token_request(&target.namespace, &target.name, body)?;
                target.context.trace.annotate("authentication.kubernetes.io/issued-credential-id", format!("JTI={}", issued.credential_id));
                issued.warning.into_iter().for_each(|warning| target.context.trace.warn(warning));
                Ok(Answer::Value(201, issued.review))
            }
            ("pods", "log") => self.log(target).await,
            ("pods", "eviction") => self.evict(target, parts, bytes).await,
            ("namespaces", "finalize") => {
                let target = Target { options: WriteOptions::parse(&target.context, "UpdateOptions")?, ..target.clone() };
                let validation = target.options.field_validation;
                let namespace = decode_part(&target.context, &parts.headers, bytes, ("", "v1", "Namespace"), validation)?;
                let spec = namespace["spec"].clone();
                let finalizers = spec["finalizers"].clone();
                let change = |namespace: &mut Value| {
                    if let Some(spec) = namespace["spec"].as_object_mut() {
                        match finalizers.as_array().is_none_or(Vec::is_empty) {
                            true => spec.remove("finalizers"),
                            false => spec.insert("finalizers".into(), finalizers.clone()),
                        };
                    }
                    Ok(())
                };
                Ok(Answer::Object(self.change(&target, &change).await?.object))
            }
            ("pods", "ephemeralcontainers" | "resize") | ("certificatesigningrequests", "approval") => match verb {
                "get" => Ok(Answer::Object(self.get(&target.context, &target.resource).await?)),
                "patch" => Ok(Answer::Object(self.patch(target.clone(), &parts.headers, bytes).await?.object)),
                _ => {
                    let options = WriteOptions::parse(&target.context, "UpdateOptions")?;
                    let object = self.decode_object(&target.context, &parts.headers, bytes, &target.resource, options.field_validation)?;
                    let target = Target { options, ..target.clone() };
                    Ok(Answer::Object(self.update(&target, &move |_| Ok(object.clone()), false).await?.object))
                }
            },
            _ => self.connect(target, parts, bytes).await,
        }
    }

    /// Changes the newest state of an object by code.
    pub(super) async fn change(
        &self,
        target: &Target,
        change: &(dyn Fn(&mut Value) -> Result<(), Status> + Send + Sync),
    ) -> Result<Written, Status> {
        let make = |old: Option<&Arc<Object>>| {
            let mut object = old.map(|o| (*self.in_version(o, &target.resource)).clone()).unwrap_or_default();
            meta_mut(&mut object).remove("resourceVersion");
            change(&mut object)?;
            Ok(object)
        };
        self.update(target, &make, false).await
    }

    /// Reads or sets the number of replicas. What is admitted is the `Scale`, before and after; the object follows from it.
    async fn scale(&self, target: &Target, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        let verb = target.context.info.verb;
        if verb == "get" {
            let current = self.get(&target.context, &target.resource).await?;
            return Ok(Answer::Value(200, scale_of(target, current.value())));
        }
        let mut options = WriteOptions::parse(&target.context, if verb == "patch" { "PatchOptions" } else { "UpdateOptions" })?;
        let (kind, body) = match verb {
            "patch" => {
                let kind = negotiate::patch(header_text(&parts.headers, http::header::CONTENT_TYPE), false)?;
                (Some(kind), read_patch(kind, bytes)?)
            }
            _ => (None, decode_part(&target.context, &parts.headers, bytes, ("autoscaling", "v1", "Scale"), options.field_validation)?),
        };
        options.is_admitted = true;
        let target = Target { options, ..target.clone() };
        let path = self.replicas_path(&target);
        loop {
            let current = self.get(&target.context, &target.resource).await?;
            let shown = scale_of(&target, current.value());
            let mut wanted = match kind {
                None => body.clone(),
                Some(PatchType::Apply) => {
                    let mut scale = shown.clone();
                    scale["spec"]["replicas"] = body["spec"]["replicas"].clone();
                    scale
                }
                Some(kind) => {
                    let mut scale = shown.clone();
                    patch_value(&mut scale, kind, &body, &crate::schema::Schema::default())?;
                    scale
                }
            };
            let given = meta(&wanted, "resourceVersion").to_owned();
            let revision = current.revision.to_string();
            if !given.is_empty() && given != "0" && given != revision {
                return Err(Status::modified(&target.resource.group, &target.resource.plural, &target.name));
            }
            complete_scale(&shown, &mut wanted);
            let mut write = target.operation(Operation::Update, Some(wanted), Some(Arc::new(shown)));
            self.admission.mutate(&mut write).await?;
            let replicas = write.object()["spec"]["replicas"].as_i64().unwrap_or(0);
            if replicas < 0 {
                let error = FieldError::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0");
                return Err(Status::invalid("autoscaling", "Scale", &target.name, vec![error]));
            }
            self.admission.validate(&write).await?;
            let make = |old: Option<&Arc<Object>>| {
                let mut object = old.map(|o| (*self.in_version(o, &target.resource)).clone()).unwrap_or_default();
                set_path(&mut object, &path, json!(replicas));
                meta_mut(&mut object).insert("resourceVersion".into(), json!(revision));
                Ok(object)
            };
            match self.update(&target, &make, false).await {
                // Somebody else was quicker, and the client did not say which state it means.
                Err(status) if status.reason == "Conflict" && (given.is_empty() || kind.is_some()) => {}
                written => return Ok(Answer::Value(200, scale_of(&target, written?.object.value()))),
            }
        }
    }

    fn replicas_path(&self, target: &Target) -> String {
        let custom = target.resource.custom.as_ref();
        let path = custom.and_then(|c| c.version.pointer("/subresources/scale/specReplicasPath")).and_then(Value::as_str);
        path.unwrap_or(".spec.replicas").to_owned()
    }
}

/// What only the server says of a `Scale` is as it was.
fn complete_scale(shown: &Value, wanted: &mut Value) {
    for field in ["name", "namespace", "uid", "creationTimestamp"] {
        if meta(wanted, field).is_empty() {
            meta_mut(wanted).insert(field.into(), shown["metadata"][field].clone());
        }
    }
    if !wanted["spec"].is_object() {
        wanted["spec"] = json!({});
    }
    // No replicas are left out, as everywhere in this kind; a status is never without its number.
    if let (true, Some(spec)) = (wanted["spec"]["replicas"] == 0, wanted["spec"].as_object_mut()) {
        spec.remove("replicas");
    }
    if wanted["status"]["replicas"].is_null() {
        wanted["status"]["replicas"] = json!(0);
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

/// Puts a condition in the place of the one of its type.
pub fn set_condition(status: &mut Value, condition: Value) {
    if !status.is_object() {
        *status = json!({});
    }
    let conditions = &mut status["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Some(list) = conditions.as_array_mut() {
        match list.iter_mut().find(|c| c["type"] == condition["type"]) {
            Some(existing) => *existing = condition,
            None => list.push(condition),
        }
    }
}
