//! A local copy of one collection, kept up to date by one watch and shared by every component of the process.
//!
//! Components read from here instead of asking the server. What a component has written itself it hands in with
//! [`Informer::observe`], so that it never acts on a copy older than its own last write: that is what keeps a
//! ReplicaSet from creating its Pods twice. An answer of the server is taken only if the watch has not passed it yet,
//! and that needs no tombstones, because revisions of one server are ordered.
//!
//! Handlers run on the watch's task (or on the writer's, for an observed write), one change at a time. They must be
//! quick, and must not subscribe to or observe on the same informer.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Weak},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::{
    key::Key,
    object::{Head, Object, Partial, read, revision_of},
    watch::Sink,
};

/// One change of the cache: at least one of the two is there.
pub struct Change<'a, K> {
    /// What it was before.
    pub old: Option<&'a Arc<K>>,
    /// What it is now; `None` if it is gone.
    pub new: Option<&'a Arc<K>>,
}

impl<K> Clone for Change<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Change<'_, K> {}

impl<'a, K> Change<'a, K> {
    /// The object as it is now, or as it was last.
    pub fn latest(&self) -> Option<&'a Arc<K>> {
        self.new.or(self.old)
    }

    /// Whether the object is gone.
    pub fn is_deletion(&self) -> bool {
        self.new.is_none()
    }

    /// The states that there are, old first.
    pub fn states(&self) -> impl Iterator<Item = &'a Arc<K>> {
        self.old.into_iter().chain(self.new)
    }
}

