//! `TaintNodesByCondition`: a new node gets no Pods before somebody found it ready.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::pod::array_mut;
use crate::admission::{Mutate, Write};
use crate::status::Status;

/// The plugin.
pub struct TaintNodesByCondition;

impl Mutate for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn handles(&self, write: &Write) -> bool {
        write.creates("", "nodes")
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let object = write.object_mut();
            let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
            let is_same = |t: &Value| t["key"] == taint["key"] && t["effect"] == taint["effect"];
            if !object["spec"]["taints"].as_array().into_iter().flatten().any(is_same) {
                array_mut(&mut object["spec"], "taints").push(taint);
            }
            Ok(())
        })
    }
}
