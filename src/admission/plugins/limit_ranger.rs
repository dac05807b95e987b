//! `LimitRanger`: the LimitRanges of a namespace give containers the requests and limits that they lack, and bound what containers,
//! Pods and claims may ask for.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::pod::containers_mut;
use super::resources::{Amounts, amounts, pod_amounts};
use crate::admission::{Cluster, Mutate, Operation, Validate, Write};
use crate::schema::quantity::Quantity;
use crate::status::Status;

/// The plugin.
pub struct LimitRanger(pub Cluster);

impl LimitRanger {
    /// A Pod's containers never change afterwards, so that only its creation is looked at.
    fn supports(write: &Write) -> bool {
        write.creates("", "pods")
            || (write.is("", "persistentvolumeclaims") && matches!(write.operation, Operation::Create | Operation::Update))
    }

    async fn ranges(&self, write: &Write) -> Result<Vec<Value>, Status> {
        Ok(self.0.list("limitranges", &write.namespace).await?.iter().map(|r| (**r.value()).clone()).collect())
    }
}

impl Mutate for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, write: &Write) -> bool {
        write.creates("", "pods")
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            for range in self.ranges(write).await? {
                fill_in(&range, write.object_mut());
            }
            Ok(())
        })
    }
}

impl Validate for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, write: &Write) -> bool {
        Self::supports(write)
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            for range in self.ranges(write).await? {
                let mut errors = match write.is_of("", "pods") {
                    true => pod_errors(&range, &write.object()["spec"]),
                    false => claim_errors(&range, &write.object()["spec"]),
                };
                // What is wrong in the same words twice is told once.
                let mut told = std::collections::BTreeSet::new();
                errors.retain(|error| told.insert(error.clone()));
                match errors.len() {
                    0 => {}
                    1 => return Err(write.forbidden(errors.remove(0))),
                    _ => return Err(write.forbidden(format!("[{}]", errors.join(", ")))),
                }
            }
            Ok(())
        })
    }
}

fn items<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    range["spec"]["limits"].as_array().into_iter().flatten().filter(move |item| item["type"] == kind)
}

/// What containers get that say nothing: limits and requests.
fn defaults(range: &Value) -> (BTreeMap<String, Value>, BTreeMap<String, Value>) {
    let (mut limits, mut requests) = (BTreeMap::new(), BTreeMap::new());
    let take = |into: &mut BTreeMap<String, Value>, from: &Value| {
        for (name, quantity) in from.as_object().into_iter().flatten() {
            into.entry(name.clone()).or_insert_with(|| quantity.clone());
        }
    };
    for item in items(range, "Container") {
        take(&mut limits, &item["default"]);
        take(&mut limits, &item["max"]);
        take(&mut requests, &item["defaultRequest"]);
        take(&mut requests, &item["default"]);
        take(&mut requests, &item["max"]);
        take(&mut requests, &item["min"]);
    }
    (limits, requests)
}

fn fill_in(range: &Value, pod: &mut Value) {
    let (limits, requests) = defaults(range);
    let mut set = Vec::new();
    for (list, word) in [("containers", "container"), ("initContainers", "init container")] {
        for container in containers_mut(&mut pod["spec"], &[list]) {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            for (field, defaults, what) in [("requests", &requests, "request"), ("limits", &limits, "limit")] {
                let mut added = Vec::new();
                for (resource, quantity) in defaults {
                    if container["resources"][field].get(resource).is_none() {
                        container["resources"][field][resource] = quantity.clone();
                        added.push(resource.as_str());
                    }
                }
                if !added.is_empty() {
                    set.push(format!("{} {what} for {word} {name}", added.join(", ")));
                }
            }
        }
    }
    if !set.is_empty() {
        pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"] = json!(format!("LimitRanger plugin set: {}", set.join("; ")));
    }
}

