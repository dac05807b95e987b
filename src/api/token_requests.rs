//! TokenRequest: a token for a service account, for some audiences, for some time, and bound to an object or not. What its claims say
//! stands in [`crate::authn::token_request`].

use serde_json::{Value, json};

use super::reviews::{AUTHENTICATION, Reviews, answer, invalid, object, seconds, strings};
use crate::authn::token_request::{Bound, EXTENDED_SECONDS, Reference, Request, WARN_ONLY_SECONDS};
use crate::status::{FieldError, Status};

/// A token that was issued.
pub struct Issued {
    /// The TokenRequest with its status.
    pub review: Value,
    /// The token's own id, for the audit annotation `authentication.kubernetes.io/issued-credential-id`.
    pub credential_id: String,
    /// What the client is to be warned of.
    pub warning: Option<String>,
}

impl Reviews {
    /// A request that is about its service account, as validating admission is shown it.
    pub fn prepared(&self, namespace: &str, name: &str, body: Value) -> Result<Value, Status> {
        let mut body = object(body)?;
        let given = |key: &str| body["metadata"][key].as_str().unwrap_or_default();
        if !given("namespace").is_empty() && given("namespace") != namespace {
            return Err(Status::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
        }
        if !given("name").is_empty() && given("name") != name {
            let error = FieldError::invalid("metadata.name", &json!(given("name")), "must match the service account name if specified");
            return Err(Status::invalid(AUTHENTICATION, "TokenRequest", name, vec![error]));
        }
        let account = self.objects.get("serviceaccounts", namespace, name).ok_or_else(|| Status::not_found("", "serviceaccounts", name))?;
        let account_uid = account["metadata"]["uid"].as_str().unwrap_or_default();
        if !given("uid").is_empty() && given("uid") != account_uid {
            let why =
                format!("the UID in the token request ({}) does not match the UID of the service account ({account_uid})", given("uid"));
            return Err(Status::conflict(AUTHENTICATION, "TokenRequest", name, &why));
        }
        check(body["spec"]["expirationSeconds"].as_i64().unwrap_or(3600), &body["spec"])?;
        let uid = account_uid.to_owned();
        set_defaults(&mut body, namespace);
        for (key, value) in [("name", name), ("uid", &uid), ("creationTimestamp", &seconds((self.now)()))] {
            body["metadata"][key] = value.into();
        }
        if strings(&body["spec"]["audiences"]).is_empty() {
            body["spec"]["audiences"] = json!(self.audiences);
        }
        Ok(body)
    }

    /// Issues a token.
    pub fn token_request(&self, namespace: &str, name: &str, body: Value) -> Result<Issued, Status> {
        let mut body = self.prepared(namespace, name, body)?;
        let account = self.objects.get("serviceaccounts", namespace, name).ok_or_else(|| Status::not_found("", "serviceaccounts", name))?;
        let spec = body["spec"].take();
        let asked = spec["expirationSeconds"].as_i64().unwrap_or(3600);
        let audiences = strings(&spec["audiences"]);
        let bound = self.bound(namespace, name, &spec["boundObjectRef"])?;
        let shortened = self.max_token_seconds > 0 && asked > self.max_token_seconds;
        let lifetime = if shortened { self.max_token_seconds } else { asked };
        let warning = shortened.then(|| format!("requested expiration of {asked} seconds shortened to {lifetime} seconds"));
        let for_us = audiences.iter().all(|a| self.audiences.contains(a));
        // The kubelet's token: it lives on for programs that read it only once, but the audit log shows who they are.
        let warns = matches!(bound, Bound::Pod(..)) && lifetime == WARN_ONLY_SECONDS && for_us;
        let now = (self.now)();
        let credential_id = uuid::Uuid::new_v4().to_string();
        let request = Request {
            issuer: &self.issuer,
            audiences: &audiences,
            namespace,
            service_account: Reference::to(&account),
            bound,
            now: now.as_second(),
            seconds: if warns { EXTENDED_SECONDS } else { lifetime },
            warn_after: warns.then_some(lifetime),
            id: &credential_id,
        };
        let keys = self.keys.load();
        let key = keys.signing.as_ref().ok_or_else(|| Status::internal("this server has no key to sign tokens with"))?;
        let token = key.sign(&request.claims()).map_err(Status::internal)?;
        let expires = now.checked_add(jiff::SignedDuration::from_secs(lifetime)).map_err(Status::internal)?;
        body["spec"] = json!({
            "audiences": audiences, "expirationSeconds": lifetime, "boundObjectRef": spec["boundObjectRef"],
        });
        answer(&mut body, AUTHENTICATION, "TokenRequest", json!({"token": token, "expirationTimestamp": seconds(expires)}));
        Ok(Issued { review: body, credential_id, warning })
    }

    /// Finds what a token is to be bound to. Of an API version only the group counts, as on a real server.
    fn bound(&self, namespace: &str, account: &str, reference: &Value) -> Result<Bound, Status> {
        if !reference.is_object() {
            return Ok(Bound::Nothing);
        }
        let text = |key: &str| reference[key].as_str().unwrap_or_default();
        let (kind, name) = (text("kind"), text("name"));
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let (plural, scope) = match (group, kind) {
            ("", "Pod") => ("pods", namespace),
            ("", "Secret") => ("secrets", namespace),
            ("", "Node") => ("nodes", ""),
            _ => {
                let off = match is_webhook(reference) {
                    true => " (feature gate APIServerWebhookAuthenticationToken is disabled)",
                    false => "",
                };
                return Err(Status::bad_request(format!("cannot bind token to object of type {group}/{version}, Kind={kind}{off}")));
            }
        };
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        let object = self.objects.get(plural, scope, name).ok_or_else(|| Status::not_found("", plural, name))?;
        let found = Reference::to(&object);
        if kind == "Pod" && object["spec"]["serviceAccountName"].as_str().unwrap_or_default() != account {
            let text = format!("cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name.");
            return Err(Status::bad_request(text));
        }
        let uid = text("uid");
        if !uid.is_empty() && uid != found.uid {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(Status::conflict("", kind, name, &why));
        }
        Ok(match kind {
            "Pod" => {
                let node =
                    object["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()).map(|node| match self.objects.get("nodes", "", node) {
                        Some(object) => Reference::to(&object),
                        None => Reference { name: node.to_owned(), uid: String::new() },
                    });
                Bound::Pod(found, node)
            }
            "Secret" => Bound::Secret(found),
            _ => Bound::Node(found),
        })
    }
}

