//! A `kube::Client` laid over the HTTP stack itself: no TCP and no TLS, but authentication, authorisation, admission and audit like
//! any other client. The identity is put into the request's extensions, which no request from a socket can carry.

use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use futures::future::BoxFuture;
use http::{Request, Response};
use tower::{Service, ServiceExt};

use crate::authn::InProcess;
use crate::request::User;

/// The stack as a client of one identity sees it.
#[derive(Clone)]
pub struct InProcessService {
    router: Router,
    user: Arc<User>,
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
        Box::pin(self.router.clone().oneshot(request))
    }
}

/// A client with an identity.
pub fn client(router: &Router, user: User) -> kube::Client {
    let service = InProcessService { router: router.clone(), user: Arc::new(user) };
    kube::Client::new(service, "default")
}
