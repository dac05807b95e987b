//! Sinks that are slow, dead or full: requests do not notice, what is lost is counted, and what can be delivered later is.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use usher::audit::sink::{log, webhook};
use usher::gateway::pki::Pki;
use usher::gateway::{listener, tls};

use super::{admin, request, send};

const ANSWERS: u8 = 0;
const REFUSES: u8 = 1;
const HANGS: u8 = 2;

/// An audit webhook over TLS that can hang, refuse, die and come back.
pub(super) struct Collector {
    mood: Arc<AtomicU8>,
    pub(super) batches: Arc<Mutex<Vec<Value>>>,
    calls: Arc<AtomicUsize>,
    pki: Pki,
    port: u16,
    stop: CancellationToken,
}

impl Collector {
    pub(super) async fn start() -> Collector {
        Collector::with(Pki::open(None, &["127.0.0.1".into()]).unwrap()).await
    }

    async fn with(pki: Pki) -> Collector {
        let mut collector = Collector {
            mood: Arc::default(),
            batches: Arc::default(),
            calls: Arc::default(),
            pki,
            port: 0,
            stop: CancellationToken::new(),
        };
        collector.serve().await;
        collector
    }

    async fn serve(&mut self) {
        let (mood, batches, calls) = (self.mood.clone(), self.batches.clone(), self.calls.clone());
        let handler = move |body: Bytes| {
            let (mood, batches, calls) = (mood.clone(), batches.clone(), calls.clone());
            async move {
                calls.fetch_add(1, Ordering::SeqCst);
                match mood.load(Ordering::SeqCst) {
                    // Nothing that another try would help with, one would think; but an event is not given up so easily.
                    REFUSES => return StatusCode::BAD_REQUEST,
                    HANGS => std::future::pending().await,
                    _ => {}
                }
                batches.lock().push(serde_json::from_slice(&body).unwrap());
                StatusCode::OK
            }
        };
        let socket = loop {
            match tokio::net::TcpListener::bind(("127.0.0.1", self.port)).await {
                Ok(socket) => break socket,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        self.port = socket.local_addr().unwrap().port();
        let config = tls::server_config(self.pki.serving.as_bytes(), self.pki.serving_key.as_bytes()).unwrap();
        self.stop = CancellationToken::new();
        tokio::spawn(listener::serve(socket, config, Router::new().fallback(handler), self.stop.clone()));
    }

    pub(super) fn settings(&self, directory: &std::path::Path) -> webhook::Settings {
        use base64::Engine;
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.pki.ca);
        let path: PathBuf = directory.join("webhook.yaml");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: h}}}}]\nclusters: [{{name: h, cluster: {{server: 'https://127.0.0.1:{}/audit', certificate-authority-data: {ca}}}}}]\n",
            self.port
        );
        std::fs::write(&path, text).unwrap();
        webhook::Settings {
            max_wait: Duration::from_millis(20),
            max_size: 10,
            throttle_qps: 0.0,
            initial_backoff: Duration::from_millis(20),
            ..webhook::Settings::new(path)
        }
    }

    fn ids(&self) -> Vec<String> {
        let batches = self.batches.lock();
        let items = batches.iter().flat_map(|batch| batch["items"].as_array().unwrap().clone());
        items.map(|event| event["auditID"].as_str().unwrap().to_owned()).collect()
    }
}

