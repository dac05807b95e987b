//! Bodies of requests: read up to their limit, and decoded by what the client says they are.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use super::Api;
use super::options::FieldValidation;
use crate::registry::Resource;
use crate::request::Context;
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
        Err(error) => Err(Status::bad_request(format!("error reading the request body: {error}"))),
    }
}

/// The media type of a request body, without parameters.
pub fn content_type(headers: &HeaderMap) -> String {
    let given = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("application/json");
    given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

impl Api {
    /// Decodes an object of a resource, with its defaults.
    pub fn decode_object(
        &self,
        _context: &Context,
        _headers: &HeaderMap,
        bytes: &[u8],
        resource: &Resource,
        _validation: FieldValidation,
    ) -> Result<Value, Status> {
        let mut value: Value = serde_json::from_slice(bytes).map_err(|e| Status::bad_request(e.to_string()))?;
        if let Some(map) = value.as_object_mut() {
            map.insert("apiVersion".into(), resource.group_version().into());
            map.insert("kind".into(), (&*resource.kind).into());
        }
        crate::schema::apply_defaults(&mut value, resource);
        Ok(value)
    }
}

/// A JSON body without a schema.
pub fn decode_plain(bytes: &[u8]) -> Result<Value, Status> {
    serde_json::from_slice(bytes).map_err(|e| Status::bad_request(format!("couldn't get version/kind; json parse error: {e}")))
}

/// Applies a JSON or merge patch to a value.
pub fn patch_value(headers: &HeaderMap, bytes: &[u8], old: &Value) -> Result<Value, Status> {
    let mut new = old.clone();
    match content_type(headers).as_str() {
        "application/json-patch+json" => {
            let patch: json_patch::Patch = serde_json::from_slice(bytes).map_err(|e| Status::bad_request(e.to_string()))?;
            json_patch::patch(&mut new, &patch).map_err(|e| Status::bad_request(e.to_string()))?;
        }
        _ => json_patch::merge(&mut new, &decode_plain(bytes)?),
    }
    Ok(new)
}
