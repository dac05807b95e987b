//! One policy rule: which verbs on which resources or paths. Matching a request against it, and whether rules that
//! somebody holds cover a rule that they want to hand on. Pure; knows nothing of roles, bindings or users.

use serde_json::{Map, Value, json};

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub non_resource_urls: Vec<String>,
}

impl Rule {
    /// Reads a rule; what is missing is empty.
    pub fn from_json(rule: &Value) -> Self {
        let list = |key: &str| {
            let items = rule[key].as_array().map(Vec::as_slice).unwrap_or_default();
            items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Rule {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// The rules of a Role or ClusterRole.
    pub fn list(role: &Value) -> Vec<Rule> {
        role["rules"].as_array().map(Vec::as_slice).unwrap_or_default().iter().map(Rule::from_json).collect()
    }

    /// Whether it allows a verb on an object.
    pub fn allows_resource(&self, verb: &str, group: &str, resource: &str, subresource: &str, name: &str) -> bool {
        matches_any(&self.verbs, verb)
            && matches_any(&self.api_groups, group)
            && self.resources.iter().any(|r| resource_matches(r, resource, subresource))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|n| n == name))
    }

    /// Whether it allows a verb on a path that is not one of a resource.
    pub fn allows_path(&self, verb: &str, path: &str) -> bool {
        matches_any(&self.verbs, verb) && self.non_resource_urls.iter().any(|pattern| path_matches(pattern, path))
    }

    /// The rule as SelfSubjectRulesReview tells the resource part of it.
    pub fn resource_rule(&self) -> Option<Value> {
        (!self.resources.is_empty()).then(|| {
            let mut map = Map::new();
            map.insert("verbs".into(), json!(self.verbs));
            let lists = [("apiGroups", &self.api_groups), ("resources", &self.resources), ("resourceNames", &self.resource_names)];
            for (key, list) in lists {
                if !list.is_empty() {
                    map.insert(key.into(), json!(list));
                }
            }
            map.into()
        })
    }

    /// The rule as SelfSubjectRulesReview tells the other part of it.
    pub fn non_resource_rule(&self) -> Option<Value> {
        (!self.non_resource_urls.is_empty()).then(|| json!({"verbs": self.verbs, "nonResourceURLs": self.non_resource_urls}))
    }

    /// The rule as error messages print it.
    pub fn compact(&self) -> String {
        let lists = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let parts: Vec<_> =
            lists.into_iter().filter(|(_, list)| !list.is_empty()).map(|(key, list)| format!("{key}:{}", quoted(list))).collect();
        format!("{{{}}}", parts.join(", "))
    }

    /// The rule as rules of one verb on one resource (or name, or path) each.
    fn atoms(&self) -> Vec<Rule> {
        let mut atoms = Vec::new();
        let one = |text: &String| vec![text.clone()];
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let atom = Rule { verbs: one(verb), api_groups: one(group), resources: one(resource), ..Rule::default() };
                    if self.resource_names.is_empty() {
                        atoms.push(atom);
                    } else {
                        atoms.extend(self.resource_names.iter().map(|name| Rule { resource_names: one(name), ..atom.clone() }));
                    }
                }
            }
        }
        for path in &self.non_resource_urls {
            atoms.extend(self.verbs.iter().map(|verb| Rule { verbs: one(verb), non_resource_urls: one(path), ..Rule::default() }));
        }
        atoms
    }

    /// Whether this rule covers a rule of one verb.
    fn covers(&self, atom: &Rule) -> bool {
        let has_all = |held: &[String], wanted: &[String]| held.iter().any(|h| h == "*") || wanted.iter().all(|w| held.contains(w));
        let resources = |wanted: &String| {
            let (resource, subresource) = wanted.split_once('/').unwrap_or((wanted, ""));
            self.resources.iter().any(|held| held == wanted || resource_matches(held, resource, subresource))
        };
        let names = if atom.resource_names.is_empty() {
            self.resource_names.is_empty()
        } else {
            self.resource_names.is_empty() || atom.resource_names.iter().all(|n| self.resource_names.contains(n))
        };
        let paths = |wanted: &String| self.non_resource_urls.iter().any(|held| held == wanted || path_matches(held, wanted));
        has_all(&self.verbs, &atom.verbs)
            && has_all(&self.api_groups, &atom.api_groups)
            && atom.resources.iter().all(resources)
            && names
            && atom.non_resource_urls.iter().all(paths)
    }
}

