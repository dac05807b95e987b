//! What is handed on to where a Pod runs: its log, commands and terminals in it, its ports, and requests by proxy to a Pod, a Service or a
//! Node. Finds out where that is, and says what is wrong where there is no such place. Logs and plain requests are carried; a connection that
//! is to become another protocol is refused once everything else about it is right, since no runtime here has a process to connect to.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};

use super::Api;
use super::patch::go;
use super::read::{key, store_error};
use super::subresource::Answer;
use super::target::Target;
use crate::admission::webhook::client::explain;
use crate::object::Object;
use crate::status::{FieldError, Status};

/// How long a connection may take to come about.
const DIAL: Duration = Duration::from_secs(30);

/// The port of a kubelet that does not say which it has.
const KUBELET_PORT: u64 = 10250;

/// Which of a node's addresses is taken: what can be reached without a name server comes first.
const ADDRESSES: &[&str] = &["InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"];

/// Connections to whom requests are handed on. Whoever answers there has no certificate that anybody could check.
static CLIENT: LazyLock<Option<reqwest::Client>> = LazyLock::new(|| connections().build().ok());

fn connections() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(DIAL)
        .tls_danger_accept_invalid_certs(true)
}

/// Connections to kubelets, which want to see a certificate. Made when the first is asked for something.
pub struct Kubelets(LazyLock<Option<reqwest::Client>, Box<dyn FnOnce() -> Option<reqwest::Client> + Send>>);

impl Kubelets {
    /// With a certificate and its key, both PEM.
    pub fn new(certificate: &str, key: &str) -> Self {
        let pem = format!("{certificate}\n{key}");
        let client = move || connections().identity(reqwest::Identity::from_pem(pem.as_bytes()).ok()?).build().ok();
        Kubelets(LazyLock::new(Box::new(client)))
    }
}

/// Where a kubelet listens.
struct Kubelet {
    host: String,
    port: u64,
}

/// A backend of a proxied request.
struct Location {
    scheme: &'static str,
    host: String,
    /// Whether it is a kubelet, which wants to know who asks.
    kubelet: bool,
}

impl Api {
    /// Connects to a Pod, a Service or a Node.
    pub(super) async fn connect(&self, target: &Target, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        match (&*target.resource.plural, target.subresource.as_str()) {
            ("pods", "exec" | "attach" | "portforward") => self.stream(target, &parts.headers).await,
            ("pods" | "services" | "nodes", "proxy") => self.proxy(target, parts, bytes).await,
            _ => Err(Status::new(501, "NotImplemented", format!("{} is not served here", target.subresource))),
        }
    }

    async fn stream(&self, target: &Target, headers: &HeaderMap) -> Result<Answer, Status> {
        // Whoever upgrades a GET does what others do by POST, and must be allowed to.
        if target.context.info.verb != "create" {
            let (_, decision) = self.may_create(target).await;
            if !decision.is_allow() {
                return Err(Status::forbidden("", "pods", &target.name, decision.reason()));
            }
        }
        let pod = self.existing("pods", &target.namespace, &target.name).await?;
        let pod = pod.value();
        let asked = target.context.parameter("container").unwrap_or_default();
        if target.subresource != "portforward" {
            container_of(pod, &target.name, &asked)?;
        }
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if node.is_empty() {
            return Err(Status::bad_request(format!("pod {} does not have a host assigned", target.name)));
        }
        let kubelet = self.kubelet_of(node).await?;
        if !is_upgrade(headers) {
            return Err(Status::bad_request("Upgrade request required"));
        }
        if self.nodes.server(node).is_none() {
            dial(&kubelet.host, kubelet.port).await.map_err(|why| Status::unclassified(format!("error dialing backend: {why}")))?;
        }
        Err(Status::new(501, "NotImplemented", format!("{} needs a runtime with processes, and node {node} has none", target.subresource)))
    }

