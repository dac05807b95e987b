//! What one object costs between JSON and Kubernetes' protobuf: a Pod of about one kilobyte, and a list put together from encoded items.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};
use usher::api::protobuf;

fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-6d4cf56db6-8xk2p",
            "generateName": "web-6d4cf56db6-",
            "namespace": "default",
            "uid": "2f1d8a1e-3b0a-4a53-9a8e-0b7f6f0d4a11",
            "resourceVersion": "48211",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"app": "web", "pod-template-hash": "6d4cf56db6"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4cf56db6",
                "uid": "c2a7c9d0-55f1-4d0c-8f35-2a9a7f1f0f7e", "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "containers": [{"name": "web", "image": "nginx:1.27", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}, "imagePullPolicy": "IfNotPresent",
                "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}]}],
            "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}], "defaultMode": 420}}],
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "nodeName": "node-17",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {"phase": "Running", "podIP": "10.1.2.3", "startTime": "2026-01-02T03:04:06Z"},
    })
}

fn objects(criterion: &mut Criterion) {
    let pod = pod();
    let json = serde_json::to_vec(&pod).unwrap_or_default();
    let bytes = protobuf::encode(&pod, "v1", "Pod").unwrap_or_default();
    let mut group = criterion.benchmark_group("pod");
    group.throughput(Throughput::Bytes(json.len() as u64));
    group.bench_function("encode", |bencher| bencher.iter(|| protobuf::encode(black_box(&pod), "v1", "Pod")));
    group.bench_function("encode from JSON bytes", |bencher| {
        bencher.iter(|| {
            let pod: Value = serde_json::from_slice(black_box(&json)).unwrap_or_default();
            protobuf::encode(&pod, "v1", "Pod")
        });
    });
    group.bench_function("decode", |bencher| bencher.iter(|| protobuf::decode(black_box(&bytes))));
    group.bench_function("parse the same as JSON", |bencher| bencher.iter(|| serde_json::from_slice::<Value>(black_box(&json))));
    group.finish();
}

fn lists(criterion: &mut Criterion) {
    let item = protobuf::encode_message(&pod(), "v1", "Pod").unwrap_or_default();
    let items = vec![item; 1000];
    let meta = json!({"resourceVersion": "48211"});
    criterion.bench_function("list of 1000 encoded pods", |bencher| {
        bencher.iter(|| protobuf::encode_list(&meta, black_box(&items).iter().map(Vec::as_slice), "v1", "PodList"));
    });
}

criterion_group!(benches, objects, lists);
criterion_main!(benches);
