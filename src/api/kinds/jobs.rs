//! Jobs: the selector and the labels of the Pods, which follow from the Job's uid unless the client chose its own.

use serde_json::{Value, json};

use crate::object::meta;

/// Whether labels are those of the Pods, as they stand in for labels that a Job does not have.
fn is_of(labels: &Value, pods: &Value) -> bool {
    labels.as_object().is_some_and(|labels| !labels.is_empty() && labels.iter().all(|(key, value)| pods.get(key) == Some(value)))
}

pub(super) fn prepare_for_create(object: &mut Value) {
    if object["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (meta(object, "uid").to_owned(), meta(object, "name").to_owned());
    let metadata = &mut object["spec"]["template"]["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    let labels = &mut metadata["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    // Each twice: the prefixed names, and those that they replaced. What the client wrote there is told by validation.
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        if labels[key].is_null() {
            labels[key] = json!(value);
        }
    }
    let selector = &mut object["spec"]["selector"];
    if !selector.is_object() {
        *selector = json!({});
    }
    if !selector["matchLabels"].is_object() {
        selector["matchLabels"] = json!({});
    }
    if selector["matchLabels"]["batch.kubernetes.io/controller-uid"].is_null() {
        selector["matchLabels"]["batch.kubernetes.io/controller-uid"] = json!(uid);
    }
    // A Job without labels has those of its Pods, what was just added among them.
    let given = object["spec"]["template"]["metadata"]["labels"].clone();
    if crate::object::meta_mut(object).get("labels").is_none_or(|labels| is_of(labels, &given)) {
        object["metadata"]["labels"] = given;
    }
}
