//! Flow control as far as clients see it: to which FlowSchema a request belongs, and which PriorityLevelConfiguration that one names. Every
//! answer carries the uids of the two. How many requests may be under way is not decided here but in [`super::layers::limits`].

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use serde_json::Value;

use crate::object::{Object, meta};
use crate::request::{RequestInfo, User};
use crate::store;
use crate::watch::{Observer, State};

const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// The schema that takes what no other one matches.
const CATCH_ALL: &str = "catch-all";

/// The FlowSchemas and PriorityLevelConfigurations that are stored, compiled. In force as soon as the write that changes one is acknowledged.
#[derive(Default)]
pub struct Flows {
    stored: Mutex<Stored>,
    compiled: ArcSwap<Vec<Flow>>,
}

/// What there is: schemas with the name of their level, levels with their uid.
#[derive(Default)]
struct Stored {
    schemas: BTreeMap<String, (String, Arc<Schema>)>,
    levels: BTreeMap<String, HeaderValue>,
}

/// The uids that an answer carries.
#[derive(Clone, Debug)]
pub struct Marks {
    schema: HeaderValue,
    level: HeaderValue,
}

impl Marks {
    /// Puts them on an answer.
    pub fn put(self, headers: &mut HeaderMap) {
        headers.insert(FLOW_SCHEMA, self.schema);
        headers.insert(PRIORITY_LEVEL, self.level);
    }
}

/// A FlowSchema whose level exists.
struct Flow {
    schema: Arc<Schema>,
    marks: Marks,
}

struct Schema {
    name: String,
    uid: HeaderValue,
    precedence: i64,
    rules: Vec<Rule>,
}

struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

enum Subject {
    Everybody,
    User(String),
    Group(String),
    /// All accounts of a namespace: what their users' names begin with.
    Namespace(String),
}

struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    cluster_scope: bool,
}

struct PathRule {
    verbs: Names,
    /// Each path with what a path below it begins with.
    paths: Vec<(String, String)>,
}

/// A list of names, or all of them.
enum Names {
    All,
    These(Vec<String>),
}

impl Flows {
    /// Follows what is stored.
    pub async fn over(state: &State) -> store::Result<Arc<Self>> {
        let flows = Arc::new(Flows::default());
        state.topic("prioritylevelconfigurations").await?.observe(Arc::new(Levels(flows.clone())));
        state.topic("flowschemas").await?.observe(Arc::new(Schemas(flows.clone())));
        Ok(flows)
    }

    /// The flow that a request belongs to; none before the first objects of a cluster are there.
    pub fn classify(&self, user: &User, info: &RequestInfo) -> Option<Marks> {
        let flows = self.compiled.load();
        let matching = flows.iter().find(|flow| flow.schema.rules.iter().any(|rule| rule.matches(user, info)));
        Some(matching.or_else(|| flows.iter().find(|flow| flow.schema.name == CATCH_ALL))?.marks.clone())
    }

    fn change(&self, change: impl FnOnce(&mut Stored)) {
        let mut stored = self.stored.lock();
        change(&mut stored);
        self.compiled.store(Arc::new(stored.compile()));
    }
}

impl Stored {
    /// The schemas in the order in which they are asked; one whose level does not exist is not.
    fn compile(&self) -> Vec<Flow> {
        let with_level = self.schemas.values().filter_map(|(level, schema)| {
            let marks = Marks { schema: schema.uid.clone(), level: self.levels.get(level)?.clone() };
            Some(Flow { schema: schema.clone(), marks })
        });
        let mut flows: Vec<Flow> = with_level.collect();
        // The sort keeps what is equal in the order of names.
        flows.sort_by_key(|flow| flow.schema.precedence);
        flows
    }
}

struct Levels(Arc<Flows>);

impl Observer for Levels {
    fn changed(&self, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>) {
        self.0.change(|stored| match (new, old) {
            (Some(new), _) => drop(stored.levels.insert(new.name().to_owned(), uid(&new.to_value()))),
            (None, Some(old)) => drop(stored.levels.remove(old.name())),
            (None, None) => {}
        });
    }
}

