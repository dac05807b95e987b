//! Asking the archive: what was recorded of a request, or of the requests about an object. The archive reads files, so the asking
//! happens where blocking harms nobody.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::audit::expression::Expression;
use crate::audit::{Event, Filter, Json};
use crate::gateway::Gateway;
use crate::gateway::layers::Refused;
use crate::object::canonical;
use crate::status::Status;
use crate::store::Change;

use super::subject::Subject;

/// How many requests about one object are looked through.
const MOST: usize = 20_000;

/// The events that a filter asks for, everything that has been answered included.
pub async fn ask(gateway: &Gateway, filter: Filter, limit: usize) -> Vec<Arc<Event>> {
    gateway.audit.flush().await;
    let archive = gateway.audit.archive.clone();
    let asked = tokio::task::spawn_blocking(move || archive.query(&filter, limit)).await;
    asked.unwrap_or_default()
}

/// The requests by their Audit-ID; where a request left several events, the last one.
pub async fn by_audit_id(gateway: &Gateway, subject: &Subject, wanted: &[Arc<str>]) -> HashMap<String, Arc<Event>> {
    let filter = Filter { namespace: namespace(subject), name: Some(subject.name.clone()), ..Filter::default() };
    let mut found: HashMap<String, Arc<Event>> = HashMap::new();
    for event in ask(gateway, filter, MOST).await {
        found.insert(event.audit_id.clone(), event);
    }
    // A write may come with a request about something else: a collection that was deleted, a Binding, a namespace that ends.
    for id in wanted.iter().filter(|id| !found.contains_key(&***id)).cloned().collect::<Vec<_>>() {
        if let Some(event) = one(gateway, &id).await {
            found.insert(id.to_string(), event);
        }
    }
    found
}

/// The last event of a request.
pub async fn one(gateway: &Gateway, audit_id: &str) -> Option<Arc<Event>> {
    let filter = Filter { audit_id: Some(audit_id.to_owned()), ..Filter::default() };
    ask(gateway, filter, 4).await.pop()
}

/// The states of an object that answers of recorded writes tell, oldest first: what there is to say of an object that only an
/// imported log knows. One of level Metadata has no answers.
pub async fn states(gateway: &Gateway, subject: &Subject) -> Vec<Change> {
    let filter = Filter { namespace: namespace(subject), name: Some(subject.name.clone()), code: Some((200, 299)), ..Filter::default() };
    let mut events = ask(gateway, filter, MOST).await;
    events.sort_by_key(|event| event.request_received_timestamp);
    let mut states: Vec<Change> = Vec::new();
    let mut known: HashSet<(u64, String)> = HashSet::new();
    for event in events {
        let object = event.object_ref.as_ref();
        let same = object.is_some_and(|object| object.resource == *subject.resource.plural && object.api_group == *subject.resource.group);
        let Some(wrote) = event.trace.as_ref().and_then(|story| story.wrote.as_ref()).filter(|_| same) else { continue };
        let answer = event.response_object.as_ref().and_then(Json::value).filter(|answer| answer["kind"] == *subject.resource.kind);
        // A log that was imported twice tells everything twice.
        if !known.insert((wrote.revision, event.audit_id.clone())) {
            continue;
        }
        // Of what is deleted at once the answer has no state; it was as it was before.
        let value = match (answer, states.last()) {
            (Some(answer), _) => canonical(&answer),
            (None, Some(last)) if wrote.deleted => last.value.clone(),
            _ => continue,
        };
        states.push(Change {
            revision: wrote.revision,
            key: subject.key().into(),
            value,
            deleted: wrote.deleted,
            time: event.stage_timestamp.unwrap_or_default().as_microsecond(),
            audit_id: Some(event.audit_id.as_str().into()),
        });
    }
    states
}

/// The shortest beginning of an Audit-ID that is looked for.
const SHORTEST: usize = 6;

/// The last event of the request whose Audit-ID begins like this, as `git` takes the beginning of a hash.
pub async fn beginning_with(gateway: &Gateway, beginning: &str) -> Result<Option<Arc<Event>>, Refused> {
    let is_plain = beginning.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if beginning.len() < SHORTEST || !is_plain {
        return Ok(None);
    }
    let expression = Expression::compile(&format!("event.auditID.startsWith('{beginning}')")).map_err(Status::internal)?;
    let mut found = ask(gateway, Filter { expression: Some(expression), ..Filter::default() }, 4).await;
    let last = found.pop();
    match last.as_ref().is_some_and(|last| found.iter().any(|other| other.audit_id != last.audit_id)) {
        true => Err(Status::bad_request(format!("several requests have an Audit-ID that begins with {beginning}")).into()),
        false => Ok(last),
    }
}

/// The namespace that events about an object carry: a Namespace's own are in itself.
pub fn namespace(subject: &Subject) -> Option<String> {
    match (&*subject.resource.plural, subject.resource.namespaced) {
        (_, true) => Some(subject.namespace.clone()),
        _ => None,
    }
}
