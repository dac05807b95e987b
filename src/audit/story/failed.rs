//! Which parts of a policy's expression made it false, by the values that its parts were noted with.

use serde_json::{Map, Value};

/// The parts of an expression that made it false: they were false last (what a loop had before went well), nothing around them was
/// true all the same, and they contain no such part.
pub fn failed(detail: &Map<String, Value>) -> Vec<String> {
    let values = detail.get("values").and_then(Value::as_array);
    let mut last: Vec<(&str, &Value)> = Vec::new();
    for part in values.into_iter().flatten() {
        let Some(text) = part["expression"].as_str() else { continue };
        last.retain(|(known, _)| *known != text);
        last.push((text, &part["value"]));
    }
    let that_were = |wanted: bool| last.iter().filter(move |(_, value)| **value == wanted).map(|(text, _)| *text);
    // An expression that came out true, or not at all, was not false because of any part.
    let whole = detail.get("expression").and_then(Value::as_str).map_or("", str::trim);
    if !that_were(false).any(|text| text == whole) {
        return Vec::new();
    }
    let matters: Vec<&str> = that_were(false).filter(|text| !that_were(true).any(|around| has_part(around, text))).collect();
    let innermost = matters.iter().filter(|text| !matters.iter().any(|other| other != *text && has_part(text, other)));
    innermost.map(|text| (*text).to_owned()).collect()
}

/// Whether a text has another one as a part, and not as a piece of a longer name or number.
fn has_part(text: &str, part: &str) -> bool {
    let of_name = |c: char| c.is_alphanumeric() || c == '_';
    let joins = |left: Option<char>, right: Option<char>| left.is_some_and(of_name) && right.is_some_and(of_name);
    text.match_indices(part).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + part.len()..]);
        !joins(before.chars().next_back(), part.chars().next()) && !joins(part.chars().next_back(), after.chars().next())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_made_an_expression_false_is_named() {
        let named = |whole: &str, values: &[(&str, bool)]| {
            let values: Vec<Value> = values.iter().map(|(text, value)| json!({"expression": text, "value": value})).collect();
            failed(json!({"expression": whole, "values": values}).as_object().unwrap())
        };
        let either = [("a", false), ("b", true), ("a || b", true), ("c", false), ("(a || b) && c", false)];
        assert_eq!(named("(a || b) && c", &either), ["c"], "one of two is enough");
        assert_eq!(named("!(a || b)", &[("a", false), ("b", true), ("a || b", true), ("!(a || b)", false)]), ["!(a || b)"]);
        let rounds = [("c.x", false), ("!c.x", true), ("c.x", true), ("!c.x", false), ("l.all(c, !c.x)", false)];
        assert_eq!(named("l.all(c, !c.x)", &rounds), ["!c.x"], "the first round went well");
        let alike = [("a == 10", true), ("a == 1", false), ("a == 10 && a == 1", false)];
        assert_eq!(named("a == 10 && a == 1", &alike), ["a == 1"], "ten is not one");
        assert!(named("a", &[("a", true)]).is_empty());
    }
}
