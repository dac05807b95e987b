//! What a fresh server has: namespaces, roles and bindings, priority classes, the `kubernetes` Service. Made where it is missing, at every
//! start; what an administrator changed stays.

use std::sync::Arc;

use serde_json::Value;

use crate::api::Api;
use crate::api::options::WriteOptions;
use crate::api::target::Target;
use crate::api::write::Before;
use crate::object::meta;
use crate::registry::bootstrap::{Settings, objects};
use crate::request::{Context, RequestInfo, User};
use crate::status::Status;
use crate::store::At;

/// Makes what is missing.
pub async fn run(api: &Api, settings: &Settings) -> Result<(), String> {
    let user = Arc::new(User::new("system:apiserver", &["system:masters", "system:authenticated"]));
    // All at once: the store puts what waits together into a few commits.
    let objects = objects(settings, &api.registry.table());
    let (namespaces, others): (Vec<Value>, Vec<Value>) = objects.into_iter().partition(|object| object["kind"] == "Namespace");
    for batch in [namespaces, others] {
        futures::future::try_join_all(batch.into_iter().map(|object| make(api, &user, object))).await?;
    }
    Ok(())
}

async fn make(api: &Api, user: &Arc<User>, mut object: Value) -> Result<(), String> {
    let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let Some(resource) = api.registry.by_kind(group, version, &kind) else { return Err(format!("no resource for {kind}")) };
    let (namespace, name) = (meta(&object, "namespace").to_owned(), meta(&object, "name").to_owned());
    // Asked of the store, not of the read side: a start must not load every ConfigMap to learn that one is there.
    let key = crate::api::read::key(&resource, &namespace, &name);
    if api.state.store().get(&key, At::Newest).await.map_err(|e| e.to_string())?.is_some() {
        return Ok(());
    }
    crate::schema::default::apply_defaults(&mut object, &resource);
    let info =
        RequestInfo { is_resource: true, verb: "create", name: name.clone(), namespace: namespace.clone(), ..RequestInfo::default() };
    let context = Arc::new(Context::new(info, "", uuid::Uuid::new_v4().to_string().into(), "kube-apiserver"));
    context.identify(user.clone());
    let target = Target {
        context,
        user: user.clone(),
        resource,
        namespace,
        name: name.clone(),
        subresource: String::new(),
        options: WriteOptions::default(),
        conversions: Arc::default(),
    };
    let failed = |status: Status| format!("cannot make {kind} {name}: {}", status.message);
    let status = object.get("status").cloned().filter(|_| target.resource.subresource("status").is_some());
    match api.create(&target, object).await {
        Ok(written) => {
            // A create leaves the status out; what a fresh server says of these objects is written as whoever watches over them would.
            let Some(status) = status.filter(|status| written.object.value().get("status") != Some(status)) else { return Ok(()) };
            let target = Target { subresource: "status".into(), ..target };
            let with_status = |old: Option<&Before>| {
                let mut object = Before::copy(old);
                object["status"] = status.clone();
                Ok(object)
            };
            api.update(&target, &with_status, false).await.map(|_| ()).map_err(failed)
        }
        Err(status) if status.reason == "AlreadyExists" => Ok(()),
        Err(status) => Err(failed(status)),
    }
}
