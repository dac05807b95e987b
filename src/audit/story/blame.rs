//! Like `git blame` for an object: who last set each field, when, in which request.
//!
//! The kept revisions say in which request a field got the value it has. Within that request the trace says which plugin, policy or
//! webhook put it there; the request itself (its body where it was recorded, what kubectl noted, managedFields) says what the
//! client set; the schema says what stands in for what nobody set.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::actor::{Lane, short};
use super::fields::{Element, Leaf, leaves, show};
use super::ownership::{Owner, owners};
use crate::audit::{Event, Json, redact};
use crate::request::Step;
use crate::schema::Schema;

/// Where kubectl keeps what was applied.
const LAST_APPLIED: &str = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// One kept state of the object.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its revision.
    pub revision: u64,
    /// When it was written.
    pub time: Timestamp,
    /// The request that wrote it.
    pub audit_id: Option<Arc<str>>,
    /// The object.
    pub object: Value,
}

/// What kind of author a field has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Source {
    Client,
    Controller,
    Scheduler,
    Kubelet,
    Default,
    Plugin,
    Policy,
    Webhook,
    #[default]
    Server,
}

impl Source {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Client => "client",
            Source::Controller => "controller",
            Source::Scheduler => "scheduler",
            Source::Kubelet => "kubelet",
            Source::Default => "default",
            Source::Plugin => "plugin",
            Source::Policy => "policy",
            Source::Webhook => "webhook",
            Source::Server => "server",
        }
    }
}

/// Who set one field.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attribution {
    /// The field's path, for people.
    pub path: String,
    /// The field's place in the object.
    pub pointer: String,
    /// What it holds.
    pub value: Value,
    /// What kind of author.
    pub source: Source,
    /// The author: a user, a controller, a plugin, a policy, a webhook.
    pub by: String,
    /// The field manager.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub manager: String,
    /// In which round of mutating admission, where it was a webhook or a policy; the first is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<usize>,
    /// When.
    pub at: Option<Timestamp>,
    /// In which request.
    #[serde(rename = "auditID", skip_serializing_if = "String::is_empty")]
    pub audit_id: String,
    /// At which revision.
    pub revision: u64,
    /// Whether it may be older than that: the revision is the oldest that is kept, and not the first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub boundary: bool,
}

/// An object and the authors of its fields.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Blame {
    /// The object as it is, without managedFields and resourceVersion.
    pub object: Value,
    /// Its fields, in order.
    pub fields: Vec<Attribution>,
}

/// What blame needs to know besides the revisions.
pub struct Facts<'a> {
    /// The schema of the kind.
    pub schema: &'a Schema,
    /// The recorded event of a request.
    pub event: &'a dyn Fn(&str) -> Option<Arc<Event>>,
    /// Whether the field at a pointer of an object is what the schema fills in.
    pub is_default: &'a dyn Fn(&Value, &str) -> bool,
}

