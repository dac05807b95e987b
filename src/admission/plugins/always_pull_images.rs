//! `AlwaysPullImages`: no Pod runs an image that its user could not have pulled.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::pod::{CONTAINER_LISTS, containers_mut};
use crate::admission::{Mutate, Operation, Write};
use crate::status::Status;

/// The plugin.
pub struct AlwaysPullImages;

impl Mutate for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn handles(&self, write: &Write) -> bool {
        write.is_of("", "pods")
            && matches!(write.subresource.as_str(), "" | "ephemeralcontainers")
            && matches!(write.operation, Operation::Create | Operation::Update)
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let spec = &mut write.object_mut()["spec"];
            for container in containers_mut(spec, &CONTAINER_LISTS) {
                container["imagePullPolicy"] = json!("Always");
            }
            for volume in spec["volumes"].as_array_mut().into_iter().flatten() {
                if let Some(image @ Value::Object(_)) = volume.get_mut("image") {
                    image["pullPolicy"] = json!("Always");
                }
            }
            Ok(())
        })
    }
}
