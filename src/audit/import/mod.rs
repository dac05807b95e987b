//! Audit logs of other clusters: what kube-apiserver writes, and the envelopes that the clouds put around it (CloudWatch of EKS,
//! diagnostic settings of AKS) or the form that they turn it into (Cloud Logging of GKE). Pure; one document in, its events out.

mod story;

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::event::{ObjectReference, ResponseStatus, UserInfo};
use super::quoted::Secrets;
use super::record::{LARGEST_BODY, TRUNCATED, agent};
use super::{Event, Json, Level, Stage, identity, named, redact, signs};

/// How deep envelopes may lie in each other.
const DEEPEST: usize = 8;

/// What a piece of a log had: its events, and what in it should have been one and is none.
#[derive(Debug, Default)]
pub struct Found {
    /// The events.
    pub events: Vec<Event>,
    /// What is wrong with the rest, with its place in the document.
    pub refused: Vec<String>,
}

/// What is in a line; nothing where it is empty or about something else than audit events. Several documents may stand in one line
/// without anything between them, as Firehose writes them.
pub fn line(text: &str) -> Found {
    let text = text.trim().trim_start_matches('\u{feff}');
    match plain(text) {
        Some(event) => Found { events: vec![event], refused: Vec::new() },
        None => documents(behind_time(text)),
    }
}

/// The event of a line as a kube-apiserver writes it, read without a detour: its bodies stay as they are. What is odd about a line,
/// or wrong with it, is found out the long way. So is what is written by its number: words are looked for in bodies.
fn plain(line: &str) -> Option<Event> {
    let known = line.starts_with(r#"{"kind":"Event","apiVersion":"audit.k8s.io/"#);
    if !known || line.contains('\n') || signs::is_escaped(line.as_bytes()) {
        return None;
    }
    finished(serde_json::from_str(line).ok()?).ok()
}

/// An export of CloudWatch to a bucket has the time in front, `aws logs tail` the time and the stream.
fn behind_time(text: &str) -> &str {
    let Some((time, rest)) = text.split_once(' ').filter(|_| !text.starts_with(['{', '['])) else { return text };
    if time.parse::<jiff::Timestamp>().is_err() {
        return text;
    }
    match rest.split_once(' ') {
        Some((_, json)) if !rest.starts_with(['{', '[']) && json.starts_with('{') => json,
        _ => rest,
    }
}

/// Whether a text is the beginning of a document that goes on behind it.
pub fn goes_on(text: &str) -> bool {
    let text = text.trim().trim_start_matches('\u{feff}');
    let last = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>().last();
    last.is_some_and(|last| last.is_err_and(|error| error.is_eof()))
}

/// What is in a text of JSON documents. Behind one that cannot be read nothing is found any more.
pub fn documents(text: &str) -> Found {
    let mut found = Found::default();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        match value {
            Ok(value) => unwrap(value, "", 0, &mut found),
            Err(error) => found.refused.push(format!("not JSON: {error}")),
        }
    }
    found
}

/// Looks into a value; `at` is its place. What is wrong with a part of it loses nothing of the others.
fn unwrap(value: Value, at: &str, depth: usize, found: &mut Found) {
    let refuse = |found: &mut Found, why: &str| {
        found.refused.push(if at.is_empty() { why.to_owned() } else { format!("{at}: {why}") });
    };
    if depth > DEEPEST {
        return refuse(found, "too many envelopes");
    }
    match value {
        Value::Array(items) => {
            for (index, item) in items.into_iter().enumerate() {
                unwrap(item, &format!("{at}[{index}]"), depth + 1, found);
            }
        }
        // A document within a document; a line of another component's log is none.
        Value::String(text) => match text.trim_start().starts_with(['{', '[']) {
            true => match serde_json::from_str(&text) {
                Ok(inner) => unwrap(inner, at, depth + 1, found),
                Err(error) => refuse(found, &format!("an envelope without JSON: {error}")),
            },
            false if depth > 0 && !at.ends_with("log") && !at.ends_with("log_s") && !at.ends_with(']') => {}
            false => refuse(found, "not an audit event"),
        },
        Value::Object(map) => object(map, at, depth, found),
        _ => refuse(found, "not an object"),
    }
}

