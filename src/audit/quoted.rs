//! The second net: the values that a request about Secrets brought along, or met on its way, are looked for in everything that is told
//! of it. A webhook may quote them in its refusal, its warnings and annotations, a policy in a message: as they are, in base64, in
//! hexadecimal digits, in a URL, in other letters, or a part of them.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use serde_json::Value;

use super::event::ObjectReference;
use super::record::PATCH_ANNOTATION;
use super::redact::{self, MASK, is_about_secrets, is_secret, is_sensitive};
use super::{Event, Json, notation, patches};
use crate::request::RequestInfo;

/// Annotations in which this server says something of its own.
const OWN: [&str; 5] =
    ["authorization.k8s.io/", "apiserver.latency.k8s.io/", "audit.k8s.io/", "mutation.webhook.admission.k8s.io/", PATCH_ANNOTATION];

/// Shorter values than this are not looked for in sentences: they would be found everywhere.
const SHORTEST: usize = 4;

/// Nor are shorter ones looked for in other forms, or shorter parts of values.
const SHORTEST_PART: usize = 8;

/// A long value is known by so much of its beginning.
const SHORTEST_HEAD: usize = 12;

/// Where a request has more values than this, nothing that was said of it is told.
const MOST: usize = 512;

/// What a request brought along that nobody may read afterwards.
#[derive(Debug, Default)]
pub struct Secrets {
    values: BTreeSet<String>,
    /// Those that are no text, such as a key.
    binary: BTreeSet<Vec<u8>>,
    about_secrets: bool,
    sensitive: bool,
    patch: bool,
    /// There is a body that nobody has understood.
    unread: bool,
    guards: bool,
    too_many: bool,
}

