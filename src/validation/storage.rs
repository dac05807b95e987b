//! Claims and volumes of storage. The kinds around them are in [`super::storage_classes`].

use serde_json::Value;

use super::field::{self, Errors, Path, entries, has, invalid, items, map, object, required, required_shape, shaped, text, word, wrong};
use super::resources::{non_negative_quantity, quantity};
use super::{metadata, names, selector, typed, volume};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// A PersistentVolumeClaim.
pub fn claim(claim: &Value, errors: &mut Errors) {
    claim_spec(&claim["spec"], &SPEC, errors);
}

/// The template of a claim in a Pod or a StatefulSet: of its metadata, only labels and annotations count.
pub fn claim_template(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("metadata");
    metadata::of_template(&template["metadata"], &at, errors);
    claim_spec(&template["spec"], &path.field("spec"), errors);
}

/// The spec of a claim.
pub fn claim_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if items(spec, "accessModes").is_empty() {
        errors.push(FieldError::required(path.field("accessModes"), "at least 1 access mode is required"));
    }
    selector::label_selector(&spec["selector"], &path.field("selector"), errors);
    access_modes(spec, path, errors);
    let resources = path.field("resources");
    match spec["resources"]["requests"].get("storage") {
        None => errors.push(FieldError::required(resources.key("storage"), "")),
        Some(amount) => positive(amount, &resources.key("storage"), errors),
    }
    shaped(errors, spec, path, "storageClassName", names::subdomain);
    word(errors, spec, path, "volumeMode", &["Block", "Filesystem"]);
    for name in ["dataSource", "dataSourceRef"] {
        if let Some(source) = object(spec, name) {
            data_source(source, &path.field(name), errors);
        }
    }
    if let (Some(source), Some(reference)) = (object(spec, "dataSource"), object(spec, "dataSourceRef")) {
        let why = if !text(reference, "namespace").is_empty() {
            "may not be specified when dataSourceRef.namespace is specified"
        } else if ["apiGroup", "kind", "name"].iter().any(|name| source.get(*name) != reference.get(*name)) {
            "must match dataSourceRef"
        } else {
            ""
        };
        if !why.is_empty() {
            // What is shown is the path itself, which has nothing in it that JSON could write.
            errors.push(FieldError { value: "{}".into(), ..invalid(path, "", why) });
        }
    }
    shaped(errors, spec, path, "volumeAttributesClassName", names::subdomain);
}

fn data_source(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    required(errors, source, path, &["name", "kind"]);
    let kind = text(source, "kind");
    if text(source, "apiGroup").is_empty() && kind != "PersistentVolumeClaim" {
        errors.push(invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"));
    }
    shaped(errors, source, path, "apiGroup", names::subdomain);
    shaped(errors, source, path, "namespace", names::label);
}

fn access_modes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let modes = items(spec, "accessModes");
    let list = path.field("accessModes");
    for mode in modes.iter().filter(|m| !m.as_str().is_some_and(|m| MODES.contains(&m))) {
        errors.push(FieldError::not_supported(list, mode, &MODES));
    }
    let others = modes.iter().any(|m| m.as_str().is_some_and(|m| m != "ReadWriteOncePod" && MODES.contains(&m)));
    if others && modes.iter().any(|m| m == "ReadWriteOncePod") {
        errors.push(FieldError::forbidden(list, "may not use ReadWriteOncePod with other access modes"));
    }
}

fn positive(amount: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(amount) = quantity(amount).filter(|q| q.nanos() <= 0) {
        errors.push(invalid(path, &amount.to_string(), "must be greater than zero"));
    }
}

fn basic(amount: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(units) = quantity(amount).map(|q| q.units()).filter(|units| *units < 0) {
        let value = i64::try_from(units).unwrap_or(i64::MIN).into();
        errors.push(FieldError::invalid(path, &value, "must be a valid resource quantity"));
    }
}

