//! CustomResourceDefinitions: names, versions, conversion, columns, and what may change. Their schemas are the subject of
//! [`super::structural`]; whether names collide with another definition's is decided where definitions are served.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, object, one_of, text};
use super::{names, structural, typed};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const APPROVAL: &str = "api-approved.kubernetes.io";

/// A new definition.
pub fn create(definition: &Value, errors: &mut Errors) {
    let (name, spec) = (text(&definition["metadata"], "name"), &definition["spec"]);
    let names = &spec["names"];
    if !name.is_empty() && name != format!("{}.{}", text(names, "plural"), text(spec, "group")) {
        errors.push(invalid(&Path::root("metadata").field("name"), name, "must be spec.names.plural+\".\"+spec.group"));
    }
    check(definition, errors);
    stored_versions(definition, errors);
    approval(definition, errors);
}

/// A changed definition.
pub fn update(new: &Value, old: &Value, errors: &mut Errors) {
    // What has not changed was right when it was written.
    if new["spec"] != old["spec"] {
        check(new, errors);
    }
    let established = items(&old["status"], "conditions").iter().any(|c| c["type"] == "Established" && c["status"] == "True");
    if established {
        for name in ["group", "scope"] {
            field::immutable(errors, &new["spec"], &old["spec"], &SPEC, name);
        }
        for name in ["kind", "plural"] {
            field::immutable(errors, &new["spec"]["names"], &old["spec"]["names"], &SPEC.field("names"), name);
        }
    }
    stored_versions(new, errors);
}

fn check(definition: &Value, errors: &mut Errors) {
    let spec = &definition["spec"];
    let group = text(spec, "group");
    let path = SPEC.field("group");
    if group.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        let wrong = names::subdomain(group);
        if !wrong.is_empty() {
            errors.push(invalid(&path, group, wrong.join(",")));
        } else if !group.contains('.') {
            errors.push(invalid(&path, group, "should be a domain with at least one dot"));
        }
    }
    one_of(errors, spec, &SPEC, "scope", true, &["Cluster", "Namespaced"]);
    versions(spec, errors);
    names_of(spec, errors);
    // What all versions have in common is told as if it stood at the top, where it once could.
    if let Some(first) = items(spec, "versions").first() {
        if is_shared(spec, "schema") {
            let status = items(spec, "versions").iter().any(has_status);
            schema_of(first, status, &SPEC.field("validation"), errors);
        }
        if is_shared(spec, "subresources") {
            subresources(first, &SPEC, errors);
        }
        if is_shared(spec, "additionalPrinterColumns") {
            columns(first, &SPEC, errors);
        }
        if is_shared(spec, "selectableFields") {
            selectable(first, &SPEC, errors);
        }
    }
    conversion(spec, errors);
    if spec["preserveUnknownFields"] == true {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid(SPEC.field("preserveUnknownFields"), &true.into(), why));
    }
}

/// Whether all versions say the same.
fn is_shared(spec: &Value, word: &str) -> bool {
    let given = |version: &Value| version.get(word).filter(|v| !v.is_null()).cloned();
    items(spec, "versions").windows(2).all(|pair| given(&pair[0]) == given(&pair[1]))
}

fn has_status(version: &Value) -> bool {
    has(&version["subresources"], "status")
}

fn schema_of(version: &Value, has_status: bool, path: &Path<'_>, errors: &mut Errors) {
    if let Some(schema) = object(&version["schema"], "openAPIV3Schema") {
        structural::validate(schema, has_status, &path.field("openAPIV3Schema"), errors);
    }
}

