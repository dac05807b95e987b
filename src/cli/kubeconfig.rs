//! `usher kubeconfig`: how to reach the server of a data directory as its administrator.

use std::path::{Path, PathBuf};

use base64::Engine;
use clap::Args;
use serde_json::json;

use crate::gateway::pki::Pki;

pub(super) const EXAMPLES: &str = "Examples:\n  usher kubeconfig > ~/.kube/config\n  usher kubeconfig --data-dir /var/lib/usher --server https://gateway.example.com:6443";

/// Which server.
#[derive(Debug, Args)]
pub struct Kubeconfig {
    /// The data directory of the server
    #[arg(long, env = "USHER_DATA_DIR", default_value = super::config::DATA_DIR)]
    data_dir: PathBuf,
    /// The address that clients use [default: where the server of the data directory last listened]
    #[arg(long, env = "USHER_SERVER")]
    server: Option<String>,
}

impl Kubeconfig {
    /// Prints it.
    pub fn run(self) -> Result<(), String> {
        let directory = self.data_dir.join("pki");
        if !directory.join("ca.crt").exists() {
            return Err(format!(
                "{} holds no server yet; start one with: usher up --data-dir {}",
                self.data_dir.display(),
                self.data_dir.display()
            ));
        }
        let pki = Pki::open(Some(&directory), &[])?;
        let server = self.server.or_else(|| listened(&self.data_dir)).unwrap_or_else(|| format!("https://{}", super::config::LISTEN));
        super::output::print(&text(&pki.ca, &server, "kubernetes-admin", &pki.admin, &pki.admin_key))
    }
}

/// The address in the kubeconfig that the server wrote when it last started.
fn listened(data_dir: &Path) -> Option<String> {
    let written = kube::config::Kubeconfig::read_from(data_dir.join("kubeconfig")).ok()?;
    written.clusters.into_iter().next()?.cluster?.server
}

/// A kubeconfig for one user with a client certificate.
pub fn text(ca: &str, server: &str, user: &str, certificate: &str, key: &str) -> String {
    let encode = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "usher", "preferences": {},
        "clusters": [{"name": "usher", "cluster": {"server": server, "certificate-authority-data": encode(ca)}}],
        "contexts": [{"name": "usher", "context": {"cluster": "usher", "user": user}}],
        "users": [{"name": user, "user": {"client-certificate-data": encode(certificate), "client-key-data": encode(key)}}],
    });
    crate::api::yaml::write(&config)
}

/// Writes it where only its owner reads it.
pub fn write(path: &Path, content: &str) -> Result<(), String> {
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(|e| format!("cannot make {}: {e}", parent.display()))?;
    }
    crate::gateway::pki::write(path, content, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_the_one_that_the_server_last_listened_on() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(listened(dir.path()), None);
        write(&dir.path().join("kubeconfig"), &text("ca", "https://127.0.0.1:7443", "admin", "certificate", "key")).unwrap();
        assert_eq!(listened(dir.path()).as_deref(), Some("https://127.0.0.1:7443"));
    }
}
