//! The scheduling framework: the points at which plugins take part in placing a Pod, as traits.
//!
//! A plugin implements the traits of the points it cares about and is listed in a [`Profile`]. Everything up to Permit is plain,
//! synchronous logic over a [`Snapshot`]; only PreBind and Bind may talk to the API.

mod cycle_state;
mod diagnosis;
mod profile;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

pub use cycle_state::CycleState;
pub use diagnosis::Diagnosis;
pub use profile::Profile;

use super::cache::Snapshot;
use super::event::{ClusterEvent, QueueingHint};
use super::info::{NodeInfo, PodInfo};
use super::queue::QueuedPod;

/// The best score a plugin can give a node.
pub const MAX_NODE_SCORE: i64 = 100;

/// How a plugin says no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// How final it is.
    pub code: Code,
    /// Why, in words that end up in the FailedScheduling event.
    pub reasons: Vec<Cow<'static, str>>,
    /// Which plugin said it (set by the profile).
    pub plugin: &'static str,
}

/// How final a rejection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Not now; removing Pods from the node could help.
    Unschedulable,
    /// Not now, and preemption would not help.
    UnschedulableAndUnresolvable,
    /// The plugin itself failed.
    Error,
}

impl Rejection {
    /// Not now; removing Pods from the node could help.
    #[must_use]
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code: Code::Unschedulable, reasons: vec![reason.into()], plugin: "" }
    }

    /// Not now, and preemption would not help.
    #[must_use]
    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code: Code::UnschedulableAndUnresolvable, reasons: vec![reason.into()], plugin: "" }
    }

    /// The plugin itself failed.
    #[must_use]
    pub fn error(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code: Code::Error, reasons: vec![reason.into()], plugin: "" }
    }

    /// The same rejection, signed.
    #[must_use]
    pub fn by(mut self, plugin: &'static str) -> Self {
        self.plugin = plugin;
        self
    }

    /// All reasons in one line.
    #[must_use]
    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }
}

/// Why each node that was looked at did not do.
pub type NodeStatuses = HashMap<String, Rejection>;

/// What every plugin has.
pub trait Plugin: Send + Sync {
    /// The name by which profiles and diagnoses know it.
    fn name(&self) -> &'static str;

    /// Asked when a Pod that this plugin turned away might be helped by an event. Saying `Queue` too often only costs time.
    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> QueueingHint {
        let _ = (pod, event);
        QueueingHint::Queue
    }
}

/// Orders the active queue. A profile set has exactly one.
pub trait QueueSort: Plugin {
    /// Whether `a` goes first.
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool;
}

/// Decides whether a Pod may enter the active queue at all.
pub trait PreEnqueue: Plugin {
    /// An error keeps the Pod out until it changes.
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Rejection>;
}

/// What a PreFilter has found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreFilterOutcome {
    /// The Filter of the same plugin has nothing to say about this Pod.
    Skip,
    /// Go on with all nodes.
    All,
    /// Only these nodes can do.
    Only(HashSet<String>),
}

/// Looks at the Pod and the whole cluster once, before nodes are filtered.
pub trait PreFilter: Plugin {
    /// Works out what Filter needs, or turns the Pod away.
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Result<PreFilterOutcome, Rejection>;

    /// Adjusts the state for a what-if in which `added` runs on `node` too.
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) {
        let _ = (state, pod, added, node, snapshot);
    }

    /// Adjusts the state for a what-if in which `removed` no longer runs on `node`.
    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) {
        let _ = (state, pod, removed, node, snapshot);
    }
}

/// Decides whether a Pod can run on a node.
pub trait Filter: Plugin {
    /// An error rules the node out.
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection>;
}

/// What a PostFilter has come up with for a Pod that fits nowhere.
#[derive(Clone, Debug, Default)]
pub struct PostFilterOutcome {
    /// The node that will do once the victims are gone; `Some("")` clears an earlier nomination.
    pub nominated_node_name: Option<String>,
    /// Pods to be removed from it.
    pub victims: Vec<Arc<PodInfo>>,
    /// What to add to the diagnosis.
    pub message: String,
}

/// Looks for a way out when no node is feasible.
pub trait PostFilter: Plugin {
    /// Finds something, or says why nothing can be found.
    fn post_filter(&self, state: &CycleState, pod: &Arc<PodInfo>, statuses: &NodeStatuses, cluster: &Cluster<'_>) -> PostFilterOutcome;
}

/// What a PostFilter may look at.
pub struct Cluster<'a> {
    /// The profile, to run filters in a what-if.
    pub profile: &'a Profile,
    /// All nodes.
    pub snapshot: &'a Snapshot,
    /// Pods waiting for a node that was cleared for them, by node.
    pub nominated: &'a HashMap<String, Vec<Arc<PodInfo>>>,
    /// Disruption budgets.
    pub budgets: &'a [Arc<k8s_openapi::api::policy::v1::PodDisruptionBudget>],
}

/// Looks at the feasible nodes together, before they are scored one by one.
pub trait PreScore: Plugin {
    /// Works out what Score needs; `false` says that Score has nothing to add for this Pod.
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, nodes: &[Arc<NodeInfo>], snapshot: &Snapshot) -> bool;
}

/// Ranks a feasible node.
pub trait Score: Plugin {
    /// Higher is better; outside 0 to 100 only if `normalize` brings it back.
    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> i64;

    /// Brings the scores of all nodes into 0 to 100. `scores` are in the order of `nodes`.
    fn normalize(&self, state: &CycleState, pod: &PodInfo, nodes: &[Arc<NodeInfo>], scores: &mut [i64]) {
        let _ = (state, pod, nodes, scores);
    }
}

/// Keeps account of something outside the snapshot when a Pod is given a node, and gives it back when that comes to nothing.
pub trait Reserve: Plugin {
    /// Takes; an error undoes the placement.
    fn reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str) -> Result<(), Rejection>;
    /// Gives back; also called after a failed `reserve`.
    fn unreserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str);
}

/// What a Permit plugin says.
#[derive(Debug)]
pub enum Permission {
    /// Go on.
    Allow,
    /// Wait until the plugin has decided, at most this long.
    Wait {
        /// After which the Pod is turned away.
        timeout: Duration,
        /// Where the decision will come from; dropping the other end is a no.
        decision: tokio::sync::oneshot::Receiver<Result<(), Rejection>>,
    },
}

/// Holds back a binding, for instance until a whole gang has places.
pub trait Permit: Plugin {
    /// Lets through, holds back, or turns away.
    fn permit(&self, state: &CycleState, pod: &PodInfo, node: &str) -> Result<Permission, Rejection>;
}

/// Prepares something in the cluster before a Pod is bound.
pub trait PreBind: Plugin {
    /// An error undoes the placement.
    fn pre_bind(&self, pod: Arc<PodInfo>, node: String) -> BoxFuture<'static, Result<(), Rejection>>;
}

/// Writes the binding.
pub trait Bind: Plugin {
    /// `None` leaves the Pod to the next Bind plugin.
    fn bind(&self, pod: Arc<PodInfo>, node: String) -> BoxFuture<'static, Option<Result<(), Rejection>>>;
}

/// Told when a Pod has been bound.
pub trait PostBind: Plugin {
    /// For information only.
    fn post_bind(&self, pod: &PodInfo, node: &str);
}