fn versions(spec: &Value, errors: &mut Errors) {
    let list = SPEC.field("versions");
    let versions = items(spec, "versions");
    for (i, _) in versions.iter().enumerate().filter(|(_, version)| object(&version["schema"], "openAPIV3Schema").is_none()) {
        errors.push(FieldError::required(list.index(i).field("schema").field("openAPIV3Schema"), ""));
    }
    let mut unique = true;
    for (i, version) in versions.iter().enumerate() {
        let name = text(version, "name");
        unique &= !versions[..i].iter().any(|v| text(v, "name") == name);
        let path = list.index(i);
        let wrong = names::label_1035(name);
        if !wrong.is_empty() {
            errors.push(invalid(&path.field("name"), name, wrong.join(",")));
        }
        if version["deprecationWarning"] == "" {
            errors.push(invalid(&path.field("deprecationWarning"), "", "must not be an empty string"));
        }
        let warning = text(version, "deprecationWarning");
        if !warning.is_empty() && version["deprecated"] != true {
            errors.push(invalid(&path.field("deprecationWarning"), warning, "can only be set for deprecated versions"));
        }
        if !is_shared(spec, "schema") {
            schema_of(version, has_status(version), &path.field("schema"), errors);
        }
        if !is_shared(spec, "subresources") {
            subresources(version, &path, errors);
        }
        if !is_shared(spec, "additionalPrinterColumns") {
            columns(version, &path, errors);
        }
        if !is_shared(spec, "selectableFields") {
            selectable(version, &path, errors);
        }
    }
    let whole = |why: &str| {
        let value = structural::go_text(&typed::list(&in_go(spec), "CustomResourceDefinitionVersion"));
        FieldError { value, ..invalid(&list, "", why) }
    };
    if !unique {
        errors.push(whole("must contain unique version names"));
    }
    if versions.iter().filter(|v| v["storage"] == true).count() != 1 {
        errors.push(whole("must have exactly one version marked as storage version"));
    }
    let first = versions.first().map(|version| text(version, "name")).unwrap_or_default();
    let wrong = names::label_1035(first);
    if !first.is_empty() && !wrong.is_empty() {
        errors.push(invalid(&SPEC.field("version"), first, wrong.join(",")));
    }
}

/// The versions as a real server holds them: without what they have in common.
fn in_go(spec: &Value) -> Value {
    let shared: Vec<&str> = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"]
        .into_iter()
        .filter(|word| is_shared(spec, word))
        .collect();
    let one = |version: &Value| {
        let mut version = version.clone();
        if let Some(fields) = version.as_object_mut() {
            fields.retain(|word, _| !shared.contains(&word.as_str()));
        }
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
            *schema = structural::in_go(schema);
        }
        version
    };
    spec.get("versions").filter(|v| v.is_array()).map_or(Value::Null, |_| items(spec, "versions").iter().map(one).collect())
}

/// The versions that objects are or were stored in: the one of now is among them.
fn stored_versions(definition: &Value, errors: &mut Errors) {
    let stored = items(&definition["status"], "storedVersions");
    let path = Path::root("status");
    let path = path.field("storedVersions");
    if stored.is_empty() {
        errors.push(FieldError::invalid(path, &Value::Null, "must have at least one stored version"));
        return;
    }
    let versions = items(&definition["spec"], "versions");
    let of_now = versions.iter().rev().find(|version| version["storage"] == true).map(|version| text(version, "name"));
    if let Some(of_now) = of_now.filter(|name| !stored.iter().any(|s| s == name)) {
        let why = format!("must have the storage version {of_now}");
        errors.push(FieldError::invalid(path, &stored.to_vec().into(), why));
    }
    for (i, version) in stored.iter().filter_map(Value::as_str).enumerate() {
        if !versions.iter().any(|v| v["name"] == version) {
            let why = format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"
            );
            errors.push(invalid(&path.index(i), version, why));
        }
    }
}

