//! The built-in plugins through the front door, with the messages that were recorded.

use serde_json::{Value, json};
use usher::Server;

use super::server::*;

async fn server() -> (Server, kube::Client) {
    let server = Server::builder().in_memory().start().await.unwrap();
    let client = server.client();
    (server, client)
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}});
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    pod
}

async fn account(client: &kube::Client, namespace: &str) {
    let accounts = api(client, "", "v1", "ServiceAccount", "serviceaccounts", Some(namespace));
    let _ = create(&accounts, json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})).await;
}

#[tokio::test]
async fn nothing_is_created_in_a_namespace_that_is_not_there() {
    let (_server, client) = server().await;
    let missing = api(&client, "", "v1", "ConfigMap", "configmaps", Some("missing"));
    let refused = create(&missing, configmap("x", "")).await.unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (404, "namespaces \"missing\" not found"));
    let namespaces = api(&client, "", "v1", "Namespace", "namespaces", None);
    let refused = namespaces.delete("default", &Default::default()).await.unwrap_err();
    assert!(refused.to_string().contains("namespaces \"default\" is forbidden: this namespace may not be deleted"), "{refused}");
}

#[tokio::test]
async fn a_pod_gets_its_account_token_priority_and_tolerations() {
    let (_server, client) = server().await;
    let namespaces = api(&client, "", "v1", "Namespace", "namespaces", None);
    create(&namespaces, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lonely"}})).await.unwrap();
    let lonely = api(&client, "", "v1", "Pod", "pods", Some("lonely"));
    let refused = create(&lonely, pod("p0", json!({"serviceAccountName": "nope"}))).await.unwrap_err();
    assert_eq!(
        refused.message,
        "pods \"p0\" is forbidden: error looking up service account lonely/nope: serviceaccount \"nope\" not found"
    );
    account(&client, "default").await;
    let pods = api(&client, "", "v1", "Pod", "pods", Some("default"));
    let refused = create(&pods, pod("pp", json!({"priorityClassName": "nope"}))).await.unwrap_err();
    assert_eq!(refused.message, "pods \"pp\" is forbidden: no PriorityClass with name nope was found");
    let made = create(&pods, pod("p", json!({}))).await.unwrap();
    let spec = &made["spec"];
    assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("default"), &json!("default")));
    assert_eq!((&spec["priority"], &spec["preemptionPolicy"]), (&json!(0), &json!("PreemptLowerPriority")));
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    let volume = spec["volumes"][0]["name"].as_str().unwrap();
    assert!(volume.starts_with("kube-api-access-"));
    assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], volume);
    assert_eq!(spec["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
}

#[tokio::test]
async fn quotas_are_exact_under_concurrency_and_denials_have_the_recorded_words() {
    let (_server, client) = server().await;
    let namespaces = api(&client, "", "v1", "Namespace", "namespaces", None);
    create(&namespaces, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "q2"}})).await.unwrap();
    account(&client, "q2").await;
    let maps = api(&client, "", "v1", "ConfigMap", "configmaps", Some("q2"));
    let quotas = api(&client, "", "v1", "ResourceQuota", "resourcequotas", Some("q2"));
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "rq"}, "spec": {"hard": {"secrets": "5", "requests.cpu": "1"}}});
    create(&quotas, quota).await.unwrap();
    let secrets = api(&client, "", "v1", "Secret", "secrets", Some("q2"));
    let secret = |i: usize| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("s{i}")}});
    let results = futures::future::join_all((0..12).map(|i| create(&secrets, secret(i)))).await;
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 5);
    let refused = results.into_iter().find_map(Result::err).unwrap();
    assert!(
        refused.message.ends_with("is forbidden: exceeded quota: rq, requested: secrets=1, used: secrets=5, limited: secrets=5"),
        "{}",
        refused.message
    );
    let now = quotas.get("rq").await.unwrap();
    assert_eq!(now.data["status"]["used"]["secrets"], "5");
    let pods = api(&client, "", "v1", "Pod", "pods", Some("q2"));
    let refused = create(&pods, pod("x", json!({}))).await.unwrap_err();
    assert_eq!(refused.message, "pods \"x\" is forbidden: failed quota: rq: must specify requests.cpu for: c");
    assert!(create(&maps, configmap("free", "")).await.is_ok(), "not limited");
}

