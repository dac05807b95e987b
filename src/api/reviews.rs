//! The reviews: questions in the form of objects that are answered and not stored. Who may do what (SubjectAccessReview
//! and its relatives), who somebody is (TokenReview, SelfSubjectReview), and the TokenRequest that issues a token. Each
//! is a function from a body to a body; decoding, authorisation of the request itself and the HTTP answer lie elsewhere.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::authn::bearer::Bearer;
use crate::authn::keys::ServiceAccountKeys;
use crate::authn::token_request::{Bound, EXTENDED_SECONDS, Reference, Request, WARN_ONLY_SECONDS};
use crate::authn::{Now, Objects};
use crate::authz::{Attributes, Authorizer, Decision};
use crate::request::{RequestInfo, User};
use crate::status::{FieldError, Status};

const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// What the reviews ask.
pub struct Reviews {
    /// The authorisation chain, the same that requests go through.
    pub authorizer: Arc<dyn Authorizer>,
    /// Every way to know a bearer token.
    pub tokens: Arc<Bearer>,
    /// Service accounts, pods, secrets and nodes.
    pub objects: Arc<dyn Objects>,
    /// What tokens are signed with.
    pub keys: Arc<ServiceAccountKeys>,
    /// Who issues tokens.
    pub issuer: String,
    /// The API audiences, which a token is for if the request names none.
    pub audiences: Vec<String>,
    /// The longest a token may live, in seconds; zero is no limit.
    pub max_token_seconds: i64,
    /// What time it is.
    pub now: Now,
}

/// A token that was issued.
pub struct Issued {
    /// The TokenRequest with its status.
    pub review: Value,
    /// The token's own id, for the audit annotation `authentication.kubernetes.io/issued-credential-id`.
    pub credential_id: String,
}

impl Reviews {
    /// SubjectAccessReview: may somebody.
    pub async fn subject_access_review(&self, body: Value) -> Result<Value, Status> {
        let body = object(body)?;
        let mut errors = check_metadata(&body, false);
        errors.extend(check_spec(&body["spec"], true));
        invalid(AUTHORIZATION, "SubjectAccessReview", errors)?;
        let user = user_of(&body["spec"]);
        self.access(body, "SubjectAccessReview", user).await
    }

    /// LocalSubjectAccessReview: may somebody, asked by who may only ask about one namespace.
    pub async fn local_subject_access_review(&self, namespace: &str, body: Value) -> Result<Value, Status> {
        let body = object(body)?;
        let spec = &body["spec"];
        let mut errors = check_spec(spec, true);
        errors.extend(check_metadata(&body, true));
        if let Some(asked) = spec["resourceAttributes"].as_object()
            && asked.get("namespace").and_then(Value::as_str).unwrap_or_default() != namespace
        {
            let value = asked.get("namespace").cloned().unwrap_or_else(|| json!(""));
            errors.push(FieldError::invalid("spec.resourceAttributes.namespace", &value, "must match metadata.namespace"));
        }
        if spec["nonResourceAttributes"].is_object() {
            let detail = "disallowed on this kind of request";
            errors.push(FieldError::invalid("spec.nonResourceAttributes", &spec["nonResourceAttributes"], detail));
        }
        invalid(AUTHORIZATION, "LocalSubjectAccessReview", errors)?;
        let user = user_of(&body["spec"]);
        self.access(body, "LocalSubjectAccessReview", user).await
    }

    /// SelfSubjectAccessReview: may I.
    pub async fn self_subject_access_review(&self, user: &Arc<User>, body: Value) -> Result<Value, Status> {
        let body = object(body)?;
        let mut errors = check_metadata(&body, false);
        errors.extend(check_spec(&body["spec"], false));
        invalid(AUTHORIZATION, "SelfSubjectAccessReview", errors)?;
        self.access(body, "SelfSubjectAccessReview", user.clone()).await
    }

