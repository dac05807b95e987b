//! The HTTP stack, outside in. The order matters; each line says why it stands where it stands.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tower::ServiceBuilder;

use super::{Gateway, layers, router};

/// The whole way of a request as one tower service.
pub fn stack(gateway: Arc<Gateway>) -> Router {
    let layers = ServiceBuilder::new()
        // Outermost, because everybody behind it speaks of the request in these terms, and every answer carries the Audit-ID.
        .layer(from_fn_with_state(gateway.clone(), layers::request_info::layer))
        // The one place where an error, or a panic, becomes a Status.
        .layer(from_fn_with_state(gateway.clone(), layers::rescue::layer))
        // Inside the rescue, because it sees the refusal itself and passes a panic on; outside of everything that may refuse.
        .layer(from_fn_with_state(gateway.clone(), layers::audit::layer))
        // Before authentication: also a client that nobody knows must not hold a request open for ever.
        .layer(from_fn_with_state(gateway.clone(), layers::deadline::layer))
        // Hop 02.
        .layer(from_fn_with_state(gateway.clone(), layers::authenticate::layer))
        // What the audit policy wants depends on who asks, and is about who really asks.
        .layer(from_fn_with_state(gateway.clone(), layers::audit::evaluate))
        // Behind authentication, because it asks whether that user may; before limits and authorisation, which are about the other one.
        .layer(from_fn_with_state(gateway.clone(), layers::impersonate::layer))
        // Behind the identity, because the system's own are exempt.
        .layer(from_fn_with_state(gateway.clone(), layers::limits::layer))
        // Hop 03.
        .layer(from_fn_with_state(gateway.clone(), layers::authorize::layer));
    router::router(gateway).layer(layers)
}
