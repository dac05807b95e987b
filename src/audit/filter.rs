//! Which events somebody wants to see: what `usher audit query` and `/usher/v1/requests` take. Pure; the archive uses what it can
//! of it to skip whole blocks, and asks [`Filter::matches`] about what is left.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

use super::expression::Expression;
use super::facets::{self, Judges};
use super::{Event, Stage};

/// A conjunction: what is empty says nothing.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Exactly this request.
    pub audit_id: Option<String>,
    /// The user, as authenticated or as impersonated.
    pub user: Option<String>,
    /// The verb, or several with commas between them.
    pub verb: Option<String>,
    /// The resource's plural, with `/subresource` where one is meant, `*` for any as an audit policy has it; or several with commas
    /// between them.
    pub resource: Option<String>,
    /// The resource's group.
    pub group: Option<String>,
    /// The namespace.
    pub namespace: Option<String>,
    /// The object's name, also one that the server made up.
    pub name: Option<String>,
    /// The uid of the object that was written.
    pub uid: Option<String>,
    /// The uid of an owner of the object that was written.
    pub owner: Option<String>,
    /// The lowest and the highest HTTP status.
    pub code: Option<(u16, u16)>,
    /// `allow` or `forbid`.
    pub decision: Option<String>,
    /// An admission policy that had a say.
    pub policy: Option<String>,
    /// An admission webhook, or the configuration of one, that had a say.
    pub webhook: Option<String>,
    /// The stage of the event.
    pub stage: Option<Stage>,
    /// Took at least so many microseconds.
    pub slower_than: Option<u64>,
    /// Not before.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
    /// A CEL expression over the event.
    pub expression: Option<Expression>,
}

impl Filter {
    /// The parameters that [`Filter::set`] knows.
    pub const PARAMETERS: [&str; 18] = [
        "audit-id",
        "user",
        "verb",
        "resource",
        "group",
        "namespace",
        "name",
        "uid",
        "owner",
        "code",
        "decision",
        "policy",
        "webhook",
        "stage",
        "slower-than",
        "since",
        "until",
        "filter",
    ];

