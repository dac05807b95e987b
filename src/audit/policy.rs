//! What is recorded of which request: an audit policy (`audit.k8s.io/v1`), whose first rule that matches decides. Reading and
//! checking a file, and the decision; nothing of files or sinks. A field that no policy has is passed over, as a real server does, and
//! kept for whoever read the policy to tell: it does not say what its author thinks it says.

use serde_json::{Map, Value, json};

use super::{Level, Stage};
use crate::request::{RequestInfo, User};
use crate::schema::decode::type_meta;
use crate::status::FieldError;
use crate::validation::names;

const LEVELS: &[(&str, Level)] =
    &[("None", Level::None), ("Metadata", Level::Metadata), ("Request", Level::Request), ("RequestResponse", Level::RequestResponse)];

const STAGES: &[(&str, Stage)] = &[
    ("RequestReceived", Stage::RequestReceived),
    ("ResponseStarted", Stage::ResponseStarted),
    ("ResponseComplete", Stage::ResponseComplete),
    ("Panic", Stage::Panic),
];

const POLICY_FIELDS: &[&str] = &["apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"];

const RULE_FIELDS: &[&str] =
    &["level", "users", "userGroups", "verbs", "resources", "namespaces", "nonResourceURLs", "omitStages", "omitManagedFields"];

const RESOURCE_FIELDS: &[&str] = &["group", "resources", "resourceNames"];

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    /// The set with one stage more.
    pub fn with(self, stage: Stage) -> Self {
        Stages(self.0 | 1 << stage as u8)
    }

    /// Whether a stage is in it.
    pub fn contains(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }

    fn union(self, other: Stages) -> Self {
        Stages(self.0 | other.0)
    }
}

/// What a policy wants to have of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// How much.
    pub level: Level,
    /// Stages of which no event is made.
    pub omit_stages: Stages,
    /// Whether objects go without their managedFields.
    pub omit_managed_fields: bool,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Stages,
    omit_managed_fields: bool,
    early: bool,
    ignored: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    urls: Vec<String>,
    scope: Scope,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

impl Default for Policy {
    /// Who, what and how it ended, of every request, once it is over.
    fn default() -> Self {
        let omit_stages = Stages::default().with(Stage::RequestReceived);
        let scope = Scope { level: Level::Metadata, omit_stages, omit_managed_fields: false };
        Policy {
            rules: vec![Rule { scope, ..Rule::default() }],
            omit_stages,
            omit_managed_fields: false,
            early: false,
            ignored: Vec::new(),
        }
    }
}

impl Policy {
    /// Reads a policy, in YAML or JSON.
    ///
    /// # Errors
    /// What is wrong with it, in a real server's words.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "failed decoding: the policy is not UTF-8".to_owned())?;
        let untyped = |why: String| format!("failed decoding: couldn't get version/kind; json parse error: {why}");
        let document = crate::schema::yaml::parse(text).map_err(|why| match text.trim_start().starts_with('{') {
            true => untyped(crate::schema::syntax::explain(bytes)),
            false => format!("failed decoding: {why}"),
        })?;
        let value = &document.value;
        if !value.is_null() {
            type_meta(value).map_err(untyped)?;
        }
        check_kind(value)?;
        let mut ignored = document.duplicates.clone();
        unfamiliar(value, POLICY_FIELDS, "", &mut ignored);
        let mut errors = Vec::new();
        let omit_stages = stages(&value["omitStages"], "omitStages", "Policy.omitStages", &mut errors)?;
        let omit_managed_fields = flag(value, "Policy.omitManagedFields")?.unwrap_or(false);
        let mut rules = Vec::new();
        for (index, rule) in items(&value["rules"], "Policy.rules", "[]v1.PolicyRule")?.iter().enumerate() {
            is_object(rule, "Policy.rules", "v1.PolicyRule")?;
            rules.push(read_rule(rule, &format!("rules[{index}]"), omit_managed_fields, &mut ignored, &mut errors)?);
        }
        match errors.as_slice() {
            [] => {}
            [one] => return Err(one.to_string()),
            several => return Err(format!("[{}]", several.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))),
        }
        if rules.is_empty() {
            return Err("loaded illegal policy with 0 rules".into());
        }
        for rule in &mut rules {
            rule.scope.omit_stages = rule.scope.omit_stages.union(omit_stages);
        }
        let early = rules.iter().any(|rule| {
            rule.scope.level >= Level::Request || rule.scope.level > Level::None && !rule.scope.omit_stages.contains(Stage::RequestReceived)
        });
        Ok(Policy { rules, omit_stages, omit_managed_fields, early, ignored })
    }

    /// What was passed over in the file, if anything was: `unknown field "rules[0].user"`, or a key that is there twice.
    pub fn ignored(&self) -> Option<String> {
        (!self.ignored.is_empty()).then(|| self.ignored.join(", "))
    }

    /// What is wanted of a request.
    pub fn evaluate(&self, user: Option<&User>, info: &RequestInfo) -> Scope {
        let nothing = Scope { level: Level::None, omit_stages: self.omit_stages, omit_managed_fields: self.omit_managed_fields };
        self.decide(user, info).map_or(nothing, |(_, scope)| scope)
    }

    /// Which rule decides about a request, counted from zero, and what it wants.
    pub fn decide(&self, user: Option<&User>, info: &RequestInfo) -> Option<(usize, Scope)> {
        let rule = self.rules.iter().position(|rule| rule.matches(user, info))?;
        Some((rule, self.rules[rule].scope))
    }

    /// Whether any rule wants something that is only to be had while a request is under way: its bodies, or an event of its arrival.
    pub fn is_early(&self) -> bool {
        self.early
    }
}

