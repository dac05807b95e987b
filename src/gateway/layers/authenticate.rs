//! Hop 02: who asks. An identity that was put into the request inside the process is taken as it is; no request from a socket can
//! carry one, for the listener makes its requests itself.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::Response;
use http::Request;

use super::{Refused, context};
use crate::authn::InProcess;
use crate::gateway::Gateway;
use crate::status::Status;

/// See the module.
pub async fn layer(State(gateway): State<Arc<Gateway>>, request: Request<Body>, next: Next) -> Result<Response, Refused> {
    let context = context(&request)?;
    let since = Instant::now();
    if let Some(InProcess(user)) = request.extensions().get::<InProcess>() {
        context.trace.step("authenticate", "in-process", "matched", since);
        context.identify(user.clone());
        return Ok(next.run(request).await);
    }
    let (mut parts, body) = request.into_parts();
    match gateway.authenticator.authenticate(&parts).await {
        Ok(Some(known)) => {
            context.trace.step("authenticate", known.by, "matched", since);
            context.identify(known.user);
            // Nobody behind this layer needs the credential, and nobody can log what is not there.
            parts.headers.remove(http::header::AUTHORIZATION);
            Ok(next.run(Request::from_parts(parts, body)).await)
        }
        Ok(None) => {
            context.trace.step("authenticate", "anonymous", "refused: no credential", since);
            Err(Status::unauthorized().into())
        }
        Err(why) => {
            context.trace.step("authenticate", "chain", format!("refused: {why}"), since);
            Err(Status::unauthorized().into())
        }
    }
}
