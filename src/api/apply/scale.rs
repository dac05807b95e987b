//! Ownership of `replicas` seen through the `scale` subresource: the entries of a resource as those of its Scale, and back.

use serde_json::Value;

use super::element::PathElement;
use super::fieldset::FieldSet;
use super::managers::{Entry, InvalidManagedFields, Managed};

const SCALE_VERSION: &str = "autoscaling/v1";

/// Where a version of the resource has its replicas: apiVersion and field names; none for a version that cannot be scaled.
pub type ReplicasPath<'p> = (&'p str, Vec<&'p str>);

fn path_in(api_version: &str, paths: &[ReplicasPath<'_>]) -> Option<Vec<PathElement>> {
    let (_, path) = paths.iter().find(|(version, _)| *version == api_version)?;
    Some(path.iter().map(|name| PathElement::field(name)).collect())
}

fn scale_path() -> Vec<PathElement> {
    vec![PathElement::field("spec"), PathElement::field("replicas")]
}

fn only(path: Vec<PathElement>) -> FieldSet {
    let mut set = FieldSet::default();
    set.insert(path);
    set
}

/// The managedFields of the Scale: everybody who owns the replicas of the resource.
pub fn to_scale(parent: &Value, paths: &[ReplicasPath<'_>]) -> Result<Option<Value>, InvalidManagedFields> {
    let mut scale = Managed::default();
    for mut entry in Managed::decode(parent.clone())?.entries {
        let Some(path) = path_in(&entry.manager.api_version, paths) else { continue };
        if !path.is_empty() && entry.fields().contains(&path) {
            entry.manager.api_version = SCALE_VERSION.into();
            *entry.fields() = only(scale_path());
            scale.entries.push(entry);
        }
    }
    Ok(scale.encode())
}

/// The managedFields of the resource after a write through its scale. `api_version` is the one that new owners are given.
pub fn to_parent(
    parent: &Value,
    scale: &Value,
    api_version: &str,
    paths: &[ReplicasPath<'_>],
) -> Result<Option<Value>, InvalidManagedFields> {
    let mut scale = Managed::decode(scale.clone())?.entries;
    let mut result = Managed::default();
    for mut entry in Managed::decode(parent.clone())?.entries {
        let Some(path) = path_in(&entry.manager.api_version, paths) else { continue };
        if !path.is_empty() && entry.fields().contains(&path) {
            // An updater of the resource is known to its scale under the scale's version.
            let same = scale.iter().position(|other| {
                other.manager.name == entry.manager.name
                    && other.manager.operation == entry.manager.operation
                    && other.manager.subresource == entry.manager.subresource
            });
            match same {
                Some(i) => {
                    scale.remove(i);
                }
                None => entry.fields().subtract(&only(path)),
            }
        }
        if !entry.is_empty() {
            result.entries.push(entry);
        }
    }
    for mut entry in scale {
        let Some(path) = path_in(api_version, paths) else { continue };
        if entry.fields().contains(&scale_path()) {
            let mut manager = entry.manager.clone();
            manager.api_version = api_version.to_owned();
            // A real server gives such an entry no time.
            result.entries.push(Entry::new(manager, only(path)));
        }
    }
    Ok(result.encode())
}
