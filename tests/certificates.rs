//! CertificateSigningRequests from the request to the handshake: who may approve and sign, what the built-in signers make of
//! it, and that the server then knows whoever shows the certificate.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use usher_components::controllers::certificates::request::make;

use crate::identity::Door;
use crate::identity::https::Authority;

const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";

async fn door() -> Door {
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.components = "csrsigning,csrapproving,csrcleaner".into();
    Door::open(builder).await
}

fn groups(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn object(name: &str, signer: &str, request: &str, usages: &[&str]) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"signerName": signer, "request": STANDARD.encode(request), "usages": usages},
    })
}

fn with_condition(mut object: Value, kind: &str) -> Value {
    object["status"]["conditions"] = json!([{"type": kind, "status": "True", "reason": "Test", "message": "by the test"}]);
    object
}

impl Door {
    async fn put_as(&self, user: Option<&str>, path: &str, body: &Value) -> (u16, Value) {
        let headers: Vec<(&str, &str)> = user.map(|user| ("impersonate-user", user)).into_iter().collect();
        self.call(&self.admin(), Method::PUT, path, &headers, Some(body.clone())).await
    }

    /// Waits for what a controller makes of a request.
    async fn until(&self, name: &str, done: impl Fn(&Value) -> bool) -> Value {
        let path = format!("{PATH}/{name}");
        crate::answer(name, async || {
            let (code, object) = self.call(&self.admin(), Method::GET, &path, &[], None).await;
            (code == 200 && done(&object)).then_some(object)
        })
        .await
    }
}

fn certificate(object: &Value) -> Option<String> {
    let encoded = object["status"]["certificate"].as_str()?;
    Some(String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap())
}

#[tokio::test]
async fn an_approved_request_becomes_a_certificate_that_the_server_knows_with_all_its_groups() {
    let door = door().await;
    let (request, key) = make("alice", &groups(&["devs", "on-call"])).unwrap();
    let mut asked = with_condition(object("alice", CLIENT, &request, &["client auth"]), "Approved");
    asked["spec"]["username"] = json!("kubernetes-admin");
    asked["spec"]["groups"] = json!(["system:masters"]);
    let headers = [("impersonate-user", "bob"), ("impersonate-group", "devs")];
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "asks"}, "rules": [{"verbs": ["create"], "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"]}]});
    door.make("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
    door.bind("asks", "bob").await;
    let (code, made) = door.call(&door.admin(), Method::POST, PATH, &headers, Some(asked)).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!((&made["spec"]["username"], &made["spec"]["groups"]), (&json!("bob"), &json!(["devs", "system:authenticated"])));
    assert!(made["status"]["conditions"].is_null(), "nobody approves with the request itself: {made}");

    let (code, approved) = door.put_as(None, &format!("{PATH}/alice/approval"), &with_condition(made, "Approved")).await;
    assert_eq!(code, 200, "{approved}");
    assert!(approved["status"]["conditions"][0]["lastUpdateTime"].is_string());
    let signed = door.until("alice", |object| certificate(object).is_some()).await;
    let alice = door.client(Some((&certificate(&signed).unwrap(), &key)));
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let (code, me) = door.call(&alice, Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &[], Some(review)).await;
    assert_eq!(code, 201, "{me}");
    let user = &me["status"]["userInfo"];
    assert_eq!((&user["username"], &user["groups"]), (&json!("alice"), &json!(["devs", "on-call", "system:authenticated"])));

    let mut other = signed.clone();
    other["status"]["certificate"] = json!(STANDARD.encode(&door.server.pki().admin));
    let (code, refused) = door.put_as(None, &format!("{PATH}/alice/status"), &other).await;
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().unwrap().contains("updates may not modify existing certificate content"), "{refused}");
}