    /// The log of a container, from the kubelet of the Pod's node.
    pub(super) async fn log(&self, target: &Target) -> Result<Answer, Status> {
        check_log_options(target)?;
        let pod = self.existing("pods", &target.namespace, &target.name).await?;
        let pod = pod.value();
        let asked = target.context.parameter("container").unwrap_or_default();
        let container = container_of(pod, &target.name, &asked)?;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if node.is_empty() {
            // Nothing has run, so there is nothing to show.
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
            return Ok(Answer::Response(response));
        }
        let path = format!("/containerLogs/{}/{}/{container}", target.namespace, target.name);
        let response = match self.nodes.server(node) {
            Some(server) => server.get(&path, &target.context.query).await.map(Body::new),
            None => {
                let pairs = target.context.query.split('&').filter(|pair| pair.split_once('=').is_some_and(|(key, _)| is_of_a_log(key)));
                self.ask_kubelet(node, &path, &pairs.collect::<Vec<_>>().join("&")).await?
            }
        };
        match response.status().as_u16() {
            200 => Ok(Answer::Response(response)),
            code => {
                // The kubelet answers in plain text; clients of this API read a Status.
                let text = super::body::read(response.into_body()).await?;
                let reason = if code == 404 { "NotFound" } else { "BadRequest" };
                Err(Status::new(code, reason, String::from_utf8_lossy(&text).trim_end()))
            }
        }
    }

    /// Asks a kubelet that is not of this process.
    async fn ask_kubelet(&self, node: &str, path: &str, query: &str) -> Result<Response<Body>, Status> {
        let Kubelet { host, port } = self.kubelet_of(node).await?;
        let address = joined(&host, port);
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        let failed = |why: String| Status::unclassified(format!("Get \"https://{address}{path}{query}\": {why}"));
        dial(&host, port).await.map_err(failed)?;
        let client = self.kubelets.0.as_ref().ok_or_else(|| failed("no client".into()))?;
        let url = format!("https://{address}{path}{query}");
        let answer = client.get(&url).send().await.map_err(|error| failed(explain(&error, address.parse().ok(), &url)))?;
        let (parts, body) = http::Response::<reqwest::Body>::from(answer).into_parts();
        let mut response = Response::new(Body::new(body));
        *response.status_mut() = parts.status;
        response.headers_mut().extend(parts.headers.get(header::CONTENT_TYPE).map(|kind| (header::CONTENT_TYPE, kind.clone())));
        Ok(response)
    }

    async fn proxy(&self, target: &Target, parts: &Parts, bytes: &[u8]) -> Result<Answer, Status> {
        let plural = &*target.resource.plural;
        let kind = plural.trim_end_matches('s');
        let Some((scheme, name, port)) = split(&target.name) else {
            return Err(Status::bad_request(format!("invalid {kind} request {}", go::quoted(&target.name))));
        };
        let location = match plural {
            "pods" => self.pod_location(&target.namespace, scheme, name, port).await?,
            "services" => self.service_location(&target.namespace, scheme, name, port).await?,
            _ => {
                let kubelet = self.kubelet(name).await?;
                reachable(&kubelet.host).await?;
                let own = port.is_empty() || port == kubelet.port.to_string();
                let server = self.nodes.server(name).filter(|_| own && parts.method == Method::GET);
                if let Some(server) = server.filter(|_| parts.uri.path().trim_end_matches("/proxy") == parts.uri.path()) {
                    let response = server.get(&target.context.info.remainder, &target.context.query).await;
                    return Ok(Answer::Response(response.map(Body::new)));
                }
                match own {
                    true => Location { scheme: "https", host: joined(&kubelet.host, kubelet.port), kubelet: true },
                    false => Location { scheme, host: format!("{}:{port}", bracketed(&kubelet.host)), kubelet: false },
                }
            }
        };
        self.forward(target, parts, bytes, &location).await
    }