impl Secrets {
    /// Nothing known yet of a request; one that is about Secrets or tokens is distrusted until its body has been read.
    pub fn of(info: &RequestInfo, has_body: bool) -> Self {
        let (about_secrets, sensitive) = (is_about_secrets(info), is_sensitive(info));
        Secrets { about_secrets, sensitive, patch: info.verb == "patch", unread: sensitive && has_body, ..Secrets::default() }
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

    /// Remembers the values of a Secret that is stored, that policies and webhooks have changed, or that a policy was given.
    pub fn guard(&mut self, secret: &Value) {
        self.guards = true;
        self.search(secret, true);
    }

    /// What is told in any case is not looked for.
    pub fn forget(&mut self, open: &str) {
        self.values.remove(open);
    }

    /// Whether the request met Secrets.
    pub fn guards(&self) -> bool {
        self.guards
    }

    fn search(&mut self, value: &Value, secret: bool) {
        let secret = secret || is_secret(value);
        if secret {
            self.collect(&value["data"]);
            self.collect(&value["stringData"]);
        }
        if value["kind"] == "TokenReview" {
            self.collect(&value["spec"]["token"]);
        }
        for item in value["items"].as_array().into_iter().flatten() {
            self.search(item, secret);
        }
        let parts = value.as_object().into_iter().flatten().filter(|(key, _)| *key != "items").map(|(_, part)| part);
        parts.chain(value.as_array().into_iter().flatten()).for_each(|part| self.search(part, false));
    }

    fn collect(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                match STANDARD.decode(text).map(String::from_utf8) {
                    Ok(Ok(plain)) => {
                        self.add(&plain, SHORTEST);
                        self.add_parts(&plain);
                    }
                    Ok(Err(binary)) => self.add_binary(binary.into_bytes()),
                    Err(_) => {}
                }
                self.add(&STANDARD.encode(text), SHORTEST);
                self.add(text, SHORTEST);
                self.add_parts(text);
            }
            Value::Object(map) => map.values().for_each(|value| self.collect(value)),
            Value::Array(items) => items.iter().for_each(|value| self.collect(value)),
            _ => {}
        }
    }

    fn add_binary(&mut self, bytes: Vec<u8>) {
        self.add(&String::from_utf8_lossy(&bytes), SHORTEST_PART);
        if bytes.len() >= SHORTEST_PART && !self.too_many {
            self.binary.insert(bytes);
        }
    }

    /// A file has lines, and a configuration for a registry has passwords in it: a part of a value is as secret as the whole.
    fn add_parts(&mut self, text: &str) {
        if let Some(json) = text.starts_with(['{', '[']).then(|| serde_json::from_str::<Value>(text).ok()).flatten() {
            return self.collect(&json);
        }
        if text.contains('\n') {
            text.lines().map(str::trim).for_each(|line| self.add(line, SHORTEST_PART));
        }
    }

    fn add(&mut self, text: &str, shortest: usize) {
        if text.len() < shortest || [MASK, "true", "false", "null", "none"].contains(&text) {
            return;
        }
        if self.values.len() >= MOST {
            self.too_many = true;
            return;
        }
        let quoted = serde_json::to_string(text).unwrap_or_default();
        self.values.extend([text.to_owned(), quoted.trim_matches('"').to_owned()]);
    }

    /// What is known by now, to be looked for.
    pub fn found(self) -> Found {
        let mut values: Vec<String> = self.values.into_iter().collect();
        // The longest first: what is part of another must not break it up.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let long = values.iter().filter(|value| value.len() >= SHORTEST_PART).map(String::as_bytes);
        let lowered = long.chain(self.binary.iter().map(Vec::as_slice)).map(<[u8]>::to_ascii_lowercase).collect();
        // Of a body that nobody understood nothing is known, unless what became of it is.
        Found { values, lowered, blind: self.too_many || self.unread && !self.guards }
    }

    /// Takes everything that is known from everything that an event says.
    pub fn scrub(mut self, event: &mut Event) {
        if self.sensitive {
            // What a webhook added, a policy behind it may quote.
            patches::each(event, |patch| {
                self.search_patch(patch);
                redact::change(patch);
            });
            self.scrub_quotations(event);
        }
        // What the event says in the open is no secret: many a Secret is called like the user in it.
        self.values.retain(|value| !is_open(event, value));
        let found = self.found();
        if found.values.is_empty() && !found.blind {
            return;
        }
        let from_outside = |key: &str| !OWN.iter().any(|own| key.starts_with(own));
        event.annotations.retain(|key, _| !(from_outside(key) && found.is_told_by(key)));
        for (_, text) in event.annotations.iter_mut().filter(|(key, _)| from_outside(key)) {
            found.clean(text);
        }
        patches::each(event, |patch| patches::written(patch).for_each(|value| found.clean_value(value)));
        if let Some(story) = &mut event.trace {
            story.warnings.iter_mut().for_each(|warning| found.clean(warning));
            for step in story.steps.iter_mut().filter(|step| !matches!(&*step.hop, "authenticate" | "authorize")) {
                if let Some((verdict, because)) = step.verdict.split_once(": ") {
                    let mut because = because.to_owned();
                    found.clean(&mut because);
                    step.verdict = format!("{verdict}: {because}").into();
                }
                step.detail.iter_mut().for_each(|detail| found.clean_value(detail));
            }
        }
        // What may quote a body that nobody understood has been masked by now, and the rest is worth telling.
        let known = Found { blind: false, ..found };
        if let Some(status) = &mut event.response_status {
            known.clean(&mut status.message);
            known.clean(&mut status.reason);
            status.details.iter_mut().for_each(|details| known.clean_value(details));
        }
        // A refusal is told as an object too, and says there whatever it says in its message.
        let refused = event.response_status.as_ref().is_some_and(|status| status.status == "Failure");
        for (body, speaks) in [(&mut event.request_object, false), (&mut event.response_object, refused)] {
            let Some(body) = body else { continue };
            if (speaks || known.values.iter().any(|value| memmem::find(body.bytes(), value.as_bytes()).is_some()))
                && let Some(mut value) = body.value()
            {
                known.clean_object(&mut value);
                *body = Json::from(&value);
            }
        }
    }

    /// Refusals that quote the whole body, or the whole object.
    fn scrub_quotations(&self, event: &mut Event) {
        // Who may not do it at all is told so without a word of the body.
        let admitted = event.decision() != "forbid";
        let Some(status) = event.response_status.as_mut() else { return };
        let of_webhook = status.message.starts_with("admission webhook ");
        let of_body = matches!(status.code, 400 | 422 | 500) || status.code == 403 && admitted || of_webhook;
        let blind = (self.unread || self.too_many) && of_body;
        let of_patch = self.patch && self.about_secrets && matches!(status.code, 400 | 422 | 500);
        if !(blind || of_patch) {
            return;
        }
        status.message = MASK.to_owned();
        for cause in status.details.as_mut().and_then(|d| d.get_mut("causes")).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(message) = cause.get_mut("message") {
                redact::mask(message);
            }
        }
        if event.response_object.is_some() {
            let mut shown = serde_json::to_value(&*status).unwrap_or_default();
            shown["kind"] = "Status".into();
            shown["apiVersion"] = "v1".into();
            event.response_object = Some(Json::from(&shown));
        }
    }
}

