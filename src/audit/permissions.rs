//! What roles and bindings give, permission by permission, so that two sets of them can be compared. Pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// Permissions one by one, a line each and in order, so that two sets of roles can be compared: `namespace default: get pods web`.
pub fn permissions(objects: &[Value]) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for object in objects.iter().filter(|object| matches!(object["kind"].as_str(), Some("Role" | "ClusterRole"))) {
        let scope = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("namespace {namespace}"),
            None => "cluster".to_owned(),
        };
        for rule in object["rules"].as_array().into_iter().flatten() {
            lines.extend(permissions_of(&scope, rule));
        }
    }
    lines
}

/// The same of one rule.
pub fn permissions_of(scope: &str, rule: &Value) -> Vec<String> {
    let list = |key: &str| rule[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>();
    let mut lines = Vec::new();
    for verb in list("verbs") {
        lines.extend(list("nonResourceURLs").iter().map(|path| format!("{scope}: {verb} {path}")));
        for group in list("apiGroups") {
            for resource in list("resources") {
                let dotted = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
                let names = list("resourceNames");
                match names.is_empty() {
                    true => lines.push(format!("{scope}: {verb} {dotted}")),
                    false => lines.extend(names.iter().map(|name| format!("{scope}: {verb} {dotted} {name}"))),
                }
            }
        }
    }
    lines
}

/// Whether a permission, as [`permissions`] writes it, gives what another one asks for.
pub fn covers(given: &str, asked: &str) -> bool {
    let parts = |line: &str| -> Option<[String; 4]> {
        let (scope, rest) = line.split_once(": ")?;
        let mut words = rest.split(' ');
        let (verb, what) = (words.next()?, words.next()?);
        Some([scope.to_owned(), verb.to_owned(), what.to_owned(), words.collect::<Vec<_>>().join(" ")])
    };
    let (Some(given), Some(asked)) = (parts(given), parts(asked)) else { return false };
    let any = |given: &str, asked: &str| given == "*" || given == asked;
    let what = match (given[2].starts_with('/'), asked[2].starts_with('/')) {
        (true, true) => given[2] == asked[2] || given[2].strip_suffix('*').is_some_and(|prefix| asked[2].starts_with(prefix)),
        (false, false) => {
            let split = |what: &str| match what.split_once('.') {
                Some((resource, group)) => (resource.to_owned(), group.to_owned()),
                None => (what.to_owned(), String::new()),
            };
            let ((given, given_group), (asked, asked_group)) = (split(&given[2]), split(&asked[2]));
            let subresource = |what: &str| what.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
            any(&given_group, &asked_group) && (any(&given, &asked) || subresource(&asked) == Some(given))
        }
        // Every path there is.
        (false, true) => given[2] == "*",
        (true, false) => false,
    };
    any(&given[1], &asked[1]) && what && (given[0] == "cluster" || given[0] == asked[0]) && (given[3].is_empty() || given[3] == asked[3])
}

/// What somebody may do now, as roles of the shape that [`Usage::roles`] gives: of all roles and bindings those that reach the user,
/// directly or by a group.
pub fn granted(user: &str, groups: &BTreeSet<String>, objects: &[Value]) -> Vec<Value> {
    let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    let is_subject = |subject: &Value, namespace: &str| {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["kind"].as_str() {
            Some("User") => name == user,
            Some("Group") => groups.contains(name),
            Some("ServiceAccount") => account == Some((subject["namespace"].as_str().unwrap_or(namespace), name)),
            _ => false,
        }
    };
    let mut found = Vec::new();
    for binding in objects {
        let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        if !subjects.into_iter().any(|subject| is_subject(subject, namespace)) {
            continue;
        }
        let role = objects.iter().find(|role| {
            let of_namespace = role["kind"] == "ClusterRole" || role["metadata"]["namespace"] == binding["metadata"]["namespace"];
            role["kind"] == binding["roleRef"]["kind"] && role["metadata"]["name"] == binding["roleRef"]["name"] && of_namespace
        });
        if let Some(role) = role {
            let mut metadata = json!({"name": role["metadata"]["name"]});
            let kind = match namespace.is_empty() {
                true => "ClusterRole",
                false => {
                    metadata["namespace"] = json!(namespace);
                    "Role"
                }
            };
            found.push(json!({"kind": kind, "metadata": metadata, "rules": role["rules"]}));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wider_permission_gives_what_a_narrower_one_asks_for() {
        for (given, asked) in [
            ("cluster: * *.*", "namespace a: get pods web"),
            ("namespace a: get *.apps", "namespace a: get deployments/scale.apps"),
            ("cluster: get */scale.apps", "namespace a: get deployments/scale.apps web"),
            ("namespace a: get pods", "namespace a: get pods web"),
            ("cluster: get /usher/*", "cluster: get /usher/v1/stats"),
            ("cluster: * *", "namespace a: list pods"),
        ] {
            assert!(covers(given, asked), "{given} gives {asked}");
        }
        for (given, asked) in [
            ("namespace b: * *.*", "namespace a: get pods"),
            ("namespace a: get pods web", "namespace a: get pods"),
            ("namespace a: get pods", "namespace a: get pods/log web"),
            ("cluster: * *", "namespace a: list deployments.apps"),
            ("cluster: get /usher/*", "cluster: get pods"),
            ("namespace a: get pods", "cluster: get pods"),
        ] {
            assert!(!covers(given, asked), "{given} does not give {asked}");
        }
    }
}
