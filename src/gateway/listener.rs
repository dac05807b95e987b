//! The socket: accepts, shakes hands, and serves HTTP/1.1 and HTTP/2 on each connection until it ends or the server stops. A peer
//! that opens a connection and says nothing, or says it byte by byte, is given up on.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{Method, Request, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};

use super::cork::cork;
use super::stall::Stalling;
use crate::authn::PeerCertificates;

/// How long a peer may take for its handshake, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long requests may take to end when the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// The address of the peer, put into every request from a socket.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// What answers the requests of a listener.
pub trait Door: Service<Request<Body>, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static {}

impl<S: Service<Request<Body>, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static> Door for S {}

/// Serves until the token is cancelled, then drains.
pub async fn serve(listener: TcpListener, tls: rustls::ServerConfig, door: impl Door, stop: CancellationToken) {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: connections that end make room.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let connection = connection(socket, peer, acceptor.clone(), door.clone(), graceful.watcher(), stop.clone());
        tokio::spawn(connection);
    }
    drop(listener);
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
}

async fn connection(
    socket: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    door: impl Door,
    graceful: Watcher,
    stop: CancellationToken,
) {
    let _ = socket.set_nodelay(true);
    let handshake = tokio::time::timeout(PATIENCE, acceptor.accept(Stalling::new(socket)));
    let stream = match tokio::select! {
        shaken = handshake => shaken,
        // Who has asked for nothing yet need not be waited for.
        () = stop.cancelled() => return,
    } {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%peer, %error, "TLS handshake failed");
            return;
        }
        Err(_) => {
            tracing::debug!(%peer, "TLS handshake took too long");
            return;
        }
    };
    let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificates = PeerCertificates(Arc::new(shown.iter().map(|c| c.to_vec()).collect()));
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        // Whoever answers without reading the body must not cost the client its connection, or, with HTTP/2, the answer: some clients
        // lose it when their stream is reset while they still send.
        let left = (!request.body().is_end_stream()).then(Left::default);
        let mut request = request.map(|body| match &left {
            Some(left) => Body::new(left.lend(body)),
            None => Body::new(body),
        });
        request.extensions_mut().insert(certificates.clone());
        request.extensions_mut().insert(Peer(peer));
        let is_head = request.method() == Method::HEAD;
        let answer = door.clone().oneshot(request);
        async move {
            let response = answer.await;
            if let Some(left) = left {
                left.drain().await;
            }
            if is_head { response.map(bodiless) } else { response }
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(1 << 20);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20)
        .max_frame_size(64 << 10)
        .max_send_buf_size(256 << 10)
        .max_concurrent_streams(2000)
        .max_header_list_size(64 << 10);
    let ended = match stream.get_ref().1.alpn_protocol() {
        // Many small frames from many streams, of which nobody takes the socket over: they may go out together.
        Some(b"h2") => {
            let (stream, cork) = cork(stream);
            let served = graceful.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned());
            cork.drive(served).await
        }
        _ => {
            let served = graceful.watch(builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned());
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "connection ended");
    }
}

/// The answer to a HEAD: what it would be, less its body, which breaks the stream of whoever does not expect one.
fn bodiless(response: Response) -> Response {
    let length = response.body().size_hint().exact();
    let mut response = response.map(|_| Body::empty());
    if let Some(length) = length {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    response
}

/// The body of a request, for what is left of it when the request is answered.
#[derive(Clone, Default)]
struct Left(Arc<Mutex<Option<Incoming>>>);

/// How much of a body that nobody wants is read; some send much more than they may.
const MOST_LEFT: usize = 16 << 20;

impl Left {
    fn lend(&self, body: Incoming) -> Lent {
        Lent { body: Some(body), left: self.clone() }
    }

    async fn drain(self) {
        // One that is still being read by whoever took it is not ours.
        let Some(mut body) = self.0.lock().take() else { return };
        let mut read = 0;
        let all = async {
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map_or(0, |data| data.len());
                if read > MOST_LEFT {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), all).await;
    }
}

/// A body that comes back when it is dropped.
struct Lent {
    body: Option<Incoming>,
    left: Left,
}

impl http_body::Body for Lent {
    type Data = bytes::Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => std::pin::Pin::new(body).poll_frame(context),
            None => std::task::Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.as_ref().map(http_body::Body::size_hint).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        *self.left.0.lock() = self.body.take();
    }
}
