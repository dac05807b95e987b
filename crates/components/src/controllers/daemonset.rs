//! DaemonSet: one Pod on every node that fits.
//!
//! Which nodes and which steps is decided in [`decide`].

pub mod decide;

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet},
    core::v1::{Node, Pod},
};

use super::{
    owner::{self, claim_all, controller_reference, may_adopt},
    pod_control::PodControl,
    pods,
    revisions::{Revisions, hash_of},
};
use crate::{
    clock::Clock,
    events::{EventType, regarding},
    runtime::{Component, Context, Error, Identity, Informer, Key, Outcome, Requeue, Source, Writer},
};

const ACCOUNT: &str = "daemon-set-controller";

struct Controller {
    sets: Informer<DaemonSet>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    writer: Writer<DaemonSet>,
    control: PodControl,
    revisions: Revisions,
    clock: Clock,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(ACCOUNT));
    let (sets, pods) = (context.watches.of(), context.watches.of());
    let history = context.watches.of::<ControllerRevision>();
    pods::add_indexes(&pods);
    let recorder = context.recorder(client.clone(), "daemonset-controller");
    context.run(Controller {
        writer: Writer::new(client.clone(), &sets),
        revisions: Revisions { writer: Writer::new(client.clone(), &history), informer: history },
        control: PodControl::new(client, &pods, recorder, context.clock.clone()),
        nodes: context.watches.of(),
        sets,
        pods,
        clock: context.clock.clone(),
    })
}

impl Component for Controller {
    const NAME: &'static str = "daemonset-controller";

    fn sources(&self) -> Vec<Source> {
        let sets = self.sets.clone();
        vec![
            Source::own(&self.sets),
            Source::controlled(&self.pods, "apps", "DaemonSet"),
            Source::lookup(&self.revisions.informer),
            // A node concerns the sets that it means something else to than before.
            Source::new(&self.nodes, move |change, queue| {
                for set in sets.list() {
                    let means = |node: Option<&Arc<Node>>| node.map(|node| decide::place(&set, node));
                    if means(change.old) != means(change.new) {
                        queue.add(Key::of(&set.metadata));
                    }
                }
            }),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(set) = self.sets.find(&key) else { return Ok(Requeue::Done) };
        let about = regarding(&*set);
        let Some(selector) = owner::selector(&set.spec.selector) else {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.control.recorder.event(&about, EventType::Warning, "SelectingAll", message);
            return Ok(Requeue::Done);
        };
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Requeue::Done);
        }
        let meta = &set.metadata;
        let reference = controller_reference::<DaemonSet>(meta);
        let orphans = self.pods.indexed(pods::ORPHANS, meta.namespace.as_deref().unwrap_or_default());
        claim_all(&self.control.writer, &self.pods, (meta, reference.clone()), &selector, orphans, || may_adopt(&self.writer, meta))
            .await?;
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let (updated, history, collisions) = self.revisions.ensure(meta, &reference, &set.spec.template, collisions).await?;
        let hash = hash_of(&updated);
        let mut nodes = self.nodes.list();
        nodes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));

        let now = self.clock.now();
        let step = decide::manage(&set, &nodes, &self.pods_of(&set), hash, now);
        let mut acted = self.act(&set, &step, hash).await;
        if acted.is_ok() {
            let step = decide::roll(&set, &nodes, &self.pods_of(&set), hash, now);
            acted = self.act(&set, &step, hash).await;
        }
        let pods = self.pods_of(&set);
        let (status, again) = decide::status(&set, &nodes, &pods, hash, collisions, now);
        if set.status.as_ref() != Some(&status) {
            let mut next = (*set).clone();
            next.status = Some(status);
            self.writer.update_status(&next).await?;
        }
        acted?;
        let labels = pods.iter().filter_map(|pod| pod.metadata.labels.as_ref()?.get(super::revisions::REVISION_HASH));
        let mut in_use: Vec<&str> = labels.map(String::as_str).collect();
        in_use.push(hash);
        self.revisions.truncate(&history, &in_use, set.spec.revision_history_limit).await?;
        Ok(Requeue::after(again))
    }
}

impl Controller {
    fn pods_of(&self, set: &DaemonSet) -> Vec<Arc<Pod>> {
        self.pods.owned_by(set.metadata.uid.as_deref().unwrap_or_default())
    }

    async fn act(&self, set: &DaemonSet, step: &decide::Step, hash: &str) -> Result<(), Error> {
        let about = regarding(set);
        for (warning, reason, message) in &step.events {
            let r#type = if *warning { EventType::Warning } else { EventType::Normal };
            self.control.recorder.event(&about, r#type, reason, message.clone());
        }
        let new: Vec<_> = step.create.iter().map(|node| decide::new_pod(set, hash, node)).collect();
        let created = self.control.create_all(&about, &new).await.1;
        self.control.delete_all(&about, &step.delete).await?;
        created
    }
}
