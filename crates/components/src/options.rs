//! What a process that runs components is told about the cluster it runs them for.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    controllers::certificates::CertificateAuthority,
    kubelet::Nodes,
    runtime::{Identity, LeaderElection},
};

/// Settings of all components.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who lists and watches for the shared caches.
    pub watch_identity: Identity,
    /// Whether several processes could run these components, and one of them shall.
    pub leader_election: Option<LeaderElection>,
    /// The certificate authority of the server, in PEM, for `kube-root-ca.crt`. Without it that is not published.
    pub root_ca: Option<String>,
    /// What the built-in signers sign CertificateSigningRequests with. Without it nothing is signed.
    pub cluster_signing: Option<Arc<CertificateAuthority>>,
    /// What signs the tokens in Secrets of ServiceAccounts. Without it none is put there.
    pub token_signer: Option<TokenSigner>,
    /// The range that the nodes' Pod ranges are cut from.
    pub cluster_cidr: String,
    /// How long the prefix of a node's range is.
    pub node_cidr_mask_size: u8,
    /// For how long a node may be silent before its state is unknown.
    pub node_monitor_grace_period: Duration,
    /// How often nodes are looked at.
    pub node_monitor_period: Duration,
    /// How many terminated Pods are kept in the cluster.
    pub terminated_pod_gc_threshold: usize,
    /// The nodes whose kubelets run in this process.
    pub nodes: Nodes,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            watch_identity: Identity::controller_manager(),
            leader_election: None,
            root_ca: None,
            cluster_signing: None,
            token_signer: None,
            cluster_cidr: "10.244.0.0/16".into(),
            node_cidr_mask_size: 24,
            node_monitor_grace_period: Duration::from_secs(50),
            node_monitor_period: Duration::from_secs(5),
            terminated_pod_gc_threshold: 12_500,
            nodes: Nodes::default(),
        }
    }
}

/// Signs the token in a Secret, of an account given by its namespace, name and uid, and the name of the Secret.
#[derive(Clone)]
pub struct TokenSigner(Arc<Sign>);

type Sign = dyn Fn(&str, &str, &str, &str) -> Result<String, String> + Send + Sync;

impl TokenSigner {
    /// One that signs like this.
    pub fn new(sign: impl Fn(&str, &str, &str, &str) -> Result<String, String> + Send + Sync + 'static) -> Self {
        TokenSigner(Arc::new(sign))
    }

    /// The token.
    pub fn sign(&self, namespace: &str, account: &str, uid: &str, secret: &str) -> Result<String, String> {
        (self.0)(namespace, account, uid, secret)
    }
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSigner")
    }
}
