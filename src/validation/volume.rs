//! The volumes of a Pod, and the sources that they share with PersistentVolumes: each has a name of its own and one source.
//! Files made of other objects are in [`super::projected`].

use serde_json::Value;

use super::field::{
    Errors, Path, between, entries, flag, has, invalid, items, number, object, required, required_shape, shaped, text, word, wrong,
};
use super::resources::quantity;
use super::{names, projected, storage};
use crate::status::FieldError;

/// The sources in the order in which a real server looks at them.
const SOURCES: [&str; 31] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
    "",
];
const HOST_PATHS: [&str; 8] = ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// The volumes of a Pod's spec; gives those that are right, which containers can mount. `pod` is the name of the Pod, if it is one.
pub fn volumes<'v>(spec: &'v Value, pod: Option<&str>, path: &Path<'_>, errors: &mut Errors) -> Vec<(&'v str, &'v Value)> {
    let list = path.field("volumes");
    let volumes = items(spec, "volumes");
    let pod = pod.filter(|name| !name.is_empty());
    let mut right: Vec<(&str, &Value)> = Vec::new();
    for (i, volume) in volumes.iter().enumerate() {
        let path = list.index(i);
        let name = text(volume, "name");
        let before = errors.len();
        source(volume, name, pod, &path, errors);
        required_shape(errors, volume, &path, "name", names::label);
        if right.iter().any(|(other, _)| *other == name) {
            errors.push(FieldError::duplicate(path.field("name"), &name.into()));
        }
        if errors.len() == before {
            right.push((name, volume));
        }
        let claim = text(&volume["persistentVolumeClaim"], "claimName");
        let made = |v: &Value| has(v, "ephemeral") && pod.is_some_and(|pod| claim == format!("{pod}-{}", text(v, "name")));
        if has(volume, "persistentVolumeClaim") && volumes.iter().any(made) {
            let at = path.field("persistentVolumeClaim");
            errors.push(invalid(&at.field("claimName"), claim, "must not reference a PVC that gets created for an ephemeral volume"));
        }
    }
    right
}

