//! Admission webhooks. A configuration is compiled when it is written ([`configuration`]) and in force for the next request; a call
//! is a review over HTTPS ([`client`], [`endpoint`]) whose answer is checked ([`response`]) before anybody believes it.
//! [`mutating`] and [`validating`] are the two admission steps.

pub mod client;
pub mod configuration;
mod decode;
pub mod endpoint;
pub mod mutating;
pub mod response;
pub mod transport;
pub mod validating;

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::expression::{Input, Verdict};
use super::matching::{Match, Surroundings};
use super::passed::{NO_RULE, Passed};
use super::review::{self, Versioned};
use super::{Cluster, Write};
use crate::authz;
use crate::registry::Resource;
use crate::status::Status;
use crate::validation::names;
use client::Clients;
use configuration::Hook;
use response::Answer;

/// What both steps need to call webhooks.
pub struct Caller {
    /// The cluster, for selectors and Services.
    pub cluster: Cluster,
    /// Who answers `authorizer` in match conditions.
    pub authorizer: Arc<dyn authz::Authorizer>,
    /// Connections.
    pub clients: Clients,
}

/// Why a call did not come to a verdict.
#[derive(Debug)]
pub enum Failure {
    /// The webhook could not be asked, or its answer is no answer: the failure policy decides.
    Call(String),
    /// The request ends with this, whatever the failure policy says.
    Refused(Status),
}

impl Caller {
    /// Whether a webhook is to be called for a write, and for which version of the resource; leaves in the trace why not.
    pub fn should_call(
        &self,
        hook: &Hook,
        write: &Write,
        around: &Surroundings<'_>,
        passed: &mut Passed,
    ) -> Result<Option<Arc<Resource>>, Status> {
        let since = Instant::now();
        let mut skipped = |why: &str| {
            passed.one(write, &hook.name, why.to_owned(), since, |detail| detail["configuration"] = json!(&*hook.configuration))
        };
        let resource = match hook.criteria.matches(write, around)? {
            Match::Yes(resource) => resource,
            Match::Elsewhere => {
                passed.many(1, NO_RULE);
                return Ok(None);
            }
            Match::No(why) => {
                skipped(&why);
                return Ok(None);
            }
        };
        if hook.conditions.is_empty() {
            return Ok(Some(resource));
        }
        let input = Input::of(write, &resource, &self.cluster, &self.authorizer);
        match hook.conditions.evaluate(&input, None) {
            Verdict::Holds => Ok(Some(resource)),
            Verdict::Fails(name) => {
                skipped(&format!("the match condition {name:?} is false"));
                Ok(None)
            }
            Verdict::Errors(_) if hook.fails_open => {
                skipped("a match condition could not be evaluated, and the failure policy is Ignore");
                Ok(None)
            }
            Verdict::Errors(error) => Err(write.forbidden(error)),
        }
    }

    /// Asks a webhook; never longer than its timeout.
    pub async fn call(&self, hook: &Hook, write: &Write, resource: &Resource, mutating: bool) -> Result<Answer, Failure> {
        if write.dry_run && !hook.allows_dry_run {
            let text = format!("admission webhook {:?} does not support dry run", hook.name);
            return Err(Failure::Refused(Status::bad_request(text)));
        }
        let Some(api_version) = hook.review_version else {
            return Err(Failure::Call(
                "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)".into(),
            ));
        };
        let uid = uuid::Uuid::new_v4().to_string();
        // A real server says it twice where the object could still be changed.
        let unconverted = |status: Status| match mutating {
            true => Status::internal(Status::internal(status.message).message),
            false => Status::internal(status.message),
        };
        let versioned = Versioned::of(write, resource, &self.cluster).await.map_err(|status| Failure::Refused(unconverted(status)))?;
        let request = review::request(write, resource, versioned.as_ref(), &uid);
        let body =
            serde_json::to_vec(&review::review(api_version, request)).map_err(|e| Failure::Call(format!("failed to call webhook: {e}")))?;
        let url = hook.endpoint.shown_url(hook.timeout_seconds);
        let post = self.clients.post(&hook.endpoint, hook.timeout_seconds, &self.cluster, &url, write.context.span, body);
        let received = post.await.map_err(|why| {
            if why.ends_with(crate::authn::trust::LEGACY_NAME) {
                let key = format!("missing-san.invalid-cert.kubernetes.io/{}", transport::host_of(&url));
                write
                    .context
                    .trace
                    .annotate(key, "relies on a legacy Common Name field instead of the SAN extension for subject validation");
            }
            Failure::Call(format!("failed to call webhook: {why}"))
        })?;
        let value = received.decode(api_version).map_err(|why| Failure::Call(format!("failed to call webhook: {why}")))?;
        response::verify(value, api_version, &uid, mutating)
            .map_err(|why| Failure::Call(format!("received invalid webhook response: {why}")))
    }
}

/// The warnings and annotations of an answer, which count whether or not it allows.
pub fn take_notes(hook: &Hook, write: &Write, answer: &Answer) {
    for (key, value) in &answer.audit_annotations {
        let key = format!("{}/{key}", hook.name);
        // One that is no name is left out of the event.
        if names::qualified(&key).is_empty() {
            write.context.trace.annotate(key, value);
        }
    }
    for warning in &answer.warnings {
        write.context.trace.warn(warning);
    }
}

/// The error of a webhook that could not be asked and fails closed.
pub fn failed_closed(hook: &Hook, write: &Write, why: &str) -> Status {
    explain_deadlock(hook, write);
    Status::internal(format!("failed calling webhook {:?}: {why}", hook.name))
}

/// A webhook that must admit the very Pods that would serve it can never come up; that deserves words.
fn explain_deadlock(hook: &Hook, write: &Write) {
    let Some(service) = hook.endpoint.service() else { return };
    let brings_it_up = matches!(
        &*write.resource.plural,
        "pods" | "deployments" | "replicasets" | "statefulsets" | "daemonsets" | "services" | "endpoints" | "endpointslices" | "secrets"
    );
    if brings_it_up && write.namespace == service.namespace {
        write.context.trace.warn(format!(
            "webhook \"{}\" of configuration \"{}\" is served from namespace \"{}\" and must itself admit what is created there: \
             exclude that namespace with a namespaceSelector, or set failurePolicy to Ignore until it runs",
            hook.name, hook.configuration, service.namespace
        ));
    }
}

/// How a trace tells one call.
fn detail(hook: &Hook, extra: Value) -> Option<Value> {
    let mut detail = json!({"configuration": &*hook.configuration});
    if let (Some(detail), Value::Object(extra)) = (detail.as_object_mut(), extra) {
        detail.extend(extra);
    }
    Some(detail)
}
