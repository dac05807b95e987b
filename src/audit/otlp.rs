//! Traces for whoever collects them elsewhere: one span per request and one per step, sent as OTLP over HTTP in its JSON form.
//!
//! What is offered is queued in a bounded channel and sent in batches by a task of its own. A collector that is slow or gone costs
//! spans, which are counted, and nothing else. Spans say who decided what; they carry no bodies and no patches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Event;
use crate::request::SpanContext;
use crate::request::span::new_span_id;

/// How many requests may wait to be sent.
const WAITING: usize = 8_192;
/// How many requests are sent together.
const BATCH: usize = 256;
/// How long a batch may gather.
const GATHER: Duration = Duration::from_millis(500);
/// How long the collector may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often a batch is tried.
const TRIES: u32 = 3;
/// How long a stopping server waits for the last batch.
const PATIENCE: Duration = Duration::from_secs(2);

/// Sends spans to a collector.
pub struct Exporter {
    sender: parking_lot::Mutex<Option<mpsc::Sender<Vec<Value>>>>,
    counts: Arc<Counts>,
    task: parking_lot::Mutex<Option<tokio::task::JoinHandle<()>>>,
}

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    dropped: AtomicU64,
}

impl Exporter {
    /// Starts sending to an endpoint such as `http://127.0.0.1:4318`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If that is no endpoint.
    pub fn start(endpoint: &str) -> Result<Self, String> {
        let url = traces_url(endpoint)?;
        let client = reqwest::Client::builder().timeout(TIMEOUT).build().map_err(|e| format!("--otlp-endpoint: {e}"))?;
        let (sender, receiver) = mpsc::channel(WAITING);
        let counts = Arc::new(Counts::default());
        let task = tokio::spawn(send(client, url, receiver, counts.clone()));
        Ok(Exporter { sender: parking_lot::Mutex::new(Some(sender)), counts, task: parking_lot::Mutex::new(Some(task)) })
    }

