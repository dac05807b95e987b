//! A record as it is kept: an event in as few bytes as it takes, its repeated parts by the number of their phrase, its objects as the
//! JSON that they are. [`encode`] writes one; a [`Row`] is one that is looked at where it lies, and gives the whole [`Event`] when that is
//! wanted. The format is in `docs/storage.md`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use super::coding::{Id, put, put_id, put_map, put_text, put_value, take, take_text, text, value};
use super::medium::Medium;
use super::phrases::{Lexicon, Phrases};
use super::repeats::{Body, Repeats};
use crate::audit::event::{AuthenticationMetadata, ObjectReference, ResponseStatus, UserInfo};
use crate::audit::{Event, Json, Level, Stage, Story};
use crate::request::{Step, Wrote};

/// What a record has, by bit.
const IMPERSONATED: u64 = 1;
const CONSTRAINED: u64 = 1 << 1;
const OBJECT: u64 = 1 << 2;
const STATUS: u64 = 1 << 3;
const RECEIVED: u64 = 1 << 4;
const REACHED: u64 = 1 << 5;
const REQUEST: u64 = 1 << 6;
const RESPONSE: u64 = 1 << 7;
const TRACE: u64 = 1 << 8;
const WROTE: u64 = 1 << 9;
const DELETED: u64 = 1 << 10;
const CAUSE: u64 = 1 << 11;
const REQUEST_LIKE: u64 = 1 << 12;
const RESPONSE_LIKE: u64 = 1 << 13;

const LEVELS: [Level; 4] = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];
const STAGES: [Stage; 4] = [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic];

/// The places of a record that remember their phrase; steps and annotations have those behind.
mod slot {
    pub const KIND: usize = 0;
    pub const VERB: usize = 1;
    pub const USER: usize = 2;
    pub const ACTING: usize = 3;
    pub const CONSTRAINT: usize = 4;
    pub const ADDRESSES: usize = 5;
    pub const AGENT: usize = 6;
    pub const OBJECT: usize = 7;
    pub const STATUS: usize = 8;
    pub const WROTE: usize = 9;
    pub const ANNOTATION: usize = 10;
    pub const STEP: usize = 16;
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    phrases: &'a mut Phrases,
    scratch: Vec<u8>,
}

impl Writer<'_> {
    /// A text that is likely to be said again.
    fn phrase(&mut self, slot: usize, text: &[u8]) {
        match self.phrases.code(slot, text) {
            Some(code) => put(self.out, u64::from(code) + 1),
            None => {
                self.out.push(0);
                put_text(self.out, text);
            }
        }
    }

    /// Several texts that are likely to be said together again.
    fn composed(&mut self, slot: usize, compose: impl FnOnce(&mut Vec<u8>)) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        compose(&mut scratch);
        self.phrase(slot, &scratch);
        self.scratch = scratch;
    }
}