fn matches_any(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == wanted || item == "*")
}

/// `*`, `pods`, `pods/log` or `*/scale`.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    match rule.split_once('/') {
        Some((r, s)) => s == subresource && (r == resource || r == "*"),
        None => false,
    }
}

/// `*`, `/healthz` or `/healthz/*`.
fn path_matches(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix.trim_end_matches('*')))
}

/// What of `wanted` is not covered by `held`, in atoms; empty if all of it is.
pub fn uncovered(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    wanted.iter().flat_map(Rule::atoms).filter(|atom| !held.iter().any(|rule| rule.covers(atom))).collect()
}

/// Puts the verbs of rules about the same one resource together, as messages and reviews show them.
pub fn compacted(rules: Vec<Rule>) -> Vec<Rule> {
    let mut others = Vec::new();
    let mut simple: Vec<Rule> = Vec::new();
    for rule in rules {
        let is_simple =
            rule.resource_names.len() <= 1 && rule.non_resource_urls.is_empty() && rule.resources.len() == 1 && rule.api_groups.len() == 1;
        if !is_simple {
            others.push(rule);
            continue;
        }
        let same = |known: &&mut Rule| {
            known.resources == rule.resources && known.api_groups == rule.api_groups && known.resource_names == rule.resource_names
        };
        match simple.iter_mut().find(same) {
            Some(known) => known.verbs.extend(rule.verbs),
            None => simple.push(rule),
        }
    }
    others.extend(simple);
    others
}

/// A list as Go prints it with `%q`.
pub fn quoted(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: Value) -> Rule {
        Rule::from_json(&json)
    }

    #[test]
    fn resources_subresources_names_and_wildcards_match_as_documented() {
        let pods = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}));
        assert!(pods.allows_resource("get", "", "pods", "", "x"));
        assert!(!pods.allows_resource("get", "", "pods", "log", "x"));
        assert!(!pods.allows_resource("get", "apps", "pods", "", "x"));
        assert!(!pods.allows_resource("list", "", "pods", "", ""));
        let all = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        assert!(all.allows_resource("frobnicate", "g", "r", "s", ""));
        assert!(!all.allows_path("get", "/metrics"));
        let scale = rule(json!({"verbs": ["update"], "apiGroups": ["apps"], "resources": ["*/scale"]}));
        assert!(scale.allows_resource("update", "apps", "deployments", "scale", "d"));
        assert!(!scale.allows_resource("update", "apps", "deployments", "", "d"));
        let named = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]}));
        assert!(named.allows_resource("get", "", "secrets", "", "a"));
        assert!(!named.allows_resource("get", "", "secrets", "", "b"));
        assert!(!named.allows_resource("get", "", "secrets", "", ""));
    }

    #[test]
    fn paths_match_exactly_or_by_a_star_at_the_end() {
        let health = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez/*"]}));
        assert!(health.allows_path("get", "/healthz"));
        assert!(!health.allows_path("get", "/healthz/etcd"));
        assert!(health.allows_path("get", "/livez/etcd"));
        assert!(!health.allows_path("post", "/healthz"));
        assert!(rule(json!({"verbs": ["*"], "nonResourceURLs": ["*"]})).allows_path("get", "/anything"));
    }

    #[test]
    fn rules_cover_what_they_allow_and_not_more() {
        let held = [
            rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "*/log"]})),
            rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]})),
            rule(json!({"verbs": ["get"], "nonResourceURLs": ["/livez/*"]})),
        ];
        let covered = |json: Value| uncovered(&held, &[rule(json)]).is_empty();
        assert!(covered(json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods", "pods/log"]})));
        assert!(covered(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]})));
        assert!(covered(json!({"verbs": ["get"], "nonResourceURLs": ["/livez/ping"]})));
        assert!(!covered(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]})));
        assert!(!covered(json!({"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]})));
        assert!(!covered(json!({"verbs": ["get"], "apiGroups": ["*"], "resources": ["pods"]})));
        assert!(!covered(json!({"verbs": ["get"], "nonResourceURLs": ["*"]})));
    }
}
