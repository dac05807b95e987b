//! What is checked of every object, whatever its kind: name, namespace, labels, annotations, owners and finalizers; and what
//! of it can never change. How a name must look is the kind's; everything else is the same for all.

use serde_json::Value;

use super::field::{self, Errors, Path, entries, items, text};
use super::internal::{Field, show, show_list};
use super::{address, names};
use crate::registry::Resource;
use crate::status::FieldError;

const METADATA: Path<'static> = Path::root("metadata");
/// What the keys and values of all annotations may come to.
const ANNOTATIONS: usize = 256 * 1024;
/// Finalizers that need no domain.
const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// Kinds whose updates are looked at as if they were new, `generateName` among the rest.
const NAMED_ANEW: &[(&str, &str)] = &[
    ("", "configmaps"),
    ("", "endpoints"),
    ("", "limitranges"),
    ("", "namespaces"),
    ("", "nodes"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("apiregistration.k8s.io", "apiservices"),
    ("apps", "controllerrevisions"),
    ("discovery.k8s.io", "endpointslices"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
    ("networking.k8s.io", "ingressclasses"),
    ("networking.k8s.io", "ingresses"),
    ("networking.k8s.io", "ipaddresses"),
    ("node.k8s.io", "runtimeclasses"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourceclaimtemplates"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
    ("storage.k8s.io", "volumeattributesclasses"),
    ("storagemigration.k8s.io", "storageversionmigrations"),
];

/// How the names of a kind must look.
fn name_check(resource: &Resource) -> names::Check {
    match (&*resource.group, &*resource.plural) {
        ("", "namespaces") => names::label,
        ("", "events") => names::path_segment,
        ("", "services") | ("apps", "statefulsets") => names::label,
        ("rbac.authorization.k8s.io", _) | ("certificates.k8s.io", _) => names::path_segment,
        ("networking.k8s.io", "ipaddresses") => address::name,
        ("apiregistration.k8s.io", _) | ("policy", "poddisruptionbudgets") => names::path_segment,
        ("internal.apiserver.k8s.io", _) => names::any,
        _ => names::subdomain,
    }
}

/// The metadata of a new object.
pub fn create(resource: &Resource, object: &Value, errors: &mut Errors) {
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let check = name_check(resource);
    let generate = text(metadata, "generateName");
    if !generate.is_empty() {
        field::wrong(errors, &METADATA.field("generateName"), generate, check(&names::masked(generate)));
    }
    let name = text(metadata, "name");
    if name.is_empty() {
        errors.push(FieldError::required(METADATA.field("name"), "name or generateName is required"));
    } else {
        errors.extend(check(name).into_iter().map(|why| field::invalid(&METADATA.field("name"), name, why)));
    }
    let namespace = text(metadata, "namespace");
    if resource.namespaced {
        if namespace.is_empty() {
            errors.push(FieldError::required(METADATA.field("namespace"), ""));
        } else {
            errors.extend(names::label(namespace).into_iter().map(|why| field::invalid(&METADATA.field("namespace"), namespace, why)));
        }
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden(METADATA.field("namespace"), "not allowed on this type"));
    }
    field::non_negative(errors, metadata, &METADATA, "generation");
    common(metadata, errors);
    qualified_finalizers(metadata, &METADATA, errors);
    both_ways_to_delete(metadata, errors);
    if names_its_finalizers(resource) {
        known_finalizers(metadata, errors);
    }
}

/// The metadata of a changed object.
pub fn update(resource: &Resource, new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (new.get("metadata").unwrap_or(&Value::Null), old.get("metadata").unwrap_or(&Value::Null));
    if field::has(old, "deletionTimestamp") {
        let had = items(old, "finalizers");
        let added: Vec<String> =
            items(new, "finalizers").iter().filter(|f| !had.contains(f)).filter_map(Value::as_str).map(|f| format!("{f:?}")).collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            errors.push(FieldError::forbidden(METADATA.field("finalizers"), why));
        }
    }
    if let Some(generation) = field::number(new, "generation").filter(|g| *g < field::number(old, "generation").unwrap_or(0)) {
        errors.push(FieldError::invalid(METADATA.field("generation"), &generation.into(), "must not be decremented"));
    }
    for name in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        field::immutable(errors, new, old, &METADATA, name);
    }
    common(new, errors);
    let generate = text(new, "generateName");
    if !generate.is_empty() && NAMED_ANEW.contains(&(&*resource.group, &*resource.plural)) {
        field::wrong(errors, &METADATA.field("generateName"), generate, name_check(resource)(&names::masked(generate)));
    }
    qualified_finalizers(new, &METADATA, errors);
    if names_its_finalizers(resource) && new.get("finalizers") != old.get("finalizers") {
        known_finalizers(new, errors);
    }
}

