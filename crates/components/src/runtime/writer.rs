//! Writes objects of one kind, and lets the shared cache know at once what came of it.
//!
//! Whoever writes through here finds its own write in the informer when the call returns, long before the watch brings
//! it. The HTTP is plain bytes in and out, so that a kind costs little code.

use std::sync::Arc;

use http::{Method, Request};
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    cause,
    component::Error,
    informer::Informer,
    key::Key,
    object::{Object, Partial, read},
};

/// What happens to what an object owns when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// What the server does by default.
    Default,
    /// The object goes, its dependents follow.
    Background,
    /// The dependents go first.
    Foreground,
}

/// Writes one kind.
pub struct Writer<K> {
    client: Client,
    informer: Informer<K>,
}

impl<K> Clone for Writer<K> {
    fn clone(&self) -> Self {
        Writer { client: self.client.clone(), informer: self.informer.clone() }
    }
}

/// The path of one object, or of the collection if there is no name.
pub fn object_path(group: &str, version: &str, plural: &str, namespace: &str, name: &str) -> String {
    let mut path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    for part in [if namespace.is_empty() { "" } else { "namespaces" }, namespace, plural, name] {
        if !part.is_empty() {
            path.push('/');
            path.push_str(part);
        }
    }
    path
}

impl<K: Object + k8s_openapi::Resource + Serialize> Writer<K> {
    /// A writer that tells `informer`.
    pub fn new(client: Client, informer: &Informer<K>) -> Self {
        Writer { client, informer: informer.clone() }
    }

    fn path(namespace: &str, name: &str) -> String {
        object_path(K::GROUP, K::VERSION, K::URL_PATH_SEGMENT, namespace, name)
    }

    /// Creates an object in its namespace.
    pub async fn create(&self, object: &K) -> Result<Arc<K>, Error> {
        let namespace = object.meta().namespace.as_deref().unwrap_or_default();
        self.create_bytes(namespace, serde_json::to_vec(object)?).await
    }

    /// Creates an object that has been written as JSON already.
    pub async fn create_bytes(&self, namespace: &str, object: Vec<u8>) -> Result<Arc<K>, Error> {
        self.send(Method::POST, Self::path(namespace, ""), "application/json", object).await
    }

    /// Replaces an object.
    pub async fn update(&self, object: &K) -> Result<Arc<K>, Error> {
        self.replace(object, "").await
    }

    /// Replaces an object's status.
    pub async fn update_status(&self, object: &K) -> Result<Arc<K>, Error> {
        self.replace(object, "/status").await
    }

    /// Replaces through any other subresource, such as `/finalize`.
    pub async fn replace(&self, object: &K, subresource: &str) -> Result<Arc<K>, Error> {
        let key = Key::of(object.meta());
        let path = Self::path(&key.namespace, &key.name) + subresource;
        self.send(Method::PUT, path, "application/json", serde_json::to_vec(object)?).await
    }

    /// Patches an object with a JSON merge patch.
    pub async fn merge(&self, key: &Key, subresource: &str, patch: &Value) -> Result<Arc<K>, Error> {
        let path = Self::path(&key.namespace, &key.name) + subresource;
        self.send(Method::PATCH, path, "application/merge-patch+json", serde_json::to_vec(patch)?).await
    }

    /// Patches an object with a strategic merge patch.
    pub async fn patch(&self, key: &Key, subresource: &str, patch: &Value) -> Result<Arc<K>, Error> {
        let path = Self::path(&key.namespace, &key.name) + subresource;
        self.send(Method::PATCH, path, "application/strategic-merge-patch+json", serde_json::to_vec(patch)?).await
    }

    /// Reads an object past the cache.
    pub async fn get(&self, key: &Key) -> Result<Arc<K>, Error> {
        self.send(Method::GET, Self::path(&key.namespace, &key.name), "application/json", Vec::new()).await
    }

    /// Deletes exactly this object (not a successor of the same name). That it is gone already is fine.
    pub async fn delete(&self, object: &K, propagation: Propagation) -> Result<(), Error> {
        self.delete_with(object, propagation, None).await
    }

    /// Deletes as [`Writer::delete`], with a grace period.
    pub async fn delete_with(&self, object: &K, propagation: Propagation, grace: Option<i64>) -> Result<(), Error> {
        let key = Key::of(object.meta());
        let uid = object.meta().uid.as_deref().unwrap_or_default();
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
        match propagation {
            Propagation::Default => {}
            Propagation::Background => options["propagationPolicy"] = json!("Background"),
            Propagation::Foreground => options["propagationPolicy"] = json!("Foreground"),
        }
        if let Some(grace) = grace {
            options["gracePeriodSeconds"] = json!(grace);
        }
        let request = Request::delete(Self::path(&key.namespace, &key.name))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(&options)?)
            .map_err(kube::Error::HttpError)?;
        let text = match self.client.request_text(cause::marked(request)).await.map_err(Error::from) {
            Ok(text) => text,
            Err(error) if error.is_not_found() => {
                self.informer.observe_deletion(&key, uid);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        match remains(&text)? {
            true => {
                self.informer.observe(read(text.as_bytes())?);
            }
            false => self.informer.observe_deletion(&key, uid),
        }
        Ok(())
    }

    async fn send(&self, method: Method, path: String, content: &str, body: Vec<u8>) -> Result<Arc<K>, Error> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content)
            .body(body)
            .map_err(kube::Error::HttpError)?;
        let text = self.client.request_text(cause::marked(request)).await?;
        Ok(self.informer.observe(read(text.as_bytes())?))
    }
}

/// Whether the answer to a deletion is an object that is still there, waiting for its end.
fn remains(text: &str) -> Result<bool, Error> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(default)]
        kind: String,
    }
    if serde_json::from_str::<Kind>(text)?.kind == "Status" {
        return Ok(false);
    }
    let meta = serde_json::from_str::<Partial>(text)?.metadata;
    let waits = meta.deletion_grace_period_seconds.unwrap_or(0) > 0 || meta.finalizers.is_some_and(|f| !f.is_empty());
    Ok(meta.deletion_timestamp.is_some() && waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(object_path("", "v1", "pods", "a", "b"), "/api/v1/namespaces/a/pods/b");
        assert_eq!(object_path("apps", "v1", "deployments", "a", ""), "/apis/apps/v1/namespaces/a/deployments");
        assert_eq!(object_path("", "v1", "nodes", "", "n"), "/api/v1/nodes/n");
    }

    #[test]
    fn an_object_remains_only_while_it_waits_for_something() {
        assert!(!remains(r#"{"kind":"Status"}"#).unwrap());
        assert!(!remains(r#"{"kind":"Pod","metadata":{}}"#).unwrap());
        let waiting = r#"{"metadata":{"deletionTimestamp":"2030-01-01T00:00:00Z","deletionGracePeriodSeconds":30}}"#;
        assert!(remains(waiting).unwrap());
    }
}
