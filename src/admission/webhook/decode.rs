//! From the bytes of a webhook's answer to its review. A real server reads JSON or YAML whatever the media type says, into a type whose
//! fields have types of their own; what does not fit is told in the words of its decoder.

use serde_json::{Map, Value};

use crate::object::json_kind;
use crate::schema::{syntax, yaml};

/// Reads JSON, or YAML where it does not look like JSON.
///
/// # Errors
/// Where it is neither.
pub fn value(body: &[u8]) -> Result<Value, String> {
    let is_json = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
    match is_json {
        // Go reads what is no UTF-8 as the sign for that.
        true => serde_json::from_str(&String::from_utf8_lossy(body))
            .map_err(|_| format!("couldn't get version/kind; json parse error: {}", syntax::explain(body))),
        false => match yaml::parse(&String::from_utf8_lossy(body)) {
            Ok(document) => Ok(document.value),
            Err(why) => Err(format!("error converting YAML to JSON: {why}")),
        },
    }
}

/// Reads a review of the asked version.
///
/// # Errors
/// Why it is none.
pub fn review(body: &[u8], asked: &str) -> Result<Value, String> {
    let value = value(body)?;
    let fields = match &value {
        Value::Null => return Ok(value),
        Value::Object(fields) => fields,
        other => {
            return Err(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                json_kind(other)
            ));
        }
    };
    is_asked(fields, asked)?;
    typed(fields, asked)?;
    Ok(value)
}

/// Whether the answer is of the kind that was asked for; what it leaves out is taken to be so.
fn is_asked(fields: &Map<String, Value>, asked: &str) -> Result<(), String> {
    let text = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other) => Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go struct field .{name} of type string",
            json_kind(other)
        )),
    };
    let (kind, version) = (text("kind")?, text("apiVersion")?);
    if version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {version}"));
    }
    let kind = if kind.is_empty() { "AdmissionReview" } else { kind };
    let version = if version.is_empty() { asked } else { version };
    let short = |version: &str| version.rsplit('/').next().unwrap_or_default().to_owned();
    match (version, kind) {
        _ if version == asked && kind == "AdmissionReview" => Ok(()),
        ("admission.k8s.io/v1" | "admission.k8s.io/v1beta1", "AdmissionReview") | ("v1", "Status") => {
            Err(format!("converting ({}.{kind}) to ({}.AdmissionReview): unknown conversion", short(version), short(asked)))
        }
        _ => Err(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:74\""
        )),
    }
}

/// What a field may hold, in Go's words.
#[derive(Clone, Copy)]
enum Holds {
    Text(&'static str),
    Flag,
    Number,
    Texts,
    TextMap,
    Bytes,
}

const RESPONSE: &[(&str, Holds)] = &[
    ("uid", Holds::Text("types.UID")),
    ("allowed", Holds::Flag),
    ("patch", Holds::Bytes),
    ("patchType", Holds::Text("PatchType")),
    ("auditAnnotations", Holds::TextMap),
    ("warnings", Holds::Texts),
];

const STATUS: &[(&str, Holds)] = &[
    ("status", Holds::Text("string")),
    ("message", Holds::Text("string")),
    ("reason", Holds::Text("v1.StatusReason")),
    ("code", Holds::Number),
];

fn typed(fields: &Map<String, Value>, asked: &str) -> Result<(), String> {
    let version = asked.rsplit('/').next().unwrap_or_default();
    let wrong = |value: &Value, of: &str, kind: &str| {
        Err(format!("json: cannot unmarshal {} into Go struct field {of} of type {kind}", json_kind(value)))
    };
    let response = match fields.get("response") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(response)) => response,
        Some(other) => return wrong(other, "AdmissionReview.response", &format!("{version}.AdmissionResponse")),
    };
    check(response, RESPONSE, "AdmissionResponse.response", version)?;
    match response.get("status") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(status)) => check(status, STATUS, "Status.response.status", version),
        Some(other) => wrong(other, "AdmissionResponse.response.status", "v1.Status"),
    }
}

