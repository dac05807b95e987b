//! What a write means for everybody's ownership: whoever changes a field takes it, and what is removed is nobody's. Creates,
//! updates and patches only need this ([`track_update`]); an apply asks first whether it may.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use super::Context;
use super::conflict::Conflict;
use super::fieldset::FieldSet;
use super::managers::{Entry, InvalidManagedFields, MAX_UPDATE_MANAGERS, Managed, Manager, Operation};
use super::typed::Type;
use super::typed::compare::{Comparison, NEVER_OWNED, NEVER_OWNED_METADATA, compare};
use super::versions::{ConversionError, Converted};
use crate::schema::Schema;

/// Notes in `new` who owns what after a create (`live` is `None`), update or patch. Never fails: what cannot be converted
/// leaves managedFields as they were.
pub fn track_update(live: Option<&Value>, new: &mut Value, schema: &Schema, context: &Context<'_>) {
    let before = live.and_then(managed_fields);
    let sent = take_managed_fields(new);
    let mut managed = decode(before, sent, context);
    // An object that has been left untracked stays so until somebody applies it.
    if managed.entries.is_empty() && live.is_some() {
        return;
    }
    let nothing = Value::Object(Map::new());
    match track(live.unwrap_or(&nothing), new, schema, context, &mut managed) {
        Ok(()) => {
            managed.cap_update_managers(MAX_UPDATE_MANAGERS);
            set_managed_fields(new, managed.encode());
        }
        Err(_) => set_managed_fields(new, before.cloned()),
    }
}

/// Notes an update by the context's manager from `live` to `new`, neither of which has managedFields that count.
pub(super) fn track(
    live: &Value,
    new: &Value,
    schema: &Schema,
    context: &Context<'_>,
    managed: &mut Managed,
) -> Result<(), ConversionError> {
    let Ok(comparison) = take_over(live, new, schema, context, managed, None)? else { return Ok(()) };
    let mut taken = comparison.added.union(&comparison.modified);
    strip(&mut taken);
    if taken.is_empty() {
        return Ok(());
    }
    let manager = context.manager(Operation::Update);
    let entry = match managed.get(&manager) {
        Some(previous) => {
            *previous.fields() = taken.union(previous.fields());
            previous
        }
        None => {
            managed.entries.push(Entry::new(manager, taken));
            match managed.entries.last_mut() {
                Some(entry) => entry,
                None => return Ok(()),
            }
        }
    };
    entry.time = Some(context.now.to_owned());
    Ok(())
}

/// What the write from `before` to `after` takes from all managers but `writer`. Without force, what it would change of theirs is
/// given back as conflicts, and nothing is taken.
pub(super) fn take_over(
    before: &Value,
    after: &Value,
    schema: &Schema,
    context: &Context<'_>,
    managed: &mut Managed,
    writer: Option<(&Manager, bool)>,
) -> Result<Result<Comparison, Vec<Conflict>>, ConversionError> {
    let force = writer.is_none_or(|(_, force)| force);
    let own = filtered(compare(before, after, schema), context);
    let mut others: BTreeMap<String, Option<(Comparison, Arc<Schema>)>> = BTreeMap::new();
    let mut conflicts = Vec::new();
    for entry in &mut managed.entries {
        if writer.is_some_and(|(writer, _)| entry.manager.is(writer)) {
            continue;
        }
        let (comparison, schema) = if entry.manager.api_version == context.api_version {
            (&own, schema)
        } else {
            if !others.contains_key(&entry.manager.api_version) {
                let compared = compare_in(before, after, &entry.manager.api_version, context)?;
                others.insert(entry.manager.api_version.clone(), compared);
            }
            match others.get(&entry.manager.api_version) {
                Some(Some((comparison, schema))) => (comparison, &**schema),
                // The version is gone, and with it what was owned in it.
                _ => {
                    *entry.fields() = FieldSet::default();
                    continue;
                }
            }
        };
        if comparison.is_same() {
            continue;
        }
        let of = Type::root(schema);
        if force {
            entry.subtract(&comparison.added, &of);
            entry.subtract(&comparison.modified, &of);
            entry.subtract(&comparison.removed, &of);
        } else {
            let contested = entry.intersection(&comparison.modified, &of).union(&entry.intersection(&comparison.added, &of));
            conflicts.extend(contested.paths().into_iter().map(|path| (path, entry.manager.clone())));
        }
    }
    if !conflicts.is_empty() {
        conflicts.sort_by_key(|(_, manager)| manager.identity());
        return Ok(Err(conflicts.into_iter().map(|(path, manager)| Conflict { manager, path }).collect()));
    }
    if !force {
        for entry in managed.entries.iter_mut().filter(|entry| writer.is_none_or(|(writer, _)| !entry.manager.is(writer))) {
            match others.get(&entry.manager.api_version) {
                _ if entry.manager.api_version == context.api_version => entry.subtract(&own.removed, &Type::root(schema)),
                Some(Some((comparison, schema))) => entry.subtract(&comparison.removed, &Type::root(schema)),
                _ => {}
            }
        }
    }
    managed.entries.retain(|entry| !entry.is_empty());
    Ok(Ok(own))
}