/// A changed claim: hardly anything but its size.
pub fn update_claim(new: &Value, old: &Value, errors: &mut Errors) {
    claim(new, errors);
    let annotation = |claim: &Value| claim["metadata"]["annotations"][CLASS_ANNOTATION].as_str().map(str::to_owned);
    let (after, before) = (annotation(new), annotation(old));
    let (class, had) = (new["spec"]["storageClassName"].as_str(), old["spec"]["storageClassName"].as_str());
    let from_annotation =
        before.is_some() && had.is_none() && class.is_some() && class == before.as_deref() && (after.is_none() || after == before);
    if !from_annotation && after != before {
        let field = format!("metadata.annotations.{CLASS_ANNOTATION}");
        errors.push(FieldError::invalid(field, &after.clone().unwrap_or_default().into(), "field is immutable"));
    }
    let from_nothing = had.is_none() && class.is_some() && (before.is_none() || class == before.as_deref());
    let bound = text(&new["status"], "phase") == "Bound";
    let rest = |claim: &Value| {
        let mut spec = map(claim, "spec").cloned().unwrap_or_default();
        // Set once, by whoever binds the claim.
        if text(&old["spec"], "volumeName").is_empty() {
            spec.remove("volumeName");
        }
        if from_annotation || from_nothing {
            spec.remove("storageClassName");
        }
        if bound {
            spec.remove("volumeAttributesClassName");
            if let Some(requests) = spec.get_mut("resources").and_then(|r| r.get_mut("requests")).and_then(Value::as_object_mut) {
                requests.remove("storage");
            }
        }
        Value::Object(spec)
    };
    let (new_rest, old_rest) = (rest(new), rest(old));
    if new_rest != old_rest {
        let why = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{}",
            typed::difference(&old_rest, &new_rest, "PersistentVolumeClaimSpec")
        );
        errors.push(FieldError::forbidden("spec", why));
    }
    let size = |claim: &Value| quantity(&claim["spec"]["resources"]["requests"]["storage"]);
    let capacity = quantity(&old["status"]["capacity"]["storage"]).map_or(0, |q| q.nanos());
    if let (Some(after), Some(before)) = (size(new), size(old))
        && after < before
        && after.nanos() <= capacity
    {
        errors.push(FieldError::forbidden("spec.resources.requests.storage", "field can not be less than status.capacity"));
    }
    field::immutable(errors, &new["spec"], &old["spec"], &Path::object(), "volumeMode");
    let attributes = |claim: &Value| claim["spec"]["volumeAttributesClassName"].as_str().map(str::to_owned);
    if attributes(new) != attributes(old) && has(&old["status"], "currentVolumeAttributesClassName") {
        let to = match attributes(new).as_deref() {
            None => "nil",
            Some("") => "empty string",
            Some(_) => return,
        };
        let why = format!("update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil");
        errors.push(FieldError::forbidden(SPEC.field("volumeAttributesClassName"), why));
    }
}

/// The status of a claim.
pub fn claim_status(claim: &Value, errors: &mut Errors) {
    if items(&claim["spec"], "accessModes").is_empty() {
        errors.push(FieldError::required("Spec.accessModes", ""));
    }
    let path = Path::root("status");
    let capacity = path.field("capacity");
    for (name, amount) in entries(&claim["status"], "capacity") {
        basic(amount, &capacity.key(name), errors);
    }
    let statuses = path.field("allocatedResourceStatuses");
    const STATUSES: [&str; 5] =
        ["ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending"];
    let mut sorted = STATUSES;
    sorted.sort_unstable();
    for (name, status) in entries(&claim["status"], "allocatedResourceStatuses") {
        resource_key(name, &statuses, errors);
        if !status.as_str().is_some_and(|s| STATUSES.contains(&s)) {
            errors.push(FieldError::not_supported(statuses, &name.as_str().into(), &sorted));
        }
    }
    let allocated = path.field("allocatedResources");
    for (name, amount) in entries(&claim["status"], "allocatedResources") {
        if resource_key(name, &allocated, errors) {
            basic(amount, &allocated.key(name), errors);
        }
    }
}

fn resource_key(name: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let why = names::qualified(name);
    let right = why.is_empty();
    wrong(errors, path, name, why);
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    if right && native && name != "storage" {
        errors.push(FieldError::not_supported(path, &name.into(), &["storage"]));
        return false;
    }
    right
}

/// The sources of a volume, in the order in which a real server looks at them.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// A PersistentVolume.
pub fn volume(volume: &Value, errors: &mut Errors) {
    volume_spec(&volume["spec"], text(&volume["metadata"], "name"), false, &SPEC, errors);
}

