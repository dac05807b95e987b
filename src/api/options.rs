//! The options of a request (`ListOptions`, `CreateOptions`, `UpdateOptions`, `PatchOptions`, `DeleteOptions`), read from
//! the query or the body and checked with the messages of a real server.

use serde_json::{Value, json};

use super::read::parse_revision;
use crate::object::selector::{FieldSelector, LabelSelector};
use crate::registry::Resource;
use crate::request::{Context, query_pairs};
use crate::schema::decode::FieldValidation;
use crate::status::{FieldError, Status};
use crate::store::Revision;

/// `resourceVersionMatch` together with `resourceVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// The newest state, consistently.
    Unset,
    /// Whatever is at hand.
    Any,
    /// At least as new as this.
    NotOlderThan(Revision),
    /// Exactly this.
    Exact(Revision),
}

/// The options of a list or watch.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// Which objects, by label.
    pub labels: LabelSelector,
    /// Which objects, by field.
    pub fields: FieldSelector,
    /// How many at most; zero is no limit.
    pub limit: usize,
    /// Where the previous page ended.
    pub continues: String,
    /// Which state.
    pub version: VersionMatch,
    /// Whether this is a watch.
    pub watch: bool,
    /// Whether the watch wants bookmarks.
    pub bookmarks: bool,
    /// Whether the watch begins with the state, told as events.
    pub send_initial_events: Option<bool>,
    /// When the watch ends.
    pub timeout_seconds: Option<u64>,
}

impl ListOptions {
    /// Reads and checks them. `watch` is told by the request's verb.
    pub fn parse(context: &Context, resource: &Resource, watch: bool) -> Result<Self, Status> {
        let get = |key: &str| context.parameter(key).unwrap_or_default();
        let labels = LabelSelector::parse(&get("labelSelector")).map_err(Status::bad_request)?;
        let fields = FieldSelector::parse(&get("fieldSelector")).map_err(Status::bad_request)?;
        for term in &fields.0 {
            let has_own = resource.custom.is_some() || resource.has_selectable_fields();
            let is_metadata = term.field == "metadata.name" || term.field == "metadata.namespace" && !has_own;
            if !is_metadata && !resource.is_selectable(&term.field) {
                let text = match has_own {
                    true => format!("field label not supported: {}", term.field),
                    false => format!(
                        "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                        super::patch::go::quoted(&term.field)
                    ),
                };
                return Err(Status::bad_request(text));
            }
        }
        // A watch of one object, by the old path, takes no selector that could mean another one.
        let name = context.info.name.as_str();
        if watch && !name.is_empty() && !fields.is_empty() && fields.requires("metadata.name") != Some(name) {
            return Err(Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
        }
        let number = |key: &str| context.parameter(key).map(|text| parse_integer(&text)).transpose();
        let limit = number("limit")?.unwrap_or(0);
        let timeout_seconds = number("timeoutSeconds")?.and_then(seconds);
        let mut send_initial_events = boolean(context, "sendInitialEvents")?;
        let bookmarks = boolean(context, "allowWatchBookmarks")?.unwrap_or(false);
        let (version, wanted, continues) = (get("resourceVersion"), get("resourceVersionMatch"), get("continue"));
        // A watch that names no revision begins with the state, and says where that ends.
        let mut wanted = wanted;
        if watch && send_initial_events.is_none() && wanted.is_empty() && matches!(version.as_str(), "" | "0") {
            send_initial_events = Some(true);
            wanted = "NotOlderThan".into();
        }
        let errors = match watch {
            true => watch_errors(&wanted, send_initial_events, &continues),
            false => list_errors(&wanted, send_initial_events, &continues, &version),
        };
        if !errors.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "ListOptions", "", errors));
        }
        let revision = match version.as_str() {
            "" | "0" => 0,
            // What is wrong with the token is told first.
            _ if !watch && !continues.is_empty() && parse_revision(&version).is_err() => 1,
            text => parse_revision(text).map_err(|problem| match watch {
                true => Status::unclassified(problem),
                false => Status::bad_request(format!("invalid resource version: {problem}")),
            })?,
        };
        let version = match (version.as_str(), wanted.as_str()) {
            ("", _) => VersionMatch::Unset,
            ("0", _) => VersionMatch::Any,
            // Zero in another spelling is no revision that could be read exactly.
            (_, wanted) if revision == 0 && (limit > 0 || wanted == "Exact") => VersionMatch::Unset,
            _ if revision == 0 => VersionMatch::Any,
            (_, "Exact") => VersionMatch::Exact(revision),
            // A limit without a match rule asks for an exact state, as it always did.
            (_, "") if limit > 0 && !watch => VersionMatch::Exact(revision),
            _ => VersionMatch::NotOlderThan(revision),
        };
        Ok(ListOptions {
            labels,
            fields,
            limit: limit.max(0) as usize,
            continues,
            version,
            watch,
            bookmarks,
            send_initial_events,
            timeout_seconds,
        })
    }
}

