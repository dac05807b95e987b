//! CertificateSigningRequests: what they must look like, and what each of their subresources may change.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use usher_components::controllers::certificates::CertificateRequest;
use usher_components::controllers::certificates::signer::LEGACY_UNKNOWN;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::field::{Errors, Path, invalid, wrong};
use super::names;
use crate::status::FieldError;

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

/// A new object.
pub fn create(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if let Err(why) = request(spec) {
        errors.push(FieldError::invalid("spec.request", &spec["request"], why));
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
    signer_name(signer, &Path::root("spec").field("signerName"), errors);
    if signer == LEGACY_UNKNOWN {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.push(FieldError::invalid("spec.signerName", &spec["signerName"], detail));
    }
    if spec["expirationSeconds"].as_i64().is_some_and(|seconds| seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid("spec.expirationSeconds", &spec["expirationSeconds"], detail));
    }
    conditions(object, errors);
}

/// `example.com/signer`: a domain and a path.
pub fn signer_name(signer: &str, path: &Path<'_>, errors: &mut Errors) {
    if signer.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let Some((domain, rest)) = signer.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(invalid(path, signer, why));
        return;
    };
    if domain.len() > 253 {
        errors.push(FieldError::too_long(path, 253));
    }
    parts(domain, path, names::label, errors);
    if !domain.contains('.') {
        errors.push(invalid(path, domain, "should be a domain with at least two segments separated by dots"));
    }
    parts(rest, path, names::subdomain, errors);
    if signer.len() > 253 + 253 + 63 + 2 {
        errors.push(FieldError::too_long(path, 253 + 253 + 63 + 2));
    }
}

/// Of the parts of a name, the first that is wrong.
fn parts(whole: &str, path: &Path<'_>, check: names::Check, errors: &mut Errors) {
    if let Some(part) = whole.split('.').find(|part| !check(part).is_empty()) {
        wrong(errors, path, whole, check(part).into_iter().map(|why| format!("validating label {part:?}: {why}")).collect());
    }
}

fn request(spec: &Value) -> Result<CertificateRequest, String> {
    let pem = spec["request"].as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    CertificateRequest::from_pem(&pem)
}

/// A changed object; `subresource` is empty, `status` or `approval`. The spec is kept by the strategy.
pub fn update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    conditions(new, errors);
    let handed_out = &new["status"]["certificate"];
    if *handed_out != old["status"]["certificate"]
        && let Err(why) = certificates(handed_out)
    {
        errors.push(FieldError::invalid("status.certificate", &json!("<certificate data>"), why));
    }
    for kind in ["Approved", "Denied", "Failed"] {
        let of = |object: &Value| list(object).iter().filter(|c| c["type"] == kind).count();
        let detail = |what: &str| format!("updates may not {what} a condition of type {kind:?}");
        if of(new) < of(old) {
            errors.push(FieldError::forbidden("status.conditions", detail("remove")));
        }
        if of(new) > of(old) && subresource != "approval" && kind != "Failed" {
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
}

/// A certificate as it is handed out: PEM, blocks of certificates and nothing else.
fn certificates(value: &Value) -> Result<(), String> {
    let Some(encoded) = value.as_str().filter(|text| !text.is_empty()) else { return Ok(()) };
    let pem = STANDARD.decode(encoded).unwrap_or_default();
    let mut found = false;
    let text = String::from_utf8_lossy(&pem);
    for block in Pem::iter_from_buffer(&pem) {
        let Ok(block) = block else { break };
        if block.label != "CERTIFICATE" {
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label));
        }
        found = true;
        let mut rest = block.contents.as_slice();
        if rest.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".into());
        }
        while !rest.is_empty() {
            rest = X509Certificate::from_der(rest).map_err(|_| "x509: malformed certificate")?.0;
        }
    }
    // The reader of PEM takes no block with headers; it is a block all the same.
    let mut lines = text.lines().skip_while(|line| !line.starts_with("-----BEGIN "));
    if !found && lines.next() == Some("-----BEGIN CERTIFICATE-----") && lines.next().is_some_and(|line| line.contains(':')) {
        return Err("no PEM block headers are permitted".into());
    }
    if found { Ok(()) } else { Err("must contain at least one CERTIFICATE PEM block".into()) }
}

