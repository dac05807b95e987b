//! How a strategic merge patch brings two lists together, and in which order the items then stand: `$setElementOrder` first,
//! then the order of the patch, then the order of the live list.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{Fields, PATCH, SET_ELEMENT_ORDER, discard_nulls, lookup, merge_map, remove_directives, unknown_directive};
use crate::api::apply::typed::Type;
use crate::api::patch::{PatchError, go};
use crate::schema::PatchStrategy;

/// What the items of a list are told apart by: their merge key, or themselves.
#[derive(Clone, Copy)]
enum By<'k> {
    Key(&'k str),
    Itself,
}

impl By<'_> {
    fn identity(self, item: &Value) -> Result<String, PatchError> {
        match self {
            By::Itself => Ok(item.to_string()),
            By::Key(key) => {
                let Value::Object(fields) = item else { return Err(bad_type("map[string]interface {}", item)) };
                fields.get(key).map(Value::to_string).ok_or_else(|| no_merge_key(item, key))
            }
        }
    }

    fn identities(self, items: &[Value]) -> Result<Vec<String>, PatchError> {
        items.iter().map(|item| self.identity(item)).collect()
    }
}

/// Merges `patch` into `original`; with `deleting`, takes its items out of it instead.
pub(super) fn merge(
    original: &mut Vec<Value>,
    mut patch: Vec<Value>,
    items: &Type<'_>,
    strategy: &PatchStrategy,
    deleting: bool,
) -> Result<(), PatchError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(());
    }
    let key = strategy.merge_key.as_deref();
    let by = match (of_objects(original, &patch)?, key) {
        (false, _) => By::Itself,
        (true, Some(key)) => By::Key(key),
        (true, None) => return Err(PatchError::Unclassified("cannot merge lists without merge key for struct".into())),
    };
    match by {
        By::Itself if deleting => {
            let gone: HashSet<String> = patch.iter().map(Value::to_string).collect();
            original.retain(|item| !gone.contains(&item.to_string()));
            return Ok(());
        }
        By::Itself => {
            let server = by.identities(original)?;
            let order = by.identities(&patch)?;
            let mut seen = HashSet::new();
            let mut merged = std::mem::take(original);
            merged.append(&mut patch);
            merged.retain(|item| seen.insert(item.to_string()));
            *original = in_order(merged, by, &order, &server)?;
        }
        By::Key(key) => {
            if take_directives(original, &mut patch, key)? {
                *original = patch;
                return Ok(());
            }
            let server = by.identities(original)?;
            let order = by.identities(&patch)?;
            let mut places: HashMap<String, usize> = HashMap::with_capacity(server.len());
            for (i, identity) in server.iter().enumerate() {
                places.entry(identity.clone()).or_insert(i);
            }
            for (change, identity) in patch.into_iter().zip(&order) {
                match places.get(identity).and_then(|&i| original.get_mut(i)) {
                    Some(Value::Object(current)) => match change {
                        Value::Object(change) => merge_map(current, change, items)?,
                        other => return Err(bad_type("map[string]interface {}", &other)),
                    },
                    _ => {
                        let mut change = change;
                        discard_nulls(&mut change);
                        places.insert(identity.clone(), original.len());
                        original.push(change);
                    }
                }
            }
            *original = in_order(std::mem::take(original), by, &order, &server)?;
        }
    }
    Ok(())
}

/// Carries out the items that are directives and leaves the others in `patch`. Says whether the patch replaces the list.
fn take_directives(original: &mut Vec<Value>, patch: &mut Vec<Value>, key: &str) -> Result<bool, PatchError> {
    let mut replace = false;
    let mut plain = Vec::with_capacity(patch.len());
    for item in patch.drain(..) {
        let Value::Object(fields) = &item else { return Err(bad_type("map[string]interface {}", &item)) };
        let Some(directive) = fields.get(PATCH) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let gone = fields.get(key).ok_or_else(|| no_merge_key(&item, key))?;
                original.retain(|item| item.get(key) != Some(gone));
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(PatchError::Unclassified("merging lists cannot yet be specified in the patch".into())),
            _ => return Err(unknown_directive(directive, fields)),
        }
    }
    *patch = plain;
    Ok(replace)
}

