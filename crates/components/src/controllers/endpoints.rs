//! Which addresses stand behind a Service: EndpointSlices, and Endpoints for those who still read them.
//!
//! Both follow from the same question, answered in this file: which Pods a Service selects, and at which address and
//! ports it reaches each. How that is cut into objects is in [`slice`] and [`legacy`].

pub mod legacy;
pub mod slice;
pub mod trigger;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Container, ObjectReference, Pod, Service, ServicePort},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::core::{Selector, SelectorExt};

use super::pods;
use crate::runtime::{Change, Informer, Key, Queue, Source};

/// The label of what belongs to a headless Service.
pub const HEADLESS: &str = "service.kubernetes.io/headless";

/// A port as a Pod serves it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Its name in the Service; empty if it has none.
    pub name: String,
    /// The number.
    pub number: i32,
    /// The protocol.
    pub protocol: String,
    /// What is spoken over it.
    pub app_protocol: Option<String>,
}

/// The selector of a Service that the controllers look after; `None` for one whose endpoints are somebody else's.
pub fn selector(service: &Service) -> Option<Selector> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    let labels = spec.selector.clone().filter(|labels| !labels.is_empty())?;
    Some(labels.into_iter().collect())
}

/// Whether a Service has no address of its own.
pub fn is_headless(service: &Service) -> bool {
    let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    matches!(address, None | Some("" | "None"))
}

/// Whether a Pod is an endpoint at all: it has an address and has not ended.
pub fn is_endpoint(pod: &Pod) -> bool {
    !pods::is_finished(pod) && !addresses(pod).is_empty()
}

/// The Pod's addresses.
pub fn addresses(pod: &Pod) -> Vec<&str> {
    let Some(status) = &pod.status else { return Vec::new() };
    let several: Vec<&str> = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str()).collect();
    if several.is_empty() { status.pod_ip.as_deref().filter(|ip| !ip.is_empty()).into_iter().collect() } else { several }
}

/// The host name that DNS gives the Pod under this Service.
pub fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let here = spec.subdomain.is_some() && spec.subdomain == service.metadata.name;
    spec.hostname.clone().filter(|name| here && !name.is_empty())
}

/// A reference to the Pod behind an endpoint.
pub fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The Service's ports as this Pod serves them. A named port that the Pod does not have is left out.
pub fn ports(service: &Service, pod: &Pod) -> Vec<Port> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let found = ports.filter_map(|port| {
        Some(Port {
            name: port.name.clone().unwrap_or_default(),
            number: port_number(port, pod)?,
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            app_protocol: port.app_protocol.clone(),
        })
    });
    found.collect()
}

fn port_number(port: &ServicePort, pod: &Pod) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let in_container = |container: &Container| {
        let mut ports = container.ports.iter().flatten();
        ports.find(|p| p.name.as_ref() == Some(name) && p.protocol.as_deref().unwrap_or("TCP") == protocol).map(|p| p.container_port)
    };
    spec.containers.iter().chain(sidecars).find_map(in_container)
}

/// What about a Pod an endpoint shows; other changes concern no Service.
fn shown(pod: &Pod) -> impl PartialEq + '_ {
    let spec = pod.spec.as_ref();
    (
        addresses(pod),
        pods::is_ready(pod),
        pods::is_finished(pod),
        pods::is_terminating(pod),
        pods::node_name(pod),
        spec.map(|spec| (&spec.hostname, &spec.subdomain)),
        &pod.metadata.labels,
    )
}

/// A Pod concerns the Services that select it, or selected it before.
pub fn pods_source(pods: &Informer<Pod>, services: &Informer<Service>) -> Source {
    let services = services.clone();
    Source::new(pods, move |change: Change<'_, Pod>, queue: &Queue| {
        if let (Some(old), Some(new)) = (change.old, change.new)
            && shown(old) == shown(new)
        {
            return;
        }
        let Some(pod) = change.latest() else { return };
        // One that never had an address was never an endpoint.
        if change.states().all(|pod| addresses(pod).is_empty()) {
            return;
        }
        let empty = BTreeMap::new();
        for service in services.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default()) {
            let Some(selector) = selector(&service) else { continue };
            if change.states().any(|pod| selector.matches(pod.metadata.labels.as_ref().unwrap_or(&empty))) {
                queue.add(Key::of(&service.metadata));
            }
        }
    })
}

/// The Pods that a Service selects, by name.
pub fn selected(service: &Service, selector: &Selector, pods: &Informer<Pod>) -> Vec<Arc<Pod>> {
    let mut pods = pods.in_namespace(service.metadata.namespace.as_deref().unwrap_or_default());
    pods.retain(|pod| super::owner::selects(selector, &pod.metadata) && is_endpoint(pod));
    pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    pods
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_named_port_is_looked_up_in_the_pod() {
        let service: Service = serde_json::from_value(json!({"spec": {"ports": [
            {"name": "http", "port": 80, "targetPort": "web"}, {"name": "metrics", "port": 9090},
            {"name": "admin", "port": 1, "targetPort": "missing"}]}}))
        .unwrap();
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [
            {"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}]}}))
        .unwrap();
        let numbers: Vec<_> = ports(&service, &pod).into_iter().map(|port| (port.name, port.number)).collect();
        assert_eq!(numbers, [("http".into(), 8080), ("metrics".into(), 9090)]);
    }

    #[test]
    fn a_service_without_selector_is_left_alone() {
        let service: Service = serde_json::from_value(json!({"spec": {"ports": []}})).unwrap();
        assert!(selector(&service).is_none());
        let external: Service = serde_json::from_value(json!({"spec": {"type": "ExternalName", "selector": {"a": "b"}}})).unwrap();
        assert!(selector(&external).is_none());
    }
}
