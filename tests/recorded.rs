//! What a real server answered, told again: each request of the table is sent to a server over TLS, in the order of recording, and its answer
//! compared with the recorded one: code, the headers that clients read, and the whole body, so that `Status`, details and every cause agree.
//!
//! A line of `recorded.jsonl` without `record` only prepares for the ones behind it. `<name>` in a text stands for something that every server
//! makes up (a uid, a revision, a token): it takes any value where it is first met and must be that value from then on; `<time>` and `<*>`
//! are never held. `<x*N>` is N times `x`.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use regex::Regex;
use reqwest::{Certificate, Client, Method};
use serde_json::{Value, json};
use usher::Server;
use usher_components::clock::Clock;

use crate::admission::server::{Reply, Webhooks, patched};

const RECORDS: &str = include_str!("recorded.jsonl");

/// Records whose answer is another one here, and why; each of them must still differ.
const DIFFERENT: &[(u64, &str)] = &[
    (4, "says which server it is"),
    (258, "a definition is established by the write that makes it, not by a controller after it"),
    (274, "the store takes what the request limit lets through; there is no second, smaller limit of a message to etcd"),
    (308, "lists the checks of this server"),
    (342, "the token of an account that is gone is refused at once, not after ten seconds"),
];

/// Steps that are different on etcd, and why; each of them must still differ there.
const DIFFERENT_ON_ETCD: &[(&str, &str)] = &[
    ("the big one goes", "etcd has a limit of its own for a message, so there is no big one"),
    ("exact old rv", "what is too old is said by etcd's compaction, and the test cannot move etcd's clock"),
    ("continue expired", "as above"),
    ("watch uncached resource (events)", "as above"),
];

/// Records of which only code, reason and the message's first line are compared, and why.
const LOOSE: &[(u64, &str)] = &[
    (169, "the difference behind the first line is of Go's internal structs, with every field that is not set"),
    (261, "a real server walks properties in no order; here they come by name"),
    (188, "the difference behind the first line is of Go's internal structs, with every field that is not set"),
];

/// What the variables of the table stand for.
#[derive(Default)]
struct Variables(HashMap<String, String>);

impl Variables {
    fn pattern() -> Regex {
        Regex::new(r"<([a-z*][a-z ]*[0-9a-z*]*)>").unwrap()
    }

