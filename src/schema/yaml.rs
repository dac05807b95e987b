//! YAML as Kubernetes reads it: one document to JSON, with the booleans, octal numbers and merge keys of YAML 1.1, keys
//! turned to text, and a note of every key that is there twice. Nothing is known here of schemas.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, StrInput, Tag};
use serde_json::{Map, Number, Value};

/// Deeper documents are refused, as in JSON.
const MAX_DEPTH: usize = 120;
/// How many values aliases may add to a document. A few lines can otherwise unfold to gigabytes.
const MAX_ALIASED_VALUES: usize = 100_000;

/// A document and what is strictly wrong with it.
#[derive(Debug, PartialEq)]
pub struct Document {
    /// The value; `null` for an empty document.
    pub value: Value,
    /// `line 3: key "a" already set in map`, for every key that is there twice. The last one counts.
    pub duplicates: Vec<String>,
}

/// Reads the first document.
///
/// # Errors
/// A sentence that begins with `yaml: `, if it cannot be read.
pub fn parse(text: &str) -> Result<Document, String> {
    let mut reader = Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), duplicates: Vec::new(), aliased: 0 };
    let value = loop {
        let (event, line) = reader.next()?;
        match event {
            Event::StreamEnd => break Value::Null,
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
            event => break reader.value(event, line, 0)?,
        }
    };
    Ok(Document { value, duplicates: reader.duplicates })
}

struct Reader<'input> {
    parser: Parser<'input, StrInput<'input>>,
    anchors: HashMap<usize, Value>,
    duplicates: Vec<String>,
    aliased: usize,
}

impl<'input> Reader<'input> {
    /// The next event and the line it begins on.
    fn next(&mut self) -> Result<(Event<'input>, usize), String> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            Some(Err(error)) => Err(sentence(&error)),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    fn value(&mut self, event: Event<'input>, line: usize, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err("yaml: exceeded max depth".to_owned());
        }
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar(&text, style, tag.as_deref())),
            Event::Alias(anchor) => return self.alias(anchor),
            Event::SequenceStart(anchor, _) => (anchor, Value::Array(self.sequence(depth)?)),
            Event::MappingStart(anchor, _) => (anchor, Value::Object(self.mapping(depth)?)),
            _ => return Err(format!("yaml: line {line}: did not find expected node content")),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn alias(&mut self, anchor: usize) -> Result<Value, String> {
        let Some(value) = self.anchors.get(&anchor) else {
            return Err("yaml: unknown anchor referenced".to_owned());
        };
        self.aliased = self.aliased.saturating_add(weight(value));
        if self.aliased > MAX_ALIASED_VALUES {
            return Err("yaml: document contains excessive aliasing".to_owned());
        }
        Ok(value.clone())
    }

    fn sequence(&mut self, depth: usize) -> Result<Vec<Value>, String> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, line) => items.push(self.value(event, line, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Map<String, Value>, String> {
        let mut map = Map::new();
        let mut merged = Vec::new();
        loop {
            let (event, line) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, _) if text == "<<");
            let key = key(&self.value(event, line, depth + 1)?)?;
            let (event, at) = self.next()?;
            let value = self.value(event, at, depth + 1)?;
            if merge {
                merged.push(value);
            } else if map.insert(key.clone(), value).is_some() {
                self.duplicates.push(format!("line {line}: key {key:?} already set in map"));
            }
        }
        for value in merged {
            merge_into(&mut map, value)?;
        }
        Ok(map)
    }
}

/// `<<` adds what is not there, from one map or from several, of which the first counts.
fn merge_into(map: &mut Map<String, Value>, from: Value) -> Result<(), String> {
    match from {
        Value::Object(fields) => {
            for (key, value) in fields {
                map.entry(key).or_insert(value);
            }
            Ok(())
        }
        Value::Array(maps) if maps.iter().all(Value::is_object) => maps.into_iter().try_for_each(|m| merge_into(map, m)),
        _ => Err("yaml: map merge requires map or sequence of maps as the value".to_owned()),
    }
}

