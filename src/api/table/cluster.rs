//! The rows of what a cluster is made of and ruled by: nodes, events, quotas, bindings, certificates, extensions.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::Cells;
use super::access::{age, condition, human_duration, items, labels, length, name, number, or, selector, since, text};
use crate::registry::Resource;

pub(super) fn node(object: &Value, now: Timestamp) -> Cells {
    let mut status = match condition(object, "Ready") {
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let info = &object["status"]["nodeInfo"];
    let address = |kind: &str| {
        let found = items(&object["status"]["addresses"]).iter().find(|address| address["type"] == kind);
        found.map_or_else(|| "<none>".into(), |address| Value::from(text(&address["address"])))
    };
    let kernel = match (text(&info["kernelVersion"]), text(&info["architecture"])) {
        ("", "") => "<unknown>".to_owned(),
        ("", architecture) => format!("<unknown> ({architecture})"),
        (kernel, "") => kernel.to_owned(),
        (kernel, architecture) => format!("{kernel} ({architecture})"),
    };
    vec![
        name(object),
        status.into(),
        roles(object).into(),
        age(object, now),
        text(&info["kubeletVersion"]).into(),
        address("InternalIP"),
        address("ExternalIP"),
        or(&info["osImage"], "<unknown>"),
        kernel.into(),
        or(&info["containerRuntimeVersion"], "<unknown>"),
    ]
}

fn roles(object: &Value) -> String {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => Some(text(value)),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

/// Both forms of an Event tell the same, by different names.
pub(super) fn event(object: &Value, now: Timestamp) -> Cells {
    let one_of = |names: [&str; 2]| names.into_iter().map(|name| &object[name]).find(|value| !value.is_null()).unwrap_or(&Value::Null);
    let first = match one_of(["firstTimestamp", "deprecatedFirstTimestamp"]) {
        Value::Null => since(&object["eventTime"], now),
        time => since(time, now),
    };
    let mut last = match one_of(["lastTimestamp", "deprecatedLastTimestamp"]) {
        Value::Null => first.clone(),
        time => since(time, now),
    };
    let mut count = number(one_of(["count", "deprecatedCount"])).max(1);
    if object["series"].is_object() {
        last = since(&object["series"]["lastObservedTime"], now);
        count = number(&object["series"]["count"]);
    }
    let about = one_of(["involvedObject", "regarding"]);
    let target = match (text(&about["kind"]).to_lowercase(), text(&about["name"])) {
        (kind, "") => kind,
        (kind, name) => format!("{kind}/{name}"),
    };
    let source = one_of(["source", "deprecatedSource"]);
    let either = |a: &Value, b: &Value| if text(a).is_empty() { text(b).to_owned() } else { text(a).to_owned() };
    let component = either(&source["component"], one_of(["reportingComponent", "reportingController"]));
    let instance = either(&source["host"], &object["reportingInstance"]);
    let source = if instance.is_empty() { component } else { format!("{component}, {instance}") };
    vec![
        last.into(),
        text(&object["type"]).into(),
        text(&object["reason"]).into(),
        target.into(),
        text(&about["fieldPath"]).into(),
        source.into(),
        text(one_of(["message", "note"])).trim().into(),
        first.into(),
        count.into(),
        name(object),
    ]
}

pub(super) fn component_status(object: &Value) -> Cells {
    let healthy = items(&object["conditions"]).iter().find(|condition| condition["type"] == "Healthy");
    let status = match healthy {
        Some(condition) if condition["status"] == "True" => "Healthy",
        Some(_) => "Unhealthy",
        None => "Unknown",
    };
    let told = |field: &str| healthy.map_or("", |condition| text(&condition[field]));
    vec![name(object), status.into(), told("message").into(), told("error").into()]
}

pub(super) fn resource_quota(object: &Value, now: Timestamp) -> Cells {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in object["status"]["hard"].as_object().into_iter().flatten() {
        let used = or(&object["status"]["used"][resource], "0");
        let told = format!("{resource}: {}/{}", text(&used), text(hard));
        if resource.starts_with("limits.") { limits.push(told) } else { requests.push(told) }
    }
    vec![name(object), requests.join(", ").into(), limits.join(", ").into(), age(object, now)]
}

pub(super) fn priority_class(object: &Value, now: Timestamp) -> Cells {
    vec![
        name(object),
        number(&object["value"]).into(),
        (object["globalDefault"] == true).into(),
        age(object, now),
        text(&object["preemptionPolicy"]).into(),
    ]
}

pub(super) fn role_binding(object: &Value, now: Timestamp) -> Cells {
    let role = format!("{}/{}", text(&object["roleRef"]["kind"]), text(&object["roleRef"]["name"]));
    let of_kind = |kind: &str| {
        let subjects = items(&object["subjects"]).iter().filter(|subject| subject["kind"] == kind);
        let names = subjects.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(&subject["namespace"]), text(&subject["name"])),
            _ => text(&subject["name"]).to_owned(),
        });
        Value::from(names.collect::<Vec<_>>().join(", "))
    };
    vec![name(object), role.into(), age(object, now), of_kind("User"), of_kind("Group"), of_kind("ServiceAccount")]
}

