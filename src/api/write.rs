//! CREATE, UPDATE, PATCH: how a body becomes a stored object. The order of steps is the write stack of the architecture:
//! decode and default, field management, mutating admission, strategy, validation, validating admission, persist.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::apply::keep_timestamps;
use super::read::{key, store_error};
use super::strategy::{self, Phase};
use super::target::Target;
use super::{Api, fields};
use crate::admission::Operation;
use crate::authz::{self, Attributes, Decision, Explained};
use crate::object::{self, Object, meta, meta_mut};
use crate::registry::Resource;
use crate::request::{RequestInfo, Wrote};
use crate::schema::default;
use crate::status::{FieldError, Status};
use crate::store::{self, Batch, Error, Expect, Revision};
use crate::validation;

/// How often a write without a resourceVersion is tried again when somebody else was quicker.
const TRIES: usize = 20;

/// How often a generated name is drawn again when it is taken.
const NAME_TRIES: usize = 8;

/// What a write left behind.
pub struct Written {
    /// The object as it is now; of a dry run, as it would be.
    pub object: Arc<Object>,
    /// Whether it is new.
    pub created: bool,
}

/// What an update finds, in the version of the request.
pub struct Before {
    /// The object.
    pub object: Arc<Object>,
    /// The object, read: once, however many look at it on the way.
    pub value: Arc<Value>,
}

impl Before {
    /// The object, to change; null if there is none.
    pub fn copy(before: Option<&Before>) -> Value {
        before.map(|before| (*before.value).clone()).unwrap_or_default()
    }
}

/// How an update makes the new object of the old one. Called again with a newer one when somebody else was quicker.
pub type Make<'a> = &'a (dyn Fn(Option<&Before>) -> Result<Value, Status> + Send + Sync);

impl Api {
    /// Creates an object that has been decoded and defaulted.
    pub async fn create(&self, target: &Target, object: Value) -> Result<Written, Status> {
        let mut target = target.clone();
        let generate = meta(&object, "name").is_empty() && !meta(&object, "generateName").is_empty();
        for _ in 1..if generate { NAME_TRIES } else { 1 } {
            match self.create_once(&mut target, object.clone()).await {
                Err(status) if status.reason == "AlreadyExists" => target.name.clear(),
                other => return other,
            }
        }
        self.create_once(&mut target, object).await
    }