/// The spec of a volume; `inline` where it stands inside another object.
pub fn volume_spec(spec: &Value, name: &str, inline: bool, path: &Path<'_>, errors: &mut Errors) {
    const INLINE: &str = "may not be specified in the context of inline volumes";
    if inline {
        for name in ["claimRef", "capacity"].iter().filter(|name| spec.get(**name).is_some_and(|v| !crate::schema::is_zero(v))) {
            errors.push(FieldError::forbidden(path.field(name), INLINE));
        }
        if !has(spec, "csi") {
            errors.push(FieldError::required(path.field("csi"), "has to be specified in the context of inline volumes"));
        }
    }
    required(errors, spec, path, &["accessModes"]);
    access_modes(spec, path, errors);
    if !inline {
        capacity(spec, path, errors);
    }
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if inline && !matches!(policy, "" | "Retain") {
        errors.push(FieldError::forbidden(
            path.field("persistentVolumeReclaimPolicy"),
            "may only be Retain in the context of inline volumes",
        ));
    } else if !inline {
        field::one_of(errors, spec, path, "persistentVolumeReclaimPolicy", false, &["Delete", "Recycle", "Retain"]);
    }
    if let Some(affinity) = object(spec, "nodeAffinity") {
        let at = path.field("nodeAffinity");
        match object(affinity, "required") {
            _ if inline => errors.push(FieldError::forbidden(at, INLINE)),
            Some(required) => selector::node_selector(required, &at.field("required"), errors),
            None => errors.push(FieldError::required(at.field("required"), "must specify required node constraints")),
        }
    }
    sources(spec, name, path, errors);
    let root = text(&spec["hostPath"], "path");
    if policy == "Recycle" && !root.is_empty() && root.split('/').all(|part| matches!(part, "" | ".")) && root.starts_with('/') {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden(path.field("persistentVolumeReclaimPolicy"), why));
    }
    if inline && !text(spec, "storageClassName").is_empty() {
        errors.push(FieldError::forbidden(path.field("storageClassName"), INLINE));
    } else {
        shaped(errors, spec, path, "storageClassName", names::subdomain);
    }
    if inline && has(spec, "volumeMode") && text(spec, "volumeMode") != "Filesystem" {
        let why = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.push(FieldError::forbidden(path.field("volumeMode"), why));
    } else if !inline {
        word(errors, spec, path, "volumeMode", &["Block", "Filesystem"]);
    }
    if has(spec, "volumeAttributesClassName") && !inline {
        if text(spec, "volumeAttributesClassName").is_empty() {
            errors.push(FieldError::required(path.field("volumeAttributesClassName"), "an empty string is disallowed"));
        }
        shaped(errors, spec, path, "volumeAttributesClassName", names::subdomain);
        if !has(spec, "csi") {
            errors.push(FieldError::required(path.field("csi"), "has to be specified when using volumeAttributesClassName"));
        }
    }
}

fn capacity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("capacity");
    required(errors, spec, path, &["capacity"]);
    if spec["capacity"].get("storage").is_none() || map(spec, "capacity").is_some_and(|c| c.len() > 1) {
        let shown = spec.get("capacity").cloned().unwrap_or(Value::Null);
        errors.push(FieldError::not_supported(at, &shown, &["storage"]));
    }
    for (name, amount) in entries(spec, "capacity") {
        basic(amount, &at.key(name), errors);
        positive(amount, &at.key(name), errors);
    }
}

fn sources(spec: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let mut chosen = 0;
    for kind in SOURCES {
        let Some(source) = spec.get(kind).filter(|s| !s.is_null()) else { continue };
        chosen += 1;
        // Where a flexVolume is another source, a real server does not mind.
        if chosen > 1 && kind != "flexVolume" {
            let shown = if kind == "cephfs" { "cephFS" } else { kind };
            errors.push(FieldError::forbidden(path.field(shown), "may not specify more than 1 volume type"));
            continue;
        }
        let shown = if kind == "gcePersistentDisk" { "persistentDisk" } else { kind };
        let at = path.field(shown);
        match kind {
            "csi" => csi(source, &at, errors),
            "local" => {
                required(errors, source, &at, &["path"]);
                volume::no_backsteps(text(source, "path"), &at.field("path"), errors);
                if !has(spec, "nodeAffinity") {
                    errors.push(FieldError::required(path.field("nodeAffinity"), "Local volume requires node affinity"));
                }
            }
            "glusterfs" => {
                volume::shared(kind, source, &at, errors);
                if has(source, "endpointsNamespace") {
                    let (namespace, at) = (text(source, "endpointsNamespace"), at.field("endpointsNamespace"));
                    match namespace.is_empty() {
                        true => {
                            let why = "if the endpointnamespace is set, it must be a valid namespace name";
                            errors.push(invalid(&at, namespace, why));
                        }
                        false => wrong(errors, &at, namespace, names::label(namespace)),
                    }
                }
            }
            "iscsi" => {
                required(errors, source, &at, &["targetPortal"]);
                let portal = text(source, "targetPortal");
                if has(source, "initiatorName") && name.len() + 1 + portal.len() > 64 {
                    errors.push(invalid(&at.field("targetportal"), portal, volume::INITIATOR));
                }
                volume::iscsi(source, &at, "must be valid format", errors);
            }
            "cinder" => {
                required(errors, source, &at, &["volumeID"]);
                volume::secret(source, &at, true, errors);
            }
            "storageos" => {
                volume::storage_os(source, &at, errors);
                volume::secret(source, &at, true, errors);
            }
            "azureFile" => {
                volume::shared(kind, source, &at, errors);
                if has(source, "secretNamespace") {
                    required(errors, source, &at, &["secretNamespace"]);
                }
            }
            other => volume::shared(other, source, &at, errors),
        }
    }
    if chosen == 0 {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
}

fn csi(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    volume::csi_driver(source, path, errors);
    required(errors, source, path, &["volumeHandle"]);
    for name in ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"] {
        if let Some(secret) = object(source, name) {
            let at = path.field(name);
            required_shape(errors, secret, &at, "name", names::subdomain);
            required_shape(errors, secret, &at, "namespace", names::label);
        }
    }
}

