//! StatefulSet: Pods with names of their own, in order, each with its own claims.
//!
//! What comes next is decided in [`decide`], who a Pod is in [`identity`].

pub mod decide;
pub mod identity;

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::{
    apps::v1::{ControllerRevision, StatefulSet},
    core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec},
};

use super::{
    owner::{self, claim_all, controller_reference, may_adopt},
    pods,
    revisions::{self, Revisions},
};
use crate::{
    clock::Clock,
    events::{EventType, ObjectReference, Recorder, regarding},
    runtime::{Component, Context, Error, Identity, Informer, Key, Outcome, Propagation, Requeue, Source, Writer},
};

const ACCOUNT: &str = "statefulset-controller";

struct Controller {
    sets: Informer<StatefulSet>,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    writer: Writer<StatefulSet>,
    pod_writer: Writer<Pod>,
    claim_writer: Writer<PersistentVolumeClaim>,
    revisions: Revisions,
    recorder: Recorder,
    clock: Clock,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(ACCOUNT));
    let (sets, pods, claims) = (context.watches.of(), context.watches.of(), context.watches.of());
    let history = context.watches.of::<ControllerRevision>();
    pods::add_indexes(&pods);
    context.run(Controller {
        writer: Writer::new(client.clone(), &sets),
        pod_writer: Writer::new(client.clone(), &pods),
        claim_writer: Writer::new(client.clone(), &claims),
        revisions: Revisions { writer: Writer::new(client.clone(), &history), informer: history },
        recorder: context.recorder(client, ACCOUNT),
        sets,
        pods,
        claims,
        clock: context.clock.clone(),
    })
}

impl Component for Controller {
    const NAME: &'static str = "statefulset-controller";
    const WORKERS: usize = 10;

    fn sources(&self) -> Vec<Source> {
        vec![
            Source::own(&self.sets),
            Source::controlled(&self.pods, "apps", "StatefulSet"),
            Source::lookup(&self.claims),
            Source::lookup(&self.revisions.informer),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(set) = self.sets.find(&key) else { return Ok(Requeue::Done) };
        let Some(selector) = owner::selector(&set.spec.selector) else { return Ok(Requeue::Done) };
        let meta = &set.metadata;
        let reference = controller_reference::<StatefulSet>(meta);
        let mut orphans = self.pods.indexed(pods::ORPHANS, meta.namespace.as_deref().unwrap_or_default());
        orphans.retain(|pod| identity::ordinal(&set, pod).is_some());
        claim_all(&self.pod_writer, &self.pods, (meta, reference.clone()), &selector, orphans, || may_adopt(&self.writer, meta)).await?;
        let old = set.status.clone().unwrap_or_default();
        let (updated, history, collisions) =
            self.revisions.ensure(meta, &reference, &set.spec.template, old.collision_count.filter(|count| *count > 0)).await?;
        let name = |revision: &ControllerRevision| revision.metadata.name.clone().unwrap_or_default();
        let current = history.iter().find(|revision| Some(name(revision)) == old.current_revision).unwrap_or(&updated);
        let (current_name, updated_name) = (name(current), name(&updated));

        if meta.deletion_timestamp.is_none() {
            self.own_claims(&set).await?;
        }
        let now = self.clock.now();
        let step = decide::step(&set, &self.pods_of(&set), &updated_name, now);
        let mut acted = Ok(());
        if meta.deletion_timestamp.is_none() {
            let templates = [(&current_name, current), (&updated_name, &updated)];
            acted = self.act(&set, &step, templates).await;
        }
        let pods = self.pods_of(&set);
        let status = decide::status(&set, &pods, &current_name, &updated_name, collisions, now);
        let finished = status.current_revision.as_deref() == Some(&updated_name);
        if set.status.as_ref() != Some(&status) {
            let mut next = (*set).clone();
            next.status = Some(status);
            self.writer.update_status(&next).await?;
        }
        acted?;
        let mut in_use: Vec<&str> = pods.iter().map(|pod| identity::revision(pod)).collect();
        in_use.push(&updated_name);
        if !finished {
            in_use.push(&current_name);
        }
        self.revisions.truncate(&history, &in_use, set.spec.revision_history_limit).await?;
        Ok(Requeue::after(step.again))
    }
}

impl Controller {
    fn pods_of(&self, set: &StatefulSet) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.owned_by(set.metadata.uid.as_deref().unwrap_or_default());
        pods.retain(|pod| identity::ordinal(set, pod).is_some());
        pods
    }

