//! A server that is started with `--admission-control-config-file`: the plugins that are off by default, with what a real server
//! answers under the same configuration.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::server::{Reply, Webhooks};

const PLUGINS: &str = "AlwaysPullImages,PodTolerationRestriction,EventRateLimit,ImagePolicyWebhook,PodNodeSelector,\
ExtendedResourceToleration,LimitPodHardAntiAffinityTopology,NamespaceAutoProvision,OwnerReferencesPermissionEnforcement";

const STATIC_POLICY: &str = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: no.static.k8s.io}\nspec:\n  matchConstraints:\n    resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]\n    objectSelector: {matchLabels: {static: 'yes'}}\n  validations: [{expression: 'false', message: static says no}]\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: no.static.k8s.io}\nspec: {policyName: no.static.k8s.io, validationActions: [Deny]}\n";

/// The server's process; it ends with the test.
struct Running {
    process: std::process::Child,
    http: reqwest::Client,
    base: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn configuration(directory: &Path, hooks: &Webhooks) -> Value {
    let manifests = directory.join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    std::fs::write(manifests.join("p.yaml"), STATIC_POLICY).unwrap();
    let server = format!("https://127.0.0.1:{}/images", hooks.port);
    let kubeconfig = json!({"clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority-data": hooks.ca_bundle}}]});
    std::fs::write(directory.join("images"), kubeconfig.to_string()).unwrap();
    let exists = |key: &str| json!({"key": key, "operator": "Exists"});
    let whitelist: Vec<Value> =
        ["d", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/memory-pressure", "example.com/gpu"]
            .into_iter()
            .map(exists)
            .collect();
    let plugin = |name: &str, configuration: Value| json!({"name": name, "configuration": configuration});
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [
        plugin("EventRateLimit", json!({"limits": [{"type": "Namespace", "qps": 1, "burst": 2}]})),
        plugin("ImagePolicyWebhook", json!({"imagePolicy": {"kubeConfigFile": "images", "allowTTL": 50, "denyTTL": 50}})),
        plugin("PodNodeSelector", json!({"podNodeSelectorPluginConfig": {"clusterDefaultNodeSelector": "cd=1", "bound": "env=prod,cd=1"}})),
        plugin("PodTolerationRestriction", json!({"default": [{"key": "d", "operator": "Exists", "effect": "NoSchedule"}], "whitelist": whitelist})),
        plugin("ResourceQuota", json!({"limitedResources": [
            {"resource": "persistentvolumeclaims", "matchContains": [".storageclass.storage.k8s.io/requests.storage"]},
            {"resource": "pods", "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["system-cluster-critical"]}]}]})),
        plugin("PodSecurity", json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
            "defaults": {"enforce": "baseline", "enforce-version": "latest"}, "exemptions": {"namespaces": ["bound"]}})),
        plugin("ValidatingAdmissionPolicy", json!({"staticManifestsDir": manifests})),
    ]})
}

impl Running {
    async fn start(directory: &Path, hooks: &Webhooks) -> Running {
        let file = directory.join("admission.yaml");
        std::fs::write(&file, configuration(directory, hooks).to_string()).unwrap();
        std::fs::write(directory.join("tokens"), "admin-token,admin,u1,\"system:masters\"\nbob-token,bob,u2,\"devs\"\n").unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_usher"))
            .args(["up", "--store", "memory", "--components", "none", "--listen", "127.0.0.1:0", "--enable-admission-plugins", PLUGINS])
            .arg("--data-dir")
            .arg(directory.join("data"))
            .arg("--admission-control-config-file")
            .arg(&file)
            .arg("--token-auth-file")
            .arg(directory.join("tokens"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = process.stdout.take().unwrap();
        let base = tokio::task::spawn_blocking(move || {
            use std::io::BufRead;
            let lines = std::io::BufReader::new(output).lines().map_while(Result::ok);
            lines.into_iter().find_map(|line| line.split_whitespace().find(|word| word.starts_with("https://")).map(str::to_owned))
        });
        let base = base.await.unwrap().expect("the server says where it is");
        let http = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap();
        Running { process, http, base }
    }

    async fn send(&self, token: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = self.http.request(method.parse().unwrap(), format!("{}{path}", self.base)).bearer_auth(token);
        let answer = request.header("content-type", media).body(body.to_string()).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.send("admin-token", "POST", path, body).await
    }

    /// Wants a Pod; gives its spec, or why there is none.
    async fn pod(&self, namespace: &str, spec: Value) -> Result<Value, String> {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        for (field, value) in spec.as_object().unwrap() {
            pod["spec"][field] = value.clone();
        }
        let (code, made) = self.post(&format!("/api/v1/namespaces/{namespace}/pods?dryRun=All"), pod).await;
        match code {
            201 => Ok(made["spec"].clone()),
            _ => Err(made["message"].as_str().unwrap().to_owned()),
        }
    }
}

/// As a backend would: one image is bad, and one so bad that it does not say why.
fn images(review: &Value) -> Reply {
    let is = |word: &str| review["spec"]["containers"].as_array().unwrap().iter().any(|c| c["image"].as_str().unwrap().contains(word));
    let status = match (is("silent"), is("bad")) {
        (true, _) => json!({"allowed": false}),
        (_, true) => json!({"allowed": false, "reason": "bad image"}),
        _ => json!({"allowed": true}),
    };
    Reply::Raw(
        200,
        "application/json",
        json!({"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": status}).to_string(),
    )
}

#[tokio::test]
async fn plugins_do_what_their_configuration_says() {
    let (directory, hooks) = (tempfile::tempdir().unwrap(), Webhooks::start().await);
    hooks.on("/images", images);
    let server = Running::start(directory.path(), &hooks).await;
    for namespace in ["plain", "bound"] {
        let made = server.post(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await;
        assert_eq!(made.0, 201, "the namespace comes by itself: {}", made.1);
    }
    let refused = server.post("/api/v1/namespaces/Bad_x/configmaps", json!({"metadata": {"name": "a"}})).await;
    assert!(
        refused.1["message"]
            .as_str()
            .unwrap()
            .starts_with("configmaps \"a\" is forbidden: Namespace \"Bad_x\" is invalid: metadata.name: Invalid value")
    );

    let spec = server.pod("plain", json!({"containers": [{"name": "c", "image": "i", "imagePullPolicy": "Never", "resources": {"limits": {"example.com/gpu": "1", "cpu": "1"}}}]})).await.unwrap();
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(spec["nodeSelector"], json!({"cd": "1"}));
    let tolerated: Vec<&str> = spec["tolerations"].as_array().unwrap().iter().map(|t| t["key"].as_str().unwrap()).collect();
    let expected =
        ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "d", "node.kubernetes.io/memory-pressure", "example.com/gpu"];
    assert_eq!(tolerated, expected);

    let anti = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}});
    // As observed: namespace, spec, what is told.
    for (namespace, spec, why) in [
        (
            "plain",
            json!({"containers": [{"name": "c", "image": "bad"}]}),
            "pods \"p\" is forbidden: image policy webhook backend denied one or more images: bad image",
        ),
        (
            "plain",
            json!({"containers": [{"name": "c", "image": "silent"}]}),
            "pods \"p\" is forbidden: one or more images rejected by webhook backend",
        ),
        (
            "plain",
            json!({"nodeSelector": {"cd": "2"}}),
            "pods \"p\" is forbidden: pod node label selector conflicts with its namespace node label selector",
        ),
        (
            "bound",
            json!({"nodeSelector": {"env": "test"}}),
            "pods \"p\" is forbidden: pod node label selector labels conflict with its namespace whitelist",
        ),
        (
            "plain",
            json!({"tolerations": [{"key": "x", "operator": "Exists"}]}),
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist",
        ),
        (
            "plain",
            json!({"affinity": anti}),
            "pods \"p\" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey zone but only key kubernetes.io/hostname is allowed",
        ),
        (
            "plain",
            json!({"hostNetwork": true}),
            "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)",
        ),
        (
            "plain",
            json!({"priorityClassName": "system-cluster-critical"}),
            "insufficient quota to match these scopes: [{PriorityClass In [system-cluster-critical]}]",
        ),
    ] {
        assert_eq!(server.pod(namespace, spec).await.unwrap_err(), why);
    }
    assert!(server.pod("bound", json!({"hostNetwork": true, "nodeSelector": {"env": "prod"}})).await.is_ok(), "exempt");
    let review = hooks.reviews.lock()[0].1.clone();
    assert_eq!(review["spec"], json!({"containers": [{"image": "i"}], "namespace": "plain"}));

    let claim = json!({"metadata": {"name": "c"}, "spec": {"storageClassName": "gold", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let refused = server.post("/api/v1/namespaces/plain/persistentvolumeclaims", claim).await;
    assert_eq!(
        refused.1["message"],
        "persistentvolumeclaims \"c\" is forbidden: insufficient quota to consume: gold.storageclass.storage.k8s.io/requests.storage"
    );

    let refused =
        server.post("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a", "labels": {"static": "yes"}}})).await;
    assert_eq!(
        refused.1["message"],
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'no.static.k8s.io' with binding 'no.static.k8s.io' denied request: static says no"
    );

    let event = |name: &str| json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "namespace": "plain", "name": "p"}});
    let path = "/api/v1/namespaces/plain/events";
    assert_eq!((server.post(path, event("a")).await.0, server.post(path, event("b")).await.0), (201, 201));
    let (code, refused) = server.post(path, event("c")).await;
    assert_eq!((code, &refused["message"]), (429, &json!("Too many requests: limit reached on type Namespace for key plain")));
    assert_eq!(server.post(&format!("{path}?dryRun=All"), event("d")).await.0, 201, "what is not kept does not count");
}