    async fn create_once(&self, target: &mut Target, mut object: Value) -> Result<Written, Status> {
        let resource = target.resource.clone();
        if resource.custom.as_ref().is_some_and(|custom| !meta(&custom.definition, "deletionTimestamp").is_empty()) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&resource.group, &resource.plural, meta(&object, "name"), why));
        }
        // Mutating admission sees the object before it has a uid, a time or a generated name, and may name it itself.
        place(&resource, &target.namespace, &mut object);
        target.name = meta(&object, "name").to_owned();
        let schema = resource.schema();
        if !target.options.is_apply {
            fields::track(self, target, &schema, None, &mut object).await;
        }
        dedup_owners(target, &mut object);
        let mut write = target.operation(Operation::Create, Some(object), None);
        self.admission.mutate(&mut write).await?;
        let mut object = target.mutated(&mut write);
        if resource.namespaced && meta(&object, "namespace").is_empty() {
            meta_mut(&mut object).insert("namespace".into(), target.namespace.clone().into());
        }
        if resource.namespaced && meta(&object, "namespace") != target.namespace {
            return Err(Status::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
        }
        if !meta(&object, "resourceVersion").is_empty() {
            return Err(Status::unclassified("resourceVersion should not be set on objects to be created"));
        }
        self.fill_system_fields(&mut object);
        target.name = meta(&object, "name").to_owned();
        default::apply_defaults(&mut object, &resource);
        strategy::prepare_for_create(self, &resource, &target.user, &mut object).await?;
        // As on a real server, before validation: who may not hand on a right hears that and not how to write it.
        self.escalation.check(&target.user, &target.context.info, None, &object).await?;
        let since = Instant::now();
        let errors = validation::create(&resource, &object);
        target.validated(&object, None, &errors, since);
        if !errors.is_empty() {
            strategy::release(self, &resource, &object);
            return Err(target.invalid(meta(&object, "name"), errors));
        }
        validation::warnings::create(&resource, &object).into_iter().for_each(|warning| target.context.trace.warn(warning));
        write.name = meta(&object, "name").to_owned();
        write.object = Some(object);
        let admitted = self.admission.validate(&write).await;
        let object = write.object.take().unwrap_or_default();
        if let Err(status) = admitted {
            strategy::release(self, &resource, &object);
            return Err(status);
        }
        let result = self.persist_new(target, &object).await;
        if result.is_err() || target.options.dry_run {
            strategy::release(self, &resource, &object);
        }
        result.map(|object| Written { object, created: true })
    }

    async fn persist_new(&self, target: &Target, object: &Value) -> Result<Arc<Object>, Status> {
        let resource = &target.resource;
        let name = meta(object, "name").to_owned();
        let key: store::Key = key(resource, &target.namespace, &name).into();
        let taken = |deleting: bool| {
            let mut status = Status::already_exists(&resource.group, &resource.plural, &name);
            if deleting {
                status.message = format!("object is being deleted: {}", status.message);
            }
            status
        };
        let bytes = self.stored_bytes(resource, object).await?;
        let shown = self.shown_bytes(resource, object, &bytes);
        let topic = self.state.topic(&resource.storage).await.map_err(store_error)?;
        if let Some(current) = topic.get(&key) {
            return Err(taken(!meta(current.value(), "deletionTimestamp").is_empty()));
        }
        if target.options.dry_run {
            return Ok(Arc::new(Object::unversioned(key, shown)));
        }
        let operation = store::Operation::Put { key: key.clone(), value: bytes.clone(), expect: Expect::Absent };
        match self.commit(target, object, operation).await {
            Ok(revision) => Ok(Arc::new(Object::new(key, revision, &shown))),
            Err(Error::Conflict { .. }) => Err(taken(false)),
            Err(other) => Err(store_error(other)),
        }
    }

    /// Changes an object. `make` gives the new one; with `create` it may also be asked to make one of nothing.
    pub async fn update(&self, target: &Target, make: Make<'_>, create: bool) -> Result<Written, Status> {
        let resource = &target.resource;
        let key: store::Key = key(resource, &target.namespace, &target.name).into();
        let topic = self.state.topic(&resource.storage).await.map_err(store_error)?;
        for _ in 0..TRIES {
            let Some(old) = topic.get(&key) else {
                if !create {
                    return Err(target.not_found());
                }
                let object = match make(None) {
                    Err(_) if self.convert_wanted(target).await => continue,
                    made => made?,
                };
                self.check_may_create(target).await?;
                match self.create(target, object).await {
                    Err(status) if status.reason == "AlreadyExists" => continue,
                    other => return other,
                }
            };
            let object = self.converted_one(old.clone(), resource).await?;
            let before = Before { value: self.in_version(&object, resource), object };
            let new = match make(Some(&before)) {
                Err(_) if self.convert_wanted(target).await => continue,
                made => made?,
            };
            // An update that says which revision it is about gets its conflict; one that does not is tried again.
            let given = meta(&new, "resourceVersion").to_owned();
            match self.update_once(target, &old, before, new).await? {
                Some(written) => return Ok(written),
                None if !given.is_empty() && given != "0" => return Err(Status::modified(&resource.group, &resource.plural, &target.name)),
                None => {}
            }
        }
        Err(Status::modified(&resource.group, &resource.plural, &target.name))
    }

    /// Whoever makes an object by an update or an apply needs the right to create it as well.
    async fn check_may_create(&self, target: &Target) -> Result<(), Status> {
        let (attributes, decision) = self.may_create(target).await;
        authz::verdict(&attributes, &decision)
    }

    /// Hop 03 once more: whether who asks may also do this by the verb `create`.
    pub(super) async fn may_create(&self, target: &Target) -> (Attributes, Decision) {
        let since = Instant::now();
        let info = Arc::new(RequestInfo { verb: "create", ..(*target.context.info).clone() });
        let attributes = Attributes { user: target.user.clone(), info };
        let Explained { decision, by, mut detail } = self.reviews.authorizer.explain(&attributes).await;
        detail.insert("verb".to_owned(), "create".into());
        if !decision.reason().is_empty() {
            detail.insert("because".to_owned(), decision.reason().into());
        }
        let verdict = if decision.is_allow() { "allowed" } else { "denied" };
        target.context.trace.step_with("authorize", by, verdict, since, Some(detail.into()));
        (attributes, decision)
    }

    /// One try on what is stored; `None` if somebody else was quicker.
    async fn update_once(&self, target: &Target, old: &Arc<Object>, before: Before, mut new: Value) -> Result<Option<Written>, Status> {
        let resource = &target.resource;
        let Before { object: seen, value: before } = before;
        check_preconditions(target, old, &before, &new)?;
        let phase = Phase::of(&target.subresource);
        // Mutating admission sees an object, or a status, as it was sent: what such a write cannot change is put back behind it.
        let is_shown_as_sent = matches!(phase, Phase::Main | Phase::Status);
        if !is_shown_as_sent {
            strategy::keep_system_fields(&before, &mut new);
            strategy::isolate(resource, phase, &before, &mut new);
        }
        let schema = resource.schema();
        if !target.options.is_apply {
            fields::track(self, target, &schema, Some(&before), &mut new).await;
        }
        dedup_owners(target, &mut new);
        let sent = strategy::system_fields(&new);
        let mut write = target.operation(Operation::Update, Some(new), Some(before.clone()));
        if !target.options.is_admitted {
            self.admission.mutate(&mut write).await?;
        }
        let mut new = target.mutated(&mut write);
        default::apply_defaults(&mut new, resource);
        if is_shown_as_sent {
            // What a webhook changed that nobody may change is for validation to say.
            let changed = strategy::changed_system_fields(&sent, &new);
            strategy::keep_system_fields(&before, &mut new);
            strategy::isolate(resource, phase, &before, &mut new);
            meta_mut(&mut new).extend(changed);
        }
        strategy::prepare_for_update(self, resource, phase, &before, &mut new).await?;
        self.escalation.check(&target.user, &target.context.info, Some(&before), &new).await?;
        let since = Instant::now();
        let errors = validation::update(resource, &target.subresource, &new, &before);
        target.validated(&new, Some(&before), &errors, since);
        if !errors.is_empty() {
            strategy::settle(self, resource, &before, &new, false);
            return Err(target.invalid(&target.name, errors));
        }
        if phase == Phase::Main || target.subresource == "scale" {
            validation::warnings::update(resource, &new, &before).into_iter().for_each(|warning| target.context.trace.warn(warning));
        }
        write.object = Some(new);
        let admitted = match target.options.is_admitted {
            true => Ok(()),
            false => self.admission.validate(&write).await,
        };
        let mut new = write.object.take().unwrap_or_default();
        if let Err(status) = admitted {
            strategy::settle(self, resource, &before, &new, false);
            return Err(status);
        }
        keep_timestamps(&before, &mut new);
        let bytes = self.stored_bytes(resource, &new).await?;
        let shown = self.shown_bytes(resource, &new, &bytes);
        if target.options.dry_run {
            strategy::settle(self, resource, &before, &new, false);
            return Ok(Some(Written { object: Arc::new(Object::new(old.key.clone(), old.revision, &shown)), created: false }));
        }
        // An update that changes nothing is none: no revision, no event.
        if *bytes == *old.stored() {
            return Ok(Some(Written { object: seen, created: false }));
        }
        let expect = Expect::Revision(old.revision);
        // The last finalizer is gone from an object that waited for it: this update is its deletion.
        let operation = match strategy::is_finished(resource, &new) {
            true => store::Operation::Delete { key: old.key.clone(), last: old.stored().into(), expect },
            false => store::Operation::Put { key: old.key.clone(), value: bytes.clone(), expect },
        };
        let deleted = matches!(operation, store::Operation::Delete { .. });
        match self.commit(target, &new, operation).await {
            Ok(revision) => {
                match deleted {
                    true => strategy::release(self, resource, &new),
                    false => strategy::settle(self, resource, &before, &new, true),
                }
                // Whoever lets an object go sees it as it last was, not the revision at which it went.
                let told = if deleted { old.revision } else { revision };
                Ok(Some(Written { object: Arc::new(Object::new(old.key.clone(), told, &shown)), created: false }))
            }
            Err(error) => {
                strategy::settle(self, resource, &before, &new, false);
                match error {
                    Error::Conflict { .. } => Ok(None),
                    other => Err(store_error(other)),
                }
            }
        }
    }

    /// Hop 07.
    pub(super) async fn commit(&self, target: &Target, object: &Value, operation: store::Operation) -> store::Result<Revision> {
        let context = &target.context;
        let since = Instant::now();
        let deleted = matches!(operation, store::Operation::Delete { .. });
        let batch =
            Batch { operations: vec![operation], time: self.clock.now().as_microsecond(), audit_id: Some(context.audit_id.clone()) };
        let result = self.state.store().commit(batch).await;
        let verdict = match &result {
            Ok(revision) => format!("revision {revision}"),
            Err(error) => error.to_string(),
        };
        context.trace.step("store", "commit", verdict, since);
        if let Ok(revision) = &result {
            let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            context.trace.wrote(Wrote {
                revision: *revision,
                kind: target.resource.kind.to_string(),
                name: meta(object, "name").to_owned(),
                uid: meta(object, "uid").to_owned(),
                owners: owners.into_iter().flatten().filter_map(|owner| owner["uid"].as_str().map(str::to_owned)).collect(),
                deleted,
            });
        }
        result
    }

    /// Name, uid and time of a new object.
    fn fill_system_fields(&self, object: &mut Value) {
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let metadata = meta_mut(object);
        metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
        metadata.insert("creationTimestamp".into(), now.into());
        let named = metadata.get("name").and_then(Value::as_str).is_some_and(|n| !n.is_empty());
        if let (false, Some(base)) = (named, metadata.get("generateName").and_then(Value::as_str).filter(|b| !b.is_empty())) {
            let name = generated_name(base);
            metadata.insert("name".into(), name.into());
        }
    }
}