impl Rule {
    fn matches(&self, user: Option<&User>, info: &RequestInfo) -> bool {
        let among = |list: &[String], value: &str| list.iter().any(|item| item == value);
        if !self.users.is_empty() && !user.is_some_and(|user| among(&self.users, &user.name)) {
            return false;
        }
        if !self.groups.is_empty() && !user.is_some_and(|user| user.groups.iter().any(|group| among(&self.groups, group))) {
            return false;
        }
        if !self.verbs.is_empty() && !among(&self.verbs, info.verb()) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            // What has no namespace has the empty one.
            return info.is_resource
                && (self.namespaces.is_empty() || among(&self.namespaces, &info.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|resources| resources.matches(info)));
        }
        self.urls.is_empty() || !info.is_resource && self.urls.iter().any(|url| path_matches(url, &info.path))
    }
}

impl GroupResources {
    fn matches(&self, info: &RequestInfo) -> bool {
        if self.group != info.group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.names.is_empty() && !self.names.contains(&info.name) {
            return false;
        }
        self.resources.iter().any(|wanted| match wanted.split_once('/') {
            _ if wanted == "*" => true,
            None => *wanted == info.resource && info.subresource.is_empty(),
            Some(("*", subresource)) => !info.subresource.is_empty() && subresource == info.subresource,
            Some((resource, "*")) => resource == info.resource,
            Some((resource, subresource)) => !subresource.is_empty() && resource == info.resource && subresource == info.subresource,
        })
    }
}

fn path_matches(wanted: &str, path: &str) -> bool {
    wanted == "*" || wanted == path || wanted.ends_with('*') && path.starts_with(wanted.trim_end_matches('*'))
}

