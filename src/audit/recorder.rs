//! The recorder: one thread that makes events of finished requests and hands them to the archive and the sinks. A request pays for
//! one entry in a bounded queue and never waits; what does not fit is dropped, counted, and told.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::archive::Missed;
use super::lines::Lines;
use super::lists::Lists;
use super::otlp::Exporter;
use super::policy::Policy;
use super::queue::Queue;
use super::record::{Bodies, Record};
use super::sink::{self, Outlet};
use super::under_way::UnderWay;
use super::{Archive, Event, Level, Stage};
use crate::authn::reload;

/// How many requests may wait for the recorder.
const MOST: usize = 1 << 16;

/// How many bytes of captured bodies may wait for it.
const MOST_BYTES: usize = 128 << 20;

/// How long it waits for a batch to fill.
const GATHER: Duration = Duration::from_millis(2);

/// How many requests are a batch worth starting on at once.
const ENOUGH: usize = 1024;

/// How many of a batch are written together.
const PIECE: usize = 128;

/// How many bytes of lines are handed to the sinks together, about.
const FULL: usize = 1 << 20;

/// How often drops are told.
const TELL: Duration = Duration::from_secs(10);

/// How long a stopping server waits for what is still to be written.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is recorded, and where it goes.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The policy; without one, Metadata of everything.
    pub policy: Option<PathBuf>,
    /// The log file.
    pub log: Option<sink::log::Settings>,
    /// The webhook.
    pub webhook: Option<sink::webhook::Settings>,
    /// Where spans go, if anywhere.
    pub otlp_endpoint: Option<String>,
    /// How many bytes the archive keeps at most.
    pub store_max_size: Option<u64>,
    /// How long the archive keeps them.
    pub store_max_age: Option<Duration>,
}

/// The audit of a running server.
pub struct Audit {
    /// Every event with the story of its request.
    pub archive: Arc<Archive>,
    /// The requests that are not over yet.
    pub under_way: UnderWay,
    policy: Arc<ArcSwap<Policy>>,
    shared: Arc<Shared>,
    otlp: Option<Arc<Exporter>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    _reload: Option<reload::Watch>,
}

struct Shared {
    queue: Queue<Record>,
    outlets: Vec<Outlet>,
    dropped: AtomicU64,
    events: AtomicU64,
    levels: [AtomicU64; 4],
}

