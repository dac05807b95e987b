//! What a CertificateSigningRequest must look like on create and update, who is written into it as its author, and who
//! may approve and sign. The words are a real server's.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::authz::{Attributes, Authorizer};
use crate::request::{RequestInfo, User};
use crate::status::FieldError;

use super::signer::{LEGACY_UNKNOWN, request_of};

const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Writes the author into a new object, over whatever the author wrote there.
pub fn prepare(object: &mut Value, user: &User) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for key in ["username", "uid", "groups", "extra"] {
        spec.remove(key);
    }
    spec.insert("username".into(), user.name.clone().into());
    if !user.uid.is_empty() {
        spec.insert("uid".into(), user.uid.clone().into());
    }
    if !user.groups.is_empty() {
        spec.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        let extra: Map<_, _> = user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        spec.insert("extra".into(), extra.into());
    }
}

/// A new object.
pub fn create(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &object["spec"];
    match spec["request"].as_str() {
        None | Some("") => errors.push(FieldError::invalid("spec.request", &json!(""), "PEM block type must be CERTIFICATE REQUEST")),
        Some(_) => {
            if let Err(why) = request_of(object) {
                errors.push(FieldError::invalid("spec.request", &spec["request"], why));
            }
        }
    }
    let usages = spec["usages"].as_array().map(Vec::as_slice).unwrap_or_default();
    if usages.is_empty() {
        errors.push(FieldError::required("spec.usages", ""));
    }
    for (i, usage) in usages.iter().enumerate() {
        if !usage.as_str().is_some_and(|u| USAGES.contains(&u)) {
            errors.push(FieldError::not_supported(format!("spec.usages[{i}]"), usage, USAGES));
        } else if usages[..i].contains(usage) {
            errors.push(FieldError::duplicate(format!("spec.usages[{i}]"), usage));
        }
    }
    let signer = spec["signerName"].as_str().unwrap_or_default();
    let parts: Vec<&str> = signer.split('/').collect();
    if signer.is_empty() {
        errors.push(FieldError::required("spec.signerName", ""));
    } else if signer == LEGACY_UNKNOWN {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.push(FieldError::invalid("spec.signerName", &spec["signerName"], detail));
    } else if parts.len() != 2 || !parts[0].contains('.') || parts.iter().any(|p| p.is_empty()) {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid("spec.signerName", &spec["signerName"], detail));
    }
    if spec["expirationSeconds"].as_i64().is_some_and(|seconds| seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid("spec.expirationSeconds", &spec["expirationSeconds"], detail));
    }
    errors.extend(conditions(object));
    errors
}

/// A changed object; `subresource` is empty, `status` or `approval`.
pub fn update(new: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
    let mut errors = conditions(new);
    if new["spec"] != old["spec"] {
        errors.push(FieldError::invalid("spec", &new["spec"], "field is immutable"));
    }
    for kind in ["Approved", "Denied"] {
        let count = |object: &Value| list(object).iter().filter(|c| c["type"] == kind).count();
        let detail = |what: &str| format!("updates may not {what} a condition of type {kind:?}");
        if count(new) < count(old) {
            errors.push(FieldError::forbidden("status.conditions", detail("remove")));
        }
        if count(new) > count(old) && subresource != "approval" {
            errors.push(FieldError::forbidden("status.conditions", detail("add")));
        }
    }
    let certificate = |object: &Value| object["status"]["certificate"].as_str().unwrap_or_default().to_owned();
    if certificate(new) != certificate(old) && (subresource != "status" || !certificate(old).is_empty()) {
        let detail = if subresource == "status" {
            "updates may not modify existing certificate content"
        } else {
            "updates may not set certificate content"
        };
        errors.push(FieldError::forbidden("status.certificate", detail));
    }
    errors
}

fn list(object: &Value) -> &[Value] {
    object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn conditions(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let conditions = list(object);
    for (i, condition) in conditions.iter().enumerate() {
        let path = format!("status.conditions[{i}]");
        let kind = condition["type"].as_str().unwrap_or_default();
        if kind.is_empty() {
            errors.push(FieldError::required(format!("{path}.type"), ""));
        }
        match condition["status"].as_str().unwrap_or_default() {
            "" => errors.push(FieldError::required(format!("{path}.status"), "")),
            "True" => {}
            _ if matches!(kind, "Approved" | "Denied" | "Failed") => {
                errors.push(FieldError::not_supported(format!("{path}.status"), &condition["status"], &["True"]))
            }
            "False" | "Unknown" => {}
            _ => errors.push(FieldError::not_supported(format!("{path}.status"), &condition["status"], &["True", "False", "Unknown"])),
        }
        let earlier = |other: &str| conditions[..i].iter().any(|c| c["type"] == other);
        if earlier(kind) {
            errors.push(FieldError::duplicate(format!("{path}.type"), &condition["type"]));
        }
        if (kind == "Denied" && earlier("Approved")) || (kind == "Approved" && earlier("Denied")) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(format!("{path}.type"), &condition["type"], detail));
        }
    }
    errors
}

/// Whether a user may `approve` (the approval subresource) or `sign` (a certificate in the status) for a signer:
/// asked for the signer itself, then for its whole domain.
pub async fn may(authorizer: &dyn Authorizer, user: &Arc<User>, verb: &str, object: &Value) -> Result<(), String> {
    let signer = object["spec"]["signerName"].as_str().unwrap_or_default();
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    for name in [signer, &domain] {
        let info = RequestInfo {
            is_resource: true,
            special_verb: verb.to_owned(),
            group: "certificates.k8s.io".to_owned(),
            version: "*".to_owned(),
            resource: "signers".to_owned(),
            name: name.to_owned(),
            ..RequestInfo::default()
        };
        if authorizer.decide(&Attributes { user: user.clone(), info: Arc::new(info) }).await.is_allow() {
            return Ok(());
        }
    }
    Err(format!("user not permitted to {verb} requests with signerName {signer:?}"))
}
