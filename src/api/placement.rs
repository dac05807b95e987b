//! How a Pod comes to its node and how it is made to leave: the subresources `binding` and `eviction`. What admission is asked about is
//! the Binding or the Eviction; what follows from it for the Pod is the server's own doing.

use std::sync::Arc;

use http::request::Parts;
use serde_json::{Value, json};

use super::body::{decode_part, decode_plain};
use super::options::{DeleteOptions, WriteOptions};
use super::read::{key, store_error};
use super::subresource::{Answer, set_condition};
use super::target::Target;
use super::write::{Before, Written};
use super::{Api, delete, dispatch};
use crate::admission::Operation;
use crate::object::selector::LabelSelector;
use crate::object::{meta, meta_mut};
use crate::registry::Resource;
use crate::request::User;
use crate::status::{FieldError, Status};

/// The most evictions of one budget whose Pods have not gone yet.
const MAX_DISRUPTED_PODS: usize = 2000;

impl Api {
    /// Assigns a Pod to a node. `asked` is what the request names: the Pod's subresource, or the collection of Bindings.
    pub(super) async fn bind(&self, asked: &Target, pods: Arc<Resource>, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        let options = WriteOptions::parse(&asked.context, "CreateOptions")?;
        let mut binding = decode_part(&asked.context, &parts.headers, bytes, ("", "v1", "Binding"), options.field_validation)?;
        let mut asked = Target { options, ..asked.clone() };
        if asked.name.is_empty() {
            asked.name = meta(&binding, "name").to_owned();
        }
        take_namespace(&asked, &mut binding)?;
        let mut write = asked.operation(Operation::Create, Some(binding), None);
        self.admission.mutate(&mut write).await?;
        if meta(write.object(), "name") != asked.name {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        let goal = &write.object()["target"];
        let mut errors = Vec::new();
        if let Some(kind) = goal["kind"].as_str().filter(|kind| !matches!(*kind, "" | "Node")) {
            errors.push(FieldError::not_supported("target.kind", &json!(kind), &["Node", "<empty>"]));
        }
        let node = goal["name"].as_str().unwrap_or_default().to_owned();
        if node.is_empty() {
            errors.push(FieldError::required("target.name", ""));
        }
        match errors.as_slice() {
            [] => {}
            [one] => return Err(Status::unclassified(one.to_string())),
            many => {
                let all: Vec<String> = many.iter().map(ToString::to_string).collect();
                return Err(Status::unclassified(format!("[{}]", all.join(", "))));
            }
        }
        self.admission.validate(&write).await?;
        let binding = write.object.take().unwrap_or_default();
        let target = Target {
            resource: pods,
            subresource: "binding".into(),
            // To be assigned is nothing that anybody owns.
            options: WriteOptions { is_admitted: true, is_apply: true, ..asked.options.clone() },
            ..asked
        };
        self.assign(&target, &binding, &node).await?;
        Ok(Answer::Value(201, dispatch::success(201)))
    }

    /// Writes a binding that was admitted into its Pod.
    async fn assign(&self, target: &Target, binding: &Value, node: &str) -> Result<Written, Status> {
        let map = |field: &str| binding["metadata"][field].as_object().cloned().unwrap_or_default();
        let (annotations, labels) = (map("annotations"), map("labels"));
        let (uid, revision) = (meta(binding, "uid"), meta(binding, "resourceVersion"));
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let conflict = |why: String| Status::conflict("", "pods/binding", &target.name, &why);
        let pod_key = key(&target.resource, &target.namespace, &target.name);
        let unmet = |what: &str, wanted: &str, actual: &str| {
            Status::conflict(
                "",
                "pods",
                &target.name,
                &format!(
                    "StorageError: invalid object, Code: 4, Key: {pod_key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {actual}"
                ),
            )
        };
        let make = |old: Option<&Before>| {
            let mut pod = Before::copy(old);
            let stored = old.map(|old| old.object.revision.to_string()).unwrap_or_default();
            meta_mut(&mut pod).remove("resourceVersion");
            let name = &target.name;
            if !uid.is_empty() && uid != meta(&pod, "uid") {
                return Err(unmet("UID", uid, meta(&pod, "uid")));
            }
            if !revision.is_empty() && revision != stored {
                return Err(unmet("ResourceVersion", revision, &stored));
            }
            if !meta(&pod, "deletionTimestamp").is_empty() {
                return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
            }
            if let Some(host) = pod["spec"]["nodeName"].as_str().filter(|h| !h.is_empty()) {
                return Err(conflict(format!("pod {name} is already assigned to node {host:?}")));
            }
            if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
                return Err(conflict(format!("pod {name} has non-empty .spec.schedulingGates")));
            }
            pod["spec"]["nodeName"] = json!(node);
            if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
                status.remove("nominatedNodeName");
            }
            for (field, more) in [("annotations", &annotations), ("labels", &labels)] {
                if !more.is_empty()
                    && let Some(all) = meta_mut(&mut pod).entry(field).or_insert_with(|| json!({})).as_object_mut()
                {
                    all.extend(more.clone());
                }
            }
            set_condition(
                &mut pod["status"],
                json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}),
            );
            Ok(pod)
        };
        self.update(target, &make, false).await
    }

    /// Evicts a Pod. What is admitted is the `Eviction`; that the Pod then goes is its consequence and not asked about again.
    pub(super) async fn evict(&self, target: &Target, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        let options = WriteOptions::parse(&target.context, "CreateOptions")?;
        // Old clients still say policy/v1beta1, of which nothing else is left.
        let mut eviction = match memchr::memmem::find(bytes, b"policy/v1beta1").is_some() {
            true => decode_plain(&parts.headers, bytes, "policy/v1beta1", "Eviction")?,
            false => decode_part(&target.context, &parts.headers, bytes, ("policy", "v1", "Eviction"), options.field_validation)?,
        };
        let target = &Target { options, ..target.clone() };
        take_namespace(target, &mut eviction)?;
        let mut write = target.operation(Operation::Create, Some(eviction), None);
        self.admission.mutate(&mut write).await?;
        if meta(write.object(), "name") != target.name {
            return Err(Status::bad_request("name in URL does not match name in Eviction object"));
        }
        let options = DeleteOptions::parse(&target.context, write.object().get("deleteOptions"))?;
        self.admission.validate(&write).await?;
        let pod = self.get(&target.context, &target.resource).await?;
        let ended = matches!(pod.value()["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"));
        if !ended && meta(pod.value(), "deletionTimestamp").is_empty() {
            self.disrupt(target, pod.value(), options.dry_run).await?;
        }
        let mut plain = Target { subresource: String::new(), ..target.clone() }.deleting(&options);
        plain.options.is_admitted = true;
        if !options.dry_run {
            self.mark_disrupted(&plain, &options).await?;
        }
        // The mark made a new revision of the one that the client meant.
        let resource_version = options.resource_version.clone().filter(|_| options.dry_run);
        self.delete(&plain, &DeleteOptions { resource_version, ..options }).await?;
        Ok(Answer::Value(201, dispatch::success(201)))
    }

    /// Says in the Pod's status that it is evicted.
    async fn mark_disrupted(&self, pod: &Target, options: &DeleteOptions) -> Result<(), Status> {
        let status = Target { subresource: "status".into(), ..pod.clone() };
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let make = |old: Option<&Before>| {
            let mut value = Before::copy(old);
            if let Some(old) = old {
                delete::check_preconditions(&pod.resource, &pod.name, &old.object, &value, options)?;
            }
            meta_mut(&mut value).remove("resourceVersion");
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
                "lastProbeTime": null, "lastTransitionTime": now,
            });
            set_condition(&mut value["status"], condition);
            Ok(value)
        };
        self.update(&status, &make, false).await.map(|_| ())
    }

    /// Asks the one disruption budget that covers the Pod, and takes a disruption from it.
    async fn disrupt(&self, target: &Target, pod: &Value, dry_run: bool) -> Result<(), Status> {
        let Some(budgets) = self.registry.lookup("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
        let topic = self.state.topic(&budgets.storage).await.map_err(store_error)?;
        let prefix = key(&budgets, &target.namespace, "");
        let covering = topic.list(&prefix, None, 0, 0, |budget| {
            let selector = LabelSelector::from_value(&budget.value()["spec"]["selector"]);
            selector.is_some_and(|s| s.matches_value(pod))
        });
        let budget = match covering.objects.as_slice() {
            [] => return Ok(()),
            [one] => one,
            _ => {
                let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Status::new(500, "", text));
            }
        };
        if may_go_unhealthy(pod, budget.value()) {
            return Ok(());
        }
        let one = Target {
            resource: budgets,
            name: budget.name().to_owned(),
            subresource: "status".into(),
            // The server keeps its own books.
            user: Arc::new(User::new("system:apiserver", &["system:masters", "system:authenticated"])),
            options: WriteOptions { dry_run, ..WriteOptions::default() },
            ..target.clone()
        };
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        self.change(&one, &|budget| {
            let allowed = disruptions_allowed(budget)?;
            budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
            if !budget["status"]["disruptedPods"].is_object() {
                budget["status"]["disruptedPods"] = json!({});
            }
            budget["status"]["disruptedPods"][&target.name] = json!(now);
            Ok(())
        })
        .await
        .map(|_| ())
    }
}

