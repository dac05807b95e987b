//! `AlwaysPullImages`: no Pod runs an image that its user could not have pulled.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::pod::{CONTAINER_LISTS, containers, containers_mut};
use crate::admission::{Mutate, Operation, Validate, Write};
use crate::status::{FieldError, Status};

/// The plugin.
pub struct AlwaysPullImages;

const ALWAYS: &str = "Always";

/// Whether a Pod comes with images that it did not have before.
fn is_concerned(write: &Write) -> bool {
    let images = |pod: &Value| -> BTreeSet<String> {
        containers(&pod["spec"]).map(|container| container["image"].as_str().unwrap_or_default().to_owned()).collect()
    };
    write.is("", "pods")
        && match write.operation {
            Operation::Create => true,
            Operation::Update => !images(write.object()).is_subset(&images(write.old())),
            _ => false,
        }
}

impl Mutate for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn handles(&self, write: &Write) -> bool {
        is_concerned(write)
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let spec = &mut write.object_mut()["spec"];
            for container in containers_mut(spec, &CONTAINER_LISTS) {
                container["imagePullPolicy"] = json!(ALWAYS);
            }
            for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(image @ Value::Object(_)) = volume.get_mut("image") {
                    image["pullPolicy"] = json!(ALWAYS);
                }
            }
            Ok(())
        })
    }
}

impl Validate for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn handles(&self, write: &Write) -> bool {
        is_concerned(write)
    }

    /// Somebody may have changed it since.
    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let wrong = wrong(&write.object()["spec"]);
            let told: Vec<String> = wrong.into_iter().map(|error| write.forbidden(error).message).collect();
            match told.as_slice() {
                [] => Ok(()),
                [one] => Err(Status::unclassified(one.clone())),
                many => Err(Status::unclassified(format!("[{}]", many.join(", ")))),
            }
        })
    }
}

/// Every place that does not pull always.
fn wrong(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut check = |at: String, policy: &Value| {
        if policy != ALWAYS {
            errors.push(FieldError::not_supported(at, &policy.as_str().unwrap_or_default().into(), &[ALWAYS]));
        }
    };
    let list = |name: &str| spec[name].as_array().map(Vec::as_slice).unwrap_or_default();
    for name in ["initContainers", "containers", "ephemeralContainers"] {
        for (i, container) in list(name).iter().enumerate() {
            check(format!("spec.{name}[{i}].imagePullPolicy"), &container["imagePullPolicy"]);
        }
    }
    for (i, volume) in list("volumes").iter().enumerate().filter(|(_, volume)| volume["image"].is_object()) {
        check(format!("spec.volumes[{i}].image.pullPolicy"), &volume["image"]["pullPolicy"]);
    }
    errors
}
