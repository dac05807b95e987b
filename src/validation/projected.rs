//! Volumes whose files are made of other objects: keys of ConfigMaps and Secrets, fields of the Pod, tokens and certificates.

use serde_json::Value;

use super::certificates::signer_name;
use super::field::{Errors, Path, between, has, invalid, items, number, object, required, text, word, wrong};
use super::volume::local_path;
use super::{environment, metadata, names, selector};
use crate::status::FieldError;

const KEY_TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
const TWICE: &str = "conflicting duplicate paths";

/// The mode of files.
fn mode(source: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = number(source, name).filter(|m| !(0..=0o777).contains(m)) {
        let why = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(FieldError::invalid(path.field(name), &mode.into(), why));
    }
}

fn user(source: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    between(errors, source, path, name, 0, i64::from(i32::MAX));
}

/// A path of a file of a volume.
fn file_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    local_path(value, path, errors);
    if value.starts_with("..") && !value.starts_with("../") {
        errors.push(invalid(path, value, "must not start with '..'"));
    }
}

/// The files of a ConfigMap or Secret.
pub fn keys(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    user(source, "defaultUser", path, errors);
    let list = path.field("items");
    for (i, item) in items(source, "items").iter().enumerate() {
        key_to_path(item, &list.index(i), errors);
    }
}

fn key_to_path(item: &Value, path: &Path<'_>, errors: &mut Errors) {
    required(errors, item, path, &["key", "path"]);
    file_path(text(item, "path"), &path.field("path"), errors);
    mode(item, "mode", path, errors);
    user(item, "user", path, errors);
}

/// The files of the downward API. A real server names the source, not the item, in what it says of one.
pub fn downward(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    user(source, "defaultUser", path, errors);
    for file in items(source, "items") {
        downward_file(file, path, errors);
    }
}

fn downward_file(file: &Value, path: &Path<'_>, errors: &mut Errors) {
    required(errors, file, path, &["path"]);
    file_path(text(file, "path"), &path.field("path"), errors);
    match (object(file, "fieldRef"), object(file, "resourceFieldRef")) {
        (Some(reference), resource) => {
            environment::file_reference(reference, &path.field("fieldRef"), errors);
            if resource.is_some() {
                errors.push(invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"));
            }
        }
        (None, Some(reference)) => environment::resource_reference(reference, &path.field("resourceFieldRef"), true, errors),
        (None, None) => errors.push(FieldError::required(path, "one of fieldRef and resourceFieldRef is required")),
    }
    mode(file, "mode", path, errors);
    user(file, "user", path, errors);
}

/// Paths that are taken.
struct Paths<'v, 'p> {
    taken: Vec<&'v str>,
    volume: &'p Path<'p>,
}

impl<'v> Paths<'v, '_> {
    fn take(&mut self, path: &'v str, shown: &str, errors: &mut Errors) {
        if self.taken.contains(&path) {
            errors.push(invalid(self.volume, shown, TWICE));
        } else {
            self.taken.push(path);
        }
    }
}

/// A volume of several sources.
pub fn projected(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    mode(source, "defaultMode", path, errors);
    user(source, "defaultUser", path, errors);
    let list = path.field("sources");
    let mut paths = Paths { taken: Vec::new(), volume: path };
    for (i, one) in items(source, "sources").iter().enumerate() {
        let at = list.index(i);
        for kind in ["secret", "configMap"] {
            let Some(inner) = object(one, kind) else { continue };
            let at = at.field(kind);
            required(errors, inner, &at, &["name"]);
            let list = at.field("items");
            for (i, item) in items(inner, "items").iter().enumerate() {
                key_to_path(item, &list.index(i), errors);
                if !text(item, "path").is_empty() {
                    paths.take(text(item, "path"), text(inner, "name"), errors);
                }
            }
        }
        if let Some(inner) = object(one, "downwardAPI") {
            let at = at.field("downwardAPI");
            for file in items(inner, "items") {
                downward_file(file, &at, errors);
                if !text(file, "path").is_empty() {
                    paths.take(text(file, "path"), text(file, "path"), errors);
                }
            }
        }
        if let Some(token) = object(one, "serviceAccountToken") {
            self::token(token, path, &at.field("serviceAccountToken"), errors);
        }
        if let Some(bundle) = object(one, "clusterTrustBundle") {
            trust_bundle(bundle, &at.field("clusterTrustBundle"), errors);
            paths.take(text(bundle, "path"), text(bundle, "path"), errors);
        }
        if let Some(certificate) = object(one, "podCertificate") {
            pod_certificate(certificate, &at.field("podCertificate"), &mut paths, errors);
        }
        let kinds = ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];
        if kinds.iter().filter(|k| has(one, k)).count() > 1 {
            errors.push(FieldError::forbidden(at, "may not specify more than 1 volume type per source"));
        }
    }
}

