//! What admission knows of the cluster: objects as they are now, looked up by the plural of their resource. Everything comes from
//! the read side, so that a decision sees every write that was acknowledged before it. Nothing is written here.

use std::sync::Arc;

use usher_components::clock::Clock;

use super::webhook::client::Clients;
use super::webhook::endpoint::ServiceMap;
use crate::object::Object;
use crate::registry::Registry;
use crate::status::Status;
use crate::store;
use crate::watch::State;

/// The cluster as admission sees it. Clones are the same cluster.
#[derive(Clone)]
pub struct Cluster {
    /// The read side.
    pub state: Arc<State>,
    /// What exists.
    pub registry: Arc<Registry>,
    /// What time it is.
    pub clock: Clock,
    /// Connections to the webhooks that convert custom objects.
    pub converters: Arc<Clients>,
}

/// The resources that nearly every decision looks at; loaded before the first request.
const ALWAYS_LOADED: &[&str] =
    &["namespaces", "serviceaccounts", "limitranges", "resourcequotas", "priorityclasses", "services", "endpointslices", "pods", "nodes"];

impl Cluster {
    /// A view over the read side, with everything loaded that decisions usually need.
    pub async fn over(state: Arc<State>, registry: Arc<Registry>, clock: Clock) -> store::Result<Cluster> {
        for storage in ALWAYS_LOADED {
            state.topic(storage).await?;
        }
        Ok(Cluster { state, registry, clock, converters: Arc::default() })
    }

    /// The same cluster, where webhooks behind these Services are served from elsewhere.
    pub fn with_services(&self, services: Arc<ServiceMap>) -> Cluster {
        Cluster { converters: Arc::new(Clients::new(services)), ..self.clone() }
    }

    /// One object; the namespace is empty for a cluster-scoped one.
    pub async fn get(&self, storage: &str, namespace: &str, name: &str) -> Result<Option<Arc<Object>>, Status> {
        let topic = self.state.topic(storage).await.map_err(Status::internal)?;
        Ok(topic.get(&key(storage, namespace, name)))
    }

    /// One object of a resource that is loaded already.
    pub fn peek(&self, storage: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.state.loaded(storage)?.get(&key(storage, namespace, name))
    }

    /// All objects of a resource in a namespace, or everywhere if it is empty.
    pub async fn list(&self, storage: &str, namespace: &str) -> Result<Vec<Arc<Object>>, Status> {
        let topic = self.state.topic(storage).await.map_err(Status::internal)?;
        let prefix = key(storage, namespace, "");
        Ok(topic.list(&prefix, None, 0, 0, |_| true).objects)
    }

    /// A namespace.
    pub fn namespace(&self, name: &str) -> Option<Arc<Object>> {
        self.peek("namespaces", "", name)
    }
}

fn key(storage: &str, namespace: &str, name: &str) -> String {
    match namespace.is_empty() {
        true => format!("/registry/{storage}/{name}"),
        false => format!("/registry/{storage}/{namespace}/{name}"),
    }
}