    /// Hands a request on and its answer back.
    async fn forward(&self, target: &Target, parts: &Parts, bytes: &[u8], to: &Location) -> Result<Answer, Status> {
        let asked = parts.uri.path();
        let remainder = &target.context.info.remainder;
        let mut path = if remainder.is_empty() { String::new() } else { format!("/{remainder}") };
        if asked.ends_with('/') && !path.ends_with('/') {
            path.push('/');
        }
        let query = parts.uri.query().filter(|query| !query.is_empty()).map(|query| format!("?{query}")).unwrap_or_default();
        if path.is_empty() && matches!(parts.method, Method::GET | Method::HEAD) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
            if let Ok(place) = HeaderValue::from_str(&format!("{asked}/{query}")) {
                response.headers_mut().insert(header::LOCATION, place);
            }
            return Ok(Answer::Response(response));
        }
        if is_upgrade(&parts.headers) {
            dial_address(&to.host).await.map_err(|why| Status::unclassified(format!("error dialing backend: {why}")))?;
            return Err(Status::new(501, "NotImplemented", "a connection that becomes another protocol is not carried"));
        }
        let unreachable = |why: String| Status::new(503, "ServiceUnavailable", format!("error trying to reach service: {why}"));
        let client = if to.kubelet { &*self.kubelets.0 } else { &*CLIENT };
        let Some(client) = client else { return Err(unreachable("no client".into())) };
        let url = format!("{}://{}{path}{query}", to.scheme, to.host);
        let mut outgoing = client.request(parts.method.clone(), &url).headers(carried(&parts.headers));
        for (name, value) in [("x-forwarded-uri", asked), ("x-forwarded-proto", "https")] {
            outgoing = outgoing.header(name, value);
        }
        if !bytes.is_empty() {
            outgoing = outgoing.body(bytes.to_vec());
        }
        match outgoing.send().await {
            Ok(answer) => {
                let (mut parts, body) = http::Response::<reqwest::Body>::from(answer).into_parts();
                parts.headers = carried(&parts.headers);
                parts.version = http::Version::default();
                Ok(Answer::Response(Response::from_parts(parts, Body::new(body))))
            }
            Err(error) if error.is_timeout() && error.is_connect() => Err(unreachable(format!("dial tcp {}: i/o timeout", to.host))),
            Err(error) => Err(unreachable(explain(&error, to.host.parse().ok(), &url))),
        }
    }

    async fn pod_location(&self, namespace: &str, scheme: &'static str, name: &str, port: &str) -> Result<Location, Status> {
        let pod = self.existing("pods", namespace, name).await?;
        let pod = pod.value();
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let first = containers.into_iter().find_map(|container| container["ports"][0]["containerPort"].as_u64());
        let port = if port.is_empty() { first.map(|port| port.to_string()).unwrap_or_default() } else { port.to_owned() };
        let address = pod["status"]["podIPs"][0]["ip"].as_str().and_then(|ip| ip.parse::<IpAddr>().ok());
        let Some(address) = address.filter(is_global_unicast) else { return Err(Status::bad_request("address not allowed")) };
        let host = bracketed(&address.to_string());
        Ok(Location { scheme, host: if port.is_empty() { host } else { format!("{host}:{port}") }, kubelet: false })
    }

    /// An endpoint of a Service that is ready and a Pod.
    async fn service_location(&self, namespace: &str, scheme: &'static str, name: &str, port: &str) -> Result<Location, Status> {
        let unavailable = |text: String| Status::new(503, "ServiceUnavailable", text);
        let mut port = port.to_owned();
        if let Ok(number) = port.parse::<i64>() {
            let service = self.existing("services", namespace, name).await?;
            let ports = service.value()["spec"]["ports"].as_array().cloned().unwrap_or_default();
            let Some(known) = ports.iter().find(|known| known["port"].as_i64() == Some(number)) else {
                return Err(unavailable(format!("no service port {number} found for service {}", go::quoted(name))));
            };
            port = known["name"].as_str().unwrap_or_default().to_owned();
        }
        let slices = match self.registry.lookup("discovery.k8s.io", "v1", "endpointslices") {
            Some(resource) => {
                let topic = self.state.topic(&resource.storage).await.map_err(store_error)?;
                let label = |slice: &Object| slice.value().pointer("/metadata/labels/kubernetes.io~1service-name") == Some(&json!(name));
                topic.list(&key(&resource, namespace, ""), None, 0, 0, label).objects
            }
            None => Vec::new(),
        };
        for slice in &slices {
            let slice = slice.value();
            let ports = slice["ports"].as_array().into_iter().flatten();
            let number =
                ports.into_iter().find(|known| known["name"].as_str().unwrap_or_default() == port).and_then(|p| p["port"].as_u64());
            let Some(number) = number else { continue };
            for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                if endpoint["conditions"]["ready"] != false
                    && let Some(address) = self.address_of(namespace, endpoint).await
                {
                    return Ok(Location { scheme, host: format!("{}:{number}", bracketed(&address)), kubelet: false });
                }
            }
        }
        Err(unavailable(format!("no endpoints available for service {}", go::quoted(name))))
    }

    /// The address of an endpoint, if it is one of the Pod that it names: nobody is led anywhere else.
    async fn address_of(&self, namespace: &str, endpoint: &Value) -> Option<String> {
        let address = endpoint["addresses"][0].as_str()?;
        let reference = &endpoint["targetRef"];
        if reference["namespace"] != *namespace {
            return None;
        }
        let pod = self.existing("pods", namespace, reference["name"].as_str()?).await.ok()?;
        let own = pod.value()["status"]["podIPs"].as_array()?.iter().any(|ip| ip["ip"] == *address);
        own.then(|| address.to_owned())
    }

    /// The kubelet of a Pod's node. Whoever asks for a Pod is told of the missing node as of a missing Pod.
    async fn kubelet_of(&self, node: &str) -> Result<Kubelet, Status> {
        self.kubelet(node).await.map_err(|status| if status.reason == "NotFound" { Status::not_found("", "pods", node) } else { status })
    }

    async fn kubelet(&self, node: &str) -> Result<Kubelet, Status> {
        let node = self.existing("nodes", "", node).await?;
        let status = &node.value()["status"];
        let addresses = status["addresses"].as_array().cloned().unwrap_or_default();
        let host = ADDRESSES.iter().find_map(|kind| addresses.iter().find(|a| a["type"] == **kind)?["address"].as_str());
        let Some(host) = host else {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let known: Vec<String> = addresses.iter().map(|a| format!("{{{} {}}}", text(&a["type"]), text(&a["address"]))).collect();
            return Err(Status::unclassified(format!("no preferred addresses found; known addresses: [{}]", known.join(" "))));
        };
        let port = status["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().filter(|port| *port > 0).unwrap_or(KUBELET_PORT);
        Ok(Kubelet { host: host.to_owned(), port })
    }

    async fn existing(&self, plural: &str, namespace: &str, name: &str) -> Result<Arc<Object>, Status> {
        let not_found = || Status::not_found("", plural, name);
        self.settle().await?;
        let resource = self.registry.lookup("", "v1", plural).ok_or_else(not_found)?;
        let topic = self.state.topic(&resource.storage).await.map_err(store_error)?;
        topic.get(&key(&resource, namespace, name)).ok_or_else(not_found)
    }
}

