//! Defaults of a HorizontalPodAutoscaler: what it measures, and how fast it follows.

use serde_json::{Value, json};

use super::{Fields, part, set};

pub(super) fn horizontal_pod_autoscaler_spec(fields: &mut Fields) {
    let cpu = || json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
    if fields.get("metrics").is_none_or(crate::schema::is_zero) {
        fields.insert("metrics".into(), cpu());
    }
    let Some(Value::Object(behavior)) = fields.get_mut("behavior") else { return };
    if let Some(up) = part(behavior, "scaleUp") {
        set(up, "stabilizationWindowSeconds", 0);
        rules(up, json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]));
    }
    if let Some(down) = part(behavior, "scaleDown") {
        rules(down, json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]));
    }
}

fn rules(direction: &mut Fields, policies: Value) {
    set(direction, "selectPolicy", "Max");
    set(direction, "policies", policies);
}
