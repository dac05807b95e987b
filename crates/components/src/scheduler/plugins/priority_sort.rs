//! PrioritySort: Pods of higher priority first, then those that have waited longer.

use crate::scheduler::framework::{Plugin, QueueSort};
use crate::scheduler::queue::QueuedPod;

/// See the module's description.
pub struct PrioritySort;

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        "PrioritySort"
    }
}

impl QueueSort for PrioritySort {
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool {
        (b.info.priority, a.timestamp) < (a.info.priority, b.timestamp)
    }
}
