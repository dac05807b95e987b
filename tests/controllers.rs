//! The controllers against a whole server in memory, through its HTTP stack, each under its own identity. In place of
//! nodes stands a few lines that let every Pod run.

mod details;
mod tour;
mod volumes;

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use usher::Server;
use usher::request::User;
use usher_components::runtime::{ClientFor, Handle, Identity, LeaderElection};
use usher_components::{Clock, Options};

use crate::until;

/// Clients over the server's own stack.
struct Clients(usher::gateway::stack::Stack);

impl ClientFor for Clients {
    fn client(&self, identity: &Identity) -> Client {
        let mut groups: Vec<&str> = identity.groups.iter().map(String::as_str).collect();
        groups.push("system:authenticated");
        if identity.groups.iter().any(|group| group == "system:nodes") {
            // What a node may do depends on what is bound to it, which no role can say.
            groups.push("system:masters");
        }
        usher::client::client(&self.0, User::new(&identity.name, &groups))
    }
}

/// Clients that meet with everything a client may meet with: the first change of every object conflicts, every seventh
/// creation fails, and watches end after a few events.
struct Unlucky {
    clients: Clients,
    conflicted: Arc<Mutex<HashSet<String>>>,
    creations: Arc<AtomicUsize>,
}

impl ClientFor for Unlucky {
    fn client(&self, identity: &Identity) -> Client {
        let client = self.clients.client(identity);
        let (conflicted, creations) = (self.conflicted.clone(), self.creations.clone());
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let client = client.clone();
            let (path, change) = (request.uri().path().to_owned(), matches!(request.method().as_str(), "PUT" | "PATCH"));
            let watch = request.uri().query().unwrap_or_default().contains("watch=true");
            let creation = request.method() == "POST" && !path.ends_with("/events");
            let conflict = change && !path.contains("/events/") && conflicted.lock().unwrap().insert(path);
            let failure = creation && creations.fetch_add(1, Ordering::SeqCst) % 7 == 6;
            async move {
                if conflict {
                    return Ok(refusal(409, "Conflict"));
                }
                if failure {
                    return Ok(refusal(500, "InternalError"));
                }
                let response = client.send(request).await?;
                if !watch {
                    return Ok(response.map(|body| body.map_err(tower::BoxError::from).boxed_unsync()));
                }
                let events = |(mut body, left): (kube::client::Body, u32)| async move {
                    let frame = if left == 0 { None } else { body.frame().await };
                    frame.map(|frame| (frame.map_err(tower::BoxError::from), (body, left - 1)))
                };
                Ok::<_, tower::BoxError>(response.map(|body| StreamBody::new(futures::stream::unfold((body, 3), events)).boxed_unsync()))
            }
        });
        Client::new(service, "default")
    }
}

type Answer = http::Response<http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, tower::BoxError>>;

fn refusal(code: u16, reason: &str) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": "bad luck", "code": code});
    let body = http_body_util::Full::new(bytes::Bytes::from(status.to_string())).map_err(|never| match never {});
    let mut response = http::Response::new(body.boxed_unsync());
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
    response
}

/// A server with controllers.
struct Cluster {
    server: Server,
    components: Handle,
    clock: Clock,
    client: Client,
}

async fn cluster(components: &str) -> Cluster {
    cluster_with(components, |router| Arc::new(Clients(router))).await
}

async fn cluster_with(components: &str, clients: impl FnOnce(usher::gateway::stack::Stack) -> Arc<dyn ClientFor>) -> Cluster {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    let clock = Clock::virtual_clock();
    let mut builder = crate::builder();
    builder.clock = clock.clone();
    let server = builder.start().await.unwrap();
    let options = Options { root_ca: Some("-----BEGIN CERTIFICATE-----".into()), ..Options::default() };
    let clients = clients(server.router());
    let handle = usher_components::start(&components.parse().unwrap(), clients, clock.clone(), options).unwrap();
    let client = server.client();
    if components == "controllers" {
        // Without its ServiceAccount the namespace takes no Pods.
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        until("there is a ServiceAccount", || async { accounts.get_opt("default").await.unwrap().is_some() }).await;
    }
    Cluster { server, components: handle, clock, client }
}

