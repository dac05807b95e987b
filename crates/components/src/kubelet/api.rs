//! The few requests that a kubelet makes for every Pod, without reading back what it does not need.
//!
//! An ordinary typed client parses the whole object that comes back; with thousands of status writes a second that is most of the work.

use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use crate::runtime::cause;

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server said no.
    #[error("{message} ({code})")]
    Refused {
        /// The HTTP status.
        code: StatusCode,
        /// What it said.
        message: String,
    },
    /// The server could not be asked.
    #[error(transparent)]
    Client(#[from] kube::Error),
    /// The request could not be made.
    #[error("{0}")]
    Request(String),
}

impl ApiError {
    /// Whether the server answered with this status.
    #[must_use]
    pub fn is(&self, wanted: StatusCode) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == wanted)
    }
}

/// Sends a request and returns what came back, if it was a success.
pub async fn send(client: &Client, method: Method, path: &str, content_type: &str, body: &Value) -> Result<Vec<u8>, ApiError> {
    let body = serde_json::to_vec(body).map_err(|error| ApiError::Request(error.to_string()))?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content_type)
        .header(header::ACCEPT, "application/json")
        .body(Body::from(body))
        .map_err(|error| ApiError::Request(error.to_string()))?;
    let response = client.send(cause::marked(request)).await?;
    let code = response.status();
    let body = response.into_body().collect().await.map_err(|error| ApiError::Request(error.to_string()))?.to_bytes();
    if code.is_success() {
        return Ok(body.to_vec());
    }
    let status: Value = serde_json::from_slice(&body).unwrap_or_default();
    Err(ApiError::Refused { code, message: status["message"].as_str().unwrap_or_default().to_owned() })
}

/// Strategic merge patch; returns the revision that came of it.
pub async fn patch(client: &Client, path: &str, body: &Value) -> Result<u64, ApiError> {
    #[derive(serde::Deserialize)]
    struct Answer {
        metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta,
    }
    let answer = send(client, Method::PATCH, path, "application/strategic-merge-patch+json", body).await?;
    let answer: Answer = serde_json::from_slice(&answer).map_err(|error| ApiError::Request(error.to_string()))?;
    Ok(answer.metadata.resource_version.and_then(|version| version.parse().ok()).unwrap_or_default())
}

/// The path of a Pod.
#[must_use]
pub fn pod_path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// Deletes a Pod for good: its containers have ended.
pub async fn delete_pod(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<(), ApiError> {
    let options = serde_json::json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": {"uid": uid},
    });
    send(client, Method::DELETE, &pod_path(namespace, name), "application/json", &options).await.map(|_| ())
}
