//! Asks a webhook over HTTPS: connections are reused, proxies and redirects are not for us, an answer has a largest size, and what
//! goes wrong is told in the words that a real server has for it.

use std::collections::HashMap;
use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde_json::Value;

use super::endpoint::{self, Endpoint, Service, ServiceMap};
use crate::admission::Cluster;
use crate::request::span::{SpanContext, TRACEPARENT};
use crate::schema::syntax;

/// The most that an answer may be.
pub const MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;

/// Connections to webhooks, by whom they trust and where they lead.
#[derive(Default)]
pub struct Clients {
    /// Services that are served from elsewhere.
    pub services: Arc<ServiceMap>,
    known: Mutex<HashMap<Key, Client>>,
}

type Key = (Arc<[u8]>, Option<(String, String, u16)>);

#[derive(Clone)]
struct Client {
    http: reqwest::Client,
    address: Arc<ArcSwapOption<SocketAddr>>,
}

/// An answer as it came.
pub struct Received {
    status: u16,
    content_type: String,
    body: Bytes,
}

/// Leads every name to the address that the Service was last found at.
pub struct Fixed(pub Arc<ArcSwapOption<SocketAddr>>);

impl Resolve for Fixed {
    fn resolve(&self, name: Name) -> Resolving {
        let address = self.0.load_full();
        Box::pin(async move {
            match address {
                Some(address) => Ok(Box::new(std::iter::once(*address)) as Addrs),
                None => Err(format!("no address for {}", name.as_str()).into()),
            }
        })
    }
}

impl Clients {
    /// Connections that look up Services in this map first.
    pub fn new(services: Arc<ServiceMap>) -> Clients {
        Clients { services, known: Mutex::default() }
    }

    fn client(&self, endpoint: &Endpoint) -> Result<Client, String> {
        let service = endpoint.service().map(|Service { namespace, name, port, .. }| (namespace.clone(), name.clone(), *port));
        let key = (endpoint.ca_bundle.clone(), service);
        if let Some(client) = self.known.lock().get(&key) {
            return Ok(client.clone());
        }
        let address = Arc::new(ArcSwapOption::empty());
        let mut builder = reqwest::Client::builder()
            .user_agent("kube-apiserver-admission")
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .pool_idle_timeout(std::time::Duration::from_secs(90));
        if !key.0.is_empty() {
            let certificates = reqwest::Certificate::from_pem_bundle(&key.0)
                .map_err(|_| "unable to load root certificates: unable to parse bytes as PEM block")?;
            builder = builder.tls_certs_only(certificates);
        }
        if key.1.is_some() {
            builder = builder.dns_resolver(Arc::new(Fixed(address.clone())));
        }
        let http = builder.build().map_err(|e| format!("unable to load root certificates: {e}"))?;
        let client = Client { http, address };
        let mut known = self.known.lock();
        // Configurations come and go; a table that only grows would keep their connections for ever.
        if known.len() > 256 {
            known.clear();
        }
        known.insert(key, client.clone());
        Ok(client)
    }