/// JSON has only text as keys.
fn key(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(yes) => Ok(yes.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null => Ok("null".to_owned()),
        Value::Array(_) | Value::Object(_) => Err("yaml: invalid map key".to_owned()),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    match tag.filter(|tag| tag.is_yaml_core_schema()).map(|tag| tag.suffix.as_str()) {
        Some("str" | "binary") => return text.into(),
        Some("null") => return Value::Null,
        Some("int" | "float" | "bool") => return plain(text),
        _ => {}
    }
    if style == ScalarStyle::Plain { plain(text) } else { text.into() }
}

/// What an unquoted word means.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => return true.into(),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return text.into();
    }
    number(text).map_or_else(|| text.into(), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let digits = text.replace('_', "");
    let (negative, unsigned) = match digits.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, digits.strip_prefix('+').unwrap_or(&digits)),
    };
    if let Some(magnitude) = whole(unsigned) {
        return match negative {
            false => Some(magnitude.into()),
            true => 0i64.checked_sub_unsigned(magnitude).map(Number::from),
        };
    }
    // Only what looks like a decimal fraction is one; `1:30`, `1.2.3` and dates are text.
    let looks_decimal = !unsigned.is_empty()
        && unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.bytes().any(|b| b.is_ascii_digit())
        && unsigned.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    let value: f64 = digits.parse().ok().filter(|_| looks_decimal)?;
    if value.fract() == 0.0 && value.abs() < 1e15 { Some(Number::from(value as i64)) } else { Number::from_f64(value) }
}

/// A whole number in any of the four bases; a leading zero means octal.
fn whole(digits: &str) -> Option<u64> {
    let base = |prefixes: [&str; 2], radix| {
        let rest = prefixes.iter().find_map(|p| digits.strip_prefix(p)).filter(|rest| !rest.starts_with(['+', '-']))?;
        u64::from_str_radix(rest, radix).ok()
    };
    base(["0x", "0X"], 16).or_else(|| base(["0b", "0B"], 2)).or_else(|| base(["0o", "0O"], 8)).or_else(|| match digits {
        _ if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) => None,
        _ if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8).ok(),
        _ => digits.parse().ok(),
    })
}

fn weight(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(weight).sum::<usize>(),
        _ => 1,
    }
}

/// The error in the words that clients know. Line numbers are those of the old library, which leaves out the first.
fn sentence(error: &ScanError) -> String {
    let info = error.info();
    let words = if info.contains("flow mapping") || info.contains(", or }") || info.contains("',' or '}'") {
        "did not find expected ',' or '}'"
    } else if info.contains("flow sequence") {
        "did not find expected ',' or ']'"
    } else if info.contains("mapping values are not allowed") {
        "mapping values are not allowed in this context"
    } else if info.contains("tab") {
        "found character that cannot start any token"
    } else if info.contains("block mapping") || info.contains("expected <block end>") {
        "did not find expected key"
    } else if info.contains("simple key") || info.contains("':'") {
        "could not find expected ':'"
    } else {
        info
    };
    match error.marker().line() {
        0 | 1 => format!("yaml: {words}"),
        line => format!("yaml: line {line}: {words}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Value {
        parse(text).expect("yaml").value
    }

    #[test]
    fn booleans_are_those_of_yaml_1_1() {
        assert_eq!(value("[yes, No, on, OFF, y, n, 'yes', \"on\"]"), json!([true, false, true, false, true, false, "yes", "on"]));
    }

    #[test]
    fn numbers_may_be_octal_hexadecimal_and_have_underscores() {
        assert_eq!(value("[0644, 0o644, 0x1F, 0b11, 1_000, -5, +7, 1.5, 1e3, 1.0]"), json!([420, 420, 31, 3, 1000, -5, 7, 1.5, 1000, 1]));
        assert_eq!(
            value("[1.2.3, 2024-01-01, 1:30, 10.96.0.1, 0899, 1Gi]"),
            json!(["1.2.3", "2024-01-01", "1:30", "10.96.0.1", 899, "1Gi"])
        );
    }

    #[test]
    fn keys_become_text_and_duplicates_are_noted_with_their_line() {
        let document = parse("1: a\ntrue: b\nk: c\nk: d\n").expect("yaml");
        assert_eq!(document.value, json!({"1": "a", "true": "b", "k": "d"}));
        assert_eq!(document.duplicates, ["line 4: key \"k\" already set in map"]);
    }

    #[test]
    fn anchors_aliases_and_merge_keys_unfold() {
        assert_eq!(
            value("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\nc: *x\n"),
            json!({"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}, "c": {"p": 1, "q": 2}})
        );
    }

    #[test]
    fn a_billion_laughs_are_refused() {
        let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for i in 1..12 {
            let inner = vec![format!("*a{}", i - 1); 10].join(",");
            text.push_str(&format!("a{i}: &a{i} [{inner}]\n"));
        }
        assert_eq!(parse(&text).expect_err("too much"), "yaml: document contains excessive aliasing");
    }

    #[test]
    fn deep_and_broken_documents_are_refused() {
        assert!(parse(&"[".repeat(5000)).is_err());
        assert_eq!(parse("{a: b: c").expect_err("broken"), "yaml: did not find expected ',' or '}'");
        assert_eq!(value(""), Value::Null);
        assert_eq!(value("---\na: |\n  x\n  y\n"), json!({"a": "x\ny\n"}));
    }
}
