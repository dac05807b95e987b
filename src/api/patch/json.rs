//! JSON Patch (RFC 6902) as Kubernetes applies it. The crate `json-patch` follows the RFC where a real server does not
//! (`replace` of a missing member succeeds, a negative index counts from the end, a missing value is null, the root can be
//! replaced but not added to), and it reports other errors, so the six operations are done here; the crate remains the
//! oracle of the tests.

use serde_json::{Map, Value};

use crate::object::json_kind;

use super::PatchError;

/// How many operations one patch may have.
pub const MAX_OPERATIONS: usize = 10_000;

/// How many bytes all `copy` operations of one patch may add.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Applies `patch` to `document`. On an error the document may be half patched; throw it away.
pub fn apply(document: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let operations = match patch {
        Value::Array(operations) => operations.as_slice(),
        Value::Null => &[],
        other => {
            return Err(undecodable(&format!("json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp", json_kind(other))));
        }
    };
    let operations = operations.iter().map(Operation::decode).collect::<Result<Vec<_>, _>>()?;
    if operations.len() > MAX_OPERATIONS {
        let found = operations.len();
        return Err(PatchError::TooLarge(format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {found}")));
    }
    let mut copied = 0;
    for operation in &operations {
        operation.apply(document, &mut copied).map_err(PatchError::Rejected)?;
    }
    Ok(())
}

/// The complaints that strict field validation has about the patch itself: members that no operation has.
pub fn unknown_fields(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut complaints = Vec::new();
    for (i, operation) in operations.iter().enumerate() {
        for name in operation.as_object().into_iter().flat_map(Map::keys) {
            if !matches!(name.as_str(), "op" | "path" | "from" | "value") {
                complaints.push(format!("json patch unknown field \"[{i}].{name}\""));
            }
        }
    }
    complaints
}

fn undecodable(why: &str) -> PatchError {
    PatchError::BadRequest(format!("error decoding patch: {why}"))
}

struct Operation<'p> {
    op: &'p str,
    path: Option<&'p str>,
    from: Option<&'p str>,
    value: &'p Value,
}

impl<'p> Operation<'p> {
    fn decode(operation: &'p Value) -> Result<Self, PatchError> {
        let fields = match operation {
            Value::Object(fields) => fields,
            // A null operation decodes to one without members, which is then of no known kind.
            Value::Null => return Ok(Operation { op: "unknown", path: None, from: None, value: &Value::Null }),
            other => {
                return Err(undecodable(&format!(
                    "json: cannot unmarshal {} into Go value of type handlers.jsonPatchOp",
                    json_kind(other)
                )));
            }
        };
        let text = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(other) => {
                let found = json_kind(other);
                Err(undecodable(&format!("json: cannot unmarshal {found} into Go struct field jsonPatchOp.{name} of type string")))
            }
        };
        Ok(Operation {
            op: text("op")?.unwrap_or("unknown"),
            path: text("path")?,
            from: text("from")?,
            value: fields.get("value").unwrap_or(&Value::Null),
        })
    }

    fn apply(&self, document: &mut Value, copied: &mut usize) -> Result<(), String> {
        match self.op {
            "add" => {
                let path = self.path("add")?;
                let (container, key) = find(document, path)
                    .ok_or_else(|| format!("add operation does not apply: doc is missing path: \"{path}\": missing value"))?;
                add(container, &key, self.value.clone()).map_err(|why| format!("error in add for path: '{path}': {why}"))
            }
            "remove" => {
                let path = self.path("remove")?;
                let (container, key) = find(document, path)
                    .ok_or_else(|| format!("remove operation does not apply: doc is missing path: \"{path}\": missing value"))?;
                remove(container, &key).map(drop).map_err(|why| format!("error in remove for path: '{path}': {why}"))
            }
            "replace" => self.replace(document),
            "move" => self.r#move(document),
            "test" => self.test(document),
            "copy" => self.copy(document, copied),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    fn path(&self, operation: &str) -> Result<&'p str, String> {
        self.path.ok_or_else(|| format!("{operation} operation failed to decode path: missing value"))
    }

    fn from(&self, operation: &str) -> Result<&'p str, String> {
        self.from.ok_or_else(|| format!("{operation} operation failed to decode from: missing value"))
    }

    fn replace(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path("replace")?;
        if path.is_empty() {
            if !self.value.is_object() && !self.value.is_array() {
                return Err("replace operation value must be object or array".into());
            }
            *document = self.value.clone();
            return Ok(());
        }
        let (container, key) =
            find(document, path).ok_or_else(|| format!("replace operation does not apply: doc is missing path: {path}: missing value"))?;
        match container {
            Container::Object(fields) => {
                fields.insert(key, self.value.clone());
            }
            Container::Array(items) => {
                let slot = index(&key, items.len()).ok().and_then(|i| items.get_mut(i));
                *slot.ok_or_else(|| format!("replace operation does not apply: doc is missing key: {path}: missing value"))? =
                    self.value.clone();
            }
        }
        Ok(())
    }

    fn r#move(&self, document: &mut Value) -> Result<(), String> {
        let from = self.from("move")?;
        let (container, key) = find(document, from)
            .ok_or_else(|| format!("move operation does not apply: doc is missing from path: {from}: missing value"))?;
        let value = remove(container, &key).map_err(|why| format!("error in move for path: '{key}': {why}"))?;
        let path = self.path("move")?;
        let (container, key) = find(document, path)
            .ok_or_else(|| format!("move operation does not apply: doc is missing destination path: {path}: missing value"))?;
        add(container, &key, value).map_err(|why| format!("error in move for path: '{path}': {why}"))
    }

    fn test(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path("test")?;
        let found = if path.is_empty() {
            &*document
        } else {
            let (container, key) =
                find(document, path).ok_or_else(|| format!("test operation does not apply: is missing path: {path}: missing value"))?;
            get(container, &key).map_err(|why| format!("error in test for path: '{path}': {why}"))?
        };
        if found == self.value { Ok(()) } else { Err(format!("testing value {path} failed: test failed")) }
    }

    fn copy(&self, document: &mut Value, copied: &mut usize) -> Result<(), String> {
        let from = self.from("copy")?;
        let (container, key) = find(document, from)
            .ok_or_else(|| format!("copy operation does not apply: doc is missing from path: {from}: missing value"))?;
        let value = get(container, &key).map_err(|why| format!("error in copy for from: '{from}': {why}"))?.clone();
        let path = self.path("copy")?;
        let (container, key) = find(document, path)
            .ok_or_else(|| format!("copy operation does not apply: doc is missing destination path: {path}: missing value"))?;
        *copied += size(&value);
        if *copied > MAX_COPIED_BYTES {
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED_BYTES}"
            ));
        }
        add(container, &key, value).map_err(|why| format!("error while adding value during copy: {why}"))
    }
}

