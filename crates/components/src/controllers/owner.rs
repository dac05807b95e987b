//! Ownership: who controls an object, adopting what fits and letting go of what no longer does.

use std::{future::Future, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::core::{Selector, SelectorExt};
use serde::Serialize;
use serde_json::json;

use crate::runtime::{Error, Informer, Key, Object, Writer, controller_of};

/// The reference that makes `owner` the controller of something.
pub fn controller_reference<K: k8s_openapi::Resource>(owner: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: K::API_VERSION.to_owned(),
        kind: K::KIND.to_owned(),
        name: owner.name.clone().unwrap_or_default(),
        uid: owner.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A selector that can be matched; `None` if it cannot be understood or would select everything.
pub fn selector(selector: &LabelSelector) -> Option<Selector> {
    Selector::try_from(selector.clone()).ok().filter(|selector| !selector.selects_all())
}

/// Whether `selector` selects an object.
pub fn selects(selector: &Selector, meta: &ObjectMeta) -> bool {
    match &meta.labels {
        Some(labels) => selector.matches(labels),
        None => selector.matches(&Default::default()),
    }
}

/// What an owner does about an object.
#[derive(Debug, PartialEq, Eq)]
enum Claim {
    /// It is the owner's, and rightly so.
    Keep,
    /// Nobody controls it and it fits.
    Adopt,
    /// It is the owner's but no longer fits.
    Release,
    /// It is none of the owner's business.
    Ignore,
}

fn claim(owner: &ObjectMeta, selector: &Selector, object: &ObjectMeta) -> Claim {
    let fits = selects(selector, object);
    match controller_of(object) {
        Some(controller) if Some(&controller.uid) != owner.uid.as_ref() => Claim::Ignore,
        Some(_) if fits => Claim::Keep,
        Some(_) if owner.deletion_timestamp.is_some() => Claim::Ignore,
        Some(_) => Claim::Release,
        None if !fits || owner.deletion_timestamp.is_some() || object.deletion_timestamp.is_some() => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// The objects that belong to an owner, after adopting and releasing what must be.
///
/// `orphans` are objects that nobody controls, in the owner's namespace. `alive` reads the owner past the cache and says
/// whether it may still adopt: it is asked only when there is something to adopt.
pub async fn claim_all<K, F>(
    writer: &Writer<K>,
    informer: &Informer<K>,
    owner: (&ObjectMeta, OwnerReference),
    selector: &Selector,
    orphans: Vec<Arc<K>>,
    alive: impl FnOnce() -> F,
) -> Result<Vec<Arc<K>>, Error>
where
    K: Object + k8s_openapi::Resource + Serialize,
    F: Future<Output = Result<bool, Error>>,
{
    let (owner, reference) = owner;
    let mut alive = Some(alive);
    let mut may_adopt = false;
    let mut mine = Vec::new();
    let owned = informer.owned_by(owner.uid.as_deref().unwrap_or_default());
    for object in owned.into_iter().chain(orphans) {
        let uid = object.meta().uid.clone().unwrap_or_default();
        let key = Key::of(object.meta());
        match claim(owner, selector, object.meta()) {
            Claim::Keep => mine.push(object),
            Claim::Ignore => {}
            Claim::Release => {
                let gone = json!([{"$patch": "delete", "uid": reference.uid}]);
                let patch = json!({"metadata": {"ownerReferences": gone, "uid": uid}});
                match writer.patch(&key, "", &patch).await {
                    Err(error) if !error.is_not_found() && error.code() != Some(422) => return Err(error),
                    _ => {}
                }
            }
            Claim::Adopt => {
                if let Some(alive) = alive.take() {
                    may_adopt = alive().await?;
                }
                if may_adopt {
                    let patch = json!({"metadata": {"ownerReferences": [reference], "uid": uid}});
                    match writer.patch(&key, "", &patch).await {
                        Ok(adopted) => mine.push(adopted),
                        Err(error) if error.is_not_found() || error.code() == Some(422) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }
    Ok(mine)
}

/// Reads an owner past the cache: it may adopt if it is the same object and not being deleted.
pub async fn may_adopt<K>(writer: &Writer<K>, owner: &ObjectMeta) -> Result<bool, Error>
where
    K: Object + k8s_openapi::Resource + Serialize,
{
    match writer.get(&Key::of(owner)).await {
        Ok(fresh) => Ok(fresh.meta().uid == owner.uid && fresh.meta().deletion_timestamp.is_none()),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(uid: &str, app: &str, controller: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            uid: Some(uid.into()),
            labels: Some([("app".to_owned(), app.to_owned())].into()),
            owner_references: controller
                .map(|uid| vec![OwnerReference { uid: uid.into(), controller: Some(true), ..OwnerReference::default() }]),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn an_owner_keeps_adopts_and_releases_by_its_selector() {
        let owner = meta("owner", "x", None);
        let selector = Selector::from_iter([("app", "a")]);
        assert_eq!(claim(&owner, &selector, &meta("p", "a", Some("owner"))), Claim::Keep);
        assert_eq!(claim(&owner, &selector, &meta("p", "b", Some("owner"))), Claim::Release);
        assert_eq!(claim(&owner, &selector, &meta("p", "a", Some("other"))), Claim::Ignore);
        assert_eq!(claim(&owner, &selector, &meta("p", "a", None)), Claim::Adopt);
        assert_eq!(claim(&owner, &selector, &meta("p", "b", None)), Claim::Ignore);
    }

    #[test]
    fn an_owner_that_is_being_deleted_adopts_nothing() {
        let mut owner = meta("owner", "x", None);
        owner.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        let selector = Selector::from_iter([("app", "a")]);
        assert_eq!(claim(&owner, &selector, &meta("p", "a", None)), Claim::Ignore);
        assert_eq!(claim(&owner, &selector, &meta("p", "b", Some("owner"))), Claim::Ignore);
    }
}
