//! How long a decision takes, and how long a changed binding takes to be in force, with 10,000 bindings.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use futures::FutureExt;
use serde_json::{Value, json};
use usher::authz::rbac::Rbac;
use usher::authz::{Attributes, Authorizer};
use usher::request::{User, parse};

const GROUP: &str = "rbac.authorization.k8s.io";

fn binding(i: usize) -> Value {
    json!({
        "metadata": {"name": format!("binding-{i}"), "namespace": format!("ns-{}", i % 500)},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": format!("role-{}", i % 20)},
        "subjects": [{"kind": "User", "name": format!("user-{}", i % 1000)}, {"kind": "Group", "name": format!("team-{}", i % 100)}],
    })
}

/// 20 roles of 20 rules, 9,900 role bindings, 100 cluster role bindings of a group that everybody is in.
fn cluster() -> Rbac {
    let rbac = Rbac::default();
    for i in 0..20 {
        let rule = |j: usize| json!({"verbs": ["get", "list", "watch"], "apiGroups": ["", "apps"], "resources": [format!("kind-{i}-{j}"), "pods"], "resourceNames": if j < 19 { json!(["x"]) } else { json!([]) }});
        let role = json!({"metadata": {"name": format!("role-{i}")}, "rules": (0..20).map(rule).collect::<Vec<_>>()});
        rbac.index().changed("clusterroles", GROUP, None, Some(&role));
    }
    for i in 0..9_900 {
        rbac.index().changed("rolebindings", GROUP, None, Some(&binding(i)));
    }
    for i in 0..100 {
        let bound = json!({
            "metadata": {"name": format!("cluster-{i}")},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "absent"},
            "subjects": [{"kind": "Group", "name": format!("everybody-{}", i % 25)}],
        });
        rbac.index().changed("clusterrolebindings", GROUP, None, Some(&bound));
    }
    rbac
}

fn decisions(c: &mut Criterion) {
    let rbac = cluster();
    let user = Arc::new(User::new("user-7", &["team-7", "devs", "platform", "oncall", "system:authenticated"]));
    let ask = |method: &str, path: &str| Attributes { user: user.clone(), info: Arc::new(parse(method, path, "")) };
    let allowed = ask("GET", "/api/v1/namespaces/ns-7/pods/web-0");
    assert!(rbac.decide_now(&allowed).is_allow());
    let denied = ask("DELETE", "/api/v1/namespaces/ns-7/pods/web-0");
    assert!(!rbac.decide_now(&denied).is_allow());
    let stranger = ask("GET", "/api/v1/namespaces/elsewhere/pods/web-0");
    c.bench_function("rbac allow, 10,000 bindings", |b| b.iter(|| rbac.decide_now(black_box(&allowed))));
    c.bench_function("rbac deny, 10,000 bindings", |b| b.iter(|| rbac.decide_now(black_box(&denied))));
    c.bench_function("rbac nothing bound, 10,000 bindings", |b| b.iter(|| rbac.decide_now(black_box(&stranger))));
    // What a request pays: the decision with the role, the binding and the rule behind it.
    c.bench_function("rbac allow and say why, 10,000 bindings", |b| b.iter(|| rbac.explain(black_box(&allowed)).now_or_never()));
    let (old, mut new) = (binding(7), binding(7));
    new["subjects"][0]["name"] = "somebody-else".into();
    c.bench_function("rbac change one binding there and back, 10,000 bindings", |b| {
        b.iter(|| {
            rbac.index().changed("rolebindings", GROUP, Some(&old), Some(&new));
            rbac.index().changed("rolebindings", GROUP, Some(&new), Some(&old));
        });
    });
}

criterion_group!(benches, decisions);
criterion_main!(benches);
