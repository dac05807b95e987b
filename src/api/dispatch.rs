//! From a request to the verb that answers it: which resource, which subresource, and whether the verb is one of theirs.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use http::{Request, Response, header};
use serde_json::{Value, json};

use super::options::{DeleteOptions, ListOptions, WriteOptions};
use super::patch_verb::check_custom_kind;
use super::representation::{Representation, header_text, respond_value};
use super::target::Target;
use super::write::{check_names, replacement};
use super::{Api, body, compress, strategy};
use crate::audit::latency::SLOW;
use crate::object::{Object, meta_mut};
use crate::registry::Resource;
use crate::request::{Context, SharedContext};
use crate::schema::decode::FieldValidation;
use crate::status::Status;

impl Api {
    /// Answers a request about a resource.
    pub async fn serve(self: Arc<Self>, context: SharedContext, request: Request<Body>) -> Result<Response<Body>, Status> {
        let info = &context.info;
        let Some(resource) = self.registry.lookup(&info.group, &info.version, &info.resource) else {
            return Err(Status::no_such_resource());
        };
        let user = context.user().cloned().ok_or_else(Status::unauthorized)?;
        let (parts, request_body) = request.into_parts();
        // By proxy, every method means what the other side takes it for.
        let proxied = info.subresource == "proxy";
        let head = parts.method == http::Method::HEAD && resource.custom.is_none();
        if !proxied && (head || info.verb.is_empty()) {
            return Err(not_allowed(&resource, info.verb));
        }
        check_path(&info.path, &info.name, &resource, &info.namespace)?;
        if !resource.namespaced && !info.namespace.is_empty() && &*resource.plural != "namespaces" {
            return Err(Status::no_such_resource());
        }
        let form = Representation::negotiate(&parts.headers, &context.query, &resource, info.verb);
        // What a connection is to carry is between its two ends.
        let connects = matches!(info.subresource.as_str(), "exec" | "attach" | "portforward" | "proxy");
        let form = if connects { form.unwrap_or(Representation::JSON) } else { form? };
        // Whoever got here has found something that is served.
        let served = info.subresource.is_empty() || resource.subresource(&info.subresource).is_some();
        if let Some(warning) = resource.deprecation.as_ref().filter(|_| served) {
            context.trace.warn(&**warning);
            context.trace.annotate("k8s.io/deprecated", "true");
        }
        let namespace = if &*resource.plural == "namespaces" && resource.group.is_empty() { String::new() } else { info.namespace.clone() };
        let target = Target {
            context: context.clone(),
            user,
            resource: resource.clone(),
            namespace,
            name: info.name.clone(),
            subresource: info.subresource.clone(),
            options: WriteOptions::default(),
            conversions: Arc::default(),
        };
        if !resource.is_stored() {
            let bytes = body::read(request_body).await?;
            return self.transient(target, &parts, &bytes, form).await;
        }
        // By the old way to watch, there is no part of an object to be seen.
        if !info.subresource.is_empty() && resource.custom.is_none() && info.path.contains("/v1/watch/") {
            return Err(Status::no_such_resource());
        }
        if !info.subresource.is_empty() && info.subresource != "status" {
            return self.serve_subresource(target, parts, request_body, form).await;
        }
        let allowed = match info.subresource.as_str() {
            "" => resource.allows(info.verb),
            sub => match resource.subresource(sub) {
                Some(sub) => sub.verbs.iter().any(|verb| &**verb == info.verb),
                None => return Err(Status::no_such_resource()),
            },
        };
        // A custom resource may be created by a POST to its name.
        let named_create = info.verb == "create" && !info.name.is_empty() && resource.custom.is_none();
        let nameless = info.name.is_empty() && matches!(info.verb, "update" | "patch");
        // Of all namespaces at once, objects are read, and neither made nor deleted.
        let everywhere = resource.namespaced && info.namespace.is_empty() && matches!(info.verb, "create" | "deletecollection");
        let legacy = parts.uri.path().contains("/v1/watch/") && !matches!(info.verb, "watch" | "get" | "list");
        if !allowed || named_create || nameless || everywhere || legacy {
            return Err(not_allowed(&resource, info.verb));
        }
        match info.verb {
            "get" => {
                let object = self.get(&context, &resource).await?;
                Ok(compressed(&parts.headers, self.answer_object(&context, 200, &object, &resource, form)?))
            }
            "list" => {
                let options = ListOptions::parse(&context, &resource, false)?;
                let counted = options.labels.is_empty() && options.fields.is_empty();
                let (snapshot, next) = self.list(&context, &resource, &options).await?;
                let since = Instant::now();
                let response = compressed(&parts.headers, self.respond_list(snapshot, next, counted, &resource, form)?);
                context.trace.step("serialize", "list", "encoded", since);
                Ok(response)
            }
            "watch" => {
                let options = ListOptions::parse(&context, &resource, true)?;
                self.watch(&context, &resource, options, form).await
            }
            "create" => {
                let options = WriteOptions::parse(&context, "CreateOptions")?;
                let bytes = body::read(request_body).await?;
                let mut object = self.read_object(&context, &parts.headers, &bytes, &resource, options.field_validation)?;
                let target = Target { options, ..target };
                check_names(&target, &mut object, true)?;
                if resource.custom.is_some() {
                    check_custom_kind(&resource, &object)?;
                }
                let written = self.create(&target, object).await?;
                self.answer_object(&context, 201, &written.object, &resource, form)
            }
            "update" => {
                let options = WriteOptions::parse(&context, "UpdateOptions")?;
                let bytes = body::read(request_body).await?;
                let mut object = self.read_object(&context, &parts.headers, &bytes, &resource, options.field_validation)?;
                if body::resets_owners(&bytes) {
                    meta_mut(&mut object).insert("managedFields".into(), Value::Array(Vec::new()));
                }
                let target = Target { options, ..target };
                check_names(&target, &mut object, false)?;
                if resource.custom.is_some() {
                    check_custom_kind(&resource, &object)?;
                }
                let create = target.subresource.is_empty() && strategy::creates_on_update(&resource);
                let written = self.update(&target, &|old| replacement(&target, old, &object), create).await?;
                self.answer_object(&context, if written.created { 201 } else { 200 }, &written.object, &resource, form)
            }
            "patch" => {
                let bytes = body::read(request_body).await?;
                let written = self.patch(target, &parts.headers, &bytes).await?;
                self.answer_object(&context, if written.created { 201 } else { 200 }, &written.object, &resource, form)
            }
            "delete" => {
                let options = self.delete_options(&context, &parts.headers, request_body).await?;
                let deleted = self.delete(&target.deleting(&options), &options).await?;
                match self.deletion_answer(&deleted, &resource) {
                    Some(status) => respond_value(200, &status, form),
                    None => self.answer_object(&context, 200, &deleted.object, &resource, form),
                }
            }
            "deletecollection" => {
                let options = self.delete_options(&context, &parts.headers, request_body).await?;
                let list = ListOptions::parse(&context, &resource, false)?;
                let counted = list.labels.is_empty() && list.fields.is_empty();
                let (snapshot, next) = self.delete_collection(&target.deleting(&options), &list, &options).await?;
                self.respond_list(snapshot, next, counted, &resource, form)
            }
            _ => Err(Status::method_not_allowed()),
        }
    }