fn object(mut map: Map<String, Value>, at: &str, depth: usize, found: &mut Found) {
    let result = if map.contains_key("auditID") || map.get("kind").is_some_and(|kind| kind == "Event") {
        event(Value::Object(map))
    } else if let Some(payload) = map.get("protoPayload") {
        match cloud_logging(payload, &Value::Object(map.clone())) {
            Some(event) => Ok(event),
            // Of another of Google's services.
            None => return,
        }
    } else if map.contains_key("AuditId") && map.contains_key("RequestUri") {
        event(resource_specific(map))
    } else {
        let category = map.get("category").or(map.get("Category")).map(|category| category.as_str().unwrap_or_default());
        if category.is_some_and(|category| !category.starts_with("kube-audit")) {
            return;
        }
        // A column of Logs Insights.
        if let (Some(field), Some(value)) = (map.get("field").and_then(Value::as_str), map.get("value")) {
            if field == "@message" {
                unwrap(value.clone(), &format!("{at}.value"), depth + 1, found);
            }
            return;
        }
        if let Some(rows) = table(&map) {
            return unwrap(rows, at, depth + 1, found);
        }
        // Lists, then the envelopes of CloudWatch and of Azure Monitor.
        const ENVELOPES: [&str; 12] = [
            "items",
            "records",
            "logEvents",
            "events",
            "entries",
            "results",
            "tables",
            "@message",
            "message",
            "properties",
            "log",
            "log_s",
        ];
        if let Some((key, inner)) = ENVELOPES.into_iter().find_map(|key| Some((key, map.remove(key)?))) {
            let place = if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
            return unwrap(inner, &place, depth + 1, found);
        }
        Err("neither an audit event nor an envelope of one".into())
    };
    match result {
        Ok(event) => found.events.push(event),
        Err(why) if at.is_empty() => found.refused.push(why),
        Err(why) => found.refused.push(format!("{at}: {why}")),
    }
}

/// The rows of a table as Log Analytics answers it, each as an object.
fn table(map: &Map<String, Value>) -> Option<Value> {
    let (columns, rows) = (map.get("columns")?.as_array()?, map.get("rows")?.as_array()?);
    let names: Vec<&str> = columns.iter().map(|column| column["name"].as_str().unwrap_or_default()).collect();
    let object = |row: &Value| {
        let cells = row.as_array().into_iter().flatten().cloned();
        Value::Object(names.iter().map(|name| (*name).to_owned()).zip(cells).collect())
    };
    Some(Value::Array(rows.iter().map(object).collect()))
}

/// A row of `AKSAudit` or `AKSAuditAdmin`: the fields of an event as columns, some of them as text.
fn resource_specific(mut row: Map<String, Value>) -> Value {
    let mut event = Map::new();
    for (column, field) in [
        ("Level", "level"),
        ("AuditId", "auditID"),
        ("Stage", "stage"),
        ("RequestUri", "requestURI"),
        ("Verb", "verb"),
        ("User", "user"),
        ("ImpersonatedUser", "impersonatedUser"),
        ("SourceIps", "sourceIPs"),
        ("UserAgent", "userAgent"),
        ("ObjectRef", "objectRef"),
        ("ResponseStatus", "responseStatus"),
        ("RequestObject", "requestObject"),
        ("ResponseObject", "responseObject"),
        ("RequestReceivedTime", "requestReceivedTimestamp"),
        ("StageReceivedTime", "stageTimestamp"),
        ("Annotations", "annotations"),
    ] {
        let value = match row.remove(column) {
            None | Some(Value::Null) => continue,
            Some(Value::String(text)) if text.is_empty() => continue,
            Some(Value::String(text)) if text.starts_with(['{', '[']) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            Some(value) => value,
        };
        event.insert(field.to_owned(), value);
    }
    event.insert("kind".into(), "Event".into());
    event.insert("apiVersion".into(), "audit.k8s.io/v1".into());
    Value::Object(event)
}

