//! What the server says of itself: discovery (legacy and aggregated), OpenAPI v3 and v2, the keys of its tokens, its root paths. Documents carry
//! tags, so that a client that has one is answered with 304.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Request, header};
use serde_json::{Value, json};

use super::Gateway;
use super::layers::Refused;
use super::router::page_not_found;
use crate::api::compress::compress;
use crate::api::discovery::{self, Document};
use crate::api::negotiate::{self, Format};
use crate::api::openapi::Encoding;
use crate::api::representation::{Representation, encode, header_text, respond, respond_value};
use crate::registry::Table;
use crate::status::Status;

/// The paths that `/` lists besides those of groups and versions.
const PATHS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
];

/// Answers for a path that is no resource. Some of these documents are read with any method, others with GET alone.
pub fn serve(gateway: &Gateway, request: &Request<Body>) -> Result<Response, Refused> {
    let path = request.uri().path().trim_end_matches('/');
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    // Most of these documents are also there with a slash behind their path.
    if path.len() < request.uri().path().len() && (parts.first() == Some(&"openapi") || request.uri().path().starts_with("//")) {
        return Ok(page_not_found());
    }
    let headers = request.headers();
    let table = gateway.api.registry.table();
    let documents = &gateway.documents;
    let read = *request.method() == http::Method::GET;
    let gets_only = matches!(parts.as_slice(), ["api"] | ["api", _] | ["apis", _, _] | ["openid", ..] | [".well-known", ..]);
    let found = match parts.as_slice() {
        _ if !read && gets_only => {
            let known = match parts.as_slice() {
                ["api", version] => *version == "v1",
                ["apis", group, version] => table.of_version(group, version).next().is_some(),
                _ => true,
            };
            return if known { Err(Status::method_not_allowed().into()) } else { not_found(&table, &parts) };
        }
        [] => {
            let mut paths: Vec<String> = PATHS.iter().map(|p| (*p).to_owned()).collect();
            paths.extend(["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()]);
            for group in gateway.aggregator.groups(&table).iter().filter(|g| !g.name.is_empty()) {
                paths.push(format!("/apis/{}", group.name));
                paths.extend(group.versions.iter().map(|version| format!("/apis/{}/{version}", group.name)));
            }
            paths.sort();
            return Ok(respond_value(200, &json!({"paths": paths}), Representation::JSON)?);
        }
        ["api" | "apis"] => return discover(gateway, headers, parts[0] == "api"),
        ["api", version] => discovery::api_resource_list(&table, "", version),
        ["apis", group] => discovery::api_group(&gateway.aggregator.groups(&table), group),
        ["apis", group, version] => discovery::api_resource_list(&table, group, version),
        ["openid", "v1", "jwks"] => {
            let mut response = respond_value(200, &gateway.api.reviews.keys.jwks(), Representation::JSON)?;
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/jwk-set+json"));
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
            return Ok(response);
        }
        [".well-known", "openid-configuration"] => {
            let reviews = &gateway.api.reviews;
            // Where it is served, unless nothing is: the issuer's own name need not resolve anywhere.
            let jwks = match gateway.address.get() {
                Some(address) => format!("https://{address}/openid/v1/jwks"),
                None => format!("{}/openid/v1/jwks", reviews.issuer),
            };
            let document = reviews.keys.openid_configuration(&reviews.issuer, &jwks);
            let mut response = respond_value(200, &document, Representation::JSON)?;
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
            return Ok(response);
        }
        ["openapi", "v3"] => {
            let index = documents.index(&table, gateway.aggregator.addresses(&table));
            return Ok(tagged(headers, &index, "text/plain; charset=utf-8"));
        }
        ["openapi", "v3", ..] => {
            let name = parts[2..].join("/");
            // The hash in the address is the newest one: whoever comes with another is sent there.
            let asked = crate::request::query_value(request.uri().query().unwrap_or_default(), "hash");
            if let (Some(asked), Some(hash)) = (asked, documents.hash_of(&table, &name))
                && asked != hash
            {
                return Ok(moved(&format!("/openapi/v3/{name}?hash={hash}")));
            }
            match documents
                .v3(&table, &name)
                .map(|document| (*document).clone())
                .or_else(|| gateway.aggregator.made_document(&table, &name))
            {
                Some(document) => return Ok(tagged(headers, &document, "application/json")),
                None => None,
            }
        }
        ["openapi", "v2"] => {
            let accept = header_text(headers, header::ACCEPT);
            let protobuf = accept.contains("proto-openapi.spec.v2");
            let bare = |clause: &str| clause.split(';').next().unwrap_or_default().trim().to_owned();
            let takes_json =
                accept.is_empty() || accept.split(',').any(|c| matches!(bare(c).as_str(), "*/*" | "application/*" | "application/json"));
            if !protobuf && !takes_json {
                let mut response = respond(406, Format::Json, Body::empty());
                response.headers_mut().remove(header::CONTENT_TYPE);
                return Ok(response);
            }
            let (encoding, content_type) = match protobuf {
                true => (Encoding::Protobuf, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"),
                false => (Encoding::Json, "application/json"),
            };
            return Ok(tagged(headers, &documents.v2(&table, &gateway.aggregator.extensions(&table), encoding), content_type));
        }
        _ => None,
    };
    match found {
        Some(value) => {
            let routed = matches!(parts.as_slice(), ["api", _] | ["apis", _, _]);
            let known = matches!(parts.as_slice(), ["api" | "apis", ..]);
            let format = match known {
                true => negotiate::accept_document(header_text(headers, header::ACCEPT), routed).map_err(Status::from)?,
                false => negotiate::accept_error(header_text(headers, header::ACCEPT)),
            };
            let value = versioned(value, format);
            let format = if format == Format::Protobuf && encode(&value, format).is_err() { Format::Json } else { format };
            Ok(respond_value(200, &value, Representation { format, ..Representation::JSON })?)
        }
        None => not_found(&table, &parts),
    }
}

/// What is not there below a path that is, is a `Status`; every other path is nothing at all.
fn not_found(table: &Table, parts: &[&str]) -> Result<Response, Refused> {
    let below = match parts {
        ["api" | "version", _, ..] => true,
        ["apis", group, _] => table.resources.iter().any(|r| *r.group == **group && r.custom.is_none()),
        _ => false,
    };
    if below { Err(Status::no_such_resource().into()) } else { Ok(page_not_found()) }
}

/// As JSON, what tells of the core group names no version of its own; as a message it has one.
fn versioned(mut value: Value, format: Format) -> Value {
    if format == Format::Protobuf && value["apiVersion"].is_null() {
        value["apiVersion"] = "v1".into();
    }
    value
}

fn discover(gateway: &Gateway, headers: &HeaderMap, core: bool) -> Result<Response, Refused> {
    let table = gateway.api.registry.table();
    let (format, aggregated) = negotiate::accept_discovery(header_text(headers, header::ACCEPT), core).map_err(Status::from)?;
    let value: Value = match (aggregated, core) {
        (true, core) => {
            let mut items = discovery::aggregated_items(&table, core);
            if !core {
                gateway.aggregator.discover(&mut items);
            }
            discovery::aggregated_of(items, "v2")
        }
        (false, true) => discovery::api_versions(&gateway.address.get().map(ToString::to_string).unwrap_or_default()),
        (false, false) => discovery::api_group_list(&gateway.aggregator.groups(&table)),
    };
    if !aggregated {
        let value = versioned(value, format);
        return Ok(respond_value(200, &value, Representation { format, ..Representation::JSON })?);
    }
    let document = Document::new(encode(&value, format)?);
    let mut response = tagged(headers, &document, "application/json");
    if let Ok(value) = HeaderValue::from_str(&negotiate::aggregated_discovery_media_type(format)) {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

/// A document with its tag, or 304 to who has it.
fn tagged(headers: &HeaderMap, document: &Document, content_type: &'static str) -> Response {
    let has_it = header_text(headers, header::IF_NONE_MATCH).split(',').any(|tag| tag.trim() == document.etag);
    let (code, body) = if has_it { (304, Body::empty()) } else { (200, Body::from(document.body.clone())) };
    let mut response = respond(code, Format::Json, body);
    let answered = response.headers_mut();
    answered.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Ok(tag) = HeaderValue::from_str(&document.etag) {
        answered.insert(header::ETAG, tag);
    }
    compress(headers, response).map(Body::new)
}

fn moved(to: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::MOVED_PERMANENTLY;
    if let Ok(value) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}