/// Writes an event behind what is there, which begins at a place of the segment.
pub fn encode(event: &Event, phrases: &mut Phrases, repeats: &mut Repeats, start: u32, out: &mut Vec<u8>) {
    let uri = &event.request_uri;
    let bodies = [(REQUEST, &event.request_object), (RESPONSE, &event.response_object)]
        .map(|(part, object)| object.as_ref().map(|object| (part, object, repeats.find(part, uri, object.bytes()))));
    let is_like = |at: usize| bodies[at].as_ref().is_some_and(|(.., body)| !body.is_whole());
    let mut writer = Writer { out, phrases, scratch: Vec::with_capacity(256) };
    let mut flags = 0;
    let mut has = |there: bool, flag: u64| flags |= if there { flag } else { 0 };
    let wrote = event.trace.as_ref().and_then(|story| story.wrote.as_ref());
    let cause = event.trace.as_ref().and_then(|story| story.cause);
    has(event.impersonated_user.is_some(), IMPERSONATED);
    has(event.authentication_metadata.is_some(), CONSTRAINED);
    has(event.object_ref.is_some(), OBJECT);
    has(event.response_status.is_some(), STATUS);
    has(event.request_received_timestamp.is_some(), RECEIVED);
    has(event.stage_timestamp.is_some(), REACHED);
    has(event.request_object.is_some(), REQUEST);
    has(event.response_object.is_some(), RESPONSE);
    has(event.trace.is_some(), TRACE);
    has(wrote.is_some(), WROTE);
    has(wrote.is_some_and(|wrote| wrote.deleted), DELETED);
    has(cause.is_some(), CAUSE);
    has(is_like(0), REQUEST_LIKE);
    has(is_like(1), RESPONSE_LIKE);
    put(writer.out, flags);
    let stage = STAGES.iter().position(|stage| *stage == event.stage).unwrap_or_default();
    writer.out.push((event.level as u8) << 4 | stage as u8);
    put_id(writer.out, &event.audit_id);
    for time in [event.request_received_timestamp, event.stage_timestamp].into_iter().flatten() {
        writer.out.extend_from_slice(&time.as_microsecond().to_le_bytes());
    }
    put_text(writer.out, event.request_uri.as_bytes());
    writer.composed(slot::KIND, |out| put_texts(out, [&*event.kind, &*event.api_version]));
    writer.phrase(slot::VERB, event.verb.as_bytes());
    writer.composed(slot::USER, |out| put_user(out, &event.user));
    if let Some(user) = &event.impersonated_user {
        writer.composed(slot::ACTING, |out| put_user(out, user));
    }
    if let Some(metadata) = &event.authentication_metadata {
        writer.phrase(slot::CONSTRAINT, metadata.impersonation_constraint.as_bytes());
    }
    writer.composed(slot::ADDRESSES, |out| put_texts(out, event.source_ips.iter().map(String::as_str)));
    writer.phrase(slot::AGENT, event.user_agent.as_bytes());
    if let Some(object) = &event.object_ref {
        let place = [&object.resource, &object.namespace, &object.api_group, &object.api_version, &object.subresource];
        writer.composed(slot::OBJECT, |out| put_texts(out, place.map(String::as_str)));
        put_texts(writer.out, [&object.name, &object.uid, &object.resource_version].map(String::as_str));
    }
    if let Some(status) = &event.response_status {
        put(writer.out, u64::from(status.code));
        writer.composed(slot::STATUS, |out| {
            put_texts(out, [&status.status, &status.message, &status.reason].map(String::as_str));
            put_value(out, status.details.as_ref());
            put_map(out, &status.metadata);
        });
    }
    put(writer.out, event.annotations.len() as u64);
    for (at, (key, value)) in event.annotations.iter().enumerate() {
        writer.composed(slot::ANNOTATION + at.min(5), |out| put_texts(out, [key.as_str(), value.as_str()]));
    }
    for (part, object, body) in bodies.iter().flatten() {
        let offset = start + body.write(writer.out) as u32;
        if body.is_whole() {
            repeats.remember(*part, uri, object.shared(), offset);
        }
    }
    if let Some(story) = &event.trace {
        encode_story(story, &mut writer);
    }
}

fn encode_story(story: &Story, writer: &mut Writer<'_>) {
    put(writer.out, story.took);
    put(writer.out, story.steps.len() as u64);
    for (at, step) in story.steps.iter().enumerate() {
        writer.composed(slot::STEP + at.min(15), |out| {
            put_texts(out, [&*step.hop, &*step.name, &*step.verdict]);
            put_value(out, step.detail.as_ref());
        });
        put(writer.out, step.at.as_micros() as u64);
        put(writer.out, step.took.as_micros() as u64);
    }
    put(writer.out, story.warnings.len() as u64);
    put_texts(writer.out, story.warnings.iter().map(String::as_str));
    if let Some(wrote) = &story.wrote {
        put(writer.out, wrote.revision);
        writer.phrase(slot::WROTE, wrote.kind.as_bytes());
        put_text(writer.out, wrote.name.as_bytes());
        put_id(writer.out, &wrote.uid);
        put(writer.out, wrote.owners.len() as u64);
        wrote.owners.iter().for_each(|owner| put_id(writer.out, owner));
    }
    if let Some(cause) = story.cause {
        put(writer.out, cause);
    }
    put_text(writer.out, story.trace_id.as_bytes());
}

fn put_texts<'a>(out: &mut Vec<u8>, texts: impl IntoIterator<Item = &'a str>) {
    texts.into_iter().for_each(|text| put_text(out, text.as_bytes()));
}

fn put_user(out: &mut Vec<u8>, user: &UserInfo) {
    put_texts(out, [&*user.username, &*user.uid]);
    put(out, user.groups.len() as u64);
    put_texts(out, user.groups.iter().map(String::as_str));
    for (key, values) in &user.extra {
        put_text(out, key.as_bytes());
        put(out, values.len() as u64);
        put_texts(out, values.iter().map(String::as_str));
    }
}

