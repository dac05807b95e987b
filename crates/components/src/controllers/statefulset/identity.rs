//! What makes a StatefulSet's Pod the one it is: its ordinal, its name, and its claims.

use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
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
    pod.metadata.generate_name = None;
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
}
