//! Deployment: one ReplicaSet per revision of the template, and the steps from one to the next.
//!
//! This file reads and writes; what to do is decided in [`rollout`] (sizes), [`revision`] (which ReplicaSet is which)
//! and [`status`] (what to report).

pub mod revision;
pub mod rollout;
pub mod status;

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentStatus, ReplicaSet},
    core::v1::Pod,
};

use super::{
    owner::{self, claim_all, controller_reference, may_adopt},
    pods,
};
use crate::{
    clock::Clock,
    events::{EventType, Recorder, regarding},
    runtime::{Component, Context, Error, Identity, Informer, Key, Outcome, Propagation, Requeue, Source, Writer, controller_of},
};
use rollout::{Bounds, Resize, Set};

const ACCOUNT: &str = "deployment-controller";
const ORPHANS: &str = "orphans";

struct Controller {
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    writer: Writer<Deployment>,
    set_writer: Writer<ReplicaSet>,
    recorder: Recorder,
    clock: Clock,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(ACCOUNT));
    let (deployments, sets, pods) = (context.watches.of(), context.watches.of::<ReplicaSet>(), context.watches.of());
    sets.add_index(ORPHANS, |set| match controller_of(&set.metadata) {
        Some(_) => Vec::new(),
        None => set.metadata.namespace.iter().cloned().collect(),
    });
    context.run(Controller {
        writer: Writer::new(client.clone(), &deployments),
        set_writer: Writer::new(client.clone(), &sets),
        recorder: context.recorder(client, ACCOUNT),
        deployments,
        sets,
        pods,
        clock: context.clock.clone(),
    })
}

impl Component for Controller {
    const NAME: &'static str = "deployment-controller";
    const WORKERS: usize = 16;

    fn sources(&self) -> Vec<Source> {
        let (deployments, of_orphan) = (self.deployments.clone(), self.deployments.clone());
        let sets = self.sets.clone();
        vec![
            Source::own(&self.deployments),
            Source::controlled(&self.sets, "apps", "Deployment"),
            Source::new(&self.sets, move |change, queue| {
                let Some(set) = change.new.filter(|set| controller_of(&set.metadata).is_none()) else { return };
                for deployment in of_orphan.in_namespace(set.metadata.namespace.as_deref().unwrap_or_default()) {
                    if owner::selector(&deployment.spec.selector).is_some_and(|s| owner::selects(&s, &set.metadata)) {
                        queue.add(Key::of(&deployment.metadata));
                    }
                }
            }),
            // A recreating Deployment waits until its last old Pod is gone.
            Source::new(&self.pods, move |change, queue| {
                let Some(pod) = change.old.filter(|_| change.is_deletion()) else { return };
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                let set = controller_of(&pod.metadata).and_then(|owner| sets.get(namespace, &owner.name));
                let owner = set.as_ref().and_then(|set| controller_of(&set.metadata));
                let deployment = owner.and_then(|owner| deployments.get(namespace, &owner.name));
                if let Some(deployment) = deployment.filter(|deployment| !Bounds::of(deployment).rolling) {
                    queue.add(Key::of(&deployment.metadata));
                }
            }),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(deployment) = self.deployments.find(&key) else { return Ok(Requeue::Done) };
        let Some(selector) = owner::selector(&deployment.spec.selector) else {
            return self.selects_everything(&deployment).await;
        };
        let meta = &deployment.metadata;
        let orphans = self.sets.indexed(ORPHANS, meta.namespace.as_deref().unwrap_or_default());
        let owner = (meta, controller_reference::<Deployment>(meta));
        let sets = claim_all(&self.set_writer, &self.sets, owner, &selector, orphans, || may_adopt(&self.writer, meta)).await?;
        let mut round = Round { controller: &self, deployment: (*deployment).clone(), sets };
        round.work().await
    }
}

impl Controller {
    async fn selects_everything(&self, deployment: &Deployment) -> Outcome {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.recorder.event(&regarding(deployment), EventType::Warning, "SelectingAll", message);
        let observed = deployment.status.as_ref().and_then(|status| status.observed_generation);
        if observed < deployment.metadata.generation {
            let mut deployment = deployment.clone();
            deployment.status.get_or_insert_default().observed_generation = deployment.metadata.generation;
            self.writer.update_status(&deployment).await?;
        }
        Ok(Requeue::Done)
    }
}

/// One round of work on one Deployment. `deployment` and `sets` follow what is written.
struct Round<'a> {
    controller: &'a Controller,
    deployment: Deployment,
    sets: Vec<Arc<ReplicaSet>>,
}

