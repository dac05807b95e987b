//! Events as lines for the sinks. It is the JSON that serde makes of an [`Event`] without its story, to the byte: a test sees to that.
//! Written by hand, because every request is written twice and this is most of what a sink costs: bodies are JSON already, hardly any
//! text has something to escape, and a second's name is good for all events of it.

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;

use super::event::{ObjectReference, ResponseStatus, UserInfo};
use super::{Event, in_order};

/// The lines of events that have been written together, each with its end.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    text: Vec<u8>,
    second: (i64, String),
}

impl Lines {
    /// Adds the line of an event.
    pub fn add(&mut self, event: &Event) {
        self.event(event);
        self.text.push(b'\n');
    }

    /// How many bytes they are.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.text.clear();
    }

    /// Takes them out, if there are any.
    pub fn take(&mut self) -> Option<Bytes> {
        let room = self.text.len();
        (room > 0).then(|| std::mem::replace(&mut self.text, Vec::with_capacity(room)).into())
    }

    fn event(&mut self, event: &Event) {
        self.text.push(b'{');
        self.string("kind", &event.kind);
        self.string("apiVersion", &event.api_version);
        self.string("level", event.level.name());
        self.string("auditID", &event.audit_id);
        self.string("stage", event.stage.name());
        self.string("requestURI", &event.request_uri);
        self.string("verb", &event.verb);
        self.user("user", &event.user);
        if let Some(user) = &event.impersonated_user {
            self.user("impersonatedUser", user);
        }
        if let Some(metadata) = &event.authentication_metadata {
            self.any("authenticationMetadata", metadata);
        }
        self.strings("sourceIPs", &event.source_ips);
        self.present("userAgent", &event.user_agent);
        if let Some(object) = &event.object_ref {
            self.object("objectRef", object);
        }
        if let Some(status) = &event.response_status {
            self.status("responseStatus", status);
        }
        for (key, body) in [("requestObject", &event.request_object), ("responseObject", &event.response_object)] {
            if let Some(body) = body {
                self.key(key);
                self.text.extend_from_slice(body.bytes());
            }
        }
        self.time("requestReceivedTimestamp", event.request_received_timestamp);
        self.time("stageTimestamp", event.stage_timestamp);
        if !event.annotations.is_empty() {
            self.open("annotations");
            for (key, value) in &event.annotations {
                self.separate();
                self.quoted(key);
                self.text.push(b':');
                self.quoted(value);
            }
            self.text.push(b'}');
        }
        self.text.push(b'}');
    }

    fn user(&mut self, key: &'static str, user: &UserInfo) {
        self.open(key);
        self.present("username", &user.username);
        self.present("uid", &user.uid);
        self.strings("groups", &user.groups);
        if !user.extra.is_empty() {
            self.any("extra", &user.extra);
        }
        self.text.push(b'}');
    }

    fn object(&mut self, key: &'static str, object: &ObjectReference) {
        self.open(key);
        self.present("resource", &object.resource);
        self.present("namespace", &object.namespace);
        self.present("name", &object.name);
        self.present("uid", &object.uid);
        self.present("apiGroup", &object.api_group);
        self.present("apiVersion", &object.api_version);
        self.present("resourceVersion", &object.resource_version);
        self.present("subresource", &object.subresource);
        self.text.push(b'}');
    }

    fn status(&mut self, key: &'static str, status: &ResponseStatus) {
        self.open(key);
        self.any("metadata", &status.metadata);
        self.present("status", &status.status);
        self.present("message", &status.message);
        self.present("reason", &status.reason);
        if let Some(details) = &status.details {
            self.any("details", &in_order::details(details));
        }
        self.any("code", &status.code);
        self.text.push(b'}');
    }

    fn separate(&mut self) {
        if self.text.last() != Some(&b'{') {
            self.text.push(b',');
        }
    }

    /// A field's name, in which there is nothing to escape.
    fn key(&mut self, key: &'static str) {
        self.separate();
        self.text.push(b'"');
        self.text.extend_from_slice(key.as_bytes());
        self.text.extend_from_slice(b"\":");
    }

    fn open(&mut self, key: &'static str) {
        self.key(key);
        self.text.push(b'{');
    }

    fn string(&mut self, key: &'static str, text: &str) {
        self.key(key);
        self.quoted(text);
    }

    fn present(&mut self, key: &'static str, text: &str) {
        if !text.is_empty() {
            self.string(key, text);
        }
    }

    fn strings(&mut self, key: &'static str, texts: &[String]) {
        for (index, text) in texts.iter().enumerate() {
            if index == 0 {
                self.key(key);
            }
            self.text.push(if index == 0 { b'[' } else { b',' });
            self.quoted(text);
        }
        if !texts.is_empty() {
            self.text.push(b']');
        }
    }

    /// What is rare, or small.
    fn any(&mut self, key: &'static str, value: &impl Serialize) {
        self.key(key);
        let start = self.text.len();
        if serde_json::to_writer(&mut self.text, value).is_err() {
            self.text.truncate(start);
            self.text.extend_from_slice(b"null");
        }
    }

    fn time(&mut self, key: &'static str, time: Option<Timestamp>) {
        let Some(time) = time else { return };
        self.key(key);
        let micros = time.as_microsecond();
        let (second, mut rest) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
        if self.second.0 != second || self.second.1.is_empty() {
            let name = Timestamp::from_second(second).unwrap_or_default().strftime("\"%Y-%m-%dT%H:%M:%S.").to_string();
            self.second = (second, name);
        }
        self.text.extend_from_slice(self.second.1.as_bytes());
        let mut digits = *b"000000Z\"";
        for digit in digits[..6].iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        self.text.extend_from_slice(&digits);
    }

    fn quoted(&mut self, text: &str) {
        // Looked at to the end: that is quicker than to stop, and there is hardly ever a reason to.
        let plain = text.bytes().fold(true, |plain, byte| plain & (byte >= b' ') & (byte != b'"') & (byte != b'\\'));
        match plain {
            true => {
                self.text.push(b'"');
                self.text.extend_from_slice(text.as_bytes());
                self.text.push(b'"');
            }
            // Nothing can be wrong with a text.
            false => drop(serde_json::to_writer(&mut self.text, text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::audit::event::AuthenticationMetadata;
    use crate::audit::{Json, Level, Stage};

    fn event(words: &[String], times: [i64; 2], present: [bool; 6]) -> Event {
        let word = |n: usize| words[n % words.len()].clone();
        let user = |n| UserInfo {
            username: word(n),
            uid: word(n + 1),
            groups: words[..n % words.len()].to_vec(),
            extra: if present[0] { [(word(n), vec![word(n + 2)])].into() } else { Default::default() },
        };
        let time = |at: i64, there: bool| there.then(|| Timestamp::from_microsecond(at).unwrap());
        let body = json!({"a": word(3), "b": [1.5, null]});
        Event {
            kind: "Event".into(),
            api_version: "audit.k8s.io/v1".into(),
            level: Level::Request,
            audit_id: word(1),
            stage: Stage::Panic,
            request_uri: word(2),
            verb: word(3).into(),
            user: user(1),
            impersonated_user: present[1].then(|| user(2)),
            authentication_metadata: present[2].then(|| AuthenticationMetadata { impersonation_constraint: word(4) }),
            source_ips: words[words.len() / 2..].to_vec(),
            user_agent: word(5),
            object_ref: present[3].then(|| ObjectReference {
                resource: word(1),
                namespace: word(2),
                name: word(3),
                uid: word(4),
                api_group: word(5),
                api_version: word(6),
                resource_version: word(7),
                subresource: word(8),
            }),
            response_status: present[4].then(|| ResponseStatus {
                metadata: Default::default(),
                status: word(1),
                message: word(2),
                reason: word(3),
                details: present[5].then(|| body.clone()),
                code: 403,
            }),
            request_object: present[5].then(|| Json::from(&body)),
            response_object: present[1].then(|| Json::from(&json!({}))),
            request_received_timestamp: time(times[0], present[2]),
            stage_timestamp: time(times[1], present[3]),
            annotations: (0..words.len() - 1).map(|n| (word(n), word(n + 1))).collect(),
            trace: None,
        }
    }

    proptest! {
        #[test]
        fn a_line_is_what_serde_makes_of_the_event(
            words in prop::collection::vec(prop_oneof![Just(String::new()), "[a-z/:.-]{1,40}", "[\\x00-\\x7f]{0,12}", ".{0,12}"], 1..9),
            times in prop::array::uniform2(-60_000_000_000_000_000i64..200_000_000_000_000_000),
            present: [bool; 6],
        ) {
            let (mut lines, event) = (Lines::default(), event(&words, times, present));
            lines.add(&event);
            lines.add(&Event::default());
            let expected = [serde_json::to_string(&event).unwrap(), serde_json::to_string(&Event::default()).unwrap(), String::new()];
            prop_assert_eq!(lines.take().unwrap(), expected.join("\n"));
            prop_assert_eq!(lines.take(), None);
        }
    }
}