    /// Takes one parameter of a query or a command line; answers whether it is one of a filter's. Times that are given as a span are
    /// counted back from `now`.
    pub fn set(&mut self, key: &str, value: &str, now: Timestamp) -> Result<bool, String> {
        let text = || Some(value.to_owned());
        match key {
            "audit-id" => self.audit_id = text(),
            "user" => self.user = text(),
            "verb" => self.verb = text(),
            "resource" => self.resource = text(),
            "group" => self.group = text(),
            "namespace" => self.namespace = text(),
            "name" => self.name = text(),
            "uid" => self.uid = text(),
            "owner" => self.owner = text(),
            "code" => self.code = Some(code(value)?),
            "decision" => match value {
                "allow" | "forbid" => self.decision = text(),
                _ => return Err(format!("decision is allow or forbid, not {value:?}")),
            },
            "policy" => self.policy = text(),
            "webhook" => self.webhook = text(),
            "stage" => {
                let stage = serde_json::from_value(value.into());
                let names = "RequestReceived, ResponseStarted, ResponseComplete or Panic";
                self.stage = Some(stage.map_err(|_| format!("stage is {names}, not {value:?}"))?);
            }
            "slower-than" => {
                let micros = span(value).and_then(|span| u64::try_from(span.as_micros()).ok());
                self.slower_than = Some(micros.ok_or_else(|| format!("slower-than takes a duration such as 100ms, not {value:?}"))?);
            }
            "since" => self.since = Some(time(key, value, now)?),
            "until" => self.until = Some(time(key, value, now)?),
            "filter" => self.expression = Some(Expression::compile(value).map_err(|e| format!("filter: {e}"))?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether an event is one of those.
    pub fn matches(&self, event: &Event) -> bool {
        self.matches_fields(event)
            && self.expression.as_ref().is_none_or(|expression| {
                let event = serde_json::to_value(event).unwrap_or_default();
                expression.holds(&event)
            })
    }

    /// Why its expression gave up, if it did: what was found by then is not all.
    pub fn gave_up(&self) -> Option<String> {
        self.expression.as_ref().and_then(Expression::gave_up).map(|why| format!("filter: {why}"))
    }

    /// The same without the expression.
    pub fn matches_fields(&self, event: &Event) -> bool {
        fn is(asked: &Option<String>, found: &str) -> bool {
            asked.as_deref().is_none_or(|asked| asked == found)
        }
        let object = event.object_ref.as_ref();
        let of = |part: fn(&super::event::ObjectReference) -> &String| object.map_or("", |object| part(object).as_str());
        let wrote = event.trace.as_ref().and_then(|trace| trace.wrote.as_ref());
        is(&self.audit_id, &event.audit_id)
            && self.user.as_deref().is_none_or(|user| event.user.username == user || event.effective_user().username == user)
            && self.verb.as_deref().is_none_or(|verbs| any_verb(verbs, &event.verb))
            && self.resource.as_deref().is_none_or(|asked| is_resource(asked, &event.resource()))
            && is(&self.group, of(|o| &o.api_group))
            && is(&self.namespace, of(|o| &o.namespace))
            && self.name.as_deref().is_none_or(|name| of(|o| &o.name) == name || wrote.map_or("", |wrote| &wrote.name) == name)
            && is(&self.uid, wrote.map_or("", |wrote| &wrote.uid))
            && self.owner.as_ref().is_none_or(|owner| wrote.is_some_and(|wrote| wrote.owners.contains(owner)))
            && self.code.is_none_or(|(low, high)| (low..=high).contains(&event.code()))
            && is(&self.decision, event.decision())
            && self.stage.is_none_or(|stage| event.stage == stage)
            && self.slower_than.is_none_or(|micros| event.took() >= micros)
            && self.since.is_none_or(|since| event.request_received_timestamp.is_some_and(|at| at >= since))
            && self.until.is_none_or(|until| event.request_received_timestamp.is_some_and(|at| at < until))
            && self.judged(event)
    }

    fn judged(&self, event: &Event) -> bool {
        if self.policy.is_none() && self.webhook.is_none() {
            return true;
        }
        let Judges { policies, webhooks } = facets::judges(event);
        self.policy.as_ref().is_none_or(|asked| policies.iter().any(|judge| judge.name == *asked))
            && self.webhook.as_ref().is_none_or(|asked| webhooks.iter().any(|judge| judge.name == *asked || judge.under == *asked))
    }
}

/// Whether a verb is one of those asked for.
pub fn any_verb(asked: &str, verb: &str) -> bool {
    asked.split(',').any(|asked| asked.trim() == verb)
}

/// Whether a resource is one of those that are meant, as the rules of an audit policy mean them: `pods` is not its subresources,
/// `pods/*` is all of them, `*/status` that of everything, `*` everything.
pub fn is_resource(asked: &str, found: &str) -> bool {
    let (resource, subresource) = found.split_once('/').unwrap_or((found, ""));
    asked.split(',').map(str::trim).any(|asked| match asked.split_once('/') {
        _ if found.is_empty() => asked.is_empty(),
        None if asked == "*" => true,
        None => asked == found,
        Some((wanted, part)) => (wanted == "*" || wanted == resource) && (part == subresource || (part == "*" && !subresource.is_empty())),
    })
}

/// A resource with its group, as kubectl writes it: `widgets.example.com`, `widgets.v1.example.com`, `pods.v1`. Of what has no dot the
/// group is not said.
pub fn with_group(word: &str) -> (String, Option<String>) {
    let (name, subresource) = word.split_once('/').map_or((word, String::new()), |(name, part)| (name, format!("/{part}")));
    let Some((resource, rest)) = name.split_once('.') else { return (word.to_owned(), None) };
    let (first, behind) = rest.split_once('.').unwrap_or((rest, ""));
    let is_version = first.strip_prefix('v').is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()));
    (format!("{resource}{subresource}"), Some(if is_version { behind } else { rest }.to_owned()))
}

/// `403`, `4xx` or `400-499`.
fn code(text: &str) -> Result<(u16, u16), String> {
    let bad = || format!("code takes 403, 4xx or 400-499, not {text:?}");
    let number = |text: &str| text.trim().parse::<u16>().map_err(|_| bad());
    if let Some(class) = text.to_ascii_lowercase().strip_suffix("xx") {
        let class = number(class)?;
        return if (1..=5).contains(&class) { Ok((class * 100, class * 100 + 99)) } else { Err(bad()) };
    }
    match text.split_once('-') {
        Some((low, high)) => {
            Ok((number(low)?, number(high)?)).and_then(|(low, high)| if low <= high { Ok((low, high)) } else { Err(bad()) })
        }
        None => number(text).map(|code| (code, code)),
    }
}

/// A span such as `10m`, `1h30m` or `2d`.
fn span(text: &str) -> Option<SignedDuration> {
    let span: Span = text.parse().ok()?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok().filter(|span| !span.is_negative())
}

/// A time, a date or a time without a zone (UTC), or how long ago: `10m`, `2d`, `5 minutes ago`.
pub fn moment(text: &str, now: Timestamp) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(time) = text.parse() {
        return Some(time);
    }
    if let Ok(civil) = text.parse::<DateTime>() {
        return civil.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    }
    match text {
        "now" => Some(now),
        _ => span(text.strip_suffix("ago").unwrap_or(text).trim_end()).and_then(|span| now.checked_sub(span).ok()),
    }
}