fn event(mut value: Value) -> Result<Event, String> {
    if let Some(version) = value.get("apiVersion").and_then(Value::as_str)
        && !version.starts_with("audit.k8s.io/")
    {
        return Err(format!("an Event of {version}, not of audit.k8s.io"));
    }
    // What another Usher told of it is not taken over: a trace is what this server saw.
    if let Some(map) = value.as_object_mut() {
        map.remove("trace");
    }
    finished(serde_json::from_value(value).map_err(|e| format!("not an audit event: {e}"))?)
}

/// An event as it is kept.
fn finished(mut event: Event) -> Result<Event, String> {
    // A method that Kubernetes has no verb for leaves it empty.
    if event.verb.is_empty() && event.request_uri.is_empty() {
        return Err("an audit event that says nothing of a request".into());
    }
    redacted(&mut event);
    event.trace = story::of(&event);
    shorten(&mut event);
    Ok(event)
}

/// Leaves out a body that is longer than this server would have recorded it, and says so.
fn shorten(event: &mut Event) {
    let mut shortened = false;
    for body in [&mut event.request_object, &mut event.response_object] {
        if body.as_ref().is_some_and(|body| body.bytes().len() > LARGEST_BODY) {
            *body = None;
            shortened = true;
        }
    }
    if shortened {
        event.annotations.insert(TRUNCATED.into(), "true".into());
    }
}

/// Masks what this server would not have recorded itself: other policies let the values of Secrets through.
fn redacted(event: &mut Event) {
    let (path, query) = event.request_uri.split_once('?').unwrap_or((&event.request_uri, ""));
    let (method, has_body) = match event.verb.as_ref() {
        "create" => ("POST", true),
        "update" => ("PUT", true),
        "patch" => ("PATCH", true),
        _ => ("GET", false),
    };
    let info = crate::request::parse(method, path, query);
    event.request_uri = named::target(&event.request_uri);
    let mut secrets = Secrets::of(&info, has_body);
    let read = |body: &Json| signs::may_hold_secrets(&info, body.bytes()).then(|| body.value()).flatten();
    if let Some(object) = event.request_object.as_ref().and_then(read) {
        secrets.learn(&object);
    }
    if let Some(object) = event.response_object.as_ref().and_then(read) {
        match redact::is_about_secrets(&info) {
            true => secrets.guard(&object),
            // A patch may have reached into a Secret within another object.
            false if info.verb == "patch" && !redact::is_sensitive(&info) => secrets.learn(&object),
            false => {}
        }
    }
    type Masks = fn(&crate::request::RequestInfo, &mut Value);
    let bodies: [(_, Masks); 2] = [(&mut event.request_object, redact::request), (&mut event.response_object, redact::object)];
    for (body, masks) in bodies {
        // What may hold secrets and cannot be read is not kept.
        *body = body.take().and_then(|known| match signs::may_hold_secrets(&info, known.bytes()) {
            false => Some(known),
            true => known.value().map(|mut value| {
                masks(&info, &mut value);
                Json::from(&value)
            }),
        });
    }
    secrets.scrub(event);
    redact::ending(event);
    identity::mask(event);
    event.user_agent = agent(&event.user_agent);
}

