//! Jobs: how many Pods run how often, when they have failed or succeeded for good, and what of it can change.

use serde_json::Value;

use super::field::{
    self, Errors, Path, domain_prefixed_path, flag, has, invalid, invalid_unshown, items, non_negative, number, object, text, word, wrong,
};
use super::{names, pod, selector, typed};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const INDEXED: &str = "requires indexed completion mode";

/// A new Job.
pub fn job(job: &Value, errors: &mut Errors) {
    generated_selector(job, errors);
    whole(&job["spec"], errors);
    completions_fit(job, errors);
}

/// The selector that the server made, where the client did not bring its own.
fn generated_selector(job: &Value, errors: &mut Errors) {
    let spec = &job["spec"];
    if flag(spec, "manualSelector") || !has(spec, "selector") {
        return;
    }
    let (uid, name) = (text(&job["metadata"], "uid"), text(&job["metadata"], "name"));
    let labels = &spec["template"]["metadata"]["labels"];
    let wanted =
        [("controller-uid", uid), ("job-name", name), ("batch.kubernetes.io/controller-uid", uid), ("batch.kubernetes.io/job-name", name)];
    for (key, value) in wanted {
        let field = "spec.template.metadata.labels";
        match labels[key].as_str() {
            None => errors.push(FieldError::required(format!("{field}[{key}]"), format!("must be '{value}'"))),
            Some(given) if given != value => {
                let shown = labels.clone();
                errors.push(FieldError::invalid(format!("{field}[{key}]"), &shown, format!("must be '{value}'")));
            }
            Some(_) => {}
        }
    }
    let expected: serde_json::Map<String, Value> = wanted.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
    let made = serde_json::json!({"metadata": {"labels": expected}});
    if selector::is_readable(&spec["selector"]) && !selector::takes(&spec["selector"], &made) {
        let value = super::internal::show_selector(&spec["selector"]);
        errors.push(FieldError { value, ..invalid(&SPEC.field("selector"), "", "`selector` not auto-generated") });
    }
}

fn whole(spec: &Value, errors: &mut Errors) {
    self::spec(spec, &SPEC, errors);
    let chosen = spec.get("selector").unwrap_or(&Value::Null);
    match chosen.is_object() {
        false => errors.push(FieldError::required(SPEC.field("selector"), "")),
        true => selector::label_selector(chosen, &SPEC.field("selector"), errors),
    }
    if selector::is_readable(chosen) && !selector::takes(chosen, &spec["template"]) {
        let labels = spec["template"]["metadata"].get("labels").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"));
    }
}

/// The Pods of an indexed Job are named by their number, which must fit into a name.
fn completions_fit(job: &Value, errors: &mut Errors) {
    let (spec, name) = (&job["spec"], text(&job["metadata"], "name"));
    if let Some(most) = number(spec, "completions").filter(|n| *n > 0 && text(spec, "completionMode") == "Indexed") {
        let host = format!("{name}-{}", most - 1);
        if !names::label(&host).is_empty() {
            let why = format!("will not able to create pod with invalid DNS label: {host}");
            errors.push(invalid(&Path::root("metadata").field("name"), name, why));
        }
    }
}