/// What a path's last step is taken in.
enum Container<'d> {
    Object(&'d mut Map<String, Value>),
    Array(&'d mut Vec<Value>),
}

impl<'d> Container<'d> {
    fn of(value: &'d mut Value) -> Option<Self> {
        match value {
            Value::Object(fields) => Some(Container::Object(fields)),
            Value::Array(items) => Some(Container::Array(items)),
            _ => None,
        }
    }
}

/// The container that the last step of `path` is taken in, and that step. What stands before the first slash is not looked at.
fn find<'d>(document: &'d mut Value, path: &str) -> Option<(Container<'d>, String)> {
    let (_, steps) = path.split_once('/')?;
    let (parents, last) = match steps.rsplit_once('/') {
        Some((parents, last)) => (Some(parents), last),
        None => (None, steps),
    };
    let mut place = document;
    for step in parents.into_iter().flat_map(|parents| parents.split('/')) {
        let step = unescape(step);
        place = match place {
            Value::Object(fields) => fields.get_mut(&step)?,
            Value::Array(items) => {
                let i = index(&step, items.len()).ok()?;
                items.get_mut(i)?
            }
            _ => return None,
        };
    }
    Some((Container::of(place)?, unescape(last)))
}

fn unescape(step: &str) -> String {
    if step.contains('~') { step.replace("~1", "/").replace("~0", "~") } else { step.to_owned() }
}

/// Reads a step as a place among `count`; one below zero counts from the end.
fn index(step: &str, count: usize) -> Result<usize, String> {
    let number: i64 = step.parse().map_err(|_| format!("strconv.Atoi: parsing \"{step}\": invalid syntax"))?;
    let wrong = || format!("Unable to access invalid index: {number}: invalid index referenced");
    if number >= 0 {
        return usize::try_from(number).map_err(|_| wrong());
    }
    let back = usize::try_from(number.unsigned_abs()).map_err(|_| wrong())?;
    count.checked_sub(back).ok_or_else(wrong)
}

fn get<'d>(container: Container<'d>, key: &str) -> Result<&'d Value, String> {
    match container {
        // A member that is not there reads as null.
        Container::Object(fields) => Ok(fields.get(key).unwrap_or(&Value::Null)),
        Container::Array(items) => {
            let i = index(key, items.len())?;
            items.get(i).ok_or_else(|| format!("Unable to access invalid index: {i}: invalid index referenced"))
        }
    }
}

fn add(container: Container<'_>, key: &str, value: Value) -> Result<(), String> {
    match container {
        Container::Object(fields) => {
            fields.insert(key.to_owned(), value);
        }
        Container::Array(items) if key == "-" => items.push(value),
        Container::Array(items) => {
            let i = index(key, items.len() + 1)?;
            if i > items.len() {
                return Err(format!("Unable to access invalid index: {i}: invalid index referenced"));
            }
            items.insert(i, value);
        }
    }
    Ok(())
}

