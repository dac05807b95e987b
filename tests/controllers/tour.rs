//! A tour past every controller: each is given something to do, and the tour waits for what only that controller brings about. It is made
//! on a bad line (the first change of every object conflicts, creations fail, watches break off) and while the controllers
//! are stopped and started all the time.

use k8s_openapi::api::core::v1::{Endpoints, PersistentVolume, PersistentVolumeClaim, ReplicationController, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;

use super::*;

/// What the controllers are called; the ones that sign certificates are tried elsewhere.
const ALL: &[&str] = &[
    "deployment-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "cronjob-controller",
    "ttl-after-finished-controller",
    "endpointslice-controller",
    "endpoints-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "clusterrole-aggregation-controller",
    "node-ipam-controller",
    "node-lifecycle-controller",
    "ttl-controller",
    "taint-eviction-controller",
    "pod-garbage-collector-controller",
    "persistentvolume-binder-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "ephemeral-volume-controller",
    "disruption-controller",
    "resourcequota-controller",
    "garbage-collector-controller",
];

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn ending(restart: &str) -> Value {
    json!({"metadata": {"annotations": {"test/exit": "0"}}, "spec": {"restartPolicy": restart, "containers": [{"name": "c", "image": "i"}]}})
}

async fn tour(cluster: &Cluster) {
    cluster.run_pods();
    workloads(cluster).await;
    services_and_budgets(cluster).await;
    of_the_whole_cluster(cluster).await;
    owners(cluster).await;
    volumes(cluster).await;
    what_time_brings(cluster).await;
}

async fn workloads(cluster: &Cluster) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    apply(&nodes, json!({"metadata": {"name": "n1"}})).await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    nodes.patch_status("n1", &PatchParams::default(), &Patch::Strategic(ready)).await.unwrap();
    apply(&cluster.api::<Deployment>(), deployment(3, "web:1")).await;
    apply(
        &cluster.api::<ReplicationController>(),
        json!({"metadata": {"name": "old"}, "spec": {"replicas": 2, "selector": {"app": "old"}, "template": template("old")}}),
    )
    .await;
    apply(
        &cluster.api::<StatefulSet>(),
        json!({"metadata": {"name": "db"}, "spec": {"replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template("db")}}),
    )
    .await;
    apply(
        &cluster.api::<DaemonSet>(),
        json!({"metadata": {"name": "agent"}, "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent")}}),
    )
    .await;
    apply(
        &cluster.api::<Job>(),
        json!({"metadata": {"name": "work"}, "spec": {"completions": 3, "parallelism": 2, "template": ending("Never")}}),
    )
    .await;
    let deployments = cluster.api::<Deployment>();
    until("the Deployment is rolled out", || rolled_out(&deployments)).await;
    until("the ReplicationController has its Pods", || async {
        cluster.api::<ReplicationController>().get("old").await.unwrap().status.unwrap_or_default().ready_replicas == Some(2)
    })
    .await;
    until("the StatefulSet has its Pods", || async {
        cluster.api::<StatefulSet>().get("db").await.unwrap().status.unwrap_or_default().ready_replicas == Some(2)
    })
    .await;
    until("the DaemonSet is on the node", || async {
        cluster.api::<DaemonSet>().get("agent").await.unwrap().status.unwrap_or_default().number_ready == 1
    })
    .await;
    until("the Job is done", || async { cluster.api::<Job>().get("work").await.unwrap().status.unwrap_or_default().succeeded == Some(3) })
        .await;
    for (app, wanted) in [("web", 3), ("old", 2), ("db", 2), ("agent", 1)] {
        let pods = cluster.api::<Pod>().list(&ListParams::default().labels(&format!("app={app}"))).await.unwrap().items;
        assert_eq!(pods.len(), wanted, "{app}: none too many");
    }
}

async fn services_and_budgets(cluster: &Cluster) {
    apply(&cluster.api::<Service>(), json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}))
        .await;
    apply(
        &cluster.api::<PodDisruptionBudget>(),
        json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}}),
    )
    .await;
    apply(&cluster.api::<ResourceQuota>(), json!({"metadata": {"name": "all"}, "spec": {"hard": {"count/jobs.batch": "10"}}})).await;
    until("the slice has three addresses", || async {
        let slices = cluster.api::<EndpointSlice>().list(&ListParams::default().labels("kubernetes.io/service-name=web")).await.unwrap();
        slices.items.iter().map(|slice| slice.endpoints.iter().flatten().count()).sum::<usize>() == 3
    })
    .await;
    until("the Endpoints have three addresses", || async {
        let endpoints = cluster.api::<Endpoints>().get_opt("web").await.unwrap();
        let subsets = endpoints.and_then(|endpoints| endpoints.subsets).unwrap_or_default();
        subsets.iter().map(|subset| subset.addresses.iter().flatten().count()).sum::<usize>() == 3
    })
    .await;
    until("the budget allows one disruption", || async {
        cluster.api::<PodDisruptionBudget>().get("web").await.unwrap().status.unwrap_or_default().disruptions_allowed == Some(1)
    })
    .await;
    until("the quota has counted", || async {
        let status = cluster.api::<ResourceQuota>().get("all").await.unwrap().status.unwrap_or_default();
        status.used.and_then(|used| used.get("count/jobs.batch").cloned()).is_some_and(|used| used.0 == "1")
    })
    .await;
}

