//! Hops 02 and 03 on a whole server: credentials over TLS, tokens and what revokes them, roles that count at once, nodes
//! that keep to themselves.

use std::time::Duration;

use base64::Engine;
use reqwest::{Certificate, Client, Identity, Method};
use serde_json::{Value, json};
use usher::Server;
use usher::request::User;

mod certificates;
pub mod https;
mod oidc;
mod tokens;
mod webhooks;

pub struct Door {
    pub server: Server,
    base: String,
}

async fn door() -> Door {
    Door::open(crate::builder().listen("127.0.0.1:0".parse().unwrap())).await
}

impl Door {
    pub async fn open(builder: usher::server::Builder) -> Door {
        let server = builder.start().await.unwrap();
        let base = format!("https://{}", server.address().unwrap());
        Door { server, base }
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> String {
        let encode = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
        let pki = self.server.pki();
        let cluster = json!({"server": self.base, "certificate-authority-data": encode(&pki.ca)});
        let user = json!({"client-certificate-data": encode(&pki.admin), "client-key-data": encode(&pki.admin_key)});
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": user}],
        })
        .to_string()
    }

    /// Gives a ClusterRole to a user.
    pub async fn bind(&self, role: &str, user: &str) {
        self.bind_subject(role, json!({"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"})).await;
    }

    /// Gives a ClusterRole to a group.
    pub async fn bind_group(&self, role: &str, group: &str) {
        self.bind_subject(role, json!({"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"})).await;
    }

    async fn bind_subject(&self, role: &str, subject: Value) {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"generateName": "b-"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": [subject],
        });
        self.make("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    }

    /// A client that trusts the server, with or without a certificate of its own.
    pub fn client(&self, certificate: Option<(&str, &str)>) -> Client {
        let ca = Certificate::from_pem(self.server.pki().ca.as_bytes()).unwrap();
        let mut builder = Client::builder().tls_certs_only([ca]).no_proxy().timeout(Duration::from_secs(20));
        if let Some((certificate, key)) = certificate {
            builder = builder.identity(Identity::from_pem(format!("{certificate}\n{key}").as_bytes()).unwrap());
        }
        builder.build().unwrap()
    }

    pub fn admin(&self) -> Client {
        self.client(Some((&self.server.pki().admin, &self.server.pki().admin_key)))
    }

    pub async fn call(&self, client: &Client, method: Method, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> (u16, Value) {
        let mut request = client.request(method, format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.unwrap();
        let code = response.status().as_u16();
        (code, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or(Value::Null))
    }

    pub async fn make(&self, path: &str, body: Value) -> Value {
        let (code, made) = self.call(&self.admin(), Method::POST, path, &[], Some(body)).await;
        assert_eq!(code, 201, "{made}");
        made
    }

    pub async fn remove(&self, path: &str) {
        let (code, body) = self.call(&self.admin(), Method::DELETE, path, &[], Some(json!({"gracePeriodSeconds": 0}))).await;
        assert_eq!(code, 200, "{body}");
    }

    /// Who a bearer token says one is, or the code of the refusal.
    pub async fn user(&self, client: &Client, token: &str) -> Result<Value, u16> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let headers = [("authorization", token_header(token))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        match self.call(client, Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &headers, Some(review)).await {
            (201, mut body) => Ok(body["status"]["userInfo"].take()),
            (code, _) => Err(code),
        }
    }

    pub async fn get_as(&self, user: &str, groups: &[&str], path: &str) -> (u16, Value) {
        let mut headers = vec![("impersonate-user", user)];
        headers.extend(groups.iter().map(|group| ("impersonate-group", *group)));
        self.call(&self.admin(), Method::GET, path, &headers, None).await
    }
}

fn token_header(token: &str) -> String {
    format!("Bearer {token}")
}

#[tokio::test]
async fn bad_credentials_are_401_and_none_are_anonymous() {
    let door = door().await;
    let plain = door.client(None);
    let pods = "/api/v1/namespaces/default/pods";
    let (code, body) = door.call(&plain, Method::GET, pods, &[("authorization", "Bearer wrong")], None).await;
    let unauthorized = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401});
    assert_eq!((code, body), (401, unauthorized));
    let (code, body) = door.call(&plain, Method::GET, pods, &[], None).await;
    assert_eq!(code, 403);
    assert_eq!(
        body["message"],
        "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    let (code, _) = door.call(&door.admin(), Method::GET, pods, &[], None).await;
    assert_eq!(code, 200);
    for oversized in ["Basic dXNlcjpwYXNz", "Bearer eyJhbGciOiJub25lIn0.e30.", &token_header(&"x".repeat(7000))] {
        let (code, _) = door.call(&plain, Method::GET, pods, &[("authorization", oversized)], None).await;
        assert_eq!(code, 401, "{oversized:.30}");
    }
}

#[tokio::test]
async fn a_certificate_of_a_foreign_authority_is_401_and_not_a_broken_handshake() {
    let door = door().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "kubernetes-admin");
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
    let certificate = params.self_signed(&key).unwrap().pem();
    let client = door.client(Some((&certificate, &key.serialize_pem())));
    let (code, body) = door.call(&client, Method::GET, "/api/v1/namespaces", &[], None).await;
    assert_eq!((code, &body["reason"]), (401, &json!("Unauthorized")));
}

