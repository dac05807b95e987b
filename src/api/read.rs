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
            let revision = parse_revision(&version).map_err(Status::unclassified)?;
            self.reach(revision).await.map_err(|status| uncached(resource, status))?;
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
        let limit = if options.version == VersionMatch::Any && is_cached(resource) { 0 } else { options.limit };
        let at = if !options.continues.is_empty() {
            let (revision, after) = decode_continue(&options.continues, &filter.prefix)?;
            if !matches!(options.version, VersionMatch::Unset | VersionMatch::Any) {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            Some((revision, Some(after)))
        } else {
            match options.version {
                VersionMatch::Exact(revision) => {
                    self.reach(revision).await.map_err(|status| uncached(resource, status))?;
                    Some((Some(revision), None))
                }
                VersionMatch::NotOlderThan(revision) => {
                    self.reach(revision).await.map_err(|status| uncached(resource, status))?;
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
            Some((Some(revision), after)) => {
                let past = self.list_past(&filter, revision, after, limit).await;
                past.map_err(|status| uncached(resource, status))?
            }
            Some((None, after)) => topic.list(&filter.prefix, after.as_deref(), limit, self.state.revision(), |o| filter.selects(o)),
            None => topic.list(&filter.prefix, None, limit, self.state.revision(), |o| filter.selects(o)),
        };
        snapshot.objects = self.converted(snapshot.objects, resource, true).await?;
        let next = (snapshot.remaining > 0).then(|| {
            let last = snapshot.objects.last().map_or("", |o| &*o.key);
            let start = continue_start(&filter.prefix, last);
            encode_continue(Some(snapshot.revision), if is_cached(resource) { start } else { start.trim_start_matches('/') })
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
                let token = encode_continue(None, continue_start(&filter.prefix, last).trim_start_matches('/'));
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

/// A resourceVersion as a number, or what is wrong with it in a real server's words.
pub(super) fn parse_revision(text: &str) -> Result<Revision, String> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let why = if is_number { "value out of range" } else { "invalid syntax" };
    let parsed = text.parse::<Revision>().ok().filter(|_| is_number);
    parsed.ok_or_else(|| format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {why}"))
}

/// Whether a real server answers for this resource out of its watch cache. For Events it asks etcd each time, and clients can tell: a limit
/// counts at resourceVersion=0 too, and who asks for a revision that is still to come is not told when to ask again.
pub(super) fn is_cached(resource: &Resource) -> bool {
    &*resource.storage != "events"
}

fn uncached(resource: &Resource, mut status: Status) -> Status {
    if let (false, Some(details)) = (is_cached(resource), &mut status.details) {
        details.retry_after_seconds = 0;
    }
    status
}

/// What a token says of the last key that was told: what follows the prefix, with the slash before it.
fn continue_start<'a>(prefix: &str, last: &'a str) -> &'a str {
    last.strip_prefix(prefix.trim_end_matches('/')).unwrap_or(last)
}

fn encode_continue(revision: Option<Revision>, start: &str) -> String {
    // As in Kubernetes, -1 stands for "whatever there is by then". The key is told as the first one that comes after.
    let revision = revision.map_or("-1".to_owned(), |revision| revision.to_string());
    let token = format!(r#"{{"v":"meta.k8s.io/v1","rv":{revision},"start":{}}}"#, json!(format!("{start}\u{0}")));
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token)
}

fn decode_continue(token: &str, prefix: &str) -> Result<(Option<Revision>, String), Status> {
    let bad = |why: &str| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(token.trim_end_matches('='))
        .map_err(|e| bad(&format!("illegal base64 data at input byte {}", base64_position(&e))))?;
    let parsed: Value = serde_json::from_slice(&bytes).map_err(|error| {
        if error.is_eof() {
            return bad("unexpected end of JSON input");
        }
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
    for (field, kind) in [("v", "string"), ("rv", "int64"), ("start", "string")] {
        let word = match &parsed[field] {
            Value::Null => continue,
            Value::String(_) if kind == "string" => continue,
            Value::Number(number) if kind == "int64" && number.is_i64() => continue,
            Value::Number(number) if kind == "int64" => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        return Err(bad(&format!("json: cannot unmarshal {word} into Go struct field continueToken.{field} of type {kind}")));
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