type Handler<K> = Box<dyn Fn(Change<'_, K>) + Send + Sync>;
type Indexer<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// Ends a subscription when it is dropped.
pub struct Subscription(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Subscription {
    /// A subscription that is ended by calling `end`.
    pub fn new(end: impl FnOnce() + Send + Sync + 'static) -> Self {
        Subscription(Some(Box::new(end)))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

/// The shared cache of one kind. Clones are the same cache.
pub struct Informer<K>(Arc<Inner<K>>);

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Informer(self.0.clone())
    }
}

struct Inner<K> {
    cache: RwLock<Cache<K>>,
    /// Also the order of changes: whoever changes the cache holds it until all handlers have seen the change.
    handlers: Mutex<Handlers<K>>,
    synced: watch::Sender<bool>,
}

struct Handlers<K> {
    next: u64,
    list: Vec<(u64, Handler<K>)>,
}

struct Cache<K> {
    objects: HashMap<Key, Arc<K>>,
    namespaces: HashMap<String, HashSet<Key>>,
    owners: HashMap<String, HashSet<Key>>,
    indexes: BTreeMap<&'static str, Index<K>>,
    /// How far the watch has come.
    revision: u64,
}

struct Index<K> {
    of: Indexer<K>,
    keys: HashMap<String, HashSet<Key>>,
}

impl<K: Object> Default for Informer<K> {
    fn default() -> Self {
        Informer(Arc::new(Inner {
            cache: RwLock::new(Cache {
                objects: HashMap::new(),
                namespaces: HashMap::new(),
                owners: HashMap::new(),
                indexes: BTreeMap::new(),
                revision: 0,
            }),
            handlers: Mutex::new(Handlers { next: 0, list: Vec::new() }),
            synced: watch::Sender::new(false),
        }))
    }
}

impl<K: Object> Informer<K> {
    /// One object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.find(&Key::new(namespace, name))
    }

    /// One object by its key.
    pub fn find(&self, key: &Key) -> Option<Arc<K>> {
        self.0.cache.read().objects.get(key).cloned()
    }

    /// All objects, in no order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.0.cache.read().objects.values().cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.cache.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let cache = self.0.cache.read();
        cache.pick(cache.namespaces.get(namespace))
    }

    /// How many objects a namespace has.
    pub fn count_in(&self, namespace: &str) -> usize {
        self.0.cache.read().namespaces.get(namespace).map_or(0, HashSet::len)
    }

    /// The objects whose owner references name this uid.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        let cache = self.0.cache.read();
        cache.pick(cache.owners.get(uid))
    }

    /// The objects that an index files under `value`.
    pub fn indexed(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        let cache = self.0.cache.read();
        cache.pick(cache.indexes.get(index).and_then(|index| index.keys.get(value)))
    }

    /// Adds an index, such as Pods by node name. Adding it again changes nothing.
    pub fn add_index(&self, name: &'static str, of: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        let mut cache = self.0.cache.write();
        if cache.indexes.contains_key(name) {
            return;
        }
        let mut index = Index { of: Box::new(of), keys: HashMap::new() };
        for (key, object) in &cache.objects {
            index.add(key, object);
        }
        cache.indexes.insert(name, index);
    }

    /// Calls `handler` with everything that is there, and then with every change, until the subscription is dropped.
    pub fn subscribe(&self, handler: impl Fn(Change<'_, K>) + Send + Sync + 'static) -> Subscription {
        let mut handlers = self.0.handlers.lock();
        let objects = self.list();
        for object in &objects {
            handler(Change { old: None, new: Some(object) });
        }
        let id = handlers.next;
        handlers.next += 1;
        handlers.list.push((id, Box::new(handler)));
        let inner: Weak<Inner<K>> = Arc::downgrade(&self.0);
        Subscription(Some(Box::new(move || {
            if let Some(inner) = inner.upgrade() {
                inner.handlers.lock().list.retain(|(other, _)| *other != id);
            }
        })))
    }

    /// Waits until everything has been listed once.
    pub async fn synced(&self) {
        // An error would mean that the sender is gone, and this informer holds it.
        let _ = self.0.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Whether everything has been listed once.
    pub fn is_synced(&self) -> bool {
        *self.0.synced.borrow()
    }

    /// Takes in what the server answered to a write of ours, unless the watch already knows better.
    pub fn observe(&self, object: K) -> Arc<K> {
        let object = Arc::new(object);
        let revision = revision_of(object.meta());
        let key = Key::of(object.meta());
        let handlers = self.0.handlers.lock();
        let old = {
            let mut cache = self.0.cache.write();
            let known = cache.objects.get(&key).map_or(0, |old| revision_of(old.meta()));
            if revision <= cache.revision || revision <= known {
                return object;
            }
            cache.insert(key, object.clone())
        };
        handlers.call(Change { old: old.as_ref(), new: Some(&object) });
        object
    }

    /// Takes in that a write of ours has removed an object for good.
    pub fn observe_deletion(&self, key: &Key, uid: &str) {
        let handlers = self.0.handlers.lock();
        let old = {
            let mut cache = self.0.cache.write();
            if cache.objects.get(key).is_none_or(|old| old.meta().uid.as_deref() != Some(uid)) {
                return;
            }
            cache.remove(key)
        };
        if old.is_some() {
            handlers.call(Change { old: old.as_ref(), new: None });
        }
    }
}

impl<K> Handlers<K> {
    fn call(&self, change: Change<'_, K>) {
        for (_, handler) in &self.list {
            handler(change);
        }
    }
}

impl<K> Index<K> {
    fn add(&mut self, key: &Key, object: &K) {
        for value in (self.of)(object) {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, object: &K) {
        for value in (self.of)(object) {
            unfile(&mut self.keys, &value, key);
        }
    }
}

fn unfile(keys: &mut HashMap<String, HashSet<Key>>, value: &str, key: &Key) {
    if let Some(set) = keys.get_mut(value) {
        set.remove(key);
        if set.is_empty() {
            keys.remove(value);
        }
    }
}

impl<K: Object> Cache<K> {
    fn pick(&self, keys: Option<&HashSet<Key>>) -> Vec<Arc<K>> {
        keys.into_iter().flatten().filter_map(|key| self.objects.get(key).cloned()).collect()
    }

    fn insert(&mut self, key: Key, object: Arc<K>) -> Option<Arc<K>> {
        let old = self.remove(&key);
        self.namespaces.entry(key.namespace.to_string()).or_default().insert(key.clone());
        for owner in object.meta().owner_references.iter().flatten() {
            self.owners.entry(owner.uid.clone()).or_default().insert(key.clone());
        }
        for index in self.indexes.values_mut() {
            index.add(&key, &object);
        }
        self.objects.insert(key, object);
        old
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        unfile(&mut self.namespaces, &key.namespace, key);
        for owner in old.meta().owner_references.iter().flatten() {
            unfile(&mut self.owners, &owner.uid, key);
        }
        for index in self.indexes.values_mut() {
            index.remove(key, &old);
        }
        Some(old)
    }
}

#[derive(Deserialize)]
struct List<'a> {
    metadata: ListMeta,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

impl<K: Object> Sink for Informer<K> {
    fn replace(&self, list: &[u8]) -> Result<String, serde_json::Error> {
        let list: List<'_> = serde_json::from_slice(list)?;
        let objects = list.items.into_iter().flatten().map(|item| read(item.get().as_bytes()).map(Arc::new));
        let objects = objects.collect::<Result<Vec<Arc<K>>, _>>()?;
        let version = list.metadata.resource_version.unwrap_or_default();
        let revision = version.parse().unwrap_or(0);
        let handlers = self.0.handlers.lock();
        let mut gone: HashSet<Key> = {
            let cache = self.0.cache.read();
            // What was observed after the list was made is not in it, and is not gone either.
            let old = cache.objects.iter().filter(|(_, object)| revision_of(object.meta()) <= revision);
            old.map(|(key, _)| key.clone()).collect()
        };
        for object in objects {
            let key = Key::of(object.meta());
            gone.remove(&key);
            let mut cache = self.0.cache.write();
            let known = cache.objects.get(&key).map_or(0, |old| revision_of(old.meta()));
            if known != 0 && known >= revision_of(object.meta()) {
                continue;
            }
            let old = cache.insert(key, object.clone());
            drop(cache);
            handlers.call(Change { old: old.as_ref(), new: Some(&object) });
        }
        for key in gone {
            let old = self.0.cache.write().remove(&key);
            handlers.call(Change { old: old.as_ref(), new: None });
        }
        self.0.cache.write().revision = revision;
        drop(handlers);
        self.0.synced.send_replace(true);
        Ok(version)
    }

    fn changed(&self, object: &[u8]) -> Result<String, serde_json::Error> {
        // Most of what a process hears of its own writes it knows from their answers; then the first few fields are enough.
        let head: Head<'_> = serde_json::from_slice(object)?;
        let known = self.find(&Key::new(&head.metadata.namespace, &head.metadata.name)).map_or(0, |known| revision_of(known.meta()));
        if let Ok(revision) = head.metadata.resource_version.parse()
            && known >= revision
        {
            let mut cache = self.0.cache.write();
            cache.revision = cache.revision.max(revision);
            return Ok(head.metadata.resource_version.into_owned());
        }
        let object = Arc::new(head.read::<K>(object)?);
        let version = object.meta().resource_version.clone().unwrap_or_default();
        let revision = revision_of(object.meta());
        let key = Key::of(object.meta());
        let handlers = self.0.handlers.lock();
        let old = {
            let mut cache = self.0.cache.write();
            cache.revision = cache.revision.max(revision);
            let known = cache.objects.get(&key).map_or(0, |old| revision_of(old.meta()));
            if known != 0 && known >= revision {
                return Ok(version);
            }
            cache.insert(key, object.clone())
        };
        handlers.call(Change { old: old.as_ref(), new: Some(&object) });
        Ok(version)
    }

    fn deleted(&self, object: &[u8]) -> Result<String, serde_json::Error> {
        let object: Partial = serde_json::from_slice(object)?;
        let revision = revision_of(&object.metadata);
        let key = Key::of(&object.metadata);
        let handlers = self.0.handlers.lock();
        let old = {
            let mut cache = self.0.cache.write();
            cache.revision = cache.revision.max(revision);
            let known = cache.objects.get(&key).map_or(0, |old| revision_of(old.meta()));
            // A successor of the same name may have been observed already.
            if known > revision { None } else { cache.remove(&key) }
        };
        if old.is_some() {
            handlers.call(Change { old: old.as_ref(), new: None });
        }
        Ok(object.metadata.resource_version.unwrap_or_default())
    }

    fn bookmark(&self, resource_version: &str) {
        let mut cache = self.0.cache.write();
        cache.revision = cache.revision.max(resource_version.parse().unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str, revision: u64) -> Vec<u8> {
        format!(r#"{{"metadata":{{"name":"{name}","namespace":"a","uid":"{name}","resourceVersion":"{revision}"}}}}"#).into_bytes()
    }

    fn map(name: &str, revision: u64) -> ConfigMap {
        serde_json::from_slice(&object(name, revision)).unwrap()
    }

    #[test]
    fn an_observed_write_is_visible_before_the_watch_tells_of_it() {
        let informer = Informer::<ConfigMap>::default();
        informer.replace(br#"{"metadata":{"resourceVersion":"5"},"items":[]}"#).unwrap();
        let seen = Arc::new(AtomicUsize::new(0));
        let _subscription = informer.subscribe({
            let seen = seen.clone();
            move |_| {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        });
        informer.observe(map("x", 7));
        assert!(informer.get("a", "x").is_some());
        informer.changed(&object("x", 7)).unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 1, "the watch's copy is no news");
    }

    #[test]
    fn an_answer_that_the_watch_has_passed_does_not_bring_a_deleted_object_back() {
        let informer = Informer::<ConfigMap>::default();
        informer.changed(&object("x", 7)).unwrap();
        informer.deleted(&object("x", 9)).unwrap();
        informer.observe(map("x", 8));
        assert!(informer.get("a", "x").is_none());
    }

    #[test]
    fn a_list_removes_what_is_gone_but_not_what_was_written_since() {
        let informer = Informer::<ConfigMap>::default();
        informer.changed(&object("old", 7)).unwrap();
        informer.observe(map("new", 12));
        informer.replace(br#"{"metadata":{"resourceVersion":"10"},"items":[]}"#).unwrap();
        assert!(informer.get("a", "old").is_none());
        assert!(informer.get("a", "new").is_some());
    }

    #[test]
    fn a_dropped_subscription_hears_nothing_more() {
        let informer = Informer::<ConfigMap>::default();
        let seen = Arc::new(AtomicUsize::new(0));
        let subscription = informer.subscribe({
            let seen = seen.clone();
            move |_| {
                seen.fetch_add(1, Ordering::SeqCst);
            }
        });
        informer.changed(&object("x", 1)).unwrap();
        drop(subscription);
        informer.changed(&object("x", 2)).unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn an_index_follows_its_objects() {
        let informer = Informer::<ConfigMap>::default();
        informer.changed(&object("x", 1)).unwrap();
        informer.add_index("name", |map| vec![map.metadata.name.clone().unwrap_or_default()]);
        informer.changed(&object("y", 2)).unwrap();
        assert_eq!(informer.indexed("name", "x").len(), 1);
        assert_eq!(informer.indexed("name", "y").len(), 1);
        informer.deleted(&object("x", 3)).unwrap();
        assert!(informer.indexed("name", "x").is_empty());
    }
}
