//! The subresources that are more than a half of their object: scale, binding, eviction, finalize and the rest.

use std::sync::Arc;

use axum::body::Body;
use http::Response;
use http::request::Parts;
use serde_json::{Value, json};

use super::body::{decode_part, decode_plain};
use super::options::{DeleteOptions, WriteOptions};
use super::read::key;
use super::write::{Target, Written};
use super::{Api, dispatch};
use crate::admission::Operation;
use crate::object::{Object, meta, meta_mut};
use crate::status::{FieldError, Status};

/// What a subresource answers with.
pub enum Answer {
    /// The object of the resource itself.
    Object(Arc<Object>),
    /// Something else, with its code.
    Value(u16, Value),
    /// A response of its own making.
    Response(Response<Body>),
}

impl Api {
    /// Answers a request about a subresource other than `status`.
    pub(super) async fn subresource(&self, target: &Target, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        let verb = target.context.info.verb;
        self.admit_connection(target).await?;
        match (&*target.resource.plural, target.subresource.as_str()) {
            (_, "scale") => self.scale(target, parts, bytes).await,
            ("pods", "binding") => self.bind(target, parts, bytes).await,
            ("serviceaccounts", "token") => {
                let target = Target { options: WriteOptions::parse(&target.context, "CreateOptions")?, ..target.clone() };
                let kind = ("authentication.k8s.io", "v1", "TokenRequest");
                let body = decode_part(&target.context, &parts.headers, bytes, kind, target.options.field_validation)?;
                let body = self.admit(&target, Operation::Create, body).await?;
                let issued = self.reviews.token_request(&target.namespace, &target.name, body)?;
                target.context.trace.annotate("authentication.kubernetes.io/issued-credential-id", format!("JTI={}", issued.credential_id));
                Ok(Answer::Value(201, issued.review))
            }
            ("pods", "log") => self.log(target).await,
            ("pods", "eviction") => self.evict(target, parts, bytes).await,
            ("namespaces", "finalize") => {
                let target = Target { options: WriteOptions::parse(&target.context, "UpdateOptions")?, ..target.clone() };
                let validation = target.options.field_validation;
                let namespace = decode_part(&target.context, &parts.headers, bytes, ("", "v1", "Namespace"), validation)?;
                super::write::check_name(&target.name, meta(&namespace, "name"))?;
                let spec = namespace["spec"].clone();
                let finalizers = spec["finalizers"].clone();
                let unqualified = |name: &&Value| name.as_str().is_some_and(|name| name != "kubernetes" && !name.contains('/'));
                let names = finalizers.as_array().map(Vec::as_slice).unwrap_or_default();
                if let Some(at) = names.iter().position(|name| unqualified(&name)) {
                    let why = "name is neither a standard finalizer name nor is it fully qualified";
                    let error = FieldError::invalid(format!("spec.finalizers[{at}]"), &names[at], why);
                    return Err(Status::invalid("", "Namespace", &target.name, vec![error]));
                }
                let change = |namespace: &mut Value| {
                    if let Some(spec) = namespace["spec"].as_object_mut() {
                        match finalizers.as_array().is_none_or(Vec::is_empty) {
                            true => spec.remove("finalizers"),
                            false => spec.insert("finalizers".into(), finalizers.clone()),
                        };
                    }
                    Ok(())
                };
                Ok(Answer::Object(self.change(&target, &change).await?.object))
            }
            ("pods", "ephemeralcontainers" | "resize") | ("certificatesigningrequests", "approval") => match verb {
                "get" => Ok(Answer::Object(self.get(&target.context, &target.resource).await?)),
                "patch" => Ok(Answer::Object(self.patch(target.clone(), &parts.headers, bytes).await?.object)),
                _ => {
                    let options = WriteOptions::parse(&target.context, "UpdateOptions")?;
                    let object = self.decode_object(&target.context, &parts.headers, bytes, &target.resource, options.field_validation)?;
                    let target = Target { options, ..target.clone() };
                    Ok(Answer::Object(self.update(&target, &move |_| Ok(object.clone()), false).await?.object))
                }
            },
            _ => self.connect(target, parts, bytes).await,
        }
    }

