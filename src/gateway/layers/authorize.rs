//! Hop 03: may they.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::Response;
use http::Request;

use super::{Refused, context};
use crate::authz::{Attributes, Decision, forbidden};
use crate::gateway::Gateway;
use crate::status::Status;

/// See the module.
pub async fn layer(State(gateway): State<Arc<Gateway>>, request: Request<Body>, next: Next) -> Result<Response, Refused> {
    let context = context(&request)?;
    let since = Instant::now();
    let user = context.user().cloned().ok_or_else(|| Refused(Status::unauthorized()))?;
    let attributes = Attributes { user, info: context.info.clone() };
    match gateway.authorizer.decide(&attributes).await {
        Decision::Allow(reason) => {
            context.trace.annotate("authorization.k8s.io/decision", "allow");
            context.trace.annotate("authorization.k8s.io/reason", reason.clone());
            context.trace.step("authorize", gateway.authorizer.name(), format!("allowed: {reason}"), since);
            Ok(next.run(request).await)
        }
        Decision::Deny(reason) | Decision::NoOpinion(reason) => {
            context.trace.annotate("authorization.k8s.io/decision", "forbid");
            context.trace.annotate("authorization.k8s.io/reason", reason.clone());
            context.trace.step("authorize", gateway.authorizer.name(), format!("denied: {reason}"), since);
            Ok(Refused::forbidden(forbidden(&attributes, &reason)))
        }
    }
}
