//! Whether a webhook's answer is one: the right kind, an echo of the uid, a patch together with its type. And the `Status` of a denial.

use serde_json::Value;

use super::decode;
use crate::status::{Cause, Details, Status};

/// How a patch changes the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386; no real server takes it, and a webhook must say that it sends one.
    Merge,
    /// Something else, which is an error when it comes to it.
    Unknown(String),
}

/// What a webhook said.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether the request may go on.
    pub allowed: bool,
    /// The `status` of a denial.
    pub status: Value,
    /// The patch as it was sent.
    pub patch: Vec<u8>,
    /// What sort of patch it is.
    pub patch_type: PatchType,
    /// For the audit event.
    pub audit_annotations: Vec<(String, String)>,
    /// For the client.
    pub warnings: Vec<String>,
}

/// Checks an answer to a review of a version: `v1` is strict, `v1beta1` as lenient as it always was.
///
/// # Errors
/// What is wrong with it, in the words of a real server.
pub fn verify(review: Value, asked: &str, uid: &str, mutating: bool) -> Result<Answer, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
    let response = &review["response"];
    if !response.is_object() {
        return Err("webhook response was absent".into());
    }
    let is_v1 = asked == "admission.k8s.io/v1";
    if is_v1 {
        let got = text(&response["uid"]);
        if got != uid {
            return Err(format!("expected response.uid={uid:?}, got {got:?}"));
        }
        if api_version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
            let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
            return Err(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{version}, Kind={kind}"
            ));
        }
    }
    let patch = match &response["patch"] {
        Value::String(encoded) => decode::base64(encoded).map_err(|at| format!("illegal base64 data at input byte {at}"))?,
        Value::Array(bytes) => bytes.iter().map(|byte| byte.as_u64().and_then(|b| u8::try_from(b).ok()).unwrap_or_default()).collect(),
        _ => Vec::new(),
    };
    let patch_type = response.get("patchType").filter(|t| !t.is_null()).map(text);
    match (mutating, patch.is_empty(), &patch_type) {
        (true, false, None) if is_v1 => return Err("webhook returned response.patch but not response.patchType".into()),
        (true, true, Some(_)) if is_v1 => return Err("webhook returned response.patchType but not response.patch".into()),
        (true, _, Some(empty)) if is_v1 && empty.is_empty() => return Err("webhook returned invalid response.patchType of \"\"".into()),
        (false, false, _) if is_v1 => return Err("validating webhook may not return response.patch".into()),
        (false, _, Some(_)) if is_v1 => return Err("validating webhook may not return response.patchType".into()),
        _ => {}
    }
    // The old version had one sort of patch only, and did not look what it was called.
    let patch_type = match patch_type.as_deref().filter(|_| is_v1) {
        None | Some("JSONPatch") => PatchType::Json,
        Some("MergePatch" | "application/merge-patch+json") => PatchType::Merge,
        Some(other) => PatchType::Unknown(other.to_owned()),
    };
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    Ok(Answer {
        allowed: response["allowed"].as_bool().unwrap_or(false),
        status: response["status"].clone(),
        patch,
        patch_type,
        audit_annotations: annotations.map(|(key, value)| (key.clone(), text(value))).collect(),
        warnings: response["warnings"].as_array().into_iter().flatten().map(text).collect(),
    })
}

/// The error of a denial: what the webhook said, but never a success.
pub fn denial(webhook: &str, result: &Value) -> Status {
    let denied = format!("admission webhook {webhook:?} denied the request");
    let text = |field: &str| result[field].as_str().unwrap_or_default();
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code = result["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| (400..1000).contains(code)).unwrap_or(400);
    let mut status = Status::new(code, text("reason").to_owned(), message);
    if let Some(given) = result["metadata"].as_object() {
        let mut metadata = given.clone();
        let is_known = |name: &str| matches!(name, "selfLink" | "resourceVersion" | "continue" | "remainingItemCount");
        metadata.retain(|name, value| is_known(name) && !value.is_null() && *value != "");
        status.metadata = Some(Box::new(metadata));
    }
    let details = &result["details"];
    if details.is_object() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let cause = |c: &Value| Cause { reason: text(&c["reason"]), message: text(&c["message"]), field: text(&c["field"]) };
        status.details = Some(Box::new(Details {
            name: text(&details["name"]),
            group: text(&details["group"]),
            kind: text(&details["kind"]),
            uid: text(&details["uid"]),
            causes: details["causes"].as_array().into_iter().flatten().map(cause).collect(),
            retry_after_seconds: details["retryAfterSeconds"].as_u64().and_then(|s| u32::try_from(s).ok()).unwrap_or(0),
        }));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(response: Value) -> Value {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
    }

    #[test]
    fn an_answer_must_echo_the_uid_and_be_a_review() {
        assert_eq!(verify(answer(Value::Null), "admission.k8s.io/v1", "u", true).unwrap_err(), "webhook response was absent");
        assert_eq!(
            verify(answer(json!({"uid": "x", "allowed": true})), "admission.k8s.io/v1", "u", true).unwrap_err(),
            "expected response.uid=\"u\", got \"x\""
        );
        let mut other = answer(json!({"uid": "u", "allowed": true}));
        other["kind"] = json!("Pod");
        assert_eq!(
            verify(other, "admission.k8s.io/v1", "u", true).unwrap_err(),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1, Kind=Pod"
        );
    }

    #[test]
    fn a_patch_needs_its_type_and_a_mutating_webhook() {
        let patched = answer(json!({"uid": "u", "allowed": true, "patch": "W10="}));
        assert_eq!(
            verify(patched.clone(), "admission.k8s.io/v1", "u", true).unwrap_err(),
            "webhook returned response.patch but not response.patchType"
        );
        let old = verify(patched.clone(), "admission.k8s.io/v1beta1", "u", true).unwrap();
        assert_eq!((old.patch, old.patch_type), (b"[]".to_vec(), PatchType::Json), "the old version had one sort of patch only");
        assert_eq!(verify(patched, "admission.k8s.io/v1", "u", false).unwrap_err(), "validating webhook may not return response.patch");
    }

    #[test]
    fn a_denial_is_never_a_success_and_always_has_words() {
        let status = denial("w.example.com", &Value::Null);
        assert_eq!(
            (status.code, status.message.as_str()),
            (400, "admission webhook \"w.example.com\" denied the request without explanation")
        );
        let status = denial("w.example.com", &json!({"code": 418, "reason": "Gone", "message": "teapot"}));
        assert_eq!((status.code, &*status.reason), (418, "Gone"));
        assert_eq!(status.message, "admission webhook \"w.example.com\" denied the request: teapot");
        assert_eq!(denial("w", &json!({"code": 200})).code, 400);
        let told = denial("w", &json!({"metadata": {"continue": "c", "resourceVersion": "7", "selfLink": "", "foo": "bar"}}));
        assert_eq!(told.to_json()["metadata"], json!({"continue": "c", "resourceVersion": "7"}));
        assert_eq!(denial("w", &json!({"reason": "OutOfTea"})).reason, "OutOfTea", "a reason of the webhook's own is told as it is");
    }
}
