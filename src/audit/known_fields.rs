//! Credentials in a body that are known by the field they stand in: the header `Authorization` of a probe, an extra of a user that a review
//! tells, the password in the URL of a webhook. Their looks say nothing: they may be any text.

use std::sync::LazyLock;

use memchr::memmem;
use regex::Regex;
use serde_json::{Map, Value};

use super::redact::MASK;
use super::{identity, named};
use crate::request::RequestInfo;

/// What JSON has in it where such a header is.
pub const HEADER: &str = "uthorization\"";

/// Whether a body may have other fields of that sort.
pub fn may_be_in(info: &RequestInfo, json: &[u8]) -> bool {
    tells_users(info) && memmem::find(json, b"\"extra\"").is_some() || tells_urls(info) && memmem::find(json, b"://").is_some()
}

fn tells_users(info: &RequestInfo) -> bool {
    matches!(info.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io" | "certificates.k8s.io")
}

fn tells_urls(info: &RequestInfo) -> bool {
    matches!(info.resource.as_str(), "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" | "customresourcedefinitions")
}

/// Masks them in a body.
pub fn mask(info: &RequestInfo, value: &mut Value) {
    if tells_users(info) {
        extras(value);
    }
    if tells_urls(info) {
        urls(value);
    }
}

fn extras(value: &mut Value) {
    for (key, part) in value.as_object_mut().into_iter().flatten() {
        match part {
            Value::Object(told) if key == "extra" => told.iter_mut().for_each(|(key, values)| extra(key, values)),
            part => extras(part),
        }
    }
}

fn extra(key: &str, values: &mut Value) {
    for value in values.as_array_mut().into_iter().flatten() {
        if let Value::String(text) = value {
            identity::extra(key, text);
        }
    }
}

/// A URL that a server is called by, wherever it stands.
fn urls(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with("http") && text.contains("://") => *text = named::url(text),
        Value::Object(map) => map.iter_mut().filter(|(key, _)| *key != "schema").for_each(|(_, part)| urls(part)),
        Value::Array(items) => items.iter_mut().for_each(urls),
        _ => {}
    }
}

/// Masks the value of a header `Authorization`, be it a name and a value or a field of that name.
pub fn header(map: &mut Map<String, Value>) {
    let is_header = |name: &str| ["authorization", "proxy-authorization"].iter().any(|known| name.eq_ignore_ascii_case(known));
    if map.get("name").and_then(Value::as_str).is_some_and(is_header)
        && let Some(Value::String(value)) = map.get_mut("value")
    {
        *value = MASK.to_owned();
    }
    for (_, told) in map.iter_mut().filter(|(key, _)| is_header(key)) {
        match told {
            Value::Array(items) => items.iter_mut().for_each(authorization),
            one => authorization(one),
        }
    }
}

fn authorization(value: &mut Value) {
    if value.as_str().is_some_and(named::is_authorization) {
        *value = MASK.into();
    }
}

/// Masks what the refusal of a webhook's URL quotes of it: a password, a query, all of it.
pub fn refused_url(text: &mut String) {
    static QUOTED: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let quotation = r#""(?:[^"\\]|\\.)*""#;
        Regex::new(&format!("{quotation}(?<why>: [a-z ]+ not permitted in the URL)|(?<what>url must be a valid URL: parse ){quotation}"))
            .ok()
    });
    if text.contains("not permitted in the URL") || text.contains("url must be a valid URL") {
        *text = QUOTED.as_ref().map_or_else(|| MASK.into(), |quoted| quoted.replace_all(text, format!("$what\"{MASK}\"$why"))).into_owned();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::parse;

    #[test]
    fn the_header_authorization_goes_and_what_is_only_called_so_stays() {
        let mut value = json!({"name": "authorization", "value": "planted", "Authorization": ["Bearer planted", "enabled"]});
        header(value.as_object_mut().unwrap());
        assert_eq!(value, json!({"name": "authorization", "value": MASK, "Authorization": [MASK, "enabled"]}));
        let open = json!({"name": "accept", "value": "text/html", "authorization": {"type": "Bearer"}});
        let mut value = open.clone();
        header(value.as_object_mut().unwrap());
        assert_eq!(value, open);
    }

    #[test]
    fn credentials_among_the_extras_of_a_review_go() {
        let info = parse("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "");
        let mut review = json!({"spec": {"user": "a", "extra": {"access-token": ["planted"], "scopes": ["openid"], "authentication.kubernetes.io/credential-id": ["X509SHA256=1"]}}});
        assert!(may_be_in(&info, review.to_string().as_bytes()));
        mask(&info, &mut review);
        let extra = json!({"access-token": [MASK], "scopes": ["openid"], "authentication.kubernetes.io/credential-id": ["X509SHA256=1"]});
        assert_eq!(review["spec"]["extra"], extra);
    }

    #[test]
    fn the_password_in_the_url_of_a_webhook_goes_and_so_does_what_its_refusal_quotes() {
        let info = parse("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", "");
        let mut hooks = json!({"webhooks": [{"clientConfig": {"url": "https://user:planted@host/x?token=planted&a=b"}}, {"clientConfig": {"url": "https://host:8443/x"}}]});
        mask(&info, &mut hooks);
        assert_eq!(hooks["webhooks"][0]["clientConfig"]["url"], "https://[redacted]@host/x?token=[redacted]&a=b");
        assert_eq!(hooks["webhooks"][1]["clientConfig"]["url"], "https://host:8443/x");
        let mut message = r#"x is invalid: [a.url: Invalid value: "user:plan\"ted": user information is not permitted in the URL, b.url: Invalid value: "token=planted": query parameters are not permitted in the URL, c: Invalid value: "open": no]"#.to_owned();
        refused_url(&mut message);
        let mut unreadable =
            r#"a.url: Required value: url must be a valid URL: parse "https://u:planted@%": invalid URL escape "%": x"#.to_owned();
        refused_url(&mut unreadable);
        assert_eq!(unreadable, r#"a.url: Required value: url must be a valid URL: parse "[redacted]": invalid URL escape "%": x"#);
        assert_eq!(
            message,
            r#"x is invalid: [a.url: Invalid value: "[redacted]": user information is not permitted in the URL, b.url: Invalid value: "[redacted]": query parameters are not permitted in the URL, c: Invalid value: "open": no]"#
        );
    }
}
