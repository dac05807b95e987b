//! What `/metrics` shows, in the Prometheus text format and under the names that dashboards know.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::api::Api;
use crate::request::Context;

/// The upper bounds of the latency histogram, in seconds.
const BOUNDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Requests by what they were about and how they ended.
#[derive(Default)]
pub struct Metrics {
    /// By a hash of the series, so that counting a request makes no strings.
    requests: Mutex<HashMap<u64, (Series, Histogram)>>,
    hasher: RandomState,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Series {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    code: u16,
}

#[derive(Clone, Default)]
struct Histogram {
    buckets: [u64; 17],
    count: u64,
    sum: f64,
}

impl Metrics {
    /// Counts a request that has been answered.
    pub fn record(&self, context: &Context, code: u16) {
        let info = &context.info;
        // Names of resources that do not exist are the client's; they must not become series.
        let known = info.is_resource && code != 404;
        let text = |part| if known { part } else { "" };
        let parts = [text(&info.group), text(&info.version), text(&info.resource), text(&info.subresource)];
        let hash = self.hasher.hash_one((info.verb, parts, code));
        let seconds = context.trace.start().elapsed().as_secs_f64();
        let bucket = BOUNDS.partition_point(|bound| *bound < seconds);
        let mut requests = self.requests.lock();
        let (_, histogram) = requests.entry(hash).or_insert_with(|| {
            let [group, version, resource, subresource] = parts.map(str::to_owned);
            (Series { verb: info.verb, group, version, resource, subresource, code }, Histogram::default())
        });
        histogram.buckets[bucket] += 1;
        histogram.count += 1;
        histogram.sum += seconds;
    }

    /// The text.
    pub fn text(&self, api: &Api) -> String {
        let mut out = String::new();
        let requests: BTreeMap<Series, Histogram> = self.requests.lock().values().cloned().collect();
        out.push_str(
            "# HELP apiserver_request_total Requests by verb, resource and response code.\n# TYPE apiserver_request_total counter\n",
        );
        for (series, histogram) in &requests {
            let _ = writeln!(out, "apiserver_request_total{{{},code=\"{}\"}} {}", series.labels(), series.code, histogram.count);
        }
        out.push_str(
            "# HELP apiserver_request_duration_seconds Time to the answer's head.\n# TYPE apiserver_request_duration_seconds histogram\n",
        );
        let mut merged: BTreeMap<String, Histogram> = BTreeMap::new();
        for (series, histogram) in &requests {
            let all = merged.entry(series.labels()).or_default();
            all.buckets.iter_mut().zip(histogram.buckets).for_each(|(a, b)| *a += b);
            all.count += histogram.count;
            all.sum += histogram.sum;
        }
        for (labels, histogram) in &merged {
            let mut so_far = 0;
            for (bound, count) in BOUNDS.iter().zip(histogram.buckets) {
                so_far += count;
                let _ = writeln!(out, "apiserver_request_duration_seconds_bucket{{{labels},le=\"{bound}\"}} {so_far}");
            }
            let _ = writeln!(out, "apiserver_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} {}", histogram.count);
            let _ = writeln!(out, "apiserver_request_duration_seconds_sum{{{labels}}} {}", histogram.sum);
            let _ = writeln!(out, "apiserver_request_duration_seconds_count{{{labels}}} {}", histogram.count);
        }
        for (name, help, value) in [
            ("usher_store_revision", "The newest revision that readers can see.", api.state.revision()),
            (
                "usher_slow_watchers_total",
                "Watchers that ended because they were too far behind.",
                api.metrics.slow_watchers.load(Ordering::Relaxed),
            ),
            (
                "usher_stalled_connections_total",
                "Connections cut off because the peer took nothing for a minute.",
                super::stall::GIVEN_UP.load(Ordering::Relaxed),
            ),
        ] {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
        out
    }
}

impl Series {
    fn labels(&self) -> String {
        format!(
            "verb=\"{}\",group=\"{}\",version=\"{}\",resource=\"{}\",subresource=\"{}\"",
            self.verb.to_uppercase(),
            self.group,
            self.version,
            self.resource,
            self.subresource
        )
    }
}
