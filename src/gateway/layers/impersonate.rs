//! `Impersonate-*`: being taken for somebody else, where the one who asks may.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use serde_json::json;

use super::{Layer, Next, Refused, context};
use crate::authz::impersonation::is_header;
use crate::gateway::Gateway;
use crate::status::Status;

/// See the module.
#[derive(Clone, Copy)]
pub struct Impersonate;

impl Layer for Impersonate {
    async fn call(&self, gateway: &Arc<Gateway>, mut request: Request<Body>, next: &impl Next) -> Result<Response, Refused> {
        if !request.headers().keys().any(|name| is_header(name.as_str())) {
            return Ok(next.run(request).await);
        }
        let context = context(&request)?;
        let since = Instant::now();
        let asking = context.user().cloned().ok_or_else(|| Refused(Status::unauthorized()))?;
        let decided = gateway.impersonation.decide(request.headers(), &asking, &context.info, &*gateway.authorizer).await;
        let impersonated = match decided {
            Err(status) => {
                let wanted = request.headers().get("impersonate-user").and_then(|user| user.to_str().ok()).unwrap_or_default().to_owned();
                context.trace.step_with("impersonate", wanted, "denied", since, Some(json!({"because": status.message})));
                return Ok(Refused::forbidden(status));
            }
            Ok(impersonated) => impersonated,
        };
        if let Some(impersonated) = impersonated {
            context.trace.step("impersonate", impersonated.user.name.clone(), "allowed", since);
            if let Some(constraint) = impersonated.constraint {
                context.constrain(constraint);
            }
            context.impersonate(impersonated.user);
            let spent: Vec<_> = request.headers().keys().filter(|name| is_header(name.as_str())).cloned().collect();
            for name in spent {
                request.headers_mut().remove(name);
            }
        }
        Ok(next.run(request).await)
    }
}
