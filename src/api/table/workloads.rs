//! The rows of what makes Pods, and of what scales and guards them.

use jiff::Timestamp;
use serde_json::Value;

use super::Cells;
use super::access::{age, condition, containers, first_of, items, labels, length, name, number, or, selector, text, time};

pub(super) fn pod_template(object: &Value) -> Cells {
    let [names, images] = containers(&object["template"]["spec"]);
    vec![name(object), names, images, labels(&object["template"]["metadata"]["labels"]).into()]
}

pub(super) fn replication_controller(object: &Value, now: Timestamp) -> Cells {
    replicas(object, now, labels(&object["spec"]["selector"]))
}

pub(super) fn replica_set(object: &Value, now: Timestamp) -> Cells {
    replicas(object, now, selector(&object["spec"]["selector"], "<none>"))
}

fn replicas(object: &Value, now: Timestamp, selector: String) -> Cells {
    let (spec, status) = (&object["spec"], &object["status"]);
    let [names, images] = containers(&spec["template"]["spec"]);
    let (desired, current, ready) = (number(&spec["replicas"]), number(&status["replicas"]), number(&status["readyReplicas"]));
    vec![name(object), desired.into(), current.into(), ready.into(), age(object, now), names, images, selector.into()]
}

pub(super) fn deployment(object: &Value, now: Timestamp) -> Cells {
    let (spec, status) = (&object["spec"], &object["status"]);
    let [names, images] = containers(&spec["template"]["spec"]);
    vec![
        name(object),
        format!("{}/{}", number(&status["readyReplicas"]), number(&spec["replicas"])).into(),
        number(&status["updatedReplicas"]).into(),
        number(&status["availableReplicas"]).into(),
        age(object, now),
        names,
        images,
        selector(&spec["selector"], "").into(),
    ]
}

pub(super) fn stateful_set(object: &Value, now: Timestamp) -> Cells {
    let [names, images] = containers(&object["spec"]["template"]["spec"]);
    let ready = format!("{}/{}", number(&object["status"]["readyReplicas"]), number(&object["spec"]["replicas"]));
    vec![name(object), ready.into(), age(object, now), names, images]
}

pub(super) fn daemon_set(object: &Value, now: Timestamp) -> Cells {
    let (spec, status) = (&object["spec"], &object["status"]);
    let pod_spec = &spec["template"]["spec"];
    let counts = ["desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable"];
    let mut cells = vec![name(object)];
    cells.extend(counts.map(|field| number(&status[field]).into()));
    cells.extend([labels(&pod_spec["nodeSelector"]).into(), age(object, now)]);
    cells.extend(containers(pod_spec));
    cells.push(selector(&spec["selector"], "<none>").into());
    cells
}

pub(super) fn controller_revision(object: &Value, now: Timestamp) -> Cells {
    let owner = items(&object["metadata"]["ownerReferences"]).iter().find(|owner| owner["controller"] == true);
    let controller = owner.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let (kind, group) = (text(&owner["kind"]).to_lowercase(), text(&owner["apiVersion"]).rsplit_once('/').map(|(group, _)| group));
            let kind = group.map_or(kind.clone(), |group| format!("{kind}.{group}"));
            format!("{kind}/{}", text(&owner["name"]))
        },
    );
    vec![name(object), controller.into(), number(&object["revision"]).into(), age(object, now)]
}

pub(super) fn job(object: &Value, now: Timestamp) -> Cells {
    let (spec, status) = (&object["spec"], &object["status"]);
    let succeeded = number(&status["succeeded"]);
    let completions = match (spec["completions"].as_i64(), number(&spec["parallelism"])) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, 2..) => format!("{succeeded}/1 of {}", number(&spec["parallelism"])),
        (None, _) => format!("{succeeded}/1"),
    };
    let duration =
        time(&status["startTime"]).map_or_else(String::new, |start| super::between(start, time(&status["completionTime"]).unwrap_or(now)));
    let has = |kind: &str| condition(object, kind).is_some_and(|c| c["status"] == "True");
    let state = match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if object["metadata"].get("deletionTimestamp").is_some_and(|t| !t.is_null()) => "Terminating",
        () if has("Suspended") => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    let [names, images] = containers(&spec["template"]["spec"]);
    let selector = selector(&spec["selector"], "<none>");
    vec![name(object), state.into(), completions.into(), duration.into(), age(object, now), names, images, selector.into()]
}

