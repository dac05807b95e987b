//! A CEL expression over `event`, with the knowledge of which top-level fields it looks at: a million events are answered in
//! seconds only if what nobody asks about is not read.

use std::sync::Arc;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use usher_cel::{Activation, Budget, Environment, Program, Type};

/// The variable that stands for the event.
const EVENT: &str = "event";
/// The field of an event that is kept apart from the rest.
pub const TRACE: &str = "trace";

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Expression {
    program: Arc<Program>,
    /// The fields that it looks at; `None` where that is not known, which means all of them.
    fields: Option<Arc<[String]>>,
}

impl Expression {
    /// Compiles; what it gives must be true or false.
    pub fn compile(source: &str) -> Result<Expression, String> {
        let program = Environment::kubernetes().variable(EVENT, Type::Dyn).compile(source).map_err(|e| e.to_string())?;
        if !matches!(program.output_type(), Type::Bool | Type::Dyn) {
            return Err(format!("the expression gives {}, not bool", program.output_type()));
        }
        let fields = fields(source).map(Into::into);
        Ok(Expression { program: Arc::new(program), fields })
    }

    /// The text.
    pub fn source(&self) -> &str {
        self.program.source()
    }

    /// Whether an event is one of those. One for which the expression fails, because a field is not there, is not.
    pub fn holds(&self, event: &Value) -> bool {
        let activation = Activation::new().bind(EVENT, event);
        let evaluated = self.program.evaluate(&activation, &mut Budget::default());
        evaluated.is_ok_and(|evaluated| evaluated.value.as_bool() == Some(true))
    }

    /// The same for an event as the archive keeps it: its JSON, and the JSON of its trace.
    pub fn holds_for(&self, event: &[u8], trace: &[u8]) -> bool {
        let Ok(mut value) = self.project(event) else { return false };
        let wanted = self.fields.as_ref().is_none_or(|fields| fields.iter().any(|field| field == TRACE));
        if wanted
            && !trace.is_empty()
            && let Ok(trace) = serde_json::from_slice(trace)
            && let Value::Object(map) = &mut value
        {
            map.insert(TRACE.to_owned(), trace);
        }
        self.holds(&value)
    }

    fn project(&self, event: &[u8]) -> serde_json::Result<Value> {
        match &self.fields {
            None => serde_json::from_slice(event),
            Some(fields) => {
                let mut deserializer = serde_json::Deserializer::from_slice(event);
                Projection(fields).deserialize(&mut deserializer)
            }
        }
    }
}

/// Reads some fields of an object and steps over the others.
struct Projection<'a>(&'a [String]);

impl<'de> DeserializeSeed<'de> for Projection<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Projection<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut found = Map::new();
        while let Some(wanted) = map.next_key_seed(Wanted(self.0))? {
            match wanted {
                Some(at) => {
                    let field = self.0.get(at).ok_or_else(|| A::Error::custom("no such field"))?;
                    found.insert(field.clone(), map.next_value()?);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(found))
    }
}

/// Which of the fields a key is.
struct Wanted<'a>(&'a [String]);

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Wanted<'_> {
    type Value = Option<usize>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|field| field == key))
    }
}

/// The top-level fields of `event` that an expression names; `None` as soon as one use of `event` is anything but `event.field` or
/// `event.?field`. What looks like a use but is none (inside a string, say) can only make the answer larger.
fn fields(source: &str) -> Option<Vec<String>> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut fields: Vec<String> = Vec::new();
    let mut from = 0;
    while let Some(at) = source[from..].find(EVENT).map(|at| from + at) {
        let rest = &source[at + EVENT.len()..];
        from = at + EVENT.len();
        if source[..at].ends_with(word) || rest.starts_with(word) {
            continue;
        }
        let rest = rest.strip_prefix('.')?;
        let rest = rest.strip_prefix('?').unwrap_or(rest);
        let field: String = rest.chars().take_while(|c| word(*c)).collect();
        // A call, such as `event.size()`, is about the whole of it.
        if field.is_empty() || rest[field.len()..].trim_start().starts_with('(') {
            return None;
        }
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_fields_of_an_expression_are_known_where_they_can_be() {
        let known = |source| fields(source).map(|fields| fields.join(" "));
        assert_eq!(known("event.verb == 'get' && has(event.objectRef.name)").as_deref(), Some("verb objectRef"));
        assert_eq!(known("event.?trace.orValue({}) != {}").as_deref(), Some("trace"));
        assert_eq!(known("events.x == 1 && myevent.y"), Some(String::new()));
        for whole in ["event == {}", "event['verb'] == 'get'", "event.exists(k, k == 'verb')", "event .verb == ''", "event.`verb` == ''"] {
            assert_eq!(known(whole), None, "{whole}");
        }
    }

    #[test]
    fn a_projection_gives_the_same_answer_as_the_whole_event() {
        let event = json!({"verb": "get", "user": {"username": "jane"}, "annotations": {"a/b": "c"}, "responseStatus": {"code": 403}});
        let trace = json!({"took": 12, "steps": [{"hop": "store"}]});
        let mut whole = event.clone();
        whole["trace"] = trace.clone();
        for source in [
            "event.verb == 'get'",
            "event.verb == 'list'",
            "event.user.username.startsWith('ja') && event.responseStatus.code >= 400",
            "event.annotations['a/b'] == 'c'",
            "event.trace.took > 10",
            "event.trace.steps.exists(s, s.hop == 'store')",
            "event.missing == 'x'",
            "has(event.missing)",
            "'verb' in event",
            "event.size() == 5",
        ] {
            let expression = Expression::compile(source).unwrap();
            let (event, trace) = (event.to_string(), trace.to_string());
            assert_eq!(expression.holds_for(event.as_bytes(), trace.as_bytes()), expression.holds(&whole), "{source}");
        }
    }

    #[test]
    fn an_expression_that_cannot_be_true_or_false_is_refused() {
        assert!(Expression::compile("event.verb == ").is_err());
        assert!(Expression::compile("1 + 1").unwrap_err().contains("not bool"));
    }
}