    async fn access(&self, mut body: Value, kind: &str, user: Arc<User>) -> Result<Value, Status> {
        let info = Arc::new(request_info(&body["spec"]));
        let decision = self.authorizer.decide(&Attributes { user, info }).await;
        let mut status = Map::new();
        status.insert("allowed".into(), decision.is_allow().into());
        if matches!(decision, Decision::Deny(_)) {
            status.insert("denied".into(), true.into());
        }
        if !decision.reason().is_empty() {
            status.insert("reason".into(), decision.reason().into());
        }
        answer(&mut body, AUTHORIZATION, kind, status.into());
        Ok(body)
    }

    /// SelfSubjectRulesReview: what may I in a namespace.
    pub fn self_subject_rules_review(&self, user: &User, body: Value) -> Result<Value, Status> {
        let mut body = object(body)?;
        let namespace = body["spec"]["namespace"].as_str().unwrap_or_default().to_owned();
        if namespace.is_empty() {
            return Err(Status::bad_request("no namespace on request"));
        }
        let rules = self.authorizer.rules_for(user, &namespace);
        let mut status = Map::new();
        status.insert("resourceRules".into(), rules.resource.into());
        status.insert("nonResourceRules".into(), rules.non_resource.into());
        status.insert("incomplete".into(), rules.incomplete.into());
        if !rules.errors.is_empty() {
            status.insert("evaluationError".into(), aggregate(&rules.errors).into());
        }
        answer(&mut body, AUTHORIZATION, "SelfSubjectRulesReview", status.into());
        Ok(body)
    }

    /// SelfSubjectReview: who am I.
    pub fn self_subject_review(&self, user: &User, version: &str) -> Value {
        json!({
            "kind": "SelfSubjectReview",
            "apiVersion": format!("{AUTHENTICATION}/{version}"),
            "metadata": {"creationTimestamp": seconds((self.now)())},
            "status": {"userInfo": user.to_json()},
        })
    }

    /// TokenReview: whose token is this.
    pub async fn token_review(&self, body: Value) -> Result<Value, Status> {
        let mut body = object(body)?;
        let token = body["spec"]["token"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            return Err(Status::bad_request("token is required for TokenReview in authentication"));
        }
        let audiences = strings(&body["spec"]["audiences"]);
        let status = match self.tokens.review(&token, &audiences).await {
            Ok(known) => {
                let known = crate::authn::chain::with_group(known);
                let mut status = Map::new();
                status.insert("authenticated".into(), true.into());
                status.insert("user".into(), known.user.to_json());
                if !known.audiences.is_empty() {
                    status.insert("audiences".into(), known.audiences.into());
                }
                status.into()
            }
            Err(why) => json!({"user": {}, "error": why.0}),
        };
        answer(&mut body, AUTHENTICATION, "TokenReview", status);
        Ok(body)
    }

    /// TokenRequest: a token for a service account.
    pub fn token_request(&self, namespace: &str, name: &str, body: Value) -> Result<Issued, Status> {
        let mut body = object(body)?;
        let account = self.objects.get("serviceaccounts", namespace, name).ok_or_else(|| Status::not_found("", "serviceaccounts", name))?;
        for (key, expected) in [("name", name), ("namespace", namespace)] {
            let given = body["metadata"][key].as_str().unwrap_or_default();
            if !given.is_empty() && given != expected {
                let text = format!("the {key} of the object ({given}) does not match the {key} on the URL ({expected})");
                return Err(Status::bad_request(text));
            }
        }
        let spec = body["spec"].take();
        let asked = spec["expirationSeconds"].as_i64().unwrap_or(3600);
        check_expiration(asked)?;
        let lifetime = if self.max_token_seconds > 0 { asked.min(self.max_token_seconds) } else { asked };
        let mut audiences = strings(&spec["audiences"]);
        if audiences.is_empty() {
            audiences.clone_from(&self.audiences);
        }
        let bound = self.bound(namespace, name, &spec["boundObjectRef"])?;
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
        body["metadata"] = json!({
            "name": name, "namespace": namespace, "uid": account["metadata"]["uid"], "creationTimestamp": seconds(now),
        });
        body["spec"] = json!({
            "audiences": audiences, "expirationSeconds": lifetime, "boundObjectRef": spec["boundObjectRef"],
        });
        answer(&mut body, AUTHENTICATION, "TokenRequest", json!({"token": token, "expirationTimestamp": seconds(expires)}));
        Ok(Issued { review: body, credential_id })
    }