    /// Changes the newest state of an object by code.
    pub(super) async fn change(
        &self,
        target: &Target,
        change: &(dyn Fn(&mut Value) -> Result<(), Status> + Send + Sync),
    ) -> Result<Written, Status> {
        let make = |old: Option<&Arc<Object>>| {
            let mut object = old.map(|o| (*self.in_version(o, &target.resource)).clone()).unwrap_or_default();
            meta_mut(&mut object).remove("resourceVersion");
            change(&mut object)?;
            Ok(object)
        };
        self.update(target, &make, false).await
    }

    async fn bind(&self, target: &Target, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        let options = WriteOptions::parse(&target.context, "CreateOptions")?;
        let binding = decode_part(&target.context, &parts.headers, bytes, ("", "v1", "Binding"), options.field_validation)?;
        let given = meta(&binding, "name");
        if !given.is_empty() && given != target.name {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
        let mut errors = Vec::new();
        if let Some(kind) = binding["target"]["kind"].as_str().filter(|kind| !matches!(*kind, "" | "Node")) {
            errors.push(FieldError::not_supported("target.kind", &json!(kind), &["Node", "<empty>"]).to_string());
        }
        if node.is_empty() {
            errors.push(FieldError::required("target.name", "").to_string());
        }
        // A real server has no class for what is wrong with a binding.
        match errors.as_slice() {
            [] => {}
            [one] => return Err(Status::unclassified(one.clone())),
            several => return Err(Status::unclassified(format!("[{}]", several.join(", ")))),
        }
        // To be assigned is nothing that anybody owns.
        let target = Target { options: WriteOptions { is_apply: true, ..options }, ..target.clone() };
        let annotations = binding.pointer("/metadata/annotations").and_then(Value::as_object).cloned().unwrap_or_default();
        let uid = meta(&binding, "uid").to_owned();
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let conflict = |why: String| Status::conflict("", "pods/binding", &target.name, &why);
        self.change(&target, &|pod| {
            let name = meta(pod, "name").to_owned();
            if !uid.is_empty() && uid != meta(pod, "uid") {
                let key = key(&target.resource, &target.namespace, &target.name);
                let why = format!(
                    "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    meta(pod, "uid")
                );
                return Err(Status::conflict("", "pods", &target.name, &why));
            }
            if !meta(pod, "deletionTimestamp").is_empty() {
                return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
            }
            if let Some(host) = pod["spec"]["nodeName"].as_str().filter(|h| !h.is_empty()) {
                return Err(conflict(format!("pod {name} is already assigned to node {host:?}")));
            }
            pod["spec"]["nodeName"] = json!(node);
            if !annotations.is_empty() {
                let all = meta_mut(pod).entry("annotations").or_insert_with(|| json!({}));
                if let Some(all) = all.as_object_mut() {
                    all.extend(annotations.clone());
                }
            }
            set_condition(
                &mut pod["status"],
                json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}),
            );
            Ok(())
        })
        .await?;
        Ok(Answer::Value(201, dispatch::success(201)))
    }

    async fn evict(&self, target: &Target, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        let validation = WriteOptions::parse(&target.context, "CreateOptions")?.field_validation;
        // Old clients still say policy/v1beta1, of which nothing else is left.
        let eviction = match memchr::memmem::find(bytes, b"policy/v1beta1").is_some() {
            true => decode_plain(&parts.headers, bytes, "policy/v1beta1", "Eviction")?,
            false => decode_part(&target.context, &parts.headers, bytes, ("policy", "v1", "Eviction"), validation)?,
        };
        let name = meta(&eviction, "name");
        if !name.is_empty() && name != target.name {
            return Err(Status::bad_request("name in URL does not match name in Eviction object"));
        }
        let options = DeleteOptions::parse(&target.context, eviction.get("deleteOptions"))?;
        let pod = self.get(&target.context, &target.resource).await?;
        let ended = matches!(pod.value()["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"));
        if !ended && meta(pod.value(), "deletionTimestamp").is_empty() {
            self.disrupt(target, pod.value(), options.dry_run).await?;
        }
        let plain = Target { subresource: String::new(), ..target.clone() }.deleting(&options);
        if !options.dry_run {
            super::delete::check_preconditions(&target.resource, &target.name, &pod, pod.value(), &options)?;
            self.mark_disrupted(&plain).await?;
        }
        // The mark is a write of its own: what the client said of the revision was about the Pod before it.
        let options = DeleteOptions { resource_version: None, ..options };
        self.delete(&plain, &options).await?;
        Ok(Answer::Value(201, dispatch::success(201)))
    }

    /// Says in the Pod why it goes, for those who look after it is gone.
    async fn mark_disrupted(&self, target: &Target) -> Result<(), Status> {
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let one =
            Target { subresource: "status".into(), options: WriteOptions { is_apply: true, ..WriteOptions::default() }, ..target.clone() };
        let mark = |pod: &mut Value| {
            let condition = json!({"type": "DisruptionTarget", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
                "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"});
            let conditions = pod["status"]["conditions"].as_array();
            if !conditions.into_iter().flatten().any(|known| known["type"] == "DisruptionTarget" && known["status"] == "True") {
                set_condition(&mut pod["status"], condition);
            }
            Ok(())
        };
        self.change(&one, &mark).await.map(|_| ())
    }

    /// Asks the one disruption budget that covers the Pod, and takes a disruption from it.
    async fn disrupt(&self, target: &Target, pod: &Value, dry_run: bool) -> Result<(), Status> {
        let Some(budgets) = self.registry.lookup("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
        let topic = self.state.topic(&budgets.storage).await.map_err(super::read::store_error)?;
        let prefix = key(&budgets, &target.namespace, "");
        let covering = topic.list(&prefix, None, 0, 0, |budget| {
            let selector = crate::object::selector::LabelSelector::from_value(&budget.value()["spec"]["selector"]);
            selector.is_some_and(|s| s.matches_value(pod))
        });
        let budget = match covering.objects.as_slice() {
            [] => return Ok(()),
            [one] => one,
            _ => {
                let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Status::internal(text));
            }
        };
        let budget_name = budget.name().to_owned();
        let one = Target {
            resource: budgets,
            name: budget_name.clone(),
            subresource: "status".into(),
            options: WriteOptions { dry_run, ..WriteOptions::default() },
            ..target.clone()
        };
        let pod_name = target.name.clone();
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let refused = |why: String| {
            let mut status = Status::new(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.");
            status = status.cause("DisruptionBudget", why, "");
            status
        };
        self.change(&one, &|budget| {
            let status = &budget["status"];
            let observed = status["observedGeneration"].as_i64().unwrap_or(0);
            let generation = budget.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
            if observed < generation {
                return Err(refused(format!("The disruption budget {budget_name} is still being processed by the server.")).retry_after(10));
            }
            let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
            if allowed <= 0 {
                let (needed, healthy) = (status["desiredHealthy"].as_i64().unwrap_or(0), status["currentHealthy"].as_i64().unwrap_or(0));
                return Err(refused(format!(
                    "The disruption budget {budget_name} needs {needed} healthy pods and has {healthy} currently"
                )));
            }
            budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
            if !budget["status"]["disruptedPods"].is_object() {
                budget["status"]["disruptedPods"] = json!({});
            }
            budget["status"]["disruptedPods"][&pod_name] = json!(now);
            Ok(())
        })
        .await
        .map(|_| ())
    }
}

/// Puts a condition in the place of the one of its type.
pub fn set_condition(status: &mut Value, condition: Value) {
    if !status.is_object() {
        *status = json!({});
    }
    let conditions = &mut status["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Some(list) = conditions.as_array_mut() {
        match list.iter_mut().find(|c| c["type"] == condition["type"]) {
            Some(existing) => *existing = condition,
            None => list.push(condition),
        }
    }
}
