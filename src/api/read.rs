//! GET of one object and LIST of many, answered from the read side where it has the state that was asked for and from
//! the store where it has not. Bytes are handed out as they are; nothing is parsed that is wanted as it is stored.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use serde_json::{Value, json};

use super::Api;
use super::options::{ListOptions, VersionMatch};
use crate::object::Object;
use crate::registry::Resource;
use crate::request::Context;
use crate::status::Status;
use crate::store::{At, Error, Range, Revision};
use crate::watch::{Filter, Snapshot};

/// How long a read waits for a revision that has not arrived yet.
const PATIENCE: Duration = Duration::from_secs(3);

/// The key of an object, or the prefix of a namespace's or the whole resource's keys where `name` or both are empty.
pub fn key(resource: &Resource, namespace: &str, name: &str) -> String {
    match (resource.namespaced && !namespace.is_empty(), name.is_empty()) {
        (true, _) => format!("/registry/{}/{namespace}/{name}", resource.storage),
        (false, _) => format!("/registry/{}/{name}", resource.storage),
    }
}

/// What stands between the store's error and the client.
pub fn store_error(error: Error) -> Status {
    match error {
        Error::Compacted { .. } => Status::expired("The resourceVersion for the provided list is too old."),
        Error::Future { asked, newest } => too_large(asked, newest),
        other => Status::internal(other),
    }
}

fn too_large(asked: Revision, current: Revision) -> Status {
    Status::timeout(format!("Too large resource version: {asked}, current: {current}"), 1).cause(
        "ResourceVersionTooLarge",
        "Too large resource version",
        "",
    )
}

impl Api {
    /// One object.
    pub async fn get(&self, context: &Context, resource: &Resource) -> Result<Arc<Object>, Status> {
        if context.parameter("export").is_some_and(|text| !matches!(text.to_ascii_lowercase().as_str(), "" | "0" | "false")) {
            return Err(Status::bad_request("the export parameter, deprecated since v1.14, is no longer supported"));
        }
        if let Some(version) = context.parameter("resourceVersion").filter(|v| !v.is_empty()) {
            let revision = version.parse::<Revision>().map_err(|_| {
                Status::unclassified(format!(
                    "resourceVersion: Invalid value: {version:?}: strconv.ParseUint: parsing {version:?}: invalid syntax"
                ))
            })?;
            self.reach(revision).await?;
        } else {
            self.settle().await?;
        }
        let (namespace, name) = (&context.info.namespace, &context.info.name);
        let topic = self.state.topic(&resource.storage).await.map_err(store_error)?;
        let found = topic.get(&key(resource, namespace, name));
        let found = found.ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
        self.converted_one(found, resource).await
    }

    /// Waits until readers can see a revision.
    pub async fn reach(&self, revision: Revision) -> Result<(), Status> {
        if self.state.revision() >= revision || self.state.wait_for(revision, PATIENCE).await {
            return Ok(());
        }
        Err(too_large(revision, self.state.revision()))
    }

    /// Waits until readers can see everything that any replica has acknowledged; nothing to wait for on an embedded store.
    pub async fn settle(&self) -> Result<(), Status> {
        let newest = self.state.store().revision().await.map_err(store_error)?;
        self.reach(newest).await
    }