/// Whether a Pod that is not ready may go without asking its budget.
fn may_go_unhealthy(pod: &Value, budget: &Value) -> bool {
    let is_ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
    if pod["status"]["conditions"].as_array().into_iter().flatten().any(is_ready) {
        return false;
    }
    let (healthy, desired) = (number(&budget["status"]["currentHealthy"]), number(&budget["status"]["desiredHealthy"]));
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || (healthy >= desired && desired > 0)
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// How many disruptions a budget allows.
///
/// # Errors
/// Why it allows none.
fn disruptions_allowed(budget: &Value) -> Result<i64, Status> {
    const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
    let (name, status) = (meta(budget, "name"), &budget["status"]);
    let refused = |why: String| Status::new(429, "TooManyRequests", VIOLATES).cause("DisruptionBudget", why, "");
    let forbidden = |why: &str, told: &str| {
        let told = format!("The disruption budget {name} does not allow evicting pods currently: {told}");
        Status::forbidden("policy", "poddisruptionbudget", name, why).cause("DisruptionBudget", told, "")
    };
    if number(&status["observedGeneration"]) < number(&budget["metadata"]["generation"]) {
        return Err(refused(format!("The disruption budget {name} is still being processed by the server.")).retry_after(10));
    }
    let allowed = number(&status["disruptionsAllowed"]);
    if allowed < 0 {
        return Err(forbidden("pdb disruptions allowed is negative", "pdb disruptions allowed is negative"));
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MAX_DISRUPTED_PODS) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(forbidden(why, "too many pending evictions not confirmed by PDB controller"));
    }
    if allowed > 0 {
        return Ok(allowed);
    }
    let (desired, healthy) = (number(&status["desiredHealthy"]), number(&status["currentHealthy"]));
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let told = conditions.filter(|c| c["type"] == "DisruptionAllowed" && c["status"] == "False").find_map(|condition| {
        let message = condition["message"].as_str().filter(|message| !message.is_empty())?;
        Some((condition["reason"].as_str().unwrap_or_default(), message))
    });
    Err(refused(match told {
        Some(("SyncFailed", message)) => {
            format!("The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}")
        }
        _ if healthy <= desired => format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"),
        Some((reason, message)) => format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }))
}

/// The namespace of what a subresource is sent must be that of the request, and is filled in where it is missing.
fn take_namespace(target: &Target, object: &mut Value) -> Result<(), Status> {
    let given = meta(object, "namespace");
    if !given.is_empty() && given != target.namespace {
        return Err(Status::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
    }
    meta_mut(object).insert("namespace".into(), json!(target.namespace));
    Ok(())
}
