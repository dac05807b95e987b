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

/// Whether a selector can be read at all: known operators with as many values as they take, and names that can be labels.
pub fn is_readable(selector: &Value) -> bool {
    let mut errors = Vec::new();
    label_selector(selector, &Path::object(), &mut errors);
    errors.is_empty()
}

/// A `NodeSelector`.
pub fn node_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    let terms = items(selector, "nodeSelectorTerms");
    let list = path.field("nodeSelectorTerms");
    if terms.is_empty() {
        errors.push(FieldError::required(list, "must have at least one node selector term"));
    }
    for (i, term) in terms.iter().enumerate() {
        node_selector_term(term, &list.index(i), true, errors);
    }
}

/// One term of it. Values are held to the shape of labels only where they must match, not where they are a wish.
pub fn node_selector_term(term: &Value, path: &Path<'_>, values_checked: bool, errors: &mut Errors) {
    let list = path.field("matchExpressions");
    for (i, requirement) in items(term, "matchExpressions").iter().enumerate() {
        let path = list.index(i);
        let values = items(requirement, "values");
        let at = path.field("values");
        match text(requirement, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors.push(FieldError::required(at, "must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.push(FieldError::forbidden(at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"));
            }
            "Gt" | "Lt" if values.len() != 1 => {
                errors.push(FieldError::required(at, "must be specified single value when `operator` is 'Lt' or 'Gt'"));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            operator => errors.push(invalid(&path.field("operator"), operator, "not a valid selector operator")),
        }
        let key = text(requirement, "key");
        field::wrong(errors, &path.field("key"), key, names::qualified(key));
        for (i, value) in values.iter().filter_map(Value::as_str).enumerate().filter(|_| values_checked) {
            field::wrong(errors, &at.index(i), value, names::label_value(value));
        }
    }
    let list = path.field("matchFields");
    for (i, requirement) in items(term, "matchFields").iter().enumerate() {
        let path = list.index(i);
        let values = items(requirement, "values");
        let at = path.field("values");
        match text(requirement, "operator") {
            "In" | "NotIn" if values.len() != 1 => {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.push(FieldError::required(at, why));
            }
            "In" | "NotIn" => {}
            operator => errors.push(invalid(&path.field("operator"), operator, "not a valid selector operator")),
        }
        let key = text(requirement, "key");
        if key == "metadata.name" {
            for (i, name) in values.iter().filter_map(Value::as_str).enumerate() {
                field::wrong(errors, &at.index(i), name, names::subdomain(name));
            }
        } else {
            errors.push(invalid(&path.field("key"), key, "not a valid field selector key"));
        }
    }
}

/// A `TopologySelectorTerm`: keys and values that appear once.
pub fn topology_term(term: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("matchLabelExpressions");
    let expressions = items(term, "matchLabelExpressions");
    for (i, expression) in expressions.iter().enumerate() {
        let path = list.index(i);
        let (key, values, at) = (text(expression, "key"), items(expression, "values"), path.field("values"));
        field::required(errors, expression, &path, &["values"]);
        for (i, value) in values.iter().enumerate().filter(|(i, value)| values[..*i].contains(value)) {
            errors.push(FieldError::duplicate(at.index(i), value));
        }
        field::wrong(errors, &path.field("key"), key, names::qualified(key));
        if expressions[..i].iter().any(|e| text(e, "key") == key) {
            errors.push(FieldError::duplicate(path.field("key"), &key.into()));
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