/// What is to be looked for.
#[derive(Debug, Default)]
pub struct Found {
    values: Vec<String>,
    /// Those that are long enough to be recognised in other forms, in small letters.
    lowered: Vec<Vec<u8>>,
    /// Not everything is known that must not be told.
    blind: bool,
}

impl Found {
    /// Takes it from a text.
    pub fn clean(&self, text: &mut String) {
        if self.blind {
            if !text.is_empty() {
                *text = MASK.to_owned();
            }
            return;
        }
        // Other forms first: a part that is taken from one of them would hide the rest.
        if text.len() >= SHORTEST_PART && !self.lowered.is_empty() {
            notation::mask(text, |bytes| self.is_in(bytes));
        }
        self.values.iter().for_each(|value| replace(text, value));
        if self.is_in(text.as_bytes()) {
            *text = MASK.to_owned();
        }
    }

    /// Whether a name that somebody has chosen tells it.
    fn is_told_by(&self, name: &str) -> bool {
        let mut told = name.to_owned();
        (!self.blind).then(|| self.clean(&mut told));
        told != name
    }

    /// Takes it from every text in a value.
    pub fn clean_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.clean(text),
            Value::Object(map) => map.values_mut().for_each(|value| self.clean_value(value)),
            Value::Array(items) => items.iter_mut().for_each(|value| self.clean_value(value)),
            _ => {}
        }
    }

    /// The same of an object, a list of them or a patch, less what the server itself says there: its kind, its name, its age.
    fn clean_object(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, part) in map {
                    match key.as_str() {
                        "apiVersion" | "kind" | "type" | "op" | "creationTimestamp" if part.is_string() => {}
                        "name" | "namespace" | "generateName" | "uid" | "resourceVersion" | "managedFields" => {}
                        "metadata" | "object" | "items" | "rows" => self.clean_object(part),
                        _ => self.clean_value(part),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.clean_object(item)),
            text => self.clean_value(text),
        }
    }

    /// Whether it is there, in letters of any size.
    fn is_in(&self, bytes: &[u8]) -> bool {
        let lowered = bytes.to_ascii_lowercase();
        self.lowered.iter().any(|value| memmem::find(&lowered, value).is_some())
    }
}

/// Whether an event tells a text in so many words, whatever else is known of it.
fn is_open(event: &Event, text: &str) -> bool {
    let of_object = |object: &ObjectReference| [&object.name, &object.namespace, &object.resource].iter().any(|open| *open == text);
    event.user.username == text || event.object_ref.as_ref().is_some_and(of_object)
}

