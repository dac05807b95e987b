//! What the run loop counts, under the names that Kubernetes' own components use.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

/// The counters of one component's queue.
#[derive(Debug, Default)]
pub struct Counters {
    adds: AtomicU64,
    retries: AtomicU64,
    depth: AtomicU64,
    rounds: AtomicU64,
    errors: AtomicU64,
    micros: AtomicU64,
}

impl Counters {
    pub(crate) fn add(&self) {
        self.adds.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn depth(&self, depth: usize) {
        self.depth.store(depth as u64, Ordering::Relaxed);
    }

    pub(crate) fn round(&self, took: Duration, failed: bool) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
        self.errors.fetch_add(u64::from(failed), Ordering::Relaxed);
        self.micros.fetch_add(took.as_micros().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How many rounds have been worked.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }
}

/// The counters of all components.
#[derive(Debug, Default)]
pub struct Metrics(Mutex<BTreeMap<&'static str, Arc<Counters>>>);

impl Metrics {
    /// The counters of a component.
    pub fn of(&self, name: &'static str) -> Arc<Counters> {
        self.0.lock().entry(name).or_default().clone()
    }

    /// All of them in Prometheus' text format.
    pub fn render(&self) -> String {
        type Read = fn(&Counters) -> f64;
        let families: [(&str, &str, &str, Read); 6] = [
            ("workqueue_adds_total", "counter", "Keys added.", |c| c.adds.load(Ordering::Relaxed) as f64),
            ("workqueue_retries_total", "counter", "Keys added again after a failure.", |c| c.retries.load(Ordering::Relaxed) as f64),
            ("workqueue_depth", "gauge", "Keys that are ready.", |c| c.depth.load(Ordering::Relaxed) as f64),
            ("component_reconcile_total", "counter", "Rounds of work.", |c| c.rounds.load(Ordering::Relaxed) as f64),
            ("component_reconcile_errors_total", "counter", "Rounds that failed.", |c| c.errors.load(Ordering::Relaxed) as f64),
            ("workqueue_work_duration_seconds_sum", "counter", "Seconds spent working.", |c| c.micros.load(Ordering::Relaxed) as f64 / 1e6),
        ];
        let all = self.0.lock();
        let mut text = String::new();
        for (name, kind, help, read) in families {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (component, counters) in all.iter() {
                let _ = writeln!(text, "{name}{{name=\"{component}\"}} {}", read(counters));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_rendered_by_component() {
        let metrics = Metrics::default();
        metrics.of("deployment-controller").add();
        assert!(metrics.render().contains("workqueue_adds_total{name=\"deployment-controller\"} 1"));
    }
}
