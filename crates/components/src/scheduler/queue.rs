//! The scheduling queue: Pods that can be tried now, Pods that wait out a back-off, and Pods that wait for something to change.
//!
//! Plain data with the time passed in; the loop in `run` owns it and asks it what is next and when to look again.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::framework::QueueSort;
use super::info::PodInfo;
use crate::clock::later as after;

/// The first back-off of a Pod that failed to be placed.
pub const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// The longest back-off.
pub const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// How long a Pod waits for an event before it is tried again anyway.
pub const MAX_IN_UNSCHEDULABLE: Duration = Duration::from_secs(5 * 60);

/// A Pod in the queue with its history.
#[derive(Clone, Debug)]
pub struct QueuedPod {
    /// The Pod.
    pub info: Arc<PodInfo>,
    /// When it last entered the queue.
    pub timestamp: Timestamp,
    /// How often it has been tried.
    pub attempts: u32,
    /// Who turned it away last.
    pub unschedulable_plugins: BTreeSet<&'static str>,
}

impl QueuedPod {
    /// How long the next back-off lasts: one second, doubling with every attempt up to ten. None without an attempt that counts.
    #[must_use]
    pub fn backoff(&self) -> Duration {
        if self.attempts == 0 {
            return Duration::ZERO;
        }
        let doublings = self.attempts.saturating_sub(1).min(8);
        (INITIAL_BACKOFF * 2u32.pow(doublings)).min(MAX_BACKOFF)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Active,
    BackOff,
    Unschedulable,
    Gated,
}

#[derive(Debug)]
struct Entry {
    pod: QueuedPod,
    place: Place,
    /// Changes whenever the Pod moves, so that what a heap still holds of earlier places is recognised as stale.
    ticket: u64,
}

struct Active {
    pod: QueuedPod,
    ticket: u64,
    sort: Arc<dyn QueueSort>,
}

impl Ord for Active {
    fn cmp(&self, other: &Self) -> Ordering {
        // A binary heap pops its greatest; what goes first is the greatest.
        if self.sort.less(&self.pod, &other.pod) {
            Ordering::Greater
        } else if self.sort.less(&other.pod, &self.pod) {
            Ordering::Less
        } else {
            other.ticket.cmp(&self.ticket)
        }
    }
}
impl PartialOrd for Active {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Active {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Active {}

/// How many Pods wait in each place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Ready to be tried.
    pub active: usize,
    /// Waiting out a back-off.
    pub backoff: usize,
    /// Waiting for something to change.
    pub unschedulable: usize,
    /// Kept out by a PreEnqueue plugin.
    pub gated: usize,
}

/// See the module's description.
pub struct SchedulingQueue {
    sort: Arc<dyn QueueSort>,
    entries: HashMap<String, Entry>,
    active: BinaryHeap<Active>,
    backoff: BinaryHeap<Reverse<(Timestamp, u64, String)>>,
    tickets: u64,
}

impl SchedulingQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(sort: Arc<dyn QueueSort>) -> Self {
        Self { sort, entries: HashMap::new(), active: BinaryHeap::new(), backoff: BinaryHeap::new(), tickets: 0 }
    }

    fn put(&mut self, pod: QueuedPod, place: Place, until: Timestamp) {
        self.tickets += 1;
        let ticket = self.tickets;
        match place {
            Place::Active => self.active.push(Active { pod: pod.clone(), ticket, sort: self.sort.clone() }),
            Place::BackOff => self.backoff.push(Reverse((until, ticket, pod.info.uid.clone()))),
            Place::Unschedulable | Place::Gated => {}
        }
        self.entries.insert(pod.info.uid.clone(), Entry { pod, place, ticket });
    }

    /// Adds a Pod that has not been tried yet.
    pub fn add(&mut self, info: Arc<PodInfo>, gated: bool, now: Timestamp) {
        let pod = QueuedPod { info, timestamp: now, attempts: 0, unschedulable_plugins: BTreeSet::new() };
        self.put(pod, if gated { Place::Gated } else { Place::Active }, now);
    }

