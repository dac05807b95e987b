//! Label and field selectors: parsed with the errors that a real server gives, and matched against objects.

use serde_json::Value;

use super::{Object, lookup, meta};

/// A label selector: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(pub Vec<Requirement>);

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// What must hold.
    pub operator: Operator,
    /// The values the operator speaks of.
    pub values: Vec<String>,
}

/// What a requirement asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl LabelSelector {
    /// Reads the query form: `a=b,c!=d,e in (f,g),!h`.
    pub fn parse(text: &str) -> Result<Self, String> {
        Parser { tokens: tokens(text), position: 0 }.requirements().map(LabelSelector)
    }

    /// Reads the object form: `matchLabels` and `matchExpressions`. Absent selects nothing (`None`), empty selects all.
    pub fn from_value(selector: &Value) -> Option<Self> {
        let map = selector.as_object()?;
        let mut out = Vec::new();
        for (key, value) in map.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            out.push(Requirement { key: key.clone(), operator: Operator::In, values: vec![value.as_str().unwrap_or_default().to_owned()] });
        }
        for expression in map.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let operator = match expression["operator"].as_str() {
                Some("In") => Operator::In,
                Some("NotIn") => Operator::NotIn,
                Some("Exists") => Operator::Exists,
                Some("DoesNotExist") => Operator::DoesNotExist,
                _ => return None,
            };
            let values = expression["values"].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect();
            out.push(Requirement { key: expression["key"].as_str().unwrap_or_default().to_owned(), operator, values });
        }
        Some(LabelSelector(out))
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A label without which it selects nothing, if there is one; no values mean any.
    pub fn needed(&self) -> Option<&Requirement> {
        self.0.iter().find(|requirement| matches!(requirement.operator, Operator::In | Operator::Exists))
    }

    /// Whether labels satisfy it; `get` finds a label's value.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| {
            let value = get(&requirement.key);
            match requirement.operator {
                Operator::In => value.is_some_and(|v| requirement.values.iter().any(|x| x == v)),
                Operator::NotIn => value.is_none_or(|v| requirement.values.iter().all(|x| x != v)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::GreaterThan | Operator::LessThan => {
                    let bound = requirement.values.first().and_then(|v| v.parse::<i64>().ok());
                    match (value.and_then(|v| v.parse::<i64>().ok()), bound) {
                        (Some(v), Some(b)) if requirement.operator == Operator::GreaterThan => v > b,
                        (Some(v), Some(b)) => v < b,
                        _ => false,
                    }
                }
            }
        })
    }

    /// Whether an object's labels satisfy it.
    pub fn matches_object(&self, object: &Object) -> bool {
        self.is_empty() || {
            let labels = object.labels();
            self.matches(|key| labels.iter().find(|(k, _)| &**k == key).map(|(_, v)| &**v))
        }
    }

    /// Whether the labels of a value (`metadata.labels`) satisfy it.
    pub fn matches_value(&self, object: &Value) -> bool {
        self.is_empty() || {
            let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
            self.matches(|key| labels.and_then(|l| l.get(key)).and_then(Value::as_str))
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Symbol(&'static str),
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::Word(word) => word,
            Token::Symbol(symbol) => symbol,
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        if rest.is_empty() {
            return out;
        }
        if let Some(symbol) = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"].into_iter().find(|s| rest.starts_with(*s)) {
            out.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
            continue;
        }
        let end = rest.find([' ', '\t', '\r', '\n', '=', '!', '(', ')', ',', '>', '<']).unwrap_or(rest.len());
        out.push(Token::Word(rest[..end].to_owned()));
        rest = &rest[end..];
    }
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.position)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.position).cloned();
        self.position += 1;
        token
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, String> {
        let mut out = Vec::new();
        if self.peek().is_none() {
            return Ok(out);
        }
        loop {
            match self.peek() {
                Some(Token::Word(_) | Token::Symbol("!")) => {
                    out.push(self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?);
                }
                Some(other) => return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text())),
                None => return Ok(out),
            }
            match self.next() {
                None => return Ok(out),
                Some(Token::Symbol(",")) => match self.peek() {
                    Some(Token::Word(_) | Token::Symbol("!")) => {}
                    other => return Err(format!("found '{}', expected: identifier after ','", other.map_or("", Token::text))),
                },
                Some(other) => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut negated = false;
        if self.peek() == Some(&Token::Symbol("!")) {
            negated = true;
            self.next();
        }
        let key = match self.next() {
            Some(Token::Word(word)) => word,
            other => return Err(format!("found '{}', expected: identifier", other.as_ref().map_or("", Token::text))),
        };
        label_key(&key)?;
        if negated {
            return Ok(Requirement { key, operator: Operator::DoesNotExist, values: Vec::new() });
        }
        if matches!(self.peek(), None | Some(Token::Symbol(","))) {
            return Ok(Requirement { key, operator: Operator::Exists, values: Vec::new() });
        }
        let token = self.next();
        let token_text = token.as_ref().map_or("", Token::text).to_owned();
        let (operator, values) = match token_text.as_str() {
            "in" => (Operator::In, self.values()?),
            "notin" => (Operator::NotIn, self.values()?),
            "=" | "==" => (Operator::In, vec![self.exact_value()?]),
            "!=" => (Operator::NotIn, vec![self.exact_value()?]),
            ">" => (Operator::GreaterThan, vec![self.exact_value()?]),
            "<" => (Operator::LessThan, vec![self.exact_value()?]),
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let mut values = values;
        values.sort();
        values.dedup();
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) && values[0].parse::<i64>().is_err() {
            return Err(format!("values[0]: Invalid value: {:?}: for 'Gt', 'Lt' operators, the value must be an integer", values[0]));
        }
        for (i, value) in values.iter().enumerate() {
            if let Some(problem) = label_value_problem(value) {
                return Err(format!("values[{i}][{key}]: Invalid value: {value:?}: {problem}"));
            }
        }
        Ok(Requirement { key, operator, values })
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        match self.next() {
            Some(Token::Symbol("(")) => {}
            other => return Err(format!("found '{}' expected: '('", other.as_ref().map_or("", Token::text))),
        }
        let mut out = Vec::new();
        let mut current: Option<String> = None;
        loop {
            match self.next() {
                Some(Token::Word(word)) => current = Some(word),
                Some(Token::Symbol(",")) => out.push(current.take().unwrap_or_default()),
                Some(Token::Symbol(")")) => {
                    out.push(current.take().unwrap_or_default());
                    return Ok(out);
                }
                other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.as_ref().map_or("", Token::text))),
            }
        }
    }

    fn exact_value(&mut self) -> Result<String, String> {
        match self.peek() {
            None | Some(Token::Symbol(",")) => Ok(String::new()),
            Some(Token::Word(_)) => Ok(self.next().map(|t| t.text().to_owned()).unwrap_or_default()),
            Some(other) => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }
}

