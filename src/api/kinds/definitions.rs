//! CustomResourceDefinitions: accepted names and conditions are settled in the write itself, so that a definition is established when its
//! write is acknowledged; the finalizer that holds it until its instances are gone.

use serde_json::{Value, json};

use crate::api::Api;
use crate::api::strategy::Phase;
use crate::api::subresource::set_condition;
use crate::object::{meta, meta_mut};

pub(super) fn prepare_for_create(api: &Api, object: &mut Value) {
    let finalizers = meta_mut(object).entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = finalizers.as_array_mut()
        && !list.contains(&json!(crate::server::definitions::CLEANUP))
    {
        list.push(json!(crate::server::definitions::CLEANUP));
    }
    object["status"] =
        json!({"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored_version(&object["spec"])});
    settle(api, object);
}

pub(super) fn prepare_for_update(api: &Api, phase: Phase, new: &mut Value) {
    if phase != Phase::Main || !meta(new, "deletionTimestamp").is_empty() {
        return;
    }
    let mut stored = new["status"]["storedVersions"].as_array().cloned().unwrap_or_default();
    for version in stored_version(&new["spec"]) {
        if !stored.contains(&version) {
            stored.push(version);
        }
    }
    new["status"]["storedVersions"] = stored.into();
    settle(api, new);
}

fn stored_version(spec: &Value) -> Vec<Value> {
    let versions = spec["versions"].as_array().into_iter().flatten();
    versions.filter(|v| v["storage"] == true).map(|v| v["name"].clone()).collect()
}

/// Accepts the names unless another definition of the group has one of them.
fn settle(api: &Api, definition: &mut Value) {
    let now = api.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let spec = definition["spec"].clone();
    let (group, names) = (spec["group"].as_str().unwrap_or_default(), &spec["names"]);
    let mine = meta(definition, "name").to_owned();
    let table = api.registry.table();
    let others: Vec<_> = table
        .resources
        .iter()
        .filter(|r| &*r.group == group && r.custom.as_ref().is_some_and(|c| meta(&c.definition, "name") != mine))
        .collect();
    let mut taken = Vec::new();
    for (what, value) in [("plural", &names["plural"]), ("singular", &names["singular"])] {
        let value = value.as_str().unwrap_or_default();
        if !value.is_empty()
            && others.iter().any(|r| &*r.plural == value || &*r.singular == value || r.short_names.iter().any(|s| &**s == value))
        {
            taken.push((what, format!("{value:?} is already in use")));
        }
    }
    for short in names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if others.iter().any(|r| &*r.plural == short || &*r.singular == short || r.short_names.iter().any(|s| &**s == short)) {
            taken.push(("short", format!("{short:?} is already in use")));
        }
    }
    for (what, value, list) in [("kind", &names["kind"], false), ("list", &names["listKind"], true)] {
        let value = value.as_str().unwrap_or_default();
        if !value.is_empty() && others.iter().any(|r| if list { &*r.list_kind == value } else { &*r.kind == value }) {
            taken.push((what, format!("{value:?} is already in use")));
        }
    }
    let status = &mut definition["status"];
    let kept = |status: &Value, kind: &str, value: &str| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.filter(|c| c["type"] == kind && c["status"] == value).map(|c| c["lastTransitionTime"].clone()).next()
    };
    let mut condition = |kind: &str, value: &str, reason: &str, message: &str| {
        let since = kept(status, kind, value).unwrap_or_else(|| json!(now));
        set_condition(status, json!({"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": since}));
    };
    match taken.first() {
        None => {
            condition("NamesAccepted", "True", "NoConflicts", "no conflicts found");
            condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted");
            status["acceptedNames"] = names.clone();
        }
        Some((what, why)) => {
            let reason = format!("{}{}Conflict", what[..1].to_uppercase(), &what[1..]).replace("ListConflict", "ListKindConflict");
            let reason = reason.replace("ShortConflict", "ShortNamesConflict");
            condition("NamesAccepted", "False", &reason, why);
            let established =
                status["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True");
            if !established {
                set_condition(
                    status,
                    json!({"type": "Established", "status": "False", "reason": "NotAccepted", "message": "not all names are accepted", "lastTransitionTime": now}),
                );
            }
        }
    }
}
