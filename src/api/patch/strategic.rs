//! Strategic merge patch: a merge patch that knows from the schema which lists are merged, and by which key, and whose
//! directives (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`) say what a merge alone cannot.
//! For built-in kinds only: a custom resource has no patch strategies, and its clients are answered 415 before this.

use serde_json::{Map, Value};

use super::{PatchError, go};
use crate::api::apply::typed::Type;
use crate::schema::{PatchStrategy, Schema, Shape};

mod list;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";

type Fields = Map<String, Value>;

/// Applies `patch` to `document`, an object of `schema`. On an error the document may be half patched; throw it away.
pub fn apply(document: &mut Value, patch: Value, schema: &Schema) -> Result<(), PatchError> {
    let Value::Object(patch) = patch else {
        let found = match &patch {
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            // A null body decodes to an empty patch.
            Value::Null | Value::Object(_) => return Ok(()),
        };
        let message = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
        return Err(PatchError::BadRequest(message));
    };
    let Value::Object(document) = document else {
        return Err(PatchError::BadRequest("invalid JSON document".into()));
    };
    merge_map(document, patch, &Type::root(schema))
}

fn merge_map(original: &mut Fields, mut patch: Fields, of: &Type<'_>) -> Result<(), PatchError> {
    if let Some(directive) = patch.get(PATCH) {
        match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                *original = patch;
            }
            Some("delete") => original.clear(),
            _ => return Err(unknown_directive(directive, &patch)),
        }
        return Ok(());
    }
    retain_keys(original, &mut patch)?;
    list::set_element_orders(original, &mut patch, of)?;
    for (key, mut change) in patch {
        let (name, deleting) = match delete_list_of(&key)? {
            Some(name) => (name, true),
            None => (key.as_str(), false),
        };
        if change.is_null() {
            original.remove(name);
            continue;
        }
        match (original.get_mut(name), &mut change) {
            (Some(Value::Object(current)), Value::Object(change)) => {
                let (field, strategy) = lookup(of, name)?;
                if strategy.replace {
                    *current = std::mem::take(change);
                } else {
                    merge_map(current, std::mem::take(change), &field)?;
                }
            }
            (Some(Value::Array(current)), Value::Array(change)) => {
                let (field, strategy) = lookup(of, name)?;
                if strategy.merge || deleting {
                    list::merge(current, std::mem::take(change), &field.items(), &strategy, deleting)?;
                } else {
                    *current = std::mem::take(change);
                }
            }
            // A list to delete from needs a list to be deleted from.
            _ if deleting => {}
            _ => match without_directives(change) {
                Some(change) => {
                    original.insert(name.to_owned(), change);
                }
                None => {
                    original.remove(name);
                }
            },
        }
    }
    Ok(())
}

/// Keeps in `original` only the keys that `$retainKeys` names; every key of the patch must be among them.
fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Result<(), PatchError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || PatchError::BadRequest("invalid patch format of retainKeys".into());
    let Value::Array(keys) = directive else { return Err(malformed()) };
    let keys: std::collections::HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    for (name, change) in patch.iter() {
        let parallel = name.starts_with(DELETE_FROM_PRIMITIVE_LIST) || name.starts_with(SET_ELEMENT_ORDER);
        if !change.is_null() && !parallel && !keys.contains(name.as_str()) {
            return Err(malformed());
        }
    }
    original.retain(|name, _| keys.contains(name.as_str()));
    Ok(())
}

/// The list that a `$deleteFromPrimitiveList/<list>` is for; `None` for any other key.
fn delete_list_of(key: &str) -> Result<Option<&str>, PatchError> {
    if !key.starts_with(DELETE_FROM_PRIMITIVE_LIST) {
        return Ok(None);
    }
    match key.split_once('/') {
        Some((DELETE_FROM_PRIMITIVE_LIST, list)) => Ok(Some(list)),
        _ => Err(PatchError::BadRequest("invalid patch format of primitive list".into())),
    }
}

/// The schema of a field and how it is patched.
fn lookup<'t>(of: &'t Type<'_>, name: &str) -> Result<(Type<'t>, PatchStrategy), PatchError> {
    let Some(schema) = of.schema() else { return Ok((Type::Any, PatchStrategy::default())) };
    let Shape::Object(shape) = &schema.shape else { return Ok((Type::Any, PatchStrategy::default())) };
    if let Some(field) = of.named_field(name) {
        let strategy = match field.schema().map(|schema| &schema.shape) {
            Some(Shape::Object(shape)) => shape.patch.clone(),
            Some(Shape::Array { patch, .. }) => patch.clone(),
            _ => PatchStrategy::default(),
        };
        return Ok((field, strategy));
    }
    if shape.preserve_unknown {
        return Ok((Type::Any, PatchStrategy::default()));
    }
    Err(PatchError::Unclassified(if shape.properties.is_empty() {
        "merging an object in json but data type is not struct, instead is: map".to_owned()
    } else {
        let definition = schema.name.as_deref().unwrap_or_default();
        let type_name = definition.rsplit('.').next().unwrap_or_default();
        format!("unable to find api field in struct {type_name} for the json field \"{name}\"")
    }))
}

/// A value that takes the place of nothing, or of something of another kind: its nulls ask for nothing, and an object with
/// a directive is not there at all.
fn without_directives(mut value: Value) -> Option<Value> {
    discard_nulls(&mut value);
    remove_directives(&mut value).then_some(value)
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// Says whether the value is to be kept.
fn remove_directives(value: &mut Value) -> bool {
    match value {
        Value::Object(fields) => {
            if fields.contains_key(PATCH) {
                return false;
            }
            fields.retain(|_, value| remove_directives(value));
        }
        Value::Array(items) => items.retain_mut(remove_directives),
        _ => {}
    }
    true
}

fn unknown_directive(directive: &Value, patch: &Fields) -> PatchError {
    PatchError::Unclassified(format!("unknown patch type: {} in map: {}", go::plain(directive), go::plain(&Value::Object(patch.clone()))))
}

#[cfg(test)]
mod tests;
