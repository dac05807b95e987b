//! Ephemeral volumes: a Pod that describes a claim instead of naming one gets it made, as its own.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use super::{ephemeral_claim, is_for};
use crate::{
    controllers::pods,
    events::{EventType, Recorder, regarding},
    runtime::{Component, Context, Error, Identity, Informer, Key, Outcome, Requeue, Source, Writer},
};

struct Controller {
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    writer: Writer<PersistentVolumeClaim>,
    recorder: Recorder,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller("ephemeral-volume-controller"));
    let claims = context.watches.of();
    context.run(Controller {
        pods: context.watches.of(),
        writer: Writer::new(client.clone(), &claims),
        recorder: context.recorder(client, "ephemeral_volume"),
        claims,
    })
}

fn owner(pod: &Pod) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The claims that the Pod describes.
fn described(pod: &Pod) -> Vec<PersistentVolumeClaim> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| {
        let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
        let meta = template.metadata.clone().unwrap_or_default();
        Some(PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: ephemeral_claim(name, volume),
                namespace: pod.metadata.namespace.clone(),
                labels: meta.labels,
                annotations: meta.annotations,
                owner_references: Some(vec![owner(pod)]),
                ..ObjectMeta::default()
            },
            spec: Some(template.spec.clone()),
            status: None,
        })
    });
    claims.collect()
}

impl Component for Controller {
    const NAME: &'static str = "ephemeral-volume-controller";

    fn sources(&self) -> Vec<Source> {
        let pods = Source::new(&self.pods, |change, queue| {
            let describes = |pod: &Pod| pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(|v| v.ephemeral.is_some());
            if let Some(pod) = change.new.filter(|pod| describes(pod)) {
                queue.add(Key::of(&pod.metadata));
            }
        });
        // A claim that was deleted too early is made again.
        vec![pods, Source::controlled(&self.claims, "", "Pod")]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(pod) = self.pods.find(&key).filter(|pod| !pods::is_terminating(pod)) else { return Ok(Requeue::Done) };
        for claim in described(&pod) {
            let name = claim.metadata.name.clone().unwrap_or_default();
            match self.claims.get(&key.namespace, &name) {
                Some(found) if is_for(&pod, &found) => {}
                Some(_) => {
                    return Err(Error::Other(format!("PVC \"{name}\" was not created for the pod \"{key}\"")));
                }
                None => {
                    if let Err(error) = self.writer.create(&claim).await {
                        let message = format!("ephemeral volume claim {name}: {}", error.message());
                        self.recorder.event(&regarding(&*pod), EventType::Warning, "FailedBinding", message);
                        return Err(error);
                    }
                }
            }
        }
        Ok(Requeue::Done)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_claim_is_named_after_pod_and_volume_and_belongs_to_the_pod() {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}});
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [], "volumes": [{"name": "x", "emptyDir": {}}, {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]}}))
        .unwrap();
        let claims = described(&pod);
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].metadata.name.as_deref(), Some("p-scratch"));
        assert_eq!(claims[0].metadata.labels.as_ref().unwrap()["a"], "b");
        assert!(is_for(&pod, &claims[0]));
    }
}
