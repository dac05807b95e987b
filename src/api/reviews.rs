//! The reviews: questions in the form of objects that are answered and not stored. Who may do what (SubjectAccessReview
//! and its relatives) and who somebody is (TokenReview, SelfSubjectReview); [`super::token_requests`] issues tokens. Each is a
//! function from a body to a body; decoding, authorisation of the request itself and the HTTP answer lie elsewhere.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::authn::bearer::Bearer;
use crate::authn::keys::ServiceAccountKeys;
use crate::authn::{Now, Objects};
use crate::authz::{Attributes, Authorizer};
use crate::object::selector::{FieldSelector, LabelSelector};
use crate::request::{RequestInfo, User};
use crate::status::{FieldError, Status};
use crate::validation::names;

const AUTHORIZATION: &str = "authorization.k8s.io";
pub(super) const AUTHENTICATION: &str = "authentication.k8s.io";

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

impl Reviews {
    /// SubjectAccessReview: may somebody.
    pub async fn subject_access_review(&self, body: Value) -> Result<Value, Status> {
        let body = of_no_namespace(object(body)?);
        let mut errors = check_spec(&body["spec"], true);
        errors.extend(check_metadata(&body, false));
        invalid(AUTHORIZATION, "", errors)?;
        let user = user_of(&body["spec"]);
        self.access(body, "SubjectAccessReview", user).await
    }

    /// LocalSubjectAccessReview: may somebody, asked by who may only ask about one namespace.
    pub async fn local_subject_access_review(&self, namespace: &str, body: Value) -> Result<Value, Status> {
        let mut body = object(body)?;
        let given = body["metadata"]["namespace"].as_str().unwrap_or_default();
        if !given.is_empty() && given != namespace {
            return Err(Status::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
        }
        if !body["metadata"].is_object() {
            body["metadata"] = json!({});
        }
        body["metadata"]["namespace"] = namespace.into();
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
            errors.push(FieldError::invalid("spec.nonResourceAttributes", &internal(&spec["nonResourceAttributes"]), detail));
        }
        invalid(AUTHORIZATION, "", errors)?;
        let user = user_of(&body["spec"]);
        self.access(body, "LocalSubjectAccessReview", user).await
    }

    /// SelfSubjectAccessReview: may I.
    pub async fn self_subject_access_review(&self, user: &Arc<User>, body: Value) -> Result<Value, Status> {
        let body = of_no_namespace(object(body)?);
        let mut errors = check_spec(&body["spec"], false);
        errors.extend(check_metadata(&body, false));
        invalid(AUTHORIZATION, "", errors)?;
        self.access(body, "SelfSubjectAccessReview", user.clone()).await
    }

    async fn access(&self, mut body: Value, kind: &str, user: Arc<User>) -> Result<Value, Status> {
        let info = Arc::new(request_info(&body["spec"]));
        let attributes = &body["spec"]["resourceAttributes"];
        let ignored: Vec<String> =
            [("fieldSelector", fields(&attributes["fieldSelector"]).1), ("labelSelector", labels(&attributes["labelSelector"]).1)]
                .into_iter()
                .filter_map(|(key, ignored)| ignored.map(|how| format!("spec.resourceAttributes.{key} {how} due to parse error")))
                .collect();
        let decision = self.authorizer.decide(&Attributes { user, info }).await;
        let mut status = Map::new();
        status.insert("allowed".into(), decision.is_allow().into());
        if decision.denies() {
            status.insert("denied".into(), true.into());
        }
        if !decision.reason().is_empty() {
            status.insert("reason".into(), decision.reason().into());
        }
        let errors: Vec<&str> = decision.error().into_iter().chain(ignored.iter().map(String::as_str)).collect();
        if !errors.is_empty() {
            status.insert("evaluationError".into(), errors.join("; ").into());
        }
        answer(&mut body, AUTHORIZATION, kind, status.into());
        Ok(body)
    }

    /// SelfSubjectRulesReview: what may I in a namespace.
    pub fn self_subject_rules_review(&self, user: &User, body: Value) -> Result<Value, Status> {
        let body = object(body)?;
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
        let mut answered = json!({"metadata": {}, "spec": {}});
        answer(&mut answered, AUTHORIZATION, "SelfSubjectRulesReview", status.into());
        Ok(answered)
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
}

/// A review is an object; nothing else can be asked or answered.
pub(super) fn object(body: Value) -> Result<Value, Status> {
    if body.is_object() { Ok(body) } else { Err(Status::bad_request("the request body is not an object")) }
}

pub(super) fn invalid(group: &str, kind: &str, errors: Vec<FieldError>) -> Result<(), Status> {
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

/// A review of the whole cluster with what it says of a namespace left out.
fn of_no_namespace(mut body: Value) -> Value {
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("namespace");
    }
    body
}

fn check_spec(spec: &Value, of_others: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() == other.is_object() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec", &internal(other), detail));
    }
    if of_others && spec["user"].as_str().unwrap_or_default().is_empty() && strings(&spec["groups"]).is_empty() {
        errors.push(FieldError::invalid("spec.user", &json!(""), "at least one of user or group must be specified"));
    }
    for key in ["fieldSelector", "labelSelector"] {
        if resource[key].is_object() {
            check_selector(&resource[key], &format!("spec.resourceAttributes.{key}"), key == "labelSelector", &mut errors);
        }
    }
    errors
}