#[tokio::test]
async fn approving_and_signing_each_take_the_right_to_the_signer() {
    let door = door().await;
    let (request, _) = make("carol", &[]).unwrap();
    let made = door.make(PATH, object("carol", "example.com/own", &request, &["client auth"])).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "subresources"},
        "rules": [{"verbs": ["update"], "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/approval", "certificatesigningrequests/status"]}],
    });
    door.make("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
    door.bind("subresources", "bob").await;
    let approval = format!("{PATH}/carol/approval");
    let (code, body) = door.put_as(Some("bob"), &approval, &with_condition(made.clone(), "Approved")).await;
    assert_eq!(code, 403, "{body}");
    let message = |verb: &str| {
        format!(
            "certificatesigningrequests.certificates.k8s.io \"carol\" is forbidden: user not permitted to {verb} requests with signerName \"example.com/own\""
        )
    };
    assert_eq!(body["message"], message("approve"));
    for (verb, name) in [("approve", "example.com/own"), ("sign", "example.com/*")] {
        let rules = json!([{"verbs": [verb], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": [name]}]);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": verb}, "rules": rules});
        door.make("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
    }
    door.bind("approve", "bob").await;
    let (code, approved) = door.put_as(Some("bob"), &approval, &with_condition(made, "Approved")).await;
    assert_eq!(code, 200, "{approved}");
    let mut signed = approved.clone();
    signed["status"]["certificate"] = json!(STANDARD.encode(&door.server.pki().admin));
    let (code, body) = door.put_as(Some("bob"), &format!("{PATH}/carol/status"), &signed).await;
    assert_eq!((code, &body["message"]), (403, &json!(message("sign"))));
    door.bind("sign", "bob").await;
    let (code, body) = door.put_as(Some("bob"), &format!("{PATH}/carol/status"), &signed).await;
    assert_eq!(code, 200, "{body}");
}

#[tokio::test]
async fn a_denied_request_is_not_signed_and_nobody_becomes_an_administrator_by_certificate() {
    let door = door().await;
    let (request, _) = make("dave", &[]).unwrap();
    let made = door.make(PATH, object("dave", CLIENT, &request, &["client auth"])).await;
    let (code, denied) = door.put_as(None, &format!("{PATH}/dave/approval"), &with_condition(made, "Denied")).await;
    assert_eq!(code, 200, "{denied}");
    let mut both = denied.clone();
    both["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "Approved", "status": "True"}));
    let (code, refused) = door.put_as(None, &format!("{PATH}/dave/approval"), &both).await;
    assert_eq!(code, 422);
    assert!(refused["message"].as_str().unwrap().contains("must specify at most one of"), "{refused}");

    let (request, _) = make("eve", &groups(&["system:masters"])).unwrap();
    let asked = object("eve", CLIENT, &request, &["client auth"]);
    let (code, body) = door.call(&door.admin(), Method::POST, PATH, &[], Some(asked)).await;
    assert_eq!(code, 403);
    assert_eq!(
        body["message"],
        "certificatesigningrequests.certificates.k8s.io \"eve\" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    );
    // An approved request that the signer must not sign says so; by then the denied one would long have been signed.
    let (request, _) = make("mallory", &groups(&["system:nodes"])).unwrap();
    let made = door.make(PATH, object("mallory", KUBELET, &request, &["client auth"])).await;
    door.put_as(None, &format!("{PATH}/mallory/approval"), &with_condition(made, "Approved")).await;
    let failed = door.until("mallory", |object| object["status"]["conditions"][1]["type"] == "Failed").await;
    assert_eq!(failed["status"]["conditions"][1]["reason"], "SignerValidationFailure");
    assert!(certificate(&door.until("dave", |_| true).await).is_none());
}

#[tokio::test]
async fn a_kubelets_own_client_certificate_is_approved_without_a_person_if_it_may_have_it() {
    let door = door().await;
    let usages = ["client auth", "digital signature"];
    let (request, key) = make("system:node:n1", &groups(&["system:nodes"])).unwrap();
    let ask = |name: &'static str, user: &'static str, group: &'static str| {
        let asked = object(name, KUBELET, &request, &usages);
        let door = &door;
        async move {
            let headers = [("impersonate-user", user), ("impersonate-group", group)];
            let (code, made) = door.call(&door.admin(), Method::POST, PATH, &headers, Some(asked)).await;
            assert_eq!(code, 201, "{made}");
        }
    };
    ask("renewal", "system:node:n1", "system:nodes").await;
    door.bind_group("system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes").await;
    ask("renewal-2", "system:node:n1", "system:nodes").await;
    let signed = door.until("renewal-2", |object| certificate(object).is_some()).await;
    let condition = &signed["status"]["conditions"][0];
    let message = "Auto approving self kubelet client certificate after SubjectAccessReview.";
    assert_eq!((&condition["reason"], &condition["message"]), (&json!("AutoApproved"), &json!(message)));
    let node = door.client(Some((&certificate(&signed).unwrap(), &key)));
    let (code, _) = door.call(&node, Method::GET, "/api/v1/nodes/n1", &[], None).await;
    assert_eq!(code, 404, "it may ask for its own Node, which is not there yet");
    let waiting = door.until("renewal", |_| true).await;
    assert!(waiting["status"]["conditions"].is_null(), "what came before the right came was left to a person");
}

#[tokio::test]
async fn one_command_makes_a_kubeconfig_for_a_new_identity() {
    let door = door().await;
    let directory = tempfile::tempdir().unwrap();
    let (mine, alices) = (directory.path().join("admin"), directory.path().join("alice"));
    std::fs::write(&mine, door.kubeconfig()).unwrap();
    let run = |arguments: Vec<String>| {
        let mine = mine.clone();
        async move {
            let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_usher"));
            command.arg("user").arg("add").args(arguments).arg("--kubeconfig").arg(mine).output().await.unwrap()
        }
    };
    let out = alices.display().to_string();
    let arguments = ["alice", "--group", "devs", "--group", "on-call", "--expires", "1h", "--kubeconfig-out", &out];
    let output = run(arguments.iter().map(|a| (*a).to_owned()).collect()).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let config = kube::config::Kubeconfig::read_from(&alices).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let reviews: kube::Api<k8s_openapi::api::authentication::v1::SelfSubjectReview> = kube::Api::all(client);
    let me = reviews.create(&Default::default(), &Default::default()).await.unwrap().status.unwrap().user_info.unwrap();
    assert_eq!(me.username.as_deref(), Some("alice"));
    assert_eq!(me.groups.unwrap(), ["devs", "on-call", "system:authenticated"]);

    let refused = run(vec!["eve".into(), "--group".into(), "system:masters".into()]).await;
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("system:masters group is not allowed"));
}

/// A process that ends with the test.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn controllers_in_a_process_of_their_own_sign_with_the_authority_they_are_given() {
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    let authority = Authority::new("signers");
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    // The server knows clients of that authority, as it would with a kube-controller-manager beside it.
    builder.identity.client_ca_file = Some(file("ca.crt", &authority.pem));
    let door = Door::open(builder).await;
    let controllers = std::process::Command::new(env!("CARGO_BIN_EXE_usher"))
        .args(["controllers", "--controllers", "csrsigning", "--cluster-signing-duration", "2h"])
        .arg("--kubeconfig")
        .arg(file("kubeconfig", &door.kubeconfig()))
        .arg("--cluster-signing-cert-file")
        .arg(directory.path().join("ca.crt"))
        .arg("--cluster-signing-key-file")
        .arg(file("ca.key", &authority.key_pem()))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let _controllers = Child(controllers);
    let (request, key) = make("carla", &groups(&["ops"])).unwrap();
    let made = door.make(PATH, object("carla", CLIENT, &request, &["client auth"])).await;
    let (code, body) = door.put_as(None, &format!("{PATH}/carla/approval"), &with_condition(made, "Approved")).await;
    assert_eq!(code, 200, "{body}");
    let signed = door.until("carla", |object| certificate(object).is_some()).await;
    let pem = certificate(&signed).unwrap();
    let block = x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap();
    let parsed = block.parse_x509().unwrap();
    assert_eq!(parsed.issuer().iter_common_name().next().unwrap().as_str().unwrap(), "signers");
    let lives = parsed.validity().not_after.timestamp() - parsed.validity().not_before.timestamp();
    assert_eq!(lives, 2 * 3600 + 300, "no longer than the signer was told to let it");
    let (code, body) = door.call(&door.client(Some((&pem, &key))), Method::GET, "/api/v1/pods", &[], None).await;
    assert_eq!(code, 403);
    assert!(body["message"].as_str().unwrap().contains("User \"carla\" cannot list"), "{body}");
}
