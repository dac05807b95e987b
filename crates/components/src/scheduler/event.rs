//! Changes in the cluster that may make a waiting Pod schedulable, as plugins are asked about them (queueing hints).

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::info::PodInfo;

/// Something happened that could matter to a Pod that did not fit.
#[derive(Clone, Debug)]
pub enum ClusterEvent {
    /// A node appeared.
    NodeAdded(Arc<Node>),
    /// A node changed.
    NodeUpdated {
        /// What it was.
        old: Arc<Node>,
        /// What it is now.
        new: Arc<Node>,
    },
    /// A node is gone.
    NodeDeleted(Arc<Node>),
    /// A Pod was bound by somebody.
    AssignedPodAdded(Arc<PodInfo>),
    /// A bound Pod changed (its labels, its resources, or it started to terminate).
    AssignedPodUpdated(Arc<PodInfo>),
    /// A bound Pod is gone or has finished.
    AssignedPodDeleted(Arc<PodInfo>),
    /// The labels of a namespace changed.
    NamespaceChanged,
}

impl ClusterEvent {
    /// The node in its newest form, where the event is about one.
    #[must_use]
    pub fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Self::NodeAdded(node) | Self::NodeUpdated { new: node, .. } => Some(node),
            _ => None,
        }
    }
}

/// Whether a plugin that turned a Pod away thinks an event is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueingHint {
    /// Try again.
    Queue,
    /// It would only be turned away again.
    Skip,
}

impl From<bool> for QueueingHint {
    fn from(worth_it: bool) -> Self {
        if worth_it { Self::Queue } else { Self::Skip }
    }
}

/// Whether a node changed in anything that filters look at; heartbeats and image lists alone do not count.
#[must_use]
pub fn node_change_matters(old: &Node, new: &Node) -> bool {
    let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
    let conditions = |node: &Node| -> Vec<(String, String)> {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().map(|c| (c.type_.clone(), c.status.clone())).collect()
    };
    let scheduling = |node: &Node| {
        let spec = node.spec.as_ref();
        (spec.and_then(|spec| spec.unschedulable).unwrap_or_default(), spec.and_then(|spec| spec.taints.clone()).unwrap_or_default())
    };
    old.metadata.labels != new.metadata.labels
        || allocatable(old) != allocatable(new)
        || scheduling(old) != scheduling(new)
        || conditions(old) != conditions(new)
}