/// Attributes as messages show them: in a real server they are a type that names its fields otherwise.
fn internal(attributes: &Value) -> Value {
    match attributes.is_object() {
        true => json!({"Path": attributes["path"].as_str().unwrap_or_default(), "Verb": attributes["verb"].as_str().unwrap_or_default()}),
        false => Value::Null,
    }
}

fn check_selector(selector: &Value, path: &str, of_labels: bool, errors: &mut Vec<FieldError>) {
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
        let key = requirement["key"].as_str().unwrap_or_default();
        if !of_labels && key.is_empty() {
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
            // A newer client may know operators that this server does not: the term is then left out of the question.
            _ => {}
        }
        if of_labels {
            let mut wrong = |field: &str, value: &str, why: Vec<String>| {
                errors.extend(why.into_iter().map(|why| FieldError::invalid(format!("{path}.{field}"), &json!(value), why)));
            };
            wrong("key", key, names::qualified(key));
            for (i, value) in values.iter().enumerate() {
                wrong(&format!("values[{i}]"), value, names::label_value(value));
            }
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
            label_selector: labels(&attributes["labelSelector"]).0,
            field_selector: fields(&attributes["fieldSelector"]).0,
            ..RequestInfo::default()
        };
    }
    let text = |key: &str| spec["nonResourceAttributes"][key].as_str().unwrap_or_default().to_owned();
    RequestInfo { special_verb: text("verb"), path: text("path"), ..RequestInfo::default() }
}

/// How much of a selector was left out because it says nothing that this server understands.
type Ignored = Option<&'static str>;

/// A label selector as a query would write it.
fn labels(selector: &Value) -> (String, Ignored) {
    terms(
        selector,
        |text| LabelSelector::parse(text).is_ok(),
        |key, operator, values| {
            let term = match (operator, values) {
                ("In", [one]) => format!("{key}={one}"),
                ("NotIn", [one]) => format!("{key}!={one}"),
                ("In", many) => format!("{key} in ({})", many.join(",")),
                ("NotIn", many) => format!("{key} notin ({})", many.join(",")),
                ("Exists", _) => key.to_owned(),
                ("DoesNotExist", _) => format!("!{key}"),
                _ => return None,
            };
            LabelSelector::parse(&term).is_ok().then_some(term)
        },
    )
}

/// A field selector as a query would write it. It knows only whether a field has a value.
fn fields(selector: &Value) -> (String, Ignored) {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
    terms(
        selector,
        |text| FieldSelector::parse(text).is_ok(),
        |key, operator, values| match (operator, values) {
            ("In", [one]) => Some(format!("{key}={}", escaped(one))),
            ("NotIn", [one]) => Some(format!("{key}!={}", escaped(one))),
            _ => None,
        },
    )
}

/// The terms of a selector, those left out that `write` cannot write: a question with fewer terms is about more, and so the stricter one.
fn terms(selector: &Value, reads: impl Fn(&str) -> bool, write: impl Fn(&str, &str, &[String]) -> Option<String>) -> (String, Ignored) {
    if let Some(raw) = selector["rawSelector"].as_str().filter(|raw| !raw.is_empty()) {
        return if reads(raw) { (raw.to_owned(), None) } else { (String::new(), Some("ignored")) };
    }
    let requirements = selector["requirements"].as_array().map(Vec::as_slice).unwrap_or_default();
    let term = |requirement: &Value| {
        let text = |key: &str| requirement[key].as_str().unwrap_or_default().to_owned();
        write(&text("key"), &text("operator"), &strings(&requirement["values"]))
    };
    let terms: Vec<String> = requirements.iter().filter_map(term).collect();
    let ignored = match (terms.len(), requirements.len()) {
        (known, all) if known == all => None,
        (0, _) => Some("ignored"),
        _ => Some("partially ignored"),
    };
    (terms.join(","), ignored)
}

pub(super) fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn aggregate(errors: &[String]) -> String {
    if let [one] = errors { one.clone() } else { format!("[{}]", errors.join(", ")) }
}

pub(super) fn seconds(time: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// The body with kind, version and answer filled in.
pub(super) fn answer(body: &mut Value, group: &str, kind: &str, status: Value) {
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