    /// The objects of a list: which, at which revision, and where the next page begins.
    pub async fn list(&self, context: &Context, resource: &Resource, options: &ListOptions) -> Result<(Snapshot, Option<String>), Status> {
        let topic = self.state.topic(&resource.storage).await.map_err(store_error)?;
        let filter = self.filter(context, resource, options);
        // Without a limit that counts (there is none at resourceVersion=0), memory has the whole answer.
        let limit = if options.version == VersionMatch::Any { 0 } else { options.limit };
        let at = if !options.continues.is_empty() {
            let (revision, after) = decode_continue(&options.continues, &filter.prefix)?;
            if !matches!(options.version, VersionMatch::Unset | VersionMatch::Any) {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            Some((revision, Some(after)))
        } else {
            match options.version {
                VersionMatch::Exact(revision) => {
                    self.reach(revision).await?;
                    Some((Some(revision), None))
                }
                VersionMatch::NotOlderThan(revision) => {
                    self.reach(revision).await?;
                    None
                }
                VersionMatch::Any => None,
                VersionMatch::Unset => {
                    self.settle().await?;
                    None
                }
            }
        };
        let mut snapshot = match at {
            Some((Some(revision), after)) => self.list_past(&filter, revision, after, limit).await?,
            Some((None, after)) => topic.list(&filter.prefix, after.as_deref(), limit, self.state.revision(), |o| filter.selects(o)),
            None => topic.list(&filter.prefix, None, limit, self.state.revision(), |o| filter.selects(o)),
        };
        snapshot.objects = self.converted(snapshot.objects, resource, true).await?;
        let next = (snapshot.remaining > 0).then(|| {
            let last = snapshot.objects.last().map_or("", |o| &*o.key);
            encode_continue(Some(snapshot.revision), &filter.prefix, last)
        });
        Ok((snapshot, next))
    }

    /// What a list or watch selects.
    pub fn filter(&self, context: &Context, resource: &Resource, options: &ListOptions) -> Filter {
        let mut fields = options.fields.clone();
        // `GET …/name?watch=1` is a watch of one object.
        if !context.info.name.is_empty() && fields.requires("metadata.name").is_none() {
            let name = crate::object::selector::FieldTerm { field: "metadata.name".into(), value: context.info.name.clone(), equal: true };
            fields.0.push(name);
        }
        Filter { prefix: key(resource, &context.info.namespace, ""), labels: options.labels.clone(), fields }
    }

    async fn list_past(&self, filter: &Filter, revision: Revision, after: Option<String>, limit: usize) -> Result<Snapshot, Status> {
        let expired = |after: &Option<String>| match after {
            None => Status::expired("The resourceVersion for the provided list is too old."),
            Some(last) => {
                let token = encode_continue(None, &filter.prefix, last);
                let text = "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
                            the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
                            Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
                            deleted between the time the first chunk was returned and now may show up in the list.";
                let mut status = Status::expired(text);
                status.details = None;
                status.with_continue(token)
            }
        };
        if revision < self.state.window_floor() {
            return Err(expired(&after));
        }
        let mut snapshot = Snapshot { objects: Vec::new(), revision, remaining: 0 };
        let mut from = after.clone();
        loop {
            let range = Range { prefix: filter.prefix.clone(), after: from.clone(), limit };
            let page = match self.state.store().range(range, At::Revision(revision)).await {
                Err(Error::Compacted { .. }) => return Err(expired(&after)),
                other => other.map_err(store_error)?,
            };
            snapshot.remaining = page.remaining;
            for entry in page.entries {
                from = Some(entry.key.to_string());
                let object = Arc::new(Object::new(entry.key, entry.revision, &entry.value));
                if filter.selects(&object) {
                    snapshot.objects.push(object);
                    if limit != 0 && snapshot.objects.len() == limit {
                        // What else came with this page counts as not yet told.
                        return Ok(self.recount(snapshot, filter, revision).await);
                    }
                }
            }
            if page.remaining == 0 {
                return Ok(snapshot);
            }
        }
    }

    async fn recount(&self, mut snapshot: Snapshot, filter: &Filter, revision: Revision) -> Snapshot {
        let after = snapshot.objects.last().map(|o| o.key.to_string());
        let range = Range { prefix: filter.prefix.clone(), after, limit: 1 };
        if let Ok(page) = self.state.store().range(range, At::Revision(revision)).await {
            snapshot.remaining = page.remaining + page.entries.len();
        }
        snapshot
    }
}

fn encode_continue(revision: Option<Revision>, prefix: &str, last: &str) -> String {
    let start = last.strip_prefix(prefix.trim_end_matches('/')).unwrap_or(last);
    // As in Kubernetes, -1 stands for "whatever there is by then". The key is told as the first one that comes after.
    let token = json!({"v": "meta.k8s.io/v1", "rv": revision.map_or(json!(-1), |r| json!(r)), "start": format!("{start}\u{0}")});
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token.to_string())
}

fn decode_continue(token: &str, prefix: &str) -> Result<(Option<Revision>, String), Status> {
    let bad = |why: &str| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(token.trim_end_matches('='))
        .map_err(|e| bad(&format!("illegal base64 data at input byte {}", base64_position(&e))))?;
    let parsed: Value = serde_json::from_slice(&bytes).map_err(|_| {
        let first = String::from_utf8_lossy(&bytes).chars().next().unwrap_or('\u{0}');
        bad(&format!("invalid character {first:?} looking for beginning of value"))
    })?;
    if !parsed.is_object() && !parsed.is_null() {
        let word = match parsed {
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Bool(_) => "bool",
            _ => "number",
        };
        return Err(bad(&format!("json: cannot unmarshal {word} into Go value of type storage.continueToken")));
    }
    if parsed["rv"].is_string() {
        return Err(bad("json: cannot unmarshal string into Go struct field continueToken.rv of type int64"));
    }
    if parsed["v"] != "meta.k8s.io/v1" {
        return Err(bad(&format!("server does not recognize this encoded version {}", parsed["v"].as_str().unwrap_or_default())));
    }
    let start = parsed["start"].as_str().unwrap_or_default();
    if start.is_empty() {
        return Err(bad("encoded start key empty (version meta.k8s.io/v1)"));
    }
    // Nobody may climb out of what is listed.
    let below = start.strip_prefix('/').unwrap_or(start);
    if below.is_empty() || below.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Err(bad(start));
    }
    let revision = match parsed["rv"].as_i64() {
        Some(revision) if revision > 0 => Some(revision as Revision),
        Some(revision) if revision < 0 => None,
        _ => return Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")),
    };
    Ok((revision, format!("{prefix}{}", below.trim_end_matches('\u{0}'))))
}

fn base64_position(error: &base64::DecodeError) -> usize {
    match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(at) => at.saturating_sub(1),
        base64::DecodeError::InvalidPadding => 0,
    }
}
