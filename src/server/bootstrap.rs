//! What a fresh server has: namespaces, roles and bindings, priority classes, the `kubernetes` Service. Made where it is missing, at every
//! start; what an administrator changed stays.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::Api;
use crate::api::options::WriteOptions;
use crate::api::write::Target;
use crate::object::meta;
use crate::request::{Context, RequestInfo, User};

/// Makes what is missing.
pub async fn run(api: &Api) -> Result<(), String> {
    let names = ["default", "kube-node-lease", "kube-public", "kube-system"];
    let objects: Vec<Value> = names.map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).into();
    let user = Arc::new(User::new("system:apiserver", &["system:masters", "system:authenticated"]));
    for object in objects {
        make(api, &user, object).await?;
    }
    Ok(())
}

async fn make(api: &Api, user: &Arc<User>, mut object: Value) -> Result<(), String> {
    let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let Some(resource) = api.registry.by_kind(group, version, &kind) else { return Err(format!("no resource for {kind}")) };
    let (namespace, name) = (meta(&object, "namespace").to_owned(), meta(&object, "name").to_owned());
    let topic = api.state.topic(&resource.storage).await.map_err(|e| e.to_string())?;
    if topic.get(&crate::api::read::key(&resource, &namespace, &name)).is_some() {
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
    };
    match api.create(&target, object).await {
        Ok(_) => Ok(()),
        Err(status) if status.reason == "AlreadyExists" => Ok(()),
        Err(status) => Err(format!("cannot make {kind} {name}: {}", status.message)),
    }
}
