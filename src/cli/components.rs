//! `usher controllers`, `usher scheduler`, `usher kubelet`: components in a process of their own, against any API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use usher_components::controllers::certificates::CertificateAuthority;
use usher_components::kubelet::Nodes;
use usher_components::{Clock, Options, Selection};

use super::client::Reach;
use crate::gateway::layers::deadline::parse_duration;

/// Which server.
#[derive(Debug, Args)]
pub struct Component {
    #[command(flatten)]
    reach: Reach,
    /// Which controllers: all, or a list such as *,-job-controller (`usher controllers` only)
    #[arg(long, value_name = "LIST", default_value = "*")]
    controllers: String,
    /// How many nodes on the mock runtime (`usher kubelet` only)
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: usize,
    /// The certificate that approved CertificateSigningRequests are signed with; without it nothing is signed (`usher controllers` only)
    #[arg(long, value_name = "FILE", requires = "cluster_signing_key_file")]
    cluster_signing_cert_file: Option<PathBuf>,
    /// The key of that certificate (`usher controllers` only)
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
    /// The longest that a signed certificate lives (`usher controllers` only)
    #[arg(long, value_name = "DURATION", default_value = "8760h")]
    cluster_signing_duration: String,
    /// The CA that is published to every namespace as kube-root-ca.crt (`usher controllers` only)
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
}

impl Component {
    /// Runs `names` until a signal comes.
    pub fn run(self, names: &[&str]) -> Result<(), String> {
        super::up::log_to_stderr();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| e.to_string())?;
        runtime.block_on(async {
            let client = self.reach.client().await?;
            let selection: Selection = match names {
                [] => format!("{},-scheduler,-kubelet", self.controllers).parse().map_err(|e| format!("--controllers: {e}"))?,
                names => Selection::only(names),
            };
            let options = Options {
                nodes: Nodes::mock(self.nodes),
                cluster_signing: self.signing()?.map(Arc::new),
                root_ca: self.root_ca_file.as_deref().map(read).transpose()?,
                ..Options::default()
            };
            let running = usher_components::start(&selection, Arc::new(client), Clock::system(), options).map_err(|e| e.to_string())?;
            super::output::tell(&format!("running {}", running.running().join(", ")));
            super::up::wait_for_signal().await
        })?;
        runtime.shutdown_timeout(Duration::from_secs(2));
        Ok(())
    }

    /// What the built-in signers sign with.
    fn signing(&self) -> Result<Option<CertificateAuthority>, String> {
        let (Some(certificate), Some(key)) = (&self.cluster_signing_cert_file, &self.cluster_signing_key_file) else { return Ok(None) };
        let text = &self.cluster_signing_duration;
        let longest = parse_duration(text).filter(|longest| longest.as_secs() >= 3600);
        let longest = longest.ok_or_else(|| format!("--cluster-signing-duration takes a duration of an hour or more, not {text:?}"))?;
        let authority = CertificateAuthority::from_pem(read(certificate)?.as_bytes(), read(key)?.as_bytes())?;
        Ok(Some(authority.lasting(longest)))
    }
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))
}
