//! `Priority`: a Pod's priority is the number of its PriorityClass, never one of its own choosing.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::admission::{Cluster, Mutate, Operation, Validate, Write};
use crate::object::meta;
use crate::status::Status;

/// Classes that a server always has, also in the moment before they are first written.
const SYSTEM: [(&str, i64); 2] = [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// The plugin.
pub struct Priority(pub Cluster);

impl Mutate for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, write: &Write) -> bool {
        write.is("", "pods") && matches!(write.operation, Operation::Create | Operation::Update)
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            if write.operation == Operation::Update {
                let old = write.old()["spec"].clone();
                let spec = &mut write.object_mut()["spec"];
                for field in ["priority", "preemptionPolicy"] {
                    if spec[field].is_null() && !old[field].is_null() {
                        spec[field] = old[field].clone();
                    }
                }
                return Ok(());
            }
            let class = write.object()["spec"]["priorityClassName"].as_str().unwrap_or_default().to_owned();
            let (name, value, policy) = match class.is_empty() {
                true => self.default_class().await?,
                false => {
                    self.class(&class).await?.ok_or_else(|| write.forbidden(format!("no PriorityClass with name {class} was found")))?
                }
            };
            let spec = &write.object()["spec"];
            if let Some(given) = spec["priority"].as_i64().filter(|given| *given != value) {
                return Err(write.forbidden(format!(
                    "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
                )));
            }
            if let Some(given) = spec["preemptionPolicy"].as_str().filter(|given| *given != policy) {
                return Err(write.forbidden(format!(
                    "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
                )));
            }
            let spec = &mut write.object_mut()["spec"];
            if !name.is_empty() {
                spec["priorityClassName"] = json!(name);
            }
            spec["priority"] = json!(value);
            spec["preemptionPolicy"] = json!(policy);
            Ok(())
        })
    }
}

impl Validate for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, write: &Write) -> bool {
        write.is("scheduling.k8s.io", "priorityclasses")
            && matches!(write.operation, Operation::Create | Operation::Update)
            && write.object()["globalDefault"] == true
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let name = meta(write.object(), "name");
            for class in self.0.list("priorityclasses", "").await? {
                if class.value()["globalDefault"] == true && class.name() != name {
                    return Err(
                        write.forbidden(format!("PriorityClass {} is already marked as default. Only one default can exist", class.name()))
                    );
                }
            }
            Ok(())
        })
    }
}

type Class = (String, i64, String);

impl Priority {
    async fn class(&self, name: &str) -> Result<Option<Class>, Status> {
        Ok(match self.0.get("priorityclasses", "", name).await? {
            Some(class) => Some(read(name, class.value())),
            None => SYSTEM.iter().find(|(n, _)| *n == name).map(|(n, v)| ((*n).to_owned(), *v, "PreemptLowerPriority".to_owned())),
        })
    }

    /// The default class; of several, the one that gives least.
    async fn default_class(&self) -> Result<Class, Status> {
        let classes = self.0.list("priorityclasses", "").await?;
        let defaults = classes.iter().filter(|c| c.value()["globalDefault"] == true).map(|c| read(c.name(), c.value()));
        Ok(defaults.min_by_key(|(_, value, _)| *value).unwrap_or_else(|| (String::new(), 0, "PreemptLowerPriority".to_owned())))
    }
}

fn read(name: &str, class: &Value) -> Class {
    let policy = class["preemptionPolicy"].as_str().filter(|p| !p.is_empty()).unwrap_or("PreemptLowerPriority");
    (name.to_owned(), class["value"].as_i64().unwrap_or(0), policy.to_owned())
}