async fn of_the_whole_cluster(cluster: &Cluster) {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    apply(&namespaces, json!({"metadata": {"name": "team"}})).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "team");
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "team");
    until("the namespace has its ServiceAccount", || async { accounts.get_opt("default").await.unwrap().is_some() }).await;
    until("the namespace has its certificate", || async { maps.get_opt("kube-root-ca.crt").await.unwrap().is_some() }).await;
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    until("the namespace is gone", || async { namespaces.get_opt("team").await.unwrap().is_none() }).await;

    let roles: Api<ClusterRole> = Api::all(cluster.client.clone());
    let selector = json!({"clusterRoleSelectors": [{"matchLabels": {"test/part": "true"}}]});
    apply(&roles, json!({"metadata": {"name": "whole"}, "aggregationRule": selector, "rules": []})).await;
    let rules = json!([{"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get"]}]);
    apply(&roles, json!({"metadata": {"name": "part", "labels": {"test/part": "true"}}, "rules": rules})).await;
    until("the rules are gathered", || async { roles.get("whole").await.unwrap().rules.unwrap_or_default().len() == 1 }).await;

    let nodes: Api<Node> = Api::all(cluster.client.clone());
    until("the node says how long its kubelet may remember", || async {
        nodes.get("n1").await.unwrap().annotations().contains_key("node.alpha.kubernetes.io/ttl")
    })
    .await;
    until("the node has a range", || async { nodes.get("n1").await.unwrap().spec.is_some_and(|spec| spec.pod_cidr.is_some()) }).await;
}

async fn volumes(cluster: &Cluster) {
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    let claims = cluster.api::<PersistentVolumeClaim>();
    apply(
        &volumes,
        json!({"metadata": {"name": "disk"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/d"}}}),
    )
    .await;
    let wish = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}});
    let volume = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": wish}}});
    apply(
        &cluster.api::<Pod>(),
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [volume]}}),
    )
    .await;
    let phase = || async { claims.get_opt("p-v").await.unwrap().and_then(|claim| claim.status?.phase) };
    until("the ephemeral volume's claim is bound", || async { phase().await.as_deref() == Some("Bound") }).await;
    cluster.api::<Pod>().delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    until("the claim is gone", || async { claims.get_opt("p-v").await.unwrap().is_none() }).await;
    until("the volume is released", || async {
        volumes.get("disk").await.unwrap().status.unwrap_or_default().phase.as_deref() == Some("Released")
    })
    .await;
    volumes.delete("disk", &DeleteParams::default()).await.unwrap();
    until("the volume is gone", || async { volumes.get_opt("disk").await.unwrap().is_none() }).await;
}

