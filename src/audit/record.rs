//! What the request path hands to the recorder, and how an event is made of it. A [`Record`] costs a handful of reference counts;
//! everything that allocates, decodes or formats happens here, on the recorder's thread.

use std::io::Read;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::read::GzDecoder;
use http::{HeaderValue, Uri};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::event::{AuthenticationMetadata, ObjectReference, ResponseStatus, UserInfo};
use super::lists::Lists;
use super::policy::Scope;
use super::quoted::Secrets;
use super::{Event, Json, Level, Stage, Story, identity, latency, named, redact, signs, source};
use crate::object::list::List;
use crate::request::{Body, Context, RequestInfo, SharedContext, User};
use crate::status::Status;

/// The longest User-Agent that is kept whole.
const LONGEST_AGENT: usize = 1024;

/// The largest body that is kept for an event, as large as an object may be.
pub const LARGEST_BODY: usize = 3 << 19;

/// Said of an event from which a body was left out because it is too large.
pub const TRUNCATED: &str = "audit.k8s.io/truncated";

/// Annotations that a real server keeps at the level Request and above only.
pub const PATCH_ANNOTATION: &str = "patch.webhook.admission.k8s.io/";

/// Annotations whose values are JSON.
const ADMISSION: &str = ".admission.k8s.io/";

/// JSON as Go writes it: a page that shows it is not led astray.
pub fn escaped(json: String) -> String {
    if !json.contains(['<', '>', '&']) {
        return json;
    }
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// A request at one stage of its life.
pub struct Record {
    /// What all stages share.
    pub arrival: Arc<Arrival>,
    /// The stage.
    pub stage: Stage,
    /// When it was reached.
    pub at: Timestamp,
    /// How long the request had taken by then.
    pub took: Duration,
    /// How it ended, if it did.
    pub ending: Ending,
    /// What the policy wants of it, where that was asked while the request was under way.
    pub scope: Option<Scope>,
    /// The body of the request, if it was captured.
    pub request: Option<Box<Captured>>,
    /// The body of the response, if it was captured.
    pub response: Option<Box<Captured>>,
    /// Whether another stage follows, which then takes the trace.
    pub goes_on: bool,
}

/// A request as it arrived.
pub struct Arrival {
    /// What it is about, who asks, and its trace.
    pub context: SharedContext,
    /// The path and query, as written.
    pub uri: Uri,
    /// When.
    pub received: Timestamp,
    /// The peer; none for a request from inside the process.
    pub peer: Option<IpAddr>,
    /// `X-Forwarded-For`.
    pub forwarded_for: Option<HeaderValue>,
    /// `X-Real-Ip`.
    pub real_ip: Option<HeaderValue>,
    /// The revision whose event made a component ask.
    pub cause: Option<HeaderValue>,
    /// `Accept`.
    pub accept: Option<HeaderValue>,
    /// Whether it comes from inside the process.
    pub in_process: bool,
    /// What an event has said of it already.
    pub told: Told,
}

/// The event of an arrival, until that of the end is made of it.
#[derive(Default)]
pub struct Told(Mutex<Option<Box<Event>>>);

impl Arrival {
    /// Keeps the event of the arrival, so that the next one need not be made from nothing.
    pub fn keep(&self, event: Box<Event>) {
        if !self.context.info.is_long_running() {
            *self.told.0.lock() = Some(event);
        }
    }

    /// What every event says of it.
    fn event(&self) -> Box<Event> {
        if let Some(told) = self.told.0.lock().take() {
            return told;
        }
        let context = &*self.context;
        Box::new(Event {
            kind: "Event".into(),
            api_version: "audit.k8s.io/v1".into(),
            audit_id: context.audit_id.to_string(),
            request_uri: named::uri(&self.uri),
            verb: match context.info.special_verb.as_str() {
                "" => context.info.verb.into(),
                unknown => unknown.to_owned().into(),
            },
            user: context.authenticated().map(|user| UserInfo::from(&**user)).unwrap_or_default(),
            source_ips: source::addresses(self.forwarded_for.as_ref(), self.real_ip.as_ref(), self.peer),
            user_agent: agent(&context.user_agent),
            object_ref: object_reference(&context.info),
            request_received_timestamp: Some(self.received),
            ..Event::default()
        })
    }
}

/// How a request ended.
#[derive(Clone, Debug)]
pub enum Ending {
    /// Not at all yet.
    Open,
    /// With this HTTP status.
    Code(u16),
    /// With a response that is a `Status` itself.
    Answered(u16, Arc<Value>),
    /// Refused.
    Refused(Box<Status>),
    /// In a panic.
    Panic(String),
    /// The client went away before there was a response.
    ClosedEarly,
}

/// The body of a request or a response as it went by.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// Its media type.
    pub content_type: Option<HeaderValue>,
    /// Its bytes.
    pub pieces: Vec<Bytes>,
    /// The list that it is; then there are no pieces.
    pub list: Option<Arc<List>>,
    /// Whether its bytes are compressed.
    pub gzip: bool,
    /// Whether it was too large to be kept.
    pub too_large: bool,
    /// Whether nobody saw its end: the client went away, or knew by its length that this was all.
    pub cut_off: bool,
}