/// The spec of a Job or of a CronJob's template of one.
pub fn spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        non_negative(errors, spec, path, name);
    }
    if has(spec, "maxFailedIndexes") && !has(spec, "backoffLimitPerIndex") {
        errors.push(FieldError::required(path.field("backoffLimitPerIndex"), "when maxFailedIndexes is specified"));
    }
    if has(spec, "managedBy") {
        domain_prefixed_path(errors, spec, path, "managedBy");
        if text(spec, "managedBy").len() > 63 {
            errors.push(FieldError::too_long(path.field("managedBy"), 63));
        }
    }
    word(errors, spec, path, "completionMode", &["NonIndexed", "Indexed"]);
    let mode = text(spec, "completionMode");
    if mode == "Indexed" {
        indexed(spec, path, errors);
    } else if matches!(mode, "" | "NonIndexed") {
        for name in ["backoffLimitPerIndex", "maxFailedIndexes"].iter().filter(|name| has(spec, name)) {
            errors.push(FieldError::invalid(path.field(name), &spec[*name], INDEXED));
        }
    }
    if let Some(policy) = object(spec, "podFailurePolicy") {
        failure_policy(spec, policy, &path.field("podFailurePolicy"), errors);
    }
    if let Some(policy) = object(spec, "successPolicy") {
        let at = path.field("successPolicy");
        match mode {
            "Indexed" => success_policy(spec, policy, &at, errors),
            _ => errors.push(FieldError { value: show_success_policy(policy), ..invalid(&at, "", INDEXED) }),
        }
    }
    let policies: &[&str] = if has(spec, "podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    word(errors, spec, path, "podReplacementPolicy", policies);
    let at = path.field("template");
    pod::template(&spec["template"], &at, errors);
    let at = at.field("spec");
    let at = at.field("restartPolicy");
    match text(&spec["template"]["spec"], "restartPolicy") {
        "Always" | "" => errors.push(FieldError::required(at, "valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if has(spec, "podFailurePolicy") => {
            errors.push(invalid(&at, "OnFailure", "only \"Never\" is supported when podFailurePolicy is specified"));
        }
        "OnFailure" | "Never" => {}
        other => errors.push(FieldError::not_supported(at, &other.into(), &["OnFailure", "Never"])),
    }
}

fn indexed(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (completions, failed, parallelism) = (number(spec, "completions"), number(spec, "maxFailedIndexes"), number(spec, "parallelism"));
    if completions.is_none() {
        errors.push(FieldError::required(path.field("completions"), "when completion mode is Indexed"));
    }
    let mut bound = |name: &str, value: Option<i64>, most: i64, why: String| {
        if let Some(value) = value.filter(|value| *value > most) {
            errors.push(FieldError::invalid(path.field(name), &value.into(), why));
        }
    };
    bound("parallelism", parallelism, 100_000, "must be less than or equal to 100000 when completion mode is Indexed".into());
    if let Some(completions) = completions {
        bound("maxFailedIndexes", failed, completions, "must be less than or equal to completions".into());
    }
    bound("maxFailedIndexes", failed, 100_000, "must be less than or equal to 100000".into());
    if completions.is_some_and(|n| n > 100_000) && has(spec, "backoffLimitPerIndex") {
        let why = "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index";
        bound("parallelism", parallelism, 10_000, why.into());
        bound("maxFailedIndexes", failed, 10_000, why.into());
        if failed.is_none() {
            let at = errors.iter().rposition(|e| e.detail == why).unwrap_or(errors.len());
            let needed = FieldError::required(path.field("maxFailedIndexes"), "must be specified when completions is above 100000");
            errors.insert(at, needed);
        }
    }
}

fn failure_policy(spec: &Value, policy: &Value, path: &Path<'_>, errors: &mut Errors) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let (rules, list) = (items(policy, "rules"), path.field("rules"));
    if rules.len() > 20 {
        errors.push(FieldError::too_many(list, rules.len(), 20));
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = list.index(i);
        match text(rule, "action") {
            "" => {
                let why = "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]";
                errors.push(FieldError::required(path.field("action"), why));
            }
            "FailIndex" => {
                if !has(spec, "backoffLimitPerIndex") {
                    errors.push(invalid(&path.field("action"), "FailIndex", "requires the backoffLimitPerIndex to be set"));
                }
            }
            _ => word(errors, rule, &path, "action", &ACTIONS),
        }
        if let Some(codes) = object(rule, "onExitCodes") {
            exit_codes(spec, codes, &path.field("onExitCodes"), errors);
        }
        let conditions = items(rule, "onPodConditions");
        pod_conditions(conditions, &path.field("onPodConditions"), errors);
        match (has(rule, "onExitCodes"), !conditions.is_empty()) {
            (true, true) => {
                errors.push(invalid_unshown(path, "specifying both OnExitCodes and OnPodConditions is not supported"));
            }
            (false, false) => {
                errors.push(invalid_unshown(path, "specifying one of OnExitCodes and OnPodConditions is required"));
            }
            _ => {}
        }
    }
}

fn pod_conditions(conditions: &[Value], list: &Path<'_>, errors: &mut Errors) {
    if conditions.len() > 20 {
        errors.push(FieldError::too_many(list, conditions.len(), 20));
    }
    for (i, condition) in conditions.iter().enumerate() {
        let path = list.index(i);
        let kind = text(condition, "type");
        wrong(errors, &path.field("type"), kind, names::qualified(kind));
        match text(condition, "status") {
            "" => errors.push(FieldError::required(path.field("status"), "valid values: [\"False\" \"True\" \"Unknown\"]")),
            _ => word(errors, condition, &path, "status", &["False", "True", "Unknown"]),
        }
    }
}

fn exit_codes(spec: &Value, codes: &Value, path: &Path<'_>, errors: &mut Errors) {
    match text(codes, "operator") {
        "" => errors.push(FieldError::required(path.field("operator"), "valid values: [\"In\" \"NotIn\"]")),
        _ => word(errors, codes, path, "operator", &["In", "NotIn"]),
    }
    if has(codes, "containerName") {
        let name = text(codes, "containerName");
        let pod = &spec["template"]["spec"];
        let mut all = items(pod, "containers").iter().chain(items(pod, "initContainers"));
        if !all.any(|container| text(container, "name") == name) {
            let why = "must be one of the container or initContainer names in the pod template";
            errors.push(invalid(&path.field("containerName"), name, why));
        }
    }
    let (values, list) = (items(codes, "values"), path.field("values"));
    if values.is_empty() {
        let shown = codes.get("values").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(list, shown, "at least one value is required"));
    } else if values.len() > 255 {
        errors.push(FieldError::too_many(list, values.len(), 255));
    }
    for (i, value) in values.iter().enumerate() {
        if text(codes, "operator") == "In" && value.as_i64() == Some(0) {
            errors.push(FieldError::invalid(list.index(i), value, "must not be 0 for the In operator"));
        }
        if values[..i].contains(value) {
            errors.push(FieldError::duplicate(list.index(i), value));
        }
    }
    if values.windows(2).any(|pair| pair[0].as_i64() > pair[1].as_i64()) {
        errors.push(FieldError::invalid(list, &codes["values"], "must be ordered"));
    }
}