/// The namespace of a new object, and nothing that only a server can say.
fn place(resource: &Resource, namespace: &str, object: &mut Value) {
    let metadata = meta_mut(object);
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
        metadata.remove(field);
    }
    if resource.namespaced {
        metadata.insert("namespace".into(), namespace.into());
    } else {
        metadata.remove("namespace");
    }
}

/// An owner that is named twice is named once, and the client is told.
fn dedup_owners(target: &Target, object: &mut Value) {
    let Some(owners) = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) else { return };
    let mut twice: Vec<String> = Vec::new();
    let mut seen: Vec<Value> = Vec::new();
    owners.retain(|owner| {
        let new = !seen.contains(owner);
        if new {
            seen.push(owner.clone());
        } else if let Some(uid) = owner["uid"].as_str().filter(|uid| !twice.iter().any(|known| known == uid)) {
            twice.push(uid.to_owned());
        }
        new
    });
    if !twice.is_empty() {
        target.context.trace.warn(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        ));
    }
}

/// A base, cut to fit, and five letters that make no words.
fn generated_name(base: &str) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let base: String = base.chars().take(58).collect();
    let random = uuid::Uuid::new_v4();
    let suffix = random.as_bytes().iter().filter(|b| usize::from(**b) < 256 / LETTERS.len() * LETTERS.len()).take(5);
    let suffix: String = suffix.map(|b| char::from(LETTERS[usize::from(*b) % LETTERS.len()])).collect();
    base + &suffix
}