fn label_key(key: &str) -> Result<(), String> {
    const CHARACTERS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
        (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let mut problems = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts.as_slice() {
        [name] => Some(*name),
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else if !is_subdomain(prefix) {
                problems.push(
                    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                     start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                        .to_owned(),
                );
            }
            Some(*name)
        }
        _ => {
            problems
                .push(format!("a valid label key {CHARACTERS} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"));
            None
        }
    };
    if let Some(name) = name {
        if name.is_empty() {
            problems.push("name part must be non-empty".to_owned());
        }
        if name.len() > 63 {
            problems.push("name part must be no more than 63 bytes".to_owned());
        }
        if !qualified_part(name) {
            problems.push(format!("name part {CHARACTERS}"));
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        // The path to a key is none.
        false => Err(format!("<nil>: Invalid value: {key:?}: {}", problems.join("; "))),
    }
}

fn is_subdomain(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(|b| inner(*b)) && bytes.last().is_some_and(|b| inner(*b)) && bytes.iter().all(|b| inner(*b) || *b == b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

fn qualified_part(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && bytes.iter().all(|b| inner(*b)),
        _ => false,
    }
}

/// What is wrong with a label's value, in a real server's words.
pub fn label_value_problem(value: &str) -> Option<&'static str> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes");
    }
    if value.is_empty() || qualified_part(value) {
        return None;
    }
    Some(
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
         alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
         '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    )
}

/// A field selector: all terms must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(pub Vec<FieldTerm>);

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    /// The dotted path.
    pub field: String,
    /// The value.
    pub value: String,
    /// Whether the field must have the value, or must not.
    pub equal: bool,
}

