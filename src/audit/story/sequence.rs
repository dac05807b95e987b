//! What really followed from a write, as messages between the parties of a cluster: the request, the change that was persisted, the
//! watch event that told a component, its reconcile, the requests it made of it, and so on until the object is ready.
//!
//! Nothing is guessed. A message is there because a request was recorded; a watch event and a reconcile are there because the
//! request names the revision that caused it; a step of the container runtime because the kubelet's status says so.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::actor::{Lane, short};
use super::ready::{runtime_steps, state};
use crate::audit::Event;

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrow {
    /// A request.
    Call,
    /// A watch event.
    Watch,
    /// A change that is persisted.
    Persist,
    /// A component sets to work.
    Reconcile,
}

/// One message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// When.
    pub at: Timestamp,
    /// Microseconds since the first message.
    pub after: i64,
    /// Who sends it.
    pub from: Lane,
    /// Whom to.
    pub to: Lane,
    /// How.
    pub arrow: Arrow,
    /// What.
    pub text: String,
    /// Which of the parties of a lane it is: a user, a controller, a node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub who: String,
    /// The request that it belongs to.
    #[serde(rename = "auditID", default, skip_serializing_if = "String::is_empty")]
    pub audit_id: String,
    /// The revision that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Whether it was refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

/// The whole story.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sequence {
    /// What it is about: `deployments/web`.
    pub subject: String,
    /// Whether the object became ready, and after how many microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_after: Option<i64>,
    /// Whether the object is gone now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    /// Where it stands, if it is not ready.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub standing: String,
    /// The messages in order.
    pub messages: Vec<Message>,
    /// How many requests about further objects of the same kind and owner are not told.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// One recorded request, with the object as it left it and as it found it, where those are still kept.
#[derive(Clone, Debug)]
pub struct Deed {
    /// The request.
    pub event: Arc<Event>,
    /// The object after it.
    pub after: Option<Arc<Value>>,
    /// The object before it.
    pub before: Option<Arc<Value>>,
}

impl Deed {
    /// The revision that it wrote.
    pub fn revision(&self) -> Option<u64> {
        Some(self.event.trace.as_ref()?.wrote.as_ref()?.revision)
    }

    fn received(&self) -> Timestamp {
        self.event.request_received_timestamp.unwrap_or_default()
    }

    /// When its change was persisted.
    fn persisted(&self) -> Timestamp {
        let steps = self.event.trace.as_ref().map(|story| story.steps.as_slice()).unwrap_or_default();
        let store = steps.iter().rev().find(|step| step.hop == "store");
        let after = store.and_then(|step| SignedDuration::try_from(step.at).ok()).unwrap_or_default();
        self.received().checked_add(after).unwrap_or_else(|_| self.received())
    }

    /// `Pod web-x`, as watch events name it.
    pub fn object(&self) -> String {
        let object = self.event.object_ref.clone().unwrap_or_default();
        match self.event.trace.as_ref().and_then(|story| story.wrote.as_ref()) {
            Some(wrote) if !wrote.kind.is_empty() => format!("{} {}", wrote.kind, wrote.name),
            Some(wrote) => format!("{} {}", object.resource, wrote.name),
            None => format!("{} {}", object.resource, object.name),
        }
    }

    /// The watch event that tells of its change.
    pub fn watch_event(&self) -> &'static str {
        let deleted = self.event.trace.as_ref().and_then(|story| story.wrote.as_ref()).is_some_and(|wrote| wrote.deleted);
        match (deleted, &self.after, &self.before) {
            (true, ..) => "DELETED",
            (_, Some(_), None) => "ADDED",
            // Its states are not kept any more.
            (_, None, None) if self.event.verb == "create" || self.event.code() == 201 => "ADDED",
            _ => "MODIFIED",
        }
    }

    /// `patch pods/web-x/status: Running, Ready`.
    fn call(&self) -> String {
        let object = self.event.object_ref.clone().unwrap_or_default();
        let wrote = self.event.trace.as_ref().and_then(|story| story.wrote.as_ref());
        let name = wrote.map(|wrote| wrote.name.as_str()).filter(|name| !name.is_empty()).unwrap_or(&object.name);
        let node = self.after.as_ref().and_then(|after| after["spec"]["nodeName"].as_str());
        let mut text = match (object.subresource.as_str(), node) {
            ("binding", Some(node)) => return format!("bind {}/{name} to {node}", object.resource),
            // The server was to make up a name, and did not get to it.
            ("", _) if name.is_empty() => format!("{} {}", self.event.verb, object.resource),
            ("", _) => format!("{} {}/{name}", self.event.verb, object.resource),
            (subresource, _) => format!("{} {}/{name}/{subresource}", self.event.verb, object.resource),
        };
        if object.subresource == "status"
            && let Some(after) = &self.after
        {
            let state = state(after);
            if !state.is_empty() {
                text = format!("{text}: {state}");
            }
        }
        if self.event.code() >= 400 {
            let reason = self.event.response_status.as_ref().map(|status| status.message.as_str()).unwrap_or_default();
            text = format!("{text} ✗ {} {reason}", self.event.code());
        }
        text
    }
}

