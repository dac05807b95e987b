//! One sitting with expressions: what a line means, what it answers, and what could stand where the cursor is. Knows nothing of
//! terminals.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use usher_cel::{Activation, Budget, Environment, Program, Schema, Type};

/// What the commands of a session are.
pub const HELP: &str = "\
EXPRESSION            its value, type and cost
:type EXPRESSION      its type and estimated cost, without evaluating it
:explain EXPRESSION   the value of every part of it
:variables            what expressions can refer to
:help                 this
:quit                 leave (or Ctrl-D)";

/// The macros, which no list of functions has.
const MACROS: &[&str] = &[
    "all",
    "exists",
    "existsOne",
    "exists_one",
    "filter",
    "has",
    "map",
    "optFlatMap",
    "optMap",
    "sortBy",
    "transformList",
    "transformMap",
    "transformMapEntry",
];

/// What a line comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Something to print.
    Text(String),
    /// Something went wrong.
    Failed(String),
    /// Nothing.
    Nothing,
    /// The end.
    Quit,
}

/// The variables of a session and their values.
pub struct Session {
    environment: Environment,
    object: Value,
    names: Vec<&'static str>,
}

impl Session {
    /// A session about an object: as `object`, of any type, and with a schema also as `self` (and `oldSelf`), checked against it.
    pub fn new(object: Value, schema: Option<Arc<Schema>>) -> Session {
        let mut environment = Environment::kubernetes().variable("object", Type::Dyn);
        let mut names = vec!["object"];
        if let Some(schema) = schema {
            environment = environment.schema_variable("self", schema.clone()).schema_variable("oldSelf", schema);
            names.extend(["self", "oldSelf"]);
        }
        Session { environment, object, names }
    }

    /// What a line comes to.
    pub fn answer(&self, line: &str) -> Answer {
        let line = line.trim();
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let result = match command {
            "" => return Answer::Nothing,
            ":quit" | ":q" | ":exit" => return Answer::Quit,
            ":help" | ":h" | ":?" => Ok(HELP.to_owned()),
            ":variables" => Ok(self.names.join("\n")),
            ":type" => self.compile(rest).map(|program| {
                let cost = program.cost_estimate();
                format!("{}, estimated cost {} to {}", program.output_type(), cost.min, cost.max)
            }),
            ":explain" => self.explain(rest),
            unknown if unknown.starts_with(':') => Err(format!("no such command: {unknown}; :help tells what there is")),
            _ => self.evaluate(line),
        };
        match result {
            Ok(text) => Answer::Text(text),
            Err(text) => Answer::Failed(text),
        }
    }

    fn compile(&self, expression: &str) -> Result<Program, String> {
        self.environment.compile(expression).map_err(|error| error.to_string())
    }

    fn activation(&self) -> Activation<'_> {
        self.names.iter().fold(Activation::new(), |activation, name| activation.bind(name, &self.object))
    }

    fn evaluate(&self, expression: &str) -> Result<String, String> {
        let program = self.compile(expression)?;
        let evaluation = program.evaluate(&self.activation(), &mut Budget::default()).map_err(|error| format!("error: {error}"))?;
        Ok(format!("{}\n  {}, cost {}", shown(&evaluation.value), evaluation.value.type_of(), evaluation.cost))
    }

    fn explain(&self, expression: &str) -> Result<String, String> {
        let program = self.compile(expression)?;
        let explanation = program.explain(&self.activation(), &mut Budget::default());
        let mut text = String::new();
        for step in &explanation.steps {
            let _ = writeln!(text, "{step}");
        }
        let _ = write!(text, "  cost {}", explanation.cost);
        Ok(text)
    }

    /// What could stand at the end of `text`: where the word begins, and the words.
    pub fn complete(&self, text: &str) -> (usize, Vec<String>) {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let path_at = text.rfind(|c: char| !is_part(c)).map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
        let path = &text[path_at..];
        if text.starts_with(':') && !text.contains(' ') {
            let commands = [":explain ", ":help", ":quit", ":type ", ":variables"];
            return (0, commands.iter().filter(|c| c.starts_with(text)).map(|c| (*c).to_owned()).collect());
        }
        let (before, word) = path.rsplit_once('.').map_or((None, path), |(before, word)| (Some(before), word));
        let mut found: BTreeSet<String> = BTreeSet::new();
        if let Some(before) = before
            && let Some(fields) = self.at(before).and_then(Value::as_object)
        {
            // Only a schema makes fields of names that are no identifiers.
            let is_typed = !before.starts_with("object");
            let word = |name: &String| if is_typed { usher_cel::escape_property(name) } else { Some(name.clone()) };
            found.extend(fields.keys().filter_map(word));
        }
        for name in self.environment.completions().iter().map(String::as_str).chain(MACROS.iter().copied()) {
            // A name with a dot in it completes as a whole path, one without both alone and behind a dot.
            let rest = match before {
                None => Some(name),
                Some(before) => match name.strip_prefix(before).and_then(|rest| rest.strip_prefix('.')) {
                    Some(rest) => Some(rest),
                    None if !name.contains('.') && !self.names.contains(&name) => Some(name),
                    None => None,
                },
            };
            found.extend(rest.map(str::to_owned));
        }
        let is_word = |name: &str| is_identifier(name) && (before.is_none() || !name.contains('.'));
        let words = found.into_iter().filter(|name| name.starts_with(word) && is_word(name)).collect();
        (text.len() - word.len(), words)
    }

    /// The value that a path of plain fields leads to; behind a loop's variable nothing is known.
    fn at(&self, path: &str) -> Option<&Value> {
        let mut parts = path.split('.');
        parts.next().filter(|name| self.names.contains(name))?;
        parts.try_fold(&self.object, |value, part| {
            let fields = value.as_object()?;
            fields.get(part).or_else(|| {
                fields.iter().find(|(name, _)| usher_cel::escape_property(name).is_some_and(|escaped| escaped == part)).map(|(_, v)| v)
            })
        })
    }
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))
}

