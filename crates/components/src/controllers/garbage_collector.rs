//! The garbage collector: what nobody owns any more goes, over all kinds, custom ones included.
//!
//! It watches the metadata of every resource that can be listed, watched and deleted, and follows what the server
//! serves as definitions come and go. Who depends on whom, and what follows from a change, is in [`graph`]; this file
//! asks the server where the graph does not know, and carries out the verdicts.

pub mod graph;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{Method, Request, header};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    events::{EventType, Recorder},
    runtime::{
        Component, Context, Error, Identity, Key, Outcome, Partial, Queue, Requeue, Source, Subscription, Watches, cause,
        discovery::{Resource, discover},
    },
};
use graph::{FOREGROUND, Graph, Look, Node, ORPHAN, Owner, Verdict, judge};

const ACCOUNT: &str = "generic-garbage-collector";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// How often the server is asked what it serves, if nothing says that it has changed.
const REDISCOVER: Duration = Duration::from_secs(30);
/// How long a new definition may take until it is served.
const SETTLE: Duration = Duration::from_millis(200);
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

struct Collector {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    watches: Watches,
    clock: Clock,
    recorder: Recorder,
    graph: Mutex<Graph>,
    resources: Mutex<HashMap<String, Resource>>,
}

/// Runs the collector.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(ACCOUNT));
    let shared = Shared {
        recorder: context.recorder(client.clone(), "garbage-collector-controller"),
        client,
        watches: context.watches.clone(),
        clock: context.clock.clone(),
        graph: Mutex::default(),
        resources: Mutex::default(),
    };
    context.run(Collector { shared: Arc::new(shared) })
}

impl Component for Collector {
    const NAME: &'static str = "garbage-collector-controller";
    const WORKERS: usize = 32;

    fn sources(&self) -> Vec<Source> {
        let shared = self.shared.clone();
        vec![Source::custom(move |queue| {
            let stop = CancellationToken::new();
            let task = follow(shared, queue, stop.clone());
            tokio::spawn(task);
            Subscription::new(move || stop.cancel())
        })]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let outcome = match &*key.namespace {
            "orphan" => self.shared.orphan(&key.name).await,
            _ => self.shared.collect(&key.name).await,
        };
        match outcome {
            Ok(()) => Ok(Requeue::Done),
            // Gone in the meantime is what was wanted.
            Err(error) if error.is_not_found() => Ok(Requeue::Done),
            Err(error) => Err(error),
        }
    }
}

fn key(look: Look) -> Key {
    match look {
        Look::Delete(uid) => Key::new("delete", &uid),
        Look::Orphan(uid) => Key::new("orphan", &uid),
    }
}

