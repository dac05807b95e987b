//! One resource on the read side: its objects in the order of keys, the channel of all its events, and channels of their
//! own for the values of an indexed field, so that a kubelet's watch hears of its own Pods only.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::OnceCell;

use super::channel::{Channel, Event, EventKind};
use super::{Settings, watcher};
use crate::object::Object;
use crate::store::{self, At, Change, Key, Range, Revision, Store};

/// Told of every change of a resource before the write is acknowledged, in order, on the thread that commits: must be quick
/// and must not write.
pub trait Observer: Send + Sync {
    /// An object came, changed or went.
    fn changed(&self, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>);
}

/// Objects as they stood together at one revision.
pub struct Snapshot {
    /// The objects, in the order of keys.
    pub objects: Vec<Arc<Object>>,
    /// The revision.
    pub revision: Revision,
    /// How many further objects the range holds.
    pub remaining: usize,
}

/// One resource: what there is, and what happened.
pub struct Topic {
    /// The resource's part of the key.
    pub storage: Arc<str>,
    settings: Settings,
    indexed: Option<&'static str>,
    load: OnceCell<()>,
    inner: RwLock<Inner>,
}

struct Inner {
    objects: BTreeMap<Key, Arc<Object>>,
    /// The newest revision that changed this resource, or at which it was loaded.
    revision: Revision,
    /// What arrived while the resource was being loaded.
    pending: Option<Vec<Change>>,
    channel: Arc<Channel>,
    by_value: HashMap<Box<str>, Arc<Channel>>,
    /// With so many channels by value, it is time to look for those that nobody listens to.
    by_value_most: usize,
    /// The channels whose bell is still to be rung.
    to_ring: Vec<Arc<Channel>>,
    observers: Vec<Arc<dyn Observer>>,
}

impl Topic {
    pub(super) fn new(storage: &str, settings: Settings) -> Self {
        let inner = Inner {
            objects: BTreeMap::new(),
            revision: 0,
            pending: Some(Vec::new()),
            channel: Arc::new(Channel::new(0, settings)),
            by_value: HashMap::new(),
            by_value_most: 16,
            to_ring: Vec::new(),
            observers: Vec::new(),
        };
        // The one field that thousands of watchers select on, each with another value.
        let indexed = (storage == "pods").then_some("spec.nodeName");
        Topic { storage: storage.into(), settings, indexed, load: OnceCell::new(), inner: RwLock::new(inner) }
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.load.initialized()
    }

    /// What every key of the resource begins with.
    pub fn prefix(&self) -> String {
        format!("/registry/{}/", self.storage)
    }

    pub(super) async fn load(&self, store: &dyn Store) -> store::Result<()> {
        if self.load.initialized() {
            return Ok(());
        }
        let load = || async {
            let page = store.range(Range { prefix: self.prefix(), ..Range::default() }, At::Newest).await?;
            let objects = page.entries.into_iter().map(|e| (e.key.clone(), Arc::new(Object::new(e.key, e.revision, &e.value))));
            let objects = objects.collect();
            let mut inner = self.inner.write();
            inner.objects = objects;
            inner.revision = page.revision;
            inner.channel = Arc::new(Channel::new(page.revision, self.settings));
            for change in inner.pending.take().unwrap_or_default() {
                if change.revision > page.revision {
                    self.apply_to(&mut inner, &change);
                }
            }
            Ok(())
        };
        self.load.get_or_try_init(load).await.map(|_| ())
    }

    pub(super) fn apply(&self, change: &Change) {
        let mut inner = self.inner.write();
        if let Some(pending) = &mut inner.pending {
            pending.push(change.clone());
            return;
        }
        self.apply_to(&mut inner, change);
    }

    /// Tells the watchers that something happened, once for all that did.
    pub(super) fn ring(&self) {
        let rung = std::mem::take(&mut self.inner.write().to_ring);
        for channel in rung {
            channel.ring_bell();
        }
    }

