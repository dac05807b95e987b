//! Where a webhook is: a URL, or a Service. A Service is looked up in the local service map first, so that a chart's configuration
//! reaches a webhook on this machine without being edited, and else through the Service's own endpoints.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine;
use serde_json::Value;

use crate::admission::Cluster;

/// `clientConfig`.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Whom to trust; empty is whom the machine trusts.
    pub ca_bundle: Arc<[u8]>,
    target: Target,
}

#[derive(Clone, Debug)]
enum Target {
    Url(String),
    Service(Service),
}

/// A Service that a webhook stands behind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The port of the Service.
    pub port: u16,
    /// The path to ask for, with a leading slash.
    pub path: String,
}

impl Endpoint {
    /// Reads a client configuration.
    pub fn from_value(config: &Value) -> Endpoint {
        let engine = base64::engine::general_purpose::STANDARD;
        let ca_bundle = config["caBundle"].as_str().and_then(|text| engine.decode(text).ok()).unwrap_or_default().into();
        let service = &config["service"];
        let target = match config["url"].as_str() {
            Some(url) => Target::Url(url.to_owned()),
            None => {
                let path = service["path"].as_str().unwrap_or("/");
                Target::Service(Service {
                    namespace: service["namespace"].as_str().unwrap_or_default().to_owned(),
                    name: service["name"].as_str().unwrap_or_default().to_owned(),
                    port: service["port"].as_u64().and_then(|p| u16::try_from(p).ok()).unwrap_or(443),
                    path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
                })
            }
        };
        Endpoint { ca_bundle, target }
    }

    /// The Service, if it is one.
    pub fn service(&self) -> Option<&Service> {
        match &self.target {
            Target::Service(service) => Some(service),
            Target::Url(_) => None,
        }
    }

    /// The URL as messages show it.
    pub fn shown_url(&self, timeout_seconds: u64) -> String {
        match &self.target {
            Target::Url(url) => {
                // Go writes the path of a bare host as nothing, and joins the query to it.
                let separator = if url.contains('?') { '&' } else { '?' };
                format!("{url}{separator}timeout={timeout_seconds}s")
            }
            Target::Service(s) => format!("https://{}.{}.svc:{}{}?timeout={timeout_seconds}s", s.name, s.namespace, s.port, s.path),
        }
    }

    /// The URL to ask for. The port of a Service is the resolver's business and therefore left out.
    pub fn url(&self, timeout_seconds: u64) -> String {
        match &self.target {
            Target::Url(_) => self.shown_url(timeout_seconds),
            Target::Service(s) => format!("https://{}.{}.svc{}?timeout={timeout_seconds}s", s.name, s.namespace, s.path),
        }
    }
}

/// Services that are served from elsewhere: `namespace/name` or `namespace/name:port` to `host:port`.
#[derive(Debug, Default)]
pub struct ServiceMap(ArcSwap<BTreeMap<String, String>>);

impl ServiceMap {
    /// A map with these entries.
    pub fn new(entries: impl IntoIterator<Item = (String, String)>) -> ServiceMap {
        ServiceMap(ArcSwap::from_pointee(entries.into_iter().collect()))
    }

    /// Puts other entries in force.
    pub fn replace(&self, entries: impl IntoIterator<Item = (String, String)>) {
        self.0.store(Arc::new(entries.into_iter().collect()));
    }

    /// Where a Service is served from, if the map knows it; one with the port counts more than one without.
    pub fn lookup(&self, service: &Service) -> Option<String> {
        let entries = self.0.load();
        let name = format!("{}/{}", service.namespace, service.name);
        entries.get(&format!("{name}:{}", service.port)).or_else(|| entries.get(&name)).cloned()
    }
}

/// Finds the address of a Service.
///
/// # Errors
/// In the words of a real server.
pub async fn resolve(service: &Service, map: &ServiceMap, cluster: &Cluster) -> Result<SocketAddr, String> {
    let target = match map.lookup(service) {
        Some(target) => target,
        None => through_service(service, cluster).await?,
    };
    let resolved = tokio::net::lookup_host(&target).await.map_err(|e| format!("dial tcp: lookup {target}: {e}"))?;
    resolved.into_iter().next().ok_or_else(|| format!("dial tcp: lookup {target}: no such host"))
}

async fn through_service(service: &Service, cluster: &Cluster) -> Result<String, String> {
    let (namespace, name) = (&service.namespace, &service.name);
    let text = |status: crate::status::Status| status.message;
    let object = cluster.get("services", namespace, name).await.map_err(text)?.ok_or_else(|| format!("service {name:?} not found"))?;
    let spec = &object.value()["spec"];
    if spec["type"] == "ExternalName" {
        return Ok(format!("{}:{}", spec["externalName"].as_str().unwrap_or_default(), service.port));
    }
    let port = spec["ports"].as_array().into_iter().flatten().find(|p| p["port"].as_u64() == Some(u64::from(service.port)));
    let port = port.ok_or_else(|| format!("no service port {} found for service {name:?}", service.port))?;
    let wanted = port["name"].as_str().unwrap_or_default();
    for slice in cluster.list("endpointslices", namespace).await.map_err(text)? {
        let slice = slice.value();
        if slice.pointer("/metadata/labels/kubernetes.io~1service-name").and_then(Value::as_str) != Some(name) {
            continue;
        }
        let ports = slice["ports"].as_array().into_iter().flatten();
        let Some(port) = ports.filter(|p| p["name"].as_str().unwrap_or_default() == wanted).find_map(|p| p["port"].as_u64()) else {
            continue;
        };
        let ready = |e: &&Value| e["conditions"]["ready"].as_bool().unwrap_or(true);
        let endpoint = slice["endpoints"].as_array().into_iter().flatten().find(ready);
        if let Some(address) = endpoint.and_then(|e| e["addresses"][0].as_str()) {
            return Ok(if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") });
        }
    }
    Err(format!("no endpoints available for service {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_service_is_shown_with_its_port_and_asked_for_without() {
        let endpoint = Endpoint::from_value(&json!({"service": {"namespace": "ns", "name": "svc", "path": "validate"}}));
        assert_eq!(endpoint.shown_url(10), "https://svc.ns.svc:443/validate?timeout=10s");
        assert_eq!(endpoint.url(10), "https://svc.ns.svc/validate?timeout=10s");
        let url = Endpoint::from_value(&json!({"url": "https://127.0.0.1:16500/slow"}));
        assert_eq!(url.shown_url(1), "https://127.0.0.1:16500/slow?timeout=1s");
    }

    #[test]
    fn an_entry_with_the_port_counts_more() {
        let map = ServiceMap::new([("ns/svc".into(), "127.0.0.1:1".into()), ("ns/svc:8443".into(), "127.0.0.1:2".into())]);
        let service = |port| Service { namespace: "ns".into(), name: "svc".into(), port, path: "/".into() };
        assert_eq!(map.lookup(&service(443)).as_deref(), Some("127.0.0.1:1"));
        assert_eq!(map.lookup(&service(8443)).as_deref(), Some("127.0.0.1:2"));
    }
}
