//! The row of a Pod: its state is read off its containers, in the way that people know from `kubectl get pods`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Cells;
use super::access::{condition, count, items, number, or, since, text, time};

/// What the containers say together.
struct Summary {
    ready: usize,
    total: usize,
    state: String,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

pub(super) fn pod(object: &Value, now: Timestamp) -> Cells {
    let summary = summarize(object);
    let restarts = match summary.last_restart.filter(|_| summary.restarts > 0) {
        Some(last) => format!("{} ({} ago)", summary.restarts, super::between(last, now)),
        None => summary.restarts.to_string(),
    };
    let ip = or(object.pointer("/status/podIPs/0/ip").unwrap_or(&Value::Null), "<none>");
    vec![
        text(&object["metadata"]["name"]).into(),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.state.into(),
        restarts.into(),
        since(&object["metadata"]["creationTimestamp"], now).into(),
        ip,
        or(&object["spec"]["nodeName"], "<none>"),
        or(&object["status"]["nominatedNodeName"], "<none>"),
        readiness_gates(object).into(),
    ]
}

/// What tells kubectl that a Pod is over.
pub(super) fn completed(object: &Value) -> Option<Value> {
    let (reason, message) = match text(&object["status"]["phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn readiness_gates(object: &Value) -> String {
    let gates = items(&object["spec"]["readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let is_met = |gate: &&Value| condition(object, text(&gate["conditionType"])).is_some_and(|c| c["status"] == "True");
    format!("{}/{}", gates.iter().filter(is_met).count(), gates.len())
}

fn summarize(object: &Value) -> Summary {
    let (spec, status) = (&object["spec"], &object["status"]);
    let phase = text(&status["phase"]);
    let mut state = match text(&status["reason"]) {
        "" => phase.to_owned(),
        reason => reason.to_owned(),
    };
    if condition(object, "PodScheduled").is_some_and(|c| c["reason"] == "SchedulingGated") {
        state = "SchedulingGated".to_owned();
    }
    let init_containers = items(&spec["initContainers"]);
    // An init container that is always restarted is a sidecar, and counts as one of the Pod's own.
    let is_sidecar = |name: &Value| init_containers.iter().any(|c| &c["name"] == name && c["restartPolicy"] == "Always");
    let mut summary = Summary {
        ready: 0,
        total: count(&spec["containers"]) + init_containers.iter().filter(|c| c["restartPolicy"] == "Always").count(),
        state,
        restarts: 0,
        last_restart: None,
    };

    let (mut sidecar_restarts, mut sidecar_last_restart) = (0, None);
    let mut initializing = false;
    for (index, container) in items(&status["initContainerStatuses"]).iter().enumerate() {
        let (restarts, last) = restarts(container);
        summary.restarts += restarts;
        summary.last_restart = summary.last_restart.max(last);
        let sidecar = is_sidecar(&container["name"]);
        if sidecar {
            sidecar_restarts += restarts;
            sidecar_last_restart = sidecar_last_restart.max(last);
        }
        let (terminated, waiting) = (&container["state"]["terminated"], text(&container["state"]["waiting"]["reason"]));
        if terminated.is_object() && number(&terminated["exitCode"]) == 0 {
            continue;
        }
        if sidecar && container["started"] == true {
            summary.ready += usize::from(container["ready"] == true);
            continue;
        }
        summary.state = match waiting {
            _ if terminated.is_object() => format!("Init:{}", end_of(terminated)),
            "" | "PodInitializing" => format!("Init:{index}/{}", init_containers.len()),
            reason => format!("Init:{reason}"),
        };
        initializing = true;
        break;
    }

    let initialized = condition(object, "Initialized").is_some_and(|c| c["status"] == "True");
    if !initializing || initialized {
        (summary.restarts, summary.last_restart) = (sidecar_restarts, sidecar_last_restart);
        summarize_containers(object, &mut summary);
    }

    if object["metadata"].get("deletionTimestamp").is_some_and(|t| !t.is_null()) {
        if status["reason"] == "NodeLost" {
            summary.state = "Unknown".to_owned();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            summary.state = "Terminating".to_owned();
        }
    }
    summary
}

/// The Pod's own containers, the last one first: what the first one says counts most.
fn summarize_containers(object: &Value, summary: &mut Summary) {
    let (mut running, mut failure) = (false, None);
    for container in items(&object["status"]["containerStatuses"]).iter().rev() {
        let (restarts, last) = restarts(container);
        summary.restarts += restarts;
        summary.last_restart = summary.last_restart.max(last);
        let (terminated, waiting) = (&container["state"]["terminated"], text(&container["state"]["waiting"]["reason"]));
        if !waiting.is_empty() {
            summary.state = waiting.to_owned();
        } else if terminated.is_object() {
            summary.state = end_of(terminated);
            if number(&terminated["exitCode"]) != 0 {
                failure = Some(summary.state.clone());
            }
        } else if container["ready"] == true && container["state"]["running"].is_object() {
            running = true;
            summary.ready += 1;
        }
    }
    // One that has ended does not end the others.
    if summary.state == "Completed" {
        let ready = condition(object, "Ready").is_some_and(|c| c["status"] == "True");
        if running && ready {
            summary.state = "Running".to_owned();
        } else if let Some(failure) = failure {
            summary.state = failure;
        } else if running {
            summary.state = "NotReady".to_owned();
        }
    }
}

fn restarts(container: &Value) -> (i64, Option<Timestamp>) {
    (number(&container["restartCount"]), time(&container["lastState"]["terminated"]["finishedAt"]))
}

/// How a container ended: a reason if it has one.
fn end_of(terminated: &Value) -> String {
    match (text(&terminated["reason"]), number(&terminated["signal"])) {
        ("", 0) => format!("ExitCode:{}", number(&terminated["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