/// `name`, `name:port` or `scheme:name:port`.
fn split(id: &str) -> Option<(&'static str, &str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("", *name, ""),
        [name, port] => ("", *name, *port),
        [scheme, name, port] => (*scheme, *name, *port),
        _ => return None,
    };
    let scheme = match scheme {
        "" | "http" => "http",
        "https" => "https",
        _ => return None,
    };
    (!name.is_empty()).then_some((scheme, name, port))
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn joined(host: &str, port: u64) -> String {
    format!("{}:{port}", bracketed(host))
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONNECTION).iter().any(|value| value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains("upgrade")))
}

fn is_global_unicast(address: &IpAddr) -> bool {
    let special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    let local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !special && !local
}

/// A proxy to a node must not lead to what only this machine can reach.
async fn reachable(host: &str) -> Result<(), Status> {
    let found: Vec<SocketAddr> = match tokio::net::lookup_host((host, 0)).await {
        Ok(found) => found.collect(),
        Err(_) => return Err(Status::bad_request(format!("lookup {host}: no such host"))),
    };
    match found.iter().all(|address| is_global_unicast(&address.ip())) {
        true => Ok(()),
        false => Err(Status::bad_request("address not allowed")),
    }
}

async fn dial(host: &str, port: u64) -> Result<(), String> {
    dial_address(&joined(host, port)).await
}

/// Whether anybody listens, with Go's words for it if not.
async fn dial_address(address: &str) -> Result<(), String> {
    let address = if address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        address.to_owned()
    } else {
        format!("{address}:80")
    };
    match tokio::time::timeout(DIAL, tokio::net::TcpStream::connect(&address)).await {
        Ok(Ok(_)) => Ok(()),
        Err(_) => Err(format!("dial tcp {address}: i/o timeout")),
        Ok(Err(error)) => Err(match error.kind() {
            std::io::ErrorKind::ConnectionRefused => format!("dial tcp {address}: connect: connection refused"),
            std::io::ErrorKind::NetworkUnreachable => format!("dial tcp {address}: connect: network is unreachable"),
            std::io::ErrorKind::HostUnreachable => format!("dial tcp {address}: connect: no route to host"),
            _ => format!("dial tcp: lookup {}: no such host", address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host)),
        }),
    }
}

