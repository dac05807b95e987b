//! Admission of what is never stored: connections to Pods, Services and Nodes, whose options stand in the query, and requests for
//! tokens. Whoever serves them asks here first.

use serde_json::{Map, Value, json};

use super::Api;
use super::target::Target;
use crate::admission::Operation;
use crate::request::query_pairs;
use crate::status::Status;

/// What a field of the options is in the query.
#[derive(Clone, Copy)]
enum Field {
    Text,
    Texts,
    Flag,
    Numbers,
}

/// The options of a connection: their kind and fields; nothing where a subresource is none.
fn options_of(plural: &str, subresource: &str) -> Option<(&'static str, &'static [(&'static str, Field)])> {
    const STREAMS: &[(&str, Field)] =
        &[("stdin", Field::Flag), ("stdout", Field::Flag), ("stderr", Field::Flag), ("tty", Field::Flag), ("container", Field::Text)];
    const EXEC: &[(&str, Field)] = &[
        ("stdin", Field::Flag),
        ("stdout", Field::Flag),
        ("stderr", Field::Flag),
        ("tty", Field::Flag),
        ("container", Field::Text),
        ("command", Field::Texts),
    ];
    Some(match (plural, subresource) {
        ("pods", "exec") => ("PodExecOptions", EXEC),
        ("pods", "attach") => ("PodAttachOptions", STREAMS),
        ("pods", "portforward") => ("PodPortForwardOptions", &[("ports", Field::Numbers)]),
        ("pods", "proxy") => ("PodProxyOptions", &[("path", Field::Text)]),
        ("services", "proxy") => ("ServiceProxyOptions", &[("path", Field::Text)]),
        ("nodes", "proxy") => ("NodeProxyOptions", &[("path", Field::Text)]),
        _ => return None,
    })
}

/// The options as an object, of which the query leaves out what is empty.
fn object_of(kind: &str, fields: &[(&str, Field)], query: &str, remainder: &str) -> Value {
    let mut object = Map::new();
    object.insert("kind".into(), kind.into());
    object.insert("apiVersion".into(), "v1".into());
    for (name, field) in fields {
        let mut given = query_pairs(query).filter(|(key, _)| key == name).map(|(_, value)| value);
        let value = match field {
            Field::Text => given.next().filter(|text| !text.is_empty()).map(Value::from),
            Field::Flag => given.next().filter(|text| !matches!(text.as_str(), "0" | "false")).map(|_| Value::from(true)),
            Field::Texts => Some(given.collect::<Vec<_>>()).filter(|list| !list.is_empty()).map(Value::from),
            Field::Numbers => {
                let numbers: Vec<i64> = given.flat_map(|text| text.split(',').filter_map(|n| n.parse().ok()).collect::<Vec<_>>()).collect();
                Some(numbers).filter(|list| !list.is_empty()).map(Value::from)
            }
        };
        if let Some(value) = value {
            object.insert((*name).into(), value);
        }
    }
    if kind.ends_with("ProxyOptions") && !remainder.is_empty() {
        object.insert("path".into(), json!(format!("/{remainder}")));
    }
    object.into()
}

impl Api {
    /// Asks admission about a connection; other subresources have nothing to ask about.
    pub(super) async fn admit_connection(&self, target: &Target) -> Result<(), Status> {
        let Some((kind, fields)) = options_of(&target.resource.plural, &target.subresource) else { return Ok(()) };
        let info = &target.context.info;
        if kind == "PodPortForwardOptions" {
            let ports = query_pairs(&target.context.query).filter(|(key, _)| key == "ports").map(|(_, value)| value);
            let wrong =
                ports.flat_map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>()).find(|port| port.parse::<u16>().is_err());
            if let Some(port) = wrong {
                return Err(Status::bad_request(format!("cannot convert to []int32: strconv.ParseUint: parsing {port:?}: invalid syntax")));
            }
        }
        let mut object = object_of(kind, fields, &target.context.query, &info.remainder);
        if info.remainder.is_empty() && info.path.ends_with("/proxy/") {
            object["path"] = "/".into();
        }
        self.admit(target, Operation::Connect, object).await.map(|_| ())
    }

    /// Asks admission about an object that is answered and not kept; gives it back as admission made it.
    pub(super) async fn admit(&self, target: &Target, operation: Operation, object: Value) -> Result<Value, Status> {
        let mut write = target.operation(operation, Some(object), None);
        self.admission.mutate(&mut write).await?;
        self.admission.validate(&write).await?;
        Ok(write.object.take().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(plural: &str, subresource: &str, query: &str, remainder: &str) -> Value {
        let (kind, fields) = options_of(plural, subresource).unwrap();
        object_of(kind, fields, query, remainder)
    }

    #[test]
    fn the_options_of_a_connection_are_read_off_its_query() {
        let exec = options("pods", "exec", "command=sh&command=-c&container=main&stdin=true&tty=false&stdout=1", "");
        let expected = json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdin": true, "stdout": true, "container": "main", "command": ["sh", "-c"]});
        assert_eq!(exec, expected);
        let forward = options("pods", "portforward", "ports=80,443&ports=x", "");
        assert_eq!(forward["ports"], json!([80, 443]));
        assert_eq!(options("services", "proxy", "", "a/b")["path"], "/a/b");
        assert!(options_of("pods", "log").is_none());
    }
}
