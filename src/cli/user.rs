//! `usher user`: new identities. A key is made here, its certificate comes from the server's own
//! CertificateSigningRequest API, and both go into a kubeconfig; the key never leaves this process any other way.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::{PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;
use usher_components::controllers::certificates::{pem, request, signer};

use super::client::{Reach, block_on};

pub(super) const EXAMPLES: &str = "Examples:
  usher user add alice --group developers --group on-call --kubeconfig-out alice.kubeconfig
  usher user add ci --expires 1h > ci.kubeconfig
  kubectl create rolebinding alice --clusterrole edit --user alice";

/// How long the server may take to sign.
const PATIENCE: Duration = Duration::from_secs(30);

/// What to do.
#[derive(Debug, Subcommand)]
pub enum User {
    /// Make a kubeconfig with a client certificate for a new identity
    Add(Add),
}

/// Who it is.
#[derive(Debug, Args)]
pub struct Add {
    /// The name of the user
    name: String,
    /// A group of the user; can be given several times
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Where to write the kubeconfig [default: standard output]
    #[arg(long, value_name = "FILE")]
    kubeconfig_out: Option<PathBuf>,
    /// For how long the certificate is good: 30m, 24h, 90d; at least 10 minutes [default: one year]
    #[arg(long, value_name = "DURATION")]
    expires: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

impl User {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        match self {
            User::Add(add) => block_on(add.run()),
        }
    }
}

impl Add {
    async fn run(self) -> Result<(), String> {
        let seconds = self.expires.as_deref().map(seconds).transpose()?;
        let config = self.reach.config().await?;
        let server = config.cluster_url.to_string();
        let ca: String = config.root_cert.iter().flatten().map(|der| pem("CERTIFICATE", der)).collect();
        let client = kube::Client::try_from(config).map_err(|e| e.to_string())?;
        let (request, key) = request::make(&self.name, &self.groups)?;
        let certificate = issue(client, &request, seconds).await?;
        let text = super::kubeconfig::text(&ca, server.trim_end_matches('/'), &self.name, &certificate, &key);
        match &self.kubeconfig_out {
            None => super::output::print(&text)?,
            Some(path) => {
                super::kubeconfig::write(path, &text)?;
                super::output::line(&format!("wrote {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// Asks for the certificate, approves that, and waits for the signer.
async fn issue(client: kube::Client, request: &str, seconds: Option<i32>) -> Result<String, String> {
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    let asked = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "usher-user-"},
        "spec": {
            "request": k8s_openapi::ByteString(request.as_bytes().to_vec()),
            "signerName": signer::KUBE_APISERVER_CLIENT,
            "usages": ["client auth", "digital signature"],
            "expirationSeconds": seconds,
        },
    });
    let asked = serde_json::from_value(asked).map_err(|e| e.to_string())?;
    let made = requests.create(&PostParams::default(), &asked).await.map_err(said)?;
    let name = made.metadata.name.unwrap_or_default();
    let approval = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "UsherUserAdd", "message": "This identity was made with usher user add."},
    ]}});
    let patch = kube::api::Patch::Merge(&approval);
    requests.patch_subresource("approval", &name, &PatchParams::default(), &patch).await.map_err(said)?;
    let ended = await_condition(requests, &name, |request: Option<&CertificateSigningRequest>| {
        let status = request.and_then(|r| r.status.as_ref());
        status.is_some_and(|s| s.certificate.is_some() || s.conditions.iter().flatten().any(|c| c.type_ == "Failed"))
    });
    let ended = tokio::time::timeout(PATIENCE, ended).await.map_err(|_| {
        format!("nobody signed the request {name} in {PATIENCE:?}; is the csrsigning controller of the server switched off?")
    })?;
    let status = ended.map_err(|e| e.to_string())?.and_then(|request| request.status).unwrap_or_default();
    if let Some(certificate) = status.certificate {
        return String::from_utf8(certificate.0).map_err(|_| "the certificate is not PEM".to_owned());
    }
    let failed = status.conditions.into_iter().flatten().find(|c| c.type_ == "Failed").and_then(|c| c.message);
    Err(format!("the request {name} was not signed: {}", failed.unwrap_or_default()))
}

fn said(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message,
        other => other.to_string(),
    }
}

/// A duration in whole seconds.
fn seconds(text: &str) -> Result<i32, String> {
    let bad = || format!("--expires: {text:?} is not a duration such as 30m, 24h or 90d");
    let span: jiff::Span = text.parse().map_err(|_| bad())?;
    let days = jiff::SpanRelativeTo::days_are_24_hours();
    let duration = span.to_duration(days).map_err(|_| bad())?;
    let seconds = i32::try_from(duration.as_secs()).map_err(|_| bad())?;
    if seconds < 600 { Err("--expires: a certificate is good for 10 minutes at least".into()) } else { Ok(seconds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_days_hours_and_minutes_and_are_not_too_short() {
        assert_eq!(seconds("24h"), Ok(86400));
        assert_eq!(seconds("90d"), Ok(90 * 86400));
        assert_eq!(seconds("1h30m"), Ok(5400));
        assert!(seconds("5m").unwrap_err().contains("10 minutes"));
        assert!(seconds("-1h").is_err());
        assert!(seconds("soon").is_err());
        assert!(seconds("9000000h").is_err());
    }
}
