//! Workloads that keep Pods running: Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, map, non_negative, number, object, one_of, text};
use super::{metadata, pod, selector};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");

/// A Deployment.
pub fn deployment(deployment: &Value, errors: &mut Errors) {
    let spec = &deployment["spec"];
    non_negative(errors, spec, &SPEC, "replicas");
    required_selector(spec, "deployment", errors);
    template(spec, "ReplicaSet", errors);
    if let Some(strategy) = object(spec, "strategy") {
        let path = SPEC.field("strategy");
        match text(strategy, "type") {
            "Recreate" if has(strategy, "rollingUpdate") => {
                let why = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(FieldError::forbidden(path.field("rollingUpdate"), why));
            }
            "Recreate" => {}
            "RollingUpdate" => rolling_update(&strategy["rollingUpdate"], &path.field("rollingUpdate"), errors),
            other => errors.push(FieldError::not_supported(path.field("type"), &other.into(), &["Recreate", "RollingUpdate"])),
        }
    }
    non_negative(errors, spec, &SPEC, "minReadySeconds");
    non_negative(errors, spec, &SPEC, "revisionHistoryLimit");
    if let Some(seconds) = number(spec, "progressDeadlineSeconds") {
        non_negative(errors, spec, &SPEC, "progressDeadlineSeconds");
        if seconds <= number(spec, "minReadySeconds").unwrap_or(0) {
            let path = SPEC.field("progressDeadlineSeconds");
            errors.push(FieldError::invalid(path, &seconds.into(), "must be greater than minReadySeconds"));
        }
    }
}

fn rolling_update(update: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["maxUnavailable", "maxSurge"] {
        amount_or_percent(&update[name], &path.field(name), errors);
    }
    let none = |name: &str| match &update[name] {
        Value::Number(n) => n.as_i64() == Some(0),
        Value::String(text) => text.trim_end_matches('%').parse() == Ok(0),
        _ => false,
    };
    if none("maxUnavailable") && none("maxSurge") {
        let why = "may not be 0 when `maxSurge` is 0";
        errors.push(FieldError::invalid(path.field("maxUnavailable"), &update["maxUnavailable"], why));
    }
    if let Some(percent) = update["maxUnavailable"].as_str().and_then(|t| t.strip_suffix('%')?.parse::<i64>().ok())
        && percent > 100
    {
        errors.push(FieldError::invalid(path.field("maxUnavailable"), &update["maxUnavailable"], "must not be greater than 100%"));
    }
}

/// A number from zero on, or a share.
pub fn amount_or_percent(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::String(text) if !text.strip_suffix('%').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) => {
            let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
            errors.push(invalid(path, text, why));
        }
        Value::Number(n) if n.as_i64().is_some_and(|n| n < 0) => {
            errors.push(FieldError::invalid(path, value, "must be greater than or equal to 0"));
        }
        _ => {}
    }
}

fn required_selector(spec: &Value, whose: &str, errors: &mut Errors) {
    let path = SPEC.field("selector");
    let Some(chosen) = object(spec, "selector") else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    selector::label_selector(chosen, &path, errors);
    if selector::is_empty(chosen) {
        errors.push(FieldError::invalid(path, chosen, format!("empty selector is invalid for {whose}")));
    }
}

/// The template of Pods that are started again and again, and whether the selector takes them.
fn template(spec: &Value, whose: &str, errors: &mut Errors) {
    let template = &spec["template"];
    let path = SPEC.field("template");
    if !selector::takes(&spec["selector"], template) {
        let labels = path.field("metadata");
        let shown = template["metadata"].get("labels").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(labels.field("labels"), shown, "`selector` does not match template `labels`"));
    }
    pod::template(template, &path, errors);
    let path = path.field("spec");
    let policy = text(&template["spec"], "restartPolicy");
    // One that is no policy at all has been told already.
    if matches!(policy, "OnFailure" | "Never") {
        errors.push(FieldError::not_supported(path.field("restartPolicy"), &policy.into(), &["Always"]));
    }
    if has(&template["spec"], "activeDeadlineSeconds") {
        let why = format!("activeDeadlineSeconds in {whose} is not Supported");
        errors.push(FieldError::forbidden(path.field("activeDeadlineSeconds"), why));
    }
}

/// A ReplicaSet.
pub fn replica_set(set: &Value, errors: &mut Errors) {
    let spec = &set["spec"];
    non_negative(errors, spec, &SPEC, "replicas");
    non_negative(errors, spec, &SPEC, "minReadySeconds");
    required_selector(spec, "deployment", errors);
    template(spec, "ReplicaSet", errors);
}