    /// A text with the variables that are known filled in.
    fn fill(&self, text: &str) -> String {
        let repeated = Regex::new(r"<x\*([0-9]+)>").unwrap();
        let text = repeated.replace_all(text, |found: &regex::Captures<'_>| "x".repeat(found[1].parse().unwrap()));
        let known = |found: &regex::Captures<'_>| self.0.get(&found[1]).cloned().unwrap_or_else(|| found[0].to_owned());
        Self::pattern().replace_all(&text, known).into_owned()
    }

    /// Whether a text is what was recorded; learns the variables it shows for the first time.
    fn matches(&mut self, expected: &str, actual: &str) -> bool {
        let filled = self.fill(expected);
        if filled == actual {
            return true;
        }
        let mut names = Vec::new();
        let mut rule = String::from("(?s)^");
        let mut end = 0;
        for found in Self::pattern().captures_iter(&filled) {
            let whole = found.get(0).unwrap();
            rule.push_str(&regex::escape(&filled[end..whole.start()]));
            rule.push_str("(.+?)");
            names.push(found[1].to_owned());
            end = whole.end();
        }
        rule.push_str(&regex::escape(&filled[end..]));
        rule.push('$');
        let Some(found) = Regex::new(&rule).unwrap().captures(actual) else { return false };
        for (at, name) in names.into_iter().enumerate().filter(|(_, name)| name != "time" && name != "*") {
            self.0.insert(name, found[at + 1].to_owned());
        }
        true
    }

    /// Where a body differs from the recorded one. With `part`, it may have more than was recorded.
    fn compare(&mut self, path: &str, expected: &Value, actual: &Value, part: bool, differences: &mut Vec<String>) {
        match (expected, actual) {
            (Value::Object(should), Value::Object(is)) => {
                for (key, value) in should {
                    self.compare(&format!("{path}.{key}"), value, is.get(key).unwrap_or(&Value::Null), part, differences);
                }
                if !part {
                    let more = is.iter().filter(|(key, _)| !should.contains_key(*key));
                    differences.extend(more.map(|(key, value)| format!("{path}.{key}: {value} was not recorded")));
                }
            }
            (Value::Array(should), Value::Array(is)) if part => {
                for value in should {
                    let found = is.iter().any(|item| {
                        let mut wrong = Vec::new();
                        self.compare("", value, item, true, &mut wrong);
                        wrong.is_empty()
                    });
                    if !found {
                        differences.push(format!("{path}: nothing is like {value}"));
                    }
                }
            }
            (Value::Array(should), Value::Array(is)) if should.len() == is.len() => {
                for (at, (should, is)) in should.iter().zip(is).enumerate() {
                    self.compare(&format!("{path}[{at}]"), should, is, part, differences);
                }
            }
            (Value::String(should), Value::String(is)) if self.matches(should, is) => {}
            (Value::String(should), is) if should == "<*>" && !is.is_null() => {}
            (should, is) if should == is => {}
            (should, is) => differences.push(format!("{path}:\n    is     {is}\n    should {should}")),
        }
    }
}

struct Player {
    server: Server,
    client: Client,
    variables: Variables,
}

struct Answer {
    code: u16,
    headers: http::HeaderMap,
    body: Vec<u8>,
}

impl Player {
    async fn send(&self, record: &Value) -> Answer {
        let address = self.server.address().unwrap();
        let path = self.variables.fill(record["path"].as_str().unwrap());
        let method = Method::from_bytes(record["method"].as_str().unwrap().as_bytes()).unwrap();
        let mut request = self.client.request(method, format!("https://{address}{path}")).header("user-agent", "facts");
        let token = match record["as"].as_str() {
            None => Some("admintoken".to_owned()),
            Some("anonymous") => None,
            Some("tmp") => self.variables.0.get("tmp token").cloned(),
            Some(who) => Some(format!("{who}token")),
        };
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let headers = record["headers"].as_object();
        for (name, value) in headers.into_iter().flatten() {
            request = request.header(name, value.as_str().unwrap());
        }
        let body = match (&record["body"], record["text"].as_str(), record["operations"].as_u64()) {
            (Value::Object(_), ..) => Some(self.variables.fill(&record["body"].to_string())),
            (_, Some(text), _) => Some(self.variables.fill(text)),
            (_, _, Some(count)) => {
                let operation = json!({"op": "add", "path": "/data/k", "value": "v"});
                Some(Value::from(vec![operation; count as usize]).to_string())
            }
            _ => None,
        };
        if let Some(body) = body {
            if !headers.is_some_and(|headers| headers.contains_key("Content-Type")) {
                request = request.header("content-type", "application/json");
            }
            request = request.body(body);
        }
        let response = request.send().await.unwrap();
        let (code, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { code, headers, body: response.bytes().await.unwrap().to_vec() }
    }

    /// Asks until a path is served, or no more.
    async fn until(&self, path: &str, code: u16) {
        let record = json!({"method": "GET", "path": path});
        crate::until(&format!("{code} for {path}"), async || self.send(&record).await.code == code).await;
    }

    /// Sends one record and says where its answer differs.
    async fn play(&mut self, record: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        let answer = self.send(record).await;
        if let Some(path) = record["served"].as_str() {
            self.until(path, 200).await;
        }
        if let Some(path) = record["gone"].as_str() {
            self.until(path, 404).await;
        }
        let shown = String::from_utf8_lossy(&answer.body).into_owned();
        if record["code"] != answer.code {
            wrong.push(format!("code {} instead of {}: {shown:.300}", answer.code, record["code"]));
            return wrong;
        }
        let expected = record["expect"].as_object().cloned().unwrap_or_default();
        for name in ["Content-Type", "Warning", "Retry-After", "X-Content-Type-Options", "Allow"] {
            let is: Vec<&str> = answer.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
            let default = if name == "Content-Type" && answer.code != 204 && record["record"].is_u64() { "application/json" } else { "" };
            let should = expected.get(name).and_then(Value::as_str).unwrap_or(default);
            if is.join(", ") != should && record["record"].is_u64() {
                wrong.push(format!("header {name}:\n    is     {is:?}\n    should {should:?}"));
            }
        }
        if let Some(plain) = record["plain"].as_str() {
            if !self.variables.matches(plain, &shown) {
                wrong.push(format!("body:\n    is     {shown:?}\n    should {plain:?}"));
            }
        } else if let Some(recorded) = record.get("answer") {
            let mut body: Value = serde_json::from_str(&shown).unwrap_or(Value::String(shown));
            if !recorded.to_string().contains("managedFields") {
                strip_managed_fields(&mut body);
            }
            if body["kind"] == "Status" && body["status"] == "Failure" {
                for key in ["kind", "apiVersion", "code", "status"] {
                    body.as_object_mut().unwrap().remove(key);
                }
                if body["metadata"] == json!({}) {
                    body.as_object_mut().unwrap().remove("metadata");
                }
            } else if body["kind"] == "Status" {
                for key in ["kind", "apiVersion", "metadata"] {
                    body.as_object_mut().unwrap().remove(key);
                }
            }
            if LOOSE.iter().any(|(loose, _)| record["record"] == *loose) {
                let first = |value: &Value| -> String {
                    let message = value["message"].as_str().unwrap_or_default();
                    let line = message.lines().next().unwrap_or_default();
                    let mut parts: Vec<&str> =
                        line.split_inclusive(&['[', ']', ','][..]).map(|part| part.trim_matches(&[' ', ','][..])).collect();
                    parts.sort_unstable();
                    parts.join(",")
                };
                if first(&body) != first(recorded) || body["reason"] != recorded["reason"] {
                    wrong.push(format!("is {}, should {}", first(&body), first(recorded)));
                }
                return wrong;
            }
            let part = record["part"] == true || !record["record"].is_u64();
            self.variables.compare("", recorded, &body, part, &mut wrong);
        }
        wrong
    }
}

fn strip_managed_fields(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
            map.values_mut().for_each(strip_managed_fields);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_managed_fields),
        _ => {}
    }
}