#[tokio::test]
async fn a_service_accounts_token_is_good_until_the_account_is_gone() {
    let door = door().await;
    door.make(
        "/api/v1/namespaces/default/serviceaccounts",
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}}),
    )
    .await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}});
    let issued = door.make("/api/v1/namespaces/default/serviceaccounts/bot/token", request).await;
    let token = issued["status"]["token"].as_str().unwrap();
    let bearer = token_header(token);
    let plain = door.client(None);
    let secrets = "/api/v1/namespaces/default/secrets";
    let (code, body) = door.call(&plain, Method::GET, secrets, &[("authorization", &bearer)], None).await;
    assert_eq!(code, 403);
    assert!(body["message"].as_str().unwrap().contains("User \"system:serviceaccount:default:bot\" cannot list"));

    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let reviewed = door.make("/apis/authentication.k8s.io/v1/tokenreviews", review).await;
    assert_eq!(reviewed["status"]["user"]["username"], "system:serviceaccount:default:bot");

    door.remove("/api/v1/namespaces/default/serviceaccounts/bot").await;
    let (code, _) = door.call(&plain, Method::GET, secrets, &[("authorization", &bearer)], None).await;
    assert_eq!(code, 401);
    door.make(
        "/api/v1/namespaces/default/serviceaccounts",
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}}),
    )
    .await;
    let (code, _) = door.call(&plain, Method::GET, secrets, &[("authorization", &bearer)], None).await;
    assert_eq!(code, 401, "another account of the same name is another account");
}

#[tokio::test]
async fn a_binding_counts_for_the_very_next_request_and_its_removal_too() {
    let door = door().await;
    let group = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let maps = "/api/v1/namespaces/default/configmaps";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]}]});
    door.make(&format!("{group}/roles"), role).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    for _ in 0..5 {
        assert_eq!(door.get_as("bob", &[], maps).await.0, 403);
        door.make(&format!("{group}/rolebindings"), binding.clone()).await;
        assert_eq!(door.get_as("bob", &[], maps).await.0, 200);
        assert_eq!(door.get_as("eve", &[], maps).await.0, 403);
        door.remove(&format!("{group}/rolebindings/b")).await;
    }
}

#[tokio::test]
async fn impersonation_is_itself_authorised() {
    let door = door().await;
    let (code, body) = door.get_as("alice", &["g1"], "/api/v1/namespaces/default/pods").await;
    assert_eq!(code, 403);
    assert!(body["message"].as_str().unwrap().starts_with("pods is forbidden: User \"alice\" cannot list"));
    let nobody = door.client(None);
    let headers = [("impersonate-user", "kubernetes-admin"), ("impersonate-group", "system:masters")];
    let (code, body) = door.call(&nobody, Method::GET, "/api/v1/namespaces/default/pods", &headers, None).await;
    assert_eq!(code, 403);
    let message = "pods is forbidden: User \"system:anonymous\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"default\"";
    assert_eq!(body["message"], message);
}