/// Attributes every field of the newest state. `kept` is oldest first.
pub fn blame(kept: &[Kept], facts: &Facts<'_>) -> Blame {
    let Some(newest) = kept.last() else { return Blame::default() };
    let uid = &newest.object["metadata"]["uid"];
    // An earlier object of the same name is another object.
    let start = kept.iter().rposition(|kept| &kept.object["metadata"]["uid"] != uid).map_or(0, |at| at + 1);
    let kept = &kept[start..];
    let events: Vec<Option<Arc<Event>>> = kept.iter().map(|kept| kept.audit_id.as_deref().and_then(facts.event)).collect();
    let is_first = start > 0 || is_creation(&kept[0], events[0].as_deref());
    // For every path: the index of the state that gave it its value, and where it was then.
    let mut last: HashMap<String, (usize, Value, Leaf<'_>)> = HashMap::new();
    for (index, state) in kept.iter().enumerate() {
        let mut now = HashMap::with_capacity(last.len());
        for leaf in leaves(&state.object, facts.schema) {
            let path = show(&leaf.path);
            let entry = match last.remove(&path) {
                Some((since, value, then)) if value == *leaf.value => (since, value, then),
                _ => (index, leaf.value.clone(), leaf),
            };
            now.insert(path, entry);
        }
        last = now;
    }
    let requests: Vec<Request<'_>> = kept.iter().zip(&events).map(|(kept, event)| Request::of(kept, event.as_deref(), facts)).collect();
    let fields = leaves(&newest.object, facts.schema).into_iter().filter_map(|leaf| {
        let path = show(&leaf.path);
        let (index, _, then) = last.get(&path)?;
        let mut found = requests[*index].attribute(then, facts);
        (found.path, found.pointer, found.value) = (path, leaf.pointer, leaf.value.clone());
        found.boundary = *index == 0 && !is_first && found.source != Source::Default;
        Some(found)
    });
    let fields = fields.collect();
    let mut object = newest.object.clone();
    for field in ["managedFields", "resourceVersion"] {
        object.get_mut("metadata").and_then(Value::as_object_mut).map(|metadata| metadata.remove(field));
    }
    Blame { object, fields }
}

/// Whether a kept state is the object's first.
fn is_creation(kept: &Kept, event: Option<&Event>) -> bool {
    if let Some(event) = event {
        return event.verb == "create" || event.code() == 201;
    }
    let created = kept.object["metadata"]["creationTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    created.is_some_and(|created| created.as_second() == kept.time.as_second())
}

/// One request as an author.
struct Request<'a> {
    kept: &'a Kept,
    event: Option<&'a Event>,
    /// What the client said, by path; `None` where nobody knows.
    said: Option<HashMap<String, Value>>,
}

impl<'a> Request<'a> {
    fn of(kept: &'a Kept, event: Option<&'a Event>, facts: &Facts<'_>) -> Self {
        // The recorded body of a create or an update has defaults in it already; only a patch is as the client wrote it.
        let patch = event.filter(|event| event.verb == "patch").and_then(|event| event.request_object.as_ref());
        let body = patch.and_then(Json::value);
        // What kubectl noted is from an earlier request if this one is not kubectl's.
        let noted = || {
            let is_kubectl = event.is_none_or(|event| event.user_agent.starts_with("kubectl") || event.request_uri.contains("kubectl"));
            let text = kept.object.pointer(LAST_APPLIED).and_then(Value::as_str).filter(|_| is_kubectl)?;
            serde_json::from_str::<Value>(text).ok()
        };
        let said = body.filter(Value::is_object).or_else(noted);
        let said = said.map(|said| {
            leaves(&said, facts.schema).into_iter().map(|leaf| (show(&leaf.path), leaf.value.clone())).collect::<HashMap<_, _>>()
        });
        Request { kept, event, said }
    }

    /// Who in this request gave a field its value.
    fn attribute(&self, leaf: &Leaf<'_>, facts: &Facts<'_>) -> Attribution {
        let mut found = Attribution {
            at: Some(self.kept.time),
            audit_id: self.kept.audit_id.as_deref().unwrap_or_default().to_owned(),
            revision: self.kept.revision,
            ..Attribution::default()
        };
        if is_servers(&leaf.path) || self.is_made_up(&leaf.path) {
            (found.source, found.by) = (Source::Server, "API server".into());
            return found;
        }
        if let Some((step, round)) = self.event.and_then(|event| mutated_by(event, leaf)) {
            found.source = kind_of(step);
            found.by = author(step);
            found.round = matches!(found.source, Source::Webhook | Source::Policy).then_some(round);
            return found;
        }
        let owners = owners(&self.kept.object, &leaf.path);
        // What a Binding brings along is the scheduler's, and a status is what its owner reports: neither has defaults.
        let is_status = matches!(leaf.path.first(), Some(Element::Field(field)) if field == "status");
        if self.is_about("binding") || (is_status && !owners.is_empty()) {
            self.credit(&mut found, &owners);
            return found;
        }
        let said = self.said.as_ref().map(|said| said.get(&show(&leaf.path)) == Some(leaf.value));
        let applied = owners.iter().any(|owner| owner.operation == "Apply");
        let is_allocated = owners.is_empty() && ((is_status && !self.is_about("status")) || is_allocated(&self.kept.object, &leaf.path));
        if said != Some(true) && !applied && !is_allocated && (facts.is_default)(&self.kept.object, &leaf.pointer) {
            (found.source, found.by) = (Source::Default, "default".into());
            return found;
        }
        if said == Some(true) || !owners.is_empty() || is_identity(&leaf.path) || self.sent(leaf, is_allocated) {
            self.credit(&mut found, &owners);
            return found;
        }
        (found.source, found.by) = (Source::Server, "API server".into());
        found
    }

    /// Whether a field is a name that the server made of `generateName`: of such an object a create names nothing.
    fn is_made_up(&self, path: &[Element]) -> bool {
        let is_name = matches!(path, [Element::Field(metadata), Element::Field(name)] if metadata == "metadata" && name == "name");
        let unnamed = |event: &Event| {
            event.verb == "create"
                && event.object_ref.as_ref().is_some_and(|object| object.name.is_empty() && object.subresource.is_empty())
        };
        is_name && self.kept.object["metadata"]["generateName"].is_string() && self.event.is_some_and(unnamed)
    }

    /// Whether a field came with the request, where managedFields are not kept: an audit policy may leave them out, and an object that
    /// began without any stays without. The recorded body says it; where none is known, whoever wrote has said what is neither a
    /// default nor made by the server.
    fn sent(&self, leaf: &Leaf<'_>, is_allocated: bool) -> bool {
        if !self.kept.object["metadata"]["managedFields"].is_null() {
            return false;
        }
        let body = self.event.and_then(|event| event.request_object.as_ref()).and_then(Json::value);
        match body.filter(Value::is_object) {
            Some(body) => body.pointer(&leaf.pointer) == Some(leaf.value),
            None => self.event.is_some() && !is_allocated,
        }
    }

    /// Whether it was about this subresource: one about `binding` bound a Pod to a node.
    fn is_about(&self, subresource: &str) -> bool {
        self.event.and_then(|event| event.object_ref.as_ref()).is_some_and(|object| object.subresource == subresource)
    }

    /// The field is the work of whoever sent the request.
    fn credit(&self, found: &mut Attribution, owners: &[Owner]) {
        let named = self.event.and_then(|event| {
            let (_, query) = event.request_uri.split_once('?')?;
            crate::request::query_value(query, "fieldManager")
        });
        let agent = self.event.map(|event| event.user_agent.split('/').next().unwrap_or_default().to_owned());
        let known = |manager: &Option<String>| manager.as_ref().and_then(|name| owners.iter().find(|owner| owner.manager == *name));
        let owner = known(&named).or_else(|| known(&agent)).or_else(|| owners.iter().max_by(|a, b| a.time.cmp(&b.time)));
        found.manager = owner.map(|owner| owner.manager.clone()).or(named).or(agent).unwrap_or_default();
        let Some(event) = self.event else {
            // The request is not kept any more; its manager is.
            (found.source, found.by) = (Source::Client, found.manager.clone());
            return;
        };
        let user = &event.effective_user().username;
        found.by = short(user).to_owned();
        found.source = match Lane::of(user) {
            Lane::Controllers => Source::Controller,
            Lane::Scheduler => Source::Scheduler,
            Lane::Kubelet | Lane::Cri => Source::Kubelet,
            Lane::ApiServer | Lane::Store => Source::Server,
            Lane::Client => Source::Client,
        };
    }
}

/// What only the server writes.
fn is_servers(path: &[Element]) -> bool {
    match path {
        [Element::Field(metadata), Element::Field(field), ..] if metadata == "metadata" => matches!(
            field.as_str(),
            "uid"
                | "creationTimestamp"
                | "generation"
                | "resourceVersion"
                | "selfLink"
                | "deletionTimestamp"
                | "deletionGracePeriodSeconds"
        ),
        _ => false,
    }
}

/// What the server allocates: one of these fields fills in for another, as a default would.
fn is_allocated(object: &Value, path: &[Element]) -> bool {
    match path {
        [Element::Field(spec), Element::Field(field), ..] if spec == "spec" && object["kind"] == "Service" => {
            matches!(field.as_str(), "clusterIP" | "clusterIPs" | "ipFamilies" | "ipFamilyPolicy")
        }
        _ => false,
    }
}

/// What every client says and managedFields leave out.
fn is_identity(path: &[Element]) -> bool {
    match path {
        [Element::Field(field)] => matches!(field.as_str(), "apiVersion" | "kind"),
        [Element::Field(metadata), Element::Field(field)] if metadata == "metadata" => {
            matches!(field.as_str(), "name" | "namespace" | "generateName")
        }
        _ => false,
    }
}

/// Whether a step of admission is a plugin's, a policy's or a webhook's. Plugins are written in camel case, policies have the names of
/// objects: one that was passed over, or could not be asked, may not have got as far as a binding.
pub fn kind_of(step: &Step) -> Source {
    let is_webhook = step.detail.as_ref().is_some_and(|detail| detail.get("configuration").is_some());
    match step.name.starts_with(|c: char| c.is_ascii_uppercase()) {
        _ if is_webhook => Source::Webhook,
        true => Source::Plugin,
        false => Source::Policy,
    }
}

/// A step's author: a webhook with its configuration.
fn author(step: &Step) -> String {
    match step.detail.as_ref().and_then(|detail| detail["configuration"].as_str()) {
        Some(configuration) => format!("{} ({configuration})", step.name),
        None => step.name.to_string(),
    }
}

/// The patch that a step recorded: a JSON Patch, or a merge patch.
pub fn patch_of(step: &Step) -> Option<&Value> {
    let detail = step.detail.as_ref()?;
    ["patch", "diff"].iter().filter_map(|field| detail.get(*field)).find(|patch| patch.is_array() || patch.is_object())
}

/// The last mutating step of a request that gave a field its value, and its round.
fn mutated_by<'e>(event: &'e Event, leaf: &Leaf<'_>) -> Option<(&'e Step, usize)> {
    let steps = &event.trace.as_ref()?.steps;
    let found = steps.iter().rposition(|step| step.hop == "mutate" && patch_of(step).is_some_and(|patch| sets(patch, leaf)))?;
    Some((&steps[found], round(steps, found)))
}