/// What is known of a story besides its deeds.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// What it is about.
    pub subject: String,
    /// The revision at which the object became ready.
    pub ready: Option<u64>,
    /// Whether what came after that is told too.
    pub whole: bool,
    /// Whether the object is gone.
    pub deleted: bool,
    /// Where it stands, in a few words.
    pub standing: String,
    /// How many requests about further objects alike are not told.
    pub left_out: usize,
    /// What revisions wrote that are no part of the story, but made somebody act: `Pod web-x`, and the watch event.
    pub known: HashMap<u64, (String, &'static str)>,
}

impl Sequence {
    /// The parties, from left to right; who had no part in it gets no lane.
    pub fn lanes(&self) -> Vec<Lane> {
        let has_part = |lane: &Lane| self.messages.iter().any(|message| message.from == *lane || message.to == *lane);
        Lane::ALL.into_iter().filter(has_part).collect()
    }

    /// How it ended, in a sentence.
    pub fn ending(&self, elapsed: impl Fn(i64) -> String) -> String {
        let subject = &self.subject;
        match (self.ready_after, self.deleted) {
            (Some(after), false) => format!("{subject} is ready after {}", elapsed(after)),
            (Some(after), true) => format!("{subject} was ready after {}; it is deleted now", elapsed(after)),
            (None, true) => format!("{subject} is deleted"),
            (None, false) if !self.messages.is_empty() && self.messages.iter().all(|message| message.refused) => {
                format!("{subject} was refused")
            }
            (None, false) if self.standing.is_empty() => format!("{subject} is not ready"),
            (None, false) => format!("{subject} is not ready: {}", self.standing),
        }
    }
}

/// Tells the deeds as a sequence, no further than to where the object is ready unless the whole story is wanted.
pub fn sequence(mut deeds: Vec<Deed>, frame: Frame) -> Sequence {
    let Frame { subject, ready, whole, deleted, standing, left_out, known } = frame;
    // Revisions are the order of writes; a refused request stands where it was made.
    deeds.sort_by_key(|deed| (deed.received(), deed.revision().unwrap_or(u64::MAX)));
    if let Some(ready) = ready.filter(|_| !whole) {
        let until = deeds.iter().find(|deed| deed.revision() == Some(ready)).map(Deed::persisted);
        // What was refused has no revision, and is part of the way all the same.
        let is_before = |deed: &Deed| until.is_some_and(|until| deed.received() <= until);
        deeds.retain(|deed| deed.revision().map_or_else(|| is_before(deed), |revision| revision <= ready));
    }
    let written = written(&deeds);
    let mut messages = Vec::new();
    let mut told = HashSet::new();
    for deed in &deeds {
        tell(deed, &written, &known, &mut told, &mut messages);
    }
    messages.sort_by_key(|message: &Message| message.at);
    let begin = messages.first().map(|message| message.at).unwrap_or_default();
    for message in &mut messages {
        message.after = (message.at.as_microsecond()) - begin.as_microsecond();
    }
    let ready_after = ready.and_then(|ready| written.get(&ready)).map(|(_, _, at)| at.as_microsecond() - begin.as_microsecond());
    let standing = if ready_after.is_some() || deleted { String::new() } else { standing };
    Sequence { subject, ready_after, deleted, standing, messages, left_out }
}

/// What each revision wrote, the watch event that tells of it, and when it was persisted.
///
/// A request learns a little late that its change is durable; by then a component may have acted upon it. So a change was persisted
/// before whatever it caused, and before every later revision.
fn written(deeds: &[Deed]) -> HashMap<u64, (String, &'static str, Timestamp)> {
    let mut acted_upon: HashMap<u64, Timestamp> = HashMap::new();
    for deed in deeds {
        if let Some(cause) = deed.event.trace.as_ref().and_then(|story| story.cause) {
            let first = acted_upon.entry(cause).or_insert_with(|| deed.received());
            *first = deed.received().min(*first);
        }
    }
    // A deletion that was imported has no revision, and those of several objects not the same one.
    let numbered = |deed: &Deed| deed.revision().filter(|revision| *revision > 0);
    let mut by_revision: Vec<(u64, &Deed)> = deeds.iter().filter_map(|deed| Some((numbered(deed)?, deed))).collect();
    by_revision.sort_by_key(|(revision, _)| std::cmp::Reverse(*revision));
    let mut latest = Timestamp::MAX;
    let mut found = HashMap::with_capacity(by_revision.len());
    for (revision, deed) in by_revision {
        let told = acted_upon.get(&revision).copied().unwrap_or(Timestamp::MAX);
        let before = latest.checked_sub(SignedDuration::from_micros(1)).unwrap_or(latest);
        latest = deed.persisted().min(told).min(before).max(deed.received());
        found.insert(revision, (deed.object(), deed.watch_event(), latest));
    }
    found
}

