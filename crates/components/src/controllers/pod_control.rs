//! Creates and deletes Pods for their controllers, many at once, and records what it did.
//!
//! Creation starts slowly: one Pod, then two, then four, as long as all succeed. If a quota or a policy refuses them,
//! that costs a few requests and not a thousand.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::Client;
use tokio::task::JoinSet;

use crate::{
    clock::Clock,
    events::{EventType, ObjectReference, Recorder},
    runtime::{Error, Informer, Propagation, Writer, cause},
};

/// How many requests of one owner may be under way at once. Enough that the server can commit many together; with more they only wait in
/// memory, and everybody else waits behind them.
const IN_FLIGHT: usize = 32;

/// Creates and deletes Pods.
#[derive(Clone)]
pub struct PodControl {
    /// Writes the Pods.
    pub writer: Writer<Pod>,
    /// Records it.
    pub recorder: Recorder,
    clock: Clock,
}

/// A Pod as its template wants it, to be named by the server.
pub fn from_template(template: &PodTemplateSpec, namespace: &str, owner: &OwnerReference) -> Pod {
    let meta = template.metadata.as_ref();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", owner.name)),
            namespace: Some(namespace.to_owned()),
            labels: meta.and_then(|meta| meta.labels.clone()),
            annotations: meta.and_then(|meta| meta.annotations.clone()),
            finalizers: meta.and_then(|meta| meta.finalizers.clone()),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// How many are created in each round.
fn rounds(count: usize) -> impl Iterator<Item = usize> {
    let (mut left, mut next) = (count, 1);
    std::iter::from_fn(move || {
        let now = next.min(left);
        left -= now;
        next *= 2;
        (now > 0).then_some(now)
    })
}

/// Requests of one round of work that are under way: a task each, so that the work is spread over the cores even when the server is in
/// this process. All are made, whatever becomes of the others; the last failure is reported.
#[derive(Default)]
struct InFlight {
    tasks: JoinSet<Result<(), Error>>,
    succeeded: usize,
    failed: Option<Error>,
}

impl InFlight {
    /// Sets a request going, as soon as there is room for it.
    async fn add(&mut self, request: impl Future<Output = Result<(), Error>> + Send + 'static) {
        while self.tasks.len() >= IN_FLIGHT {
            self.join().await;
        }
        self.tasks.spawn(cause::carry(request));
    }

    async fn join(&mut self) -> bool {
        match self.tasks.join_next().await {
            None => return false,
            Some(Ok(Ok(()))) => self.succeeded += 1,
            Some(Ok(Err(error))) => self.failed = Some(error),
            Some(Err(error)) => self.failed = Some(Error::Other(error.to_string())),
        }
        true
    }

    /// Waits for all of them: how many succeeded, and whether one failed.
    async fn finish(mut self) -> (usize, Result<(), Error>) {
        while self.join().await {}
        (self.succeeded, self.failed.map_or(Ok(()), Err))
    }
}

impl PodControl {
    /// A control that writes as `client`.
    pub fn new(client: Client, pods: &Informer<Pod>, recorder: Recorder, clock: Clock) -> Self {
        PodControl { writer: Writer::new(client, pods), recorder, clock }
    }

    /// Creates `count` Pods that differ only in the name the server gives them. Answers how many it created, and what
    /// kept it from creating more.
    pub async fn create_many(&self, owner: &ObjectReference, pod: &Pod, count: usize) -> (usize, Result<(), Error>) {
        let body = match serde_json::to_vec(pod) {
            Ok(body) => body,
            Err(error) => return (0, Err(error.into())),
        };
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        self.create_slowly(owner, &namespace, (0..count).map(|_| body.clone()).collect()).await
    }

    /// Creates these Pods, of one namespace.
    pub async fn create_all(&self, owner: &ObjectReference, pods: &[Pod]) -> (usize, Result<(), Error>) {
        let Some(first) = pods.first() else { return (0, Ok(())) };
        let namespace = first.metadata.namespace.clone().unwrap_or_default();
        match pods.iter().map(serde_json::to_vec).collect() {
            Ok(bodies) => self.create_slowly(owner, &namespace, bodies).await,
            Err(error) => (0, Err(error.into())),
        }
    }

    async fn create_slowly(&self, owner: &ObjectReference, namespace: &str, bodies: Vec<Vec<u8>>) -> (usize, Result<(), Error>) {
        // Many at once are to have their nodes before the first of them are run.
        let _placing = (bodies.len() > IN_FLIGHT).then(|| self.clock.placing());
        let mut created = 0;
        let sizes = rounds(bodies.len());
        let mut bodies = bodies.into_iter();
        for size in sizes {
            let mut tasks = InFlight::default();
            for body in bodies.by_ref().take(size) {
                let (this, owner, namespace) = (self.clone(), owner.clone(), namespace.to_owned());
                tasks.add(async move { this.create_bytes(&owner, &namespace, body).await.map(|_| ()) }).await;
            }
            let (done, outcome) = tasks.finish().await;
            created += done;
            if outcome.is_err() {
                return (created, outcome);
            }
        }
        (created, Ok(()))
    }

    /// Creates one Pod.
    pub async fn create(&self, owner: &ObjectReference, pod: &Pod) -> Result<Arc<Pod>, Error> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        self.create_bytes(owner, namespace, serde_json::to_vec(pod)?).await
    }

    async fn create_bytes(&self, owner: &ObjectReference, namespace: &str, body: Vec<u8>) -> Result<Arc<Pod>, Error> {
        match self.writer.create_bytes(namespace, body).await {
            Ok(pod) => {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                self.recorder.event(owner, EventType::Normal, "SuccessfulCreate", format!("Created pod: {name}"));
                Ok(pod)
            }
            Err(error) => {
                // In a namespace that is going away this is expected, and the event could not be written either.
                if !error.is_namespace_terminating() {
                    let message = format!("Error creating: {}", error.message());
                    self.recorder.event(owner, EventType::Warning, "FailedCreate", message);
                }
                Err(error)
            }
        }
    }

    /// Deletes these Pods. All are tried; the last failure is reported.
    pub async fn delete_all(&self, owner: &ObjectReference, pods: &[Arc<Pod>]) -> Result<(), Error> {
        let mut tasks = InFlight::default();
        for pod in pods {
            let (this, owner, pod) = (self.clone(), owner.clone(), pod.clone());
            tasks.add(async move { this.delete(&owner, &pod).await }).await;
        }
        tasks.finish().await.1
    }

    /// Deletes one Pod.
    pub async fn delete(&self, owner: &ObjectReference, pod: &Pod) -> Result<(), Error> {
        match self.writer.delete(pod, Propagation::Default).await {
            Ok(()) => {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                self.recorder.event(owner, EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(())
            }
            Err(error) => {
                let message = format!("Error deleting: {}", error.message());
                self.recorder.event(owner, EventType::Warning, "FailedDelete", message);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn only_so_many_requests_are_under_way_and_all_are_made() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut requests = InFlight::default();
        for number in 0..200 {
            let (now, most) = (now.clone(), most.clone());
            let request = async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                if number == 3 { Err(Error::Other("third".into())) } else { Ok(()) }
            };
            requests.add(request).await;
        }
        let (succeeded, outcome) = requests.finish().await;
        assert_eq!((succeeded, outcome.is_err()), (199, true));
        assert_eq!(most.load(Ordering::SeqCst), IN_FLIGHT);
    }

    #[test]
    fn creation_starts_slowly_and_doubles() {
        assert_eq!(rounds(10).collect::<Vec<_>>(), [1, 2, 4, 3]);
        assert_eq!(rounds(0).count(), 0);
        assert_eq!(rounds(1000).count(), 10);
    }
}