/// In which round of mutating admission a step was taken: the plugin itself ends each of its rounds with a step of its own.
pub fn round(steps: &[Step], at: usize) -> usize {
    let step = &steps[at];
    let own = match kind_of(step) {
        Source::Webhook => "MutatingAdmissionWebhook",
        Source::Policy => "MutatingAdmissionPolicy",
        _ => &step.name,
    };
    steps[..at].iter().filter(|earlier| earlier.hop == "mutate" && earlier.name == own).count()
}

/// Whether a patch gives a field the value it has.
fn sets(patch: &Value, leaf: &Leaf<'_>) -> bool {
    match patch {
        Value::Array(operations) => operations.iter().any(|operation| operation_sets(operation, leaf)),
        merge => merge.pointer(&leaf.pointer) == Some(leaf.value),
    }
}

fn operation_sets(operation: &Value, leaf: &Leaf<'_>) -> bool {
    if !matches!(operation["op"].as_str(), Some("add" | "replace")) {
        return false;
    }
    let path = operation["path"].as_str().unwrap_or_default();
    let rest = match path.strip_suffix("/-") {
        // Appended: whichever item it became.
        Some(list) => leaf.pointer.strip_prefix(list).and_then(|rest| rest.strip_prefix('/')).map(|rest| {
            let end = rest.find('/').unwrap_or(rest.len());
            &rest[end..]
        }),
        None => leaf.pointer.strip_prefix(path).filter(|rest| rest.is_empty() || rest.starts_with('/')),
    };
    let told = rest.and_then(|rest| operation["value"].pointer(rest));
    // What must not be told was still set.
    told.is_some_and(|told| told == leaf.value || told == redact::MASK)
}

#[cfg(test)]
#[path = "blame_tests.rs"]
mod tests;
