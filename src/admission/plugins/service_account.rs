//! `ServiceAccount`: a Pod runs as an account that exists, `default` unless it says otherwise, and finds that account's token where
//! client libraries look for it.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::pod::{array_mut, containers_mut, is_mirror};
use crate::admission::{Cluster, Mutate, Operation, Validate, Write};
use crate::authz::node::graph::{Kind, mentioned};
use crate::object::meta;
use crate::status::Status;

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";

/// The plugin.
pub struct ServiceAccount(pub Cluster);

impl Mutate for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, write: &Write) -> bool {
        write.creates("", "pods")
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            // The kubelet made it and would not know it again if it were changed.
            if is_mirror(write.object()) {
                return mirror(write.object()).map_err(|why| write.forbidden(why));
            }
            let spec = &mut write.object_mut()["spec"];
            if !spec.is_object() {
                *spec = json!({});
            }
            let name = match text(&spec["serviceAccountName"]) {
                "" => "default".to_owned(),
                name => name.to_owned(),
            };
            spec["serviceAccountName"] = json!(name);
            spec["serviceAccount"] = json!(name);
            let account = self.account(write, &name).await?;
            let spec = &mut write.object_mut()["spec"];
            let automount = spec["automountServiceAccountToken"].as_bool().or_else(|| account["automountServiceAccountToken"].as_bool());
            if automount.unwrap_or(true) {
                mount_token(spec);
            }
            let none = spec["imagePullSecrets"].as_array().is_none_or(Vec::is_empty);
            if let (true, Some(secrets)) = (none, account["imagePullSecrets"].as_array().filter(|s| !s.is_empty())) {
                let named = secrets.iter().map(|s| json!({"name": s["name"]}));
                spec["imagePullSecrets"] = named.collect();
            }
            Ok(())
        })
    }
}

impl Validate for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, write: &Write) -> bool {
        write.creates("", "pods")
            || (write.operation == Operation::Update && write.is_of("", "pods") && write.subresource == "ephemeralcontainers")
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let pod = write.object();
            let spec = &pod["spec"];
            if is_mirror(pod) {
                return mirror(pod).map_err(|why| write.forbidden(why));
            }
            let account = self.account(write, text(&spec["serviceAccountName"])).await?;
            let enforced = account["metadata"]["annotations"]["kubernetes.io/enforce-mountable-secrets"] == "true";
            if enforced {
                limit_secrets(&account, spec).map_err(|why| write.forbidden(why))?;
            }
            Ok(())
        })
    }
}

impl ServiceAccount {
    async fn account(&self, write: &Write, name: &str) -> Result<Value, Status> {
        let found = self.0.get("serviceaccounts", &write.namespace, name).await?;
        let found = found.map(|object| (**object.value()).clone());
        found.ok_or_else(|| {
            write.forbidden(format!("error looking up service account {}/{name}: serviceaccount {name:?} not found", write.namespace))
        })
    }
}

/// A mirror Pod runs without an account and without anything that is secret.
fn mirror(pod: &Value) -> Result<(), &'static str> {
    let spec = &pod["spec"];
    if !text(&spec["serviceAccountName"]).is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    if mentioned(pod).iter().any(|(kind, _)| *kind == Kind::Secret) {
        return Err("a mirror pod may not reference secrets");
    }
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mut sources = volumes.flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    match sources.any(|source| source["serviceAccountToken"].is_object()) {
        true => Err("a mirror pod may not use ServiceAccountToken volume projections"),
        false => Ok(()),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn mount_token(spec: &mut Value) {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let existing = volumes.map(|v| text(&v["name"])).find(|name| name.starts_with(VOLUME_PREFIX)).map(str::to_owned);
    let has_volume = existing.is_some();
    let name = existing.unwrap_or_else(|| format!("{VOLUME_PREFIX}{}", suffix()));
    let mut needed = false;
    for container in containers_mut(spec, &["initContainers", "containers"]) {
        let mounted = container["volumeMounts"].as_array().into_iter().flatten().any(|m| m["mountPath"] == MOUNT_PATH);
        if !mounted {
            array_mut(container, "volumeMounts").push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            needed = true;
        }
    }
    if needed && !has_volume {
        array_mut(spec, "volumes").push(json!({"name": name, "projected": {"sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ], "defaultMode": 420}}));
    }
}

/// Five letters that make no words.
fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let random = uuid::Uuid::new_v4();
    random.as_bytes().iter().take(5).map(|b| char::from(LETTERS[usize::from(*b) % LETTERS.len()])).collect()
}

fn limit_secrets(account: &Value, spec: &Value) -> Result<(), String> {
    let named = |list: &Value| list.as_array().into_iter().flatten().map(|s| text(&s["name"]).to_owned()).collect::<Vec<_>>();
    let (mountable, pull) = (named(&account["secrets"]), named(&account["imagePullSecrets"]));
    let account_name = meta(account, "name");
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        let secret = text(&volume["secret"]["secretName"]);
        if !secret.is_empty() && !mountable.iter().any(|m| m == secret) {
            return Err(format!(
                "volume with secret.secretName={secret:?} is not allowed because service account {account_name} does not reference that secret"
            ));
        }
    }
    for (list, word) in [("initContainers", "init container"), ("containers", "container"), ("ephemeralContainers", "ephemeral container")]
    {
        for container in spec[list].as_array().into_iter().flatten() {
            let variables = container["env"].as_array().into_iter().flatten();
            let variables =
                variables.map(|env| (format!("envVar {}", text(&env["name"])), text(&env["valueFrom"]["secretKeyRef"]["name"])));
            let sources = container["envFrom"].as_array().into_iter().flatten();
            let sources = sources.map(|source| ("envFrom".to_owned(), text(&source["secretRef"]["name"])));
            let mut all = variables.chain(sources).filter(|(_, secret)| !secret.is_empty());
            if let Some((what, secret)) = all.find(|(_, secret)| !mountable.iter().any(|m| m == secret)) {
                let container = text(&container["name"]);
                return Err(format!(
                    "{word} {container} with {what} referencing secret.secretName={secret:?} is not allowed because service account {account_name} does not reference that secret"
                ));
            }
        }
    }
    for (i, secret) in spec["imagePullSecrets"].as_array().into_iter().flatten().map(|s| text(&s["name"])).enumerate() {
        if !pull.iter().any(|p| p == secret) {
            return Err(format!(
                "imagePullSecrets[{i}].name={secret:?} is not allowed because service account {account_name} does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_mounted_in_every_container_and_once() {
        let mut spec = json!({"containers": [{"name": "a"}, {"name": "b", "volumeMounts": [{"name": "own", "mountPath": MOUNT_PATH}]}], "initContainers": [{"name": "i"}]});
        mount_token(&mut spec);
        mount_token(&mut spec);
        let name = spec["volumes"][0]["name"].as_str().unwrap();
        assert!(name.starts_with("kube-api-access-") && name.len() == 21);
        assert_eq!(spec["volumes"].as_array().unwrap().len(), 1);
        assert_eq!(spec["containers"][0]["volumeMounts"], json!([{"name": name, "readOnly": true, "mountPath": MOUNT_PATH}]));
        assert_eq!(spec["containers"][1]["volumeMounts"][0]["name"], "own");
        assert_eq!(spec["initContainers"][0]["volumeMounts"][0]["name"], name);
    }
}