pub(super) fn certificate_signing_request(object: &Value, now: Timestamp) -> Cells {
    let mut status = match () {
        () if condition(object, "Denied").is_some() => "Denied",
        () if condition(object, "Approved").is_some() => "Approved",
        () => "Pending",
    }
    .to_owned();
    if condition(object, "Failed").is_some() {
        status.push_str(",Failed");
    }
    if !text(&object["status"]["certificate"]).is_empty() {
        status.push_str(",Issued");
    }
    let spec = &object["spec"];
    let duration = spec["expirationSeconds"].as_i64().map_or_else(|| "<none>".to_owned(), human_duration);
    let requestor = text(&spec["username"]);
    vec![name(object), age(object, now), or(&spec["signerName"], "<none>"), requestor.into(), duration.into(), status.into()]
}

pub(super) fn pod_certificate_request(object: &Value) -> Cells {
    let state = ["Failed", "Denied", "Issued"].into_iter().find(|kind| condition(object, kind).is_some()).unwrap_or("Pending");
    let spec = &object["spec"];
    let mut cells = vec![name(object)];
    cells.extend(["podName", "serviceAccountName", "nodeName", "signerName"].map(|field| text(&spec[field]).into()));
    cells.extend([state.into(), labels(&spec["unverifiedUserAnnotations"]).into()]);
    cells
}

