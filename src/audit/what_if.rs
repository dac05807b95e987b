//! What an audit policy would have recorded: its rules asked about requests that are kept, and how much would have been written. Pure.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::event::ObjectReference;
use super::lines::Lines;
use super::policy::Scope;
use super::{Event, Json, Level, Policy, Stage};
use crate::request::{RequestInfo, User};

/// So many events, and how much their lines have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Events.
    pub events: u64,
    /// Bytes; at least, where bodies are missing.
    pub bytes: u64,
}

impl Volume {
    fn add(&mut self, bytes: u64) {
        self.events += 1;
        self.bytes += bytes;
    }
}

/// What a policy would have recorded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// How many requests were looked at.
    pub requests: u64,
    /// When the first of them arrived.
    pub since: Option<Timestamp>,
    /// When the last of them arrived.
    pub until: Option<Timestamp>,
    /// Everything together.
    pub total: Volume,
    /// By level.
    pub levels: BTreeMap<String, Volume>,
    /// By stage.
    pub stages: BTreeMap<String, Volume>,
    /// By rule, in the order of the policy, with how many requests each decided about.
    pub rules: Vec<ByRule>,
    /// Requests that no rule is about; nothing is recorded of them.
    pub no_rule: u64,
    /// Bodies that the policy wants and that were not kept, so that their size is not known.
    pub missing_bodies: u64,
    /// The requests whose response has begun: what of their arrival there is to say has been said.
    #[serde(skip)]
    begun: HashSet<u64>,
    /// Where lines are written to see how long they are.
    #[serde(skip)]
    lines: Lines,
}

/// What one rule stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByRule {
    /// Its level.
    pub level: String,
    /// How many requests it decided about.
    pub requests: u64,
    /// What would have been recorded of them.
    #[serde(flatten)]
    pub volume: Volume,
}

impl Outcome {
    /// Takes in an event that was kept: of the end of a request, or of the beginning of a long response.
    pub fn see(&mut self, policy: &Policy, mut event: Event) {
        let user = User { name: event.user.username.clone(), groups: event.user.groups.clone(), ..User::default() };
        let info = info(&event);
        let decided = policy.decide(Some(&user), &info);
        let is_end = matches!(event.stage, Stage::ResponseComplete | Stage::Panic);
        if let Some(time) = event.request_received_timestamp {
            self.since = Some(self.since.map_or(time, |since| since.min(time)));
            self.until = Some(self.until.map_or(time, |until| until.max(time)));
        }
        self.requests += u64::from(is_end);
        let Some((rule, scope)) = decided else {
            self.no_rule += u64::from(is_end);
            return;
        };
        if self.rules.len() <= rule {
            self.rules.resize_with(rule + 1, ByRule::default);
        }
        self.rules[rule].level = format!("{:?}", scope.level);
        self.rules[rule].requests += u64::from(is_end);
        if scope.level == Level::None {
            return;
        }
        let (stage, code) = (event.stage, event.code());
        let missing = prune(&mut event, scope);
        if !scope.omit_stages.contains(stage) && stage != Stage::RequestReceived {
            self.missing_bodies += missing;
            self.count(rule, &event);
        }
        // Its arrival is not kept, but everything that would be said of it is. A watch may be under way for long; of a request whose
        // sender nobody knows there is no arrival.
        let id = hash(&event.audit_id);
        let is_first = if is_end { !self.begun.remove(&id) } else { code != 401 && self.begun.insert(id) };
        if is_first && !scope.omit_stages.contains(Stage::RequestReceived) {
            event.stage = Stage::RequestReceived;
            (event.response_status, event.request_object, event.response_object) = (None, None, None);
            // Nobody had been impersonated yet.
            (event.impersonated_user, event.authentication_metadata) = (None, None);
            event.annotations.clear();
            event.object_ref = event.object_ref.take().map(|object| as_asked(object, &event.request_uri));
            self.count(rule, &event);
        }
    }

    fn count(&mut self, rule: usize, event: &Event) {
        self.lines.clear();
        self.lines.add(event);
        let bytes = self.lines.len() as u64;
        self.total.add(bytes);
        self.levels.entry(event.level.name().to_owned()).or_default().add(bytes);
        self.stages.entry(event.stage.name().to_owned()).or_default().add(bytes);
        self.rules[rule].volume.add(bytes);
    }
}

/// Leaves what an event would have; answers how many bodies it should have and has not.
fn prune(event: &mut Event, scope: Scope) -> u64 {
    let kept = std::mem::replace(&mut event.level, scope.level);
    event.trace = None;
    let writes = matches!(&*event.verb, "create" | "update" | "patch");
    let answers = event.object_ref.is_some() && event.stage == Stage::ResponseComplete && event.verb != "watch";
    let bodies = [(Level::Request, &mut event.request_object, writes), (Level::RequestResponse, &mut event.response_object, answers)];
    let mut missing = 0;
    for (from, body, expected) in bodies {
        match body {
            _ if scope.level < from => *body = None,
            Some(known) if scope.omit_managed_fields => {
                if let Some(less) = without_managed_fields(known) {
                    *known = less;
                }
            }
            Some(_) => {}
            None => missing += u64::from(expected && kept < from),
        }
    }
    missing
}

