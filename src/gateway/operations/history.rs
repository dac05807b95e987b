//! `/usher/v1/history/KIND/NAME`: every kept revision of an object with what it changed and who changed it, and
//! `/usher/v1/objects/KIND[/NAME]?at=`: objects as they were.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::records;
use super::subject::{Question, Subject};
use crate::api::apply::manager_name;
use crate::api::convert;
use crate::api::read::{key, store_error};
use crate::api::representation::{Representation, respond_value};
use crate::audit::Event;
use crate::audit::filter::moment;
use crate::audit::story::fields::{Difference, diff, redact_secret, redact_within};
use crate::audit::story::ownership::owners;
use crate::gateway::Gateway;
use crate::gateway::layers::Refused;
use crate::object::Object;
use crate::request::query_value;
use crate::status::Status;
use crate::store::{At, Change, Error, Range, Revision};

/// How many revisions are told unless more are asked for, and at most.
const REVISIONS: (usize, usize) = (100, 10_000);

/// How many objects of the past are listed at once.
const OBJECTS: usize = 10_000;

/// One kept revision.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Kept {
    /// Its number.
    pub revision: u64,
    /// When.
    pub time: Option<Timestamp>,
    /// `created`, `updated` or `deleted`; `kept` where what was before it is not known any more.
    pub operation: String,
    /// In which request.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// Who; empty where the request is not kept any more.
    pub user: String,
    /// The request's verb and, behind a slash, its subresource.
    pub verb: String,
    /// The client's name for itself.
    pub user_agent: String,
    /// The field manager that wrote.
    pub manager: String,
    /// What changed.
    pub changes: Vec<Difference>,
}

/// The history of an object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// What it is about.
    pub subject: String,
    /// How many older ones are kept and not told.
    #[serde(rename = "leftOut", skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// The revisions, oldest first.
    pub revisions: Vec<Kept>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Answers `/usher/v1/history/…`.
pub async fn history(gateway: &Arc<Gateway>, request: Request<Body>) -> Result<Response, Refused> {
    let question = Question::of(&request, "/usher/v1/history/", &["namespace", "limit", "showSecrets"])?;
    let subject = question.object(gateway).await?;
    let limit = question.number("limit", REVISIONS.0, REVISIONS.1)?;
    let changes = subject.history(gateway).await?;
    let ids: Vec<Arc<str>> = changes.iter().filter_map(|change| change.audit_id.clone()).collect();
    let events = records::by_audit_id(gateway, &subject, &ids[ids.len().saturating_sub(limit)..]).await;
    let schema = subject.resource.schema();
    let hide = !question.flag("showSecrets");
    let shown = |change: &Change| {
        let mut value = subject.value(change);
        match subject.is_secret() {
            _ if !hide => {}
            true => redact_secret(&mut value),
            false => redact_within(&mut value),
        }
        value
    };
    let first = changes.len().saturating_sub(limit);
    let mut before = first.checked_sub(1).map(|at| (shown(&changes[at]), changes[at].deleted));
    let mut revisions = Vec::new();
    for change in &changes[first..] {
        let value = shown(change);
        let event = change.audit_id.as_deref().and_then(|id| events.get(id));
        let is_new = before.as_ref().is_none_or(|(_, deleted)| *deleted);
        let created = event.is_some_and(|event| event.verb == "create" || event.code() == 201) || before.is_some();
        let operation = match (change.deleted, is_new, created) {
            (true, ..) => "deleted",
            (_, true, true) => "created",
            (_, true, false) => "kept",
            _ => "updated",
        };
        let changed = match &before {
            Some((before, false)) => diff(before, &value, &schema),
            _ => diff(&json!({}), &value, &schema),
        };
        let subresource = event.and_then(|event| event.object_ref.as_ref()).map(|object| object.subresource.clone()).unwrap_or_default();
        let verb = event.map(|event| event.verb.to_string()).unwrap_or_default();
        revisions.push(Kept {
            revision: change.revision,
            time: Timestamp::from_microsecond(change.time).ok(),
            operation: operation.to_owned(),
            audit_id: change.audit_id.as_deref().unwrap_or_default().to_owned(),
            user: event.map(|event| event.effective_user().username.clone()).unwrap_or_default(),
            verb: if subresource.is_empty() { verb } else { format!("{verb}/{subresource}") },
            user_agent: event.map(|event| event.user_agent.clone()).unwrap_or_default(),
            manager: manager(&value, before.as_ref().map(|(before, _)| before), event.map(AsRef::as_ref).filter(|_| !change.deleted)),
            changes: changed,
        });
        before = Some((value, change.deleted));
    }
    let answer = History { subject: subject.display(), left_out: first, revisions };
    let answer = serde_json::to_value(answer).map_err(Status::internal)?;
    Ok(respond_value(200, &answer, Representation::JSON)?)
}

