//! What a component is: the kinds it listens to, and a service that brings one key to its desired state.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use super::{
    cause,
    informer::{Change, Informer, Subscription},
    key::Key,
    object::{Object, revision_of},
    queue::Queue,
};

/// What to do with a key after a round of work that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Nothing, until something changes.
    Done,
    /// Another round after this long, even if nothing changes.
    After(Duration),
}

impl Requeue {
    /// The sooner of the two.
    #[must_use]
    pub fn or(self, other: Requeue) -> Requeue {
        match (self, other) {
            (Requeue::Done, other) => other,
            (this, Requeue::Done) => this,
            (Requeue::After(a), Requeue::After(b)) => Requeue::After(a.min(b)),
        }
    }

    /// After this long, if there is such a time.
    pub fn after(delay: Option<Duration>) -> Requeue {
        delay.map_or(Requeue::Done, Requeue::After)
    }
}

/// Why a round of work failed. The key is tried again later.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused or could not be reached.
    #[error(transparent)]
    Client(#[from] kube::Error),
    /// The round took too long.
    #[error("deadline exceeded")]
    Timeout,
    /// An object could not be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// The HTTP status, if the server answered with one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Error::Client(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// What went wrong, in the server's words if it said something.
    pub fn message(&self) -> String {
        match self {
            Error::Client(kube::Error::Api(status)) => status.message.clone(),
            other => other.to_string(),
        }
    }

    /// Whether an object of that name is there already.
    pub fn is_already_exists(&self) -> bool {
        match self {
            Error::Client(kube::Error::Api(status)) => status.reason == "AlreadyExists",
            _ => false,
        }
    }

    /// Whether the server's object was newer than the one the write was based on.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Whether what was asked for is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether the namespace refuses new objects because it is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        match self {
            Error::Client(kube::Error::Api(status)) => {
                let causes = status.details.iter().flat_map(|details| &details.causes);
                status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
            }
            _ => false,
        }
    }
}

/// The result of one round.
pub type Outcome = Result<Requeue, Error>;

/// One component. Its state is what it was built with: informers, a client, a clock.
pub trait Component: Send + Sync + Sized + 'static {
    /// The name, as `--components` knows it.
    const NAME: &'static str;
    /// How many keys may be worked on at once.
    const WORKERS: usize = 5;
    /// How long one round may take.
    const TIMEOUT: Duration = Duration::from_secs(60);

    /// The kinds it listens to, and which keys their changes concern.
    fn sources(&self) -> Vec<Source>;

    /// Brings one key to its desired state. The run loop makes a [`tower::Service`] of it.
    fn reconcile(self: Arc<Self>, key: Key) -> impl Future<Output = Outcome> + Send;
}

/// A kind that a component listens to.
pub struct Source {
    pub(crate) subscribe: Box<dyn FnOnce(Queue) -> Option<Subscription> + Send>,
    pub(crate) synced: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Source {
    /// Listens to `informer`; `map` adds to the queue the keys that a change concerns.
    pub fn new<K: Object>(informer: &Informer<K>, map: impl Fn(Change<'_, K>, &Queue) + Send + Sync + 'static) -> Source {
        let (feed, sync) = (informer.clone(), informer.clone());
        Source {
            subscribe: Box::new(move |queue| {
                Some(feed.subscribe(move |change| {
                    let revision = change.latest().map_or(0, |object| revision_of(object.meta()));
                    cause::of_change(revision, || map(change, &queue));
                }))
            }),
            synced: Box::pin(async move { sync.synced().await }),
        }
    }

    /// Listens to the component's own kind: every change concerns the object itself.
    pub fn own<K: Object>(informer: &Informer<K>) -> Source {
        Self::new(informer, |change, queue| {
            if let Some(object) = change.latest() {
                queue.add(Key::of(object.meta()));
            }
        })
    }

    /// Listens to what objects of `kind` control: a change concerns the controlling owner.
    pub fn controlled<K: Object>(informer: &Informer<K>, group: &'static str, kind: &'static str) -> Source {
        Self::new(informer, move |change, queue| {
            let mut last = None;
            for object in change.states() {
                if let Some(owner) = super::object::controller_of(object.meta())
                    && owner.kind == kind
                    && owner.api_version.split_once('/').map_or("", |(group, _)| group) == group
                    && last != Some(&owner.name)
                {
                    last = Some(&owner.name);
                    queue.add(Key::new(object.meta().namespace.as_deref().unwrap_or_default(), &owner.name));
                }
            }
        })
    }

    /// Only reads from `informer`: no work before it is filled, no work because of it.
    pub fn lookup<K: Object>(informer: &Informer<K>) -> Source {
        let sync = informer.clone();
        Source { subscribe: Box::new(|_| None), synced: Box::pin(async move { sync.synced().await }) }
    }

    /// Anything else that produces keys: it is started with the queue and ends when its subscription is dropped.
    pub fn custom(subscribe: impl FnOnce(Queue) -> Subscription + Send + 'static) -> Source {
        Source { subscribe: Box::new(move |queue| Some(subscribe(queue))), synced: Box::pin(std::future::ready(())) }
    }

    /// Adds one key at the start and whenever the work itself asks for it: for periodic work.
    pub fn once(key: Key) -> Source {
        Source {
            subscribe: Box::new(move |queue| {
                queue.add(key);
                None
            }),
            synced: Box::pin(std::future::ready(())),
        }
    }
}
