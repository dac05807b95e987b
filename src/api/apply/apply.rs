//! Apply: the configuration laid over the live object, what it no longer says taken out, and its fields taken over, unless
//! they are somebody else's.

use serde_json::{Map, Value};

use super::Context;
use super::conflict::ApplyError;
use super::last_applied;
use super::managers::{BEFORE_FIRST_APPLY, Entry, Managed, Operation};
use super::prune::prune;
use super::typed::fields::field_set;
use super::typed::merge::merge;
use super::typed::validate::validate;
use super::update::{managed_fields, same_but_managed_fields, set_managed_fields, strip, take_over, track};
use super::versions::ConversionError;
use crate::schema::Schema;

/// Applies `applied` to `live`, or to nothing. The result has its managedFields, but is not defaulted; where the apply changes
/// nothing it equals `live`.
pub fn apply(live: Option<&Value>, applied: &Value, schema: &Schema, context: &Context<'_>) -> Result<Value, ApplyError> {
    check_kind(applied, context)?;
    let mut managed = match live.and_then(managed_fields) {
        Some(entries) => Managed::decode(entries.clone())
            .map_err(|error| ApplyError::Unclassified(format!("failed to decode managed fields: {error}")))?,
        None => Managed::default(),
    };
    let nothing = Value::Object(Map::new());
    if let Some(live) = live
        && managed.entries.is_empty()
    {
        let before = Context { manager: BEFORE_FIRST_APPLY, ..*context };
        track(&nothing, live, schema, &before, &mut managed)
            .map_err(|error| ApplyError::Unclassified(format!("failed to create manager for existing fields: {error}")))?;
    }
    if applied.get("metadata").and_then(|metadata| metadata.get("managedFields")).is_some_and(Value::is_array) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".into()));
    }
    validate(applied, schema).map_err(|errors| {
        let what = describe(applied);
        ApplyError::Unclassified(format!("failed to create typed patch object ({what}): {errors}"))
    })?;
    let live = live.unwrap_or(&nothing);
    let kubectl = context.manager == last_applied::KUBECTL;
    let previous = kubectl.then(|| managed.clone());
    let mut result = run(live, applied, schema, context, managed);
    if let (Err(ApplyError::Conflict(conflicts)), Some(managed)) = (&mut result, previous) {
        // What client-side apply set and nobody changed since is taken over without asking.
        if let Some(allowed) = last_applied::allowed_conflicts(live, schema, context) {
            conflicts.retain(|conflict| !allowed.contains(&conflict.path.0));
            if conflicts.is_empty() {
                result = run(live, applied, schema, &Context { force: true, ..*context }, managed);
            }
        }
    }
    let (mut object, managed) = result?;
    if kubectl {
        last_applied::update_annotation(&mut object, applied);
    }
    set_managed_fields(&mut object, managed.encode());
    Ok(object)
}

fn run(
    live: &Value,
    applied: &Value,
    schema: &Schema,
    context: &Context<'_>,
    mut managed: Managed,
) -> Result<(Value, Managed), ApplyError> {
    let unclassified = |what: &'static str| move |error: ConversionError| ApplyError::Unclassified(format!("{what}: {error}"));
    let manager = context.manager(Operation::Apply);
    let mut new = without_managed_fields(live);
    merge(&mut new, applied, schema);
    let mut set = field_set(applied, schema);
    if let Some(reset) = context.reset_fields {
        reset.filter(&mut set);
    }
    strip(&mut set);
    match managed.get(&manager) {
        // The usual apply is that of last time with other values: nobody's fields change.
        Some(entry) if entry.manager.api_version == context.api_version && entry.holds(&set) => {}
        Some(entry) => {
            let version = std::mem::replace(&mut entry.manager.api_version, context.api_version.to_owned());
            let last = std::mem::replace(entry.fields(), set);
            // Who applies all that it applied before leaves nothing to take out.
            let nothing_less = version == context.api_version && last.is_subset_of(entry.fields());
            if !last.is_empty() && !nothing_less {
                new = prune(new, &last, &version, &mut managed, schema, context).map_err(unclassified("failed to prune fields"))?;
            }
        }
        None => managed.entries.push(Entry::new(manager.clone(), set)),
    }
    take_over(live, &new, schema, context, &mut managed, Some((&manager, context.force)))
        .map_err(unclassified("failed to convert old object"))?
        .map_err(ApplyError::Conflict)?;
    if let Some(entry) = managed.get(&manager)
        && !same_but_managed_fields(live, &new)
    {
        entry.time = Some(context.now.to_owned());
    }
    Ok((new, managed))
}

fn check_kind(applied: &Value, context: &Context<'_>) -> Result<(), ApplyError> {
    let text = |name: &str| applied.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("apiVersion") == context.api_version && text("kind") == context.kind {
        return Ok(());
    }
    Err(ApplyError::BadRequest(format!("invalid object type: {}", group_version_kind(text("apiVersion"), text("kind")))))
}

fn group_version_kind(api_version: &str, kind: &str) -> String {
    match api_version.split_once('/') {
        Some((group, version)) => format!("{group}/{version}, Kind={kind}"),
        None => format!("/{api_version}, Kind={kind}"),
    }
}

/// Namespace, name and kind, as errors name an object.
fn describe(object: &Value) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = |name: &str| text(object.get("metadata").and_then(|metadata| metadata.get(name)));
    let kind = group_version_kind(&text(object.get("apiVersion")), &text(object.get("kind")));
    format!("{}/{}; {kind}", metadata("namespace"), metadata("name"))
}

/// A copy that does not copy what is then replaced.
fn without_managed_fields(object: &Value) -> Value {
    let Value::Object(fields) = object else { return object.clone() };
    let copy = |(name, value): (&String, &Value)| match (name.as_str(), value) {
        ("metadata", Value::Object(metadata)) => {
            let metadata = metadata.iter().filter(|(name, _)| *name != "managedFields");
            (name.clone(), Value::Object(metadata.map(|(name, value)| (name.clone(), value.clone())).collect()))
        }
        _ => (name.clone(), value.clone()),
    };
    Value::Object(fields.iter().map(copy).collect())
}
