//! EndpointSlice: the endpoints of a Service in slices of at most a hundred.
//!
//! Endpoints that are in a slice stay there, so that a change of one Pod rewrites one slice; new ones fill the slices
//! with room before another is made. A Service without endpoints keeps one empty slice, so that those who watch know
//! that it has been looked at.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod, Service},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    HEADLESS, Port,
    trigger::{TriggerTimes, annotate},
};
use crate::{
    controllers::{owner::controller_reference, pods},
    events::{EventType, Recorder, regarding},
    runtime::{Component, Context, Error, Identity, Informer, Key, Outcome, Propagation, Requeue, Source, Writer},
};

const ACCOUNT: &str = "endpointslice-controller";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const LARGEST: usize = 100;
const SERVICE_INDEX: &str = "service";

struct Controller {
    services: Informer<Service>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    slices: Informer<EndpointSlice>,
    writer: Writer<EndpointSlice>,
    recorder: Recorder,
    changes: TriggerTimes,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(ACCOUNT));
    let slices = context.watches.of::<EndpointSlice>();
    slices.add_index(SERVICE_INDEX, |slice| service_of(slice).map(|key| key.to_string()).into_iter().collect());
    context.run(Controller {
        services: context.watches.of(),
        pods: context.watches.of(),
        nodes: context.watches.of(),
        writer: Writer::new(client.clone(), &slices),
        recorder: context.recorder(client, "endpoint-slice-controller"),
        slices,
        changes: TriggerTimes::default(),
    })
}

/// The Service that a slice of ours belongs to.
fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let labels = slice.metadata.labels.as_ref()?;
    if labels.get(MANAGED_BY).map(String::as_str) != Some(MANAGER) {
        return None;
    }
    Some(Key::new(slice.metadata.namespace.as_deref()?, labels.get(SERVICE_NAME)?))
}

impl Component for Controller {
    const NAME: &'static str = "endpointslice-controller";

