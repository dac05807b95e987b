//! What never gets into a record, whatever the policy says: the data of a Secret, tokens, private keys. Keys stay, so that one sees
//! that something was there; values become `[redacted]`. This is stricter than a real server, which records what its policy asks for.
//!
//! Two nets, one behind the other: places that are known to hold secrets are masked ([`object`], [`story`], [`uri`]), and the values
//! that a request about Secrets brought along are looked for in everything else that is told of it ([`Secrets`]): the message of a
//! policy may well quote what it refused.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use memchr::memmem;
use serde_json::{Map, Value};

use super::{Event, Json, Story};
use crate::request::{RequestInfo, decode};

/// What stands in the place of a secret.
pub const MASK: &str = "[redacted]";

/// The annotation in which `kubectl apply` keeps the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How every private key in PEM begins, whatever its sort.
const PRIVATE_KEY: &str = "PRIVATE KEY-----";

/// The same in base64, as it looks where it begins at the first, second or third byte of a group of three.
const ENCODED_KEYS: [&str; 3] = ["UFJJVkFURSBLRVktLS0tL", "BSSVZBVEUgS0VZLS0tLS", "QUklWQVRFIEtFWS0tLS0t"];

const PATCH_ANNOTATION: &str = "patch.webhook.admission.k8s.io/";

/// Shorter values than this are not looked for in sentences: they would be found everywhere.
const SHORTEST: usize = 4;

/// Whether a request is about Secrets.
pub fn is_about_secrets(info: &RequestInfo) -> bool {
    info.resource == "secrets" && info.group.is_empty()
}

/// Whether what a request carries or is answered with is secret.
fn is_sensitive(info: &RequestInfo) -> bool {
    is_about_secrets(info) || info.resource == "tokenreviews" || info.subresource == "token"
}

/// Whether it is worth the time to look into a body.
pub fn may_hold_secrets(info: &RequestInfo, bytes: &[u8]) -> bool {
    let holds = |needle: &str| memchr::memmem::find(bytes, needle.as_bytes()).is_some();
    is_sensitive(info) || holds("\"Secret") || holds_private_key(bytes)
}

/// Whether a private key in PEM is in a text, as it is or in base64.
fn holds_private_key(text: &[u8]) -> bool {
    static NEEDLES: LazyLock<[memmem::Finder<'static>; 4]> =
        LazyLock::new(|| [PRIVATE_KEY, ENCODED_KEYS[0], ENCODED_KEYS[1], ENCODED_KEYS[2]].map(memmem::Finder::new));
    text.len() >= PRIVATE_KEY.len() && NEEDLES.iter().any(|needle| needle.find(text).is_some())
}

/// Whether JSON writes letters by their numbers: then words in it are not found by looking for them.
pub fn is_escaped(json: &[u8]) -> bool {
    memchr::memmem::find(json, b"\\u00").is_some()
}

/// The path and query of a request without the credentials that some clients put there.
pub fn uri(uri: &Uri) -> String {
    target(uri.path_and_query().map_or("/", |target| target.as_str()))
}

/// The same of a text, which need not be one that this server would take.
pub fn target(text: &str) -> String {
    let Some((path, query)) = text.split_once('?') else { return text.to_owned() };
    let is_credential = |pair: &str| {
        let key = decode(pair.split('=').next().unwrap_or_default()).to_ascii_lowercase();
        key != "showsecrets" && ["token", "password", "secret", "authorization"].iter().any(|word| key.contains(word))
    };
    if !query.split('&').any(is_credential) {
        return format!("{path}?{query}");
    }
    let pairs: Vec<String> = query
        .split('&')
        .map(|pair| match (is_credential(pair), pair.split_once('=')) {
            (true, Some((key, _))) => format!("{key}={MASK}"),
            _ => pair.to_owned(),
        })
        .collect();
    format!("{path}?{}", pairs.join("&"))
}

/// Masks what is secret in the body of a request or a response.
pub fn object(info: &RequestInfo, value: &mut Value) {
    let about_secrets = is_about_secrets(info);
    match value {
        // A JSON patch says where it writes.
        Value::Array(operations) if about_secrets => operations.iter_mut().for_each(operation),
        _ => document(value, about_secrets),
    }
    private_keys(value);
}

/// Masks what is secret in what is told of a request's way.
pub fn story(info: &RequestInfo, story: &mut Story) {
    let sensitive = is_sensitive(info);
    // Who asked and whether they may is told without anything that the request brought along.
    let admitted = story.steps.iter_mut().filter(|step| !matches!(&*step.hop, "authenticate" | "authorize"));
    for detail in admitted.filter_map(|step| step.detail.as_mut()) {
        if sensitive {
            if let Some(patch) = detail.get_mut("patch") {
                object(info, patch);
            }
            // The parts of an expression stay, what they came to goes.
            for value in detail.get_mut("values").and_then(Value::as_array_mut).into_iter().flatten() {
                value.get_mut("value").into_iter().for_each(mask);
            }
        }
        private_keys(detail);
    }
}

fn document(value: &mut Value, secret: bool) {
    let Some(map) = value.as_object_mut() else { return };
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let secret = secret || kind == "Secret" || kind == "SecretList";
    if secret {
        for field in ["data", "stringData"] {
            if let Some(data) = map.get_mut(field) {
                mask_data(data);
            }
        }
    }
    let token = match kind.as_str() {
        "TokenRequest" => map.get_mut("status"),
        "TokenReview" => map.get_mut("spec"),
        _ => None,
    };
    if let Some(token) = token.and_then(|part| part.get_mut("token")) {
        mask(token);
    }
    if let Some(applied) = map.get_mut("metadata").and_then(|m| m.get_mut("annotations")).and_then(|a| a.get_mut(LAST_APPLIED))
        && (secret || applied.as_str().is_some_and(|text| text.contains("\"Secret\"")))
    {
        mask(applied);
    }
    for item in map.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        document(item, secret);
    }
    for row in map.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(object) = row.get_mut("object") {
            document(object, secret);
        }
    }
}