fn compare_in(
    before: &Value,
    after: &Value,
    version: &str,
    context: &Context<'_>,
) -> Result<Option<(Comparison, Arc<Schema>)>, ConversionError> {
    let convert = |object| match context.versions.convert(object, version) {
        Ok(converted) => Ok(Some(converted)),
        Err(ConversionError::NoSuchVersion) => Ok(None),
        Err(error) => Err(error),
    };
    let Some(Converted { object: after, schema }) = convert(after)? else { return Ok(None) };
    // Nothing converts to nothing.
    let before = match before.as_object().is_some_and(Map::is_empty) {
        true => before.clone(),
        false => match convert(before)? {
            Some(converted) => converted.object,
            None => return Ok(None),
        },
    };
    Ok(Some((filtered(compare(&before, &after, &schema), context), schema)))
}

fn filtered(mut comparison: Comparison, context: &Context<'_>) -> Comparison {
    if let Some(reset) = context.reset_fields {
        reset.filter(&mut comparison.added);
        reset.filter(&mut comparison.modified);
        reset.filter(&mut comparison.removed);
    }
    comparison
}

/// Takes out of `set` what nobody owns.
pub(super) fn strip(set: &mut FieldSet) {
    set.subtract(nobodys());
}

/// The fields that the server keeps itself.
pub(super) fn nobodys() -> &'static FieldSet {
    static NOBODYS: LazyLock<FieldSet> = LazyLock::new(|| {
        let mut set = FieldSet::of_fields(&[&["metadata"]]);
        for name in NEVER_OWNED {
            set = set.union(&FieldSet::of_fields(&[&[name]]));
        }
        for name in NEVER_OWNED_METADATA {
            set = set.union(&FieldSet::of_fields(&[&["metadata", name]]));
        }
        set
    });
    &NOBODYS
}

/// Who owns what before the write. A client may set managedFields through the resource itself, and may reset them; one that
/// leaves them out, or sends what cannot be read, keeps those of the live object.
fn decode(live: Option<&Value>, sent: Option<Value>, context: &Context<'_>) -> Managed {
    let unchanged = context.subresource.is_empty() && live.is_some() && sent.as_ref() == live;
    let stored = |live: Option<&Value>| Managed::decode(live.cloned().unwrap_or_default()).unwrap_or_default();
    match sent {
        Some(sent) if unchanged => Managed::decode(sent).unwrap_or_default(),
        Some(Value::Array(sent)) if context.subresource.is_empty() => {
            if sent.is_empty() || matches!(sent.as_slice(), [Value::Object(entry)] if entry.is_empty()) {
                return Managed::default();
            }
            match Managed::decode_untrusted(Value::Array(sent)) {
                Ok(managed) if !managed.entries.is_empty() => managed,
                _ => stored(live),
            }
        }
        _ => stored(live),
    }
}

/// Whether managedFields are ones that the server takes; asked of what a mutating webhook has made of them.
pub fn validate_managed_fields(object: &Value) -> Result<(), InvalidManagedFields> {
    match managed_fields(object) {
        Some(entries) => Managed::decode_untrusted(entries.clone()).map(drop),
        None => Ok(()),
    }
}

/// Gives `new` the times of `live` back if it differs from it in nothing else, so that writing it is no change.
pub fn keep_timestamps(live: &Value, new: &mut Value) {
    let (Some(Value::Array(old)), Some(Value::Array(now))) = (managed_fields(live), managed_fields(new)) else { return };
    let same_entry = |a: &Value, b: &Value| match (a, b) {
        (Value::Object(a), Value::Object(b)) => without(a, "time").eq(without(b, "time")),
        _ => false,
    };
    if old.len() != now.len() || !old.iter().zip(now).all(|(a, b)| same_entry(a, b)) || old == now {
        return;
    }
    if same_but_managed_fields(live, new) {
        let old = old.clone();
        set_managed_fields(new, Some(Value::Array(old)));
    }
}

/// Whether two objects are the same but for who owns what.
pub(super) fn same_but_managed_fields(a: &Value, b: &Value) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return a == b };
    without(a, "metadata").eq(without(b, "metadata"))
        && match (a.get("metadata"), b.get("metadata")) {
            (Some(Value::Object(a)), Some(Value::Object(b))) => without(a, "managedFields").eq(without(b, "managedFields")),
            (a, b) => a == b,
        }
}

fn without<'m>(fields: &'m Map<String, Value>, name: &'static str) -> impl Iterator<Item = (&'m String, &'m Value)> {
    fields.iter().filter(move |(field, _)| *field != name)
}

pub(super) fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

pub(super) fn set_managed_fields(object: &mut Value, entries: Option<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    match entries {
        Some(entries) => {
            let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("managedFields".into(), entries);
            }
        }
        None => {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        }
    }
}