fn source(volume: &Value, name: &str, pod: Option<&str>, path: &Path<'_>, errors: &mut Errors) {
    let mut chosen = 0;
    for kind in SOURCES {
        let Some(source) = volume.get(kind).filter(|s| !s.is_null()) else { continue };
        chosen += 1;
        if chosen > 1 {
            let shown = match kind {
                "cephfs" => "cephFS",
                "downwardAPI" => "downwarAPI",
                other => other,
            };
            errors.push(FieldError::forbidden(path.field(shown), "may not specify more than 1 volume type"));
        } else {
            let shown = if kind == "gcePersistentDisk" { "persistentDisk" } else { kind };
            one(kind, source, &path.field(shown), errors);
            if kind == "ephemeral"
                && let Some(pod) = pod.filter(|_| !name.is_empty())
            {
                let claim = format!("{pod}-{name}");
                let why = names::subdomain(&claim).into_iter().map(|why| format!("PVC name {claim:?}: {why}")).collect();
                wrong(errors, &path.field("name"), name, why);
            }
        }
        if kind == "iscsi" && has(source, "initiatorName") && name.len() + 1 + text(source, "targetPortal").len() > 64 {
            errors.push(invalid(&path.field("name"), name, INITIATOR));
        }
    }
    if chosen == 0 {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
}

/// Why an initiator's name does not fit.
pub const INITIATOR: &str =
    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";

fn one(kind: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    match kind {
        "emptyDir" => {
            if quantity(&source["sizeLimit"]).is_some_and(|limit| limit.nanos() < 0) {
                errors.push(FieldError::forbidden(path.field("sizeLimit"), "SizeLimit field must be a valid resource quantity"));
            }
        }
        "gitRepo" => {
            required(errors, source, path, &["repository"]);
            local_path(text(source, "directory"), &path.field("directory"), errors);
        }
        "secret" => {
            required(errors, source, path, &["secretName"]);
            projected::keys(source, path, errors);
        }
        "configMap" => {
            required(errors, source, path, &["name"]);
            projected::keys(source, path, errors);
        }
        "downwardAPI" => projected::downward(source, path, errors),
        "projected" => projected::projected(source, path, errors),
        "persistentVolumeClaim" => required(errors, source, path, &["claimName"]),
        "ephemeral" => match object(source, "volumeClaimTemplate") {
            None => errors.push(FieldError::required(path.field("volumeClaimTemplate"), "")),
            Some(template) => storage::claim_template(template, &path.field("volumeClaimTemplate"), errors),
        },
        "csi" => {
            csi_driver(source, path, errors);
            if let Some(secret) = object(source, "nodePublishSecretRef") {
                required(errors, secret, &path.field("nodePublishSecretRef"), &["name"]);
                shaped(errors, secret, path, "name", names::subdomain);
            }
        }
        "image" => {
            required(errors, source, path, &["reference"]);
            super::field::one_of(errors, source, path, "pullPolicy", true, &["Always", "IfNotPresent", "Never"]);
        }
        "iscsi" => {
            required(errors, source, path, &["targetPortal"]);
            iscsi(source, path, "must be valid format starting with iqn, eui, or naa", errors);
        }
        "storageos" => {
            storage_os(source, path, errors);
            secret(source, path, false, errors);
        }
        "cinder" => {
            required(errors, source, path, &["volumeID"]);
            secret(source, path, false, errors);
        }
        other => shared(other, source, path, errors),
    }
}

/// The sources that look the same in a Pod and in a PersistentVolume.
pub fn shared(kind: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    match kind {
        "hostPath" => {
            if text(source, "path").is_empty() {
                errors.push(FieldError::required(path.field("path"), ""));
                return;
            }
            no_backsteps(text(source, "path"), &path.field("path"), errors);
            word(errors, source, path, "type", &HOST_PATHS);
        }
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            required(errors, source, path, &[if kind == "gcePersistentDisk" { "pdName" } else { "volumeID" }]);
            if let Some(partition) = number(source, "partition").filter(|p| !(0..=255).contains(p)) {
                let why = "must be between 1 and 255, inclusive";
                errors.push(FieldError::invalid(path.field("partition"), &partition.into(), why));
            }
        }
        "nfs" => {
            required(errors, source, path, &["server", "path"]);
            if !text(source, "path").starts_with('/') {
                errors.push(invalid(&path.field("path"), text(source, "path"), "must be an absolute path"));
            }
        }
        "glusterfs" => required(errors, source, path, &["endpoints", "path"]),
        "flocker" => flocker(source, path, errors),
        "rbd" => required(errors, source, path, &["monitors", "image"]),
        "cephfs" => required(errors, source, path, &["monitors"]),
        "quobyte" => quobyte(source, path, errors),
        "fc" => fibre_channel(source, path, errors),
        "flexVolume" => {
            required(errors, source, path, &["driver"]);
            let options = path.field("options");
            for (key, _) in entries(source, "options") {
                let domain = format!(".{}", key.split('/').next().filter(|_| key.contains('/')).unwrap_or(key).to_lowercase());
                if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
                    errors.push(invalid(&options.key(key), key, "kubernetes.io and k8s.io namespaces are reserved"));
                }
            }
        }
        "azureFile" => required(errors, source, path, &["secretName", "shareName"]),
        "vsphereVolume" => required(errors, source, path, &["volumePath"]),
        "photonPersistentDisk" => required(errors, source, path, &["pdID"]),
        "portworxVolume" => required(errors, source, path, &["volumeID"]),
        "azureDisk" => azure_disk(source, path, errors),
        "scaleIO" => required(errors, source, path, &["gateway", "system", "volumeName"]),
        _ => {}
    }
}

/// A path without a step upwards.
pub fn no_backsteps(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if value.split('/').any(|part| part == "..") {
        errors.push(invalid(path, value, "must not contain '..'"));
    }
}

/// A path inside something.
pub fn local_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if value.starts_with('/') {
        errors.push(invalid(path, value, "must be a relative path"));
    }
    no_backsteps(value, path, errors);
}

/// The driver of a CSI source.
pub fn csi_driver(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (driver, path) = (text(source, "driver"), path.field("driver"));
    driver_name(driver, &path, errors);
}

/// The name of a CSI driver.
pub fn driver_name(driver: &str, path: &Path<'_>, errors: &mut Errors) {
    if driver.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if driver.len() > 63 {
        errors.push(FieldError::too_long(path, 63));
    }
    wrong(errors, path, driver, names::subdomain(&driver.to_lowercase()));
}

/// The name of a driver where newer rules have taken over, which tell the same in other words.
pub fn caseless_driver_name(driver: &str, path: &Path<'_>, errors: &mut Errors) {
    if driver.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if driver.len() > 63 {
        errors.push(FieldError::too_long(path, 63));
    }
    wrong(errors, path, driver, names::caseless_subdomain(driver));
}

/// A secret that a source names.
pub fn secret(source: &Value, path: &Path<'_>, namespaced: bool, errors: &mut Errors) {
    if let Some(secret) = object(source, "secretRef") {
        required(errors, secret, &path.field("secretRef"), if namespaced { &["name", "namespace"] } else { &["name"] });
    }
}

/// The names of a StorageOS source.
pub fn storage_os(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    required_shape(errors, source, path, "volumeName", names::label);
    shaped(errors, source, path, "volumeNamespace", names::label);
}

