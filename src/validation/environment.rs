//! The environment of a container, and what the downward API can tell of a Pod and its containers.

use serde_json::Value;

use super::field::{Errors, Path, has, invalid, items, object, required, required_shape, text, wrong};
use super::names;
use super::resources::quantity;
use super::volume::no_backsteps;
use crate::status::FieldError;

/// What an environment variable can be told of its Pod.
const ENVIRONMENT: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// What a file can be told of its Pod.
const FILE: [&str; 5] = ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// The fields that have a name at all.
const KNOWN: [&str; 6] =
    ["metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.nodeName"];
const RESOURCES: [&str; 6] =
    ["limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"];
const DIVISORS: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// `env` and `envFrom`.
pub fn environment(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("env");
    for (i, variable) in items(container, "env").iter().enumerate() {
        let path = list.index(i);
        required_shape(errors, variable, &path, "name", names::environment_variable);
        value_from(variable, &path.field("valueFrom"), errors);
    }
    let list = path.field("envFrom");
    for (i, from) in items(container, "envFrom").iter().enumerate() {
        let path = list.index(i);
        super::field::shaped(errors, from, &path, "prefix", names::environment_variable);
        let sources = ["configMapRef", "secretRef"];
        for source in sources {
            if let Some(reference) = object(from, source) {
                let at = path.field(source);
                required(errors, reference, &at, &["name"]);
                let name = text(reference, "name");
                if !name.is_empty() {
                    wrong(errors, &at.field("name"), name, names::subdomain(&names::masked(name)));
                }
            }
        }
        match sources.iter().filter(|s| has(from, s)).count() {
            0 => errors.push(invalid(&list, "", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => errors.push(invalid(&list, "", "may not have more than one field specified at a time")),
        }
    }
}

fn value_from(variable: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(from) = object(variable, "valueFrom") else { return };
    if let Some(reference) = object(from, "fieldRef") {
        field_reference(reference, &path.field("fieldRef"), &ENVIRONMENT, errors);
    }
    if let Some(reference) = object(from, "resourceFieldRef") {
        resource_reference(reference, &path.field("resourceFieldRef"), false, errors);
    }
    for source in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = object(from, source) {
            let path = path.field(source);
            let name = text(reference, "name");
            wrong(errors, &path.field("name"), name, names::subdomain(name));
            required_shape(errors, reference, &path, "key", names::config_key);
        }
    }
    if let Some(reference) = object(from, "fileKeyRef") {
        let path = path.field("fileKeyRef");
        required_shape(errors, reference, &path, "key", names::environment_variable);
        required_shape(errors, reference, &path, "volumeName", names::label);
        required(errors, reference, &path, &["path"]);
        no_backsteps(text(reference, "path"), &path.field("path"), errors);
    }
    let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let count = sources.iter().filter(|s| has(from, s)).count();
    if count == 0 {
        let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.push(invalid(path, "", why));
    } else if !text(variable, "value").is_empty() {
        errors.push(invalid(path, "", "may not be specified when `value` is not empty"));
    } else if count > 1 {
        errors.push(invalid(path, "", "may not have more than one field specified at a time"));
    }
}

/// A field of the Pod for a file.
pub fn file_reference(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    field_reference(reference, path, &FILE, errors);
}

fn field_reference(reference: &Value, path: &Path<'_>, supported: &[&str], errors: &mut Errors) {
    let (version, field) = (text(reference, "apiVersion"), text(reference, "fieldPath"));
    for name in ["apiVersion", "fieldPath"] {
        if text(reference, name).is_empty() {
            errors.push(FieldError::required(path.field(name), ""));
            return;
        }
    }
    let at = path.field("fieldPath");
    let mut unreadable = |why: String| errors.push(invalid(&at, field, format!("error converting fieldPath: {why}")));
    if version != "v1" {
        return unreadable(format!("unsupported pod version: {version}"));
    }
    let subscripted = field.strip_suffix("']").and_then(|rest| rest.split_once("['")).filter(|(whole, _)| !whole.is_empty());
    match subscripted {
        Some(("metadata.annotations", key)) => wrong(errors, path, &key.to_lowercase(), names::qualified(&key.to_lowercase())),
        Some(("metadata.labels", key)) => wrong(errors, path, key, names::qualified(key)),
        Some(_) => unreadable(format!("field label does not support subscript: {field}")),
        None if !KNOWN.contains(&field) && !ENVIRONMENT.contains(&field) && field != "spec.host" => {
            unreadable(format!("field label not supported: {field}"));
        }
        None => {
            let field = if field == "spec.host" { "spec.nodeName" } else { field };
            if !supported.contains(&field) {
                errors.push(FieldError::not_supported(at, &field.into(), supported));
            }
        }
    }
}

/// An amount of a container for a variable or a file.
pub fn resource_reference(reference: &Value, path: &Path<'_>, is_file: bool, errors: &mut Errors) {
    let resource = text(reference, "resource");
    let pages = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if is_file && text(reference, "containerName").is_empty() {
        errors.push(FieldError::required(path.field("containerName"), ""));
    } else if resource.is_empty() {
        errors.push(FieldError::required(path.field("resource"), ""));
    } else if !RESOURCES.contains(&resource) && !pages {
        errors.push(FieldError::not_supported(path.field("resource"), &resource.into(), &RESOURCES));
    }
    let Some(divisor) = quantity(&reference["divisor"]).filter(|d| d.nanos() != 0).map(|d| d.to_string()) else { return };
    let kind = match resource.split_once('.').map_or("", |(_, kind)| kind) {
        "cpu" if !matches!(divisor.as_str(), "1m" | "1") => {
            let why = "only divisor's values 1m and 1 are supported with the cpu resource";
            errors.push(invalid(&path.field("divisor"), resource, why));
            return;
        }
        "memory" => "memory",
        "ephemeral-storage" => "local ephemeral storage",
        _ if pages => "hugepages",
        _ => return,
    };
    if !DIVISORS.contains(&divisor.as_str()) {
        let why = format!("only divisor's values {} are supported with the {kind} resource", DIVISORS.join(", "));
        errors.push(invalid(&path.field("divisor"), resource, why));
    }
}
