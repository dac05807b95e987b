//! Decisions that somebody else makes: a SubjectAccessReview is sent to a webhook unless a match condition says that it
//! is not concerned. Yes and no are remembered for a while, each for its own; what happens when the webhook fails is
//! configuration.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::authn::Now;
use crate::authn::cache::{Cache, digest};
use crate::authn::expression::Expression;
use crate::authn::webhook_client::WebhookClient;
use crate::object::selector::{LabelSelector, Operator};
use crate::request::{RequestInfo, User};

use super::{Attributes, Authorizer, Decision, ResolvedRules};

/// Larger questions are not remembered: they would crowd out the others.
const MAX_REMEMBERED_BYTES: usize = 10_000;

/// What happens when the webhook cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The next authoriser decides; if none does, the request ends with the error.
    #[default]
    NoOpinion,
    /// No.
    Deny,
}

/// How a webhook is used.
pub struct Settings {
    /// All must hold for the webhook to be asked.
    pub match_conditions: Vec<Expression>,
    /// What happens when it fails.
    pub failure_policy: FailurePolicy,
    /// How long a yes is remembered, in seconds.
    pub authorized_seconds: i64,
    /// How long a no is remembered, in seconds.
    pub unauthorized_seconds: i64,
    /// Whether the question is put in the form of `v1beta1`, where the groups stand under `group`.
    pub beta: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            match_conditions: Vec::new(),
            failure_policy: FailurePolicy::NoOpinion,
            authorized_seconds: 300,
            unauthorized_seconds: 30,
            beta: false,
        }
    }
}

/// The authoriser.
pub struct WebhookAuthorizer {
    client: WebhookClient,
    settings: Settings,
    now: Now,
    answers: Cache<(i64, Decision)>,
    /// How often it could not be asked, for metrics.
    pub failures: AtomicU64,
}

impl WebhookAuthorizer {
    /// Asks `client`.
    pub fn new(client: WebhookClient, settings: Settings, now: Now) -> Self {
        WebhookAuthorizer { client, settings, now, answers: Cache::new(8192), failures: AtomicU64::new(0) }
    }