#[tokio::test]
async fn a_node_reads_what_its_pods_need_and_nothing_of_its_neighbours() {
    let door = door().await;
    let ns = "/api/v1/namespaces/default";
    door.make(&format!("{ns}/serviceaccounts"), json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}))
        .await;
    for name in ["mine", "theirs"] {
        door.make(&format!("{ns}/secrets"), json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})).await;
    }
    let n1 = ("system:node:n1", ["system:nodes"]);
    assert_eq!(door.get_as(n1.0, &n1.1, &format!("{ns}/secrets/mine")).await.0, 403);
    for (pod, node, secret) in [("p1", "n1", "mine"), ("p2", "n2", "theirs")] {
        door.make("/api/v1/nodes", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})).await;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod},
            "spec": {"nodeName": node, "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v", "secret": {"secretName": secret}}]},
        });
        door.make(&format!("{ns}/pods"), pod).await;
    }
    assert_eq!(door.get_as(n1.0, &n1.1, &format!("{ns}/secrets/mine")).await.0, 200);
    let (code, body) = door.get_as(n1.0, &n1.1, &format!("{ns}/secrets/theirs")).await;
    assert_eq!(code, 403);
    assert!(body["message"].as_str().unwrap().ends_with(": node: no relationship found between node 'n1' and this object"));
    assert_eq!(door.get_as(n1.0, &n1.1, "/api/v1/nodes/n2").await.0, 403);
    door.remove(&format!("{ns}/pods/p1")).await;
    assert_eq!(door.get_as(n1.0, &n1.1, &format!("{ns}/secrets/mine")).await.0, 403);
}

#[tokio::test]
async fn a_stolen_node_identity_changes_no_other_node_and_does_not_raise_its_own() {
    let door = door().await;
    let ns = "/api/v1/namespaces/default";
    for node in ["n1", "n2"] {
        door.make("/api/v1/nodes", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})).await;
    }
    door.make(&format!("{ns}/serviceaccounts"), json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}))
        .await;
    let mut uids = Vec::new();
    for (pod, node) in [("p1", "n1"), ("p2", "n2")] {
        let spec = json!({"nodeName": node, "serviceAccountName": "default", "containers": [{"name": "c", "image": "i"}]});
        let made =
            door.make(&format!("{ns}/pods"), json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}, "spec": spec})).await;
        uids.push(made["metadata"]["uid"].as_str().unwrap().to_owned());
    }
    let as_n1 = [("impersonate-user", "system:node:n1"), ("impersonate-group", "system:nodes")];
    let merge = [as_n1[0], as_n1[1], ("content-type", "application/merge-patch+json")];
    let admin = door.admin();
    let patch = async |path: String, body: Value| {
        let request =
            merge.iter().fold(admin.patch(format!("{}{path}", door.base)), |request, (name, value)| request.header(*name, *value));
        let response = request.body(body.to_string()).send().await.unwrap();
        let code = response.status().as_u16();
        (code, response.json::<Value>().await.unwrap()["message"].as_str().unwrap_or_default().to_owned())
    };
    let label = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    let (code, message) = patch("/api/v1/nodes/n2".into(), label("a")).await;
    assert_eq!((code, message.as_str()), (403, "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\""));
    let (code, _) = patch("/api/v1/nodes/n2/status".into(), json!({"status": {"phase": "x"}})).await;
    assert_eq!(code, 403);
    let (code, message) = patch("/api/v1/nodes/n1".into(), label("node-restriction.kubernetes.io/tier")).await;
    let words = "nodes \"n1\" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/tier";
    assert_eq!((code, message.as_str()), (403, words));
    let (code, message) = patch("/api/v1/nodes/n1".into(), json!({"spec": {"taints": []}})).await;
    assert!(code == 200 || message.contains("taints"), "{message}");
    let taint = json!({"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}});
    assert!(patch("/api/v1/nodes/n1".into(), taint).await.1.ends_with("is not allowed to modify taints"));
    assert_eq!(patch("/api/v1/nodes/n1".into(), label("example.com/own")).await.0, 200, "its own labels are its own");
    assert_eq!(patch(format!("{ns}/pods/p2/status"), json!({"status": {"phase": "Failed"}})).await.0, 403);
    let (code, _) = door.call(&admin, Method::DELETE, &format!("{ns}/pods/p2"), &as_n1, None).await;
    assert_eq!(code, 403);

    let token = async |bound: Value| {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}});
        let path = format!("{ns}/serviceaccounts/default/token");
        let (code, body) = door.call(&admin, Method::POST, &path, &as_n1, Some(request)).await;
        (code, body["message"].as_str().unwrap_or_default().to_owned())
    };
    let pod = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
    assert!(token(Value::Null).await.1.ends_with("node requested token not bound to a pod"));
    assert!(token(pod("p2", &uids[1])).await.1.ends_with("node requested token bound to a pod scheduled on a different node"));
    assert_eq!(token(pod("p1", &uids[0])).await.0, 201);
}

