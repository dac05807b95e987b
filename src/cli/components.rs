//! `usher controllers`, `usher scheduler`: components in a process of their own, against any API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use usher_components::controllers::certificates::CertificateAuthority;
use usher_components::runtime::LeaderElection;
use usher_components::{Clock, Options, Selection, TokenSigner};

use super::client::Reach;
use crate::authn::keys::ServiceAccountKeys;
use crate::gateway::layers::deadline::parse_duration;
use crate::server::token_signer;

pub const CONTROLLERS_EXAMPLES: &str = "Examples:
  usher up --components none & usher controllers --kubeconfig usher-data/kubeconfig
  usher controllers --controllers '*,-job-controller'      all but one";

pub const SCHEDULER_EXAMPLES: &str = "Examples:
  usher up --components '*,-scheduler' & usher scheduler --kubeconfig usher-data/kubeconfig";

/// Whether of several such processes one shall work.
#[derive(Debug, Args)]
struct Election {
    /// Wait for the Lease before doing anything, so that of several such processes one works at a time
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true",
          action = clap::ArgAction::Set)]
    leader_elect: bool,
}

impl Election {
    fn stand(&self) -> Option<LeaderElection> {
        self.leader_elect.then(|| LeaderElection::new(crate::server::process_identity()))
    }
}

/// `usher controllers`.
#[derive(Debug, Args)]
pub struct Controllers {
    #[command(flatten)]
    reach: Reach,
    /// Which controllers: all, or a list such as *,-job-controller
    #[arg(long, value_name = "LIST", default_value = "*")]
    controllers: String,
    #[command(flatten)]
    election: Election,
    /// The certificate that approved CertificateSigningRequests are signed with; without it nothing is signed
    #[arg(long, value_name = "FILE", requires = "cluster_signing_key_file")]
    cluster_signing_cert_file: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
    /// The longest that a signed certificate lives
    #[arg(long, value_name = "DURATION", default_value = "8760h")]
    cluster_signing_duration: String,
    /// The CA that is published to every namespace as kube-root-ca.crt
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
    /// The key that the tokens in Secrets of ServiceAccounts are signed with; without it none is put there
    #[arg(long, value_name = "FILE")]
    service_account_private_key_file: Option<PathBuf>,
}

impl Controllers {
    /// Runs them until a signal comes.
    pub fn run(self) -> Result<(), String> {
        let selection = format!("{},-scheduler,-kubelet", self.controllers).parse().map_err(|e| format!("--controllers: {e}"))?;
        let options = async || {
            Ok(Options {
                leader_election: self.election.stand(),
                cluster_signing: self.signing()?.map(Arc::new),
                root_ca: self.root_ca_file.as_deref().map(read).transpose()?,
                token_signer: self.signer()?,
                ..Options::default()
            })
        };
        run(&self.reach, &selection, options)
    }

    /// What signs tokens.
    fn signer(&self) -> Result<Option<TokenSigner>, String> {
        let Some(file) = &self.service_account_private_key_file else { return Ok(None) };
        let keys = ServiceAccountKeys::new(Some(read(file)?.as_bytes()), &[]);
        keys.map(|keys| Some(token_signer(keys.into()))).map_err(|why| format!("--service-account-private-key-file: {why}"))
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

/// `usher scheduler`.
#[derive(Debug, Args)]
pub struct Scheduler {
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    election: Election,
}

impl Scheduler {
    /// Runs it until a signal comes.
    pub fn run(self) -> Result<(), String> {
        let options = async || Ok(Options { leader_election: self.election.stand(), ..Options::default() });
        run(&self.reach, &Selection::only(&["scheduler"]), options)
    }
}

/// Runs what is selected until a signal comes.
pub fn run(reach: &Reach, selection: &Selection, options: impl AsyncFnOnce() -> Result<Options, String>) -> Result<(), String> {
    super::up::log_to_stderr();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let options = options().await?;
        let client = reach.client().await?;
        let waits = options.leader_election.is_some();
        let running = usher_components::start(selection, Arc::new(client), Clock::system(), options).map_err(|e| e.to_string())?;
        super::output::tell(&match waits {
            true => "standing for election".to_owned(),
            false => format!("running {}", running.running().join(", ")),
        });
        super::up::wait_for_signal().await?;
        // Whoever comes next need not wait for the Lease to run out.
        let _ = tokio::time::timeout(Duration::from_secs(5), running.resign()).await;
        Ok::<(), String>(())
    })?;
    runtime.shutdown_timeout(Duration::from_secs(2));
    Ok(())
}

pub fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))
}