/// The metadata of an object inside of another, which need not have a name.
pub fn embedded(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let generate = text(metadata, "generateName");
    if !generate.is_empty() {
        field::wrong(errors, &path.field("generateName"), generate, names::path_segment(&names::masked(generate)));
    }
    let name = text(metadata, "name");
    if !name.is_empty() {
        field::wrong(errors, &path.field("name"), name, names::path_segment(name));
    }
    let namespace = text(metadata, "namespace");
    if !namespace.is_empty() {
        field::wrong(errors, &path.field("namespace"), namespace, names::label(namespace));
    }
    field::non_negative(errors, metadata, path, "generation");
    labels(metadata, path, errors);
    annotations(metadata, path, errors);
    owners(metadata, path, errors);
    qualified_finalizers(metadata, path, errors);
}

fn qualified_finalizers(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("finalizers");
    for finalizer in items(metadata, "finalizers").iter().filter_map(Value::as_str) {
        errors.extend(names::qualified(finalizer).into_iter().map(|why| field::invalid(&path, finalizer, why)));
    }
}

fn common(metadata: &Value, errors: &mut Errors) {
    labels(metadata, &METADATA, errors);
    annotations(metadata, &METADATA, errors);
    owners(metadata, &METADATA, errors);
}

/// The labels of an object or of a template.
pub fn labels(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    label_map(metadata, "labels", path, errors);
}

