//! The store on a real etcd, which each test starts for itself on loopback. Runs only with `USHER_TEST_ETCD=1`, because a
//! machine need not have an etcd; `USHER_TEST_ETCD=/path/to/etcd` names another one than that in the `PATH`.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use usher::store::etcd::{EtcdOptions, EtcdStore};
use usher::store::{At, Change, Error, Expect, Range, Store};

use super::model::{agree, steps};
use super::{batch, delete, put};
use crate::until;

/// An etcd of one's own.
struct Etcd {
    directory: tempfile::TempDir,
    program: String,
    port: u16,
    peer_port: u16,
    tls: bool,
    child: Option<Child>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Etcd {
    /// `None`, with a word, where the test is not asked for.
    fn start() -> Option<Etcd> {
        let program = match std::env::var("USHER_TEST_ETCD") {
            Ok(value) if value == "1" => "etcd".to_owned(),
            Ok(value) if !value.is_empty() => value,
            _ => {
                println!("skipped: USHER_TEST_ETCD is not set");
                return None;
            }
        };
        let directory = tempfile::tempdir().unwrap();
        let mut etcd = Etcd { directory, program, port: free_port(), peer_port: free_port(), tls: false, child: None };
        etcd.run();
        Some(etcd)
    }

    fn run(&mut self) {
        let scheme = if self.tls { "https" } else { "http" };
        let client = format!("{scheme}://127.0.0.1:{}", self.port);
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let mut command = Command::new(&self.program);
        command
            .args(["--name", "test", "--data-dir"])
            .arg(self.directory.path().join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("test={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if self.tls {
            let file = |name: &str| self.directory.path().join(name);
            command.arg("--cert-file").arg(file("server.crt")).arg("--key-file").arg(file("server.key"));
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(file("ca.crt"));
        }
        self.child = Some(command.spawn().unwrap());
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn options(&self, prefix: &str) -> EtcdOptions {
        let mut options = EtcdOptions::parse(&format!("etcd://127.0.0.1:{}", self.port)).unwrap();
        options.prefix = prefix.to_owned();
        options.watch_window = None;
        options
    }

    async fn connect(&self, prefix: &str) -> Arc<EtcdStore> {
        connect(self.options(prefix)).await
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn connect(options: EtcdOptions) -> Arc<EtcdStore> {
    let mut last = None;
    for _ in 0..100 {
        match EtcdStore::connect(options.clone()).await {
            Ok(store) => return store,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("etcd does not come up: {last:?}");
}

fn told(store: &EtcdStore) -> Arc<Mutex<Vec<Change>>> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    store.attach(Arc::new(move |changes: &[Change]| sink.lock().unwrap().extend_from_slice(changes)));
    told
}

#[test]
fn etcd_agrees_with_the_model() {
    let Some(etcd) = Etcd::start() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    drop(runtime.block_on(etcd.connect("/first")));
    let case = AtomicU64::new(0);
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in steps())| {
        let prefix = format!("/case-{}", case.fetch_add(1, Ordering::Relaxed));
        let open = || runtime.block_on(etcd.connect(&prefix)) as Arc<dyn Store>;
        let open = || std::thread::scope(|scope| scope.spawn(open).join().unwrap());
        runtime.block_on(agree(&open, steps))?;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_over_one_etcd_see_each_others_writes_in_one_order() {
    let Some(etcd) = Etcd::start() else { return };
    let (a, b) = (etcd.connect("/usher").await, etcd.connect("/usher").await);
    let (told_a, told_b) = (told(&a), told(&b));
    let other = etcd.connect("/other").await;
    let mut tasks = Vec::new();
    for (name, store) in [("a", &a), ("b", &b)] {
        for writer in 0..8 {
            let (store, other) = (Arc::clone(store), Arc::clone(&other));
            tasks.push(tokio::spawn(async move {
                let own = format!("/own/{name}/{writer}");
                let first = store.commit(batch(vec![put(&own, "1", Expect::Absent)])).await.unwrap();
                store.commit(batch(vec![delete(&own, "gone", Expect::Revision(first))])).await.unwrap();
                other.commit(batch(vec![put(&own, "elsewhere", Expect::Absent)])).await.unwrap();
                for _ in 0..10 {
                    loop {
                        let current = store.get("/counter", At::Newest).await.unwrap();
                        let count: u64 = current.as_ref().map_or(0, |entry| std::str::from_utf8(&entry.value).unwrap().parse().unwrap());
                        let expect = current.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
                        match store.commit(batch(vec![put("/counter", &(count + 1).to_string(), expect)])).await {
                            Ok(_) => break,
                            Err(Error::Conflict { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    for store in [&a, &b] {
        assert_eq!(store.get("/counter", At::Newest).await.unwrap().unwrap().value, "160");
        assert_eq!(store.range(Range::default(), At::Newest).await.unwrap().entries.len(), 1);
    }
    assert_eq!(a.revision().await.unwrap(), b.revision().await.unwrap());
    until("both were told of everything", async || told_a.lock().unwrap().len() == 192 && told_b.lock().unwrap().len() == 192).await;
    let (told_a, told_b) = (told_a.lock().unwrap().clone(), told_b.lock().unwrap().clone());
    assert_eq!(format!("{told_a:?}"), format!("{told_b:?}"));
    assert!(told_a.windows(2).all(|pair| pair[0].revision < pair[1].revision));
    assert!(told_a.iter().filter(|change| change.deleted).all(|change| change.value == "gone" && change.audit_id.is_some()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_goes_on_when_etcd_was_stopped_and_started() {
    let Some(mut etcd) = Etcd::start() else { return };
    let (a, b) = (etcd.connect("/usher").await, etcd.connect("/usher").await);
    let told = told(&a);
    let first = b.commit(batch(vec![put("/before", "1", Expect::Absent)])).await.unwrap();
    until("the write is told of", async || told.lock().unwrap().len() == 1).await;
    etcd.stop();
    let error = a.commit(batch(vec![put("/lost", "1", Expect::Absent)])).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable(text) if text.contains("etcd at 127.0.0.1")), "{error}");
    assert!(matches!(a.get("/before", At::Newest).await, Err(Error::Unavailable(_))));
    etcd.run();
    // Reads are tried again for a moment by themselves.
    let mut entry = a.get("/before", At::Newest).await;
    for _ in 0..50 {
        if entry.is_ok() {
            break;
        }
        entry = a.get("/before", At::Newest).await;
    }
    assert_eq!(entry.unwrap().unwrap().revision, first);
    let second = b.commit(batch(vec![put("/after", "1", Expect::Absent)])).await.unwrap();
    until("the feed goes on", async || told.lock().unwrap().len() == 2).await;
    let told: Vec<u64> = told.lock().unwrap().iter().map(|change| change.revision).collect();
    assert_eq!(told, [first, second], "a gap or a repeat");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_by_another_server_is_noticed() {
    let Some(etcd) = Etcd::start() else { return };
    let (a, b) = (etcd.connect("/usher").await, etcd.connect("/usher").await);
    let first = a.commit(batch(vec![put("/a", "1", Expect::Absent), put("/b", "1", Expect::Absent)])).await.unwrap();
    let second = a.commit(batch(vec![put("/a", "2", Expect::Revision(first))])).await.unwrap();
    a.compact(second).await.unwrap();
    assert_eq!(a.floor(), second);
    for result in [b.get("/a", At::Revision(first)).await.map(drop), b.log("", first, second).await.map(drop)] {
        assert!(matches!(result, Err(Error::Compacted { floor }) if floor == second), "{result:?}");
    }
    assert_eq!(b.floor(), second);
    assert_eq!(b.get("/a", At::Revision(second)).await.unwrap().unwrap().value, "2");
    assert_eq!(etcd.connect("/usher").await.floor(), second);
    let mut options = etcd.options("/usher");
    options.watch_window = Some(Duration::from_millis(1000));
    let c = connect(options).await;
    let third = a.commit(batch(vec![put("/a", "3", Expect::Revision(second))])).await.unwrap();
    until("the watch window moves the floor", async || c.floor() == third).await;
}

/// A way to etcd that can be cut.
struct Line {
    port: u16,
    to: u16,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Line {
    async fn mend(&mut self) {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        let to = self.to;
        self.task = Some(tokio::spawn(async move {
            // Dropped with the task, and all connections with it.
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                connections.spawn(async move {
                    let mut far = tokio::net::TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        }));
    }

    async fn cut(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_cut_off_for_longer_than_etcd_keeps_history_is_told_of_the_difference() {
    let Some(etcd) = Etcd::start() else { return };
    let far = etcd.connect("/usher").await;
    let mut line = Line { port: free_port(), to: etcd.port, task: None };
    line.mend().await;
    let mut options = etcd.options("/usher");
    options.endpoints = vec![format!("127.0.0.1:{}", line.port)];
    let near = connect(options).await;
    let told = told(&near);
    let keys = ["/kept", "/changed", "/deleted"];
    let first = far.commit(batch(keys.iter().map(|key| put(key, "1", Expect::Absent)).collect())).await.unwrap();
    until("the first batch is told of", async || told.lock().unwrap().len() == 3).await;
    line.cut().await;
    far.commit(batch(vec![put("/changed", "2", Expect::Revision(first))])).await.unwrap();
    far.commit(batch(vec![delete("/deleted", "1", Expect::Revision(first))])).await.unwrap();
    let last = far.commit(batch(vec![put("/new", "1", Expect::Absent)])).await.unwrap();
    far.compact(last).await.unwrap();
    line.mend().await;
    until("the difference is told of", async || told.lock().unwrap().len() == 6).await;
    let mut difference: Vec<(String, bool)> =
        told.lock().unwrap()[3..].iter().map(|change| (change.key.to_string(), change.deleted)).collect();
    difference.sort();
    assert_eq!(difference, [("/changed".to_owned(), false), ("/deleted".to_owned(), true), ("/new".to_owned(), false)]);
    // And the feed goes on from there.
    let next = near.commit(batch(vec![put("/next", "1", Expect::Absent)])).await.unwrap();
    assert_eq!(told.lock().unwrap().last().unwrap().revision, next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_reached_over_tls_with_a_client_certificate() {
    let Some(mut etcd) = Etcd::start() else { return };
    etcd.stop();
    let _ = std::fs::remove_dir_all(etcd.directory.path().join("data"));
    certificates(etcd.directory.path());
    etcd.tls = true;
    etcd.port = free_port();
    etcd.run();
    let file = |name: &str| Some(etcd.directory.path().join(name));
    let mut options = etcd.options("/usher");
    (options.ca, options.cert, options.key) = (file("ca.crt"), file("client.crt"), file("client.key"));
    let store = connect(options.clone()).await;
    let revision = store.commit(batch(vec![put("/a", "1", Expect::Absent)])).await.unwrap();
    assert_eq!(store.get("/a", At::Newest).await.unwrap().unwrap().revision, revision);
    let snapshot = etcd.directory.path().join("snapshot");
    store.snapshot(&snapshot).await.unwrap();
    assert!(std::fs::metadata(&snapshot).unwrap().len() > 1000);
    (options.cert, options.key) = (None, None);
    assert!(EtcdStore::connect(options).await.is_err(), "etcd let us in without a certificate");
}

fn certificates(directory: &Path) {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&ca_key).unwrap();
    std::fs::write(directory.join("ca.crt"), ca_certificate.pem()).unwrap();
    let issuer = Issuer::new(ca, ca_key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(directory.join(format!("{name}.crt")), certificate.pem()).unwrap();
        std::fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_servers_over_one_etcd_one_runs_the_components_and_the_other_takes_over() {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use kube::api::{Patch, PatchParams, PostParams};
    use serde_json::json;

    let Some(etcd) = Etcd::start() else { return };
    drop(etcd.connect("/usher").await);
    let start = || {
        let mut builder = usher::Server::builder();
        builder.store = usher::server::StoreChoice::Etcd(etcd.options("/usher"));
        builder.components = "all".into();
        builder.nodes = 1;
        async { builder.start().await.unwrap() }
    };
    let scaled_to = async |server: &usher::Server, wanted: i32| {
        for _ in 0..600 {
            let deployment = Api::<Deployment>::default_namespaced(server.client()).get("web").await.unwrap();
            if deployment.status.is_some_and(|status| status.ready_replicas == Some(wanted)) {
                let pods = Api::<Pod>::default_namespaced(server.client()).list(&Default::default()).await.unwrap().items;
                assert_eq!(pods.len(), wanted as usize, "and none too many");
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the Deployment does not get {wanted} Pods");
    };
    let (first, second) = (start().await, start().await);
    let web =
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "example.com/web:1"}]}}}}))
        .unwrap();
    Api::<Deployment>::default_namespaced(second.client()).create(&PostParams::default(), &web).await.unwrap();
    scaled_to(&second, 3).await;
    let leases = Api::<Lease>::namespaced(second.client(), "kube-system");
    for (lease, component) in [("kube-controller-manager", "replicaset-controller"), ("kube-scheduler", "scheduler")] {
        assert!(leases.get(lease).await.unwrap().spec.unwrap().holder_identity.is_some());
        let runs = [&first, &second].map(|server| server.components.running().contains(&component));
        assert!(runs[0] != runs[1], "{component}: {runs:?}");
    }
    let leads = first.components.running().contains(&"replicaset-controller");
    let (leader, other) = if leads { (first, second) } else { (second, first) };
    leader.stop().await;
    let deployments = Api::<Deployment>::default_namespaced(other.client());
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 5}}))).await.unwrap();
    scaled_to(&other, 5).await;
    other.stop().await;
}
