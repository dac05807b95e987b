//! The volume binder: gives every claim a volume, an existing one or a new one, and reclaims what is no longer claimed.
//!
//! Keys with a namespace are claims, keys without are volumes. New volumes are made here only for classes of our own
//! [`PROVISIONER`]; for all others the claim is marked, and whoever provisions for that class takes it from there.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use k8s_openapi::api::{
    core::v1::{
        HostPathVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus, PersistentVolumeSpec,
        PersistentVolumeStatus, Pod,
    },
    storage::v1::StorageClass,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    CLAIMS, add_index,
    matching::{asked_class, belongs_to, best, mismatch},
};
use crate::{
    clock::Clock,
    controllers::pods,
    events::{EventType, Recorder, regarding},
    runtime::{Component, Context, Error, Identity, Informer, Key, Outcome, Propagation, Requeue, Source, Writer},
};

/// Classes of this provisioner get their volumes from this controller: directories of the node's own disk.
pub const PROVISIONER: &str = "usher.dev/host-path";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const STORAGE_PROVISIONER: [&str; 2] = ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"];
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// The index of volumes by the claim that they refer to.
const BY_CLAIM: &str = "claim";
/// How often a claim that waits is looked at again.
const PERIOD: Duration = Duration::from_secs(15);

struct Controller {
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    pods: Informer<Pod>,
    claim_writer: Writer<PersistentVolumeClaim>,
    volume_writer: Writer<PersistentVolume>,
    recorder: Recorder,
    clock: Clock,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller("persistent-volume-binder"));
    let (claims, volumes, pods) = (context.watches.of(), context.watches.of(), context.watches.of());
    add_index(&pods);
    volumes.add_index(BY_CLAIM, |volume: &PersistentVolume| claim_key(volume).map(|key| key.to_string()).into_iter().collect());
    context.run(Controller {
        classes: context.watches.of(),
        claim_writer: Writer::new(client.clone(), &claims),
        volume_writer: Writer::new(client.clone(), &volumes),
        recorder: context.recorder(client, "persistentvolume-controller"),
        clock: context.clock.clone(),
        claims,
        volumes,
        pods,
    })
}

fn claim_key(volume: &PersistentVolume) -> Option<Key> {
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(Key::new(reference.namespace.as_deref().unwrap_or_default(), reference.name.as_deref().unwrap_or_default()))
}

fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