/// Keeps a subscription for every resource that the server serves.
async fn follow(shared: Arc<Shared>, queue: Queue, stop: CancellationToken) {
    let changed = Arc::new(tokio::sync::Notify::new());
    let definitions = shared.watches.metadata(DEFINITIONS);
    let notify = changed.clone();
    let _definitions = definitions.subscribe_metadata(Box::new(move |_, _| notify.notify_one()));
    let mut subscriptions: HashMap<String, Subscription> = HashMap::new();
    loop {
        match discover(&shared.client).await {
            Ok(resources) => shared.adjust(resources, &queue, &mut subscriptions),
            Err(error) => tracing::debug!(%error, "discovery failed"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = changed.notified() => shared.clock.sleep(SETTLE).await,
            () = shared.clock.sleep(REDISCOVER) => {}
        }
    }
}

impl Shared {
    fn adjust(self: &Arc<Self>, resources: Vec<Resource>, queue: &Queue, subscriptions: &mut HashMap<String, Subscription>) {
        let served: HashMap<String, Resource> = resources
            .into_iter()
            // Events are many, short-lived and own nothing.
            .filter(|resource| resource.can(&["list", "watch", "delete"]) && resource.plural != "events")
            .map(|resource| (resource.collection(), resource))
            .collect();
        let gone: Vec<_> = subscriptions.keys().filter(|path| !served.contains_key(*path)).cloned().collect();
        *self.resources.lock() = served.clone();
        for path in gone {
            subscriptions.remove(&path);
            self.watches.forget_metadata(&path);
            self.graph.lock().remove_resource(&path);
        }
        for path in served.into_keys() {
            if subscriptions.contains_key(&path) {
                continue;
            }
            let (shared, queue, resource) = (self.clone(), queue.clone(), Arc::<str>::from(&*path));
            let feed = self.watches.metadata(&path);
            let handler = move |old: Option<&_>, new: Option<&_>| {
                let old: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta> = old;
                let mut graph = shared.graph.lock();
                let mut looks = Vec::new();
                // A successor of the same name is another object.
                if let Some(old) = old
                    && new.is_none_or(|new: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| new.uid != old.uid)
                {
                    looks = graph.remove(old.uid.as_deref().unwrap_or_default());
                }
                if let Some(new) = new {
                    looks.extend(graph.upsert(&resource, new));
                }
                drop(graph);
                looks.into_iter().for_each(|look| queue.add(key(look)));
            };
            subscriptions.insert(path, feed.subscribe_metadata(Box::new(handler)));
        }
    }

    fn resource(&self, node: &Node) -> Option<Resource> {
        self.resources.lock().get(&*node.resource).cloned()
    }

    /// The resource that an owner reference means.
    fn resource_of(&self, owner: &OwnerReference) -> Option<Resource> {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let resources = self.resources.lock();
        let mut of_kind = resources.values().filter(|resource| resource.group == group && resource.kind == owner.kind);
        let found = of_kind.next().cloned()?;
        // The version of the reference need not be the one that is watched; any that is served will do.
        Some(Resource { version: version.to_owned(), ..found })
    }

    /// Decides whether an object should go, and acts on it.
    async fn collect(&self, uid: &str) -> Result<(), Error> {
        let (node, dependents) = {
            let graph = self.graph.lock();
            let Some(node) = graph.node(uid).cloned() else { return Ok(()) };
            (node, graph.dependents(uid))
        };
        let Some(resource) = self.resource(&node) else { return Ok(()) };
        if node.waits_for_dependents() {
            return self.finish_foreground(&resource, uid, &node, &dependents).await;
        }
        if node.deleting || node.owners.is_empty() {
            return Ok(());
        }
        let mut owners = Vec::new();
        for owner in &node.owners {
            owners.push((owner.clone(), self.state_of(owner, &node, &resource).await?));
        }
        match judge(&owners, !dependents.is_empty()) {
            Verdict::Keep => Ok(()),
            Verdict::Disown(gone) => self.disown(&resource, &node, uid, &gone).await,
            Verdict::DeleteForeground => {
                // A circle of owners that all wait for each other would never end.
                if dependents.iter().any(|(_, dependent)| dependent.waits_for_dependents()) {
                    self.unblock(&resource, &node, uid).await?;
                }
                self.delete(&resource, &node, uid, "Foreground").await
            }
            Verdict::Delete => {
                let policy = if node.orphan {
                    "Orphan"
                } else if node.foreground {
                    "Foreground"
                } else {
                    "Background"
                };
                self.delete(&resource, &node, uid, policy).await
            }
        }
    }

    /// What an owner is: by the graph if it is there, by asking the server if it is not.
    async fn state_of(&self, owner: &OwnerReference, node: &Node, resource: &Resource) -> Result<Owner, Error> {
        {
            let graph = self.graph.lock();
            if graph.is_absent(&owner.uid) {
                return Ok(Owner::Dangling);
            }
            if let Some(known) = graph.node(&owner.uid) {
                let here = known.namespace.is_empty() || known.namespace == node.namespace;
                if here && known.name == owner.name {
                    let waits = known.waits_for_dependents() && owner.block_owner_deletion == Some(true);
                    return Ok(if waits { Owner::Waiting } else { Owner::Solid });
                }
                if !here {
                    self.complain(node, resource, owner);
                }
            }
        }
        let Some(kind) = self.resource_of(owner) else {
            return Err(Error::Other(format!("no resource is known for the owner {} {}", owner.api_version, owner.kind)));
        };
        if kind.namespaced && node.namespace.is_empty() {
            // Such a reference can never be resolved; it is left alone rather than guessed at.
            self.complain(node, resource, owner);
            return Ok(Owner::Solid);
        }
        let namespace = if kind.namespaced { node.namespace.as_str() } else { "" };
        match self.get(&kind.path(namespace, &owner.name)).await {
            Ok(found) if found.metadata.uid.as_deref() == Some(&owner.uid) => {
                let waiting = found.metadata.deletion_timestamp.is_some()
                    && found.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FOREGROUND)
                    && owner.block_owner_deletion == Some(true);
                Ok(if waiting { Owner::Waiting } else { Owner::Solid })
            }
            Ok(_) => Ok(Owner::Dangling),
            Err(error) if error.is_not_found() => Ok(Owner::Dangling),
            Err(error) => Err(error),
        }
    }

    fn complain(&self, node: &Node, resource: &Resource, owner: &OwnerReference) {
        let about = ObjectReference {
            api_version: Some(if resource.group.is_empty() {
                resource.version.clone()
            } else {
                format!("{}/{}", resource.group, resource.version)
            }),
            kind: Some(resource.kind.clone()),
            namespace: Some(node.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            name: Some(node.name.clone()),
            ..ObjectReference::default()
        };
        let reference =
            format!("{}/{}, namespace: {}, name: {}, uid: {}", owner.api_version, owner.kind, node.namespace, owner.name, owner.uid);
        let message = format!("ownerRef [{reference}] does not exist in namespace {:?}", node.namespace);
        self.recorder.event(&about, EventType::Warning, "OwnerRefInvalidNamespace", message);
    }

    /// An object that waits for its dependents: is anything left that blocks it?
    async fn finish_foreground(&self, resource: &Resource, uid: &str, node: &Node, dependents: &[(String, Node)]) -> Result<(), Error> {
        let blocking = dependents
            .iter()
            .any(|(_, dependent)| dependent.owners.iter().any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true)));
        // Those that are left have been told already when the owner began to wait.
        if blocking { Ok(()) } else { self.remove_finalizer(resource, node, uid, FOREGROUND).await }
    }

    /// Lets the dependents of an object go, then the object.
    async fn orphan(&self, uid: &str) -> Result<(), Error> {
        let (node, dependents) = {
            let graph = self.graph.lock();
            let Some(node) = graph.node(uid).cloned() else { return Ok(()) };
            (node, graph.dependents(uid))
        };
        let Some(resource) = self.resource(&node) else { return Ok(()) };
        for (dependent_uid, dependent) in dependents {
            let Some(resource) = self.resource(&dependent) else { continue };
            match self.disown(&resource, &dependent, &dependent_uid, &[uid.to_owned()]).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        self.remove_finalizer(&resource, &node, uid, ORPHAN).await
    }

    /// Removes owner references.
    async fn disown(&self, resource: &Resource, node: &Node, uid: &str, gone: &[String]) -> Result<(), Error> {
        self.change_owners(resource, node, uid, |owners| owners.retain(|owner| !gone.contains(&owner.uid))).await
    }

    async fn unblock(&self, resource: &Resource, node: &Node, uid: &str) -> Result<(), Error> {
        let free = |owners: &mut Vec<OwnerReference>| owners.iter_mut().for_each(|owner| owner.block_owner_deletion = Some(false));
        self.change_owners(resource, node, uid, free).await
    }

    async fn change_owners(
        &self,
        resource: &Resource,
        node: &Node,
        uid: &str,
        change: impl FnOnce(&mut Vec<OwnerReference>),
    ) -> Result<(), Error> {
        let path = resource.path(&node.namespace, &node.name);
        let meta = self.get(&path).await?.metadata;
        if meta.uid.as_deref() != Some(uid) {
            return Ok(());
        }
        let mut owners = meta.owner_references.unwrap_or_default();
        change(&mut owners);
        let owners = if owners.is_empty() { Value::Null } else { json!(owners) };
        self.patch(&path, &json!({"metadata": {"uid": uid, "resourceVersion": meta.resource_version, "ownerReferences": owners}})).await
    }

    async fn remove_finalizer(&self, resource: &Resource, node: &Node, uid: &str, finalizer: &str) -> Result<(), Error> {
        let path = resource.path(&node.namespace, &node.name);
        let meta = self.get(&path).await?.metadata;
        let mut finalizers = meta.finalizers.unwrap_or_default();
        let before = finalizers.len();
        finalizers.retain(|own| own != finalizer);
        if meta.uid.as_deref() != Some(uid) || finalizers.len() == before {
            return Ok(());
        }
        let finalizers = if finalizers.is_empty() { Value::Null } else { json!(finalizers) };
        self.patch(&path, &json!({"metadata": {"uid": uid, "resourceVersion": meta.resource_version, "finalizers": finalizers}})).await
    }

    async fn delete(&self, resource: &Resource, node: &Node, uid: &str, policy: &str) -> Result<(), Error> {
        tracing::debug!(kind = %resource.kind, namespace = %node.namespace, name = %node.name, policy, "collecting");
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy, "preconditions": {"uid": uid}});
        match self.send(Method::DELETE, &resource.path(&node.namespace, &node.name), "application/json", &options).await {
            Ok(_) => Ok(()),
            // Another object of that name: this one is gone.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn patch(&self, path: &str, patch: &Value) -> Result<(), Error> {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch).await.map(drop)
    }

    async fn get(&self, path: &str) -> Result<Partial, Error> {
        Ok(serde_json::from_str(&self.send(Method::GET, path, "application/json", &Value::Null).await?)?)
    }

    async fn send(&self, method: Method, path: &str, content: &str, body: &Value) -> Result<String, Error> {
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, METADATA)
            .header(header::CONTENT_TYPE, content)
            .body(body)
            .map_err(kube::Error::HttpError)?;
        Ok(self.client.request_text(cause::marked(request)).await?)
    }
}
