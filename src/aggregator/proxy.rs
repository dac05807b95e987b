//! Hands a request on to an extension server: over TLS, with this server's front-proxy certificate and the headers that say who asks. Bodies
//! are streamed both ways, so that a watch of an aggregated resource is one.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use arc_swap::ArcSwapOption;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{Aggregator, Remote, headers};
use crate::admission::webhook::client::{Fixed, explain};
use crate::admission::webhook::endpoint::{self, ServiceMap};
use crate::authn::trust;
use crate::request::Context;

/// Connections to extension servers, by the name of the APIService.
pub struct Clients {
    pub(super) services: Arc<ServiceMap>,
    identity: String,
    known: Mutex<HashMap<String, (Arc<Remote>, Client)>>,
}

#[derive(Clone)]
pub(super) struct Client {
    pub(super) http: reqwest::Client,
    pub(super) address: Arc<ArcSwapOption<SocketAddr>>,
}

impl Clients {
    pub(super) fn new(services: Arc<ServiceMap>, identity: String) -> Clients {
        Clients { services, identity, known: Mutex::default() }
    }

    /// The connections to an extension server; new ones when it is found elsewhere or trusted otherwise.
    pub(super) fn client(&self, remote: &Arc<Remote>) -> Result<Client, String> {
        let mut known = self.known.lock();
        let same = |old: &Remote| old.service == remote.service && old.ca_bundle == remote.ca_bundle && old.insecure == remote.insecure;
        if let Some((_, client)) = known.get(&remote.name).filter(|(old, _)| same(old)) {
            return Ok(client.clone());
        }
        let text = |error: reqwest::Error| error.to_string();
        let address = Arc::new(ArcSwapOption::empty());
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .dns_resolver(Arc::new(Fixed(address.clone())));
        if !remote.insecure && !remote.ca_bundle.is_empty() {
            let bundle = trust::bundle(&remote.ca_bundle)?;
            builder = builder.tls_backend_preconfigured(trust::config(&bundle, Some(self.identity.as_bytes()))?);
        } else {
            builder = builder
                .identity(reqwest::Identity::from_pem(self.identity.as_bytes()).map_err(text)?)
                .tls_danger_accept_invalid_certs(remote.insecure);
        }
        let client = Client { http: builder.build().map_err(text)?, address };
        // APIServices come and go; a table that only grows would keep their connections for ever.
        if known.len() > 256 {
            known.clear();
        }
        known.insert(remote.name.clone(), (remote.clone(), client.clone()));
        Ok(client)
    }
}

impl Aggregator {
    /// Answers a request through an extension server.
    pub async fn forward(&self, remote: &Arc<Remote>, context: &Context, request: Request<Body>) -> Response {
        let Some(user) = context.user().filter(|_| remote.available) else { return unavailable() };
        let Ok(address) = endpoint::resolve(&remote.service, &self.clients.services, &self.cluster).await else { return unavailable() };
        let client = match self.clients.client(remote) {
            Ok(client) => client,
            Err(why) => return failed(&why),
        };
        client.address.store(Some(Arc::new(address)));
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let url = format!("https://{}.{}.svc{path}", remote.service.name, remote.service.namespace);
        let mut headers = headers::request(&parts.headers, user);
        if let Ok(id) = http::HeaderValue::from_str(&context.audit_id) {
            headers.insert("audit-id", id);
        }
        let mut outgoing = client.http.request(parts.method, &url).headers(headers);
        if !body.is_end_stream() {
            outgoing = outgoing.body(reqwest::Body::wrap(Pumped::of(body)));
        }
        match outgoing.send().await {
            Ok(answer) => {
                let (mut parts, body) = http::Response::<reqwest::Body>::from(answer).into_parts();
                parts.headers = headers::response(&parts.headers);
                parts.version = http::Version::default();
                Response::from_parts(parts, Body::new(body))
            }
            Err(error) => failed(&explain(&error, Some(address), &url)),
        }
    }
}

/// An extension server that nobody can reach.
fn unavailable() -> Response {
    plain("service unavailable\n".into())
}

fn failed(why: &str) -> Response {
    plain(format!("error trying to reach service: {why}\n"))
}

fn plain(text: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache, private"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (StatusCode::SERVICE_UNAVAILABLE, headers, text).into_response()
}

/// A body that another task reads: the client that sends it wants one that threads may share.
struct Pumped {
    frames: mpsc::Receiver<Result<Frame<Bytes>, axum::Error>>,
    length: SizeHint,
}

impl Pumped {
    fn of(mut body: Body) -> Pumped {
        let length = body.size_hint();
        let (sender, frames) = mpsc::channel(2);
        tokio::spawn(async move {
            while let Some(frame) = body.frame().await {
                if sender.send(frame).await.is_err() {
                    return;
                }
            }
        });
        Pumped { frames, length }
    }
}

impl http_body::Body for Pumped {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.frames.poll_recv(context)
    }

    fn size_hint(&self) -> SizeHint {
        self.length
    }
}
