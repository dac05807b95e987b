//! The signing controller: approved requests of the built-in signers get their certificate, or the condition that says
//! why not.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::{ByteString, api::certificates::v1::CertificateSigningRequest};

use super::{
    CertificateAuthority, SERVICE_ACCOUNT,
    signer::{self, Signed},
};
use crate::{
    clock::Clock,
    runtime::{Component, Context, Identity, Informer, Key, Outcome, Requeue, Source, Writer},
};

struct Controller {
    requests: Informer<CertificateSigningRequest>,
    writer: Writer<CertificateSigningRequest>,
    authority: Arc<CertificateAuthority>,
    clock: Clock,
}

/// Runs the controller, if it was given an authority to sign with.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let Some(authority) = context.options.cluster_signing.clone() else {
        tracing::debug!("no cluster signing certificate was given, nothing is signed");
        return Box::pin(std::future::ready(()));
    };
    let client = context.client(&Identity::controller(SERVICE_ACCOUNT));
    let requests = context.watches.of();
    context.run(Controller { writer: Writer::new(client, &requests), requests, authority, clock: context.clock.clone() })
}

impl Component for Controller {
    const NAME: &'static str = "certificatesigningrequest-signing-controller";

    fn sources(&self) -> Vec<Source> {
        vec![Source::own(&self.requests)]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(request) = self.requests.find(&key) else { return Ok(Requeue::Done) };
        let signed = signer::sign(&request, &self.authority, self.clock.now());
        let mut request = (*request).clone();
        let status = request.status.get_or_insert_default();
        match signed {
            Signed::Nothing => return Ok(Requeue::Done),
            Signed::Certificate(pem) => status.certificate = Some(ByteString(pem.into_bytes())),
            Signed::Failed(condition) => status.conditions.get_or_insert_default().push(*condition),
        }
        self.writer.update_status(&request).await?;
        Ok(Requeue::Done)
    }
}
