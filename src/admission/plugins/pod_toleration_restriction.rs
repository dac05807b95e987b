//! `PodTolerationRestriction`: a namespace says by annotations what its Pods tolerate, and what they may tolerate at all.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::pod::array_mut;
use crate::admission::{Cluster, Mutate, Operation, Write};
use crate::status::Status;

/// The plugin.
pub struct PodTolerationRestriction(pub Cluster);

impl Mutate for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    fn handles(&self, write: &Write) -> bool {
        write.is("", "pods") && matches!(write.operation, Operation::Create | Operation::Update)
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let Some(namespace) = self.0.namespace(&write.namespace) else { return Ok(()) };
            let annotation = |name: &str| -> Vec<Value> {
                let text = namespace.value()["metadata"]["annotations"][format!("scheduler.alpha.kubernetes.io/{name}")].as_str();
                text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
            };
            let (defaults, allowed) = (annotation("defaultTolerations"), annotation("tolerationsWhitelist"));
            let is_create = write.operation == Operation::Create;
            let tolerations = array_mut(&mut write.object_mut()["spec"], "tolerations");
            if is_create {
                for toleration in &defaults {
                    if tolerations.iter().any(|t| conflicts(t, toleration)) {
                        return Err(write.forbidden("namespace tolerations and pod tolerations conflict"));
                    }
                    if !tolerations.contains(toleration) {
                        tolerations.push(toleration.clone());
                    }
                }
            }
            if !allowed.is_empty() && !tolerations.iter().all(|t| allowed.iter().any(|a| covers(a, t))) {
                return Err(write.forbidden(
                    "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist",
                ));
            }
            if tolerations.is_empty()
                && let Some(spec) = write.object_mut()["spec"].as_object_mut()
            {
                spec.remove("tolerations");
            }
            Ok(())
        })
    }
}

/// Whether two tolerations are about the same taint and differ in how long.
fn conflicts(a: &Value, b: &Value) -> bool {
    let same = |field: &str| a[field] == b[field];
    same("key") && same("effect") && same("value") && same("operator") && !same("tolerationSeconds")
}

/// Whether one toleration allows at least what another does.
fn covers(allowed: &Value, given: &Value) -> bool {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (key, effect) = (text(allowed, "key"), text(allowed, "effect"));
    let seconds = |value: &Value| value["tolerationSeconds"].as_i64();
    (key.is_empty() || key == text(given, "key"))
        && (effect.is_empty() || effect == text(given, "effect"))
        && (text(allowed, "operator") == "Exists" || allowed["value"] == given["value"] || json!(null) == allowed["value"])
        && match (seconds(allowed), seconds(given)) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(most), Some(asked)) => asked <= most,
        }
}
