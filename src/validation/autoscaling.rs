//! HorizontalPodAutoscalers and PodDisruptionBudgets.

use serde_json::{Value, json};

use super::field::{Errors, Path, has, invalid, items, non_negative, number, object, text, word, wrong};
use super::resources::{self, non_negative_quantity, quantity};
use super::{names, selector, workload};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
/// What can be measured: the field, and the type that says so.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];
const TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

/// A HorizontalPodAutoscaler of any version; the first knows one measure alone.
pub fn autoscaler(autoscaler: &Value, errors: &mut Errors) {
    let spec = &autoscaler["spec"];
    let (least, most) = (number(spec, "minReplicas"), number(spec, "maxReplicas").unwrap_or(0));
    let at = SPEC.field("maxReplicas");
    if least.is_some_and(|least| most < least) {
        errors.push(FieldError::invalid(at, &most.into(), "must be greater than or equal to `minReplicas`"));
    }
    let any_group = text(&spec["scaleTargetRef"], "kind") == "ReplicationController";
    reference(&spec["scaleTargetRef"], &SPEC.field("scaleTargetRef"), any_group, errors);
    let first_version = number(spec, "targetCPUUtilizationPercentage").map(|percent| {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        vec![json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})]
    });
    let metrics = first_version.as_deref().unwrap_or_else(|| items(spec, "metrics"));
    self::metrics(metrics, least, errors);
    for name in ["scaleUp", "scaleDown"] {
        if let Some(rules) = object(&spec["behavior"], name) {
            let path = SPEC.field("behavior");
            scaling_rules(rules, &path.field(name), errors);
        }
    }
    // By newer rules, told last.
    super::field::at_least(errors, spec, &SPEC, "minReplicas", 0);
    match most {
        0 => errors.push(FieldError::required(at, "")),
        _ => super::field::at_least(errors, spec, &SPEC, "maxReplicas", 1),
    }
}

/// Something that an autoscaler refers to. What it scales is of some API group; what it measures need not be.
fn reference(reference: &Value, path: &Path<'_>, any_group: bool, errors: &mut Errors) {
    for name in ["kind", "name"] {
        let value = text(reference, name);
        if value.is_empty() {
            errors.push(FieldError::required(path.field(name), ""));
            continue;
        }
        wrong(errors, &path.field(name), value, names::path_segment(value));
    }
    let version = text(reference, "apiVersion");
    if version.matches('/').count() > 1 {
        errors.push(invalid(&path.field("apiVersion"), version, format!("unexpected GroupVersion string: {version}")));
    } else if !any_group && version.split_once('/').is_none_or(|(group, _)| group.is_empty()) {
        errors.push(invalid(&path.field("apiVersion"), version, "apiVersion must specify API group"));
    }
}

fn metrics(metrics: &[Value], least: Option<i64>, errors: &mut Errors) {
    let list = SPEC.field("metrics");
    for (i, metric) in metrics.iter().enumerate() {
        self::metric(metric, &list.index(i), errors);
    }
    if least == Some(0) && !metrics.iter().any(|m| matches!(text(m, "type"), "Object" | "External")) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden(list, why));
    }
}

fn metric(metric: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(metric, "type");
    let unsupported = || FieldError::not_supported(path.field("type"), &kind.into(), &TYPES);
    if kind.is_empty() {
        errors.push(FieldError::required(path.field("type"), "must specify a metric source type"));
    }
    if !TYPES.contains(&kind) {
        errors.push(unsupported());
    }
    let present: Vec<&str> = SOURCES.iter().map(|(field, _)| *field).filter(|field| has(metric, field)).collect();
    if let Some(first) = present.first() {
        source(first, &metric[*first], &path.field(first), errors);
    }
    let expected = SOURCES.iter().find(|(_, name)| *name == kind).map(|(field, _)| *field);
    match expected {
        Some(field) if !present.contains(&field) => {
            errors.push(FieldError::required(path.field(field), "must populate information for the given metric source"));
        }
        Some(_) => {}
        None => errors.push(unsupported()),
    }
    if present.len() != 1 {
        for field in present.iter().filter(|field| Some(**field) != expected) {
            errors.push(FieldError::forbidden(path.field(field), "must populate the given metric source only"));
        }
    }
}

