//! `PodNodeSelector`: a namespace says by an annotation on which nodes its Pods run.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::admission::{Cluster, Mutate, Write};
use crate::status::Status;

/// The plugin.
pub struct PodNodeSelector(pub Cluster);

impl Mutate for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn handles(&self, write: &Write) -> bool {
        write.creates("", "pods")
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let Some(namespace) = self.0.namespace(&write.namespace) else { return Ok(()) };
            let selector = namespace.value()["metadata"]["annotations"]["scheduler.alpha.kubernetes.io/node-selector"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            match merge(&selector, &mut write.object_mut()["spec"]) {
                true => Ok(()),
                false => Err(write.forbidden("pod node label selector conflicts with its namespace node label selector")),
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