    fn apply_to(&self, inner: &mut Inner, change: &Change) {
        inner.revision = change.revision;
        let object = Arc::new(Object::new(change.key.clone(), change.revision, &change.value));
        let (kind, previous) = if change.deleted {
            (EventKind::Deleted, inner.objects.remove(&change.key))
        } else {
            let previous = inner.objects.insert(change.key.clone(), object.clone());
            (if previous.is_some() { EventKind::Modified } else { EventKind::Added }, previous)
        };
        for observer in &inner.observers {
            observer.changed(previous.as_ref(), (!change.deleted).then_some(&object));
        }
        let event = Arc::new(Event::new(kind, object, previous));
        inner.channel.push(event.clone());
        if inner.to_ring.is_empty() {
            inner.to_ring.push(inner.channel.clone());
        }
        if let Some(field) = self.indexed.filter(|_| !inner.by_value.is_empty()) {
            let now = event.object.field(field);
            let before = event.previous.as_ref().map(|p| p.field(field));
            for value in std::iter::once(&now).chain(before.as_ref().filter(|b| **b != now)) {
                match inner.by_value.get(value.as_str()) {
                    // A channel that only this table holds has no watcher left.
                    Some(channel) if Arc::strong_count(channel) == 1 => drop(inner.by_value.remove(value.as_str())),
                    Some(channel) => {
                        channel.push(event.clone());
                        inner.to_ring.push(channel.clone());
                    }
                    None => {}
                }
            }
        }
    }

    /// One object as it is now.
    pub fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.inner.read().objects.get(key).cloned()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.inner.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects as they are now whose keys begin with `prefix`, after the key `after`, those that `keep` keeps, `limit` at most
    /// (zero is no limit). `applied` is the newest revision that readers can see, asked before.
    pub fn list(&self, prefix: &str, after: Option<&str>, limit: usize, applied: Revision, keep: impl Fn(&Object) -> bool) -> Snapshot {
        let inner = self.inner.read();
        let start = after.filter(|after| *after >= prefix).map_or(Bound::Included(prefix), Bound::Excluded);
        let mut range = inner.objects.range::<str, _>((start, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(prefix));
        let mut objects = Vec::new();
        for (_, object) in range.by_ref() {
            if keep(object) {
                objects.push(object.clone());
                if limit != 0 && objects.len() == limit {
                    break;
                }
            }
        }
        let remaining = if limit == 0 { 0 } else { range.count() };
        Snapshot { objects, revision: inner.revision.max(applied), remaining }
    }

    /// Has an observer told of everything there is now and of every change from now on.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        let mut inner = self.inner.write();
        for object in inner.objects.values() {
            observer.changed(None, Some(object));
        }
        inner.observers.push(observer);
    }

    /// The channel that a filter needs to listen to, its state under `filter` if asked for, and the revision of both.
    pub(super) fn attach(
        &self,
        filter: &watcher::Filter,
        with_state: bool,
        applied: Revision,
    ) -> (Arc<Channel>, Vec<Arc<Object>>, Revision) {
        let value = self.indexed.and_then(|field| filter.fields.requires(field));
        let mut inner = self.inner.write();
        let channel = match value {
            None => inner.channel.clone(),
            Some(value) => {
                let (field, main, settings) = (self.indexed.unwrap_or_default(), inner.channel.clone(), self.settings);
                let make = || Arc::new(narrowed(&main, field, value, settings));
                if inner.by_value.len() >= inner.by_value_most {
                    inner.by_value.retain(|_, channel| Arc::strong_count(channel) > 1);
                    inner.by_value_most = (inner.by_value.len() * 2).max(16);
                }
                inner.by_value.entry(value.into()).or_insert_with(make).clone()
            }
        };
        let mut objects = Vec::new();
        if with_state {
            let range = inner.objects.range::<str, _>((Bound::Included(filter.prefix.as_str()), Bound::Unbounded));
            let range = range.take_while(|(key, _)| key.starts_with(&filter.prefix));
            objects.extend(range.filter(|(_, object)| filter.selects(object)).map(|(_, object)| object.clone()));
        }
        (channel, objects, inner.revision.max(applied))
    }
}

/// A channel with those events of another that concern one value of a field.
fn narrowed(main: &Channel, field: &str, value: &str, settings: Settings) -> Channel {
    let (floor, first) = main.position(0);
    let channel = Channel::new(floor, settings);
    for event in main.read(first, usize::MAX).unwrap_or_default() {
        let concerns = |object: &Arc<Object>| object.field(field) == value;
        if concerns(&event.object) || event.previous.as_ref().is_some_and(concerns) {
            channel.push(event);
        }
    }
    channel
}
