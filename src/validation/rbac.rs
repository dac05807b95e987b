//! Roles and their bindings.

use serde_json::Value;

use super::field::{Errors, Path, invalid, items, required, text, wrong};
use super::{names, selector};
use crate::status::{FieldError, FieldReason};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A Role or ClusterRole.
pub fn role(role: &Value, namespaced: bool, errors: &mut Errors) {
    let list = Path::root("rules");
    for (i, rule) in items(role, "rules").iter().enumerate() {
        self::rule(rule, &list.index(i), namespaced, errors);
    }
    let selectors = Path::root("aggregationRule");
    let selectors = selectors.field("clusterRoleSelectors");
    if role["aggregationRule"].is_object() {
        let chosen = items(&role["aggregationRule"], "clusterRoleSelectors");
        if chosen.is_empty() {
            errors.push(FieldError::required(selectors, "at least one clusterRoleSelector required if aggregationRule is non-nil"));
        }
        for (i, one) in chosen.iter().enumerate() {
            selector::label_selector(one, &selectors.index(i), errors);
            if !selector::is_readable(one) {
                errors.push(FieldError::invalid(selectors.index(i), &Value::Null, "invalid label selector."));
            }
        }
    }
    // By newer rules, told last.
    for (i, rule) in items(role, "rules").iter().enumerate() {
        required(errors, rule, &list.index(i), &["verbs"]);
    }
}

fn rule(rule: &Value, path: &Path<'_>, namespaced: bool, errors: &mut Errors) {
    let urls = items(rule, "nonResourceURLs");
    if !urls.is_empty() {
        let shown = Value::from(urls.to_vec());
        let path = path.field("nonResourceURLs");
        if namespaced {
            errors.push(FieldError::invalid(path, &shown, "namespaced rules cannot apply to non-resource URLs"));
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|name| !items(rule, name).is_empty()) {
            errors.push(FieldError::invalid(path, &shown, "rules cannot apply to both regular resources and non-resource URLs"));
        }
    } else {
        if items(rule, "apiGroups").is_empty() {
            errors.push(FieldError::required(path.field("apiGroups"), "resource rules must supply at least one api group"));
        }
        if items(rule, "resources").is_empty() {
            errors.push(FieldError::required(path.field("resources"), "resource rules must supply at least one resource"));
        }
    }
    if items(rule, "verbs").is_empty() {
        errors.push(FieldError::required(path.field("verbs"), ""));
    }
}

/// A RoleBinding or ClusterRoleBinding.
pub fn binding(binding: &Value, namespaced: bool, errors: &mut Errors) {
    let path = Path::root("roleRef");
    let reference = &binding["roleRef"];
    let group = text(reference, "apiGroup");
    if group != GROUP {
        errors.push(FieldError::not_supported(path.field("apiGroup"), &group.into(), &[GROUP]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let kind = text(reference, "kind");
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported(path.field("kind"), &kind.into(), kinds));
    }
    let name = text(reference, "name");
    wrong(errors, &path.field("name"), name, names::path_segment(name));
    let list = Path::root("subjects");
    for (i, subject) in items(binding, "subjects").iter().enumerate() {
        self::subject(subject, namespaced, &list.index(i), errors);
    }
    // By newer rules, told last.
    for (i, subject) in items(binding, "subjects").iter().enumerate() {
        required(errors, subject, &list.index(i), &["name"]);
    }
    required(errors, reference, &path, &["name"]);
}

fn subject(subject: &Value, namespaced: bool, path: &Path<'_>, errors: &mut Errors) {
    let name = text(subject, "name");
    let group = text(subject, "apiGroup");
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.extend(names::subdomain(name).into_iter().map(|why| invalid(&path.field("name"), name, why)));
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(path.field("apiGroup"), &group.into(), &[""]));
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(path.field("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.push(FieldError::not_supported(path.field("apiGroup"), &group.into(), &[GROUP]));
            }
        }
        kind => errors.push(FieldError::not_supported(path.field("kind"), &kind.into(), &["ServiceAccount", "User", "Group"])),
    }
}

/// A binding goes on to bind the same role.
pub fn update_binding(new: &Value, old: &Value, namespaced: bool, errors: &mut Errors) {
    binding(new, namespaced, errors);
    let (after, before) = (&new["roleRef"], &old["roleRef"]);
    if after != before {
        // The value is shown as the server holds it, with the names of Go.
        let of = |name: &str| Value::from(text(after, name)).to_string();
        let value = format!("{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}", of("apiGroup"), of("kind"), of("name"));
        errors.push(FieldError { field: "roleRef".into(), reason: FieldReason::Invalid, value, detail: "field is immutable".into() });
    }
}
