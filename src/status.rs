//! The error that a client sees: `Status` with the reason, code, details and causes that Kubernetes gives. Every room
//! that can refuse something refuses with this type; it becomes an HTTP response in one place, the gateway's rescue.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// A failed request as `meta/v1.Status` tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
    /// The machine-readable reason; empty where a real server gives none.
    pub reason: Cow<'static, str>,
    /// The sentence for people.
    pub message: String,
    /// What it is about.
    pub details: Option<Box<Details>>,
    /// Its `ListMeta`: where a client whose list expired can go on, inconsistently; or what a webhook says in its own.
    pub metadata: Option<Box<Map<String, Value>>>,
}

/// `StatusDetails`: what the failure is about, and each single cause.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// The name of the object.
    pub name: String,
    /// Its API group.
    pub group: String,
    /// Its kind, or for most reasons its plural.
    pub kind: String,
    /// Its uid.
    pub uid: String,
    /// Every single mistake.
    pub causes: Vec<Cause>,
    /// When to try again.
    pub retry_after_seconds: u32,
}

/// One mistake in one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: String,
    /// The sentence without the field.
    pub message: String,
    /// The path of the field.
    pub field: String,
}

impl Status {
    /// A failure with code, reason and message.
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Status { code, reason: reason.into(), message: message.into(), details: None, metadata: None }
    }

    /// The same failure, saying which object of which resource it is about.
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        details.group = group.into();
        details.kind = kind.into();
        details.name = name.into();
        self
    }

    /// The same failure with a cause more.
    pub fn cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        let cause = Cause { reason: reason.into(), message: message.into(), field: field.into() };
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// The same failure with a hint when to try again.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// The same failure with a token by which a list can go on.
    pub fn with_continue(mut self, token: String) -> Self {
        self.metadata = Some(Box::new(Map::from_iter([("continue".to_owned(), token.into())])));
        self
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Status::new(400, "BadRequest", message)
    }

    /// 401: a credential was given and is no good, or none was and one is needed.
    pub fn unauthorized() -> Self {
        Status::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 on an object: `<resource> "<name>" is forbidden: <why>`.
    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let resource = qualified(group, plural);
        let message = match (resource.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (_, true) => format!("{resource} is forbidden: {why}"),
            (_, false) => format!("{resource} \"{name}\" is forbidden: {why}"),
        };
        Status::new(403, "Forbidden", message).about(group, plural, name)
    }

    /// 404 on an object.
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        Status::new(404, "NotFound", format!("{} \"{name}\" not found", qualified(group, plural))).about(group, plural, name)
    }

    /// 404 on a path that no resource serves.
    pub fn no_such_resource() -> Self {
        let mut status = Status::new(404, "NotFound", "the server could not find the requested resource");
        status.details = Some(Box::default());
        status
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        let mut status = Status::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        status.details = Some(Box::default());
        status
    }

    /// 409 on a create.
    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        Status::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", qualified(group, plural))).about(group, plural, name)
    }

    /// 409 on an update.
    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, plural));
        Status::new(409, "Conflict", message).about(group, plural, name)
    }

    /// 409 because somebody else wrote first.
    pub fn modified(group: &str, plural: &str, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Status::conflict(group, plural, name, why)
    }

    /// 410: what the client remembers is too old.
    pub fn expired(message: impl Into<String>) -> Self {
        Status::new(410, "Expired", message)
    }

    /// 422 with every cause. `kind` is the object's kind, not its plural.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: Vec<FieldError>) -> Self {
        // The same mistake found on two ways is told once, as an aggregate error does.
        let mut sentences: Vec<String> = Vec::new();
        for error in &errors {
            let sentence = error.to_string();
            if !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
        let joined = match sentences.len() {
            1 => sentences.remove(0),
            _ => format!("[{}]", sentences.join(", ")),
        };
        let message = format!("{} \"{name}\" is invalid: {joined}", qualified(group, kind));
        let mut status = Status::new(422, "Invalid", message).about(group, kind, name);
        let mut told = std::collections::HashSet::new();
        for error in errors.into_iter().filter(|error| told.insert(error.to_string())) {
            status = status.cause(error.reason.cause(), error.body(), &error.field);
        }
        status
    }

    /// 500 with the reason `InternalError` and its usual opening words.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let text = message.to_string();
        let mut status = Status::new(500, "InternalError", format!("Internal error occurred: {text}"));
        status.details = Some(Box::new(Details {
            causes: vec![Cause { reason: String::new(), message: text, field: String::new() }],
            ..Details::default()
        }));
        status
    }

    /// 500 without a reason, as a real server answers where an error has no class of its own.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Status::new(500, "", message)
    }

    /// 504: not done in time.
    pub fn timeout(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let mut status = Status::new(504, "Timeout", format!("Timeout: {}", message.into()));
        status.details = Some(Box::new(Details { retry_after_seconds, ..Details::default() }));
        status
    }

    /// The body of the response.
    pub fn to_json(&self) -> Value {
        let mut body = Map::new();
        body.insert("kind".into(), "Status".into());
        body.insert("apiVersion".into(), "v1".into());
        body.insert("metadata".into(), self.metadata.as_deref().cloned().unwrap_or_default().into());
        body.insert("status".into(), "Failure".into());
        if !self.message.is_empty() {
            body.insert("message".into(), self.message.clone().into());
        }
        if !self.reason.is_empty() {
            body.insert("reason".into(), self.reason.as_ref().into());
        }
        if let Some(details) = &self.details {
            body.insert("details".into(), details.to_json());
        }
        body.insert("code".into(), self.code.into());
        Value::Object(body)
    }
}