/// The webhooks of the recording.
async fn webhooks() -> Webhooks {
    let hooks = Webhooks::start().await;
    hooks.on("/deny", |_| Reply::Response(json!({"allowed": false, "status": {"code": 403, "message": "nope, not today"}})));
    hooks.on("/deny-nomsg", |_| Reply::Response(json!({"allowed": false})));
    hooks.on("/deny-418", |_| Reply::Response(json!({"allowed": false, "status": {"code": 418, "reason": "Gone", "message": "teapot"}})));
    hooks.on("/500", |_| Reply::Raw(500, "text/plain", "boom".into()));
    hooks.on("/slow", |_| Reply::Hang(Duration::from_secs(8)));
    hooks.on("/mutate", |_| {
        let Reply::Response(mut answer) = patched(json!([{"op": "replace", "path": "/metadata/labels", "value": {"mutated": "yes"}}]))
        else {
            unreachable!("patched() makes a response")
        };
        answer["warnings"] = json!(["webhook says hi"]);
        Reply::Response(answer)
    });
    hooks.on("/badpatch", |_| patched(json!([{"op": "remove", "path": "/nope"}])));
    hooks.on("/rename", |_| patched(json!([{"op": "add", "path": "/metadata/name", "value": "fixedname"}])));
    hooks
}

#[tokio::test]
async fn recorded_requests_are_answered_as_a_real_server_answers() {
    let hooks = webhooks().await;
    let mut tokens = tempfile::NamedTempFile::new().unwrap();
    writeln!(tokens, "admintoken,admin,1,\"system:masters\"\nbobtoken,bob,2,devs").unwrap();
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.clock = Clock::virtual_clock();
    builder.identity.token_auth_file = Some(tokens.path().to_owned());
    let server = builder.start().await.unwrap();
    let ca = Certificate::from_pem(server.pki().ca.as_bytes()).unwrap();
    let client = Client::builder().tls_certs_only([ca]).no_proxy().timeout(Duration::from_secs(30)).build().unwrap();
    let mut variables = Variables::default();
    variables.0.insert("port".into(), hooks.port.to_string());
    variables.0.insert("ca".into(), hooks.ca_bundle.clone());
    let mut player = Player { server, client, variables };
    let mut report = Vec::new();
    for line in RECORDS.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let wrong = player.play(&record).await;
        if record["record"] == 201 {
            let token = player.variables.0.get("token").cloned().unwrap_or_default();
            let bad = format!("{}AAAAAAAA", &token[..token.len().saturating_sub(8)]);
            player.variables.0.insert("bad token".into(), bad);
        }
        let different = DIFFERENT.iter().any(|(number, _)| record["record"] == *number)
            || crate::on_etcd() && DIFFERENT_ON_ETCD.iter().any(|(name, _)| record["name"] == *name);
        if wrong.is_empty() == different {
            let said = if different { vec!["agrees, but is listed as different".to_owned()] } else { wrong };
            report.push(format!("{} {}: {}", record["record"], record["name"], said.join("\n  ")));
        }
    }
    assert!(report.is_empty(), "{} records differ:\n{}", report.len(), report.join("\n"));
    player.server.stop().await;
}