pub(super) async fn eventually(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !what() {
        assert!(Instant::now() < end, "did not happen in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_webhook_may_be_its_own_authority() {
    let directory = tempfile::tempdir().unwrap();
    let mut asked = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    asked.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let own = asked.self_signed(&key).unwrap().pem();
    let mut pki = Pki::open(None, &["127.0.0.1".into()]).unwrap();
    (pki.ca, pki.serving, pki.serving_key) = (own.clone(), own, key.serialize_pem());
    let collector = Collector::with(pki).await;
    let mut builder = crate::builder();
    builder.audit.webhook = Some(collector.settings(directory.path()));
    let server = builder.start().await.unwrap();
    let (_, id) = send(&server, request(Method::GET, "/version", &admin(), None)).await;
    eventually(|| collector.ids().contains(&id)).await;
}

#[tokio::test]
async fn a_webhook_gets_batches_and_gets_them_again_after_it_failed_or_was_away() {
    let directory = tempfile::tempdir().unwrap();
    let mut collector = Collector::start().await;
    let mut builder = crate::builder();
    builder.audit.webhook = Some(collector.settings(directory.path()));
    let server = builder.start().await.unwrap();
    let ask = async || send(&server, request(Method::GET, "/version", &admin(), None)).await.1;
    let first = ask().await;
    eventually(|| collector.ids().contains(&first)).await;
    {
        let batches = collector.batches.lock();
        assert!(batches.iter().all(|batch| batch["kind"] == "EventList" && batch["apiVersion"] == "audit.k8s.io/v1"));
        assert!(batches.iter().all(|batch| (1..=10).contains(&batch["items"].as_array().unwrap().len())));
        let mut events = batches.iter().flat_map(|batch| batch["items"].as_array().unwrap());
        assert!(events.all(|event| event.get("trace").is_none() && event.get("kind").is_none() && event["level"] == "Metadata"));
    }
    // Refused once, taken at the second try.
    collector.mood.store(REFUSES, Ordering::SeqCst);
    let calls = collector.calls.load(Ordering::SeqCst);
    let second = ask().await;
    eventually(|| collector.calls.load(Ordering::SeqCst) > calls).await;
    collector.mood.store(ANSWERS, Ordering::SeqCst);
    eventually(|| collector.ids().contains(&second)).await;
    // Dead, and back.
    collector.stop.cancel();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let lost = ask().await;
    collector.serve().await;
    let third = ask().await;
    eventually(|| collector.ids().contains(&third)).await;
    assert!(!third.is_empty() && !lost.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_that_hangs_slows_no_request_and_what_is_dropped_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start().await;
    collector.mood.store(HANGS, Ordering::SeqCst);
    let mut builder = crate::builder();
    builder.audit.webhook = Some(webhook::Settings { buffer_size: 20, ..collector.settings(directory.path()) });
    builder.audit.log = Some(log::Settings::new(directory.path().join("audit.log")));
    let server = builder.start().await.unwrap();
    let since = Instant::now();
    let mut last = String::new();
    for _ in 0..20 {
        for _ in 0..10 {
            last = send(&server, request(Method::GET, "/version", &admin(), None)).await.1;
        }
        server.audit().flush().await;
    }
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    let metrics = server.audit().metrics();
    let dropped = metrics.lines().find_map(|line| line.strip_prefix("usher_audit_dropped_total{sink=\"webhook\"} ")).unwrap();
    assert!(dropped.parse::<u64>().unwrap() > 100, "{metrics}");
    assert!(metrics.contains("usher_audit_dropped_total{sink=\"log\"} 0"), "{metrics}");
    let missed = server.audit().missed();
    let of = |name: &str| missed.iter().find(|sink| sink.name == name).unwrap().dropped;
    assert_eq!((of("webhook").to_string().as_str(), of("log"), of("recorder")), (dropped, 0, 0));
    // The other sink, and the archive, have everything.
    assert_eq!(super::events(&server, &last).await.len(), 1);
    eventually(|| std::fs::read_to_string(directory.path().join("audit.log")).unwrap().contains(&last)).await;
    let since = Instant::now();
    server.stop().await;
    assert!(since.elapsed() < Duration::from_secs(15), "a hanging sink does not hold up the end for ever");
}

#[tokio::test]
async fn the_log_is_set_aside_when_it_is_full_and_no_line_is_lost_or_cut() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("logs").join("audit.log");
    let mut builder = crate::builder();
    builder.audit.log = Some(log::Settings { max_size: 20_000, max_backups: 0, ..log::Settings::new(&path) });
    let server = builder.start().await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..100 {
        ids.push(send(&server, request(Method::GET, "/version", &admin(), None)).await.1);
    }
    server.stop().await;
    let files: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 2, "{files:?}");
    let mut written = Vec::new();
    for file in &files {
        assert!(std::fs::metadata(file).unwrap().len() <= 20_000);
        let text = std::fs::read_to_string(file).unwrap();
        written.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["auditID"].as_str().unwrap().to_owned()));
    }
    assert!(ids.iter().all(|id| written.iter().filter(|written| *written == id).count() == 1));
}

#[test]
fn where_events_go_to_standard_output_nothing_else_does() {
    use std::io::{BufRead, BufReader, Read};
    let directory = tempfile::tempdir().unwrap();
    let mut server = std::process::Command::new(env!("CARGO_BIN_EXE_usher"))
        .args(["up", "--audit-log", "-", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(directory.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(server.stdout.take().unwrap());
    let mut told = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(told.any(|line| line.starts_with("ready in ")), "it is told elsewhere that the server is ready");
    let mut text = String::new();
    // What runs in the server asks it for something at once.
    out.read_line(&mut text).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    out.read_to_string(&mut text).unwrap();
    // Whoever is killed may be within a line.
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    assert!(whole.lines().count() > 0);
    for line in whole.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok_and(|event| event["kind"] == "Event"), "{line}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_none_and_the_batch_is_sent_again() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let directory = tempfile::tempdir().unwrap();
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let path = directory.path().join("webhook.yaml");
    let cluster = format!("{{server: 'http://{}'}}", socket.local_addr().unwrap());
    let text =
        format!("{{current-context: c, contexts: [{{name: c, context: {{cluster: h}}}}], clusters: [{{name: h, cluster: {cluster}}}]}}");
    std::fs::write(&path, text).unwrap();
    let mut builder = crate::builder();
    builder.audit.webhook = Some(webhook::Settings {
        max_wait: Duration::from_millis(20),
        initial_backoff: Duration::from_millis(1),
        ..webhook::Settings::new(path)
    });
    let server = builder.start().await.unwrap();
    send(&server, request(Method::GET, "/version", &admin(), None)).await;
    // Says that all is well and more is to come, and is gone before it came.
    let mut bodies = Vec::new();
    for answer in ["HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"] {
        let (mut connection, _) = tokio::time::timeout(Duration::from_secs(20), socket.accept()).await.expect("it is tried again").unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"]}") {
            assert!(connection.read_buf(&mut read).await.unwrap() > 0);
        }
        let start = memchr::memmem::find(&read, b"\r\n\r\n").unwrap();
        bodies.push(read.split_off(start));
        connection.write_all(answer.as_bytes()).await.unwrap();
    }
    assert_eq!(bodies[0], bodies[1]);
    server.audit().flush_sinks().await;
    assert!(server.audit().metrics().contains("apiserver_audit_error_total{plugin=\"webhook\"} 0"));
}