/// A part of a record: its bytes, and the number of the phrase that it is, if it is one.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The number of the phrase.
    pub code: Option<u32>,
    /// What it says.
    pub bytes: &'a [u8],
}

impl<'a> Part<'a> {
    fn take(bytes: &mut &'a [u8], lexicon: &'a Lexicon) -> Option<Part<'a>> {
        match take(bytes)? {
            0 => Some(Part { code: None, bytes: take_text(bytes)? }),
            code => {
                let code = u32::try_from(code - 1).ok()?;
                Some(Part { code: Some(code), bytes: lexicon.get(code)? })
            }
        }
    }

    /// A text.
    pub fn text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes).ok()
    }

    /// Two texts.
    pub fn pair(&self) -> Option<(&'a str, &'a str)> {
        let bytes = &mut &*self.bytes;
        Some((text(bytes)?, text(bytes)?))
    }

    /// Texts to the end.
    pub fn texts(&self) -> Option<Vec<String>> {
        let mut bytes = self.bytes;
        let mut texts = Vec::new();
        while !bytes.is_empty() {
            texts.push(text(&mut bytes)?.to_owned());
        }
        Some(texts)
    }

    /// A user.
    pub fn user(&self) -> Option<UserInfo> {
        let bytes = &mut &*self.bytes;
        let (username, uid) = (text(bytes)?.to_owned(), text(bytes)?.to_owned());
        let groups = several(bytes)?;
        let mut extra = BTreeMap::new();
        while !bytes.is_empty() {
            extra.insert(text(bytes)?.to_owned(), several(bytes)?);
        }
        Some(UserInfo { username, uid, groups, extra })
    }

    /// A step, without its times.
    pub fn step(&self) -> Option<Step> {
        let bytes = &mut &*self.bytes;
        let word = |bytes: &mut &'a [u8]| Some(Cow::Owned(text(bytes)?.to_owned()));
        Some(Step {
            hop: word(bytes)?,
            name: word(bytes)?,
            verdict: word(bytes)?,
            detail: value(bytes, 0)?,
            at: Duration::ZERO,
            took: Duration::ZERO,
        })
    }
}

fn several(bytes: &mut &[u8]) -> Option<Vec<String>> {
    (0..take(bytes)?).map(|_| text(bytes).map(str::to_owned)).collect()
}

fn json(text: Cow<'_, [u8]>) -> Json {
    Json::written(Bytes::from(text.into_owned()))
}

/// A record where it lies.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    lexicon: &'a Lexicon,
    medium: &'a Medium,
    flags: u64,
    /// How much was recorded.
    pub level: Level,
    /// Of which stage.
    pub stage: Stage,
    /// The request's id.
    pub audit_id: Id<'a>,
    /// When the request arrived.
    pub received: Option<Timestamp>,
    /// When the stage was reached.
    pub reached: Option<Timestamp>,
    /// Path and query.
    pub uri: &'a str,
    /// Kind and version.
    pub kind: Part<'a>,
    /// The verb.
    pub verb: Part<'a>,
    /// Who asked.
    pub user: Part<'a>,
    /// Whom they were taken for.
    pub acting: Option<Part<'a>>,
    /// By which constraint.
    pub constraint: Option<Part<'a>>,
    /// Where it came from.
    pub addresses: Part<'a>,
    /// The client's name for itself.
    pub agent: Part<'a>,
    /// What it was about: where that is, its name, the uid and the revision that the client named.
    pub object: Option<(Part<'a>, &'a str, &'a str, &'a str)>,
    /// How it ended: the code, and everything else.
    pub status: Option<(u16, Part<'a>)>,
    annotations: (u64, &'a [u8]),
    request: Option<Body<'a>>,
    response: Option<Body<'a>>,
    story: &'a [u8],
}

/// What is kept of a trace, with steps and owners to be asked for.
#[derive(Clone, Debug)]
pub struct Told<'a> {
    /// Microseconds.
    pub took: u64,
    /// Each step without its times, when it ended, how long it took.
    pub steps: Vec<(Part<'a>, u64, u64)>,
    /// What the client was warned of.
    pub warnings: Vec<String>,
    /// What was written.
    pub wrote: Option<Written<'a>>,
    /// The revision that caused it.
    pub cause: Option<u64>,
    /// The W3C trace.
    pub trace_id: &'a str,
}

/// What is kept of an object that was written.
#[derive(Clone, Debug)]
pub struct Written<'a> {
    /// Its revision.
    pub revision: u64,
    /// Its kind.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: Id<'a>,
    /// The uids of its owners.
    pub owners: Vec<Id<'a>>,
    /// Whether this was its end.
    pub deleted: bool,
}