fn shown(value: &usher_cel::Value<'_>) -> String {
    value.to_json().map_or_else(|_| format!("({})", value.type_of()), |json| json.to_string())
}

/// Reads a file of YAML or JSON.
pub fn read(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    crate::schema::yaml::parse(&text).map(|document| document.value).map_err(|e| format!("{}: {e}", path.display()))
}

/// The schema of a version of a CustomResourceDefinition, the stored one if none is named.
pub fn schema(path: &Path, version: Option<&str>) -> Result<Arc<Schema>, String> {
    let definition = read(path)?;
    let versions = definition["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let chosen = versions.iter().find(|v| match version {
        Some(name) => v["name"] == name,
        None => v["storage"] == true,
    });
    let schema = chosen.map(|v| &v["schema"]["openAPIV3Schema"]).filter(|s| s.is_object());
    let schema = schema.ok_or_else(|| format!("{} has no schema for that version", path.display()))?;
    Schema::from_openapi(schema, true)
        .map(Arc::new)
        .ok_or_else(|| format!("the schema of {} has no types that an expression could use", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn session() -> Session {
        let object = json!({"metadata": {"name": "web", "labels": {"team": "a", "app.kubernetes.io/name": "web"}}, "spec": {"replicas": 3, "replicaNames": ["x"]}});
        Session::new(object, None)
    }

    fn text(answer: Answer) -> String {
        match answer {
            Answer::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_line_is_evaluated_typed_or_explained() {
        let session = session();
        assert_eq!(text(session.answer("object.spec.replicas + 1")), "4\n  int, cost 4");
        assert_eq!(text(session.answer(":type [1 + 1].size() > 1")), "bool, estimated cost 13 to 13");
        let explained = text(session.answer(":explain object.spec.replicas > 5"));
        assert!(explained.contains("object.spec.replicas = 3") && explained.contains("> 5 = false"), "{explained}");
        assert_eq!(session.answer(""), Answer::Nothing);
        assert_eq!(session.answer(":q"), Answer::Quit);
        assert!(matches!(session.answer(":nope"), Answer::Failed(text) if text.contains(":nope")));
        assert!(matches!(session.answer("foo"), Answer::Failed(text) if text.contains("undeclared reference to 'foo'")));
        assert!(matches!(session.answer("object.nope"), Answer::Failed(text) if text == "error: no such key: nope"));
    }

    #[test]
    fn completion_knows_the_fields_of_the_object_the_functions_and_the_commands() {
        let session = session();
        assert_eq!(session.complete("object.spec.repl"), (12, vec!["replace".into(), "replicaNames".into(), "replicas".into()]));
        let (at, words) = session.complete("size(object.metadata.labels.");
        assert_eq!(at, 28);
        assert!(words.contains(&"team".to_owned()) && words.contains(&"all".to_owned()), "{words:?}");
        assert_eq!(session.complete("1 + obj"), (4, vec!["object".into()]));
        assert!(session.complete("ip.isC").1.contains(&"isCanonical".to_owned()));
        assert_eq!(session.complete(":ex"), (0, vec![":explain ".into()]));
        assert_eq!(session.complete("é + obj").1, ["object"]);
    }

    #[test]
    fn with_a_schema_self_is_checked_against_it() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}});
        let session = Session::new(json!({"spec": {"replicas": 3}}), Schema::from_openapi(&schema, true).map(Arc::new));
        assert!(text(session.answer("self.spec.replicas < 5")).starts_with("true"));
        assert!(matches!(session.answer("self.spec.nope"), Answer::Failed(text) if text.contains("undefined field 'nope'")));
        assert!(session.complete("self.spec.").1.contains(&"replicas".to_owned()));
    }
}