impl Round<'_> {
    async fn work(&mut self) -> Outcome {
        let now = self.controller.clock.time();
        if self.deployment.metadata.deletion_timestamp.is_some() {
            let (new, _) = self.split();
            return self.report(status::counts(&self.deployment, &self.sets, new.as_deref(), &now)).await;
        }
        if let Some(condition) = status::pause(&self.deployment, &now) {
            status::set(self.deployment.status.get_or_insert_default(), condition);
            self.update_status().await?;
        }
        self.sync_revision().await?;
        let bounds = Bounds::of(&self.deployment);
        let plain: Vec<Set> = self.sets.iter().map(|set| revision::plain(set)).collect();
        let paused = self.deployment.spec.paused == Some(true);
        if paused || rollout::was_resized(bounds, &plain) {
            let (new, old) = self.split_plain();
            let count = self.deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
            self.resize(rollout::resize(bounds, new.as_ref(), &old, count)).await?;
            if paused {
                self.clean_up().await?;
            }
            let (new, _) = self.split();
            return self.report(status::counts(&self.deployment, &self.sets, new.as_deref(), &now)).await;
        }
        if bounds.rolling {
            self.roll(bounds).await?
        } else {
            self.recreate(bounds).await?
        }
        let (new, _) = self.split();
        let status = status::rollout(&self.deployment, &self.sets, new.as_deref(), &now);
        if status::is_complete(&self.deployment, &status) {
            self.clean_up().await?;
        }
        self.report(status).await
    }

    fn split(&self) -> (Option<Arc<ReplicaSet>>, Vec<Arc<ReplicaSet>>) {
        revision::split(&self.deployment, &self.sets)
    }

    fn split_plain(&self) -> (Option<Set>, Vec<Set>) {
        let (new, old) = self.split();
        (new.map(|set| revision::plain(&set)), old.iter().map(|set| revision::plain(set)).collect())
    }

    async fn roll(&mut self, bounds: Bounds) -> Result<(), Error> {
        self.ensure_new().await?;
        let (Some(new), old) = self.split_plain() else { return Ok(()) };
        if let Some(step) = rollout::scale_new(bounds, &new, &old) {
            self.resize(vec![step]).await?;
        }
        let (Some(new), old) = self.split_plain() else { return Ok(()) };
        self.resize(rollout::scale_old(bounds, &new, &old)).await
    }

    async fn recreate(&mut self, bounds: Bounds) -> Result<(), Error> {
        let (_, old) = self.split();
        let down = old.iter().filter(|set| set.spec.replicas != Some(0)).map(|set| (revision::plain(set).name, 0)).collect::<Vec<_>>();
        if !down.is_empty() {
            return self.resize(down).await;
        }
        let running = old.iter().any(|set| {
            let pods = self.controller.pods.owned_by(set.metadata.uid.as_deref().unwrap_or_default());
            pods.iter().any(|pod| !pods::is_finished(pod))
        });
        if running {
            return Ok(());
        }
        self.ensure_new().await?;
        match self.split_plain().0 {
            Some(new) if new.replicas != bounds.replicas => self.resize(vec![(new.name, bounds.replicas)]).await,
            _ => Ok(()),
        }
    }

    /// Keeps the annotations of an existing new ReplicaSet, and the Deployment's revision, in step.
    async fn sync_revision(&mut self) -> Result<(), Error> {
        let (Some(new), old) = self.split() else { return Ok(()) };
        let revision = revision::next(&old);
        let annotations = revision::annotations(&self.deployment, new.metadata.annotations.as_ref(), revision);
        let min_ready = self.deployment.spec.min_ready_seconds;
        let mut new = new;
        if new.metadata.annotations.as_ref() != Some(&annotations) || new.spec.min_ready_seconds.unwrap_or(0) != min_ready.unwrap_or(0) {
            let mut changed = (*new).clone();
            changed.metadata.annotations = Some(annotations);
            changed.spec.min_ready_seconds = min_ready;
            new = self.controller.set_writer.update(&changed).await?;
            self.remember(new.clone());
        }
        let found = status::progress_deadline(&self.deployment).is_some()
            && status::progressing_reason(&self.deployment.status.clone().unwrap_or_default()).is_none();
        let found = found.then(|| {
            let name = new.metadata.name.as_deref().unwrap_or_default();
            ("FoundNewReplicaSet", format!("Found new replica set {name:?}"))
        });
        self.set_revision(revision::of(&new.metadata), found).await
    }

    /// Writes the Deployment's revision, with the condition that goes with it.
    async fn set_revision(&mut self, revision: i64, reason: Option<(&str, String)>) -> Result<(), Error> {
        let stale = revision::of(&self.deployment.metadata) != revision;
        if !stale && reason.is_none() {
            return Ok(());
        }
        if let Some((reason, message)) = reason {
            let condition = status::new_set(reason, message, &self.controller.clock.time());
            status::set(self.deployment.status.get_or_insert_default(), condition);
        }
        let annotations = self.deployment.metadata.annotations.get_or_insert_default();
        annotations.insert(revision::REVISION.into(), revision.to_string());
        self.update_status().await?;
        if revision::of(&self.deployment.metadata) != revision {
            // This server keeps metadata out of status updates.
            let annotations = self.deployment.metadata.annotations.get_or_insert_default();
            annotations.insert(revision::REVISION.into(), revision.to_string());
            self.deployment = (*self.controller.writer.update(&self.deployment).await?).clone();
        }
        Ok(())
    }

    /// Creates the ReplicaSet of the current template if there is none.
    async fn ensure_new(&mut self) -> Result<(), Error> {
        let (new, old) = self.split();
        if new.is_some() {
            return Ok(());
        }
        let bounds = Bounds::of(&self.deployment);
        let number = revision::next(&old);
        let mut set = revision::new_set(&self.deployment, number, bounds)?;
        let all = old.iter().map(|set| set.spec.replicas.unwrap_or(1)).sum();
        let size = rollout::new_size(bounds, 0, all);
        set.spec.replicas = Some(size);
        let name = set.metadata.name.clone().unwrap_or_default();
        let about = regarding(&self.deployment);
        let has_deadline = status::progress_deadline(&self.deployment).is_some();
        match self.controller.set_writer.create(&set).await {
            Ok(created) => {
                self.remember(created);
                if size > 0 {
                    let message = format!("Scaled up replica set {name} from 0 to {size}");
                    self.controller.recorder.event(&about, EventType::Normal, "ScalingReplicaSet", message);
                }
                let made = has_deadline.then(|| ("NewReplicaSetCreated", format!("Created new replica set {name:?}")));
                self.set_revision(number, made).await
            }
            Err(error) if error.is_already_exists() => self.exists_already(&set, error).await,
            Err(error) if error.is_namespace_terminating() => Err(error),
            Err(error) => {
                let message = format!("Failed to create new replica set {name:?}: {}", error.message());
                self.controller.recorder.event(&about, EventType::Warning, "ReplicaSetCreateError", message.clone());
                if has_deadline {
                    let condition = status::new_set("ReplicaSetCreateError", message, &self.controller.clock.time());
                    status::set(self.deployment.status.get_or_insert_default(), condition);
                    // The failure to create is what matters; if this fails, too, it is written next time.
                    let _ = self.update_status().await;
                }
                Err(error)
            }
        }
    }

    /// The name is taken: either by the very set, seen too late, or by one with another template and the same hash.
    async fn exists_already(&mut self, set: &ReplicaSet, error: Error) -> Result<(), Error> {
        let existing = self.controller.set_writer.get(&Key::of(&set.metadata)).await?;
        let mine = controller_of(&existing.metadata).is_some_and(|owner| Some(&owner.uid) == self.deployment.metadata.uid.as_ref());
        if mine && revision::matches(&self.deployment, &existing) {
            self.remember(existing);
            return Ok(());
        }
        let status = self.deployment.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
        self.update_status().await?;
        Err(error)
    }

    async fn resize(&mut self, steps: Vec<Resize>) -> Result<(), Error> {
        let bounds = Bounds::of(&self.deployment);
        for (name, size) in steps {
            let Some(set) = self.sets.iter().find(|set| set.metadata.name.as_ref() == Some(&name)) else { continue };
            let before = set.spec.replicas.unwrap_or(1);
            let mut changed = (**set).clone();
            changed.spec.replicas = Some(size);
            let annotated = revision::set_sizes(changed.metadata.annotations.get_or_insert_default(), bounds);
            if before == size && !annotated {
                continue;
            }
            let written = self.controller.set_writer.update(&changed).await?;
            self.remember(written);
            if before != size {
                let way = if before < size { "up" } else { "down" };
                let message = format!("Scaled {way} replica set {name} from {before} to {size}");
                self.controller.recorder.event(&regarding(&self.deployment), EventType::Normal, "ScalingReplicaSet", message);
            }
        }
        Ok(())
    }

    /// Deletes old ReplicaSets beyond the history limit.
    async fn clean_up(&mut self) -> Result<(), Error> {
        let Some(limit) = self.deployment.spec.revision_history_limit.filter(|limit| *limit != i32::MAX) else { return Ok(()) };
        let (_, mut old) = self.split();
        old.retain(|set| set.metadata.deletion_timestamp.is_none());
        old.sort_by_key(|set| revision::of(&set.metadata));
        let excess = old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for set in old.into_iter().take(excess) {
            let status = set.status.clone().unwrap_or_default();
            if status.replicas != 0 || set.spec.replicas != Some(0) || set.metadata.generation > status.observed_generation {
                continue;
            }
            self.controller.set_writer.delete(&set, Propagation::Background).await?;
            self.sets.retain(|other| other.metadata.uid != set.metadata.uid);
        }
        Ok(())
    }

    fn remember(&mut self, set: Arc<ReplicaSet>) {
        self.sets.retain(|other| other.metadata.uid != set.metadata.uid);
        self.sets.push(set);
    }

    async fn update_status(&mut self) -> Result<(), Error> {
        self.deployment = (*self.controller.writer.update_status(&self.deployment).await?).clone();
        Ok(())
    }

    async fn report(&mut self, status: DeploymentStatus) -> Outcome {
        if self.deployment.status.as_ref() != Some(&status) {
            self.deployment.status = Some(status.clone());
            self.update_status().await?;
        }
        Ok(Requeue::after(status::check_in(&self.deployment, &status, self.controller.clock.now())))
    }
}
