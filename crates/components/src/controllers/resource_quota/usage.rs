//! What objects use of a quota: plain functions from objects to amounts.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Container, PersistentVolumeClaim, Pod, ResourceQuotaSpec, Service},
    apimachinery::pkg::api::resource::Quantity,
};

use super::quantity::Amount;
use crate::controllers::pods;

/// Amounts by resource name.
pub type Usage = BTreeMap<String, Amount>;

/// Adds amounts.
pub fn add(total: &mut Usage, more: Usage) {
    for (name, amount) in more {
        let sum = total.get(&name).map_or(amount, |old| old.plus(amount));
        total.insert(name, sum);
    }
}

fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> Usage {
    list.into_iter().flatten().filter_map(|(name, quantity)| Some((name.clone(), Amount::parse(&quantity.0)?))).collect()
}

/// A Pod's requests or limits: what its containers need together, or an init container alone, whichever is more.
fn needs(pod: &Pod, of: impl Fn(&Container) -> Usage, overall: Usage) -> Usage {
    let Some(spec) = &pod.spec else { return Usage::new() };
    let mut total = Usage::new();
    for container in &spec.containers {
        add(&mut total, of(container));
    }
    let mut sidecars = Usage::new();
    let mut initial = Usage::new();
    for container in spec.init_containers.iter().flatten() {
        let mut own = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut total, own.clone());
            add(&mut sidecars, own);
            own = sidecars.clone();
        } else {
            add(&mut own, sidecars.clone());
        }
        for (name, amount) in own {
            let larger = initial.get(&name).map_or(amount, |old: &Amount| old.max(amount));
            initial.insert(name, larger);
        }
    }
    for (name, amount) in initial {
        let larger = total.get(&name).map_or(amount, |old| old.max(amount));
        total.insert(name, larger);
    }
    // What the Pod asks for as a whole wins over what its parts ask for.
    total.extend(overall);
    add(&mut total, amounts(spec.overhead.as_ref()));
    total
}

/// What a Pod uses.
pub fn pod(pod: &Pod) -> Usage {
    let mut usage = Usage::from([("count/pods".to_owned(), Amount::whole(1))]);
    if pods::is_finished(pod) {
        return usage;
    }
    usage.insert("pods".into(), Amount::whole(1));
    let whole = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let requests = needs(
        pod,
        |container| amounts(container.resources.as_ref().and_then(|resources| resources.requests.as_ref())),
        amounts(whole.and_then(|resources| resources.requests.as_ref())),
    );
    let limits = needs(
        pod,
        |container| amounts(container.resources.as_ref().and_then(|resources| resources.limits.as_ref())),
        amounts(whole.and_then(|resources| resources.limits.as_ref())),
    );
    for (name, amount) in requests {
        usage.insert(format!("requests.{name}"), amount);
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
            usage.insert(name, amount);
        }
    }
    usage.extend(limits.into_iter().map(|(name, amount)| (format!("limits.{name}"), amount)));
    usage
}

/// What a Service uses.
pub fn service(service: &Service) -> Usage {
    let mut usage = Usage::from([("services".to_owned(), Amount::whole(1)), ("count/services".to_owned(), Amount::whole(1))]);
    let Some(spec) = &service.spec else { return usage };
    let ports = spec.ports.as_ref().map_or(0, Vec::len);
    match spec.type_.as_deref() {
        Some("NodePort") => {
            usage.insert("services.nodeports".into(), Amount::whole(ports));
        }
        Some("LoadBalancer") => {
            usage.insert("services.loadbalancers".into(), Amount::whole(1));
            let with_node_port = spec.ports.iter().flatten().filter(|port| port.node_port.is_some_and(|number| number > 0)).count();
            let ports = if spec.allocate_load_balancer_node_ports == Some(false) { with_node_port } else { ports };
            usage.insert("services.nodeports".into(), Amount::whole(ports));
        }
        _ => {}
    }
    usage
}