fn tell(
    deed: &Deed,
    written: &HashMap<u64, (String, &'static str, Timestamp)>,
    known: &HashMap<u64, (String, &'static str)>,
    told: &mut HashSet<(String, u64)>,
    messages: &mut Vec<Message>,
) {
    let user = deed.event.effective_user().username.as_str();
    let lane = Lane::of(user);
    let who = short(user).to_owned();
    let received = deed.received();
    let message = |at: Timestamp, from: Lane, to: Lane, arrow: Arrow, text: String| Message {
        at,
        after: 0,
        from,
        to,
        arrow,
        text,
        who: who.clone(),
        audit_id: deed.event.audit_id.clone(),
        revision: None,
        refused: false,
    };
    let cause = deed.event.trace.as_ref().and_then(|story| story.cause);
    let is_component = !matches!(lane, Lane::Client | Lane::ApiServer);
    if let Some(cause) = cause.filter(|_| is_component)
        && told.insert((user.to_owned(), cause))
    {
        // A cause that is not part of the story is told when its effect came.
        let (text, at) = match (written.get(&cause), known.get(&cause)) {
            (Some((object, event, at)), _) => (format!("{event} {object}"), *at),
            (None, Some((object, event))) => (format!("{event} {object}"), received),
            (None, None) => (format!("revision {cause}"), received),
        };
        let watch = message(at.min(received), Lane::ApiServer, lane, Arrow::Watch, text);
        messages.push(Message { revision: Some(cause), ..watch });
        messages.push(message(received, lane, lane, Arrow::Reconcile, format!("{who} reconciles")));
    }
    if lane == Lane::Kubelet
        && let Some(after) = deed.after.as_ref().filter(|after| after["kind"] == "Pod")
    {
        for step in runtime_steps(deed.before.as_deref(), after) {
            messages.push(message(received, Lane::Kubelet, Lane::Cri, Arrow::Call, step));
        }
    }
    let refused = deed.event.code() >= 400;
    let call = message(received, lane, Lane::ApiServer, Arrow::Call, deed.call());
    // The server's own writes are called by nobody.
    if lane != Lane::ApiServer {
        messages.push(Message { revision: deed.revision(), refused, ..call });
    }
    if let Some(revision) = deed.revision() {
        let at = written.get(&revision).map_or_else(|| deed.persisted(), |(_, _, at)| *at);
        let gone = if deed.watch_event() == "DELETED" { " removed" } else { "" };
        let number = if revision == 0 { String::new() } else { format!("revision {revision}: ") };
        let text = format!("{number}{}{gone}", deed.object());
        let persist = message(at, Lane::ApiServer, Lane::Store, Arrow::Persist, text);
        messages.push(Message { revision: Some(revision), ..persist });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::audit::Story;
    use crate::audit::event::{ObjectReference, ResponseStatus, UserInfo, Wrote};
    use crate::request::Step;

    fn deed(millis: i64, user: &str, verb: &str, resource: &str, wrote: (u64, &str, &str), cause: Option<u64>) -> Deed {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let store = Step {
            hop: "store".into(),
            name: "commit".into(),
            verdict: "revision".into(),
            detail: None,
            at: Duration::from_micros(400),
            took: Duration::from_micros(300),
        };
        let event = Event {
            verb: verb.to_owned().into(),
            user: UserInfo { username: user.into(), ..UserInfo::default() },
            object_ref: Some(ObjectReference { resource: resource.into(), subresource: subresource.into(), ..ObjectReference::default() }),
            response_status: Some(ResponseStatus { code: 200, ..ResponseStatus::default() }),
            request_received_timestamp: Timestamp::from_millisecond(1_800_000_000_000 + millis).ok(),
            trace: Some(Box::new(Story {
                steps: vec![store],
                wrote: Some(Wrote { revision: wrote.0, kind: wrote.1.into(), name: wrote.2.into(), ..Wrote::default() }),
                cause,
                ..Story::default()
            })),
            ..Event::default()
        };
        Deed { event: Arc::new(event), after: None, before: None }
    }

    /// A Deployment of one Pod from apply to Ready.
    pub fn rollout() -> Sequence {
        let controller = |name: &str| format!("system:serviceaccount:kube-system:{name}");
        let mut bind = deed(3, "system:kube-scheduler", "create", "pods/binding", (13, "Pod", "web-a-1"), Some(12));
        let pending = Arc::new(json!({"kind": "Pod", "spec": {"nodeName": "node-1"}, "status": {"phase": "Pending"}}));
        (bind.after, bind.before) = (Some(pending.clone()), Some(pending.clone()));
        let mut run = deed(5, "system:node:node-1", "patch", "pods/status", (14, "Pod", "web-a-1"), Some(13));
        let running = json!({"kind": "Pod", "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}});
        (run.after, run.before) = (Some(Arc::new(running)), Some(pending));
        let deeds = vec![
            deed(0, "jane", "create", "deployments", (10, "Deployment", "web"), None),
            deed(1, &controller("deployment-controller"), "create", "replicasets", (11, "ReplicaSet", "web-a"), Some(10)),
            deed(2, &controller("replicaset-controller"), "create", "pods", (12, "Pod", "web-a-1"), Some(11)),
            bind,
            run,
            deed(7, &controller("deployment-controller"), "update", "deployments/status", (15, "Deployment", "web"), Some(14)),
            deed(9, &controller("deployment-controller"), "update", "deployments/status", (99, "Deployment", "web"), Some(15)),
        ];
        sequence(deeds, Frame { subject: "deployments/web".into(), ready: Some(15), ..Frame::default() })
    }

    #[test]
    fn every_effect_comes_after_its_cause() {
        let told = rollout();
        let find = |arrow: Arrow, from: Lane, text: &str| {
            let found = told.messages.iter().position(|m| m.arrow == arrow && m.from == from && m.text.contains(text));
            found.unwrap_or_else(|| panic!("no {arrow:?} from {from:?} with {text:?} in {told:#?}"))
        };
        let order = [
            find(Arrow::Call, Lane::Client, "create deployments/web"),
            find(Arrow::Persist, Lane::ApiServer, "revision 10: Deployment web"),
            find(Arrow::Watch, Lane::ApiServer, "ADDED Deployment web"),
            find(Arrow::Reconcile, Lane::Controllers, "deployment-controller"),
            find(Arrow::Call, Lane::Controllers, "create replicasets/web-a"),
            find(Arrow::Call, Lane::Controllers, "create pods/web-a-1"),
            find(Arrow::Watch, Lane::ApiServer, "ADDED Pod web-a-1"),
            find(Arrow::Call, Lane::Scheduler, "bind pods/web-a-1 to node-1"),
            find(Arrow::Call, Lane::Kubelet, "RunPodSandbox: 10.0.0.1"),
            find(Arrow::Call, Lane::Kubelet, "patch pods/web-a-1/status: Running, Ready"),
            find(Arrow::Persist, Lane::ApiServer, "revision 15"),
        ];
        assert!(order.is_sorted(), "{order:?}");
        assert_eq!(told.ready_after, Some(7_400));
        assert!(told.messages.iter().all(|message| message.revision != Some(99)), "what came after Ready is another story");
    }

    #[test]
    fn a_change_is_persisted_before_it_is_acted_upon_and_before_later_ones() {
        let controller = "system:serviceaccount:kube-system:deployment-controller";
        let slow = |millis: i64, revision: u64, user: &str, cause: Option<u64>| {
            let mut deed = deed(millis, user, "create", "pods", (revision, "Pod", "p"), cause);
            let mut event = (*deed.event).clone();
            event.trace.as_mut().expect("a story").steps[0].at = Duration::from_millis(50);
            deed.event = Arc::new(event);
            deed
        };
        let deeds = vec![slow(0, 7, "jane", None), slow(1, 8, "jane", None), slow(5, 9, controller, Some(8))];
        let told = sequence(deeds, Frame::default());
        let persisted: Vec<_> = told.messages.iter().filter(|m| m.arrow == Arrow::Persist).map(|m| (m.revision, m.after)).collect();
        assert_eq!(persisted, [(Some(7), 4_999), (Some(8), 5_000), (Some(9), 55_000)]);
        let call = told.messages.iter().position(|m| m.from == Lane::Controllers && m.arrow == Arrow::Call);
        assert!(told.messages.iter().position(|m| m.revision == Some(8) && m.arrow == Arrow::Persist) < call, "{told:#?}");
    }

    #[test]
    fn deletions_without_a_revision_are_told_each_at_its_time_and_with_none() {
        let first = deed(0, "jane", "delete", "pods", (0, "Pod", "a"), None);
        let second = deed(9_000, "jane", "delete", "pods", (0, "Pod", "b"), None);
        let written = written(&[first.clone(), second.clone()]);
        let (mut told, mut messages) = (HashSet::new(), Vec::new());
        for deed in [&first, &second] {
            tell(deed, &written, &HashMap::new(), &mut told, &mut messages);
        }
        let persisted = messages.iter().filter(|message| message.arrow == Arrow::Persist);
        let persisted: Vec<_> = persisted.map(|message| (message.text.as_str(), message.at)).collect();
        assert_eq!(persisted, [("Pod a", first.persisted()), ("Pod b", second.persisted())]);
    }

    #[test]
    fn one_reconcile_is_told_once_however_many_requests_it_makes() {
        let replicas = "system:serviceaccount:kube-system:replicaset-controller";
        let deeds = (0..3).map(|n| deed(n, replicas, "create", "pods", (20 + n as u64, "Pod", "p"), Some(19))).collect();
        let known = HashMap::from([(19, ("ReplicaSet r".to_owned(), "MODIFIED"))]);
        let told = sequence(deeds, Frame { known, deleted: true, subject: "x".into(), ..Frame::default() });
        assert_eq!(told.messages[0].text, "MODIFIED ReplicaSet r", "what it was that made them act is known");
        assert_eq!(told.ending(|_| String::new()), "x is deleted");
        assert_eq!(told.messages.iter().filter(|message| message.arrow == Arrow::Watch).count(), 1);
        assert_eq!(told.messages.iter().filter(|message| message.arrow == Arrow::Call).count(), 3);
        assert_eq!(told.ready_after, None);
    }

    #[test]
    fn a_removal_is_told_as_one_and_so_is_its_watch_event() {
        let mut gone = deed(0, "jane", "delete", "pods", (7, "Pod", "p"), None);
        Arc::make_mut(&mut gone.event).trace.as_mut().and_then(|story| story.wrote.as_mut()).expect("a write").deleted = true;
        let replaced = deed(2, "system:serviceaccount:kube-system:replicaset-controller", "create", "pods", (8, "Pod", "q"), Some(7));
        let told = sequence(vec![gone, replaced], Frame::default());
        let texts: Vec<&str> = told.messages.iter().map(|message| message.text.as_str()).collect();
        assert_eq!(texts[..3], ["delete pods/p", "revision 7: Pod p removed", "DELETED Pod p"], "{texts:?}");
    }

    #[test]
    fn revisions_are_told_in_their_order_also_where_the_later_one_was_asked_for_first() {
        let controller = "system:serviceaccount:kube-system:job-controller";
        let slow = |millis: i64, revision: u64| {
            let mut deed = deed(millis, controller, "update", "jobs/status", (revision, "Job", "j"), None);
            Arc::make_mut(&mut deed.event).trace.as_mut().expect("a story").steps[0].at = Duration::from_millis(20);
            deed
        };
        let told = sequence(vec![slow(0, 12), slow(3, 10)], Frame::default());
        let persisted = told.messages.iter().filter(|message| message.arrow == Arrow::Persist);
        assert_eq!(persisted.map(|message| message.revision).collect::<Vec<_>>(), [Some(10), Some(12)]);
    }

    #[test]
    fn what_was_refused_on_the_way_to_ready_is_part_of_the_story() {
        let refused = |millis: i64| {
            let mut deed = deed(millis, "system:serviceaccount:kube-system:replicaset-controller", "create", "pods", (0, "", ""), Some(10));
            let event = Arc::make_mut(&mut deed.event);
            event.trace.as_mut().expect("a story").wrote = None;
            event.response_status = Some(ResponseStatus { code: 403, message: "exceeded quota".into(), ..ResponseStatus::default() });
            deed
        };
        let deeds = vec![deed(0, "jane", "create", "deployments", (10, "Deployment", "web"), None), refused(1), refused(9)];
        let deeds = deeds.into_iter().chain([deed(5, "jane", "update", "deployments", (15, "Deployment", "web"), None)]).collect();
        let told = sequence(deeds, Frame { ready: Some(15), ..Frame::default() });
        let refusals: Vec<_> = told.messages.iter().filter(|message| message.refused).map(|m| (m.text.as_str(), m.after)).collect();
        assert_eq!(refusals, [("create pods ✗ 403 exceeded quota", 1_000)], "and what was refused later is not");
    }
}
