//! DefaultBinder: writes the chosen node through the Pod's `binding` subresource.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Binding, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;

use crate::runtime::cause;
use crate::scheduler::framework::{Bind, Plugin, Rejection};
use crate::scheduler::info::PodInfo;

/// See the module's description.
pub struct DefaultBinder {
    client: Client,
}

impl DefaultBinder {
    /// A binder that writes through `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

fn binding(pod: &PodInfo, node: String) -> Binding {
    Binding {
        metadata: ObjectMeta {
            name: Some(pod.name().to_owned()),
            namespace: Some(pod.namespace.clone()),
            // The Pod that was looked at, not one of the same name that came after it.
            uid: Some(pod.uid.clone()),
            ..ObjectMeta::default()
        },
        target: ObjectReference { kind: Some("Node".into()), name: Some(node), ..ObjectReference::default() },
    }
}

impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        "DefaultBinder"
    }
}

impl Bind for DefaultBinder {
    fn bind(&self, pod: Arc<PodInfo>, node: String) -> BoxFuture<'static, Option<Result<(), Rejection>>> {
        let client = self.client.clone();
        async move {
            let path = format!("/api/v1/namespaces/{}/pods/{}/binding", pod.namespace, pod.name());
            Some(post(&client, &path, &binding(&pod, node)).await)
        }
        .boxed()
    }
}

async fn post(client: &Client, path: &str, binding: &Binding) -> Result<(), Rejection> {
    let body = serde_json::to_vec(binding).map_err(|error| Rejection::error(error.to_string()))?;
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(|error| Rejection::error(error.to_string()))?;
    match client.request_text(cause::marked(request)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(Rejection::error(status.message.clone())),
        Err(error) => Err(Rejection::error(error.to_string())),
    }
}
