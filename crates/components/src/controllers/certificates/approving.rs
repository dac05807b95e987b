//! The approving controller: a kubelet's request for its own client certificate is approved without a person, if whoever
//! asks may have that.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::Request;
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
};
use kube::Client;

use super::{SERVICE_ACCOUNT, condition, is_issued, signer};
use crate::{
    clock::Clock,
    runtime::{Component, Context, Error, Identity, Informer, Key, Outcome, Requeue, Source, Writer},
};

struct Controller {
    requests: Informer<CertificateSigningRequest>,
    writer: Writer<CertificateSigningRequest>,
    client: Client,
    clock: Clock,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(SERVICE_ACCOUNT));
    let requests = context.watches.of();
    context.run(Controller { writer: Writer::new(client.clone(), &requests), requests, client, clock: context.clock.clone() })
}

impl Component for Controller {
    const NAME: &'static str = "certificatesigningrequest-approving-controller";

    fn sources(&self) -> Vec<Source> {
        vec![Source::own(&self.requests)]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(request) = self.requests.find(&key) else { return Ok(Requeue::Done) };
        if is_issued(&request) || condition(&request, "Approved").is_some() || condition(&request, "Denied").is_some() {
            return Ok(Requeue::Done);
        }
        let recognised = signer::recognised(&request);
        for (subresource, message) in recognised {
            if !self.may(&request, subresource).await? {
                continue;
            }
            let mut request = (*request).clone();
            let now = self.clock.time();
            request.status.get_or_insert_default().conditions.get_or_insert_default().push(CertificateSigningRequestCondition {
                type_: "Approved".into(),
                status: "True".into(),
                reason: Some("AutoApproved".into()),
                message: Some((*message).into()),
                last_update_time: Some(now.clone()),
                last_transition_time: Some(now),
            });
            self.writer.replace(&request, "/approval").await?;
            return Ok(Requeue::Done);
        }
        if !recognised.is_empty() {
            tracing::debug!(request = %key, "recognised, but whoever asks may not have such a certificate without approval");
        }
        Ok(Requeue::Done)
    }
}

impl Controller {
    /// Whether the author of the request may create this subresource of requests, which stands for the approval.
    async fn may(&self, request: &CertificateSigningRequest, subresource: &str) -> Result<bool, Error> {
        let author = &request.spec;
        let attributes = ResourceAttributes {
            group: Some("certificates.k8s.io".into()),
            version: Some("*".into()),
            resource: Some("certificatesigningrequests".into()),
            subresource: Some(subresource.into()),
            verb: Some("create".into()),
            ..ResourceAttributes::default()
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: author.username.clone(),
                uid: author.uid.clone(),
                groups: author.groups.clone(),
                extra: author.extra.clone(),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let request = Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(&review)?)
            .map_err(kube::Error::HttpError)?;
        let answer: SubjectAccessReview = self.client.request(request).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}
