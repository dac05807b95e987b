//! The HTTP stack, outside in. The order matters; each line says why it stands where it stands. A layer is an async function that gets
//! the request and what comes [`Next`]; between two of them is one boxed future and nothing that is cloned but two reference counts,
//! for there are nine of them around every request.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::Request;
use tower::{Service, ServiceExt};

use super::layers::{audit, authenticate, authorize, deadline, impersonate, limits, request_info, rescue};
use super::{Gateway, router};

/// An answer to come.
type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

type Layer = fn(State<Arc<Gateway>>, Request<Body>, Next) -> Answer;

const LAYERS: [Layer; 9] = [
    // Outermost, because everybody behind it speaks of the request in these terms, and every answer carries the Audit-ID.
    |gateway, request, next| answer(request_info::layer(gateway, request, next)),
    // The one place where an error, or a panic, becomes a Status.
    |gateway, request, next| answer(rescue::layer(gateway, request, next)),
    // Inside the rescue, because it sees the refusal itself and passes a panic on; outside of everything that may refuse.
    |gateway, request, next| answer(audit::layer(gateway, request, next)),
    // Before authentication: also a client that nobody knows must not hold a request open for ever.
    |gateway, request, next| answer(deadline::layer(gateway, request, next)),
    // Hop 02.
    |gateway, request, next| answer(authenticate::layer(gateway, request, next)),
    // What the audit policy wants depends on who asks, and is about who really asks.
    |gateway, request, next| answer(audit::evaluate(gateway, request, next)),
    // Behind authentication, because it asks whether that user may; before limits and authorisation, which are about the other one.
    |gateway, request, next| answer(impersonate::layer(gateway, request, next)),
    // Behind the identity, because the system's own are exempt.
    |gateway, request, next| answer(limits::layer(gateway, request, next)),
    // Hop 03.
    |gateway, request, next| answer(authorize::layer(gateway, request, next)),
];

fn answer(future: impl Future<Output = impl IntoResponse> + Send + 'static) -> Answer {
    Box::pin(async { future.await.into_response() })
}

/// The whole way of a request as one tower service.
pub fn stack(gateway: Arc<Gateway>) -> Router {
    let router = router::router(gateway.clone());
    Router::new().fallback_service(Stack(Arc::new(Parts { gateway, router })))
}

struct Parts {
    gateway: Arc<Gateway>,
    router: Router,
}

/// The layers with the router behind them.
#[derive(Clone)]
struct Stack(Arc<Parts>);

impl Service<Request<Body>> for Stack {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let first = Next { parts: self.0.clone(), at: 0 };
        Box::pin(async { Ok(first.run(request).await) })
    }
}

/// What is behind a layer.
pub struct Next {
    parts: Arc<Parts>,
    at: usize,
}

impl Next {
    /// Goes on.
    pub fn run(self, request: Request<Body>) -> Answer {
        match LAYERS.get(self.at) {
            Some(layer) => layer(State(self.parts.gateway.clone()), request, Next { at: self.at + 1, ..self }),
            None => answer(self.parts.router.clone().oneshot(request)),
        }
    }
}