impl Captured {
    /// A list that is answered.
    pub fn of_list(list: &Arc<List>, most: usize) -> Self {
        let too_large = list.length() > most;
        Captured { list: Some(list.clone()).filter(|_| !too_large), too_large, ..Captured::default() }
    }

    /// Adds a piece; a body that exceeds `most` bytes is not kept at all.
    pub fn add(&mut self, piece: &Bytes, most: usize) {
        if self.list.is_some() {
            return;
        }
        if self.too_large || self.len() + piece.len() > most {
            self.too_large = true;
            self.pieces = Vec::new();
        } else {
            self.pieces.push(piece.clone());
        }
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.list.as_ref().map_or(0, |list| list.length()) + self.pieces.iter().map(Bytes::len).sum::<usize>()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(Bytes::is_empty)
    }

    /// What it says, whatever it was sent as; `None` if that is more than `most` bytes.
    fn text(&self, most: usize) -> Option<Bytes> {
        if let Some(list) = &self.list {
            return Some(list.text());
        }
        if !self.gzip {
            return Some(self.bytes());
        }
        let mut text = Vec::new();
        let read = GzDecoder::new(&*self.bytes()).take(most as u64 + 1).read_to_end(&mut text);
        // What breaks off says nothing.
        (text.len() <= most).then(|| read.map_or_else(|_| Bytes::new(), |_| text.into()))
    }

    fn bytes(&self) -> Bytes {
        match self.pieces.as_slice() {
            [one] => one.clone(),
            several => several
                .iter()
                .fold(BytesMut::with_capacity(self.len()), |mut all, piece| {
                    all.extend_from_slice(piece);
                    all
                })
                .freeze(),
        }
    }