fn show_success_policy(policy: &Value) -> String {
    use super::internal::{Field, show};
    const RULE: &[Field] = &[Field::plain("SucceededIndexes", "succeededIndexes"), Field::plain("SucceededCount", "succeededCount")];
    show(policy, &[Field::list("Rules", "rules", RULE)])
}

fn success_policy(spec: &Value, policy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (rules, list) = (items(policy, "rules"), path.field("rules"));
    if rules.is_empty() {
        errors.push(FieldError::required(list, "at least one rules must be specified when the successPolicy is specified"));
    }
    if rules.len() > 20 {
        errors.push(FieldError::too_many(list, rules.len(), 20));
    }
    let completions = number(spec, "completions").unwrap_or(0);
    for (i, rule) in rules.iter().enumerate() {
        let path = list.index(i);
        let indexes = rule.get("succeededIndexes").and_then(Value::as_str);
        let count = number(rule, "succeededCount");
        if indexes.is_none() && count.is_none() {
            errors.push(FieldError::required(path, "at least one of succeededCount or succeededIndexes must be specified"));
        }
        let mut total = 0;
        if let Some(indexes) = indexes {
            let at = path.field("succeededIndexes");
            if indexes.len() > 64 * 1024 {
                errors.push(FieldError::too_long(at, 64 * 1024));
            }
            match count_indexes(indexes, completions) {
                Ok(found) => total = found,
                Err(why) => errors.push(invalid(&at, indexes, format!("error parsing succeededIndexes: {why}"))),
            }
        }
        let Some(count) = count else { continue };
        let at = path.field("succeededCount");
        non_negative(errors, rule, &path, "succeededCount");
        if count > completions {
            let why = format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.push(FieldError::invalid(at, &count.into(), why));
        }
        if indexes.is_some() && count > total {
            let why = format!("must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)");
            errors.push(FieldError::invalid(at, &count.into(), why));
        }
    }
}

