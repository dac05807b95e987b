//! What can be read off an event beyond its fields: how it was decided, who judged it, how long it took. Filters, the archive's
//! columns and statistics all read it here, so that they agree.

use serde_json::Value;

use super::Event;
use super::event::ObjectReference;

/// Something that looked at a request during admission, and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judge {
    /// The policy or the webhook.
    pub name: String,
    /// The policy's binding, or the webhook's configuration.
    pub under: String,
    /// What it said: `allowed`, `denied`, `mutated`, `failed open`, …
    pub verdict: String,
}

/// The policies and the webhooks that a request came to; those that were skipped do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judges {
    /// Admission policies.
    pub policies: Vec<Judge>,
    /// Admission webhooks.
    pub webhooks: Vec<Judge>,
}

/// Reads the judges off the trace and, for events of another server, off the annotations.
pub fn judges(event: &Event) -> Judges {
    let mut judges = Judges::default();
    for step in event.trace.iter().flat_map(|story| &story.steps) {
        let Some(detail) = step.detail.as_ref().filter(|_| matches!(&*step.hop, "mutate" | "validate")) else { continue };
        // Plugins are written in camel case; policies and webhooks have the names of objects.
        if step.verdict == "skipped" || step.name.starts_with(|c: char| c.is_ascii_uppercase()) {
            continue;
        }
        let judge = |under: &str| Judge { name: step.name.to_string(), under: text(detail, under), verdict: step.verdict.to_string() };
        match detail.get("configuration").is_some() {
            true => judges.webhooks.push(judge("configuration")),
            false => judges.policies.push(judge("binding")),
        }
    }
    for (key, value) in &event.annotations {
        annotation(&mut judges, key, value);
    }
    judges
}