/// One operation of a JSON patch on a Secret.
fn operation(operation: &mut Value) {
    let path = operation.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(value) = operation.get_mut("value") else { return };
    match path.split('/').nth(1).unwrap_or_default() {
        "data" | "stringData" if path.split('/').count() == 2 => mask_data(value),
        "data" | "stringData" => whole(value),
        "metadata" if path.ends_with("last-applied-configuration") => mask(value),
        "metadata" => {
            // `/metadata` or `/metadata/annotations` as a whole.
            for annotations in [value.get("annotations").is_some().then_some("/annotations"), Some("")].into_iter().flatten() {
                if let Some(applied) = value.pointer_mut(annotations).and_then(|a| a.get_mut(LAST_APPLIED)) {
                    mask(applied);
                }
            }
        }
        "" => document(value, true),
        _ => {}
    }
}

/// The data of a Secret: the first keys stay, whatever is behind them goes.
fn mask_data(data: &mut Value) {
    match data {
        Value::Object(map) => map.values_mut().for_each(whole),
        other => whole(other),
    }
}

fn whole(value: &mut Value) {
    if !value.is_null() {
        *value = MASK.into();
    }
}

/// Replaces every value; the keys of maps stay, and so does what is empty.
fn mask(value: &mut Value) {
    match value {
        Value::Null => {}
        Value::String(text) if text.is_empty() => {}
        Value::Object(map) => map.values_mut().for_each(mask),
        Value::Array(items) => items.iter_mut().for_each(mask),
        other => *other = MASK.into(),
    }
}

fn private_keys(value: &mut Value) {
    match value {
        Value::String(text) if holds_private_key(text.as_bytes()) => *text = MASK.to_owned(),
        Value::Object(map) => map.values_mut().for_each(private_keys),
        Value::Array(items) => items.iter_mut().for_each(private_keys),
        _ => {}
    }
}

/// What a request brought along that nobody may read afterwards.
#[derive(Debug, Default)]
pub struct Secrets {
    values: Vec<String>,
    about_secrets: bool,
    unread: bool,
    patch: bool,
}

impl Secrets {
    /// Nothing known yet of a request; one about Secrets is distrusted until its body has been read.
    pub fn of(info: &RequestInfo, has_body: bool) -> Self {
        let about_secrets = is_about_secrets(info);
        Secrets { about_secrets, unread: about_secrets && has_body, patch: info.verb == "patch", ..Secrets::default() }
    }

    /// The body has been read, and brings nothing along.
    pub fn nothing_to_learn(&mut self) {
        self.unread = false;
    }

    /// Remembers the values in the body of a request.
    pub fn learn(&mut self, body: &Value) {
        self.unread = false;
        match self.about_secrets {
            true => self.search_patch(body),
            false => self.search(body, false),
        }
    }

