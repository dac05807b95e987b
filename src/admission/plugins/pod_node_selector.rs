//! `PodNodeSelector`: a namespace says by an annotation on which nodes its Pods run, and the configuration says where it says nothing and
//! which labels its Pods may ask for at all.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::admission::{Cluster, Mutate, Validate, Write};
use crate::object::meta;
use crate::status::Status;
use crate::validation::names;

/// The plugin.
pub struct PodNodeSelector {
    /// The cluster, for the namespace's annotation.
    pub cluster: Cluster,
    /// What the configuration says, by namespace; `clusterDefaultNodeSelector` is for all that have no annotation.
    pub selectors: Vec<(String, String)>,
}

impl PodNodeSelector {
    fn configured(&self, namespace: &str) -> &str {
        self.selectors.iter().find(|(name, _)| name == namespace).map_or("", |(_, selector)| selector.as_str())
    }

    /// What every Pod of a namespace selects.
    fn selector_of(&self, namespace: &str) -> Result<BTreeMap<String, String>, Status> {
        let namespace = self.cluster.namespace(namespace);
        let annotations = namespace.as_ref().map(|namespace| &namespace.value()["metadata"]["annotations"]);
        let own = annotations.and_then(|annotations| annotations["scheduler.alpha.kubernetes.io/node-selector"].as_str());
        read(own.unwrap_or_else(|| self.configured("clusterDefaultNodeSelector")))
    }

    /// Whether a Pod selects what its namespace does, and nothing that it may not.
    fn check(&self, write: &Write) -> Result<(), Status> {
        let refused = |why: &str| Err(Status::forbidden("", "pods", meta(write.object(), "name"), why));
        let selected = write.object()["spec"]["nodeSelector"].as_object();
        let selected = || selected.into_iter().flatten();
        let namespace = self.selector_of(&write.namespace)?;
        if selected().any(|(key, value)| namespace.get(key).is_some_and(|wanted| value != wanted)) {
            return refused("pod node label selector conflicts with its namespace node label selector");
        }
        let bounds = read(self.configured(&write.namespace))?;
        match bounds.is_empty() || selected().all(|(key, value)| bounds.get(key).is_some_and(|bound| value == bound)) {
            true => Ok(()),
            false => refused("pod node label selector labels conflict with its namespace whitelist"),
        }
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
            for (key, value) in self.selector_of(&write.namespace)? {
                let spec = &mut write.object_mut()["spec"];
                if spec["nodeSelector"].get(&key).is_none() {
                    spec["nodeSelector"][key] = json!(value);
                }
            }
            self.check(write)
        })
    }
}

impl Validate for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn handles(&self, write: &Write) -> bool {
        write.creates("", "pods")
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move { self.check(write) })
    }
}

/// Reads `a=b,c=d`.
fn read(selector: &str) -> Result<BTreeMap<String, String>, Status> {
    let mut labels = BTreeMap::new();
    for term in selector.split(',').filter(|_| !selector.is_empty()) {
        let parts: Vec<&str> = term.split('=').collect();
        let [key, value] = parts[..] else { return Err(Status::unclassified(format!("invalid selector: [{}]", parts.join(" ")))) };
        let (key, value) = (key.trim(), value.trim());
        let wrong = |at: &str, said: &str, why: Vec<String>| {
            Status::unclassified(format!("{at}: Invalid value: {}: {}", Value::from(said), why.join("; ")))
        };
        match (names::qualified(key), names::label_value(value)) {
            (why, _) if !why.is_empty() => return Err(wrong("<nil>", key, why)),
            (_, why) if !why.is_empty() => return Err(wrong(&format!("[{key}]"), value, why)),
            _ => labels.insert(key.to_owned(), value.to_owned()),
        };
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_read_or_it_is_said_what_is_wrong_with_it() {
        assert_eq!(read("a=1, b=2").unwrap(), BTreeMap::from([("a".into(), "1".into()), ("b".into(), "2".into())]));
        assert!(read("").unwrap().is_empty());
        assert_eq!(read("a in (b").unwrap_err().message, "invalid selector: [a in (b]");
        assert!(read("a=b c").unwrap_err().message.starts_with("[a]: Invalid value: \"b c\": a valid label must be "));
        assert_eq!(read("a==b").unwrap_err().message, "invalid selector: [a  b]");
    }
}