struct Schemas(Arc<Flows>);

impl Observer for Schemas {
    fn changed(&self, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>) {
        self.0.change(|stored| match (new, old) {
            (Some(new), _) => {
                let object = new.to_value();
                let level = text(&object["spec"]["priorityLevelConfiguration"]["name"]);
                stored.schemas.insert(new.name().to_owned(), (level, Arc::new(Schema::of(&object))));
            }
            (None, Some(old)) => drop(stored.schemas.remove(old.name())),
            (None, None) => {}
        });
    }
}

fn uid(object: &Value) -> HeaderValue {
    HeaderValue::from_str(meta(object, "uid")).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn each<T>(list: &Value, read: impl Fn(&Value) -> T) -> Vec<T> {
    list.as_array().into_iter().flatten().map(read).collect()
}

impl Schema {
    fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        Schema {
            name: meta(object, "name").to_owned(),
            uid: uid(object),
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(1000),
            rules: each(&spec["rules"], Rule::of),
        }
    }
}

impl Rule {
    fn of(rule: &Value) -> Self {
        Rule {
            subjects: rule["subjects"].as_array().into_iter().flatten().filter_map(Subject::of).collect(),
            resources: each(&rule["resourceRules"], |rule| ResourceRule {
                verbs: Names::of(&rule["verbs"]),
                groups: Names::of(&rule["apiGroups"]),
                resources: Names::of(&rule["resources"]),
                namespaces: Names::of(&rule["namespaces"]),
                cluster_scope: rule["clusterScope"].as_bool().unwrap_or(false),
            }),
            paths: each(&rule["nonResourceRules"], |rule| PathRule {
                verbs: Names::of(&rule["verbs"]),
                paths: each(&rule["nonResourceURLs"], |path| {
                    let path = text(path);
                    let below = path.strip_suffix('*').unwrap_or(&path);
                    let below = if below.ends_with('/') { below.to_owned() } else { format!("{below}/") };
                    (path, below)
                }),
            }),
        }
    }

    fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        self.subjects.iter().any(|subject| subject.is(user))
            && match info.is_resource {
                true => self.resources.iter().any(|rule| rule.matches(info)),
                false => self.paths.iter().any(|rule| rule.matches(info)),
            }
    }
}

impl Subject {
    fn of(subject: &Value) -> Option<Self> {
        let name = |kind: &str| subject[kind]["name"].as_str();
        Some(match subject["kind"].as_str()? {
            "User" if name("user")? == "*" => Subject::Everybody,
            "User" => Subject::User(name("user")?.to_owned()),
            "Group" if name("group")? == "*" => Subject::Everybody,
            "Group" => Subject::Group(name("group")?.to_owned()),
            "ServiceAccount" => {
                let namespace = subject["serviceAccount"]["namespace"].as_str()?;
                match name("serviceAccount")? {
                    "*" => Subject::Namespace(format!("system:serviceaccount:{namespace}:")),
                    name => Subject::User(format!("system:serviceaccount:{namespace}:{name}")),
                }
            }
            _ => return None,
        })
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Subject::Everybody => true,
            Subject::User(name) => user.name == *name,
            Subject::Group(name) => user.in_group(name),
            Subject::Namespace(start) => user.name.starts_with(start),
        }
    }
}

impl ResourceRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        self.verbs.has(info.verb)
            && self.resources.has_joined(&info.resource, &info.subresource)
            && self.groups.has(&info.group)
            && if info.namespace.is_empty() { self.cluster_scope } else { self.namespaces.has(&info.namespace) }
    }
}

impl PathRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        self.verbs.has(info.verb)
            && self.paths.iter().any(|(path, below)| path == "*" || *path == info.path || info.path.starts_with(below))
    }
}

impl Names {
    fn of(list: &Value) -> Self {
        match each(list, text) {
            names if names.iter().any(|name| name == "*") => Names::All,
            names => Names::These(names),
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Names::All => true,
            Names::These(names) => names.iter().any(|given| given == name),
        }
    }

