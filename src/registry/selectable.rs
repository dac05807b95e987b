//! What a field selector compares: the value of a selectable field of an object, as text. Most labels are plain paths
//! into the object; a few of the built-in ones are not, and those are told here. Parsing a selector belongs elsewhere.

use serde_json::Value;

use super::Resource;

impl Resource {
    /// The text that a field selector on `label` compares with; empty where the object has no such value.
    /// The object is in the form that this record serves.
    pub fn field(&self, label: &str, object: &Value) -> String {
        if self.custom.is_none() {
            match (&*self.group, &*self.plural, label) {
                ("", "pods", "spec.hostNetwork") | ("", "nodes", "spec.unschedulable") => {
                    return (at(object, label) == Some(&Value::Bool(true))).to_string();
                }
                ("", "pods", "status.podIP") => {
                    let first = object.pointer("/status/podIPs/0/ip").or_else(|| object.pointer("/status/podIP"));
                    return text(first);
                }
                // A list has no text; a real server takes the label and finds nothing.
                ("", "pods", "status.podIPs") => return String::new(),
                ("", "events", "source") => {
                    let component = text(object.pointer("/source/component"));
                    return if component.is_empty() { text(object.get("reportingComponent")) } else { component };
                }
                ("batch", "jobs", "status.successful") => return number(object.pointer("/status/succeeded")),
                ("", "replicationcontrollers", "status.replicas") => {
                    return number(at(object, label));
                }
                _ => {}
            }
        }
        text(at(object, label))
    }
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, key| value.get(key))
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(yes)) => yes.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// An absent count is zero.
fn number(value: Option<&Value>) -> String {
    value.and_then(Value::as_i64).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::registry::Registry;

    #[test]
    fn absent_booleans_and_counts_are_false_and_zero() {
        let registry = Registry::new();
        let pods = registry.lookup("", "v1", "pods").expect("pods");
        let pod = json!({"spec": {"nodeName": "n1"}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
        assert_eq!(pods.field("spec.hostNetwork", &pod), "false");
        assert_eq!(pods.field("spec.nodeName", &pod), "n1");
        assert_eq!(pods.field("status.podIP", &pod), "10.0.0.1");
        let jobs = registry.lookup("batch", "v1", "jobs").expect("jobs");
        assert_eq!(jobs.field("status.successful", &json!({})), "0");
        assert_eq!(jobs.field("status.successful", &json!({"status": {"succeeded": 2}})), "2");
    }
}
