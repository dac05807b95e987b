//! Keeps a node in the API: registers it, renews its Lease every ten seconds, reports its status when that has changed.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus};
use serde_json::{Value, json};

use super::NodeConfig;
use super::agent::Agent;
use super::api::{self, ApiError};
use super::node::{Facts, LEASE_NAMESPACE, lease, node, node_status};
use crate::clock::later;
use crate::cri::v1::{Image, ListImagesRequest, VersionRequest, VersionResponse};
use crate::events::{EventType, ObjectReference};

/// How often the Lease is renewed: a quarter of its duration.
const RENEW: Duration = Duration::from_secs(10);
/// How often the status is written although nothing has changed.
const REPORT: Duration = Duration::from_secs(300);
/// How long after a failed request it is tried again.
const RETRY: Duration = Duration::from_millis(200);

pub(super) struct Heartbeat {
    pub agent: Arc<Agent>,
    pub config: NodeConfig,
    runtime: VersionResponse,
    uid: Option<String>,
    known: Vec<NodeCondition>,
    reported: Option<NodeStatus>,
    reported_at: Timestamp,
}

/// The status without what changes with every look.
fn essence(status: &NodeStatus) -> NodeStatus {
    let mut status = status.clone();
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_heartbeat_time = None;
    }
    status
}

impl Heartbeat {
    pub(super) fn new(agent: Arc<Agent>, config: NodeConfig) -> Self {
        Self {
            agent,
            config,
            runtime: VersionResponse::default(),
            uid: None,
            known: Vec::new(),
            reported: None,
            reported_at: Timestamp::UNIX_EPOCH,
        }
    }

    /// Registers the node and keeps it alive until the agent stops.
    pub(super) async fn beat(mut self) {
        let stop = self.agent.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.live() => {}
        }
    }

    async fn live(&mut self) {
        let clock = self.agent.clock.clone();
        while let Err(error) = self.register().await {
            tracing::warn!(node = %self.agent.name, %error, "the node could not be registered");
            clock.sleep(RETRY).await;
        }
        self.agent.recorder.event(&self.reference(), EventType::Normal, "Starting", "Starting kubelet.");
        let mut renew_at = clock.now();
        loop {
            if renew_at <= clock.now() {
                let _busy = clock.busy();
                renew_at = later(clock.now(), RENEW);
                if let Err(error) = self.renew().await {
                    tracing::warn!(node = %self.agent.name, %error, "the node's Lease could not be renewed");
                    renew_at = later(clock.now(), RETRY);
                }
                if let Err(error) = self.report().await {
                    tracing::warn!(node = %self.agent.name, %error, "the node's status could not be written");
                }
            }
            clock.sleep_until(renew_at).await;
        }
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Node".into()),
            name: Some(self.agent.name.clone()),
            uid: self.uid.clone(),
            ..ObjectReference::default()
        }
    }

    fn facts<'a>(&'a self, images: &'a [Image]) -> Facts<'a> {
        let agent = &self.agent;
        Facts { name: &agent.name, ip: agent.host_ip, port: agent.port, config: &self.config, runtime: &self.runtime, images }
    }

    async fn register(&mut self) -> Result<(), ApiError> {
        if let Ok(version) = self.agent.runtime.version(VersionRequest { version: "0.1.0".into() }).await {
            self.agent.runtime_name.lock().clone_from(&version.runtime_name);
            self.runtime = version;
        }
        let images = self.images().await;
        let facts = self.facts(&images);
        let wanted = node(&facts, self.agent.clock.now());
        let body = as_object(&wanted, "v1", "Node")?;
        let path = format!("/api/v1/nodes/{}", self.agent.name);
        let answer = match api::send(&self.agent.client, Method::POST, "/api/v1/nodes", "application/json", &body).await {
            Err(error) if error.is(StatusCode::CONFLICT) => {
                // It is there from an earlier time: its labels are brought up to date, whatever else it carries stays.
                let labels = json!({"metadata": {"labels": wanted.metadata.labels}});
                api::patch(&self.agent.client, &path, &labels).await?;
                api::send(&self.agent.client, Method::GET, &path, "application/json", &Value::Null).await?
            }
            other => other?,
        };
        let registered: Node = serde_json::from_slice(&answer).map_err(|error| ApiError::Request(error.to_string()))?;
        self.uid = registered.metadata.uid;
        let status = registered.status.unwrap_or_default();
        self.known = status.conditions.clone().unwrap_or_default();
        let wanted = wanted.status.unwrap_or_default();
        // Most servers take the status with the registration; one that does not is told again.
        if status.capacity == wanted.capacity && status.conditions == wanted.conditions {
            self.reported = Some(essence(&wanted));
            self.reported_at = self.agent.clock.now();
        }
        self.report().await
    }

    async fn images(&self) -> Vec<crate::cri::v1::Image> {
        self.agent.runtime.list_images(ListImagesRequest::default()).await.map(|answer| answer.images).unwrap_or_default()
    }

    async fn report(&mut self) -> Result<(), ApiError> {
        let now = self.agent.clock.now();
        let images = self.images().await;
        let facts = self.facts(&images);
        let status = node_status(&facts, &self.known, now);
        let essential = essence(&status);
        if self.reported.as_ref() == Some(&essential) && now < later(self.reported_at, REPORT) {
            return Ok(());
        }
        let path = format!("/api/v1/nodes/{}/status", self.agent.name);
        api::patch(&self.agent.client, &path, &json!({"status": status})).await?;
        self.known = status.conditions.unwrap_or_default();
        self.reported = Some(essential);
        self.reported_at = now;
        Ok(())
    }

    async fn renew(&self) -> Result<(), ApiError> {
        let wanted = lease(&self.agent.name, self.uid.as_deref(), self.agent.clock.now());
        let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases");
        let path = format!("{collection}/{}", self.agent.name);
        let patch = json!({"spec": wanted.spec});
        match api::send(&self.agent.client, Method::PATCH, &path, "application/merge-patch+json", &patch).await {
            Err(error) if error.is(StatusCode::NOT_FOUND) => {
                let body = as_object(&wanted, "coordination.k8s.io/v1", "Lease")?;
                api::send(&self.agent.client, Method::POST, &collection, "application/json", &body).await.map(|_| ())
            }
            other => other.map(|_| ()),
        }
    }
}

fn as_object(object: &impl serde::Serialize, api_version: &str, kind: &str) -> Result<Value, ApiError> {
    let mut body = serde_json::to_value(object).map_err(|error| ApiError::Request(error.to_string()))?;
    body["apiVersion"] = api_version.into();
    body["kind"] = kind.into();
    Ok(body)
}