    /// Hop 05 begins: the object of a body, with its defaults.
    fn read_object(
        &self,
        context: &Context,
        headers: &http::HeaderMap,
        bytes: &[u8],
        resource: &Resource,
        validation: FieldValidation,
    ) -> Result<Value, Status> {
        let since = Instant::now();
        let read = self.decode_object(context, headers, bytes, resource, validation);
        let format = match header_text(headers, header::CONTENT_TYPE) {
            named if named.contains("protobuf") => "protobuf",
            named if named.contains("yaml") => "YAML",
            _ => "JSON",
        };
        context.trace.step("decode", format, if read.is_ok() { "decoded" } else { "refused" }, since);
        read
    }

    /// One object as the answer. A request that is slow already tells how long that took.
    fn answer_object(
        &self,
        context: &Context,
        code: u16,
        object: &Object,
        resource: &Resource,
        form: Representation,
    ) -> Result<Response<Body>, Status> {
        let since = Instant::now();
        let response = self.respond_object(code, object, resource, form);
        if since.duration_since(context.trace.start()) > SLOW {
            context.trace.step("serialize", "object", "encoded", since);
        }
        response
    }

    async fn delete_options(
        &self,
        context: &SharedContext,
        headers: &http::HeaderMap,
        request_body: Body,
    ) -> Result<DeleteOptions, Status> {
        let bytes = body::read(request_body).await?;
        let value: Option<Value> = match bytes.is_empty() {
            true => None,
            false => Some(body::decode_delete_options(headers, &bytes)?),
        };
        DeleteOptions::parse(context, value.as_ref())
    }

