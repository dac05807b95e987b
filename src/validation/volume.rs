//! The volumes of a Pod: each has a name of its own and one source.

use serde_json::Value;

use super::field::{Errors, Path, has, invalid, items, object, one_of, text};
use super::names;
use crate::status::FieldError;

/// What each source needs: its name and the fields that must be there.
const SOURCES: [(&str, &[&str]); 29] = [
    ("awsElasticBlockStore", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("azureFile", &["secretName", "shareName"]),
    ("cephfs", &["monitors"]),
    ("cinder", &["volumeID"]),
    ("configMap", &["name"]),
    ("csi", &["driver"]),
    ("downwardAPI", &[]),
    ("emptyDir", &[]),
    ("ephemeral", &["volumeClaimTemplate"]),
    ("fc", &[]),
    ("flexVolume", &["driver"]),
    ("flocker", &[]),
    ("gcePersistentDisk", &["pdName"]),
    ("gitRepo", &["repository"]),
    ("glusterfs", &["endpoints", "path"]),
    ("hostPath", &["path"]),
    ("image", &[]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("nfs", &["server", "path"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("projected", &[]),
    ("quobyte", &["registry", "volume"]),
    ("rbd", &["monitors", "image"]),
    ("scaleIO", &["gateway", "system", "secretRef"]),
    ("secret", &["secretName"]),
    ("vsphereVolume", &["volumePath"]),
];
const HOST_PATHS: [&str; 8] = ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];

/// The volumes of a Pod's spec.
pub fn volumes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("volumes");
    let volumes = items(spec, "volumes");
    for (i, volume) in volumes.iter().enumerate() {
        let path = list.index(i);
        source(volume, &path, errors);
        let name = text(volume, "name");
        if name.is_empty() {
            errors.push(FieldError::required(path.field("name"), ""));
            continue;
        }
        let wrong = names::label(name);
        if wrong.is_empty() && volumes[..i].iter().any(|v| text(v, "name") == name) {
            errors.push(FieldError::duplicate(path.field("name"), &name.into()));
        }
        errors.extend(wrong.into_iter().map(|why| invalid(&path.field("name"), name, why)));
    }
}

fn source(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut chosen = 0;
    for (kind, required) in SOURCES {
        let Some(source) = volume.get(kind).filter(|s| !s.is_null()) else { continue };
        let path = path.field(kind);
        chosen += 1;
        if chosen > 1 {
            errors.push(FieldError::forbidden(path, "may not specify more than 1 volume type"));
            continue;
        }
        for name in required.iter().filter(|name| source.get(**name).is_none_or(crate::schema::is_zero)) {
            errors.push(FieldError::required(path.field(name), ""));
        }
        match kind {
            "hostPath" => {
                if text(source, "path").split('/').any(|part| part == "..") {
                    errors.push(invalid(&path.field("path"), text(source, "path"), "must not contain '..'"));
                }
                one_of(errors, source, &path, "type", false, &HOST_PATHS);
            }
            "configMap" | "secret" | "downwardAPI" => keys(source, &path, kind != "downwardAPI", errors),
            "projected" => projected(source, &path, errors),
            "emptyDir" => {
                if let Some(limit) = source.get("sizeLimit") {
                    super::container::non_negative_quantity(limit, &path.field("sizeLimit"), errors);
                }
            }
            "nfs" if !text(source, "path").is_empty() && !text(source, "path").starts_with('/') => {
                errors.push(invalid(&path.field("path"), text(source, "path"), "must be an absolute path"));
            }
            _ => {}
        }
    }
}

fn projected(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    let list = path.field("sources");
    for (i, one) in items(source, "sources").iter().enumerate() {
        let path = list.index(i);
        for kind in ["secret", "configMap"] {
            if let Some(inner) = object(one, kind) {
                let path = path.field(kind);
                if text(inner, "name").is_empty() {
                    errors.push(FieldError::required(path.field("name"), ""));
                }
                keys(inner, &path, true, errors);
            }
        }
        if let Some(inner) = object(one, "downwardAPI") {
            keys(inner, &path.field("downwardAPI"), false, errors);
        }
        if let Some(token) = object(one, "serviceAccountToken") {
            let path = path.field("serviceAccountToken");
            if let Some(seconds) = token["expirationSeconds"].as_i64().filter(|s| *s < 600) {
                let why = "may not specify a duration less than 10 minutes";
                errors.push(FieldError::invalid(path.field("expirationSeconds"), &seconds.into(), why));
            }
            if text(token, "path").is_empty() {
                errors.push(FieldError::required(path.field("path"), ""));
            }
        }
        let kinds = ["clusterTrustBundle", "configMap", "downwardAPI", "podCertificate", "secret", "serviceAccountToken"];
        if kinds.iter().filter(|k| has(one, k)).count() > 1 {
            errors.push(FieldError::forbidden(path, "may not specify more than 1 volume type per source"));
        }
    }
}

fn keys(source: &Value, path: &Path<'_>, keyed: bool, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    let list = path.field("items");
    for (i, item) in items(source, "items").iter().enumerate() {
        let path = list.index(i);
        if keyed && text(item, "key").is_empty() {
            errors.push(FieldError::required(path.field("key"), ""));
        }
        let to = text(item, "path");
        if to.is_empty() {
            errors.push(FieldError::required(path.field("path"), ""));
        } else if to.starts_with('/') {
            errors.push(invalid(&path.field("path"), to, "must be a relative path"));
        } else if to.split('/').any(|part| part == "..") {
            errors.push(invalid(&path.field("path"), to, "must not contain '..'"));
        } else if to.starts_with("..") {
            errors.push(invalid(&path.field("path"), to, "must not start with '..'"));
        }
        mode(item, "mode", &path, errors);
    }
}

fn mode(source: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = source[name].as_i64().filter(|m| !(0..=0o777).contains(m)) {
        let why = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(FieldError::invalid(path.field(name), &mode.into(), why));
    }
}