    /// A Secret, or a patch on one.
    fn search_patch(&mut self, patch: &Value) {
        let Value::Array(operations) = patch else { return self.search(patch, true) };
        for operation in operations {
            match operation["path"].as_str().unwrap_or_default().split('/').nth(1) {
                Some("data" | "stringData") => self.collect(&operation["value"]),
                _ => self.search(&operation["value"], true),
            }
        }
    }

    /// Remembers the values of a Secret that is stored, or that policies and webhooks have changed.
    pub fn guard(&mut self, secret: &Value) {
        self.search(secret, true);
    }

    fn search(&mut self, value: &Value, secret: bool) {
        let kind = value["kind"].as_str().unwrap_or_default();
        let secret = secret || kind == "Secret";
        if secret {
            self.collect(&value["data"]);
            self.collect(&value["stringData"]);
        }
        if kind == "TokenReview" {
            self.collect(&value["spec"]["token"]);
        }
        for item in value["items"].as_array().into_iter().flatten() {
            self.search(item, secret);
        }
    }

    fn collect(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                if let Some(plain) = STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok()) {
                    self.add(&plain);
                }
                self.add(&STANDARD.encode(text));
                self.add(text);
            }
            Value::Object(map) => map.values().for_each(|value| self.collect(value)),
            Value::Array(items) => items.iter().for_each(|value| self.collect(value)),
            _ => {}
        }
    }

    fn add(&mut self, text: &str) {
        for form in [text.to_owned(), serde_json::to_string(text).unwrap_or_default().trim_matches('"').to_owned()] {
            if form.len() >= SHORTEST && !self.values.contains(&form) {
                self.values.push(form);
            }
        }
        // The longest first: what is part of another must not break it up.
        self.values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    }

    /// Takes everything that is known from everything that an event says.
    pub fn scrub(mut self, event: &mut Event) {
        if self.about_secrets {
            self.scrub_patches(event);
            self.scrub_quotations(event);
        }
        if self.values.is_empty() {
            return;
        }
        for text in event.annotations.values_mut() {
            self.clean(text);
        }
        if let Some(status) = &mut event.response_status {
            self.clean(&mut status.message);
            status.details.iter_mut().for_each(|details| self.clean_value(details));
        }
        for body in [&mut event.request_object, &mut event.response_object].into_iter().flatten() {
            if self.values.iter().any(|value| memmem::find(body.bytes(), value.as_bytes()).is_some())
                && let Some(mut value) = body.value()
            {
                self.clean_value(&mut value);
                *body = Json::from(&value);
            }
        }
        if let Some(story) = &mut event.trace {
            story.warnings.iter_mut().for_each(|warning| self.clean(warning));
            for step in &mut story.steps {
                if self.values.iter().any(|value| step.verdict.contains(value.as_str())) {
                    let mut verdict = step.verdict.to_string();
                    self.clean(&mut verdict);
                    step.verdict = verdict.into();
                }
                step.detail.iter_mut().for_each(|detail| self.clean_value(detail));
            }
        }
    }

    /// The patches of webhooks, as annotations show them.
    fn scrub_patches(&mut self, event: &mut Event) {
        for (_, text) in event.annotations.iter_mut().filter(|(key, _)| key.starts_with(PATCH_ANNOTATION)) {
            let Ok(Value::Object(mut map)) = serde_json::from_str::<Value>(text) else {
                *text = MASK.to_owned();
                continue;
            };
            // What a webhook added, a policy behind it may quote.
            if let Some(patch) = map.get("patch") {
                self.search_patch(patch);
            }
            match map.get_mut("patch") {
                Some(Value::Array(operations)) => operations.iter_mut().for_each(operation),
                Some(patch) => document(patch, true),
                None => {}
            }
            *text = in_order(&map, &["configuration", "webhook", "patch", "patchType"]);
        }
    }

    /// Refusals that quote the whole body, or the whole object.
    fn scrub_quotations(&self, event: &mut Event) {
        // Who may not do it at all is told so without a word of the body.
        let admitted = event.decision() != "forbid";
        let unread = |code: u16| self.unread && (matches!(code, 400 | 422 | 500) || code == 403 && admitted);
        let quotes = |code: u16| unread(code) || self.patch && matches!(code, 400 | 422 | 500);
        let Some(status) = event.response_status.as_mut().filter(|status| quotes(status.code)) else { return };
        status.message = MASK.to_owned();
        for cause in status.details.as_mut().and_then(|d| d.get_mut("causes")).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(message) = cause.get_mut("message") {
                mask(message);
            }
        }
        if event.response_object.is_some() {
            let mut shown = serde_json::to_value(&*status).unwrap_or_default();
            shown["kind"] = "Status".into();
            shown["apiVersion"] = "v1".into();
            event.response_object = Some(Json::from(&shown));
        }
    }

    fn clean(&self, text: &mut String) {
        for value in self.values.iter().filter(|value| value.as_str() != MASK) {
            if text.contains(value.as_str()) {
                *text = text.replace(value.as_str(), MASK);
            }
        }
    }

    fn clean_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.clean(text),
            Value::Object(map) => map.values_mut().for_each(|value| self.clean_value(value)),
            Value::Array(items) => items.iter_mut().for_each(|value| self.clean_value(value)),
            _ => {}
        }
    }
}