    async fn serve_subresource(
        self: Arc<Self>,
        target: Target,
        parts: http::request::Parts,
        request_body: Body,
        form: Representation,
    ) -> Result<Response<Body>, Status> {
        let resource: Arc<Resource> = target.resource.clone();
        let verb = target.context.info.verb;
        let Some(sub) = resource.subresource(&target.subresource).cloned() else {
            return Err(Status::no_such_resource());
        };
        if target.subresource != "proxy" && !sub.verbs.iter().any(|v| &**v == verb) {
            return Err(not_allowed(&resource, verb));
        }
        let bytes = body::read(request_body).await?;
        let answer = self.subresource(&target, &parts, &bytes).await?;
        match answer {
            super::subresource::Answer::Object(object) => self.respond_object(200, &object, &resource, form),
            super::subresource::Answer::Value(code, value) => respond_value(code, &value, form),
            super::subresource::Answer::Response(response) => Ok(response),
        }
    }
}

/// A verb that a resource does not have; of a custom one a real server says which.
fn not_allowed(resource: &Resource, verb: &str) -> Status {
    let mut status = Status::method_not_allowed();
    if resource.custom.is_some() {
        let kind = format!("{}.{}", resource.plural, resource.group);
        status = Status::new(405, "MethodNotAllowed", format!("{verb} is not supported on resources of kind {kind:?}"));
        status = status.about(&resource.group, &resource.plural, "");
    }
    status
}

/// Paths that look like one of a resource and are none: with an empty part, or an object of a namespace without the namespace. And names
/// that no object can have.
fn check_path(path: &str, name: &str, resource: &Resource, namespace: &str) -> Result<(), Status> {
    if path.trim_end_matches('/').contains("//") || name.contains('/') {
        return Err(Status::no_such_resource());
    }
    if resource.namespaced
        && namespace.is_empty()
        && !name.is_empty()
        && !path.contains("/watch/")
        && resource.is_stored()
        && names_object(path)
    {
        return Err(Status::no_such_resource());
    }
    match name {
        "." | ".." => Err(Status::bad_request(format!("Name parameter invalid: {name:?}: may not be '{name}'"))),
        name if name.contains('%') => Err(Status::bad_request(format!("Name parameter invalid: {name:?}: may not contain '%'"))),
        _ => Ok(()),
    }
}

/// Whether a path goes on behind the resource: `/api/v1/pods/x`, `/apis/g/v1/things/x`.
fn names_object(path: &str) -> bool {
    let parts = path.split('/').filter(|part| !part.is_empty());
    let before = if path.trim_start_matches('/').starts_with("apis/") { 4 } else { 3 };
    parts.count() > before
}

/// Compresses an answer for who asked for it; others pay nothing.
fn compressed(headers: &http::HeaderMap, response: Response<Body>) -> Response<Body> {
    match compress::accepts_gzip(headers) {
        true => compress::compress(headers, response).map(Body::new),
        false => response,
    }
}

/// The `Status` of a success that has no object to show.
pub fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}
