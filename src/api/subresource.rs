//! The subresources that are more than a half of their object: finalize, log and the rest. `scale`
//! is [`super::scale`], binding and eviction are [`super::placement`].

use std::sync::Arc;

use axum::body::Body;
use http::Response;
use http::request::Parts;
use serde_json::{Value, json};

use super::body::decode_part;
use super::options::WriteOptions;
use super::target::Target;
use super::write::{Before, Written};
use super::{Api, fields};
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
                let mut body = decode_part(&target.context, &parts.headers, bytes, kind, target.options.field_validation)?;
                super::token_requests::set_defaults(&mut body, &target.namespace);
                fields::track_part(self, &target, kind, &mut body);
                let mut write = target.operation(Operation::Create, Some(body), None);
                self.admission.mutate(&mut write).await?;
                let body = write.object.take().unwrap_or_default();
                write.object = Some(self.reviews.prepared(&target.namespace, &target.name, body)?);
                self.admission.validate(&write).await?;
                let body = write.object.take().unwrap_or_default();
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
                super::write::check_name(&target.name, meta(&namespace, "name"))?;
                let spec = namespace["spec"].clone();
                let finalizers = spec["finalizers"].clone();
                let unqualified = |name: &&Value| name.as_str().is_some_and(|name| name != "kubernetes" && !name.contains('/'));
                let names = finalizers.as_array().map(Vec::as_slice).unwrap_or_default();
                if let Some(at) = names.iter().position(|name| unqualified(&name)) {
                    let why = "name is neither a standard finalizer name nor is it fully qualified";
                    let error = FieldError::invalid(format!("spec.finalizers[{at}]"), &names[at], why);
                    return Err(Status::invalid("", "Namespace", &target.name, vec![error]));
                }
                let change = |namespace: &mut Value| {
                    if let Some(spec) = namespace.get_mut("spec").and_then(Value::as_object_mut) {
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
        let make = |old: Option<&Before>| {
            let mut object = Before::copy(old);
            meta_mut(&mut object).remove("resourceVersion");
            change(&mut object)?;
            Ok(object)
        };
        self.update(target, &make, false).await
    }
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