fn is_initiator(name: &str) -> bool {
    let alnum = |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_alphanumeric());
    if let Some(rest) = name.strip_prefix("eui") {
        return rest.chars().next().is_some_and(|c| alnum(&rest[c.len_utf8()..], 16));
    }
    if let Some(rest) = name.strip_prefix("naa") {
        return rest.chars().next().is_some_and(|c| alnum(&rest[c.len_utf8()..], 32));
    }
    // iqn.2001-04.com.example:disk
    let Some((head, tail)) = name.strip_prefix("iqn.").and_then(|rest| rest.split_once(':')) else { return false };
    let digits = |text: Option<&str>| text.is_some_and(|t| t.bytes().all(|b| b.is_ascii_digit()));
    let date = digits(head.get(..4)) && head.get(4..5) == Some("-") && digits(head.get(5..7)) && head.get(7..8) == Some(".");
    let domain = head.get(8..).unwrap_or_default();
    let domain = !domain.is_empty() && domain.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    let forbidden = |c: char| matches!(c, ',' | ';' | '*' | '&' | '$' | '|') || c.is_whitespace();
    date && domain && !tail.is_empty() && !tail.contains(forbidden)
}

/// What an iSCSI source has wherever it stands; `unknown` is said of a name of no known sort.
pub fn iscsi(source: &Value, path: &Path<'_>, unknown: &str, errors: &mut Errors) {
    let known = |name: &str| ["iqn", "eui", "naa"].iter().any(|sort| name.starts_with(sort));
    let name = text(source, "iqn");
    if name.is_empty() {
        errors.push(FieldError::required(path.field("iqn"), ""));
    } else if !known(name) {
        errors.push(invalid(&path.field("iqn"), name, unknown));
    } else if !is_initiator(name) {
        errors.push(invalid(&path.field("iqn"), name, "must be valid format"));
    }
    between(errors, source, path, "lun", 0, 255);
    if (flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession")) && !has(source, "secretRef") {
        errors.push(FieldError::required(path.field("secretRef"), ""));
    }
    if unknown == "must be valid format"
        && let Some(secret) = object(source, "secretRef")
    {
        required(errors, secret, &path.field("secretRef"), &["name"]);
    }
    if has(source, "initiatorName") {
        let (name, at) = (text(source, "initiatorName"), path.field("initiatorname"));
        if !known(name) {
            errors.push(invalid(&at, name, unknown));
        } else if !is_initiator(name) {
            errors.push(invalid(&at, name, "must be valid format"));
        }
    }
}

fn flocker(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(source, "datasetName");
    match (name.is_empty(), text(source, "datasetUUID").is_empty()) {
        (true, true) => errors.push(FieldError::required(path, "one of datasetName and datasetUUID is required")),
        (false, false) => {
            errors.push(invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously"));
        }
        _ => {}
    }
    if name.contains('/') {
        errors.push(invalid(&path.field("datasetName"), name, "must not contain '/'"));
    }
}

fn quobyte(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(source, "registry");
    if registry.is_empty() {
        errors.push(FieldError::required(path.field("registry"), PAIRS));
    } else if text(source, "tenant").len() >= 65 {
        let why = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(FieldError::required(path.field("tenant"), why));
    } else {
        let is_pair = |pair: &str| match pair.strip_prefix('[') {
            Some(rest) => rest.split_once(']').is_some_and(|(_, port)| port.starts_with(':')),
            None => pair.matches(':').count() == 1,
        };
        for _ in registry.split(',').filter(|pair| !is_pair(pair)) {
            errors.push(invalid(&path.field("registry"), registry, PAIRS));
        }
    }
    required(errors, source, path, &["volume"]);
}

fn fibre_channel(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (names, ids) = (items(source, "targetWWNs"), items(source, "wwids"));
    if names.is_empty() && ids.is_empty() {
        errors.push(FieldError::required(path.field("targetWWNs"), "must specify either targetWWNs or wwids, but not both"));
    }
    if !names.is_empty() && !ids.is_empty() {
        let why = "targetWWNs and wwids can not be specified simultaneously";
        errors.push(FieldError::invalid(path.field("targetWWNs"), &source["targetWWNs"], why));
    }
    if !names.is_empty() {
        if has(source, "lun") {
            between(errors, source, path, "lun", 0, 255);
        } else {
            errors.push(FieldError::required(path.field("lun"), "lun is required if targetWWNs is specified"));
        }
    }
}

fn azure_disk(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    required(errors, source, path, &["diskName", "diskURI"]);
    word(errors, source, path, "cachingMode", &["None", "ReadOnly", "ReadWrite"]);
    word(errors, source, path, "kind", &["Dedicated", "Managed", "Shared"]);
    if !has(source, "kind") {
        return;
    }
    let (start, example) = match text(source, "kind") {
        "Managed" => ("/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"),
        _ => ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"),
    };
    let uri = text(source, "diskURI");
    if !uri.starts_with(start) {
        errors.push(FieldError::not_supported(path.field("diskURI"), &uri.into(), &[example]));
    }
}
