//! HorizontalPodAutoscalers and PodDisruptionBudgets.

use serde_json::Value;

use super::field::{Errors, Path, has, invalid, items, non_negative, number, object, one_of, text};
use super::{names, selector, workload};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// A HorizontalPodAutoscaler.
pub fn autoscaler(autoscaler: &Value, errors: &mut Errors) {
    let spec = &autoscaler["spec"];
    let least = number(spec, "minReplicas");
    if let Some(replicas) = least.filter(|n| *n < 1) {
        errors.push(FieldError::invalid(SPEC.field("minReplicas"), &replicas.into(), "must be greater than or equal to 1"));
    }
    let most = number(spec, "maxReplicas").unwrap_or(0);
    let path = SPEC.field("maxReplicas");
    if most < least.unwrap_or(1) {
        errors.push(FieldError::invalid(path, &most.into(), "must be greater than or equal to `minReplicas`"));
    }
    scale_target(&spec["scaleTargetRef"], &SPEC.field("scaleTargetRef"), errors);
    let list = SPEC.field("metrics");
    for (i, metric) in items(spec, "metrics").iter().enumerate() {
        let path = list.index(i);
        let kind = text(metric, "type");
        match SOURCES.iter().find(|(name, _)| *name == kind) {
            None if kind.is_empty() => errors.push(FieldError::required(path.field("type"), "must specify a metric source type")),
            None => errors.push(FieldError::not_supported(path.field("type"), &kind.into(), &SOURCES.map(|(name, _)| name))),
            Some((_, field)) if !has(metric, field) => {
                errors.push(FieldError::required(path.field(field), "must populate information for the given metric source"));
            }
            Some(_) => {}
        }
    }
    if let Some(behavior) = object(spec, "behavior") {
        let path = SPEC.field("behavior");
        for name in ["scaleUp", "scaleDown"] {
            if let Some(rules) = object(behavior, name) {
                let path = path.field(name);
                non_negative(errors, rules, &path, "stabilizationWindowSeconds");
                one_of(errors, rules, &path, "selectPolicy", false, &["Disabled", "Max", "Min"]);
            }
        }
    }
    // Declared with the field rather than checked with the object, and so told last.
    if most == 0 {
        errors.push(FieldError::required(path, ""));
    }
}

fn scale_target(target: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["kind", "name"] {
        let value = text(target, name);
        if value.is_empty() {
            errors.push(FieldError::required(path.field(name), ""));
        } else {
            errors.extend(names::path_segment(value).into_iter().map(|why| invalid(&path.field(name), value, why)));
        }
    }
    let version = text(target, "apiVersion");
    if !version.contains('/') && text(target, "kind") != "ReplicationController" {
        errors.push(invalid(&path.field("apiVersion"), version, "apiVersion must specify API group"));
    }
}

/// A PodDisruptionBudget.
pub fn disruption_budget(budget: &Value, errors: &mut Errors) {
    let spec = &budget["spec"];
    if has(spec, "minAvailable") && has(spec, "maxUnavailable") {
        errors.push(FieldError::invalid(SPEC, spec, "minAvailable and maxUnavailable cannot be both set"));
    }
    for name in ["minAvailable", "maxUnavailable"] {
        let path = SPEC.field(name);
        workload::amount_or_percent(&spec[name], &path, errors);
        if let Some(percent) = spec[name].as_str().and_then(|t| t.strip_suffix('%')?.parse::<i64>().ok())
            && percent > 100
        {
            errors.push(FieldError::invalid(path, &spec[name], "must not be greater than 100%"));
        }
    }
    selector::label_selector(&spec["selector"], &SPEC.field("selector"), errors);
    one_of(errors, spec, &SPEC, "unhealthyPodEvictionPolicy", false, &["AlwaysAllow", "IfHealthyBudget"]);
}