fn annotate(meta: &mut ObjectMeta, name: &str, value: &str) {
    meta.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

fn volume_phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

impl Component for Controller {
    const NAME: &'static str = "persistentvolume-binder-controller";

    fn sources(&self) -> Vec<Source> {
        let waiting = |claims: Informer<PersistentVolumeClaim>| {
            move |queue: &crate::runtime::Queue| {
                for claim in claims.list().iter().filter(|claim| annotation(&claim.metadata, BIND_COMPLETED).is_none()) {
                    queue.add(Key::of(&claim.metadata));
                }
            }
        };
        let (volumes, for_volumes, for_classes) = (self.volumes.clone(), waiting(self.claims.clone()), waiting(self.claims.clone()));
        let claims = self.claims.clone();
        vec![
            Source::new(&self.claims, move |change, queue| {
                let Some(claim) = change.latest() else { return };
                let key = Key::of(&claim.metadata);
                let referring = volumes.indexed(BY_CLAIM, &key.to_string());
                let named = change.states().filter_map(|claim| volume_name(claim)).map(Key::cluster);
                referring.iter().map(|volume| Key::of(&volume.metadata)).chain(named).for_each(|volume| queue.add(volume));
                queue.add(key);
            }),
            Source::new(&self.volumes, move |change, queue| {
                let Some(volume) = change.latest() else { return };
                queue.add(Key::of(&volume.metadata));
                match claim_key(volume) {
                    Some(claim) => queue.add(claim),
                    None if volume_phase(volume) == "Available" => for_volumes(queue),
                    None => {}
                }
            }),
            Source::new(&self.classes, move |change, queue| {
                if !change.is_deletion() {
                    for_classes(queue);
                }
            }),
            // A claim may wait for the first Pod that has a node.
            Source::new(&self.pods, move |change, queue| {
                let bound = |pod: &Pod| pods::node_name(pod).is_some();
                let Some(pod) = change.new.filter(|pod| bound(pod) && !change.old.is_some_and(|old| bound(old))) else { return };
                for (claim, _) in super::claims_of(pod) {
                    let key = Key::new(pod.metadata.namespace.as_deref().unwrap_or_default(), &claim);
                    if claims.find(&key).is_some_and(|claim| annotation(&claim.metadata, BIND_COMPLETED).is_none()) {
                        queue.add(key);
                    }
                }
            }),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        if key.namespace.is_empty() {
            match self.volumes.find(&key) {
                Some(volume) => self.volume(volume).await.map(|()| Requeue::Done),
                None => Ok(Requeue::Done),
            }
        } else {
            match self.claims.find(&key) {
                Some(claim) if annotation(&claim.metadata, BIND_COMPLETED).is_some() => self.bound(claim).await,
                Some(claim) => self.unbound(claim).await,
                None => Ok(Requeue::Done),
            }
        }
    }
}

impl Controller {
    fn tell(&self, claim: &PersistentVolumeClaim, r#type: EventType, reason: &str, message: impl Into<String>) {
        self.recorder.event(&regarding(claim), r#type, reason, message);
    }

    async fn unbound(&self, claim: Arc<PersistentVolumeClaim>) -> Outcome {
        if claim.metadata.deletion_timestamp.is_some() {
            return Ok(Requeue::Done);
        }
        let Some(name) = volume_name(&claim) else { return self.choose(claim).await };
        let pending = || async { self.claim_status(&claim, "Pending", None).await.map(|_| Requeue::After(PERIOD)) };
        let Some(volume) = self.volumes.get("", name) else { return pending().await };
        let free = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none());
        if belongs_to(&volume, &claim) {
            return self.bind(volume, claim).await;
        }
        if !free {
            self.tell(&claim, EventType::Warning, "FailedBinding", format!("volume {name:?} already bound to a different claim."));
            return pending().await;
        }
        match mismatch(&volume, &claim) {
            None => self.bind(volume, claim).await,
            Some(why) => {
                let message = format!("Cannot bind to requested volume {name:?}: {why}");
                self.tell(&claim, EventType::Warning, "VolumeMismatch", message);
                pending().await
            }
        }
    }

    /// The user does not care which volume it is.
    async fn choose(&self, claim: Arc<PersistentVolumeClaim>) -> Outcome {
        let class = asked_class(&claim).filter(|class| !class.is_empty()).and_then(|class| self.classes.get("", class));
        let later = class.as_ref().is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        // That a Pod is on a node already is as good as the scheduler's word for it.
        let node = annotation(&claim.metadata, SELECTED_NODE).map(str::to_owned).or_else(|| self.consumer(&claim));
        if let Some(volume) = best(&self.volumes.list(), &claim, later && node.is_none()) {
            return self.bind(volume, claim).await;
        }
        match asked_class(&claim) {
            None => {
                let is_default = |class: &Arc<StorageClass>| annotation(&class.metadata, DEFAULT_CLASS) == Some("true");
                let newest = |class: &Arc<StorageClass>| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
                if let Some(class) = self.classes.list().into_iter().filter(is_default).max_by_key(newest) {
                    let mut changed = (*claim).clone();
                    changed.spec.get_or_insert_default().storage_class_name.clone_from(&class.metadata.name);
                    self.claim_writer.update(&changed).await?;
                    return Ok(Requeue::Done);
                }
                self.no_class(&claim).await
            }
            Some("") => self.no_class(&claim).await,
            Some(_) if later && node.is_none() => {
                let pods = self.pods.indexed(CLAIMS, &Key::of(&claim.metadata).to_string());
                let mut names: Vec<&str> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
                names.sort_unstable();
                let (reason, message) = match names.as_slice() {
                    [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".to_owned()),
                    [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
                    pods => ("WaitForPodScheduled", format!("waiting for pods {} to be scheduled", pods.join(","))),
                };
                self.tell(&claim, EventType::Normal, reason, message);
                self.claim_status(&claim, "Pending", None).await?;
                Ok(Requeue::After(PERIOD))
            }
            Some(name) => match class {
                None => {
                    let message = format!("storageclass.storage.k8s.io {name:?} not found");
                    self.tell(&claim, EventType::Warning, "ProvisioningFailed", message);
                    Ok(Requeue::After(PERIOD))
                }
                Some(class) => self.provision(claim.clone(), &class, node).await,
            },
        }
    }

    async fn no_class(&self, claim: &PersistentVolumeClaim) -> Outcome {
        let message = "no persistent volumes available for this claim and no storage class is set";
        self.tell(claim, EventType::Normal, "FailedBinding", message);
        self.claim_status(claim, "Pending", None).await?;
        Ok(Requeue::After(PERIOD))
    }

    /// The node of a Pod that names the claim.
    fn consumer(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        let pods = self.pods.indexed(CLAIMS, &Key::of(&claim.metadata).to_string());
        pods.iter().filter(|pod| pods::is_active(pod)).find_map(|pod| pods::node_name(pod).map(str::to_owned))
    }

    async fn provision(&self, claim: Arc<PersistentVolumeClaim>, class: &StorageClass, node: Option<String>) -> Outcome {
        let mut marked = (*claim).clone();
        for name in STORAGE_PROVISIONER {
            annotate(&mut marked.metadata, name, &class.provisioner);
        }
        let claim = if marked.metadata == claim.metadata { claim } else { self.claim_writer.update(&marked).await? };
        if class.provisioner != PROVISIONER {
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system administrator. \
                 If volume creation is delayed, please verify that the provisioner is running and correctly registered.",
                class.provisioner
            );
            self.tell(&claim, EventType::Normal, "ExternalProvisioning", message);
            return Ok(Requeue::After(PERIOD));
        }
        let volume = provisioned(&claim, class, node.as_deref());
        let name = volume.metadata.name.clone().unwrap_or_default();
        let volume = match self.volume_writer.create(&volume).await {
            Ok(volume) => volume,
            Err(error) if error.is_already_exists() => self.volume_writer.get(&Key::cluster(&name)).await?,
            Err(error) => {
                self.tell(&claim, EventType::Warning, "ProvisioningFailed", error.message());
                return Err(error);
            }
        };
        self.tell(
            &claim,
            EventType::Normal,
            "ProvisioningSucceeded",
            format!("Successfully provisioned volume {name} using {PROVISIONER}"),
        );
        self.bind(volume, claim).await
    }

    /// Makes the two refer to each other, the volume first: it is the one that others could take.
    async fn bind(&self, volume: Arc<PersistentVolume>, claim: Arc<PersistentVolumeClaim>) -> Outcome {
        let mut owned = (*volume).clone();
        let reserved = belongs_to(&volume, &claim);
        let reference = owned.spec.get_or_insert_default().claim_ref.get_or_insert_default();
        if !reserved || reference.uid != claim.metadata.uid {
            *reference = ObjectReference { field_path: None, ..regarding(&*claim) };
        }
        if !reserved {
            annotate(&mut owned.metadata, BOUND_BY_CONTROLLER, "yes");
        }
        let volume = if owned == *volume { volume } else { self.volume_writer.update(&owned).await? };
        let volume = self.volume_status(&volume, "Bound", "").await?;
        let mut owner = (*claim).clone();
        if volume_name(&claim).is_none() {
            owner.spec.get_or_insert_default().volume_name.clone_from(&volume.metadata.name);
            annotate(&mut owner.metadata, BOUND_BY_CONTROLLER, "yes");
        }
        annotate(&mut owner.metadata, BIND_COMPLETED, "yes");
        let claim = if owner == *claim { claim } else { self.claim_writer.update(&owner).await? };
        self.claim_status(&claim, "Bound", Some(&volume)).await?;
        Ok(Requeue::Done)
    }

    async fn bound(&self, claim: Arc<PersistentVolumeClaim>) -> Outcome {
        let lost = |reason: &'static str, message: &'static str| {
            let claim = claim.clone();
            async move {
                if claim_phase(&claim) != "Lost" {
                    self.claim_status(&claim, "Lost", None).await?;
                    self.tell(&claim, EventType::Warning, reason, message);
                }
                Ok(Requeue::Done)
            }
        };
        let Some(name) = volume_name(&claim) else {
            return lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!").await;
        };
        match self.volumes.get("", name) {
            None => lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!").await,
            Some(volume) => {
                let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
                if reference.is_none_or(|reference| reference.uid == claim.metadata.uid) {
                    self.bind(volume, claim).await
                } else {
                    lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly").await
                }
            }
        }
    }

    async fn volume(&self, volume: Arc<PersistentVolume>) -> Result<(), Error> {
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
        let Some(reference) = reference.filter(|reference| reference.uid.as_deref().is_some_and(|uid| !uid.is_empty())) else {
            return self.volume_status(&volume, "Available", "").await.map(|_| ());
        };
        let key = Key::new(reference.namespace.as_deref().unwrap_or_default(), reference.name.as_deref().unwrap_or_default());
        let mut claim = self.claims.find(&key);
        if claim.as_ref().is_none_or(|claim| claim.metadata.uid != reference.uid) {
            // Before anything is given up for lost, the server itself is asked.
            claim = match self.claim_writer.get(&key).await {
                Ok(claim) => Some(claim).filter(|claim| claim.metadata.uid == reference.uid),
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(error),
            };
        }
        match claim {
            Some(claim) => match volume_name(&claim) {
                // The claim's own turn will come.
                None => Ok(()),
                Some(name) if Some(name) == volume.metadata.name.as_deref() => self.volume_status(&volume, "Bound", "").await.map(|_| ()),
                Some(_) if annotation(&volume.metadata, PROVISIONED_BY).is_some() => self.release(volume).await,
                Some(_) => self.unbind(&volume).await,
            },
            None => self.release(volume).await,
        }
    }

    /// The claim has got another volume.
    async fn unbind(&self, volume: &PersistentVolume) -> Result<(), Error> {
        let mut free = volume.clone();
        let spec = free.spec.get_or_insert_default();
        if annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_some() {
            spec.claim_ref = None;
            free.metadata.annotations.get_or_insert_default().remove(BOUND_BY_CONTROLLER);
        } else if let Some(reference) = &mut spec.claim_ref {
            // The user's reservation stays.
            reference.uid = None;
            reference.resource_version = None;
        }
        let volume = self.volume_writer.update(&free).await?;
        self.volume_status(&volume, "Available", "").await.map(|_| ())
    }

    /// The claim is gone.
    async fn release(&self, volume: Arc<PersistentVolume>) -> Result<(), Error> {
        let volume = match volume_phase(&volume) {
            "Released" | "Failed" => volume,
            _ => self.volume_status(&volume, "Released", "").await?,
        };
        if volume.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let name = volume.metadata.name.clone().unwrap_or_default();
        let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()).unwrap_or("Retain");
        let (reason, message) = match (policy, annotation(&volume.metadata, PROVISIONED_BY)) {
            ("Delete", Some(PROVISIONER)) => return self.volume_writer.delete(&volume, Propagation::Default).await,
            // Somebody else made it and somebody else will remove it.
            ("Delete", Some(_)) | ("Retain", _) => return Ok(()),
            ("Delete", None) => (
                "VolumeFailedDelete",
                format!("error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched"),
            ),
            _ => ("VolumeFailedRecycle", "No recycler plugin found for the volume!".to_owned()),
        };
        if volume_phase(&volume) != "Failed" {
            self.recorder.event(&regarding(&*volume), EventType::Warning, reason, message.clone());
            self.volume_status(&volume, "Failed", &message).await?;
        }
        Ok(())
    }

    async fn volume_status(&self, volume: &Arc<PersistentVolume>, phase: &str, message: &str) -> Result<Arc<PersistentVolume>, Error> {
        let old = volume.status.clone().unwrap_or_default();
        if old.phase.as_deref() == Some(phase) && old.message.as_deref().unwrap_or_default() == message {
            return Ok(volume.clone());
        }
        let mut changed = (**volume).clone();
        changed.status = Some(PersistentVolumeStatus {
            phase: Some(phase.to_owned()),
            message: (!message.is_empty()).then(|| message.to_owned()),
            last_phase_transition_time: if old.phase.as_deref() == Some(phase) {
                old.last_phase_transition_time
            } else {
                Some(self.clock.time())
            },
            ..PersistentVolumeStatus::default()
        });
        self.volume_writer.update_status(&changed).await
    }

    async fn claim_status(&self, claim: &PersistentVolumeClaim, phase: &str, volume: Option<&PersistentVolume>) -> Result<(), Error> {
        let old = claim.status.clone().unwrap_or_default();
        let mut status = PersistentVolumeClaimStatus { phase: Some(phase.to_owned()), ..old.clone() };
        match volume.and_then(|volume| volume.spec.as_ref()) {
            None => {
                status.access_modes = None;
                status.capacity = None;
                status.current_volume_attributes_class_name = None;
            }
            Some(spec) => {
                status.access_modes.clone_from(&spec.access_modes);
                if old.phase.as_deref() != Some(phase) {
                    status.capacity.clone_from(&spec.capacity);
                    status.current_volume_attributes_class_name.clone_from(&spec.volume_attributes_class_name);
                }
            }
        }
        if status != old {
            let mut changed = claim.clone();
            changed.status = Some(status);
            self.claim_writer.update_status(&changed).await?;
        }
        Ok(())
    }
}

/// A new volume for a claim.
fn provisioned(claim: &PersistentVolumeClaim, class: &StorageClass, node: Option<&str>) -> PersistentVolume {
    let name = format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default());
    let spec = claim.spec.clone().unwrap_or_default();
    let here = node.map(|node| {
        serde_json::from_value(serde_json::json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}}))
    });
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            annotations: Some(BTreeMap::from([(PROVISIONED_BY.to_owned(), PROVISIONER.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: spec.resources.and_then(|resources| resources.requests),
            claim_ref: Some(regarding(claim)),
            host_path: Some(HostPathVolumeSource {
                path: format!("/var/lib/usher/volumes/{name}"),
                type_: Some("DirectoryOrCreate".to_owned()),
            }),
            mount_options: class.mount_options.clone(),
            node_affinity: here.and_then(Result::ok),
            persistent_volume_reclaim_policy: class.reclaim_policy.clone().or_else(|| Some("Delete".to_owned())),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: spec.volume_mode,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}
