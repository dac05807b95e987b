//! What the run loop needs to know of an object: that it has metadata, what that says, and how to read it.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

/// Anything that can be kept: it has metadata and can be read from JSON.
pub trait Object: DeserializeOwned + Send + Sync + 'static {
    /// The object's metadata.
    fn meta(&self) -> &ObjectMeta;
    /// The object's metadata, to change.
    fn meta_mut(&mut self) -> &mut ObjectMeta;
}

impl<K> Object for K
where
    K: k8s_openapi::Metadata<Ty = ObjectMeta> + DeserializeOwned + Send + Sync + 'static,
{
    fn meta(&self) -> &ObjectMeta {
        self.metadata()
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.metadata_mut()
    }
}

/// An object of a kind that is known only by its path: of its metadata what says which object it is and what becomes of it. One is kept
/// of every object that there is, so labels, annotations and the like are left out.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Partial {
    /// The metadata.
    #[serde(default, deserialize_with = "essence")]
    pub metadata: ObjectMeta,
}

fn essence<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Essence {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        deletion_timestamp: Option<Time>,
        deletion_grace_period_seconds: Option<i64>,
        finalizers: Option<Vec<String>>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let Essence { name, namespace, uid, resource_version, deletion_timestamp, deletion_grace_period_seconds, finalizers, owner_references } =
        Essence::deserialize(from)?;
    Ok(ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        deletion_timestamp,
        deletion_grace_period_seconds,
        finalizers,
        owner_references,
        ..ObjectMeta::default()
    })
}

impl Object for Partial {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// As much of an object as tells whether it is news.
#[derive(Deserialize)]
pub(super) struct Head<'a> {
    #[serde(borrow)]
    pub metadata: HeadMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeadMeta<'a> {
    #[serde(borrow, default)]
    pub name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    pub resource_version: Cow<'a, str>,
    #[serde(borrow, default)]
    managed_fields: Option<&'a RawValue>,
}

impl Head<'_> {
    /// Reads the whole object, `json` being what this is the head of.
    pub fn read<K: Object>(&self, json: &[u8]) -> Result<K, serde_json::Error> {
        let Some(fields) = self.metadata.managed_fields.map(RawValue::get) else { return serde_json::from_slice(json) };
        let start = fields.as_ptr() as usize - json.as_ptr() as usize;
        let without = [&json[..start], b"null", &json[start + fields.len()..]].concat();
        serde_json::from_slice(&without)
    }
}

/// Reads an object without its managedFields: no component looks at them, and of many objects they are the largest part.
pub(super) fn read<K: Object>(json: &[u8]) -> Result<K, serde_json::Error> {
    serde_json::from_slice::<Head<'_>>(json)?.read(json)
}

/// The owner that controls the object, if one does.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The resourceVersion as a number; 0 if there is none.
pub fn revision_of(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_fields_are_not_read_and_everything_else_is() {
        let json = br#"{"kind":"x","metadata":{"name":"a","managedFields":[{"manager":"m"}],"uid":"u"},"managedFields":"another"}"#;
        let object: Partial = read(json).unwrap();
        assert_eq!((object.metadata.name.as_deref(), object.metadata.uid.as_deref()), (Some("a"), Some("u")));
        assert_eq!(object.metadata.managed_fields, None);
        let object: Partial = read(br#"{"metadata":{"name":"a"}}"#).unwrap();
        assert_eq!(object.metadata.name.as_deref(), Some("a"));
        assert!(read::<Partial>(br#"{"metadata":{"name":"a","managedFields":[}}"#).is_err());
    }
}
