//! DELETE and DELETECOLLECTION: at once, or marked and left to whoever must act first (a kubelet during the grace period, a
//! controller that put a finalizer there, the garbage collector).

use std::sync::Arc;

use serde_json::{Value, json};

use super::Api;
use super::options::{DeleteOptions, ListOptions, VersionMatch, WriteOptions};
use super::read::{key, store_error};
use super::target::Target;
use super::{kinds, strategy};
use crate::admission::Operation;
use crate::object::{Object, meta, meta_mut};
use crate::registry::Resource;
use crate::status::Status;
use crate::store::{self, Error, Expect};
use crate::watch::Snapshot;

/// Built-in kinds whose deletion answers with the object instead of a `Status`.
const ANSWERS_WITH_OBJECT: &[&str] =
    &["pods", "services", "podtemplates", "serviceaccounts", "persistentvolumes", "persistentvolumeclaims", "resourcequotas"];

/// How a deletion ended.
pub struct Deleted {
    /// The object's last state, or its state while it waits.
    pub object: Arc<Object>,
    /// Whether it is gone.
    pub gone: bool,
}

impl Api {
    /// Deletes one object.
    pub async fn delete(&self, target: &Target, options: &DeleteOptions) -> Result<Deleted, Status> {
        let resource = &target.resource;
        let key: store::Key = key(resource, &target.namespace, &target.name).into();
        let topic = self.state.topic(&resource.storage).await.map_err(store_error)?;
        let mut marked = None;
        loop {
            let Some(old) = topic.get(&key) else {
                // Whoever saw the mark was quicker to act on it.
                if let Some(object) = marked {
                    return Ok(Deleted { object, gone: true });
                }
                return Err(Status::not_found(&resource.group, &resource.plural, &target.name));
            };
            let seen = self.converted_one(old.clone(), resource).await?;
            let before = self.in_version(&seen, resource);
            check_preconditions(resource, &target.name, &old, &before, options)?;
            if is_pending(resource, &before, options) {
                return Ok(Deleted { object: seen, gone: false });
            }
            if !target.options.is_admitted {
                let mut write = target.operation(Operation::Delete, None, Some(before.clone()));
                write.options = options.shown.clone();
                complete_options(resource, &before, options, &mut write.options);
                write.dry_run = options.dry_run;
                self.admission.mutate(&mut write).await?;
                self.admission.validate(&write).await?;
            }
            let mut new = (*before).clone();
            let waits = self.mark(resource, &mut new, options);
            let bytes = self.stored_bytes(resource, &new).await?;
            let shown = self.shown_bytes(resource, &new, &bytes);
            if options.dry_run {
                return Ok(Deleted { object: Arc::new(Object::new(key, old.revision, &shown)), gone: !waits });
            }
            if waits && *bytes == *old.stored() {
                return Ok(Deleted { object: seen, gone: false });
            }
            let put = |expect| store::Operation::Put { key: key.clone(), value: bytes.clone(), expect };
            let delete = |last, expect| store::Operation::Delete { key: key.clone(), last, expect };
            let expect = Expect::Revision(old.revision);
            let is_pod = &*resource.plural == "pods" && resource.group.is_empty();
            let committed = match waits {
                true => self.commit(target, &new, put(expect)).await,
                // A Pod is marked even where nobody needs time to stop it, and then deleted.
                false if is_pod && *bytes != *old.stored() => match self.commit(target, &new, put(expect)).await {
                    Ok(revision) => {
                        marked = Some(Arc::new(Object::new(key.clone(), revision, &shown)));
                        self.commit(target, &new, delete(bytes.clone(), Expect::Revision(revision))).await
                    }
                    failed => failed,
                },
                // Watchers hear of the state that was kept last, and that bears no mark of this deletion.
                false => self.commit(target, &new, delete(old.stored().into(), expect)).await,
            };
            match committed {
                Ok(revision) => {
                    if !waits {
                        strategy::release(self, resource, &new);
                    }
                    return Ok(Deleted { object: Arc::new(Object::new(key, revision, &shown)), gone: !waits });
                }
                // Somebody wrote first: look again, unless the client said which revision it means.
                Err(Error::Conflict { .. }) if options.resource_version.is_none() => {}
                Err(Error::Conflict { .. }) => return Err(Status::modified(&resource.group, &resource.plural, &target.name)),
                Err(other) => return Err(store_error(other)),
            }
        }
    }

    /// Marks an object as being deleted as far as that is needed; answers whether it has to wait.
    fn mark(&self, resource: &Resource, object: &mut Value, options: &DeleteOptions) -> bool {
        let is = |group: &str, plural: &str| &*resource.group == group && &*resource.plural == plural;
        let grace = if is("", "pods") { pod_grace(object, options) } else { 0 };
        // Nothing depends on an Event, so that there is nothing to orphan or to wait for.
        if &*resource.storage != "events" {
            set_propagation_finalizers(object, options.propagation_policy.as_deref());
        }
        let deleting = !meta(object, "deletionTimestamp").is_empty();
        if !deleting && is("apiextensions.k8s.io", "customresourcedefinitions") {
            kinds::definitions::terminate(self, object);
        }
        let namespace_waits =
            is("", "namespaces") && object.pointer("/spec/finalizers").and_then(Value::as_array).is_some_and(|f| !f.is_empty());
        let waits = strategy::has_finalizers(object) || namespace_waits || grace > 0;
        let current = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
        // A second delete may shorten the grace period, never lengthen it.
        let shortens = deleting && current.is_some_and(|current| grace < current);
        if !deleting || shortens {
            let now = self.clock.now();
            let at = now.checked_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(now);
            let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
            let metadata = meta_mut(object);
            metadata.insert("deletionTimestamp".into(), at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into());
            // A Namespace is marked by its own strategy, which knows no grace.
            if !is("", "namespaces") {
                metadata.insert("deletionGracePeriodSeconds".into(), json!(grace));
            }
            if let (Some(generation), false) = (generation, deleting) {
                metadata.insert("generation".into(), json!(generation + 1));
            }
            if is("", "namespaces") {
                object["status"]["phase"] = json!("Terminating");
            }
        }
        waits
    }

