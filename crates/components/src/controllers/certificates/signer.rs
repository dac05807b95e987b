//! The built-in signers: which requests each of them signs, and which an approver may approve by itself. A request that
//! a signer must not sign is failed with the reason, never signed with less than it asked for.

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::authority::CertificateAuthority;
use super::request::CertificateRequest;
use super::{condition, is_issued};

/// Client certificates of anybody.
pub const KUBE_APISERVER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Client certificates of kubelets.
pub const KUBE_APISERVER_CLIENT_KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Serving certificates of kubelets.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Anything, for objects of the old API version.
pub const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

/// The shortest that a certificate lives, whatever was asked for.
const SHORTEST_SECONDS: i64 = 600;
/// Certificates begin a little in the past, because clocks differ.
const BACKDATE_SECONDS: i64 = 300;
/// Those that live longer than this end as much earlier.
const SHORT_SECONDS: i64 = 8 * 3600;

/// What a signer does with a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Signed {
    /// Nothing: not approved, already done, or of a signer that is not built in.
    Nothing,
    /// It is signed: the certificate in PEM.
    Certificate(String),
    /// It cannot be signed: the condition `Failed` to be added.
    Failed(Box<CertificateSigningRequestCondition>),
}

/// Looks at an object and signs it if that is due.
pub fn sign(object: &CertificateSigningRequest, authority: &CertificateAuthority, now: Timestamp) -> Signed {
    let signer = object.spec.signer_name.as_str();
    let known = [KUBE_APISERVER_CLIENT, KUBE_APISERVER_CLIENT_KUBELET, KUBELET_SERVING, LEGACY_UNKNOWN].contains(&signer);
    let has = |kind: &str| condition(object, kind).is_some();
    if !known || is_issued(object) || has("Denied") || has("Failed") || !has("Approved") {
        return Signed::Nothing;
    }
    let usages = object.spec.usages.as_deref().unwrap_or_default();
    let request = CertificateRequest::from_pem(&object.spec.request.0);
    match request.and_then(|request| check(signer, &request, usages).map(|()| request)) {
        Err(why) => failed("SignerValidationFailure", why, now),
        Ok(request) => {
            let longest = authority.longest;
            let lives = match object.spec.expiration_seconds.map(i64::from) {
                Some(asked) if asked <= longest => asked.max(SHORTEST_SECONDS),
                _ => longest,
            };
            let now_seconds = now.as_second();
            if now_seconds >= authority.until {
                return failed("SigningError", "the signer has expired".into(), now);
            }
            let lives = if lives < SHORT_SECONDS { lives } else { lives - BACKDATE_SECONDS };
            let until = now_seconds.saturating_add(lives).min(authority.until);
            match authority.issue(&request, usages, now_seconds - BACKDATE_SECONDS, until) {
                Ok(pem) => Signed::Certificate(pem),
                Err(why) => failed("SigningError", why, now),
            }
        }
    }
}

fn failed(reason: &str, message: String, now: Timestamp) -> Signed {
    Signed::Failed(Box::new(CertificateSigningRequestCondition {
        type_: "Failed".into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }))
}

/// Whether a signer signs a request with these usages.
pub fn check(signer: &str, request: &CertificateRequest, usages: &[String]) -> Result<(), String> {
    match signer {
        KUBE_APISERVER_CLIENT => {
            let allowed = ["client auth", "digital signature", "key encipherment"];
            if let Some(other) = usages.iter().find(|usage| !allowed.contains(&usage.as_str())) {
                return Err(format!("invalid usage for client certificate: {other}"));
            }
            if !usages.iter().any(|usage| usage == "client auth") {
                return Err("missing required usage for client certificate: client auth".into());
            }
            // Admission refuses such a request; one that came by another way is not signed either.
            if request.organizations.iter().any(|o| o == "system:masters") {
                return Err("use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed".into());
            }
            Ok(())
        }
        KUBE_APISERVER_CLIENT_KUBELET => {
            of_nodes(request)?;
            none(&request.dns_names, "DNS")?;
            none(&request.email_addresses, "Email")?;
            none(&request.ip_addresses, "IP")?;
            none(&request.uris, "URI")?;
            of_node(request)?;
            exactly(usages, "client auth")
        }
        KUBELET_SERVING => {
            of_nodes(request)?;
            if request.dns_names.is_empty() && request.ip_addresses.is_empty() {
                return Err("DNS or IP subjectAltName is required".into());
            }
            none(&request.email_addresses, "Email")?;
            none(&request.uris, "URI")?;
            exactly(usages, "server auth")?;
            of_node(request)
        }
        LEGACY_UNKNOWN => Ok(()),
        _ => Err(format!("{signer} is not a built-in signer")),
    }
}

fn of_nodes(request: &CertificateRequest) -> Result<(), String> {
    if request.organizations == ["system:nodes"] { Ok(()) } else { Err("subject organization is not system:nodes".into()) }
}

fn of_node(request: &CertificateRequest) -> Result<(), String> {
    match request.common_name.starts_with("system:node:") {
        true => Ok(()),
        false => Err("subject common name does not begin with system:node:".into()),
    }
}

fn none<T>(names: &[T], sort: &str) -> Result<(), String> {
    if names.is_empty() { Ok(()) } else { Err(format!("{sort} subjectAltNames are not allowed")) }
}

/// A kubelet's certificate has its purpose, signatures, and for keys of RSA also encipherment; nothing else.
fn exactly(usages: &[String], purpose: &str) -> Result<(), String> {
    let has = |usage: &str| usages.iter().any(|u| u == usage);
    let other = usages.iter().any(|u| u != purpose && u != "digital signature" && u != "key encipherment");
    match has(purpose) && has("digital signature") && !other {
        true => Ok(()),
        false => {
            let mut all = [purpose, "digital signature", "key encipherment"];
            all.sort_unstable();
            Err(format!("usages did not match [{}]", all.join(" ")))
        }
    }
}

/// What an approver asks about before it approves a kubelet's client certificate by itself: the subresource of requests that
/// the author must be allowed to create, and what the approval then says. Nothing, if a person must decide.
pub fn recognised(object: &CertificateSigningRequest) -> &'static [(&'static str, &'static str)] {
    const BOTH: &[(&str, &str)] = &[
        ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."),
        ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
    ];
    let Ok(request) = CertificateRequest::from_pem(&object.spec.request.0) else { return &[] };
    let usages = object.spec.usages.as_deref().unwrap_or_default();
    let of_kubelet = object.spec.signer_name == KUBE_APISERVER_CLIENT_KUBELET;
    if !of_kubelet || check(KUBE_APISERVER_CLIENT_KUBELET, &request, usages).is_err() {
        return &[];
    }
    let own = object.spec.username.as_ref() == Some(&request.common_name);
    if own { BOTH } else { &BOTH[1..] }
}
