//! What the tests of this room share: requests, a clock that stands still, objects in a map, certificates made on the
//! spot. Compiled for tests only.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::future::BoxFuture;
use http::request::Parts;
use parking_lot::Mutex;
use serde_json::Value;

use crate::request::User;

use super::{Authenticated, Now, Objects, TokenAuthenticator, Unauthenticated};

/// A request without body.
pub fn request(path: &str, headers: &[(&'static str, &str)]) -> Parts {
    let mut builder = http::Request::builder().uri(path);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(()).unwrap().into_parts().0
}

/// Knows exactly one token.
pub struct OneToken(pub &'static str, pub &'static str);

impl TokenAuthenticator for OneToken {
    fn name(&self) -> &'static str {
        "one"
    }

    fn authenticate_token<'a>(&'a self, token: &'a str, _: &'a [String]) -> BoxFuture<'a, Result<Option<Authenticated>, Unauthenticated>> {
        let user = Arc::new(User::new(self.1, &[]));
        let known = (token == self.0).then(|| Authenticated { user, audiences: vec![], by: "one" });
        Box::pin(async move { Ok(known) })
    }
}

/// A clock that only moves when told to.
#[derive(Clone)]
pub struct Clock(Arc<AtomicI64>);

impl Clock {
    pub fn at(seconds: i64) -> Self {
        Clock(Arc::new(AtomicI64::new(seconds)))
    }

    pub fn system() -> Self {
        Clock::at(jiff::Timestamp::now().as_second())
    }

    pub fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }

    pub fn now(&self) -> Now {
        let cell = self.0.clone();
        Arc::new(move || jiff::Timestamp::from_second(cell.load(Ordering::SeqCst)).unwrap())
    }
}

/// Objects in a map.
#[derive(Default)]
pub struct Map(Mutex<HashMap<(String, String, String), Arc<Value>>>);

impl Map {
    pub fn put(&self, resource: &str, object: Value) {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        let key = (resource.to_owned(), text("namespace"), text("name"));
        self.0.lock().insert(key, Arc::new(object));
    }

    pub fn remove(&self, resource: &str, namespace: &str, name: &str) {
        self.0.lock().remove(&(resource.to_owned(), namespace.to_owned(), name.to_owned()));
    }
}

impl Objects for Map {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.0.lock().get(&(resource.to_owned(), namespace.to_owned(), name.to_owned())).cloned()
    }
}

/// A certificate authority made on the spot.
pub struct Authority {
    pub issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pub pem: String,
}

/// What a certificate of a test is to say.
pub struct Leaf<'a> {
    pub cn: &'a str,
    pub organisations: &'a [&'a str],
    pub usage: rcgen::ExtendedKeyUsagePurpose,
    /// Seconds from now.
    pub from: i64,
    /// Seconds from now.
    pub until: i64,
    pub sans: &'a [&'a str],
}

impl Default for Leaf<'_> {
    fn default() -> Self {
        Leaf { cn: "alice", organisations: &["devs"], usage: rcgen::ExtendedKeyUsagePurpose::ClientAuth, from: -60, until: 3600, sans: &[] }
    }
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: rcgen::Issuer::new(params, key), pem }
    }

    /// A certificate in DER and its key.
    pub fn issue(&self, leaf: &Leaf<'_>) -> (Vec<u8>, rcgen::KeyPair) {
        let sans: Vec<String> = leaf.sans.iter().map(|s| (*s).to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(sans).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !leaf.cn.is_empty() {
            params.distinguished_name.push(rcgen::DnType::CommonName, leaf.cn);
        }
        // rcgen keeps one value per type, so several organisations go under types of the same OID.
        for organisation in leaf.organisations.iter().take(1) {
            params.distinguished_name.push(rcgen::DnType::OrganizationName, *organisation);
        }
        params.extended_key_usages = vec![leaf.usage.clone()];
        let now = std::time::SystemTime::now();
        let at = |seconds: i64| {
            let offset = std::time::Duration::from_secs(seconds.unsigned_abs());
            if seconds < 0 { now - offset } else { now + offset }
        };
        params.not_before = at(leaf.from).into();
        params.not_after = at(leaf.until).into();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().to_vec(), key)
    }
}

/// An HTTPS server on the loopback interface that answers every request by a function of path and body.
pub struct TlsServer {
    pub address: std::net::SocketAddr,
    pub ca: String,
    pub calls: Arc<std::sync::atomic::AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TlsServer {
    pub async fn start<F>(answer: F) -> Self
    where
        F: Fn(&str, &[u8]) -> (u16, String) + Send + Sync + 'static,
    {
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};

        let authority = Authority::new("loopback");
        let usage = rcgen::ExtendedKeyUsagePurpose::ServerAuth;
        let (der, key) = authority.issue(&Leaf { cn: "server", usage, sans: &["127.0.0.1", "localhost"], ..Leaf::default() });
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(der)], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (answer, counter) = (Arc::new(answer), calls.clone());
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, answer, counter) = (acceptor.clone(), answer.clone(), counter.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else { return };
                    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let (answer, counter) = (answer.clone(), counter.clone());
                        async move {
                            use http_body_util::BodyExt;
                            counter.fetch_add(1, Ordering::SeqCst);
                            let path = request.uri().path().to_owned();
                            let body = request.into_body().collect().await.unwrap().to_bytes();
                            let (code, text) = answer(&path, &body);
                            let body = http_body_util::Full::new(bytes::Bytes::from(text));
                            Ok::<_, std::convert::Infallible>(http::Response::builder().status(code).body(body).unwrap())
                        }
                    });
                    let io = hyper_util::rt::TokioIo::new(stream);
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                });
            }
        });
        TlsServer { address, ca: authority.pem, calls, task }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A kubeconfig that points here.
    pub fn kubeconfig(&self) -> Value {
        use base64::Engine;
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.ca);
        serde_json::json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("{}/review", self.url()), "certificate-authority-data": ca}}],
            "users": [{"name": "u", "user": {"token": "server-token"}}],
        })
    }
}
