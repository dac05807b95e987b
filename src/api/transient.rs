//! Resources of which nothing is kept: reviews that are answered at once, the binding by POST to a collection, and the component
//! statuses that old clients ask for.

use std::borrow::Cow;

use axum::body::Body;
use http::Response;
use http::request::Parts;
use serde_json::{Value, json};

use super::body::decode_kind;
use super::options::WriteOptions;
use super::representation::{Representation, Shape, respond_value};
use super::target::Target;
use super::{Api, fields, subresource, table};
use crate::registry::Resource;
use crate::schema::decode::Expected;
use crate::schema::default::apply_defaults;
use crate::status::Status;

impl Api {
    /// Answers a request about a resource that is not stored.
    pub(super) async fn transient(
        &self,
        target: Target,
        parts: &Parts,
        bytes: &[u8],
        form: Representation,
    ) -> Result<Response<Body>, Status> {
        let resource = &target.resource;
        let info = &target.context.info;
        if (&*resource.group, &*resource.plural) == ("", "componentstatuses") {
            return self.component_statuses(resource, info.verb, &info.name, form);
        }
        if !info.name.is_empty() {
            return Err(Status::no_such_resource());
        }
        if info.verb != "create" {
            return Err(Status::method_not_allowed());
        }
        let options = WriteOptions::parse(&target.context, "CreateOptions")?;
        let validation = options.field_validation;
        let target = Target { options, ..target.clone() };
        let schema = resource.schema();
        let expected =
            Expected { group: &resource.group, version: &resource.version, kind: &resource.kind, schema: &schema, custom: false };
        let mut body = decode_kind(&target.context, &parts.headers, bytes, expected, validation)?;
        target.context.understand(|| {
            let mut shown = body.clone();
            apply_defaults(&mut shown, resource);
            Cow::Owned(shown)
        });
        if matches!(&*resource.plural, "subjectaccessreviews" | "localsubjectaccessreviews" | "selfsubjectaccessreviews" | "tokenreviews") {
            fields::track_part(self, &target, (&resource.group, &resource.version, &resource.kind), &mut body);
        }
        let answer = match &*resource.plural {
            "subjectaccessreviews" => self.reviews.subject_access_review(body).await?,
            "localsubjectaccessreviews" => self.reviews.local_subject_access_review(&target.namespace, body).await?,
            "selfsubjectaccessreviews" => self.reviews.self_subject_access_review(&target.user, body).await?,
            "selfsubjectrulesreviews" => self.reviews.self_subject_rules_review(&target.user, body)?,
            "selfsubjectreviews" => self.reviews.self_subject_review(&target.user, &resource.version),
            "tokenreviews" => self.reviews.token_review(body).await?,
            "bindings" => {
                let Some(pods) = self.registry.lookup("", "v1", "pods") else { return Err(Status::no_such_resource()) };
                return match self.bind(&target, pods, parts, bytes).await? {
                    subresource::Answer::Value(code, value) => respond_value(code, &value, form),
                    _ => Err(Status::internal("a binding answers with a Status")),
                };
            }
            _ => return Err(Status::no_such_resource()),
        };
        respond_value(201, &answer, form)
    }

    fn component_statuses(&self, resource: &Resource, verb: &str, name: &str, form: Representation) -> Result<Response<Body>, Status> {
        let component =
            |name: &str| json!({"metadata": {"name": name}, "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]});
        let names = ["controller-manager", "etcd-0", "scheduler"];
        let table = form.shape == Shape::Table;
        let value: Value = match verb {
            "list" if table => table::document(resource, names.map(component).iter(), json!({}), self.clock.now(), form),
            "list" => json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": names.map(component)}),
            "get" if names.contains(&name) => {
                let mut one = component(name);
                one["kind"] = json!("ComponentStatus");
                one["apiVersion"] = json!("v1");
                if table { table::document(resource, std::iter::once(&one), json!({}), self.clock.now(), form) } else { one }
            }
            "get" => return Err(Status::not_found("", "componentstatuses", name)),
            _ => return Err(Status::method_not_allowed()),
        };
        respond_value(200, &value, form)
    }
}
