//! Whole values of a real server's own types, as it shows them in errors and compares them in differences: every field under the name
//! that it has in Go, in Go's order, absent ones as `null` or as their type's zero. The types are a table.
//!
//! A line of the table is the name of a type and its fields. A field is its name, `:` and its name in the API where that is not the same
//! with a small first letter, and what it is: `"` a text, `#` a number, `!` a flag, `%` an amount, `?` a label selector, `*T` a `T` that may
//! be absent, `=T` one that may not, `[T` a list of them, `{T` a map of them, and nothing for what is shown as it is. The field `*` is the metadata.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use serde_json::Value;

const TABLE: &str = include_str!("typed/types.txt");
static TYPES: LazyLock<HashMap<&'static str, Vec<Member>>> = LazyLock::new(|| {
    let read = |line: &'static str| {
        let (name, members) = line.split_once(' ').unwrap_or((line, ""));
        (name, members.split(' ').filter(|member| !member.is_empty()).map(Member::read).collect())
    };
    TABLE.lines().map(read).collect()
});

struct Member {
    go: &'static str,
    name: String,
    kind: Kind,
}

enum Kind {
    Plain,
    Zero(&'static str),
    Selector,
    Metadata,
    Part(&'static str),
    Whole(&'static str),
    List(&'static str),
    Map(&'static str),
}

impl Member {
    fn read(member: &'static str) -> Member {
        if member == "*" {
            return Member { go: "", name: "metadata".into(), kind: Kind::Metadata };
        }
        let end = member.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, ':' | '-' | '$')).unwrap_or(member.len());
        let (names, kind) = member.split_at(end);
        let (go, name) = match names.split_once(':') {
            Some((go, name)) => (go, name.to_owned()),
            None => (names, names[..1].to_ascii_lowercase() + &names[1..]),
        };
        let kind = match kind.split_at_checked(1) {
            Some(("*", of)) => Kind::Part(of),
            Some(("=", of)) => Kind::Whole(of),
            Some(("[", of)) => Kind::List(of),
            Some(("{", of)) => Kind::Map(of),
            Some(("?", _)) => Kind::Selector,
            Some(("\"", _)) => Kind::Zero("\"\""),
            Some(("#", _)) => Kind::Zero("0"),
            Some(("!", _)) => Kind::Zero("false"),
            Some(("%", _)) => Kind::Zero("\"0\""),
            _ => Kind::Plain,
        };
        Member { go, name, kind }
    }
}

/// A value as it is shown. As text it is JSON in one line.
pub enum Shown {
    /// Something without parts.
    Leaf(String),
    /// A list.
    List(Vec<Shown>),
    /// A struct or a map.
    Fields(Vec<(String, Shown)>),
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shown::Leaf(text) => f.write_str(text),
            Shown::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { "," } else { "" })?;
                }
                f.write_str("]")
            }
            Shown::Fields(fields) => {
                f.write_str("{")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{}:{value}", if i > 0 { "," } else { "" }, Value::from(name.as_str()))?;
                }
                f.write_str("}")
            }
        }
    }
}

impl Shown {
    /// The value as JSON over many lines.
    fn lines(&self, indent: usize, out: &mut String) {
        let inner = " ".repeat(indent + 1);
        let mut body = |open: char, close: char, parts: Vec<(String, &Shown)>| {
            out.push(open);
            for (i, (name, value)) in parts.iter().enumerate() {
                out.push_str(if i > 0 { ",\n" } else { "\n" });
                out.push_str(&inner);
                out.push_str(name);
                value.lines(indent + 1, out);
            }
            if !parts.is_empty() {
                out.push('\n');
                out.push_str(&inner[1..]);
            }
            out.push(close);
        };
        match self {
            Shown::Leaf(text) => out.push_str(text),
            Shown::List(items) => body('[', ']', items.iter().map(|item| (String::new(), item)).collect()),
            Shown::Fields(fields) => {
                body('{', '}', fields.iter().map(|(name, value)| (format!("{}: ", Value::from(name.as_str())), value)).collect());
            }
        }
    }
}

fn plain(value: &Value) -> Shown {
    match value {
        Value::Object(fields) => Shown::Fields(fields.iter().map(|(name, value)| (name.clone(), plain(value))).collect()),
        Value::Array(items) => Shown::List(items.iter().map(plain).collect()),
        leaf => Shown::Leaf(leaf.to_string()),
    }
}

