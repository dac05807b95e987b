//! Namespace deletion: everything in a namespace that is being deleted goes, of all kinds the server serves; then the
//! namespace itself may go.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream};
use http::{Request, header};
use k8s_openapi::{
    api::core::v1::{Namespace, NamespaceCondition, NamespaceStatus, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::Client;

use crate::{
    clock::Clock,
    runtime::{
        Component, Context, Error, Identity, Informer, Key, Outcome, Partial, Requeue, Source, Writer, cause,
        discovery::{Resource, discover},
    },
};

const ACCOUNT: &str = "namespace-controller";
const FINALIZER: &str = "kubernetes";
/// How many resources are emptied at once.
const AT_ONCE: usize = 8;
/// When to look again at what had not gone yet, if no event says so before.
const AGAIN: Duration = Duration::from_millis(500);

struct Controller {
    namespaces: Informer<Namespace>,
    pods: Informer<Pod>,
    writer: Writer<Namespace>,
    client: Client,
    clock: Clock,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(ACCOUNT));
    let namespaces = context.watches.of();
    context.run(Controller {
        writer: Writer::new(client.clone(), &namespaces),
        namespaces,
        pods: context.watches.of(),
        client,
        clock: context.clock.clone(),
    })
}

/// What is left in a namespace after an attempt to empty it.
#[derive(Debug, Default)]
struct Left {
    /// How many objects of which resource.
    resources: BTreeMap<String, usize>,
    /// How many objects with which finalizer.
    finalizers: BTreeMap<String, usize>,
    /// What could not be deleted, and why.
    failures: Vec<String>,
}

impl Component for Controller {
    const NAME: &'static str = "namespace-controller";
    const WORKERS: usize = 10;

    fn sources(&self) -> Vec<Source> {
        let namespaces = self.namespaces.clone();
        vec![
            Source::new(&self.namespaces, |change, queue| {
                if let Some(namespace) = change.new.filter(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
                    queue.add(Key::of(&namespace.metadata));
                }
            }),
            // Pods take their time; the last one to go lets the namespace go.
            Source::new(&self.pods, move |change, queue| {
                let Some(pod) = change.old.filter(|_| change.is_deletion()) else { return };
                let namespace = namespaces.get("", pod.metadata.namespace.as_deref().unwrap_or_default());
                if let Some(namespace) = namespace.filter(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
                    queue.add(Key::of(&namespace.metadata));
                }
            }),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(namespace) = self.namespaces.find(&key) else { return Ok(Requeue::Done) };
        let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default();
        if namespace.metadata.deletion_timestamp.is_none() || !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(Requeue::Done);
        }
        let (left, discovery) = match discover(&self.client).await {
            Ok(resources) => (self.empty(&key.name, resources).await, None),
            Err(error) => (Left::default(), Some(error.message())),
        };
        let done = discovery.is_none() && left.resources.is_empty() && left.failures.is_empty();
        let mut namespace = (*namespace).clone();
        // A namespace that goes at once needs no report on the way.
        if !done && report(namespace.status.get_or_insert_default(), &left, discovery.as_deref(), &self.clock.time()) {
            match self.writer.update_status(&namespace).await {
                Ok(fresh) => namespace = (*fresh).clone(),
                Err(error) if error.is_not_found() => return Ok(Requeue::Done),
                Err(error) => return Err(error),
            }
        }
        if !done {
            return Ok(Requeue::After(AGAIN));
        }
        if let Some(spec) = &mut namespace.spec {
            spec.finalizers.get_or_insert_default().retain(|finalizer| finalizer != FINALIZER);
        }
        match self.writer.replace(&namespace, "/finalize").await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(Requeue::Done),
        }
    }
}

impl Controller {
    async fn empty(&self, namespace: &str, resources: Vec<Resource>) -> Left {
        let resources = resources.into_iter().filter(|resource| resource.namespaced && resource.can(&["delete", "list"]));
        let work = resources.map(|resource| async move {
            let outcome = self.empty_resource(namespace, &resource).await;
            (resource, outcome)
        });
        let mut work = stream::iter(work).buffer_unordered(AT_ONCE);
        let mut left = Left::default();
        while let Some((resource, outcome)) = work.next().await {
            let name = format!("{}.{}", resource.plural, resource.group);
            match outcome {
                Ok(remaining) if remaining.is_empty() => {}
                Ok(remaining) => {
                    for finalizer in remaining.iter().flat_map(|object| object.metadata.finalizers.iter().flatten()) {
                        *left.finalizers.entry(finalizer.clone()).or_default() += 1;
                    }
                    left.resources.insert(name, remaining.len());
                }
                // The definition may have gone while its objects were looked for.
                Err(error) if error.is_not_found() || error.code() == Some(405) => {}
                Err(error) => left.failures.push(format!("{name}: {}", error.message())),
            }
        }
        left.failures.sort();
        left
    }