fn check_preconditions(target: &Target, old: &Object, before: &Value, new: &Value) -> Result<(), Status> {
    let resource = &target.resource;
    let version = meta(new, "resourceVersion");
    if !version.is_empty() {
        let Ok(revision) = version.parse::<Revision>() else {
            return Err(Status::unclassified(format!("strconv.ParseUint: parsing {version:?}: invalid syntax")));
        };
        if revision != 0 && revision != old.revision {
            return Err(Status::modified(&resource.group, &resource.plural, &target.name));
        }
    }
    // Nobody but a deletion marks an object as being deleted.
    let deleted = meta(new, "deletionTimestamp");
    if !deleted.is_empty() && deleted != meta(before, "deletionTimestamp") && target.subresource.is_empty() {
        let error = FieldError::invalid("metadata.deletionTimestamp", &json!(deleted), "field is immutable");
        return Err(target.invalid(&target.name, vec![error]));
    }
    let grace = |object: &Value| object["metadata"].get("deletionGracePeriodSeconds").filter(|g| !g.is_null()).cloned();
    if let Some(given) = grace(new).filter(|given| grace(before).as_ref() != Some(given) && target.subresource.is_empty()) {
        let error = FieldError::invalid("metadata.deletionGracePeriodSeconds", &given, "field is immutable");
        return Err(target.invalid(&target.name, vec![error]));
    }
    let (given, actual) = (meta(new, "uid"), meta(before, "uid"));
    if !given.is_empty() && given != actual && target.context.info.verb == "patch" {
        let error = FieldError::invalid("metadata.uid", &json!(given), "field is immutable");
        return Err(target.invalid(&target.name, vec![error]));
    }
    if !given.is_empty() && given != actual {
        return Err(other_uid(target, &old.key, given, actual));
    }
    Ok(())
}

