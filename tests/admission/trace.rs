//! What admission leaves in a request's trace: who had something to say, who had not and why, what was changed, and the values behind
//! a denial.

use std::sync::Arc;

use serde_json::{Value, json};
use usher::admission::plugins::default_toleration_seconds::DefaultTolerationSeconds;
use usher::admission::plugins::namespace_lifecycle::NamespaceLifecycle;
use usher::admission::plugins::taint_nodes_by_condition::TaintNodesByCondition;
use usher::admission::policy::Evaluator;
use usher::admission::policy::mutating::MutatingAdmissionPolicy;
use usher::admission::policy::snapshot::Policies;
use usher::admission::policy::validating::ValidatingAdmissionPolicy;
use usher::admission::webhook::Caller;
use usher::admission::webhook::client::Clients;
use usher::admission::webhook::configuration::Hooks;
use usher::admission::webhook::mutating::MutatingAdmissionWebhook;
use usher::admission::{Cluster, Operation, Reinvocation, Stack, Write};
use usher::authz::always::AlwaysAllow;
use usher::registry::Registry;
use usher::request::{self, Context, User};
use usher::store::redb::RedbStore;
use usher::watch::{Settings, State};
use usher_components::clock::Clock;

use super::server::{Webhooks, patched};

struct Scene {
    registry: Arc<Registry>,
    cluster: Cluster,
    mutating: Arc<Policies>,
    validating: Arc<Policies>,
    hooks: Arc<Hooks>,
    stack: Stack,
}

async fn scene() -> Scene {
    let registry = Arc::new(Registry::new());
    let state = State::over(RedbStore::in_memory().unwrap(), Settings::default()).await.unwrap();
    let cluster = Cluster::over(state, registry.clone(), Clock::system()).await.unwrap();
    let (mutating, validating, hooks) = (Arc::new(Policies::default()), Arc::new(Policies::default()), Arc::new(Hooks::default()));
    let evaluator = Arc::new(Evaluator { cluster: cluster.clone(), authorizer: Arc::new(AlwaysAllow) });
    let caller = Arc::new(Caller { cluster: cluster.clone(), authorizer: Arc::new(AlwaysAllow), clients: Clients::default() });
    let stack = Stack {
        mutating: vec![
            Arc::new(NamespaceLifecycle(cluster.clone())),
            Arc::new(TaintNodesByCondition),
            Arc::new(DefaultTolerationSeconds),
            Arc::new(MutatingAdmissionPolicy { policies: mutating.clone(), evaluator: evaluator.clone() }),
            Arc::new(MutatingAdmissionWebhook { hooks: hooks.clone(), caller }),
        ],
        validating: vec![Arc::new(ValidatingAdmissionPolicy { policies: validating.clone(), evaluator })],
        manifests: Vec::new(),
    };
    Scene { registry, cluster, mutating, validating, hooks, stack }
}

impl Scene {
    fn write(&self, plural: &str, object: Value) -> Write {
        let resource = self.registry.lookup("", "v1", plural).unwrap();
        let info = request::parse("POST", &format!("/api/v1/namespaces/default/{plural}"), "");
        Write {
            context: Arc::new(Context::new(info, "", "id".into(), "test")),
            user: Arc::new(User::new("bob", &["system:authenticated"])),
            kind: (resource.group.clone(), resource.version.clone(), resource.kind.clone()),
            resource,
            subresource: String::new(),
            namespace: "default".into(),
            name: "x".into(),
            operation: Operation::Create,
            object: Some(object),
            old: None,
            options: json!({}),
            dry_run: false,
            reinvocation: Reinvocation::default(),
        }
    }
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "default", "labels": {"team": "a"}},
        "spec": {"containers": [{"name": "c", "image": "nginx:latest"}]},
    })
}

/// The step that somebody left: verdict and detail.
fn step(write: &Write, name: &str) -> (String, Value) {
    let steps = write.context.trace.steps();
    let step = steps.iter().find(|step| step.name == name).unwrap_or_else(|| panic!("{name} left nothing: {steps:?}"));
    (step.verdict.to_string(), step.detail.clone().unwrap_or_default())
}