impl Cluster {
    /// Lets every Pod run on a node, and end if it is told to.
    fn run_pods(&self) {
        let (client, watches) = (self.client.clone(), self.components.watches().clone());
        tokio::spawn(async move {
            let pods = watches.of::<Pod>();
            let (send, mut changed) = tokio::sync::mpsc::unbounded_channel();
            let _subscription = pods.subscribe(move |change| {
                if let Some(pod) = change.new {
                    let _ = send.send(pod.clone());
                }
            });
            let mut address = 0;
            while let Some(pod) = changed.recv().await {
                let api = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap());
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
                if pod.metadata.deletion_timestamp.is_some() {
                    let _ = api.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
                } else if phase == "Pending" {
                    address += 1;
                    let exit = pod.annotations().get("test/exit").cloned();
                    let (phase, ready) = match exit.as_deref() {
                        None => ("Running", "True"),
                        Some("0") => ("Succeeded", "False"),
                        Some(_) => ("Failed", "False"),
                    };
                    let now = k8s_openapi::jiff::Timestamp::now();
                    let status = json!({"status": {"phase": phase, "podIP": format!("10.1.0.{address}"), "podIPs": [{"ip": format!("10.1.0.{address}")}],
                        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": now}]}});
                    let _ = api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(status)).await;
                }
            }
        });
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn stop(self) {
        self.components.shutdown().await;
        self.server.stop().await;
    }
}

fn from<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

async fn apply<K>(api: &Api<K>, object: Value)
where
    K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    api.create(&PostParams::default(), &from(object)).await.unwrap();
}

fn deployment(replicas: i32, image: &str) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

async fn rolled_out(api: &Api<Deployment>) -> bool {
    let deployment = api.get("web").await.unwrap();
    let status = deployment.status.clone().unwrap_or_default();
    let reason = status.conditions.iter().flatten().find(|c| c.type_.as_deref() == Some("Progressing")).and_then(|c| c.reason.clone());
    status.observed_generation == deployment.metadata.generation
        && status.updated_replicas == deployment.spec.replicas
        && status.available_replicas == deployment.spec.replicas
        && status.replicas == deployment.spec.replicas
        && reason.as_deref() == Some("NewReplicaSetAvailable")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_rolls_out_updates_goes_back_and_cascades() {
    let cluster = cluster("controllers").await;
    cluster.run_pods();
    let (deployments, sets, pods) = (cluster.api::<Deployment>(), cluster.api::<ReplicaSet>(), cluster.api::<Pod>());
    apply(&deployments, deployment(3, "web:1")).await;
    until("the first revision is out", || rolled_out(&deployments)).await;
    assert_eq!(deployments.get("web").await.unwrap().annotations()["deployment.kubernetes.io/revision"], "1");
    let first = sets.list(&ListParams::default()).await.unwrap().items[0].name_any();

    let image = |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    deployments.patch("web", &PatchParams::default(), &Patch::Strategic(image("web:2"))).await.unwrap();
    until("the second revision is out", || rolled_out(&deployments)).await;
    assert_eq!(deployments.get("web").await.unwrap().annotations()["deployment.kubernetes.io/revision"], "2");
    assert_eq!(sets.list(&ListParams::default()).await.unwrap().items.len(), 2);

    deployments.patch("web", &PatchParams::default(), &Patch::Strategic(image("web:1"))).await.unwrap();
    until("the first one is back", || rolled_out(&deployments)).await;
    let back = sets.get(&first).await.unwrap();
    assert_eq!(back.annotations()["deployment.kubernetes.io/revision"], "3");
    assert_eq!(back.annotations()["deployment.kubernetes.io/revision-history"], "1");

    let events: Api<Event> = cluster.api();
    until("the scaling is told", || async {
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let told = |reason: &str, start: &str| {
            events.iter().any(|e| e.reason.as_deref() == Some(reason) && e.message.as_deref().unwrap_or_default().starts_with(start))
        };
        told("ScalingReplicaSet", &format!("Scaled up replica set {first} from 0 to 3")) && told("SuccessfulCreate", "Created pod: web-")
    })
    .await;

    deployments.delete("web", &DeleteParams::background()).await.unwrap();
    until("nothing is left", || async {
        sets.list(&ListParams::default()).await.unwrap().items.is_empty()
            && pods.list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_gets_the_addresses_of_ready_pods() {
    let cluster = cluster("controllers").await;
    cluster.run_pods();
    apply(
        &cluster.api::<Service>(),
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}}),
    )
    .await;
    apply(&cluster.api::<Deployment>(), deployment(3, "web:1")).await;
    let slices = cluster.api::<EndpointSlice>();
    let ready = || async {
        let slices = slices.list(&ListParams::default().labels("kubernetes.io/service-name=web")).await.unwrap().items;
        let endpoints = slices.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
        endpoints.filter(|endpoint| endpoint.conditions.as_ref().is_some_and(|c| c.ready == Some(true))).count()
    };
    until("three addresses are ready", || async { ready().await == 3 }).await;
    cluster.api::<Deployment>().patch("web", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 1}}))).await.unwrap();
    until("one is left", || async { ready().await == 1 }).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_completes_and_a_failing_one_fails() {
    let cluster = cluster("controllers").await;
    cluster.run_pods();
    let jobs = cluster.api::<Job>();
    let job = |name: &str, exit: &str| {
        json!({"metadata": {"name": name}, "spec": {"completions": 2, "parallelism": 2, "backoffLimit": 0, "template": {
            "metadata": {"annotations": {"test/exit": exit}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
    };
    apply(&jobs, job("good", "0")).await;
    apply(&jobs, job("bad", "1")).await;
    let ended = |name: &'static str, condition: &'static str| {
        let jobs = jobs.clone();
        move || {
            let jobs = jobs.clone();
            async move {
                let status = jobs.get(name).await.unwrap().status.unwrap_or_default();
                status.conditions.iter().flatten().any(|c| c.type_ == condition && c.status == "True")
            }
        }
    };
    until("the good one completes", ended("good", "Complete")).await;
    until("the bad one fails", ended("bad", "Failed")).await;
    let status = jobs.get("good").await.unwrap().status.unwrap();
    assert_eq!((status.succeeded, status.active), (Some(2), None));
    let pods = cluster.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
    assert!(pods.iter().all(|pod| pod.finalizers().is_empty()), "all have been counted");
    jobs.delete("good", &DeleteParams::background()).await.unwrap();
    until("its Pods go with it", || async {
        cluster.api::<Pod>().list(&ListParams::default().labels("job-name=good")).await.unwrap().items.is_empty()
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cron_job_fires_when_the_clock_is_moved_and_its_job_expires() {
    let cluster = cluster("controllers").await;
    cluster.run_pods();
    apply(
        &cluster.api::<CronJob>(),
        json!({"metadata": {"name": "tick"}, "spec": {"schedule": "*/10 * * * *", "jobTemplate": {"spec": {"ttlSecondsAfterFinished": 3600,
            "template": {"metadata": {"annotations": {"test/exit": "0"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}),
    )
    .await;
    let jobs = cluster.api::<Job>();
    cluster.clock.advance(Duration::from_secs(600)).await;
    until("it has fired", || async { !jobs.list(&ListParams::default()).await.unwrap().items.is_empty() }).await;
    let name = jobs.list(&ListParams::default()).await.unwrap().items[0].name_any();
    until("its Job is complete", || async { jobs.get(&name).await.unwrap().status.unwrap_or_default().completion_time.is_some() }).await;
    cluster.clock.advance(Duration::from_secs(3700)).await;
    until("its Job has expired", || async { jobs.get_opt(&name).await.unwrap().is_none() }).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_comes_in_order_and_a_daemon_set_follows_nodes() {
    let cluster = cluster("controllers").await;
    cluster.run_pods();
    let template = |app: &str| json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    apply(
        &cluster.api::<StatefulSet>(),
        json!({"metadata": {"name": "db"}, "spec": {"replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template("db")}}),
    )
    .await;
    let pods = cluster.api::<Pod>();
    until("three Pods are ready", || async {
        let status = cluster.api::<StatefulSet>().get("db").await.unwrap().status.unwrap_or_default();
        status.ready_replicas == Some(3)
    })
    .await;
    let ordinals: Vec<_> =
        pods.list(&ListParams::default().labels("app=db")).await.unwrap().items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(ordinals, ["db-0", "db-1", "db-2"]);

    apply(
        &cluster.api::<DaemonSet>(),
        json!({"metadata": {"name": "agent"}, "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent")}}),
    )
    .await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let agents = || async { pods.list(&ListParams::default().labels("app=agent")).await.unwrap().items.len() };
    assert_eq!(agents().await, 0);
    for name in ["n1", "n2"] {
        apply(&nodes, json!({"metadata": {"name": name}})).await;
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(ready)).await.unwrap();
    }
    until("both nodes have one", || async { agents().await == 2 }).await;
    until("both nodes have a range", || async {
        let nodes = nodes.list(&ListParams::default()).await.unwrap().items;
        let ranges: Vec<_> = nodes.iter().filter_map(|node| node.spec.as_ref()?.pod_cidr.clone()).collect();
        ranges == ["10.244.0.0/24", "10.244.1.0/24"] || ranges == ["10.244.1.0/24", "10.244.0.0/24"]
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_has_what_it_needs_and_takes_everything_along() {
    let cluster = cluster("controllers").await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    apply(&namespaces, json!({"metadata": {"name": "team"}})).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), "team");
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "team");
    until("it has its ServiceAccount", || async { accounts.get_opt("default").await.unwrap().is_some() }).await;
    until("it has its certificate", || async { maps.get_opt("kube-root-ca.crt").await.unwrap().is_some() }).await;
    apply(&maps, json!({"metadata": {"name": "own"}})).await;
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    until("it is gone", || async { namespaces.get_opt("team").await.unwrap().is_none() }).await;
    assert!(maps.get_opt("own").await.unwrap().is_none());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_follow_lose_or_block_their_owner_as_asked() {
    let cluster = cluster("garbage-collector-controller").await;
    let maps = cluster.api::<ConfigMap>();
    let owned = |name: &str, owner: &ConfigMap| {
        json!({"metadata": {"name": name, "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(),
            "uid": owner.uid().unwrap(), "blockOwnerDeletion": true}]}})
    };
    for (name, how) in [("fore", DeleteParams::foreground()), ("back", DeleteParams::background()), ("orphan", DeleteParams::orphan())] {
        apply(&maps, json!({"metadata": {"name": name}})).await;
        let owner = maps.get(name).await.unwrap();
        let dependent = format!("{name}-dependent");
        apply(&maps, owned(&dependent, &owner)).await;
        // The collector must have seen the dependent; a real one is no faster than its watches either.
        tokio::time::sleep(Duration::from_millis(300)).await;
        maps.delete(name, &how).await.unwrap();
        until("the owner is gone", || async { maps.get_opt(name).await.unwrap().is_none() }).await;
        if name == "orphan" {
            assert!(maps.get(&dependent).await.unwrap().owner_references().is_empty());
        } else {
            until("the dependent is gone", || async { maps.get_opt(&dependent).await.unwrap().is_none() }).await;
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_is_stopped_and_started_goes_on_where_it_was() {
    let cluster = cluster("controllers").await;
    cluster.run_pods();
    let deployments = cluster.api::<Deployment>();
    cluster.components.stop("replicaset").await.unwrap();
    assert!(!cluster.components.running().contains(&"replicaset-controller"));
    apply(&deployments, deployment(2, "web:1")).await;
    until("the ReplicaSet is there", || async {
        !cluster.api::<ReplicaSet>().list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(cluster.api::<Pod>().list(&ListParams::default()).await.unwrap().items.is_empty());
    cluster.components.start("replicaset").unwrap();
    until("it is rolled out", || rolled_out(&deployments)).await;
    assert!(cluster.components.metrics().contains("component_reconcile_total{name=\"replicaset-controller\"}"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_falls_silent_is_tainted_and_its_pods_are_evicted() {
    let cluster = cluster("controllers").await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    apply(&nodes, json!({"metadata": {"name": "n1"}})).await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    nodes.patch_status("n1", &PatchParams::default(), &Patch::Strategic(ready)).await.unwrap();
    apply(&cluster.api::<Pod>(), json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}],
        "tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]}}))
    .await;
    cluster.clock.advance(Duration::from_secs(60)).await;
    until("the node is unreachable", || async {
        let taints = nodes.get("n1").await.unwrap().spec.unwrap_or_default().taints.unwrap_or_default();
        taints.iter().any(|taint| taint.key == "node.kubernetes.io/unreachable" && taint.effect == "NoExecute")
    })
    .await;
    let pods = cluster.api::<Pod>();
    assert!(pods.get("p").await.unwrap().metadata.deletion_timestamp.is_none(), "it is patient for five minutes");
    cluster.clock.advance(Duration::from_secs(310)).await;
    until("the Pod is evicted", || async { pods.get_opt("p").await.unwrap().is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()) })
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicts_failed_creations_and_cut_watches_only_delay_the_work() {
    let cluster = cluster_with("controllers", |router| {
        Arc::new(Unlucky { clients: Clients(router), conflicted: Arc::default(), creations: Arc::default() })
    })
    .await;
    cluster.run_pods();
    let (deployments, jobs) = (cluster.api::<Deployment>(), cluster.api::<Job>());
    apply(&deployments, deployment(20, "web:1")).await;
    let template = json!({"metadata": {"annotations": {"test/exit": "0"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    apply(&jobs, json!({"metadata": {"name": "work"}, "spec": {"completions": 5, "parallelism": 3, "template": template}})).await;
    until("it is rolled out", || rolled_out(&deployments)).await;
    until("the work is done", || async { jobs.get("work").await.unwrap().status.unwrap_or_default().succeeded == Some(5) }).await;
    let pods = cluster.api::<Pod>().list(&ListParams::default().labels("app=web")).await.unwrap().items;
    assert_eq!(pods.len(), 20, "and none too many");
    deployments.delete("web", &DeleteParams::background()).await.unwrap();
    until("nothing is left", || async {
        cluster.api::<Pod>().list(&ListParams::default().labels("app=web")).await.unwrap().items.is_empty()
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_processes_one_leads_and_the_other_takes_over() {
    let cluster = cluster("none").await;
    let process = |name: &str| {
        let options = Options { leader_election: Some(LeaderElection::new(name)), ..Options::default() };
        let clients = Arc::new(Clients(cluster.server.router()));
        usher_components::start(&"job,cronjob".parse().unwrap(), clients, cluster.clock.clone(), options).unwrap()
    };
    let first = process("first");
    until("the first one leads", || async { first.running().len() == 2 }).await;
    let second = process("second");
    cluster.clock.advance(Duration::from_secs(60)).await;
    assert!(second.running().is_empty(), "as long as the first one renews");
    first.shutdown().await;
    cluster.clock.advance(Duration::from_secs(30)).await;
    until("the second one leads", || async { second.running().len() == 2 }).await;
    second.shutdown().await;
    cluster.stop().await;
}