/// A map of labels, such as a selector.
pub fn label_map(value: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field(name);
    for (key, value) in entries(value, name) {
        errors.extend(names::qualified(key).into_iter().map(|why| field::invalid(&path, key, why)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(names::label_value(value).into_iter().map(|why| field::invalid(&path, value, why)));
    }
}

/// The annotations of an object or of a template.
pub fn annotations(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("annotations");
    let mut total = 0;
    for (key, value) in entries(metadata, "annotations") {
        // Keys are compared as if they were written in small letters.
        let wrong = match key.bytes().any(|b| b.is_ascii_uppercase()) {
            true => names::qualified(&key.to_ascii_lowercase()),
            false => names::qualified(key),
        };
        errors.extend(wrong.into_iter().map(|why| field::invalid(&path, key, why)));
        total += key.len() + value.as_str().map_or(0, str::len);
    }
    if total > ANNOTATIONS {
        errors.push(FieldError::too_long(path, ANNOTATIONS));
    }
}

/// The metadata of a template of claims, of which only labels and annotations count.
pub fn of_template(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    annotations(metadata, path, errors);
    labels(metadata, path, errors);
    for name in ["name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "finalizers", "ownerReferences"] {
        if metadata.get(name).is_some_and(|v| !crate::schema::is_zero(v)) {
            errors.push(FieldError::forbidden(path.field(name), "cannot be set"));
        }
    }
}

/// Annotations that users give for a certificate: each key has a domain.
pub fn user_annotations(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("userAnnotations");
    let mut total = 0;
    for (key, value) in entries(value, "userAnnotations") {
        let lower = key.to_lowercase();
        let wrong = names::qualified(&lower);
        if wrong.is_empty() && !lower.contains('/') {
            errors.push(field::invalid(&path, &lower, "must be a domain-prefixed key (such as \"acme.io/foo\")"));
        }
        field::wrong(errors, &path, &lower, wrong);
        total += key.len() + value.as_str().map_or(0, str::len);
    }
    if total > ANNOTATIONS {
        errors.push(FieldError::too_long(path, ANNOTATIONS));
    }
}

/// An owner as it is shown, in the order in which it is written.
const OWNER: &[Field] = &[
    Field::text("apiVersion", "apiVersion"),
    Field::text("kind", "kind"),
    Field::text("name", "name"),
    Field::text("uid", "uid"),
    Field::omitted("controller", "controller"),
    Field::omitted("blockOwnerDeletion", "blockOwnerDeletion"),
];

fn owners(metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("ownerReferences");
    let mut controller: Option<&Value> = None;
    for (i, owner) in items(metadata, "ownerReferences").iter().enumerate() {
        let path = list.index(i);
        let api_version = text(owner, "apiVersion");
        let at = path.field("apiVersion");
        match api_version.split('/').collect::<Vec<_>>()[..] {
            [""] => errors.push(FieldError::required(at, "must not be empty")),
            [_] => {}
            [_, version] => {
                if version.is_empty() {
                    errors.push(field::invalid(&at, api_version, "version must not be empty"));
                }
            }
            _ => errors.push(field::invalid(&at, api_version, "must be <group>/<version> or <version>")),
        }
        for name in ["kind", "name", "uid"] {
            if text(owner, name).is_empty() {
                errors.push(FieldError::required(path.field(name), "must not be empty"));
            }
        }
        if text(owner, "kind") == "Event" && matches!(api_version, "v1" | "events.k8s.io/v1") {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let why = format!("{group}/{version}, Kind=Event is disallowed from being an owner");
            errors.push(FieldError { value: show(owner, OWNER), ..field::invalid(&path, "", why) });
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            if let Some(first) = controller {
                let called = |owner: &Value| format!("{}/{}", text(owner, "kind"), text(owner, "name"));
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                    called(first),
                    called(owner)
                );
                let value = show_list(&metadata["ownerReferences"], OWNER);
                errors.push(FieldError { value, ..field::invalid(&list, "", why) });
            }
            controller = Some(owner);
        }
    }
}

fn both_ways_to_delete(metadata: &Value, errors: &mut Errors) {
    let finalizers = items(metadata, "finalizers");
    if ["orphan", "foregroundDeletion"].iter().all(|name| finalizers.iter().any(|f| f == name)) {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(METADATA.field("finalizers"), &Value::from(finalizers.to_vec()), why));
    }
}

/// Whether a kind wants finalizers with a domain: most of the built-in ones.
fn names_its_finalizers(resource: &Resource) -> bool {
    let free = matches!(
        (&*resource.group, &*resource.plural),
        ("admissionregistration.k8s.io" | "apiextensions.k8s.io" | "apiregistration.k8s.io", _)
            | ("", "events")
            | ("coordination.k8s.io", "leases")
            | ("node.k8s.io", "runtimeclasses")
            | ("policy", "poddisruptionbudgets")
    );
    resource.custom.is_none() && !free
}

/// What is not wise about the finalizers of a custom object.
pub fn finalizer_warnings(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for finalizer in items(&object["metadata"], "finalizers").iter().filter_map(Value::as_str) {
        if finalizer.contains('/') || STANDARD.contains(&finalizer) {
            continue;
        }
        let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
        found.push(format!(
            "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        ));
    }
    found
}

/// A finalizer where it is checked by itself: its shape, and whether it has a domain.
pub fn finalizer(finalizer: &str, path: &Path<'_>, errors: &mut Errors) {
    field::wrong(errors, path, finalizer, names::qualified(finalizer));
    if !finalizer.contains('/') && !STANDARD.contains(&finalizer) {
        errors.push(field::invalid(path, finalizer, "name is neither a standard finalizer name nor is it fully qualified"));
    }
}

/// Built-in kinds take only finalizers with a domain, and the few that are as old as Kubernetes.
fn known_finalizers(metadata: &Value, errors: &mut Errors) {
    let path = METADATA.field("finalizers");
    for (i, finalizer) in items(metadata, "finalizers").iter().filter_map(Value::as_str).enumerate() {
        if !finalizer.contains('/') && !STANDARD.contains(&finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(field::invalid(&path.index(i), finalizer, why));
        }
    }
}