fn remove(container: Container<'_>, key: &str) -> Result<Value, String> {
    match container {
        Container::Object(fields) => fields.remove(key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        Container::Array(items) => {
            let i = index(key, items.len())?;
            if i >= items.len() {
                return Err(format!("Unable to access invalid index: {i}: invalid index referenced"));
            }
            Ok(items.remove(i))
        }
    }
}

/// How long a value is as JSON.
fn size(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => usize::MAX / 2,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::status::Status;

    fn patched(mut document: Value, patch: &Value) -> Result<Value, PatchError> {
        apply(&mut document, patch).map(|()| document)
    }

    /// The public test-suite of RFC 6902, a case a line. `kubernetes` is what a real server does where it differs, with why.
    #[test]
    fn every_case_of_the_public_test_suite_ends_as_it_says() {
        for line in include_str!("rfc6902.jsonl").lines() {
            let case: Value = serde_json::from_str(line).expect("a case");
            let found = patched(case["doc"].clone(), &case["patch"]);
            let wanted = case.get("kubernetes").or(case.get("result"));
            match wanted {
                Some(Value::String(word)) if word == "refused" => assert!(found.is_err(), "{line}"),
                Some(wanted) => assert_eq!(found.as_ref(), Ok(wanted), "{line}"),
                None => assert!(found.is_err(), "{line}: {found:?}"),
            }
        }
    }

    #[test]
    fn replacing_a_missing_member_adds_it() {
        let patch = json!([{"op": "replace", "path": "/data/none", "value": "x"}]);
        assert_eq!(patched(json!({"data": {"k": "v"}}), &patch), Ok(json!({"data": {"k": "v", "none": "x"}})));
    }

    #[test]
    fn what_does_not_fit_is_refused_without_telling_the_client_why() {
        for (patch, why) in [
            (json!([{"op": "test", "path": "/data/k", "value": "zzz"}]), "testing value /data/k failed: test failed"),
            (
                json!([{"op": "remove", "path": "/data/none"}]),
                "error in remove for path: '/data/none': Unable to remove nonexistent key: none: missing value",
            ),
            (
                json!([{"op": "remove", "path": "/no/such"}]),
                "remove operation does not apply: doc is missing path: \"/no/such\": missing value",
            ),
        ] {
            let error = patched(json!({"data": {"k": "v"}}), &patch).expect_err("refused");
            assert_eq!(error, PatchError::Rejected(why.into()));
            let status = Status::from(error).to_json();
            assert_eq!(status["message"], "the server rejected our request due to an error in our request");
            assert_eq!((&status["code"], &status["reason"], &status["details"]), (&json!(422), &json!("Invalid"), &json!({})));
        }
    }

    #[test]
    fn a_patch_that_is_no_list_does_not_decode() {
        let error = patched(json!({}), &json!({"op": "test"})).expect_err("refused");
        let message = "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp";
        assert_eq!(error, PatchError::BadRequest(message.into()));
    }

    #[test]
    fn more_than_ten_thousand_operations_are_too_many() {
        let operations = vec![json!({"op": "test", "path": "/a", "value": 1}); MAX_OPERATIONS + 1];
        let status = Status::from(patched(json!({"a": 1}), &Value::Array(operations)).expect_err("refused"));
        assert_eq!((status.code, &*status.reason), (413, "RequestEntityTooLarge"));
        assert_eq!(status.message, "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001");
    }

    #[test]
    fn copies_may_not_blow_the_document_up() {
        let mut patch = vec![json!({"op": "add", "path": "/a", "value": "x".repeat(1000)})];
        for _ in 0..22 {
            patch.push(json!({"op": "copy", "from": "", "path": "/b"}));
            patch.push(json!({"op": "add", "path": "/c", "value": []}));
        }
        assert!(patched(json!({}), &Value::Array(patch)).is_err(), "the root cannot be copied");
        let mut patch = vec![json!({"op": "add", "path": "/a", "value": ["x".repeat(1000)]})];
        patch.extend((0..20).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/-"})));
        let error = patched(json!({}), &Value::Array(patch)).expect_err("too much");
        assert!(matches!(error, PatchError::Rejected(why) if why.contains("exceeding the limit 3145728")));
    }

    #[test]
    fn members_that_no_operation_has_are_reported() {
        let patch = json!([{"op": "add", "path": "/a", "value": 1, "foo": 2}]);
        assert_eq!(unknown_fields(&patch), ["json patch unknown field \"[0].foo\""]);
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            any::<i8>().prop_map(Value::from),
            "[a-c~/]{0,3}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::btree_map("[a-c~/]{1,2}", inner, 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
        .prop_map(|value| json!({"root": value}))
    }

    proptest! {
        #[test]
        fn a_difference_applied_to_the_one_gives_the_other(one in document(), other in document()) {
            let patch = serde_json::to_value(json_patch::diff(&one, &other)).expect("a patch");
            prop_assert_eq!(patched(one, &patch), Ok(other));
        }

        #[test]
        fn no_patch_panics(document in document(), patch in document()) {
            let _ = patched(document, &patch["root"]);
        }
    }
}
