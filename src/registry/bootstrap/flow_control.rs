//! Priority levels and flow schemas of a new cluster, from `flow_control.txt`.

use serde_json::{Value, json};

use super::{subject, words};

const FLOW_CONTROL: &str = include_str!("flow_control.txt");

/// Every priority level and every flow schema.
pub(super) fn objects(now: &str) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for line in FLOW_CONTROL.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix(' ') {
            Some(detail) => {
                let rule = rule(detail);
                if let (Some(object), Some(rule)) = (all.last_mut(), rule) {
                    object["spec"]["rules"] = json!([rule]);
                }
            }
            None => all.extend(open(line, now)),
        }
    }
    all
}

fn open(line: &str, now: &str) -> Option<Value> {
    let parts: Vec<&str> = line.split(' ').collect();
    let (kind, name, spec, status) = match parts[..] {
        ["exempt", name] => {
            let spec = json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
            ("PriorityLevelConfiguration", name, spec, json!({}))
        }
        ["level", name, shares, lendable, ref queues @ ..] => {
            let response = match queues {
                [queues, hand, length] => json!({"type": "Queue", "queuing": {
                    "queues": number(queues)?, "handSize": number(hand)?, "queueLengthLimit": number(length)?}}),
                _ => json!({"type": "Reject"}),
            };
            let limited =
                json!({"nominalConcurrencyShares": number(shares)?, "lendablePercent": number(lendable)?, "limitResponse": response});
            ("PriorityLevelConfiguration", name, json!({"type": "Limited", "limited": limited}), json!({}))
        }
        ["flow", name, level, precedence, ref method @ ..] => {
            let mut spec = json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": number(precedence)?});
            if let Some(method) = method.first() {
                spec["distinguisherMethod"] = json!({"type": method});
            }
            let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} and it exists");
            let status = json!({"conditions": [{"type": "Dangling", "status": "False", "lastTransitionTime": now, "reason": "Found", "message": message}]});
            ("FlowSchema", name, spec, status)
        }
        _ => return None,
    };
    let metadata = json!({"name": name, "generation": 1, "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}});
    Some(json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec, "status": status}))
}

fn number(word: &str) -> Option<i64> {
    word.parse().ok()
}

fn rule(detail: &str) -> Option<Value> {
    let (subjects, rules) = detail.split_once(" : ")?;
    let subjects: Vec<Value> = subjects
        .split(' ')
        .filter_map(subject)
        .map(|(kind, namespace, name)| match kind {
            "User" => json!({"kind": kind, "user": {"name": name}}),
            "Group" => json!({"kind": kind, "group": {"name": name}}),
            _ => json!({"kind": kind, "serviceAccount": {"namespace": namespace, "name": name}}),
        })
        .collect();
    let (mut on_resources, mut on_paths) = (Vec::new(), Vec::new());
    for rule in rules.split(" + ") {
        if rule == "*" {
            on_resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}));
            on_paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
        } else if let Some((verbs, paths)) = rule.split_once(" @ ") {
            on_paths.push(json!({"verbs": words(verbs), "nonResourceURLs": words(paths)}));
        } else if let [verbs, groups, resources] = rule.split(" / ").collect::<Vec<_>>()[..] {
            let (resources, cluster) = resources.strip_suffix(" cluster").map_or((resources, false), |resources| (resources, true));
            let mut rule = json!({"verbs": words(verbs), "apiGroups": words(groups), "resources": words(resources), "namespaces": ["*"]});
            if cluster {
                rule["clusterScope"] = true.into();
            }
            on_resources.push(rule);
        }
    }
    let mut rule = json!({"subjects": subjects});
    for (key, list) in [("resourceRules", on_resources), ("nonResourceRules", on_paths)] {
        if !list.is_empty() {
            rule[key] = list.into();
        }
    }
    Some(rule)
}