/// What a PersistentVolumeClaim uses.
pub fn claim(claim: &PersistentVolumeClaim) -> Usage {
    let mut usage = Usage::from([
        ("persistentvolumeclaims".to_owned(), Amount::whole(1)),
        ("count/persistentvolumeclaims".to_owned(), Amount::whole(1)),
    ]);
    let spec = claim.spec.as_ref();
    let class = spec.and_then(|spec| spec.storage_class_name.clone()).filter(|class| !class.is_empty());
    let requests = amounts(spec.and_then(|spec| spec.resources.as_ref()).and_then(|resources| resources.requests.as_ref()));
    let storage = requests.get("storage").copied();
    usage.extend(storage.map(|amount| ("requests.storage".to_owned(), amount)));
    if let Some(class) = class {
        let of_class = |what: &str| format!("{class}.storageclass.storage.k8s.io/{what}");
        usage.insert(of_class("persistentvolumeclaims"), Amount::whole(1));
        usage.extend(storage.map(|amount| (of_class("requests.storage"), amount)));
    }
    usage
}

/// Whether a quota's scopes include a Pod.
pub fn in_scope(spec: &ResourceQuotaSpec, pod: &Pod) -> bool {
    let named = spec.scopes.iter().flatten().all(|scope| is_in(scope, "Exists", &[], pod));
    let selected = spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    let mut selected = selected.map(|rule| is_in(&rule.scope_name, &rule.operator, rule.values.as_deref().unwrap_or_default(), pod));
    named && selected.all(|inside| inside)
}

fn is_in(scope: &str, operator: &str, values: &[String], pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let ends = spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = spec.priority_class_name.as_deref().filter(|class| !class.is_empty());
            let listed = class.is_some_and(|class| values.iter().any(|value| value == class));
            match operator {
                "In" => listed,
                "NotIn" => !listed,
                "DoesNotExist" => class.is_none(),
                _ => class.is_some(),
            }
        }
        _ => false,
    }
}

fn is_best_effort(pod: &Pod) -> bool {
    let mut containers = pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let empty = |list: Option<&BTreeMap<String, Quantity>>| list.is_none_or(BTreeMap::is_empty);
    containers.all(|container| {
        let resources = container.resources.as_ref();
        empty(resources.and_then(|r| r.requests.as_ref())) && empty(resources.and_then(|r| r.limits.as_ref()))
    })
}

/// What all of these use together.
pub fn total<K>(objects: &[Arc<K>], of: impl Fn(&K) -> Usage) -> Usage {
    let mut total = Usage::new();
    for object in objects {
        add(&mut total, of(object));
    }
    total
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn example() -> Pod {
        serde_json::from_value(json!({"spec": {
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1"}}},
                {"name": "b", "resources": {"requests": {"cpu": "200m"}}}],
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "500m", "memory": "16Mi"}}}]}}))
        .unwrap()
    }

    #[test]
    fn a_pod_uses_what_its_containers_or_its_largest_init_container_need() {
        let usage = pod(&example());
        let text = |name: &str| usage.get(name).map(ToString::to_string);
        assert_eq!(text("requests.cpu").as_deref(), Some("500m"));
        assert_eq!(text("memory").as_deref(), Some("64Mi"));
        assert_eq!(text("limits.cpu").as_deref(), Some("1"));
        assert_eq!(text("pods").as_deref(), Some("1"));
    }

    #[test]
    fn an_ended_pod_uses_nothing_but_its_place() {
        let mut ended = example();
        ended.status.get_or_insert_default().phase = Some("Succeeded".into());
        assert_eq!(pod(&ended).keys().collect::<Vec<_>>(), ["count/pods"]);
    }

    #[test]
    fn scopes_choose_pods() {
        let spec = |scope: &str| ResourceQuotaSpec { scopes: Some(vec![scope.into()]), ..ResourceQuotaSpec::default() };
        assert!(in_scope(&spec("NotBestEffort"), &example()) && !in_scope(&spec("BestEffort"), &example()));
        assert!(in_scope(&spec("NotTerminating"), &example()) && !in_scope(&spec("Terminating"), &example()));
    }
}
