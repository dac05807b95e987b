//! Hop 02: who asks. An identity that was put into the request inside the process is taken as it is; no request from a socket can
//! carry one, for the listener makes its requests itself.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use serde_json::{Map, Value};

use super::{Layer, Next, Refused, context};
use crate::authn::InProcess;
use crate::gateway::Gateway;
use crate::status::Status;

/// See the module.
#[derive(Clone, Copy)]
pub struct Authenticate;

impl Layer for Authenticate {
    async fn call(&self, gateway: &Arc<Gateway>, request: Request<Body>, next: &impl Next) -> Result<Response, Refused> {
        let context = context(&request)?;
        let since = Instant::now();
        if let Some(InProcess(user)) = request.extensions().get::<InProcess>() {
            context.trace.step("authenticate", "in-process", "matched", since);
            context.identify(user.clone());
            return Ok(next.run(request).await);
        }
        let (mut parts, body) = request.into_parts();
        let (passed, known) = gateway.authenticator.examine(&parts).await;
        let detail = (!passed.is_empty()).then(|| {
            let passed: Map<String, Value> = passed.into_iter().map(|(name, why)| (name.to_owned(), why.into_owned().into())).collect();
            Value::Object(Map::from_iter([("passed".to_owned(), passed.into())]))
        });
        match known {
            Ok(known) => {
                context.trace.step_with("authenticate", known.by, "matched", since, detail);
                context.identify(known.user);
                gateway.authenticator.strip(&mut parts.headers);
                Ok(next.run(Request::from_parts(parts, body)).await)
            }
            Err(why) => {
                context.trace.step_with("authenticate", "chain", format!("refused: {why}"), since, detail);
                Err(Status::unauthorized().into())
            }
        }
    }
}
