//! Keeps the registry in step with CustomResourceDefinitions: a definition is served when the write that established it is acknowledged.
//! When a definition is being deleted, its instances are deleted first; that is the one thing here that takes time.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::api::options::{DeleteOptions, WriteOptions};
use crate::api::target::Target;
use crate::api::write::Before;
use crate::object::{Object, meta};
use crate::registry::{Registry, Resource, custom::resources_of_definition};
use crate::request::{Context, RequestInfo, User};
use crate::store;
use crate::watch::{Observer, State};

/// The finalizer that holds a definition until its instances are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

struct Definitions {
    registry: Arc<Registry>,
    served: Mutex<BTreeMap<String, Vec<Arc<Resource>>>>,
    deleting: mpsc::UnboundedSender<Arc<Object>>,
}

impl Observer for Definitions {
    fn changed(&self, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>) {
        let Some(either) = new.or(old) else { return };
        let mut served = self.served.lock();
        match new.filter(|new| is_established(new.value())) {
            Some(new) => {
                let same = old.is_some_and(|old| {
                    old.value()["spec"] == new.value()["spec"]
                        && meta(old.value(), "deletionTimestamp") == meta(new.value(), "deletionTimestamp")
                        && old.value()["status"]["acceptedNames"] == new.value()["status"]["acceptedNames"]
                });
                // Records carry their compiled schema: a write that changes neither spec nor names keeps them.
                if !same || !served.contains_key(either.name()) {
                    let resources = resources_of_definition(new.value()).into_iter().map(Arc::new).collect();
                    served.insert(either.name().to_owned(), resources);
                }
            }
            None => {
                served.remove(either.name());
            }
        }
        self.registry.replace_custom(served.values().flatten().cloned());
        if let Some(new) = new.filter(|new| !meta(new.value(), "deletionTimestamp").is_empty()) {
            let _ = self.deleting.send(new.clone());
        }
    }
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// Definitions that are being deleted.
pub struct Cleanup(mpsc::UnboundedReceiver<Arc<Object>>);

/// Begins to serve every established definition.
pub async fn observe(state: &State, registry: &Arc<Registry>) -> store::Result<Cleanup> {
    let (deleting, receiver) = mpsc::unbounded_channel();
    let definitions = Definitions { registry: registry.clone(), served: Mutex::default(), deleting };
    state.topic("customresourcedefinitions").await?.observe(Arc::new(definitions));
    Ok(Cleanup(receiver))
}

impl Cleanup {
    /// Deletes the instances of definitions that are being deleted, then lets the definitions go.
    pub async fn run(mut self, api: Arc<Api>, stop: CancellationToken) {
        loop {
            let definition = tokio::select! {
                next = self.0.recv() => next,
                () = stop.cancelled() => None,
            };
            let Some(definition) = definition else { return };
            // Each by itself: an instance that waits for a finalizer must not hold other definitions.
            let (api, stop) = (api.clone(), stop.clone());
            tokio::spawn(async move {
                let done = tokio::select! {
                    done = clean_up(&api, definition.value()) => done,
                    () = stop.cancelled() => Ok(()),
                };
                if let Err(status) = done {
                    tracing::warn!(definition = definition.name(), error = %status, "the instances of a definition could not be deleted");
                }
            });
        }
    }
}

async fn clean_up(api: &Api, definition: &Value) -> Result<(), crate::status::Status> {
    let finalizers = definition["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.contains(&json!(CLEANUP)) {
        return Ok(());
    }
    let user = Arc::new(User::new("system:apiserver", &["system:masters", "system:authenticated"]));
    let info = RequestInfo { is_resource: true, verb: "delete", ..RequestInfo::default() };
    let context = Arc::new(Context::new(info, "", uuid::Uuid::new_v4().to_string().into(), "kube-apiserver"));
    context.identify(user.clone());
    let target = |resource: Arc<Resource>, namespace: &str, name: &str| Target {
        context: context.clone(),
        user: user.clone(),
        resource,
        namespace: namespace.into(),
        name: name.into(),
        subresource: String::new(),
        options: WriteOptions::default(),
        conversions: Arc::default(),
    };
    let resources: Vec<Arc<Resource>> = resources_of_definition(definition).into_iter().map(Arc::new).collect();
    if let Some(resource) = resources.iter().find(|r| !r.is_stored_otherwise()).or(resources.first()) {
        let topic = api.state.topic(&resource.storage).await.map_err(crate::api::read::store_error)?;
        for object in topic.list(&topic.prefix(), None, 0, 0, |_| true).objects {
            let value = object.value();
            let one = target(resource.clone(), meta(value, "namespace"), meta(value, "name"));
            match api.delete(&one, &DeleteOptions::default()).await {
                Err(status) if status.reason != "NotFound" => return Err(status),
                _ => {}
            }
        }
        // An instance that waits for a finalizer of its own holds its definition.
        while !topic.is_empty() {
            api.clock.sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    let Some(definitions) = api.registry.lookup("apiextensions.k8s.io", "v1", "customresourcedefinitions") else { return Ok(()) };
    let one = target(definitions, "", meta(definition, "name"));
    let released = |old: Option<&Before>| {
        let mut object = Before::copy(old);
        let metadata = crate::object::meta_mut(&mut object);
        metadata.remove("resourceVersion");
        if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
            finalizers.retain(|f| f != CLEANUP);
        }
        Ok(object)
    };
    api.update(&one, &released, false).await.map(|_| ())
}
