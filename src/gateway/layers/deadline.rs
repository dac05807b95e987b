//! No request takes for ever, unless it is one that is meant to: a watch, a log that is followed, a connection to a Pod.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode, header};

use super::{Layer, Next, Refused, context};
use crate::api::representation::Answered;
use crate::gateway::Gateway;
use crate::status::Status;

/// See the module.
#[derive(Clone, Copy)]
pub struct Deadline;

impl Layer for Deadline {
    async fn call(&self, gateway: &Arc<Gateway>, request: Request<Body>, next: &impl Next) -> Result<Response, Refused> {
        let context = context(&request)?;
        // An import of audit events takes as long as its file is long.
        let import = context.info.verb == "post" && context.info.path == "/usher/v1/requests";
        if context.info.is_long_running() || import {
            return Ok(next.run(request).await);
        }
        let asked = context.parameter("timeout").filter(|t| !t.is_empty());
        // Less than nothing is as good as nothing.
        let read = |text: &str| match text.strip_prefix('-') {
            Some(rest) => parse_duration(rest).map(|_| Duration::ZERO),
            None => parse_duration(text),
        };
        let deadline = match asked.as_deref().map(read) {
            None => gateway.deadline,
            Some(Some(Duration::ZERO)) => gateway.deadline,
            Some(Some(asked)) => asked.min(gateway.deadline),
            Some(None) => {
                let text = format!("invalid timeout specified in the request URL - time: invalid duration {:?}", asked.unwrap_or_default());
                return Err(Status::bad_request(text).into());
            }
        };
        match tokio::time::timeout(deadline, next.run(request)).await {
            Ok(response) => Ok(response),
            Err(_) => Ok(timed_out()),
        }
    }
}

/// What a real server's timeout answers with: a `Status` that does not say its kind, as text.
fn timed_out() -> Response {
    let mut body = Status::timeout("request did not complete within the allotted timeout", 0).to_json();
    if let Some(body) = body.as_object_mut() {
        body.remove("kind");
        body.remove("apiVersion");
    }
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-cache, private")];
    let mut response = (StatusCode::GATEWAY_TIMEOUT, headers, body.to_string()).into_response();
    // Audit hears of it from the handler, which has words of its own for its deadline.
    let told = Status::timeout("request did not complete within requested timeout - context deadline exceeded", 0);
    response.extensions_mut().insert(Answered(Arc::new(told.to_json())));
    response
}

/// A duration as Go writes it: `1m30s`, `500ms`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = 0f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit_end = rest[end..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |i| end + i);
        total += number
            * match &rest[end..unit_end] {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    Duration::try_from_secs_f64(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        assert_eq!(parse_duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_duration("x"), None);
        assert_eq!(parse_duration("10"), None);
    }
}