fn time(key: &str, text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let takes = "a time such as 2026-05-01T12:00:00Z, a date, or how long ago such as 10m";
    moment(text, now).ok_or_else(|| format!("{key} takes {takes}, not {text:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event() -> Event {
        serde_json::from_value(json!({
            "auditID": "a1", "stage": "ResponseComplete", "verb": "create", "user": {"username": "admin"},
            "impersonatedUser": {"username": "jane"}, "requestReceivedTimestamp": "2026-05-01T12:00:00Z",
            "objectRef": {"resource": "pods", "subresource": "eviction", "namespace": "default", "name": "web"},
            "responseStatus": {"metadata": {}, "code": 403}, "annotations": {"authorization.k8s.io/decision": "forbid"},
            "trace": {"took": 150_000, "wrote": {"revision": 1, "kind": "Pod", "name": "web-1", "uid": "u1", "owners": ["o1"]}},
        }))
        .unwrap()
    }

    fn answer(key: &str, value: &str) -> bool {
        let mut filter = Filter::default();
        assert!(filter.set(key, value, "2026-05-01T13:00:00Z".parse().unwrap()).unwrap(), "{key}");
        filter.matches(&event())
    }

    #[test]
    fn each_parameter_asks_about_its_field() {
        for (key, yes, no) in [
            ("audit-id", "a1", "a2"),
            ("user", "jane", "joe"),
            ("user", "admin", ""),
            ("verb", "create", "get"),
            ("verb", "get,create", "get,list"),
            ("resource", "pods/eviction", "pods"),
            ("resource", "pods/*", "services/*"),
            ("resource", "*", "*/status"),
            ("group", "", "apps"),
            ("namespace", "default", "kube-system"),
            ("name", "web", "web-2"),
            ("name", "web-1", "w"),
            ("uid", "u1", "u2"),
            ("owner", "o1", "u1"),
            ("code", "403", "404"),
            ("code", "4xx", "5xx"),
            ("code", "400-403", "404-499"),
            ("decision", "forbid", "allow"),
            ("stage", "ResponseComplete", "Panic"),
            ("slower-than", "100ms", "1s"),
            ("since", "1h", "30m"),
            ("since", "2026-05-01T12:00:00Z", "2026-05-01T12:00:01Z"),
            ("since", "2026-05-01", "2026-05-02"),
            ("since", "2026-05-01T11:59:00", "2026-05-01 12:01"),
            ("since", "61 minutes ago", "now"),
            ("until", "30m", "1h"),
            ("filter", "event.verb == 'create' && event.trace.took > 1", "event.responseStatus.code == 200"),
        ] {
            assert!(answer(key, yes), "{key}={yes}");
            assert!(!answer(key, no), "{key}={no}");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_refused_with_what_is_taken() {
        let mut filter = Filter::default();
        let mut refused = |key: &str, value: &str| filter.set(key, value, Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!(refused("code", "4x"), "code takes 403, 4xx or 400-499, not \"4x\"");
        assert_eq!(refused("decision", "deny"), "decision is allow or forbid, not \"deny\"");
        assert!(refused("since", "yesterday").contains("such as 10m"));
        assert!(refused("slower-than", "-1s").contains("such as 100ms"));
        assert!(refused("code", "499-400").contains("not \"499-400\""));
        assert!(refused("filter", "event.").starts_with("filter: "));
        assert!(refused("filter", "event.vreb == 'get'").starts_with("filter: an event has no field vreb; it has "));
        assert!(!filter.set("nonsense", "1", Timestamp::UNIX_EPOCH).unwrap());
    }

    #[test]
    fn resources_are_meant_as_audit_policies_mean_them() {
        assert!(is_resource("pods", "pods") && !is_resource("pods", "pods/log"));
        assert!(is_resource("pods/*", "pods/log") && !is_resource("pods/*", "pods"));
        assert!(is_resource("*/log", "pods/log") && is_resource("*", "pods/log") && !is_resource("*", ""));
        assert!(is_resource("services, pods/log", "pods/log") && !is_resource("services,pods", "pods/log"));
    }

    #[test]
    fn a_resource_that_is_not_served_here_is_taken_apart_as_kubectl_writes_it() {
        for (word, resource, group) in [
            ("widgets", "widgets", None),
            ("widgets.example.com", "widgets", Some("example.com")),
            ("widgets.v1beta1.example.com/status", "widgets/status", Some("example.com")),
            ("pods.v1", "pods", Some("")),
            ("virtualservices.vendor.io", "virtualservices", Some("vendor.io")),
        ] {
            assert_eq!(with_group(word), (resource.to_owned(), group.map(str::to_owned)), "{word}");
        }
    }
}