    async fn ask(&self, attributes: &Attributes) -> Result<Decision, String> {
        let spec = spec(&attributes.user, &attributes.info);
        // One condition that does not hold is enough, even if another one cannot be evaluated.
        let mut failed = None;
        let seen = if self.settings.match_conditions.is_empty() { Value::Null } else { with_empty(&spec) };
        for condition in &self.settings.match_conditions {
            match condition.holds(&seen) {
                Ok(true) => {}
                Ok(false) => return Ok(Decision::NoOpinion("".into())),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(format!("a match condition failed: {error}"));
        }
        let text = spec.to_string();
        let key = digest([text.as_bytes()]);
        let now = (self.now)().as_second();
        if let Some((until, decision)) = self.answers.get(&key)
            && now < until
        {
            return Ok(decision);
        }
        let review = self.review(spec);
        let decision = read(&self.client.post(&review).await?)?;
        let seconds = if decision.is_allow() { self.settings.authorized_seconds } else { self.settings.unauthorized_seconds };
        if seconds > 0 && text.len() <= MAX_REMEMBERED_BYTES {
            self.answers.insert(key, (now + seconds, decision.clone()));
        }
        Ok(decision)
    }
}

impl WebhookAuthorizer {
    fn review(&self, mut spec: Value) -> Value {
        let mut version = "authorization.k8s.io/v1";
        if self.settings.beta {
            version = "authorization.k8s.io/v1beta1";
            if let Some(spec) = spec.as_object_mut()
                && let Some(groups) = spec.remove("groups")
            {
                spec.insert("group".into(), groups);
            }
        }
        json!({"apiVersion": version, "kind": "SubjectAccessReview", "spec": spec})
    }
}

fn read(answer: &Value) -> Result<Decision, String> {
    let status = match answer.as_object() {
        Some(review) => review.get("status").unwrap_or(&Value::Null),
        None => return Err("the webhook's answer is no SubjectAccessReview".into()),
    };
    let flag = |name: &str| match &status[name] {
        Value::Null => Ok(false),
        value => value.as_bool().ok_or_else(|| format!("the webhook's answer has no true or false in status.{name}")),
    };
    let (allowed, denied) = (flag("allowed")?, flag("denied")?);
    let reason = status["reason"].as_str().unwrap_or_default().to_owned().into();
    match (allowed, denied) {
        (true, true) => {
            Ok(Decision::Failed { error: "webhook subject access review returned both allow and deny response".into(), denies: true })
        }
        (true, false) => Ok(Decision::Allow(reason)),
        (false, true) => Ok(Decision::Deny(reason)),
        (false, false) => Ok(Decision::NoOpinion(reason)),
    }
}

/// The question as a SubjectAccessReview's spec.
pub fn spec(user: &User, info: &RequestInfo) -> Value {
    let mut spec = Map::new();
    let mut attributes = Map::new();
    let mut put = |key: &str, value: &str| {
        if !value.is_empty() {
            attributes.insert(key.into(), value.into());
        }
    };
    if info.is_resource {
        put("namespace", &info.namespace);
        put("verb", info.verb());
        put("group", &info.group);
        put("version", &info.version);
        put("resource", &info.resource);
        put("subresource", &info.subresource);
        put("name", &info.name);
        for (key, requirements) in [("fieldSelector", fields(&info.field_selector)), ("labelSelector", labels(&info.label_selector))] {
            if !requirements.is_empty() {
                attributes.insert(key.into(), json!({"requirements": requirements}));
            }
        }
        spec.insert("resourceAttributes".into(), attributes.into());
    } else {
        put("path", &info.path);
        put("verb", info.verb());
        spec.insert("nonResourceAttributes".into(), attributes.into());
    }
    spec.insert("user".into(), user.name.clone().into());
    if !user.groups.is_empty() {
        spec.insert("groups".into(), json!(user.groups));
    }
    if !user.uid.is_empty() {
        spec.insert("uid".into(), user.uid.clone().into());
    }
    if !user.extra.is_empty() {
        let extra: Map<_, _> = user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        spec.insert("extra".into(), extra.into());
    }
    spec.into()
}

/// The question as match conditions see it: with every attribute, also those that are empty.
fn with_empty(spec: &Value) -> Value {
    let mut seen = json!({"user": "", "groups": [], "uid": "", "extra": {}});
    let attributes = |names: &[&str], given: &Value| -> Value {
        let empty: Map<_, _> = names.iter().map(|name| ((*name).to_owned(), "".into())).collect();
        empty.into_iter().chain(given.as_object().cloned().unwrap_or_default()).collect()
    };
    for (key, given) in spec.as_object().into_iter().flatten() {
        seen[key] = match key.as_str() {
            "resourceAttributes" => attributes(&["namespace", "verb", "group", "version", "resource", "subresource", "name"], given),
            "nonResourceAttributes" => attributes(&["verb", "path"], given),
            _ => given.clone(),
        };
    }
    seen
}

/// The terms of a field selector as requirements. What cannot be read is left out: less is then known, never more.
fn fields(selector: &str) -> Vec<Value> {
    let term = |term: &str| {
        let (key, operator, value) = match term.split_once("!=") {
            Some((key, value)) => (key, "NotIn", value),
            None => {
                let (key, value) = term.split_once('=')?;
                (key, "In", value.trim_start_matches('='))
            }
        };
        Some(json!({"key": key.trim(), "operator": operator, "values": [value]}))
    };
    selector.split(',').filter(|t| !t.trim().is_empty()).filter_map(term).collect()
}

fn labels(selector: &str) -> Vec<Value> {
    let Ok(LabelSelector(requirements)) = LabelSelector::parse(selector) else { return Vec::new() };
    let requirement = |r: crate::object::selector::Requirement| {
        let operator = match r.operator {
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            Operator::GreaterThan | Operator::LessThan => return None,
        };
        let mut map = json!({"key": r.key, "operator": operator});
        if !r.values.is_empty() {
            map["values"] = json!(r.values);
        }
        Some(map)
    };
    requirements.into_iter().filter_map(requirement).collect()
}

impl Authorizer for WebhookAuthorizer {
    fn name(&self) -> &'static str {
        "Webhook"
    }