    /// Deletes every object that a list would find; answers with them as they were, and with where the list goes on.
    pub async fn delete_collection(
        &self,
        target: &Target,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<(Snapshot, Option<String>), Status> {
        let mut list = list.clone();
        // A revision without a match rule means exactly that state, as for a list that comes in pages.
        if let (VersionMatch::NotOlderThan(revision), None) = (list.version, target.context.parameter("resourceVersionMatch")) {
            list.version = VersionMatch::Exact(revision);
        }
        let (snapshot, next) = self.list(&target.context, &target.resource, &list).await?;
        for object in &snapshot.objects {
            let value = object.value();
            let one = Target { name: meta(value, "name").into(), namespace: meta(value, "namespace").into(), ..target.clone() };
            match self.delete(&one, options).await {
                Err(status) if status.reason != "NotFound" => return Err(status),
                _ => {}
            }
        }
        Ok((snapshot, next))
    }

    /// What a client hears of a deletion.
    pub fn deletion_answer(&self, deleted: &Deleted, resource: &Resource) -> Option<Value> {
        if !deleted.gone || (resource.custom.is_none() && ANSWERS_WITH_OBJECT.contains(&&*resource.plural)) {
            return None;
        }
        let mut details = json!({"name": deleted.object.name(), "kind": &*resource.plural, "uid": meta(deleted.object.value(), "uid")});
        if !resource.group.is_empty() {
            details["group"] = json!(&*resource.group);
        }
        Some(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}))
    }
}

impl Target {
    /// The target of a deletion, whose options are its own.
    pub fn deleting(mut self, options: &DeleteOptions) -> Self {
        self.options = WriteOptions { dry_run: options.dry_run, shown: options.shown.clone(), ..WriteOptions::default() };
        self
    }
}

/// How long a Pod may take: what the request says, else what the Pod says; nothing for one that no kubelet has, or that has ended.
fn pod_grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let asked = options.grace_period_seconds;
    let grace =
        asked.or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30).max(if asked == Some(0) { 0 } else { 1 });
    let nobody_has_it = pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if nobody_has_it || ended { 0 } else { grace }
}

/// Whether a Pod is on its way out already and is given no less time: then nothing is to be done, and nobody to be asked.
fn is_pending(resource: &Resource, object: &Value, options: &DeleteOptions) -> bool {
    let is_pod = &*resource.plural == "pods" && resource.group.is_empty();
    let given = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    is_pod
        && !meta(object, "deletionTimestamp").is_empty()
        && given.is_some_and(|given| options.grace_period_seconds.is_none_or(|asked| asked >= given))
        // Marked, and then nobody came to delete it.
        && (given != Some(0) || strategy::has_finalizers(object))
}

/// What reviews show of the options beyond what the client said: Namespaces and definitions are deleted as the very ones they are, and a
/// Pod with the time that it really gets.
fn complete_options(resource: &Resource, object: &Value, options: &DeleteOptions, shown: &mut Value) {
    if resource.custom.is_some() {
        return;
    }
    match &*resource.plural {
        "namespaces" | "customresourcedefinitions" if shown["preconditions"]["uid"].is_null() => {
            shown["preconditions"]["uid"] = meta(object, "uid").into();
        }
        "pods" if resource.group.is_empty() && meta(object, "deletionTimestamp").is_empty() => {
            shown["gracePeriodSeconds"] = pod_grace(object, options).into();
        }
        _ => {}
    }
}

/// `Foreground` and `Orphan` are finalizers that the garbage collector takes away; the request decides which stays.
fn set_propagation_finalizers(object: &mut Value, policy: Option<&str>) {
    let Some(policy) = policy else { return };
    let wanted = match policy {
        "Orphan" => Some("orphan"),
        "Foreground" => Some("foregroundDeletion"),
        _ => None,
    };
    let metadata = meta_mut(object);
    let mut finalizers = metadata.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    finalizers.retain(|f| f != "orphan" && f != "foregroundDeletion");
    finalizers.extend(wanted.map(Value::from));
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.into());
    }
}

/// Whether the object is the one that the client means.
pub(super) fn check_preconditions(
    resource: &Resource,
    name: &str,
    old: &Object,
    before: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let conflict = |what: &str, wanted: &str, actual: &str| {
        let why = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({actual}). The object might have been deleted and then recreated"
        );
        let mut status = Status::conflict(resource.kind_group(), &resource.kind, name, &why);
        if what == "ResourceVersion" {
            status.message = status.message.replace("deleted and then recreated", "modified");
        }
        status
    };
    let uid = meta(before, "uid");
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        return Err(conflict("UID", wanted, uid));
    }
    let revision = old.revision.to_string();
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != revision) {
        return Err(conflict("ResourceVersion", wanted, &revision));
    }
    Ok(())
}
