//! `usher controllers`, `usher scheduler`, `usher kubelet`: components in a process of their own, against any API server.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use k8s_openapi::api::core::v1::Taint;
use usher_components::controllers::certificates::CertificateAuthority;
use usher_components::cri::grpc::GrpcRuntime;
use usher_components::cri::{ContainerRuntime, RuntimeFor};
use usher_components::kubelet::{NodeConfig, Nodes};
use usher_components::runtime::LeaderElection;
use usher_components::{Clock, Options, Selection};

use super::client::Reach;
use crate::gateway::layers::deadline::parse_duration;

pub const CONTROLLERS_EXAMPLES: &str = "Examples:
  usher up --components none & usher controllers --kubeconfig usher-data/kubeconfig
  usher controllers --controllers '*,-job-controller'      all but one";

pub const SCHEDULER_EXAMPLES: &str = "Examples:
  usher up --components '*,-scheduler' & usher scheduler --kubeconfig usher-data/kubeconfig";

pub const KUBELET_EXAMPLES: &str = "Examples:
  usher kubelet --nodes 3                                  three more nodes on the mock runtime
  usher kubelet --hostname-override gpu-1 --node-labels pool=gpu --register-with-taints gpu=true:NoSchedule
  usher kubelet --hostname-override here --container-runtime-endpoint unix:///run/containerd/containerd.sock";

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
}

impl Controllers {
    /// Runs them until a signal comes.
    pub fn run(self) -> Result<(), String> {
        let selection = format!("{},-scheduler,-kubelet", self.controllers).parse().map_err(|e| format!("--controllers: {e}"))?;
        let options = || {
            Ok(Options {
                leader_election: self.election.stand(),
                cluster_signing: self.signing()?.map(Arc::new),
                root_ca: self.root_ca_file.as_deref().map(read).transpose()?,
                ..Options::default()
            })
        };
        run(&self.reach, &selection, options)
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
        let options = || Ok(Options { leader_election: self.election.stand(), ..Options::default() });
        run(&self.reach, &Selection::only(&["scheduler"]), options)
    }
}

/// `usher kubelet`.
#[derive(Debug, Args)]
pub struct Kubelet {
    #[command(flatten)]
    reach: Reach,
    /// How many nodes, named node-1, node-2 and so on
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: usize,
    /// One node of this name instead
    #[arg(long, value_name = "NAME", conflicts_with = "nodes")]
    hostname_override: Option<String>,
    /// The address of the node, or of the first of them [default: 172.18.0.2]
    #[arg(long, value_name = "ADDRESS")]
    node_ip: Option<IpAddr>,
    /// Labels that a node registers with, such as pool=gpu,zone=a
    #[arg(long, value_name = "LABELS", default_value = "", hide_default_value = true)]
    node_labels: String,
    /// Taints that a node registers with, such as gpu=true:NoSchedule
    #[arg(long, value_name = "TAINTS", default_value = "", hide_default_value = true)]
    register_with_taints: String,
    /// A directory of manifests whose Pods every node runs without being asked by the API
    #[arg(long, value_name = "DIR")]
    pod_manifest_path: Option<PathBuf>,
    /// A CRI v1 endpoint, unix:///path or tcp://host:port, instead of the mock runtime
    #[arg(long, value_name = "ENDPOINT", requires = "hostname_override")]
    container_runtime_endpoint: Option<String>,
}

impl Kubelet {
    /// Runs them until a signal comes.
    pub fn run(self) -> Result<(), String> {
        let options = || Ok(Options { nodes: self.nodes()?, ..Options::default() });
        run(&self.reach, &Selection::only(&["kubelet"]), options)
    }

    fn nodes(&self) -> Result<Nodes, String> {
        let default = NodeConfig::default();
        let config = NodeConfig {
            labels: pairs(&self.node_labels).ok_or_else(|| format!("--node-labels takes key=value,…, not {:?}", self.node_labels))?,
            taints: taints(&self.register_with_taints)?,
            static_pod_path: self.pod_manifest_path.clone(),
            first_ip: self.node_ip.unwrap_or(default.first_ip),
            ..default
        };
        let nodes = Nodes::new(config, self.container_runtime_endpoint.as_deref().map(runtime_for).transpose()?);
        match &self.hostname_override {
            Some(name) => nodes.add(name),
            None => nodes.add_numbered(self.nodes),
        }
        Ok(nodes)
    }
}

fn runtime_for(endpoint: &str) -> Result<RuntimeFor, String> {
    let runtime = GrpcRuntime::new(endpoint, Clock::system()).map_err(|e| format!("--container-runtime-endpoint: {e}"))?;
    let runtime: Arc<dyn ContainerRuntime> = Arc::new(runtime);
    Ok(Arc::new(move |_| runtime.clone()))
}

fn pairs(text: &str) -> Option<BTreeMap<String, String>> {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()))).collect()
}

fn taints(text: &str) -> Result<Vec<Taint>, String> {
    let taint = |text: &str| {
        let (place, effect) =
            text.rsplit_once(':').filter(|(_, effect)| ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(effect))?;
        let (key, value) = place.split_once('=').unwrap_or((place, ""));
        let value = Some(value.to_owned()).filter(|value| !value.is_empty());
        (!key.is_empty()).then(|| Taint { key: key.to_owned(), value, effect: effect.to_owned(), time_added: None })
    };
    let bad =
        |one: &str| format!("--register-with-taints takes key=value:effect,… with NoSchedule, PreferNoSchedule or NoExecute, not {one:?}");
    text.split(',').filter(|one| !one.is_empty()).map(|one| taint(one).ok_or_else(|| bad(one))).collect()
}

/// Runs what is selected until a signal comes.
fn run(reach: &Reach, selection: &Selection, options: impl FnOnce() -> Result<Options, String>) -> Result<(), String> {
    super::up::log_to_stderr();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let options = options()?;
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

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_taints_are_written_as_a_kubelet_takes_them() {
        assert_eq!(pairs("a=b,c/d=").unwrap(), BTreeMap::from([("a".into(), "b".into()), ("c/d".into(), String::new())]));
        assert_eq!((pairs("").map(|pairs| pairs.len()), pairs("a")), (Some(0), None));
        let taint = |key: &str, value: Option<&str>, effect: &str| Taint {
            key: key.into(),
            value: value.map(str::to_owned),
            effect: effect.into(),
            time_added: None,
        };
        assert_eq!(
            taints("gpu=true:NoSchedule,x:NoExecute").unwrap(),
            [taint("gpu", Some("true"), "NoSchedule"), taint("x", None, "NoExecute")]
        );
        assert!(taints("gpu=true").is_err() && taints("gpu:Never").is_err() && taints(":NoExecute").is_err());
    }
}