    fn sources(&self) -> Vec<Source> {
        vec![
            Source::own(&self.services),
            super::pods_source(&self.pods, &self.services),
            Source::lookup(&self.nodes),
            Source::new(&self.slices, |change, queue| {
                for slice in change.states() {
                    if let Some(key) = service_of(slice) {
                        queue.add(key);
                    }
                }
            }),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(service) = self.services.find(&key) else {
            self.changes.forget(&key);
            return Ok(Requeue::Done);
        };
        let Some(selector) = super::selector(&service) else { return Ok(Requeue::Done) };
        if service.metadata.deletion_timestamp.is_some() {
            return Ok(Requeue::Done);
        }
        let pods = super::selected(&service, &selector, &self.pods);
        let existing = self.slices.indexed(SERVICE_INDEX, &key.to_string());
        let zone = |node: &str| -> Option<String> {
            let node = self.nodes.get("", node)?;
            node.metadata.labels.as_ref()?.get("topology.kubernetes.io/zone").cloned().filter(|zone| !zone.is_empty())
        };
        let mut plan = plan(&service, &pods, &existing, zone);
        let changed = self.changes.since_last(&key, &service, &pods);
        plan.create.iter_mut().chain(&mut plan.update).for_each(|slice| annotate(&mut slice.metadata, changed));
        if let Err(error) = self.write(plan).await {
            if !error.is_namespace_terminating() {
                let message = format!("Error updating Endpoint Slices for Service {key}: {}", error.message());
                self.recorder.event(&regarding(&*service), EventType::Warning, "FailedToUpdateEndpointSlices", message);
            }
            return Err(error);
        }
        Ok(Requeue::Done)
    }
}

impl Controller {
    async fn write(&self, plan: Plan) -> Result<(), Error> {
        for slice in &plan.create {
            self.writer.create(slice).await?;
        }
        for slice in &plan.update {
            self.writer.update(slice).await?;
        }
        for slice in &plan.delete {
            self.writer.delete(slice, Propagation::Background).await?;
        }
        Ok(())
    }
}

/// What to write.
#[derive(Debug, Default)]
struct Plan {
    create: Vec<EndpointSlice>,
    update: Vec<EndpointSlice>,
    delete: Vec<Arc<EndpointSlice>>,
}

/// Slices are told apart by family and ports: all endpoints of one have both in common.
type Group = (&'static str, Vec<Port>);

fn plan(service: &Service, pods: &[Arc<Pod>], existing: &[Arc<EndpointSlice>], zone: impl Fn(&str) -> Option<String>) -> Plan {
    let families = families(service);
    let mut wanted: BTreeMap<Group, Vec<Endpoint>> = BTreeMap::new();
    for family in families.iter().copied() {
        for pod in pods {
            if let Some(endpoint) = endpoint(service, pod, family, &zone) {
                wanted.entry((family, super::ports(service, pod))).or_default().push(endpoint);
            }
        }
        if !wanted.keys().any(|(of, _)| *of == family) {
            wanted.insert((family, Vec::new()), Vec::new());
        }
    }
    let mut plan = Plan::default();
    let mut groups: BTreeMap<Group, Vec<&Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in existing.iter().filter(|slice| slice.metadata.deletion_timestamp.is_none()) {
        match families.iter().find(|family| **family == slice.address_type) {
            Some(family) => groups.entry((*family, ports_of(slice))).or_default().push(slice),
            None => plan.delete.push(slice.clone()),
        }
    }
    for (group, endpoints) in wanted {
        let slices = groups.remove(&group).unwrap_or_default();
        fill(service, &group, endpoints, slices, &mut plan);
    }
    plan.delete.extend(groups.into_values().flatten().cloned());
    plan.reuse();
    plan
}

impl Plan {
    /// A slice that would go takes in what a new one was to hold, so that one name stays with a Service whose ports change.
    fn reuse(&mut self) {
        let mut kept = Vec::new();
        for old in std::mem::take(&mut self.delete) {
            match self.create.iter().rposition(|new| new.address_type == old.address_type) {
                Some(at) => {
                    let new = self.create.remove(at);
                    let mut changed = (*old).clone();
                    changed.metadata.labels = new.metadata.labels;
                    changed.endpoints = new.endpoints;
                    changed.ports = new.ports;
                    self.update.push(changed);
                }
                None => kept.push(old),
            }
        }
        self.delete = kept;
    }
}

/// Distributes the endpoints of one group over its slices.
fn fill(service: &Service, group: &Group, endpoints: Vec<Endpoint>, slices: Vec<&Arc<EndpointSlice>>, plan: &mut Plan) {
    let labels = labels(service);
    let empty_group = endpoints.is_empty();
    let key = |endpoint: &Endpoint| endpoint.target_ref.as_ref().and_then(|target| target.uid.clone());
    let mut missing: BTreeMap<Option<String>, Endpoint> = endpoints.into_iter().map(|e| (key(&e), e)).collect();
    let mut kept: Vec<(&Arc<EndpointSlice>, Vec<Endpoint>)> = Vec::new();
    for slice in slices {
        let old = slice.endpoints.iter().flatten();
        kept.push((slice, old.filter_map(|endpoint| missing.remove(&key(endpoint))).collect()));
    }
    let mut rest: Vec<Endpoint> = missing.into_values().collect();
    rest.sort_by(|a, b| b.target_ref.as_ref().map(|t| &t.name).cmp(&a.target_ref.as_ref().map(|t| &t.name)));
    // Fullest first, so that the endpoints gather in few slices.
    kept.sort_by_key(|(_, endpoints)| std::cmp::Reverse(endpoints.len()));
    for (_, endpoints) in &mut kept {
        while endpoints.len() < LARGEST
            && let Some(endpoint) = rest.pop()
        {
            endpoints.push(endpoint);
        }
    }
    let mut placeholder = empty_group;
    for (slice, endpoints) in kept {
        if endpoints.is_empty() && !std::mem::take(&mut placeholder) {
            plan.delete.push(slice.clone());
        } else if slice.endpoints.as_deref().unwrap_or_default() != endpoints.as_slice() || slice.metadata.labels.as_ref() != Some(&labels)
        {
            let mut changed = (**slice).clone();
            changed.endpoints = Some(endpoints);
            changed.metadata.labels = Some(labels.clone());
            plan.update.push(changed);
        }
    }
    rest.reverse();
    while !rest.is_empty() || std::mem::take(&mut placeholder) {
        let more = rest.split_off(rest.len().min(LARGEST));
        plan.create.push(new_slice(service, group, std::mem::replace(&mut rest, more), labels.clone()));
    }
}

fn families(service: &Service) -> Vec<&'static str> {
    let named = service.spec.iter().flat_map(|spec| spec.ip_families.iter().flatten());
    let named: Vec<_> = named.map(|family| if family == "IPv6" { "IPv6" } else { "IPv4" }).collect();
    if named.is_empty() { vec!["IPv4"] } else { named }
}

fn endpoint(service: &Service, pod: &Pod, family: &str, zone: &impl Fn(&str) -> Option<String>) -> Option<Endpoint> {
    let mut addresses = super::addresses(pod);
    addresses.retain(|address| address.contains(':') == (family == "IPv6"));
    if addresses.is_empty() {
        return None;
    }
    let serving = pods::is_ready(pod);
    let terminating = pods::is_terminating(pod);
    let publish = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
    let node = pods::node_name(pod);
    Some(Endpoint {
        addresses: addresses.into_iter().map(str::to_owned).collect(),
        conditions: Some(EndpointConditions {
            ready: Some(publish || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: super::hostname(service, pod),
        node_name: node.map(str::to_owned),
        zone: node.and_then(zone),
        target_ref: Some(super::target(pod)),
        ..Endpoint::default()
    })
}

fn ports_of(slice: &EndpointSlice) -> Vec<Port> {
    let ports = slice.ports.iter().flatten().map(|port| Port {
        name: port.name.clone().unwrap_or_default(),
        number: port.port.unwrap_or(0),
        protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
        app_protocol: port.app_protocol.clone(),
    });
    ports.collect()
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if super::is_headless(service) {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(SERVICE_NAME.into(), service.metadata.name.clone().unwrap_or_default());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    labels
}

fn new_slice(service: &Service, group: &Group, endpoints: Vec<Endpoint>, labels: BTreeMap<String, String>) -> EndpointSlice {
    let (family, ports) = group;
    let ports = ports.iter().map(|port| EndpointPort {
        name: Some(port.name.clone()),
        port: Some(port.number),
        protocol: Some(port.protocol.clone()),
        app_protocol: port.app_protocol.clone(),
    });
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", service.metadata.name.as_deref().unwrap_or_default())),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![controller_reference::<Service>(&service.metadata)]),
            ..ObjectMeta::default()
        },
        address_type: (*family).to_owned(),
        endpoints: Some(endpoints),
        ports: Some(ports.collect()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service() -> Service {
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "a", "uid": "s", "labels": {"team": "x"}},
            "spec": {"clusterIP": "10.0.0.1", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}}))
        .unwrap()
    }

    fn pod(number: usize, ready: bool) -> Arc<Pod> {
        let name = format!("web-{number:04}");
        Arc::new(
            serde_json::from_value(
                json!({"metadata": {"name": name, "namespace": "a", "uid": name}, "spec": {"containers": [], "nodeName": "n"},
                "status": {"phase": "Running", "podIP": format!("10.1.{}.{}", number / 250, number % 250),
                    "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}}),
            )
            .unwrap(),
        )
    }

    fn stored(slices: Vec<EndpointSlice>) -> Vec<Arc<EndpointSlice>> {
        slices.into_iter().map(Arc::new).collect()
    }

    #[test]
    fn endpoints_are_cut_into_slices_of_a_hundred() {
        let pods: Vec<_> = (0..250).map(|n| pod(n, true)).collect();
        let plan = plan(&service(), &pods, &[], |_| None);
        let sizes: Vec<_> = plan.create.iter().map(|slice| slice.endpoints.as_ref().unwrap().len()).collect();
        assert_eq!(sizes, [100, 100, 50]);
    }

    #[test]
    fn one_changed_pod_rewrites_one_slice() {
        let mut pods: Vec<_> = (0..250).map(|n| pod(n, true)).collect();
        let slices = stored(plan(&service(), &pods, &[], |_| None).create);
        assert!(plan(&service(), &pods, &slices, |_| None).update.is_empty());
        pods[120] = pod(120, false);
        let next = plan(&service(), &pods, &slices, |_| None);
        assert_eq!((next.create.len(), next.update.len(), next.delete.len()), (0, 1, 0));
    }

    #[test]
    fn a_service_without_pods_has_one_empty_slice() {
        let empty = plan(&service(), &[], &[], |_| None);
        assert_eq!(empty.create.len(), 1);
        assert!(empty.create[0].endpoints.as_ref().unwrap().is_empty());
        let again = plan(&service(), &[], &stored(empty.create), |_| None);
        assert_eq!((again.create.len(), again.update.len(), again.delete.len()), (0, 0, 0));
    }

    #[test]
    fn the_empty_slice_takes_in_the_first_endpoints() {
        let empty = stored(plan(&service(), &[], &[], |_| None).create);
        let next = plan(&service(), &[pod(1, true)], &empty, |_| None);
        assert_eq!((next.create.len(), next.update.len(), next.delete.len()), (0, 1, 0));
        assert_eq!((next.update[0].endpoints.as_ref().unwrap().len(), next.update[0].ports.as_ref().unwrap().len()), (1, 1));
    }

    #[test]
    fn an_unready_pod_is_listed_but_not_ready_unless_the_service_says_so() {
        let conditions = |service: &Service| {
            let plan = plan(service, &[pod(1, false)], &[], |_| None);
            plan.create[0].endpoints.as_ref().unwrap()[0].conditions.clone().unwrap()
        };
        assert_eq!((conditions(&service()).ready, conditions(&service()).serving), (Some(false), Some(false)));
        let mut publishing = service();
        publishing.spec.as_mut().unwrap().publish_not_ready_addresses = Some(true);
        assert_eq!(conditions(&publishing).ready, Some(true));
    }

    #[test]
    fn a_slice_names_its_service_and_its_manager() {
        let plan = plan(&service(), &[pod(1, true)], &[], |_| None);
        let labels = plan.create[0].metadata.labels.as_ref().unwrap();
        assert_eq!(labels[SERVICE_NAME], "web");
        assert_eq!(labels["team"], "x");
        assert!(!labels.contains_key(HEADLESS));
    }
}
