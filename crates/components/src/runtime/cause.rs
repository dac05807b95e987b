//! Why a request is made: the revision of the object whose change put a key into a queue travels with the key, and then with every
//! request of the round, as the header [`HEADER`]. So the server can tell what followed from what.
//!
//! Two carriers, for two kinds of code. A handler of an informer runs to its end on one thread: a thread-local says which change it
//! is about while it adds keys. A round of work is a future that moves between threads: a task-local goes with it. A
//! `kube::Client` hands requests to a task of its own, where neither can be seen; so a request is marked where it is made.

use std::cell::Cell;

use http::{HeaderValue, Request};

/// The request header that names the causing revision.
pub const HEADER: &str = "usher-cause";

thread_local! {
    static CHANGE: Cell<u64> = const { Cell::new(0) };
}

tokio::task_local! {
    static ROUND: u64;
}

/// Runs a handler that is told of the change at this revision.
pub(crate) fn of_change<T>(revision: u64, handler: impl FnOnce() -> T) -> T {
    let before = CHANGE.replace(revision);
    let result = handler();
    CHANGE.set(before);
    result
}

/// The revision of the change that is being told on this thread; 0 if none is.
pub(crate) fn changed() -> u64 {
    CHANGE.get()
}

/// A round of work because of a revision; 0 is none.
pub async fn because<F: Future>(revision: u64, work: F) -> F::Output {
    ROUND.scope(revision, work).await
}

/// The revision that the round of work is about; 0 if none is.
pub fn current() -> u64 {
    ROUND.try_with(|revision| *revision).unwrap_or(0)
}

/// Work that is handed to a task of its own and still belongs to this round.
pub fn carry<F: Future>(work: F) -> impl Future<Output = F::Output> {
    because(current(), work)
}

/// Names the cause in a request that this round makes.
pub fn mark<B>(request: &mut Request<B>) {
    match current() {
        0 => {}
        revision => {
            request.headers_mut().insert(HEADER, HeaderValue::from(revision));
        }
    }
}

/// The same in passing.
#[must_use]
pub fn marked<B>(mut request: Request<B>) -> Request<B> {
    mark(&mut request);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_names_the_revision_that_its_round_is_about() {
        let marked = because(42, async { marked(Request::new(())) }).await;
        assert_eq!(marked.headers()[HEADER], "42");
        assert!(super::marked(Request::new(())).headers().is_empty(), "work that nothing caused names nothing");
    }

    #[tokio::test]
    async fn a_task_of_its_own_still_belongs_to_the_round() {
        let seen = because(7, async { tokio::spawn(carry(async { current() })).await }).await;
        assert_eq!(seen.unwrap(), 7);
    }

    #[test]
    fn a_handler_knows_the_change_and_nobody_after_it_does() {
        assert_eq!(of_change(3, changed), 3);
        assert_eq!(changed(), 0);
    }
}
