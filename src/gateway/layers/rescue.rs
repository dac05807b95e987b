//! The one place where an error becomes a response: a refusal from any layer or handler is written down as a `Status`, and a
//! panic becomes a 500 while the process lives on.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use futures::FutureExt;
use http::{HeaderValue, Request, header};

use super::{Layer, Next, Refused};
use crate::api::negotiate::{Format, accept_error};
use crate::api::representation::{Representation, header_text, is_for_a_reader, respond, respond_value};
use crate::gateway::Gateway;
use crate::status::Status;

/// See the module.
#[derive(Clone, Copy)]
pub struct Rescue;

impl Layer for Rescue {
    async fn call(&self, _: &Arc<Gateway>, request: Request<Body>, next: &impl Next) -> Result<Response, Refused> {
        let format = accept_error(header_text(request.headers(), header::ACCEPT));
        let pretty = is_for_a_reader(request.headers(), request.uri().query().unwrap_or_default());
        let form = Representation { format, pretty, ..Representation::JSON };
        let path = request.uri().path().to_owned();
        let response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => response,
            Err(panic) => {
                let what = panic.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
                tracing::error!(path, panic = what.unwrap_or_default(), "a request caused a panic");
                let text = "This request caused apiserver to panic. Look in the logs for details.";
                return Ok(write(&Status::new(500, "InternalError", text), form));
            }
        };
        Ok(match response.extensions().get::<Refused>() {
            Some(Refused(status)) => {
                let mut written = write(status, form);
                // A layer may have put headers of its own on its refusal; how long the body is, nobody knew yet.
                let mut headers = response.headers().clone();
                headers.remove(header::CONTENT_LENGTH);
                written.headers_mut().extend(headers);
                written
            }
            None => response,
        })
    }
}

fn write(status: &Status, form: Representation) -> Response {
    let value = status.to_json();
    let mut response = match respond_value(status.code, &value, form) {
        Ok(response) => response,
        Err(_) => respond(status.code, Format::Json, Body::from(value.to_string())),
    };
    let retry = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}
