//! Claims and volumes: bound, kept while in use, reclaimed.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use super::*;

fn claim(name: &str, class: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "resources": {"requests": {"storage": "1Gi"}}}})
}

fn volume(name: &str, size: &str, policy: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": policy, "hostPath": {"path": "/data"}}})
}

impl Cluster {
    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    async fn claim_is(&self, name: &str, phase: &str) -> PersistentVolumeClaim {
        let claims = self.api::<PersistentVolumeClaim>();
        let is = |claim: PersistentVolumeClaim| claim.status.unwrap_or_default().phase.as_deref() == Some(phase);
        until(&format!("{name} is {phase}"), || async { claims.get_opt(name).await.unwrap().is_some_and(is) }).await;
        claims.get(name).await.unwrap()
    }

    async fn volume_is(&self, name: &str, phase: &str) -> PersistentVolume {
        let volumes = self.volumes();
        let is = |volume: PersistentVolume| volume.status.unwrap_or_default().phase.as_deref() == Some(phase);
        until(&format!("{name} is {phase}"), || async { volumes.get_opt(name).await.unwrap().is_some_and(is) }).await;
        volumes.get(name).await.unwrap()
    }

    async fn told(&self, about: &str, reason: &str) -> String {
        let events = self.api::<Event>();
        let find = || async {
            let events = events.list(&ListParams::default()).await.unwrap().items;
            let mut of =
                events.into_iter().filter(|e| e.involved_object.name.as_deref() == Some(about) && e.reason.as_deref() == Some(reason));
            of.next().and_then(|event| event.message)
        };
        until(&format!("{reason} of {about} is told"), || async { find().await.is_some() }).await;
        find().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_gets_the_smallest_volume_that_will_do_and_the_volume_outlives_it_if_it_is_to() {
    let cluster = cluster("controllers").await;
    let claims = cluster.api::<PersistentVolumeClaim>();
    apply(&claims, claim("data", json!(""))).await;
    let message = cluster.told("data", "FailedBinding").await;
    assert_eq!(message, "no persistent volumes available for this claim and no storage class is set");
    apply(&cluster.volumes(), volume("large", "5Gi", "Retain")).await;
    let bound = cluster.claim_is("data", "Bound").await;
    let status = bound.status.clone().unwrap();
    assert_eq!(status.capacity.unwrap()["storage"].0, "5Gi");
    assert_eq!(bound.spec.as_ref().unwrap().volume_name.as_deref(), Some("large"));
    assert_eq!(bound.annotations()["pv.kubernetes.io/bind-completed"], "yes");
    assert_eq!(bound.annotations()["pv.kubernetes.io/bound-by-controller"], "yes");
    let taken = cluster.volume_is("large", "Bound").await;
    let reference = taken.spec.unwrap().claim_ref.unwrap();
    assert_eq!((reference.name.as_deref(), reference.kind.as_deref()), (Some("data"), Some("PersistentVolumeClaim")));

    apply(&cluster.volumes(), volume("small", "2Gi", "Retain")).await;
    cluster.volume_is("small", "Available").await;
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    cluster.volume_is("large", "Released").await;
    assert!(claims.get_opt("data").await.unwrap().is_none());
    cluster.volumes().delete("large", &DeleteParams::default()).await.unwrap();
    until("the volume is gone", || async { cluster.volumes().get_opt("large").await.unwrap().is_none() }).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_in_use_stays_until_its_pod_is_gone_and_takes_its_new_volume_along() {
    let cluster = cluster("controllers").await;
    let (claims, pods) = (cluster.api::<PersistentVolumeClaim>(), cluster.api::<Pod>());
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    apply(
        &classes,
        json!({"metadata": {"name": "local"}, "provisioner": "usher.dev/host-path", "volumeBindingMode": "WaitForFirstConsumer"}),
    )
    .await;
    apply(&claims, claim("data", json!("local"))).await;
    assert_eq!(cluster.told("data", "WaitForFirstConsumer").await, "waiting for first consumer to be created before binding");
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    apply(
        &pods,
        json!({"metadata": {"name": "user"}, "spec": {"nodeName": "n1", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i"}], "volumes": volumes}}),
    )
    .await;
    let bound = cluster.claim_is("data", "Bound").await;
    let volume = bound.spec.unwrap().volume_name.unwrap();
    assert_eq!(volume, format!("pvc-{}", bound.metadata.uid.unwrap()));
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(claims.get("data").await.unwrap().metadata.deletion_timestamp.is_some(), "it is in use");
    pods.delete("user", &DeleteParams::default().grace_period(0)).await.unwrap();
    until("the claim is gone", || async { claims.get_opt("data").await.unwrap().is_none() }).await;
    until("its volume is gone", || async { cluster.volumes().get_opt(&volume).await.unwrap().is_none() }).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_of_somebody_else_waits_for_them_and_an_ephemeral_volume_has_a_claim_of_its_own() {
    let cluster = cluster("controllers").await;
    let (claims, pods) = (cluster.api::<PersistentVolumeClaim>(), cluster.api::<Pod>());
    let classes: Api<StorageClass> = Api::all(cluster.client.clone());
    apply(&classes, json!({"metadata": {"name": "cloud"}, "provisioner": "example.com/disk"})).await;
    let template = json!({"spec": claim("", json!("cloud"))["spec"]});
    apply(
        &pods,
        json!({"metadata": {"name": "user"}, "spec": {"containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]}}),
    )
    .await;
    let message = cluster.told("user-scratch", "ExternalProvisioning").await;
    assert!(message.starts_with("Waiting for a volume to be created either by the external provisioner 'example.com/disk'"), "{message}");
    let made = claims.get("user-scratch").await.unwrap();
    assert_eq!(made.annotations()["volume.kubernetes.io/storage-provisioner"], "example.com/disk");
    pods.delete("user", &DeleteParams::default().grace_period(0)).await.unwrap();
    until("the claim follows its Pod", || async { claims.get_opt("user-scratch").await.unwrap().is_none() }).await;
    cluster.stop().await;
}
