//! Asks a webhook over HTTPS: connections are reused, proxies and redirects are not for us, an answer has a largest size, and what
//! goes wrong is told in the words that a real server has for it.

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde_json::Value;

use super::endpoint::{self, Endpoint, Service, ServiceMap};
pub use super::transport::explain;
use super::{decode, transport};
use crate::admission::Cluster;
use crate::api::patch::go;
use crate::authn::trust;
use crate::request::span::{SpanContext, TRACEPARENT};

/// The most that an answer may be.
pub const MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;

/// The most of an answer that an error repeats.
const MAX_QUOTED_BYTES: usize = 2048;
/// How often a webhook that asks for patience is asked again, within its timeout.
const MAX_RETRIES: usize = 10;
/// What is said of a webhook that takes too long.
const DEADLINE: &str = "context deadline exceeded";
/// How many redirects are followed.
const MAX_REDIRECTS: usize = 10;

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
            .pool_idle_timeout(Duration::from_secs(90));
        if !key.0.is_empty() {
            let tls = trust::bundle(&key.0).and_then(|bundle| trust::config(&bundle, None));
            let tls = tls.map_err(|e| format!("unable to load root certificates: {e}"))?;
            builder = builder.tls_backend_preconfigured(tls);
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

    /// Sends a review, and waits no longer than the timeout for all of the answer.
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
        let until = tokio::time::Instant::now() + Duration::from_secs(timeout_seconds);
        let answered = tokio::time::timeout_at(until, self.send(to, timeout_seconds, cluster, shown, span, body)).await;
        let response = answered.unwrap_or_else(|_| Err(format!("Post \"{shown}\": {DEADLINE}")))?;
        let read = tokio::time::timeout_at(until, receive(response, shown)).await;
        read.unwrap_or_else(|_| Err(format!("unexpected error when reading response body. Please retry. Original error: {DEADLINE}")))
    }

    async fn send(
        &self,
        to: &Endpoint,
        timeout_seconds: u64,
        cluster: &Cluster,
        shown: &str,
        span: Option<SpanContext>,
        body: Vec<u8>,
    ) -> Result<reqwest::Response, String> {
        let client = self.client(to)?;
        let mut dialled = None;
        if let Some(service) = to.service() {
            let address = endpoint::resolve(service, &self.services, cluster).await.map_err(|why| format!("Post \"{shown}\": {why}"))?;
            client.address.store(Some(Arc::new(address)));
            dialled = Some(address);
        }
        let body = Bytes::from(body);
        let mut retries = 0;
        loop {
            let way = Way { http: &client.http, shown, dialled, span };
            let response = way.follow(to.url(timeout_seconds), body.clone()).await?;
            match patience(&response).filter(|_| retries < MAX_RETRIES) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Ok(response),
            }
            retries += 1;
        }
    }
}

/// How a request goes out.
struct Way<'a> {
    http: &'a reqwest::Client,
    shown: &'a str,
    dialled: Option<SocketAddr>,
    span: Option<SpanContext>,
}

impl Way<'_> {
    /// Sends a request, and goes where it is sent on to. What goes wrong is told with the place where it did.
    async fn follow(&self, mut url: String, body: Bytes) -> Result<reqwest::Response, String> {
        let (mut shown, mut body) = (self.shown.to_owned(), Some(body));
        let mut requests = 0;
        loop {
            requests += 1;
            let mut request = match &body {
                Some(body) => self.http.post(&url).header(reqwest::header::CONTENT_TYPE, "application/json").body(body.clone()),
                None => self.http.get(&url),
            };
            if let Some(span) = self.span {
                request = request.header(TRACEPARENT, span.to_string());
            }
            let sent = request.header(reqwest::header::ACCEPT, "application/json, */*").send().await;
            let response = sent.map_err(|error| format!("Post \"{shown}\": {}", transport::explain(&error, self.dialled, &shown)))?;
            let Some(place) = location(&response) else { return Ok(response) };
            if requests == MAX_REDIRECTS {
                return Err(format!("Post \"{place}\": stopped after {MAX_REDIRECTS} redirects"));
            }
            let next = response.url().join(&place);
            url = next.map_err(|why| format!("Post \"{shown}\": failed to parse Location header {place:?}: {why}"))?.into();
            shown.clone_from(&url);
            // As browsers do: only these two send again what was sent.
            if !matches!(response.status().as_u16(), 307 | 308) {
                body = None;
            }
        }
    }
}

/// Where an answer sends the client on to.
fn location(response: &reqwest::Response) -> Option<String> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let place = response.headers().get(reqwest::header::LOCATION).filter(|_| is_redirect)?;
    place.to_str().ok().map(str::to_owned)
}