fn list(object: &Value) -> &[Value] {
    object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn conditions(object: &Value, errors: &mut Errors) {
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
    }
    let has = |kind: &str| conditions.iter().any(|c| c["type"] == kind);
    if has("Approved") && has("Denied") {
        let (approved, denied) = (r#"conditions[{"type": "Approved"}]"#, r#"conditions[{"type": "Denied"}]"#);
        let shown = json!(format!("{{{approved}, {denied}}}"));
        errors.push(FieldError::invalid("status.conditions", &shown, format!("must specify at most one of: `{approved}`, `{denied}`")));
    }
}

#[cfg(test)]
mod tests {
    use usher_components::controllers::certificates::{pem, request::make};

    use super::*;

    fn created(object: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        create(object, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    fn updated(new: &Value, old: &Value, subresource: &str) -> Vec<String> {
        let mut errors = Vec::new();
        update(new, old, subresource, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    fn good() -> Value {
        let request = STANDARD.encode(make("alice", &[]).unwrap().0);
        json!({"metadata": {"name": "c"}, "spec": {"request": request, "signerName": "example.com/x", "usages": ["client auth"]}})
    }

    #[test]
    fn new_requests_are_judged_with_the_recorded_words() {
        assert!(created(&good()).is_empty());
        let wrong = |key: &str, value: Value, why: &str| {
            let mut object = good();
            object["spec"][key] = value;
            assert_eq!(created(&object), [why], "{key}");
        };
        wrong("request", json!("Zm9v"), "spec.request: Invalid value: \"Zm9v\": PEM block type must be CERTIFICATE REQUEST");
        wrong(
            "signerName",
            json!("x"),
            "spec.signerName: Invalid value: \"x\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
        );
        wrong(
            "signerName",
            json!(LEGACY_UNKNOWN),
            "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version",
        );
        let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        let domain = format!("spec.signerName: Invalid value: \"Foo.com\": validating label \"Foo\": {label}");
        wrong("signerName", json!("Foo.com/bar"), &domain);
        let short = "spec.signerName: Invalid value: \"foo\": should be a domain with at least two segments separated by dots";
        wrong("signerName", json!("foo/bar"), short);
        wrong("usages", json!([]), "spec.usages: Required value");
        wrong("usages", json!(["any", "any"]), "spec.usages[1]: Duplicate value: \"any\"");
        wrong(
            "expirationSeconds",
            json!(5),
            "spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 minutes)",
        );
        let mut unknown = good();
        unknown["spec"]["usages"] = json!(["nope"]);
        assert!(created(&unknown)[0].starts_with("spec.usages[0]: Unsupported value: \"nope\": supported values: \"any\", \"cert sign\""));
    }

    #[test]
    fn approval_adds_conditions_and_only_the_status_gets_the_certificate_and_only_once() {
        let old = good();
        let mut approved = old.clone();
        approved["status"] = json!({"conditions": [{"type": "Approved", "status": "True"}]});
        assert!(updated(&approved, &old, "approval").is_empty());
        let added = "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"";
        assert_eq!(updated(&approved, &old, "status"), [added]);
        let removed = "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"";
        assert_eq!(updated(&old, &approved, "approval"), [removed]);
        let mut both = approved.clone();
        both["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "Denied", "status": "True"}));
        assert!(updated(&both, &approved, "approval")[0].contains("must specify at most one of: `conditions"));
        let with = |text: &str| {
            let mut object = approved.clone();
            object["status"]["certificate"] = STANDARD.encode(text).into();
            object
        };
        let issue = || rcgen::generate_simple_self_signed(Vec::<String>::new()).unwrap().cert.pem();
        let certificate = with(&issue());
        assert!(updated(&certificate, &approved, "status").is_empty());
        let once = "status.certificate: Forbidden: updates may not modify existing certificate content";
        assert_eq!(updated(&with(&issue()), &certificate, "status"), [once]);
        assert_eq!(
            updated(&certificate, &approved, "approval"),
            ["status.certificate: Forbidden: updates may not set certificate content"]
        );
        let key = updated(&with(&pem("PRIVATE KEY", b"one")), &approved, "status");
        let found = "only CERTIFICATE PEM blocks are allowed, found \"PRIVATE KEY\"";
        assert_eq!(key, [format!("status.certificate: Invalid value: \"<certificate data>\": {found}")]);
        for (bad, why) in [
            (pem("CERTIFICATE", b"one"), "x509: malformed certificate"),
            (pem("CERTIFICATE", b""), "found CERTIFICATE PEM block containing 0 certificates"),
            (issue().replacen('\n', "\nName: value\n\n", 1), "no PEM block headers are permitted"),
        ] {
            assert!(updated(&with(&bad), &approved, "status")[0].ends_with(why), "{why}");
        }
        assert!(updated(&with("x"), &approved, "status")[0].ends_with("must contain at least one CERTIFICATE PEM block"));
    }
}