#[tokio::test]
async fn who_sets_an_owner_must_be_allowed_to() {
    let (directory, hooks) = (tempfile::tempdir().unwrap(), Webhooks::start().await);
    let server = Running::start(directory.path(), &hooks).await;
    let rules = json!([
        {"verbs": ["create", "update", "patch", "get"], "apiGroups": [""], "resources": ["configmaps"]},
        {"verbs": ["update"], "apiGroups": ["apps"], "resources": ["deployments/finalizers"]},
    ]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    server.post(&format!("{rbac}/clusterroles"), json!({"metadata": {"name": "own"}, "rules": rules})).await;
    let subject = json!([{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "own"});
    server.post(&format!("{rbac}/clusterrolebindings"), json!({"metadata": {"name": "own"}, "roleRef": role, "subjects": subject})).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    server.post(maps, json!({"metadata": {"name": "old"}})).await;
    let owner = |kind: &str, version: &str, blocks: bool| json!([{"apiVersion": version, "kind": kind, "name": "n", "uid": "u", "blockOwnerDeletion": blocks}]);
    let patch = json!({"metadata": {"ownerReferences": owner("Pod", "v1", false)}});
    let refused = server.send("bob-token", "PATCH", &format!("{maps}/old"), patch).await;
    assert_eq!(refused.1["message"], "configmaps \"old\" is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>");
    // As observed: the owner, what is told of a new object; nothing is that it may be.
    for (i, (owners, why)) in [
        (owner("Pod", "v1", false), ""),
        (owner("Deployment", "apps/v1", true), ""),
        (owner("Pod", "v1", true), "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"),
        (owner("Foo", "v9", true), "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion v9 Kind Foo: no matches for kind \"Foo\" in version \"v9\""),
    ]
    .into_iter()
    .enumerate()
    {
        let object = json!({"metadata": {"name": format!("m{i}"), "ownerReferences": owners}});
        let (code, answer) = server.send("bob-token", "POST", maps, object).await;
        match why {
            "" => assert_eq!(code, 201, "{answer}"),
            why => assert_eq!(answer["message"], format!("configmaps \"m{i}\" is forbidden: {why}")),
        }
    }
}