/// The name in a body must be the one in the path.
pub fn check_name(wanted: &str, given: &str) -> Result<(), Status> {
    match given {
        "" => Err(super::patch_verb::undeterminable(wanted)),
        given if given != wanted => {
            Err(Status::bad_request(format!("the name of the object ({given}) does not match the name on the URL ({wanted})")))
        }
        _ => Ok(()),
    }
}

/// What an update puts in the place of what is there, or of nothing.
pub fn replacement(target: &Target, old: Option<&Before>, object: &Value) -> Result<Value, Status> {
    let resource = &target.resource;
    let mut object = object.clone();
    if old.is_some() {
        if meta(&object, "resourceVersion").is_empty() && strategy::needs_resource_version(resource) {
            let error = FieldError::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            return Err(Status::invalid(&resource.group, &resource.plural, &target.name, vec![error]));
        }
        return Ok(object);
    }
    let uid = meta(&object, "uid");
    if !uid.is_empty() {
        return Err(other_uid(target, &key(resource, &target.namespace, &target.name), uid, ""));
    }
    meta_mut(&mut object).remove("resourceVersion");
    Ok(object)
}

/// An update is about an object with another uid.
fn other_uid(target: &Target, key: &str, given: &str, actual: &str) -> Status {
    // What is only tried does not get as far as the store, which puts this before its keys.
    let key = if target.options.dry_run { key.strip_prefix("/registry").unwrap_or(key) } else { key };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {actual}"
    );
    Status::conflict(&target.resource.group, &target.resource.plural, &target.name, &why)
}

/// The object of a request must be about what the path says; fills in what the body left out.
pub fn check_names(target: &Target, object: &mut Value, create: bool) -> Result<(), Status> {
    let namespace = meta(object, "namespace").to_owned();
    if target.resource.namespaced && !namespace.is_empty() && namespace != target.namespace {
        return Err(Status::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
    }
    let name = meta(object, "name").to_owned();
    if create {
        if !object::meta(object, "resourceVersion").is_empty() {
            return Err(Status::unclassified("resourceVersion should not be set on objects to be created"));
        }
        if name.is_empty() && !target.name.is_empty() {
            meta_mut(object).insert("name".into(), target.name.clone().into());
        }
    } else {
        check_name(&target.name, &name)?;
    }
    if target.resource.namespaced {
        meta_mut(object).insert("namespace".into(), json!(target.namespace));
    }
    Ok(())
}
