//! What a question under `/usher/v1/` is about: one object, named as people name it. Whoever asks must be allowed to `get` it; the
//! past of an object is not less secret than its present.

use std::sync::Arc;

use axum::body::Body;
use http::Request;
use serde_json::Value;

use super::records;
use crate::api::convert;
use crate::api::read::{key, store_error};
use crate::audit::event::ObjectReference;
use crate::authz::{Attributes, verdict};
use crate::gateway::Gateway;
use crate::gateway::layers::{Refused, context};
use crate::object::Object;
use crate::registry::Resource;
use crate::request::{RequestInfo, SharedContext, User, decode, query_pairs, query_value};
use crate::status::Status;
use crate::store::Change;

/// One object, or all of a kind where the name is empty.
#[derive(Clone)]
pub struct Subject {
    /// What it is.
    pub resource: Arc<Resource>,
    /// Its namespace; empty where it has none, or where all of them are meant.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A question: the rest of its path, its query, and who asks.
pub struct Question {
    /// The path behind `/usher/v1/<what>/`, in parts.
    pub parts: Vec<String>,
    query: String,
    user: Arc<User>,
}

impl Question {
    /// Reads a request whose path begins with `prefix` and whose query has no other parameters than these.
    pub fn of(request: &Request<Body>, prefix: &str, parameters: &[&str]) -> Result<Self, Refused> {
        known_parameters(request.uri().query().unwrap_or_default(), parameters)?;
        let context: SharedContext = context(request)?;
        let user = context.user().cloned().ok_or_else(|| Refused(Status::unauthorized()))?;
        let rest = request.uri().path().strip_prefix(prefix).unwrap_or_default();
        let parts = rest.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        Ok(Question { parts, query: request.uri().query().unwrap_or_default().to_owned(), user })
    }

    /// A parameter of the query.
    pub fn parameter(&self, name: &str) -> Option<String> {
        query_value(&self.query, name).filter(|value| !value.is_empty())
    }

    /// Whether a parameter says yes.
    pub fn flag(&self, name: &str) -> bool {
        query_value(&self.query, name).is_some_and(|value| matches!(value.as_str(), "" | "1" | "true"))
    }

    /// A number, where one is given.
    pub fn number(&self, name: &str, default: usize, most: usize) -> Result<usize, Refused> {
        match self.parameter(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map(|n: usize| n.min(most))
                .map_err(|_| Status::bad_request(format!("{name} takes a number, not {text:?}")).into()),
        }
    }

    /// The object of `…/KIND/NAME?namespace=`, which the user must be allowed to `get`.
    pub async fn object(&self, gateway: &Gateway) -> Result<Subject, Refused> {
        let subject = self.subject(gateway)?;
        if subject.name.is_empty() {
            return Err(Status::bad_request("say which object: KIND/NAME").into());
        }
        self.check(gateway, "get", &subject).await?;
        Ok(subject)
    }

    /// The object or the kind of `…/KIND[/NAME]?namespace=`; nobody has been asked yet whether the user may read it.
    pub fn subject(&self, gateway: &Gateway) -> Result<Subject, Refused> {
        if self.parts.len() > 2 {
            return Err(Status::bad_request(format!("say which object: KIND/NAME, not {:?}", self.parts.join("/"))).into());
        }
        let kind = self.parts.first().map(String::as_str).unwrap_or_default();
        let resource = gateway.api.registry.table().resolve(kind);
        let unknown = || Status::new(404, "NotFound", format!("the server doesn't have a resource type {kind:?}"));
        let resource = resource.ok_or_else(|| Refused(unknown()))?;
        let name = self.parts.get(1).cloned().unwrap_or_default();
        let namespace = match resource.namespaced {
            true if name.is_empty() && self.flag("allNamespaces") => String::new(),
            true => self.parameter("namespace").unwrap_or_else(|| "default".into()),
            false => String::new(),
        };
        Ok(Subject { resource, namespace, name })
    }

