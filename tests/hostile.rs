//! Bad input at the front door: every mistake gets the status that a real server gives, or a clean close; nothing panics, and the
//! server goes on answering.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use usher::Server;

struct Door {
    server: Server,
    tls: TlsConnector,
}

impl Door {
    async fn open() -> Door {
        let server = crate::builder().listen("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
        let pki = server.pki();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(pem_certificate(&pki.ca)).unwrap();
        let key = {
            use rustls::pki_types::pem::PemObject;
            rustls::pki_types::PrivateKeyDer::from_pem_slice(pki.admin_key.as_bytes()).unwrap()
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![pem_certificate(&pki.admin)], key)
            .unwrap();
        Door { server, tls: TlsConnector::from(Arc::new(config)) }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let socket = TcpStream::connect(self.server.address().unwrap()).await.unwrap();
        self.tls.connect(ServerName::try_from("localhost").unwrap(), socket).await.unwrap()
    }

    /// Sends bytes over HTTP/1.1 and gives back what comes until the server closes or is silent.
    async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// A request to the stack without a socket, as the administrator.
    async fn send(&self, method: &str, path: &str, content_type: &str, body: impl Into<bytes::Bytes>) -> (u16, Value) {
        let mut request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        let user = usher::request::User::new("kubernetes-admin", &["system:masters", "system:authenticated"]);
        request = request.extension(usher::authn::InProcess(Arc::new(user)));
        let request = request.body(axum::body::Body::new(Full::new(body.into()))).unwrap();
        let response = tower::ServiceExt::oneshot(self.server.router(), request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn still_answers(&self) {
        let (code, _) = self.send("GET", "/api/v1/namespaces/default", "", "").await;
        assert_eq!(code, 200);
    }
}

fn pem_certificate(pem: &str) -> rustls::pki_types::CertificateDer<'static> {
    use rustls::pki_types::pem::PemObject;
    rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn a_body_that_is_no_object_is_a_bad_request() {
    let door = Door::open().await;
    let deep = format!("{}1{}", "{\"a\":".repeat(1000), "}".repeat(1000));
    let wrong_type = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": 5}).to_string();
    let cases: Vec<Vec<u8>> = vec![
        b"{\"apiVersion\":\"v1\",".to_vec(),
        b"".to_vec(),
        b"[]".to_vec(),
        b"\"text\"".to_vec(),
        wrong_type.into_bytes(),
        b"{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"x\"}}".to_vec(),
    ];
    for case in cases {
        let (code, status) = door.send("POST", MAPS, "application/json", case.clone()).await;
        let shown = String::from_utf8_lossy(&case[..case.len().min(60)]).into_owned();
        assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")), "{shown}: {status}");
    }
    // A thousand levels are no object of the kind; what exactly is wrong with it depends on where they stand.
    for body in [
        deep.clone(),
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"x\",\"labels\":{deep}}}}}"),
        "[".repeat(100_000),
    ] {
        let (code, status) = door.send("POST", MAPS, "application/json", body).await;
        assert!(code == 400 || code == 422, "{code} {status}");
    }
    // Bad UTF-8 is replaced, as a Go server does; the object is then judged like any other.
    let (code, _) = door
        .send("POST", MAPS, "application/json", &b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"\xff\"}}"[..])
        .await;
    assert!((400..500).contains(&code), "{code}");
    door.still_answers().await;
}

#[tokio::test]
async fn a_body_over_three_megabytes_is_too_large() {
    let door = Door::open().await;
    let (code, status) = door.send("POST", MAPS, "application/json", vec![b'x'; 10 << 20]).await;
    assert_eq!((code, &status["reason"]), (413, &json!("RequestEntityTooLarge")), "{status}");
    let (code, _) = door.send("PATCH", &format!("{MAPS}/x"), "application/merge-patch+json", vec![b'x'; 10 << 20]).await;
    assert_eq!(code, 413);
    door.still_answers().await;
}

#[tokio::test]
async fn unknown_verbs_types_and_paths_get_their_status() {
    let door = Door::open().await;
    assert_eq!(door.send("FOO", MAPS, "", "").await.0, 405);
    assert_eq!(door.send("HEAD", MAPS, "", "").await.0, 405);
    assert_eq!(door.send("PUT", MAPS, "", "").await.0, 405);
    assert_eq!(door.send("POST", MAPS, "text/plain", "x").await.0, 415);
    assert_eq!(door.send("PATCH", &format!("{MAPS}/x"), "application/json", "{}").await.0, 415);
    assert_eq!(door.send("GET", "/apis/nope.example.com/v1/things", "", "").await.0, 404);
    assert_eq!(door.send("GET", "/api/v1/foos", "", "").await.0, 404);
    assert_eq!(door.send("GET", "/api/v1/namespaces/%2e%2e%2f/configmaps/%00", "", "").await.0, 404);
    for query in [
        "limit=abc",
        "resourceVersion=abc",
        "continue=abc",
        "labelSelector=a%20in%20(",
        "fieldSelector=foo",
        "timeoutSeconds=x",
        "limit=-1&continue=%00",
    ] {
        let (code, status) = door.send("GET", &format!("{MAPS}?{query}"), "", "").await;
        assert_eq!(code, 400, "{query}: {status}");
    }
    door.still_answers().await;
}

#[tokio::test]
async fn absurd_headers_and_broken_http_end_cleanly() {
    let door = Door::open().await;
    let huge = format!("GET /version HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "a".repeat(2 << 20));
    let many = format!("GET /version HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(5000));
    for bytes in [
        huge.as_bytes(),
        many.as_bytes(),
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /api HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
    ] {
        let answer = door.raw(bytes).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{}", &answer[..answer.len().min(200)]);
    }
    let fine = door.raw(b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(fine.starts_with("HTTP/1.1 200"), "{fine}");
    door.still_answers().await;
}

#[tokio::test]
async fn a_peer_that_says_nothing_or_half_a_request_holds_nobody_up() {
    let door = Door::open().await;
    let address = door.server.address().unwrap();
    // Connections that never shake hands, and heads that never end.
    let mut idle = Vec::new();
    for i in 0..50 {
        let mut socket = TcpStream::connect(address).await.unwrap();
        if i % 2 == 0 {
            socket.write_all(b"\x16\x03\x01").await.unwrap();
        }
        idle.push(socket);
    }
    let mut slow = door.connect().await;
    slow.write_all(b"GET /version HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    let fine = door.raw(b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(fine.starts_with("HTTP/1.1 200"), "{fine}");
    drop(idle);
    // The slow one is given up on.
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(20), slow.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the server still waits for the rest of a head");
    door.still_answers().await;
}

#[tokio::test]
async fn a_bad_credential_is_refused_and_not_taken_for_anonymous() {
    let door = Door::open().await;
    for header in ["Bearer nope", "Bearer a.b.c", "Bearer ", "Basic YTpi", "Bearer \u{e9}"] {
        let request =
            http::Request::builder().uri("/api/v1/namespaces").header("authorization", header).body(axum::body::Body::empty()).unwrap();
        let response = tower::ServiceExt::oneshot(door.server.router(), request).await.unwrap();
        let code = response.status().as_u16();
        assert_eq!(code, 401, "{header}");
    }
}
