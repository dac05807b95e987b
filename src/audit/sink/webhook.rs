//! The webhook: events in batches, as an `EventList`, to the server that a kubeconfig names. A batch that is refused is tried again
//! with growing pauses; one that nobody takes after all is lost and counted.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Inlet, Outlet, Pieces};
use crate::authn::webhook_client::{Retry, WebhookClient};

/// How often a batch is tried.
const ATTEMPTS: u32 = 5;

/// How long one try may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where the webhook is, and how it is spoken to. The defaults are a real server's.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The kubeconfig.
    pub config_file: PathBuf,
    /// How many events may wait.
    pub buffer_size: usize,
    /// How many events a batch has at most.
    pub max_size: usize,
    /// How long an event waits for others.
    pub max_wait: Duration,
    /// How many batches a second; zero for any number.
    pub throttle_qps: f64,
    /// How many batches at once if there were none before.
    pub throttle_burst: u32,
    /// How long it waits before the second try; every further pause is half as long again.
    pub initial_backoff: Duration,
}

impl Settings {
    /// The webhook that a kubeconfig names.
    pub fn new(config_file: impl Into<PathBuf>) -> Self {
        Settings {
            config_file: config_file.into(),
            buffer_size: 10_000,
            max_size: 400,
            max_wait: Duration::from_secs(30),
            throttle_qps: 10.0,
            throttle_burst: 15,
            initial_backoff: Duration::from_secs(10),
        }
    }
}

/// Reads the kubeconfig and starts the sink. Whether somebody listens there shows later.
///
/// # Errors
/// What is wrong with the kubeconfig.
pub fn open(settings: &Settings) -> Result<Outlet, String> {
    let path = &settings.config_file;
    let wrong = |why: String| format!("--audit-webhook-config-file: {}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let config = crate::schema::yaml::parse(&text).map_err(wrong)?.value;
    let base = path.parent().unwrap_or(std::path::Path::new("."));
    let client = WebhookClient::from_kubeconfig(&config, base, TIMEOUT, Retry::default()).map_err(wrong)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| wrong(error.to_string()))?;
    let settings = settings.clone();
    Outlet::start("webhook", Pieces::Events, (settings.buffer_size, settings.max_size), move |inlet| {
        runtime.block_on(Sender { throttle: Throttle::new(&settings), settings, client, failing: false }.run(&inlet));
    })
}

struct Sender {
    settings: Settings,
    client: WebhookClient,
    throttle: Throttle,
    failing: bool,
}

impl Sender {
    async fn run(mut self, inlet: &Inlet) {
        let mut given_up = 0;
        loop {
            // Not on this thread, which has connections to look after meanwhile.
            let (queue, wait) = (inlet.queue.clone(), self.settings.max_wait);
            let Ok(Some(events)) = tokio::task::spawn_blocking(move || queue.take(wait)).await else { break };
            for batch in events.chunks(self.settings.max_size.max(1)) {
                tokio::select! {
                    biased;
                    () = inlet.give_up.cancelled() => {
                        inlet.tally.errors.fetch_add(batch.len() as u64, Ordering::Relaxed);
                        given_up += batch.len();
                    }
                    delivered = self.deliver(batch) => {
                        if !delivered {
                            inlet.tally.errors.fetch_add(batch.len() as u64, Ordering::Relaxed);
                        }
                    }
                }
                inlet.queue.finish(batch.len());
            }
        }
        if given_up > 0 {
            tracing::warn!(events = given_up, "audit events did not get to the webhook before the server stopped");
        }
    }

    async fn deliver(&mut self, batch: &[Bytes]) -> bool {
        let pause = self.throttle.pause(Instant::now());
        tokio::time::sleep(pause).await;
        let body = event_list(batch);
        let mut wait = self.settings.initial_backoff;
        for attempt in 1.. {
            // Whatever the reason: as a real server does, it is tried again.
            let error = match self.client.deliver(body.clone()).await {
                Ok(()) => {
                    if std::mem::take(&mut self.failing) {
                        tracing::info!("the audit webhook takes events again");
                    }
                    return true;
                }
                Err(failed) => failed,
            };
            if !std::mem::replace(&mut self.failing, true) {
                tracing::warn!(error, "the audit webhook does not take events");
            }
            if attempt >= ATTEMPTS {
                break;
            }
            tokio::time::sleep(wait).await;
            wait = wait.mul_f64(1.5);
        }
        false
    }
}

/// The body: the events are JSON already.
fn event_list(events: &[Bytes]) -> String {
    let mut body = String::with_capacity(events.iter().map(|event| event.len() + 1).sum::<usize>() + 80);
    body.push_str(r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#);
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            body.push(',');
        }
        // In a list an event does not say what it is.
        let text = String::from_utf8_lossy(event);
        match text.strip_prefix(r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","#) {
            Some(rest) => body.extend(["{", rest]),
            None => body.push_str(&text),
        }
    }
    body.push_str("]}");
    body
}

/// So many a second, and a few more after a rest.
struct Throttle {
    qps: f64,
    burst: f64,
    tokens: f64,
    last: Option<Instant>,
}

impl Throttle {
    fn new(settings: &Settings) -> Self {
        let burst = settings.throttle_burst.max(1) as f64;
        Throttle { qps: settings.throttle_qps, burst, tokens: burst, last: None }
    }

    /// How long the next one has to wait.
    fn pause(&mut self, now: Instant) -> Duration {
        if self.qps <= 0.0 {
            return Duration::ZERO;
        }
        let rested = self.last.map_or(0.0, |last| now.duration_since(last).as_secs_f64());
        self.last = Some(now);
        self.tokens = (self.tokens + rested * self.qps).min(self.burst) - 1.0;
        if self.tokens >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-self.tokens / self.qps) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_an_event_list() {
        let event = crate::audit::Event { kind: "Event".into(), api_version: "audit.k8s.io/v1".into(), ..Default::default() };
        let body = event_list(&[serde_json::to_vec(&event).unwrap().into(), Bytes::from_static(b"{\"b\":2}")]);
        let value: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((value["kind"].as_str(), value["items"].as_array().unwrap().len()), (Some("EventList"), 2));
        // As a real server sends it: only the list says what is in it.
        assert!(value["items"][0]["kind"].is_null() && value["items"][0]["level"] == "Metadata", "{body}");
    }

    #[test]
    fn batches_are_throttled_after_a_burst() {
        let settings = Settings { throttle_qps: 10.0, throttle_burst: 2, ..Settings::new("x") };
        let (mut throttle, now) = (Throttle::new(&settings), Instant::now());
        assert_eq!((throttle.pause(now), throttle.pause(now)), (Duration::ZERO, Duration::ZERO));
        assert_eq!(throttle.pause(now).as_millis(), 100);
        assert_eq!(throttle.pause(now + Duration::from_secs(5)), Duration::ZERO);
    }
}