    /// Finds what a token is to be bound to.
    fn bound(&self, namespace: &str, account: &str, reference: &Value) -> Result<Bound, Status> {
        if !reference.is_object() {
            return Ok(Bound::Nothing);
        }
        let text = |key: &str| reference[key].as_str().unwrap_or_default();
        let (kind, version, name) = (text("kind"), text("apiVersion"), text("name"));
        let (plural, scope) = match (version, kind) {
            ("v1", "Pod") => ("pods", namespace),
            ("v1", "Secret") => ("secrets", namespace),
            ("v1", "Node") => ("nodes", ""),
            _ => return Err(Status::bad_request(format!("cannot bind token to object of type {}, Kind={kind}", group_version(version)))),
        };
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

/// `g/v` the way Go prints a GroupVersion in such messages.
fn group_version(version: &str) -> String {
    match version.split_once('/') {
        Some((group, version)) => format!("{group}/{version}"),
        None => format!("/{version}"),
    }
}

/// A review is an object; nothing else can be asked or answered.
fn object(body: Value) -> Result<Value, Status> {
    if body.is_object() { Ok(body) } else { Err(Status::bad_request("the request body is not an object")) }
}

fn check_expiration(seconds: i64) -> Result<(), Status> {
    let field = "spec.expirationSeconds";
    let mut errors = Vec::new();
    if seconds < 600 {
        errors.push(FieldError::invalid(field, &json!(seconds), "may not specify a duration less than 10 minutes"));
    }
    if seconds > 1 << 32 {
        errors.push(FieldError::invalid(field, &json!(seconds), "may not specify a duration larger than 2^32 seconds"));
    }
    invalid(AUTHENTICATION, "TokenRequest", errors)
}

fn invalid(group: &str, kind: &str, errors: Vec<FieldError>) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(group, kind, "", errors)) }
}

/// A review is not stored, so its metadata says nothing; managedFields are forgiven, for clients that always send them.
fn check_metadata(body: &Value, local: bool) -> Vec<FieldError> {
    let Some(metadata) = body["metadata"].as_object() else { return Vec::new() };
    let allowed = |(key, value): &(&String, &Value)| {
        value.is_null() || matches!(key.as_str(), "managedFields" | "creationTimestamp") || (local && *key == "namespace")
    };
    if metadata.iter().all(|entry| allowed(&entry)) {
        return Vec::new();
    }
    let detail = if local { "must be empty except for namespace" } else { "must be empty" };
    vec![FieldError::invalid("metadata", &body["metadata"], detail)]
}

fn check_spec(spec: &Value, of_others: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    match (resource.is_object(), other.is_object()) {
        (true, true) => errors.push(FieldError::invalid(
            "spec.nonResourceAttributes",
            other,
            "cannot be specified in combination with resourceAttributes",
        )),
        (false, false) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            errors.push(FieldError::invalid("spec.resourceAttributes", &Value::Null, detail));
        }
        _ => {}
    }
    if of_others && spec["user"].as_str().unwrap_or_default().is_empty() && strings(&spec["groups"]).is_empty() {
        errors.push(FieldError::invalid("spec.user", &json!(""), "at least one of user or group must be specified"));
    }
    for key in ["fieldSelector", "labelSelector"] {
        if resource[key].is_object() {
            check_selector(&resource[key], &format!("spec.resourceAttributes.{key}"), &mut errors);
        }
    }
    errors
}

