//! Where a Pod may run: affinity, tolerations, topology spread, scheduling gates.

use serde_json::Value;

use super::field::{Errors, Path, has, invalid, items, number, object, text};
use super::{names, selector};
use crate::status::FieldError;

/// All of a Pod's wishes but its tolerations, which a real server checks later.
pub fn affinity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(affinity) = object(spec, "affinity") else { return };
    let path = path.field("affinity");
    if let Some(node) = object(affinity, "nodeAffinity") {
        let path = path.field("nodeAffinity");
        if let Some(required) = object(node, "requiredDuringSchedulingIgnoredDuringExecution") {
            selector::node_selector(required, &path.field("requiredDuringSchedulingIgnoredDuringExecution"), errors);
        }
        let list = path.field("preferredDuringSchedulingIgnoredDuringExecution");
        for (i, term) in items(node, "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            let path = list.index(i);
            weight(term, &path, errors);
            selector::node_selector_term(&term["preference"], &path.field("preference"), errors);
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = object(affinity, kind) else { continue };
        let path = path.field(kind);
        let list = path.field("requiredDuringSchedulingIgnoredDuringExecution");
        for (i, term) in items(pods, "requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            pod_term(term, &list.index(i), errors);
        }
        let list = path.field("preferredDuringSchedulingIgnoredDuringExecution");
        for (i, term) in items(pods, "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            let path = list.index(i);
            weight(term, &path, errors);
            pod_term(&term["podAffinityTerm"], &path.field("podAffinityTerm"), errors);
        }
    }
}

fn weight(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    let weight = number(term, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(path.field("weight"), &weight.into(), "must be in the range 1-100"));
    }
}

fn pod_term(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    selector::label_selector(&term["labelSelector"], &path.field("labelSelector"), errors);
    selector::label_selector(&term["namespaceSelector"], &path.field("namespaceSelector"), errors);
    let list = path.field("namespaces");
    for (i, name) in items(term, "namespaces").iter().filter_map(Value::as_str).enumerate() {
        errors.extend(names::label(name).into_iter().map(|why| invalid(&list.index(i), name, why)));
    }
    topology_key(term, path, "can not be empty", errors);
}

fn topology_key(term: &Value, path: &Path<'_>, empty: &str, errors: &mut Errors) {
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(path.field("topologyKey"), empty));
    } else {
        errors.extend(names::qualified(key).into_iter().map(|why| invalid(&path.field("topologyKey"), key, why)));
    }
}

/// Scheduling gates.
pub fn gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("schedulingGates");
    let gates = items(spec, "schedulingGates");
    for (i, gate) in gates.iter().enumerate() {
        let name = text(gate, "name");
        let path = list.index(i);
        errors.extend(names::qualified(name).into_iter().map(|why| invalid(&path, name, why)));
        if gates[..i].iter().any(|g| text(g, "name") == name) {
            errors.push(FieldError::duplicate(path, &name.into()));
        }
    }
}

/// Topology spread constraints.
pub fn spread(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("topologySpreadConstraints");
    let constraints = items(spec, "topologySpreadConstraints");
    for (i, constraint) in constraints.iter().enumerate() {
        let path = list.index(i);
        let skew = number(constraint, "maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.push(FieldError::invalid(path.field("maxSkew"), &skew.into(), "must be greater than zero"));
        }
        topology_key(constraint, &path, "can not be empty", errors);
        let unsatisfiable = text(constraint, "whenUnsatisfiable");
        let supported = ["DoNotSchedule", "ScheduleAnyway"];
        if !supported.contains(&unsatisfiable) {
            errors.push(FieldError::not_supported(path.field("whenUnsatisfiable"), &unsatisfiable.into(), &supported));
        }
        let same = |c: &Value| c["topologyKey"] == constraint["topologyKey"] && c["whenUnsatisfiable"] == constraint["whenUnsatisfiable"];
        if constraints[..i].iter().any(same) {
            let pair = format!("{{{}, {unsatisfiable}}}", text(constraint, "topologyKey"));
            errors.push(FieldError::duplicate(path.field("{topologyKey, whenUnsatisfiable}"), &pair.into()));
        }
        if let Some(domains) = number(constraint, "minDomains") {
            if domains <= 0 {
                errors.push(FieldError::invalid(path.field("minDomains"), &domains.into(), "must be greater than 0"));
            } else if unsatisfiable != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {unsatisfiable}");
                errors.push(FieldError::invalid(path.field("minDomains"), &domains.into(), why));
            }
        }
        selector::label_selector(&constraint["labelSelector"], &path.field("labelSelector"), errors);
    }
}

/// Tolerations.
pub fn tolerations(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("tolerations");
    for (i, toleration) in items(spec, "tolerations").iter().enumerate() {
        let path = list.index(i);
        let (key, operator, value) = (text(toleration, "key"), text(toleration, "operator"), text(toleration, "value"));
        if !key.is_empty() {
            errors.extend(names::qualified(key).into_iter().map(|why| invalid(&path.field("key"), key, why)));
        } else if operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(invalid(&path.field("operator"), operator, why));
        }
        let effect = text(toleration, "effect");
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            errors.push(invalid(&path.field("effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"));
        }
        match operator {
            "" | "Equal" | "Lt" | "Gt" => {
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    errors.push(invalid(&path.field("operator"), value, wrong.join(";")));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.push(FieldError::invalid(path.field("operator"), toleration, "value must be empty when `operator` is 'Exists'"));
            }
            "Exists" => {}
            _ => errors.push(FieldError::not_supported(path.field("operator"), &operator.into(), &["Equal", "Exists"])),
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if !effect.is_empty() && !effects.contains(&effect) {
            errors.push(FieldError::not_supported(path.field("effect"), &effect.into(), &effects));
        }
    }
}