/// A request in full, as everybody who is asked about it is shown it.
pub fn set_defaults(body: &mut Value, namespace: &str) {
    for part in ["metadata", "spec"] {
        if !body[part].is_object() {
            body[part] = json!({});
        }
    }
    if body["metadata"]["namespace"].as_str().is_none_or(str::is_empty) {
        body["metadata"]["namespace"] = namespace.into();
    }
    let Some(spec) = body["spec"].as_object_mut() else { return };
    for (field, value) in [("audiences", Value::Null), ("expirationSeconds", json!(3600)), ("boundObjectRef", Value::Null)] {
        let given = spec.entry(field).or_insert_with(|| value.clone());
        if given.is_null() {
            *given = value;
        }
    }
    if !body["status"].is_object() {
        body["status"] = json!({"token": "", "expirationTimestamp": null});
    }
}

fn is_webhook(reference: &Value) -> bool {
    reference["apiVersion"] == "admissionregistration.k8s.io/v1"
        && (reference["kind"] == "ValidatingWebhookConfiguration" || reference["kind"] == "MutatingWebhookConfiguration")
}

fn check(seconds: i64, spec: &Value) -> Result<(), Status> {
    let field = "spec.expirationSeconds";
    let mut errors = Vec::new();
    if seconds < 600 {
        errors.push(FieldError::invalid(field, &json!(seconds), "may not specify a duration less than 10 minutes"));
    }
    if seconds > 1 << 32 {
        errors.push(FieldError::invalid(field, &json!(seconds), "may not specify a duration larger than 2^32 seconds"));
    }
    let attestations = spec["attestations"].as_object().map_or(0, serde_json::Map::len);
    if is_webhook(&spec["boundObjectRef"]) {
        if strings(&spec["audiences"]).len() > 1 {
            errors.push(FieldError::invalid("spec.audiences", &spec["audiences"], "must be length 1 when bound to a webhook config"));
        }
        if attestations != 1 {
            let detail = "webhook bound requests require exactly one admissionReviewAPIGroups attestation";
            errors.push(FieldError::invalid("spec.attestations", &spec["attestations"], detail));
        }
    } else if attestations > 0 {
        let detail = "attestations may only be specified with a webhook bound object reference";
        errors = vec![FieldError::invalid("spec.attestations", &spec["attestations"], detail)];
    }
    invalid(AUTHENTICATION, "TokenRequest", errors)
}
