//! Client certificates and front proxies over real TLS: whose word counts, and which certificates are 401.

use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use super::https::Authority;
use super::{Door, eventually};

impl Door {
    /// Who a client is, with headers, or the code of the refusal.
    async fn who(&self, client: &Client, headers: &[(&str, &str)]) -> Result<Value, u16> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        match self.call(client, Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews", headers, Some(review)).await {
            (201, mut body) => Ok(body["status"]["userInfo"].take()),
            (code, _) => Err(code),
        }
    }

    fn with_certificate(&self, pair: &(String, String)) -> Client {
        self.client(Some((&pair.0, &pair.1)))
    }
}

#[tokio::test]
async fn a_client_certificate_is_good_from_its_authority_in_its_time_for_its_purpose() {
    let (authority, other) = (Authority::new("clients"), Authority::new("clients"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    std::fs::write(&file, &authority.pem).unwrap();
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.identity.client_ca_file = Some(file.clone());
    let door = Door::open(builder).await;
    let good = authority.client("alice", "devs");
    let user = door.who(&door.with_certificate(&good), &[]).await.unwrap();
    assert_eq!((&user["username"], &user["groups"]), (&json!("alice"), &json!(["devs", "system:authenticated"])));
    for (what, pair) in [
        ("expired", authority.issue("alice", "devs", ClientAuth, -3600, -60)),
        ("not yet valid", authority.issue("alice", "devs", ClientAuth, 3600, 7200)),
        ("for servers", authority.issue("alice", "devs", ServerAuth, -60, 3600)),
        ("of an authority of the same name", other.client("alice", "devs")),
        ("without a name", authority.client("", "devs")),
    ] {
        assert_eq!(door.who(&door.with_certificate(&pair), &[]).await, Err(401), "{what}");
    }
    // A good token beside a bad certificate is known; a bad token beside a good certificate does no harm, as on a real server.
    let (code, _) = door.call(&door.with_certificate(&good), Method::GET, "/api", &[("authorization", "Bearer nonsense")], None).await;
    assert_eq!(code, 200);
    // The bundle is replaced while the server runs.
    std::fs::write(&file, &other.pem).unwrap();
    let taken = other.client("alice", "devs");
    eventually(async || door.who(&door.with_certificate(&taken), &[]).await.is_ok()).await;
    assert_eq!(door.who(&door.with_certificate(&good), &[]).await, Err(401));
    assert!(door.who(&door.admin(), &[]).await.is_ok(), "the server's own authority stays");
}

#[tokio::test]
async fn a_front_proxy_says_who_asks_and_nobody_else_does() {
    let (proxies, clients) = (Authority::new("proxies"), Authority::new("clients"));
    let directory = tempfile::tempdir().unwrap();
    let (file, client_file) = (directory.path().join("proxies.pem"), directory.path().join("clients.pem"));
    std::fs::write(&file, &proxies.pem).unwrap();
    std::fs::write(&client_file, &clients.pem).unwrap();
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.identity.requestheader_client_ca_file = Some(file.clone());
    builder.identity.requestheader.allowed_names = vec!["front".into()];
    builder.identity.client_ca_file = Some(client_file);
    let door = Door::open(builder).await;
    let says = [
        ("x-remote-user", "alice"),
        ("x-remote-uid", "7"),
        ("x-remote-group", "devs"),
        ("x-remote-group", "ops"),
        ("x-remote-extra-acme.com%2fproject", "p"),
    ];
    let front = door.with_certificate(&proxies.client("front", "proxies"));
    let user = door.who(&front, &says).await.unwrap();
    let expected =
        json!({"username": "alice", "uid": "7", "groups": ["devs", "ops", "system:authenticated"], "extra": {"acme.com/project": ["p"]}});
    assert_eq!(user, expected);
    assert_eq!(door.who(&front, &[]).await, Err(401), "a proxy that names nobody is nobody itself");
    for (what, pair) in [
        ("another name", proxies.client("back", "proxies")),
        ("expired", proxies.issue("front", "proxies", ClientAuth, -3600, -60)),
        ("not yet valid", proxies.issue("front", "proxies", ClientAuth, 3600, 7200)),
        ("for servers", proxies.issue("front", "proxies", ServerAuth, -60, 3600)),
        ("of a foreign authority", Authority::new("proxies").client("front", "proxies")),
    ] {
        assert_eq!(door.who(&door.with_certificate(&pair), &says).await, Err(401), "{what}");
    }
    // A client of the server may write such headers, but stays who it is; without a certificate they are nobody's word.
    let user = door.who(&door.with_certificate(&clients.client("bob", "devs")), &says).await.unwrap();
    assert_eq!(user["username"], "bob");
    let (code, body) = door.call(&door.client(None), Method::GET, "/api/v1/pods", &says, None).await;
    assert_eq!(code, 403);
    assert!(body["message"].as_str().unwrap().contains("User \"system:anonymous\""));
    // What a proxy says is no reason to skip authorisation of impersonation.
    let mut both = says.to_vec();
    both.push(("impersonate-user", "kubernetes-admin"));
    both.push(("impersonate-group", "system:masters"));
    assert_eq!(door.who(&front, &both).await, Err(403));
    let next = Authority::new("proxies");
    std::fs::write(&file, &next.pem).unwrap();
    let taken = next.client("front", "proxies");
    eventually(async || door.who(&door.with_certificate(&taken), &says).await.is_ok()).await;
    assert_eq!(door.who(&front, &says).await, Err(401));
}