fn token(token: &Value, volume: &Path<'_>, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("expirationSeconds");
    match number(token, "expirationSeconds") {
        None => errors.push(FieldError::required(at, "")),
        Some(seconds) if seconds < 600 => {
            errors.push(FieldError::invalid(at, &seconds.into(), "may not specify a duration less than 10 minutes"));
        }
        Some(seconds) if seconds > 1 << 32 => {
            errors.push(FieldError::invalid(at, &seconds.into(), "may not specify a duration larger than 2^32 seconds"));
        }
        Some(_) => {}
    }
    required(errors, token, volume, &["path"]);
    file_path(text(token, "path"), &volume.field("path"), errors);
    user(token, "user", path, errors);
}

fn trust_bundle(bundle: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, signer) = (text(bundle, "name"), text(bundle, "signerName"));
    match (has(bundle, "name"), has(bundle, "signerName")) {
        (true, true) => errors.push(FieldError::invalid(path, bundle, "only one of name and signerName may be used")),
        (true, false) => {
            if name.is_empty() {
                errors.push(FieldError::required(path.field("name"), "must be a valid object name"));
            }
            let why = trust_bundle_name(name).into_iter().map(|why| format!("not a valid clustertrustbundlename: {why}")).collect();
            wrong(errors, &path.field("name"), name, why);
            if has(bundle, "labelSelector") {
                let why = "labelSelector must be unset if name is specified";
                errors.push(FieldError::invalid(path.field("labelSelector"), &bundle["labelSelector"], why));
            }
        }
        (false, true) => {
            if signer.is_empty() {
                errors.push(FieldError::required(path.field("signerName"), "must be a valid signer name"));
            }
            signer_name(signer, &path.field("signerName"), errors);
            selector::label_selector(&bundle["labelSelector"], &path.field("labelSelector"), errors);
        }
        (false, false) => errors.push(FieldError::required(path, "either name or signerName must be specified")),
    }
    required(errors, bundle, path, &["path"]);
    user(bundle, "user", path, errors);
    file_path(text(bundle, "path"), &path.field("path"), errors);
}

/// A bundle of a signer carries the signer's name in front of its own.
pub fn trust_bundle_name(name: &str) -> names::Wrong {
    match name.rfind(':').filter(|at| *at > 0 && name[..*at].contains(':')) {
        Some(at) => names::subdomain(&name[at + 1..]),
        None => names::subdomain(name),
    }
}

fn pod_certificate<'v>(certificate: &'v Value, path: &Path<'_>, paths: &mut Paths<'v, '_>, errors: &mut Errors) {
    let signer = text(certificate, "signerName");
    signer_name(signer, &path.field("signerName"), errors);
    metadata::user_annotations(certificate, path, errors);
    user(certificate, "user", path, errors);
    if !has(certificate, "keyType") {
        errors.push(FieldError::not_supported(path.field("keyType"), &"".into(), &KEY_TYPES));
    }
    word(errors, certificate, path, "keyType", &KEY_TYPES);
    if let Some(seconds) = number(certificate, "maxExpirationSeconds") {
        let at = path.field("maxExpirationSeconds");
        if seconds < 3600 {
            errors.push(FieldError::invalid(at, &seconds.into(), "if provided, maxExpirationSeconds must be >= 3600"));
        }
        let is_kubernetes = signer.split('/').next().is_some_and(|host| host == "kubernetes.io" || host.ends_with(".kubernetes.io"));
        let most = if is_kubernetes { 24 * 60 * 60 } else { 91 * 24 * 60 * 60 };
        if seconds > most {
            errors.push(FieldError::invalid(at, &seconds.into(), format!("if provided, maxExpirationSeconds must be <= {most}")));
        }
    }
    let mut any = false;
    for name in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let value = text(certificate, name);
        if !value.is_empty() {
            any = true;
            file_path(value, &path.field(name), errors);
            paths.take(value, value, errors);
        }
    }
    if !any {
        let why = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.push(FieldError::required(path, why));
    }
}