/// An entry of Cloud Logging: the audit log of Google's APIs with Kubernetes' words in it.
fn cloud_logging(payload: &Value, entry: &Value) -> Option<Event> {
    let text = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let method = text(payload, "/methodName");
    if text(payload, "/serviceName") != "k8s.io" || method.is_empty() {
        return None;
    }
    let verb = method.rsplit('.').next().unwrap_or_default().to_owned();
    let name = text(payload, "/resourceName");
    // Of another path than that of a resource the method has the verb alone: `io.k8s.get`.
    let is_other = method.strip_prefix("io.k8s.") == Some(&verb);
    let path = match name.strip_prefix("core/") {
        _ if is_other => format!("/{name}"),
        Some(rest) => format!("/api/{rest}"),
        None => format!("/apis/{name}"),
    };
    let info = crate::request::parse("GET", &path, "");
    let object_ref = info.is_resource.then(|| ObjectReference {
        resource: info.resource,
        namespace: info.namespace,
        name: info.name,
        api_group: info.group,
        api_version: info.version,
        subresource: info.subresource,
        ..ObjectReference::default()
    });
    let raw = |key: &str| payload.get(key).map(Json::from);
    let (request_object, response_object) = (raw("request"), raw("response"));
    let level = match (&request_object, &response_object) {
        (_, Some(_)) => Level::RequestResponse,
        (Some(_), None) => Level::Request,
        _ => Level::Metadata,
    };
    let code = http_status(payload.pointer("/status/code").and_then(Value::as_u64).unwrap_or(0), &verb);
    let labels = entry.get("labels").and_then(Value::as_object);
    let mut annotations: BTreeMap<String, String> =
        labels.into_iter().flatten().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    if let Some(granted) = payload.pointer("/authorizationInfo/0/granted").and_then(Value::as_bool) {
        let decision = if granted { "allow" } else { "forbid" };
        annotations.entry("authorization.k8s.io/decision".into()).or_insert_with(|| decision.into());
    }
    let time = |key: &str| text(entry, key).parse().ok();
    let id = [text(entry, "/operation/id"), text(entry, "/insertId")].into_iter().find(|id| !id.is_empty()).unwrap_or_default();
    let mut event = Event {
        kind: "Event".into(),
        api_version: "audit.k8s.io/v1".into(),
        level,
        audit_id: id,
        stage: Stage::ResponseComplete,
        request_uri: if object_ref.is_some() { path } else { format!("/{name}") },
        verb: verb.into(),
        user: UserInfo { username: text(payload, "/authenticationInfo/principalEmail"), ..UserInfo::default() },
        source_ips: Some(text(payload, "/requestMetadata/callerIp")).filter(|ip| !ip.is_empty()).into_iter().collect(),
        user_agent: text(payload, "/requestMetadata/callerSuppliedUserAgent"),
        object_ref,
        response_status: Some(ResponseStatus { code, message: text(payload, "/status/message"), ..ResponseStatus::default() }),
        request_object,
        response_object,
        request_received_timestamp: time("/timestamp"),
        // When the log took the entry in says nothing of how long the request took.
        stage_timestamp: time("/timestamp"),
        annotations,
        ..Event::default()
    };
    redacted(&mut event);
    event.trace = story::of(&event);
    shorten(&mut event);
    Some(event)
}

