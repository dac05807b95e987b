//! The shapes of names: labels and subdomains of DNS, qualified names, keys. Each check gives the sentences of a real server,
//! or nothing if the name is right. No regular expressions are run: these checks are on the way of every write.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const UNDERSCORE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// The sentences about a name that is wrong.
pub type Wrong = Vec<String>;

/// A check of one name.
pub type Check = fn(&str) -> Wrong;

/// Names of objects are counted in characters, keys and values of labels in bytes: so say the two libraries of a real server.
fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn too_many_bytes(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

fn is_label(name: &str) -> bool {
    let bytes = name.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn is_qualified_part(name: &str) -> bool {
    let bytes = name.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn bounded(name: &str, max: usize, right: bool, sentence: &str) -> Wrong {
    let mut wrong = Vec::new();
    if name.len() > max {
        wrong.push(too_long(max));
    }
    if !right {
        wrong.push(sentence.to_owned());
    }
    wrong
}

/// `example.com`.
pub fn subdomain(name: &str) -> Wrong {
    bounded(name, 253, is_subdomain(name), SUBDOMAIN)
}

/// `Example.com`.
pub fn caseless_subdomain(name: &str) -> Wrong {
    let sentence = SUBDOMAIN
        .replace("a lowercase RFC 1123", "an RFC 1123")
        .replace("lower case alphanumeric", "alphanumeric")
        .replace("'example.com'", "'Example.com'");
    let told = bounded(name, 253, is_subdomain(&name.to_ascii_lowercase()), &sentence);
    told.into_iter().map(|why| if why == too_long(253) { too_many_bytes(253) } else { why }).collect()
}

/// `my-name`.
pub fn label(name: &str) -> Wrong {
    let sentence = if is_subdomain(name) { "must not contain dots" } else { LABEL };
    bounded(name, 63, is_label(name), sentence)
}

/// A label as newer rules tell of it.
pub fn label_in_bytes(name: &str) -> Wrong {
    label(name).into_iter().map(|why| if why == too_long(63) { too_many_bytes(63) } else { why }).collect()
}

/// `_dmarc.example.com`: what a resolver searches may begin with an underscore.
pub fn subdomain_with_underscore(name: &str) -> Wrong {
    let part = |part: &str| {
        let part = part.strip_prefix('_').unwrap_or(part).as_bytes();
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(part.first())
            && edge(part.last())
            && part.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
    };
    bounded(name, 253, name.split('.').all(part), UNDERSCORE)
}

/// The name of an HTTP header.
pub fn http_header(name: &str) -> Wrong {
    match !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        true => Vec::new(),
        false => vec![HEADER.to_owned()],
    }
}

/// `10%`.
pub fn percent(text: &str) -> Wrong {
    match text.strip_suffix('%').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
        true => Vec::new(),
        false => vec![PERCENT.to_owned()],
    }
}

/// `my-name`, beginning with a letter.
pub fn label_1035(name: &str) -> Wrong {
    bounded(name, 63, is_label(name) && name.as_bytes().first().is_some_and(u8::is_ascii_lowercase), LABEL_1035)
}

/// A subdomain whose first label is `*`.
pub fn wildcard_subdomain(name: &str) -> Wrong {
    bounded(name, 253, name.strip_prefix("*.").is_some_and(is_subdomain), WILDCARD)
}

/// A name to which something will be added: it may end in a dash.
pub fn masked(name: &str) -> String {
    match name.strip_suffix('-').filter(|rest| !rest.is_empty()) {
        // The last two bytes give way to a letter; where they do not begin a character the name is wrong anyway.
        Some(rest) => format!("{}a", rest.get(..rest.len() - 1).unwrap_or(rest)),
        None => name.to_owned(),
    }
}

/// Anything that can be one part of a URL's path.
pub fn path_segment(name: &str) -> Wrong {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => ['/', '%'].iter().filter(|c| name.contains(**c)).map(|c| format!("may not contain '{c}'")).collect(),
    }
}

/// Names that something else decides about.
pub fn any(_: &str) -> Wrong {
    Vec::new()
}

/// `example.com/MyName` or `MyName`.
pub fn qualified(name: &str) -> Wrong {
    let mut wrong = Vec::new();
    let part = match name.split_once('/') {
        None => name,
        Some((prefix, part)) if !part.contains('/') => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(subdomain(prefix).into_iter().map(|why| format!("prefix part {why}")));
            }
            part
        }
        Some(_) => {
            return vec![format!(
                "a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if part.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if part.len() > 63 {
        wrong.push(format!("name part {}", too_many_bytes(63)));
    }
    if !is_qualified_part(part) {
        wrong.push(format!("name part {QUALIFIED}"));
    }
    wrong
}

/// The value of a label.
pub fn label_value(value: &str) -> Wrong {
    let mut wrong = Vec::new();
    if value.len() > 63 {
        wrong.push(too_many_bytes(63));
    }
    if !value.is_empty() && !is_qualified_part(value) {
        wrong.push(VALUE.to_owned());
    }
    wrong
}

/// The key of a ConfigMap or Secret.
pub fn config_key(key: &str) -> Wrong {
    let right = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    let mut wrong = bounded(key, 253, right, KEY);
    match key {
        "." | ".." => wrong.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

/// The name of an environment variable.
pub fn environment_variable(name: &str) -> Wrong {
    if name.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    match name.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        true => Vec::new(),
        false => vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()],
    }
}

/// The name of a port, as IANA has them.
pub fn port_name(name: &str) -> Wrong {
    let mut wrong = Vec::new();
    if name.len() > 15 {
        wrong.push(too_long(15));
    }
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_owned());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_names_have_at_most_one_prefix() {
        assert!(qualified("example.com/MyName").is_empty() && qualified("a_b.c").is_empty());
        assert_eq!(qualified("/x"), ["prefix part must be non-empty"]);
        assert_eq!(qualified("a/").len(), 2);
        assert!(qualified("a/b/c")[0].starts_with("a valid label key must consist"));
    }

    #[test]
    fn names_of_several_labels_are_subdomains_but_no_labels() {
        assert!(subdomain("a.b-c.1").is_empty() && !label("a.b").is_empty());
        assert!(!subdomain("a..b").is_empty() && !subdomain("").is_empty() && !subdomain("-a").is_empty());
        assert!(label_1035("1a") != Wrong::new() && label("1a").is_empty());
        assert_eq!(subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
    }
}