impl Details {
    fn to_json(&self) -> Value {
        let mut map = Map::new();
        for (key, value) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            if !value.is_empty() {
                map.insert(key.into(), value.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut map = Map::new();
                for (key, value) in [("reason", &cause.reason), ("message", &cause.message), ("field", &cause.field)] {
                    if !value.is_empty() {
                        map.insert(key.into(), value.as_str().into());
                    }
                }
                Value::Object(map)
            });
            map.insert("causes".into(), causes.collect());
        }
        if self.retry_after_seconds > 0 {
            map.insert("retryAfterSeconds".into(), self.retry_after_seconds.into());
        }
        Value::Object(map)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

/// `deployments.apps`, or `pods` in the core group.
pub fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// One mistake in one field, as `field.Error` tells it: the path, what sort of mistake, the value, and what would be right.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The path of the field.
    pub field: String,
    /// What sort of mistake it is.
    pub reason: FieldReason,
    /// The value as Go prints it in such messages, where the sort of mistake shows one.
    pub value: String,
    /// What would be right.
    pub detail: String,
}

/// The sorts of mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FieldReason {
    Required,
    Invalid,
    NotSupported,
    Duplicate,
    Forbidden,
    NotFound,
    TooLong,
    TooMany,
    TypeInvalid,
    Internal,
}

impl FieldReason {
    /// The reason in `details.causes`.
    pub fn cause(self) -> &'static str {
        match self {
            FieldReason::Required => "FieldValueRequired",
            FieldReason::Invalid => "FieldValueInvalid",
            FieldReason::NotSupported => "FieldValueNotSupported",
            FieldReason::Duplicate => "FieldValueDuplicate",
            FieldReason::Forbidden => "FieldValueForbidden",
            FieldReason::NotFound => "FieldValueNotFound",
            FieldReason::TooLong => "FieldValueTooLong",
            FieldReason::TooMany => "FieldValueTooMany",
            FieldReason::TypeInvalid => "FieldValueTypeInvalid",
            FieldReason::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            FieldReason::Required => "Required value",
            FieldReason::Invalid | FieldReason::TypeInvalid => "Invalid value",
            FieldReason::NotSupported => "Unsupported value",
            FieldReason::Duplicate => "Duplicate value",
            FieldReason::Forbidden => "Forbidden",
            FieldReason::NotFound => "Not found",
            FieldReason::TooLong => "Too long",
            FieldReason::TooMany => "Too many",
            FieldReason::Internal => "Internal error",
        }
    }
}

impl FieldError {
    /// A value that must be there and is not.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        FieldError { field: field.into(), reason: FieldReason::Required, value: String::new(), detail: detail.into() }
    }

    /// A value that is wrong.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        FieldError { field: field.into(), reason: FieldReason::Invalid, value: value.to_string(), detail: detail.into() }
    }

    /// Something that must not be there, or must not change.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        FieldError { field: field.into(), reason: FieldReason::Forbidden, value: String::new(), detail: detail.into() }
    }

    /// A value that is there twice.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        FieldError { field: field.into(), reason: FieldReason::Duplicate, value: value.to_string(), detail: String::new() }
    }

    /// A value outside the list of possible ones.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|v| format!("{v:?}")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        FieldError { field: field.into(), reason: FieldReason::NotSupported, value: value.to_string(), detail }
    }

    /// A reference to something that does not exist.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        FieldError { field: field.into(), reason: FieldReason::NotFound, value: value.to_string(), detail: String::new() }
    }

    /// A text or total that is too long.
    pub fn too_long(field: impl Into<String>, max_bytes: usize) -> Self {
        let detail = format!("may not be more than {max_bytes} bytes");
        FieldError { field: field.into(), reason: FieldReason::TooLong, value: String::new(), detail }
    }

    /// A list with too many items.
    pub fn too_many(field: impl Into<String>, actual: usize, max: usize) -> Self {
        let detail = format!("must have at most {max} items");
        FieldError { field: field.into(), reason: FieldReason::TooMany, value: actual.to_string(), detail }
    }

    /// The sentence without the field's path.
    pub fn body(&self) -> String {
        let shows_value =
            !matches!(self.reason, FieldReason::Required | FieldReason::Forbidden | FieldReason::TooLong | FieldReason::Internal);
        let mut text = self.reason.words().to_owned();
        if shows_value {
            text = format!("{text}: {}", self.value);
        }
        if !self.detail.is_empty() {
            text = format!("{text}: {}", self.detail);
        }
        text
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn several_field_errors_are_told_in_brackets_and_each_as_a_cause() {
        let errors = vec![
            FieldError::required("spec.selector", ""),
            FieldError::invalid("spec.replicas", &json!(-1), "must be greater than or equal to 0"),
        ];
        let status = Status::invalid("apps", "Deployment", "d", errors);
        assert_eq!(
            status.message,
            "Deployment.apps \"d\" is invalid: [spec.selector: Required value, spec.replicas: Invalid value: -1: must be greater than or equal to 0]"
        );
        assert_eq!(
            status.to_json()["details"]["causes"][0],
            json!({"reason": "FieldValueRequired", "message": "Required value", "field": "spec.selector"})
        );
    }
}