/// Fields of the API's own types, in their order; empty ones are left out.
fn in_order(value: &Value, names: &[&str]) -> Vec<(String, Shown)> {
    let given = |name: &&str| Some(((*name).to_owned(), plain(value.get(*name).filter(|v| !crate::schema::is_zero(v))?)));
    names.iter().filter_map(given).collect()
}

fn selector(value: &Value) -> Shown {
    let mut fields = in_order(value, &["matchLabels"]);
    if let Some(list) = value["matchExpressions"].as_array().filter(|list| !list.is_empty()) {
        let text = |item: &Value, name: &str| (name.to_owned(), plain(&item[name].as_str().unwrap_or_default().into()));
        let one = |item: &Value| {
            let mut fields = vec![text(item, "key"), text(item, "operator")];
            fields.append(&mut in_order(item, &["values"]));
            Shown::Fields(fields)
        };
        fields.push(("matchExpressions".into(), Shown::List(list.iter().map(one).collect())));
    }
    Shown::Fields(fields)
}

/// A value as one of the types.
pub fn show(value: &Value, of: &str) -> Shown {
    const METADATA: [&str; 6] = ["name", "generateName", "namespace", "labels", "annotations", "finalizers"];
    let Some(members) = TYPES.get(of) else { return plain(value) };
    let mut fields = Vec::with_capacity(members.len());
    for member in members {
        let given = value.get(&member.name).filter(|v| !v.is_null());
        let shown = match (&member.kind, given) {
            (Kind::Metadata, given) => {
                fields.append(&mut in_order(given.unwrap_or(&Value::Null), &METADATA));
                continue;
            }
            (Kind::Whole(of), given) => show(given.unwrap_or(&Value::Null), of),
            (Kind::Zero(zero), None) => Shown::Leaf((*zero).to_owned()),
            (_, None) => Shown::Leaf("null".into()),
            (Kind::Plain | Kind::Zero(_), Some(given)) => plain(given),
            (Kind::Selector, Some(given)) => selector(given),
            (Kind::Part(of), Some(given)) => show(given, of),
            (Kind::List(of), Some(given)) => list(given, of),
            (Kind::Map(of), Some(given)) => {
                let entries = given.as_object().into_iter().flatten();
                Shown::Fields(entries.map(|(name, value)| (name.clone(), show(value, of))).collect())
            }
        };
        fields.push((member.go.to_owned(), shown));
    }
    Shown::Fields(fields)
}

/// A list of values of one of the types.
pub fn list(value: &Value, of: &str) -> Shown {
    match value.as_array() {
        Some(items) => Shown::List(items.iter().map(|item| show(item, of)).collect()),
        None => Shown::Leaf("null".into()),
    }
}

/// The lines in which two values of a type differ, with a little around them.
pub fn difference(old: &Value, new: &Value, of: &str) -> String {
    let text = |value: &Value| {
        let mut text = String::new();
        show(value, of).lines(0, &mut text);
        text.push('\n');
        text
    };
    let (old, new) = (text(old), text(new));
    similar::TextDiff::from_lines(&old, &new).unified_diff().context_radius(3).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_type_that_a_field_is_of_is_in_the_table() {
        for (name, members) in TYPES.iter() {
            for member in members {
                if let Kind::Part(of) | Kind::Whole(of) | Kind::List(of) | Kind::Map(of) = member.kind {
                    assert!(TYPES.contains_key(of), "{name}.{}: {of}", member.go);
                }
            }
        }
    }

    #[test]
    fn values_have_every_field_of_their_type_in_its_order() {
        let affinity =
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}});
        let terms = r#"[{"MatchExpressions":[{"Key":"a","Operator":"In","Values":["b"]}],"MatchFields":null}]"#;
        assert_eq!(show(&affinity, "VolumeNodeAffinity").to_string(), format!(r#"{{"Required":{{"NodeSelectorTerms":{terms}}}}}"#));
        let (old, new) = (json!({"driver": "a", "volumeHandle": "h"}), json!({"driver": "b", "volumeHandle": "h"}));
        let shown = "@@ -1,5 +1,5 @@\n {\n- \"Driver\": \"a\",\n+ \"Driver\": \"b\",\n  \"VolumeHandle\": \"h\",\n  \"ReadOnly\": false,\n  \"FSType\": \"\",\n";
        assert_eq!(difference(&old, &new, "CSIPersistentVolumeSource"), shown);
        let template = json!({"metadata": {"labels": {"a": "b"}}});
        assert!(show(&template, "PodTemplateSpec").to_string().starts_with(r#"{"labels":{"a":"b"},"Spec":{"Volumes":null,"#));
    }
}
