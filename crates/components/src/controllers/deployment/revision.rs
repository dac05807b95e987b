//! Revisions of a Deployment: which ReplicaSet is the new one, and the annotations that `kubectl rollout history` and
//! `undo` read.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::rollout::{Bounds, Set};
use crate::controllers::{hash, owner::controller_reference};

/// The revision of a ReplicaSet, and of a Deployment the one it is at.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// The label that tells the Pods of one revision from those of another.
pub const TEMPLATE_HASH: &str = "pod-template-hash";
/// How long the list of earlier revisions may become.
const HISTORY_CHARACTERS: usize = 2000;

/// Annotations of the Deployment that are its own and not copied.
const OWN: [&str; 6] =
    ["kubectl.kubernetes.io/last-applied-configuration", REVISION, HISTORY, DESIRED, MAX, "deprecated.deployment.rollback.to"];

type Annotations = BTreeMap<String, String>;

/// Whether two templates are the same but for the hash label.
fn same_template(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    let bare = |template: &PodTemplateSpec| {
        let mut meta = template.metadata.clone().unwrap_or_default();
        let labels = meta.labels.get_or_insert_default();
        labels.remove(TEMPLATE_HASH);
        PodTemplateSpec { metadata: Some(meta), ..template.clone() }
    };
    bare(a) == bare(b)
}

/// Whether a ReplicaSet has the Deployment's template.
pub fn matches(deployment: &Deployment, set: &ReplicaSet) -> bool {
    set.spec.template.as_ref().is_some_and(|template| same_template(&deployment.spec.template, template))
}

/// Tells the new ReplicaSet (the oldest, should there be several with the template) from the old ones.
pub fn split(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> (Option<Arc<ReplicaSet>>, Vec<Arc<ReplicaSet>>) {
    let mut sets = sets.to_vec();
    sets.sort_by(|a, b| {
        let age = |set: &ReplicaSet| (set.metadata.creation_timestamp.clone(), set.metadata.name.clone());
        age(a).cmp(&age(b))
    });
    let new = sets.iter().position(|set| matches(deployment, set)).map(|at| sets.remove(at));
    (new, sets)
}

/// The revision an object is at; 0 if it has none.
pub fn of(meta: &ObjectMeta) -> i64 {
    meta.annotations.as_ref().and_then(|a| a.get(REVISION)).and_then(|revision| revision.parse().ok()).unwrap_or(0)
}

/// The revision that a new ReplicaSet gets.
pub fn next(old: &[Arc<ReplicaSet>]) -> i64 {
    old.iter().map(|set| of(&set.metadata)).max().unwrap_or(0) + 1
}

/// The annotations the new ReplicaSet should have.
pub fn annotations(deployment: &Deployment, current: Option<&Annotations>, revision: i64) -> Annotations {
    let mut annotations = current.cloned().unwrap_or_default();
    for (key, value) in deployment.metadata.annotations.iter().flatten() {
        if !OWN.contains(&key.as_str()) {
            annotations.insert(key.clone(), value.clone());
        }
    }
    let before = annotations.get(REVISION).cloned();
    let number: i64 = match before.as_deref().unwrap_or("0").parse() {
        Ok(number) => number,
        // Somebody wrote something there that is no revision; leave it.
        Err(_) => return annotations,
    };
    if number < revision {
        annotations.insert(REVISION.into(), revision.to_string());
        if let Some(before) = before {
            remember(&mut annotations, &before);
        }
    }
    annotations
}

/// An earlier ReplicaSet became the new one again: keep the revisions it has been before.
fn remember(annotations: &mut Annotations, revision: &str) {
    let history = annotations.get(HISTORY).map(String::as_str).unwrap_or_default();
    let mut revisions: Vec<&str> = history.split(',').filter(|part| !part.is_empty()).collect();
    revisions.push(revision);
    while revisions.len() > 1 && revisions.iter().map(|part| part.len() + 1).sum::<usize>() > HISTORY_CHARACTERS {
        revisions.remove(0);
    }
    let history = revisions.join(",");
    annotations.insert(HISTORY.into(), history);
}

/// Writes how large the Deployment is; says whether that changed anything.
pub fn set_sizes(annotations: &mut Annotations, bounds: Bounds) -> bool {
    let desired = bounds.replicas.to_string();
    let max = (bounds.replicas + bounds.surge).to_string();
    let changed = annotations.get(DESIRED) != Some(&desired) || annotations.get(MAX) != Some(&max);
    annotations.insert(DESIRED.into(), desired);
    annotations.insert(MAX.into(), max);
    changed
}

/// A ReplicaSet as the arithmetic sees it.
pub fn plain(set: &ReplicaSet) -> Set {
    let number = |key: &str| set.metadata.annotations.as_ref()?.get(key)?.parse().ok().filter(|n: &i32| *n >= 0);
    Set {
        name: set.metadata.name.clone().unwrap_or_default(),
        replicas: set.spec.replicas.unwrap_or(1),
        available: set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0),
        created: set.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        desired: number(DESIRED),
        max: number(MAX),
    }
}

