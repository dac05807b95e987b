//! Drives a component: waits for its caches, then feeds its keys to its service, until it is told to stop.
//!
//! The service is a stack that reads as a list: tracing, metrics, concurrency, deadline, the component. What happens
//! to a key afterwards (again later, again after a failure, rest) is decided here and nowhere else.

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, layer::layer_fn, util::BoxCloneSyncService};
use tracing::Instrument;

use super::{
    cause,
    component::{Component, Error, Requeue, Source},
    key::Key,
    metrics::{Counters, Metrics},
    queue::Queue,
};
use crate::clock::Clock;

/// A key rests for this many times as long as its last round took, so that a burst of events costs few rounds.
const REST: u32 = 8;
/// The longest rest of a key between two rounds.
const LONGEST_REST: Duration = Duration::from_millis(100);

type Reconcile = BoxCloneSyncService<Key, Requeue, Error>;

/// Runs a component until `stop`.
pub fn run<C: Component>(component: C, clock: Clock, metrics: &Metrics, stop: CancellationToken) -> BoxFuture<'static, ()> {
    let counters = metrics.of(C::NAME);
    let queue = Queue::new(clock.clone(), counters.clone());
    let component = Arc::new(component);
    let sources = component.sources();
    let reconcile = tower::service_fn(move |key| component.clone().reconcile(key)).boxed_clone_sync();
    let reconcile = stack(C::NAME, C::WORKERS, C::TIMEOUT, clock.clone(), reconcile);
    Box::pin(drive(Driver { name: C::NAME, queue, counters, clock }, sources, reconcile, stop))
}

trait BoxedCloneSync: Service<Key, Response = Requeue, Error = Error> + Sized {
    fn boxed_clone_sync(self) -> Reconcile
    where
        Self: Clone + Send + Sync + 'static,
        Self::Future: Send + 'static,
    {
        BoxCloneSyncService::new(self)
    }
}
impl<S: Service<Key, Response = Requeue, Error = Error>> BoxedCloneSync for S {}

/// The layers around a component, outside in.
fn stack(name: &'static str, workers: usize, timeout: Duration, clock: Clock, reconcile: Reconcile) -> Reconcile {
    ServiceBuilder::new()
        // A driver that waits for readiness takes no key out of the queue that nobody can work on.
        .concurrency_limit(workers)
        // Inside the limit, so that waiting for a worker is not traced as work.
        .layer(traced(name))
        .layer(deadline(timeout, clock))
        .service(reconcile)
        .boxed_clone_sync()
}

fn traced(name: &'static str) -> impl Layer<Reconcile, Service = Reconcile> + Clone {
    layer_fn(move |inner: Reconcile| {
        tower::service_fn(move |key: Key| {
            let span = tracing::debug_span!("reconcile", component = name, %key);
            inner.clone().oneshot(key).instrument(span)
        })
        .boxed_clone_sync()
    })
}

fn deadline(after: Duration, clock: Clock) -> impl Layer<Reconcile, Service = Reconcile> + Clone {
    layer_fn(move |inner: Reconcile| {
        let clock = clock.clone();
        tower::service_fn(move |key: Key| {
            let (inner, clock) = (inner.clone(), clock.clone());
            async move { clock.timeout(after, inner.oneshot(key)).await.map_err(|_| Error::Timeout)? }
        })
        .boxed_clone_sync()
    })
}

#[derive(Clone)]
struct Driver {
    name: &'static str,
    queue: Queue,
    counters: Arc<Counters>,
    clock: Clock,
}

async fn drive(driver: Driver, sources: Vec<Source>, mut reconcile: Reconcile, stop: CancellationToken) {
    let (subscribe, synced): (Vec<_>, Vec<_>) = sources.into_iter().map(|s| (s.subscribe, s.synced)).unzip();
    tokio::select! {
        () = stop.cancelled() => return,
        _ = join_all(synced) => {}
    }
    // After the caches are filled: otherwise the first keys would be worked on with half of the facts.
    let subscriptions: Vec<_> = subscribe.into_iter().filter_map(|s| s(driver.queue.clone())).collect();
    tracing::debug!(component = driver.name, "started");
    let mut tasks = tokio::task::JoinSet::new();
    let work = async {
        while let Ok(service) = reconcile.ready().await {
            let (key, cause) = driver.queue.next_with_cause().await;
            let future = cause::because(cause, service.call(key.clone()));
            tasks.spawn(one_round(driver.clone(), key, cause, future));
            while tasks.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
    drop(subscriptions);
    // A round that has begun may finish its writes, but not for long.
    let finish = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(Duration::from_secs(2), finish).await;
    tracing::debug!(component = driver.name, "stopped");
}

async fn one_round(driver: Driver, key: Key, cause: u64, future: impl Future<Output = Result<Requeue, Error>>) {
    let _busy = driver.clock.busy();
    let started = std::time::Instant::now();
    // If the round panics, the key must not stay locked for ever.
    let mut unfinished = Unfinished { driver: &driver, key: &key, cause, finished: false };
    let outcome = future.await;
    unfinished.finished = true;
    let took = started.elapsed();
    driver.counters.round(took, outcome.is_err());
    match outcome {
        Ok(requeue) => {
            driver.queue.forget(&key);
            driver.queue.done(&key, (took * REST).min(LONGEST_REST));
            if let Requeue::After(delay) = requeue {
                driver.queue.add_after(key.clone(), delay);
            }
        }
        Err(error) => {
            // A conflict is how concurrent writers meet; it is not worth a line in anybody's log.
            if error.is_conflict() || error.is_not_found() || error.is_namespace_terminating() {
                tracing::debug!(component = driver.name, %key, error = error.message(), "will be tried again");
            } else {
                tracing::warn!(component = driver.name, %key, error = error.message(), "will be tried again");
            }
            driver.queue.done(&key, Duration::ZERO);
            driver.queue.retry(key.clone(), cause);
        }
    }
}

struct Unfinished<'a> {
    driver: &'a Driver,
    key: &'a Key,
    cause: u64,
    finished: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.driver.queue.done(self.key, Duration::ZERO);
            self.driver.queue.retry(self.key.clone(), self.cause);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Flaky(Arc<AtomicUsize>);

    impl Component for Flaky {
        const NAME: &'static str = "flaky";
        fn sources(&self) -> Vec<Source> {
            vec![Source::once(Key::cluster("a"))]
        }
        async fn reconcile(self: Arc<Self>, _: Key) -> Result<Requeue, Error> {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => Err(Error::Other("first".into())),
                1 => panic!("second"),
                2 => Ok(Requeue::After(Duration::from_millis(1))),
                _ => Ok(Requeue::Done),
            }
        }
    }

    #[tokio::test]
    async fn a_key_comes_back_after_a_failure_a_panic_and_when_asked_for() {
        let count = Arc::new(AtomicUsize::new(0));
        let stop = CancellationToken::new();
        let metrics = Metrics::default();
        let task = tokio::spawn(run(Flaky(count.clone()), Clock::system(), &metrics, stop.clone()));
        while count.load(Ordering::SeqCst) < 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(count.load(Ordering::SeqCst), 4);
        stop.cancel();
        task.await.unwrap();
    }
}