fn read_rule(
    rule: &Value,
    path: &str,
    omit_managed_fields: bool,
    unknown: &mut Vec<String>,
    errors: &mut Vec<FieldError>,
) -> Result<Rule, String> {
    unfamiliar(rule, RULE_FIELDS, &format!("{path}."), unknown);
    let texts = |key: &str| texts(&rule[key], &format!("PolicyRule.rules.{key}"), "string");
    let urls = texts("nonResourceURLs")?;
    let namespaces = texts("namespaces")?;
    let level = match &rule["level"] {
        Value::Null => "",
        Value::String(level) => level,
        other => return Err(mismatch(other, "PolicyRule.rules.level", "v1.Level")),
    };
    let known = LEVELS.iter().find(|(name, _)| *name == level);
    match (level, known) {
        ("", _) => errors.push(FieldError::required(format!("{path}.level"), "")),
        (_, None) => errors.push(FieldError::not_supported(format!("{path}.level"), &json!(level), &LEVELS.map_names())),
        _ => {}
    }
    check_urls(&urls, &format!("{path}.nonResourceURLs"), errors);
    let resources = read_resources(&rule["resources"], &format!("{path}.resources"), unknown, errors)?;
    let omit_stages = stages(&rule["omitStages"], &format!("{path}.omitStages"), "PolicyRule.rules.omitStages", errors)?;
    let about_resources = !resources.is_empty() || !namespaces.is_empty();
    if !urls.is_empty() && about_resources {
        let why = "rules cannot apply to both regular resources and non-resource URLs";
        errors.push(FieldError::invalid(format!("{path}.nonResourceURLs"), &json!(urls), why));
    }
    let omit_managed_fields = flag(rule, "PolicyRule.rules.omitManagedFields")?.unwrap_or(omit_managed_fields);
    let scope = Scope { level: known.map_or(Level::None, |(_, level)| *level), omit_stages, omit_managed_fields };
    Ok(Rule { users: texts("users")?, groups: texts("userGroups")?, verbs: texts("verbs")?, resources, namespaces, urls, scope })
}

fn read_resources(
    value: &Value,
    path: &str,
    unknown: &mut Vec<String>,
    errors: &mut Vec<FieldError>,
) -> Result<Vec<GroupResources>, String> {
    let mut all = Vec::new();
    for (index, item) in items(value, "PolicyRule.rules.resources", "[]v1.GroupResources")?.iter().enumerate() {
        let at = format!("{path}[{index}]");
        is_object(item, "PolicyRule.rules.resources", "v1.GroupResources")?;
        unfamiliar(item, RESOURCE_FIELDS, &format!("{at}."), unknown);
        let group = match &item["group"] {
            Value::Null => String::new(),
            Value::String(group) => group.clone(),
            other => return Err(mismatch(other, "GroupResources.rules.resources.group", "string")),
        };
        let texts = |key: &str| texts(&item[key], &format!("GroupResources.rules.resources.{key}"), "string");
        let (resources, names) = (texts("resources")?, texts("resourceNames")?);
        // As on a real server, these two paths do not say which of the items it is.
        if !group.is_empty() && group != "*" {
            let wrong = names::subdomain(&group);
            if !wrong.is_empty() {
                errors.push(FieldError::invalid(format!("{path}.group"), &json!(group), wrong.join(",")));
            }
        }
        if !names.is_empty() && resources.is_empty() {
            let why = "using resourceNames requires at least one resource";
            errors.push(FieldError::invalid(format!("{path}.resourceNames"), &json!(names), why));
        }
        all.push(GroupResources { group, resources, names });
    }
    Ok(all)
}

fn check_urls(urls: &[String], path: &str, errors: &mut Vec<FieldError>) {
    for (index, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
        let mut wrong = |why: &str| errors.push(FieldError::invalid(format!("{path}[{index}]"), &json!(url), why));
        if !url.starts_with('/') {
            wrong("non-resource URL rules must begin with a '/' character");
        }
        if url.strip_suffix('*').unwrap_or(url).contains('*') {
            wrong("non-resource URL wildcards '*' must be the final character of the rule");
        }
    }
}

fn stages(value: &Value, path: &str, field: &str, errors: &mut Vec<FieldError>) -> Result<Stages, String> {
    let mut set = Stages::default();
    for (index, name) in texts(value, field, "v1.Stage")?.iter().enumerate() {
        match STAGES.iter().find(|(known, _)| known == name) {
            Some((_, stage)) => set = set.with(*stage),
            None => {
                let why = format!("allowed stages are {}", STAGES.map_names().join(","));
                errors.push(FieldError::invalid(format!("{path}[{index}]"), &json!(name), why));
            }
        }
    }
    Ok(set)
}

/// Adds a sentence for every member that is not among the known ones.
fn unfamiliar(value: &Value, known: &[&str], prefix: &str, unknown: &mut Vec<String>) {
    let empty = Map::new();
    for key in value.as_object().unwrap_or(&empty).keys().filter(|key| !known.contains(&key.as_str())) {
        unknown.push(format!("unknown field \"{prefix}{key}\""));
    }
}