/// The ReplicaSet of a template that has none yet, without its size.
pub fn new_set(deployment: &Deployment, revision: i64, bounds: Bounds) -> Result<ReplicaSet, serde_json::Error> {
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let mut template = deployment.spec.template.clone();
    let hash = hash::of(&template, collisions)?;
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(TEMPLATE_HASH.into(), hash.clone());
    let labels = labels.clone();
    let mut selector = deployment.spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(TEMPLATE_HASH.into(), hash.clone());
    let mut name = deployment.metadata.name.clone().unwrap_or_default();
    name.truncate(253 - 1 - hash.len());
    let mut annotations = annotations(deployment, None, revision);
    set_sizes(&mut annotations, bounds);
    Ok(ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{hash}")),
            namespace: deployment.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference::<Deployment>(&deployment.metadata)]),
            ..ObjectMeta::default()
        },
        spec: ReplicaSetSpec {
            replicas: Some(0),
            min_ready_seconds: deployment.spec.min_ready_seconds,
            selector,
            template: Some(template),
        },
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment() -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "a", "uid": "d", "annotations": {"team": "x",
                "kubectl.kubernetes.io/last-applied-configuration": "{}", "deployment.kubernetes.io/revision": "1"}},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}
        }))
        .unwrap()
    }

    #[test]
    fn the_set_of_a_template_is_found_again() {
        let deployment = deployment();
        let set = Arc::new(new_set(&deployment, 1, Bounds::of(&deployment)).unwrap());
        let (new, old) = split(&deployment, std::slice::from_ref(&set));
        assert!(new.is_some() && old.is_empty());
        let mut changed = deployment;
        changed.spec.template.spec.as_mut().unwrap().containers[0].image = Some("i:2".into());
        let (new, old) = split(&changed, &[set]);
        assert!(new.is_none() && old.len() == 1);
    }

    #[test]
    fn a_new_set_carries_the_hash_in_name_labels_and_selector() {
        let deployment = deployment();
        let set = new_set(&deployment, 1, Bounds::of(&deployment)).unwrap();
        let hash = set.metadata.labels.as_ref().unwrap()[TEMPLATE_HASH].clone();
        assert_eq!(set.metadata.name, Some(format!("web-{hash}")));
        assert_eq!(set.spec.selector.match_labels.as_ref().unwrap()[TEMPLATE_HASH], hash);
        let annotations = set.metadata.annotations.unwrap();
        assert_eq!(annotations.get("team").map(String::as_str), Some("x"));
        assert_eq!(annotations[REVISION], "1");
        assert_eq!(annotations[MAX], "4");
        assert!(!annotations.contains_key(OWN[0]));
    }

    #[test]
    fn going_back_to_a_revision_keeps_its_history() {
        let mut current = Annotations::from([(REVISION.to_owned(), "1".to_owned())]);
        current = annotations(&deployment(), Some(&current), 3);
        assert_eq!((current[REVISION].as_str(), current[HISTORY].as_str()), ("3", "1"));
        current = annotations(&deployment(), Some(&current), 5);
        assert_eq!((current[REVISION].as_str(), current[HISTORY].as_str()), ("5", "1,3"));
        assert_eq!(annotations(&deployment(), Some(&current), 5), current);
    }
}
