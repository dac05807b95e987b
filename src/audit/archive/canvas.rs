//! A record as an expression sees it: a JSON value that is painted over from record to record. Only what the expression names is painted,
//! only what differs from the record before is painted again, and what was taken down is kept for the next record that says the same:
//! to make a value anew for every record would cost more than to evaluate the expression.

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use serde_json::{Map, Value};
use usher_cel::Reads;

use super::body;
use super::row::{Part, Row, Told, Written};
use crate::audit::event::UserInfo;
use crate::audit::expression::FIELDS;

/// Those that are objects, or a list.
const STRUCTURED: [&str; 8] =
    ["user", "impersonatedUser", "authenticationMetadata", "sourceIPs", "objectRef", "responseStatus", "annotations", "trace"];

/// Of how many phrases the values are kept that were taken down.
const KEPT: usize = 4096;

/// The value, and what is on it.
#[derive(Debug)]
pub struct Canvas<'f> {
    value: Value,
    reads: &'f Reads,
    /// What is painted, with what of it.
    painted: Vec<(&'static str, &'f Reads)>,
    /// What only has to be there, or to be what it is, and whether it is there now.
    placeholders: Vec<(&'static str, Value, bool)>,
    /// Which phrase hangs under a name.
    shown: Vec<(&'static str, u32)>,
    steps: Vec<Option<u32>>,
    annotations: Vec<Option<u32>>,
    /// By the number of the phrase, each with the name under which it hung.
    kept: Vec<Option<(&'static str, Value)>>,
}

impl<'f> Canvas<'f> {
    /// An empty one, for what an expression looks at.
    pub fn new(reads: &'f Reads) -> Self {
        let placeholders = FIELDS.into_iter().filter_map(|name| Some((name, placeholder(name, reads.field(name)?)?, false))).collect();
        let painted = FIELDS.into_iter().filter_map(|name| Some((name, looked_into(name, reads)?))).collect();
        let value = Value::Object(Map::new());
        Canvas { value, reads, painted, placeholders, shown: Vec::new(), steps: Vec::new(), annotations: Vec::new(), kept: Vec::new() }
    }

    /// Paints a record; `None` if it is damaged.
    pub fn paint(&mut self, row: &Row<'_>) -> Option<&Value> {
        let Value::Object(mut event) = self.value.take() else { return None };
        let painted = self.event(&mut event, row);
        if painted.is_none() {
            // Half a picture is none.
            *self = Canvas::new(self.reads);
            return None;
        }
        self.value = Value::Object(event);
        Some(&self.value)
    }

    fn event(&mut self, event: &mut Map<String, Value>, row: &Row<'_>) -> Option<()> {
        for (name, placeholder, there) in &mut self.placeholders {
            let was_there = std::mem::replace(there, row.has(name));
            match (was_there, *there) {
                (false, true) => drop(event.insert((*name).to_owned(), placeholder.clone())),
                (true, false) => drop(event.remove(*name)),
                _ => {}
            }
        }
        for at in 0..self.painted.len() {
            let (name, reads) = self.painted[at];
            match name {
                "kind" => write(event, name, row.kind.pair()?.0),
                "apiVersion" => write(event, name, row.kind.pair()?.1),
                "level" => write(event, name, row.level.name()),
                "stage" => write(event, name, row.stage.name()),
                "auditID" => write_with(event, name, |id| row.audit_id.write(id)),
                "requestURI" => write(event, name, row.uri),
                "verb" => write(event, name, row.verb.text()?),
                "user" => self.hang(event, name, Some(row.user), user)?,
                "impersonatedUser" => self.hang(event, name, row.acting, user)?,
                "authenticationMetadata" => {
                    let constraint = |part: Part<'_>| Some(serde_json::json!({"impersonationConstraint": part.text()?}));
                    self.hang(event, name, row.constraint, constraint)?;
                }
                "sourceIPs" => {
                    let addresses = Some(row.addresses).filter(|part| !part.bytes.is_empty());
                    self.hang(event, name, addresses, |part| serde_json::to_value(part.texts()?).ok())?;
                }
                "userAgent" => optional(event, name, Some(row.agent.text()?).filter(|agent| !agent.is_empty())),
                "objectRef" => self.object(event, row)?,
                "responseStatus" => self.status(event, row)?,
                "requestObject" => body(event, name, row.request()?.as_deref(), reads)?,
                "responseObject" => body(event, name, row.response()?.as_deref(), reads)?,
                "requestReceivedTimestamp" => time(event, name, row.received),
                "stageTimestamp" => time(event, name, row.reached),
                "annotations" if !self.annotated(row) => annotations(event, row)?,
                "trace" => match row.told()? {
                    Some(told) => self.told(event, reads, told)?,
                    None => drop(event.remove(name)),
                },
                _ => {}
            }
        }
        Some(())
    }

    /// Hangs up what a part says. What hung there goes to the shelf under the number of its phrase, and comes back from it.
    fn hang(
        &mut self,
        on: &mut Map<String, Value>,
        name: &'static str,
        part: Option<Part<'_>>,
        make: impl FnOnce(Part<'_>) -> Option<Value>,
    ) -> Option<()> {
        let at = self.shown.iter().position(|(shown, _)| *shown == name);
        let before = at.map(|at| self.shown[at].1);
        if before.is_some() && part.is_some_and(|part| part.code == before) {
            return Some(());
        }
        at.map(|at| self.shown.swap_remove(at));
        let old = match part {
            None => on.remove(name),
            Some(part) => {
                self.shown.extend(part.code.map(|code| (name, code)));
                let new = self.made(name, part, make)?;
                match on.get_mut(name) {
                    Some(place) => Some(std::mem::replace(place, new)),
                    None => on.insert(name.to_owned(), new),
                }
            }
        };
        self.shelve(name, before, old);
        Some(())
    }

    fn made(&mut self, name: &'static str, part: Part<'_>, make: impl FnOnce(Part<'_>) -> Option<Value>) -> Option<Value> {
        let kept = part.code.and_then(|code| self.kept.get_mut(code as usize)).and_then(|kept| kept.take_if(|kept| kept.0 == name));
        kept.map(|(_, value)| value).or_else(|| make(part))
    }

    fn shelve(&mut self, name: &'static str, code: Option<u32>, value: Option<Value>) {
        let (Some(code), Some(value)) = (code, value) else { return };
        let code = code as usize;
        if code < KEPT {
            self.kept.resize_with(self.kept.len().max(code + 1), || None);
            self.kept[code] = Some((name, value));
        }
    }

    /// Whether the annotations that are shown are those of a record; if not, they will be.
    fn annotated(&mut self, row: &Row<'_>) -> bool {
        let codes = row.annotations().map(|part| part.code);
        let same = codes.clone().eq(self.annotations.iter().copied()) && self.annotations.iter().all(Option::is_some);
        if !same {
            self.annotations.clear();
            self.annotations.extend(codes);
        }
        same
    }

    fn object(&mut self, event: &mut Map<String, Value>, row: &Row<'_>) -> Option<()> {
        const NAME: &str = "objectRef";
        let Some((place, name, uid, revision)) = row.object else { return self.hang(event, NAME, None, |_| None) };
        self.hang(event, NAME, Some(place), |_| serde_json::to_value(row.object()?).ok())?;
        let object = event.get_mut(NAME).and_then(Value::as_object_mut)?;
        for (key, text) in [("name", name), ("uid", uid), ("resourceVersion", revision)] {
            optional(object, key, Some(text).filter(|text| !text.is_empty()));
        }
        Some(())
    }

    fn status(&mut self, event: &mut Map<String, Value>, row: &Row<'_>) -> Option<()> {
        const NAME: &str = "responseStatus";
        self.hang(event, NAME, row.status.map(|(_, rest)| rest), |_| serde_json::to_value(row.status()?).ok())?;
        if let (Some((code, _)), Some(status)) = (row.status, event.get_mut(NAME).and_then(Value::as_object_mut)) {
            number(status, "code", u64::from(code));
        }
        Some(())
    }

    fn told(&mut self, event: &mut Map<String, Value>, wanted: &Reads, told: Told<'_>) -> Option<()> {
        if !event.contains_key("trace") {
            event.insert("trace".to_owned(), Value::Object(Map::new()));
            self.steps.clear();
        }
        let trace = event.get_mut("trace").and_then(Value::as_object_mut)?;
        // Whether there is something to paint.
        let wants = |trace: &mut Map<String, Value>, name: &str, there: bool| match wanted.field(name) {
            None => false,
            Some(_) if !there => {
                trace.remove(name);
                false
            }
            Some(reads) if reads.only_presence() => {
                if !trace.contains_key(name) {
                    trace.insert(name.to_owned(), Value::Null);
                }
                false
            }
            Some(_) => true,
        };
        if wants(trace, "took", true) {
            number(trace, "took", told.took);
        }
        if wants(trace, "steps", !told.steps.is_empty()) {
            self.steps(trace, &told)?;
        }
        if wants(trace, "warnings", !told.warnings.is_empty()) {
            trace.insert("warnings".to_owned(), told.warnings.into());
        }
        if wants(trace, "wrote", told.wrote.is_some()) {
            told.wrote.iter().for_each(|written| wrote(trace, written));
        }
        if wants(trace, "cause", told.cause.is_some()) {
            told.cause.iter().for_each(|cause| number(trace, "cause", *cause));
        }
        if wants(trace, "traceId", !told.trace_id.is_empty()) {
            write(trace, "traceId", told.trace_id);
        }
        Some(())
    }

    fn steps(&mut self, trace: &mut Map<String, Value>, told: &Told<'_>) -> Option<()> {
        const NAME: &str = "steps";
        if !trace.contains_key(NAME) {
            trace.insert(NAME.to_owned(), Value::Array(Vec::new()));
            self.steps.clear();
        }
        let Some(Value::Array(mut steps)) = trace.get_mut(NAME).map(Value::take) else { return None };
        while steps.len() > told.steps.len() {
            let code = self.steps.pop().flatten();
            self.shelve(NAME, code, steps.pop());
        }
        for (at, (part, ended, took)) in told.steps.iter().enumerate() {
            let shown = self.steps.get(at).copied().flatten();
            if part.code.is_none() || shown != part.code || at >= steps.len() {
                let new = self.made(NAME, *part, |part| serde_json::to_value(part.step()?).ok())?;
                if at < steps.len() {
                    let old = std::mem::replace(&mut steps[at], new);
                    self.steps[at] = part.code;
                    self.shelve(NAME, shown, Some(old));
                } else {
                    steps.push(new);
                    self.steps.push(part.code);
                }
            }
            let step = steps[at].as_object_mut()?;
            number(step, "at", *ended);
            number(step, "took", *took);
        }
        trace.insert(NAME.to_owned(), Value::Array(steps));
        Some(())
    }
}

/// What stands for a field of which nothing else is read than that it is there, or that it is an object, a list or a text.
fn placeholder(name: &str, reads: &Reads) -> Option<Value> {
    match name {
        _ if reads.only_presence() => Some(Value::Null),
        "sourceIPs" if reads.only_plain() => Some(Value::Array(Vec::new())),
        name if STRUCTURED.contains(&name) => reads.only_plain().then(|| Value::Object(Map::new())),
        "requestObject" | "responseObject" => None,
        _ => (!reads.plain()).then(|| Value::String(String::new())),
    }
}

/// What is read of a field, if no placeholder will do for it.
fn looked_into<'r>(name: &str, reads: &'r Reads) -> Option<&'r Reads> {
    reads.field(name).filter(|reads| placeholder(name, reads).is_none())
}

fn body(event: &mut Map<String, Value>, name: &str, json: Option<&[u8]>, reads: &Reads) -> Option<()> {
    match (json, event.get_mut(name)) {
        (None, _) => drop(event.remove(name)),
        (Some(json), Some(place)) => *place = body::read(json, reads, place.take())?,
        (Some(json), None) => drop(event.insert(name.to_owned(), body::read(json, reads, Value::Null)?)),
    }
    Some(())
}

fn user(part: Part<'_>) -> Option<Value> {
    let user: UserInfo = part.user()?;
    serde_json::to_value(user).ok()
}

/// Writes a text under a key, over the one that is there.
fn write_with(map: &mut Map<String, Value>, key: &str, write: impl FnOnce(&mut String)) {
    if let Some(Value::String(text)) = map.get_mut(key) {
        text.clear();
        return write(text);
    }
    let mut text = String::new();
    write(&mut text);
    map.insert(key.to_owned(), Value::String(text));
}

fn write(map: &mut Map<String, Value>, key: &str, value: &str) {
    write_with(map, key, |text| text.push_str(value));
}

fn optional(map: &mut Map<String, Value>, key: &str, value: Option<&str>) {
    match value {
        Some(value) => write(map, key, value),
        None => drop(map.remove(key)),
    }
}

fn number(map: &mut Map<String, Value>, key: &str, value: u64) {
    match map.get_mut(key) {
        Some(place) => *place = value.into(),
        None => drop(map.insert(key.to_owned(), value.into())),
    }
}

fn time(map: &mut Map<String, Value>, key: &str, time: Option<Timestamp>) {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));
    let Some(time) = time else { return drop(map.remove(key)) };
    // Writing to a string does not fail.
    write_with(map, key, |text| drop(PRINTER.print_timestamp(&time, text)));
}

