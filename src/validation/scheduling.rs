//! Where a Pod may run: affinity, tolerations, topology spread, scheduling gates.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, map, number, object, text, word, wrong};
use super::{names, selector};
use crate::status::FieldError;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
/// What a taint does.
pub const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Affinity of a Pod to nodes and to other Pods.
pub fn affinity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(affinity) = object(spec, "affinity") else { return };
    let path = path.field("affinity");
    if let Some(node) = object(affinity, "nodeAffinity") {
        let path = path.field("nodeAffinity");
        if let Some(required) = object(node, REQUIRED) {
            selector::node_selector(required, &path.field(REQUIRED), errors);
        }
        let list = path.field(PREFERRED);
        for (i, term) in items(node, PREFERRED).iter().enumerate() {
            let path = list.index(i);
            weight(term, &path, errors);
            selector::node_selector_term(&term["preference"], &path.field("preference"), false, errors);
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = object(affinity, kind) else { continue };
        let path = path.field(kind);
        let list = path.field(REQUIRED);
        for (i, term) in items(pods, REQUIRED).iter().enumerate() {
            pod_term(term, &list.index(i), errors);
        }
        let list = path.field(PREFERRED);
        for (i, term) in items(pods, PREFERRED).iter().enumerate() {
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
    for name in items(term, "namespaces").iter().filter_map(Value::as_str) {
        wrong(errors, &path.field("namespace"), name, names::label(name));
    }
    label_keys(term, path, errors);
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(path.field("topologyKey"), "can not be empty"));
    }
    wrong(errors, &path.field("topologyKey"), key, names::qualified(key));
}

/// Keys whose values are taken from the Pod itself; the server has put them into the selector before they come here.
fn label_keys(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["matchLabelKeys", "mismatchLabelKeys"] {
        let (keys, list) = (items(term, name), path.field(name));
        if !keys.is_empty() && object(term, "labelSelector").is_none() {
            errors.push(FieldError::forbidden(list, "must not be specified when labelSelector is not set"));
            continue;
        }
        for (i, key) in keys.iter().filter_map(Value::as_str).enumerate() {
            wrong(errors, &list.index(i), key, names::qualified(key));
        }
    }
    let keys = items(term, "matchLabelKeys");
    let mut selected: Vec<&str> = map(&term["labelSelector"], "matchLabels").into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    for expression in items(&term["labelSelector"], "matchExpressions") {
        let key = text(expression, "key");
        if let Some(i) = keys.iter().rposition(|k| k == key)
            && selected.contains(&key)
        {
            errors.push(invalid(&path.index(i), key, "exists in both matchLabelKeys and labelSelector"));
        }
        selected.push(key);
    }
    let list = path.field("matchLabelKeys");
    for (i, key) in keys.iter().enumerate().filter(|(_, key)| items(term, "mismatchLabelKeys").contains(key)) {
        errors.push(FieldError::invalid(list.index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"));
    }
}

/// Scheduling gates.
pub fn gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("schedulingGates");
    let gates = items(spec, "schedulingGates");
    for (i, gate) in gates.iter().enumerate() {
        let name = text(gate, "name");
        let path = list.index(i);
        wrong(errors, &path, name, names::qualified(name));
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
        if text(constraint, "topologyKey").is_empty() {
            errors.push(FieldError::required(path.field("topologyKey"), "can not be empty"));
        }
        let unsatisfiable = text(constraint, "whenUnsatisfiable");
        let supported = ["DoNotSchedule", "ScheduleAnyway"];
        if !supported.contains(&unsatisfiable) {
            errors.push(FieldError::not_supported(path.field("whenUnsatisfiable"), &unsatisfiable.into(), &supported));
        }
        let same = |c: &Value| text(c, "topologyKey") == text(constraint, "topologyKey") && text(c, "whenUnsatisfiable") == unsatisfiable;
        if constraints[i + 1..].iter().any(same) {
            let pair = format!("{{{}, {unsatisfiable}}}", text(constraint, "topologyKey"));
            errors.push(FieldError::duplicate(path.field("{topologyKey, whenUnsatisfiable}"), &pair.into()));
        }
        if let Some(domains) = number(constraint, "minDomains") {
            let at = path.field("minDomains");
            if domains <= 0 {
                errors.push(FieldError::invalid(at, &domains.into(), "must be greater than zero"));
            }
            if unsatisfiable != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {unsatisfiable}");
                errors.push(FieldError::invalid(at, &domains.into(), why));
            }
        }
        for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            word(errors, constraint, &path, name, &["Honor", "Ignore"]);
        }
        label_keys(constraint, &path, errors);
        selector::label_selector(&constraint["labelSelector"], &path.field("labelSelector"), errors);
    }
}

