//! Which requests a webhook or a policy is about: rules, exclusions, selectors and the match policy. Plain data and plain
//! functions; conditions in CEL come afterwards and are not part of it.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::{Cluster, Operation, Write};
use crate::object::Object;
use crate::object::selector::{LabelSelector, Requirement};
use crate::registry::Resource;
use crate::status::Status;

/// The criteria of one webhook, policy or binding.
#[derive(Clone, Debug, Default)]
pub struct Criteria {
    rules: Vec<Rule>,
    exclude: Vec<Rule>,
    /// Whether the rules are absent, and with them any restriction (a binding's `matchResources` may leave them out).
    any_resource: bool,
    exact: bool,
    namespaces: LabelSelector,
    objects: LabelSelector,
}

/// One rule with its wildcards.
#[derive(Clone, Debug)]
pub struct Rule {
    operations: Vec<Box<str>>,
    groups: Vec<Box<str>>,
    versions: Vec<Box<str>>,
    resources: Vec<(Box<str>, Box<str>)>,
    names: Vec<Box<str>>,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

/// How a request stands to criteria.
#[derive(Clone, Debug)]
pub enum Match {
    /// It is one of those; the resource in the version that the rule means.
    Yes(Arc<Resource>),
    /// None of its rules is about this resource and operation.
    Elsewhere,
    /// It is about such requests, but not about this one, because…
    No(Cow<'static, str>),
}

/// A label without which criteria do not match.
#[derive(Clone, Copy, Debug)]
pub enum Need<'a> {
    /// On the object as it was or as it will be.
    OfObject(&'a Requirement),
    /// On the namespace it is in.
    OfNamespace(&'a Requirement),
}

/// What criteria ask of the cluster about one write, looked up at most once however many criteria ask. A write keeps its namespace and
/// its resource while mutating steps change its object.
pub struct Surroundings<'a> {
    cluster: &'a Cluster,
    namespace: OnceLock<Option<Arc<Object>>>,
    equivalents: OnceLock<Vec<Arc<Resource>>>,
}

impl<'a> Surroundings<'a> {
    /// Nothing looked up yet.
    pub fn new(cluster: &'a Cluster) -> Surroundings<'a> {
        Surroundings { cluster, namespace: OnceLock::new(), equivalents: OnceLock::new() }
    }

    fn namespace(&self, write: &Write) -> Option<&Arc<Object>> {
        self.namespace.get_or_init(|| self.cluster.namespace(&write.namespace)).as_ref()
    }

    /// The namespace whose labels decide about a write: none for what is in no namespace, and none if it cannot be found.
    pub fn selecting_namespace(&self, write: &Write) -> Option<&Arc<Object>> {
        write.resource.namespaced.then(|| self.namespace(write)).flatten()
    }

    fn equivalents(&self, write: &Write) -> &[Arc<Resource>] {
        self.equivalents.get_or_init(|| {
            let table = self.cluster.registry.table();
            let same = table.resources.iter().filter(|r| r.storage == write.resource.storage && !Arc::ptr_eq(r, &write.resource));
            same.cloned().collect()
        })
    }
}

fn strings(value: &Value) -> Vec<Box<str>> {
    value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(Into::into)).collect()
}

fn has(list: &[Box<str>], word: &str) -> bool {
    list.iter().any(|item| **item == *word || **item == *"*")
}

impl Rule {
    /// Reads a rule as configurations and policies write it.
    pub fn from_value(rule: &Value) -> Rule {
        let split = |resource: &str| {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            (resource.into(), subresource.into())
        };
        Rule {
            operations: strings(&rule["operations"]),
            groups: strings(&rule["apiGroups"]),
            versions: strings(&rule["apiVersions"]),
            resources: rule["resources"].as_array().into_iter().flatten().filter_map(Value::as_str).map(split).collect(),
            names: strings(&rule["resourceNames"]),
            scope: match rule["scope"].as_str() {
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::All,
            },
        }
    }

    /// Whether it is about a resource (in that version), subresource and operation.
    pub fn covers(&self, resource: &Resource, subresource: &str, operation: Operation, name: &str) -> bool {
        has(&self.groups, &resource.group)
            && has(&self.versions, &resource.version)
            && self.covers_some_version(resource, subresource, operation, name)
    }

    /// Whether it is about them in some group and version.
    fn covers_some_version(&self, resource: &Resource, subresource: &str, operation: Operation, name: &str) -> bool {
        let scope = match self.scope {
            Scope::All => true,
            Scope::Cluster => !resource.namespaced,
            Scope::Namespaced => resource.namespaced,
        };
        let names = |(plural, sub): &(Box<str>, Box<str>)| {
            (**plural == *"*" || **plural == *resource.plural) && (**sub == *"*" || **sub == *subresource)
        };
        scope
            && has(&self.operations, operation.as_str())
            && self.resources.iter().any(names)
            && (self.names.is_empty() || self.names.iter().any(|n| **n == *name))
    }
}

impl Criteria {
    /// Reads the `matchConstraints` of a policy or the `matchResources` of a binding.
    pub fn from_value(value: &Value) -> Criteria {
        let rules = |field: &str| value[field].as_array().into_iter().flatten().map(Rule::from_value).collect::<Vec<_>>();
        Criteria { rules: rules("resourceRules"), exclude: rules("excludeResourceRules"), ..Criteria::selectors(value) }
    }

    /// The same where no rules mean no restriction.
    pub fn of_binding(value: &Value) -> Criteria {
        let mut criteria = Criteria::from_value(value);
        criteria.any_resource = criteria.rules.is_empty();
        criteria
    }

    /// Reads one entry of `webhooks`.
    pub fn of_webhook(value: &Value) -> Criteria {
        let rules = value["rules"].as_array().into_iter().flatten().map(Rule::from_value).collect();
        Criteria { rules, ..Criteria::selectors(value) }
    }