fn wrote(trace: &mut Map<String, Value>, written: &Written<'_>) {
    let wrote = trace.entry("wrote").or_insert_with(|| Value::Object(Map::new()));
    let Some(wrote) = wrote.as_object_mut() else { return };
    number(wrote, "revision", written.revision);
    write(wrote, "kind", written.kind);
    write(wrote, "name", written.name);
    write_with(wrote, "uid", |uid| written.uid.write(uid));
    match (written.owners.is_empty(), wrote.get_mut("owners").and_then(Value::as_array_mut)) {
        (true, _) => drop(wrote.remove("owners")),
        (false, Some(owners)) => {
            owners.clear();
            owners.extend(written.owners.iter().map(|id| Value::String(id.text())));
        }
        (false, None) => drop(wrote.insert("owners".to_owned(), written.owners.iter().map(|id| id.text()).collect())),
    }
    match written.deleted {
        true => drop(wrote.insert("deleted".to_owned(), Value::Bool(true))),
        false => drop(wrote.remove("deleted")),
    }
}

/// Annotations have the same keys nearly always: then their values are written over.
fn annotations(event: &mut Map<String, Value>, row: &Row<'_>) -> Option<()> {
    const NAME: &str = "annotations";
    let pairs: Vec<_> = row.annotations().map(|part| part.pair()).collect::<Option<_>>()?;
    if pairs.is_empty() {
        event.remove(NAME);
        return Some(());
    }
    if let Some(shown) = event.get_mut(NAME).and_then(Value::as_object_mut)
        && shown.len() == pairs.len()
        && pairs.iter().all(|(key, _)| shown.contains_key(*key))
    {
        pairs.iter().for_each(|(key, value)| write(shown, key, value));
        return Some(());
    }
    let new = pairs.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    event.insert(NAME.to_owned(), Value::Object(new));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::medium::Medium;
    use super::super::phrases::Phrases;
    use super::super::repeats::Repeats;
    use super::super::row::encode;
    use super::*;
    use crate::audit::Event;
    use crate::audit::expression::Expression;

    /// Records that differ from one to the next in every way that a record can.
    fn events() -> Vec<Event> {
        let mut all = Vec::new();
        for number in 0..64u64 {
            let bit = |at: u64| number >> at & 1 == 1;
            let mut event = serde_json::json!({"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": "ResponseComplete",
                "auditID": format!("00000000-0000-4000-8000-{number:012}"), "requestURI": format!("/api/{number}"), "verb": "get",
                "user": {"username": format!("u{}", number % 3), "groups": ["a", "b"]}});
            if bit(0) {
                event["user"]["extra"] = serde_json::json!({"scopes": ["x", "y"], "more": []});
                event["auditID"] = "not-a-uuid".into();
                event["sourceIPs"] = serde_json::json!(["10.0.0.1", "10.0.0.2"]);
                event["trace"] = serde_json::json!({"took": number, "steps": [
                    {"hop": "authenticate", "name": "x509", "verdict": "matched", "at": number, "took": 1},
                    {"hop": "store", "name": "commit", "verdict": format!("revision {number}"), "at": number, "took": 300},
                    {"hop": "validate", "name": "p", "verdict": "denied", "detail": {"values": [number % 2]}, "at": 1, "took": 2}],
                    "cause": number, "traceId": "abc"});
            }
            if bit(1) {
                event["impersonatedUser"] = serde_json::json!({"username": "other"});
                event["authenticationMetadata"] = serde_json::json!({"impersonationConstraint": "impersonate:user-info"});
                event["userAgent"] = "kubectl".into();
                event["trace"] = serde_json::json!({"took": 3, "warnings": ["w"], "wrote": {"revision": 1, "kind": "Pod", "name": "n",
                    "uid": "00000000-0000-4000-8000-000000000001", "owners": ["o"], "deleted": true}});
            }
            if bit(2) {
                event["objectRef"] = serde_json::json!({"resource": "pods", "namespace": "default", "name": format!("n{}", number % 4),
                    "apiVersion": "v1", "uid": "u", "resourceVersion": "7"});
                event["requestReceivedTimestamp"] = "2026-05-01T12:00:00.000001Z".into();
            }
            if bit(3) {
                event["objectRef"] = serde_json::json!({"resource": "deployments", "apiGroup": "apps", "subresource": "scale"});
                event["responseStatus"] = serde_json::json!({"metadata": {}, "code": 200 + number % 2});
                event["stageTimestamp"] = "2026-05-01T12:00:01.500000Z".into();
                event["level"] = "RequestResponse".into();
            }
            if bit(4) {
                event["responseStatus"] = serde_json::json!({"metadata": {"a": 1}, "status": "Failure", "message": "no", "reason": "Forbidden",
                    "details": {"name": "x"}, "code": 403});
                event["requestObject"] = serde_json::json!({"kind": "Pod", "spec": {"a": [1, 2.5, null]}});
                event["annotations"] = serde_json::json!({"a": "b", "c": format!("{number}")});
            }
            if bit(5) {
                event["annotations"] = serde_json::json!({"a": "b", "d": "e"});
                event["responseObject"] = serde_json::json!([]);
                event["stage"] = "Panic".into();
            }
            all.push(serde_json::from_value(event).unwrap());
        }
        all
    }

    #[test]
    fn what_is_painted_is_what_a_record_says_whatever_was_painted_before() {
        let events = events();
        let (mut phrases, mut repeats, medium) = (Phrases::default(), Repeats::default(), Medium::memory());
        let mut rows = Vec::new();
        // Three times, so that everything is a phrase in the end.
        for (turn, event) in events.iter().chain(events.iter().rev()).chain(&events).enumerate() {
            let mut out = Vec::new();
            encode(event, &mut phrases, &mut repeats, 0, &mut out);
            assert!(turn < 100 || out.len() < 200, "a record of {} bytes", out.len());
            rows.push((event, out));
        }
        let whole = Expression::compile("event == event.user").unwrap();
        let some =
            Expression::compile("event.user.username == '' || event.trace.steps.size() == 1 || event.responseStatus.code == 2").unwrap();
        let keys = Expression::compile("event.exists(key, key == 'verb') && event.verb == ''").unwrap();
        let plain = Expression::compile("event.exists(key, event[key] == 'x')").unwrap();
        let (mut all, mut part, mut there) = (Canvas::new(whole.reads()), Canvas::new(some.reads()), Canvas::new(keys.reads()));
        let mut shallow = Canvas::new(plain.reads());
        let objects = Expression::compile("event.exists(key, value, value == {'a': 'b'})").unwrap();
        let mut structured = Canvas::new(objects.reads());
        for (event, bytes) in &rows {
            let row = Row::read(bytes, &phrases.lexicon, &medium).unwrap();
            let expected = serde_json::to_value(event).unwrap();
            assert_eq!(serde_json::to_value(row.event().unwrap()).unwrap(), expected);
            assert_eq!(all.paint(&row), Some(&expected));
            let shown = there.paint(&row).unwrap();
            let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            assert_eq!((names(shown), shown.get("verb")), (names(&expected), expected.get("verb")));
            assert_eq!(shown.get("user"), Some(&Value::Null));
            let mut emptied = expected.clone();
            for field in emptied.as_object_mut().unwrap().values_mut() {
                match field {
                    Value::Object(map) => map.clear(),
                    Value::Array(items) => items.clear(),
                    _ => {}
                }
            }
            assert_eq!(shallow.paint(&row), Some(&emptied));
            let shown = structured.paint(&row).unwrap();
            assert_eq!(names(shown), names(&expected));
            for (name, value) in expected.as_object().unwrap() {
                match value {
                    Value::String(_) => assert_eq!(shown[name], ""),
                    // Of a body nothing is told but its keys, and what is asked for.
                    body if name.ends_with("Object") => assert_eq!(shown[name].is_array(), body.is_array()),
                    trace if name == "trace" => assert_eq!(names(&shown[name]), names(trace)),
                    whole => assert_eq!(&shown[name], whole),
                }
            }
            let shown = part.paint(&row).unwrap();
            assert_eq!((shown.get("user"), shown.get("responseStatus")), (expected.get("user"), expected.get("responseStatus")));
            assert_eq!(shown.pointer("/trace/steps"), expected.pointer("/trace/steps"));
            assert_eq!((shown.get("verb"), shown.pointer("/trace/took")), (None, None));
        }
    }

    #[test]
    fn a_record_that_is_cut_or_changed_is_no_record_and_no_panic() {
        let (mut phrases, mut repeats, medium) = (Phrases::default(), Repeats::default(), Medium::memory());
        for event in events() {
            let mut out = Vec::new();
            encode(&event, &mut phrases, &mut repeats, 0, &mut out);
            for end in 0..out.len() {
                if let Some(row) = Row::read(&out[..end], &phrases.lexicon, &medium) {
                    assert!(row.event().is_none());
                }
                let mut flipped = out.clone();
                flipped[end] ^= 0xff;
                let _ = Row::read(&flipped, &phrases.lexicon, &medium).and_then(|row| row.event());
            }
        }
    }
}
