//! The full story of a decision: the way of one request through the hops, who said what and why, what was missing, what changed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::blame;
use super::failed::failed;
use super::fields::redacted;
use super::permission::{Authorization, authorization};
use crate::audit::Event;
use crate::audit::event::{ObjectReference, ResponseStatus, UserInfo, Wrote};
use crate::request::{Step, query_value};

/// The story of one request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Explanation {
    /// The request's id.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// `allowed`, `denied`, `failed` or `under way`.
    pub verdict: String,
    /// Why, in one sentence.
    pub summary: String,
    /// When it arrived.
    pub received: Option<Timestamp>,
    /// How long it took, in microseconds.
    pub took: u64,
    /// The verb.
    pub verb: String,
    /// The path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// Who asked.
    pub user: UserInfo,
    /// Whom they were taken for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<UserInfo>,
    /// The client's name for itself.
    pub user_agent: String,
    /// Where it came from.
    #[serde(rename = "sourceIPs")]
    pub source_ips: Vec<String>,
    /// What it was about.
    pub object_ref: Option<ObjectReference>,
    /// Hop by hop.
    pub hops: Vec<Hop>,
    /// What authorisation said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
    /// What was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrote: Option<Wrote>,
    /// The revision whose watch event made a component send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<u64>,
    /// The distributed trace that it belongs to.
    #[serde(rename = "traceID", skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
    /// How it was answered.
    pub response: Option<ResponseStatus>,
    /// What the client was warned of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What was noted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// One hop, and the steps that were taken in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Hop {
    /// Its name in the trace.
    pub hop: String,
    /// What happens in it.
    pub title: String,
    /// How long its steps took, in microseconds.
    pub took: u64,
    /// The steps.
    pub steps: Vec<Told>,
}

/// One step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Told {
    /// Who took it.
    pub name: String,
    /// `authenticator`, `impersonation`, `authorizer`, `decoder`, `schema`, `plugin`, `policy`, `webhook`, `store` or `server`.
    pub kind: String,
    /// How it ended.
    pub verdict: String,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// When it ended, in microseconds from the arrival.
    pub at: u64,
    /// How long it took, in microseconds.
    pub took: u64,
    /// The round of mutating admission; the first is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<usize>,
    /// The innermost parts of its expression that were false.
    #[serde(rename = "false", skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    /// What it changed, line by line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Whatever else is known: binding, configuration, expression, values, cost.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub detail: serde_json::Map<String, Value>,
}

/// Tells the story of an event.
pub fn explain(event: &Event) -> Explanation {
    let story = event.trace.as_deref().cloned().unwrap_or_default();
    let is_secret = event.object_ref.as_ref().is_some_and(|object| object.resource == "secrets" && object.api_group.is_empty());
    let mut hops: Vec<Hop> = Vec::new();
    for (index, step) in story.steps.iter().enumerate() {
        let told = tell(&story.steps, index, is_secret);
        match hops.last_mut().filter(|hop| hop.hop == step.hop) {
            Some(hop) => hop.steps.push(told),
            None => hops.push(Hop { hop: step.hop.to_string(), title: title(&step.hop).to_owned(), took: 0, steps: vec![told] }),
        }
    }
    for hop in &mut hops {
        // A plugin that asks webhooks or policies counts their time as its own: time is told once.
        let asked = |step: &&Told| !matches!(step.kind.as_str(), "webhook" | "policy" | "plugins" | "policies" | "webhooks");
        hop.took = hop
            .steps
            .iter()
            .filter(asked)
            .map(|step| step.took)
            .sum::<u64>()
            .max(hop.steps.iter().map(|step| step.took).max().unwrap_or(0));
        // Those that had nothing to do note how long all the others took.
        let idle = |step: &&mut Told| matches!(step.kind.as_str(), "plugins" | "policies" | "webhooks");
        hop.steps.iter_mut().filter(idle).for_each(|step| step.took = 0);
    }
    // What was wrong with an object is said in the answer, and once.
    let message = event.response_status.as_ref().map(|status| status.message.as_str()).unwrap_or_default();
    let last = hops.iter_mut().rev().find(|hop| matches!(hop.hop.as_str(), "decode" | "schema")).and_then(|hop| hop.steps.last_mut());
    if let Some(step) = last.filter(|step| step.verdict == "refused") {
        step.because = message.to_owned();
    }
    let authorization = authorization(event);
    let verdict = verdict(event, authorization.as_ref(), &hops);
    Explanation {
        audit_id: event.audit_id.clone(),
        summary: summary(event, verdict, authorization.as_ref(), &hops),
        verdict: verdict.to_owned(),
        received: event.request_received_timestamp,
        took: event.took(),
        verb: event.verb.to_string(),
        request_uri: event.request_uri.clone(),
        user: event.user.clone(),
        impersonated_user: event.impersonated_user.clone(),
        user_agent: event.user_agent.clone(),
        source_ips: event.source_ips.clone(),
        object_ref: event.object_ref.clone(),
        hops,
        authorization,
        wrote: story.wrote,
        cause: story.cause,
        trace_id: story.trace_id,
        response: event.response_status.clone(),
        warnings: story.warnings,
        annotations: event
            .annotations
            .iter()
            .filter(|(key, _)| !is_secret || !key.starts_with("patch.webhook."))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
    }
}

