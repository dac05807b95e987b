//! What a real server says about mistakes in objects of the built-in kinds, and what it fills in: each object of the table is sent without
//! being kept, or is created where its line says that it is then changed, and the answer compared with the recorded one. Below it are
//! changes of one field, each with every cause and every warning that a real server has for it.
//!
//! A line `{"path": …, "object": …, "answer": …}` has an object; with `"update"` the lines below are updates of it. A line
//! `[[field…], [value], [causes], [warnings]]` has a change; without a value the field is taken away.

use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

const TABLE: &str = include_str!("kinds.jsonl");
/// What every server makes up.
const OWN: &[&str] = &[
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "managedFields",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "lastTransitionTime",
    "lastPhaseTransitionTime",
    "timeAdded",
];

struct Answer {
    code: u16,
    warnings: Vec<String>,
    body: Value,
}

async fn send(client: &kube::Client, method: &str, path: &str, body: &Value) -> Answer {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let response = client.send(request.body(kube::client::Body::from(body.to_string().into_bytes())).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let text = |header: &http::HeaderValue| {
        let whole = header.to_str().unwrap().trim_start_matches("299 - ");
        whole.trim_matches('"').replace("\\\"", "\"").replace("\\\\", "\\")
    };
    let warnings = response.headers().get_all("warning").iter().map(text).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    Answer { code, warnings, body: serde_json::from_slice(&bytes).unwrap_or_default() }
}

/// An object without what every server makes up.
fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !OWN.contains(&name.as_str()));
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::String(text) if text.starts_with("kube-api-access-") || uuid::Uuid::parse_str(text).is_ok() => *value = Value::Null,
        _ => {}
    }
}

fn part<'v>(value: &'v mut Value, part: &Value) -> &'v mut Value {
    match part.as_u64() {
        Some(index) => &mut value[index as usize],
        None => &mut value[part.as_str().unwrap()],
    }
}

/// An object with one field changed or taken away.
fn changed(object: &Value, field: &[Value], value: Option<&Value>) -> Value {
    let mut object = object.clone();
    let (last, parents) = field.split_last().unwrap();
    let at = parents.iter().fold(&mut object, |at, name| part(at, name));
    match value {
        Some(value) => *part(at, last) = value.clone(),
        None => match at {
            Value::Array(items) => drop(items.remove(last.as_u64().unwrap() as usize)),
            Value::Object(fields) => drop(fields.remove(last.as_str().unwrap())),
            _ => panic!("{field:?}"),
        },
    }
    object
}

fn causes(status: &Value) -> Vec<String> {
    let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    causes.iter().map(|c| format!("{}: {}", c["field"].as_str().unwrap_or_default(), c["message"].as_str().unwrap_or_default())).collect()
}

#[tokio::test]
async fn every_kind_is_held_to_a_real_servers_rules_and_defaults() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    send(&client, "POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
    let mut wrong = Vec::new();
    let (mut target, mut object, mut method) = (String::new(), Value::Null, "POST");
    for line in TABLE.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        if let Some(path) = record["path"].as_str() {
            let update = record["update"] == true;
            object = record["object"].clone();
            let name = object["metadata"]["name"].as_str().unwrap();
            let made = send(&client, "POST", &if update { path.to_owned() } else { format!("{path}?dryRun=All") }, &object).await;
            if made.code != 201 {
                wrong.push(format!("{path} {name}: {} {}", made.code, made.body["message"]));
                continue;
            }
            let (mut is, mut should) = (made.body.clone(), record["answer"].clone());
            strip(&mut is);
            strip(&mut should);
            if is != should {
                wrong.push(format!("{path} {name}:\n    is     {is}\n    should {should}"));
            }
            (target, method) = if update { (format!("{path}/{name}?dryRun=All"), "PUT") } else { (format!("{path}?dryRun=All"), "POST") };
            if update {
                object = made.body;
                object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            }
            continue;
        }
        let field = record[0].as_array().unwrap();
        let answer = send(&client, method, &target, &changed(&object, field, record[1].get(0))).await;
        let (is, should) = (json!([causes(&answer.body), answer.warnings]), json!([record[2], record[3]]));
        if is != should {
            wrong.push(format!("{method} {target} {} = {}:\n    is     {is}\n    should {should}", record[0], record[1]));
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    server.stop().await;
}
