//! `RuntimeClass`: a Pod of a runtime class gets that class's overhead and goes to the nodes that have it.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::pod::array_mut;
use crate::admission::{Cluster, Mutate, Validate, Write};
use crate::status::Status;

/// The plugin.
pub struct RuntimeClass(pub Cluster);

impl RuntimeClass {
    async fn class(&self, write: &Write) -> Result<Option<Value>, Status> {
        let name = write.object()["spec"]["runtimeClassName"].as_str().unwrap_or_default();
        if name.is_empty() {
            return Ok(None);
        }
        match self.0.get("runtimeclasses", "", name).await? {
            Some(class) => Ok(Some((**class.value()).clone())),
            None => Err(write.forbidden(format!("pod rejected: RuntimeClass {name:?} not found"))),
        }
    }
}

impl Mutate for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, write: &Write) -> bool {
        write.creates("", "pods") && write.object()["spec"]["runtimeClassName"].is_string()
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let Some(class) = self.class(write).await? else { return Ok(()) };
            apply(&class, &mut write.object_mut()["spec"]).map_err(|why| write.forbidden(why))
        })
    }
}

fn apply(class: &Value, spec: &mut Value) -> Result<(), String> {
    let overhead = &class["overhead"]["podFixed"];
    if !overhead.is_null() {
        if !spec["overhead"].is_null() && spec["overhead"] != *overhead {
            return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".into());
        }
        spec["overhead"] = overhead.clone();
    }
    for (key, value) in class["scheduling"]["nodeSelector"].as_object().into_iter().flatten() {
        let shown = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        match spec["nodeSelector"].get(key) {
            Some(given) if given != value => {
                return Err(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    shown(value),
                    shown(given)
                ));
            }
            _ => spec["nodeSelector"][key] = value.clone(),
        }
    }
    for toleration in class["scheduling"]["tolerations"].as_array().into_iter().flatten() {
        let tolerations = array_mut(spec, "tolerations");
        if !tolerations.contains(toleration) {
            tolerations.push(toleration.clone());
        }
    }
    Ok(())
}

impl Validate for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, write: &Write) -> bool {
        write.creates("", "pods")
            && (!write.object()["spec"]["overhead"].is_null() || write.object()["spec"]["runtimeClassName"].is_string())
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let class = self.class(write).await?.unwrap_or_else(|| json!({}));
            let (overhead, defined) = (&write.object()["spec"]["overhead"], &class["overhead"]["podFixed"]);
            if !overhead.is_null() && defined.is_null() {
                return Err(write.forbidden("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"));
            }
            Ok(())
        })
    }
}
