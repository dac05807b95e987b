//! How many requests may be under way. The system's own identities and long-running requests do not count: a burst of clients must
//! neither starve the controllers that would clear it nor be locked out by watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request;
use tokio::sync::Semaphore;

use super::{Refused, context};
use crate::gateway::Gateway;
use crate::gateway::stack::Next;
use crate::status::Status;

/// Requests under way, and requests that wait for their turn.
pub struct Limits {
    running: Semaphore,
    waiting: AtomicUsize,
    most_waiting: usize,
}

impl Limits {
    /// So many at once, and so many in the queue.
    pub fn new(running: usize, most_waiting: usize) -> Self {
        Limits { running: Semaphore::new(running), waiting: AtomicUsize::new(0), most_waiting }
    }
}

/// See the module.
pub async fn layer(State(gateway): State<Arc<Gateway>>, request: Request<Body>, next: Next) -> Result<Response, Refused> {
    let context = context(&request)?;
    let system = context.user().is_some_and(|user| user.in_group("system:masters") || user.in_group("system:nodes"));
    if system || context.info.is_long_running() || !context.info.is_resource {
        return Ok(next.run(request).await);
    }
    let limits = &gateway.limits;
    let _permit = match limits.running.try_acquire() {
        Ok(permit) => permit,
        Err(_) => {
            let _waiting = Waiting::enter(limits)?;
            limits.running.acquire().await.map_err(|_| Refused(Status::internal("the server is stopping")))?
        }
    };
    Ok(next.run(request).await)
}

struct Waiting<'a>(&'a Limits);

impl<'a> Waiting<'a> {
    fn enter(limits: &'a Limits) -> Result<Self, Refused> {
        let waiting = Waiting(limits);
        if limits.waiting.fetch_add(1, Ordering::Relaxed) >= limits.most_waiting {
            let text = "Too many requests, please try again later.";
            return Err(Status::new(429, "TooManyRequests", text).retry_after(1).into());
        }
        Ok(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
