//! ServiceAccount: every namespace has one named `default`.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::{
    api::core::v1::{Namespace, ServiceAccount},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::runtime::{Component, Context, Identity, Informer, Key, Outcome, Requeue, Source, Writer};

const NAME: &str = "default";

struct Controller {
    namespaces: Informer<Namespace>,
    accounts: Informer<ServiceAccount>,
    writer: Writer<ServiceAccount>,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller("service-account-controller"));
    let accounts = context.watches.of();
    context.run(Controller { namespaces: context.watches.of(), writer: Writer::new(client, &accounts), accounts })
}

impl Component for Controller {
    const NAME: &'static str = "serviceaccount-controller";

    fn sources(&self) -> Vec<Source> {
        vec![
            Source::own(&self.namespaces),
            Source::new(&self.accounts, |change, queue| {
                if let Some(gone) = change.old.filter(|_| change.is_deletion()) {
                    queue.add(Key::cluster(gone.metadata.namespace.as_deref().unwrap_or_default()));
                }
            }),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(namespace) = self.namespaces.find(&key) else { return Ok(Requeue::Done) };
        if namespace.metadata.deletion_timestamp.is_some() || self.accounts.get(&key.name, NAME).is_some() {
            return Ok(Requeue::Done);
        }
        let metadata = ObjectMeta { name: Some(NAME.into()), namespace: Some(key.name.to_string()), ..ObjectMeta::default() };
        match self.writer.create(&ServiceAccount { metadata, ..ServiceAccount::default() }).await {
            Err(error) if !error.is_already_exists() && !error.is_namespace_terminating() => Err(error),
            _ => Ok(Requeue::Done),
        }
    }
}
