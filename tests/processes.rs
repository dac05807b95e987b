//! Components in processes of their own, as `usher controllers|scheduler|kubelet` runs them.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, LogParams, PostParams};
use serde_json::json;

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(arguments: &[&str], kubeconfig: &Path) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
        command.args(arguments).arg("--kubeconfig").arg(kubeconfig).stdout(Stdio::null()).stderr(Stdio::null());
        Process(command.spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_runs_and_only_the_api_server_is_shown_its_logs() {
    let door = crate::identity::Door::open(crate::builder().listen("127.0.0.1:0".parse().unwrap())).await;
    let server = &door.server;
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, door.kubeconfig()).unwrap();
    let kubelet = ["kubelet", "--hostname-override", "gpu-1", "--node-labels", "pool=gpu", "--register-with-taints", "gpu=true:NoSchedule"];
    let _processes = [&["controllers"][..], &["scheduler"], &kubelet].map(|arguments| Process::start(arguments, &kubeconfig));

    let web = json!({"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}, "annotations": {"mock.usher.dev/log-lines": "hello\nfrom afar"}},
            "spec": {"nodeSelector": {"pool": "gpu"}, "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "containers": [{"name": "c", "image": "example.com/web:1"}]}}}});
    let deployments = Api::<Deployment>::default_namespaced(server.client());
    deployments.create(&PostParams::default(), &serde_json::from_value(web).unwrap()).await.unwrap();
    let ready = async {
        while deployments.get("web").await.unwrap().status.and_then(|status| status.ready_replicas) != Some(2) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ready).await.expect("both Pods run");
    let pods = Api::<Pod>::default_namespaced(server.client());
    let pod = pods.list(&ListParams::default()).await.unwrap().items.remove(0).metadata.name.unwrap();
    assert_eq!(pods.logs(&pod, &LogParams::default()).await.unwrap(), "hello\nfrom afar\n");
    assert_eq!(pods.logs(&pod, &LogParams { tail_lines: Some(1), ..LogParams::default() }).await.unwrap(), "from afar\n");
    let previous = pods.logs(&pod, &LogParams { previous: true, ..LogParams::default() }).await.unwrap_err().to_string();
    assert!(previous.contains("previous terminated container \"c\" in pod"), "{previous}");

    let status = Api::<Node>::all(server.client()).get("gpu-1").await.unwrap().status.unwrap();
    let port = status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port;
    let url = format!("https://{}:{port}/pods", status.addresses.unwrap()[0].address);
    let pki = server.pki();
    let asked_as = async |certificate: Option<(&str, &str)>| {
        let mut client = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true);
        if let Some((certificate, key)) = certificate {
            client = client.identity(reqwest::Identity::from_pem(format!("{certificate}\n{key}").as_bytes()).unwrap());
        }
        client.build().unwrap().get(&url).send().await.unwrap().status().as_u16()
    };
    assert_eq!(asked_as(None).await, 401);
    assert_eq!(asked_as(Some((&pki.front_proxy_client, &pki.front_proxy_client_key))).await, 401, "signed by somebody else");
    assert_eq!(asked_as(Some((&pki.admin, &pki.admin_key))).await, 403);
    assert_eq!(asked_as(Some((&pki.kubelet_client, &pki.kubelet_client_key))).await, 200);
}

#[test]
fn settings_that_cannot_be_served_are_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let bad = directory.path().join("bad.yaml");
    std::fs::write(&bad, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Nonsense}]\n").unwrap();
    let (data, bad) = (directory.path().join("data"), bad.to_str().unwrap());
    let log = directory.path().join("logs/audit.log");
    for wrong in [
        ["--components", "nonsense"],
        ["--audit-policy", bad],
        ["--audit-webhook-config-file", bad],
        ["--otlp-endpoint", "nonsense"],
        ["--authorization-mode", "Nonsense"],
        ["--enable-admission-plugins", "Nonsense"],
        ["--token-auth-file", "/nonexistent"],
        ["--listen", "192.0.2.1:1"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
        command.arg("up").args(wrong).arg("--data-dir").arg(&data).arg("--audit-log").arg(&log);
        let output = command.env("USHER_LISTEN", "127.0.0.1:0").env("USHER_LOG", "off").output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && told.starts_with("usher: ") && told.lines().count() == 1, "{wrong:?}: {told}");
        assert!(!data.exists(), "{wrong:?}");
        assert!(!log.exists() || wrong[0] == "--listen", "{wrong:?}");
    }
}

#[tokio::test]
async fn a_server_whose_words_nobody_reads_serves_on() {
    let directory = tempfile::tempdir().unwrap();
    let (policy, kubeconfig) = (directory.path().join("policy.yaml"), directory.path().join("kubeconfig"));
    let write =
        |level: &str| std::fs::write(&policy, format!("{{kind: Policy, apiVersion: audit.k8s.io/v1, rules: [{{level: {level}}}]}}"));
    write("Metadata").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
    command.args(["up", "--components", "none", "--store", "memory", "--listen", "127.0.0.1:0", "--audit-log", "-"]);
    command.arg("--data-dir").arg(directory.path().join("data")).arg("--kubeconfig").arg(&kubeconfig).arg("--audit-policy").arg(&policy);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    let _process = Process(child);
    let client = async {
        loop {
            if let Ok(config) = kube::config::Kubeconfig::read_from(&kubeconfig)
                && let Ok(config) = kube::Config::from_custom_kubeconfig(config, &Default::default()).await
            {
                return kube::Client::try_from(config).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let client = tokio::time::timeout(Duration::from_secs(30), client).await.expect("it is ready, although it cannot say so");
    // Whoever reloads says so; if that were the end of it, the second change would not count.
    for level in ["Request", "RequestResponse"] {
        write(level).unwrap();
        let counts = async {
            let series = format!("apiserver_audit_level_total{{level=\"{level}\"}} 0");
            while client.request_text(http::Request::get("/metrics").body(Vec::new()).unwrap()).await.unwrap().contains(&series) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), counts).await.expect("the policy counts");
    }
}
