//! What a kind does to an object of its own before it is written: whom the fields belong to (spec or status), the
//! generation, and the little that truly needs code (see the files beside this one). Everything here is about one object; admission
//! and validation are elsewhere.

use serde_json::{Map, Value, json};

use super::Api;
use crate::object::{meta, meta_mut};
use crate::registry::Resource;
use crate::request::User;
use crate::status::Status;

/// Which half of an object a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The object itself.
    Main,
    /// Its `status` subresource.
    Status,
    /// The `ephemeralcontainers` of a Pod.
    EphemeralContainers,
    /// The `resize` of a Pod.
    Resize,
    /// Another subresource, which knows for itself what it changes.
    Other,
}

impl Phase {
    /// The phase of a subresource.
    pub fn of(subresource: &str) -> Phase {
        match subresource {
            "" => Phase::Main,
            "status" => Phase::Status,
            "ephemeralcontainers" => Phase::EphemeralContainers,
            "resize" => Phase::Resize,
            _ => Phase::Other,
        }
    }
}

/// Built-in kinds that count their spec's changes in `metadata.generation`.
const COUNTED: &[(&str, &str)] = &[
    ("", "pods"),
    ("", "podtemplates"),
    ("", "replicationcontrollers"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
    ("networking.k8s.io", "ingresses"),
    ("networking.k8s.io", "ingressclasses"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("discovery.k8s.io", "endpointslices"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "devicetaintrules"),
    ("resource.k8s.io", "resourceslices"),
    ("discovery.k8s.io", "endpointslices"),
    ("scheduling.k8s.io", "priorityclasses"),
];

fn is_counted(resource: &Resource) -> bool {
    resource.custom.is_some() || COUNTED.iter().any(|(group, plural)| *group == &*resource.group && *plural == &*resource.plural)
}

/// Built-in kinds of which an update must say which revision it is about; so must one of a custom kind.
const CONDITIONAL: &[(&str, &str)] = &[
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("coordination.k8s.io", "leases"),
    ("node.k8s.io", "runtimeclasses"),
    ("policy", "poddisruptionbudgets"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("storage.k8s.io", "volumeattachments"),
    ("storagemigration.k8s.io", "storageversionmigrations"),
];

/// Built-in kinds of which an update makes what is not there.
const MADE_BY_UPDATE: &[(&str, &str)] = &[
    ("", "endpoints"),
    ("", "events"),
    ("", "limitranges"),
    ("", "services"),
    ("coordination.k8s.io", "leases"),
    ("events.k8s.io", "events"),
    ("node.k8s.io", "runtimeclasses"),
    ("rbac.authorization.k8s.io", "clusterrolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "roles"),
];

/// Whether an update of an object that is not there creates it.
pub fn creates_on_update(resource: &Resource) -> bool {
    resource.custom.is_none() && MADE_BY_UPDATE.iter().any(|(group, plural)| *group == &*resource.group && *plural == &*resource.plural)
}

/// Whether an update without a resourceVersion is refused.
pub fn needs_resource_version(resource: &Resource) -> bool {
    resource.custom.is_some() || CONDITIONAL.iter().any(|(group, plural)| *group == &*resource.group && *plural == &*resource.plural)
}

/// Built-in kinds whose status takes no metadata along; nor does that of a custom kind.
const STATUS_ALONE: &[(&str, &str)] = &[
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("certificates.k8s.io", "podcertificaterequests"),
    ("networking.k8s.io", "servicecidrs"),
    ("resource.k8s.io", "devicetaintrules"),
    ("resource.k8s.io", "resourceclaims"),
    ("scheduling.k8s.io", "podgroups"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "volumeattachments"),
    ("storagemigration.k8s.io", "storageversionmigrations"),
];

/// What of the metadata a write of the status leaves as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusKeeps {
    /// Nothing: labels and annotations go along with the status.
    Nothing,
    /// The labels.
    Labels,
    /// All of it.
    Metadata,
}

/// What a write of a resource's status leaves of the metadata.
pub fn status_keeps(resource: &Resource) -> StatusKeeps {
    let is = |(group, plural): &(&str, &str)| *group == &*resource.group && *plural == &*resource.plural;
    match resource.custom.is_some() || STATUS_ALONE.iter().any(is) {
        true => StatusKeeps::Metadata,
        false if is(&("apps", "deployments")) => StatusKeeps::Labels,
        false => StatusKeeps::Nothing,
    }
}

fn has_status(resource: &Resource) -> bool {
    resource.subresource("status").is_some()
}

/// A new object: no status of the client's, generation 1, and what the kind adds.
pub async fn prepare_for_create(api: &Api, resource: &Resource, user: &User, object: &mut Value) -> Result<(), Status> {
    let metadata = meta_mut(object);
    if is_counted(resource) {
        metadata.insert("generation".into(), json!(1));
    }
    if has_status(resource)
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
        // What a typed server always writes of a status is there from the beginning.
        crate::schema::default::apply_defaults(object, resource);
    }
    super::kinds::prepare_for_create(api, resource, user, object).await
}

const SYSTEM_FIELDS: [&str; 7] =
    ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "name", "namespace"];

/// What an object says of itself that a client cannot change.
pub fn system_fields(object: &Value) -> Map<String, Value> {
    let said = |field: &&str| Some(((**field).to_owned(), object.get("metadata")?.get(*field)?.clone()));
    SYSTEM_FIELDS.iter().filter_map(said).collect()
}

/// Those of them that are given another value than they had, but for two that are put right without a word.
pub fn changed_system_fields(before: &Map<String, Value>, after: &Value) -> Map<String, Value> {
    let mut changed = system_fields(after);
    changed.retain(|field, value| !matches!(field.as_str(), "creationTimestamp" | "generation") && before.get(field) != Some(value));
    changed
}

/// What a client cannot change: uid, times, and whether the object is being deleted.
pub fn keep_system_fields(old: &Value, new: &mut Value) {
    let metadata = meta_mut(new);
    for field in SYSTEM_FIELDS {
        match old.get("metadata").and_then(|m| m.get(field)) {
            Some(value) => {
                metadata.insert(field.into(), value.clone());
            }
            None => {
                metadata.remove(field);
            }
        }
    }
    metadata.remove("selfLink");
}

/// A write of the object leaves its status alone; a write of the status leaves the rest alone.
pub fn isolate(resource: &Resource, phase: Phase, old: &Value, new: &mut Value) {
    if matches!(phase, Phase::EphemeralContainers | Phase::Resize) {
        return super::kinds::pods::isolate(phase, old, new);
    }
    let Some(map) = new.as_object_mut() else { return };
    match phase {
        Phase::Main if has_status(resource) => match old.get("status") {
            Some(status) => {
                map.insert("status".into(), status.clone());
            }
            None => {
                map.remove("status");
            }
        },
        Phase::Status => {
            let status = map.remove("status");
            let metadata = map.remove("metadata");
            let (api_version, kind) = (map.remove("apiVersion"), map.remove("kind"));
            let mut kept = old.as_object().cloned().unwrap_or_default();
            if let Some(value) = api_version {
                kept.insert("apiVersion".into(), value);
            }
            if let Some(value) = kind {
                kept.insert("kind".into(), value);
            }
            match status {
                Some(status) => kept.insert("status".into(), status),
                None => kept.remove("status"),
            };
            match metadata {
                Some(metadata) if status_keeps(resource) == StatusKeeps::Nothing => kept.insert("metadata".into(), metadata),
                Some(mut metadata) if status_keeps(resource) == StatusKeeps::Labels => {
                    match old.pointer("/metadata/labels") {
                        Some(labels) => metadata["labels"] = labels.clone(),
                        None => drop(metadata.as_object_mut().and_then(|metadata| metadata.remove("labels"))),
                    }
                    kept.insert("metadata".into(), metadata)
                }
                Some(metadata) => {
                    let mut old = old.get("metadata").cloned().unwrap_or_else(|| json!({}));
                    for field in ["managedFields", "resourceVersion"] {
                        if let Some(value) = metadata.get(field) {
                            old[field] = value.clone();
                        }
                    }
                    kept.insert("metadata".into(), old)
                }
                None => None,
            };
            *map = kept;
        }
        _ => {}
    }
}

/// Counts the generation, and does what the kind adds.
pub async fn prepare_for_update(api: &Api, resource: &Resource, phase: Phase, old: &Value, new: &mut Value) -> Result<(), Status> {
    if is_counted(resource) && phase != Phase::Status && is_changed(resource, old, new) {
        let generation = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
        meta_mut(new).insert("generation".into(), json!(generation + 1));
    }
    super::kinds::prepare_for_update(api, resource, phase, old, new).await
}

/// Whether anything changed that the generation counts: the spec of a built-in kind, everything but metadata and status of others.
fn is_changed(resource: &Resource, old: &Value, new: &Value) -> bool {
    let unbound = |object: &Value| object["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    // A binding is no change of what was asked for.
    if resource.group.is_empty() && &*resource.plural == "pods" && unbound(old) && !unbound(new) {
        return false;
    }
    // Who selects endpoints by their labels has to look again.
    if &*resource.group == "discovery.k8s.io" && old["metadata"].get("labels") != new["metadata"].get("labels") {
        return true;
    }
    // A rollback is told to the controller in annotations.
    let annotations = |object: &Value| object["metadata"].get("annotations").cloned();
    if &*resource.group == "apps" && &*resource.plural == "deployments" && annotations(old) != annotations(new) {
        return true;
    }
    // Its value can never change, and nothing else of it counts.
    if &*resource.group == "scheduling.k8s.io" && &*resource.plural == "priorityclasses" {
        return false;
    }
    if resource.custom.is_none() && (old.get("spec").is_some() || new.get("spec").is_some()) {
        return old.get("spec") != new.get("spec");
    }
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return true };
    let ignored = |key: &str| matches!(key, "metadata" | "apiVersion" | "kind") || (key == "status" && has_status(resource));
    let differs = |a: &serde_json::Map<String, Value>, b: &serde_json::Map<String, Value>| {
        a.iter().any(|(key, value)| !ignored(key) && b.get(key) != Some(value))
    };
    differs(old, new) || differs(new, old)
}

/// Whether an object that was being deleted has nothing left to wait for.
pub fn is_finished(resource: &Resource, object: &Value) -> bool {
    if meta(object, "deletionTimestamp").is_empty() || has_finalizers(object) {
        return false;
    }
    if object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0) > 0 {
        return false;
    }
    let is_namespace = resource.group.is_empty() && &*resource.plural == "namespaces";
    !(is_namespace && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty()))
}

/// Whether anything in `metadata.finalizers` holds the object.
pub fn has_finalizers(object: &Value) -> bool {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty())
}

/// After a change was kept, or was not: what the kind allocated for the half of it that is no more goes back.
pub fn settle(api: &Api, resource: &Resource, old: &Value, new: &Value, kept: bool) {
    super::kinds::settle(api, resource, old, new, kept);
}

/// Gives back what a kind allocated for an object that is gone or was never kept.
pub fn release(api: &Api, resource: &Resource, object: &Value) {
    super::kinds::release(api, resource, object);
}