/// What is wrong with the options of a list.
fn list_errors(wanted: &str, send_initial_events: Option<bool>, continues: &str, version: &str) -> Vec<FieldError> {
    let field = "resourceVersionMatch";
    let mut errors = Vec::new();
    if !wanted.is_empty() {
        if version.is_empty() {
            errors.push(FieldError::forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if !continues.is_empty() {
            errors.push(FieldError::forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(wanted, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(field, &json!(wanted), &["Exact", "NotOlderThan", ""]));
        }
        if wanted == "Exact" && version == "0" {
            errors.push(FieldError::forbidden(field, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
        }
    }
    if send_initial_events.is_some() {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    errors
}

/// What is wrong with the options of a watch.
fn watch_errors(wanted: &str, send_initial_events: Option<bool>, continues: &str) -> Vec<FieldError> {
    let field = "resourceVersionMatch";
    let mut errors = Vec::new();
    if send_initial_events.is_some() && wanted != "NotOlderThan" {
        errors.push(FieldError::forbidden(field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
    }
    if !wanted.is_empty() {
        if send_initial_events.is_none() {
            errors.push(FieldError::forbidden(field, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
        }
        if wanted != "NotOlderThan" {
            errors.push(FieldError::not_supported(field, &json!(wanted), &["NotOlderThan"]));
        }
        if !continues.is_empty() {
            errors.push(FieldError::forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
        }
    }
    errors
}

/// How long a watch may last: zero leaves it to the server, and what overflows a real server's nanoseconds ends as it does there.
fn seconds(given: i64) -> Option<u64> {
    let nanoseconds = given.wrapping_mul(1_000_000_000);
    (nanoseconds != 0).then(|| nanoseconds.max(0) as u64 / 1_000_000_000)
}

pub(super) fn integer(text: &str) -> Result<Option<i64>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    parse_integer(text).map(Some)
}

fn parse_integer(text: &str) -> Result<i64, Status> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let why = if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) { "value out of range" } else { "invalid syntax" };
    text.parse::<i64>().map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}")))
}

fn boolean(context: &Context, key: &str) -> Result<Option<bool>, Status> {
    Ok(context.parameter(key).map(|text| !matches!(text.to_ascii_lowercase().as_str(), "0" | "false")))
}

/// The options of a create, update, patch or delete.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Go the whole way and keep nothing.
    pub dry_run: bool,
    /// Who owns the fields.
    pub field_manager: Option<String>,
    /// How strictly the body is read.
    pub field_validation: FieldValidation,
    /// Take fields over from other managers; apply only.
    pub force: Option<bool>,
    /// Whether this is a server-side apply, which keeps ownership by itself.
    pub is_apply: bool,
    /// Whether admission has been asked already, about the Binding, Eviction or Scale that this write follows from.
    pub is_admitted: bool,
    /// As a review shows them: `{"kind": "CreateOptions", …}`.
    pub shown: Value,
}

impl WriteOptions {
    /// Reads and checks them. `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`.
    pub fn parse(context: &Context, kind: &'static str) -> Result<Self, Status> {
        let mut options = WriteOptions { shown: json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"}), ..WriteOptions::default() };
        let mut errors = Vec::new();
        let mut dry_run = Vec::new();
        let mut seen = Vec::new();
        for (key, value) in query_pairs(&context.query) {
            // Of what is there twice the first counts, except where there may be several.
            if matches!(key.as_str(), "fieldManager" | "force" | "fieldValidation") {
                if seen.contains(&key) {
                    continue;
                }
                seen.push(key.clone());
            }
            match key.as_str() {
                "dryRun" => dry_run.push(value),
                "fieldManager" => options.field_manager = Some(value).filter(|v| !v.is_empty()),
                "force" if kind == "PatchOptions" => options.force = Some(!matches!(value.as_str(), "0" | "false")),
                "fieldValidation" => match value.as_str() {
                    "" | "Warn" => options.field_validation = FieldValidation::Warn,
                    "Strict" => options.field_validation = FieldValidation::Strict,
                    "Ignore" => options.field_validation = FieldValidation::Ignore,
                    other => errors.push(FieldError::not_supported("fieldValidation", &json!(other), &["", "Ignore", "Strict", "Warn"])),
                },
                _ => {}
            }
        }
        if let Some(manager) = &options.field_manager {
            if manager.len() > 128 {
                errors.push(FieldError::too_long("fieldManager", 128));
            } else if manager.chars().any(|c| c.is_control()) {
                let (at, c) = manager.chars().enumerate().find(|(_, c)| c.is_control()).unwrap_or((0, ' '));
                let why = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
                errors.push(FieldError::invalid("fieldManager", &json!(manager), why));
            }
            options.shown["fieldManager"] = json!(manager);
        }
        options.dry_run = check_dry_run(&dry_run, &mut errors);
        if options.dry_run {
            options.shown["dryRun"] = json!(["All"]);
        }
        if let Some(force) = options.force {
            options.shown["force"] = json!(force);
        }
        if let Some(validation) = context.parameter("fieldValidation").filter(|v| !v.is_empty()) {
            options.shown["fieldValidation"] = json!(validation);
        }
        match errors.is_empty() {
            true => Ok(options),
            false => Err(Status::invalid("meta.k8s.io", kind, "", errors)),
        }
    }
}

fn check_dry_run(values: &[String], errors: &mut Vec<FieldError>) -> bool {
    if values.iter().any(|value| value != "All") {
        errors.push(FieldError::not_supported("dryRun", &json!(values), &["All"]));
    }
    !values.is_empty()
}

/// The options of a delete or deletecollection.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Go the whole way and keep nothing.
    pub dry_run: bool,
    /// How long the object may take to go.
    pub grace_period_seconds: Option<i64>,
    /// `Foreground`, `Background` or `Orphan`.
    pub propagation_policy: Option<String>,
    /// The uid that the object must have.
    pub uid: Option<String>,
    /// The resourceVersion that the object must have.
    pub resource_version: Option<String>,
    /// As a review shows them.
    pub shown: Value,
}

impl DeleteOptions {
    /// Reads them from the body where there is one, else from the query, and checks them.
    pub fn parse(context: &Context, body: Option<&Value>) -> Result<Self, Status> {
        let mut options = DeleteOptions::default();
        let mut shown = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        let mut dry_run: Vec<String> = Vec::new();
        let mut orphan = None;
        if let Some(body) = body {
            options.grace_period_seconds = body.get("gracePeriodSeconds").and_then(Value::as_i64);
            options.propagation_policy = body.get("propagationPolicy").and_then(Value::as_str).map(str::to_owned);
            options.uid = body.pointer("/preconditions/uid").and_then(Value::as_str).map(str::to_owned);
            options.resource_version = body.pointer("/preconditions/resourceVersion").and_then(Value::as_str).map(str::to_owned);
            orphan = body.get("orphanDependents").and_then(Value::as_bool);
            dry_run.extend(body["dryRun"].as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)));
        }
        // A body is all that counts where there is one.
        for (key, value) in query_pairs(&context.query).filter(|_| body.is_none()) {
            match key.as_str() {
                "dryRun" => dry_run.push(value),
                "gracePeriodSeconds" => options.grace_period_seconds = integer(&value)?,
                "propagationPolicy" => options.propagation_policy = Some(value),
                "uid" => options.uid = Some(value).filter(|v| !v.is_empty()),
                "resourceVersion" => options.resource_version = Some(value).filter(|v| !v.is_empty()),
                "orphanDependents" => orphan = Some(!matches!(value.as_str(), "0" | "false")),
                _ => {}
            }
        }
        let mut errors = Vec::new();
        options.dry_run = check_dry_run(&dry_run, &mut errors);
        match (orphan, &options.propagation_policy) {
            (Some(_), Some(policy)) => errors.push(FieldError::invalid(
                "propagationPolicy",
                &json!(policy),
                "orphanDependents and deletionPropagation cannot be both set",
            )),
            (Some(true), None) => options.propagation_policy = Some("Orphan".into()),
            (Some(false), None) => options.propagation_policy = Some("Background".into()),
            (None, Some(policy)) if !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan") => {
                errors.push(FieldError::not_supported("propagationPolicy", &json!(policy), &["Foreground", "Background", "Orphan", "nil"]));
            }
            _ => {}
        }
        if body.is_some_and(|body| body["ignoreStoreReadErrorWithClusterBreakingPotential"] == true) {
            let field = "ignoreStoreReadErrorWithClusterBreakingPotential";
            for (set, name) in [
                (options.dry_run, ".dryRun"),
                (options.propagation_policy.is_some(), ".propagationPolicy"),
                (orphan.is_some(), ".orphanDependents"),
                (options.grace_period_seconds.is_some(), ".gracePeriodSeconds"),
                (options.uid.is_some() || options.resource_version.is_some(), ".preconditions"),
            ] {
                if set {
                    errors.push(FieldError::invalid(field, &json!(true), format!("cannot be set together with {name}")));
                }
            }
        }
        if !errors.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", errors));
        }
        if let Some(seconds) = options.grace_period_seconds {
            shown["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(policy) = &options.propagation_policy {
            shown["propagationPolicy"] = json!(policy);
        }
        if options.dry_run {
            shown["dryRun"] = json!(["All"]);
        }
        for (name, value) in [("uid", &options.uid), ("resourceVersion", &options.resource_version)] {
            if let Some(value) = value {
                shown["preconditions"][name] = json!(value);
            }
        }
        options.shown = shown;
        Ok(options)
    }
}
