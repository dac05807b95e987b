//! The layers of the HTTP stack, one file each. A layer that refuses answers with a [`Status`]; it travels outwards in the
//! response's extensions until [`rescue`] writes it down.
//!
//! A [`Layer`] is a tower layer ([`Named`]) that borrows what is behind it instead of owning a copy, so that a request passes all of
//! them as one future: with a boxed future and a cloned service for each, the way through the stack cost more than what it leads to.

pub mod audit;
pub mod authenticate;
pub mod authorize;
pub mod deadline;
pub mod impersonate;
pub mod limits;
pub mod request_info;
pub mod rescue;

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::Request;

use crate::gateway::Gateway;
use crate::request::SharedContext;
use crate::status::Status;

/// A layer of the stack.
pub trait Layer: Send + Sync + 'static {
    /// Answers a request, most often with what is behind.
    fn call(
        &self,
        gateway: &Arc<Gateway>,
        request: Request<Body>,
        next: &impl Next,
    ) -> impl Future<Output = Result<Response, Refused>> + Send;
}

/// What is behind a layer.
pub trait Next: Send + Sync + 'static {
    /// Answers a request.
    fn run(&self, request: Request<Body>) -> impl Future<Output = Response> + Send;
}

/// A [`Layer`] for tower's lists.
pub struct Named<L>(pub Arc<Gateway>, pub L);

/// A [`Layer`] with what is behind it.
pub struct Layered<L, N> {
    gateway: Arc<Gateway>,
    layer: L,
    next: N,
}

impl<L: Clone, N> tower::Layer<N> for Named<L> {
    type Service = Layered<L, N>;

    fn layer(&self, next: N) -> Self::Service {
        Layered { gateway: self.0.clone(), layer: self.1.clone(), next }
    }
}

impl<L: Layer, N: Next> Next for Layered<L, N> {
    async fn run(&self, request: Request<Body>) -> Response {
        self.layer.call(&self.gateway, request, &self.next).await.unwrap_or_else(IntoResponse::into_response)
    }
}

/// A refusal on its way out.
#[derive(Clone, Debug)]
pub struct Refused(pub Status);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = http::StatusCode::from_u16(self.0.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(self);
        response
    }
}

impl Refused {
    /// A refusal by authorisation, which alone tells browsers not to guess at its content.
    pub fn forbidden(status: Status) -> Response {
        let mut response = Refused(status).into_response();
        response.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
        response
    }
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Refused(status)
    }
}

/// The request's context; the outermost layer has put it there.
pub fn context(request: &Request<Body>) -> Result<SharedContext, Refused> {
    request.extensions().get::<SharedContext>().cloned().ok_or_else(|| Refused(Status::internal("no request info")))
}
