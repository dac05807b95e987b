//! `ImagePolicyWebhook`: a backend of its own decides about images, by `ImageReview` and once for all containers of a Pod. Verdicts are
//! remembered for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::admission::webhook::Caller;
use crate::admission::webhook::configuration::{Hook, Hooks};
use crate::admission::{Operation, Validate, Write};
use crate::status::Status;

/// How many verdicts are remembered.
const MAX_REMEMBERED: usize = 4096;

/// Where the backend is, and what to do without it.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Its URL.
    pub url: String,
    /// Whom to trust, as base64 of PEM; empty is whom the machine trusts.
    pub ca_bundle: String,
    /// `defaultAllow`: whether Pods run when the backend cannot be asked.
    pub default_allow: bool,
    /// `allowTTL` and `denyTTL`, in seconds.
    pub allow_ttl: u64,
    /// See `allow_ttl`.
    pub deny_ttl: u64,
}

/// The plugin; without a backend it has nothing to say.
pub struct ImagePolicyWebhook {
    backend: Option<(Backend, Arc<Hook>)>,
    caller: Arc<Caller>,
    remembered: Mutex<HashMap<String, (Instant, Value)>>,
}

impl ImagePolicyWebhook {
    /// A plugin that asks this backend.
    pub fn new(backend: Option<Backend>, caller: Arc<Caller>) -> Self {
        let backend = backend.and_then(|backend| {
            let hooks = Hooks::default();
            let config = json!({"url": backend.url, "caBundle": backend.ca_bundle});
            let configuration =
                json!({"metadata": {"name": "image-policy"}, "webhooks": [{"name": "image-policy", "clientConfig": config}]});
            hooks.replace("image-policy", Some(&configuration));
            let hook = hooks.load().hooks.first().cloned()?;
            Some((backend, hook))
        });
        ImagePolicyWebhook { backend, caller, remembered: Mutex::default() }
    }

    async fn ask(&self, backend: &Backend, hook: &Hook, review: &Value) -> Result<Value, String> {
        let key = review["spec"].to_string();
        let now = Instant::now();
        if let Some((until, status)) = self.remembered.lock().get(&key)
            && *until > now
        {
            return Ok(status.clone());
        }
        let post = self.caller.clients.post(
            &hook.endpoint,
            hook.timeout_seconds,
            &self.caller.cluster,
            &backend.url,
            None,
            review.to_string().into_bytes(),
        );
        let status = post.await?.value()?["status"].clone();
        let seconds = if status["allowed"] == true { backend.allow_ttl } else { backend.deny_ttl };
        let mut remembered = self.remembered.lock();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(key, (now + Duration::from_secs(seconds), status.clone()));
        Ok(status)
    }
}

fn review(write: &Write) -> Value {
    let pod = write.object();
    let lists: &[&str] = match write.subresource.as_str() {
        "" => &["containers", "initContainers"],
        _ => &["ephemeralContainers"],
    };
    let containers = lists.iter().flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten());
    let images: Vec<Value> = containers.map(|c| json!({"image": c["image"]})).collect();
    let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    let passed: serde_json::Map<String, Value> =
        annotations.filter(|(key, _)| key.contains(".image-policy.k8s.io/")).map(|(k, v)| (k.clone(), v.clone())).collect();
    let mut spec = json!({"containers": images, "namespace": write.namespace});
    if !passed.is_empty() {
        spec["annotations"] = passed.into();
    }
    json!({"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "metadata": {}, "spec": spec, "status": {"allowed": false}})
}

impl Validate for ImagePolicyWebhook {
    fn name(&self) -> &'static str {
        "ImagePolicyWebhook"
    }

    fn handles(&self, write: &Write) -> bool {
        self.backend.is_some()
            && write.is_of("", "pods")
            && matches!(write.subresource.as_str(), "" | "ephemeralcontainers")
            && matches!(write.operation, Operation::Create | Operation::Update)
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let Some((backend, hook)) = &self.backend else { return Ok(()) };
            let trace = &write.context.trace;
            let status = match self.ask(backend, hook, &review(write)).await {
                Ok(status) => status,
                Err(_) if backend.default_allow => {
                    trace.annotate("imagepolicywebhook.image-policy.k8s.io/failed-open", "true");
                    return Ok(());
                }
                Err(why) => return Err(write.forbidden(why)),
            };
            for (key, value) in status["auditAnnotations"].as_object().into_iter().flatten() {
                trace.annotate(format!("imagepolicywebhook.image-policy.k8s.io/{key}"), value.as_str().unwrap_or_default());
            }
            if status["allowed"] == true {
                return Ok(());
            }
            Err(match status["reason"].as_str().filter(|reason| !reason.is_empty()) {
                Some(reason) => write.forbidden(format!("image policy webhook backend denied one or more images: {reason}")),
                None => write.forbidden("one or more images rejected by webhook backend"),
            })
        })
    }
}
