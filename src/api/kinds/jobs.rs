//! Jobs: the selector and the labels of the Pods, which follow from the Job's uid unless the client chose its own.

use serde_json::{Value, json};

use crate::object::meta;

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
    // Each twice: the prefixed names, and those that they replaced.
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        labels[key] = json!(value);
    }
    let selector = &mut object["spec"]["selector"];
    if !selector.is_object() {
        *selector = json!({});
    }
    if !selector["matchLabels"].is_object() {
        selector["matchLabels"] = json!({});
    }
    selector["matchLabels"]["batch.kubernetes.io/controller-uid"] = json!(uid);
}