pub(super) fn api_service(object: &Value, now: Timestamp) -> Cells {
    let service = &object["spec"]["service"];
    let told = if service.is_object() { format!("{}/{}", text(&service["namespace"]), text(&service["name"])) } else { "Local".to_owned() };
    let available = match condition(object, "Available") {
        None => "Unknown".to_owned(),
        Some(condition) => match (text(&condition["status"]), text(&condition["reason"])) {
            ("True", _) => "True".to_owned(),
            (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
    };
    vec![name(object), told.into(), available.into(), age(object, now)]
}

pub(super) fn custom_resource_definition(object: &Value) -> Cells {
    let spec = &object["spec"];
    let served = items(&spec["versions"]).iter().filter(|version| version["served"] == true);
    let mut versions: Vec<String> =
        served.map(|version| format!("{}{}", text(&version["name"]), if version["storage"] == true { "(storage)" } else { "" })).collect();
    versions.sort_unstable();
    let short_names: Vec<&str> = items(&spec["names"]["shortNames"]).iter().map(text).collect();
    vec![
        name(object),
        text(&spec["scope"]).into(),
        versions.join(",").into(),
        text(&object["metadata"]["creationTimestamp"]).into(),
        text(&spec["group"]).into(),
        text(&spec["names"]["kind"]).into(),
        short_names.join(",").into(),
        condition(object, "Established").is_some_and(|condition| condition["status"] == "True").into(),
    ]
}

/// Policies of both sorts, and what binds them.
pub(super) fn admission_policy(resource: &Resource, object: &Value, now: Timestamp) -> Cells {
    let spec = &object["spec"];
    if resource.plural.ends_with("bindings") {
        let reference = &spec["paramRef"];
        let told = match (text(&reference["namespace"]), text(&reference["name"])) {
            ("", "") if reference["selector"].is_object() => selector(&reference["selector"], ""),
            (_, "") => "<unset>".to_owned(),
            ("", name) => format!("*/{name}"),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        return vec![name(object), text(&spec["policyName"]).into(), told.into(), age(object, now)];
    }
    let kind = &spec["paramKind"];
    let told = if kind.is_object() { format!("{}/{}", text(&kind["apiVersion"]), text(&kind["kind"])) } else { "<unset>".to_owned() };
    let rules = if resource.plural.starts_with("mutating") { "mutations" } else { "validations" };
    vec![name(object), length(&spec[rules]), told.into(), age(object, now)]
}

pub(super) fn flow_schema(object: &Value, now: Timestamp) -> Cells {
    let spec = &object["spec"];
    vec![
        name(object),
        text(&spec["priorityLevelConfiguration"]["name"]).into(),
        number(&spec["matchingPrecedence"]).into(),
        or(&spec["distinguisherMethod"]["type"], "<none>"),
        age(object, now),
        condition(object, "Dangling").map_or("?", |condition| text(&condition["status"])).into(),
    ]
}

pub(super) fn priority_level_configuration(object: &Value, now: Timestamp) -> Cells {
    let spec = &object["spec"];
    let or_none = |value: &Value| if value.is_null() { "<none>".into() } else { value.clone() };
    let queuing = &spec["limited"]["limitResponse"]["queuing"];
    let mut cells = vec![name(object), text(&spec["type"]).into(), or_none(&spec["limited"]["nominalConcurrencyShares"])];
    cells.extend(["queues", "handSize", "queueLengthLimit"].map(|field| or_none(&queuing[field])));
    cells.push(age(object, now));
    cells
}

pub(super) fn resource_claim(object: &Value, now: Timestamp) -> Cells {
    let deleted = object["metadata"].get("deletionTimestamp").is_some_and(|t| !t.is_null());
    let allocated = object["status"]["allocation"].is_object();
    let reserved = allocated && !items(&object["status"]["reservedFor"]).is_empty();
    let states = [(deleted, "deleted"), (!allocated && !deleted, "pending"), (allocated, "allocated"), (reserved, "reserved")];
    let told: Vec<&str> = states.into_iter().filter(|(yes, _)| *yes).map(|(_, state)| state).collect();
    vec![name(object), told.join(",").into(), age(object, now)]
}

pub(super) fn resource_slice(object: &Value, now: Timestamp) -> Cells {
    let spec = &object["spec"];
    let (node, driver, pool) = (text(&spec["nodeName"]), text(&spec["driver"]), text(&spec["pool"]["name"]));
    vec![name(object), node.into(), driver.into(), pool.into(), age(object, now)]
}

pub(super) fn device_taint_rule(object: &Value, now: Timestamp) -> Cells {
    let taint = &object["spec"]["taint"];
    let added = if taint["timeAdded"].is_null() { String::new() } else { since(&taint["timeAdded"], now) };
    let mut cells = vec![name(object)];
    cells.extend(["key", "value", "effect"].map(|field| text(&taint[field]).into()));
    cells.extend([added.into(), age(object, now)]);
    cells
}

pub(super) fn storage_version_migration(object: &Value) -> Cells {
    let resource = &object["spec"]["resource"];
    let told = crate::status::qualified(text(&resource["group"]), text(&resource["resource"]));
    let is = |kind: &&str| condition(object, kind).is_some_and(|condition| condition["status"] == "True");
    let status = ["Succeeded", "Failed", "Running"].into_iter().find(is).unwrap_or("Unknown");
    vec![name(object), told.into(), status.into()]
}