/// Masks a value in a text; a long one also where only its beginning is told.
fn replace(text: &mut String, value: &str) {
    let head = match value.len() >= 2 * SHORTEST_PART {
        true => value.char_indices().map(|(at, _)| at).find(|at| *at >= SHORTEST_HEAD).map_or(value, |end| &value[..end]),
        false => value,
    };
    let mut from = 0;
    while let Some(start) = text[from..].find(head).map(|at| from + at) {
        let same = text[start..].chars().zip(value.chars()).take_while(|(told, known)| told == known);
        let length: usize = same.map(|(told, _)| told.len_utf8()).sum();
        text.replace_range(start..start + length, MASK);
        from = start + MASK.len();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::audit::event::ResponseStatus;
    use crate::request::parse;

    const SECRETS: &str = "/api/v1/namespaces/a/secrets";

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
    fn a_value_that_is_a_common_word_takes_nothing_along_that_the_server_says_itself() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {"name": "postgres", "namespace": "default",
            "annotations": {"a": "is postgres, Opaque", "b": "true"}}, "stringData": {"user": "postgres", "db": "default", "t": "Opaque",
            "k": "Secret", "ssl": "true"}});
        let mut secrets = Secrets::of(&parse("POST", SECRETS, ""), true);
        secrets.learn(&secret);
        let status = ResponseStatus {
            message: "secrets \"postgres\" already exists, Opaque".into(),
            reason: "Opaque".into(),
            code: 409,
            ..ResponseStatus::default()
        };
        let reference = ObjectReference { name: "postgres".into(), namespace: "default".into(), ..ObjectReference::default() };
        let mut event = Event {
            response_status: Some(status),
            object_ref: Some(reference),
            response_object: Some(Json::from(&json!({"kind": "SecretList", "items": [secret]}))),
            ..Event::default()
        };
        secrets.scrub(&mut event);
        let status = event.response_status.unwrap();
        assert_eq!((status.message.as_str(), status.reason.as_str()), ("secrets \"postgres\" already exists, [redacted]", MASK));
        let told = &event.response_object.unwrap().value().unwrap()["items"][0];
        let metadata = json!({"name": "postgres", "namespace": "default", "annotations": {"a": "is postgres, [redacted]", "b": "true"}});
        assert_eq!((&told["kind"], &told["type"], &told["metadata"]), (&"Secret".into(), &"Opaque".into(), &metadata));
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

    fn known(secret: Value) -> Found {
        let mut secrets = Secrets::default();
        secrets.guard(&secret);
        secrets.found()
    }

    fn cleaned(found: &Found, text: &str) -> String {
        let mut text = text.to_owned();
        found.clean(&mut text);
        text
    }

    #[test]
    fn a_value_is_known_in_every_form_that_a_webhook_may_quote_it_in() {
        let found = known(json!({"kind": "Secret", "stringData": {"p": "Hunter/2 & \"more\""}}));
        for quoted in [
            "it was Hunter/2 & \"more\"",
            "it was HUNTER/2 & \"MORE\"",
            "it was Hunter/2%20%26%20%22more%22",
            "it was Hunter%2F2+%26+%22more%22",
            "it was SHVudGVyLzIgJiAibW9yZSI=",
            "it was SHVudGVyLzIgJiAibW9yZSI",
            "it was x-YSBIdW50ZXIvMiAmICJtb3JlIiBi.",
            "it was (48756e7465722f32202620226d6f726522)",
            "it was [72 117 110 116 101 114 47 50 32 38 32 34 109 111 114 101 34]",
            "it was 48 75 6e 74 65 72 2f 32 20 26 20 22 6D 6F 72 65 22",
        ] {
            let text = cleaned(&found, quoted);
            assert!(text.contains(MASK) && !text.to_lowercase().contains("unter") && text.len() < 30, "{quoted} became {text}");
        }
        for innocent in ["it was not told", "a sha256 0123456789abcdef0123456789abcdef", "100% of [1 2 3 4 5 6 7 8 9 10]", "default"] {
            assert_eq!(cleaned(&found, innocent), innocent);
        }
    }

    #[test]
    fn a_value_that_is_no_text_is_known_by_its_bytes() {
        let key: Vec<u8> = (0..24).map(|n| 0x80 + 5 * n).collect();
        let found = known(json!({"kind": "Secret", "data": {"key": STANDARD.encode(&key)}}));
        let digits = |between: &str| key.iter().map(|byte| format!("{between}{byte:02x}")).collect::<String>();
        let shifted = STANDARD.encode([b"x".as_slice(), &key].concat());
        let lossy = String::from_utf8_lossy(&key).into_owned();
        for quoted in [STANDARD.encode(&key), shifted, digits(""), digits(":"), digits("%"), format!("{key:?}"), lossy] {
            let text = cleaned(&found, &format!("it was {quoted}"));
            assert!(text.contains(MASK) && text.len() < 30, "{quoted} became {text}");
        }
    }

    #[test]
    fn a_refusal_is_cleaned_as_an_object_too_in_whatever_form_it_quotes() {
        let mut secrets = Secrets::of(&parse("POST", SECRETS, ""), true);
        secrets.learn(&json!({"kind": "Secret", "stringData": {"p": "correct-horse"}}));
        let status =
            ResponseStatus { status: "Failure".into(), message: "no: CORRECT-HORSE".into(), code: 403, ..ResponseStatus::default() };
        let shown =
            json!({"kind": "Status", "message": "no: CORRECT-HORSE", "details": {"causes": [{"field": "636f72726563742d686f727365"}]}});
        let mut event = Event { response_status: Some(status), response_object: Some(Json::from(&shown)), ..Event::default() };
        secrets.scrub(&mut event);
        let told = event.response_object.unwrap().value().unwrap();
        assert_eq!(told, json!({"kind": "Status", "message": MASK, "details": {"causes": [{"field": MASK}]}}));
    }

    #[test]
    fn a_long_value_that_is_cut_off_is_known_by_its_beginning() {
        let found = known(json!({"kind": "Secret", "stringData": {"p": "correct-horse-battery-staple", "m": "[redacted]xx and more"}}));
        assert_eq!(cleaned(&found, "got correct-horse-bat..., correct-horse"), "got [redacted]..., [redacted]");
        assert_eq!(cleaned(&found, "[redacted]xxxx, correct"), "[redacted]xx, correct");
        let both = known(json!({"kind": "Secret", "stringData": {"a": "correct-horse-battery", "b": "staple-and-more-words"}}));
        let together = STANDARD.encode("correct-horse-battery staple-and-more-words");
        assert_eq!(cleaned(&both, &format!("got {together}")), "got [redacted]");
    }

    #[test]
    fn a_line_of_a_file_and_the_password_of_a_registry_are_as_secret_as_the_whole() {
        let found = known(json!({"kind": "Secret", "stringData": {"f": "first line\n  second line\n",
            ".dockerconfigjson": r#"{"auths":{"r":{"auth":"dXNlcjpodW50ZXIyMg==","password":"hunter22"}}}"#}}));
        assert_eq!(cleaned(&found, "it says second line, and hunter22"), "it says [redacted], and [redacted]");
        assert_eq!(cleaned(&found, "it says user:hunter22"), "it says [redacted]");
    }

    #[test]
    fn where_there_is_more_than_can_be_looked_for_nothing_that_was_said_is_told() {
        let data: Map<String, Value> = (0..100_000).map(|n| (format!("k{n}"), Value::from(format!("value-{n}")))).collect();
        let secret = json!({"kind": "Secret", "stringData": data});
        let mut secrets = Secrets::of(&parse("POST", SECRETS, ""), true);
        secrets.learn(&secret);
        assert!(secrets.values.len() <= MOST + 2);
        let status = ResponseStatus { message: "no: value-99999".into(), code: 422, ..ResponseStatus::default() };
        let mut event = Event { response_status: Some(status), ..Event::default() };
        event.annotations.insert("authorization.k8s.io/decision".into(), "allow".into());
        event.annotations.insert("hook/x".into(), "value-99999".into());
        secrets.scrub(&mut event);
        assert_eq!((event.response_status.unwrap().message.as_str(), event.annotations["hook/x"].as_str()), (MASK, MASK));
        assert_eq!(event.annotations["authorization.k8s.io/decision"], "allow");
    }
}
