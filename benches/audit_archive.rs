//! What recording costs and what a question costs: a million records are made and appended as the recorder would, then asked for by
//! user, verb, resource, name, code, policy, webhook and time, and with a CEL expression. A plain program, not a statistic.
//!
//! `cargo bench --bench audit_archive`; `USHER_BENCH_DIR` names the directory for the files, `USHER_BENCH_RECORDS` how many records.
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use usher::audit::archive::{Archive, Limits, Order};
use usher::audit::{Event, Filter};

/// As many as the recorder hands over at once under load.
const BATCH: usize = 256;
/// Where the time of the first record is.
const START: i64 = 1_767_225_600;

fn main() {
    let records: usize = std::env::var("USHER_BENCH_RECORDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let directory = match std::env::var_os("USHER_BENCH_DIR") {
        Some(parent) => tempfile::tempdir_in(parent),
        None => tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")),
    }
    .unwrap();
    let limits = Limits { bytes: 8 << 30, age: Duration::from_secs(30 * 24 * 3600) };
    let archive = Archive::open(Some(directory.path()), limits).unwrap();
    let shape = shape();
    let mut spent = Duration::ZERO;
    for batch in 0..records.div_ceil(BATCH) {
        let events: Vec<Event> = (batch * BATCH..records.min((batch + 1) * BATCH)).map(|number| event(&shape, number)).collect();
        let since = Instant::now();
        archive.append(events);
        spent += since.elapsed();
    }
    let kept = archive.kept();
    println!(
        "append      {records} records, {:.2} µs each, {} bytes each",
        spent.as_secs_f64() * 1e6 / records as f64,
        kept.bytes / kept.records.max(1)
    );
    drop(archive);
    let since = Instant::now();
    let archive = Archive::open(Some(directory.path()), limits).unwrap();
    println!("open        {:?}", since.elapsed());
    let middle = START + records as i64 / 2;
    let times = [Timestamp::from_second(middle).unwrap().to_string(), Timestamp::from_second(middle + 60).unwrap().to_string()];
    for (name, pairs) in [
        ("everything", vec![]),
        ("user", vec![("user", "user-17")]),
        ("verb", vec![("verb", "delete")]),
        ("resource", vec![("resource", "pods/log")]),
        ("namespace", vec![("namespace", "team-3")]),
        ("name", vec![("name", "object-4711")]),
        ("code", vec![("code", "5xx")]),
        ("decision", vec![("decision", "forbid")]),
        ("policy", vec![("policy", "policy-3.example.com")]),
        ("webhook", vec![("webhook", "hook-2.example.com")]),
        ("time", vec![("since", times[0].as_str()), ("until", times[1].as_str())]),
        ("audit-id", vec![("audit-id", "00000000-0000-4000-8000-000000000007")]),
        ("nothing", vec![("user", "nobody")]),
        ("cel, few", vec![("filter", "event.responseStatus.code == 503 && event.user.username.endsWith('-42')")]),
        ("cel, annot.", vec![("filter", "event.annotations['authorization.k8s.io/reason'].contains('binding-7 ')")]),
        ("cel, trace", vec![("filter", "event.trace.took > 100000")]),
        ("cel, whole", vec![("filter", "event.exists(key, key == 'nothing')")]),
    ] {
        ask(&archive, name, &pairs);
    }
    let since = Instant::now();
    let stats = archive.stats(&Filter::default(), 10);
    println!("stats       {:?} for {} requests", since.elapsed(), stats.requests);
}

fn ask(archive: &Archive, name: &str, pairs: &[(&str, &str)]) {
    let mut filter = Filter::default();
    for (key, value) in pairs {
        assert!(filter.set(key, value, Timestamp::now()).unwrap());
    }
    // An expression is asked of everything, so that the whole way is measured; anything else for a screenful.
    let limit = if filter.expression.is_some() { usize::MAX } else { 500 };
    let since = Instant::now();
    let (mut rows, mut first) = (0, None);
    archive.scan(&filter, Order::NewestFirst, limit, |record| {
        first.get_or_insert_with(|| since.elapsed());
        rows += 1;
        std::hint::black_box(record.json());
        ControlFlow::Continue(())
    });
    println!("{name:11} {:>9.1} ms, first row after {:?}, {rows} rows", since.elapsed().as_secs_f64() * 1e3, first.unwrap_or_default());
}