fn title(hop: &str) -> &'static str {
    match hop {
        "authenticate" => "who asks",
        "impersonate" => "whom they are taken for",
        "authorize" => "may they",
        "decode" => "reading the body",
        "schema" => "schema and rules",
        "mutate" => "mutating admission",
        "validate" => "validating admission",
        "store" => "persisting",
        "serialize" => "writing the answer",
        "respond" => "sending it",
        _ => "",
    }
}

fn tell(steps: &[Step], index: usize, is_secret: bool) -> Told {
    let step = &steps[index];
    let mut detail = step.detail.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    let kind = match &*step.hop {
        "authenticate" => "authenticator",
        "impersonate" => "impersonation",
        "authorize" => "authorizer",
        // Those that a request was not for leave one step together.
        "mutate" | "validate" if matches!(&*step.name, "plugins" | "policies" | "webhooks") => &step.name,
        "mutate" | "validate" => blame::kind_of(step).as_str(),
        "decode" => "decoder",
        "schema" => "schema",
        "store" => "store",
        "serialize" | "respond" => "server",
        _ => "",
    };
    // Some verdicts carry their reason: `denied: …`.
    let (verdict, rest) = step.verdict.split_once(": ").unwrap_or((&step.verdict, ""));
    let text = |field: &str| detail.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let because =
        [text("because"), text("message"), text("error"), text("reason"), rest.to_owned()].into_iter().find(|text| !text.is_empty());
    let further = detail.get("further").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    let failed = std::iter::once(&detail).chain(further).flat_map(failed).collect();
    for told in ["because", "message", "error"] {
        if detail.get(told).and_then(Value::as_str) == because.as_deref() {
            detail.remove(told);
        }
    }
    let changes = blame::patch_of(step).map(|patch| changes(patch, is_secret)).unwrap_or_default();
    detail.remove("patch");
    detail.remove("diff");
    let round = matches!(kind, "webhook" | "policy").then(|| blame::round(steps, index));
    Told {
        name: step.name.to_string(),
        kind: kind.to_owned(),
        verdict: verdict.to_owned(),
        because: because.unwrap_or_default(),
        at: step.at.as_micros() as u64,
        took: step.took.as_micros() as u64,
        round: round.filter(|_| step.hop == "mutate"),
        failed,
        changes,
        detail,
    }
}

/// A patch, line by line.
fn changes(patch: &Value, is_secret: bool) -> Vec<String> {
    let hide = |value: &Value| if is_secret { redacted(value) } else { value.clone() };
    match patch {
        Value::Array(operations) => operations
            .iter()
            .map(|operation| {
                let text = |field: &str| operation[field].as_str().unwrap_or_default();
                let (op, path) = (text("op"), text("path"));
                match op {
                    "add" => format!("+ {path}: {}", hide(&operation["value"])),
                    "remove" => format!("- {path}"),
                    "replace" => format!("~ {path}: {}", hide(&operation["value"])),
                    "test" => format!("? {path}: {}", hide(&operation["value"])),
                    other => format!("{other} {} → {path}", text("from")),
                }
            })
            .collect(),
        merge => {
            let mut lines = Vec::new();
            merged(merge, &mut String::new(), &hide, &mut lines);
            lines
        }
    }
}