#[tokio::test]
async fn limit_ranges_and_pod_security_refuse_in_the_recorded_words() {
    let (_server, client) = server().await;
    let namespaces = api(&client, "", "v1", "Namespace", "namespaces", None);
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    create(&namespaces, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "q"}, "spec": {}})).await.unwrap();
    create(&namespaces, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "q3", "labels": labels}})).await.unwrap();
    account(&client, "q").await;
    account(&client, "q3").await;
    let ranges = api(&client, "", "v1", "LimitRange", "limitranges", Some("q"));
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "lr"}, "spec": {"limits": [{"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"}}]}});
    create(&ranges, range).await.unwrap();
    let limited = json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "10m"}}}]});
    let refused = create(&api(&client, "", "v1", "Pod", "pods", Some("q")), pod("x", limited)).await.unwrap_err();
    assert_eq!(
        refused.message,
        "pods \"x\" is forbidden: [minimum cpu usage per Container is 100m, but request is 10m, maximum cpu usage per Container is 1, but limit is 2]"
    );
    let refused = create(&api(&client, "", "v1", "Pod", "pods", Some("q3")), pod("x", json!({}))).await.unwrap_err();
    assert!(
        refused.message.starts_with(
            "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"c\""
        ),
        "{}",
        refused.message
    );
}

#[tokio::test]
async fn a_pod_is_not_changed_into_what_its_node_does_not_say_it_can_do() {
    let (_server, client) = server().await;
    account(&client, "default").await;
    let nodes = api(&client, "", "v1", "Node", "nodes", None);
    create(&nodes, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})).await.unwrap();
    let merge = |patch: Value| kube::api::Patch::Merge(patch);
    let status = json!({"status": {"capacity": {"cpu": "4", "memory": "4Gi"}, "allocatable": {"cpu": "4", "memory": "4Gi"}}});
    nodes.patch_status("n", &Default::default(), &merge(status)).await.unwrap();
    let pods = api(&client, "", "v1", "Pod", "pods", Some("default"));
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
    create(&pods, pod("p", json!({"nodeName": "n", "resources": resources("1")}))).await.unwrap();
    let grown = merge(json!({"spec": {"resources": resources("2")}}));
    let resize = async || pods.patch_subresource("resize", "p", &Default::default(), &grown).await;
    let refused = resize().await.unwrap_err();
    assert!(
        refused.to_string().contains(
            "pods \"p\" is forbidden: pod update requires features InPlacePodLevelResourcesVerticalScaling which are not available on node \"n\""
        ),
        "{refused}"
    );
    let declared = json!({"status": {"declaredFeatures": ["InPlacePodLevelResourcesVerticalScaling"]}});
    nodes.patch_status("n", &Default::default(), &merge(declared)).await.unwrap();
    assert_eq!(resize().await.unwrap().data["spec"]["resources"]["limits"]["cpu"], "2");
}

#[tokio::test]
async fn a_pod_that_changes_its_scope_is_counted_by_the_quota_of_the_other() {
    let (_server, client) = server().await;
    account(&client, "default").await;
    let quotas = api(&client, "", "v1", "ResourceQuota", "resourcequotas", Some("default"));
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "ending"}, "spec": {"hard": {"pods": "0"}, "scopes": ["Terminating"]}});
    create(&quotas, quota).await.unwrap();
    let pods = api(&client, "", "v1", "Pod", "pods", Some("default"));
    create(&pods, pod("p", json!({}))).await.unwrap();
    let patch = kube::api::Patch::Merge(json!({"spec": {"activeDeadlineSeconds": 5}}));
    let refused = pods.patch("p", &Default::default(), &patch).await.unwrap_err();
    assert!(
        refused.to_string().contains("pods \"p\" is forbidden: exceeded quota: ending, requested: pods=1, used: pods=0, limited: pods=0"),
        "{refused}"
    );
}