    /// The same for a resource and its subresource, which a rule writes as one.
    fn has_joined(&self, resource: &str, subresource: &str) -> bool {
        match self {
            Names::All => true,
            Names::These(_) if subresource.is_empty() => self.has(resource),
            Names::These(names) => names.iter().any(|given| given.split_once('/') == Some((resource, subresource))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::parse;

    fn flows() -> Flows {
        let flows = Flows::default();
        flows.change(|stored| {
            for level in ["low", "high"] {
                stored.levels.insert(level.into(), HeaderValue::from_str(&format!("level-{level}")).unwrap());
            }
            let everything = json!([
                {"subjects": [{"kind": "Group", "group": {"name": "*"}}], "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                 "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}]},
            ]);
            let leases = json!([
                {"subjects": [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}}],
                 "resourceRules": [{"verbs": ["get", "update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]}]},
            ]);
            let probes = json!([
                {"subjects": [{"kind": "User", "user": {"name": "*"}}], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/*"]}]},
                {"subjects": [{"kind": "User", "user": {"name": "bob"}}], "resourceRules": [
                    {"verbs": ["*"], "apiGroups": [""], "resources": ["pods/status"], "namespaces": ["a"]},
                    {"verbs": ["*"], "apiGroups": [""], "resources": ["nodes"], "clusterScope": true}]},
            ]);
            for (name, precedence, level, rules) in [
                ("catch-all", 10000, "low", &everything),
                ("leases", 100, "high", &leases),
                ("probes", 200, "high", &probes),
                ("dangling", 1, "none", &everything),
            ] {
                let object = json!({"metadata": {"name": name, "uid": name}, "spec": {"matchingPrecedence": precedence, "rules": rules}});
                stored.schemas.insert(name.into(), (level.into(), Arc::new(Schema::of(&object))));
            }
        });
        flows
    }

    fn taken_by(user: &str, method: &str, path: &str) -> String {
        let marks = flows().classify(&User::new(user, &["system:authenticated"]), &parse(method, path, "")).unwrap();
        marks.schema.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_request_belongs_to_the_first_schema_that_matches_it_and_whose_level_exists() {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/x/leases/l";
        assert_eq!(taken_by("system:serviceaccount:kube-system:a", "GET", lease), "leases");
        assert_eq!(taken_by("system:serviceaccount:kube-systems:a", "GET", lease), "catch-all");
        assert_eq!(taken_by("system:serviceaccount:kube-system:a", "DELETE", lease), "catch-all");
        assert_eq!(taken_by("anybody", "GET", "/healthz"), "probes");
        assert_eq!(taken_by("anybody", "GET", "/healthz/ping"), "probes");
        assert_eq!(taken_by("anybody", "GET", "/healthzz"), "catch-all");
        assert_eq!(taken_by("anybody", "GET", "/logs/x"), "probes");
        assert_eq!(taken_by("anybody", "POST", "/healthz"), "catch-all");
        assert_eq!(taken_by("bob", "PUT", "/api/v1/namespaces/a/pods/p/status"), "probes");
        assert_eq!(taken_by("bob", "PUT", "/api/v1/namespaces/a/pods/p"), "catch-all");
        assert_eq!(taken_by("bob", "PUT", "/api/v1/namespaces/b/pods/p/status"), "catch-all");
        assert_eq!(taken_by("bob", "GET", "/api/v1/nodes/n"), "probes");
    }

    #[test]
    fn an_answer_carries_the_uids_of_schema_and_level() {
        let mut headers = HeaderMap::new();
        flows().classify(&User::new("x", &[]), &parse("GET", "/version", "")).unwrap().put(&mut headers);
        assert_eq!(
            (&headers["X-Kubernetes-PF-FlowSchema-UID"], &headers["X-Kubernetes-PF-PriorityLevel-UID"]),
            (&HeaderValue::from_static("catch-all"), &HeaderValue::from_static("level-low"))
        );
    }
}
