//! What an object counts for, by the names that quotas use: `pods`, `requests.cpu`, `count/jobs.batch`, and so on. Plain functions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::admission::plugins::resources::{Amounts, amounts, pod_amounts};
use crate::registry::Resource;
use crate::schema::quantity::Quantity;

/// Kinds that quotas also count by their bare plural.
const COUNTED: &[&str] =
    &["configmaps", "secrets", "services", "replicationcontrollers", "resourcequotas", "persistentvolumeclaims", "pods"];

/// What a Pod's containers must say where a quota limits it.
const REQUIRED: &[&str] = &["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

fn core(resource: &Resource, plural: &str) -> bool {
    resource.group.is_empty() && &*resource.plural == plural
}

fn count_name(resource: &Resource) -> String {
    format!("count/{}", resource.qualified())
}

/// Whether a name that a quota limits can be about such objects.
pub fn is_about(resource: &Resource, name: &str) -> bool {
    if name == count_name(resource) {
        return true;
    }
    if !resource.group.is_empty() {
        return false;
    }
    match &*resource.plural {
        "pods" => {
            name == "pods"
                || matches!(name, "cpu" | "memory" | "ephemeral-storage")
                || name.starts_with("limits.")
                || name.starts_with("hugepages-")
                || (name.starts_with("requests.") && name != "requests.storage")
        }
        "services" => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
        "persistentvolumeclaims" => {
            matches!(name, "persistentvolumeclaims" | "requests.storage") || name.contains(".storageclass.storage.k8s.io/")
        }
        plural => COUNTED.contains(&plural) && name == plural,
    }
}

/// What an object counts for.
pub fn usage(resource: &Resource, object: &Value) -> Amounts {
    let one = Quantity::from_units(1);
    let mut usage = Amounts::from([(count_name(resource), one)]);
    if core(resource, "pods") {
        // A Pod that has ended is still an object, but needs nothing any more.
        if !matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
            usage.insert("pods".into(), one);
            usage.append(&mut pod(&object["spec"]));
        }
    } else if core(resource, "services") {
        usage.append(&mut service(object));
    } else if core(resource, "persistentvolumeclaims") {
        usage.append(&mut claim(object));
    } else if resource.group.is_empty() && COUNTED.contains(&&*resource.plural) {
        usage.insert(resource.plural.to_string(), one);
    }
    usage
}

fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::new();
    for (name, amount) in requests {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
            usage.insert(name.clone(), *amount);
        }
        usage.insert(format!("requests.{name}"), *amount);
    }
    for (name, amount) in limits.iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage")) {
        usage.insert(format!("limits.{name}"), *amount);
    }
    usage
}

fn pod(spec: &Value) -> Amounts {
    compute(&pod_amounts(spec, "requests"), &pod_amounts(spec, "limits"))
}

fn service(object: &Value) -> Amounts {
    let spec = &object["spec"];
    let ports = || spec["ports"].as_array().into_iter().flatten();
    let units = |n: usize| Quantity::from_units(i64::try_from(n).unwrap_or(i64::MAX));
    let kind = spec["type"].as_str().unwrap_or("ClusterIP");
    let node_ports = match kind {
        "NodePort" => ports().count(),
        "LoadBalancer" if spec["allocateLoadBalancerNodePorts"] == false => {
            ports().filter(|p| p["nodePort"].as_i64().unwrap_or(0) != 0).count()
        }
        "LoadBalancer" => ports().count(),
        _ => 0,
    };
    Amounts::from([
        ("services".to_owned(), units(1)),
        ("services.nodeports".to_owned(), units(node_ports)),
        ("services.loadbalancers".to_owned(), units(usize::from(kind == "LoadBalancer"))),
    ])
}

fn claim(object: &Value) -> Amounts {
    let one = Quantity::from_units(1);
    let mut usage = Amounts::from([("persistentvolumeclaims".to_owned(), one)]);
    let beta = object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    let class = beta.or_else(|| object["spec"]["storageClassName"].as_str()).unwrap_or_default();
    if !class.is_empty() {
        usage.insert(format!("{class}.storageclass.storage.k8s.io/persistentvolumeclaims"), one);
    }
    if let Some(storage) = amounts(&object["spec"]["resources"]["requests"]).get("storage") {
        usage.insert("requests.storage".to_owned(), *storage);
        if !class.is_empty() {
            usage.insert(format!("{class}.storageclass.storage.k8s.io/requests.storage"), *storage);
        }
    }
    usage
}

/// Whether an object says what a quota needs to know of it.
pub fn constraints(resource: &Resource, hard: &Amounts, object: &Value) -> Result<(), String> {
    if !core(resource, "pods") {
        return Ok(());
    }
    let required: Vec<&str> = REQUIRED.iter().filter(|name| hard.contains_key(**name)).copied().collect();
    let of_pod = compute(&amounts(&object["spec"]["resources"]["requests"]), &amounts(&object["spec"]["resources"]["limits"]));
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for list in ["containers", "initContainers"] {
        for container in object["spec"][list].as_array().into_iter().flatten() {
            let resources = &container["resources"];
            let has = compute(&amounts(&resources["requests"]), &amounts(&resources["limits"]));
            for name in required.iter().filter(|name| !has.contains_key(**name) && !of_pod.contains_key(**name)) {
                missing.entry(name).or_default().insert(container["name"].as_str().unwrap_or_default());
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let parts: Vec<String> = missing
        .iter()
        .map(|(name, containers)| format!("{name} for: {}", containers.iter().copied().collect::<Vec<_>>().join(",")))
        .collect();
    Err(format!("must specify {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    #[test]
    fn a_pod_counts_for_its_containers_and_must_say_what_a_quota_limits() {
        let pods = Registry::new().lookup("", "v1", "pods").unwrap();
        let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}}}]}});
        let usage = usage(&pods, &pod);
        assert_eq!(usage["requests.cpu"].to_string(), "100m");
        assert_eq!(usage["limits.memory"].to_string(), "1Gi");
        assert_eq!(usage["count/pods"].to_string(), "1");
        let hard = amounts(&json!({"requests.memory": "1", "limits.cpu": "1"}));
        assert_eq!(constraints(&pods, &hard, &pod).unwrap_err(), "must specify limits.cpu for: c; requests.memory for: c");
    }

    #[test]
    fn jobs_are_counted_by_their_qualified_name_only() {
        let jobs = Registry::new().lookup("batch", "v1", "jobs").unwrap();
        assert!(is_about(&jobs, "count/jobs.batch") && !is_about(&jobs, "jobs"));
    }
}
