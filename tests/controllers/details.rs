//! What others read off the objects that controllers write: annotations, labels, conditions and events, as a real controller manager leaves
//! them.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Endpoints, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::*;

const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_never_exceeded_however_many_ask_at_once() {
    let cluster = cluster("controllers").await;
    cluster.run_pods();
    let (quotas, pods) = (cluster.api::<ResourceQuota>(), cluster.api::<Pod>());
    apply(&quotas, json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "5"}}})).await;
    let used = || async {
        let status = quotas.get("few").await.unwrap().status.unwrap_or_default();
        status.used.and_then(|used| used.get("pods").map(|pods| pods.0.clone())).unwrap_or_default()
    };
    until("the quota is counted", || async { used().await == "0" }).await;
    apply(&cluster.api::<Deployment>(), deployment(20, "web:1")).await;
    until("it is full", || async { used().await == "5" }).await;
    // The ReplicaSet goes on trying, and deletions make room for just as many.
    for _ in 0..10 {
        let list = pods.list(&ListParams::default()).await.unwrap().items;
        assert!(list.len() <= 5, "{} Pods", list.len());
        pods.delete(&list[0].name_any(), &DeleteParams::default().grace_period(0)).await.unwrap();
        cluster.clock.advance(Duration::from_secs(2)).await;
    }
    // By now the ReplicaSet waits for a while between two tries.
    for _ in 0..100 {
        if pods.list(&ListParams::default()).await.unwrap().items.len() == 5 && used().await == "5" {
            break;
        }
        cluster.clock.advance(Duration::from_secs(30)).await;
    }
    assert_eq!((pods.list(&ListParams::default()).await.unwrap().items.len(), used().await.as_str()), (5, "5"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_free_again_as_soon_as_anything_that_it_counts_is_gone() {
    let cluster = cluster("controllers").await;
    let (quotas, maps, leases) = (cluster.api::<ResourceQuota>(), cluster.api::<ConfigMap>(), cluster.api::<Lease>());
    let hard = json!({"configmaps": "9", "count/configmaps": "9", "count/leases.coordination.k8s.io": "9", "resourcequotas": "9"});
    apply(&quotas, json!({"metadata": {"name": "some"}, "spec": {"hard": hard}})).await;
    let used = || async {
        let used = quotas.get("some").await.unwrap().status.unwrap_or_default().used.unwrap_or_default();
        let number = |name: &str| used.get(name).map_or("-", |amount| amount.0.as_str()).to_owned();
        ["configmaps", "count/configmaps", "count/leases.coordination.k8s.io", "resourcequotas"].map(number).join(" ")
    };
    // Every namespace has a ConfigMap to begin with.
    until("it is counted", || async { used().await == "1 1 0 1" }).await;
    for name in ["a", "b"] {
        apply(&maps, json!({"metadata": {"name": name}})).await;
        apply(&leases, json!({"metadata": {"name": name}})).await;
    }
    until("all are counted", || async { used().await == "3 3 2 1" }).await;
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    leases.delete("a", &DeleteParams::default()).await.unwrap();
    // The clock stands still: nobody counts again because it is time to.
    until("there is room again", || async { used().await == "2 2 1 1" }).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_over_pods_of_nobody_says_so_and_allows_nothing() {
    let cluster = cluster("controllers").await;
    cluster.run_pods();
    let budgets = cluster.api::<PodDisruptionBudget>();
    apply(&cluster.api::<Pod>(), json!({"metadata": {"name": "p", "labels": {"app": "bare"}}, "spec": template("bare")["spec"]})).await;
    apply(&budgets, json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "bare"}}}})).await;
    let events = cluster.api::<Event>();
    until("it is told", || async {
        let list = events.list(&ListParams::default()).await.unwrap().items;
        list.iter().any(|e| {
            e.reason.as_deref() == Some("UnmanagedPods")
                && e.message.as_deref().unwrap_or_default().starts_with(
                    "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:map[string]string{app: bare,},\
                     MatchExpressions:[]LabelSelectorRequirement{},}) were found to be unmanaged.",
                )
        })
    })
    .await;
    until("the status is counted without them", || async {
        let status = budgets.get("b").await.unwrap().status.unwrap_or_default();
        let reason = status.conditions.iter().flatten().next().map(|condition| condition.reason.clone());
        (status.expected_pods, status.disruptions_allowed, reason.as_deref()) == (Some(0), Some(0), Some("InsufficientPods"))
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_say_when_the_change_was_that_they_follow_from() {
    let cluster = cluster("controllers").await;
    cluster.run_pods();
    apply(&cluster.api::<Service>(), json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}))
        .await;
    let all = cluster.api::<EndpointSlice>();
    let slices = || async { all.list(&ListParams::default().labels("kubernetes.io/service-name=web")).await.unwrap().items };
    until("there is a slice without an address", || async { !slices().await.is_empty() }).await;
    apply(&cluster.api::<Deployment>(), deployment(1, "web:1")).await;
    until("both have an address and say when", || async {
        let slices = slices().await;
        let endpoints = cluster.api::<Endpoints>().get_opt("web").await.unwrap();
        let slice = slices.iter().any(|slice| {
            // The address came with the second write.
            slice.endpoints.iter().flatten().count() == 1
                && slice.annotations().contains_key(LAST_CHANGE)
                && slice.metadata.generation.is_some_and(|generation| generation > 1)
        });
        slice && endpoints.is_some_and(|e| e.subsets.is_some() && e.annotations().contains_key(LAST_CHANGE))
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_and_revisions_of_sets_carry_what_old_clients_look_for() {
    let cluster = cluster("controllers").await;
    cluster.run_pods();
    let annotations = json!({"example.com/note": "kept"});
    apply(
        &cluster.api::<StatefulSet>(),
        json!({"metadata": {"name": "db", "annotations": annotations}, "spec": {"replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template("db")}}),
    )
    .await;
    let sets = cluster.api::<DaemonSet>();
    apply(
        &sets,
        json!({"metadata": {"name": "agent"}, "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent")}}),
    )
    .await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    apply(&nodes, json!({"metadata": {"name": "n1"}})).await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    nodes.patch_status("n1", &PatchParams::default(), &Patch::Strategic(ready)).await.unwrap();
    let pods = cluster.api::<Pod>();
    until("the StatefulSet has its Pod", || async { pods.get_opt("db-0").await.unwrap().is_some() }).await;
    assert_eq!(pods.get("db-0").await.unwrap().metadata.generate_name.as_deref(), Some("db-"));
    let agents = || async { pods.list(&ListParams::default().labels("app=agent")).await.unwrap().items };
    until("the DaemonSet has its Pod", || async { !agents().await.is_empty() }).await;
    assert_eq!(agents().await[0].labels()["pod-template-generation"], "1");
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}});
    sets.patch("agent", &PatchParams::default(), &Patch::Strategic(image)).await.unwrap();
    let set = sets.get("agent").await.unwrap();
    assert_eq!(set.annotations()["deprecated.daemonset.template.generation"], "2");
    until("the new Pod is counted", || async { agents().await.iter().any(|pod| pod.labels()["pod-template-generation"] == "2") }).await;
    let revisions = cluster.api::<ControllerRevision>().list(&ListParams::default().labels("app=db")).await.unwrap().items;
    assert_eq!(revisions[0].annotations()["example.com/note"], "kept");
    until("the node says how long its kubelet may remember", || async {
        nodes.get("n1").await.unwrap().annotations().get("node.alpha.kubernetes.io/ttl").is_some_and(|ttl| ttl == "0")
    })
    .await;
    cluster.stop().await;
}
