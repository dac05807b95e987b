//! The `format` of strings in a custom resource's schema. Formats that a real server does not know are not checked.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use serde_json::Value;

use super::field::{entries, items, object, text};
use super::names;

/// Formats of texts that are looked at, without their dashes.
const TEXTS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// What of a definition's schemas will not be as its author expects: formats that nobody looks at, sets of what cannot be compared.
pub fn warnings(definition: &Value) -> Vec<String> {
    let schemas: Vec<&Value> =
        items(&definition["spec"], "versions").iter().filter_map(|version| object(&version["schema"], "openAPIV3Schema")).collect();
    // What all versions have in common is one schema.
    let shared = schemas.windows(2).all(|pair| pair[0] == pair[1]);
    let (mut formats, mut sets) = (Vec::new(), BTreeSet::new());
    for schema in schemas.into_iter().take(if shared { 1 } else { usize::MAX }) {
        look(schema, &mut formats, &mut sets);
    }
    formats.extend(sets);
    formats
}

/// Whether values of a type are looked at for a format.
pub fn is_known(kind: &str, format: &str) -> bool {
    match kind {
        "" | "string" => TEXTS.contains(&format.replace('-', "").as_str()),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

fn look(schema: &Value, formats: &mut Vec<String>, sets: &mut BTreeSet<String>) {
    let (format, kind) = (text(schema, "format"), text(schema, "type"));
    if !format.is_empty() && !is_known(kind, format) {
        formats.push(format!("unrecognized format {format:?}"));
    }
    let of = text(&schema["items"], "type");
    if text(schema, "x-kubernetes-list-type") == "set" && matches!(of, "object" | "array") {
        sets.insert(format!(
            "x-kubernetes-list-type: set for items of type {of:?} is not supported by server-side apply or CEL validation rules"
        ));
    }
    let parts = ["items", "additionalProperties", "not"].into_iter().filter_map(|word| object(schema, word));
    let branches = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|word| items(schema, word));
    let properties = entries(schema, "properties").map(|(_, property)| property);
    parts.chain(branches).chain(properties).for_each(|inner| look(inner, formats, sets));
}

/// Whether a text is of a format.
pub fn is(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => is_time(text),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is_duration(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "byte" => !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some(b'3')),
        "uuid4" => is_uuid(text, Some(b'4')),
        "uuid5" => is_uuid(text, Some(b'5')),
        "hostname" => names::subdomain(&text.to_ascii_lowercase()).is_empty(),
        "email" => text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty() && !text.contains(' ')),
        "uri" => {
            !text.is_empty() && !text.contains(|c: char| c.is_ascii_control() || c == ' ') && (text.contains(':') || text.starts_with('/'))
        }
        "mac" => is_mac(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
        }
        _ => true,
    }
}

fn is_time(text: &str) -> bool {
    let separated = text.as_bytes().get(10).is_some_and(|b| matches!(b, b'T' | b't'));
    separated && text.parse::<jiff::Timestamp>().is_ok()
}

/// `192.0.2.0/24`: an address and the length of its prefix.
pub fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let most = if address.is_ipv4() { 32 } else { 128 };
    length.len() <= 3 && length.parse::<u8>().is_ok_and(|l| l <= most)
}

/// `1h30m`, `-1.5s`, `300ms`, or a number of days or weeks as the schema library also takes them.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (amount, tail) = rest.split_at(end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let known =
            matches!(unit.trim(), "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" | "d" | "w" | "day" | "days" | "week" | "weeks");
        if amount.parse::<f64>().is_err() || !known {
            return false;
        }
        rest = tail;
    }
    true
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let right = uuid::Uuid::try_parse(text).is_ok() && matches!(text.len(), 32 | 36);
    let at = if text.len() == 36 { 14 } else { 12 };
    right && version.is_none_or(|version| text.as_bytes().get(at) == Some(&version))
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    matches!(parts.len(), 6 | 8) && parts.iter().all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::is;

    #[test]
    fn formats_are_checked_where_a_real_server_knows_them() {
        assert!(is("date-time", "2026-01-02T03:04:05Z") && !is("date-time", "2026-01-02"));
        assert!(is("duration", "1h30m") && !is("duration", "1x") && !is("duration", ""));
        assert!(is("cidr", "10.0.0.0/8") && !is("cidr", "10.0.0.0/33") && is("ipv6", "::1") && !is("ipv4", "::1"));
        assert!(is("uuid4", "8c2f9d4e-1111-4111-8111-111111111111") && !is("uuid4", "8c2f9d4e-1111-1111-8111-111111111111"));
        assert!(is("anything", "else"));
    }
}