fn merged(patch: &Value, path: &mut String, hide: &dyn Fn(&Value) -> Value, lines: &mut Vec<String>) {
    match patch {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let length = path.len();
                path.push('/');
                path.push_str(&name.replace('~', "~0").replace('/', "~1"));
                merged(value, path, hide, lines);
                path.truncate(length);
            }
        }
        Value::Null => lines.push(format!("- {path}")),
        value => lines.push(format!("~ {path}: {}", hide(value))),
    }
}

fn verdict(event: &Event, authorization: Option<&Authorization>, hops: &[Hop]) -> &'static str {
    let refused = authorization.is_some_and(|found| found.missing.is_some()) || event.code() == 401 || denied(hops).is_some();
    match event.code() {
        0 => "under way",
        code if code < 400 => "allowed",
        _ if refused => "denied",
        _ => "failed",
    }
}

/// The step that said no: the innermost, which comes before the plugin that it belongs to.
fn denied(hops: &[Hop]) -> Option<(&Hop, &Told)> {
    let no = |step: &&Told| step.verdict.starts_with("denied") || step.verdict == "refused" || step.verdict == "failed closed";
    let in_admission = hops.iter().filter(|hop| matches!(hop.hop.as_str(), "mutate" | "validate"));
    in_admission.into_iter().find_map(|hop| hop.steps.iter().find(no).map(|step| (hop, step)))
}

fn summary(event: &Event, verdict: &str, authorization: Option<&Authorization>, hops: &[Hop]) -> String {
    let code = event.code();
    let message = event.response_status.as_ref().map(|status| status.message.as_str()).unwrap_or_default();
    match verdict {
        "allowed" => {
            let by = authorization.filter(|found| !found.role.is_empty());
            let by = by.map(|found| format!(", by {} through {}", found.role, found.binding)).unwrap_or_default();
            format!("{} was allowed{by} ({code}){}", event.effective_user().username, came_of_it(event))
        }
        "denied" if code == 401 => "nobody knows who asks: no authenticator took the credential".into(),
        "denied" => match (authorization.and_then(|found| found.missing.as_ref()), denied(hops)) {
            (Some(missing), _) => {
                let verb = missing.rule["verbs"][0].as_str().unwrap_or_default();
                format!("no rule lets {} {verb}; it takes {} with {}", missing.subject, missing.scope, missing.rule)
            }
            (None, Some((hop, step))) => {
                let why = if step.because.is_empty() { message } else { &step.because };
                let parts: Vec<&str> = step.failed.iter().map(String::as_str).filter(|part| !why.ends_with(part)).collect();
                let parts = if parts.is_empty() { String::new() } else { format!(" (false: {})", parts.join("; ")) };
                // Who could not be asked, or came to no answer, has not said anything.
                let said = if step.verdict == "failed closed" { "came to no answer, which is a no," } else { "said no" };
                format!("{} {} {said} in {}: {why}{parts}", step.kind, step.name, hop.title)
            }
            (None, None) => message.to_owned(),
        },
        "failed" => format!("{code}: {message}"),
        _ => "no answer is recorded".into(),
    }
}

