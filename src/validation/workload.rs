//! Workloads that keep Pods running: Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, map, non_negative, number, object, shaped, text};
use super::internal::{Field, show, show_selector};
use super::{metadata, names, pod, selector, storage};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");

/// How a strategy is shown; the types of all workloads have these fields.
const STRATEGY: &[Field] = &[
    Field::text("Type", "type"),
    Field::part(
        "RollingUpdate",
        "rollingUpdate",
        &[Field::plain("MaxUnavailable", "maxUnavailable"), Field::plain("MaxSurge", "maxSurge")],
    ),
];
const STATEFUL_ROLLING: &[Field] = &[Field::number("Partition", "partition"), Field::plain("MaxUnavailable", "maxUnavailable")];
const STATEFUL_STRATEGY: &[Field] = &[Field::text("Type", "type"), Field::part("RollingUpdate", "rollingUpdate", STATEFUL_ROLLING)];

/// A Deployment.
pub fn deployment(deployment: &Value, errors: &mut Errors) {
    let spec = &deployment["spec"];
    non_negative(errors, spec, &SPEC, "replicas");
    required_selector(spec, "deployment", errors);
    replica_template(spec, errors);
    let (strategy, path) = (&spec["strategy"], SPEC.field("strategy"));
    let rolling = path.field("rollingUpdate");
    match text(strategy, "type") {
        "Recreate" if has(strategy, "rollingUpdate") => {
            errors.push(FieldError::forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'"));
        }
        "Recreate" => {}
        "RollingUpdate" => rolling_deployment(&strategy["rollingUpdate"], &rolling, errors),
        _ => {
            let value = show(strategy, STRATEGY);
            errors.push(FieldError { value, ..FieldError::not_supported(path, &Value::Null, &["Recreate", "RollingUpdate"]) });
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

fn rolling_deployment(update: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("maxUnavailable");
    amount_or_percent(&update["maxUnavailable"], &at, errors);
    amount_or_percent(&update["maxSurge"], &path.field("maxSurge"), errors);
    if amount(&update["maxUnavailable"]) == 0 && amount(&update["maxSurge"]) == 0 {
        errors.push(FieldError::invalid(at, &update["maxUnavailable"], "may not be 0 when `maxSurge` is 0"));
    }
    at_most_all(&update["maxUnavailable"], &at, errors);
}

/// A number from zero on, or a share.
pub fn amount_or_percent(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::String(text) => field::wrong(errors, path, text, names::percent(text)),
        Value::Number(n) if n.as_i64().is_some_and(|n| n < 0) => {
            errors.push(FieldError::invalid(path, value, "must be greater than or equal to 0"));
        }
        _ => {}
    }
}

fn percent(value: &Value) -> Option<i64> {
    let text = value.as_str().filter(|text| names::percent(text).is_empty())?;
    Some(text.trim_end_matches('%').parse().unwrap_or(i64::MAX))
}

/// The number, of a share or not; zero where it is none.
fn amount(value: &Value) -> i64 {
    match value {
        Value::String(text) => percent(value).or_else(|| text.parse().ok()).unwrap_or(0),
        other => other.as_i64().unwrap_or(0),
    }
}

/// A share of at most everything.
pub fn at_most_all(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if percent(value).is_some_and(|percent| percent > 100) {
        errors.push(FieldError::invalid(path, value, "must not be greater than 100%"));
    }
}

fn required_selector(spec: &Value, whose: &str, errors: &mut Errors) {
    let path = SPEC.field("selector");
    match object(spec, "selector") {
        None => errors.push(FieldError::required(path, "")),
        Some(chosen) => {
            selector::label_selector(chosen, &path, errors);
            not_empty(chosen, &path, whose, errors);
        }
    }
}

fn not_empty(chosen: &Value, path: &Path<'_>, whose: &str, errors: &mut Errors) {
    if selector::is_empty(chosen) {
        let why = format!("empty selector is invalid for {whose}");
        errors.push(FieldError { value: show_selector(chosen), ..invalid(path, "", why) });
    }
}

/// Whether the selector takes the Pods of the template. Gives false where it is none.
fn selects(spec: &Value, unreadable: &str, errors: &mut Errors) -> bool {
    let chosen = spec.get("selector").unwrap_or(&Value::Null);
    if !selector::is_readable(chosen) {
        errors.push(FieldError { value: show_selector(chosen), ..invalid(&SPEC.field("selector"), "", unreadable) });
        return false;
    }
    // An absent one selects nothing, an empty one everything.
    if (!chosen.is_object() || !selector::is_empty(chosen)) && !selector::takes(chosen, &spec["template"]) {
        unmatched(&spec["template"], errors);
    }
    true
}

fn unmatched(template: &Value, errors: &mut Errors) {
    let shown = template["metadata"].get("labels").unwrap_or(&Value::Null);
    errors.push(FieldError::invalid("spec.template.metadata.labels", shown, "`selector` does not match template `labels`"));
}

/// Pods that are started again and again, for as long as they are wanted.
fn lasting(template: &Value, whose: &str, errors: &mut Errors) {
    let policy = text(&template["spec"], "restartPolicy");
    if policy != "Always" {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", &policy.into(), &["Always"]));
    }
    if has(&template["spec"], "activeDeadlineSeconds") {
        let why = format!("activeDeadlineSeconds in {whose} is not Supported");
        errors.push(FieldError::forbidden("spec.template.spec.activeDeadlineSeconds", why));
    }
}

fn replica_template(spec: &Value, errors: &mut Errors) {
    if selects(spec, "invalid label selector", errors) {
        pod::template(&spec["template"], &SPEC.field("template"), errors);
        lasting(&spec["template"], "ReplicaSet", errors);
    }
}

/// A ReplicaSet.
pub fn replica_set(set: &Value, errors: &mut Errors) {
    let spec = &set["spec"];
    non_negative(errors, spec, &SPEC, "replicas");
    non_negative(errors, spec, &SPEC, "minReadySeconds");
    required_selector(spec, "deployment", errors);
    replica_template(spec, errors);
}

/// A DaemonSet.
pub fn daemon_set(set: &Value, errors: &mut Errors) {
    let spec = &set["spec"];
    let chosen = spec.get("selector").unwrap_or(&Value::Null);
    selector::label_selector(chosen, &SPEC.field("selector"), errors);
    if selector::is_readable(chosen) && !selector::takes(chosen, &spec["template"]) {
        unmatched(&spec["template"], errors);
    }
    if chosen.is_object() {
        not_empty(chosen, &SPEC.field("selector"), "daemonset", errors);
    }
    pod::template(&spec["template"], &SPEC.field("template"), errors);
    lasting(&spec["template"], "DaemonSet", errors);
    non_negative(errors, spec, &SPEC, "minReadySeconds");
    let (strategy, path) = (&spec["updateStrategy"], SPEC.field("updateStrategy"));
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => rolling_daemons(&strategy["rollingUpdate"], &path.field("rollingUpdate"), errors),
        _ => {
            let value = show(strategy, STRATEGY);
            errors.push(FieldError { value, ..FieldError::not_supported(path, &Value::Null, &["RollingUpdate", "OnDelete"]) });
        }
    }
    non_negative(errors, spec, &SPEC, "revisionHistoryLimit");
}

fn rolling_daemons(update: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !update.is_object() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    for check in [amount_or_percent, at_most_all] {
        for name in ["maxUnavailable", "maxSurge"] {
            check(&update[name], &path.field(name), errors);
        }
    }
    match (amount(&update["maxUnavailable"]) != 0, amount(&update["maxSurge"]) != 0) {
        (true, true) => {
            errors.push(FieldError::invalid(path.field("maxSurge"), &update["maxSurge"], "may not be set when maxUnavailable is non-zero"));
        }
        (false, false) => errors.push(FieldError::required(path.field("maxUnavailable"), "cannot be 0 when maxSurge is 0")),
        _ => {}
    }
}

/// A StatefulSet.
pub fn stateful_set(set: &Value, new: bool, errors: &mut Errors) {
    let spec = &set["spec"];
    let policy = text(spec, "podManagementPolicy");
    match policy {
        "" => errors.push(FieldError::required(SPEC.field("podManagementPolicy"), "")),
        "OrderedReady" | "Parallel" => {}
        _ => errors.push(invalid(&SPEC.field("podManagementPolicy"), policy, "must be 'OrderedReady' or 'Parallel'")),
    }
    stateful_strategy(&spec["updateStrategy"], errors);
    if let Some(retention) = object(spec, "persistentVolumeClaimRetentionPolicy") {
        let path = SPEC.field("persistentVolumeClaimRetentionPolicy");
        for name in ["whenDeleted", "whenScaled"] {
            let policy = text(retention, name);
            if !matches!(policy, "Retain" | "Delete") {
                errors.push(FieldError::not_supported(path.field(name), &policy.into(), &["Retain", "Delete"]));
            }
        }
    }
    let list = SPEC.field("volumeClaimTemplates");
    // What can never change is looked at once.
    for (i, claim) in items(spec, "volumeClaimTemplates").iter().enumerate().filter(|_| new) {
        storage::claim_spec(&claim["spec"], &list.index(i).field("spec"), errors);
    }
    non_negative(errors, spec, &SPEC, "replicas");
    non_negative(errors, spec, &SPEC, "minReadySeconds");
    non_negative(errors, &spec["ordinals"], &SPEC.field("ordinals"), "start");
    if new {
        shaped(errors, spec, &SPEC, "serviceName", names::label);
    }
    required_selector(spec, "statefulset", errors);
    if selects(spec, "", errors) {
        let path = SPEC.field("template");
        pod::template(&with_claims(spec), &path, errors);
        // What a template says twice, a real server tells twice.
        let template = &spec["template"];
        metadata::labels(&template["metadata"], &path, errors);
        metadata::annotations(&template["metadata"], &path, errors);
        pod::template_annotations(template, &path, errors);
    }
    lasting(&spec["template"], "StatefulSet", errors);
}

/// The template with the volumes that the claims will be, and without names that each Pod gets anew.
fn with_claims(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let claims = items(spec, "volumeClaimTemplates");
    let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    pod.remove("subdomain");
    pod.remove("hostname");
    let name = |claim: &Value| text(&claim["metadata"], "name").to_owned();
    let mut volumes: Vec<Value> = Vec::new();
    for (_, claim) in claims.iter().enumerate().filter(|(i, claim)| !claims[..*i].iter().any(|c| name(c) == name(claim))) {
        volumes.push(serde_json::json!({"name": name(claim), "persistentVolumeClaim": {"claimName": name(claim)}}));
    }
    let own = pod.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
    volumes.extend(own.into_iter().filter(|volume| !claims.iter().any(|claim| name(claim) == text(volume, "name"))));
    pod.insert("volumes".into(), volumes.into());
    template
}

fn stateful_strategy(strategy: &Value, errors: &mut Errors) {
    let path = SPEC.field("updateStrategy");
    let rolling = path.field("rollingUpdate");
    let update = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "" => errors.push(FieldError::required(path, "")),
        "OnDelete" => {
            if update.is_object() {
                let value = show(update, STATEFUL_ROLLING);
                errors.push(FieldError { value, ..invalid(&rolling, "", "only allowed for updateStrategy 'RollingUpdate'") });
            }
        }
        "RollingUpdate" => {
            non_negative(errors, update, &rolling, "partition");
            if has(update, "maxUnavailable") {
                let (value, at) = (&update["maxUnavailable"], rolling.field("maxUnavailable"));
                amount_or_percent(value, &at, errors);
                if amount(value) == 0 {
                    errors.push(FieldError::invalid(at, value, "cannot be 0"));
                }
                at_most_all(value, &at, errors);
            }
        }
        _ => {
            let value = show(strategy, STATEFUL_STRATEGY);
            errors.push(FieldError { value, ..invalid(&path, "", "must be 'RollingUpdate' or 'OnDelete'") });
        }
    }
}

/// A ReplicationController, whose selector is a plain map.
pub fn replication_controller(controller: &Value, errors: &mut Errors) {
    let spec = &controller["spec"];
    non_negative(errors, spec, &SPEC, "minReadySeconds");
    let wanted = map(spec, "selector").filter(|wanted| !wanted.is_empty());
    if wanted.is_none() {
        errors.push(FieldError::required(SPEC.field("selector"), ""));
    }
    match has(spec, "replicas") {
        true => non_negative(errors, spec, &SPEC, "replicas"),
        false => errors.push(FieldError::required(SPEC.field("replicas"), "")),
    }
    let path = SPEC.field("template");
    let Some(template) = object(spec, "template") else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let labels = &template["metadata"]["labels"];
    if wanted.is_some_and(|wanted| wanted.iter().any(|(key, value)| labels.get(key) != Some(value))) {
        unmatched(template, errors);
    }
    pod::template(template, &path, errors);
    lasting(template, "ReplicationController", errors);
}

/// A ControllerRevision.
pub fn revision(revision: &Value, errors: &mut Errors) {
    non_negative(errors, revision, &Path::object(), "revision");
    match revision.get("data") {
        None | Some(Value::Null) => errors.push(FieldError::required("data", "data is mandatory")),
        Some(Value::Object(_)) => {}
        Some(_) => errors.push(FieldError::required("data", "data must be a valid JSON object")),
    }
}

/// A changed ControllerRevision.
pub fn update_revision(new: &Value, old: &Value, errors: &mut Errors) {
    non_negative(errors, new, &Path::object(), "revision");
    field::immutable(errors, new, old, &Path::object(), "data");
}

/// What a workload selects is settled with its creation.
pub fn same_selector(new: &Value, old: &Value, errors: &mut Errors) {
    let (after, before) = (new["spec"].get("selector"), old["spec"].get("selector"));
    if after != before {
        let value = show_selector(after.unwrap_or(&Value::Null));
        errors.push(FieldError { value, ..invalid(&SPEC.field("selector"), "", "field is immutable") });
    }
}

/// What of a StatefulSet is settled with its creation.
pub fn same_stateful_set(new: &Value, old: &Value, errors: &mut Errors) {
    same_selector(new, old, errors);
    let (after, before) = (new["spec"].get("volumeClaimTemplates"), old["spec"].get("volumeClaimTemplates"));
    if after != before {
        let value = super::typed::list(after.unwrap_or(&Value::Null), "PersistentVolumeClaim").to_string();
        errors.push(FieldError { value, ..invalid(&SPEC.field("volumeClaimTemplates"), "", "field is immutable") });
    }
    for name in ["serviceName", "podManagementPolicy"] {
        field::immutable(errors, &new["spec"], &old["spec"], &SPEC, name);
    }
}

/// What the status of a workload counts: the fields that are numbers, and which of them cannot be more than which.
struct Counts {
    numbers: &'static [&'static str],
    bounds: &'static [(&'static str, &'static str, &'static str)],
    collisions: bool,
}

