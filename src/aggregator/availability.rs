//! Whether extension servers can be reached, written into the `Available` condition of their APIServices: the Service must be there, listen on
//! the port and have endpoints, and the group version must answer for its own discovery. Asked when something changed, and every half minute
//! while there is anybody to ask. The APIServices of custom groups, which this server answers for, are kept here too.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Aggregator, Remote, aggregated_resources, headers};
use crate::admission::webhook::client::explain;
use crate::admission::webhook::endpoint;
use crate::api::Api;
use crate::api::options::{DeleteOptions, WriteOptions};
use crate::api::subresource::set_condition;
use crate::api::target::Target;
use crate::api::write::Before;
use crate::registry::bootstrap::api_service;
use crate::request::{Context, RequestInfo, User};
use crate::status::Status;

/// How often extension servers are asked again.
const INTERVAL: Duration = Duration::from_secs(30);

/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What discovery documents may be.
const MAX_DOCUMENT: usize = 4 << 20;

/// Where custom groups and their versions come in discovery.
const CUSTOM_PRIORITIES: (u32, u32) = (1000, 100);

const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Why an APIService is available, or is not.
#[derive(Debug, PartialEq)]
struct Verdict {
    available: bool,
    reason: &'static str,
    message: String,
}

fn no(reason: &'static str, message: String) -> Verdict {
    Verdict { available: false, reason, message }
}

