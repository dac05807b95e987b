//! A CEL expression over `event`, with the knowledge of what it reads: a million events are answered in seconds only if what nobody asks
//! about is not made.

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use usher_cel::{Activation, Budget, Environment, PER_CALL_LIMIT, Program, Reads, Type};

/// The variable that stands for the event.
const EVENT: &str = "event";

/// What an event can have.
pub const FIELDS: [&str; 20] = [
    "kind",
    "apiVersion",
    "level",
    "auditID",
    "stage",
    "requestURI",
    "verb",
    "user",
    "impersonatedUser",
    "authenticationMetadata",
    "sourceIPs",
    "userAgent",
    "objectRef",
    "responseStatus",
    "requestObject",
    "responseObject",
    "requestReceivedTimestamp",
    "stageTimestamp",
    "annotations",
    "trace",
];

/// What its parts can have, where that is the same for all.
const PARTS: [(&str, &[&str]); 5] = [
    ("user", &["username", "uid", "groups", "extra"]),
    ("impersonatedUser", &["username", "uid", "groups", "extra"]),
    ("objectRef", &["resource", "namespace", "name", "uid", "apiGroup", "apiVersion", "resourceVersion", "subresource"]),
    ("responseStatus", &["metadata", "status", "message", "reason", "details", "code"]),
    ("trace", &["took", "steps", "warnings", "wrote", "cause", "traceId"]),
];

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Expression {
    program: Arc<Program>,
    reads: Arc<Reads>,
    gave_up: Arc<OnceLock<String>>,
}

impl Expression {
    /// Compiles; what it gives must be true or false.
    pub fn compile(source: &str) -> Result<Expression, String> {
        let program = Environment::kubernetes().variable(EVENT, Type::Dyn).compile(source).map_err(|e| e.to_string())?;
        if !matches!(program.output_type(), Type::Bool | Type::Dyn) {
            return Err(format!("the expression gives {}, not bool", program.output_type()));
        }
        let reads = Reads::of(source, EVENT);
        // A field that no event has would be no match in every event, and nobody would know why.
        let unknown = |reads: &Reads, what: &str, fields: &[&str]| match reads.names().find(|name| !fields.contains(name)) {
            Some(name) => Err(format!("{what} has no field {name}; it has {}", fields.join(", "))),
            None => Ok(()),
        };
        unknown(&reads, "an event", &FIELDS)?;
        // What is read of every field may well be there in some of them only.
        for (name, fields) in PARTS.into_iter().filter(|_| !reads.of_every_field()) {
            if let Some(part) = reads.field(name) {
                unknown(part, &format!("event.{name}"), fields)?;
            }
        }
        Ok(Expression { program: Arc::new(program), reads: Arc::new(reads), gave_up: Arc::default() })
    }

    /// The text.
    pub fn source(&self) -> &str {
        self.program.source()
    }

    /// Whether an event is one of those. One for which the expression fails, because a field is not there, is not. One that it costs
    /// too much for, or of which it says neither true nor false, ends the asking: see [`Expression::gave_up`].
    pub fn holds(&self, event: &Value) -> bool {
        if self.gave_up.get().is_some() {
            return false;
        }
        let activation = Activation::new().bind(EVENT, event);
        let why = match self.program.evaluate(&activation, &mut Budget::default()) {
            Ok(evaluated) => match evaluated.value.as_bool() {
                Some(holds) => return holds,
                None => "it gives something else than true or false".to_owned(),
            },
            Err(error) if error.is_cancelled() => format!("it costs too much, more than {PER_CALL_LIMIT} for one event"),
            Err(_) => return false,
        };
        // Whoever was first has said it.
        let _ = self.gave_up.set(why);
        false
    }

    /// Why no more events are asked about, if that is so: what follows from the rest would be half an answer.
    pub fn gave_up(&self) -> Option<&str> {
        self.gave_up.get().map(String::as_str)
    }