/// The headers that travel: none that are about one connection, none that say who asks.
fn carried(given: &HeaderMap) -> HeaderMap {
    let stays = |name: &HeaderName| {
        let name = name.as_str();
        name.starts_with("impersonate-")
            || matches!(
                name,
                "connection"
                    | "keep-alive"
                    | "proxy-authenticate"
                    | "proxy-authorization"
                    | "proxy-connection"
                    | "te"
                    | "trailer"
                    | "transfer-encoding"
                    | "upgrade"
                    | "host"
                    | "authorization"
                    | "content-length"
            )
    };
    given.iter().filter(|(name, _)| !stays(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The options of a log that a kubelet is told.
fn is_of_a_log(key: &str) -> bool {
    matches!(key, "follow" | "previous" | "sinceSeconds" | "sinceTime" | "timestamps" | "tailLines" | "limitBytes" | "stream")
}

/// What the options of a log may be.
fn check_log_options(target: &Target) -> Result<(), Status> {
    let number = |name: &str| super::options::integer(&target.context.parameter(name).unwrap_or_default());
    let given = |name: &str| target.context.parameter(name).filter(|text| !text.is_empty());
    let (tail, limit, since) = (number("tailLines")?, number("limitBytes")?, number("sinceSeconds")?);
    let mut errors = Vec::new();
    if let Some(lines) = tail.filter(|lines| *lines < 0) {
        errors.push(FieldError::invalid("tailLines", &json!(lines), "must be greater than or equal to 0"));
    }
    if let Some(bytes) = limit.filter(|bytes| *bytes < 1) {
        errors.push(FieldError::invalid("limitBytes", &json!(bytes), "must be greater than 0"));
    }
    match (since, given("sinceTime")) {
        (Some(_), Some(_)) => {
            errors.push(FieldError::forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
        }
        (Some(seconds), None) if seconds < 1 => {
            errors.push(FieldError::invalid("sinceSeconds", &json!(seconds), "must be greater than 0"));
        }
        _ => {}
    }
    if given("stream").is_some() {
        errors.push(FieldError::forbidden("stream", "may not be specified"));
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Status::invalid("", "PodLogOptions", &target.name, errors)),
    }
}

/// The container that is meant: the one that was named, or the only one.
fn container_of(pod: &Value, name: &str, asked: &str) -> Result<String, Status> {
    let list = |field: &str| pod["spec"][field].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect::<Vec<_>>();
    let main = list("containers");
    let mut all = list("initContainers");
    all.extend(&main);
    all.extend(list("ephemeralContainers"));
    if !asked.is_empty() {
        return match all.contains(&asked) {
            true => Ok(asked.to_owned()),
            false => Err(Status::bad_request(format!("container {asked} is not valid for pod {name}"))),
        };
    }
    match main.as_slice() {
        [only] => Ok((*only).to_owned()),
        _ => {
            let text = format!("a container name must be specified for pod {name}, choose one of: [{}]", all.join(" "));
            Err(Status::bad_request(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_proxied_object_may_carry_scheme_and_port() {
        assert_eq!(split("a"), Some(("http", "a", "")));
        assert_eq!(split("a:80"), Some(("http", "a", "80")));
        assert_eq!(split("https:a:web"), Some(("https", "a", "web")));
        assert_eq!(split("https:a:"), Some(("https", "a", "")));
        for wrong in ["", ":80", "ftp:a:80", "a:b:c:d"] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_container_is_named_unless_there_is_only_one() {
        let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}});
        let why = |asked: &str| container_of(&pod, "p", asked).unwrap_err().message;
        assert_eq!(why(""), "a container name must be specified for pod p, choose one of: [i a b]");
        assert_eq!(why("z"), "container z is not valid for pod p");
        assert_eq!(container_of(&pod, "p", "i").unwrap(), "i");
        let pod = json!({"spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]}});
        assert_eq!(container_of(&pod, "p", "").unwrap(), "a");
    }

    #[test]
    fn nobody_is_led_to_this_machine_or_its_neighbours() {
        for (address, global) in [
            ("10.0.0.1", true),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("::1", false),
            ("fe80::1", false),
            ("fd00::1", true),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
        ] {
            assert_eq!(is_global_unicast(&address.parse().unwrap()), global, "{address}");
        }
    }
}