const REPLICAS: &str = "cannot be greater than status.replicas";
const READY: &str = "cannot be greater than readyReplicas";

fn counts(plural: &str) -> Option<Counts> {
    Some(match plural {
        "deployments" => Counts {
            numbers: &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
            bounds: &[
                ("updatedReplicas", "replicas", REPLICAS),
                ("readyReplicas", "replicas", REPLICAS),
                ("availableReplicas", "replicas", REPLICAS),
                ("availableReplicas", "readyReplicas", READY),
            ],
            collisions: true,
        },
        "replicasets" | "replicationcontrollers" => Counts {
            numbers: &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
                "terminatingReplicas",
            ],
            bounds: &[
                ("fullyLabeledReplicas", "replicas", REPLICAS),
                ("readyReplicas", "replicas", REPLICAS),
                ("availableReplicas", "replicas", REPLICAS),
                ("availableReplicas", "readyReplicas", READY),
            ],
            collisions: false,
        },
        "statefulsets" => Counts {
            numbers: &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
            bounds: &[
                ("readyReplicas", "replicas", REPLICAS),
                ("currentReplicas", "replicas", REPLICAS),
                ("updatedReplicas", "replicas", REPLICAS),
                ("availableReplicas", "replicas", REPLICAS),
                ("availableReplicas", "readyReplicas", "cannot be greater than status.readyReplicas"),
            ],
            collisions: true,
        },
        "daemonsets" => Counts {
            numbers: &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
            bounds: &[],
            collisions: true,
        },
        _ => return None,
    })
}

/// The status of a workload.
pub fn status(plural: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let Some(counts) = counts(plural) else { return };
    let (status, path) = (&new["status"], Path::root("status"));
    for name in counts.numbers {
        non_negative(errors, status, &path, name);
    }
    for (less, more, why) in counts.bounds {
        let of = |name: &str| number(status, name).unwrap_or(0);
        if of(less) > of(more) {
            errors.push(FieldError::invalid(path.field(less), &of(less).into(), *why));
        }
    }
    if counts.collisions
        && let Some(before) = number(&old["status"], "collisionCount")
    {
        let after = number(status, "collisionCount");
        if after.is_none_or(|after| after < before) {
            errors.push(FieldError::invalid(path.field("collisionCount"), &after.unwrap_or(0).into(), "cannot be decremented"));
        }
    }
}