    /// What it reads of an event.
    pub fn reads(&self) -> &Reads {
        &self.reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_that_cannot_be_true_or_false_is_refused() {
        assert!(Expression::compile("event.verb == ").is_err());
        assert!(Expression::compile("1 + 1").unwrap_err().contains("not bool"));
    }

    #[test]
    fn one_that_fails_is_no_match_and_one_that_costs_too_much_or_is_no_answer_is_told() {
        let event = serde_json::json!({"verb": "get", "user": {"groups": (0..400).map(|n| n.to_string()).collect::<Vec<_>>()}});
        let missing = Expression::compile("event.requestObject.spec.x == 1").unwrap();
        assert_eq!((missing.holds(&event), missing.gave_up()), (false, None));
        let groups = "event.user.groups";
        let costly = Expression::compile(&format!("{groups}.all(a, {groups}.all(b, {groups}.all(c, a + b + c != '')))")).unwrap();
        assert!(!costly.holds(&event) && costly.gave_up().unwrap().starts_with("it costs too much"));
        let few = serde_json::json!({"user": {"groups": ["a"]}});
        assert!(!costly.holds(&few), "half an answer is none");
        let odd = Expression::compile("event.verb").unwrap();
        assert!(!odd.holds(&event) && odd.gave_up().unwrap().contains("true or false"));
    }

    #[test]
    fn a_field_that_no_event_has_is_refused_and_not_silently_never_there() {
        let refused = |source: &str| Expression::compile(source).unwrap_err();
        assert!(refused("event.vreb == 'get'").starts_with("an event has no field vreb; it has kind, "));
        assert_eq!(refused("has(event.user.name)"), "event.user has no field name; it has username, uid, groups, extra");
        assert!(refused("event.objectRef.kind == 'Pod'").starts_with("event.objectRef has no field kind"));
        for taken in [
            "event.user.extra.scopes.size() > 0",
            "event.requestObject.spec.x == 1",
            "event.annotations['a/b'] == 'c'",
            "event.exists(k, k == 'x')",
            "event.exists(k, v, v == {'a': 1})",
            "event.exists(k, event[k].name == 'x') && event.user.username == 'y'",
        ] {
            assert!(Expression::compile(taken).is_ok(), "{taken}");
        }
    }

    #[test]
    fn the_fields_of_a_whole_event_are_those_that_are_known() {
        let user = serde_json::json!({"username": "u", "uid": "1", "groups": ["g"], "extra": {"k": ["v"]}});
        let whole = serde_json::json!({"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "a", "stage": "Panic",
            "requestURI": "/", "verb": "get", "user": user, "impersonatedUser": user, "authenticationMetadata": {}, "sourceIPs": ["::1"],
            "userAgent": "x", "requestObject": {}, "responseObject": {}, "requestReceivedTimestamp": "2026-05-01T12:00:00Z",
            "stageTimestamp": "2026-05-01T12:00:00Z", "annotations": {"a": "b"},
            "objectRef": {"resource": "r", "namespace": "n", "name": "m", "uid": "u", "apiGroup": "g", "apiVersion": "v", "resourceVersion": "1",
                "subresource": "s"},
            "responseStatus": {"metadata": {}, "status": "Failure", "message": "m", "reason": "r", "details": {"name": "x"}, "code": 500},
            "trace": {"took": 1, "steps": [{"hop": "h", "name": "n", "verdict": "v", "at": 1, "took": 1}], "warnings": ["w"],
                "wrote": {"revision": 1, "kind": "k", "name": "n", "uid": "u"}, "cause": 1, "traceId": "t"}});
        let event: crate::audit::Event = serde_json::from_value(whole).unwrap();
        let written = serde_json::to_value(event).unwrap();
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>();
        let known = |fields: &[&str]| fields.iter().map(|field| (*field).to_owned()).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(names(&written), known(&FIELDS));
        for (part, fields) in PARTS {
            assert_eq!(names(&written[part]), known(fields), "{part}");
        }
    }
}
