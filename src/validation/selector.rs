//! Selectors of labels and of nodes.

use serde_json::Value;

use super::field::{self, Errors, Path, invalid, items, text};
use super::{metadata, names};
use crate::status::FieldError;

/// A `LabelSelector`; an absent one is right.
pub fn label_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !selector.is_object() {
        return;
    }
    metadata::label_map(selector, "matchLabels", path, errors);
    let list = path.field("matchExpressions");
    for (i, requirement) in items(selector, "matchExpressions").iter().enumerate() {
        let path = list.index(i);
        let values = items(requirement, "values");
        match text(requirement, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors.push(FieldError::required(path.field("values"), "must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(path.field("values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            operator => errors.push(invalid(&path.field("operator"), operator, "not a valid selector operator")),
        }
        let key = text(requirement, "key");
        errors.extend(names::qualified(key).into_iter().map(|why| invalid(&path.field("key"), key, why)));
        let list = path.field("values");
        for (i, value) in values.iter().filter_map(Value::as_str).enumerate() {
            errors.extend(names::label_value(value).into_iter().map(|why| invalid(&list.index(i), value, why)));
        }
    }
}

/// Whether a selector selects nothing in particular.
pub fn is_empty(selector: &Value) -> bool {
    items(selector, "matchExpressions").is_empty() && field::map(selector, "matchLabels").is_none_or(serde_json::Map::is_empty)
}

/// A `NodeSelector`.
pub fn node_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    let terms = items(selector, "nodeSelectorTerms");
    let list = path.field("nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(FieldError::required(list, "must have at least one node selector term"));
    }
    for (i, term) in terms.iter().enumerate() {
        node_selector_term(term, &list.index(i), errors);
    }
}

/// One term of it.
pub fn node_selector_term(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["matchExpressions", "matchFields"] {
        let list = path.field(name);
        for (i, requirement) in items(term, name).iter().enumerate() {
            let path = list.index(i);
            let values = items(requirement, "values");
            match text(requirement, "operator") {
                "In" | "NotIn" if values.is_empty() => {
                    errors.push(FieldError::required(path.field("values"), "must be specified when `operator` is 'In' or 'NotIn'"));
                }
                "Exists" | "DoesNotExist" if !values.is_empty() => {
                    let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    errors.push(FieldError::forbidden(path.field("values"), why));
                }
                "Gt" | "Lt" if values.len() != 1 => {
                    errors
                        .push(FieldError::required(path.field("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'"));
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
                operator => errors.push(invalid(&path.field("operator"), operator, "not a valid selector operator")),
            }
            let key = text(requirement, "key");
            if name == "matchExpressions" {
                errors.extend(names::qualified(key).into_iter().map(|why| invalid(&path.field("key"), key, why)));
            } else if key != "metadata.name" {
                errors.push(invalid(&path.field("key"), key, "not a valid field selector key"));
            }
        }
    }
}

/// Whether a selector takes the Pods of a template. An absent one takes none, an empty one any.
pub fn takes(selector: &Value, template: &Value) -> bool {
    if !selector.is_object() {
        return false;
    }
    is_empty(selector) || crate::object::selector::LabelSelector::from_value(selector).is_none_or(|s| s.matches_value(template))
}
