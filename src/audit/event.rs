//! An audit event, `audit.k8s.io/v1`, and the [`Story`] that Usher keeps with it: what the trace of the request tells. Sinks get
//! the event alone, as a real server writes it; the archive keeps both.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

use super::Json;
pub use crate::request::Wrote;
use crate::request::{Step, User};

/// How much of a request is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Nothing.
    None,
    /// Who, what and how it ended.
    #[default]
    Metadata,
    /// The body of the request too.
    Request,
    /// The body of the response too.
    RequestResponse,
}

impl Level {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// Where in its life a request was when the event was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// It has just arrived.
    RequestReceived,
    /// The headers of a long-running response are out, its body is not.
    ResponseStarted,
    /// It is over.
    #[default]
    ResponseComplete,
    /// It caused a panic.
    Panic,
}

impl Stage {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// One audit event.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// Always `Event`.
    pub kind: Cow<'static, str>,
    /// Always `audit.k8s.io/v1`.
    pub api_version: Cow<'static, str>,
    /// How much is recorded.
    pub level: Level,
    /// The request's id.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// When the event was made.
    pub stage: Stage,
    /// The request's path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// Its verb.
    pub verb: Cow<'static, str>,
    /// Who asked.
    pub user: UserInfo,
    /// Whom they were taken for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<UserInfo>,
    /// How the user came to be taken for somebody else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication_metadata: Option<AuthenticationMetadata>,
    /// Where it came from, the client first and then each proxy.
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    pub source_ips: Vec<String>,
    /// The client's own name for itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    /// What it was about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectReference>,
    /// How it ended; a `Status` without its details' noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_status: Option<ResponseStatus>,
    /// The body of the request, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_object: Option<Json>,
    /// The body of the response, as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_object: Option<Json>,
    /// When the request arrived.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "micro_time")]
    pub request_received_timestamp: Option<Timestamp>,
    /// When this stage was reached.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "micro_time")]
    pub stage_timestamp: Option<Timestamp>,
    /// What authorisation, admission and policies had to say.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What the trace tells; never in a sink's event, and never in that of another server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<Story>>,
}

/// How the user came to be taken for somebody else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuthenticationMetadata {
    /// The verb of constrained impersonation that allowed it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub impersonation_constraint: String,
}

/// A `MicroTime`: always six digits behind the point.
fn micro_time<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(&format_args!("{time:.6}")),
        None => serializer.serialize_none(),
    }
}

/// `authentication.k8s.io/v1.UserInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// The uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Everything else.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl From<&User> for UserInfo {
    fn from(user: &User) -> Self {
        UserInfo {
            username: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.iter().cloned().collect(),
        }
    }
}

/// What a request was about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// The plural.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The uid that the client named.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// The version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The resourceVersion that the client named.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// How a request ended: a `Status`, of which a success shows the code alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponseStatus {
    /// Always empty.
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// `Failure`, or `Success` where the response itself was a Status.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// The sentence for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The machine-readable reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What the failure is about.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::in_order::serialize_details")]
    pub details: Option<serde_json::Value>,
    /// The HTTP status.
    pub code: u16,
}

/// What the trace of a request tells, as it is kept.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Story {
    /// How long it took, in microseconds.
    pub took: u64,
    /// Every step of its way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// What the client was warned of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The object that was written, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrote: Option<Wrote>,
    /// The revision whose watch event made a component send this request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<u64>,
    /// The W3C trace id that the request belongs to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
}

impl Event {
    /// The user that decisions were made about: the impersonated one where there is one.
    pub fn effective_user(&self) -> &UserInfo {
        self.impersonated_user.as_ref().unwrap_or(&self.user)
    }

    /// The HTTP status; zero where there is none yet.
    pub fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }
}
