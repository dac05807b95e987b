//! Defaults of the networking group.

use serde_json::{Value, json};

use super::Fields;

/// A policy is about what comes in, and about what goes out if it says something of that.
pub(super) fn network_policy_spec(fields: &mut Fields) {
    if fields.get("policyTypes").is_none_or(crate::schema::is_zero) {
        let has_egress = fields.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
        let types = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        fields.insert("policyTypes".into(), types);
    }
}
