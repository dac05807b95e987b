//! From a review to its answer: the labels that an object lacks, as a JSON Patch, and a warning that says so.

use base64::Engine;
use serde_json::{Value, json};

/// Reads `key=value` pairs.
pub fn parse(pairs: &[String]) -> Result<Vec<(String, String)>, String> {
    let read = |pair: &String| {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not key=value"))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    pairs.iter().map(read).collect()
}

/// The answer to a review.
pub fn answer(review: &Value, defaults: &[(String, String)]) -> Value {
    let request = &review["request"];
    let mut response = json!({"uid": request["uid"], "allowed": true});
    let labels = &request["object"]["metadata"]["labels"];
    let missing: Vec<&(String, String)> = defaults.iter().filter(|(key, _)| labels.get(key).is_none()).collect();
    if !missing.is_empty() && request["object"].is_object() {
        let mut patch = Vec::new();
        if !labels.is_object() {
            patch.push(json!({"op": "add", "path": "/metadata/labels", "value": {}}));
        }
        for (key, value) in &missing {
            // RFC 6901: a key is escaped before it becomes part of a path.
            let path = format!("/metadata/labels/{}", key.replace('~', "~0").replace('/', "~1"));
            patch.push(json!({"op": "add", "path": path, "value": value}));
        }
        let keys: Vec<&str> = missing.iter().map(|(key, _)| key.as_str()).collect();
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(base64::engine::general_purpose::STANDARD.encode(Value::Array(patch).to_string()));
        response["warnings"] = json!([format!("default labels were set: {}", keys.join(", "))]);
    }
    json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_labels_are_added() {
        let defaults = parse(&["team=none".into(), "example.com/tier=web".into()]).unwrap();
        let review = |labels: Value| json!({"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", "object": {"metadata": {"labels": labels}}}});
        let answered = answer(&review(json!({"team": "a"})), &defaults);
        let patch = base64::engine::general_purpose::STANDARD.decode(answered["response"]["patch"].as_str().unwrap()).unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch, json!([{"op": "add", "path": "/metadata/labels/example.com~1tier", "value": "web"}]));
        let complete = answer(&review(json!({"team": "a", "example.com/tier": "b"})), &defaults);
        assert!(complete["response"].get("patch").is_none());
    }
}