/// Carries out every `$setElementOrder/<list>` of the patch together with that list, and takes both out of the patch.
pub(super) fn set_element_orders(original: &mut Fields, patch: &mut Fields, of: &Type<'_>) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let malformed = || PatchError::BadRequest("invalid patch format of setElementOrder list".into());
        let Some(order) = patch.remove(&directive) else { continue };
        let Value::Array(order) = order else { return Err(bad_type("[]interface {}", &order)) };
        let Some((SET_ELEMENT_ORDER, name)) = directive.split_once('/') else { return Err(malformed()) };
        let current = match original.get(name) {
            // A list that is written as null is none.
            None | Some(Value::Null) => None,
            Some(Value::Array(items)) => Some(items.clone()),
            Some(other) => return Err(bad_type("[]interface {}", other)),
        };
        let change = match patch.remove(name) {
            None => None,
            Some(Value::Array(items)) => Some(items),
            Some(other) => return Err(bad_type("[]interface {}", &other)),
        };
        let (field, strategy) = lookup(of, name)?;
        let by = match strategy.merge_key.as_deref() {
            Some(key) => By::Key(key),
            None => By::Itself,
        };
        validate_order(change.as_deref().unwrap_or_default(), &order, by)?;
        let of_current = current.as_deref().unwrap_or_default();
        if current.is_none() && change.is_none() {
            continue;
        }
        of_objects(of_current, change.as_deref().unwrap_or_default())?;
        let server = by.identities(of_current)?;
        let merged = match (current, change) {
            (Some(mut current), Some(change)) if strategy.merge => {
                merge(&mut current, change, &field.items(), &strategy, false)?;
                current
            }
            (_, Some(change)) => {
                let mut change = Value::Array(change);
                remove_directives(&mut change);
                match change {
                    Value::Array(items) => items,
                    _ => Vec::new(),
                }
            }
            (Some(current), None) => current,
            (None, None) => continue,
        };
        let order = by.identities(&order)?;
        original.insert(name.to_owned(), Value::Array(in_order(merged, by, &order, &server)?));
    }
    Ok(())
}

/// Any two items must stand in the patch as they stand in the order, and every item of the patch must be in it.
fn validate_order(patch: &[Value], order: &[Value], by: By<'_>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| item.get(PATCH).is_none()) {
        let identity = by.identity(item)?;
        loop {
            let Some(next) = rest.next() else {
                let (patch, order) = (go::plain(&Value::from(patch)), go::plain(&Value::from(order)));
                let message = format!("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n");
                return Err(PatchError::Unclassified(message));
            };
            if by.identity(next)? == identity {
                break;
            }
        }
    }
    Ok(())
}

/// Items that `order` names stand as it has them, the others as the server has them; where both can be told, the server's
/// order also says how the two are laid into each other.
fn in_order(items: Vec<Value>, by: By<'_>, order: &[String], server: &[String]) -> Result<Vec<Value>, PatchError> {
    let positions = |list: &[String]| {
        let mut positions = HashMap::with_capacity(list.len());
        for (i, identity) in list.iter().enumerate() {
            positions.entry(identity.clone()).or_insert(i);
        }
        positions
    };
    let (in_patch, on_server) = (positions(order), positions(server));
    let mut named = Vec::new();
    let mut server_only = Vec::new();
    for item in items {
        let identity = by.identity(&item)?;
        let place = on_server.get(&identity).copied();
        match in_patch.get(&identity) {
            Some(&i) => named.push((i, place, item)),
            None => server_only.push((place.unwrap_or(usize::MAX), place, item)),
        }
    }
    named.sort_by_key(|(i, ..)| *i);
    server_only.sort_by_key(|(i, ..)| *i);
    let mut merged = Vec::with_capacity(named.len() + server_only.len());
    let mut left = server_only.into_iter().peekable();
    for (_, place, item) in named {
        while let Some(place) = place
            && left.peek().is_some_and(|(_, other, _)| other.is_some_and(|other| other < place))
        {
            merged.extend(left.next().map(|(.., item)| item));
        }
        merged.push(item);
    }
    merged.extend(left.map(|(.., item)| item));
    Ok(merged)
}

/// Whether the lists hold objects. All items must be of one kind, and none may be a list.
fn of_objects(original: &[Value], patch: &[Value]) -> Result<bool, PatchError> {
    let mut kind = None;
    for item in original.iter().chain(patch) {
        let found = go::type_name(item);
        if item.is_array() {
            return Err(PatchError::Rejected("lists of lists are not supported".into()));
        }
        if *kind.get_or_insert(found) != found {
            let lists = go::plain(&Value::from(vec![Value::from(original), Value::from(patch)]));
            return Err(PatchError::Unclassified(format!("list element types are not identical: {lists}")));
        }
    }
    match kind {
        Some(kind) => Ok(kind.starts_with("map")),
        None => Err(PatchError::Unclassified("no elements in any of the given slices".into())),
    }
}

fn no_merge_key(item: &Value, key: &str) -> PatchError {
    PatchError::Unclassified(format!("map: {} does not contain declared merge key: {key}", go::plain(item)))
}

fn bad_type(expected: &str, found: &Value) -> PatchError {
    PatchError::Unclassified(format!("expected a {expected}, but received a {}", go::type_name(found)))
}