impl Audit {
    /// Reads the policy, opens the sinks and starts the thread. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn start(settings: &Settings, archive: Arc<Archive>, bodies: Arc<dyn Bodies>) -> Result<Self, String> {
        let policy = Arc::new(ArcSwap::from_pointee(Policy::default()));
        let reload = match &settings.policy {
            None => None,
            Some(path) => {
                let (policy, file) = (policy.clone(), path.clone());
                let take = move |bytes: &[u8]| {
                    let read = Policy::parse(bytes)?;
                    if let Some(ignored) = read.ignored() {
                        tracing::warn!(file = %file.display(), "the audit policy contains errors that are passed over: {ignored}");
                    }
                    policy.store(Arc::new(read));
                    Ok(())
                };
                Some(reload::file(path, take).map_err(|why| refusal(path, &why))?)
            }
        };
        // The log last, because it alone is made: nothing is where the rest is wrong.
        let webhook = settings.webhook.as_ref().map(sink::webhook::open).transpose()?;
        let otlp = settings.otlp_endpoint.as_deref().map(Exporter::start).transpose()?.map(Arc::new);
        let log = settings.log.as_ref().map(sink::log::open).transpose()?;
        let outlets = log.into_iter().chain(webhook).collect();
        let shared = Arc::new(Shared {
            queue: Queue::new(MOST, MOST_BYTES, ENOUGH),
            outlets,
            dropped: AtomicU64::new(0),
            events: AtomicU64::new(0),
            levels: Default::default(),
        });
        let worker = Worker { shared: shared.clone(), policy: policy.clone(), archive: archive.clone(), bodies, otlp: otlp.clone() };
        let thread = std::thread::Builder::new()
            .name("audit".into())
            .spawn(move || worker.run())
            .map_err(|error| format!("cannot start the recorder: {error}"))?;
        Ok(Audit { archive, under_way: UnderWay::default(), policy, shared, otlp, thread: Mutex::new(Some(thread)), _reload: reload })
    }

    /// The policy in force.
    pub fn policy(&self) -> arc_swap::Guard<Arc<Policy>> {
        self.policy.load()
    }

    /// Whether anybody but the archive gets events, which alone wants to know of requests that have only arrived.
    pub fn has_sinks(&self) -> bool {
        !self.shared.outlets.is_empty()
    }

    /// What sends spans elsewhere, if something does.
    pub fn otlp(&self) -> Option<&Exporter> {
        self.otlp.as_deref()
    }

    /// Hands over a request. Never waits.
    pub fn record(&self, record: Record) {
        let weight = record.weight();
        // One that ends when everything is closed was too late, and no sink too slow.
        if !self.shared.queue.push(record, weight) && !self.shared.queue.is_closed() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until every request that has been handed over is in the archive.
    pub async fn flush(&self) {
        self.shared.queue.drained().await;
    }

    /// Waits until the sinks, too, have written everything that they were given.
    pub async fn flush_sinks(&self) {
        self.flush().await;
        for outlet in &self.shared.outlets {
            outlet.drained().await;
        }
    }

    /// Waits for the requests that are under way, and ends the recorder and the sinks after they have written what is there; or when
    /// patience is at its end.
    pub async fn stop(&self) {
        self.under_way.end().await;
        self.shared.queue.close();
        let thread = self.thread.lock().take();
        let shared = self.shared.clone();
        let ending = tokio::task::spawn_blocking(move || {
            if let Some(thread) = thread {
                let _ = thread.join();
            }
            let end = Instant::now() + PATIENCE;
            shared.outlets.iter().for_each(|outlet| outlet.stop(end));
        });
        if tokio::time::timeout(PATIENCE * 2, ending).await.is_err() {
            tracing::warn!("stopped before every audit event was written");
        }
        if let Some(otlp) = &self.otlp {
            otlp.stop().await;
        }
    }

    /// What did not get to where it should.
    pub fn missed(&self) -> Vec<Missed> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of = |outlet: &Outlet| Missed {
            name: outlet.name.to_owned(),
            dropped: count(&outlet.tally.dropped),
            failed: count(&outlet.tally.errors),
        };
        let recorder = Missed { name: "recorder".to_owned(), dropped: count(&self.shared.dropped), failed: 0 };
        [recorder].into_iter().chain(self.shared.outlets.iter().map(of)).collect()
    }

    /// What `/metrics` shows of it.
    pub fn metrics(&self) -> String {
        let mut out = String::new();
        let shared = &self.shared;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut family = |name: &str, help: &str, series: &[(String, u64)]| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
            for (labels, value) in series {
                let _ = writeln!(out, "{name}{labels} {value}");
            }
        };
        family("apiserver_audit_event_total", "Audit events made and handed to the sinks.", &[(String::new(), count(&shared.events))]);
        let levels = ["None", "Metadata", "Request", "RequestResponse"];
        let series: Vec<_> =
            levels.iter().zip(&shared.levels).map(|(name, value)| (format!("{{level=\"{name}\"}}"), count(value))).collect();
        family("apiserver_audit_level_total", "Requests by the level at which the policy wants them.", &series);
        let missed = self.missed();
        let (recorder, sinks) = missed.split_at(1);
        let series: Vec<_> = sinks.iter().map(|sink| (format!("{{plugin=\"{}\"}}", sink.name), sink.failed)).collect();
        family("apiserver_audit_error_total", "Audit events that a sink failed to take.", &series);
        let dropped = |sink: &Missed| (format!("{{sink=\"{}\"}}", sink.name), sink.dropped);
        let archive = ("{sink=\"archive\"}".to_owned(), self.archive.kept().lost);
        let series: Vec<_> = recorder.iter().map(dropped).chain([archive]).chain(sinks.iter().map(dropped)).collect();
        family("usher_audit_dropped_total", "Audit events dropped because a sink was slower than the requests.", &series);
        out.push_str(&self.otlp.as_ref().map(|otlp| otlp.metrics()).unwrap_or_default());
        out
    }
}