/// The HTTP status that a code of `google.rpc` stands for.
fn http_status(code: u64, verb: &str) -> u16 {
    match code {
        0 if verb == "create" => 201,
        0 => 200,
        3 | 9 | 11 => 400,
        16 => 401,
        7 => 403,
        5 => 404,
        6 | 10 => 409,
        8 => 429,
        1 => 499,
        12 => 501,
        14 => 503,
        4 => 504,
        100..=599 => code as u16,
        _ => 500,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain() -> Value {
        json!({"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "a", "stage": "ResponseComplete",
            "requestURI": "/api/v1/namespaces/default/pods", "verb": "list", "user": {"username": "jane"},
            "responseStatus": {"metadata": {}, "code": 200}})
    }

    fn ids(text: &str) -> Vec<String> {
        line(text).events.into_iter().map(|event| format!("{} {} {}", event.audit_id, event.user.username, event.verb)).collect()
    }

    #[test]
    fn a_line_of_a_kube_apiserver_comes_to_the_same_the_short_way_and_the_long() {
        let written = |body: &str, rest: &str| {
            format!(
                r#"{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Request","auditID":"a","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/x/secrets","verb":"create","user":{{"username":"jane"}},"requestObject":{body}{rest}}}"#
            )
        };
        let secret = r#"{"apiVersion":"v1","data":{"p":"aHVudGVyMg=="},"kind":"Secret","metadata":{"name":"s"}}"#;
        let told = |event: &Event| serde_json::to_value(event).unwrap();
        for text in [
            written(secret, ""),
            written(r#"{"a":1}"#, r#","trace":{"took":7},"responseStatus":{"metadata":{},"message":"hunter2","code":422}"#),
            written("null", r#","requestReceivedTimestamp":"2026-05-01T12:00:00.000000Z""#),
        ] {
            let (short, long) = (super::plain(&text).unwrap(), documents(&text).events);
            assert_eq!(told(&short), told(&long[0]), "{text}");
            assert!(!told(&short).to_string().contains("aHVudGVyMg"), "{text}");
        }
        let escaped = written(&secret.replace("Secret", "\\u0053ecret"), "");
        let odd = [escaped, written(secret, r#","verb":"get""#), written(secret, "").replacen("audit.k8s.io/v1", "v1", 1)];
        assert!(odd.iter().all(|text| super::plain(text).is_none()), "looked at the long way");
        let deep = secret.replacen('{', &format!(r#"{{"z":{}{},"#, "[".repeat(500), "]".repeat(500)), 1);
        let event = super::plain(&written(&deep, "")).unwrap();
        assert_eq!(event.request_object, None, "what cannot be read is not kept");
    }

    #[test]
    fn every_envelope_gives_the_event_that_is_in_it() {
        let inner = plain().to_string();
        for envelope in [
            plain(),
            json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": [plain()]}),
            json!([plain()]),
            // EKS: a log event, a subscription, `get-log-events`, Logs Insights.
            json!({"timestamp": 1, "message": inner, "ingestionTime": 2}),
            json!({"messageType": "DATA_MESSAGE", "logGroup": "/aws/eks/x/cluster", "logEvents": [{"id": "1", "timestamp": 1, "message": inner}]}),
            json!({"events": [{"timestamp": 1, "message": inner}], "nextForwardToken": "f"}),
            json!({"@timestamp": "2026-05-01 00:00:00", "@message": plain()}),
            json!({"results": [[{"field": "@timestamp", "value": "2026-05-01"}, {"field": "@message", "value": inner}]], "status": "Complete"}),
            // AKS: a diagnostic record, an array of them, an export of Log Analytics.
            json!({"category": "kube-audit", "operationName": "Microsoft.ContainerService/managedClusters/diagnosticLogs/Read",
                "properties": {"log": inner, "stream": "stdout", "pod": "kube-apiserver-1"}}),
            json!({"records": [{"category": "kube-audit-admin", "properties": json!({"log": inner}).to_string()}]}),
            json!({"Category": "kube-audit", "log_s": inner}),
            json!({"tables": [{"columns": [{"name": "TimeGenerated"}, {"name": "log_s"}], "rows": [["2026-05-01", inner]]}]}),
            json!([{"Type": "AKSAudit", "AuditId": "a", "RequestUri": "/x", "Verb": "list", "User": "{\"username\":\"jane\"}", "Stage": ""}]),
        ] {
            assert_eq!(ids(&envelope.to_string()), ["a jane list"], "{envelope}");
        }
        assert_eq!(ids(&format!("2026-05-01T00:00:00.000Z {inner}")), ["a jane list"]);
        assert_eq!(ids(&format!("2026-05-01T00:00:00.000Z kube-apiserver-audit-x {inner}")), ["a jane list"]);
        assert_eq!(ids(&format!("{inner}{inner}")), ["a jane list", "a jane list"], "as Firehose writes them");
    }

    #[test]
    fn cloud_logging_is_turned_into_the_event_that_it_was_made_of() {
        let entry = json!({
            "protoPayload": {"@type": "type.googleapis.com/google.cloud.audit.AuditLog", "serviceName": "k8s.io",
                "methodName": "io.k8s.authorization.rbac.v1.rolebindings.create",
                "authenticationInfo": {"principalEmail": "jane@example.com"},
                "authorizationInfo": [{"granted": false, "permission": "io.k8s.authorization.rbac.v1.rolebindings.create"}],
                "requestMetadata": {"callerIp": "10.0.0.9", "callerSuppliedUserAgent": "kubectl/v1.37"},
                "resourceName": "rbac.authorization.k8s.io/v1/namespaces/team/rolebindings/admins",
                "status": {"code": 7, "message": "Forbidden"}},
            "insertId": "i", "timestamp": "2026-05-01T12:00:00.5Z", "receiveTimestamp": "2026-05-01T12:00:01Z",
            "labels": {"authorization.k8s.io/decision": "forbid"}, "operation": {"id": "audit-1"},
        });
        let event = line(&entry.to_string()).events.remove(0);
        let object = event.object_ref.clone().unwrap();
        assert_eq!((event.audit_id.as_str(), &*event.verb, event.code()), ("audit-1", "create", 403));
        assert_eq!(event.request_uri, "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings/admins");
        assert_eq!(
            (&*object.api_group, &*object.resource, &*object.namespace, &*object.name),
            ("rbac.authorization.k8s.io", "rolebindings", "team", "admins")
        );
        assert_eq!(
            (event.decision(), event.user.username.as_str(), event.took()),
            ("forbid", "jane@example.com", 0),
            "nothing says how long it took"
        );
        let mut pod = entry.clone();
        pod["protoPayload"]["methodName"] = json!("io.k8s.core.v1.pods.exec.create");
        pod["protoPayload"]["resourceName"] = json!("core/v1/namespaces/team/pods/web/exec");
        pod["protoPayload"]["status"] = json!({});
        let event = line(&pod.to_string()).events.remove(0);
        assert_eq!((event.resource().as_str(), event.code()), ("pods/exec", 201));
        let mut discovery = entry;
        discovery["protoPayload"]["methodName"] = json!("io.k8s.get");
        for (name, uri) in [("apis/apps/v1", "/apis/apps/v1"), ("api/v1", "/api/v1"), ("healthz", "/healthz")] {
            discovery["protoPayload"]["resourceName"] = json!(name);
            let event = line(&discovery.to_string()).events.remove(0);
            assert_eq!((event.object_ref.is_none(), event.request_uri.as_str(), &*event.verb), (true, uri, "get"));
        }
    }

    #[test]
    fn the_values_of_secrets_are_masked_on_the_way_in() {
        let mut secret = plain();
        secret["requestURI"] = json!("/api/v1/namespaces/default/secrets/s?token=planted");
        secret["userAgent"] = json!("curl Bearer planted");
        secret["responseObject"] = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}, "data": {"k": "cGxhbnRlZA=="}});
        let event = line(&secret.to_string()).events.remove(0);
        let kept = serde_json::to_string(&event).unwrap();
        assert!(!kept.contains("cGxhbnRlZA") && !kept.contains("planted") && kept.contains("\"Secret\""), "{kept}");
    }

    #[test]
    fn what_messages_and_annotations_quote_of_a_secret_is_masked_too() {
        let planted = serde_json::json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "auditID": "a", "verb": "create",
            "requestURI": "/api/v1/namespaces/n/secrets?y=<>&token=hunter22", "level": "RequestResponse",
            "requestObject": {"kind": "Secret", "stringData": {"k": "correct horse"}},
            "responseStatus": {"metadata": {}, "code": 403, "message": "denied: correct horse is weak"},
            "annotations": {"validation.policy.admission.k8s.io/x": "correct horse",
                "patch.webhook.admission.k8s.io/round_0_index_0": "{\"patch\":[{\"op\":\"add\",\"path\":\"/data/z\",\"value\":\"YmF0dGVyeQ==\"},{\"op\":\"add\",\"path\":\"/metadata/labels/a\",\"value\":\"correct horse\"}]}"},
        });
        let told = serde_json::to_string(&line(&planted.to_string()).events).unwrap();
        for secret in ["correct horse", "hunter22", "YmF0dGVyeQ=="] {
            assert!(!told.contains(secret), "{secret} in {told}");
        }
        // Without the body nobody knows what a message quotes.
        let mut blind = planted;
        blind["level"] = "Metadata".into();
        blind.as_object_mut().unwrap().remove("requestObject");
        blind["responseStatus"]["message"] = "Secret \"s\" is invalid: data[k]: Invalid value: \"correct horse\"".into();
        blind["annotations"] = serde_json::json!({});
        let told = serde_json::to_string(&line(&blind.to_string()).events).unwrap();
        assert!(!told.contains("correct horse"), "{told}");
    }

    #[test]
    fn a_method_without_a_verb_is_an_event_all_the_same() {
        let odd = r#"{"kind":"Event","auditID":"o","requestURI":"/api/v1/pods","responseStatus":{"metadata":{},"code":405}}"#;
        assert_eq!(line(odd).events[0].audit_id, "o");
        assert_eq!(refused(r#"{"kind":"Event","auditID":"o"}"#), ["an audit event that says nothing of a request"]);
    }

    fn refused(text: &str) -> Vec<String> {
        let found = line(text);
        assert!(found.events.is_empty(), "{text}");
        found.refused
    }

    #[test]
    fn what_is_about_something_else_is_passed_over_and_what_is_broken_is_told() {
        let nothing: [String; 0] = [];
        assert_eq!(refused("  "), nothing);
        assert_eq!(refused(r#"{"category": "kube-scheduler", "properties": {"log": "I0501 started"}}"#), nothing);
        assert_eq!(refused(r#"{"protoPayload": {"serviceName": "compute.googleapis.com", "methodName": "x"}}"#), nothing);
        assert_eq!(refused(r#"{"logEvents": [{"message": "CWL CONTROL MESSAGE: Checking health"}]}"#), nothing);
        assert!(refused("{\"kind\":")[0].starts_with("not JSON"));
        assert!(refused(r#"{"kind": "Event", "apiVersion": "v1"}"#)[0].contains("an Event of v1"));
        assert!(refused(r#"{"a": 1}"#)[0].contains("neither"));
        assert_eq!(refused("7"), ["not an object"]);
        assert_eq!(refused(r#"{"category": "kube-audit", "properties": {"log": "half a li"}}"#), ["properties.log: not an audit event"]);
        let nested = (0..50).fold(json!("x"), |inner, _| json!([inner]));
        assert!(refused(&nested.to_string())[0].ends_with("too many envelopes"));
    }

    #[test]
    fn one_bad_item_of_a_list_is_named_and_loses_nothing_of_the_others() {
        let list = json!({"kind": "EventList", "items": [plain(), {"kind": "Event", "apiVersion": "v1"}, plain(), 5]});
        let found = line(&list.to_string());
        assert_eq!(found.events.len(), 2);
        assert_eq!(found.refused, ["items[1]: an Event of v1, not of audit.k8s.io", "items[3]: not an object"]);
        let half = plain().to_string();
        let events = json!({"events": [{"message": half[..half.len() - 9]}, {"message": plain().to_string()}]});
        let found = line(&events.to_string());
        assert_eq!(found.events.len(), 1);
        assert!(found.refused[0].starts_with("events[0].message: an envelope without JSON"), "{:?}", found.refused);
    }

    #[test]
    fn a_body_that_is_too_long_is_left_out_and_the_event_says_so() {
        let mut large = plain();
        large["requestObject"] = json!({"kind": "ConfigMap", "data": {"x": "y".repeat(LARGEST_BODY)}});
        let event = line(&large.to_string()).events.remove(0);
        assert!(event.request_object.is_none());
        assert_eq!(event.annotations[TRUNCATED], "true");
    }
}