fn columns(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("additionalPrinterColumns");
    for (i, column) in items(version, "additionalPrinterColumns").iter().enumerate() {
        let path = list.index(i);
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(path.field("name"), ""));
        }
        let kind = text(column, "type");
        if kind.is_empty() {
            errors.push(FieldError::required(path.field("type"), "must be one of boolean,date,integer,number,string"));
        } else if !["boolean", "date", "integer", "number", "string"].contains(&kind) {
            errors.push(invalid(&path.field("type"), kind, "must be one of boolean,date,integer,number,string"));
        }
        let format = text(column, "format");
        if !["", "byte", "date", "date-time", "double", "float", "int32", "int64", "password"].contains(&format) {
            let why = "must be one of byte,date,date-time,double,float,int32,int64,password";
            errors.push(invalid(&path.field("format"), format, why));
        }
        let chosen = text(column, "jsonPath");
        if chosen.is_empty() {
            errors.push(FieldError::required(path.field("JSONPath"), ""));
        } else if !chosen.starts_with('.') {
            errors.push(invalid(&path.field("JSONPath"), chosen, "must be a simple json path starting with ."));
        }
    }
}

/// Fields that lists of objects can be narrowed by.
fn selectable(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("selectableFields");
    let selectable = items(version, "selectableFields");
    let root = &version["schema"]["openAPIV3Schema"];
    if !selectable.is_empty() && !root.is_object() {
        let why = "may only be set when `version.schema.openAPIV3Schema` is not included";
        errors.push(invalid(&list, "", why));
        return;
    }
    let mut seen: Vec<&str> = Vec::new();
    for (i, selected) in selectable.iter().enumerate() {
        let path = list.index(i);
        let path = path.field("jsonPath");
        let chosen = text(selected, "jsonPath");
        if chosen.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        if !chosen.starts_with(['.', '[']) {
            let word = chosen.split(['.', '[']).next().unwrap_or_default();
            errors.push(invalid(&path, chosen, format!("is an invalid path: expected [ or . but got: {word}")));
            continue;
        }
        let steps: Vec<&str> = chosen.trim_start_matches('.').split('.').collect();
        let found = steps.iter().try_fold(root, |schema, name| schema["properties"].get(*name));
        // The metadata of an object is known without a schema of it.
        let kind = match found.map(|schema| text(schema, "type")) {
            None if steps[0] == "metadata" => "",
            None => {
                errors.push(invalid(&path, chosen, "is an invalid path: does not refer to a valid field"));
                continue;
            }
            Some(kind) => kind,
        };
        if steps[0] == "metadata" {
            errors.push(invalid(&path, chosen, "must not point to fields in metadata"));
        } else if !matches!(kind, "string" | "boolean" | "integer") {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(invalid(&path, chosen, why));
        }
        if seen.contains(&chosen) {
            errors.push(FieldError::duplicate(path, &chosen.into()));
        } else {
            seen.push(chosen);
        }
    }
    if seen.len() > 8 {
        errors.push(FieldError::too_many(list, seen.len(), 8));
    }
}

fn subresources(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(scale) = object(&version["subresources"], "scale") else { return };
    let path = path.field("subresources");
    let path = path.field("scale");
    for (name, roots, required) in [
        ("specReplicasPath", &[".spec"][..], true),
        ("statusReplicasPath", &[".status"][..], true),
        ("labelSelectorPath", &[".status", ".spec"][..], false),
    ] {
        let chosen = text(scale, name);
        let under = |root: &&str| chosen.strip_prefix(*root).is_some_and(|rest| rest.starts_with('.') && rest.len() > 1);
        if chosen.is_empty() {
            if required {
                errors.push(FieldError::required(path.field(name), ""));
            }
        } else if !chosen.starts_with('.') {
            errors.push(invalid(&path.field(name), chosen, "must be a simple json path starting with ."));
        } else if !roots.iter().any(under) {
            let why = match roots.len() {
                1 => format!("should be a json path under {}", roots[0]),
                _ => "should be a json path under either .spec or .status".to_owned(),
            };
            errors.push(invalid(&path.field(name), chosen, why));
        }
    }
}