    fn selectors(value: &Value) -> Criteria {
        Criteria {
            exact: value["matchPolicy"] == "Exact",
            namespaces: LabelSelector::from_value(&value["namespaceSelector"]).unwrap_or_default(),
            objects: LabelSelector::from_value(&value["objectSelector"]).unwrap_or_default(),
            ..Criteria::default()
        }
    }

    /// A label without which nothing matches, if the selectors name one.
    pub fn need(&self) -> Option<Need<'_>> {
        self.objects.needed().map(Need::OfObject).or_else(|| self.namespaces.needed().map(Need::OfNamespace))
    }

    /// Tells every plural and operation that the rules name; a wildcard plural as it stands.
    pub fn each_named(&self, mut tell: impl FnMut(&str, Operation)) {
        for operation in Operation::ALL {
            if self.any_resource {
                tell("*", operation);
            }
            for rule in self.rules.iter().filter(|rule| has(&rule.operations, operation.as_str())) {
                rule.resources.iter().for_each(|(plural, _)| tell(plural, operation));
            }
        }
    }

    /// Whether a request is one of those, and if not, why not.
    ///
    /// # Errors
    /// If the namespace of the request cannot be found and its labels matter.
    pub fn matches(&self, write: &Write, around: &Surroundings<'_>) -> Result<Match, Status> {
        let Some(resource) = self.resource(write, around) else {
            return Ok(Match::Elsewhere);
        };
        if !self.objects.is_empty() && ![write.object(), write.old()].into_iter().any(|o| !o.is_null() && self.objects.matches_value(o)) {
            return Ok(Match::No("the objectSelector does not select it".into()));
        }
        if !self.namespaces.is_empty() && !self.selects_namespace(write, around)? {
            return Ok(Match::No("the namespaceSelector does not select its namespace".into()));
        }
        Ok(Match::Yes(resource))
    }

    fn resource(&self, write: &Write, around: &Surroundings<'_>) -> Option<Arc<Resource>> {
        let name = write.asked_name();
        let covers =
            |rules: &[Rule], resource: &Resource| rules.iter().any(|rule| rule.covers(resource, &write.subresource, write.operation, name));
        if self.any_resource && !covers(&self.exclude, &write.resource) {
            return Some(write.resource.clone());
        }
        if covers(&self.exclude, &write.resource) {
            return None;
        }
        if covers(&self.rules, &write.resource) {
            return Some(write.resource.clone());
        }
        let could = |rule: &Rule| rule.covers_some_version(&write.resource, &write.subresource, write.operation, name);
        if self.exact || !self.rules.iter().any(could) {
            return None;
        }
        // The same objects in another version, or in another group as with Events.
        let others = around.equivalents(write);
        if others.iter().any(|other| covers(&self.exclude, other)) {
            return None;
        }
        others.iter().find(|other| covers(&self.rules, other)).cloned()
    }

    fn selects_namespace(&self, write: &Write, around: &Surroundings<'_>) -> Result<bool, Status> {
        if write.is_of("", "namespaces") {
            // A Namespace is selected by its own labels, as they will be.
            return Ok(match write.object.as_ref() {
                Some(object) if write.subresource.is_empty() => self.namespaces.matches_value(object),
                _ => self.namespaces.matches_value(write.old()),
            });
        }
        if !write.resource.namespaced {
            return Ok(true);
        }
        let namespace = around.namespace(write).ok_or_else(|| Status::not_found("", "namespaces", &write.namespace))?;
        Ok(self.namespaces.matches_object(namespace))
    }
}

/// The resources that no webhook and no policy may touch, so that none can lock everybody out of repairing it.
pub fn is_exempt(write: &Write) -> bool {
    &*write.resource.group == "admissionregistration.k8s.io"
        && matches!(
            &*write.resource.plural,
            "validatingwebhookconfigurations"
                | "mutatingwebhookconfigurations"
                | "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
        )
}

/// Whether the server itself writes what a fresh cluster has. A policy or a webhook that could refuse that could keep the server from
/// starting, and with it everybody who would repair them.
pub fn is_servers_own(write: &Write) -> bool {
    write.user.name == "system:apiserver" && write.context.impersonated().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    fn covers(rule: Value, group: &str, plural: &str, subresource: &str) -> bool {
        let resource = Registry::new().lookup(group, "v1", plural).unwrap();
        Rule::from_value(&rule).covers(&resource, subresource, Operation::Create, "x")
    }

    fn rule(resources: &[&str]) -> Value {
        json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["*"], "resources": resources})
    }

    #[test]
    fn a_star_means_every_resource_but_no_subresource() {
        assert!(covers(rule(&["*"]), "", "pods", ""));
        assert!(!covers(rule(&["*"]), "", "pods", "status"));
        assert!(covers(rule(&["*/*"]), "", "pods", "status"));
        assert!(covers(rule(&["*/*"]), "", "pods", ""));
        assert!(covers(rule(&["pods/*"]), "", "pods", "log"));
        assert!(covers(rule(&["*/scale"]), "", "replicationcontrollers", "scale"));
        assert!(!covers(rule(&["pods"]), "", "services", ""));
        assert!(!covers(rule(&["deployments"]), "apps", "deployments", ""), "another group");
    }

    #[test]
    fn scope_and_names_narrow_a_rule() {
        let mut cluster = rule(&["*"]);
        cluster["scope"] = json!("Cluster");
        assert!(!covers(cluster.clone(), "", "pods", ""));
        assert!(covers(cluster, "", "nodes", ""));
        let mut named = rule(&["pods"]);
        named["resourceNames"] = json!(["y"]);
        assert!(!covers(named, "", "pods", ""));
    }
}
