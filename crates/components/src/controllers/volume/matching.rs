//! Which volume a claim gets: pure logic on the two objects.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::scheduler::{quantity::value, selector::label_selector_matches};

/// The annotation by which classes were named before there was a field.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

fn annotation<'a>(meta: &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The class that a claim asks for; `None` if it leaves that open, an empty one if it wants none.
pub fn asked_class(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(&claim.metadata, CLASS_ANNOTATION).or_else(|| claim.spec.as_ref()?.storage_class_name.as_deref())
}

fn class_of(volume: &PersistentVolume) -> &str {
    annotation(&volume.metadata, CLASS_ANNOTATION).or_else(|| volume.spec.as_ref()?.storage_class_name.as_deref()).unwrap_or_default()
}

/// Whether the volume is bound to this claim, or reserved for it.
pub fn belongs_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return false };
    let uid = reference.uid.as_deref().unwrap_or_default();
    reference.name == claim.metadata.name
        && reference.namespace == claim.metadata.namespace
        && (uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
}

fn capacity(volume: &PersistentVolume) -> i64 {
    volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage")).map_or(0, value)
}

fn requested(claim: &PersistentVolumeClaim) -> i64 {
    claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage")).map_or(0, value)
}

/// Why a volume does not do for a claim that asks for it by name.
pub fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let (offer, wish) = (volume.spec.clone().unwrap_or_default(), claim.spec.clone().unwrap_or_default());
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let modes = offer.access_modes.unwrap_or_default();
    if volume.metadata.deletion_timestamp.is_some() {
        Some(format!("the volume is marked for deletion {:?}", volume.metadata.name.as_deref().unwrap_or_default()))
    } else if capacity(volume) < requested(claim) {
        Some("requested PV is too small".into())
    } else if class_of(volume) != asked_class(claim).unwrap_or_default() {
        Some("storageClassName does not match".into())
    } else if offer.volume_attributes_class_name.unwrap_or_default() != wish.volume_attributes_class_name.unwrap_or_default() {
        Some("volumeAttributesClassName does not match".into())
    } else if mode(&offer.volume_mode) != mode(&wish.volume_mode) {
        Some("incompatible volumeMode".into())
    } else if !wish.access_modes.unwrap_or_default().iter().all(|wanted| modes.contains(wanted)) {
        Some("incompatible accessMode".into())
    } else {
        None
    }
}

/// The volume for a claim: one that is reserved for it, else the smallest that will do, unless that is to be decided when a Pod needs it.
pub fn best(volumes: &[Arc<PersistentVolume>], claim: &PersistentVolumeClaim, later: bool) -> Option<Arc<PersistentVolume>> {
    let mut found: Option<&Arc<PersistentVolume>> = None;
    for volume in volumes {
        let fits = |reserved: bool| match mismatch(volume, claim).as_deref() {
            None => true,
            // Whoever reserves a volume has chosen its class.
            Some("storageClassName does not match") => reserved,
            Some(_) => false,
        };
        if belongs_to(volume, claim) {
            if fits(true) {
                return Some(volume.clone());
            }
            continue;
        }
        let spec = volume.spec.as_ref();
        let free = spec.is_some_and(|spec| spec.claim_ref.is_none())
            && volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available");
        let labels = volume.metadata.labels.clone().unwrap_or_default();
        let selected =
            claim.spec.as_ref().and_then(|spec| spec.selector.as_ref()).is_none_or(|selector| label_selector_matches(selector, &labels));
        if later || !free || !selected || !fits(false) {
            continue;
        }
        let order = |volume: &PersistentVolume| {
            // Of volumes that can do more than is asked for, those that can do least go first.
            let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_ref()).map_or(0, Vec::len);
            (modes, capacity(volume), volume.metadata.name.clone())
        };
        if found.is_none_or(|found| order(volume) < order(found)) {
            found = Some(volume);
        }
    }
    found.cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(spec: Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "n", "uid": "u"}, "spec": spec})).unwrap()
    }

    fn volume(name: &str, size: &str, more: Value) -> Arc<PersistentVolume> {
        let mut volume = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]},
            "status": {"phase": "Available"}});
        for (key, value) in more.as_object().unwrap() {
            volume["spec"][key] = value.clone();
        }
        Arc::new(serde_json::from_value(volume).unwrap())
    }

    fn asks(size: &str) -> Value {
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}})
    }

    fn chosen(volumes: &[Arc<PersistentVolume>], claim: &PersistentVolumeClaim, later: bool) -> Option<String> {
        best(volumes, claim, later).and_then(|volume| volume.metadata.name.clone())
    }

    #[test]
    fn the_smallest_that_is_large_enough_is_taken() {
        let volumes = [volume("big", "10Gi", json!({})), volume("small", "1Gi", json!({})), volume("fit", "5Gi", json!({}))];
        assert_eq!(chosen(&volumes, &claim(asks("2Gi")), false).as_deref(), Some("fit"));
        assert_eq!(chosen(&volumes, &claim(asks("20Gi")), false), None);
        assert_eq!(chosen(&volumes, &claim(asks("2Gi")), true), None, "a Pod decides");
    }

    #[test]
    fn class_mode_and_access_must_agree() {
        let volumes = [volume("v", "1Gi", json!({"storageClassName": "fast"}))];
        let mut wish = asks("1Gi");
        assert_eq!(chosen(&volumes, &claim(wish.clone()), false), None);
        wish["storageClassName"] = "fast".into();
        assert_eq!(chosen(&volumes, &claim(wish.clone()), false).as_deref(), Some("v"));
        wish["accessModes"] = json!(["ReadWriteMany"]);
        assert_eq!(mismatch(&volumes[0], &claim(wish.clone())).as_deref(), Some("incompatible accessMode"));
        wish["accessModes"] = json!(["ReadWriteOnce"]);
        wish["volumeMode"] = "Block".into();
        assert_eq!(chosen(&volumes, &claim(wish), false), None);
    }

    #[test]
    fn a_volume_that_is_reserved_goes_to_its_claim_and_to_nobody_else() {
        let mine = volume("mine", "10Gi", json!({"claimRef": {"name": "c", "namespace": "n"}}));
        let theirs = volume("theirs", "1Gi", json!({"claimRef": {"name": "other", "namespace": "n"}}));
        assert_eq!(chosen(&[theirs, mine.clone(), volume("free", "1Gi", json!({}))], &claim(asks("1Gi")), true).as_deref(), Some("mine"));
        let old = volume("old", "1Gi", json!({"claimRef": {"name": "c", "namespace": "n", "uid": "before"}}));
        assert!(!belongs_to(&old, &claim(asks("1Gi"))) && belongs_to(&mine, &claim(asks("1Gi"))));
    }
}