fn source(kind: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let target = &source["target"];
    let at = path.field("target");
    let given = |name: &str| has(target, name);
    match kind {
        "object" => reference(&source["describedObject"], &path.field("describedObject"), true, errors),
        "resource" if text(source, "name").is_empty() => {
            errors.push(FieldError::required(path.field("name"), "must specify a resource name"));
        }
        "containerResource" => {
            match text(source, "name") {
                "" => errors.push(FieldError::required(path.field("name"), "must specify a resource name")),
                name => resources::container_name(name, &path.field("name"), errors),
            }
            match text(source, "container") {
                "" => errors.push(FieldError::required(path.field("container"), "must specify a container")),
                name => wrong(errors, &path.field("container"), name, names::label(name)),
            }
        }
        _ => {}
    }
    if matches!(kind, "object" | "external" | "pods") {
        let at = path.field("metric");
        match text(&source["metric"], "name") {
            "" => errors.push(FieldError::required(at.field("name"), "must specify a metric name")),
            name => wrong(errors, &at.field("name"), name, names::path_segment(name)),
        }
    }
    self::target(target, &at, errors);
    let (field, why) = match kind {
        "object" if !given("value") && !given("averageValue") => ("averageValue", "must set either a target value or averageValue"),
        "external" if !given("value") && !given("averageValue") => {
            ("averageValue", "must set either a target value for metric or a per-pod target")
        }
        "pods" if !given("averageValue") => ("averageValue", "must specify a positive target averageValue"),
        "resource" | "containerResource" if !given("averageUtilization") && !given("averageValue") => {
            ("averageUtilization", "must set either a target raw value or a target utilization")
        }
        _ => ("", ""),
    };
    if !field.is_empty() {
        errors.push(FieldError::required(at.field(field), why));
    }
    if kind == "external" && given("value") && given("averageValue") {
        let why = "may not set both a target value for metric and a per-pod target";
        errors.push(FieldError::forbidden(at.field("value"), why));
    }
    if matches!(kind, "resource" | "containerResource") && given("averageUtilization") && given("averageValue") {
        let why = "may not set both a target raw value and a target utilization";
        errors.push(FieldError::forbidden(at.field("averageValue"), why));
    }
}

fn target(target: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(target, "type");
    if kind.is_empty() {
        errors.push(FieldError::required(path.field("type"), "must specify a metric target type"));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.push(invalid(&path.field("type"), kind, "must be either Utilization, Value, or AverageValue"));
    }
    for name in ["value", "averageValue"] {
        if let Some(amount) = quantity(&target[name]).filter(|amount| amount.nanos() <= 0) {
            errors.push(invalid(&path.field(name), &amount.to_string(), "must be positive"));
        }
    }
    if let Some(percent) = number(target, "averageUtilization").filter(|p| *p < 1) {
        errors.push(FieldError::invalid(path.field("averageUtilization"), &percent.into(), "must be greater than 0"));
    }
}

fn scaling_rules(rules: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("stabilizationWindowSeconds");
    match number(rules, "stabilizationWindowSeconds") {
        Some(seconds) if seconds < 0 => {
            errors.push(FieldError::invalid(at, &seconds.into(), "must be greater than or equal to zero"));
        }
        Some(seconds) if seconds > 3600 => errors.push(FieldError::invalid(at, &seconds.into(), "must be less than or equal to 3600")),
        _ => {}
    }
    word(errors, rules, path, "selectPolicy", &["Disabled", "Max", "Min"]);
    let (policies, list) = (items(rules, "policies"), path.field("policies"));
    if policies.is_empty() {
        errors.push(FieldError::required(list, "must specify at least one Policy"));
    }
    for (i, policy) in policies.iter().enumerate() {
        let path = list.index(i);
        let kind = text(policy, "type");
        if !matches!(kind, "Pods" | "Percent") {
            errors.push(FieldError::not_supported(path.field("type"), &kind.into(), &["Percent", "Pods"]));
        }
        for name in ["value", "periodSeconds"] {
            let value = number(policy, name).unwrap_or(0);
            if value <= 0 {
                errors.push(FieldError::invalid(path.field(name), &value.into(), "must be greater than zero"));
            }
            if name == "periodSeconds" && value > 1800 {
                errors.push(FieldError::invalid(path.field(name), &value.into(), "must be less than or equal to 1800"));
            }
        }
    }
    if let Some(tolerance) = rules.get("tolerance") {
        non_negative_quantity(tolerance, &path.field("tolerance"), errors);
    }
}

/// The status of an autoscaler.
pub fn autoscaler_status(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let list = path.field("conditions");
    for (i, condition) in items(status, "conditions").iter().enumerate() {
        non_negative(errors, condition, &list.index(i), "observedGeneration");
    }
    for name in ["currentReplicas", "desiredReplicas"] {
        non_negative(errors, status, &path, name);
    }
}

/// A PodDisruptionBudget.
pub fn disruption_budget(budget: &Value, errors: &mut Errors) {
    let spec = &budget["spec"];
    if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
        use super::internal::{Field, show};
        const BUDGET: &[Field] = &[
            Field::plain("MinAvailable", "minAvailable"),
            Field::plain("Selector", "selector"),
            Field::plain("MaxUnavailable", "maxUnavailable"),
            Field::plain("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy"),
        ];
        let value = show(spec, BUDGET);
        errors.push(FieldError { value, ..invalid(&SPEC, "", "minAvailable and maxUnavailable cannot be both set") });
    }
    for name in ["minAvailable", "maxUnavailable"].iter().filter(|name| has(spec, name)) {
        workload::amount_or_percent(&spec[*name], &SPEC.field(name), errors);
        workload::at_most_all(&spec[*name], &SPEC.field(name), errors);
    }
    selector::label_selector(&spec["selector"], &SPEC.field("selector"), errors);
    word(errors, spec, &SPEC, "unhealthyPodEvictionPolicy", &["AlwaysAllow", "IfHealthyBudget"]);
}

/// The status of a PodDisruptionBudget.
pub fn budget_status(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    for name in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        non_negative(errors, status, &path, name);
    }
}
