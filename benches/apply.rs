//! What field management costs: tracking an update, applying a configuration, and the patches themselves, on a ConfigMap of
//! about 1 KB and on a Deployment as clients write it. `cargo bench --bench apply`.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use std::hint::black_box;
use std::sync::Arc;

use usher::api::apply::{Context, FieldSet, OneVersion, ResetFields, apply, track_update};
use usher::api::patch::{json as json_patch, merge, strategic};
use usher::schema::{Schema, builtin};

/// The server's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Kind {
    schema: Arc<Schema>,
    api_version: &'static str,
    kind: &'static str,
    configuration: Value,
    change: Value,
}

fn config_map() -> Kind {
    let data: serde_json::Map<String, Value> = (0..20).map(|i| (format!("key-{i:02}"), Value::from("x".repeat(30)))).collect();
    Kind {
        schema: builtin::of_kind("", "v1", "ConfigMap").expect("ConfigMap"),
        api_version: "v1",
        kind: "ConfigMap",
        configuration: json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default", "labels": {"app": "a"}}, "data": data
        }),
        change: json!({"data": {"key-00": "changed"}}),
    }
}

fn deployment() -> Kind {
    Kind {
        schema: builtin::of_kind("apps", "v1", "Deployment").expect("Deployment"),
        api_version: "apps/v1",
        kind: "Deployment",
        configuration: json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {
                        "containers": [{
                            "name": "web", "image": "web:1", "imagePullPolicy": "Always",
                            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
                            "ports": [{"containerPort": 80, "protocol": "TCP"}],
                            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"
                        }],
                        "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                        "securityContext": {}, "terminationGracePeriodSeconds": 30
                    }
                }
            }
        }),
        change: json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}}),
    }
}

fn measure(c: &mut Criterion, name: &str, kind: &Kind) {
    let reset = ResetFields::Reset(FieldSet::of_fields(&[&["status"]]));
    let context = |manager, force| Context {
        manager,
        subresource: "",
        api_version: kind.api_version,
        kind: kind.kind,
        force,
        now: "2026-11-16T00:00:00Z",
        reset_fields: Some(&reset),
        versions: &OneVersion,
    };
    let schema = &kind.schema;
    let live = apply(None, &kind.configuration, schema, &context("m", false)).expect("applied");
    let mut patched = live.clone();
    strategic::apply(&mut patched, kind.change.clone(), schema).expect("patched");
    let mut changed = kind.configuration.clone();
    strategic::apply(&mut changed, kind.change.clone(), schema).expect("changed");
    let mut shared = live.clone();
    shared["metadata"]["annotations"] = json!({"a": "1"});
    track_update(Some(&live), &mut shared, schema, &context("controller", false));

    let mut group = c.benchmark_group(name);
    group.bench_function("track create", |b| {
        b.iter_batched(
            || kind.configuration.clone(),
            |mut new| track_update(None, &mut new, schema, &context("u", false)),
            BatchSize::SmallInput,
        )
    });
    group.bench_function("track update", |b| {
        b.iter_batched(
            || patched.clone(),
            |mut new| track_update(Some(&live), &mut new, schema, &context("u", false)),
            BatchSize::SmallInput,
        )
    });
    group.bench_function("track no change", |b| {
        b.iter_batched(|| live.clone(), |mut new| track_update(Some(&live), &mut new, schema, &context("u", false)), BatchSize::SmallInput)
    });
    group.bench_function("apply create", |b| b.iter(|| apply(None, black_box(&kind.configuration), schema, &context("m", false))));
    group.bench_function("apply no change", |b| {
        b.iter(|| apply(Some(&shared), black_box(&kind.configuration), schema, &context("m", false)))
    });
    group.bench_function("apply change", |b| b.iter(|| apply(Some(&shared), black_box(&changed), schema, &context("m", false))));
    let mut less = kind.configuration.clone();
    less["metadata"]["labels"] = json!({});
    group.bench_function("apply less", |b| b.iter(|| apply(Some(&shared), black_box(&less), schema, &context("m", false))));
    group.bench_function("copy", |b| b.iter(|| black_box(&live).clone()));
    group.bench_function("strategic merge patch", |b| {
        b.iter_batched(
            || (live.clone(), kind.change.clone()),
            |(mut object, patch)| strategic::apply(&mut object, patch, schema),
            BatchSize::SmallInput,
        )
    });
    group.bench_function("merge patch", |b| {
        b.iter_batched(
            || (live.clone(), kind.change.clone()),
            |(mut object, patch)| merge::apply(&mut object, patch),
            BatchSize::SmallInput,
        )
    });
    let operations = json!([{"op": "replace", "path": "/metadata/labels/app", "value": "b"}]);
    group.bench_function("JSON patch", |b| {
        b.iter_batched(|| live.clone(), |mut object| json_patch::apply(&mut object, &operations), BatchSize::SmallInput)
    });
    group.finish();
}

fn benchmarks(c: &mut Criterion) {
    measure(c, "ConfigMap", &config_map());
    measure(c, "Deployment", &deployment());
}

criterion_group!(benches, benchmarks);
criterion_main!(benches);