/// What all records have in common.
fn shape() -> Event {
    serde_json::from_value(json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": "ResponseComplete", "verb": "",
        "sourceIPs": ["10.0.0.1"], "userAgent": "kubectl/v1.37.0 (linux/amd64) kubernetes/0000000",
        "user": {"username": "", "uid": "", "groups": ["system:authenticated", "developers"]},
        "objectRef": {"resource": "pods", "apiVersion": "v1"}, "responseStatus": {"metadata": {}, "code": 200},
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
        "trace": {"took": 0, "steps": [
            {"hop": "authenticate", "name": "x509", "verdict": "matched", "at": 10, "took": 10},
            {"hop": "authorize", "name": "RBAC", "verdict": "allowed", "at": 20, "took": 5},
            {"hop": "validate", "name": "", "verdict": "allowed", "detail": {"binding": "all", "cost": 12}, "at": 40, "took": 3},
            {"hop": "mutate", "name": "", "verdict": "allowed", "detail": {"configuration": "hooks"}, "at": 50, "took": 900},
            {"hop": "store", "name": "commit", "verdict": "committed", "at": 900, "took": 700},
        ], "wrote": {"revision": 1, "kind": "Pod", "name": "", "uid": "", "owners": [""]}},
    }))
    .unwrap()
}

/// One record of many, spread as those of a cluster are: few users ask for most, errors are rare.
fn event(shape: &Event, number: usize) -> Event {
    let mixed = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    // Each choice independent of the others: every user asks for everything.
    let among = |count: u64, salt: u32| {
        let choice = (number as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93_u64.rotate_left(salt) | 1);
        ((choice ^ choice >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as usize % count as usize
    };
    let mut event = shape.clone();
    event.audit_id = format!("00000000-0000-4000-8000-{number:012}");
    event.user.username = format!("user-{}", among(200, 3));
    event.verb = ["get", "get", "get", "list", "create", "update", "patch", "delete"][among(8, 7)].into();
    let code = match among(100, 11) {
        0..90 => 200,
        90..95 => 404,
        95..98 => 403,
        98 => 409,
        _ => 503,
    };
    if let Some(object) = &mut event.object_ref {
        object.resource = ["pods", "pods", "services", "configmaps", "secrets", "deployments"][among(6, 13)].to_owned();
        object.subresource = if among(20, 17) == 0 { "log".to_owned() } else { String::new() };
        object.namespace = format!("team-{}", among(40, 19));
        object.name = format!("object-{}", among(20_000, 23));
        event.request_uri = format!("/api/v1/namespaces/{}/{}/{}", object.namespace, object.resource, object.name);
    }
    if let Some(status) = &mut event.response_status {
        status.code = code;
    }
    if code == 403 {
        event.annotations.insert("authorization.k8s.io/decision".into(), "forbid".into());
    }
    let reason = format!("RBAC: allowed by RoleBinding \"binding-{} in team\"", among(300, 27));
    event.annotations.insert("authorization.k8s.io/reason".into(), reason);
    let time = Timestamp::from_second(START + number as i64).unwrap();
    event.request_received_timestamp = Some(time);
    event.stage_timestamp = Some(time);
    if let Some(story) = &mut event.trace {
        story.took = 200 + (mixed % 5_000) + if among(500, 29) == 0 { 150_000 } else { 0 };
        story.steps[2].name = format!("policy-{}.example.com", among(30, 31)).into();
        story.steps[3].name = format!("hook-{}.example.com", among(5, 33)).into();
        if let Some(wrote) = &mut story.wrote {
            wrote.revision = number as u64;
            wrote.name = format!("object-{}", among(20_000, 23));
            wrote.uid = format!("{:08x}-0000-4000-8000-{number:012}", mixed as u32);
            wrote.owners = vec![format!("{:08x}-0000-4000-8000-000000000000", among(3_000, 37))];
        }
    }
    event
}
