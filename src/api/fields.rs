//! Who set which field: `metadata.managedFields`, kept by every write.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;

use super::apply::{Context, ConversionError, Converted, FieldSet, ResetFields, Versions, manager_name, track_update};
use super::strategy::{StatusKeeps, status_keeps};
use super::target::Target;
use super::{Api, conversion, convert};
use crate::registry::{Resource, api_version};
use crate::schema::{Schema, builtin};

static RESET_STATUS: LazyLock<ResetFields> = LazyLock::new(|| ResetFields::Reset(FieldSet::of_fields(&[&["status"]])));
static RESET_SPEC: LazyLock<ResetFields> = LazyLock::new(|| ResetFields::Reset(FieldSet::of_fields(&[&["spec"]])));
static RESET_SPEC_AND_LABELS: LazyLock<ResetFields> =
    LazyLock::new(|| ResetFields::Reset(FieldSet::of_fields(&[&["spec"]]).union(&FieldSet::of_fields(&[&["metadata", "labels"]]))));
static RESET_ALL_BUT_STATUS: LazyLock<ResetFields> = LazyLock::new(|| ResetFields::AllBut(FieldSet::of_fields(&[&["status"]])));

fn reset(fields: &[&[&str]]) -> ResetFields {
    ResetFields::Reset(FieldSet::of_fields(fields))
}

/// A request for a certificate is settled with its creation; approving and issuing are for two.
static RESET_REQUEST: LazyLock<[ResetFields; 3]> = LazyLock::new(|| {
    [reset(&[&["spec"], &["status"]]), reset(&[&["spec"], &["status", "conditions"]]), reset(&[&["spec"], &["status", "certificate"]])]
});

/// What a write of a target cannot change, and so does not come to own.
pub fn reset_fields(target: &Target) -> Option<&'static ResetFields> {
    let resource = &target.resource;
    if &*resource.plural == "certificatesigningrequests" && &*resource.group == "certificates.k8s.io" {
        let [whole, status, approval] = &*RESET_REQUEST;
        return Some(match target.subresource.as_str() {
            "status" => status,
            "approval" => approval,
            _ => whole,
        });
    }
    match target.subresource.as_str() {
        "" if resource.subresource("status").is_some() => Some(&RESET_STATUS),
        "status" => Some(match status_keeps(resource) {
            StatusKeeps::Metadata => &RESET_ALL_BUT_STATUS,
            StatusKeeps::Labels => &RESET_SPEC_AND_LABELS,
            StatusKeeps::Nothing => &RESET_SPEC,
        }),
        _ => None,
    }
}

/// The versions of a kind, for managers that wrote in another one.
pub struct KindVersions<'a> {
    /// The resource of the request.
    pub resource: &'a Resource,
    /// Where its other versions are found.
    pub api: &'a Api,
    /// What a webhook has converted for this write.
    pub conversions: &'a Conversions,
}

impl Versions for KindVersions<'_> {
    fn convert(&self, object: &Value, api_version: &str) -> Result<Converted, ConversionError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let other = self.api.registry.lookup(group, version, &self.resource.plural).ok_or(ConversionError::NoSuchVersion)?;
        let object = match conversion::webhook(self.resource) {
            Some(_) => self.conversions.get(object, api_version).map_err(ConversionError::Failed)?,
            None => {
                let own = object["apiVersion"].as_str().unwrap_or_default();
                let (group, version) = own.split_once('/').unwrap_or(("", own));
                let from = self.api.registry.lookup(group, version, &self.resource.plural);
                convert::between(object.clone(), from.as_deref().unwrap_or(self.resource), &other)
            }
        };
        Ok(Converted { object, schema: other.schema() })
    }
}

/// Who owns what is worked out without waiting for anybody. Where a webhook has to convert an object for it, that is noted here; the write
/// then has it converted and begins again.
#[derive(Debug, Default)]
pub struct Conversions(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    made: Vec<(Asked, Result<Value, String>)>,
    wanted: Vec<Asked>,
}

/// An object, and the version that it is wanted in.
type Asked = (Value, String);

impl Conversions {
    /// Whether some are missing yet.
    pub(super) fn is_wanted(&self) -> bool {
        !self.0.lock().wanted.is_empty()
    }

    fn get(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        if object["apiVersion"] == *api_version {
            return Ok(object.clone());
        }
        let mut noted = self.0.lock();
        match noted.made.iter().find(|((from, to), _)| to == api_version && from == object) {
            Some((_, made)) => made.clone(),
            None => {
                noted.wanted.push((object.clone(), api_version.to_owned()));
                Err("the object has not been converted yet".into())
            }
        }
    }
}

impl Api {
    /// Has a webhook make the conversions that were found missing; answers whether there were any.
    pub(super) async fn convert_wanted(&self, target: &Target) -> bool {
        let wanted = std::mem::take(&mut target.conversions.0.lock().wanted);
        let any = !wanted.is_empty();
        for (object, version) in wanted {
            let made = self.converter.convert(&target.resource, object.clone(), &version).await.map_err(|status| status.message);
            target.conversions.0.lock().made.push(((object, version), made));
        }
        any
    }
}

/// RFC 3339 in seconds.
pub fn timestamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Records what a create or update changed as its manager's.
pub async fn track(api: &Api, target: &Target, schema: &Arc<Schema>, old: Option<&Value>, new: &mut Value) {
    if conversion::webhook(&target.resource).is_none() {
        return track_once(api, target, schema, old, new);
    }
    loop {
        let mut tracked = new.clone();
        track_once(api, target, schema, old, &mut tracked);
        if !api.convert_wanted(target).await {
            *new = tracked;
            return;
        }
    }
}

/// Records whose are the fields of an object that is answered and not kept, which may be of another kind than the resource.
pub fn track_part(api: &Api, target: &Target, (group, version, kind): (&str, &str, &str), object: &mut Value) {
    let Some(schema) = builtin::of_kind(group, version, kind) else { return };
    let manager = manager_name(target.options.field_manager.as_deref().unwrap_or_default(), &target.context.user_agent);
    let (api_version, now) = (api_version(group, version), timestamp(api.clock.now()));
    let context = Context {
        manager: &manager,
        subresource: &target.subresource,
        api_version: &api_version,
        kind,
        force: false,
        now: &now,
        reset_fields: None,
        versions: &KindVersions { resource: &target.resource, api, conversions: &target.conversions },
    };
    track_update(None, object, &schema, &context);
}

fn track_once(api: &Api, target: &Target, schema: &Arc<Schema>, old: Option<&Value>, new: &mut Value) {
    let resource = &*target.resource;
    let manager = manager_name(target.options.field_manager.as_deref().unwrap_or_default(), &target.context.user_agent);
    let (api_version, now) = (resource.group_version(), timestamp(api.clock.now()));
    let context = Context {
        manager: &manager,
        subresource: &target.subresource,
        api_version: &api_version,
        kind: &resource.kind,
        force: false,
        now: &now,
        reset_fields: reset_fields(target),
        versions: &KindVersions { resource, api, conversions: &target.conversions },
    };
    track_update(old, new, schema, &context);
}
