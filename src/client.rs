//! A `kube::Client` laid over the HTTP stack itself: no TCP and no TLS, but authentication, authorisation, admission and audit like
//! any other client. The identity is put into the request's extensions, which no request from a socket can carry.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::gateway::stack::Stack;
use axum::body::Body;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, header};
use tower::{Service, ServiceExt};

use crate::authn::InProcess;
use crate::request::User;

/// The stack as a client of one identity sees it.
#[derive(Clone)]
pub struct InProcessService {
    router: Stack,
    user: Arc<User>,
    agent: Option<HeaderValue>,
}

impl Service<Request<kube::client::Body>> for InProcessService {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(InProcess(self.user.clone()));
        if let (Some(agent), None) = (&self.agent, request.headers().get(header::USER_AGENT)) {
            request.headers_mut().insert(header::USER_AGENT, agent.clone());
        }
        Box::pin(self.router.clone().oneshot(request))
    }
}

/// A client with an identity.
pub fn client(router: &Stack, user: User) -> kube::Client {
    let service = InProcessService { router: router.clone(), user: Arc::new(user), agent: None };
    kube::Client::new(service, "default")
}

/// The same for a client that says what it is; that is also the name by which it owns fields.
pub fn client_of(router: &Stack, user: User, agent: &'static str) -> kube::Client {
    let service = InProcessService { router: router.clone(), user: Arc::new(user), agent: Some(HeaderValue::from_static(agent)) };
    kube::Client::new(service, "default")
}
