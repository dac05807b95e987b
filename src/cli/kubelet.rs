//! `usher kubelet`: nodes in a process of their own, against any API server, on the mock runtime or on a real one. Each has a server of its
//! own for the API server to ask for logs, and answers nobody else.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use clap::Args;
use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Taint;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use usher_components::controllers::certificates::pem;
use usher_components::cri::grpc::GrpcRuntime;
use usher_components::cri::{ContainerRuntime, RuntimeFor};
use usher_components::kubelet::{NodeConfig, Nodes, numbered};
use usher_components::{Clock, Options, Selection};

use super::client::Reach;
use super::components::{read, run};
use crate::authn::PeerCertificates;
use crate::authn::x509::Authorities;
use crate::gateway::{listener, pki, tls};

pub const EXAMPLES: &str = "Examples:
  usher kubelet --nodes 3                                       three nodes on the mock runtime
  usher kubelet --hostname-override gpu-1 --node-labels pool=gpu
  usher kubelet --hostname-override a --register-with-taints gpu=true:NoSchedule
  usher kubelet --hostname-override b --container-runtime-endpoint unix:///run/crio/crio.sock";

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
    /// The address at which the API server finds the nodes [default: that of this machine]
    #[arg(long, value_name = "ADDRESS")]
    node_ip: Option<IpAddr>,
    /// The port of the first node's server, the others follow; 0 is any that is free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Who vouches for the certificate that the API server shows [default: the CA of the kubeconfig]
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
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
        let options = async || Ok(Options { nodes: self.nodes().await?, ..Options::default() });
        run(&self.reach, &Selection::only(&["kubelet"]), options)
    }

    async fn nodes(&self) -> Result<Nodes, String> {
        let server = self.reach.config().await?;
        let ip = self.node_ip.unwrap_or_else(|| own_address(server.cluster_url.host().unwrap_or_default()));
        let config = NodeConfig {
            labels: pairs(&self.node_labels).ok_or_else(|| format!("--node-labels takes key=value,…, not {:?}", self.node_labels))?,
            taints: taints(&self.register_with_taints)?,
            static_pod_path: self.pod_manifest_path.clone(),
            ip: Some(ip),
            ..NodeConfig::default()
        };
        let nodes = Nodes::new(config, self.container_runtime_endpoint.as_deref().map(runtime_for).transpose()?);
        let names: Vec<String> = match &self.hostname_override {
            Some(name) => vec![name.clone()],
            None => numbered(self.nodes).collect(),
        };
        let authorities = Arc::new(Authorities::new(Arc::new(jiff::Timestamp::now)));
        let ca = match &self.client_ca_file {
            Some(file) => read(file)?,
            None => server.root_cert.iter().flatten().map(|der| pem("CERTIFICATE", der)).collect(),
        };
        // Where nobody vouches for anybody, nobody is answered.
        if !ca.is_empty() {
            authorities.replace(ca.as_bytes()).map_err(|e| format!("the CA of the API server: {e}"))?;
        }
        for (number, name) in (0..).zip(names) {
            let port = if self.port == 0 { 0 } else { self.port.saturating_add(number) };
            nodes.set_port(&name, serve(&nodes, &name, SocketAddr::new(ip, port), authorities.clone()).await?);
            nodes.add(&name);
        }
        Ok(nodes)
    }
}

/// The address of this machine as the API server sees it; a way is looked for, nothing is sent.
fn own_address(server: &str) -> IpAddr {
    let towards = |host: &str| -> Option<IpAddr> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.connect((host, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    // A Pod must not have a loopback address, and with the host's network it has the node's.
    let public = |ip: &IpAddr| !ip.is_loopback() && !ip.is_unspecified();
    towards(server).filter(public).or_else(|| towards("192.0.2.1").filter(public)).unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// Opens the server of a node, and says at which port it is.
async fn serve(nodes: &Nodes, name: &str, address: SocketAddr, authorities: Arc<Authorities>) -> Result<u16, String> {
    let socket = TcpListener::bind(address).await.map_err(|e| format!("cannot listen on {address}: {e}"))?;
    let port = socket.local_addr().map_err(|e| e.to_string())?.port();
    let (certificate, key) = pki::self_signed(name)?;
    let config = tls::server_config(certificate.as_bytes(), key.as_bytes())?;
    let (nodes, name) = (nodes.clone(), name.to_owned());
    let door = tower::service_fn(move |request: Request<Body>| {
        let (nodes, name, authorities) = (nodes.clone(), name.clone(), authorities.clone());
        async move { Ok(answer(&nodes, &name, &authorities, request).await) }
    });
    tokio::spawn(listener::serve(socket, config, door, CancellationToken::new()));
    Ok(port)
}

async fn answer(nodes: &Nodes, name: &str, authorities: &Authorities, request: Request<Body>) -> Response<Body> {
    let refuse = |code: StatusCode, text: &'static str| {
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = code;
        response
    };
    let shown = request.extensions().get::<PeerCertificates>().cloned().unwrap_or_default();
    match authorities.verify(&shown.0) {
        Ok(Some(user)) if user.name == pki::KUBELET_CLIENT => {}
        Ok(Some(_)) => return refuse(StatusCode::FORBIDDEN, "Forbidden\n"),
        Ok(None) | Err(_) => return refuse(StatusCode::UNAUTHORIZED, "Unauthorized\n"),
    }
    let uri = request.into_parts().0.uri;
    match nodes.server(name) {
        Some(server) => server.get(uri.path(), uri.query().unwrap_or_default()).await.map(Body::new),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "the node is not there yet\n"),
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