    fn decide<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            match self.ask(attributes).await {
                Ok(decision) => decision,
                Err(error) => {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(%error, "the authorisation webhook failed");
                    Decision::Failed { error: error.into(), denies: self.settings.failure_policy == FailurePolicy::Deny }
                }
            }
        })
    }

    fn rules_for(&self, _: &User, _: &str) -> ResolvedRules {
        let errors = vec!["webhook authorizer does not support user rule resolution".into()];
        ResolvedRules { incomplete: true, errors, ..ResolvedRules::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::authn::expression::Scope;
    use crate::authn::fixtures::{Clock, TlsServer};
    use crate::authn::webhook_client::Retry;
    use crate::request::parse;

    fn ask(user: &str, path: &str, query: &str) -> Attributes {
        Attributes { user: Arc::new(User::new(user, &["g"])), info: Arc::new(parse("GET", path, query)) }
    }

    async fn server() -> TlsServer {
        TlsServer::start(|_, body| {
            let review: Value = serde_json::from_slice(body).unwrap();
            let status = match review["spec"]["user"].as_str() {
                Some("yes") => json!({"allowed": true, "reason": "because"}),
                Some("no") => json!({"allowed": false, "denied": true, "reason": "never"}),
                Some("both") => json!({"allowed": true, "denied": true}),
                Some("broken") => return (500, String::new()),
                _ => json!({"allowed": false}),
            };
            (200, json!({"status": status}).to_string())
        })
        .await
    }

    fn webhook(server: &TlsServer, settings: Settings, clock: &Clock) -> WebhookAuthorizer {
        let retry = Retry { attempts: 1, wait: Duration::ZERO };
        let client = WebhookClient::from_kubeconfig(&server.kubeconfig(), Path::new("."), Duration::from_secs(5), retry).unwrap();
        WebhookAuthorizer::new(client, settings, clock.now())
    }

    #[tokio::test]
    async fn a_webhook_over_tls_decides_and_is_not_asked_again_for_a_while() {
        let (server, clock) = (server().await, Clock::at(0));
        let webhook = webhook(&server, Settings::default(), &clock);
        let calls = || server.calls.load(Ordering::SeqCst);
        for _ in 0..3 {
            assert_eq!(webhook.decide(&ask("yes", "/api/v1/pods", "")).await, Decision::Allow("because".into()));
        }
        assert_eq!(calls(), 1);
        assert_eq!(webhook.decide(&ask("no", "/api/v1/pods", "")).await, Decision::Deny("never".into()));
        assert_eq!(webhook.decide(&ask("other", "/metrics", "")).await, Decision::NoOpinion("".into()));
        assert_eq!(calls(), 3);
        clock.advance(31);
        webhook.decide(&ask("no", "/api/v1/pods", "")).await;
        webhook.decide(&ask("yes", "/api/v1/pods", "")).await;
        assert_eq!(calls(), 4, "the no is asked again, the yes not yet");
    }

    #[tokio::test]
    async fn a_failing_webhook_leaves_it_to_others_or_denies_as_configured() {
        let (server, clock) = (server().await, Clock::at(0));
        let open = webhook(&server, Settings::default(), &clock);
        let closed = webhook(&server, Settings { failure_policy: FailurePolicy::Deny, ..Settings::default() }, &clock);
        for (webhook, user, denies) in [(&open, "broken", false), (&closed, "broken", true), (&open, "both", true), (&closed, "both", true)]
        {
            let decision = webhook.decide(&ask(user, "/api", "")).await;
            assert!(decision.error().is_some(), "{user}: {decision:?}");
            assert_eq!(decision.denies(), denies, "{user}");
        }
    }

    #[tokio::test]
    async fn match_conditions_keep_the_webhook_from_being_asked() {
        let (server, clock) = (server().await, Clock::at(0));
        let condition = "has(request.resourceAttributes) && request.resourceAttributes.namespace == 'a'";
        let match_conditions = vec![Expression::condition(Scope::Request, condition).unwrap()];
        let webhook = webhook(&server, Settings { match_conditions, ..Settings::default() }, &clock);
        assert_eq!(webhook.decide(&ask("yes", "/api/v1/namespaces/b/pods", "")).await, Decision::NoOpinion("".into()));
        assert_eq!(webhook.decide(&ask("yes", "/metrics", "")).await, Decision::NoOpinion("".into()));
        assert_eq!(webhook.decide(&ask("yes", "/api/v1/pods", "")).await, Decision::NoOpinion("".into()), "in no namespace");
        assert_eq!(server.calls.load(Ordering::SeqCst), 0);
        assert!(webhook.decide(&ask("yes", "/api/v1/namespaces/a/pods", "")).await.is_allow());
    }

    #[test]
    fn the_question_carries_selectors_as_requirements() {
        let attributes = ask("u", "/api/v1/pods", "fieldSelector=spec.nodeName%3Dn1&labelSelector=a%20in%20(b,c),!d");
        let asked = &spec(&attributes.user, &attributes.info)["resourceAttributes"];
        assert_eq!(asked["fieldSelector"]["requirements"], json!([{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]));
        let labels = json!([{"key": "a", "operator": "In", "values": ["b", "c"]}, {"key": "d", "operator": "DoesNotExist"}]);
        assert_eq!(asked["labelSelector"]["requirements"], labels);
    }
}