async fn owners(cluster: &Cluster) {
    let maps = cluster.api::<ConfigMap>();
    apply(&maps, json!({"metadata": {"name": "owner"}})).await;
    let uid = maps.get("owner").await.unwrap().uid().unwrap();
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
    apply(&maps, json!({"metadata": {"name": "owned", "ownerReferences": reference}})).await;
    maps.delete("owner", &DeleteParams::background()).await.unwrap();
    until("the dependent has followed", || async { maps.get_opt("owned").await.unwrap().is_none() }).await;
    cluster.api::<Deployment>().delete("web", &DeleteParams::background()).await.unwrap();
    until("the Deployment's Pods have followed", || async {
        cluster.api::<Pod>().list(&ListParams::default().labels("app=web")).await.unwrap().items.is_empty()
    })
    .await;
}

async fn what_time_brings(cluster: &Cluster) {
    let (jobs, pods) = (cluster.api::<Job>(), cluster.api::<Pod>());
    apply(&jobs, json!({"metadata": {"name": "brief"}, "spec": {"ttlSecondsAfterFinished": 10, "template": ending("Never")}})).await;
    until("the brief Job is done", || async {
        jobs.get_opt("brief").await.unwrap().is_none_or(|job| job.status.unwrap_or_default().completion_time.is_some())
    })
    .await;
    apply(
        &cluster.api::<CronJob>(),
        json!({"metadata": {"name": "tick"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": ending("OnFailure")}}}}),
    )
    .await;
    let on = |node: &str| {
        json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}],
            "tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]})
    };
    apply(&pods, json!({"metadata": {"name": "lost"}, "spec": on("nowhere")})).await;
    apply(&pods, json!({"metadata": {"name": "patient"}, "spec": on("n1")})).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let unreachable = || async {
        let taints = nodes.get("n1").await.unwrap().spec.unwrap_or_default().taints.unwrap_or_default();
        taints.iter().any(|taint| taint.key == "node.kubernetes.io/unreachable" && taint.effect == "NoExecute")
    };
    // A controller that is just being restarted when its time comes gets another chance.
    let cron = || async { jobs.list(&ListParams::default()).await.unwrap().items.iter().any(|job| job.name_any().starts_with("tick-")) };
    let gone = |name: &'static str| {
        let pods = pods.clone();
        async move { pods.get_opt(name).await.unwrap().is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()) }
    };
    for _ in 0..20 {
        cluster.clock.advance(Duration::from_secs(60)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        if cron().await
            && unreachable().await
            && gone("lost").await
            && gone("patient").await
            && jobs.get_opt("brief").await.unwrap().is_none()
        {
            return;
        }
    }
    assert!(jobs.get_opt("brief").await.unwrap().is_none(), "the Job has expired");
    assert!(cron().await, "the CronJob has fired");
    assert!(unreachable().await, "the silent node is tainted");
    assert!(gone("patient").await, "what does not tolerate that for ever is evicted");
    assert!(gone("lost").await, "a Pod of a node that does not exist is removed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_controller_gets_over_conflicts_failed_creations_and_watches_that_break_off() {
    let unlucky = |router| -> Arc<dyn ClientFor> {
        Arc::new(Unlucky { clients: Clients(router), conflicted: Arc::default(), creations: Arc::default() })
    };
    let cluster = cluster_with("controllers", unlucky).await;
    for name in ALL {
        assert!(cluster.components.running().contains(name), "{name}");
    }
    tour(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_controller_gets_over_being_restarted_in_the_middle() {
    let cluster = cluster("controllers").await;
    let components = cluster.components.clone();
    let restarts = Arc::new(AtomicUsize::new(0));
    let restarting = tokio::spawn({
        let restarts = restarts.clone();
        async move {
            for name in ALL.iter().cycle() {
                components.stop(name).await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
                components.start(name).unwrap();
                restarts.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
    tour(&cluster).await;
    restarting.abort();
    assert!(restarts.load(Ordering::SeqCst) >= ALL.len(), "each has been restarted at least once");
    cluster.stop().await;
}
