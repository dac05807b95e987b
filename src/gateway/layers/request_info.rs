//! What the request is about, and its Audit-ID: read once, used by everybody. Counts the request when it is answered.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, Request, header};

use super::{Layer, Next, Refused};
use crate::gateway::Gateway;
use crate::request::span::{SpanContext, TRACEPARENT};
use crate::request::{Context, SharedContext, parse};

/// The longest Audit-ID that is taken over from a client.
const LONGEST_ID: usize = 128;

/// See the module.
#[derive(Clone, Copy)]
pub struct Info;

impl Layer for Info {
    async fn call(&self, gateway: &Arc<Gateway>, mut request: Request<Body>, next: &impl Next) -> Result<Response, Refused> {
        let headers = request.headers();
        let given = headers.get("audit-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty() && id.len() <= LONGEST_ID);
        let audit_id: Arc<str> = match given {
            Some(id) => id.into(),
            None => uuid::Uuid::new_v4().to_string().into(),
        };
        let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let info = parse(request.method().as_str(), request.uri().path(), &query);
        let parent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
        let mut context = Context::new(info, &query, audit_id.clone(), &agent);
        let begun = || gateway.audit.otlp().is_some().then(|| SpanContext::begin(&audit_id));
        context.span = parent.and_then(SpanContext::adopt).or_else(begun);
        let context: SharedContext = Arc::new(context);
        request.extensions_mut().insert(context.clone());
        let mut response = next.run(request).await;
        if let Ok(value) = HeaderValue::from_str(&audit_id) {
            response.headers_mut().insert("audit-id", value);
        }
        for warning in context.trace.warnings() {
            // 299 - "text", with what a quoted string cannot hold left out.
            let text: String = warning.chars().filter(|c| !c.is_control()).collect::<String>().replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
        gateway.metrics.record(&context, response.status().as_u16());
        Ok(response)
    }
}