impl Written<'_> {
    fn wrote(&self) -> Wrote {
        Wrote {
            revision: self.revision,
            kind: self.kind.to_owned(),
            name: self.name.to_owned(),
            uid: self.uid.text(),
            owners: self.owners.iter().map(Id::text).collect(),
            deleted: self.deleted,
        }
    }
}

impl<'a> Row<'a> {
    /// Looks at a record of a segment; `None` if it is none.
    pub fn read(mut bytes: &'a [u8], lexicon: &'a Lexicon, medium: &'a Medium) -> Option<Row<'a>> {
        let bytes = &mut bytes;
        let flags = take(bytes)?;
        let (kinds, rest) = bytes.split_first()?;
        *bytes = rest;
        let audit_id = Id::take(bytes)?;
        let time = |bytes: &mut &'a [u8], flag: u64| -> Option<Option<Timestamp>> {
            if flags & flag == 0 {
                return Some(None);
            }
            let (eight, rest) = bytes.split_first_chunk::<8>()?;
            *bytes = rest;
            Timestamp::from_microsecond(i64::from_le_bytes(*eight)).ok().map(Some)
        };
        let received = time(bytes, RECEIVED)?;
        let reached = time(bytes, REACHED)?;
        let uri = text(bytes)?;
        let part = |bytes: &mut &'a [u8]| Part::take(bytes, lexicon);
        let (kind, verb, user) = (part(bytes)?, part(bytes)?, part(bytes)?);
        let acting = if flags & IMPERSONATED == 0 { None } else { Some(part(bytes)?) };
        let constraint = if flags & CONSTRAINED == 0 { None } else { Some(part(bytes)?) };
        let (addresses, agent) = (part(bytes)?, part(bytes)?);
        let object = if flags & OBJECT == 0 { None } else { Some((part(bytes)?, text(bytes)?, text(bytes)?, text(bytes)?)) };
        let status = if flags & STATUS == 0 { None } else { Some((u16::try_from(take(bytes)?).ok()?, part(bytes)?)) };
        let count = take(bytes)?;
        let annotations = (count, *bytes);
        for _ in 0..count {
            part(bytes)?;
        }
        let request = if flags & REQUEST == 0 { None } else { Some(Body::take(bytes, flags & REQUEST_LIKE == 0)?) };
        let response = if flags & RESPONSE == 0 { None } else { Some(Body::take(bytes, flags & RESPONSE_LIKE == 0)?) };
        Some(Row {
            lexicon,
            medium,
            flags,
            level: *LEVELS.get(usize::from(kinds >> 4))?,
            stage: *STAGES.get(usize::from(kinds & 15))?,
            audit_id,
            received,
            reached,
            uri,
            kind,
            verb,
            user,
            acting,
            constraint,
            addresses,
            agent,
            object,
            status,
            annotations,
            request,
            response,
            story: bytes,
        })
    }