/// A changed volume.
pub fn update_volume(new: &Value, old: &Value, errors: &mut Errors) {
    volume(new, errors);
    let sources = |volume: &Value| {
        let mut found: Vec<(&str, Value)> =
            SOURCES.iter().filter_map(|kind| Some((*kind, volume["spec"].get(*kind).filter(|s| s.is_object())?.clone()))).collect();
        for (_, source) in found.iter_mut().filter(|(kind, _)| *kind == "csi") {
            // May be set later, once.
            if old["spec"]["csi"].get("controllerExpandSecretRef").is_none()
                && let Some(map) = source.as_object_mut()
            {
                map.remove("controllerExpandSecretRef");
            }
        }
        found.into_iter().map(|(kind, source)| (kind.to_owned(), source)).collect::<Value>()
    };
    let (after, before) = (sources(new), sources(old));
    if after != before {
        let difference = typed::difference(&before, &after, "PersistentVolumeSource");
        let why = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
        errors.push(FieldError::forbidden("spec.persistentvolumesource", why));
    }
    field::immutable(errors, &new["spec"], &old["spec"], &Path::object(), "volumeMode");
    let affinity = |volume: &Value| ga_labels(&volume["spec"]["nodeAffinity"]);
    if has(&old["spec"], "nodeAffinity") && affinity(new) != affinity(old) {
        let shown = match object(&new["spec"], "nodeAffinity") {
            Some(affinity) => typed::show(affinity, "VolumeNodeAffinity").to_string(),
            None => "null".to_owned(),
        };
        let why = "field is immutable, except for updating from beta label to GA";
        errors.push(FieldError { value: shown, ..invalid(&Path::root("nodeAffinity"), "", why) });
    }
    if has(&old["spec"], "volumeAttributesClassName") && !has(&new["spec"], "volumeAttributesClassName") {
        let why = "update from non-nil value to nil is forbidden";
        errors.push(FieldError::forbidden(SPEC.field("volumeAttributesClassName"), why));
    }
}

/// Where a volume can be, with the labels under their names of today.
fn ga_labels(affinity: &Value) -> Value {
    const RENAMED: [(&str, &str); 5] = [
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
        ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
        ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ];
    let mut affinity = affinity.clone();
    let terms = affinity.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    let lists = terms.into_iter().flatten().filter_map(|term| term.get_mut("matchExpressions").and_then(Value::as_array_mut));
    for expression in lists.flatten() {
        if let Some((_, name)) = RENAMED.iter().find(|(old, _)| expression["key"] == *old) {
            expression["key"] = (*name).into();
        }
    }
    affinity
}

/// How much of a class there is somewhere.
pub fn storage_capacity(capacity: &Value, errors: &mut Errors) {
    let root = Path::object();
    selector::label_selector(&capacity["nodeTopology"], &root.field("nodeTopology"), errors);
    let class = text(capacity, "storageClassName");
    wrong(errors, &root.field("storageClassName"), class, names::subdomain(class));
    if let Some(amount) = capacity.get("capacity") {
        non_negative_quantity(amount, &root.field("capacity"), errors);
    }
}

/// A changed capacity: what it is asked about stays.
pub fn update_storage_capacity(new: &Value, old: &Value, errors: &mut Errors) {
    for name in ["nodeTopology", "storageClassName"] {
        field::immutable(errors, new, old, &Path::object(), name);
    }
}