    /// Keeps the owners of the claims as the retention policy wants them, before any Pod goes.
    async fn own_claims(&self, set: &StatefulSet) -> Result<(), Error> {
        if set.spec.volume_claim_templates.as_ref().is_none_or(Vec::is_empty) {
            return Ok(());
        }
        for pod in self.pods_of(set) {
            let Some(ordinal) = identity::ordinal(set, &pod) else { continue };
            for claim in identity::claims(set, ordinal) {
                let Some(claim) = self.claims.find(&Key::of(&claim.metadata)) else { continue };
                if let Some(owners) = identity::claim_owners(set, &pod, &claim) {
                    let mut changed = (*claim).clone();
                    changed.metadata.owner_references = (!owners.is_empty()).then_some(owners);
                    self.claim_writer.update(&changed).await?;
                }
            }
        }
        Ok(())
    }

    async fn act(&self, set: &StatefulSet, step: &decide::Step, templates: [(&String, &Arc<ControllerRevision>); 2]) -> Result<(), Error> {
        let about = regarding(set);
        for (ordinal, update) in &step.create {
            let (name, revision) = templates[usize::from(*update)];
            let template = revisions::template(revision).unwrap_or_else(|| set.spec.template.clone());
            self.create(set, &about, &template, name, *ordinal).await?;
        }
        for pod in &step.delete {
            let outcome = self.pod_writer.delete(pod, Propagation::Default).await;
            self.tell(&about, set, "delete", pod.metadata.name.as_deref().unwrap_or_default(), outcome.as_ref().err());
            outcome?;
        }
        Ok(())
    }

    async fn create(
        &self,
        set: &StatefulSet,
        about: &ObjectReference,
        template: &PodTemplateSpec,
        revision: &str,
        ordinal: i32,
    ) -> Result<(), Error> {
        let pod = identity::new_pod(set, template, revision, ordinal);
        let pod_name = pod.metadata.name.clone().unwrap_or_default();
        for claim in identity::claims(set, ordinal) {
            self.create_claim(set, about, &claim, &pod_name).await?;
        }
        match self.pod_writer.create(&pod).await {
            Ok(_) => self.tell(about, set, "create", &pod_name, None),
            // Somebody else's Pod has the name, or it is ours and the cache does not know it yet.
            Err(error) if error.is_already_exists() => {
                let existing = self.pod_writer.get(&Key::of(&pod.metadata)).await?;
                let controller = crate::runtime::controller_of(&existing.metadata);
                if controller.is_none_or(|owner| Some(&owner.uid) != set.metadata.uid.as_ref()) {
                    self.tell(about, set, "create", &pod_name, Some(&error));
                    return Err(error);
                }
            }
            Err(error) => {
                if !error.is_namespace_terminating() {
                    self.tell(about, set, "create", &pod_name, Some(&error));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    async fn create_claim(
        &self,
        set: &StatefulSet,
        about: &ObjectReference,
        claim: &PersistentVolumeClaim,
        pod: &str,
    ) -> Result<(), Error> {
        if self.claims.find(&Key::of(&claim.metadata)).is_some() {
            return Ok(());
        }
        let (claim_name, set_name) = (claim.metadata.name.as_deref().unwrap_or_default(), set.metadata.name.as_deref().unwrap_or_default());
        match self.claim_writer.create(claim).await {
            Ok(_) => {
                let message = format!("create Claim {claim_name} Pod {pod} in StatefulSet {set_name} success");
                self.recorder.event(about, EventType::Normal, "SuccessfulCreate", capitalized(&message));
                Ok(())
            }
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => {
                let message =
                    format!("create Claim {claim_name} for Pod {pod} in StatefulSet {set_name} failed error: {}", error.message());
                self.recorder.event(about, EventType::Warning, "FailedCreate", capitalized(&message));
                Err(error)
            }
        }
    }

    fn tell(&self, about: &ObjectReference, set: &StatefulSet, verb: &str, pod: &str, error: Option<&Error>) {
        let set = set.metadata.name.as_deref().unwrap_or_default();
        let verb = capitalized(verb);
        match error {
            None => {
                let message = format!("{verb} Pod {pod} in StatefulSet {set} successful");
                self.recorder.event(about, EventType::Normal, &format!("Successful{verb}"), message);
            }
            Some(error) => {
                let message = format!("{verb} Pod {pod} in StatefulSet {set} failed error: {}", error.message());
                self.recorder.event(about, EventType::Warning, &format!("Failed{verb}"), message);
            }
        }
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
