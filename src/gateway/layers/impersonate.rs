//! `Impersonate-*`: being taken for somebody else, where the one who asks may.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request;

use super::{Refused, context};
use crate::authz::constrained::constraint;
use crate::authz::impersonation::{impersonate, is_header};
use crate::gateway::Gateway;
use crate::gateway::stack::Next;
use crate::status::Status;

/// See the module.
pub async fn layer(State(gateway): State<Arc<Gateway>>, mut request: Request<Body>, next: Next) -> Result<Response, Refused> {
    if !request.headers().keys().any(|name| is_header(name.as_str())) {
        return Ok(next.run(request).await);
    }
    let context = context(&request)?;
    let since = Instant::now();
    let asking = context.user().cloned().ok_or_else(|| Refused(Status::unauthorized()))?;
    let user = match impersonate(request.headers(), &asking, &*gateway.authorizer).await {
        Err(status) if status.code == 403 => return Ok(Refused::forbidden(status)),
        other => other?,
    };
    if let Some(user) = user {
        context.trace.step("impersonate", user.name.clone(), "allowed", since);
        if let Some(constraint) = constraint(&asking, &user, &context.info, &*gateway.authorizer).await {
            context.constrain(constraint);
        }
        context.impersonate(user);
        let spent: Vec<_> = request.headers().keys().filter(|name| is_header(name.as_str())).cloned().collect();
        for name in spent {
            request.headers_mut().remove(name);
        }
    }
    Ok(next.run(request).await)
}