/// Tolerations.
pub fn tolerations(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("tolerations");
    for (i, toleration) in items(spec, "tolerations").iter().enumerate() {
        let path = list.index(i);
        let (key, operator, value) = (text(toleration, "key"), text(toleration, "operator"), text(toleration, "value"));
        field::shaped(errors, toleration, &path, "key", names::qualified);
        if key.is_empty() && operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(invalid(&path.field("operator"), operator, why));
        }
        let effect = text(toleration, "effect");
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            errors.push(invalid(&path.field("effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"));
        }
        let at = path.field("operator");
        match operator {
            "" | "Equal" => {
                let why = names::label_value(value);
                if !why.is_empty() {
                    errors.push(invalid(&at, value, why.join(";")));
                }
            }
            "Exists" if !value.is_empty() => errors.push(invalid(&at, value, "value must be empty when `operator` is 'Exists'")),
            "Exists" => {}
            "Lt" | "Gt" => errors.push(FieldError::not_supported(at, &operator.into(), &["Equal", "Exists", "Lt", "Gt"])),
            _ => errors.push(FieldError::not_supported(at, &operator.into(), &["Equal", "Exists"])),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.push(FieldError::not_supported(path.field("effect"), &effect.into(), &EFFECTS));
        }
    }
}

/// A Pod that may not be scheduled yet may be told more exactly where to go, and nothing else of it may change. Tells what
/// was loosened.
pub fn narrowed(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (after, before) = (map(new, "nodeSelector"), map(old, "nodeSelector"));
    let kept = |(key, value): (&String, &Value)| after.is_some_and(|after| after.get(key) == Some(value));
    if before.is_some_and(|before| !before.iter().all(kept)) {
        let shown = new.get("nodeSelector").cloned().unwrap_or(Value::Null);
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid(path.field("nodeSelector"), &shown, why));
    }
    let terms = |spec: &'_ Value| spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"].as_array().cloned().unwrap_or_default();
    let (after, before) = (terms(new), terms(old));
    let path = path.field("affinity");
    let path = path.field("nodeAffinity");
    let path = path.field(REQUIRED);
    let list = path.field("nodeSelectorTerms");
    if !before.is_empty() && after.len() != before.len() {
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let value = show_terms(&Value::from(after));
        errors.push(FieldError { value, ..invalid(&list, "", why) });
        return;
    }
    for (i, (now, then)) in after.iter().zip(&before).enumerate() {
        let grown = |name: &str| items(now, name).starts_with(items(then, name));
        let empty = |term: &Value| items(term, "matchExpressions").is_empty() && items(term, "matchFields").is_empty();
        if !grown("matchExpressions") || !grown("matchFields") || (empty(then) && !empty(now)) {
            let why = "only additions are allowed (no mutations or deletions)";
            let shown = show_terms(&Value::from(vec![now.clone()]));
            let value = shown.strip_prefix('[').and_then(|s| s.strip_suffix(']')).unwrap_or(&shown).to_owned();
            errors.push(FieldError { value, ..invalid(&list.index(i), "", why) });
        }
    }
}

fn show_terms(terms: &Value) -> String {
    use super::internal::{Field, show_list};
    const REQUIREMENT: &[Field] = &[Field::text("Key", "key"), Field::text("Operator", "operator"), Field::plain("Values", "values")];
    const TERM: &[Field] =
        &[Field::list("MatchExpressions", "matchExpressions", REQUIREMENT), Field::list("MatchFields", "matchFields", REQUIREMENT)];
    match terms.as_array().is_some_and(Vec::is_empty) {
        true => "null".to_owned(),
        false => show_list(terms, TERM),
    }
}
