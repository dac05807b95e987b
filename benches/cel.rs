//! What it costs to compile and to evaluate policy expressions on a Deployment of about 6 KB, with cost accounting on.
//! The target is 2 µs an evaluation and 100 µs a compilation.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use usher_cel::{Activation, Budget, Environment, Type};

const EXPRESSIONS: [(&str, &str); 5] = [
    ("replicas", "object.spec.replicas <= 5"),
    (
        "containers",
        "object.spec.template.spec.containers.all(c, c.image.startsWith('registry.example.com/') && has(c.resources.limits) && 'cpu' in c.resources.limits)",
    ),
    ("labels", "object.metadata.labels.exists(k, k == 'team')"),
    ("format", "'deployment %s/%s has %d replicas, max 5'.format([object.metadata.namespace, object.metadata.name, object.spec.replicas])"),
    ("matches", "object.spec.template.spec.containers.all(c, c.image.matches('^registry\\\\.example\\\\.com/[a-z/0-9-]+:v[0-9.]+$'))"),
];

fn container(name: &str) -> Value {
    let env: Vec<Value> = (0..12).map(|i| json!({"name": format!("SETTING_{i}"), "value": format!("the value of setting {i}")})).collect();
    json!({
        "name": name,
        "image": format!("registry.example.com/shop/{name}:v1.27.{}", name.len()),
        "imagePullPolicy": "IfNotPresent",
        "env": env,
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 5},
        "securityContext": {"runAsNonRoot": true, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "config", "mountPath": "/etc/config", "readOnly": true}],
    })
}

fn deployment() -> Value {
    let labels = json!({
        "app.kubernetes.io/name": "checkout", "app.kubernetes.io/instance": "checkout-eu", "app.kubernetes.io/version": "1.27.0",
        "team": "payments", "tier": "backend",
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "checkout", "namespace": "shop", "uid": "0d4b3a52-8f0c-4a39-9d50-6f1f0f5f8a11", "generation": 3,
            "resourceVersion": "48121", "creationTimestamp": "2026-03-01T08:00:00Z", "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": "3", "example.com/owner": "payments@example.com"},
        },
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app.kubernetes.io/name": "checkout"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": "checkout",
                    "containers": [container("api"), container("worker"), container("metrics-exporter")],
                    "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "config", "configMap": {"name": "checkout"}}],
                },
            },
        },
        "status": {"observedGeneration": 3, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3},
    })
}

fn cel(criterion: &mut Criterion) {
    let object = deployment();
    let environment = Environment::kubernetes().variable("object", Type::Dyn);
    for (name, source) in EXPRESSIONS {
        criterion.bench_function(&format!("cel/compile/{name}"), |b| {
            b.iter(|| environment.compile(black_box(source)));
        });
        let program = environment.compile(source).expect(source);
        criterion.bench_function(&format!("cel/evaluate/{name}"), |b| {
            b.iter(|| {
                let activation = Activation::new().bind("object", &object);
                black_box(program.evaluate(&activation, &mut Budget::default()).map(|e| e.cost))
            });
        });
    }
}

criterion_group!(benches, cel);
criterion_main!(benches);
