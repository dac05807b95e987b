//! What is still to be done: keys, each at most once, each worked on by one worker at a time.
//!
//! A key that is added while it is being worked on is worked on once more afterwards. A key can be added for later;
//! the earlier of two times wins. A key that failed comes back after a pause that doubles with every failure. And a
//! key whose work was long rests a little before the next round, so that a burst of events (a thousand Pods that
//! become ready) costs a few rounds and not a thousand.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{cause, key::Key, metrics::Counters};
use crate::clock::{Clock, later};

const FIRST_BACKOFF: Duration = Duration::from_millis(5);
const LAST_BACKOFF: Duration = Duration::from_secs(30);

/// A queue of keys. Clones are the same queue.
#[derive(Clone)]
pub struct Queue(Arc<Inner>);

struct Inner {
    clock: Clock,
    counters: Arc<Counters>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Key>,
    waiting: HashSet<Key>,
    working: HashSet<Key>,
    again: HashSet<Key>,
    later: BTreeMap<(Timestamp, u64), Key>,
    times: HashMap<Key, (Timestamp, u64)>,
    next: u64,
    failures: HashMap<Key, u32>,
    resting: HashMap<Key, Timestamp>,
    /// The newest revision that each key is to be worked on for.
    causes: HashMap<Key, u64>,
}

impl Queue {
    /// An empty queue.
    pub fn new(clock: Clock, counters: Arc<Counters>) -> Self {
        Queue(Arc::new(Inner { clock, counters, state: Mutex::default(), changed: Notify::new() }))
    }

    /// Adds a key, to be worked on as soon as possible.
    pub fn add(&self, key: Key) {
        let mut state = self.0.state.lock();
        self.0.counters.add();
        state.because(&key, cause::changed());
        if state.working.contains(&key) {
            state.again.insert(key);
            return;
        }
        if state.waiting.contains(&key) {
            return;
        }
        if let Some(until) = state.resting.get(&key).copied() {
            if until > self.0.clock.now() {
                state.add_at(key, until);
                drop(state);
                self.0.changed.notify_one();
                return;
            }
            state.resting.remove(&key);
        }
        state.make_ready(key);
        drop(state);
        self.0.changed.notify_one();
    }

    /// Adds a key for later. If it is already to come earlier, that stays.
    pub fn add_after(&self, key: Key, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let at = later(self.0.clock.now(), delay);
        self.0.state.lock().add_at(key, at);
        self.0.changed.notify_one();
    }

    /// The next key, which is then being worked on until [`Queue::done`].
    pub async fn next(&self) -> Key {
        self.next_with_cause().await.0
    }

    /// The next key, and the revision that it is to be worked on for; 0 if no change asked for it.
    pub async fn next_with_cause(&self) -> (Key, u64) {
        loop {
            let changed = self.0.changed.notified();
            let first = {
                let mut state = self.0.state.lock();
                state.promote(self.0.clock.now());
                if let Some(key) = state.ready.pop_front() {
                    state.waiting.remove(&key);
                    state.working.insert(key.clone());
                    self.0.counters.depth(state.ready.len());
                    let cause = state.causes.remove(&key).unwrap_or(0);
                    return (key, cause);
                }
                state.later.keys().next().map(|(at, _)| *at)
            };
            match first {
                None => changed.await,
                Some(at) => tokio::select! {
                    () = changed => {}
                    () = self.0.clock.sleep_until(at) => {}
                },
            }
        }
    }