fn in_order(map: &Map<String, Value>, keys: &[&str]) -> String {
    let members = keys.iter().filter_map(|key| map.get(*key).map(|value| format!("{key:?}:{value}")));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::audit::event::ResponseStatus;
    use crate::request::parse;

    fn cleaned(path: &str, mut value: Value) -> Value {
        object(&parse("POST", path, ""), &mut value);
        value
    }

    const SECRETS: &str = "/api/v1/namespaces/a/secrets";

    #[test]
    fn keys_of_a_secret_stay_and_values_go_in_objects_lists_patches_and_tables() {
        let secret = json!({"kind": "Secret", "metadata": {"annotations": {LAST_APPLIED: "{..}"}}, "data": {"k": "djE="}, "stringData": {"l": "v2"}});
        let masked =
            json!({"kind": "Secret", "metadata": {"annotations": {LAST_APPLIED: MASK}}, "data": {"k": MASK}, "stringData": {"l": MASK}});
        assert_eq!(cleaned(SECRETS, secret.clone()), masked);
        assert_eq!(cleaned("/api/v1/nodes", json!({"kind": "List", "items": [secret]})), json!({"kind": "List", "items": [masked]}));
        let list = json!({"kind": "SecretList", "items": [{"data": {"k": "djE="}}]});
        assert_eq!(cleaned(SECRETS, list), json!({"kind": "SecretList", "items": [{"data": {"k": MASK}}]}));
        assert_eq!(cleaned(SECRETS, json!({"data": {"k": "djE=", "gone": null}})), json!({"data": {"k": MASK, "gone": null}}));
        let rows = json!({"kind": "Table", "rows": [{"cells": ["n", 1], "object": {"data": {"k": "x"}}}]});
        assert_eq!(cleaned(SECRETS, rows)["rows"][0]["object"]["data"]["k"], MASK);
        assert_eq!(cleaned("/api/v1/namespaces/a/configmaps", json!({"data": {"k": "v"}})), json!({"data": {"k": "v"}}));
    }

    #[test]
    fn operations_of_a_json_patch_are_masked_by_their_path() {
        let patch = json!([{"op": "add", "path": "/data/k", "value": "djE="}, {"op": "test", "path": "/data", "value": {"k": "djE="}},
            {"op": "add", "path": "/metadata/labels/a", "value": "b"}, {"op": "replace", "path": "", "value": {"data": {"k": "djE="}}},
            {"op": "add", "path": "/metadata/annotations", "value": {LAST_APPLIED: "{}", "a": "b"}}, {"op": "remove", "path": "/data/k"}]);
        let wanted = json!([{"op": "add", "path": "/data/k", "value": MASK}, {"op": "test", "path": "/data", "value": {"k": MASK}},
            {"op": "add", "path": "/metadata/labels/a", "value": "b"}, {"op": "replace", "path": "", "value": {"data": {"k": MASK}}},
            {"op": "add", "path": "/metadata/annotations", "value": {LAST_APPLIED: MASK, "a": "b"}}, {"op": "remove", "path": "/data/k"}]);
        assert_eq!(cleaned(SECRETS, patch), wanted);
    }

    #[test]
    fn tokens_and_private_keys_go_wherever_they_are() {
        let request = json!({"kind": "TokenRequest", "spec": {"audiences": ["a"]}, "status": {"token": "t"}});
        assert_eq!(cleaned("/api/v1/namespaces/a/serviceaccounts/b/token", request)["status"]["token"], MASK);
        assert_eq!(
            cleaned("/apis/authentication.k8s.io/v1/tokenreviews", json!({"kind": "TokenReview", "spec": {"token": "t"}}))["spec"]["token"],
            MASK
        );
        let pem = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----";
        assert_eq!(
            cleaned("/api/v1/namespaces/a/configmaps", json!({"data": {"tls.key": pem, "a": "b"}})),
            json!({"data": {"tls.key": MASK, "a": "b"}})
        );
    }

    #[test]
    fn a_private_key_is_found_in_base64_wherever_it_begins() {
        for before in ["", "a", "bc", "a cert\n", "two\n"] {
            let text = STANDARD.encode(format!("{before}-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"));
            let map = json!({"binaryData": {"tls.key": text, "other": STANDARD.encode("-----BEGIN CERTIFICATE-----")}});
            let cleaned = cleaned("/api/v1/namespaces/a/configmaps", map);
            assert_eq!(cleaned["binaryData"]["tls.key"], MASK, "{before:?}");
            assert_ne!(cleaned["binaryData"]["other"], MASK);
        }
    }

    #[test]
    fn the_values_of_an_expression_about_a_secret_go_and_the_expression_stays() {
        let told = |method: &str, path: &str| {
            let trace = crate::request::Trace::default();
            let detail = json!({"values": [{"expression": "object.data.p", "value": "aHVudGVyMg=="}], "patch": [{"op": "add", "path": "/data/p", "value": "x"}]});
            trace.step_with("validate", "p", "denied", trace.start(), Some(detail));
            let mut told = Story { steps: trace.steps(), ..Story::default() };
            story(&parse(method, path, ""), &mut told);
            told.steps.remove(0).detail.unwrap()
        };
        let wanted =
            json!({"values": [{"expression": "object.data.p", "value": MASK}], "patch": [{"op": "add", "path": "/data/p", "value": MASK}]});
        assert_eq!(told("POST", SECRETS), wanted);
        assert_eq!(told("POST", "/api/v1/namespaces/a/configmaps")["values"][0]["value"], "aHVudGVyMg==");
    }

    #[test]
    fn credentials_in_a_query_are_masked_and_nothing_else_is() {
        let of = |text: &str| uri(&text.parse().unwrap());
        assert_eq!(of("/api/v1/pods?watch=1&limit=5"), "/api/v1/pods?watch=1&limit=5");
        assert_eq!(of("/api?access_token=abc&x=y"), "/api?access_token=[redacted]&x=y");
        assert_eq!(of("/api?access_tok%65n=abc"), "/api?access_tok%65n=[redacted]");
        assert_eq!(of("/api"), "/api");
    }

    #[test]
    fn what_a_request_brought_along_is_found_in_messages_annotations_and_details() {
        let info = parse("POST", SECRETS, "");
        let mut secrets = Secrets::of(&info, true);
        secrets.learn(&json!({"kind": "Secret", "data": {"p": "aHVudGVyMg=="}, "stringData": {"q": "with \"quotes\""}}));
        let mut event = Event {
            response_status: Some(ResponseStatus {
                message: "no: hunter2 and aHVudGVyMg==".into(),
                code: 422,
                ..ResponseStatus::default()
            }),
            ..Event::default()
        };
        event.annotations.insert("p/x".into(), "value is with \"quotes\"".into());
        event.annotations.insert(
            "patch.webhook.admission.k8s.io/round_0_index_0".into(),
            r#"{"configuration":"c","webhook":"w","patch":[{"op":"add","path":"/data/n","value":"bmV3"}],"patchType":"JSONPatch"}"#.into(),
        );
        secrets.scrub(&mut event);
        assert_eq!(event.response_status.unwrap().message, "no: [redacted] and [redacted]");
        assert_eq!(event.annotations["p/x"], "value is [redacted]");
        let patch = &event.annotations["patch.webhook.admission.k8s.io/round_0_index_0"];
        assert_eq!(
            patch,
            r#"{"configuration":"c","webhook":"w","patch":[{"op":"add","path":"/data/n","value":"[redacted]"}],"patchType":"JSONPatch"}"#
        );
    }

    #[test]
    fn a_refusal_that_quotes_a_broken_body_is_not_told() {
        let info = parse("POST", SECRETS, "");
        let mut event = Event {
            response_status: Some(ResponseStatus {
                message: "cannot read ({\"data\":{\"p\":\"hunter2\"}".into(),
                code: 400,
                ..ResponseStatus::default()
            }),
            ..Event::default()
        };
        Secrets::of(&info, true).scrub(&mut event);
        assert_eq!(event.response_status.unwrap().message, MASK);
    }
}
