//! `/usher/v1/trace/KIND/NAME`: what followed from the last write of an object, until it was ready. Starts from the requests that
//! wrote the object and goes on to the objects that it owns, and theirs; what the user may not `get` is left out.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, Request, header};
use jiff::Timestamp;
use serde_json::Value;

use super::explain::about;
use super::records;
use super::subject::{Question, Subject};
use crate::api::representation::{Representation, respond_value};
use crate::audit::story::sequence::{Deed, Frame, Sequence, sequence};
use crate::audit::story::{Lane, draw, mermaid, ready, svg};
use crate::audit::{Event, Filter};
use crate::gateway::Gateway;
use crate::gateway::layers::Refused;
use crate::object::Object;
use crate::request::Wrote;
use crate::status::Status;
use crate::store::Change;

/// How many requests are looked through for one object, and for those it owns.
const MOST: usize = 20_000;

/// How many objects of one kind and owner are told unless more are asked for, and at most.
const ALIKE: (usize, usize) = (3, 100);

/// How many objects a story has at most.
const OBJECTS: usize = 500;

/// Answers.
pub async fn serve(gateway: &Arc<Gateway>, request: Request<Body>) -> Result<Response, Refused> {
    let question = Question::of(&request, "/usher/v1/trace/", &["namespace", "all", "alike", "format"])?;
    let subject = question.object(gateway).await?;
    let told = tell(gateway, &question, &subject).await?;
    let (kind, text) = match question.parameter("format").as_deref() {
        None | Some("json") => {
            let answer = serde_json::to_value(&told).map_err(Status::internal)?;
            return Ok(respond_value(200, &answer, Representation::JSON)?);
        }
        Some("text") => ("text/plain; charset=utf-8", draw::draw(&told, None)),
        Some("mermaid") => ("text/plain; charset=utf-8", mermaid::mermaid(&told)),
        Some("svg") => ("image/svg+xml", svg::svg(&told)),
        Some(other) => return Err(Status::bad_request(format!("format takes json, text, mermaid or svg, not {other:?}")).into()),
    };
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

async fn tell(gateway: &Arc<Gateway>, question: &Question, subject: &Subject) -> Result<Sequence, Refused> {
    let alike = question.number("alike", ALIKE.0, ALIKE.1)?;
    let changes = match subject.history(gateway).await {
        Ok(changes) => changes,
        // What was never let in has no past but that.
        Err(unknown) => {
            let deeds = refused(gateway, subject, None).await;
            let last = if question.flag("all") { 0 } else { deeds.len().saturating_sub(1) };
            if deeds.is_empty() {
                return Err(unknown);
            }
            let frame = Frame { subject: subject.display(), whole: true, ..Frame::default() };
            return Ok(sequence(deeds.into_iter().skip(last).collect(), frame));
        }
    };
    let newest = changes.last().map(|change| subject.value(change)).unwrap_or_default();
    let uid = newest["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let mut deeds = of_object(gateway, subject, &uid, &changes).await;
    if let Some(change) =
        changes.last().filter(|change| change.deleted && deeds.iter().all(|deed| deed.revision() != Some(change.revision)))
    {
        deeds.extend(with_many(gateway, subject, &uid, change).await);
    }
    let begin = if question.flag("all") { deeds.first() } else { deeds.iter().rev().find(|deed| is_apply(deed)).or(deeds.first()) };
    let begin = begin.map(|deed| (deed.event.request_received_timestamp.unwrap_or_default(), deed.revision().unwrap_or(0)));
    let Some((since, first)) = begin else {
        return Err(Status::new(404, "NotFound", format!("no write of {} is recorded", subject.display())).into());
    };
    let whole = question.flag("all");
    let (owned, left_out) = descendants(gateway, question, &uid, since, alike).await;
    let ready = match by_what_it_owns(&newest, &owned, first) {
        Some(ready) => ready,
        None => {
            let states = changes.iter().filter(|change| change.revision >= first && !change.deleted);
            when_ready(states.map(|change| (change.revision, ready::is_ready(&subject.value(change)))), whole)
        }
    };
    deeds.extend(owned);
    // What was written before the story began may still have made somebody act in it.
    let mut known: HashMap<u64, (String, &'static str)> =
        deeds.iter().filter_map(|deed| Some((deed.revision()?, (deed.object(), deed.watch_event())))).collect();
    deeds.retain(|deed| deed.event.request_received_timestamp.unwrap_or_default() >= since);
    let (tried, more) = refusals(gateway, question, subject, since, &deeds, alike).await;
    deeds.extend(tried);
    deeds.extend(refused(gateway, subject, Some(since)).await);
    causes(gateway, question, &deeds, &mut known).await;
    let deleted = changes.last().is_some_and(|change| change.deleted);
    let (standing, left_out) = (ready::standing(&newest), left_out + more);
    Ok(sequence(deeds, Frame { subject: subject.display(), ready, whole, deleted, standing, left_out, known }))
}

/// The revision at which an object became ready: the first one, or of the whole story the one since which it is.
fn when_ready(states: impl Iterator<Item = (u64, bool)>, whole: bool) -> Option<u64> {
    let mut since = None;
    for (revision, is_ready) in states {
        match (is_ready, since) {
            (true, None) => since = Some(revision),
            (false, Some(_)) if whole => since = None,
            _ => {}
        }
    }
    since
}

/// Readiness that an object's own status does not tell: that of a Service is in its EndpointSlices, and what comes of a CronJob is a
/// Job that completes. `None` where nothing of the kind followed.
fn by_what_it_owns(object: &Value, owned: &[Deed], first: u64) -> Option<Option<u64>> {
    let (kind, is_there): (_, fn(&Value) -> bool) = match object["kind"].as_str() {
        Some("Service") => ("EndpointSlice", |slice| {
            let endpoints = slice["endpoints"].as_array().into_iter().flatten();
            endpoints.into_iter().any(|endpoint| endpoint["conditions"]["ready"] != false)
        }),
        Some("CronJob") => ("Job", ready::is_ready),
        _ => return None,
    };
    let written = owned.iter().filter_map(|deed| Some((deed.revision()?, deed.after.as_ref()?)));
    let mut theirs = written.filter(|(revision, after)| *revision >= first && after["kind"] == kind).peekable();
    theirs.peek()?;
    Some(theirs.filter(|(_, after)| is_there(after)).map(|(revision, _)| revision).min())
}

/// What the revisions wrote that made somebody act and are no part of the story; as far as the store has them and the user may know.
async fn causes(gateway: &Gateway, question: &Question, deeds: &[Deed], known: &mut HashMap<u64, (String, &'static str)>) {
    let missing = deeds.iter().filter_map(|deed| deed.event.trace.as_ref()?.cause).filter(|cause| !known.contains_key(cause));
    let missing: HashSet<u64> = missing.collect();
    for revision in missing.into_iter().take(OBJECTS) {
        let Ok(log) = gateway.api.state.store().log("/registry/", revision.saturating_sub(1), revision).await else { continue };
        let Some((change, before)) = log.into_iter().next() else { continue };
        let object = Object::new(change.key.clone(), change.revision, &change.value).to_value();
        let (group, version) = object["apiVersion"].as_str().and_then(|text| text.split_once('/')).unwrap_or(("", "v1"));
        let kind = object["kind"].as_str().unwrap_or_default();
        let word = format!("{kind}.{version}.{group}");
        let Some(resource) = gateway.api.registry.table().resolve(word.trim_end_matches('.')) else { continue };
        let name = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (name("namespace"), name("name"));
        let subject = Subject { resource, namespace, name: name.clone() };
        if question.may(gateway, "get", &subject.reference()).await.is_ok() {
            let event = match (change.deleted, before.is_none()) {
                (true, _) => "DELETED",
                (false, true) => "ADDED",
                (false, false) => "MODIFIED",
            };
            known.insert(revision, (format!("{kind} {name}"), event));
        }
    }
}

/// Whether a request is what somebody from outside wanted of the object; a report is none, nor is the end of a deletion.
fn is_apply(deed: &Deed) -> bool {
    let subresource = deed.event.object_ref.as_ref().map(|object| object.subresource.as_str()).unwrap_or_default();
    Lane::of(&deed.event.effective_user().username) == Lane::Client && !matches!(subresource, "status" | "binding" | "finalize")
}

/// The request that removed an object together with others, told as what it did to this one: its record names the first of them.
async fn with_many(gateway: &Gateway, subject: &Subject, uid: &str, change: &Change) -> Option<Deed> {
    let mut event = records::one(gateway, change.audit_id.as_deref()?).await?;
    let wrote = Wrote {
        revision: change.revision,
        kind: subject.resource.kind.to_string(),
        name: subject.name.clone(),
        uid: uid.to_owned(),
        deleted: true,
        ..Wrote::default()
    };
    Arc::make_mut(&mut event).trace.get_or_insert_default().wrote = Some(wrote);
    Some(Deed { event, after: None, before: None })
}

/// The requests that wrote one object, with its states around them.
async fn of_object(gateway: &Gateway, subject: &Subject, uid: &str, changes: &[Change]) -> Vec<Deed> {
    let filter = Filter { uid: Some(uid.to_owned()), ..Filter::default() };
    with_states(subject, changes, records::ask(gateway, filter, MOST).await)
}

fn with_states(subject: &Subject, changes: &[Change], events: Vec<Arc<Event>>) -> Vec<Deed> {
    let mut states: HashMap<u64, (Arc<Value>, Option<Arc<Value>>)> = HashMap::new();
    let mut before: Option<Arc<Value>> = None;
    for change in changes {
        let value = Arc::new(subject.value(change));
        states.insert(change.revision, (value.clone(), before.take()));
        before = (!change.deleted).then_some(value);
    }
    let deeds = events.into_iter().map(|event| {
        let mut deed = Deed { event, after: None, before: None };
        if let Some((after, before)) = deed.revision().and_then(|revision| states.get(&revision)) {
            (deed.after, deed.before) = (Some(after.clone()), before.clone());
        }
        deed
    });
    deeds.collect()
}

/// The requests that wrote what an object owns, and what that owns; and how many about objects alike are left out.
async fn descendants(gateway: &Gateway, question: &Question, uid: &str, since: Timestamp, alike: usize) -> (Vec<Deed>, usize) {
    let mut waiting = VecDeque::from([uid.to_owned()]);
    let mut seen: HashSet<String> = waiting.iter().cloned().collect();
    let (mut deeds, mut left_out) = (Vec::new(), 0);
    while let Some(owner) = waiting.pop_front() {
        let filter = Filter { owner: Some(owner), since: Some(since), ..Filter::default() };
        let mut owned: Vec<(String, Vec<Arc<Event>>)> = Vec::new();
        for event in records::ask(gateway, filter, MOST).await {
            let uid = event.trace.as_ref().and_then(|story| story.wrote.as_ref()).map(|wrote| wrote.uid.clone()).unwrap_or_default();
            match owned.iter_mut().find(|(known, _)| *known == uid) {
                Some((_, events)) => events.push(event),
                None => owned.push((uid, vec![event])),
            }
        }
        let mut kinds: HashMap<String, usize> = HashMap::new();
        for (uid, events) in owned {
            let Some((object, _)) = events.first().and_then(|event| about(event)) else { continue };
            if seen.len() >= OBJECTS || !seen.insert(uid.clone()) || question.may(gateway, "get", &object).await.is_err() {
                continue;
            }
            let Some(subject) = Subject::of(gateway, &object) else { continue };
            let told = kinds.entry(subject.resource.qualified()).or_default();
            *told += 1;
            if *told > alike {
                left_out += events.len();
                continue;
            }
            // What is compacted away is told without its states.
            let changes = subject.history(gateway).await.unwrap_or_default();
            deeds.extend(with_states(&subject, &changes, events));
            waiting.push_back(uid);
        }
    }
    (deeds, left_out)
}

/// What clients wanted of an object and were refused, oldest first.
async fn refused(gateway: &Gateway, subject: &Subject, since: Option<Timestamp>) -> Vec<Deed> {
    let (namespace, name) = (records::namespace(subject), Some(subject.name.clone()));
    let filter = Filter { code: Some((400, 599)), since, namespace, name, ..Filter::default() };
    let is_theirs = |event: &Arc<Event>| {
        let object = event.object_ref.as_ref();
        let same = object.is_some_and(|object| object.resource == *subject.resource.plural && object.api_group == *subject.resource.group);
        let is_write = matches!(&*event.verb, "create" | "update" | "patch" | "delete");
        same && is_write && event.code() != 404 && Lane::of(&event.effective_user().username) == Lane::Client
    };
    let events = records::ask(gateway, filter, MOST).await.into_iter().filter(is_theirs);
    events.map(|event| Deed { event, after: None, before: None }).collect()
}

/// What components tried because of these writes, and were refused; and how many attempts alike are left out: one that cannot be
/// tries again and again.
async fn refusals(
    gateway: &Gateway,
    question: &Question,
    subject: &Subject,
    since: Timestamp,
    deeds: &[Deed],
    alike: usize,
) -> (Vec<Deed>, usize) {
    let revisions: HashSet<u64> = deeds.iter().filter_map(Deed::revision).collect();
    let filter = Filter { code: Some((400, 599)), since: Some(since), namespace: records::namespace(subject), ..Filter::default() };
    let (mut found, mut left_out) = (Vec::new(), 0);
    let mut attempts: HashMap<_, usize> = HashMap::new();
    for event in records::ask(gateway, filter, MOST).await {
        let cause = event.trace.as_ref().and_then(|story| story.cause);
        let is_write = matches!(&*event.verb, "create" | "update" | "patch" | "delete");
        if !is_write || event.code() == 409 || cause.is_none_or(|cause| !revisions.contains(&cause)) {
            continue;
        }
        let Some((object, _)) = about(&event) else { continue };
        if question.may(gateway, "get", &object).await.is_err() {
            continue;
        }
        let attempt = (event.effective_user().username.clone(), event.verb.to_string(), event.resource(), object.name, event.code());
        let told = attempts.entry(attempt).or_default();
        *told += 1;
        match *told > alike {
            true => left_out += 1,
            false => found.push(Deed { event, after: None, before: None }),
        }
    }
    (found, left_out)
}
