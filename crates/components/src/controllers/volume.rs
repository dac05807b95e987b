//! Volumes: claims and the volumes they are bound to.
//!
//! Binding and reclaiming ([`binder`]), the finalizers that keep what is in use ([`protection`]), and the claims of ephemeral volumes
//! ([`ephemeral`]). Mounting is a node's business and not told of here.

pub mod binder;
pub mod ephemeral;
pub mod matching;
pub mod protection;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};

use crate::runtime::{Informer, Key};

/// The index of Pods by the claims that they name, as `namespace/name`.
const CLAIMS: &str = "claims";

/// The claim that an ephemeral volume of a Pod stands for.
pub fn ephemeral_claim(pod: &str, volume: &Volume) -> Option<String> {
    volume.ephemeral.as_ref().map(|_| format!("{pod}-{}", volume.name))
}

/// The claims that a Pod names, with whether they belong to an ephemeral volume of its own.
fn claims_of(pod: &Pod) -> impl Iterator<Item = (String, bool)> + '_ {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(move |volume| match &volume.persistent_volume_claim {
        Some(source) => Some((source.claim_name.clone(), false)),
        None => ephemeral_claim(name, volume).map(|claim| (claim, true)),
    })
}

/// Whether a claim was made for this very Pod, and not just named so.
fn is_for(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    crate::runtime::controller_of(&claim.metadata).is_some_and(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref())
}

fn add_index(pods: &Informer<Pod>) {
    pods.add_index(CLAIMS, |pod| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        claims_of(pod).map(|(claim, _)| Key::new(namespace, &claim).to_string()).collect()
    });
}
