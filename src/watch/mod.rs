//! The read side: the current state of every resource and a ring of its recent events, fed by the store's sink before a
//! write is acknowledged, so that a read after an acknowledged write sees it. Gets, lists and watches are answered from
//! here; the store is asked only for what is older than memory.
//!
//! A resource is loaded when somebody first looks at it, which keeps start-up instant.

mod bell;
mod channel;
mod topic;
mod watcher;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

pub use channel::{Event, EventKind, frame};
pub use topic::{Observer, Snapshot, Topic};
pub use watcher::{Filter, Item, Lagged, Start, Watcher};

use crate::store::{self, Change, Revision, Store};

/// How the read side is bounded.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many events a ring keeps in memory; older ones come from the store.
    pub ring_events: usize,
    /// How many bytes of objects a ring keeps alive.
    pub ring_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { ring_events: 8192, ring_bytes: 8 << 20 }
    }
}

/// The current state of everything that was looked at, and what recently happened to it.
pub struct State {
    store: Arc<dyn Store>,
    settings: Settings,
    topics: RwLock<HashMap<Arc<str>, Arc<Topic>>>,
    applied: AtomicU64,
    applied_wake: tokio::sync::watch::Sender<Revision>,
}

/// The part of a key that names the resource: `pods`, or `example.com/widgets` for a custom one.
pub fn storage_of(key: &str) -> &str {
    let rest = key.strip_prefix("/registry/").unwrap_or(key);
    let Some(first) = rest.find('/') else { return rest };
    if !rest[..first].contains('.') {
        return &rest[..first];
    }
    match rest[first + 1..].find('/') {
        Some(second) => &rest[..first + 1 + second],
        None => rest,
    }
}

impl State {
    /// Takes its place behind a store.
    pub async fn over(store: Arc<dyn Store>, settings: Settings) -> store::Result<Arc<State>> {
        let revision = store.revision().await?;
        let state = Arc::new(State {
            store: store.clone(),
            settings,
            topics: RwLock::default(),
            applied: AtomicU64::new(revision),
            applied_wake: tokio::sync::watch::channel(revision).0,
        });
        let weak = Arc::downgrade(&state);
        store.attach(Arc::new(move |changes: &[Change]| {
            if let Some(state) = weak.upgrade() {
                state.apply(changes);
            }
        }));
        // What was committed between the question above and the attachment did not pass the sink.
        state.advance(store.revision().await?);
        Ok(state)
    }

    /// The store behind it, for reads of the past and for writes.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The newest revision that readers can see.
    pub fn revision(&self) -> Revision {
        self.applied.load(Ordering::Acquire)
    }

    /// The oldest revision that clients may watch or list from.
    pub fn window_floor(&self) -> Revision {
        self.store.window()
    }

    /// A resource, loaded if nobody has looked at it yet.
    pub async fn topic(&self, storage: &str) -> store::Result<Arc<Topic>> {
        let known = self.topics.read().get(storage).cloned();
        let topic = match known {
            Some(topic) => topic,
            None => {
                let mut topics = self.topics.write();
                topics.entry(storage.into()).or_insert_with(|| Arc::new(Topic::new(storage, self.settings))).clone()
            }
        };
        topic.load(&*self.store).await?;
        Ok(topic)
    }

    /// A resource that is loaded already.
    pub fn loaded(&self, storage: &str) -> Option<Arc<Topic>> {
        self.topics.read().get(storage).filter(|topic| topic.is_loaded()).cloned()
    }

    /// Waits until readers can see a revision, for as long as `timeout`; answers whether they can.
    pub async fn wait_for(&self, revision: Revision, timeout: std::time::Duration) -> bool {
        let mut wake = self.applied_wake.subscribe();
        let seen = wake.wait_for(|applied| *applied >= revision);
        tokio::time::timeout(timeout, seen).await.is_ok_and(|seen| seen.is_ok())
    }

    fn apply(&self, changes: &[Change]) {
        let mut changed: Vec<Arc<Topic>> = Vec::new();
        for change in changes {
            let topic = self.topics.read().get(storage_of(&change.key)).cloned();
            if let Some(topic) = topic {
                topic.apply(change);
                if changed.iter().all(|known| !Arc::ptr_eq(known, &topic)) {
                    changed.push(topic);
                }
            }
        }
        if let Some(last) = changes.last() {
            self.advance(last.revision);
        }
        for topic in changed {
            topic.ring();
        }
    }

    fn advance(&self, revision: Revision) {
        self.applied.fetch_max(revision, Ordering::AcqRel);
        self.applied_wake.send_if_modified(|applied| std::mem::replace(applied, revision.max(*applied)) < revision);
    }
}

#[cfg(test)]
mod tests {
    use super::storage_of;

    #[test]
    fn a_key_names_its_resource() {
        assert_eq!(storage_of("/registry/pods/default/x"), "pods");
        assert_eq!(storage_of("/registry/nodes/x"), "nodes");
        assert_eq!(storage_of("/registry/example.com/widgets/default/x.y"), "example.com/widgets");
    }
}
