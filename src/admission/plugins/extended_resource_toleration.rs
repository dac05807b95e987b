//! `ExtendedResourceToleration`: a Pod that asks for a special resource may run on the nodes that are kept for it.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::pod::array_mut;
use crate::admission::{Mutate, Operation, Write};
use crate::status::Status;

/// The plugin.
pub struct ExtendedResourceToleration;

impl Mutate for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn handles(&self, write: &Write) -> bool {
        write.is("", "pods") && matches!(write.operation, Operation::Create | Operation::Update)
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            tolerate(&mut write.object_mut()["spec"]);
            Ok(())
        })
    }
}

/// Whether a resource is neither Kubernetes' own nor a part of a request's name.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.split('/').next().is_some_and(|domain| domain.ends_with("kubernetes.io")) && !name.starts_with("requests.")
}

fn tolerate(spec: &mut Value) {
    let asking = ["containers", "initContainers"].into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten());
    let requested = asking.flat_map(|c| c["resources"]["requests"].as_object().into_iter().flatten().map(|(name, _)| name.clone()));
    let resources: BTreeSet<String> = requested.filter(|name| is_extended(name)).collect();
    for resource in resources {
        let toleration = json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"});
        let tolerations = array_mut(spec, "tolerations");
        // For how long does not matter to one that keeps Pods away.
        let is_it = |given: &Value| ["key", "operator", "effect", "value"].iter().all(|field| given[*field] == toleration[*field]);
        if tolerations.contains(&toleration) {
            continue;
        }
        match tolerations.iter_mut().find(|given| is_it(given)) {
            Some(given) => *given = toleration,
            None => tolerations.push(toleration),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_extended_resources_are_tolerated() {
        let mut spec =
            json!({"containers": [{"resources": {"requests": {"cpu": "1", "example.com/gpu": "1", "node.kubernetes.io/x": "1"}}}]});
        tolerate(&mut spec);
        tolerate(&mut spec);
        assert_eq!(spec["tolerations"], json!([{"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]));
    }
}
