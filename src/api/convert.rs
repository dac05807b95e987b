//! Between the versions of a kind that is stored in one of them: HorizontalPodAutoscaler v1 and v2, Event of the core group and of
//! events.k8s.io. Versions of custom kinds without a conversion webhook differ in their apiVersion, and in what their schemas know.

use serde_json::{Map, Value, json};

use crate::registry::Resource;
use crate::schema::prune;

/// From the stored version to the one of `resource`.
pub fn to_version(mut object: Value, resource: &Resource) -> Value {
    match (&*resource.plural, &*resource.group, &*resource.version) {
        ("events", "events.k8s.io", _) if resource.custom.is_none() => {
            rename(&mut object, EVENT_FIELDS, false);
            // Written by the core group even when empty, and left out by this one.
            if let Some(fields) = object.as_object_mut() {
                fields.retain(|name, value| !matches!(name.as_str(), "reportingController" | "reportingInstance") || *value != "");
            }
        }
        ("horizontalpodautoscalers", "autoscaling", "v1") => autoscaler_to_v1(&mut object),
        // What another version knows is not shown in one that does not.
        _ if resource.custom.is_some() => prune::prune(&mut object, &resource.schema()),
        _ => {}
    }
    object["apiVersion"] = resource.group_version().into();
    object
}

/// From the version of `resource` to the stored one.
pub fn to_storage(mut object: Value, resource: &Resource) -> Value {
    match (&*resource.plural, &*resource.group, &*resource.version) {
        ("events", "events.k8s.io", _) if resource.custom.is_none() => {
            rename(&mut object, EVENT_FIELDS, true);
            if let Some(fields) = object.as_object_mut() {
                for name in ["reportingComponent", "reportingInstance"] {
                    fields.entry(name).or_insert_with(|| "".into());
                }
            }
        }
        ("horizontalpodautoscalers", "autoscaling", "v1") => autoscaler_to_v2(&mut object),
        _ => {}
    }
    object["apiVersion"] = resource.storage_group_version().into();
    object
}

/// From one version that is served to another.
pub fn between(object: Value, from: &Resource, to: &Resource) -> Value {
    to_version(to_storage(object, from), to)
}

/// What a field is called in the core group, and in events.k8s.io.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
];

fn rename(object: &mut Value, names: &[(&str, &str)], back: bool) {
    let Some(map) = object.as_object_mut() else { return };
    for (core, other) in names {
        let (from, to) = if back { (other, core) } else { (core, other) };
        if let Some(value) = map.remove(*from) {
            map.insert((*to).into(), value);
        }
    }
}

/// Where v1 keeps what it has no field for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

fn is_cpu_utilization(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn autoscaler_to_v1(object: &mut Value) {
    let mut notes = Map::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = spec.remove("metrics").and_then(|m| m.as_array().cloned()).unwrap_or_default();
        let (cpu, others): (Vec<Value>, Vec<Value>) =
            metrics.into_iter().partition(|m| is_cpu_utilization(m) && m["resource"]["target"]["averageUtilization"].is_i64());
        if let Some(target) = cpu.first().map(|m| m["resource"]["target"]["averageUtilization"].clone()) {
            spec.insert("targetCPUUtilizationPercentage".into(), target);
        }
        if !others.is_empty() {
            notes.insert(METRICS.into(), Value::from(others).to_string().into());
        }
        if let Some(behavior) = spec.remove("behavior") {
            notes.insert(BEHAVIOR.into(), behavior.to_string().into());
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let metrics = status.remove("currentMetrics").and_then(|m| m.as_array().cloned()).unwrap_or_default();
        let (cpu, others): (Vec<Value>, Vec<Value>) = metrics.into_iter().partition(is_cpu_utilization);
        if let Some(current) = cpu.first().map(|m| m["resource"]["current"]["averageUtilization"].clone()).filter(Value::is_i64) {
            status.insert("currentCPUUtilizationPercentage".into(), current);
        }
        if !others.is_empty() {
            notes.insert(CURRENT_METRICS.into(), Value::from(others).to_string().into());
        }
        if let Some(conditions) = status.remove("conditions") {
            notes.insert(CONDITIONS.into(), conditions.to_string().into());
        }
    }
    if !notes.is_empty()
        && let Some(annotations) = crate::object::meta_mut(object).entry("annotations").or_insert_with(|| json!({})).as_object_mut()
    {
        annotations.extend(notes);
    }
}

fn autoscaler_to_v2(object: &mut Value) {
    let mut take = |key: &str| -> Option<Value> {
        let annotations = object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()?;
        serde_json::from_str(annotations.remove(key)?.as_str()?).ok()
    };
    let (metrics, behavior) = (take(METRICS), take(BEHAVIOR));
    let (current, conditions) = (take(CURRENT_METRICS), take(CONDITIONS));
    let metadata = crate::object::meta_mut(object);
    if metadata.get("annotations").and_then(Value::as_object).is_some_and(Map::is_empty) {
        metadata.remove("annotations");
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let mut all = metrics.and_then(|m| m.as_array().cloned()).unwrap_or_default();
        if let Some(target) = spec.remove("targetCPUUtilizationPercentage") {
            let target = json!({"type": "Utilization", "averageUtilization": target});
            all.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
        }
        if !all.is_empty() {
            spec.insert("metrics".into(), all.into());
        }
        if let Some(behavior) = behavior {
            spec.insert("behavior".into(), behavior);
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let mut all = current.and_then(|m| m.as_array().cloned()).unwrap_or_default();
        if let Some(value) = status.remove("currentCPUUtilizationPercentage") {
            all.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": value}}}));
        }
        if !all.is_empty() {
            status.insert("currentMetrics".into(), all.into());
        }
        if let Some(conditions) = conditions {
            status.insert("conditions".into(), conditions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn an_event_of_either_group_is_the_other_by_another_name() {
        let events = Registry::new().lookup("events.k8s.io", "v1", "events").unwrap();
        let object = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "note": "n", "regarding": {"name": "p"}, "reportingController": "c", "deprecatedCount": 2});
        let stored = to_storage(object.clone(), &events);
        assert_eq!((&stored["message"], &stored["involvedObject"]["name"], &stored["count"]), (&json!("n"), &json!("p"), &json!(2)));
        assert_eq!(stored["apiVersion"], "v1");
        assert_eq!(to_version(stored, &events), object);
    }

    #[test]
    fn an_autoscaler_survives_the_way_to_v1_and_back() {
        let v1 = Registry::new().lookup("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
        let stored = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "behavior": {"scaleUp": {}}, "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
                {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 70}}},
            ]},
            "status": {"currentReplicas": 1, "conditions": [{"type": "AbleToScale"}]},
        });
        let old = to_version(stored.clone(), &v1);
        assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 80);
        assert_eq!(to_storage(old, &v1), stored);
    }
}
