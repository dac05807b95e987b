//! `DenyServiceExternalIPs`: no Service takes over an address by claiming it.

use futures::future::BoxFuture;
use serde_json::Value;

use crate::admission::{Operation, Validate, Write};
use crate::status::Status;

/// The plugin.
pub struct DenyServiceExternalIPs;

impl Validate for DenyServiceExternalIPs {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn handles(&self, write: &Write) -> bool {
        write.is("", "services") && matches!(write.operation, Operation::Create | Operation::Update)
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let addresses = |service: &Value| service["spec"]["externalIPs"].as_array().cloned().unwrap_or_default();
            let old = addresses(write.old());
            match addresses(write.object()).iter().all(|address| old.contains(address)) {
                true => Ok(()),
                false => Err(write.forbidden("Use of external IPs is denied by admission control")),
            }
        })
    }
}
