//! Writes a value as YAML, as a real server answers `Accept: application/yaml`: block style, keys in order, strings quoted only
//! where a reader would take them for something else.

use serde_json::Value;

/// The document.
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    node(&mut out, value, 0, false);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn node(out: &mut String, value: &Value, indent: usize, in_list: bool) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (i, (key, value)) in map.iter().enumerate() {
                if i > 0 || !in_list {
                    pad(out, indent);
                }
                scalar(out, key);
                out.push(':');
                child(out, value, indent);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                pad(out, indent);
                out.push_str("- ");
                match item {
                    Value::Object(map) if !map.is_empty() => node(out, item, indent + 2, true),
                    Value::Array(inner) if !inner.is_empty() => {
                        out.truncate(out.len() - 1);
                        out.push('\n');
                        node(out, item, indent + 2, false);
                    }
                    other => leaf(out, other),
                }
            }
        }
        other => leaf(out, other),
    }
}

fn child(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            node(out, value, indent + 2, false);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            node(out, value, indent, false);
        }
        other => {
            out.push(' ');
            leaf(out, other);
        }
    }
}

fn leaf(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => scalar(out, text),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        other => out.push_str(&other.to_string()),
    }
    out.push('\n');
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn scalar(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
    } else {
        // A JSON string is a YAML string.
        out.push_str(&Value::from(text).to_string());
    }
}

fn is_plain(text: &str) -> bool {
    let first_is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '_'));
    let word = text.to_ascii_lowercase();
    let is_word = matches!(word.as_str(), "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null");
    let inner_is_plain = text.chars().all(|c| c.is_ascii_graphic() || c == ' ') && !text.contains(": ") && !text.contains(" #");
    let last_is_plain = !text.ends_with([':', ' ']);
    // The one dot is the name that managedFields have for the thing itself.
    text == "." || first_is_plain && !is_word && inner_is_plain && last_is_plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_reads_back_as_the_same_value() {
        let value = json!({
            "apiVersion": "v1", "kind": "X", "empty": {}, "none": [], "n": null, "bool": true, "text": "yes", "number": "1",
            "list": [{"a": 1, "b": [1, 2]}, "x: y", [["deep"]], {}], "multi": "a\nb", "key: odd": "#", ".": {}, "k:{\"name\":\"a\"}": {"it's": "a #b", "c#d": "e, [f]"}, "time": "2026-01-01T00:00:00Z",
        });
        let read = crate::schema::yaml::parse(&write(&value)).unwrap();
        assert_eq!(read.value, value);
    }
}
