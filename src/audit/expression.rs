//! A CEL expression over `event`, with the knowledge of which fields it looks at: a million events are answered in seconds only if
//! what nobody asks about is not read.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use usher_cel::{Activation, Budget, Environment, Program, Type};

/// The variable that stands for the event.
const EVENT: &str = "event";
/// The field of an event that is kept apart from the rest.
const TRACE: &str = "trace";

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Expression {
    program: Arc<Program>,
    fields: Arc<Fields>,
}

impl Expression {
    /// Compiles; what it gives must be true or false.
    pub fn compile(source: &str) -> Result<Expression, String> {
        let program = Environment::kubernetes().variable(EVENT, Type::Dyn).compile(source).map_err(|e| e.to_string())?;
        if !matches!(program.output_type(), Type::Bool | Type::Dyn) {
            return Err(format!("the expression gives {}, not bool", program.output_type()));
        }
        Ok(Expression { program: Arc::new(program), fields: Arc::new(Fields::of(source)) })
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
        let Ok(mut value) = self.fields.read(event) else { return false };
        if let Some(fields) = self.fields.field(TRACE)
            && !trace.is_empty()
            && let Ok(trace) = fields.read(trace)
            && let Value::Object(map) = &mut value
        {
            map.insert(TRACE.to_owned(), trace);
        }
        self.holds(&value)
    }
}

/// The fields that somebody looks at.
#[derive(Clone, Debug, PartialEq)]
enum Fields {
    /// All of them, or what has no fields.
    All,
    /// These, and of each these.
    These(Vec<(String, Fields)>),
}

impl Fields {
    /// The fields of `event` that an expression names, all of them as soon as one use of `event` is anything but `event.field` or
    /// `event.?field`. What looks like a use but is none (inside a string, say) can only make the answer larger.
    fn of(source: &str) -> Fields {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let mut fields = Fields::These(Vec::new());
        let mut from = 0;
        while let Some(at) = source[from..].find(EVENT).map(|at| from + at) {
            let mut rest = &source[at + EVENT.len()..];
            from = at + EVENT.len();
            if source[..at].ends_with(word) || rest.starts_with(word) {
                continue;
            }
            let mut path: Vec<&str> = Vec::new();
            while let Some(behind) = rest.strip_prefix('.') {
                let behind = behind.strip_prefix('?').unwrap_or(behind);
                let end = behind.find(|c| !word(c)).unwrap_or(behind.len());
                // A call, such as `event.size()`, is about everything in front of it.
                if end == 0 || behind[end..].trim_start().starts_with('(') {
                    break;
                }
                path.push(&behind[..end]);
                rest = &behind[end..];
            }
            fields.add(&path);
        }
        fields
    }

    fn add(&mut self, path: &[&str]) {
        match (&mut *self, path) {
            (Fields::All, _) => {}
            (Fields::These(_), []) => *self = Fields::All,
            (Fields::These(known), [first, rest @ ..]) => match known.iter_mut().find(|(name, _)| name == first) {
                Some((_, fields)) => fields.add(rest),
                None => {
                    let mut fields = Fields::These(Vec::new());
                    fields.add(rest);
                    known.push(((*first).to_owned(), fields));
                }
            },
        }
    }

    fn field(&self, name: &str) -> Option<&Fields> {
        match self {
            Fields::All => Some(&Fields::All),
            Fields::These(known) => known.iter().find(|(known, _)| known == name).map(|(_, fields)| fields),
        }
    }

    fn read(&self, json: &[u8]) -> serde_json::Result<Value> {
        self.deserialize(&mut serde_json::Deserializer::from_slice(json))
    }
}

/// Reads those fields of an object and steps over the others; what is no object is read whole.
impl<'de> DeserializeSeed<'de> for &Fields {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &Fields {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let Fields::These(known) = self else { return Value::deserialize(MapAccessDeserializer::new(map)) };
        let mut found = Map::new();
        while let Some(wanted) = map.next_key_seed(Wanted(known))? {
            match wanted.and_then(|at| known.get(at)) {
                Some((name, fields)) => drop(found.insert(name.clone(), map.next_value_seed(fields)?)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(found))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(seq))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// Which of the fields a key is.
struct Wanted<'a>(&'a [(String, Fields)]);

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
        Ok(self.0.iter().position(|(name, _)| name == key))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_fields_of_an_expression_are_known_where_they_can_be() {
        fn told(fields: &Fields) -> String {
            match fields {
                Fields::All => "*".into(),
                Fields::These(known) => known.iter().map(|(name, fields)| format!("{name}({})", told(fields))).collect(),
            }
        }
        for (source, expected) in [
            ("event.verb == 'get' && has(event.objectRef.name)", "verb(*)objectRef(name(*))"),
            ("event.user.username.startsWith('a') || event.user.groups.exists(g, g == 'b')", "user(username(*)groups(*))"),
            ("event.user.username == 'a' && event.user == {}", "user(*)"),
            ("event.?trace.?took.orValue(0) > 1", "trace(took(*))"),
            ("event.annotations['a/b'] == 'c'", "annotations(*)"),
            ("events.x == 1 && myevent.y", ""),
            ("event == {}", "*"),
            ("event['verb'] == 'get'", "*"),
            ("event.exists(k, k == 'verb')", "*"),
            ("event.size () == 1", "*"),
            ("event .verb == ''", "*"),
            ("event.`verb` == ''", "*"),
        ] {
            assert_eq!(told(&Fields::of(source)), expected, "{source}");
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
            "event.missing.more == 'x'",
            "has(event.user.uid)",
            "has(event.user) && !has(event.user.uid)",
            "event.verb.more == 'x'",
            "event.?user.?uid.orValue('none') == 'none'",
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