    /// Takes over a newer version of a waiting Pod. A change of its spec or labels may be what it was waiting for.
    pub fn update(&mut self, info: Arc<PodInfo>, gated: bool, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(&info.uid) else {
            self.add(info, gated, now);
            return;
        };
        let changed = entry.pod.info.pod.spec != info.pod.spec || entry.pod.info.pod.metadata.labels != info.pod.metadata.labels;
        entry.pod.info = info;
        let place = entry.place;
        let pod = entry.pod.clone();
        match place {
            Place::Gated if !gated => self.put(QueuedPod { timestamp: now, ..pod }, Place::Active, now),
            Place::Unschedulable if changed => self.requeue(pod, now),
            // The heap of the active queue holds a copy, so that it must be told of the new version.
            Place::Active => self.put(pod, Place::Active, now),
            _ => {}
        }
    }

    /// Forgets a Pod.
    pub fn remove(&mut self, uid: &str) {
        self.entries.remove(uid);
    }

    /// The next Pod to try.
    pub fn pop(&mut self) -> Option<QueuedPod> {
        while let Some(next) = self.active.pop() {
            let uid = &next.pod.info.uid;
            if self.entries.get(uid).is_some_and(|entry| entry.ticket == next.ticket) {
                let mut pod = self.entries.remove(uid)?.pod;
                pod.attempts += 1;
                return Some(pod);
            }
        }
        None
    }

    /// Puts a Pod aside until something changes.
    pub fn park(&mut self, mut pod: QueuedPod, rejected_by: BTreeSet<&'static str>, now: Timestamp) {
        pod.timestamp = now;
        pod.unschedulable_plugins = rejected_by;
        self.put(pod, Place::Unschedulable, now);
    }

    /// Lets a Pod wait out its back-off: what stopped it was no verdict on the Pod.
    pub fn back_off(&mut self, mut pod: QueuedPod, now: Timestamp) {
        pod.timestamp = now;
        let until = after(now, pod.backoff());
        self.put(pod, Place::BackOff, until);
    }

    fn requeue(&mut self, pod: QueuedPod, now: Timestamp) {
        let until = after(pod.timestamp, pod.backoff());
        if until > now {
            self.put(pod, Place::BackOff, until);
        } else {
            self.put(pod, Place::Active, now);
        }
    }

    /// Puts a parked or backing-off Pod into the active queue at once.
    pub fn activate(&mut self, uid: &str, now: Timestamp) {
        if let Some(entry) = self.entries.get(uid).filter(|entry| matches!(entry.place, Place::BackOff | Place::Unschedulable)) {
            let pod = entry.pod.clone();
            self.put(pod, Place::Active, now);
        }
    }

    /// Moves every parked Pod for which `worth_it` says yes.
    pub fn move_all(&mut self, now: Timestamp, mut worth_it: impl FnMut(&QueuedPod) -> bool) {
        let moving: Vec<QueuedPod> = self
            .entries
            .values()
            .filter(|entry| entry.place == Place::Unschedulable && worth_it(&entry.pod))
            .map(|entry| entry.pod.clone())
            .collect();
        for pod in moving {
            self.requeue(pod, now);
        }
    }

    /// Moves what has waited long enough, and says when to look again.
    pub fn flush(&mut self, now: Timestamp) -> Option<Timestamp> {
        while let Some(Reverse((until, ticket, uid))) = self.backoff.peek() {
            let current = self.entries.get(uid).filter(|entry| entry.ticket == *ticket).map(|entry| entry.pod.clone());
            if current.is_some() && *until > now {
                break;
            }
            self.backoff.pop();
            if let Some(pod) = current {
                self.put(pod, Place::Active, now);
            }
        }
        let overdue = |entry: &Entry| after(entry.pod.timestamp, MAX_IN_UNSCHEDULABLE);
        let stale: Vec<QueuedPod> = self
            .entries
            .values()
            .filter(|entry| entry.place == Place::Unschedulable && overdue(entry) <= now)
            .map(|entry| entry.pod.clone())
            .collect();
        for pod in stale {
            self.put(pod, Place::Active, now);
        }
        let parked = self.entries.values().filter(|entry| entry.place == Place::Unschedulable).map(overdue).min();
        let waiting = self.backoff.peek().map(|Reverse((until, ..))| *until);
        waiting.into_iter().chain(parked).min()
    }