fn check_selector(selector: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let raw = selector["rawSelector"].as_str().unwrap_or_default();
    let requirements = selector["requirements"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !raw.is_empty() && !requirements.is_empty() {
        let detail = "may not specified at the same time as requirements";
        errors.push(FieldError::invalid(format!("{path}.rawSelector"), &json!(raw), detail));
    }
    if raw.is_empty() && requirements.is_empty() {
        let detail = format!("when {path} is specified, requirements or rawSelector is required");
        errors.push(FieldError::required(format!("{path}.requirements"), detail));
    }
    for (i, requirement) in requirements.iter().enumerate() {
        let path = format!("{path}.requirements[{i}]");
        if requirement["key"].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("{path}.key"), "must be specified"));
        }
        let values = strings(&requirement["values"]);
        match requirement["operator"].as_str().unwrap_or_default() {
            "In" | "NotIn" if values.is_empty() => {
                errors.push(FieldError::required(format!("{path}.values"), "must be specified when `operator` is 'In' or 'NotIn'"))
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "Exists" | "DoesNotExist" => {}
            other => errors.push(FieldError::invalid(format!("{path}.operator"), &json!(other), "not a valid selector operator")),
        }
    }
}

/// Whom a review asks about.
fn user_of(spec: &Value) -> Arc<User> {
    let text = |key: &str| spec[key].as_str().unwrap_or_default().to_owned();
    let extra = spec["extra"].as_object().into_iter().flatten().map(|(key, values)| (key.clone(), strings(values)));
    Arc::new(User { name: text("user"), uid: text("uid"), groups: strings(&spec["groups"]), extra: extra.collect() })
}

/// What a review asks about.
pub fn request_info(spec: &Value) -> RequestInfo {
    let attributes = &spec["resourceAttributes"];
    if attributes.is_object() {
        let text = |key: &str| attributes[key].as_str().unwrap_or_default().to_owned();
        return RequestInfo {
            is_resource: true,
            special_verb: text("verb"),
            group: text("group"),
            version: text("version"),
            namespace: text("namespace"),
            resource: text("resource"),
            subresource: text("subresource"),
            name: text("name"),
            label_selector: selector(&attributes["labelSelector"]),
            field_selector: selector(&attributes["fieldSelector"]),
            ..RequestInfo::default()
        };
    }
    let text = |key: &str| spec["nonResourceAttributes"][key].as_str().unwrap_or_default().to_owned();
    RequestInfo { special_verb: text("verb"), path: text("path"), ..RequestInfo::default() }
}

/// A selector as a query would write it.
fn selector(selector: &Value) -> String {
    if let Some(raw) = selector["rawSelector"].as_str().filter(|raw| !raw.is_empty()) {
        return raw.to_owned();
    }
    let requirements = selector["requirements"].as_array().map(Vec::as_slice).unwrap_or_default();
    let terms = requirements.iter().map(|requirement| {
        let key = requirement["key"].as_str().unwrap_or_default();
        let values = strings(&requirement["values"]);
        match (requirement["operator"].as_str().unwrap_or_default(), values.as_slice()) {
            ("In", [one]) => format!("{key}={one}"),
            ("NotIn", [one]) => format!("{key}!={one}"),
            ("In", many) => format!("{key} in ({})", many.join(",")),
            ("NotIn", many) => format!("{key} notin ({})", many.join(",")),
            ("DoesNotExist", _) => format!("!{key}"),
            _ => key.to_owned(),
        }
    });
    terms.collect::<Vec<_>>().join(",")
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn aggregate(errors: &[String]) -> String {
    if let [one] = errors { one.clone() } else { format!("[{}]", errors.join(", ")) }
}

fn seconds(time: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// The body with kind, version and answer filled in.
fn answer(body: &mut Value, group: &str, kind: &str, status: Value) {
    if body["apiVersion"].as_str().unwrap_or_default().is_empty() {
        body["apiVersion"] = format!("{group}/v1").into();
    }
    body["kind"] = kind.into();
    if !body["metadata"].is_object() {
        body["metadata"] = json!({});
    }
    body["status"] = status;
}

#[cfg(test)]
#[path = "reviews_tests.rs"]
mod tests;