    /// Sends a review.
    ///
    /// # Errors
    /// In the words of a real server; `shown` is the URL in them.
    pub async fn post(
        &self,
        to: &Endpoint,
        timeout_seconds: u64,
        cluster: &Cluster,
        shown: &str,
        span: Option<SpanContext>,
        body: Vec<u8>,
    ) -> Result<Received, String> {
        let client = self.client(to)?;
        let mut dialled = None;
        if let Some(service) = to.service() {
            let address = endpoint::resolve(service, &self.services, cluster).await.map_err(|why| format!("Post \"{shown}\": {why}"))?;
            client.address.store(Some(Arc::new(address)));
            dialled = Some(address);
        }
        let failed = |error: reqwest::Error| format!("Post \"{shown}\": {}", explain(&error, dialled, shown));
        let mut request = client
            .http
            .post(to.url(timeout_seconds))
            .header(reqwest::header::ACCEPT, "application/json, */*")
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .body(body);
        if let Some(span) = span {
            request = request.header(TRACEPARENT, span.to_string());
        }
        let mut response = request.send().await.map_err(failed)?;
        let content_type =
            response.headers().get(reqwest::header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        let status = response.status().as_u16();
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(format!("Post \"{shown}\": the response is larger than {MAX_RESPONSE_BYTES} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Received { status, content_type, body: body.freeze() })
    }
}

impl Received {
    /// The review in the answer.
    ///
    /// # Errors
    /// If it is an error, or no JSON.
    pub fn decode(&self) -> Result<Value, String> {
        let media = self.content_type.split(';').next().unwrap_or_default().trim();
        if !(200..=206).contains(&self.status) {
            return Err(self.error(media));
        }
        if !matches!(media, "" | "application/json" | "application/yaml") {
            return Err(format!("serializer for {} doesn't exist", self.content_type));
        }
        let value: Value = serde_json::from_slice(&self.body)
            .map_err(|_| format!("couldn't get version/kind; json parse error: {}", syntax::explain(&self.body)))?;
        if !value.is_object() {
            let word = match value {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Number(_) => "number",
                Value::Bool(_) => "bool",
                _ => return Err("Object 'Kind' is missing in 'null'".into()),
            };
            return Err(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {word} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
            ));
        }
        Ok(value)
    }

    /// What a client of a real server makes of a code that is no success.
    fn error(&self, media: &str) -> String {
        if let Ok(status) = serde_json::from_slice::<Value>(&self.body)
            && status["kind"] == "Status"
            && let Some(message) = status["message"].as_str()
        {
            return message.to_owned();
        }
        let text = match media.is_empty() || media.starts_with("text/") {
            true => String::from_utf8_lossy(&self.body).trim().to_owned(),
            false => "unknown".to_owned(),
        };
        match self.status {
            400 => "the server rejected our request for an unknown reason".into(),
            401 => "the server has asked for the client to provide credentials".into(),
            403 | 415 => text,
            404 => "the server could not find the requested resource".into(),
            405 => "the server does not allow this method on the requested resource".into(),
            406 if text.is_empty() || text == "unknown" => {
                "the server was unable to respond with a content type that the client supports".into()
            }
            406 => text,
            409 => "the server reported a conflict".into(),
            422 => "the server rejected our request due to an error in our request".into(),
            429 => "the server has received too many requests and has asked us to try again later".into(),
            503 => "the server is currently unable to handle the request".into(),
            504 => "the server was unable to return a response in the time allotted, but may still be processing the request".into(),
            code if code >= 500 => format!("an error on the server ({text:?}) has prevented the request from succeeding"),
            code => format!("the server responded with the status code {code} but did not return more information"),
        }
    }
}

/// A transport error in Go's words, as far as there are any.
pub fn explain(error: &reqwest::Error, dialled: Option<SocketAddr>, url: &str) -> String {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref::<std::io::Error>()
            && let Some(inner) = io.get_ref()
        {
            causes.push(inner.to_string());
        }
        causes.push(cause.to_string());
        next = cause.source();
    }
    let says = |text: &str| causes.iter().any(|cause| cause.contains(text));
    let host = url.trim_start_matches("https://").split(['/', '?']).next().unwrap_or_default();
    let address = dialled.map_or_else(|| host.to_owned(), |address| address.to_string());
    if says("Connection refused") {
        return format!("dial tcp {address}: connect: connection refused");
    }
    if says("UnknownIssuer") || says("unable to get local issuer") {
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority".into();
    }
    if says("BadSignature") {
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority (possibly because of \"x509: ECDSA verification failure\" while trying to verify candidate authority certificate)".into();
    }
    if says("CaUsedAsEndEntity") {
        return "tls: failed to verify certificate: x509: certificate is not valid for any names".into();
    }
    if says("certificate not valid for name") || says("NotValidForName") {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        return format!("tls: failed to verify certificate: x509: certificate is not valid for {name}");
    }
    if says("Expired") || says("certificate expired") {
        return "tls: failed to verify certificate: x509: certificate has expired or is not yet valid".into();
    }
    if says("InvalidContentType") || says("corrupt message") {
        return "http: server gave HTTP response to HTTPS client".into();
    }
    if says("Connection reset") {
        return format!("read tcp {address}: read: connection reset by peer");
    }
    if says("connection closed") || says("unexpected end of file") || says("close_notify") || says("unexpected EOF") {
        return "EOF".into();
    }
    if says("failed to lookup") || says("dns error") {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        return format!("dial tcp: lookup {name}: no such host");
    }
    causes.pop().unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(status: u16, content_type: &str, body: &str) -> Received {
        Received { status, content_type: content_type.into(), body: Bytes::copy_from_slice(body.as_bytes()) }
    }

    #[test]
    fn answers_that_are_no_reviews_are_told_as_a_real_server_tells_them() {
        let error = |status, media: &str, body: &str| received(status, media, body).decode().unwrap_err();
        assert_eq!(error(500, "text/plain", "boom\n"), "an error on the server (\"boom\") has prevented the request from succeeding");
        assert_eq!(error(302, "", ""), "the server responded with the status code 302 but did not return more information");
        assert_eq!(error(404, "text/plain", "404 page not found"), "the server could not find the requested resource");
        assert_eq!(error(200, "text/html; charset=utf-8", "<html>"), "serializer for text/html; charset=utf-8 doesn't exist");
        assert_eq!(
            error(200, "application/json", "<html>"),
            "couldn't get version/kind; json parse error: invalid character '<' looking for beginning of value"
        );
    }
}
