//! Named formats: the checks that Kubernetes makes of names, labels, dates and so on, with its messages.

use std::sync::Arc;

use crate::declarations::{Declaration, declare};
use crate::error::no_such_overload;
use crate::library::Opaque;
use crate::library::urls::Url;
use crate::meter::Meter;
use crate::operations::Answer;
use crate::time::{Timestamp, days_in_month};
use crate::value::Value;

macro_rules! formats {
    ($($function:ident = $name:literal: $shown:literal, $size:literal, $validate:expr;)*) => {
        $(fn $function<'a>(_: &mut Meter, _: &[Value<'a>]) -> Answer<'a> {
            static FORMAT: NamedFormat = NamedFormat { name: $shown, regex_size: $size, validate: $validate };
            Ok(Value::Opaque(Opaque::Format(&FORMAT)))
        })*

        pub(crate) const DECLARATIONS: &[Declaration] = &[
            declare("validate", "format-validate", "kubernetes.NamedFormat.(string) -> optional_type(list(string))", validate),
            declare("format.named", "format-named", "(string) -> optional_type(kubernetes.NamedFormat)", named),
            $(declare(concat!("format.", $name), concat!("format.", $name), "() -> kubernetes.NamedFormat", $function),)*
        ];

        fn by_name(meter: &mut Meter, name: &str) -> Option<Answer<'static>> {
            match name {
                $($name => Some($function(meter, &[])),)*
                _ => None,
            }
        }
    };
}

formats! {
    dns1123_label = "dns1123Label": "DNS1123Label", 30, |s| dns1123_label_errors(s);
    dns1123_subdomain = "dns1123Subdomain": "DNS1123Subdomain", 60, |s| dns1123_subdomain_errors(s);
    dns1035_label = "dns1035Label": "DNS1035Label", 30, |s| dns1035_label_errors(s);
    qualified_name = "qualifiedName": "QualifiedName", 60, |s| qualified_name_errors(s);
    dns1123_label_prefix = "dns1123LabelPrefix": "DNS1123LabelPrefix", 30, |s| dns1123_label_errors(&mask_trailing_dash(s));
    dns1123_subdomain_prefix = "dns1123SubdomainPrefix": "DNS1123SubdomainPrefix", 60, |s| dns1123_subdomain_errors(&mask_trailing_dash(s));
    dns1035_label_prefix = "dns1035LabelPrefix": "DNS1035LabelPrefix", 30, |s| dns1035_label_errors(&mask_trailing_dash(s));
    label_value = "labelValue": "LabelValue", 40, |s| label_value_errors(s);
    uri = "uri": "URI", 1103, |s| Url::parse(s).err().into_iter().collect();
    uuid = "uuid": "uuid", 72, |s| unless(is_uuid(s), "does not match the UUID format");
    byte = "byte": "byte", 84, |s| unless(is_base64(s), "invalid base64");
    date = "date": "date", 72, |s| unless(is_date(s), "invalid date");
    datetime = "datetime": "datetime", 72, |s| unless(is_datetime(s), "invalid datetime");
}

/// A named format.
#[derive(Debug)]
pub struct NamedFormat {
    /// Its name, as Kubernetes shows it.
    pub name: &'static str,
    /// The size of the expression that a check is charged for.
    pub(crate) regex_size: u64,
    validate: fn(&str) -> Vec<String>,
}

impl PartialEq for NamedFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

fn validate<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Opaque(Opaque::Format(format)), Value::String(text)] = args else {
        return Err(no_such_overload());
    };
    let errors = (format.validate)(text);
    if errors.is_empty() {
        return Ok(Value::Optional(None));
    }
    let list = Value::list(errors.into_iter().map(Value::string).collect());
    Ok(Value::Optional(Some(Arc::new(list))))
}

fn named<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(name)] = args else {
        return Err(no_such_overload());
    };
    match by_name(meter, name) {
        Some(format) => Ok(Value::Optional(Some(Arc::new(format?)))),
        None => Ok(Value::Optional(None)),
    }
}

fn unless(valid: bool, message: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![message.to_owned()] }
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

