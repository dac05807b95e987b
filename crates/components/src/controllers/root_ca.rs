//! The root CA publisher: every namespace has a ConfigMap `kube-root-ca.crt` by which Pods recognise the server.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::runtime::{Component, Context, Identity, Informer, Key, Outcome, Requeue, Source, Writer};

const NAME: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

struct Controller {
    namespaces: Informer<Namespace>,
    maps: Informer<ConfigMap>,
    writer: Writer<ConfigMap>,
    certificate: String,
}

/// Runs the controller, if it was told the certificate.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let Some(certificate) = context.options.root_ca.clone() else {
        tracing::debug!("no root CA was given, none is published");
        return Box::pin(std::future::ready(()));
    };
    let client = context.client(&Identity::controller("root-ca-cert-publisher"));
    // Of all ConfigMaps only these.
    let maps = context.watches.selected(&format!("fieldSelector=metadata.name%3D{NAME}"));
    context.run(Controller { namespaces: context.watches.of(), writer: Writer::new(client, &maps), maps, certificate })
}

impl Component for Controller {
    const NAME: &'static str = "root-ca-certificate-publisher-controller";

    fn sources(&self) -> Vec<Source> {
        vec![
            Source::own(&self.namespaces),
            Source::new(&self.maps, |change, queue| {
                if let Some(map) = change.latest() {
                    queue.add(Key::cluster(map.metadata.namespace.as_deref().unwrap_or_default()));
                }
            }),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(namespace) = self.namespaces.find(&key) else { return Ok(Requeue::Done) };
        if namespace.metadata.deletion_timestamp.is_some() {
            return Ok(Requeue::Done);
        }
        let data = BTreeMap::from([("ca.crt".to_owned(), self.certificate.clone())]);
        let annotations = BTreeMap::from([("kubernetes.io/description".to_owned(), DESCRIPTION.to_owned())]);
        let outcome = match self.maps.get(&key.name, NAME) {
            None => {
                let metadata = ObjectMeta {
                    name: Some(NAME.into()),
                    namespace: Some(key.name.to_string()),
                    annotations: Some(annotations),
                    ..ObjectMeta::default()
                };
                self.writer.create(&ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }).await
            }
            Some(map) if map.data.as_ref() == Some(&data) && map.metadata.annotations.as_ref() == Some(&annotations) => {
                return Ok(Requeue::Done);
            }
            Some(map) => {
                let mut map = (*map).clone();
                map.data = Some(data);
                map.metadata.annotations = Some(annotations);
                self.writer.update(&map).await
            }
        };
        match outcome {
            Err(error) if !error.is_already_exists() && !error.is_namespace_terminating() => Err(error),
            _ => Ok(Requeue::Done),
        }
    }
}
