//! A CEL expression over `event`, with the knowledge of which fields it looks at: a million events are answered in seconds only if
//! what nobody asks about is not read.

use std::sync::Arc;

use serde_json::Value;
use usher_cel::{Activation, Budget, Environment, Program, Type};

/// The variable that stands for the event.
const EVENT: &str = "event";

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

    /// The fields of an event that it looks at.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }
}

/// The fields that somebody looks at.
#[derive(Clone, Debug, PartialEq)]
pub enum Fields {
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

    /// What of a field is looked at; `None` for nothing.
    pub fn field(&self, name: &str) -> Option<&Fields> {
        match self {
            Fields::All => Some(&Fields::All),
            Fields::These(known) => known.iter().find(|(known, _)| known == name).map(|(_, fields)| fields),
        }
    }
}

#[cfg(test)]
mod tests {

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
    fn an_expression_that_cannot_be_true_or_false_is_refused() {
        assert!(Expression::compile("event.verb == ").is_err());
        assert!(Expression::compile("1 + 1").unwrap_err().contains("not bool"));
    }
}