/// What the path says of an object: its body had not been read yet.
fn as_asked(object: ObjectReference, uri: &str) -> ObjectReference {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let info = crate::request::parse("GET", path, query);
    ObjectReference { name: info.name, uid: String::new(), resource_version: String::new(), ..object }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn without_managed_fields(body: &Json) -> Option<Json> {
    let mut value = body.value()?;
    let strip = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    strip(&mut value);
    value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(strip);
    Some(Json::from(&value))
}

/// The request of an event, in the terms that rules are about.
fn info(event: &Event) -> RequestInfo {
    let known = [
        "get",
        "list",
        "watch",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
        "head",
        "post",
        "put",
        "options",
        "connect",
        "trace",
    ];
    let verb = known.into_iter().find(|verb| *verb == event.verb).unwrap_or_default();
    let path = event.request_uri.split('?').next().unwrap_or_default().to_owned();
    let mut info = RequestInfo { path, verb, ..RequestInfo::default() };
    if let Some(object) = &event.object_ref {
        info.is_resource = true;
        info.group = object.api_group.clone();
        info.version = object.api_version.clone();
        info.namespace = object.namespace.clone();
        info.resource = object.resource.clone();
        info.subresource = object.subresource.clone();
        info.name = object.name.clone();
    }
    info
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:kube-scheduler]
- level: RequestResponse
  omitManagedFields: true
  resources:
  - group: apps
    resources: [deployments]
- level: Metadata
  omitStages: []
  resources:
  - group: ''
";

    fn event(user: &str, verb: &str, group: &str, resource: &str) -> Event {
        serde_json::from_value(json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": "a", "stage": "ResponseComplete",
            "requestURI": "/x", "verb": verb, "user": {"username": user}, "objectRef": {"resource": resource, "apiGroup": group},
            "responseStatus": {"metadata": {}, "code": 200}, "responseObject": {"metadata": {"name": "x", "managedFields": [{"manager": "m"}]}},
            "trace": {"took": 5},
        }))
        .unwrap()
    }

    #[test]
    fn each_request_counts_for_the_rule_that_decides_about_it() {
        let policy = Policy::parse(POLICY.as_bytes()).unwrap();
        let mut outcome = Outcome::default();
        outcome.see(&policy, event("system:kube-scheduler", "get", "", "pods"));
        outcome.see(&policy, event("jane", "get", "apps", "deployments"));
        outcome.see(&policy, event("jane", "get", "", "pods"));
        outcome.see(&policy, event("jane", "get", "batch", "jobs"));
        assert_eq!((outcome.requests, outcome.no_rule, outcome.total.events), (4, 1, 2));
        assert_eq!(
            outcome.rules.iter().map(|rule| (rule.level.as_str(), rule.requests, rule.volume.events)).collect::<Vec<_>>(),
            [("None", 1, 0), ("RequestResponse", 1, 1), ("Metadata", 1, 1)]
        );
        let with_body = Event { trace: None, ..event("jane", "get", "apps", "deployments") };
        let whole = serde_json::to_string(&with_body).unwrap().len() as u64 + 1;
        let managed = ",\"managedFields\":[{\"manager\":\"m\"}]".len() as u64;
        assert_eq!(outcome.levels["RequestResponse"].bytes, whole - managed);
        assert!(outcome.levels["Metadata"].bytes < whole);
        assert_eq!(outcome.missing_bodies, 0);
    }

    #[test]
    fn a_watch_under_way_has_arrived_and_one_that_is_over_has_arrived_once() {
        let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
        let policy = Policy::parse(text.as_bytes()).unwrap();
        let mut outcome = Outcome::default();
        let begun = |id: &str| Event { stage: Stage::ResponseStarted, audit_id: id.into(), ..event("jane", "watch", "", "pods") };
        let over = |id: &str| Event { stage: Stage::ResponseComplete, ..begun(id) };
        for kept in [begun("one"), begun("two"), over("one"), over("three")] {
            outcome.see(&policy, kept);
        }
        let counts: Vec<u64> = ["RequestReceived", "ResponseStarted", "ResponseComplete"].map(|stage| outcome.stages[stage].events).into();
        assert_eq!(counts, [3, 2, 2]);
    }

    #[test]
    fn arrivals_are_counted_where_the_policy_wants_them_and_missing_bodies_are_told() {
        let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: RequestResponse}]}";
        let policy = Policy::parse(text.as_bytes()).unwrap();
        let mut outcome = Outcome::default();
        let kept = Event { level: Level::Metadata, response_object: None, ..event("jane", "create", "", "pods") };
        outcome.see(&policy, kept);
        assert_eq!(outcome.total.events, 2);
        assert_eq!((outcome.stages["RequestReceived"].events, outcome.stages["ResponseComplete"].events), (1, 1));
        assert_eq!(outcome.missing_bodies, 2);
    }
}