#[tokio::test]
async fn nobody_hands_on_more_than_they_hold() {
    let door = door().await;
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let maker = json!([{"verbs": ["create"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"]}]);
    door.make(
        &format!("{path}/roles"),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "maker"}, "rules": maker}),
    )
    .await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "maker"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maker"}, "subjects": [{"kind": "User", "name": "bob"}],
    });
    door.make(&format!("{path}/rolebindings"), binding).await;
    let grab = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "esc"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]});
    let headers = [("impersonate-user", "bob"), ("impersonate-group", "devs")];
    let (code, body) = door.call(&door.admin(), Method::POST, &format!("{path}/roles"), &headers, Some(grab)).await;
    assert_eq!(code, 403, "{body}");
    assert_eq!(
        body["message"],
        "roles.rbac.authorization.k8s.io \"esc\" is forbidden: user \"bob\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}"
    );
}

#[tokio::test]
async fn components_inside_the_process_are_authorised_like_anybody() {
    let door = door().await;
    let stranger = door.server.client_as(User::new("system:somebody", &["system:authenticated"]));
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> = kube::Api::namespaced(stranger, "default");
    let refused = secrets.list(&Default::default()).await.unwrap_err();
    assert!(refused.to_string().contains("cannot list resource"), "{refused}");
}

#[tokio::test]
async fn a_token_file_counts_anew_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens.csv");
    std::fs::write(&file, "t1,admin,1,system:masters\n").unwrap();
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.identity.token_auth_file = Some(file.clone());
    let door = Door::open(builder).await;
    let plain = door.client(None);
    let ask = |token: &'static str| {
        let (door, plain) = (&door, &plain);
        async move { door.call(plain, Method::GET, "/api/v1/namespaces", &[("authorization", &token_header(token))], None).await.0 }
    };
    assert_eq!((ask("t1").await, ask("t2").await), (200, 401));
    std::fs::write(&file, "t2,admin,1,system:masters\n").unwrap();
    crate::until("the new token is known", async || ask("t2").await == 200).await;
    assert_eq!(ask("t1").await, 401);
}

#[tokio::test]
async fn structured_authentication_narrows_anonymous_to_paths_and_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authentication.yaml");
    let write = |anonymous: &str| {
        std::fs::write(
            &file,
            format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {anonymous}\n"),
        )
        .unwrap();
    };
    write("{enabled: true, conditions: [{path: /livez}]}");
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.identity.authentication_config = Some(file.clone());
    let door = Door::open(builder).await;
    let plain = door.client(None);
    let ask = |path: &'static str| {
        let (door, plain) = (&door, &plain);
        async move { door.call(plain, Method::GET, path, &[], None).await.0 }
    };
    assert_eq!(ask("/api/v1/pods").await, 401);
    assert_ne!(ask("/livez").await, 401);
    write("{enabled: false}");
    crate::until("nobody is anonymous", async || ask("/livez").await == 401).await;
}

/// Waits until something holds that a file's change brings about.
async fn eventually(holds: impl AsyncFn() -> bool) {
    crate::until("the file is read again", holds).await;
}
