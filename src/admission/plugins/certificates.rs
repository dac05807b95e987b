//! `CertificateApproval`, `CertificateSigning`, `ClusterTrustBundleAttest` and `CertificateSubjectRestriction`: who may approve, sign and
//! attest for which signer, and that nobody gets a certificate of the group that is allowed everything.

use std::sync::Arc;

use base64::Engine;
use futures::future::BoxFuture;
use usher_components::controllers::certificates::CertificateRequest;

use crate::admission::{Operation, Validate, Write};
use crate::authz::{Attributes, Authorizer};
use crate::request::{RequestInfo, User};
use crate::status::Status;

/// Whether a user may do something with a signer, by its name or by its domain as a whole.
async fn may(authorizer: &dyn Authorizer, user: &Arc<User>, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    for name in [signer.to_owned(), format!("{domain}/*")] {
        let info = RequestInfo {
            is_resource: true,
            special_verb: verb.to_owned(),
            group: "certificates.k8s.io".into(),
            version: "*".into(),
            resource: "signers".into(),
            name,
            ..RequestInfo::default()
        };
        if authorizer.decide(&Attributes { user: user.clone(), info: Arc::new(info) }).await.is_allow() {
            return true;
        }
    }
    false
}

fn signer(write: &Write) -> &str {
    let request = if write.old.is_some() { write.old() } else { write.object() };
    request["spec"]["signerName"].as_str().unwrap_or_default()
}

fn is_request(write: &Write) -> bool {
    write.is_of("certificates.k8s.io", "certificatesigningrequests")
}

/// The plugin `CertificateApproval`.
pub struct CertificateApproval(pub Arc<dyn Authorizer>);

impl Validate for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn handles(&self, write: &Write) -> bool {
        is_request(write) && write.subresource == "approval" && write.operation == Operation::Update
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let signer = signer(write);
            match may(&*self.0, &write.user, "approve", signer).await {
                true => Ok(()),
                false => Err(write.forbidden(format!("user not permitted to approve requests with signerName {signer:?}"))),
            }
        })
    }
}

/// The plugin `CertificateSigning`.
pub struct CertificateSigning(pub Arc<dyn Authorizer>);

impl Validate for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn handles(&self, write: &Write) -> bool {
        is_request(write)
            && write.subresource == "status"
            && write.operation == Operation::Update
            && (write.old()["status"]["certificate"] != write.object()["status"]["certificate"]
                || write.old()["status"]["conditions"] != write.object()["status"]["conditions"])
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let signer = signer(write);
            match may(&*self.0, &write.user, "sign", signer).await {
                true => Ok(()),
                false => Err(write.forbidden(format!("user not permitted to sign requests with signerName {signer:?}"))),
            }
        })
    }
}

/// The plugin `ClusterTrustBundleAttest`: who may publish trust for which signer.
pub struct ClusterTrustBundleAttest(pub Arc<dyn Authorizer>);

impl Validate for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    fn handles(&self, write: &Write) -> bool {
        write.is("certificates.k8s.io", "clustertrustbundles")
            && matches!(write.operation, Operation::Create | Operation::Update)
            && write.object()["spec"]["signerName"].as_str().is_some_and(|signer| !signer.is_empty())
            // What keeps its meaning needs no permission: storage migration, garbage collection.
            && (write.operation == Operation::Create || write.object()["spec"] != write.old()["spec"])
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let signer = write.object()["spec"]["signerName"].as_str().unwrap_or_default();
            match may(&*self.0, &write.user, "attest", signer).await {
                true => Ok(()),
                false => Err(write.forbidden(format!("user not permitted to attest for signerName {signer:?}"))),
            }
        })
    }
}

/// The plugin `CertificateSubjectRestriction`.
pub struct CertificateSubjectRestriction;

impl Validate for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, write: &Write) -> bool {
        write.creates("certificates.k8s.io", "certificatesigningrequests") && signer(write) == "kubernetes.io/kube-apiserver-client"
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let groups = organizations(write.object()["spec"]["request"].as_str().unwrap_or_default());
            match groups.iter().any(|group| group == "system:masters") {
                true => Err(write.forbidden(format!("use of {} signer with system:masters group is not allowed", signer(write)))),
                false => Ok(()),
            }
        })
    }
}

/// The organisations that a request asks to be certified; none if it is no request.
fn organizations(encoded: &str) -> Vec<String> {
    let pem = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
    CertificateRequest::from_pem(&pem).map(|request| request.organizations).unwrap_or_default()
}