impl Aggregator {
    /// Keeps conditions true until the server stops.
    pub async fn run(self: Arc<Self>, api: Arc<Api>, stop: CancellationToken) {
        loop {
            if let Err(status) = self.keep_custom(&api).await {
                tracing::warn!(error = %status, "the APIServices of custom groups could not be written");
            }
            let remotes = self.remotes.load_full();
            let checks = remotes.iter().map(|remote| self.settle(&api, remote));
            for status in futures::future::join_all(checks).await.into_iter().filter_map(Result::err) {
                tracing::warn!(error = %status, "the condition of an APIService could not be written");
            }
            self.resources.lock().retain(|name, _| remotes.iter().any(|remote| remote.name == *name));
            self.published.lock().retain(|name, _| remotes.iter().any(|remote| remote.name == *name));
            tokio::select! {
                () = self.changed.notified() => {}
                () = api.clock.sleep(INTERVAL), if !remotes.is_empty() => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Asks one extension server and writes down what came of it.
    async fn settle(&self, api: &Api, remote: &Arc<Remote>) -> Result<(), Status> {
        let verdict = self.check(remote).await;
        let written = self.write_down(api, remote, &verdict).await;
        if verdict.available {
            // Documents come behind: nobody waits for them, and one that does not come in time is asked for again.
            let _ = tokio::time::timeout(TIMEOUT, self.fetch_documents(remote)).await;
        }
        written
    }

    async fn write_down(&self, api: &Api, remote: &Remote, verdict: &Verdict) -> Result<(), Status> {
        let now = api.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let word = if verdict.available { "True" } else { "False" };
        let is_same = |condition: &Value| {
            condition["status"] == word && condition["reason"] == verdict.reason && condition["message"] == *verdict.message
        };
        let Some(current) = self.cluster.get("apiservices", "", &remote.name).await? else { return Ok(()) };
        let known = |object: &Value| -> Option<Value> {
            object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Available").cloned()
        };
        if known(current.value()).is_some_and(|condition| is_same(&condition)) {
            return Ok(());
        }
        let Some(mut target) = target(api, &remote.name) else { return Ok(()) };
        target.subresource = "status".into();
        let change = |old: Option<&Before>| {
            let mut object = Before::copy(old);
            crate::object::meta_mut(&mut object).remove("resourceVersion");
            let old = known(&object).filter(|condition| condition["status"] == word);
            let since = old.map_or_else(|| json!(now), |condition| condition["lastTransitionTime"].clone());
            let condition = json!({"type": "Available", "status": word, "lastTransitionTime": since, "reason": verdict.reason, "message": verdict.message});
            set_condition(&mut object["status"], condition);
            Ok(object)
        };
        match api.update(&target, &change, false).await {
            Err(status) if status.reason != "NotFound" => Err(status),
            _ => Ok(()),
        }
    }

    async fn check(&self, remote: &Arc<Remote>) -> Verdict {
        // A Service that the local map leads elsewhere needs no object.
        if self.clients.services.lookup(&remote.service).is_none() {
            match self.check_service(remote).await {
                Ok(None) => {}
                Ok(Some(verdict)) => return verdict,
                Err(status) => {
                    return no(
                        "ServiceAccessError",
                        format!("service/{} in {:?} cannot be checked due to: {status}", remote.service.name, remote.service.namespace),
                    );
                }
            }
        }
        match tokio::time::timeout(TIMEOUT, self.ask(remote)).await {
            Ok(Ok(list)) => {
                let resources = aggregated_resources(&remote.group, &remote.version, &list);
                self.resources.lock().insert(remote.name.clone(), resources);
                Verdict { available: true, reason: "Passed", message: "all checks passed".into() }
            }
            Ok(Err(message)) => no("FailedDiscoveryCheck", message),
            Err(_) => {
                let url =
                    format!("https://{}.{}.svc/apis/{}/{}", remote.service.name, remote.service.namespace, remote.group, remote.version);
                no("FailedDiscoveryCheck", format!("failing or missing response from {url}: context deadline exceeded"))
            }
        }
    }

    /// What is wrong with a Service, if anything is.
    async fn check_service(&self, remote: &Remote) -> Result<Option<Verdict>, Status> {
        let (namespace, name, port) = (&remote.service.namespace, &remote.service.name, remote.service.port);
        let Some(service) = self.cluster.get("services", namespace, name).await? else {
            return Ok(Some(no("ServiceNotFound", format!("service/{name} in {namespace:?} is not present"))));
        };
        let spec = &service.value()["spec"];
        if spec["type"] == "ExternalName" {
            return Ok(None);
        }
        let ports = spec["ports"].as_array().into_iter().flatten();
        let Some(listening) = ports.into_iter().find(|p| p["port"].as_u64() == Some(u64::from(port))) else {
            return Ok(Some(no("ServicePortError", format!("service/{name} in {namespace:?} is not listening on port {port}"))));
        };
        let port_name = listening["name"].as_str().unwrap_or_default();
        let slices = self.cluster.list("endpointslices", namespace).await?;
        let mut slices = slices
            .iter()
            .filter(|slice| slice.value().pointer("/metadata/labels/kubernetes.io~1service-name").and_then(Value::as_str) == Some(name))
            .peekable();
        if slices.peek().is_none() {
            return Ok(Some(no("EndpointsNotFound", format!("cannot find endpointslices for service/{name} in {namespace:?}"))));
        }
        let has_address = slices.any(|slice| {
            let slice = slice.value();
            let named = slice["ports"].as_array().into_iter().flatten().any(|p| p["name"].as_str().unwrap_or_default() == port_name);
            let ready = |endpoint: &Value| endpoint["conditions"]["ready"].as_bool().unwrap_or(true);
            named && slice["endpoints"].as_array().into_iter().flatten().any(ready)
        });
        Ok((!has_address).then(|| {
            no("MissingEndpoints", format!("endpoints for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"))
        }))
    }

    /// Asks a group version for its own discovery.
    async fn ask(&self, remote: &Arc<Remote>) -> Result<Value, String> {
        let path = format!("/apis/{}/{}", remote.group, remote.version);
        let address = endpoint::resolve(&remote.service, &self.clients.services, &self.cluster).await?;
        let shown = format!("https://{address}{path}");
        let failed = |why: String| format!("failing or missing response from {shown}: {why}");
        let client = self.clients.client(remote).map_err(failed)?;
        client.address.store(Some(Arc::new(address)));
        let mut headers = http::HeaderMap::new();
        headers::identify(&mut headers, &User::new("system:kube-aggregator", &["system:masters"]));
        let url = format!("https://{}.{}.svc{path}", remote.service.name, remote.service.namespace);
        let sent = client.http.get(&url).headers(headers).header(http::header::ACCEPT, "application/json").send();
        let mut answer = sent.await.map_err(|error| failed(format!("Get {shown:?}: {}", explain(&error, Some(address), &url))))?;
        if !answer.status().is_success() {
            return Err(failed(format!("bad status from {shown}: {}", answer.status().as_u16())));
        }
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = answer.chunk().await {
            if body.len() + chunk.len() > MAX_DOCUMENT {
                return Ok(Value::Null);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }

    /// Every group version of custom resources has an APIService, and loses it with its last definition.
    async fn keep_custom(&self, api: &Api) -> Result<(), Status> {
        let table = api.registry.table();
        let mut wanted: Vec<(String, &str, &str)> = Vec::new();
        for resource in table.resources.iter().filter(|resource| resource.custom.is_some()) {
            let name = format!("{}.{}", resource.version, resource.group);
            if !wanted.iter().any(|(known, ..)| *known == name) {
                wanted.push((name, &resource.group, &resource.version));
            }
        }
        let existing = self.cluster.list("apiservices", "").await?;
        for service in &existing {
            let automanaged = service.value()["metadata"]["labels"][AUTOMANAGED] == "true";
            if automanaged
                && !wanted.iter().any(|(name, ..)| name == service.name())
                && let Some(target) = target(api, service.name())
            {
                match api.delete(&target, &DeleteOptions::default()).await {
                    Err(status) if status.reason != "NotFound" => return Err(status),
                    _ => {}
                }
            }
        }
        let now = api.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        for (name, group, version) in wanted {
            if existing.iter().any(|service| service.name() == name) {
                continue;
            }
            let Some(target) = target(api, "") else { return Ok(()) };
            let object = api_service(group, version, "true", CUSTOM_PRIORITIES, &now);
            match api.create(&target, object).await {
                Err(status) if status.reason != "AlreadyExists" => return Err(status),
                _ => {}
            }
        }
        Ok(())
    }
}

/// An APIService as what a write of this server itself is about.
fn target(api: &Api, name: &str) -> Option<Target> {
    let user = Arc::new(User::new("system:apiserver", &["system:masters", "system:authenticated"]));
    let info = RequestInfo { is_resource: true, verb: "update", name: name.into(), ..RequestInfo::default() };
    let context = Arc::new(Context::new(info, "", uuid::Uuid::new_v4().to_string().into(), "kube-apiserver"));
    context.identify(user.clone());
    Some(Target {
        context,
        user,
        resource: api.registry.lookup("apiregistration.k8s.io", "v1", "apiservices")?,
        namespace: String::new(),
        name: name.into(),
        subresource: String::new(),
        options: WriteOptions::default(),
        conversions: Arc::default(),
    })
}