fn pod_errors(range: &Value, spec: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    for item in range["spec"]["limits"].as_array().into_iter().flatten() {
        match item["type"].as_str() {
            Some("Container") => {
                for list in ["containers", "initContainers"] {
                    for container in spec[list].as_array().into_iter().flatten() {
                        let resources = &container["resources"];
                        check(item, "Container", &amounts(&resources["requests"]), &amounts(&resources["limits"]), &mut errors);
                    }
                }
            }
            Some("Pod") => check(item, "Pod", &pod_amounts(spec, "requests"), &pod_amounts(spec, "limits"), &mut errors),
            _ => {}
        }
    }
    errors
}

fn check(item: &Value, kind: &str, requests: &Amounts, limits: &Amounts, errors: &mut Vec<String>) {
    for (name, bound) in amounts(&item["min"]) {
        let (request, limit) = (requests.get(&name), limits.get(&name));
        let text = format!("minimum {name} usage per {kind} is {bound}");
        match (request, limit) {
            (None, _) => errors.push(format!("{text}.  No request is specified")),
            (Some(request), _) if request.nanos() < bound.nanos() => errors.push(format!("{text}, but request is {request}")),
            (_, Some(limit)) if limit.nanos() < bound.nanos() => errors.push(format!("{text}, but limit is {limit}")),
            _ => {}
        }
    }
    for (name, bound) in amounts(&item["max"]) {
        let (request, limit) = (requests.get(&name), limits.get(&name));
        let text = format!("maximum {name} usage per {kind} is {bound}");
        match (request, limit) {
            (_, None) => errors.push(format!("{text}.  No limit is specified")),
            (_, Some(limit)) if limit.nanos() > bound.nanos() => errors.push(format!("{text}, but limit is {limit}")),
            (Some(request), _) if request.nanos() > bound.nanos() => errors.push(format!("{text}, but request is {request}")),
            _ => {}
        }
    }
    for (name, bound) in amounts(&item["maxLimitRequestRatio"]) {
        let text = format!("{name} max limit to request ratio per {kind} is {bound}");
        let present = |amount: Option<&Quantity>| amount.map(Quantity::nanos).filter(|nanos| *nanos != 0);
        match (present(requests.get(&name)), present(limits.get(&name))) {
            (None, _) => errors.push(format!("{text}, but no request is specified or request is 0")),
            (_, None) => errors.push(format!("{text}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let (ratio, allowed) = (limit as f64 / request as f64, bound.nanos() as f64 / 1e9);
                if ratio > allowed {
                    errors.push(format!("{text}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
}

fn claim_errors(range: &Value, spec: &Value) -> Vec<String> {
    let requests = amounts(&spec["resources"]["requests"]);
    let mut errors = Vec::new();
    for item in items(range, "PersistentVolumeClaim") {
        for (field, word, outside) in [("min", "minimum", -1), ("max", "maximum", 1)] {
            for (name, bound) in amounts(&item[field]) {
                let text = format!("{word} {name} usage per PersistentVolumeClaim is {bound}");
                match requests.get(&name) {
                    None => errors.push(format!("{text}.  No request is specified")),
                    Some(request) if (request.nanos() - bound.nanos()).signum() == outside => {
                        errors.push(format!("{text}, but request is {request}"));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_denial() {
        let range = json!({"spec": {"limits": [{"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"}}]}});
        let spec = json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "10m"}}}]});
        assert_eq!(
            pod_errors(&range, &spec),
            ["minimum cpu usage per Container is 100m, but request is 10m", "maximum cpu usage per Container is 1, but limit is 2"]
        );
    }

    #[test]
    fn containers_get_what_they_lack_and_an_annotation_says_so() {
        let range = json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}}]}});
        let mut pod = json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}});
        fill_in(&range, &mut pod);
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}})
        );
        assert_eq!(
            pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
            "LimitRanger plugin set: cpu, memory request for container c; memory limit for container c"
        );
    }
}
