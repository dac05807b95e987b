//! The request as webhooks and CEL see it: `AdmissionRequest` and `AdmissionReview`, built of a write and nothing else.

use serde::Serialize;
use serde_json::{Value, json};

use super::{Cluster, Write};
use crate::api::conversion;
use crate::registry::Resource;
use crate::request::User;
use crate::status::Status;

/// The request part of a review, borrowing everything large.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest<'a> {
    uid: &'a str,
    kind: Kind<'a>,
    resource: Name<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    sub_resource: &'a str,
    request_kind: Kind<'a>,
    request_resource: Name<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_sub_resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    operation: &'static str,
    user_info: UserInfo<'a>,
    object: Option<&'a Value>,
    old_object: Option<&'a Value>,
    dry_run: bool,
    options: Option<&'a Value>,
}

#[derive(Serialize)]
struct Kind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

#[derive(Serialize)]
struct Name<'a> {
    group: &'a str,
    version: &'a str,
    resource: &'a str,
}

struct UserInfo<'a>(&'a User);

impl Serialize for UserInfo<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.to_json().serialize(serializer)
    }
}

/// A whole review on its way out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionReview<'a> {
    kind: &'static str,
    api_version: &'static str,
    request: AdmissionRequest<'a>,
}

/// The object and the old object in the version that a rule asks for.
pub struct Versioned {
    /// The object after the write.
    pub object: Option<Value>,
    /// The object before it.
    pub old: Option<Value>,
}

impl Versioned {
    /// Converts a write's objects; `None` where they already are in that version.
    ///
    /// # Errors
    /// If a webhook has to convert them and does not.
    pub async fn of(write: &Write, resource: &Resource, cluster: &Cluster) -> Result<Option<Versioned>, Status> {
        if resource.version == write.resource.version && resource.group == write.resource.group {
            return Ok(None);
        }
        let convert = async |value: Option<&Value>| match value {
            None => Ok(None),
            // A `Scale` or a `Binding` is the same whatever version its resource is meant in.
            Some(value) if value["kind"] != *write.resource.kind => Ok(Some(value.clone())),
            Some(value) => conversion::between(cluster, value.clone(), &write.resource, resource).await.map(Some),
        };
        Ok(Some(Versioned { object: convert(write.object.as_ref()).await?, old: convert(write.old.as_deref()).await? }))
    }
}

/// The kind that a write's object is of: its own word for it counts, since a subresource may carry another kind.
fn kind_of<'a>(write: &'a Write, resource: &'a Resource) -> Kind<'a> {
    let shown = write.object.as_ref().or(write.old.as_deref());
    let is_own = shown.is_none_or(|object| object["kind"] == *resource.kind);
    match is_own {
        true => Kind { group: &resource.group, version: &resource.version, kind: &resource.kind },
        false => Kind { group: &write.kind.0, version: &write.kind.1, kind: &write.kind.2 },
    }
}

/// The request part. `resource` is the version that the rule matched, `versioned` the objects in it.
pub fn request<'a>(write: &'a Write, resource: &'a Resource, versioned: Option<&'a Versioned>, uid: &'a str) -> AdmissionRequest<'a> {
    let (object, old) = match versioned {
        Some(versioned) => (versioned.object.as_ref(), versioned.old.as_ref()),
        None => (write.object.as_ref(), write.old.as_deref()),
    };
    AdmissionRequest {
        uid,
        kind: kind_of(write, resource),
        resource: Name { group: &resource.group, version: &resource.version, resource: &resource.plural },
        sub_resource: &write.subresource,
        request_kind: kind_of(write, &write.resource),
        request_resource: Name { group: &write.resource.group, version: &write.resource.version, resource: &write.resource.plural },
        request_sub_resource: &write.subresource,
        name: write.asked_name(),
        namespace: write.request_namespace(),
        operation: write.operation.as_str(),
        user_info: UserInfo(&write.user),
        object,
        old_object: old,
        dry_run: write.dry_run,
        options: (!write.options.is_null()).then_some(&write.options),
    }
}

/// A review for a webhook, in the version that it understands.
pub fn review<'a>(api_version: &'static str, request: AdmissionRequest<'a>) -> AdmissionReview<'a> {
    AdmissionReview { kind: "AdmissionReview", api_version, request }
}

/// The variable `request` of CEL: the same without the objects, which have variables of their own.
pub fn variable(write: &Write, resource: &Resource) -> Value {
    let mut request = request(write, resource, None, "");
    (request.object, request.old_object) = (None, None);
    let mut value = serde_json::to_value(request).unwrap_or_else(|_| json!({}));
    if let Some(map) = value.as_object_mut() {
        for field in ["uid", "object", "oldObject"] {
            map.remove(field);
        }
    }
    value
}
