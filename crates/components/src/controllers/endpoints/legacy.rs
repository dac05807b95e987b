//! Endpoints: all addresses of a Service in one object, for clients that do not read EndpointSlices.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use k8s_openapi::{
    api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    HEADLESS, Port,
    trigger::{TriggerTimes, annotate},
};
use crate::{
    controllers::pods,
    events::{EventType, Recorder, regarding},
    runtime::{Component, Context, Identity, Informer, Key, Outcome, Propagation, Requeue, Source, Writer},
};

const ACCOUNT: &str = "endpoint-controller";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// More addresses than this are cut off, and the object says so.
const LARGEST: usize = 1000;

struct Controller {
    services: Informer<Service>,
    pods: Informer<Pod>,
    endpoints: Informer<Endpoints>,
    writer: Writer<Endpoints>,
    recorder: Recorder,
    changes: TriggerTimes,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(ACCOUNT));
    let endpoints = context.watches.of();
    context.run(Controller {
        services: context.watches.of(),
        pods: context.watches.of(),
        writer: Writer::new(client.clone(), &endpoints),
        recorder: context.recorder(client, ACCOUNT),
        endpoints,
        changes: TriggerTimes::default(),
    })
}

impl Component for Controller {
    const NAME: &'static str = "endpoints-controller";

    fn sources(&self) -> Vec<Source> {
        vec![Source::own(&self.services), super::pods_source(&self.pods, &self.services), Source::own(&self.endpoints)]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let current = self.endpoints.find(&key);
        let Some(service) = self.services.find(&key) else {
            self.changes.forget(&key);
            // Endpoints have no owner reference; this controller cleans up what it made.
            if let Some(current) = current
                && current.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(MANAGED_BY))
            {
                self.writer.delete(&current, Propagation::Background).await?;
            }
            return Ok(Requeue::Done);
        };
        let Some(selector) = super::selector(&service) else { return Ok(Requeue::Done) };
        if service.metadata.deletion_timestamp.is_some() {
            return Ok(Requeue::Done);
        }
        let pods = super::selected(&service, &selector, &self.pods);
        let mut wanted = wanted(&service, &pods, current.as_deref());
        let changed = self.changes.since_last(&key, &service, &pods);
        if current.as_deref() != Some(&wanted) {
            annotate(&mut wanted.metadata, changed);
        }
        let written = match current {
            Some(current) if *current == wanted => return Ok(Requeue::Done),
            Some(_) => self.writer.update(&wanted).await,
            None => self.writer.create(&wanted).await,
        };
        match written {
            Ok(_) => Ok(Requeue::Done),
            Err(error) => {
                if !error.is_namespace_terminating() && !error.is_conflict() {
                    let message = format!("Failed to update endpoint {key}: {}", error.message());
                    self.recorder.event(&regarding(&*service), EventType::Warning, "FailedToUpdateEndpoint", message);
                }
                Err(error)
            }
        }
    }
}

fn wanted(service: &Service, pods: &[Arc<Pod>], current: Option<&Endpoints>) -> Endpoints {
    let publish = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
    let mut by_ports: BTreeMap<Vec<Port>, EndpointSubset> = BTreeMap::new();
    let mut count = 0;
    for pod in pods.iter().filter(|pod| publish || !pods::is_terminating(pod)) {
        let Some(ip) = super::addresses(pod).first().map(|ip| (*ip).to_owned()) else { continue };
        let mut ports = super::ports(service, pod);
        ports.sort();
        if ports.is_empty() && !super::is_headless(service) {
            continue;
        }
        count += 1;
        if count > LARGEST {
            continue;
        }
        let address = EndpointAddress {
            ip,
            hostname: super::hostname(service, pod),
            node_name: pods::node_name(pod).map(str::to_owned),
            target_ref: Some(super::target(pod)),
        };
        let subset = by_ports.entry(ports).or_default();
        let list = if publish || pods::is_ready(pod) { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        list.get_or_insert_default().push(address);
    }
    let subsets: Vec<_> = by_ports.into_iter().map(|(ports, subset)| with_ports(subset, &ports)).collect();
    let mut metadata = current.map_or_else(
        || ObjectMeta { name: service.metadata.name.clone(), namespace: service.metadata.namespace.clone(), ..ObjectMeta::default() },
        |current| current.metadata.clone(),
    );
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if super::is_headless(service) {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(MANAGED_BY.into(), ACCOUNT.into());
    metadata.labels = Some(labels);
    if count > LARGEST {
        metadata.annotations.get_or_insert_default().insert(OVER_CAPACITY.into(), "truncated".into());
    } else if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(OVER_CAPACITY);
        if annotations.is_empty() {
            metadata.annotations = None;
        }
    }
    Endpoints { metadata, subsets: (!subsets.is_empty()).then_some(subsets) }
}

fn with_ports(mut subset: EndpointSubset, ports: &[Port]) -> EndpointSubset {
    let by_address = |a: &EndpointAddress, b: &EndpointAddress| a.ip.cmp(&b.ip);
    subset.addresses.iter_mut().chain(&mut subset.not_ready_addresses).for_each(|list| list.sort_by(by_address));
    let ports: Vec<_> = ports
        .iter()
        .map(|port| EndpointPort {
            name: (!port.name.is_empty()).then(|| port.name.clone()),
            port: port.number,
            protocol: Some(port.protocol.clone()),
            app_protocol: port.app_protocol.clone(),
        })
        .collect();
    subset.ports = (!ports.is_empty()).then_some(ports);
    subset
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ready_and_unready_addresses_are_listed_apart() {
        let service: Service = serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "a"},
            "spec": {"clusterIP": "10.0.0.1", "selector": {"app": "web"}, "ports": [{"port": 80}]}}))
        .unwrap();
        let pod = |ip: &str, ready: &str| -> Arc<Pod> {
            Arc::new(
                serde_json::from_value(json!({"metadata": {"name": ip}, "status": {"podIP": ip, "phase": "Running",
                    "conditions": [{"type": "Ready", "status": ready}]}}))
                .unwrap(),
            )
        };
        let endpoints = wanted(&service, &[pod("10.1.0.2", "True"), pod("10.1.0.1", "True"), pod("10.1.0.3", "False")], None);
        let subset = &endpoints.subsets.as_ref().unwrap()[0];
        let ips = |list: &Option<Vec<EndpointAddress>>| list.iter().flatten().map(|a| a.ip.clone()).collect::<Vec<_>>();
        assert_eq!(ips(&subset.addresses), ["10.1.0.1", "10.1.0.2"]);
        assert_eq!(ips(&subset.not_ready_addresses), ["10.1.0.3"]);
        assert_eq!(wanted(&service, &[], Some(&endpoints)).subsets, None);
    }
}
