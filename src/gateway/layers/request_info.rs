//! What the request is about, and its Audit-ID: read once, used by everybody. Counts the request when it is answered.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, Request, header};

use super::{Layer, Next, Refused};
use crate::gateway::Gateway;
use crate::request::span::{SpanContext, TRACEPARENT};
use crate::request::{Context, SharedContext, parse};

/// See the module.
#[derive(Clone, Copy)]
pub struct Info;

impl Layer for Info {
    async fn call(&self, gateway: &Arc<Gateway>, mut request: Request<Body>, next: &impl Next) -> Result<Response, Refused> {
        let headers = request.headers();
        // Whatever a client calls its request, and itself, is taken over; what is no UTF-8 of it is replaced.
        let text = |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default();
        let audit_id: Arc<str> = match text("audit-id") {
            id if id.is_empty() => uuid::Uuid::new_v4().to_string().into(),
            id => id.into(),
        };
        let agent = text("user-agent").into_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let info = parse(request.method().as_str(), request.uri().path(), &query);
        let parent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
        let mut context = Context::new(info, &query, audit_id.clone(), &agent);
        let begun = || gateway.audit.otlp().is_some().then(|| SpanContext::begin(&audit_id));
        context.span = parent.and_then(SpanContext::adopt).or_else(begun);
        let context: SharedContext = Arc::new(context);
        request.extensions_mut().insert(context.clone());
        let mut response = next.run(request).await;
        if let Ok(value) = HeaderValue::from_bytes(audit_id.as_bytes()) {
            response.headers_mut().insert("audit-id", value);
        }
        for warning in warnings(&context.trace.warnings()) {
            if let Ok(value) = HeaderValue::from_str(&warning) {
                response.headers_mut().append(header::WARNING, value);
            }
        }
        gateway.metrics.record(&context, response.status().as_u16());
        Ok(response)
    }
}

/// How much all warnings of a response may hold before each of them is cut, and where they are then cut.
const MOST_WARNED: usize = 4 * 1024;
const LONGEST_WARNING: usize = 256;

/// The values of the `Warning` header: `299 - "text"`. What no quoted string can hold is not told at all; where all together are too
/// much, each is cut, and what comes after enough of them is left out.
fn warnings(texts: &[String]) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let tellable = |text: &&String| !text.is_empty() && !text.chars().any(char::is_control);
    let all = texts.iter().filter(|text| !text.is_empty()).filter(tellable);
    let cuts = all.clone().map(|text| length(text)).sum::<usize>() > MOST_WARNED;
    let mut told = 0;
    let mut values = Vec::new();
    for text in all {
        if cuts && told >= MOST_WARNED {
            break;
        }
        let shown: String = if cuts { text.chars().take(LONGEST_WARNING).collect() } else { text.clone() };
        told += length(&shown);
        values.push(format!("299 - \"{}\"", shown.replace('\\', "\\\\").replace('"', "\\\"")));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_cut_only_where_there_is_too_much_of_them() {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(warnings(&texts(&["a \"b\" \\", "", "new\nline"])), ["299 - \"a \\\"b\\\" \\\\\""]);
        let long = "x".repeat(4000);
        assert_eq!(warnings(&texts(&[&long]))[0].len(), 4008, "one long warning is whole");
        let cut = warnings(&texts(&[&"y".repeat(5000), "z"]));
        assert_eq!((cut[0].len(), cut[1].as_str()), (264, "299 - \"z\""));
        let many: Vec<String> = (0..40).map(|i| format!("{i:02}{}", "q".repeat(300))).collect();
        assert_eq!(warnings(&many).len(), 16, "then the rest is silence");
    }
}
