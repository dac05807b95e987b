//! ControllerRevisions: the history of a StatefulSet's or DaemonSet's template, which `kubectl rollout history` and
//! `undo` read.

use std::sync::Arc;

use k8s_openapi::{
    api::{apps::v1::ControllerRevision, core::v1::PodTemplateSpec},
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, OwnerReference},
        runtime::RawExtension,
    },
};
use serde_json::{Value, json};

use super::hash;
use crate::runtime::{Error, Informer, Propagation, Writer, controller_of};

/// The label that says which revision a Pod is of.
pub const REVISION_HASH: &str = "controller-revision-hash";

/// Reads and writes revisions for one kind of owner.
#[derive(Clone)]
pub struct Revisions {
    /// The cache.
    pub informer: Informer<ControllerRevision>,
    /// The writer.
    pub writer: Writer<ControllerRevision>,
}

/// A template as a patch that puts it back.
pub fn data(template: &PodTemplateSpec) -> Result<Value, serde_json::Error> {
    let mut template = serde_json::to_value(template)?;
    template["$patch"] = json!("replace");
    Ok(json!({"spec": {"template": template}}))
}

/// The template that a revision holds.
pub fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.0.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// The hash of a revision: the part of its name after the owner's.
pub fn hash_of(revision: &ControllerRevision) -> &str {
    let labels = revision.metadata.labels.as_ref();
    let labelled = labels.and_then(|labels| labels.get(REVISION_HASH).or_else(|| labels.get("controller.kubernetes.io/hash")));
    labelled.map(String::as_str).unwrap_or_default()
}

/// Which revision a template is, and what must be written for it to be the newest.
#[derive(Debug, PartialEq)]
enum Newest {
    /// It is the newest already.
    Is(usize),
    /// It was an earlier one and becomes the newest again, under this number.
    Again(usize, i64),
    /// It is a new one, under this number.
    New(i64),
}

fn newest(history: &[Arc<ControllerRevision>], data: &Value) -> Newest {
    let next = history.iter().filter_map(|revision| revision.revision).max().unwrap_or(0) + 1;
    match history.iter().rposition(|revision| revision.data.0 == *data) {
        Some(at) if at + 1 == history.len() => Newest::Is(at),
        Some(at) => Newest::Again(at, next),
        None => Newest::New(next),
    }
}

impl Revisions {
    /// The history of an owner, oldest first.
    pub fn history(&self, owner: &ObjectMeta) -> Vec<Arc<ControllerRevision>> {
        let uid = owner.uid.as_deref().unwrap_or_default();
        let mut history = self.informer.owned_by(uid);
        history.retain(|revision| controller_of(&revision.metadata).is_some_and(|owner| owner.uid == uid));
        history.sort_by(|a, b| {
            let age = |r: &ControllerRevision| (r.revision, r.metadata.creation_timestamp.clone(), r.metadata.name.clone());
            age(a).cmp(&age(b))
        });
        history
    }

    /// The revision of `template`, which is the newest afterwards. Answers it with the whole history, and how often its
    /// hash has collided.
    pub async fn ensure(
        &self,
        owner: &ObjectMeta,
        reference: &OwnerReference,
        template: &PodTemplateSpec,
        collisions: Option<i32>,
    ) -> Result<(Arc<ControllerRevision>, Vec<Arc<ControllerRevision>>, Option<i32>), Error> {
        let mut history = self.history(owner);
        let data = data(template)?;
        let mut collisions = collisions;
        let revision = match newest(&history, &data) {
            Newest::Is(at) => history[at].clone(),
            Newest::Again(at, number) => {
                let again = ControllerRevision { revision: Some(number), ..(*history.remove(at)).clone() };
                let written = self.writer.update(&again).await?;
                history.push(written.clone());
                written
            }
            Newest::New(number) => loop {
                let new = new_revision(owner, reference, template, &data, number, collisions)?;
                match self.writer.create(&new).await {
                    Ok(created) => {
                        history.push(created.clone());
                        break created;
                    }
                    Err(error) if error.is_already_exists() => {
                        let taken = self.writer.get(&crate::runtime::Key::of(&new.metadata)).await?;
                        if taken.data.0 == data && controller_of(&taken.metadata).is_some_and(|owner| owner.uid == reference.uid) {
                            history.push(taken.clone());
                            break taken;
                        }
                        collisions = Some(collisions.unwrap_or(0) + 1);
                    }
                    Err(error) => return Err(error),
                }
            },
        };
        Ok((revision, history, collisions))
    }

    /// Deletes the oldest revisions that nobody uses, beyond `limit`.
    pub async fn truncate(&self, history: &[Arc<ControllerRevision>], in_use: &[&str], limit: Option<i32>) -> Result<(), Error> {
        let limit = usize::try_from(limit.unwrap_or(10)).unwrap_or(0);
        let name = |revision: &ControllerRevision| revision.metadata.name.clone().unwrap_or_default();
        let idle: Vec<_> = history.iter().filter(|r| !in_use.contains(&name(r).as_str()) && !in_use.contains(&hash_of(r))).collect();
        for revision in idle.iter().take(idle.len().saturating_sub(limit)) {
            self.writer.delete(revision, Propagation::Background).await?;
        }
        Ok(())
    }
}

fn new_revision(
    owner: &ObjectMeta,
    reference: &OwnerReference,
    template: &PodTemplateSpec,
    data: &Value,
    number: i64,
    collisions: Option<i32>,
) -> Result<ControllerRevision, serde_json::Error> {
    let hash = hash::of(data, collisions)?;
    let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    let key = if reference.kind == "DaemonSet" { REVISION_HASH } else { "controller.kubernetes.io/hash" };
    labels.insert(key.into(), hash.clone());
    let mut name = owner.name.clone().unwrap_or_default();
    name.truncate(223);
    Ok(ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: owner.namespace.clone(),
            labels: Some(labels),
            annotations: owner.annotations.clone().filter(|annotations| !annotations.is_empty()),
            owner_references: Some(vec![reference.clone()]),
            ..ObjectMeta::default()
        },
        data: RawExtension(data.clone()),
        revision: Some(number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(number: i64, image: &str) -> Arc<ControllerRevision> {
        let data = RawExtension(json!({"image": image}));
        Arc::new(ControllerRevision { data, revision: Some(number), metadata: ObjectMeta::default() })
    }

    #[test]
    fn going_back_makes_an_earlier_revision_the_newest() {
        let history = [revision(1, "a"), revision(2, "b")];
        assert_eq!(newest(&history, &json!({"image": "b"})), Newest::Is(1));
        assert_eq!(newest(&history, &json!({"image": "a"})), Newest::Again(0, 3));
        assert_eq!(newest(&history, &json!({"image": "c"})), Newest::New(3));
        assert_eq!(newest(&[], &json!({})), Newest::New(1));
    }

    #[test]
    fn a_template_survives_being_kept() {
        let template: PodTemplateSpec =
            serde_json::from_value(json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}})).unwrap();
        let kept = ControllerRevision { data: RawExtension(data(&template).unwrap()), ..ControllerRevision::default() };
        assert_eq!(super::template(&kept), Some(template));
    }
}
