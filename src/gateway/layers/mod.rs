//! The layers of the HTTP stack, one file each. A layer that refuses answers with a [`Status`]; it travels outwards in the
//! response's extensions until [`rescue`] writes it down.

pub mod audit;
pub mod authenticate;
pub mod authorize;
pub mod deadline;
pub mod impersonate;
pub mod limits;
pub mod request_info;
pub mod rescue;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::Request;

use crate::request::SharedContext;
use crate::status::Status;

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