    /// Hands over a finished request. Never waits.
    pub fn offer(&self, event: &Event, span: &SpanContext) {
        if !span.sampled {
            return;
        }
        let spans = spans(event, span);
        let count = spans.len() as u64;
        let taken = self.sender.lock().as_ref().is_some_and(|sender| sender.try_send(spans).is_ok());
        if !taken {
            self.counts.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Sends what waits and ends, or gives up when patience is at its end.
    pub async fn stop(&self) {
        self.sender.lock().take();
        let task = self.task.lock().take();
        if let Some(task) = task {
            let _ = tokio::time::timeout(PATIENCE, task).await;
        }
    }

    /// How many spans were sent, and how many were dropped.
    pub fn counts(&self) -> (u64, u64) {
        (self.counts.sent.load(Ordering::Relaxed), self.counts.dropped.load(Ordering::Relaxed))
    }

    /// What `/metrics` shows of it.
    pub fn metrics(&self) -> String {
        let (sent, dropped) = self.counts();
        format!(
            "# HELP usher_otlp_spans_sent_total Spans that the collector took.\n# TYPE usher_otlp_spans_sent_total counter\n\
             usher_otlp_spans_sent_total {sent}\n\
             # HELP usher_otlp_spans_dropped_total Spans dropped because the collector was slow or gone.\n\
             # TYPE usher_otlp_spans_dropped_total counter\nusher_otlp_spans_dropped_total {dropped}\n"
        )
    }
}

/// Where traces go at an endpoint: the path that OTLP says, unless another is given.
fn traces_url(endpoint: &str) -> Result<String, String> {
    let uri: http::Uri = endpoint.parse().map_err(|e| format!("--otlp-endpoint takes a URL such as http://127.0.0.1:4318: {e}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        // Not quoted: it may have a password in it.
        return Err("--otlp-endpoint takes a URL such as http://127.0.0.1:4318".into());
    }
    Ok(match uri.path() {
        "" | "/" => format!("{}/v1/traces", endpoint.trim_end_matches('/')),
        _ => endpoint.to_owned(),
    })
}

async fn send(client: reqwest::Client, url: String, mut receiver: mpsc::Receiver<Vec<Value>>, counts: Arc<Counts>) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut failing = false;
    while receiver.recv_many(&mut batch, BATCH).await > 0 {
        if batch.len() < BATCH {
            let more = async { while batch.len() < BATCH && receiver.recv_many(&mut batch, 1).await > 0 {} };
            let _ = tokio::time::timeout(GATHER, more).await;
        }
        let spans: Vec<Value> = batch.drain(..).flatten().collect();
        let count = spans.len() as u64;
        let sent = post(&client, &url, &document(spans)).await;
        let counter = if sent { &counts.sent } else { &counts.dropped };
        counter.fetch_add(count, Ordering::Relaxed);
        match (sent, std::mem::replace(&mut failing, !sent)) {
            (false, false) => tracing::warn!("the collector does not take spans; they are dropped"),
            (true, true) => tracing::info!("the collector takes spans again"),
            _ => {}
        }
    }
}

/// Whether the collector took it, after a few tries.
async fn post(client: &reqwest::Client, url: &str, document: &Value) -> bool {
    for attempt in 0..TRIES {
        if attempt > 0 {
            tokio::time::sleep(Duration::from_secs(1 << (attempt - 1))).await;
        }
        match client.post(url).json(document).send().await {
            Ok(response) if response.status().is_success() => return true,
            // Only these are worth another try.
            Ok(response) if !matches!(response.status().as_u16(), 429 | 502 | 503 | 504) => {
                tracing::debug!(status = %response.status(), "the collector refused spans");
                return false;
            }
            Ok(_) => {}
            // A URL may have a key in it.
            Err(error) => tracing::debug!(error = %error.without_url(), "the collector cannot be reached"),
        }
    }
    false
}

/// An ExportTraceServiceRequest.
fn document(spans: Vec<Value>) -> Value {
    let resource = json!({"attributes": [text("service.name", "usher"), text("service.version", crate::version::USHER)]});
    json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "usher"}, "spans": spans}]}]})
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn number(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

/// What OTLP calls the kinds of spans.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

/// The spans of a request: its own, and one for each step.
pub fn spans(event: &Event, span: &SpanContext) -> Vec<Value> {
    let story = event.trace.as_deref();
    let received = event.request_received_timestamp.map_or(0, |at| at.as_nanosecond());
    let took = i128::from(story.map_or(0, |story| story.took)) * 1_000;
    let (trace_id, own_id) = (span.trace_id(), format!("{:016x}", span.span_id));
    let object = event.object_ref.clone().unwrap_or_default();
    let path = event.request_uri.split('?').next().unwrap_or_default();
    let name = if object.resource.is_empty() { format!("{} {path}", event.verb) } else { format!("{} {}", event.verb, object.resource) };
    let mut attributes = vec![
        text("audit-id", &event.audit_id),
        text("url.path", path),
        text("user.name", &event.effective_user().username),
        text("user_agent.original", &event.user_agent),
        number("http.response.status_code", event.code().into()),
    ];
    for (key, value) in [
        ("k8s.resource", &object.resource),
        ("k8s.subresource", &object.subresource),
        ("k8s.group", &object.api_group),
        ("k8s.namespace.name", &object.namespace),
        ("k8s.name", &object.name),
    ] {
        if !value.is_empty() {
            attributes.push(text(key, value));
        }
    }
    if let Some(wrote) = story.and_then(|story| story.wrote.as_ref()) {
        attributes.push(number("k8s.revision", wrote.revision));
    }
    if let Some(cause) = story.and_then(|story| story.cause) {
        attributes.push(number("usher.cause", cause));
    }
    // As conventions have it, a client's mistake is no error of the server's span.
    let status = if event.code() >= 500 { json!({"code": 2}) } else { json!({}) };
    let mut root = json!({
        "traceId": trace_id, "spanId": own_id, "name": name, "kind": SERVER, "attributes": attributes, "status": status,
        "startTimeUnixNano": received.to_string(), "endTimeUnixNano": (received + took).to_string(),
    });
    if let Some(parent) = span.parent {
        root["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    let mut spans = vec![root];
    for step in story.into_iter().flat_map(|story| &story.steps) {
        let end = received + step.at.as_nanos() as i128;
        let start = end - step.took.as_nanos() as i128;
        let verdict = step.verdict.split(": ").next().unwrap_or_default();
        let called = matches!(&*step.hop, "mutate" | "validate") && step.detail.as_ref().is_some_and(|d| d.get("configuration").is_some());
        let kind = if called && verdict != "skipped" { CLIENT } else { INTERNAL };
        spans.push(json!({
            "traceId": trace_id, "spanId": format!("{:016x}", new_span_id()), "parentSpanId": own_id,
            "name": format!("{} {}", step.hop, step.name), "kind": kind, "status": {},
            "attributes": [text("usher.hop", &step.hop), text("usher.verdict", verdict)],
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": end.to_string(),
        }));
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Story;
    use crate::request::Step;

    fn event() -> Event {
        let step = |hop: &'static str, detail: Value| Step {
            hop: hop.into(),
            name: "x".into(),
            verdict: "denied: planted".into(),
            detail: Some(detail),
            at: Duration::from_micros(500),
            took: Duration::from_micros(200),
        };
        Event {
            verb: "create".into(),
            request_uri: "/api/v1/namespaces/a/pods?token=planted".into(),
            request_received_timestamp: jiff::Timestamp::from_second(1_800_000_000).ok(),
            trace: Some(Box::new(Story {
                took: 1_000,
                steps: vec![step("authorize", json!({})), step("mutate", json!({"configuration": "c", "patch": "planted"}))],
                ..Story::default()
            })),
            ..Event::default()
        }
    }

    #[test]
    fn a_request_is_a_span_and_every_step_is_one_below_it() {
        let span = SpanContext::adopt("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").expect("valid");
        let spans = spans(&event(), &span);
        assert_eq!(spans.len(), 3);
        assert_eq!(
            (&spans[0]["traceId"], &spans[0]["parentSpanId"]),
            (&json!("4bf92f3577b34da6a3ce929d0e0e4736"), &json!("00f067aa0ba902b7"))
        );
        assert_eq!(spans[0]["endTimeUnixNano"], "1800000000001000000");
        assert_eq!((&spans[1]["parentSpanId"], &spans[1]["startTimeUnixNano"]), (&spans[0]["spanId"], &json!("1800000000000300000")));
        assert_eq!((&spans[1]["kind"], &spans[2]["kind"]), (&json!(INTERNAL), &json!(CLIENT)));
        assert!(!json!(spans).to_string().contains("planted"), "no query, no patch and no message leaves the server");
    }

    #[test]
    fn an_endpoint_is_a_url_with_or_without_the_path() {
        assert_eq!(traces_url("http://h:4318").as_deref(), Ok("http://h:4318/v1/traces"));
        assert_eq!(traces_url("http://h:4318/").as_deref(), Ok("http://h:4318/v1/traces"));
        assert_eq!(traces_url("https://h/otlp/v1/traces").as_deref(), Ok("https://h/otlp/v1/traces"));
        assert!(traces_url("h:4318").is_err() && traces_url("").is_err());
    }

    #[tokio::test]
    async fn a_collector_that_is_gone_costs_spans_and_no_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let exporter = Exporter::start(&url).expect("starts");
        let span = SpanContext::begin("id");
        let begin = std::time::Instant::now();
        // The collector accepts and never answers.
        for _ in 0..WAITING + BATCH + 10 {
            exporter.offer(&event(), &span);
        }
        assert!(begin.elapsed() < TIMEOUT, "nobody waited for the collector");
        assert!(exporter.counts().1 > 0, "what did not fit is counted");
        exporter.offer(&event(), &SpanContext { sampled: false, ..span });
    }
}
