//! The built-in signers: which requests each of them signs, and which an approver may approve by itself. A request that
//! a signer must not sign is failed with the reason, never signed with less than it asked for.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::authority::CertificateAuthority;
use super::request::CertificateRequest;

/// Client certificates of anybody.
pub const KUBE_APISERVER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Client certificates of kubelets.
pub const KUBE_APISERVER_CLIENT_KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Serving certificates of kubelets.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Anything, for objects of the old API version.
pub const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

/// How long certificates live if nobody asks for less.
const LONGEST_SECONDS: i64 = 365 * 24 * 3600;
/// Certificates begin a little in the past, because clocks differ.
const BACKDATE_SECONDS: i64 = 300;

/// What a signer does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: not approved, already done, or of a signer that is not built in.
    Nothing,
    /// It is signed: `status.certificate`, as it stands in the object.
    Certificate(String),
    /// It cannot be signed: the condition `Failed` to be added.
    Failed(Value),
}

/// Looks at an object and signs it if that is due. `now` is in seconds since the epoch.
pub fn sign(object: &Value, authority: &CertificateAuthority, now: i64) -> Outcome {
    let signer = object["spec"]["signerName"].as_str().unwrap_or_default();
    let known = [KUBE_APISERVER_CLIENT, KUBE_APISERVER_CLIENT_KUBELET, KUBELET_SERVING, LEGACY_UNKNOWN].contains(&signer);
    let done = object["status"]["certificate"].as_str().is_some_and(|c| !c.is_empty());
    let has = |kind: &str| conditions(object).iter().any(|c| c["type"] == kind);
    if !known || done || has("Denied") || has("Failed") || !has("Approved") {
        return Outcome::Nothing;
    }
    let usages = usages(object);
    match request_of(object).and_then(|request| check(signer, &request, &usages).map(|()| request)) {
        Err(why) => Outcome::Failed(failed("SignerValidationFailure", &why, now)),
        Ok(request) => {
            let asked = object["spec"]["expirationSeconds"].as_i64().unwrap_or(LONGEST_SECONDS).clamp(600, LONGEST_SECONDS);
            let until = now.saturating_add(asked).min(authority.until);
            match authority.issue(&request, &usages, now - BACKDATE_SECONDS, until) {
                Ok(pem) => Outcome::Certificate(STANDARD.encode(pem)),
                Err(why) => Outcome::Failed(failed("SigningError", &why, now)),
            }
        }
    }
}

fn failed(reason: &str, message: &str, now: i64) -> Value {
    let time = jiff::Timestamp::from_second(now).unwrap_or_default().to_string();
    json!({"type": "Failed", "status": "True", "reason": reason, "message": message, "lastUpdateTime": time, "lastTransitionTime": time})
}

/// The request inside an object.
pub fn request_of(object: &Value) -> Result<CertificateRequest, String> {
    let pem = object["spec"]["request"].as_str().and_then(|text| STANDARD.decode(text).ok()).ok_or("spec.request is not base64")?;
    CertificateRequest::from_pem(&pem)
}

fn usages(object: &Value) -> Vec<String> {
    object["spec"]["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn conditions(object: &Value) -> &[Value] {
    object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether a signer signs a request with these usages.
pub fn check(signer: &str, request: &CertificateRequest, usages: &[String]) -> Result<(), String> {
    let only = |allowed: &[&str]| usages.iter().all(|u| allowed.contains(&u.as_str()));
    let has = |usage: &str| usages.iter().any(|u| u == usage);
    match signer {
        KUBE_APISERVER_CLIENT => {
            if !only(&["client auth", "digital signature", "key encipherment"]) || !has("client auth") {
                return Err("usages did not match \"client auth\" (and optionally \"digital signature\", \"key encipherment\")".into());
            }
            if request.organizations.iter().any(|o| o == "system:masters") {
                return Err(MASTERS_REFUSED.into());
            }
            Ok(())
        }
        KUBE_APISERVER_CLIENT_KUBELET => {
            of_node(request)?;
            let sans = !request.dns_names.is_empty() || !request.ip_addresses.is_empty();
            if sans || !request.email_addresses.is_empty() || !request.uris.is_empty() {
                return Err("DNS, IP, email or URI subject alternative names are not allowed".into());
            }
            if !only(&["client auth", "digital signature", "key encipherment"]) || !has("client auth") || !has("digital signature") {
                return Err("usages did not match \"client auth\", \"digital signature\" (and optionally \"key encipherment\")".into());
            }
            Ok(())
        }
        KUBELET_SERVING => {
            of_node(request)?;
            if request.dns_names.is_empty() && request.ip_addresses.is_empty() {
                return Err("at least one DNS or IP subject alternative name is required".into());
            }
            if !request.email_addresses.is_empty() || !request.uris.is_empty() {
                return Err("email and URI subject alternative names are not allowed".into());
            }
            if !only(&["server auth", "digital signature", "key encipherment"]) || !has("server auth") || !has("digital signature") {
                return Err("usages did not match \"server auth\", \"digital signature\" (and optionally \"key encipherment\")".into());
            }
            Ok(())
        }
        LEGACY_UNKNOWN => Ok(()),
        _ => Err(format!("{signer} is not a built-in signer")),
    }
}

const MASTERS_REFUSED: &str = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";

fn of_node(request: &CertificateRequest) -> Result<(), String> {
    if request.organizations != ["system:nodes"] {
        return Err("subject organization is not system:nodes".into());
    }
    if request.common_name.strip_prefix("system:node:").unwrap_or_default().is_empty() {
        return Err("subject common name does not begin with system:node:".into());
    }
    Ok(())
}

/// The subresource that an approver asks about before it approves a kubelet's client certificate by itself:
/// `selfnodeclient` if a node asks for itself, `nodeclient` if somebody asks for a node; `None` if a person must decide.
pub fn recognised(object: &Value) -> Option<&'static str> {
    let request = request_of(object).ok()?;
    if object["spec"]["signerName"] != KUBE_APISERVER_CLIENT_KUBELET {
        return None;
    }
    check(KUBE_APISERVER_CLIENT_KUBELET, &request, &usages(object)).ok()?;
    let own = object["spec"]["username"].as_str() == Some(&request.common_name);
    Some(if own { "selfnodeclient" } else { "nodeclient" })
}

/// What is wrong with a new object for whom `kube-apiserver-client` would sign: nobody becomes an administrator this way.
pub fn subject_restriction(object: &Value) -> Result<(), &'static str> {
    if object["spec"]["signerName"] != KUBE_APISERVER_CLIENT {
        return Ok(());
    }
    match request_of(object) {
        Ok(request) if request.organizations.iter().any(|o| o == "system:masters") => Err(MASTERS_REFUSED),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "signer_tests.rs"]
mod tests;
