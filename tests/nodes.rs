//! The road from a bound Pod to a running one, over the real server: scheduler, kubelets and mock runtime as clients of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use usher::Server;
use usher::request::User;
use usher_components::cri::mock::behaviour::PREFIX;
use usher_components::kubelet::{NodeConfig, Nodes};
use usher_components::runtime::{ClientFor, Handle, Identity};
use usher_components::{Clock, Options, Selection};

/// Clients of a server in this process, each with its own identity, through a line that can be bad.
struct Door {
    router: usher::gateway::stack::Stack,
    faults: Faults,
}

/// What it takes to get a Pod running: the node controllers give a node its addresses and declare it ready.
const COMPONENTS: &[&str] = &["scheduler", "kubelet", "node-ipam-controller", "node-lifecycle-controller"];

/// What goes wrong on the way.
#[derive(Clone, Default)]
struct Faults {
    /// The first write of every client is answered with 409.
    conflict_first: bool,
    /// Watches end after so many pieces.
    cut_watches_after: Option<usize>,
}

impl ClientFor for Door {
    fn client(&self, identity: &Identity) -> kube::Client {
        let mut groups: Vec<&str> = identity.groups.iter().map(String::as_str).collect();
        groups.push("system:authenticated");
        let user = Arc::new(User::new(&identity.name, &groups));
        let (router, faults) = (self.router.clone(), self.faults.clone());
        let untouched = Arc::new(AtomicBool::new(faults.conflict_first));
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (router, user, untouched, cut) = (router.clone(), user.clone(), untouched.clone(), faults.cut_watches_after);
            async move {
                if request.method() != http::Method::GET && untouched.swap(false, Ordering::SeqCst) {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409, "message": "no"});
                    let response = http::Response::builder().status(409).body(axum::body::Body::from(status.to_string())).unwrap();
                    return Ok::<_, std::convert::Infallible>(response);
                }
                let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                let mut request = request.map(axum::body::Body::new);
                request.extensions_mut().insert(usher::authn::InProcess(user));
                let response = tower::ServiceExt::oneshot(router, request).await?;
                Ok(match cut.filter(|_| watch) {
                    Some(pieces) => {
                        response.map(|body| axum::body::Body::from_stream(futures::StreamExt::take(body.into_data_stream(), pieces)))
                    }
                    None => response,
                })
            }
        });
        kube::Client::new(service, "default")
    }
}

