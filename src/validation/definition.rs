//! CustomResourceDefinitions: names, versions, conversion, columns, and what may change. Their schemas are the subject of
//! [`super::structural`]; whether names collide with another definition's is decided where definitions are served.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, object, one_of, text};
use super::{names, structural};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const APPROVAL: &str = "api-approved.kubernetes.io";

/// A new definition.
pub fn create(definition: &Value, errors: &mut Errors) {
    let (name, spec) = (text(&definition["metadata"], "name"), &definition["spec"]);
    let names = &spec["names"];
    if name != format!("{}.{}", text(names, "plural"), text(spec, "group")) {
        errors.push(invalid(&Path::root("metadata").field("name"), name, "must be spec.names.plural+\".\"+spec.group"));
    }
    check(definition, errors);
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
    let stored = Path::root("status");
    let stored = stored.field("storedVersions");
    for (i, version) in items(&new["status"], "storedVersions").iter().filter_map(Value::as_str).enumerate() {
        if !items(&new["spec"], "versions").iter().any(|v| v["name"] == version) {
            let why = format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"
            );
            errors.push(invalid(&stored.index(i), version, why));
        }
    }
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
    conversion(spec, errors);
    if spec["preserveUnknownFields"] == true {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(FieldError::invalid(SPEC.field("preserveUnknownFields"), &true.into(), why));
    }
}

fn versions(spec: &Value, errors: &mut Errors) {
    let list = SPEC.field("versions");
    let versions = items(spec, "versions");
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
    }
    // A schema that all versions share is told as if it stood at the top, where it once could.
    let shared = versions.windows(2).all(|pair| pair[0]["schema"] == pair[1]["schema"]);
    for (i, version) in versions.iter().enumerate() {
        let path = list.index(i);
        let validation = if shared { SPEC.field("validation") } else { path.field("schema") };
        match object(&version["schema"], "openAPIV3Schema") {
            None => errors.push(FieldError::required(path.field("schema").field("openAPIV3Schema"), "")),
            Some(_) if shared && i > 0 => {}
            Some(schema) => structural::validate(schema, &validation.field("openAPIV3Schema"), errors),
        }
        columns(version, &if shared && versions.len() == 1 { SPEC } else { path }, errors);
        subresources(version, &if shared && versions.len() == 1 { SPEC } else { path }, errors);
    }
    let whole = spec.get("versions").unwrap_or(&Value::Null);
    if !unique {
        errors.push(FieldError::invalid(list, whole, "must contain unique version names"));
    }
    if versions.iter().filter(|v| v["storage"] == true).count() != 1 {
        errors.push(FieldError::invalid(list, whole, "must have exactly one version marked as storage version"));
        let stored = Path::root("status");
        errors.push(FieldError::invalid(stored.field("storedVersions"), &Value::Null, "must have at least one stored version"));
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
    let list = path.field("selectableFields");
    let selectable = items(version, "selectableFields");
    if selectable.len() > 8 {
        errors.push(FieldError::too_many(list, selectable.len(), 8));
    }
    for (i, selected) in selectable.iter().enumerate() {
        let path = list.index(i);
        let chosen = text(selected, "jsonPath");
        if chosen.is_empty() {
            errors.push(FieldError::required(path.field("jsonPath"), ""));
            continue;
        }
        if !chosen.starts_with(['.', '[']) {
            let word = chosen.split(['.', '[']).next().unwrap_or_default();
            errors.push(invalid(&path.field("jsonPath"), chosen, format!("is an invalid path: expected [ or . but got: {word}")));
            continue;
        }
        if selectable[..i].iter().any(|s| text(s, "jsonPath") == chosen) {
            errors.push(FieldError::duplicate(path.field("jsonPath"), &chosen.into()));
        }
        if chosen.starts_with(".metadata") {
            errors.push(invalid(&path.field("jsonPath"), chosen, "must not point to fields in metadata"));
            continue;
        }
        let root = &version["schema"]["openAPIV3Schema"];
        let found = chosen.trim_start_matches('.').split('.').try_fold(root, |schema, name| schema["properties"].get(name));
        match found.map(|schema| text(schema, "type")) {
            None => errors.push(invalid(&path.field("jsonPath"), chosen, "is an invalid path: does not refer to a valid field")),
            Some("string" | "boolean" | "integer") => {}
            Some(_) => {
                let why =
                    "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
                errors.push(invalid(&path.field("jsonPath"), chosen, why));
            }
        }
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
    let mut label = |name: &str, path: Path<'_>, required: bool| {
        if name.is_empty() {
            if required {
                errors.push(FieldError::required(path, ""));
            }
            return;
        }
        let wrong = names::label_1035(&name.to_ascii_lowercase());
        if !wrong.is_empty()
            || (!matches!(path.to_string().as_str(), "spec.names.kind" | "spec.names.listKind")
                && name.bytes().any(|b| b.is_ascii_uppercase()))
        {
            let mixed = matches!(path.to_string().as_str(), "spec.names.kind" | "spec.names.listKind");
            let wrong = if wrong.is_empty() { names::label_1035(name) } else { wrong };
            let opening = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            errors.push(invalid(&path, name, format!("{opening}{}", wrong.join(","))));
        }
    };
    label(text(names, "plural"), path.field("plural"), true);
    label(text(names, "singular"), path.field("singular"), false);
    label(text(names, "kind"), path.field("kind"), true);
    label(text(names, "listKind"), path.field("listKind"), false);
    for list in ["shortNames", "categories"] {
        for (i, name) in items(names, list).iter().filter_map(Value::as_str).enumerate() {
            label(name, path.field(list).index(i), true);
        }
    }
    let kind = text(names, "kind");
    if !kind.is_empty() && kind == text(names, "listKind") {
        errors.push(invalid(&path.field("listKind"), kind, "kind and listKind may not be the same"));
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
            if versions.is_empty() {
                errors.push(FieldError::required(list, ""));
            } else if !versions.iter().any(|v| matches!(v.as_str(), Some("v1" | "v1beta1"))) {
                let why = "must include at least one of v1, v1beta1";
                errors.push(FieldError::invalid(list, &Value::from(versions.to_vec()), why));
            }
        }
        _ if has(conversion, "webhook") => {
            errors.push(FieldError::forbidden(path.field("webhookClientConfig"), "should not be set when strategy is not set to Webhook"));
        }
        _ => {}
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
