//! Protection of what is in use: a claim stays as long as a Pod on a node names it, a volume as long as it is bound.
//!
//! Admission gives both their finalizers; these two controllers take them away again when the time has come.

use std::{marker::PhantomData, sync::Arc};

use futures::future::BoxFuture;
use k8s_openapi::{
    Resource,
    api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
};
use serde::Serialize;

use super::{CLAIMS, add_index, claims_of, is_for};
use crate::{
    controllers::pods,
    runtime::{Component, Context, Identity, Informer, Key, Object, Outcome, Requeue, Source, Writer},
};

/// What can be protected.
pub trait Protected: Object + Resource + Serialize + Clone {
    /// The controller's name.
    const NAME: &'static str;
    /// Its service account.
    const ACCOUNT: &'static str;
    /// The finalizer.
    const FINALIZER: &'static str;
    /// Whether it must stay.
    fn is_used(&self, pods: &Informer<Pod>) -> bool;
    /// The protected objects that a Pod may keep.
    fn kept_by(pod: &Pod) -> Vec<Key>;
}

impl Protected for PersistentVolumeClaim {
    const NAME: &'static str = "persistentvolumeclaim-protection-controller";
    const ACCOUNT: &'static str = "pvc-protection-controller";
    const FINALIZER: &'static str = "kubernetes.io/pvc-protection";

    fn is_used(&self, pods: &Informer<Pod>) -> bool {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        // A Pod without a node can no longer get this claim, so it does not keep it either.
        pods.indexed(CLAIMS, &Key::of(&self.metadata).to_string()).iter().filter(|pod| pods::node_name(pod).is_some()).any(|pod| {
            let shut_down = pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0);
            claims_of(pod).any(|(claim, own)| claim == name && (!own || !shut_down && is_for(pod, self)))
        })
    }

    fn kept_by(pod: &Pod) -> Vec<Key> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        claims_of(pod).map(|(claim, _)| Key::new(namespace, &claim)).collect()
    }
}

impl Protected for PersistentVolume {
    const NAME: &'static str = "persistentvolume-protection-controller";
    const ACCOUNT: &'static str = "pv-protection-controller";
    const FINALIZER: &'static str = "kubernetes.io/pv-protection";

    fn is_used(&self, _: &Informer<Pod>) -> bool {
        self.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
    }

    fn kept_by(_: &Pod) -> Vec<Key> {
        Vec::new()
    }
}

struct Controller<K> {
    objects: Informer<K>,
    pods: Informer<Pod>,
    writer: Writer<K>,
    kind: PhantomData<K>,
}

/// Runs the controller of one of the two kinds.
pub fn run<K: Protected>(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(K::ACCOUNT));
    let (objects, pods) = (context.watches.of(), context.watches.of());
    add_index(&pods);
    context.run(Controller::<K> { writer: Writer::new(client, &objects), objects, pods, kind: PhantomData })
}

impl<K: Protected> Component for Controller<K> {
    const NAME: &'static str = K::NAME;

    fn sources(&self) -> Vec<Source> {
        let pods = Source::new(&self.pods, |change, queue| {
            let gone = change.is_deletion() || change.new.is_some_and(|pod| pods::is_finished(pod) || pods::is_terminating(pod));
            if let Some(pod) = change.latest().filter(|_| gone) {
                K::kept_by(pod).into_iter().for_each(|key| queue.add(key));
            }
        });
        vec![Source::own(&self.objects), pods]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(object) = self.objects.find(&key) else { return Ok(Requeue::Done) };
        let finalizers = object.meta().finalizers.clone().unwrap_or_default();
        let has = finalizers.iter().any(|finalizer| finalizer == K::FINALIZER);
        let wanted = object.meta().deletion_timestamp.is_none();
        if has == wanted || (has && object.is_used(&self.pods)) {
            return Ok(Requeue::Done);
        }
        let mut object = (*object).clone();
        let finalizers = object.meta_mut().finalizers.get_or_insert_default();
        if wanted {
            finalizers.push(K::FINALIZER.to_owned());
        } else {
            finalizers.retain(|finalizer| finalizer != K::FINALIZER);
        }
        match self.writer.update(&object).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(Requeue::Done),
        }
    }
}
