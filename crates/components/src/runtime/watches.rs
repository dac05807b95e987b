//! One watch per kind for the whole process: whoever asks for the informer of a kind gets the same one.
//!
//! Informers are made when they are first asked for and live as long as the process's components do. Those that only
//! need the metadata of a kind, as the garbage collector does, get it from the full copy if there is one.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    informer::{Change, Informer, Subscription},
    object::{Object, Partial},
    watch::{Collection, follow},
};
use crate::clock::Clock;

/// The path under which all objects of a kind are listed, over all namespaces.
pub fn collection_path(group: &str, version: &str, plural: &str) -> String {
    if group.is_empty() { format!("/api/{version}/{plural}") } else { format!("/apis/{group}/{version}/{plural}") }
}

/// The informers of this process. Clones are the same set.
#[derive(Clone)]
pub struct Watches(Arc<Shared>);

struct Shared {
    client: Client,
    clock: Clock,
    stop: CancellationToken,
    typed: Mutex<HashMap<TypeId, Box<dyn Any + Send + Sync>>>,
    feeds: Mutex<HashMap<String, Feed>>,
}

struct Feed {
    feed: Arc<dyn MetadataFeed>,
    /// Stops the watch, where there is one only for the metadata.
    own: Option<CancellationToken>,
}

/// The metadata of a kind that is known by its path only.
pub trait MetadataFeed: Send + Sync {
    /// Calls `handler` with what is there and with every change, old and new.
    fn subscribe_metadata(&self, handler: MetadataHandler) -> Subscription;
    /// How many objects there are in a namespace.
    fn count(&self, namespace: &str) -> usize;
    /// Waits until everything has been listed once.
    fn metadata_synced(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Is told the old and the new metadata.
pub type MetadataHandler = Box<dyn Fn(Option<&ObjectMeta>, Option<&ObjectMeta>) + Send + Sync>;

impl<K: Object> MetadataFeed for Informer<K> {
    fn subscribe_metadata(&self, handler: MetadataHandler) -> Subscription {
        self.subscribe(move |change: Change<'_, K>| {
            handler(change.old.map(|o| o.meta()), change.new.map(|o| o.meta()));
        })
    }

    fn count(&self, namespace: &str) -> usize {
        self.count_in(namespace)
    }

    fn metadata_synced(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.synced())
    }
}

impl Watches {
    /// An empty set; `client` must be allowed to list and watch whatever will be asked for.
    pub fn new(client: Client, clock: Clock, stop: CancellationToken) -> Self {
        let (typed, feeds) = (Mutex::default(), Mutex::default());
        Watches(Arc::new(Shared { client, clock, stop, typed, feeds }))
    }

    /// The informer of a kind.
    pub fn of<K>(&self) -> Informer<K>
    where
        K: Object + k8s_openapi::Resource,
    {
        let mut typed = self.0.typed.lock();
        let known = typed.get(&TypeId::of::<K>()).and_then(|any| any.downcast_ref::<Informer<K>>());
        if let Some(informer) = known {
            return informer.clone();
        }
        let informer = Informer::<K>::default();
        typed.insert(TypeId::of::<K>(), Box::new(informer.clone()));
        let path = collection_path(K::GROUP, K::VERSION, K::URL_PATH_SEGMENT);
        let feed = Feed { feed: Arc::new(informer.clone()), own: None };
        if let Some(Feed { own: Some(stop), .. }) = self.0.feeds.lock().insert(path.clone(), feed) {
            tracing::debug!(path, "a full copy replaces one of the metadata for whoever asks next");
            // Those who still hold the old feed keep what they have; it must go on.
            drop(stop);
        }
        let collection = Collection { path, metadata_only: false, query: String::new() };
        self.spawn(collection, Arc::new(informer.clone()), self.0.stop.child_token());
        informer
    }

    /// The metadata of a kind, from the full copy if there is one.
    pub fn metadata(&self, path: &str) -> Arc<dyn MetadataFeed> {
        let mut feeds = self.0.feeds.lock();
        if let Some(known) = feeds.get(path) {
            return known.feed.clone();
        }
        let informer = Informer::<Partial>::default();
        let stop = self.0.stop.child_token();
        let feed: Arc<dyn MetadataFeed> = Arc::new(informer.clone());
        feeds.insert(path.to_owned(), Feed { feed: feed.clone(), own: Some(stop.clone()) });
        let collection = Collection { path: path.to_owned(), metadata_only: true, query: String::new() };
        self.spawn(collection, Arc::new(informer), stop);
        feed
    }

    /// Stops the watch of a kind that is served no longer, if it is watched for its metadata only.
    pub fn forget_metadata(&self, path: &str) {
        let mut feeds = self.0.feeds.lock();
        if feeds.get(path).is_some_and(|feed| feed.own.is_some())
            && let Some(Feed { own: Some(stop), .. }) = feeds.remove(path)
        {
            stop.cancel();
        }
    }

    /// A private copy of a part of a kind (for example the objects of one name), not shared with anybody.
    pub fn selected<K>(&self, query: &str) -> Informer<K>
    where
        K: Object + k8s_openapi::Resource,
    {
        let informer = Informer::<K>::default();
        let path = collection_path(K::GROUP, K::VERSION, K::URL_PATH_SEGMENT);
        let collection = Collection { path, metadata_only: false, query: query.to_owned() };
        self.spawn(collection, Arc::new(informer.clone()), self.0.stop.child_token());
        informer
    }

    fn spawn(&self, collection: Collection, sink: Arc<dyn super::watch::Sink>, stop: CancellationToken) {
        tokio::spawn(follow(self.0.client.clone(), collection, sink, self.0.clock.clone(), stop));
    }
}