    /// What authorisation, admission and policies had to say; a damaged one ends them.
    pub fn annotations(&self) -> impl Iterator<Item = Part<'a>> + Clone {
        let (count, mut bytes) = self.annotations;
        let lexicon = self.lexicon;
        (0..count).map_while(move |_| Part::take(&mut bytes, lexicon))
    }

    /// The body of the request; the outer `None` is damage.
    pub fn request(&self) -> Option<Option<Cow<'a, [u8]>>> {
        self.request.map_or(Some(None), |body| body.text(self.medium).map(Some))
    }

    /// The body of the response; the outer `None` is damage.
    pub fn response(&self) -> Option<Option<Cow<'a, [u8]>>> {
        self.response.map_or(Some(None), |body| body.text(self.medium).map(Some))
    }

    /// What is told of the request's way; the outer `None` is damage.
    pub fn told(&self) -> Option<Option<Told<'a>>> {
        if self.flags & TRACE == 0 {
            return Some(None);
        }
        let bytes = &mut &*self.story;
        let took = take(bytes)?;
        let mut steps = Vec::new();
        for _ in 0..take(bytes)? {
            steps.push((Part::take(bytes, self.lexicon)?, take(bytes)?, take(bytes)?));
        }
        let warnings = several(bytes)?;
        let wrote = if self.flags & WROTE == 0 { None } else { Some(self.written(bytes)?) };
        let cause = if self.flags & CAUSE == 0 { None } else { Some(take(bytes)?) };
        Some(Some(Told { took, steps, warnings, wrote, cause, trace_id: text(bytes)? }))
    }

    fn written(&self, bytes: &mut &'a [u8]) -> Option<Written<'a>> {
        Some(Written {
            revision: take(bytes)?,
            kind: Part::take(bytes, self.lexicon)?.text()?,
            name: text(bytes)?,
            uid: Id::take(bytes)?,
            owners: (0..take(bytes)?).map(|_| Id::take(bytes)).collect::<Option<_>>()?,
            deleted: self.flags & DELETED != 0,
        })
    }

    /// Whether a field of the event is there.
    pub fn has(&self, field: &str) -> bool {
        match field {
            "impersonatedUser" => self.acting.is_some(),
            "authenticationMetadata" => self.constraint.is_some(),
            "sourceIPs" => !self.addresses.bytes.is_empty(),
            "userAgent" => !self.agent.bytes.is_empty(),
            "objectRef" => self.object.is_some(),
            "responseStatus" => self.status.is_some(),
            "requestObject" => self.request.is_some(),
            "responseObject" => self.response.is_some(),
            "requestReceivedTimestamp" => self.received.is_some(),
            "stageTimestamp" => self.reached.is_some(),
            "annotations" => self.annotations.0 > 0,
            "trace" => self.flags & TRACE != 0,
            _ => true,
        }
    }

    /// What it was about.
    pub fn object(&self) -> Option<ObjectReference> {
        let (place, name, uid, resource_version) = self.object?;
        let bytes = &mut &*place.bytes;
        let mut word = || text(bytes).map(str::to_owned);
        Some(ObjectReference {
            resource: word()?,
            namespace: word()?,
            api_group: word()?,
            api_version: word()?,
            subresource: word()?,
            name: name.to_owned(),
            uid: uid.to_owned(),
            resource_version: resource_version.to_owned(),
        })
    }

    /// How it ended.
    pub fn status(&self) -> Option<ResponseStatus> {
        let (code, rest) = self.status?;
        let bytes = &mut &*rest.bytes;
        let mut word = || text(bytes).map(str::to_owned);
        let (status, message, reason) = (word()?, word()?, word()?);
        let details = value(bytes, 0)?;
        let Some(Value::Object(metadata)) = value(bytes, 0)? else { return None };
        Some(ResponseStatus { metadata, status, message, reason, details, code })
    }

    /// The whole event; `None` if the record is damaged.
    pub fn event(&self) -> Option<Event> {
        let (kind, api_version) = self.kind.pair()?;
        let trace = match self.told()? {
            None => None,
            Some(told) => {
                let micros = Duration::from_micros;
                let steps = told.steps.iter().map(|(part, at, took)| Some(Step { at: micros(*at), took: micros(*took), ..part.step()? }));
                Some(Box::new(Story {
                    took: told.took,
                    steps: steps.collect::<Option<_>>()?,
                    warnings: told.warnings,
                    wrote: told.wrote.map(|written| written.wrote()),
                    cause: told.cause,
                    trace_id: told.trace_id.to_owned(),
                }))
            }
        };
        let constraint = self.constraint.and_then(|part| part.text());
        Some(Event {
            kind: kind.to_owned().into(),
            api_version: api_version.to_owned().into(),
            level: self.level,
            audit_id: self.audit_id.text(),
            stage: self.stage,
            request_uri: self.uri.to_owned(),
            verb: self.verb.text()?.to_owned().into(),
            user: self.user.user()?,
            impersonated_user: self.acting.and_then(|part| part.user()),
            authentication_metadata: constraint.map(|text| AuthenticationMetadata { impersonation_constraint: text.to_owned() }),
            source_ips: self.addresses.texts()?,
            user_agent: self.agent.text()?.to_owned(),
            object_ref: self.object(),
            response_status: self.status(),
            request_object: self.request()?.map(json),
            response_object: self.response()?.map(json),
            request_received_timestamp: self.received,
            stage_timestamp: self.reached,
            annotations: self.annotations().map(|part| part.pair().map(|(k, v)| (k.to_owned(), v.to_owned()))).collect::<Option<_>>()?,
            trace,
        })
    }
}
