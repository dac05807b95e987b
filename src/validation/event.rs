//! Events. Those of the core group are held to little, for the sake of old clients; those of events.k8s.io must say who reports what, and only
//! their series may change. Both are the same object, and mistakes are told in the words of the core group.

use serde_json::Value;

use super::field::{Errors, Path, invalid, number, text};
use super::{names, typed};
use crate::status::FieldError;

/// What a field is called in either group; messages use the first.
const NAMES: &[(&str, &str, &str)] = &[
    ("involvedObject", "involvedObject", "regarding"),
    ("reason", "reason", "reason"),
    ("message", "message", "note"),
    ("source", "source", "deprecatedSource"),
    ("firstTimestamp", "firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "count", "deprecatedCount"),
    ("type", "type", "type"),
    ("eventTime", "eventTime", "eventTime"),
    ("action", "action", "action"),
    ("related", "related", "related"),
    ("reportingController", "reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance", "reportingInstance"),
];

fn field<'a>(event: &'a Value, name: &str, new: bool) -> &'a Value {
    let names = NAMES.iter().find(|(shown, ..)| *shown == name);
    names.map_or(&Value::Null, |(_, core, other)| &event[if new { *other } else { *core }])
}

fn string<'a>(event: &'a Value, name: &str, new: bool) -> &'a str {
    field(event, name, new).as_str().unwrap_or_default()
}

/// A new Event; `new` says that it is one of events.k8s.io.
pub fn create(event: &Value, new: bool, errors: &mut Errors) {
    always(event, new, errors);
    if !new {
        return;
    }
    series(event, errors);
    let unset = |name: &str| FieldError::invalid(name, &"".into(), "needs to be unset");
    if string(event, "eventTime", new).is_empty() {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = string(event, "type", new);
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid("type", &"".into(), format!("has invalid value: {kind}")));
    }
    errors.extend(["firstTimestamp", "lastTimestamp"].into_iter().filter(|name| !string(event, name, new).is_empty()).map(unset));
    if field(event, "count", new).as_i64().unwrap_or(0) != 0 {
        errors.push(unset("count"));
    }
    let source = field(event, "source", new);
    if !text(source, "component").is_empty() || !text(source, "host").is_empty() {
        errors.push(unset("source"));
    }
}

/// A changed Event.
pub fn update(event: &Value, old: &Value, new: bool, errors: &mut Errors) {
    always(event, new, errors);
    if !new {
        return;
    }
    if event["series"] != old["series"] {
        series(event, errors);
    }
    for (name, ..) in NAMES {
        let (now, before) = (field(event, name, new), field(old, name, new));
        if now != before {
            let value = match *name {
                "related" if now.is_null() => "null".to_owned(),
                "involvedObject" | "related" => typed::show(now, "ObjectReference").to_string(),
                "source" => typed::show(now, "EventSource").to_string(),
                _ => now.to_string(),
            };
            errors.push(FieldError { value, ..FieldError::invalid(*name, now, "field is immutable") });
        }
    }
}

/// What holds for Events of both groups.
fn always(event: &Value, new: bool, errors: &mut Errors) {
    let namespace = text(&event["metadata"], "namespace");
    let about = text(field(event, "involvedObject", new), "namespace");
    let timed = !string(event, "eventTime", new).is_empty();
    // What is about an object without a namespace is kept in the default one.
    let right = match (timed, about.is_empty()) {
        (false, true) => matches!(namespace, "" | "default"),
        (false, false) => about == namespace,
        (true, true) => matches!(namespace, "default" | "kube-system"),
        (true, false) => true,
    };
    if !right {
        let path = Path::root("involvedObject");
        errors.push(invalid(&path.field("namespace"), about, "does not match event.namespace"));
    }
    if !timed {
        return;
    }
    let controller = string(event, "reportingController", new);
    let path = Path::root(if new { "reportingController" } else { "reportingComponent" });
    if controller.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    errors.extend(names::qualified(controller).into_iter().map(|why| invalid(&path, controller, why)));
    for (name, required, most) in [("reportingInstance", true, 128), ("action", true, 128), ("reason", true, 128), ("message", false, 1024)]
    {
        let value = string(event, name, new);
        if required && value.is_empty() {
            errors.push(FieldError::required(name, ""));
        }
        if value.len() > most {
            errors.push(FieldError::invalid(name, &"".into(), format!("can have at most {most} characters")));
        }
    }
}

fn series(event: &Value, errors: &mut Errors) {
    let series = &event["series"];
    if !series.is_object() {
        return;
    }
    if number(series, "count").unwrap_or(0) < 2 {
        errors.push(FieldError::invalid("series.count", &"".into(), "should be at least 2"));
    }
    if text(series, "lastObservedTime").is_empty() {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event() -> Value {
        json!({"metadata": {"name": "e", "namespace": "default"}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "R", "action": "A",
            "reportingController": "example.com/c", "reportingInstance": "i", "regarding": {"namespace": "default"}, "note": "n"})
    }

    fn told(check: impl FnOnce(&mut Errors)) -> Vec<String> {
        let mut errors = Vec::new();
        check(&mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_event_of_the_new_group_says_who_reports_what() {
        assert_eq!(told(|errors| create(&event(), true, errors)), [""; 0]);
        let mut bad = event();
        bad["series"] = json!({"count": 1});
        bad["type"] = json!("Odd");
        bad["deprecatedCount"] = json!(3);
        assert_eq!(
            told(|errors| create(&bad, true, errors)),
            [
                "series.count: Invalid value: \"\": should be at least 2",
                "series.lastObservedTime: Required value",
                "type: Invalid value: \"\": has invalid value: Odd",
                "count: Invalid value: \"\": needs to be unset",
            ]
        );
        let core = json!({"metadata": {"namespace": "default"}, "involvedObject": {}});
        assert_eq!(told(|errors| create(&core, false, errors)), [""; 0], "old clients say less");
    }

    #[test]
    fn only_the_series_of_an_event_changes() {
        let mut changed = event();
        changed["series"] = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"});
        assert_eq!(told(|errors| update(&changed, &event(), true, errors)), [""; 0]);
        changed["note"] = json!("other");
        assert_eq!(told(|errors| update(&changed, &event(), true, errors)), ["message: Invalid value: \"other\": field is immutable"]);
    }
}
