//! What comes over the wire, and who is believed to have sent it.

use std::io::Write;
use std::sync::Arc;

use base64::Engine;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use usher::Server;
use usher::gateway::tls;

use super::server::*;

/// A server with such a certificate that reads a little of each request, says this and then nothing more. Gives its port.
async fn saying(certificate: &str, key: &str, answer: &'static [u8]) -> u16 {
    let mut config = tls::server_config(certificate.as_bytes(), key.as_bytes()).unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = socket.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut some = [0; 64];
                let _ = stream.read(&mut some).await;
                let _ = stream.write_all(answer).await;
                std::future::pending::<()>().await;
            });
        }
    });
    port
}

fn encoded(pem: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(pem)
}

/// An authority, and a certificate of it with these names and this common name.
fn signed(names: &[&str], common: &str) -> (String, String, String) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    (authority.pem(), certificate.pem(), key.serialize_pem())
}

#[tokio::test]
async fn a_certificate_is_judged_in_gos_order_and_words() {
    let server = Server::builder().in_memory().start().await.unwrap();
    let (client, hooks) = (server.client(), Webhooks::start().await);
    let mut own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own_key = KeyPair::generate().unwrap();
    let own = own.self_signed(&own_key).unwrap().pem();
    let (ca, old, old_key) = signed(&[], "127.0.0.1");
    let (other_ca, other, other_key) = signed(&["10.1.2.3"], "x");
    // Name, certificate and key, whom to trust, what is told.
    let cases = [
        ("old", &old, &old_key, &ca, "certificate relies on legacy Common Name field, use SANs instead"),
        ("foreign", &own, &own_key.serialize_pem(), &ca, "certificate signed by unknown authority"),
        ("elsewhere", &other, &other_key, &other_ca, "certificate is valid for 10.1.2.3, not 127.0.0.1"),
        // Whose it is comes before who vouches for it.
        ("neither", &other, &other_key, &ca, "certificate is valid for 10.1.2.3, not 127.0.0.1"),
    ];
    for (name, certificate, key, trusted, words) in cases {
        let port = saying(certificate, key, b"").await;
        let mut entry = hooks.entry(name, "/x");
        entry["clientConfig"] = json!({"url": format!("https://127.0.0.1:{port}/x"), "caBundle": encoded(trusted)});
        configure(&client, false, name, vec![entry]).await;
        let failed = create(&configmaps(&client), configmap("w", name)).await.unwrap_err();
        assert!(failed.message.ends_with(&format!("tls: failed to verify certificate: x509: {words}")), "{name}: {}", failed.message);
    }
}

#[tokio::test]
async fn an_answer_that_stops_half_way_is_waited_for_no_longer_than_the_timeout() {
    let server = Server::builder().in_memory().start().await.unwrap();
    let (client, hooks) = (server.client(), Webhooks::start().await);
    let (ca, certificate, key) = signed(&["127.0.0.1"], "x");
    let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    let port = saying(&certificate, &key, answer).await;
    let mut entry = hooks.entry("half", "/x");
    entry["clientConfig"] = json!({"url": format!("https://127.0.0.1:{port}/x"), "caBundle": encoded(&ca)});
    entry["timeoutSeconds"] = json!(1);
    configure(&client, true, "half", vec![entry]).await;
    let failed = create(&configmaps(&client), configmap("w", "half")).await.unwrap_err();
    assert_eq!(
        failed.message,
        "Internal error occurred: failed calling webhook \"half.example.com\": failed to call webhook: unexpected error when reading response body. Please retry. Original error: context deadline exceeded"
    );
}

#[tokio::test]
async fn an_answer_may_be_compressed_and_need_not_be_utf8() {
    let server = Server::builder().in_memory().start().await.unwrap();
    let (client, hooks) = (server.client(), Webhooks::start().await);
    let body = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "x", "allowed": true}});
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(body.to_string().as_bytes()).unwrap();
    let answer = |body: Vec<u8>, header: &str| -> &'static [u8] {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{header}Content-Length: {}\r\n\r\n", body.len());
        [head.into_bytes(), body].concat().leak()
    };
    let (ca, certificate, key) = signed(&["127.0.0.1"], "x");
    for (name, answer, words) in [
        // That it was read shows in what is said of it.
        ("gzip", answer(gzip.finish().unwrap(), "Content-Encoding: gzip\r\n"), "\", got \"x\""),
        (
            "latin",
            answer(b"{\"kind\":\"\xff\"}".to_vec(), ""),
            "no kind \"\u{fffd}\" is registered for version \"admission.k8s.io/v1\" in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:74\"",
        ),
    ] {
        let port = saying(&certificate, &key, answer).await;
        let mut entry = hooks.entry(name, "/x");
        entry["clientConfig"] = json!({"url": format!("https://127.0.0.1:{port}/x"), "caBundle": encoded(&ca)});
        configure(&client, false, name, vec![entry]).await;
        let failed = create(&configmaps(&client), configmap("w", name)).await.unwrap_err();
        assert!(failed.message.ends_with(words), "{}", failed.message);
    }
}
