//! CustomResourceDefinitions: accepted names and conditions are settled in the write itself, so that a definition is established when its
//! write is acknowledged; the finalizer that holds it until its instances are gone.

use serde_json::{Value, json};

use crate::api::Api;
use crate::api::strategy::Phase;
use crate::api::subresource::set_condition;
use crate::object::{meta, meta_mut};

pub(super) fn prepare_for_create(api: &Api, object: &mut Value) {
    object["status"] =
        json!({"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored_version(&object["spec"])});
    settle(api, object);
}

/// A definition that is being deleted is held until its instances are gone.
pub(in crate::api) fn terminate(api: &Api, object: &mut Value) {
    let finalizers = meta_mut(object).entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = finalizers.as_array_mut()
        && !list.contains(&json!(crate::server::definitions::CLEANUP))
    {
        list.push(json!(crate::server::definitions::CLEANUP));
    }
    let now = api.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let condition = json!({"type": "Terminating", "status": "True", "lastTransitionTime": now, "reason": "InstanceDeletionPending", "message": message});
    set_condition(&mut object["status"], condition);
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
    let mut accepted = definition["status"]["acceptedNames"].clone();
    // Each name is accepted by itself; of several that are not, the last one is told.
    let mut conflict: Option<(&str, String)> = None;
    let in_use = |name: &str| format!("{name:?} is already in use");
    let is_resource =
        |name: &str| others.iter().any(|r| &*r.plural == name || &*r.singular == name || r.short_names.iter().any(|s| &**s == name));
    let is_kind = |name: &str| others.iter().any(|r| &*r.kind == name || &*r.list_kind == name);
    let mut settle_one = |field: &str, reason: &'static str, taken: &dyn Fn(&str) -> bool| {
        let name = names[field].as_str().unwrap_or_default();
        if name != accepted[field].as_str().unwrap_or_default() && !name.is_empty() && taken(name) {
            conflict = Some((reason, in_use(name)));
        } else if !names[field].is_null() {
            accepted[field] = names[field].clone();
        }
    };
    settle_one("plural", "PluralConflict", &is_resource);
    settle_one("singular", "SingularConflict", &is_resource);
    let short: Vec<&str> = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let taken: Vec<String> = short.iter().filter(|name| is_resource(name)).map(|name| in_use(name)).collect();
    settle_one("kind", "KindConflict", &is_kind);
    settle_one("listKind", "ListKindConflict", &is_kind);
    if !taken.is_empty() && conflict.is_none() {
        let joined = if let [one] = taken.as_slice() { one.clone() } else { format!("[{}]", taken.join(", ")) };
        conflict = Some(("ShortNamesConflict", joined));
    }
    for (field, taken) in [("shortNames", !taken.is_empty()), ("categories", false)] {
        match (&names[field], taken) {
            (_, true) => {}
            (Value::Null, _) => {
                accepted.as_object_mut().map(|accepted| accepted.remove(field));
            }
            (value, _) => accepted[field] = value.clone(),
        }
    }
    let status = &mut definition["status"];
    status["acceptedNames"] = accepted;
    let kept = |status: &Value, kind: &str, value: &str| {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.filter(|c| c["type"] == kind && c["status"] == value).map(|c| c["lastTransitionTime"].clone()).next()
    };
    let mut condition = |kind: &str, value: &str, reason: &str, message: &str| {
        let since = kept(status, kind, value).unwrap_or_else(|| json!(now));
        set_condition(status, json!({"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": since}));
    };
    match conflict {
        None => {
            condition("NamesAccepted", "True", "NoConflicts", "no conflicts found");
            condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted");
        }
        Some((reason, why)) => {
            condition("NamesAccepted", "False", reason, &why);
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
