//! JSON merge patch (RFC 7386) as Kubernetes applies it: null removes, objects merge, everything else replaces. Nulls are
//! also dropped from objects inside of lists that replace something, which the RFC leaves alone.

use serde_json::{Map, Value};

use super::PatchError;

/// Applies `patch` to `document`, which must both be objects.
pub fn apply(document: &mut Value, patch: Value) -> Result<(), PatchError> {
    let Value::Object(patch) = patch else { return Err(not_a_patch()) };
    let Value::Object(document) = document else {
        return Err(PatchError::Unclassified("invalid JSON document".into()));
    };
    merge(document, patch);
    Ok(())
}

/// What a body that is not JSON, or not an object, is answered with.
pub fn not_a_patch() -> PatchError {
    PatchError::BadRequest("invalid JSON patch".into())
}

fn merge(document: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, mut change) in patch {
        if change.is_null() {
            document.remove(&name);
            continue;
        }
        match document.get_mut(&name) {
            Some(Value::Object(current)) => match change {
                Value::Object(change) => merge(current, change),
                // A list or scalar over an object is taken as it stands, nulls and all.
                change => {
                    document.insert(name, change);
                }
            },
            _ => {
                drop_nulls(&mut change);
                document.insert(name, change);
            }
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(mut document: Value, patch: Value) -> Value {
        apply(&mut document, patch).expect("the patch applies");
        document
    }

    #[test]
    fn the_examples_of_the_rfc_come_out_as_written() {
        for (document, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            assert_eq!(merged(document, patch), result);
        }
    }

    #[test]
    fn nulls_inside_of_a_list_that_replaces_another_are_dropped_from_its_objects_only() {
        assert_eq!(merged(json!({"a": [1]}), json!({"a": [{"b": null, "c": 1}, null]})), json!({"a": [{"c": 1}, null]}));
    }

    #[test]
    fn a_patch_that_is_no_object_is_a_bad_request() {
        for patch in [json!([]), json!(1), json!(null), json!("x")] {
            assert_eq!(apply(&mut json!({}), patch), Err(PatchError::BadRequest("invalid JSON patch".into())));
        }
    }
}