    /// Deletes all objects of one resource; answers those that are still there.
    async fn empty_resource(&self, namespace: &str, resource: &Resource) -> Result<Vec<Partial>, Error> {
        let before = resource.list_metadata(&self.client, namespace).await?;
        if before.iter().all(|object| object.metadata.deletion_timestamp.is_some()) {
            return Ok(before);
        }
        let options = br#"{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}"#;
        if resource.can(&["deletecollection"]) {
            self.delete(&resource.path(namespace, ""), options).await?;
        } else {
            for object in &before {
                match self.delete(&resource.path(namespace, object.metadata.name.as_deref().unwrap_or_default()), options).await {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                }
            }
        }
        resource.list_metadata(&self.client, namespace).await
    }

    async fn delete(&self, path: &str, options: &[u8]) -> Result<(), Error> {
        let request = Request::delete(path).header(header::CONTENT_TYPE, "application/json").body(options.to_vec());
        self.client.request_text(cause::marked(request.map_err(kube::Error::HttpError)?)).await?;
        Ok(())
    }
}

/// Writes the conditions; says whether anything changed.
fn report(status: &mut NamespaceStatus, left: &Left, discovery: Option<&str>, now: &Time) -> bool {
    let listed = |map: &BTreeMap<String, usize>, between: &str| {
        let parts: Vec<_> = map.iter().map(|(name, count)| format!("{name} {between} {count} resource instances")).collect();
        parts.join(", ")
    };
    let failed = |bad: bool, reason: &'static str, message: String| bad.then_some((reason, message));
    let conditions = [
        (
            "NamespaceDeletionDiscoveryFailure",
            failed(discovery.is_some(), "DiscoveryFailed", discovery.unwrap_or_default().to_owned()),
            ("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        ("NamespaceDeletionGroupVersionParsingFailure", None, ("ParsedGroupVersions", "All legacy kube types successfully parsed")),
        (
            "NamespaceDeletionContentFailure",
            failed(
                !left.failures.is_empty(),
                "ContentDeletionFailed",
                format!("Failed to delete all resource types, {} remaining: {}", left.failures.len(), left.failures.join(", ")),
            ),
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        (
            "NamespaceContentRemaining",
            failed(
                !left.resources.is_empty(),
                "SomeResourcesRemain",
                format!("Some resources are remaining: {}", listed(&left.resources, "has")),
            ),
            ("ContentRemoved", "All content successfully removed"),
        ),
        (
            "NamespaceFinalizersRemaining",
            failed(
                !left.finalizers.is_empty(),
                "SomeFinalizersRemain",
                format!("Some content in the namespace has finalizers remaining: {}", listed(&left.finalizers, "in")),
            ),
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ),
    ];
    let list = status.conditions.get_or_insert_default();
    let mut changed = false;
    for (r#type, bad, good) in conditions {
        let (truth, reason, message) = match bad {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", good.0, good.1.to_owned()),
        };
        let at = list.iter().position(|condition| condition.type_ == r#type);
        let old = at.map(|at| list[at].clone());
        let same = |old: &NamespaceCondition| {
            old.status == truth && old.reason.as_deref() == Some(reason) && old.message.as_deref() == Some(&message)
        };
        if old.as_ref().is_some_and(same) {
            continue;
        }
        changed = true;
        let since = old.filter(|old| old.status == truth).and_then(|old| old.last_transition_time);
        let condition = NamespaceCondition {
            type_: r#type.into(),
            status: truth.into(),
            reason: Some(reason.into()),
            message: Some(message),
            last_transition_time: since.or_else(|| Some(now.clone())),
        };
        match at {
            Some(at) => list[at] = condition,
            None => list.push(condition),
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_remains_is_reported_in_the_words_that_people_know() {
        let mut status = NamespaceStatus::default();
        let mut left = Left::default();
        left.resources.insert("pods.".into(), 2);
        left.finalizers.insert("example.com/f".into(), 1);
        let now = Time(jiff::Timestamp::UNIX_EPOCH);
        assert!(report(&mut status, &left, None, &now));
        assert!(!report(&mut status, &left, None, &now), "the same again is no change");
        let messages: Vec<_> = status.conditions.unwrap().into_iter().filter_map(|c| c.message).collect();
        assert!(messages.contains(&"Some resources are remaining: pods. has 2 resource instances".to_owned()));
        let finalizers = "Some content in the namespace has finalizers remaining: example.com/f in 1 resource instances";
        assert!(messages.contains(&finalizers.to_owned()));
    }
}