/// What an annotation of Kubernetes tells, where the trace has not told it already.
fn annotation(judges: &mut Judges, key: &str, value: &str) {
    fn add(to: &mut Vec<Judge>, judge: Judge) {
        if !judge.name.is_empty() && to.iter().all(|known| known.name != judge.name) {
            to.push(judge);
        }
    }
    if key == "validation.policy.admission.k8s.io/validation_failure" {
        for failure in serde_json::from_str::<Vec<Value>>(value).unwrap_or_default() {
            let deny = failure["validationActions"].as_array().is_some_and(|actions| actions.iter().any(|action| action == "Deny"));
            let verdict = if deny { "denied" } else { "failed" };
            add(&mut judges.policies, Judge { name: text(&failure, "policy"), under: text(&failure, "binding"), verdict: verdict.into() });
        }
    } else if key.starts_with("mutation.webhook.admission.k8s.io/") {
        let call: Value = serde_json::from_str(value).unwrap_or_default();
        let verdict = if call["mutated"] == true { "mutated" } else { "allowed" };
        add(&mut judges.webhooks, Judge { name: text(&call, "webhook"), under: text(&call, "configuration"), verdict: verdict.into() });
    } else if key.starts_with("failed-open.") && key.contains(".webhook.admission.k8s.io/") {
        add(&mut judges.webhooks, Judge { name: value.to_owned(), under: String::new(), verdict: "failed open".into() });
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

impl Event {
    /// `allow` or `forbid`, also of who may not be somebody else; empty where nobody was asked.
    pub fn decision(&self) -> &str {
        match self.annotations.get("authorization.k8s.io/decision") {
            Some(decision) => decision,
            None if self.may_not_impersonate().is_some() => "forbid",
            None => "",
        }
    }

    /// Whether it takes the right to create besides that of the verb: an update or an apply that makes the object does, and so does a
    /// stream to a Pod that is asked for by GET.
    pub fn creates_too(&self) -> bool {
        let Some(object) = &self.object_ref else { return false };
        match (&*self.verb, object.resource.as_str(), object.subresource.as_str()) {
            ("patch" | "update", _, "") => self.code() == 201 || self.may_not_create(),
            ("get", "pods", "exec" | "attach" | "portforward") => true,
            _ => false,
        }
    }

    /// Whether an update, an apply or a stream by GET was allowed, and to create what it was to make was not. Of an event of another
    /// server only the answer tells; that of a stream names no reason.
    pub fn may_not_create(&self) -> bool {
        let (Some(object), Some(status)) = (&self.object_ref, &self.response_status) else { return false };
        let told = || format!("User {:?} cannot create resource {:?}", self.effective_user().username, object.resource);
        let steps = self.trace.iter().flat_map(|story| &story.steps);
        let was_denied = || steps.clone().any(|step| step.hop == "authorize" && step.verdict == "denied");
        let no_reason = || status.message.strip_suffix(": ").unwrap_or(&status.message).ends_with(" is forbidden");
        status.code == 403
            && self.decision() != "forbid"
            && match (&*self.verb, object.resource.as_str(), object.subresource.as_str()) {
                ("patch" | "update", ..) => status.message.contains(&told()),
                ("get", "pods", "exec" | "attach" | "portforward") => was_denied() || no_reason(),
                _ => false,
            }
    }

    /// The right to impersonate that was missing, its verb and what it is about, where that is why the request was refused: only the
    /// answer tells. What the request itself was about was never asked.
    pub fn may_not_impersonate(&self) -> Option<(String, ObjectReference)> {
        let status = self.response_status.as_ref().filter(|status| status.code == 403 && self.impersonated_user.is_none())?;
        let (_, told) = status.message.split_once(&format!("User {:?} cannot ", self.user.username))?;
        let (verb, told) = told.split_once(" resource ").filter(|(verb, _)| verb.starts_with("impersonate"))?;
        let quoted = |before: &str| Some(told.split_once(before)?.1.split_once('"')?.0.to_owned());
        let details = status.details.as_ref().unwrap_or(&Value::Null);
        let object = ObjectReference {
            resource: quoted("\"")?,
            api_group: quoted("in API group \"")?,
            namespace: quoted("in the namespace \"").unwrap_or_default(),
            name: text(details, "name"),
            ..ObjectReference::default()
        };
        Some((verb.to_owned(), object))
    }

    /// How long the request took up to this stage, in microseconds.
    pub fn took(&self) -> u64 {
        match (&self.trace, self.request_received_timestamp, self.stage_timestamp) {
            (Some(story), ..) => story.took,
            (None, Some(from), Some(to)) => u64::try_from(to.as_microsecond() - from.as_microsecond()).unwrap_or(0),
            _ => 0,
        }
    }

    /// The resource, with `/subresource` where there is one; empty for other paths.
    pub fn resource(&self) -> String {
        match &self.object_ref {
            None => String::new(),
            Some(object) if object.subresource.is_empty() => object.resource.clone(),
            Some(object) => format!("{}/{}", object.resource, object.subresource),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_webhooks_are_told_apart_and_what_was_skipped_does_not_count() {
        let event: Event = serde_json::from_value(serde_json::json!({"trace": {"took": 7, "steps": [
            {"hop": "mutate", "name": "LimitRanger", "verdict": "allowed", "detail": {"changed": []}, "at": 1, "took": 1},
            {"hop": "mutate", "name": "hook.example.com", "verdict": "mutated", "detail": {"configuration": "hooks"}, "at": 1, "took": 1},
            {"hop": "validate", "name": "no-latest", "verdict": "denied", "detail": {"binding": "all"}, "at": 1, "took": 1},
            {"hop": "validate", "name": "other", "verdict": "skipped", "detail": {"because": "…"}, "at": 1, "took": 1},
        ]}}))
        .unwrap();
        let judges = judges(&event);
        let judge = |name: &str, under: &str, verdict: &str| Judge { name: name.into(), under: under.into(), verdict: verdict.into() };
        assert_eq!(judges.policies, [judge("no-latest", "all", "denied")]);
        assert_eq!(judges.webhooks, [judge("hook.example.com", "hooks", "mutated")]);
        assert_eq!(event.took(), 7);
    }

    #[test]
    fn what_makes_an_object_or_opens_a_stream_takes_the_right_to_create() {
        let creates = |verb: &str, subresource: &str, code: u16, message: &str| {
            let event: Event = serde_json::from_value(serde_json::json!({"verb": verb, "user": {"username": "jane"},
                "objectRef": {"resource": "pods", "subresource": subresource, "name": "a"},
                "responseStatus": {"metadata": {}, "code": code, "message": message}}))
            .unwrap();
            (event.creates_too(), event.may_not_create())
        };
        assert_eq!(creates("patch", "", 201, ""), (true, false));
        assert_eq!(creates("patch", "", 200, ""), (false, false));
        assert_eq!(creates("get", "exec", 101, ""), (true, false));
        assert_eq!(creates("get", "log", 200, ""), (false, false));
        let refused = "pods \"a\" is forbidden: User \"jane\" cannot create resource \"pods\" in API group \"\" at the cluster scope";
        assert_eq!(creates("update", "", 403, refused), (true, true));
        assert_eq!(creates("create", "", 403, refused), (false, false), "its own verb says it");
        assert_eq!(creates("patch", "", 403, "a policy says no"), (false, false));
        assert_eq!(creates("get", "exec", 403, "pods \"a\" is forbidden: "), (true, true), "a stream's refusal gives no reason");
        assert_eq!(creates("get", "exec", 403, "pods \"a\" is forbidden: no shells here"), (true, false), "a policy's does");
    }

    #[test]
    fn who_may_not_impersonate_is_told_by_the_answer() {
        let refused = |message: &str, details: Value| {
            let event: Event = serde_json::from_value(serde_json::json!({"verb": "list", "user": {"username": "imp"},
                "responseStatus": {"metadata": {}, "code": 403, "message": message, "details": details}}))
            .unwrap();
            assert_eq!(event.decision() == "forbid", event.may_not_impersonate().is_some());
            event.may_not_impersonate().map(|(verb, object)| [verb, object.api_group, object.resource, object.namespace, object.name])
        };
        let users = "users \"bob\" is forbidden: User \"imp\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope";
        let found = refused(users, serde_json::json!({"name": "bob", "kind": "users"}));
        assert_eq!(found, Some(["impersonate", "", "users", "", "bob"].map(str::to_owned)));
        let account = "serviceaccounts \"b\" is forbidden: User \"imp\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"a\"";
        let found = refused(account, serde_json::json!({"name": "b", "kind": "serviceaccounts"}));
        assert_eq!(found, Some(["impersonate", "", "serviceaccounts", "a", "b"].map(str::to_owned)));
        let constrained =
            "pods is forbidden: User \"imp\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" at the cluster scope";
        let found = refused(constrained, serde_json::json!({"kind": "pods"}));
        assert_eq!(found, Some(["impersonate-on:user-info:list", "", "pods", "", ""].map(str::to_owned)));
        let own = "pods is forbidden: User \"imp\" cannot list resource \"pods\" in API group \"\" at the cluster scope";
        assert_eq!(refused(own, Value::Null), None);
    }

    #[test]
    fn the_annotations_of_another_server_tell_it_too() {
        let event: Event = serde_json::from_value(serde_json::json!({"annotations": {
            "validation.policy.admission.k8s.io/validation_failure":
                "[{\"message\":\"no\",\"policy\":\"p\",\"binding\":\"b\",\"expressionIndex\":0,\"validationActions\":[\"Audit\"]}]",
            "mutation.webhook.admission.k8s.io/round_0_index_1": "{\"configuration\":\"c\",\"webhook\":\"w\",\"mutated\":true}",
            "failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "v",
            "authorization.k8s.io/decision": "allow",
        }}))
        .unwrap();
        let judges = judges(&event);
        assert_eq!((judges.policies[0].name.as_str(), judges.policies[0].verdict.as_str()), ("p", "failed"));
        let webhooks: Vec<_> = judges.webhooks.iter().map(|judge| (judge.name.as_str(), judge.verdict.as_str())).collect();
        assert_eq!(webhooks, [("v", "failed open"), ("w", "mutated")]);
        assert_eq!(event.decision(), "allow");
    }
}