/// How many numbers `1,3-5` stands for.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let number = |text: &str| -> Result<i64, String> {
        let value = text.parse::<i64>().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if value >= completions { Err(format!("too large index: {text:?}")) } else { Ok(value) }
    };
    let (mut total, mut last) = (0, None);
    for interval in text.split(',').filter(|_| !text.is_empty()) {
        let parts: Vec<&str> = interval.split('-').collect();
        if parts.len() > 2 {
            return Err(format!(
                "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
            ));
        }
        let first = number(parts[0])?;
        let end = match parts.get(1) {
            None => first,
            Some(end) => number(end)?,
        };
        if parts.len() == 2 && first >= end {
            return Err(format!("non-increasing order, previous: {first}, current: {end}"));
        }
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// A changed Job.
pub fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let (after, before) = (&new["spec"], &old["spec"]);
    whole(after, errors);
    if text(after, "completionMode") != "Indexed" {
        field::immutable(errors, after, before, &SPEC, "completions");
    } else if has(after, "completions") && after["completions"] != before["completions"] && after["completions"] != after["parallelism"] {
        let why = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid(SPEC.field("completions"), &after["completions"], why));
    }
    super::workload::same_selector(new, old, errors);
    template(new, old, errors);
    field::immutable(errors, after, before, &SPEC, "completionMode");
    same(errors, after, before, "podFailurePolicy", "PodFailurePolicy");
    field::immutable(errors, after, before, &SPEC, "backoffLimitPerIndex");
    field::immutable(errors, after, before, &SPEC, "managedBy");
    same(errors, after, before, "successPolicy", "SuccessPolicy");
    completions_fit(new, errors);
}

/// A part of the spec that cannot change.
fn same(errors: &mut Errors, new: &Value, old: &Value, name: &str, of: &str) {
    if new.get(name) != old.get(name) {
        let value = object(new, name).map_or_else(|| "null".to_owned(), |value| typed::show(value, of).to_string());
        errors.push(FieldError { value, ..invalid(&SPEC.field(name), "", "field is immutable") });
    }
}

/// A Job that waits may still be told where its Pods go and what they need.
fn template(new: &Value, old: &Value, errors: &mut Errors) {
    let suspended = flag(&old["spec"], "suspend");
    let stopped = items(&old["status"], "conditions").iter().any(|c| c["type"] == "Suspended" && c["status"] == "True");
    let waits = suspended && (!has(&old["status"], "startTime") || stopped);
    if !waits {
        same(errors, &new["spec"], &old["spec"], "template", "PodTemplateSpec");
        return;
    }
    let fixed = |job: &Value| {
        let mut pod = job["spec"]["template"]["spec"].clone();
        for name in ["nodeSelector", "tolerations", "schedulingGates"] {
            drop(pod.as_object_mut().map(|pod| pod.remove(name)));
        }
        if let Some(affinity) = pod.get_mut("affinity").and_then(Value::as_object_mut) {
            affinity.remove("nodeAffinity");
        }
        if pod.get("affinity").is_some_and(|a| a.as_object().is_some_and(serde_json::Map::is_empty)) {
            drop(pod.as_object_mut().map(|pod| pod.remove("affinity")));
        }
        for list in ["containers", "initContainers"] {
            for container in pod.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                drop(container.as_object_mut().map(|container| container.remove("resources")));
            }
        }
        pod
    };
    if fixed(new) != fixed(old) {
        let value = typed::show(&new["spec"]["template"]["spec"], "PodSpec").to_string();
        errors.push(FieldError { value, ..FieldError::invalid("spec.template.spec", &Value::Null, "field is immutable") });
    }
}

fn is_true(job: &Value, kind: &str) -> bool {
    items(&job["status"], "conditions").iter().any(|c| text(c, "type") == kind && text(c, "status") == "True")
}