/// Whether a document is a policy. One that does not say its kind is taken for one, as long as it says its version.
fn check_kind(value: &Value) -> Result<(), String> {
    const SCHEME: &str = "k8s.io/apiserver/pkg/audit/scheme.go:30";
    let field = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    match (field("apiVersion"), field("kind")) {
        ("audit.k8s.io/v1", "" | "Policy") => Ok(()),
        ("audit.k8s.io/v1", kind @ ("Event" | "EventList" | "PolicyList")) => {
            Err(format!("failed decoding: converting (v1.{kind}) to (audit.Policy): unknown conversion"))
        }
        ("", "" | "Policy") => Err("unknown group version field audit.k8s.io/__internal, Kind=Policy in policy".into()),
        ("", kind) => {
            let of = "the internal version of group \"audit.k8s.io\"";
            Err(format!("failed decoding: no kind \"{kind}\" is registered for {of} in scheme \"{SCHEME}\""))
        }
        (version, kind) => {
            let kind = if kind.is_empty() { "Policy" } else { kind };
            Err(format!("failed decoding: no kind \"{kind}\" is registered for version \"{version}\" in scheme \"{SCHEME}\""))
        }
    }
}

/// That a value is of another type than its field, in Go's words.
fn mismatch(value: &Value, field: &str, wanted: &str) -> String {
    let word = match value {
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) | Value::Null => "number",
    };
    format!("failed decoding: json: cannot unmarshal {word} into Go struct field {field} of type {wanted}")
}

fn is_object(value: &Value, field: &str, wanted: &str) -> Result<(), String> {
    if value.is_object() || value.is_null() { Ok(()) } else { Err(mismatch(value, field, wanted)) }
}

fn items<'a>(value: &'a Value, field: &str, wanted: &str) -> Result<&'a [Value], String> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        other => Err(mismatch(other, field, wanted)),
    }
}

fn texts(value: &Value, field: &str, wanted: &str) -> Result<Vec<String>, String> {
    let text = |item: &Value| match item {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        other => Err(mismatch(other, field, wanted)),
    };
    items(value, field, &format!("[]{wanted}"))?.iter().map(text).collect()
}

fn flag(value: &Value, field: &str) -> Result<Option<bool>, String> {
    match &value["omitManagedFields"] {
        Value::Null => Ok(None),
        Value::Bool(flag) => Ok(Some(*flag)),
        other => Err(mismatch(other, field, "bool")),
    }
}

/// The names of a table.
trait Names {
    fn map_names(&self) -> Vec<&'static str>;
}