    /// The work on a key is over; it does not start again before it has rested.
    pub fn done(&self, key: &Key, rest: Duration) {
        let mut state = self.0.state.lock();
        state.working.remove(key);
        let now = self.0.clock.now();
        if !rest.is_zero() {
            if state.resting.len() > 1024 {
                state.resting.retain(|_, until| *until > now);
            }
            state.resting.insert(key.clone(), later(now, rest));
        }
        if state.again.remove(key) {
            if rest.is_zero() {
                state.make_ready(key.clone());
            } else {
                state.add_at(key.clone(), later(now, rest));
            }
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// Adds a key that failed, after its back-off; it is still for the same cause.
    pub fn retry(&self, key: Key, cause: u64) {
        let mut state = self.0.state.lock();
        state.because(&key, cause);
        let failures = state.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let delay = FIRST_BACKOFF.saturating_mul(1 << (*failures - 1).min(20)).min(LAST_BACKOFF);
        state.add_at(key, later(self.0.clock.now(), delay));
        drop(state);
        self.0.counters.retry();
        self.0.changed.notify_one();
    }

    /// How often a key has failed in a row.
    pub fn failures(&self, key: &Key) -> u32 {
        self.0.state.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// Forgets that a key has failed.
    pub fn forget(&self, key: &Key) {
        self.0.state.lock().failures.remove(key);
    }
}

impl State {
    fn because(&mut self, key: &Key, revision: u64) {
        if revision != 0 {
            let known = self.causes.entry(key.clone()).or_default();
            *known = revision.max(*known);
        }
    }

    fn make_ready(&mut self, key: Key) {
        if let Some(at) = self.times.remove(&key) {
            self.later.remove(&at);
        }
        if self.waiting.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn add_at(&mut self, key: Key, at: Timestamp) {
        if self.waiting.contains(&key) {
            return;
        }
        if let Some(known) = self.times.get(&key).copied() {
            if known.0 <= at {
                return;
            }
            self.later.remove(&known);
        }
        let slot = (at, self.next);
        self.next += 1;
        self.times.insert(key.clone(), slot);
        self.later.insert(slot, key);
    }

    /// Moves what is due to the ready ones.
    fn promote(&mut self, now: Timestamp) {
        while let Some(first) = self.later.first_entry() {
            if first.key().0 > now {
                break;
            }
            let key = first.remove();
            self.times.remove(&key);
            self.resting.remove(&key);
            if self.working.contains(&key) {
                self.again.insert(key);
            } else if self.waiting.insert(key.clone()) {
                self.ready.push_back(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Queue {
        Queue::new(Clock::system(), Arc::default())
    }

    async fn empty(queue: &Queue) -> bool {
        tokio::time::timeout(Duration::from_millis(30), queue.next()).await.is_err()
    }

    #[tokio::test]
    async fn a_key_added_twice_is_worked_on_once() {
        let queue = queue();
        queue.add(Key::cluster("a"));
        queue.add(Key::cluster("a"));
        let key = queue.next().await;
        queue.done(&key, Duration::ZERO);
        assert!(empty(&queue).await);
    }

    #[tokio::test]
    async fn a_key_added_while_it_is_worked_on_comes_back_afterwards() {
        let queue = queue();
        queue.add(Key::cluster("a"));
        let key = queue.next().await;
        queue.add(Key::cluster("a"));
        assert!(empty(&queue).await);
        queue.done(&key, Duration::ZERO);
        assert_eq!(queue.next().await, key);
    }

    #[tokio::test]
    async fn the_earlier_of_two_times_wins() {
        let queue = queue();
        queue.add_after(Key::cluster("a"), Duration::from_secs(3600));
        queue.add_after(Key::cluster("a"), Duration::from_millis(5));
        assert_eq!(queue.next().await, Key::cluster("a"));
    }

    #[tokio::test]
    async fn failures_double_the_pause_until_they_are_forgotten() {
        let queue = queue();
        let key = Key::cluster("a");
        for failures in 1..4 {
            queue.retry(key.clone(), 0);
            assert_eq!(queue.failures(&key), failures);
            assert_eq!(queue.next().await, key);
            queue.done(&key, Duration::ZERO);
        }
        queue.forget(&key);
        assert_eq!(queue.failures(&key), 0);
    }

    #[tokio::test]
    async fn a_key_is_worked_on_for_the_newest_change_and_again_after_a_failure() {
        let (queue, key) = (queue(), Key::cluster("a"));
        for revision in [7, 9, 8] {
            cause::of_change(revision, || queue.add(key.clone()));
        }
        assert_eq!(queue.next_with_cause().await, (key.clone(), 9));
        queue.done(&key, Duration::ZERO);
        queue.retry(key.clone(), 9);
        assert_eq!(queue.next_with_cause().await, (key.clone(), 9));
        queue.done(&key, Duration::ZERO);
        queue.add(key.clone());
        assert_eq!(queue.next_with_cause().await, (key, 0));
    }

    #[tokio::test]
    async fn a_key_rests_before_its_next_round() {
        let queue = queue();
        queue.add(Key::cluster("a"));
        let key = queue.next().await;
        queue.done(&key, Duration::from_millis(100));
        queue.add(key.clone());
        assert!(empty(&queue).await);
        assert_eq!(queue.next().await, key);
    }
}