/// Reads an answer to its end, or to where it is too much.
async fn receive(mut response: reqwest::Response, shown: &str) -> Result<Received, String> {
    let header = |name| response.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let content_type = header(reqwest::header::CONTENT_TYPE);
    let is_gzip = header(reqwest::header::CONTENT_ENCODING).eq_ignore_ascii_case("gzip");
    let status = response.status().as_u16();
    let too_large = || format!("Post \"{shown}\": the response is larger than {MAX_RESPONSE_BYTES} bytes");
    let broken = |why: &str| format!("unexpected error when reading response body. Please retry. Original error: {why}");
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| broken("unexpected EOF"))? {
        if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    let mut body = body.freeze();
    if is_gzip {
        let mut plain = Vec::new();
        let limit = MAX_RESPONSE_BYTES as u64 + 1;
        flate2::read::GzDecoder::new(&*body).take(limit).read_to_end(&mut plain).map_err(|_| broken("gzip: invalid header"))?;
        if plain.len() > MAX_RESPONSE_BYTES {
            return Err(too_large());
        }
        body = plain.into();
    }
    Ok(Received { status, content_type, body })
}

impl Received {
    /// The review in the answer to one of the asked version.
    ///
    /// # Errors
    /// If it is an error, or no review.
    pub fn decode(&self, asked: &str) -> Result<Value, String> {
        decode::review(self.success()?, asked)
    }

    /// The answer, whatever it is about.
    ///
    /// # Errors
    /// If it is an error, or nothing that can be read.
    pub fn value(&self) -> Result<Value, String> {
        decode::value(self.success()?)
    }

    /// The body of an answer that is a success.
    ///
    /// # Errors
    /// If it is none, or empty.
    pub fn success(&self) -> Result<&[u8], String> {
        let shown = if self.content_type.is_empty() { "application/json" } else { &self.content_type };
        let media = shown.split(';').next().unwrap_or_default().trim();
        if media.is_empty() {
            return Err("Internal error occurred: mime: no media type".into());
        }
        if !(200..=206).contains(&self.status) {
            return Err(self.error(if self.content_type.is_empty() { "" } else { media }));
        }
        if self.body.is_empty() {
            return Err(format!("0-length response with status code: {} and content type: {shown}", self.status));
        }
        Ok(&self.body)
    }

    /// What a client of a real server makes of a code that is no success.
    fn error(&self, media: &str) -> String {
        if let Ok(status) = serde_json::from_slice::<Value>(&self.body)
            && status["kind"] == "Status"
            && let Some(message) = status["message"].as_str()
        {
            return message.to_owned();
        }
        let body = &self.body[..self.body.len().min(MAX_QUOTED_BYTES)];
        let text = match media.is_empty() || media.starts_with("text/") {
            true => String::from_utf8_lossy(body).trim().to_owned(),
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
            code if code >= 500 => format!("an error on the server ({}) has prevented the request from succeeding", go::quoted(&text)),
            code => format!("the server responded with the status code {code} but did not return more information"),
        }
    }
}

/// How long a webhook wants to be left alone before it is asked again.
fn patience(response: &reqwest::Response) -> Option<Duration> {
    let code = response.status().as_u16();
    let seconds = response.headers().get(reqwest::header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    (code == 429 || code >= 500).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(status: u16, content_type: &str, body: &str) -> Received {
        Received { status, content_type: content_type.into(), body: Bytes::copy_from_slice(body.as_bytes()) }
    }

    #[test]
    fn codes_that_are_no_success_are_told_as_a_real_server_tells_them() {
        let error = |status, media: &str, body: &str| received(status, media, body).decode("admission.k8s.io/v1").unwrap_err();
        assert_eq!(error(500, "text/plain", "boom\n"), "an error on the server (\"boom\") has prevented the request from succeeding");
        assert_eq!(error(304, "", ""), "the server responded with the status code 304 but did not return more information");
        assert_eq!(error(404, "text/plain", "404 page not found"), "the server could not find the requested resource");
        assert_eq!(error(204, "", ""), "0-length response with status code: 204 and content type: application/json");
        assert_eq!(error(200, ";;;", "{}"), "Internal error occurred: mime: no media type");
        let long = error(500, "text/plain", &"x".repeat(5000));
        assert!(long.len() < 2200, "an answer is not repeated at any length");
        let good = "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"response\":{}}";
        assert!(received(200, "text/html", good).decode("admission.k8s.io/v1").is_ok(), "whatever the media type says");
    }
}