impl<T> Names for [(&'static str, T)] {
    fn map_names(&self) -> Vec<&'static str> {
        self.iter().map(|(name, _)| *name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::parse;

    fn policy(rules: &str) -> Result<Policy, String> {
        Policy::parse(format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}").as_bytes())
    }

    fn level(policy: &Policy, user: &User, method: &str, path: &str) -> Level {
        policy.evaluate(Some(user), &parse(method, path, "")).level
    }

    #[test]
    fn the_first_rule_that_matches_decides_and_without_one_nothing_is_recorded() {
        let policy = policy(
            r#"
omitStages: [RequestReceived]
rules:
- {level: None, users: ["system:kube-proxy"], verbs: [watch]}
- {level: Request, resources: [{group: "", resources: [configmaps], resourceNames: [boot]}]}
- {level: RequestResponse, resources: [{group: "", resources: ["pods/log", "*/status"]}, {group: apps}], omitStages: [ResponseStarted]}
- {level: Metadata, userGroups: [auditors], namespaces: [""]}
- {level: Metadata, nonResourceURLs: ["/api*", "/version"]}
- {level: Request, resources: [{group: batch, resources: ["*"]}, {group: policy, resources: ["x/*"]}]}
"#,
        )
        .unwrap();
        let (proxy, user) = (User::new("system:kube-proxy", &[]), User::new("u", &["auditors"]));
        assert_eq!(policy.evaluate(Some(&proxy), &parse("GET", "/api/v1/pods", "watch=1")).level, Level::None);
        assert_eq!(level(&policy, &user, "GET", "/api/v1/namespaces/a/configmaps/boot"), Level::Request);
        assert_eq!(level(&policy, &user, "GET", "/api/v1/namespaces/a/configmaps/other"), Level::None);
        assert_eq!(level(&policy, &user, "GET", "/api/v1/namespaces/a/pods/p/log"), Level::RequestResponse);
        assert_eq!(level(&policy, &user, "GET", "/api/v1/namespaces/a/pods/p"), Level::None);
        assert_eq!(level(&policy, &user, "PUT", "/api/v1/nodes/n/status"), Level::RequestResponse);
        assert_eq!(level(&policy, &user, "GET", "/apis/apps/v1/deployments/status"), Level::RequestResponse);
        assert_eq!(level(&policy, &user, "GET", "/api/v1/nodes"), Level::Metadata);
        assert_eq!(level(&policy, &proxy, "GET", "/api/v1/nodes"), Level::None);
        assert_eq!(level(&policy, &proxy, "GET", "/apis"), Level::Metadata);
        assert_eq!(level(&policy, &proxy, "GET", "/versions"), Level::None);
        assert_eq!(level(&policy, &proxy, "GET", "/apis/batch/v1/namespaces/a/jobs/j/status"), Level::Request);
        assert_eq!(level(&policy, &proxy, "GET", "/apis/policy/v1/namespaces/a/x/j/status"), Level::Request);
        assert_eq!(policy.evaluate(None, &parse("GET", "/api/v1/nodes", "")).level, Level::None);
        let scope = policy.evaluate(Some(&user), &parse("GET", "/api/v1/namespaces/a/pods/p/log", ""));
        assert!(scope.omit_stages.contains(Stage::RequestReceived) && scope.omit_stages.contains(Stage::ResponseStarted));
        assert!(!scope.omit_stages.contains(Stage::ResponseComplete));
        assert!(policy.is_early() && !Policy::default().is_early());
    }

    #[test]
    fn a_rule_overrides_whether_managed_fields_are_omitted() {
        let policy =
            policy("omitManagedFields: true\nrules:\n- {level: Request, verbs: [get], omitManagedFields: false}\n- level: Request\n")
                .unwrap();
        assert!(!policy.evaluate(None, &parse("GET", "/api/v1/nodes/n", "")).omit_managed_fields);
        assert!(policy.evaluate(None, &parse("PUT", "/api/v1/nodes/n", "")).omit_managed_fields);
    }

    #[test]
    fn mistakes_are_told_in_the_words_of_a_real_server() {
        for (rules, error) in [
            ("rules: []", "loaded illegal policy with 0 rules"),
            ("rules:\n- verbs: [get]", "rules[0].level: Required value"),
            (
                "rules:\n- level: All",
                "rules[0].level: Unsupported value: \"All\": supported values: \"None\", \"Metadata\", \"Request\", \"RequestResponse\"",
            ),
            (
                "rules:\n- {level: None, nonResourceURLs: [api, '/a*b']}",
                "[rules[0].nonResourceURLs[0]: Invalid value: \"api\": non-resource URL rules must begin with a '/' character, rules[0].nonResourceURLs[1]: Invalid value: \"/a*b\": non-resource URL wildcards '*' must be the final character of the rule]",
            ),
            (
                "rules:\n- {level: None, nonResourceURLs: ['/x'], namespaces: [a]}",
                "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and non-resource URLs",
            ),
            (
                "rules:\n- {level: None, resources: [{resourceNames: [a]}]}",
                "rules[0].resources.resourceNames: Invalid value: [\"a\"]: using resourceNames requires at least one resource",
            ),
            (
                "rules:\n- {level: None, omitStages: [Done]}",
                "rules[0].omitStages[0]: Invalid value: \"Done\": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic",
            ),
            ("rule:\n- level: None", "loaded illegal policy with 0 rules"),
            ("rules: 5", "failed decoding: json: cannot unmarshal number into Go struct field Policy.rules of type []v1.PolicyRule"),
            ("rules: [5]", "failed decoding: json: cannot unmarshal number into Go struct field Policy.rules of type v1.PolicyRule"),
            (
                "rules: [{level: 5}]",
                "failed decoding: json: cannot unmarshal number into Go struct field PolicyRule.rules.level of type v1.Level",
            ),
            (
                "rules: [{level: None, users: bob}]",
                "failed decoding: json: cannot unmarshal string into Go struct field PolicyRule.rules.users of type []string",
            ),
            (
                "omitManagedFields: x\nrules: [{level: None}]",
                "failed decoding: json: cannot unmarshal string into Go struct field Policy.omitManagedFields of type bool",
            ),
        ] {
            assert_eq!(policy(rules).unwrap_err(), error, "{rules}");
        }
        let group = policy("rules:\n- {level: None, resources: [{group: 'rbac.authorization.k8s.io/v1'}]}").unwrap_err();
        assert!(
            group.starts_with("rules[0].resources.group: Invalid value: \"rbac.authorization.k8s.io/v1\": a lowercase RFC 1123"),
            "{group}"
        );
        let no_kind = |of: &str| format!("failed decoding: no kind {of} in scheme \"k8s.io/apiserver/pkg/audit/scheme.go:30\"");
        for (text, error) in [
            ("", "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy".into()),
            ("apiVersion: audit.k8s.io/v1beta1\nkind: Policy", no_kind("\"Policy\" is registered for version \"audit.k8s.io/v1beta1\"")),
            ("apiVersion: v1\nkind: ConfigMap", no_kind("\"ConfigMap\" is registered for version \"v1\"")),
            (
                "apiVersion: audit.k8s.io/v1\nkind: Event",
                "failed decoding: converting (v1.Event) to (audit.Policy): unknown conversion".into(),
            ),
            ("{\"kind\":", "failed decoding: couldn't get version/kind; json parse error: unexpected end of JSON input".into()),
        ] {
            assert_eq!(Policy::parse(text.as_bytes()).unwrap_err(), error, "{text}");
        }
        let list = Policy::parse(b"- a").unwrap_err();
        assert!(
            list.starts_with("failed decoding: couldn't get version/kind; json parse error: json: cannot unmarshal array into"),
            "{list}"
        );
    }

    #[test]
    fn what_no_policy_has_is_passed_over_and_told() {
        let odd =
            policy("audience: all\nrules:\n- {level: None, user: [a], resources: [{group: '', names: [b]}], level: Request}").unwrap();
        let told = odd.ignored().unwrap();
        for what in
            ["unknown field \"audience\"", "unknown field \"rules[0].user\"", "unknown field \"rules[0].resources[0].names\"", "\"level\""]
        {
            assert!(told.contains(what), "{what} in {told}");
        }
        assert_eq!(level(&odd, &User::new("b", &[]), "GET", "/api/v1/pods"), Level::Request);
        assert_eq!(policy("rules:\n- level: None").unwrap().ignored(), None);
    }

    #[test]
    fn a_star_is_every_group_and_a_policy_need_not_say_its_kind() {
        let policy = Policy::parse(
            b"apiVersion: audit.k8s.io/v1\nrules:\n- {level: Request, resources: [{group: '*', resources: ['*/scale', pods]}]}\n\
            - {level: Metadata, resources: [{group: '*'}]}",
        )
        .unwrap();
        let user = User::new("u", &[]);
        assert_eq!(level(&policy, &user, "GET", "/apis/apps/v1/namespaces/a/deployments/d/scale"), Level::Request);
        assert_eq!(level(&policy, &user, "GET", "/api/v1/pods"), Level::Request);
        assert_eq!(level(&policy, &user, "GET", "/apis/apps/v1/deployments"), Level::Metadata);
        assert_eq!(level(&policy, &user, "GET", "/version"), Level::None);
        let odd = self::policy("rules:\n- {level: Request, resources: [{resources: ['pods/', '*/*', '/log']}]}").unwrap();
        for path in ["/api/v1/namespaces/a/pods/p", "/api/v1/namespaces/a/pods/p/log"] {
            assert_eq!(level(&odd, &user, "GET", path), Level::None, "{path}");
        }
    }
}