/// What an allowed request left behind: a revision, or of a write none.
fn came_of_it(event: &Event) -> String {
    let query = event.request_uri.split_once('?').map_or("", |(_, query)| query);
    match (event.trace.as_ref(), &*event.verb) {
        _ if query_value(query, "dryRun").is_some_and(|all| !all.is_empty()) => "; a dry run, nothing was written".into(),
        (None, _) => String::new(),
        (Some(story), verb) => match &story.wrote {
            // A deletion that was imported has none.
            Some(wrote) if wrote.revision == 0 => String::new(),
            Some(wrote) => format!("; revision {}", wrote.revision),
            // Without steps it is another server's, and nobody knows.
            None if matches!(verb, "update" | "patch" | "delete") && !story.steps.is_empty() => "; nothing was written".into(),
            None => String::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::audit::Story;

    fn step(hop: &'static str, name: &'static str, verdict: &'static str, detail: Value) -> Step {
        let detail = Some(detail).filter(|detail| !detail.is_null());
        Step { hop: hop.into(), name: name.into(), verdict: verdict.into(), detail, at: Duration::ZERO, took: Duration::from_micros(5) }
    }

    fn event(code: u16, annotations: &[(&str, &str)], steps: Vec<Step>) -> Event {
        Event {
            verb: "create".into(),
            request_uri: "/api/v1/namespaces/team/pods".into(),
            user: UserInfo { username: "bob".into(), ..UserInfo::default() },
            object_ref: Some(ObjectReference { resource: "pods".into(), namespace: "team".into(), ..ObjectReference::default() }),
            response_status: Some(ResponseStatus { code, message: "no".into(), ..ResponseStatus::default() }),
            annotations: annotations.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            trace: Some(Box::new(Story { steps, ..Story::default() })),
            ..Event::default()
        }
    }

    #[test]
    fn a_refused_user_is_told_which_rule_is_missing() {
        let told = explain(&event(403, &[("authorization.k8s.io/decision", "forbid"), ("authorization.k8s.io/reason", "")], vec![]));
        assert_eq!(told.verdict, "denied");
        let missing = told.authorization.expect("authorization").missing.expect("missing");
        assert_eq!(missing.rule, json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}));
        assert_eq!((missing.scope.as_str(), missing.subject.as_str()), ("a Role and a RoleBinding in the namespace team", "User bob"));
        assert!(told.summary.starts_with("no rule lets User bob create"), "{}", told.summary);
    }

    #[test]
    fn an_apply_that_may_not_create_is_told_the_rule_for_that() {
        let mut event = event(403, &[("authorization.k8s.io/decision", "allow")], vec![]);
        event.verb = "patch".into();
        let message = "pods \"web\" is forbidden: User \"bob\" cannot create resource \"pods\" in API group \"\" in the namespace \"team\"";
        event.response_status = serde_json::from_value(json!({"metadata": {}, "code": 403, "message": message})).unwrap();
        let told = explain(&event);
        assert_eq!(told.verdict, "denied");
        assert!(told.summary.starts_with("no rule lets User bob create; it takes a Role"), "{}", told.summary);
    }

    #[test]
    fn an_allowed_user_is_told_the_role_and_the_binding() {
        let reason = "RBAC: allowed by RoleBinding \"makers/team\" of ClusterRole \"edit\" to User \"bob\"";
        let told = explain(&event(201, &[("authorization.k8s.io/decision", "allow"), ("authorization.k8s.io/reason", reason)], vec![]));
        let found = told.authorization.expect("authorization");
        assert_eq!((found.role.as_str(), found.binding.as_str(), found.missing), ("ClusterRole/edit", "RoleBinding/makers/team", None));
        assert_eq!(told.summary, "bob was allowed, by ClusterRole/edit through RoleBinding/makers/team (201)");
    }

    #[test]
    fn a_denial_names_the_policy_and_its_expression_and_not_the_plugin_around_it() {
        let allow = [("authorization.k8s.io/decision", "allow")];
        let steps = vec![
            step("mutate", "inject.example.com", "skipped", json!({"configuration": "c", "because": "the namespace does not match"})),
            step(
                "validate",
                "replicas",
                "denied",
                json!({"binding": "b", "because": "too many", "expression": "has(object.spec) && object.spec.replicas <= 5",
                "values": [{"expression": "has(object.spec)", "value": true}, {"expression": "object.spec.replicas", "value": 6},
                           {"expression": "object.spec.replicas <= 5", "value": false}, {"expression": "has(object.spec) && object.spec.replicas <= 5", "value": false}]}),
            ),
            step("validate", "ValidatingAdmissionPolicy", "denied: no", Value::Null),
        ];
        let told = explain(&event(422, &allow, steps));
        assert_eq!(told.summary, "policy replicas said no in validating admission: too many (false: object.spec.replicas <= 5)");
        assert_eq!(told.hops.len(), 2);
        let (skipped, policy) = (&told.hops[0].steps[0], &told.hops[1].steps[0]);
        assert_eq!((skipped.kind.as_str(), skipped.because.as_str()), ("webhook", "the namespace does not match"));
        assert_eq!((policy.kind.as_str(), policy.failed.as_slice()), ("policy", &["object.spec.replicas <= 5".to_owned()][..]));
        assert_eq!(policy.detail["values"][1], json!({"expression": "object.spec.replicas", "value": 6}));
        assert_eq!(told.hops[1].steps[1].because, "no");
    }

    #[test]
    fn who_could_not_be_asked_is_not_said_to_have_said_no() {
        let allow = [("authorization.k8s.io/decision", "allow")];
        let detail = json!({"configuration": "c", "because": "connection refused"});
        let told = explain(&event(500, &allow, vec![step("validate", "a.example.com", "failed closed", detail)]));
        let expected = "webhook a.example.com came to no answer, which is a no, in validating admission: connection refused";
        assert_eq!((told.verdict.as_str(), told.summary.as_str()), ("denied", expected));
    }

    #[test]
    fn a_patch_is_told_line_by_line_and_a_secrets_without_its_values() {
        let patch = json!([{"op": "add", "path": "/data/k", "value": "cGxhbnRlZA=="}, {"op": "remove", "path": "/metadata/labels/x"}]);
        let steps = vec![step("mutate", "w", "mutated", json!({"configuration": "c", "patch": patch}))];
        let mut event = event(201, &[("patch.webhook.admission.k8s.io/round_0_index_0", "cGxhbnRlZA==")], steps);
        assert_eq!(explain(&event).hops[0].steps[0].changes, ["+ /data/k: \"cGxhbnRlZA==\"", "- /metadata/labels/x"]);
        event.object_ref = Some(ObjectReference { resource: "secrets".into(), ..ObjectReference::default() });
        let told = serde_json::to_string(&explain(&event)).expect("json");
        assert!(!told.contains("cGxhbnRlZA"), "{told}");
    }

    #[test]
    fn a_merge_patch_is_told_like_any_other() {
        let lines = changes(&json!({"metadata": {"labels": {"a/b": "c", "d": null}}}), false);
        assert_eq!(lines, ["~ /metadata/labels/a~1b: \"c\"", "- /metadata/labels/d"]);
    }

    #[test]
    fn what_a_schema_refused_has_its_hop_and_its_reason() {
        let steps = vec![step("decode", "JSON", "decoded", Value::Null), step("schema", "validation", "refused", Value::Null)];
        let told = explain(&event(422, &[("authorization.k8s.io/decision", "allow")], steps));
        let hops: Vec<_> =
            told.hops.iter().map(|hop| (hop.title.as_str(), hop.steps[0].kind.as_str(), hop.steps[0].because.as_str())).collect();
        assert_eq!(hops, [("reading the body", "decoder", ""), ("schema and rules", "schema", "no")]);
        assert_eq!((told.verdict.as_str(), told.summary.as_str()), ("failed", "422: no"));
    }

    #[test]
    fn a_stream_by_get_that_may_not_create_is_a_denial_with_its_missing_rule() {
        let steps = vec![
            step("authorize", "RBAC", "allowed", json!({"role": "Role/team/r", "binding": "RoleBinding/team/b"})),
            step("authorize", "chain", "denied", json!({"verb": "create"})),
        ];
        let mut event = event(403, &[("authorization.k8s.io/decision", "allow")], steps);
        event.verb = "get".into();
        event.object_ref =
            serde_json::from_value(json!({"resource": "pods", "namespace": "team", "name": "a", "subresource": "exec"})).ok();
        let told = explain(&event);
        assert_eq!(told.verdict, "denied");
        let found = told.authorization.expect("authorization");
        let rule = json!({"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]});
        assert_eq!((found.role.as_str(), found.missing.map(|missing| missing.rule)), ("Role/team/r", Some(rule)));
    }

    #[test]
    fn a_policy_that_came_to_no_binding_is_no_plugin() {
        let because = json!({"because": "failed to configure policy: no such parameter"});
        let idle = |since: u64| Step { took: Duration::from_micros(since), ..step("mutate", "plugins", "skipped", json!({"count": 3})) };
        let told = explain(&event(403, &[], vec![idle(900), idle(80), step("validate", "limits", "denied", because)]));
        let idle = |step: &Told| step.kind == "plugins" && step.took == 0 && step.round.is_none();
        assert!(told.hops[0].steps.iter().all(idle), "who had nothing to do took no time and no round");
        assert_eq!(told.hops[0].took, 900);
        assert!(told.summary.starts_with("policy limits said no in validating admission: failed to configure"), "{}", told.summary);
    }

    #[test]
    fn a_write_of_which_nothing_came_says_so() {
        let mut event = event(200, &[], vec![step("schema", "validation", "valid", Value::Null)]);
        event.verb = "patch".into();
        assert_eq!(explain(&event).summary, "bob was allowed (200); nothing was written");
        event.request_uri.push_str("?fieldManager=x&dryRun=All");
        assert_eq!(explain(&event).summary, "bob was allowed (200); a dry run, nothing was written");
    }
}
