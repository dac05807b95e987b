//! `DefaultTolerationSeconds`: a Pod stays for five minutes on a node that is not ready or cannot be reached, unless it says otherwise.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::pod::array_mut;
use crate::admission::{Mutate, Operation, Write};
use crate::status::Status;

const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The plugin; the seconds are `--default-not-ready-toleration-seconds` and its sibling.
pub struct DefaultTolerationSeconds;

impl Mutate for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, write: &Write) -> bool {
        write.is("", "pods") && matches!(write.operation, Operation::Create | Operation::Update)
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            tolerate(&mut write.object_mut()["spec"]);
            Ok(())
        })
    }
}

fn tolerate(spec: &mut Value) {
    let empty = |value: &Value| value.as_str().is_none_or(str::is_empty);
    for taint in TAINTS {
        let tolerates = |t: &Value| (empty(&t["key"]) || t["key"] == taint) && (empty(&t["effect"]) || t["effect"] == "NoExecute");
        if !spec["tolerations"].as_array().into_iter().flatten().any(tolerates) {
            array_mut(spec, "tolerations")
                .push(json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tolerations_are_added_once() {
        let mut spec = json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "tolerationSeconds": 5}]});
        tolerate(&mut spec);
        tolerate(&mut spec);
        assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
        assert_eq!(spec["tolerations"][0]["tolerationSeconds"], 5);
        let mut all = json!({"tolerations": [{"operator": "Exists"}]});
        tolerate(&mut all);
        assert_eq!(all["tolerations"].as_array().unwrap().len(), 1, "a toleration of everything tolerates these too");
    }
}
