//! CertificateSigningRequests: who asked is written in by the server, and each subresource changes its own part alone.

use serde_json::{Value, json};

use crate::api::Api;
use crate::api::strategy::Phase;
use crate::request::User;

/// The author, over whatever the author wrote there.
pub(super) fn prepare_for_create(object: &mut Value, user: &User) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for field in ["username", "uid", "groups", "extra"] {
        spec.remove(field);
    }
    if let Value::Object(author) = user.to_json() {
        spec.extend(author);
    }
}

pub(super) fn prepare_for_update(api: &Api, phase: Phase, old: &Value, new: &mut Value) {
    new["spec"] = old["spec"].clone();
    match phase {
        Phase::Main => return,
        Phase::Status => keep_decisions(old, new),
        // The one other subresource is the approval.
        _ => {
            let conditions = new["status"]["conditions"].take();
            new["status"] = old.get("status").cloned().unwrap_or_else(|| json!({}));
            if let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) {
                match conditions.is_array() {
                    true => status.insert("conditions".into(), conditions),
                    false => status.remove("conditions"),
                };
            }
        }
    }
    stamp(new, old, &api.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
}

/// Whether it is approved or denied is not the signer's to say: these conditions stay as they are.
fn keep_decisions(old: &Value, new: &mut Value) {
    let decided = |condition: &Value| matches!(condition["type"].as_str(), Some("Approved" | "Denied"));
    let Some(conditions) = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else { return };
    for condition in conditions.iter_mut().filter(|c| decided(c)) {
        let same = old["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == condition["type"]);
        if let Some(same) = same {
            *condition = same.clone();
        }
    }
}

/// When conditions came about: now, for those that are new and do not say.
fn stamp(new: &mut Value, old: &Value, now: &str) {
    for condition in new.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = json!(now);
        }
        if condition["lastTransitionTime"].is_null() {
            let before = old["status"]["conditions"].as_array().into_iter().flatten();
            let same = before.into_iter().find(|c| c["type"] == condition["type"] && c["status"] == condition["status"]);
            let since = same.map(|c| c["lastTransitionTime"].clone()).filter(Value::is_string);
            condition["lastTransitionTime"] = since.unwrap_or_else(|| json!(now));
        }
    }
}