fn check(fields: &Map<String, Value>, known: &[(&str, Holds)], of: &str, version: &str) -> Result<(), String> {
    for (name, holds) in known {
        let Some(value) = fields.get(*name).filter(|value| !value.is_null()) else { continue };
        let wrong = |value: &Value, kind: &str| {
            Err(format!("json: cannot unmarshal {} into Go struct field {of}.{name} of type {kind}", json_kind(value)))
        };
        match (holds, value) {
            (Holds::Text(_), Value::String(_)) | (Holds::Flag, Value::Bool(_)) => {}
            (Holds::Number, Value::Number(number)) if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {}
            (Holds::Number, Value::Number(number)) => {
                return Err(format!("json: cannot unmarshal number {number} into Go struct field {of}.{name} of type int32"));
            }
            (Holds::Bytes, Value::String(text)) => {
                base64(text).map_err(|at| format!("illegal base64 data at input byte {at}"))?;
            }
            (Holds::Bytes, Value::Array(_)) => {}
            (Holds::Texts, Value::Array(items)) => {
                if let Some(odd) = items.iter().find(|item| !item.is_string() && !item.is_null()) {
                    return wrong(odd, "string");
                }
            }
            (Holds::TextMap, Value::Object(items)) => {
                if let Some(odd) = items.values().find(|item| !item.is_string() && !item.is_null()) {
                    return wrong(odd, "string");
                }
            }
            (Holds::Text("PatchType"), other) => return wrong(other, &format!("{version}.PatchType")),
            (Holds::Text(kind), other) => return wrong(other, kind),
            (Holds::Flag, other) => return wrong(other, "bool"),
            (Holds::Number, other) => return wrong(other, "int32"),
            (Holds::Texts, other) => return wrong(other, "[]string"),
            (Holds::TextMap, other) => return wrong(other, "map[string]string"),
            (Holds::Bytes, other) => return wrong(other, "[]uint8"),
        }
    }
    Ok(())
}

/// Standard base64 with padding.
///
/// # Errors
/// Where Go's decoder stops.
pub fn base64(text: &str) -> Result<Vec<u8>, usize> {
    let bytes = text.as_bytes();
    let sextet = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let skip = |mut at: usize| {
        while matches!(bytes.get(at), Some(b'\r' | b'\n')) {
            at += 1;
        }
        at
    };
    let mut out = Vec::with_capacity(bytes.len() / 4 * 3);
    let mut at = 0;
    loop {
        let (mut group, mut have) = ([0u8; 4], 0);
        while have < 4 {
            at = skip(at);
            let Some(byte) = bytes.get(at) else {
                return if have == 0 { Ok(out) } else { Err(at - have) };
            };
            at += 1;
            if let Some(value) = sextet(*byte) {
                group[have] = value;
                have += 1;
                continue;
            }
            if *byte != b'=' || have < 2 {
                return Err(at - 1);
            }
            if have == 2 {
                at = skip(at);
                match bytes.get(at) {
                    None => return Err(bytes.len()),
                    Some(b'=') => at += 1,
                    Some(_) => return Err(at - 1),
                }
            }
            at = skip(at);
            if at < bytes.len() {
                return Err(at);
            }
            out.push(group[0] << 2 | group[1] >> 4);
            if have == 3 {
                out.push(group[1] << 4 | group[2] >> 2);
            }
            return Ok(out);
        }
        out.extend([group[0] << 2 | group[1] >> 4, group[1] << 4 | group[2] >> 2, group[2] << 6 | group[3]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "admission.k8s.io/v1";

    #[test]
    fn what_is_no_review_is_told_in_the_words_of_a_real_server() {
        let string = "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
        for (body, why) in [
            ("garbage", string),
            ("<html><body>hi</body></html>", string),
            ("{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
            (
                "{\"kind\":5}",
                "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
            ),
            (
                "{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}",
                "no kind \"Pod\" is registered for version \"v1\" in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:74\"",
            ),
            (
                "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1beta1\"}",
                "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
            ),
            ("{\"kind\":\"Status\",\"apiVersion\":\"v1\"}", "converting (v1.Status) to (v1.AdmissionReview): unknown conversion"),
            ("{\"kind\":\"AdmissionReview\",\"apiVersion\":\"a/b/c\"}", "unexpected GroupVersion string: a/b/c"),
            (
                "{\"response\":5}",
                "json: cannot unmarshal number into Go struct field AdmissionReview.response of type v1.AdmissionResponse",
            ),
            (
                "{\"response\":{\"allowed\":\"yes\"}}",
                "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
            ),
            (
                "{\"response\":{\"warnings\":\"x\"}}",
                "json: cannot unmarshal string into Go struct field AdmissionResponse.response.warnings of type []string",
            ),
            ("{\"response\":{\"patch\":\"!!!\"}}", "illegal base64 data at input byte 0"),
        ] {
            assert_eq!(review(body.as_bytes(), V1).unwrap_err(), why, "{body}");
        }
        assert!(review(b"kind: AdmissionReview\nresponse: {allowed: true}\n", V1).is_ok(), "YAML will do");
    }

    #[test]
    fn base64_is_read_as_go_reads_it() {
        for text in ["", "YQ==", "YWI=", "YWJj", "YWJj\nYQ=="] {
            assert!(base64(text).is_ok(), "{text}");
        }
        assert_eq!(base64("YWJjYQ==").unwrap(), b"abca");
        for (text, at) in [("W1", 0), ("!!!", 0), ("YWJj*", 4), ("YQ=", 3), ("YQ=x", 2), ("YQ==x", 4), ("=", 0)] {
            assert_eq!(base64(text), Err(at), "{text}");
        }
    }
}