/// The status of a Job.
pub fn status(new: &Value, old: &Value, errors: &mut Errors) {
    let (status, path) = (&new["status"], Path::root("status"));
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        non_negative(errors, status, &path, name);
    }
    uncounted(&status["uncountedTerminatedPods"], &path.field("uncountedTerminatedPods"), errors);
    let conditions = path.field("conditions");
    let (complete, failed) = (is_true(new, "Complete"), is_true(new, "Failed"));
    let (target, met) = (is_true(new, "FailureTarget"), is_true(new, "SuccessCriteriaMet"));
    let finished = complete || failed;
    let mut clash = |wrong: bool, why: &str| {
        if wrong {
            errors.push(invalid_unshown(conditions, why));
        }
    };
    clash(complete && failed, "cannot set Complete=True and Failed=true conditions");
    clash(complete && target, "cannot set Complete=True and FailureTarget=true conditions");
    let ended = has(status, "completionTime");
    let at = path.field("completionTime");
    if ended && !complete {
        let why = "cannot set completionTime when there is no Complete=True condition";
        errors.push(FieldError::invalid(at, &status["completionTime"], why));
    }
    if !ended && complete {
        errors.push(FieldError::required(at, "completionTime is required for Complete jobs"));
    }
    if ended && has(status, "startTime") && text(status, "completionTime") < text(status, "startTime") {
        errors.push(FieldError::invalid(at, &status["completionTime"], "must be equal to or after `startTime`"));
    }
    let mut clash = |wrong: bool, why: &str| {
        if wrong {
            errors.push(invalid_unshown(conditions, why));
        }
    };
    clash(failed && !target, "cannot set Failed=True condition without the FailureTarget=true condition");
    clash(complete && !met, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    let count = |name: &str| number(status, name).unwrap_or(0);
    if finished && count("active") > 0 {
        errors.push(FieldError::invalid(path.field("active"), &status["active"], "active>0 is invalid for finished job"));
    }
    if finished && !has(status, "startTime") {
        errors.push(FieldError::required(path.field("startTime"), "startTime is required for finished job"));
    }
    if finished && count("terminating") > 0 {
        errors.push(FieldError::invalid(path.field("terminating"), &status["terminating"], "terminating>0 is invalid for finished job"));
    }
    if has(status, "ready") && count("ready") > count("active") {
        errors.push(FieldError::invalid(path.field("ready"), &status["ready"], "cannot set more ready pods than active"));
    }
    let mut clash = |wrong: bool, why: &str| {
        if wrong {
            errors.push(invalid_unshown(conditions, why));
        }
    };
    clash(met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    clash(met && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        clash(is_true(old, kind) && !is_true(new, kind), &format!("cannot disable the terminal {kind}=True condition"));
    }
    for name in ["failed", "succeeded"] {
        if count(name) < number(&old["status"], name).unwrap_or(0) {
            errors.push(FieldError::invalid(path.field(name), &count(name).into(), format!("cannot decrease the {name} counter")));
        }
    }
    if ended && has(&old["status"], "completionTime") && status["completionTime"] != old["status"]["completionTime"] {
        errors.push(FieldError::invalid(at, &status["completionTime"], "field is immutable"));
    }
    if has(&old["status"], "startTime") && status.get("startTime") != old["status"].get("startTime") && !flag(&new["spec"], "suspend") {
        let shown = status.get("startTime").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(path.field("startTime"), shown, "field is immutable for unsuspended job once set"));
    }
    if is_true(old, "SuccessCriteriaMet") && !met {
        errors.push(invalid_unshown(conditions, "cannot disable the SuccessCriteriaMet=True condition"));
    }
}

fn uncounted(pods: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for name in ["succeeded", "failed"] {
        let list = path.field(name);
        for (i, uid) in items(pods, name).iter().filter_map(Value::as_str).enumerate() {
            if uid.is_empty() {
                errors.push(invalid(&list.index(i), uid, "must not be empty"));
            } else if seen.contains(&uid) {
                errors.push(FieldError::duplicate(list.index(i), &uid.into()));
            } else {
                seen.push(uid);
            }
        }
    }
}
