//! Bodies of requests: read up to their limit, and decoded by what the client says they are.

use std::borrow::Cow;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use super::negotiate::{self, Format};
use super::representation::header_text;
use super::{Api, protobuf};
use crate::registry::{Resource, api_version};
use crate::request::Context;
use crate::schema::decode::{DecodeError, Expected, FieldValidation, conform, decode_as, read_noting, type_meta};
use crate::status::Status;

/// The largest body that is read.
pub const MAX_BODY: usize = 3 << 20;

/// Reads a body.
pub async fn read(body: Body) -> Result<Bytes, Status> {
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let text = format!("Request entity too large: limit is {MAX_BODY}");
            Err(Status::new(413, "RequestEntityTooLarge", text))
        }
        // The client is gone, so that only audit tells it; in Go's words.
        Err(_) => Err(Status::new(500, "", "unexpected EOF")),
    }
}

impl Api {
    /// Decodes an object of a resource, with its defaults.
    pub fn decode_object(
        &self,
        context: &Context,
        headers: &HeaderMap,
        bytes: &[u8],
        resource: &Resource,
        validation: FieldValidation,
    ) -> Result<Value, Status> {
        let schema = resource.schema();
        let custom = resource.custom.is_some();
        let expected = Expected { group: &resource.group, version: &resource.version, kind: &resource.kind, schema: &schema, custom };
        let mut value = decode_kind(context, headers, bytes, expected, validation)?;
        crate::schema::default::apply_defaults(&mut value, resource);
        context.understand(|| Cow::Borrowed(&value));
        Ok(value)
    }
}

/// Whether a JSON body says that nobody owns anything any more: an empty list, which types leave out.
pub fn resets_owners(bytes: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        managed_fields: Vec<serde::de::IgnoredAny>,
    }
    memchr::memmem::find(bytes, b"managedFields").is_some()
        && serde_json::from_slice::<Object>(bytes).is_ok_and(|object| object.metadata.managed_fields.is_empty())
}

/// Decodes an object of a kind, without defaults.
pub fn decode_kind(
    context: &Context,
    headers: &HeaderMap,
    bytes: &[u8],
    expected: Expected<'_>,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let content_type = header_text(headers, header::CONTENT_TYPE);
    let format = if expected.custom { negotiate::custom_body(content_type)? } else { negotiate::body(content_type)? };
    let (value, warnings) = match format {
        Format::Protobuf => {
            let wanted = api_version(expected.group, expected.version);
            let cannot = |why: String| {
                let (kind, version) = (expected.kind, expected.version);
                Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
            };
            let refused = |error: protobuf::Error| match error {
                protobuf::Error::Prefix => {
                    let shown = crate::schema::decode::summary(bytes);
                    Status::bad_request(format!(
                        "the object provided is unrecognized (must be of type {}): {error} ({shown})",
                        expected.kind
                    ))
                }
                other => cannot(other.to_string()),
            };
            let (_, _, value) = protobuf::decode_as(bytes, &wanted, expected.kind).map_err(refused)?;
            conform(value, expected, validation).map_err(|e: DecodeError| cannot(e.to_string()))?
        }
        _ => decode_as(bytes, content_type, expected, validation)?,
    };
    for warning in warnings {
        context.trace.warn(warning);
    }
    context.read(&value);
    Ok(value)
}

/// Decodes an object of a built-in kind that a subresource takes: `Scale`, `Binding` and the others.
pub fn decode_part(
    context: &Context,
    headers: &HeaderMap,
    bytes: &[u8],
    (group, version, kind): (&str, &str, &str),
    validation: FieldValidation,
) -> Result<Value, Status> {
    let schema = crate::schema::builtin::of_kind(group, version, kind).unwrap_or_default();
    decode_kind(context, headers, bytes, Expected { group, version, kind, schema: &schema, custom: false }, validation)
}

/// A body whose kind has no schema of its own here: JSON, YAML or protobuf, taken as it is.
pub fn decode_plain(headers: &HeaderMap, bytes: &[u8], version: &str, kind: &str) -> Result<Value, Status> {
    let unreadable = |why: String| Status::bad_request(format!("couldn't get version/kind; json parse error: {why}"));
    match negotiate::body(header_text(headers, header::CONTENT_TYPE))? {
        Format::Json => serde_json::from_slice(bytes).map_err(|e| unreadable(e.to_string())),
        Format::Yaml => crate::schema::yaml::parse(&String::from_utf8_lossy(bytes)).map(|document| document.value).map_err(unreadable),
        Format::Protobuf => match protobuf::decode_as(bytes, version, kind) {
            Ok((_, _, value)) => Ok(value),
            Err(error) => Err(unreadable(error.to_string())),
        },
    }
}

/// The options of a deletion, which any group may call its own.
pub fn decode_delete_options(headers: &HeaderMap, bytes: &[u8]) -> Result<Value, Status> {
    let content_type = header_text(headers, header::CONTENT_TYPE);
    let value = match negotiate::body(content_type)? {
        Format::Protobuf => return decode_plain(headers, bytes, "meta.k8s.io/v1", "DeleteOptions"),
        Format::Yaml => decode_plain(headers, bytes, "meta.k8s.io/v1", "DeleteOptions")?,
        Format::Json => {
            let text = String::from_utf8_lossy(bytes);
            let why =
                |_| Status::bad_request(format!("couldn't get version/kind; json parse error: {}", crate::schema::syntax::explain(bytes)));
            read_noting(&text).map_err(why)?.0
        }
    };
    let (group, version, kind) = ("", "v1", "DeleteOptions");
    let schema = crate::schema::builtin::of_definition("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions").unwrap_or_default();
    if let Err(why) = type_meta(&value) {
        return Err(Status::bad_request(format!("couldn't get version/kind; json parse error: {why}")));
    }
    let given = |field: &str| value[field].as_str().unwrap_or_default();
    if !matches!(given("kind"), "" | "DeleteOptions") {
        let scheme = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27";
        return Err(Status::bad_request(format!(
            "no kind {:?} is registered for version {:?} in scheme {scheme:?}",
            given("kind"),
            given("apiVersion")
        )));
    }
    let mut value = value;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    let expected = Expected { group, version, kind, schema: &schema, custom: false };
    let (value, _) = conform(value, expected, FieldValidation::Ignore).map_err(|why| Status::bad_request(why.to_string()))?;
    Ok(value)
}