    /// Refuses unless the user may.
    pub async fn check(&self, gateway: &Gateway, verb: &'static str, subject: &Subject) -> Result<(), Refused> {
        self.may(gateway, verb, &subject.reference()).await.map_err(Refused)
    }

    /// Whether the user may; the refusal if not.
    pub async fn may(&self, gateway: &Gateway, verb: &'static str, object: &ObjectReference) -> Result<(), Status> {
        let info = RequestInfo {
            is_resource: true,
            verb,
            group: object.api_group.clone(),
            version: object.api_version.clone(),
            resource: object.resource.clone(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            ..RequestInfo::default()
        };
        let attributes = Attributes { user: self.user.clone(), info: Arc::new(info) };
        verdict(&attributes, &gateway.authorizer.decide(&attributes).await)
    }
}

/// The parameters that say yes or no.
const FLAGS: [&str; 5] = ["all", "allNamespaces", "any", "denied", "showSecrets"];

/// Refuses a query with a parameter that nobody would look at, or with a flag that says neither yes nor no.
pub fn known_parameters(query: &str, known: &[&str]) -> Result<(), Status> {
    for (key, value) in query_pairs(query) {
        if FLAGS.contains(&key.as_str()) && !matches!(value.as_str(), "" | "0" | "1" | "false" | "true") {
            return Err(Status::bad_request(format!("{key} takes true or false, not {value:?}")));
        }
        // How long a request may take is the business of the layers around this.
        if key != "timeout" && !known.contains(&key.as_str()) {
            let takes = if known.is_empty() { "no parameters".to_owned() } else { known.join(", ") };
            return Err(Status::bad_request(format!("unknown parameter {key:?}; this takes {takes}")));
        }
    }
    Ok(())
}

/// Refuses a query that says anything.
pub fn no_parameters(query: &str) -> Result<(), Status> {
    known_parameters(query, &[])
}

impl Subject {
    /// Where it is kept.
    pub fn key(&self) -> String {
        key(&self.resource, &self.namespace, &self.name)
    }

    /// The object of a reference, if its resource is still served.
    pub fn of(gateway: &Gateway, object: &ObjectReference) -> Option<Self> {
        let resource = gateway.api.registry.lookup(&object.api_group, &object.api_version, &object.resource)?;
        Some(Subject { resource, namespace: object.namespace.clone(), name: object.name.clone() })
    }

    /// How events and authorisation name it.
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            resource: self.resource.plural.to_string(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            api_group: self.resource.group.to_string(),
            api_version: self.resource.version.to_string(),
            ..ObjectReference::default()
        }
    }

    /// `deployments.apps/web`, as kubectl names it.
    pub fn display(&self) -> String {
        format!("{}/{}", self.resource.qualified(), self.name)
    }

    /// Whether it is a Secret.
    pub fn is_secret(&self) -> bool {
        self.resource.group.is_empty() && &*self.resource.plural == "secrets"
    }

    /// Its kept changes, oldest first; at least one.
    pub async fn history(&self, gateway: &Gateway) -> Result<Vec<Change>, Refused> {
        let changes = gateway.api.state.store().history(&self.key()).await.map_err(store_error)?;
        if !changes.is_empty() {
            return Ok(changes);
        }
        // An object of another cluster is known from its records alone.
        let changes = records::states(gateway, self).await;
        if changes.is_empty() {
            let mut status = Status::not_found(&self.resource.group, &self.resource.plural, &self.name);
            if !self.namespace.is_empty() {
                status.message.push_str(&format!(" in the namespace {:?}", self.namespace));
            }
            return Err(status.into());
        }
        Ok(changes)
    }

    /// A kept state as this resource's version shows it.
    pub fn value(&self, change: &Change) -> Value {
        let value = Object::new(change.key.clone(), change.revision, &change.value).to_value();
        match self.resource.is_stored_otherwise() {
            true => convert::to_version(value, &self.resource),
            false => value,
        }
    }
}