    /// Whether there may be a Pod to try now.
    #[must_use]
    pub fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// How many Pods wait where.
    #[must_use]
    pub fn depth(&self) -> Depth {
        let mut depth = Depth::default();
        for entry in self.entries.values() {
            match entry.place {
                Place::Active => depth.active += 1,
                Place::BackOff => depth.backoff += 1,
                Place::Unschedulable => depth.unschedulable += 1,
                Place::Gated => depth.gated += 1,
            }
        }
        depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::plugins::PrioritySort;
    use crate::scheduler::testing::pod_on;
    use serde_json::json;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn queue() -> SchedulingQueue {
        SchedulingQueue::new(Arc::new(PrioritySort))
    }

    fn with_priority(name: &str, priority: i32) -> Arc<PodInfo> {
        pod_on(name, "", json!({"spec": {"priority": priority}}))
    }

    #[test]
    fn higher_priority_goes_first_and_then_the_one_that_waited_longer() {
        let mut queue = queue();
        queue.add(with_priority("low", 0), false, at(0));
        queue.add(with_priority("late", 5), false, at(2));
        queue.add(with_priority("early", 5), false, at(1));
        let order: Vec<String> = std::iter::from_fn(|| queue.pop()).map(|pod| pod.info.uid.clone()).collect();
        assert_eq!(order, ["early", "late", "low"]);
    }

    #[test]
    fn a_removed_pod_is_not_popped() {
        let mut queue = queue();
        queue.add(with_priority("a", 0), false, at(0));
        queue.remove("a");
        assert!(queue.pop().is_none());
    }

    #[test]
    fn a_parked_pod_comes_back_on_an_event_after_its_back_off() {
        let mut queue = queue();
        queue.add(with_priority("a", 0), false, at(0));
        let pod = queue.pop().unwrap();
        queue.park(pod, BTreeSet::from(["NodeResourcesFit"]), at(0));
        queue.move_all(at(0), |pod| pod.unschedulable_plugins.contains("NodeResourcesFit"));
        assert!(queue.pop().is_none(), "still backing off");
        assert_eq!(queue.flush(at(0)), Some(at(1)));
        queue.flush(at(1));
        assert_eq!(queue.pop().unwrap().attempts, 2);
    }

    #[test]
    fn an_event_nobody_hopes_for_leaves_the_pod_parked_until_five_minutes_are_over() {
        let mut queue = queue();
        queue.add(with_priority("a", 0), false, at(0));
        let pod = queue.pop().unwrap();
        queue.park(pod, BTreeSet::new(), at(0));
        queue.move_all(at(100), |_| false);
        assert_eq!(queue.flush(at(100)), Some(at(300)));
        queue.flush(at(300));
        assert!(queue.pop().is_some());
    }

    #[test]
    fn a_gated_pod_is_queued_when_its_gates_are_gone() {
        let mut queue = queue();
        queue.add(with_priority("a", 0), true, at(0));
        assert!(queue.pop().is_none());
        queue.update(with_priority("a", 0), false, at(1));
        assert!(queue.pop().is_some());
    }

    #[test]
    fn the_back_off_doubles_up_to_ten_seconds() {
        let mut pod = QueuedPod { info: with_priority("a", 0), timestamp: at(0), attempts: 0, unschedulable_plugins: BTreeSet::new() };
        let seconds: Vec<u64> = (1..=6)
            .map(|attempts| {
                pod.attempts = attempts;
                pod.backoff().as_secs()
            })
            .collect();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
    }
}
