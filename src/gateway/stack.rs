//! The HTTP stack, outside in. The order matters; each line says why it stands where it stands.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures::future::BoxFuture;
use http::Request;
use tower::{Service, ServiceBuilder, ServiceExt};

use super::layers::{Layer, Named, Next, audit, authenticate, authorize, deadline, impersonate, limits, request_info, rescue};
use super::{Gateway, router};

/// The whole way of a request as one tower service.
pub fn stack(gateway: Arc<Gateway>) -> Stack {
    fn layer<L: Layer>(gateway: &Arc<Gateway>, layer: L) -> Named<L> {
        Named(gateway.clone(), layer)
    }
    let layers = ServiceBuilder::new()
        // Outermost, because everybody behind it speaks of the request in these terms, and every answer carries the Audit-ID.
        .layer(layer(&gateway, request_info::Info))
        // The one place where an error, or a panic, becomes a Status.
        .layer(layer(&gateway, rescue::Rescue))
        // Inside the rescue, because it sees the refusal itself and passes a panic on; outside of everything that may refuse.
        .layer(layer(&gateway, audit::Audit))
        // Before authentication: also a client that nobody knows must not hold a request open for ever.
        .layer(layer(&gateway, deadline::Deadline))
        // Hop 02.
        .layer(layer(&gateway, authenticate::Authenticate))
        // What the audit policy wants depends on who asks, and is about who really asks.
        .layer(layer(&gateway, audit::Evaluate))
        // Behind authentication, because it asks whether that user may; before limits and authorisation, which are about the other one.
        .layer(layer(&gateway, impersonate::Impersonate))
        // Behind the identity, because the system's own are exempt.
        .layer(layer(&gateway, limits::Limit))
        // Hop 03.
        .layer(layer(&gateway, authorize::Authorize));
    Stack(Arc::new(layers.service(router::router(gateway))))
}

/// The stack; clones are one and the same.
#[derive(Clone)]
pub struct Stack(Arc<dyn Whole>);

/// A request's whole way, behind one pointer.
trait Whole: Send + Sync {
    fn answer(self: Arc<Self>, request: Request<Body>) -> BoxFuture<'static, Result<Response, Infallible>>;
}

impl<N: Next> Whole for N {
    fn answer(self: Arc<Self>, request: Request<Body>) -> BoxFuture<'static, Result<Response, Infallible>> {
        Box::pin(async move { Ok(self.run(request).await) })
    }
}

impl Next for Router {
    async fn run(&self, request: Request<Body>) -> Response {
        self.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
    }
}

impl Service<Request<Body>> for Stack {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.clone().answer(request)
    }
}
