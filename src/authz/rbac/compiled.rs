//! The rules of a role, with hints in front of them: a few bits that say which verbs, groups, resources and names a rule can
//! be about at all. Most rules are passed over by a few comparisons of numbers, a whole role by the hints of all its rules
//! together. A hint only ever says "certainly not"; what it lets through is held against the rule itself.

use crate::request::RequestInfo;

use super::rule::Rule;

/// The rules of one role.
#[derive(Debug)]
pub struct Compiled {
    /// The rules as written.
    pub rules: Vec<Rule>,
    hints: Vec<Hint>,
    all: Hint,
}

/// What a rule, or a question, is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint {
    verbs: u64,
    groups: u64,
    resources: u64,
    names: u64,
}

/// The bit that stands for every path that is not one of a resource.
const PATHS: u64 = 1 << 63;

impl Compiled {
    /// Makes hints for rules.
    pub fn new(rules: Vec<Rule>) -> Self {
        let hints: Vec<Hint> = rules.iter().map(Hint::of_rule).collect();
        let all = hints.iter().fold(Hint::default(), |a, b| Hint {
            verbs: a.verbs | b.verbs,
            groups: a.groups | b.groups,
            resources: a.resources | b.resources,
            names: a.names | b.names,
        });
        Compiled { rules, hints, all }
    }

    /// The first rule that allows what is asked; `hint` is that of the question.
    pub fn allowing(&self, info: &RequestInfo, verb: &str, hint: Hint) -> Option<&Rule> {
        if !self.all.may_cover(hint) {
            return None;
        }
        let allows = |rule: &Rule| match info.is_resource {
            true => rule.allows_resource(verb, &info.group, &info.resource, &info.subresource, &info.name),
            false => rule.allows_path(verb, &info.path),
        };
        self.hints.iter().zip(&self.rules).find(|(of_rule, rule)| of_rule.may_cover(hint) && allows(rule)).map(|(_, rule)| rule)
    }
}

impl Hint {
    fn of_rule(rule: &Rule) -> Self {
        let bits =
            |list: &[String], bit: fn(&str) -> u64| list.iter().fold(0, |bits, item| bits | if item == "*" { u64::MAX } else { bit(item) });
        let mut resources = rule.resources.iter().fold(0, |bits, resource| {
            let resource = resource.split('/').next().unwrap_or_default();
            bits | if resource == "*" { !PATHS } else { text_bit(resource) }
        });
        let (mut groups, mut names) =
            (bits(&rule.api_groups, text_bit), rule.resource_names.iter().fold(0, |bits, name| bits | text_bit(name)));
        if !rule.non_resource_urls.is_empty() {
            resources |= PATHS;
            groups = u64::MAX;
        }
        if rule.resource_names.is_empty() || !rule.non_resource_urls.is_empty() {
            names = u64::MAX;
        }
        Hint { verbs: bits(&rule.verbs, verb_bit), groups, resources, names }
    }

    /// The hint of a question.
    pub fn of_question(info: &RequestInfo, verb: &str) -> Self {
        let verbs = verb_bit(verb);
        if !info.is_resource {
            return Hint { verbs, groups: u64::MAX, resources: PATHS, names: u64::MAX };
        }
        Hint { verbs, groups: text_bit(&info.group), resources: text_bit(&info.resource), names: text_bit(&info.name) }
    }

    fn may_cover(self, question: Hint) -> bool {
        self.verbs & question.verbs != 0
            && self.resources & question.resources != 0
            && self.groups & question.groups != 0
            && self.names & question.names != 0
    }
}

/// A bit for each common verb; all others share one.
fn verb_bit(verb: &str) -> u64 {
    match verb {
        "get" => 1,
        "list" => 1 << 1,
        "watch" => 1 << 2,
        "create" => 1 << 3,
        "update" => 1 << 4,
        "patch" => 1 << 5,
        "delete" => 1 << 6,
        "deletecollection" => 1 << 7,
        _ => 1 << 8,
    }
}

/// One of 63 bits for a group, a resource or a name.
fn text_bit(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    1 << ((hash >> 32) % 63)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::parse;

    #[test]
    fn a_hint_never_hides_a_rule_that_allows() {
        let rules = [
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
            json!({"verbs": ["get", "impersonate"], "apiGroups": [""], "resources": ["pods", "pods/log"]}),
            json!({"verbs": ["update"], "apiGroups": ["apps"], "resources": ["*/scale"]}),
            json!({"verbs": ["get", "update"], "apiGroups": ["", "apps"], "resources": ["pods/log", "deployments/scale"], "resourceNames": ["x", "d"]}),
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"], "resourceNames": ["y"], "nonResourceURLs": ["/livez/x"]}),
            json!({"verbs": ["get"], "nonResourceURLs": ["/livez/*", "/version"]}),
            json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
        ];
        let paths = ["/api/v1/pods", "/api/v1/namespaces/a/pods/x/log", "/apis/apps/v1/namespaces/a/deployments/d/scale", "/livez/x", "/"];
        for rule in rules {
            let rule = Rule::from_json(&rule);
            let compiled = Compiled::new(vec![rule.clone()]);
            for path in paths {
                for method in ["GET", "PUT", "DELETE"] {
                    let mut info = parse(method, path, "");
                    for special in ["", "impersonate", "bind"] {
                        info.special_verb = special.into();
                        let verb = info.verb();
                        let plain = match info.is_resource {
                            true => rule.allows_resource(verb, &info.group, &info.resource, &info.subresource, &info.name),
                            false => rule.allows_path(verb, &info.path),
                        };
                        assert_eq!(
                            compiled.allowing(&info, verb, Hint::of_question(&info, verb)).is_some(),
                            plain,
                            "{rule:?} {method} {path} {special}"
                        );
                    }
                }
            }
        }
    }
}