    fn content_type(&self) -> &str {
        self.content_type.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Whoever can read bodies: the REST interface, which knows kinds and encodings.
pub trait Bodies: Send + Sync {
    /// The object in the body of a request, as an audit event shows it.
    fn request(&self, context: &Context, content_type: &str, bytes: &[u8]) -> Option<Json>;
    /// The object in the body of a response that is not JSON.
    fn response(&self, context: &Context, content_type: &str, bytes: &[u8]) -> Option<Value>;
}

impl Record {
    /// How many bytes it keeps alive, about.
    pub fn weight(&self) -> usize {
        let body = |captured: &Option<Box<Captured>>| captured.as_ref().map_or(0, |captured| captured.len());
        512 + body(&self.request) + body(&self.response)
    }

    /// The event, with the story of the request; `lists` are those of the events before.
    pub fn into_event(self, scope: Scope, bodies: &dyn Bodies, lists: &mut Lists) -> Box<Event> {
        let arrival = &*self.arrival;
        let context = &*arrival.context;
        let level = scope.level;
        let (steps, annotations, wrote) = match (self.stage, self.goes_on) {
            (Stage::RequestReceived, _) => Default::default(),
            (_, true) => (context.trace.steps(), context.trace.annotations(), None),
            (_, false) => context.trace.take(),
        };
        let mut event = arrival.event();
        event.level = level;
        event.stage = self.stage;
        event.response_status = self.ending.status();
        event.stage_timestamp = Some(self.at);
        event.annotations = annotations
            .into_iter()
            .filter(|(key, _)| level >= Level::Request || !key.starts_with(PATCH_ANNOTATION))
            // A key has a prefix and a name; what a webhook calls otherwise is dropped.
            .filter(|(key, _)| key.matches('/').count() <= 1)
            .map(|(key, value)| if key.contains(ADMISSION) { (key, escaped(value)) } else { (key, value) })
            .collect();
        if self.stage != Stage::RequestReceived {
            // The body has perhaps been read by now.
            if let (Some(object), Some(body)) = (&mut event.object_ref, context.body()) {
                complete(object, body);
            }
            event.impersonated_user = context.impersonated().map(|user| UserInfo::from(&**user));
            let constraint = context.constraint().filter(|_| event.impersonated_user.is_some());
            event.authentication_metadata = constraint.map(|text| AuthenticationMetadata { impersonation_constraint: text.to_owned() });
        }
        if self.stage == Stage::ResponseComplete && !context.info.is_long_running() {
            latency::annotate(&mut event.annotations, self.took, &steps);
        }
        let mut secrets = Secrets::of(&context.info, self.request.as_ref().is_some_and(|captured| !captured.is_empty()));
        context.guarded().iter().for_each(|object| secrets.guard(object));
        if let Some(captured) = &self.request {
            let unread = self.ending.leaves_unread(context.info.verb);
            if !captured.too_large && !captured.is_empty() {
                // Also of what nobody read, so that nothing of it is told in a message.
                let object = request_object(context, scope, bodies, captured, &mut secrets);
                event.request_object = object.filter(|_| !unread);
            }
            if captured.too_large && !unread && level >= Level::Request {
                event.annotations.insert(TRUNCATED.into(), "true".into());
            }
        }
        if level >= Level::RequestResponse {
            event.response_object = self.response_object(scope, bodies, lists, &mut event, &mut secrets);
        }
        if self.stage != Stage::RequestReceived {
            let mut story = Story {
                took: self.took.as_micros() as u64,
                steps,
                warnings: context.trace.warnings(),
                wrote,
                cause: cause(arrival, context.authenticated().map(|user| &**user)),
                trace_id: context.span.map(|span| span.trace_id()).unwrap_or_default(),
            };
            redact::story(&context.info, secrets.guards(), &mut story);
            event.trace = Some(Box::new(story));
        }
        secrets.scrub(&mut event);
        redact::ending(&mut event);
        identity::mask(&mut event);
        event
    }

    fn response_object(
        &self,
        scope: Scope,
        bodies: &dyn Bodies,
        lists: &mut Lists,
        event: &mut Event,
        secrets: &mut Secrets,
    ) -> Option<Json> {
        let context = &*self.arrival.context;
        let status = match &self.ending {
            Ending::Refused(status) => Some(status.to_json()),
            Ending::Answered(_, value) => Some(Value::clone(value)),
            _ => None,
        };
        if let Some(mut status) = status {
            redact::credentials(&mut status);
            return Some(Json::from(&status));
        }
        let captured = self.response.as_ref()?;
        if let Some(same) = captured.list.as_ref().and_then(|list| lists.find(list, scope.omit_managed_fields)) {
            return Some(same);
        }
        let Some(bytes) = captured.text(LARGEST_BODY).filter(|_| !captured.too_large) else {
            event.annotations.insert(TRUNCATED.into(), "true".into());
            return None;
        };
        // An answer without a body has a type all the same: that nothing has changed, say.
        if bytes.trim_ascii().is_empty() {
            return None;
        }
        let mut value = match captured.content_type() {
            json if json.starts_with("application/json") => match is_fit(context, scope, &bytes) {
                true if captured.cut_off && captured.list.is_none() => return Json::checked(bytes),
                true => {
                    let body = Json::written(bytes);
                    captured.list.iter().for_each(|list| lists.remember(list, scope.omit_managed_fields, &body));
                    return Some(body);
                }
                false => serde_json::from_slice(&bytes).ok()?,
            },
            other => bodies.response(context, other, &bytes)?,
        };
        if scope.omit_managed_fields {
            drop_managed_fields(&mut value);
        }
        // A patch may have reached into a Secret within another object, of which only the whole object says that it is one.
        if context.info.verb == "patch" && !redact::is_sensitive(&context.info) {
            secrets.learn(&value);
        }
        redact::object(&context.info, &mut value);
        Some(Json::from(&value))
    }
}

/// Whether JSON can be recorded as it is: nothing in it is nobody's business, nothing is to be left out, and it fits on a line.
fn is_fit(context: &Context, scope: Scope, json: &[u8]) -> bool {
    let has_managed_fields = || memchr::memmem::find(json, b"\"managedFields\"").is_some();
    !signs::may_hold_secrets(&context.info, json)
        && memchr::memchr(b'\n', json.trim_ascii_end()).is_none()
        && !(scope.omit_managed_fields && has_managed_fields())
}

/// The body of a request as it is recorded, if it is; what must not be told of it is learnt in any case.
fn request_object(context: &Context, scope: Scope, bodies: &dyn Bodies, captured: &Captured, secrets: &mut Secrets) -> Option<Json> {
    let bytes = captured.bytes();
    let recorded = |body: Json| Some(body).filter(|_| scope.level >= Level::Request);
    // A patch stands for itself, and mostly as it was sent.
    if context.info.verb == "patch"
        && is_fit(context, scope, &bytes)
        && !signs::is_escaped(&bytes)
        && let Some(whole) = Json::checked(bytes.clone())
    {
        secrets.nothing_to_learn();
        return recorded(whole);
    }
    let body = bodies.request(context, captured.content_type(), &bytes)?;
    if is_fit(context, scope, body.bytes()) {
        secrets.nothing_to_learn();
        return recorded(body);
    }
    let mut object = body.value()?;
    secrets.learn(&object);
    if scope.omit_managed_fields {
        drop_managed_fields(&mut object);
    }
    redact::request(&context.info, &mut object);
    recorded(Json::from(&object))
}

impl Ending {
    /// Whether the request was refused before anybody read its body: one that is too large, a patch of no known sort or with
    /// options that no patch has.
    fn leaves_unread(&self, verb: &str) -> bool {
        let Ending::Refused(status) = self else { return false };
        let about_options = || status.details.as_ref().is_some_and(|details| details.kind == "PatchOptions");
        status.code == 413 || verb == "patch" && (status.code == 415 || about_options())
    }

    fn status(&self) -> Option<ResponseStatus> {
        let failure = |code, reason: &str, message: String| ResponseStatus {
            status: "Failure".into(),
            reason: reason.into(),
            message,
            code,
            ..ResponseStatus::default()
        };
        Some(match self {
            Ending::Open => return None,
            Ending::Code(code) => ResponseStatus { code: *code, ..ResponseStatus::default() },
            Ending::Answered(code, value) => {
                let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                ResponseStatus {
                    metadata: Map::new(),
                    status: text("status"),
                    message: text("message"),
                    reason: text("reason"),
                    details: value.get("details").cloned(),
                    code: *code,
                }
            }
            Ending::Refused(status) => ResponseStatus {
                details: status.to_json().get_mut("details").map(Value::take),
                ..failure(status.code, &status.reason, status.message.clone())
            },
            Ending::Panic(what) => failure(500, "InternalError", format!("APIServer panic'd: {what}")),
            Ending::ClosedEarly => ResponseStatus {
                status: "Success".into(),
                message: "Connection closed early".into(),
                code: 200,
                ..ResponseStatus::default()
            },
        })
    }
}

/// What a client calls itself, without a credential that it has put there, and not without end.
pub fn agent(text: &str) -> String {
    let mut text = text.to_owned();
    redact::credentials_in(&mut text);
    named::mask_authorization(&mut text);
    if text.len() <= LONGEST_AGENT {
        return text;
    }
    let end = (0..=LONGEST_AGENT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...TRUNCATED", &text[..end])
}

/// What the path says. A name that the server makes up is not in it, as on a real server; the story tells it.
fn object_reference(info: &RequestInfo) -> Option<ObjectReference> {
    info.is_resource.then(|| ObjectReference {
        resource: info.resource.clone(),
        namespace: info.namespace.clone(),
        name: info.name.clone(),
        api_group: info.group.clone(),
        api_version: info.version.clone(),
        subresource: info.subresource.clone(),
        ..ObjectReference::default()
    })
}

/// What the body says where the path is silent.
fn complete(object: &mut ObjectReference, body: &Body) {
    let ours = [&mut object.namespace, &mut object.name, &mut object.uid, &mut object.resource_version];
    for (ours, theirs) in ours.into_iter().zip([&body.namespace, &body.name, &body.uid, &body.resource_version]) {
        if ours.is_empty() {
            ours.clone_from(theirs);
        }
    }
}

/// Only a component is believed about what made it act.
fn cause(arrival: &Arrival, user: Option<&User>) -> Option<u64> {
    let trusted = arrival.in_process || user.is_some_and(|user| user.name.starts_with("system:") && user.name != "system:anonymous");
    arrival.cause.as_ref().filter(|_| trusted)?.to_str().ok()?.parse().ok()
}

/// Takes `metadata.managedFields` from an object, the items of a list and the rows of a Table.
fn drop_managed_fields(value: &mut Value) {
    fn from(object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    from(value);
    for item in value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        from(item);
    }
    for row in value.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(object) = row.get_mut("object") {
            from(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_long_user_agent_is_cut_and_says_so() {
        assert_eq!(agent("kubectl"), "kubectl");
        let long = agent(&"é".repeat(1000));
        assert!(long.ends_with("...TRUNCATED") && long.len() <= 1024 + 12);
    }

    #[test]
    fn managed_fields_go_from_objects_lists_and_tables() {
        let mut value = json!({"metadata": {"managedFields": [1], "name": "a"}, "items": [{"metadata": {"managedFields": []}}],
            "rows": [{"object": {"metadata": {"managedFields": [2]}}}]});
        drop_managed_fields(&mut value);
        assert_eq!(value, json!({"metadata": {"name": "a"}, "items": [{"metadata": {}}], "rows": [{"object": {"metadata": {}}}]}));
    }
}
