//! How many requests may be under way. The system's own identities and long-running requests do not count: a burst of clients must
//! neither starve the controllers that would clear it nor be locked out by watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::Request;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Layer, Next, Refused, context};
use crate::gateway::Gateway;
use crate::request::Context;
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

/// See the module. Says on the answer to which flow the request belonged.
#[derive(Clone, Copy)]
pub struct Limit;

impl Layer for Limit {
    async fn call(&self, gateway: &Arc<Gateway>, request: Request<Body>, next: &impl Next) -> Result<Response, Refused> {
        let context = context(&request)?;
        let long = context.info.is_long_running();
        // Of what is meant to take long, flow control knows watches alone.
        let user = context.user().filter(|_| !long || context.info.verb == "watch");
        let marks = user.and_then(|user| gateway.flows.classify(user, &context.info));
        let mut response = match pass(&gateway.limits, &context, long).await {
            Ok(_permit) => next.run(request).await,
            Err(refused) => refused.into_response(),
        };
        if let Some(marks) = marks {
            marks.put(response.headers_mut());
        }
        Ok(response)
    }
}

/// Waits for a turn, where one is needed.
async fn pass<'a>(limits: &'a Limits, context: &Context, long: bool) -> Result<Option<SemaphorePermit<'a>>, Refused> {
    let system = context.user().is_some_and(|user| user.in_group("system:masters") || user.in_group("system:nodes"));
    if system || long || !context.info.is_resource {
        return Ok(None);
    }
    match limits.running.try_acquire() {
        Ok(permit) => Ok(Some(permit)),
        Err(_) => {
            let _waiting = Waiting::enter(limits)?;
            limits.running.acquire().await.map(Some).map_err(|_| Refused(Status::internal("the server is stopping")))
        }
    }
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
