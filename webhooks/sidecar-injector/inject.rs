//! From a review to its answer: whether a Pod gets a sidecar, and the JSON Patch that adds it. Asking twice adds it once.

use base64::Engine;
use serde_json::{Value, json};

const NAME: &str = "sidecar";
const OPT_OUT: &str = "sidecar.example.com/inject";

/// The answer to a review.
pub fn answer(review: &Value, image: &str) -> Value {
    let request = &review["request"];
    let mut response = json!({"uid": request["uid"], "allowed": true});
    let patch = patch(&request["object"], image);
    if !patch.is_empty() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(base64::engine::general_purpose::STANDARD.encode(Value::Array(patch).to_string()));
        response["auditAnnotations"] = json!({"injected": image});
    }
    json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})
}

fn patch(pod: &Value, image: &str) -> Vec<Value> {
    let containers = pod["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has_it = containers.iter().any(|container| container["name"] == NAME);
    let opted_out = pod["metadata"]["annotations"][OPT_OUT] == "false";
    if containers.is_empty() || has_it || opted_out {
        return Vec::new();
    }
    let sidecar = json!({
        "name": NAME, "image": image,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
    });
    vec![json!({"op": "add", "path": "/spec/containers/-", "value": sidecar})]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(pod: Value) -> Value {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "object": pod}})
    }

    #[test]
    fn a_pod_gets_the_sidecar_once() {
        let plain = json!({"spec": {"containers": [{"name": "app"}]}});
        let answered = answer(&review(plain), "image");
        assert_eq!((&answered["response"]["uid"], &answered["response"]["patchType"]), (&json!("u"), &json!("JSONPatch")));
        let has_it = json!({"spec": {"containers": [{"name": "app"}, {"name": "sidecar"}]}});
        assert!(answer(&review(has_it), "image")["response"].get("patch").is_none());
    }

    #[test]
    fn a_pod_can_opt_out() {
        let pod = json!({"metadata": {"annotations": {OPT_OUT: "false"}}, "spec": {"containers": [{"name": "app"}]}});
        assert!(answer(&review(pod), "image")["response"].get("patch").is_none());
    }
}
