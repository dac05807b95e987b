//! What makes a StatefulSet's Pod the one it is: its ordinal, its name, and its claims.

use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use crate::controllers::{owner::controller_reference, pod_control::from_template, revisions::REVISION_HASH};

/// The ordinal of a Pod of the set; `None` if its name is not one of the set's.
pub fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let rest = pod.metadata.name.as_deref()?.strip_prefix(set.metadata.name.as_deref()?)?.strip_prefix('-')?;
    rest.parse().ok().filter(|ordinal: &i32| *ordinal >= 0 && ordinal.to_string() == rest)
}

/// The first ordinal.
pub fn start(set: &StatefulSet) -> i32 {
    set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0)
}

/// The revision a Pod is of.
pub fn revision(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION_HASH)).map(String::as_str).unwrap_or_default()
}

fn name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default())
}

fn claim_name(set: &StatefulSet, template: &PersistentVolumeClaim, ordinal: i32) -> String {
    format!("{}-{}", template.metadata.name.as_deref().unwrap_or_default(), name(set, ordinal))
}

/// The claims of an ordinal.
pub fn claims(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let templates = set.spec.volume_claim_templates.iter().flatten();
    let claims = templates.map(|template| {
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.extend(set.spec.selector.match_labels.clone().unwrap_or_default());
        PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(claim_name(set, template, ordinal)),
                namespace: set.metadata.namespace.clone(),
                labels: Some(labels),
                annotations: template.metadata.annotations.clone(),
                ..ObjectMeta::default()
            },
            spec: template.spec.clone(),
            status: None,
        }
    });
    claims.collect()
}

/// A new Pod with an ordinal, of a revision.
pub fn new_pod(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> Pod {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let mut pod = from_template(template, namespace, &controller_reference::<StatefulSet>(&set.metadata));
    let name = name(set, ordinal);
    pod.metadata.name = Some(name.clone());
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert("statefulset.kubernetes.io/pod-name".into(), name.clone());
    labels.insert("apps.kubernetes.io/pod-index".into(), ordinal.to_string());
    labels.insert(REVISION_HASH.into(), revision.to_owned());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name);
    spec.subdomain = set.spec.service_name.clone().filter(|service| !service.is_empty());
    for template in set.spec.volume_claim_templates.iter().flatten() {
        let volume_name = template.metadata.name.clone().unwrap_or_default();
        let volumes = spec.volumes.get_or_insert_default();
        volumes.retain(|volume| volume.name != volume_name);
        volumes.push(Volume {
            name: volume_name,
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim_name(set, template, ordinal),
                read_only: Some(false),
            }),
            ..Volume::default()
        });
    }
    pod
}

/// The owners that a claim should have by the set's retention policy; `None` if it has them.
///
/// A claim that goes with the set is owned by the set; one that goes when the set shrinks is owned by its Pod, from the
/// moment the Pod is to go for good.
pub fn claim_owners(set: &StatefulSet, pod: &Pod, claim: &PersistentVolumeClaim) -> Option<Vec<OwnerReference>> {
    let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
    let deletes = |when: Option<&String>| when.map(String::as_str) == Some("Delete");
    let when_deleted = deletes(policy.and_then(|policy| policy.when_deleted.as_ref()));
    let when_scaled = deletes(policy.and_then(|policy| policy.when_scaled.as_ref()));
    let first = start(set);
    let last = first + set.spec.replicas.unwrap_or(1);
    let surplus = ordinal(set, pod).is_some_and(|ordinal| !(first..last).contains(&ordinal));
    let current = claim.metadata.owner_references.clone().unwrap_or_default();
    let ours = |owner: &OwnerReference| Some(&owner.uid) == set.metadata.uid.as_ref() || Some(&owner.uid) == pod.metadata.uid.as_ref();
    let mut owners: Vec<_> = current.iter().filter(|owner| !ours(owner)).cloned().collect();
    let foreign = owners.iter().any(|owner| owner.controller == Some(true));
    if !foreign && when_scaled && surplus {
        owners.push(controller_reference::<Pod>(&pod.metadata));
    } else if !foreign && when_deleted && !(when_scaled && surplus) {
        owners.push(controller_reference::<StatefulSet>(&set.metadata));
    }
    let uids = |owners: &[OwnerReference]| owners.iter().map(|owner| owner.uid.clone()).collect::<Vec<_>>();
    (uids(&owners) != uids(&current)).then_some(owners)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set() -> StatefulSet {
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "a", "uid": "u"}, "spec": {"serviceName": "nginx",
            "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
            "volumeClaimTemplates": [{"metadata": {"name": "www"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]}}))
        .unwrap()
    }

    #[test]
    fn the_ordinal_is_read_from_the_name() {
        let pod = |name: &str| Pod { metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }, ..Pod::default() };
        assert_eq!(ordinal(&set(), &pod("web-12")), Some(12));
        for other in ["web", "web-", "web-x", "web-01", "other-1"] {
            assert_eq!(ordinal(&set(), &pod(other)), None, "{other}");
        }
    }

    #[test]
    fn a_pod_has_a_stable_name_host_and_claim() {
        let set = set();
        let pod = new_pod(&set, &set.spec.template, "web-abc", 2);
        let spec = pod.spec.unwrap();
        assert_eq!(
            (pod.metadata.name.as_deref(), spec.hostname.as_deref(), spec.subdomain.as_deref()),
            (Some("web-2"), Some("web-2"), Some("nginx"))
        );
        assert_eq!(spec.volumes.unwrap()[0].persistent_volume_claim.as_ref().unwrap().claim_name, "www-web-2");
        let claim = claims(&set, 2).remove(0);
        assert_eq!(claim.metadata.name.as_deref(), Some("www-web-2"));
        assert_eq!(claim.metadata.labels.unwrap()["app"], "web");
    }

    #[test]
    fn a_claim_is_owned_by_what_it_should_go_with() {
        let mut set = set();
        let pod = |ordinal: i32| Pod {
            metadata: ObjectMeta { name: Some(format!("web-{ordinal}")), uid: Some(format!("p{ordinal}")), ..ObjectMeta::default() },
            ..Pod::default()
        };
        let claim = claims(&set, 0).remove(0);
        assert_eq!(claim_owners(&set, &pod(0), &claim), None, "by default a claim stays");
        set.spec.persistent_volume_claim_retention_policy =
            serde_json::from_value(json!({"whenDeleted": "Delete", "whenScaled": "Delete"})).unwrap();
        assert_eq!(claim_owners(&set, &pod(0), &claim).unwrap()[0].kind, "StatefulSet");
        assert_eq!(claim_owners(&set, &pod(3), &claim).unwrap()[0].kind, "Pod");
    }
}
