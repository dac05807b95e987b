//! `Impersonate-*`: being taken for somebody else, where the one who asks may.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::Response;
use http::Request;

use super::Refused;
use crate::gateway::Gateway;

/// See the module.
pub async fn layer(State(_gateway): State<Arc<Gateway>>, request: Request<Body>, next: Next) -> Result<Response, Refused> {
    Ok(next.run(request).await)
}