pub(super) fn cron_job(object: &Value, now: Timestamp) -> Cells {
    let (spec, status) = (&object["spec"], &object["status"]);
    let last = match time(&status["lastScheduleTime"]) {
        Some(last) => super::between(last, now),
        None => "<none>".to_owned(),
    };
    let suspend = match spec["suspend"].as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let [names, images] = containers(&spec["jobTemplate"]["spec"]["template"]["spec"]);
    vec![
        name(object),
        text(&spec["schedule"]).into(),
        or(&spec["timeZone"], "<none>"),
        suspend.into(),
        length(&status["active"]),
        last.into(),
        age(object, now),
        names,
        images,
        selector(&spec["jobTemplate"]["spec"]["selector"], "<none>").into(),
    ]
}

pub(super) fn pod_disruption_budget(object: &Value, now: Timestamp) -> Cells {
    let amount = |value: &Value| match value {
        Value::String(text) => Value::from(text.as_str()),
        Value::Number(number) => number.to_string().into(),
        _ => "N/A".into(),
    };
    let spec = &object["spec"];
    let allowed = number(&object["status"]["disruptionsAllowed"]);
    vec![name(object), amount(&spec["minAvailable"]), amount(&spec["maxUnavailable"]), allowed.into(), age(object, now)]
}

pub(super) fn horizontal_pod_autoscaler(object: &Value, now: Timestamp) -> Cells {
    let (spec, status) = (&object["spec"], &object["status"]);
    let target = format!("{}/{}", text(&spec["scaleTargetRef"]["kind"]), text(&spec["scaleTargetRef"]["name"]));
    let least = spec["minReplicas"].as_i64().map_or_else(|| "<unset>".to_owned(), |n| n.to_string());
    let (most, current) = (number(&spec["maxReplicas"]), number(&status["currentReplicas"]));
    vec![name(object), target.into(), metrics(object).into(), least.into(), most.into(), current.into(), age(object, now)]
}

/// What is measured, and what it should be.
fn metrics(object: &Value) -> String {
    let (spec, status) = (&object["spec"], &object["status"]);
    // The first version knows of CPU alone.
    if let Some(target) = spec["targetCPUUtilizationPercentage"].as_i64() {
        let current = status["currentCPUUtilizationPercentage"].as_i64();
        return format!("cpu: {}/{target}%", current.map_or_else(|| "<unknown>".to_owned(), |n| format!("{n}%")));
    }
    let wanted = items(&spec["metrics"]);
    if wanted.is_empty() {
        return "<none>".to_owned();
    }
    let told = wanted.iter().enumerate().map(|(index, metric)| {
        let kind = text(&metric["type"]);
        let Some(source) = [
            ("Resource", "resource"),
            ("ContainerResource", "containerResource"),
            ("Pods", "pods"),
            ("Object", "object"),
            ("External", "external"),
        ]
        .into_iter()
        .find_map(|(known, field)| (known == kind).then_some(field)) else {
            return "<unknown type>".to_owned();
        };
        let (target, current) = (&metric[source]["target"], &status["currentMetrics"][index][source]["current"]);
        let amount = |value: &Value, none: &str| text(&or(value, none)).to_owned();
        let percent = |value: &Value, none: &str| value.as_i64().map_or_else(|| none.to_owned(), |n| format!("{n}%"));
        let average = !text(&target["averageValue"]).is_empty();
        match source {
            "resource" | "containerResource" => {
                let what = text(&metric[source]["name"]);
                if average {
                    return format!("{what}: {}/{}", amount(&current["averageValue"], "<unknown>"), text(&target["averageValue"]));
                }
                let (current, target) =
                    (percent(&current["averageUtilization"], "<unknown>"), percent(&target["averageUtilization"], "<auto>"));
                format!("{what}: {current}/{target}")
            }
            "pods" => format!("{}/{}", amount(&current["averageValue"], "<unknown>"), text(&target["averageValue"])),
            _ if average => format!("{}/{} (avg)", amount(&current["averageValue"], "<unknown>"), text(&target["averageValue"])),
            _ => format!("{}/{}", amount(&current["value"], "<unknown>"), text(&target["value"])),
        }
    });
    first_of(&told.collect::<Vec<_>>(), 2, ", ")
}