fn regex_error(message: &str, examples: &[&str], regex: &str) -> String {
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn mask_trailing_dash(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let end = rest.char_indices().next_back().map_or(0, |(at, _)| at);
            format!("{}a", &rest[..end])
        }
        _ => name.to_owned(),
    }
}

fn lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// A label of lower case letters, digits and inner dashes.
pub(crate) fn is_dns1123_label(text: &str) -> bool {
    let b = text.as_bytes();
    let ends = b.first().copied().is_some_and(lower_alphanumeric) && b.last().copied().is_some_and(lower_alphanumeric);
    ends && b.iter().all(|c| lower_alphanumeric(*c) || *c == b'-')
}

fn is_dns1123_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns1123_label)
}

/// Letters, digits and inner `-`, `_` and `.`.
fn is_name(text: &str) -> bool {
    let b = text.as_bytes();
    let ends = b.first().is_some_and(u8::is_ascii_alphanumeric) && b.last().is_some_and(u8::is_ascii_alphanumeric);
    ends && b.iter().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c))
}

fn dns1123_label_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_dns1123_label(text) {
        if is_dns1123_subdomain(text) {
            errors.push("must not contain dots".into());
        } else {
            errors.push(regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                &["my-name", "123-abc"],
                "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
            ));
        }
    }
    errors
}

pub(crate) fn dns1123_subdomain_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(too_long(253));
    }
    if !is_dns1123_subdomain(text) {
        errors.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            &["example.com"],
            "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        ));
    }
    errors
}

fn dns1035_label_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !is_dns1123_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            &["my-name", "abc-123"],
            "[a-z]([-a-z0-9]*[a-z0-9])?",
        ));
    }
    errors
}

fn qualified_name_errors(text: &str) -> Vec<String> {
    let rule = || {
        regex_error(
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            &["MyName", "my.name", "123-abc"],
            "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
        )
    };
    let parts: Vec<&str> = text.split('/').collect();
    let (prefix, name) = match parts[..] {
        [name] => (None, name),
        [prefix, name] => (Some(prefix), name),
        _ => {
            return vec![format!("a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')", rule())];
        }
    };
    let mut errors = Vec::new();
    match prefix {
        Some("") => errors.push("prefix part must be non-empty".into()),
        Some(prefix) => errors.extend(dns1123_subdomain_errors(prefix).into_iter().map(|e| format!("prefix part {e}"))),
        None => {}
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", too_long(63)));
    }
    if !is_name(name) {
        errors.push(format!("name part {}", rule()));
    }
    errors
}

fn label_value_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(too_long(63));
    }
    if !text.is_empty() && !is_name(text) {
        errors.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            &["MyValue", "my_value", "12345"],
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
        ));
    }
    errors
}

fn is_uuid(text: &str) -> bool {
    let hex = text.bytes().filter(|b| *b != b'-').count();
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    hex == 32 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') && (groups == [8, 4, 4, 4, 12] || groups == [32])
}

pub(crate) fn is_base64(text: &str) -> bool {
    crate::json::decode_base64(text).is_some() && !text.is_empty()
}

fn is_date(text: &str) -> bool {
    let number = |range: std::ops::Range<usize>| {
        let part = text.get(range)?;
        part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse::<i64>().ok()).flatten()
    };
    let shape = text.len() == 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-';
    match (number(0..4), number(5..7), number(8..10)) {
        (Some(year), Some(month), Some(day)) if shape => (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month),
        _ => false,
    }
}

fn is_datetime(text: &str) -> bool {
    Timestamp::parse(&text.to_ascii_uppercase()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_as_kubernetes_checks_them() {
        assert!(dns1123_label_errors("my-name").is_empty());
        assert_eq!(dns1123_label_errors("a.b"), ["must not contain dots"]);
        assert_eq!(dns1123_label_errors(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        assert!(qualified_name_errors("example.com/a_B").is_empty());
        assert_eq!(qualified_name_errors("/a"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name_errors("a/b/c").len(), 1);
        assert!(label_value_errors("").is_empty());
        assert_eq!(mask_trailing_dash("ab-"), "aa");
        assert!(is_uuid("123e4567-e89b-12d3-a456-426614174000"));
        assert!(is_date("2024-02-29") && !is_date("2023-02-29"));
        assert!(is_datetime("2021-01-01T00:00:00Z"));
    }
}