/// Why a policy cannot be used, in a real server's words.
fn refusal(path: &Path, why: &str) -> String {
    let file = path.display();
    match why.strip_prefix(&format!("{file}: ")) {
        Some(why) => format!("loading audit policy file: {why}: from file {file}"),
        None => format!("--audit-policy: {why}"),
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.shared.queue.close();
        // It holds the store, by way of who reads bodies for it: gone with the server, not a moment later.
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        self.shared.outlets.iter().for_each(Outlet::close);
    }
}

struct Worker {
    shared: Arc<Shared>,
    policy: Arc<ArcSwap<Policy>>,
    archive: Arc<Archive>,
    bodies: Arc<dyn Bodies>,
    otlp: Option<Arc<Exporter>>,
}

impl Worker {
    fn run(self) {
        let mut told = (Instant::now(), 0);
        let (mut records, mut lines, mut lists) = (Vec::new(), Lines::default(), Lists::default());
        while self.shared.queue.take_into(&mut records, GATHER) {
            let taken = records.len();
            let mut rest = records.drain(..);
            while rest.len() > 0 {
                // Piece by piece: whoever asks the archive meanwhile does not wait long.
                self.archive.append(rest.by_ref().take(PIECE).filter_map(|record| self.event(record, &mut lines, &mut lists)));
                self.offer(&mut lines);
            }
            drop(rest);
            self.shared.queue.finish(taken);
            if told.0.elapsed() >= TELL || told.1 == 0 {
                told = self.tell(told);
            }
        }
        self.tell(told);
    }

    /// The event of a request, for the archive; its line for the sinks is written by then.
    fn event(&self, record: Record, lines: &mut Lines, lists: &mut Lists) -> Option<Box<Event>> {
        let arrival = record.arrival.clone();
        let context = &arrival.context;
        let evaluate = || self.policy.load().evaluate(context.authenticated().map(|user| &**user), &context.info);
        let scope = record.scope.unwrap_or_else(evaluate);
        let (stage, archived) = (record.stage, record.stage != Stage::RequestReceived);
        if !record.goes_on {
            self.shared.levels[scope.level as usize].fetch_add(1, Ordering::Relaxed);
        }
        let recorded = scope.level > Level::None && !scope.omit_stages.contains(stage);
        if !recorded && !archived {
            return None;
        }
        let span = context.span;
        let event = record.into_event(scope, &*self.bodies, lists);
        if recorded {
            self.shared.events.fetch_add(1, Ordering::Relaxed);
            if !self.shared.outlets.is_empty() {
                lines.add(&event);
                if lines.len() >= FULL {
                    self.offer(lines);
                }
            }
        }
        if let (Some(otlp), Some(span), Stage::ResponseComplete | Stage::Panic) = (&self.otlp, span, stage) {
            otlp.offer(&event, &span);
        }
        if !archived {
            // What was said of the arrival is said of the end once more.
            arrival.keep(event);
            return None;
        }
        Some(event)
    }

    fn offer(&self, lines: &mut Lines) {
        if let Some(lines) = lines.take() {
            self.shared.outlets.iter().for_each(|outlet| outlet.offer(&lines));
        }
    }

    /// Says how much was dropped since it was last said.
    fn tell(&self, (last, known): (Instant, u64)) -> (Instant, u64) {
        let counts = self.shared.outlets.iter().map(|outlet| (outlet.name, outlet.tally.dropped.load(Ordering::Relaxed)));
        let counts: Vec<_> = counts.chain([("recorder", self.shared.dropped.load(Ordering::Relaxed))]).filter(|(_, n)| *n > 0).collect();
        let dropped: u64 = counts.iter().map(|(_, n)| n).sum();
        if dropped <= known {
            return (last, known);
        }
        let sinks: Vec<String> = counts.iter().map(|(name, n)| format!("{name}: {n}")).collect();
        tracing::warn!(dropped = dropped - known, in_all = sinks.join(", "), "audit events were dropped because a sink is too slow");
        (Instant::now(), dropped)
    }
}
