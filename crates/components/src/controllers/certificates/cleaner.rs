//! The cleaner: requests that are done with go after an hour, those that nobody decides about after a day, and those whose
//! certificate has expired at once.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use x509_parser::{pem::Pem, prelude::*};

use super::{SERVICE_ACCOUNT, condition, is_issued};
use crate::{
    clock::{Clock, later, left},
    runtime::{Component, Context, Identity, Informer, Key, Outcome, Propagation, Requeue, Source, Writer},
};

const DECIDED: Duration = Duration::from_secs(3600);
const PENDING: Duration = Duration::from_secs(24 * 3600);

struct Controller {
    requests: Informer<CertificateSigningRequest>,
    writer: Writer<CertificateSigningRequest>,
    clock: Clock,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(SERVICE_ACCOUNT));
    let requests = context.watches.of();
    context.run(Controller { writer: Writer::new(client, &requests), requests, clock: context.clock.clone() })
}

impl Component for Controller {
    const NAME: &'static str = "certificatesigningrequest-cleaner-controller";

    fn sources(&self) -> Vec<Source> {
        vec![Source::own(&self.requests)]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(request) = self.requests.find(&key) else { return Ok(Requeue::Done) };
        let Some(until) = keep_until(&request) else { return Ok(Requeue::Done) };
        let wait = left(self.clock.now(), until);
        if !wait.is_zero() {
            return Ok(Requeue::After(wait));
        }
        self.writer.delete(&request, Propagation::Default).await?;
        Ok(Requeue::Done)
    }
}

/// Until when a request is worth keeping; for ever, where it is approved and waits for a signer that is not built in.
fn keep_until(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let decided = |kind: &str| condition(request, kind).and_then(|c| c.last_update_time.as_ref()).map(|time| later(time.0, DECIDED));
    let approved = if is_issued(request) { decided("Approved") } else { None };
    let undecided = ["Approved", "Denied", "Failed"].iter().all(|kind| condition(request, kind).is_none());
    let created = request.metadata.creation_timestamp.as_ref().filter(|_| undecided);
    let pending = created.map(|time| later(time.0, PENDING));
    let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
    let expired = certificate.and_then(|pem| not_after(&pem.0));
    [approved, decided("Denied"), decided("Failed"), pending, expired].into_iter().flatten().min()
}

/// When the first certificate of a bundle ends.
fn not_after(pem: &[u8]) -> Option<Timestamp> {
    let block = Pem::iter_from_buffer(pem).next()?.ok()?;
    let (_, certificate) = X509Certificate::from_der(&block.contents).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(status: serde_json::Value) -> Option<Timestamp> {
        let request = json!({
            "metadata": {"creationTimestamp": "2030-01-01T00:00:00Z"},
            "spec": {"request": "", "signerName": "example.com/x"},
            "status": status,
        });
        keep_until(&serde_json::from_value(request).unwrap())
    }

    #[test]
    fn what_is_decided_goes_after_an_hour_and_what_is_not_after_a_day() {
        let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        let condition = |kind: &str| json!([{"type": kind, "status": "True", "lastUpdateTime": "2030-01-01T02:00:00Z"}]);
        assert_eq!(kept(json!({})), at("2030-01-02T00:00:00Z"));
        assert_eq!(kept(json!({"conditions": condition("Denied")})), at("2030-01-01T03:00:00Z"));
        assert_eq!(kept(json!({"conditions": condition("Failed")})), at("2030-01-01T03:00:00Z"));
        assert_eq!(kept(json!({"conditions": condition("Approved")})), None, "it waits for its signer");
        let issued = json!({"conditions": condition("Approved"), "certificate": "eA=="});
        assert_eq!(kept(issued), at("2030-01-01T03:00:00Z"));
    }
}