/// A value must escape what would end it.
fn check_escapes(value: &str) -> Result<(), String> {
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\\' | ',' | '=') => {}
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(format!("invalid field selector: invalid escape sequence: {sequence}"));
                }
            },
            ',' | '=' => return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c))),
            _ => {}
        }
    }
    Ok(())
}

impl FieldSelector {
    /// Reads the query form: `a=b,c!=d`, with `\` before a literal `,`, `=` or `\`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut out = Vec::new();
        for term in split_unescaped(text) {
            if term.is_empty() {
                continue;
            }
            let Some((field, equal, value)) = split_term(term) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
            };
            check_escapes(value)?;
            // Neither a field nor a value: nothing is asked for.
            if field.is_empty() && value.is_empty() {
                continue;
            }
            out.push(FieldTerm { field: field.to_owned(), value: unescape(value), equal });
        }
        Ok(FieldSelector(out))
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value that a field must have, if the selector says so.
    pub fn requires(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|term| term.equal && term.field == field).map(|term| term.value.as_str())
    }

    /// Whether an object's fields satisfy it. An absent field counts as empty, an absent boolean as false.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| (field_text(object, &term.field) == term.value) == term.equal)
    }
}

/// A field as a field selector compares it.
pub fn field_text(object: &Value, field: &str) -> String {
    match field {
        "metadata.name" => return meta(object, "name").to_owned(),
        "metadata.namespace" => return meta(object, "namespace").to_owned(),
        _ => {}
    }
    match lookup(object, field) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
        // Booleans and counters are never absent in a real server's typed objects.
        None if matches!(field, "spec.unschedulable" | "spec.hostNetwork") => "false".to_owned(),
        None if matches!(field, "status.replicas" | "status.successful") => "0".to_owned(),
        None => String::new(),
    }
}

fn split_unescaped(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                out.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (i, c) in term.char_indices() {
        let rest = &term[i..];
        match c {
            '!' if rest.starts_with("!=") => return Some((&term[..i], false, &rest[2..])),
            '=' if rest.starts_with("==") => return Some((&term[..i], true, &rest[2..])),
            '=' => return Some((&term[..i], true, &rest[1..])),
            _ => {}
        }
    }
    None
}

fn unescape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        if c == '\\' { out.extend(chars.next()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn selects(selector: &str, labels: Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches_value(&json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn every_operator_of_a_label_selector_selects_as_documented() {
        assert!(selects("a=b,c!=d", json!({"a": "b"})));
        assert!(!selects("a=b,c!=d", json!({"a": "b", "c": "d"})));
        assert!(selects("a in (b, c),!x", json!({"a": "c"})));
        assert!(!selects("a notin (b,c)", json!({"a": "c"})));
        assert!(selects("a notin (b,c)", json!({})));
        assert!(selects("a", json!({"a": ""})) && !selects("a", json!({})));
        assert!(selects("a>1,a<9", json!({"a": "5"})));
    }

    #[test]
    fn a_bad_selector_is_refused_in_a_real_servers_words() {
        assert_eq!(LabelSelector::parse("a in (").unwrap_err(), "unable to parse requirement: found '', expected: ',', ')' or identifier");
        assert!(
            LabelSelector::parse("a=-b-")
                .unwrap_err()
                .starts_with("unable to parse requirement: values[0][a]: Invalid value: \"-b-\": a valid label")
        );
        assert_eq!(FieldSelector::parse("foo").unwrap_err(), "invalid selector: 'foo'; can't understand 'foo'");
    }

    #[test]
    fn a_field_selector_compares_fields_as_text() {
        let pod = json!({"metadata": {"name": "x"}, "spec": {"nodeName": "n1"}});
        assert!(FieldSelector::parse("spec.nodeName=n1,metadata.name!=y").unwrap().matches(&pod));
        assert!(FieldSelector::parse("status.phase=").unwrap().matches(&pod));
        assert!(!FieldSelector::parse("spec.nodeName=n2").unwrap().matches(&pod));
    }
}
