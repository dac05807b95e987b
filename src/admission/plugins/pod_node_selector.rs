//! `PodNodeSelector`: a namespace says by an annotation on which nodes its Pods run.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::admission::{Cluster, Mutate, Write};
use crate::status::Status;

/// The plugin.
pub struct PodNodeSelector {
    /// The cluster, for the namespace's annotation.
    pub cluster: Cluster,
    /// What the configuration says, by namespace; `clusterDefaultNodeSelector` is for all that have no annotation.
    pub selectors: Vec<(String, String)>,
}

impl PodNodeSelector {
    fn configured(&self, namespace: &str) -> Option<&str> {
        self.selectors.iter().find(|(name, _)| name == namespace).map(|(_, selector)| selector.as_str())
    }
}

impl Mutate for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn handles(&self, write: &Write) -> bool {
        write.creates("", "pods")
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let Some(namespace) = self.cluster.namespace(&write.namespace) else { return Ok(()) };
            let annotation = namespace.value()["metadata"]["annotations"]["scheduler.alpha.kubernetes.io/node-selector"].as_str();
            let selector = annotation.or_else(|| self.configured("clusterDefaultNodeSelector")).unwrap_or_default().to_owned();
            if !merge(&selector, &mut write.object_mut()["spec"]) {
                return Err(write.forbidden("pod node label selector conflicts with its namespace node label selector"));
            }
            // What the configuration says of a namespace bounds what its Pods may select.
            let Some(allowed) = self.configured(&write.namespace) else { return Ok(()) };
            let mut bounds = json!({"nodeSelector": {}});
            merge(allowed, &mut bounds);
            let contradicts = |(key, value): (&String, &Value)| bounds["nodeSelector"].get(key).is_none_or(|bound| bound != value);
            match write.object()["spec"]["nodeSelector"].as_object().into_iter().flatten().any(contradicts) {
                true => Err(write.forbidden("pod node label selector labels conflict with its namespace whitelist")),
                false => Ok(()),
            }
        })
    }
}

/// Adds `a=b,c=d` to a Pod's selector; answers whether they agree.
fn merge(selector: &str, spec: &mut Value) -> bool {
    for term in selector.split(',').map(str::trim).filter(|t| !t.is_empty()) {
        let (key, value) = term.split_once('=').unwrap_or((term, ""));
        let value = value.trim_start_matches('=');
        match spec["nodeSelector"].get(key).and_then(Value::as_str) {
            Some(given) if given != value => return false,
            _ => spec["nodeSelector"][key] = json!(value),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_merged_unless_they_contradict() {
        let mut spec = json!({"nodeSelector": {"a": "1"}});
        assert!(merge("a=1, b=2", &mut spec));
        assert_eq!(spec["nodeSelector"], json!({"a": "1", "b": "2"}));
        assert!(!merge("a=2", &mut spec));
    }
}
