//! Where the time of a slow request went: the `apiserver.latency.k8s.io/` annotations, read off the steps of its trace.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::request::Step;

/// Requests up to this are not worth a note.
pub const SLOW: Duration = Duration::from_millis(500);

const PREFIX: &str = "apiserver.latency.k8s.io/";

/// Adds the annotations of a request that took so long, if it is a slow one.
pub fn annotate(annotations: &mut BTreeMap<String, String>, took: Duration, steps: &[Step]) {
    if took <= SLOW {
        return;
    }
    let of = |hop: &str| steps.iter().filter(|step| step.hop == hop).map(|step| step.took).sum::<Duration>();
    // Only a webhook's step says of which configuration it is.
    let webhooks = |hop: &'static str| {
        let is_webhook = move |step: &&Step| {
            let configured = step.detail.as_ref().is_some_and(|detail| detail.get("configuration").is_some());
            step.hop == hop && step.verdict != "skipped" && configured
        };
        steps.iter().filter(is_webhook).map(|step| step.took)
    };
    let parts = [
        ("authentication", of("authenticate")),
        ("authorization", of("authorize")),
        ("impersonation", of("impersonate")),
        ("mutating-webhook", webhooks("mutate").sum()),
        // They are called at the same time.
        ("validating-webhook", webhooks("validate").max().unwrap_or_default()),
        ("etcd", of("store")),
        ("serialize-response-object", of("serialize")),
        ("response-write", of("respond")),
        ("total", took),
    ];
    for (name, duration) in parts.into_iter().filter(|(_, duration)| !duration.is_zero()) {
        annotations.entry(format!("{PREFIX}{name}")).or_insert_with(|| go_duration(duration));
    }
}

/// A duration as Go prints it: `101.148µs`, `999.463216ms`, `1m1.5s`.
fn go_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let decimal = |whole: u128, rest: u128, digits: usize| {
        let text = format!("{whole}.{rest:0digits$}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match nanos {
        0 => "0s".into(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(nanos / 1_000, nanos % 1_000, 3)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(nanos / 1_000_000, nanos % 1_000_000, 6)),
        _ => {
            let seconds = nanos / 1_000_000_000;
            let rest = decimal(seconds % 60, nanos % 1_000_000_000, 9);
            match (seconds / 3600, seconds / 60 % 60) {
                (0, 0) => format!("{rest}s"),
                (0, minutes) => format!("{minutes}m{rest}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{rest}s"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (nanos, text) in [
            (101_148, "101.148µs"),
            (999_463_216, "999.463216ms"),
            (1_003_729_848, "1.003729848s"),
            (500, "500ns"),
            (2_000_000, "2ms"),
            (61_500_000_000, "1m1.5s"),
            (3_600_000_000_000, "1h0m0s"),
        ] {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn only_a_slow_request_tells_where_its_time_went() {
        let step = |hop: &'static str, millis, detail| Step {
            hop: hop.into(),
            name: "x".into(),
            verdict: "allowed".into(),
            detail,
            at: Duration::ZERO,
            took: Duration::from_millis(millis),
        };
        let steps = [
            step("authenticate", 1, None),
            step("validate", 400, Some(json!({"configuration": "a"}))),
            step("validate", 300, Some(json!({"configuration": "b"}))),
            step("validate", 200, Some(json!({"binding": "c"}))),
        ];
        let mut annotations = BTreeMap::new();
        annotate(&mut annotations, Duration::from_millis(500), &steps);
        assert!(annotations.is_empty());
        annotate(&mut annotations, Duration::from_millis(501), &steps);
        let text = |key: &str| annotations.get(&format!("{PREFIX}{key}")).map(String::as_str);
        assert_eq!((text("authentication"), text("validating-webhook"), text("total")), (Some("1ms"), Some("400ms"), Some("501ms")));
        assert_eq!(text("authorization"), None);
    }
}
