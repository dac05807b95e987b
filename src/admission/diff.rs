//! What a step changed, as a JSON Patch that tells people: short where little changed, and never about what nobody wrote by hand
//! (`managedFields`, `status`).

use std::fmt::Write;

use serde_json::{Map, Value, json};

/// The part of an object that [`follow`] compares, taken before a step runs.
pub fn snapshot(object: &Value) -> Value {
    let Some(fields) = object.as_object() else { return object.clone() };
    let kept = fields.iter().filter(|(name, _)| *name != "status").map(|(name, value)| {
        let value = match (name.as_str(), value) {
            ("metadata", Value::Object(metadata)) => {
                let metadata = metadata.iter().filter(|(name, _)| *name != "managedFields");
                Value::Object(metadata.map(|(name, value)| (name.clone(), value.clone())).collect())
            }
            _ => value.clone(),
        };
        (name.clone(), value)
    });
    Value::Object(kept.collect())
}

/// The operations that lead from one object to another, none if nothing changed. The first is then as the second.
pub fn follow(before: &mut Value, after: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    values(before, after, &mut String::new(), &mut operations);
    operations
}

/// The same without what must stay secret: the values of a Secret.
pub fn shown(kind: &str, mut operations: Vec<Value>) -> Value {
    if kind == "Secret" {
        for operation in &mut operations {
            if operation.get("value").is_some() {
                operation["value"] = json!("(hidden)");
            }
        }
    }
    operations.into()
}

fn values(before: &mut Value, after: &Value, path: &mut String, operations: &mut Vec<Value>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => fields(before, after, path, operations),
        (Value::Array(before), Value::Array(after)) if after.len() >= before.len() => {
            // Where a list grew or an item changed, its items are told one by one; anything else is another list.
            for (index, item) in after.iter().enumerate() {
                let end = path.len();
                let _ = write!(path, "/{index}");
                match before.get_mut(index) {
                    Some(old) => values(old, item, path, operations),
                    None => {
                        operations.push(json!({"op": "add", "path": path, "value": item}));
                        before.push(item.clone());
                    }
                }
                path.truncate(end);
            }
        }
        (before, after) if before == after => {}
        (before, after) => {
            operations.push(json!({"op": "replace", "path": path, "value": after}));
            *before = after.clone();
        }
    }
}

fn fields(before: &mut Map<String, Value>, after: &Map<String, Value>, path: &mut String, operations: &mut Vec<Value>) {
    let ignored = |name: &str, path: &str| (path.is_empty() && name == "status") || (path == "/metadata" && name == "managedFields");
    for (name, value) in after {
        if ignored(name, path) {
            continue;
        }
        let end = path.len();
        path.push('/');
        path.push_str(&escape(name));
        match before.get_mut(name) {
            Some(old) => values(old, value, path, operations),
            None => {
                operations.push(json!({"op": "add", "path": path, "value": value}));
                before.insert(name.clone(), value.clone());
            }
        }
        path.truncate(end);
    }
    before.retain(|name, _| {
        let stays = after.contains_key(name) || ignored(name, path);
        if !stays {
            operations.push(json!({"op": "remove", "path": format!("{path}/{}", escape(name))}));
        }
        stays
    });
}

fn escape(name: &str) -> std::borrow::Cow<'_, str> {
    match name.contains(['~', '/']) {
        true => name.replace('~', "~0").replace('/', "~1").into(),
        false => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_says_what_changed_and_leads_from_one_to_the_other() {
        let before =
            json!({"metadata": {"labels": {"a/b": "1"}, "managedFields": [1]}, "spec": {"list": [{"n": 1}], "gone": 1}, "status": 1});
        let after = json!({"metadata": {"labels": {"a/b": "2", "c": "3"}, "managedFields": [2]}, "spec": {"list": [{"n": 2}, {"n": 3}]}, "status": 2});
        let mut followed = snapshot(&before);
        let operations = follow(&mut followed, &after);
        let expected = json!([
            {"op": "replace", "path": "/metadata/labels/a~1b", "value": "2"},
            {"op": "add", "path": "/metadata/labels/c", "value": "3"},
            {"op": "replace", "path": "/spec/list/0/n", "value": 2},
            {"op": "add", "path": "/spec/list/1", "value": {"n": 3}},
            {"op": "remove", "path": "/spec/gone"},
        ]);
        assert_eq!(Value::Array(operations.clone()), expected);
        let mut patched = snapshot(&before);
        crate::api::patch::json::apply(&mut patched, &operations.into()).unwrap();
        assert_eq!(patched, snapshot(&after));
        assert_eq!(followed, snapshot(&after));
        assert!(follow(&mut followed, &after).is_empty());
    }

    #[test]
    fn a_shorter_list_is_another_list_and_a_secret_stays_one() {
        let operations = follow(&mut json!({"data": [1, 2]}), &json!({"data": [2]}));
        assert_eq!(operations, [json!({"op": "replace", "path": "/data", "value": [2]})]);
        assert_eq!(shown("Secret", operations), json!([{"op": "replace", "path": "/data", "value": "(hidden)"}]));
    }
}