/// Lets the components do their work on a server whose default roles do not say so (yet); where they do, this changes nothing.
async fn allow_components(client: &kube::Client) {
    use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
    let role = json!({"metadata": {"name": "test-components"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let subject = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let binding = json!({
        "metadata": {"name": "test-components"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "test-components"},
        "subjects": [subject("User", "system:kube-scheduler"), subject("User", "system:kube-controller-manager"), subject("Group", "system:nodes"), subject("Group", "system:serviceaccounts:kube-system")],
    });
    let roles: Api<ClusterRole> = Api::all(client.clone());
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
}

struct Cluster {
    _server: Server,
    client: kube::Client,
    nodes: Nodes,
    clock: Clock,
    components: Handle,
}

impl Cluster {
    async fn start(nodes: Nodes, clock: Clock) -> Self {
        Self::start_with(nodes, clock, COMPONENTS, Faults::default()).await
    }

    async fn start_with(nodes: Nodes, clock: Clock, components: &[&str], faults: Faults) -> Self {
        let server = crate::builder().start().await.unwrap();
        let client = server.client();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        for name in ["default", "kube-system", "kube-node-lease"] {
            let namespace = Namespace { metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }, ..Namespace::default() };
            let _ = namespaces.create(&PostParams::default(), &namespace).await;
        }
        // What controllers make on a whole cluster.
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client.clone(), "default");
        let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
        let _ = accounts.create(&PostParams::default(), &account).await;
        allow_components(&client).await;
        let options = Options { nodes: nodes.clone(), ..Options::default() };
        let selection = Selection::only(components);
        let door = Door { router: server.router(), faults };
        let components = usher_components::start(&selection, Arc::new(door), clock.clone(), options).unwrap();
        Self { _server: server, client, nodes, clock, components }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create(&self, name: &str, annotations: &[(&str, &str)], spec: Value) -> Pod {
        let annotations: Value = annotations.iter().map(|(k, v)| (format!("{PREFIX}{k}"), Value::from(*v))).collect();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec});
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// Waits until the Pod looks as `is` says, and returns it.
    async fn wait(&self, name: &str, is: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let pod = serde_json::to_value(self.pods().get_opt(name).await.unwrap()).unwrap();
            if is(&pod) {
                return pod;
            }
            assert!(Instant::now() < deadline, "the Pod does not become what it should: {pod:#}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn running(&self, name: &str) -> Value {
        self.wait(name, ready).await
    }

    /// `reason: message` of the events about a Pod, in order of their first occurrence, as soon as there is one of `reason`.
    async fn events(&self, name: &str, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut found = false;
        loop {
            let mut list = events.list(&ListParams::default()).await.unwrap().items;
            let prefix = format!("{name}.");
            list.retain(|event| event.metadata.name.as_deref().is_some_and(|name| name.starts_with(&prefix)));
            list.sort_by_key(|event| event.metadata.resource_version.as_deref().and_then(|v| v.parse::<u64>().ok()));
            let texts: Vec<String> = list
                .into_iter()
                .map(|event| format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default()))
                .collect();
            if texts.iter().any(|text| text.starts_with(&format!("{reason}:"))) {
                if found {
                    return texts;
                }
                // Another recorder may be a moment behind.
                found = true;
            }
            assert!(Instant::now() < deadline, "no {reason} among {texts:?}");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    async fn logs(&self, pod: &str, container: &str, query: &str) -> (u16, String) {
        use http_body_util::BodyExt;
        let node = self.pods().get(pod).await.unwrap().spec.unwrap().node_name.unwrap();
        let response = self.nodes.server(&node).unwrap().get(&format!("/containerLogs/default/{pod}/{container}"), query).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }
}

fn ready(pod: &Value) -> bool {
    pod["status"]["conditions"].as_array().is_some_and(|c| c.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

fn waiting(pod: &Value) -> &str {
    pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str().unwrap_or_default()
}

fn nginx() -> Value {
    json!({"containers": [{"name": "c", "image": "nginx:1.27"}], "terminationGracePeriodSeconds": 30})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_scheduled_and_runs() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::system()).await;
    cluster.create("first", &[], nginx()).await;
    cluster.running("first").await;
    let before = Instant::now();
    cluster.create("web", &[], json!({"containers": [{"name": "c", "image": "httpd:2"}]})).await;
    let pod = cluster.running("web").await;
    println!("created to ready: {:?}", before.elapsed());
    assert_eq!(pod["spec"]["nodeName"], "node-1");
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["status"]["hostIP"], "172.18.0.2");
    assert_eq!(pod["status"]["containerStatuses"][0]["image"], "docker.io/library/httpd:2");
    let scheduled = pod["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "PodScheduled").unwrap();
    assert_eq!(scheduled["status"], "True");
    let events = cluster.events("web", "Started").await;
    assert!(events.iter().any(|event| event.starts_with("Scheduled:")), "{events:?}");
    for reason in ["Pulling: Pulling image \"httpd:2\"", "Created: Container created", "Started: Container started"] {
        assert!(events.contains(&reason.to_owned()), "{reason} in {events:?}");
    }
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let node = serde_json::to_value(nodes.get("node-1").await.unwrap()).unwrap();
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.37.0");
    assert!(ready(&node));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_asks_for_too_much_stays_pending_and_says_why() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::system()).await;
    cluster.create("first", &[], nginx()).await;
    cluster.running("first").await;
    let big = json!({"containers": [{"name": "c", "image": "nginx:1.27", "resources": {"requests": {"cpu": "100"}}}]});
    cluster.create("big", &[], big).await;
    let pod = cluster.wait("big", |pod| pod["status"]["conditions"][0]["reason"] == "Unschedulable").await;
    let text =
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(pod["status"]["conditions"][0]["message"], text);
    assert_eq!(pod["status"]["phase"], "Pending");
    cluster.events("big", "FailedScheduling").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_scheduler_says_can_be_read_as_an_event_of_the_core_group() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::system()).await;
    cluster.create("web", &[], nginx()).await;
    // The node may not have been ready when the scheduler first looked, and then it says so first.
    let events = cluster.events("web", "Scheduled").await;
    assert!(events.iter().any(|e| e == "Scheduled: Successfully assigned default/web to node-1"), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gated_pod_says_so_and_goes_when_its_gate_is_opened() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::system()).await;
    let mut spec = nginx();
    spec["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    cluster.create("gated", &[], spec).await;
    cluster.create("other", &[], nginx()).await;
    cluster.running("other").await;
    let pod = cluster.wait("gated", |_| true).await;
    let condition = &pod["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("PodScheduled"), &json!("SchedulingGated")));
    assert_eq!(condition["message"], "Scheduling is blocked due to non-empty scheduling gates");
    cluster.pods().patch("gated", &PatchParams::default(), &Patch::Merge(json!({"spec": {"schedulingGates": null}}))).await.unwrap();
    cluster.running("gated").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_another_scheduler_is_left_alone() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::system()).await;
    let mut spec = nginx();
    spec["schedulerName"] = "other".into();
    cluster.create("theirs", &[], spec).await;
    cluster.create("ours", &[], nginx()).await;
    cluster.running("ours").await;
    let theirs = cluster.pods().get("theirs").await.unwrap();
    assert_eq!(theirs.spec.unwrap().node_name, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_pulled_ends_in_image_pull_back_off() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::virtual_clock()).await;
    cluster.create("bad", &[], json!({"containers": [{"name": "c", "image": "registry.invalid/app:v1"}]})).await;
    cluster.wait("bad", |pod| waiting(pod) == "ErrImagePull").await;
    cluster.clock.advance(Duration::from_secs(2)).await;
    let pod = cluster.wait("bad", |pod| waiting(pod) == "ImagePullBackOff").await;
    let message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("Back-off pulling image \"registry.invalid/app:v1\": ErrImagePull: rpc error: code = NotFound"),
        "{message}"
    );
    let events = cluster.events("bad", "BackOff").await;
    assert!(events.contains(&"Failed: Error: ErrImagePull".to_owned()), "{events:?}");
    let (code, text) = cluster.logs("bad", "c", "").await;
    assert_eq!((code, text.as_str()), (400, "container \"c\" in pod \"bad\" is waiting to start: trying and failing to pull image"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashing_container_ends_in_crash_loop_back_off_and_keeps_its_previous_log() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::virtual_clock()).await;
    let script = json!(["sh", "-c", "echo starting; echo failing >&2; exit 3"]);
    cluster.create("crash", &[], json!({"containers": [{"name": "c", "image": "busybox:1.36", "command": script}]})).await;
    let pod = cluster.wait("crash", |pod| waiting(pod) == "CrashLoopBackOff").await;
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!((&status["restartCount"], &status["lastState"]["terminated"]["exitCode"]), (&json!(1), &json!(3)));
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(cluster.logs("crash", "c", "").await, (200, "starting\nfailing\n".into()));
    assert_eq!(cluster.logs("crash", "c", "previous=true&tailLines=1").await, (200, "failing\n".into()));
    cluster.clock.advance(Duration::from_secs(11)).await;
    cluster.wait("crash", |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 2 && waiting(pod) == "CrashLoopBackOff").await;
    let events = cluster.events("crash", "BackOff").await;
    assert!(
        events.iter().any(|event| event.starts_with("BackOff: Back-off restarting failed container c in pod crash_default(")),
        "{events:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_gets_its_grace_period_and_then_goes() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::virtual_clock()).await;
    cluster.create("slow", &[("ignore-sigterm", "true")], nginx()).await;
    cluster.running("slow").await;
    cluster.pods().delete("slow", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let pod = cluster.wait("slow", |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 30);
    cluster.clock.advance(Duration::from_secs(31)).await;
    cluster.wait("slow", Value::is_null).await;
    cluster.create("quick", &[], nginx()).await;
    cluster.running("quick").await;
    cluster.pods().delete("quick", &DeleteParams::default()).await.unwrap();
    cluster.wait("quick", Value::is_null).await;
    assert!(cluster.events("quick", "Killing").await.contains(&"Killing: Stopping container c".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_runs_to_its_end_succeeds_and_its_log_can_be_read() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::system()).await;
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1.36", "command": ["echo", "hello"]}],
        "initContainers": [{"name": "i", "image": "busybox:1.36", "command": ["true"]}]});
    cluster.create("once", &[], spec).await;
    let pod = cluster.wait("once", |pod| pod["status"]["phase"] == "Succeeded").await;
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
    assert_eq!(pod["status"]["initContainerStatuses"][0]["ready"], true);
    assert_eq!(cluster.logs("once", "c", "").await, (200, "hello\n".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_decides_on_readiness() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::virtual_clock()).await;
    let probe = json!({"httpGet": {"path": "/", "port": 80}, "periodSeconds": 5});
    cluster
        .create("probed", &[("ready-after", "8s")], json!({"containers": [{"name": "c", "image": "nginx:1.27", "readinessProbe": probe}]}))
        .await;
    let pod = cluster.wait("probed", |pod| pod["status"]["phase"] == "Running").await;
    assert!(!ready(&pod));
    cluster.clock.advance(Duration::from_secs(11)).await;
    cluster.running("probed").await;
    assert!(
        cluster
            .events("probed", "Unhealthy")
            .await
            .contains(&"Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 503".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_node_takes_no_new_pods_and_a_new_node_does() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::system()).await;
    cluster.create("a", &[], nginx()).await;
    cluster.running("a").await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    nodes.patch("node-1", &PatchParams::default(), &cordon).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    cluster.create("b", &[], nginx()).await;
    let pod = cluster.wait("b", |pod| pod["status"]["conditions"][0]["reason"] == "Unschedulable").await;
    assert!(
        pod["status"]["conditions"][0]["message"].as_str().unwrap().starts_with("0/1 nodes are available: 1 node(s) were unschedulable.")
    );
    cluster.nodes.add("node-2");
    assert_eq!(cluster.running("b").await["spec"]["nodeName"], "node-2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_runs_and_moves_when_its_node_is_drained() {
    use k8s_openapi::api::apps::v1::Deployment;
    let cluster = Cluster::start_with(Nodes::mock(1), Clock::system(), &["*"], Faults::default()).await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), "default");
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": nginx()}}});
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    let all_on = async |node: &str| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let list = cluster.pods().list(&ListParams::default().labels("app=web")).await.unwrap().items;
            let pods: Vec<Value> = list.iter().map(|pod| serde_json::to_value(pod).unwrap()).collect();
            if pods.len() == 3 && pods.iter().all(|pod| ready(pod) && pod["spec"]["nodeName"] == node) {
                return pods;
            }
            assert!(Instant::now() < deadline, "{pods:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let before = all_on("node-1").await;
    assert!(before[0]["status"]["podIP"].as_str().unwrap().starts_with("10.244."), "{}", before[0]["status"]["podIP"]);
    cluster.nodes.add("node-2");
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.patch("node-1", &PatchParams::default(), &Patch::Merge(json!({"spec": {"unschedulable": true}}))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    for pod in before {
        let name = pod["metadata"]["name"].as_str().unwrap();
        cluster.pods().evict(name, &kube::api::EvictParams::default()).await.unwrap();
    }
    all_on("node-2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_pod_leaves_its_node() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::system()).await;
    cluster.create("web", &[], nginx()).await;
    cluster.running("web").await;
    cluster.pods().evict("web", &kube::api::EvictParams::default()).await.unwrap();
    cluster.wait("web", Value::is_null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_more_important_pod_takes_the_place_of_a_less_important_one() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::system()).await;
    let classes: Api<k8s_openapi::api::scheduling::v1::PriorityClass> = Api::all(cluster.client.clone());
    for (name, value) in [("low", 1), ("high", 100)] {
        let class = serde_json::from_value(json!({"metadata": {"name": name}, "value": value})).unwrap();
        classes.create(&PostParams::default(), &class).await.unwrap();
    }
    let asks = |class: &str| json!({"priorityClassName": class, "containers": [{"name": "c", "image": "nginx:1.27", "resources": {"requests": {"cpu": "12"}}}]});
    cluster.create("low", &[], asks("low")).await;
    cluster.running("low").await;
    cluster.create("high", &[], asks("high")).await;
    cluster.wait("low", Value::is_null).await;
    let high = cluster.running("high").await;
    assert!(high["status"]["nominatedNodeName"].is_null(), "it has gone where it was nominated to");
    cluster.events("low", "Preempted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarting_the_kubelets_and_the_scheduler_restarts_no_container() {
    let cluster = Cluster::start(Nodes::mock(2), Clock::system()).await;
    cluster.create("web", &[], nginx()).await;
    let before = cluster.running("web").await;
    for component in ["kubelet", "scheduler"] {
        cluster.components.stop(component).await.unwrap();
    }
    cluster.create("late", &[], nginx()).await;
    for component in ["kubelet", "scheduler"] {
        cluster.components.start(component).unwrap();
    }
    cluster.running("late").await;
    let after = cluster.running("web").await;
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    assert_eq!(id(&before), id(&after));
    assert_eq!(after["status"]["containerStatuses"][0]["restartCount"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_on_the_first_write_of_each_component_is_survived() {
    let faults = Faults { conflict_first: true, ..Faults::default() };
    let cluster = Cluster::start_with(Nodes::mock(1), Clock::system(), COMPONENTS, faults).await;
    cluster.create("web", &[], nginx()).await;
    cluster.running("web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_are_cut_again_and_again_are_survived() {
    for pieces in [1, 2, 3] {
        let faults = Faults { cut_watches_after: Some(pieces), ..Faults::default() };
        let cluster = Cluster::start_with(Nodes::mock(2), Clock::system(), COMPONENTS, faults).await;
        for number in 0..5 {
            cluster.create(&format!("p-{number}"), &[], nginx()).await;
        }
        for number in 0..5 {
            cluster.running(&format!("p-{number}")).await;
        }
        cluster.pods().delete("p-0", &DeleteParams::default()).await.unwrap();
        cluster.wait("p-0", Value::is_null).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_from_outside_can_take_the_schedulers_place() {
    let cluster = Cluster::start_with(
        Nodes::mock(1),
        Clock::system(),
        &["kubelet", "node-ipam-controller", "node-lifecycle-controller"],
        Faults::default(),
    )
    .await;
    cluster.create("web", &[], nginx()).await;
    let (client, nodes): (_, Api<Node>) = (cluster.client.clone(), Api::all(cluster.client.clone()));
    let node = loop {
        match nodes.list(&ListParams::default()).await.unwrap().items.pop() {
            Some(node) => break node.metadata.name.unwrap(),
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    // All there is to a scheduler: for every Pod without a node, a binding.
    let pods: Api<Pod> = Api::all(client.clone());
    for pod in pods.list(&ListParams::default().fields("spec.nodeName=")).await.unwrap() {
        let name = pod.metadata.name.unwrap();
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
        let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.metadata.namespace.unwrap());
        let _: Value = pods.create_subresource("binding", &name, &PostParams::default(), &binding).await.unwrap();
    }
    cluster.running("web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_refers_to_a_missing_config_map_waits_for_it() {
    let cluster = Cluster::start(Nodes::mock(1), Clock::virtual_clock()).await;
    let env = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]);
    cluster.create("needs", &[], json!({"containers": [{"name": "c", "image": "nginx:1.27", "env": env}]})).await;
    let pod = cluster.wait("needs", |pod| waiting(pod) == "CreateContainerConfigError").await;
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"], "configmap \"settings\" not found");
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(cluster.client.clone(), "default");
    let map = serde_json::from_value(json!({"metadata": {"name": "settings"}, "data": {"a": "1"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    cluster.clock.advance(Duration::from_secs(11)).await;
    cluster.running("needs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_pod_runs_and_has_a_mirror() {
    let directory = tempfile::tempdir().unwrap();
    let config = NodeConfig { static_pod_path: Some(directory.path().to_owned()), ..NodeConfig::default() };
    let nodes = Nodes::new(config, None);
    nodes.add("node-1");
    let manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: proxy}\nspec: {containers: [{name: c, image: 'nginx:1.27'}]}\n";
    std::fs::write(directory.path().join("proxy.yaml"), manifest).unwrap();
    let cluster = Cluster::start(nodes, Clock::system()).await;
    let mirror = cluster.running("proxy-node-1").await;
    assert_eq!(mirror["metadata"]["annotations"]["kubernetes.io/config.source"], "file");
    std::fs::remove_file(directory.path().join("proxy.yaml")).unwrap();
    cluster.wait("proxy-node-1", Value::is_null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_pods_is_written_once_each() {
    let cluster = Cluster::start(Nodes::mock(5), Clock::system()).await;
    cluster.create("first", &[], nginx()).await;
    cluster.running("first").await;
    for number in 0..50 {
        cluster.create(&format!("p-{number}"), &[], nginx()).await;
    }
    for number in 0..50 {
        let pod = cluster.running(&format!("p-{number}")).await;
        // Created, bound, and one status that says it all: nothing else may have touched it.
        let managers = pod["metadata"]["managedFields"].as_array().unwrap().len();
        assert!(managers <= 3, "{:#}", pod["metadata"]["managedFields"]);
        assert_eq!(pod["status"]["phase"], "Running");
    }
}