/// The manager whose entry is new or newer than in the state before. Entries have seconds: one that wrote twice in the same looks as it
/// did before, and is known by what the request called itself.
fn manager(now: &Value, before: Option<&Value>, event: Option<&Event>) -> String {
    let known = before.map(|before| owners(before, &[])).unwrap_or_default();
    let owners = owners(now, &[]);
    let mut new: Vec<&str> = owners.iter().filter(|owner| !known.contains(owner)).map(|owner| owner.manager.as_str()).collect();
    if let (true, Some(event)) = (new.is_empty(), event) {
        let query = event.request_uri.split_once('?').map_or("", |(_, query)| query);
        let named = manager_name(&query_value(query, "fieldManager").unwrap_or_default(), &event.user_agent);
        new.extend(owners.iter().map(|owner| owner.manager.as_str()).find(|manager| *manager == named));
    }
    new.join(", ")
}

/// Answers `/usher/v1/objects/…`.
pub async fn objects(gateway: &Arc<Gateway>, request: Request<Body>) -> Result<Response, Refused> {
    let question = Question::of(&request, "/usher/v1/objects/", &["namespace", "allNamespaces", "at", "limit", "continue"])?;
    let subject = question.subject(gateway)?;
    question.check(gateway, if subject.name.is_empty() { "list" } else { "get" }, &subject).await?;
    let moment =
        question.parameter("at").map(|text| Moment::parse(&text, gateway.api.clock.now())).transpose().map_err(Status::bad_request)?;
    let store = gateway.api.state.store();
    let at = match moment {
        None => At::Newest,
        Some(Moment::Revision(revision)) => At::Revision(revision),
        Some(Moment::Time(time)) if time > gateway.api.clock.now() => {
            return Err(Status::bad_request(format!("at is a time to come: {time}")).into());
        }
        Some(Moment::Time(time)) => At::Revision(revision_at(gateway, &subject, time).await?),
    };
    let show = |entry: crate::store::Entry| {
        let value = Object::new(entry.key, entry.revision, &entry.value).to_value();
        if subject.resource.is_stored_otherwise() { convert::to_version(value, &subject.resource) } else { value }
    };
    if !subject.name.is_empty() {
        let found = store.get(&subject.key(), at).await.map_err(past)?;
        let found = found.ok_or_else(|| Status::not_found(&subject.resource.group, &subject.resource.plural, &subject.name))?;
        return Ok(respond_value(200, &show(found), Representation::JSON)?);
    }
    let prefix = key(&subject.resource, &subject.namespace, "");
    // The next page is one of the same revision, whatever has been written since.
    let (at, after) = match question.parameter("continue") {
        None => (at, None),
        Some(token) => {
            let bad = || Status::bad_request(format!("continue takes what the page before has in its metadata, not {token:?}"));
            let (revision, last) = token.split_once('/').ok_or_else(bad)?;
            (At::Revision(revision.parse().map_err(|_| bad())?), Some(format!("{prefix}{last}")))
        }
    };
    let limit = match question.number("limit", OBJECTS, OBJECTS)? {
        0 => OBJECTS,
        limit => limit,
    };
    let page = store.range(Range { prefix: prefix.clone(), after, limit }, at).await.map_err(past)?;
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if page.remaining > 0 {
        metadata["remainingItemCount"] = json!(page.remaining);
        let last = page.entries.last().and_then(|entry| entry.key.strip_prefix(&prefix)).unwrap_or_default();
        metadata["continue"] = json!(format!("{}/{last}", page.revision));
    }
    let items: Vec<Value> = page.entries.into_iter().map(show).collect();
    Ok(respond_value(200, &json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}), Representation::JSON)?)
}

