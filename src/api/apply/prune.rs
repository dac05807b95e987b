//! What an applier applied last time and does not apply this time goes, unless somebody else owns it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::Context;
use super::fieldset::FieldSet;
use super::managers::Managed;
use super::typed::Type;
use super::typed::fields::field_set;
use super::typed::remove::{Emptied, remove};
use super::update::nobodys;
use super::versions::ConversionError;
use crate::schema::Schema;

/// An object in some version.
struct Versioned<'o> {
    object: Cow<'o, Value>,
    schema: SchemaOf<'o>,
}

#[derive(Clone)]
enum SchemaOf<'s> {
    Request(&'s Schema),
    Converted(Arc<Schema>),
}

impl SchemaOf<'_> {
    fn get(&self) -> &Schema {
        match self {
            SchemaOf::Request(schema) => schema,
            SchemaOf::Converted(schema) => schema,
        }
    }
}

/// Takes out of `merged` what is in `last`, the applier's fields of last time in `last_version`, and which nobody in `managed`, the
/// applier with its new fields among them, owns.
pub(super) fn prune(
    merged: Value,
    last: &FieldSet,
    last_version: &str,
    managed: &mut Managed,
    schema: &Schema,
    context: &Context<'_>,
) -> Result<Value, ConversionError> {
    let at = |object: &Value, version: &str| convert(object, version, context);
    let Some(in_last) = in_version(&merged, last_version, schema, context)? else { return Ok(merged) };
    let last = last.with_named_fields(&Type::root(in_last.schema.get()));
    // First without all that was applied, then with what is owned of it again, in the version of each owner.
    let mut pruned = in_last.object.clone().into_owned();
    remove(&mut pruned, &last, &Type::root(in_last.schema.get()), Emptied::Null);
    let mut pruned_version = last_version.to_owned();
    let owned = owned_by_version(managed, last_version);
    for (version, owned) in &owned {
        let Some(whole) = in_version(&merged, version, schema, context)? else { continue };
        let Some(now) = (if *version == pruned_version { Some(pruned.clone()) } else { at(&pruned, version)? }) else { continue };
        let of = Type::root(whole.schema.get());
        let kept = field_set(&now, whole.schema.get()).with_named_fields(&of).union(&owned.with_named_fields(&of));
        let mut gone = field_set(&whole.object, whole.schema.get()).with_named_fields(&of);
        gone.subtract(&kept);
        pruned = whole.object.clone().into_owned();
        remove(&mut pruned, &gone, &of, Emptied::Null);
        pruned_version.clone_from(version);
    }
    // Of what is then missing, only what was applied last time goes: the rest is somebody's default.
    let pruned = if pruned_version == last_version { Some(pruned) } else { at(&pruned, last_version)? };
    let Some(pruned) = pruned else { return Ok(merged) };
    let of = Type::root(in_last.schema.get());
    let mut missing = field_set(&in_last.object, in_last.schema.get()).with_named_fields(&of);
    missing.subtract(&field_set(&pruned, in_last.schema.get()).with_named_fields(&of));
    let mut result = in_last.object.clone().into_owned();
    // The few paths that are spelled otherwise in another version are not worth a conversion of sets.
    let kept = owned.into_iter().fold(FieldSet::default(), |all, (_, owned)| all.union(&owned));
    remove(&mut result, &missing.intersection(&last), &of, Emptied::GoneUnlessIn(Some(&kept)));
    if last_version == context.api_version {
        return Ok(result);
    }
    context.versions.convert(&result, context.api_version).map(|converted| converted.object)
}

fn in_version<'o>(
    object: &'o Value,
    version: &str,
    schema: &'o Schema,
    context: &Context<'_>,
) -> Result<Option<Versioned<'o>>, ConversionError> {
    if version == context.api_version {
        return Ok(Some(Versioned { object: Cow::Borrowed(object), schema: SchemaOf::Request(schema) }));
    }
    match context.versions.convert(object, version) {
        Ok(converted) => Ok(Some(Versioned { object: Cow::Owned(converted.object), schema: SchemaOf::Converted(converted.schema) })),
        Err(ConversionError::NoSuchVersion) => Ok(None),
        Err(error) => Err(error),
    }
}

fn convert(object: &Value, version: &str, context: &Context<'_>) -> Result<Option<Value>, ConversionError> {
    match context.versions.convert(object, version) {
        Ok(converted) => Ok(Some(converted.object)),
        Err(ConversionError::NoSuchVersion) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What anybody owns, by version; that of `first` first, because conversion may need what is owned there. What the server
/// keeps itself stays as if it were owned.
fn owned_by_version(managed: &mut Managed, first: &str) -> Vec<(String, FieldSet)> {
    let mut owned = BTreeMap::from([(first.to_owned(), nobodys().clone())]);
    for entry in &mut managed.entries {
        let set = owned.entry(entry.manager.api_version.clone()).or_default();
        *set = std::mem::take(set).union(entry.fields());
    }
    let mut owned: Vec<(String, FieldSet)> = owned.into_iter().collect();
    owned.sort_by_key(|(version, _)| version != first);
    owned
}