fn names_of(spec: &Value, errors: &mut Errors) {
    let path = SPEC.field("names");
    let names = &spec["names"];
    const NAMES: [&str; 4] = ["plural", "singular", "kind", "listKind"];
    for word in NAMES.into_iter().filter(|word| text(names, word).is_empty()) {
        errors.push(FieldError::required(path.field(word), ""));
    }
    let label = |errors: &mut Errors, name: &str, path: Path<'_>| {
        let mixed = matches!(path.to_string().as_str(), "spec.names.kind" | "spec.names.listKind");
        let wrong = if mixed { names::label_1035(&name.to_lowercase()) } else { names::label_1035(name) };
        let optional = name.is_empty() && !path.to_string().ends_with(']');
        if !wrong.is_empty() && !optional {
            let opening = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            errors.push(invalid(&path, name, format!("{opening}{}", wrong.join(","))));
        }
    };
    for word in NAMES {
        label(errors, text(names, word), path.field(word));
    }
    for (i, name) in items(names, "shortNames").iter().filter_map(Value::as_str).enumerate() {
        label(errors, name, path.field("shortNames").index(i));
    }
    let kind = text(names, "kind");
    if !kind.is_empty() && kind == text(names, "listKind") {
        errors.push(invalid(&path.field("listKind"), kind, "kind and listKind may not be the same"));
    }
    for (i, name) in items(names, "categories").iter().filter_map(Value::as_str).enumerate() {
        label(errors, name, path.field("categories").index(i));
    }
}

fn conversion(spec: &Value, errors: &mut Errors) {
    let Some(conversion) = object(spec, "conversion") else { return };
    let path = SPEC.field("conversion");
    one_of(errors, conversion, &path, "strategy", true, &["None", "Webhook"]);
    match text(conversion, "strategy") {
        "Webhook" => {
            let client = path.field("webhookClientConfig");
            match object(&conversion["webhook"], "clientConfig") {
                None => errors.push(FieldError::required(client, "required when strategy is set to Webhook")),
                Some(config) => super::webhook::client_config(config, &client, errors),
            }
            let versions = items(&conversion["webhook"], "conversionReviewVersions");
            let list = path.field("conversionReviewVersions");
            for (i, version) in versions.iter().filter_map(Value::as_str).enumerate() {
                if versions[..i].iter().any(|v| v == version) {
                    errors.push(invalid(&list.index(i), version, "duplicate version"));
                    continue;
                }
                errors.extend(names::label_1035(version).into_iter().map(|why| invalid(&list.index(i), version, why)));
            }
            if versions.is_empty() {
                errors.push(FieldError::required(list, ""));
            } else if !versions.iter().any(|v| matches!(v.as_str(), Some("v1" | "v1beta1"))) {
                let why = "must include at least one of v1, v1beta1";
                errors.push(FieldError::invalid(list, &Value::from(versions.to_vec()), why));
            }
        }
        _ => {
            let why = "should not be set when strategy is not set to Webhook";
            if has(&conversion["webhook"], "clientConfig") {
                errors.push(FieldError::forbidden(path.field("webhookClientConfig"), why));
            }
            if !items(&conversion["webhook"], "conversionReviewVersions").is_empty() {
                errors.push(FieldError::forbidden(path.field("conversionReviewVersions"), why));
            }
        }
    }
}

/// Groups of the Kubernetes project need somebody's word for it that they were approved.
fn approval(definition: &Value, errors: &mut Errors) {
    let group = text(&definition["spec"], "group");
    let protected =
        ["k8s.io", "kubernetes.io"].iter().any(|d| group == *d || group.strip_suffix(d).is_some_and(|rest| rest.ends_with('.')));
    if !protected {
        return;
    }
    let annotations = Path::root("metadata");
    let annotations = annotations.field("annotations");
    let path = annotations.key(APPROVAL);
    match text(&definition["metadata"]["annotations"], APPROVAL) {
        "" => {
            let why = format!(
                "protected groups must have approval annotation \"{APPROVAL}\", see https://github.com/kubernetes/enhancements/pull/1111"
            );
            errors.push(FieldError::required(path, why));
        }
        word if word.starts_with("unapproved") || word.contains("://") => {}
        word => {
            let why = format!(
                "protected groups must have approval annotation \"{APPROVAL}\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
            );
            errors.push(invalid(&path, word, why));
        }
    }
}
