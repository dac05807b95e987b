//! How a real server shows a value of its own types in an error: as JSON with the names of Go's fields, every field of the
//! type in its order, absent ones as `null` or as their type's zero.

use serde_json::Value;

/// A field: its name in Go, its name in the API, and what it is.
pub struct Field {
    go: &'static str,
    name: &'static str,
    kind: Kind,
}

enum Kind {
    /// Shown as it is; `null` where it is absent.
    Plain,
    /// An absent one is the given zero.
    Zero(&'static str),
    /// Another of Go's structs behind a pointer.
    Part(&'static [Field]),
    /// A list of Go's structs.
    List(&'static [Field]),
    /// Another of Go's structs in place.
    Inline(&'static [Field]),
}

impl Field {
    /// A pointer, a list or a map.
    pub const fn plain(go: &'static str, name: &'static str) -> Field {
        Field { go, name, kind: Kind::Plain }
    }

    /// A text.
    pub const fn text(go: &'static str, name: &'static str) -> Field {
        Field { go, name, kind: Kind::Zero("\"\"") }
    }

    /// A number.
    pub const fn number(go: &'static str, name: &'static str) -> Field {
        Field { go, name, kind: Kind::Zero("0") }
    }

    /// A flag.
    pub const fn flag(go: &'static str, name: &'static str) -> Field {
        Field { go, name, kind: Kind::Zero("false") }
    }

    /// A pointer to a struct.
    pub const fn part(go: &'static str, name: &'static str, fields: &'static [Field]) -> Field {
        Field { go, name, kind: Kind::Part(fields) }
    }

    /// A list of structs.
    pub const fn list(go: &'static str, name: &'static str, fields: &'static [Field]) -> Field {
        Field { go, name, kind: Kind::List(fields) }
    }

    /// A struct in place.
    pub const fn inline(go: &'static str, name: &'static str, fields: &'static [Field]) -> Field {
        Field { go, name, kind: Kind::Inline(fields) }
    }
}

/// A value as its type.
pub fn show(value: &Value, fields: &[Field]) -> String {
    let one = |field: &Field| {
        let given = value.get(field.name).filter(|v| !v.is_null());
        let shown = match (&field.kind, given) {
            (Kind::Plain, None) | (Kind::Part(_) | Kind::List(_), None) => "null".to_owned(),
            (Kind::Zero(zero), None) => (*zero).to_owned(),
            (Kind::Plain | Kind::Zero(_), Some(given)) => given.to_string(),
            (Kind::Part(fields) | Kind::Inline(fields), given) => show(given.unwrap_or(&Value::Null), fields),
            (Kind::List(fields), Some(given)) => show_list(given, fields),
        };
        format!("{:?}:{shown}", field.go)
    };
    format!("{{{}}}", fields.iter().map(one).collect::<Vec<_>>().join(","))
}

/// A list of values as their type.
pub fn show_list(list: &Value, fields: &[Field]) -> String {
    match list.as_array() {
        None => "null".to_owned(),
        Some(list) => format!("[{}]", list.iter().map(|item| show(item, fields)).collect::<Vec<_>>().join(",")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_of_the_type_is_shown_in_its_order() {
        const INNER: &[Field] = &[Field::text("A", "a"), Field::number("N", "n")];
        const OUTER: &[Field] = &[Field::plain("P", "p"), Field::part("In", "in", INNER), Field::list("L", "l", INNER)];
        assert_eq!(show(&json!({"in": {"n": 3}}), OUTER), r#"{"P":null,"In":{"A":"","N":3},"L":null}"#);
        assert_eq!(show(&json!({"p": true, "l": [{}]}), OUTER), r#"{"P":true,"In":null,"L":[{"A":"","N":0}]}"#);
    }
}
