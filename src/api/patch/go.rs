//! Values as Go prints them. Several messages of a real server carry a value in the form that Go's formatter gives it, and
//! clients match on them; this is those forms and nothing else.

use std::fmt::Write;

use serde_json::{Number, Value};

/// A value as `%v` prints it: `map[a:1 b:[x y]]`.
pub fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(&mut out, value);
    out
}

/// A value as `%#v` prints it: `map[string]interface {}{"a":1}`.
pub fn syntax(value: &Value) -> String {
    let mut out = String::new();
    write_syntax(&mut out, value);
    out
}

/// A string as `%q` prints it.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A patched object of a built-in kind as JSON: the levels that the patch went through are maps with sorted keys, everything else is as a
/// struct was written. `metadata` is the one whose order is told here.
pub fn patched(document: &Value, touched: &[&str]) -> String {
    let Some(fields) = document.as_object() else { return document.to_string() };
    let written = |(name, value): (&String, &Value)| {
        let value = match (name.as_str(), touched.contains(&name.as_str())) {
            ("metadata", false) => in_order(value, METADATA),
            _ => value.to_string(),
        };
        format!("{}:{value}", Value::from(name.as_str()))
    };
    format!("{{{}}}", fields.iter().map(written).collect::<Vec<_>>().join(","))
}

const METADATA: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];
const MANAGED_FIELDS: &[&str] = &["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];

fn in_order(value: &Value, order: &[&str]) -> String {
    let fields = order.iter().filter_map(|name| Some((*name, value.get(*name)?)));
    let written = fields.map(|(name, value)| match (name, value.as_array()) {
        ("managedFields", Some(entries)) => {
            let entries: Vec<String> = entries.iter().map(|entry| in_order(entry, MANAGED_FIELDS)).collect();
            format!("\"{name}\":[{}]", entries.join(","))
        }
        _ => format!("\"{name}\":{value}"),
    });
    format!("{{{}}}", written.collect::<Vec<_>>().join(","))
}

/// What the converter of maps says where the decoder of JSON would say that a type is wrong.
pub fn restored(error: &str) -> String {
    let told = || -> Option<String> {
        let (found, field) = error.strip_prefix("json: cannot unmarshal ")?.split_once(" into Go ")?;
        let wanted = field.rsplit_once(" of type ")?.1;
        let (kind, name) = match found.split(' ').next().unwrap_or_default() {
            "number" => ("int64", "int64"),
            "bool" => ("bool", "bool"),
            "array" => ("slice", "[]interface {}"),
            "object" => ("map", "map[string]interface {}"),
            _ => ("string", "string"),
        };
        Some(match wanted {
            wanted if wanted.starts_with("map[") => format!("cannot restore map from {kind}"),
            wanted if wanted.starts_with("[]") => format!("cannot restore slice from {kind}"),
            wanted if wanted.contains('.') => format!("cannot restore struct from: {kind}"),
            // Go can make a text of a number, though nobody wants it to.
            "string" if name == "int64" => "cannot convert int64 to string".to_owned(),
            wanted => format!("unrecognized type: {wanted}"),
        })
    };
    told().unwrap_or_else(|| error.to_owned())
}

/// Makes whole numbers that are written with a point or an exponent what they are.
pub fn whole_numbers(value: &mut Value) {
    const MOST: f64 = 9_007_199_254_740_991.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() <= MOST) {
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// The name of the type that Go's decoder gives a JSON value.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn write_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(value) => write_number(out, value),
        Value::String(value) => out.push_str(value),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                write_plain(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push_str("map[");
            for (i, (name, value)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                write_plain(out, value);
            }
            out.push(']');
        }
    }
}

fn write_syntax(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::String(value) => out.push_str(&quoted(value)),
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_syntax(out, item);
            }
            out.push('}');
        }
        Value::Object(fields) => {
            out.push_str("map[string]interface {}{");
            for (i, (name, value)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                out.push_str(&quoted(name));
                out.push(':');
                write_syntax(out, value);
            }
            out.push('}');
        }
        Value::Bool(_) | Value::Number(_) => write_plain(out, value),
    }
}

/// Go switches to an exponent outside of 1e-4 ≤ |x| < 1e21, and then writes at least two digits of it.
fn write_number(out: &mut String, number: &Number) {
    match number.as_f64() {
        Some(float) if number.is_f64() => {
            let magnitude = float.abs();
            if float == 0.0 || (1e-4..1e21).contains(&magnitude) {
                let _ = write!(out, "{float}");
            } else {
                let text = format!("{float:e}");
                let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let (sign, digits) = match exponent.strip_prefix('-') {
                    Some(digits) => ('-', digits),
                    None => ('+', exponent),
                };
                let _ = write!(out, "{mantissa}e{sign}{digits:0>2}");
            }
        }
        _ => {
            let _ = write!(out, "{number}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_print_as_go_prints_them() {
        assert_eq!(plain(&json!({"data": 5})), "map[data:5]");
        assert_eq!(plain(&json!({"b": [1, "x", null], "a": {"c": true}})), "map[a:map[c:true] b:[1 x <nil>]]");
        assert_eq!(plain(&json!([1.5, 2.0, 1e21, 1e-7])), "[1.5 2 1e+21 1e-07]");
        assert_eq!(syntax(&json!({"a": ["x", 1]})), r#"map[string]interface {}{"a":[]interface {}{"x", 1}}"#);
        assert_eq!(quoted("a\"b\n\u{1}"), r#""a\"b\n\x01""#);
    }
}
