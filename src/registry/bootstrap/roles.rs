//! Roles and bindings of a new cluster, from `roles.txt`.

use serde_json::{Value, json};

use super::{subject, words};

const ROLES: &str = include_str!("roles.txt");
const GROUP: &str = "rbac.authorization.k8s.io";

/// Every role and every binding.
pub(super) fn objects() -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for line in ROLES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(detail) = line.strip_prefix(' ') {
            if let Some(object) = all.last_mut() {
                add_detail(object, detail);
            }
        } else {
            all.extend(open(line));
        }
    }
    all
}

/// The object that a line begins.
fn open(line: &str) -> Option<Value> {
    let mut parts = line.split(' ');
    let (what, name) = (parts.next()?, parts.next()?);
    let mut object = json!({"apiVersion": format!("{GROUP}/v1"), "metadata": {"name": name,
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}});
    if what == "role" {
        object["rules"] = Value::Null;
    }
    let mut cluster = "Cluster";
    for option in parts {
        match option.split_once('=')? {
            ("in", namespace) => {
                object["metadata"]["namespace"] = namespace.into();
                cluster = "";
            }
            ("adds-to", role) => object["metadata"]["labels"][format!("{GROUP}/aggregate-to-{role}")] = "true".into(),
            ("collects", role) => {
                object["aggregationRule"] =
                    json!({"clusterRoleSelectors": [{"matchLabels": {format!("{GROUP}/aggregate-to-{role}"): "true"}}]});
            }
            ("to", role) => {
                let (kind, name) = role.split_once('/')?;
                object["roleRef"] = json!({"apiGroup": GROUP, "kind": kind, "name": name});
            }
            _ => return None,
        }
    }
    let kind = if what == "role" { "Role" } else { "RoleBinding" };
    object["kind"] = format!("{cluster}{kind}").into();
    Some(object)
}

/// A rule of a role, or a subject of a binding.
fn add_detail(object: &mut Value, detail: &str) {
    let (list, item) = if let Some((verbs, paths)) = detail.split_once(" @ ") {
        ("rules", json!({"verbs": words(verbs), "nonResourceURLs": words(paths)}))
    } else if let [verbs, groups, resources, names @ ..] = &detail.split(" / ").collect::<Vec<_>>()[..] {
        let mut rule = json!({"verbs": words(verbs), "apiGroups": words(groups), "resources": words(resources)});
        if let Some(names) = names.first() {
            rule["resourceNames"] = words(names);
        }
        ("rules", rule)
    } else if let Some((kind, namespace, name)) = subject(detail) {
        let mut item = json!({"kind": kind, "name": name});
        match kind {
            "ServiceAccount" => item["namespace"] = namespace.into(),
            _ => item["apiGroup"] = GROUP.into(),
        }
        ("subjects", item)
    } else {
        return;
    };
    match &mut object[list] {
        Value::Array(items) => items.push(item),
        absent => *absent = json!([item]),
    }
}
