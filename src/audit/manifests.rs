//! Secrets that somebody has written down as text, such as a manifest in a ConfigMap: JSON or YAML, one document or several, as it is or in
//! base64. Only whether there is one in a text is found out here; where there is, nothing of the text is told.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;
use serde_json::Value;

use super::redact::{MASK, is_secret};
use crate::schema::yaml;

/// How a body in JSON shows that a text in it may have one: YAML names the kind without quotes or in single ones, and base64 as it looks
/// where the name begins at the first, second or third byte of a group of three. Double quotes are those of JSON.
pub const BEGINNINGS: [&str; 5] = [": Secret", "'Secret", ENCODED[0], ENCODED[1], ENCODED[2]];

const ENCODED: [&str; 3] = ["U2VjcmV0", "NlY3Jld", "TZWNyZX"];

/// No manifest of a Secret is shorter.
const SHORTEST: usize = 20;

/// How many texts may be in one another. Nobody writes more, and each is read once more.
const DEEPEST: usize = 4;

/// Whether a text tells the data of a Secret.
pub fn tell(text: &str) -> bool {
    tells(text, 0)
}

fn tells(text: &str, depth: usize) -> bool {
    let text = text.trim_start();
    if text.len() < SHORTEST {
        return false;
    }
    let json = text.starts_with(['{', '[', '"']);
    match text.contains("Secret") || json && text.contains("\\u00") {
        true if depth > DEEPEST => true,
        true => json && in_json(text, depth) || in_yaml(text, depth),
        false => in_base64(text, depth),
    }
}

/// Documents one behind the other, as far as they can be read.
fn in_json(text: &str, depth: usize) -> bool {
    let documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    documents.map_while(Result::ok).any(|document| holds(&document, false, depth))
}

fn in_yaml(text: &str, depth: usize) -> bool {
    static KIND: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"\bkind["']?\s*:\s*["']?Secret(List)?["']?\s*(?:[,}#\r\n]|$)"#).ok());
    static DATA: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r#"\b(data|stringData)["']?\s*:"#).ok());
    static SEPARATOR: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?m)^---(?:\s|$)").ok());
    let (Some(kind), Some(data), Some(separator)) = (&*KIND, &*DATA, &*SEPARATOR) else { return true };
    kind.is_match(text)
        && separator.split(text).filter(|document| kind.is_match(document)).any(|document| match yaml::parse(document) {
            Ok(read) => holds(&read.value, false, depth),
            // The template of one is no YAML yet, and what it puts there may stand in it.
            Err(_) => data.is_match(document),
        })
}

/// A text that is nothing else, perhaps in lines.
fn in_base64(text: &str, depth: usize) -> bool {
    if !ENCODED.iter().any(|encoded| text.contains(encoded)) {
        return false;
    }
    let letters: String = text.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
    STANDARD.decode(letters).ok().and_then(|bytes| String::from_utf8(bytes).ok()).is_some_and(|plain| tells(&plain, depth + 1))
}

/// Whether there is a Secret with data in a value, or a text that tells one.
fn holds(value: &Value, secret: bool, depth: usize) -> bool {
    match value {
        Value::Object(map) => {
            let secret = secret || is_secret(value);
            let told = |field: &str| secret && map.get(field).is_some_and(is_told);
            told("data")
                || told("stringData")
                || map.iter().any(|(key, part)| match part {
                    Value::Array(items) if key == "items" => items.iter().any(|item| holds(item, secret, depth)),
                    _ => holds(part, false, depth),
                })
        }
        Value::Array(items) => items.iter().any(|item| holds(item, false, depth)),
        Value::String(text) => tells(text, depth + 1),
        _ => false,
    }
}

/// Whether data says more than that something was there.
fn is_told(data: &Value) -> bool {
    match data {
        Value::Object(map) => map.values().any(|value| !value.is_null() && value != MASK),
        other => !other.is_null() && other != MASK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  password: hunter2\n";
    const JSON: &str = r#"{"apiVersion": "v1", "kind": "Secret", "data": {"k": "djE="}}"#;

    #[test]
    fn a_secret_is_found_in_json_and_yaml_alone_in_lists_and_among_other_documents() {
        for text in [
            YAML.to_owned(),
            JSON.to_owned(),
            format!("\n[{JSON}]"),
            format!("{{\"kind\": \"ConfigMap\"}}\n{JSON}"),
            format!("---\nkind: ConfigMap\ndata: {{a: b}}\n---\n{YAML}"),
            format!("# a comment\r\n---\r\n{}", YAML.replace('\n', "\r\n")),
            "kind: \"Secret\" # of the core\ndata:\n  k: djE=\n".to_owned(),
            "stringData: {k: v}\n'kind': 'Secret'".to_owned(),
            "{kind: Secret, apiVersion: v1, data: {k: djE=}}".to_owned(),
            "kind: List\nitems:\n- kind: Secret\n  data:\n    k: djE=\n".to_owned(),
            "kind: SecretList\nitems:\n- data:\n    k: djE=\n".to_owned(),
            "kind: Secret\nstringData:\n  password: {{ .Values.password | default \"hunter2\" }}\n".to_owned(),
        ] {
            assert!(tell(&text), "{text}");
            assert!(tell(&STANDARD.encode(&text)), "{text}");
            assert!(tell(&Value::from(text.as_str()).to_string()), "{text}");
            let lines: Vec<String> =
                STANDARD.encode(&text).as_bytes().chunks(10).map(|c| String::from_utf8_lossy(c).into_owned()).collect();
            // A name that a line ends in is not looked for.
            let whole = lines.iter().any(|line| ENCODED.iter().any(|encoded| line.contains(encoded)));
            assert_eq!(tell(&lines.join("\n")), whole, "{text}");
        }
        assert!(tell(r#"{"kind": "\u0053ecret", "data": {"k": "djE="}}"#));
    }

    #[test]
    fn what_only_speaks_of_secrets_is_told() {
        for text in [
            "a Secret, and its data: none",
            "kind: Secret\nname: referred-to\n",
            "valuesFrom:\n- kind: Secret\n  name: a\ndata:\n  b: c\n",
            "kind: SecretStore\ndata: {k: v}\n",
            "apiVersion: example.com/v1\nkind: Secret\ndata: {k: v}\n",
            "apiVersion: v1\nkind: Secret\ndata: {k: '[redacted]', gone: null}\n",
            r#"{"kind": "Secret", "metadata": {"name": "s"}}"#,
            "kind: ConfigMap\ndata: {k: Secret}\n---\nkind: Secret\nmetadata: {name: s}\n",
            "kind: Secret",
        ] {
            assert!(!tell(text), "{text}");
            assert!(!tell(&STANDARD.encode(text)), "{text}");
        }
    }

    #[test]
    fn a_text_in_a_text_without_end_is_not_read_without_end() {
        let mut text = YAML.to_owned();
        for _ in 0..300 {
            text = format!("a: |\n{}", text.lines().map(|line| format!(" {line}\n")).collect::<String>());
        }
        assert!(tell(&text));
        let mut deep = YAML.to_owned();
        for _ in 0..DEEPEST {
            deep = STANDARD.encode(deep);
        }
        // What is encoded twice no longer shows that there is a name in it.
        assert!(!tell(&deep));
        assert!(!tell(&format!("{}Secret", "[".repeat(1 << 20))));
    }
}