fn policy(scene: &Policies, name: &str, resources: &[&str], spec: Value) {
    let mut spec = spec;
    spec["matchConstraints"] =
        json!({"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}]});
    let kind = if spec.get("mutations").is_some() { "MutatingAdmissionPolicy" } else { "ValidatingAdmissionPolicy" };
    scene.replace_policy(name, Some(&json!({"kind": kind, "metadata": {"name": name}, "spec": spec})));
    let binding = json!({"metadata": {"name": format!("{name}-binding")}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    scene.replace_binding(&format!("{name}-binding"), Some(&binding));
}

#[tokio::test]
async fn a_plugin_that_changed_the_object_tells_its_patch_and_those_passed_over_are_named() {
    let scene = scene().await;
    let mut write = scene.write("pods", pod());
    scene.stack.mutate(&mut write).await.unwrap();
    let (verdict, detail) = step(&write, "DefaultTolerationSeconds");
    assert_eq!((verdict.as_str(), &detail["patch"][0]["path"]), ("mutated", &json!("/spec/tolerations")));
    assert_eq!(step(&write, "NamespaceLifecycle"), ("admitted".into(), Value::Null));
    let (verdict, detail) = step(&write, "plugins");
    assert_eq!(verdict, "skipped");
    assert_eq!(detail["names"], "TaintNodesByCondition, MutatingAdmissionPolicy, MutatingAdmissionWebhook");
}

#[tokio::test]
async fn a_denial_tells_the_expression_and_the_values_of_its_parts() {
    let scene = scene().await;
    let validations = json!([
        {"expression": "object.metadata.labels.team == 'a'"},
        {"expression": "object.spec.containers.all(c, !c.image.endsWith(':latest'))", "message": "no latest"},
    ]);
    policy(&scene.validating, "images", &["pods"], json!({"validations": validations}));
    for i in 0..20 {
        policy(&scene.validating, &format!("other-{i}"), &["secrets"], json!({"validations": validations}));
    }
    let write = scene.write("pods", pod());
    let refused = scene.stack.validate(&write).await.unwrap_err();
    assert_eq!(refused.code, 422);
    let (verdict, detail) = step(&write, "images");
    assert_eq!((verdict.as_str(), &detail["message"], &detail["binding"]), ("denied", &json!("no latest"), &json!("images-binding")));
    assert_eq!(detail["expression"], "object.spec.containers.all(c, !c.image.endsWith(':latest'))");
    let values = detail["values"].as_array().unwrap();
    let value =
        |expression: &str| values.iter().find(|v| v["expression"] == expression).unwrap_or_else(|| panic!("{values:?}"))["value"].clone();
    assert_eq!(value("c.image"), "nginx:latest");
    assert_eq!(value("!c.image.endsWith(':latest')"), false);
    assert!(detail["cost"].as_u64().unwrap() > 0);
    let (verdict, detail) = step(&write, "policies");
    assert_eq!((verdict.as_str(), &detail["count"]), ("skipped", &json!(20)));
    assert_eq!(detail["because"], "no rule is about this resource and operation");
    let steps = write.context.trace.steps();
    assert!(steps.len() < 5, "those that are for other resources leave one step together: {steps:?}");
}

#[tokio::test]
async fn the_values_of_a_loop_are_those_of_the_round_that_decided_however_many_went_before() {
    let scene = scene().await;
    let expression = "object.spec.containers.all(c, c.image.contains('@') || !c.image.endsWith(':latest'))";
    policy(&scene.validating, "images", &["pods"], json!({"validations": [{"expression": expression}]}));
    let mut many = pod();
    let images = (0..30).map(|number| format!("nginx:1.{number}")).chain(["nginx:latest".to_owned()]);
    many["spec"]["containers"] = images.enumerate().map(|(at, image)| json!({"name": format!("c{at}"), "image": image})).collect();
    let write = scene.write("pods", many);
    scene.stack.validate(&write).await.unwrap_err();
    let (_, detail) = step(&write, "images");
    let values = detail["values"].as_array().unwrap();
    let last = |expression: &str| values.iter().rev().find(|v| v["expression"] == expression).map(|v| v["value"].clone());
    assert_eq!(last("c.image"), Some(json!("nginx:latest")));
    assert_eq!(last("c.image.contains('@')"), Some(json!(false)));
    assert_eq!(last("c.image.endsWith(':latest')"), Some(json!(true)), "it was false in the rounds before");
    assert_eq!(values.last().unwrap(), &json!({"expression": expression, "value": false}));
}

#[tokio::test]
async fn what_a_secret_holds_is_in_no_trace() {
    let scene = scene().await;
    policy(&scene.validating, "v", &["secrets"], json!({"validations": [{"expression": "object.data.k != 'c2VjcmV0'"}]}));
    let mutation = "Object{metadata: Object.metadata{annotations: {'seen': object.data.k}}}";
    let mutations = json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": mutation}}]);
    policy(&scene.mutating, "m", &["secrets"], json!({"mutations": mutations}));
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "namespace": "default"}, "data": {"k": "c2VjcmV0"}});
    let mut write = scene.write("secrets", secret);
    scene.stack.mutate(&mut write).await.unwrap();
    scene.stack.validate(&write).await.unwrap_err();
    assert_eq!(step(&write, "m").0, "mutated");
    assert_eq!(step(&write, "v").0, "denied");
    let told = format!("{:?}", [step(&write, "m").1["patch"].clone(), step(&write, "v").1["values"].clone()]);
    assert!(!told.contains("c2VjcmV0"), "{told}");
}

#[tokio::test]
async fn policies_and_webhooks_tell_their_patches_and_why_they_were_passed_over() {
    let scene = scene().await;
    let mutation = "Object{metadata: Object.metadata{labels: {'added': 'yes'}}}";
    let mutations = json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": mutation}}]);
    policy(&scene.mutating, "adds", &["pods"], json!({"mutations": mutations}));
    let conditions = json!([{"name": "never", "expression": "false"}]);
    policy(&scene.mutating, "never", &["pods"], json!({"mutations": mutations, "matchConditions": conditions}));
    let server = Webhooks::start().await;
    server.on("/m", |_| patched(json!([{"op": "add", "path": "/metadata/labels/hook", "value": "1"}])));
    let mut called = server.entry("called", "/m");
    called["rules"][0]["resources"] = json!(["pods"]);
    called["objectSelector"] = json!({});
    let mut elsewhere = called.clone();
    elsewhere["name"] = json!("elsewhere.example.com");
    elsewhere["objectSelector"] = json!({"matchLabels": {"team": "b"}});
    let configmaps = server.entry("configmaps", "/m");
    let configuration = json!({"metadata": {"name": "hooks"}, "webhooks": [called, elsewhere, configmaps]});
    scene.hooks.replace("hooks", Some(&configuration));
    let mut write = scene.write("pods", pod());
    scene.stack.mutate(&mut write).await.unwrap();

    let (verdict, detail) = step(&write, "adds");
    assert_eq!((verdict.as_str(), &detail["binding"]), ("mutated", &json!("adds-binding")));
    let patch = detail["patch"].as_array().unwrap();
    assert!(patch.contains(&json!({"op": "add", "path": "/metadata/labels/added", "value": "yes"})), "{patch:?}");
    assert_eq!(step(&write, "never"), ("skipped".into(), json!({"because": "the match condition \"never\" is false"})));
    let (verdict, detail) = step(&write, "called.example.com");
    assert_eq!((verdict.as_str(), &detail["configuration"]), ("mutated", &json!("hooks")));
    assert_eq!(detail["patch"], json!([{"op": "add", "path": "/metadata/labels/hook", "value": "1"}]));
    let (verdict, detail) = step(&write, "elsewhere.example.com");
    assert_eq!((verdict.as_str(), &detail["because"]), ("skipped", &json!("the objectSelector does not select it")));
    assert_eq!(step(&write, "webhooks").1["count"], 1);
    drop(scene.cluster);
}