fn past(error: Error) -> Status {
    match error {
        Error::Compacted { floor } => Status::expired(format!("nothing older than revision {floor} is kept")),
        // Nobody should try again until it has come to pass.
        Error::Future { newest, .. } => Status::bad_request(format!("there is no such revision yet, the newest is {newest}")),
        other => store_error(other),
    }
}

/// When, in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Revision(Revision),
    Time(Timestamp),
}

impl Moment {
    /// A revision, a time, or how long ago.
    fn parse(text: &str, now: Timestamp) -> Result<Self, String> {
        if let Ok(revision) = text.parse() {
            return Ok(Moment::Revision(revision));
        }
        moment(text, now)
            .map(Moment::Time)
            .ok_or_else(|| format!("at takes a revision, a time such as 2030-01-31T12:00:00Z, or how long ago such as 10m, not {text:?}"))
    }
}

/// The last revision that touched the subject before a time.
async fn revision_at(gateway: &Gateway, subject: &Subject, time: Timestamp) -> Result<Revision, Refused> {
    let store = gateway.api.state.store();
    let newest = store.revision().await.map_err(store_error)?;
    let changes = match subject.name.is_empty() {
        false => subject.history(gateway).await?,
        true => {
            let prefix = key(&subject.resource, &subject.namespace, "");
            let log = store.log(&prefix, store.floor(), newest).await.map_err(past)?;
            log.into_iter().map(|(change, _)| change).collect()
        }
    };
    let floor = store.floor();
    let last = changes.iter().rev().find(|change| change.time <= time.as_microsecond());
    Ok(match (last, changes.first()) {
        (Some(change), _) => change.revision.max(floor),
        // Nothing was there yet, as far as anybody remembers.
        (None, Some(first)) if first.revision > floor => first.revision - 1,
        (None, _) => floor,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_revision_a_time_or_how_long_ago() {
        let now: Timestamp = "2030-01-31T12:00:00Z".parse().expect("a time");
        let parse = |text: &str| Moment::parse(text, now);
        assert_eq!(parse("42"), Ok(Moment::Revision(42)));
        assert_eq!(parse("2030-01-01T00:00:00Z"), Ok(Moment::Time("2030-01-01T00:00:00Z".parse().expect("a time"))));
        assert_eq!(parse("1h30m"), Ok(Moment::Time("2030-01-31T10:30:00Z".parse().expect("a time"))));
        assert_eq!(parse("2d"), Ok(Moment::Time("2030-01-29T12:00:00Z".parse().expect("a time"))));
        assert_eq!(parse("2030-01-30"), Ok(Moment::Time("2030-01-30T00:00:00Z".parse().expect("a time"))));
        assert!(parse("yesterday").is_err() && parse("-5").is_err());
    }

    #[test]
    fn who_writes_twice_in_a_second_is_named_twice() {
        let owner = |manager: &str| json!({"manager": manager, "operation": "Update", "time": "2030-01-31T12:00:00Z", "fieldsV1": {}});
        let state =
            |managers: &[&str]| json!({"metadata": {"managedFields": managers.iter().map(|manager| owner(manager)).collect::<Vec<_>>()}});
        let request = |uri: &str| Event { request_uri: uri.into(), user_agent: "kubectl/v1.36.0".into(), ..Event::default() };
        let (both, edit) = (state(&["edit", "kubectl"]), state(&["edit"]));
        assert_eq!(manager(&both, Some(&edit), Some(&request("/x?fieldManager=edit"))), "kubectl", "the object says it");
        assert_eq!(manager(&both, Some(&both), Some(&request("/x?fieldManager=edit"))), "edit");
        assert_eq!(manager(&both, Some(&both), Some(&request("/x"))), "kubectl");
        assert_eq!(manager(&edit, Some(&edit), Some(&request("/x"))), "", "who owns nothing is not said to have written");
        assert_eq!(manager(&both, Some(&both), None), "");
    }
}
