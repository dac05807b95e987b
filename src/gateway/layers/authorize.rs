//! Hop 03: may they.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode, Uri, header};
use serde_json::{Value, json};

use super::{Layer, Next, Refused, context};
use crate::authz::{Attributes, Decision, Explained, forbidden};
use crate::gateway::Gateway;
use crate::request::RequestInfo;
use crate::status::Status;

/// See the module.
#[derive(Clone, Copy)]
pub struct Authorize;

impl Layer for Authorize {
    async fn call(&self, gateway: &Arc<Gateway>, request: Request<Body>, next: &impl Next) -> Result<Response, Refused> {
        let context = context(&request)?;
        let since = Instant::now();
        let user = context.user().cloned().ok_or_else(|| Refused(Status::unauthorized()))?;
        let attributes = Attributes { user, info: context.info.clone() };
        let Explained { decision, by, mut detail } = gateway.authorizer.explain(&attributes).await;
        detail.insert("authorizer".to_owned(), by.into());
        let allowed = decision.is_allow();
        if !allowed {
            detail.insert("needed".to_owned(), needed(&context.info));
        }
        let reason = match decision {
            Decision::Allow(reason) | Decision::Deny(reason) | Decision::NoOpinion(reason) => reason,
            Decision::Failed { error, .. } => {
                context.trace.annotate("authorization.k8s.io/reason", "internal error");
                detail.insert("because".to_owned(), error.to_string().into());
                context.trace.step_with("authorize", by, "failed", since, Some(detail.into()));
                return Ok(failed(request.uri(), &error));
            }
        };
        context.trace.annotate("authorization.k8s.io/decision", if allowed { "allow" } else { "forbid" });
        if !reason.is_empty() {
            detail.insert("because".to_owned(), reason.to_string().into());
        }
        let refusal = (!allowed).then(|| forbidden(&attributes, &reason));
        context.trace.annotate("authorization.k8s.io/reason", reason);
        let verdict = if allowed { "allowed" } else { "denied" };
        context.trace.step_with("authorize", by, verdict, since, Some(detail.into()));
        match refusal {
            None => Ok(next.run(request).await),
            Some(status) => Ok(Refused::forbidden(status)),
        }
    }
}

/// What a real server says when its authorisers cannot decide: plain text, and no markup in it.
fn failed(uri: &Uri, error: &str) -> Response {
    let asked = uri.path_and_query().map_or(uri.path(), |asked| asked.as_str());
    let text = format!("Internal Server Error: {asked:?}: {error}\n").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (StatusCode::INTERNAL_SERVER_ERROR, headers, text).into_response()
}

/// What a rule would have to allow for this request to pass.
fn needed(info: &RequestInfo) -> Value {
    if !info.is_resource {
        return json!({"verb": info.verb(), "nonResourceURL": info.path});
    }
    let resource = if info.subresource.is_empty() { info.resource.clone() } else { format!("{}/{}", info.resource, info.subresource) };
    let mut needed = json!({"verb": info.verb(), "apiGroup": info.group, "resource": resource});
    for (key, value) in [("namespace", &info.namespace), ("resourceName", &info.name)] {
        if !value.is_empty() {
            needed[key] = value.clone().into();
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::parse;

    #[test]
    fn a_denial_says_what_a_rule_would_have_to_allow() {
        let log = needed(&parse("GET", "/api/v1/namespaces/default/pods/x/log", ""));
        let expected = json!({"verb": "get", "apiGroup": "", "resource": "pods/log", "namespace": "default", "resourceName": "x"});
        assert_eq!(log, expected);
        assert_eq!(needed(&parse("GET", "/metrics", "")), json!({"verb": "get", "nonResourceURL": "/metrics"}));
    }
}