/// A DaemonSet.
pub fn daemon_set(set: &Value, errors: &mut Errors) {
    let spec = &set["spec"];
    required_selector(spec, "daemonset", errors);
    template(spec, "DaemonSet", errors);
    non_negative(errors, spec, &SPEC, "minReadySeconds");
    if let Some(strategy) = object(spec, "updateStrategy") {
        let path = SPEC.field("updateStrategy");
        match text(strategy, "type") {
            "OnDelete" => {}
            "RollingUpdate" => {
                if has(strategy, "rollingUpdate") {
                    rolling_update(&strategy["rollingUpdate"], &path.field("rollingUpdate"), errors);
                }
            }
            other => errors.push(FieldError::not_supported(path.field("type"), &other.into(), &["RollingUpdate", "OnDelete"])),
        }
    }
    non_negative(errors, spec, &SPEC, "revisionHistoryLimit");
}

/// A StatefulSet.
pub fn stateful_set(set: &Value, errors: &mut Errors) {
    let spec = &set["spec"];
    one_of(errors, spec, &SPEC, "podManagementPolicy", true, &["OrderedReady", "Parallel"]);
    if let Some(strategy) = object(spec, "updateStrategy") {
        let path = SPEC.field("updateStrategy");
        match text(strategy, "type") {
            "" => errors.push(FieldError::required(path.field("type"), "")),
            "OnDelete" => {
                if has(strategy, "rollingUpdate") {
                    let why = "only allowed for updateStrategy 'RollingUpdate'";
                    errors.push(FieldError::invalid(path.field("rollingUpdate"), &strategy["rollingUpdate"], why));
                }
            }
            "RollingUpdate" => non_negative(errors, &strategy["rollingUpdate"], &path.field("rollingUpdate"), "partition"),
            other => {
                let why = "must be 'RollingUpdate' or 'OnDelete'";
                errors.push(FieldError::invalid(path, &serde_json::json!({"type": other}), why));
            }
        }
    }
    non_negative(errors, spec, &SPEC, "replicas");
    non_negative(errors, spec, &SPEC, "minReadySeconds");
    required_selector(spec, "statefulset", errors);
    template(spec, "StatefulSet", errors);
    if let Some(ordinals) = object(spec, "ordinals") {
        non_negative(errors, ordinals, &SPEC.field("ordinals"), "start");
    }
}

/// A ReplicationController, whose selector is a plain map.
pub fn replication_controller(controller: &Value, errors: &mut Errors) {
    let spec = &controller["spec"];
    non_negative(errors, spec, &SPEC, "minReadySeconds");
    metadata::label_map(spec, "selector", &SPEC, errors);
    let path = SPEC.field("template");
    let wanted = map(spec, "selector");
    if wanted.is_none_or(serde_json::Map::is_empty) {
        errors.push(FieldError::required(SPEC.field("selector"), ""));
    }
    non_negative(errors, spec, &SPEC, "replicas");
    let Some(template) = object(spec, "template") else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let labels = &template["metadata"]["labels"];
    if wanted.is_some_and(|wanted| wanted.iter().any(|(key, value)| labels.get(key) != Some(value))) {
        let at = path.field("metadata");
        errors.push(FieldError::invalid(at.field("labels"), labels, "`selector` does not match template `labels`"));
    }
    pod::template(template, &path, errors);
    let policy = text(&template["spec"], "restartPolicy");
    if matches!(policy, "OnFailure" | "Never") {
        errors.push(FieldError::not_supported(path.field("spec").field("restartPolicy"), &policy.into(), &["Always"]));
    }
}

/// What a Deployment, a ReplicaSet or a DaemonSet selects is settled with its creation.
pub fn same_selector(new: &Value, old: &Value, errors: &mut Errors) {
    field::immutable(errors, &new["spec"], &old["spec"], &SPEC, "selector");
}

/// The few fields of a StatefulSet that can change.
pub fn same_stateful_set(new: &Value, old: &Value, errors: &mut Errors) {
    const FREE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let rest = |set: &Value| {
        let mut spec = map(set, "spec").cloned().unwrap_or_default();
        spec.retain(|name, value| !FREE.contains(&name.as_str()) && !value.is_null());
        // What a claim has become is no change of what is claimed.
        for claim in spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(claim) = claim.as_object_mut() {
                claim.remove("status");
            }
        }
        spec
    };
    if rest(new) != rest(old) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden("spec", why));
    }
}
