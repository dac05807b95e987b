//! `PodTolerationRestriction`: a namespace says by annotations what its Pods tolerate, and what they may tolerate at all; where it says
//! nothing, the configuration does.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::pod::array_mut;
use crate::admission::{Cluster, Mutate, Operation, Validate, Write};
use crate::object::qos;
use crate::schema::syntax;
use crate::status::Status;

/// What holds where a namespace says nothing.
#[derive(Clone, Debug, Default)]
pub struct Tolerations {
    /// What Pods tolerate.
    pub default: Vec<Value>,
    /// What they may tolerate; nothing is everything.
    pub whitelist: Vec<Value>,
}

/// The plugin.
pub struct PodTolerationRestriction {
    /// The cluster, for the namespace's annotations.
    pub cluster: Cluster,
    /// What the configuration says.
    pub configured: Tolerations,
}

impl PodTolerationRestriction {
    /// What a namespace says of itself; `None` if it says nothing.
    fn annotated(&self, namespace: &str, name: &str) -> Result<Option<Vec<Value>>, Status> {
        let Some(namespace) = self.cluster.namespace(namespace) else { return Ok(None) };
        let annotations = &namespace.value()["metadata"]["annotations"];
        match annotations[format!("scheduler.alpha.kubernetes.io/{name}")].as_str() {
            None => Ok(None),
            Some("") => Ok(Some(Vec::new())),
            Some(text) => match serde_json::from_str(text) {
                Ok(tolerations) => Ok(Some(tolerations)),
                Err(_) => Err(Status::unclassified(syntax::explain(text.as_bytes()))),
            },
        }
    }

    fn check(&self, write: &Write) -> Result<(), Status> {
        let tolerations = write.object()["spec"]["tolerations"].as_array().map(Vec::as_slice).unwrap_or_default();
        if tolerations.is_empty() {
            return Ok(());
        }
        let (allowed, whose) = match self.annotated(&write.namespace, "tolerationsWhitelist")? {
            Some(allowed) => (allowed, "namespace"),
            None => (self.configured.whitelist.clone(), "cluster"),
        };
        match allowed.is_empty() || tolerations.iter().all(|t| allowed.iter().any(|a| covers(a, t))) {
            true => Ok(()),
            false => Err(Status::unclassified(format!(
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its {whose} whitelist"
            ))),
        }
    }

    fn is_concerned(write: &Write) -> bool {
        write.is("", "pods") && matches!(write.operation, Operation::Create | Operation::Update)
    }
}

impl Mutate for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    fn handles(&self, write: &Write) -> bool {
        Self::is_concerned(write)
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let mut extra = Vec::new();
            if write.operation == Operation::Create {
                let own = self.annotated(&write.namespace, "defaultTolerations")?;
                extra = own.unwrap_or_else(|| self.configured.default.clone());
            }
            let spec = &mut write.object_mut()["spec"];
            if qos::class(spec) != "BestEffort" {
                extra.push(json!({"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}));
            }
            if !extra.is_empty() {
                let tolerations = array_mut(spec, "tolerations");
                let all = std::mem::take(tolerations).into_iter().chain(extra).collect();
                *tolerations = merged(all);
            }
            self.check(write)
        })
    }
}

impl Validate for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    fn handles(&self, write: &Write) -> bool {
        Self::is_concerned(write)
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move { self.check(write) })
    }
}

/// Tolerations without those that others among them cover.
fn merged(all: Vec<Value>) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for (i, one) in all.iter().enumerate() {
        let is_covered = kept.iter().any(|other| covers(other, one)) || all[i + 1..].iter().any(|other| other != one && covers(other, one));
        if !is_covered {
            kept.push(one.clone());
        }
    }
    kept
}

/// Whether one toleration allows at least what another does.
fn covers(allowed: &Value, given: &Value) -> bool {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (key, effect, operator) = (text(allowed, "key"), text(allowed, "effect"), text(allowed, "operator"));
    let is_about = key == text(given, "key") || (key.is_empty() && operator == "Exists");
    let seconds = |value: &Value| value["tolerationSeconds"].as_i64();
    let is_long_enough = match (effect.as_str(), seconds(allowed)) {
        ("NoExecute", Some(most)) => seconds(given).is_some_and(|asked| asked <= most),
        _ => true,
    };
    let has_value = match operator.as_str() {
        "Exists" => true,
        "Equal" | "" => text(given, "operator") == "Equal" && text(given, "value") == text(allowed, "value"),
        _ => false,
    };
    allowed == given || (is_about && (effect.is_empty() || effect == text(given, "effect")) && is_long_enough && has_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_toleration_covers_is_left_out() {
        let all = vec![
            json!({"key": "a", "operator": "Equal", "value": "x", "effect": "NoSchedule"}),
            json!({"key": "b", "operator": "Exists"}),
            json!({"key": "a", "operator": "Exists"}),
            json!({"key": "b", "operator": "Exists"}),
        ];
        assert_eq!(merged(all), [json!({"key": "b", "operator": "Exists"}), json!({"key": "a", "operator": "Exists"})]);
    }

    #[test]
    fn a_toleration_covers_what_it_allows_and_no_longer() {
        let of = |key: &str, seconds: i64| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        assert!(covers(&of("a", 10), &of("a", 5)) && !covers(&of("a", 10), &of("a", 20)) && !covers(&of("a", 10), &of("b", 5)));
        assert!(covers(&json!({"operator": "Exists"}), &of("a", 5)), "any key");
        let valued = |operator: &str, value: &str| json!({"key": "a", "operator": operator, "value": value, "effect": "NoSchedule"});
        assert!(covers(&json!({"key": "a", "value": "x"}), &valued("Equal", "x")));
        assert!(!covers(&json!({"key": "a", "value": "x"}), &valued("Equal", "y")));
        assert!(!covers(&json!({"key": "a", "value": "x"}), &valued("", "x")), "only what says so is equal");
    }
}
