//! Whether an applied configuration fits its schema as far as merging needs it: declared fields, kinds of values, keys of
//! items. Everything else about an object is validated later, on the merged one.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::{Atom, Type};
use crate::api::apply::element::PathElement;
use crate::api::apply::fieldset::Step;
use crate::api::patch::go;
use crate::schema::{Schema, Shape};

/// All that does not fit; printed as structured-merge-diff prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeErrors(Vec<(String, String)>);

impl fmt::Display for TypeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |f: &mut fmt::Formatter<'_>, (path, message): &(String, String)| match path.is_empty() {
            true => f.write_str(message),
            false => write!(f, "{path}: {message}"),
        };
        match self.0.as_slice() {
            [only] => one(f, only),
            all => {
                f.write_str("errors:")?;
                for error in all {
                    f.write_str("\n  ")?;
                    one(f, error)?;
                }
                Ok(())
            }
        }
    }
}

/// Checks `value` against `schema`; duplicates in sets and lists by key are an error.
pub fn validate(value: &Value, schema: &Schema) -> Result<(), TypeErrors> {
    let mut walk = Walk { path: Vec::new(), errors: Vec::new() };
    walk.value(value, &Type::root(schema));
    if walk.errors.is_empty() { Ok(()) } else { Err(TypeErrors(walk.errors)) }
}

struct Walk<'v> {
    path: Vec<Step<'v>>,
    errors: Vec<(String, String)>,
}

impl<'v> Walk<'v> {
    fn error(&mut self, message: String) {
        let path = self.path.iter().map(|step| step.to_element().to_string()).collect();
        self.errors.push((path, message));
    }

    fn below(&mut self, step: Step<'v>, visit: impl FnOnce(&mut Self)) {
        self.path.push(step);
        visit(self);
        self.path.pop();
    }

    fn value(&mut self, value: &'v Value, of: &Type<'_>) {
        if value.is_null() {
            return;
        }
        let printed = || format!("&{{{}}}", go::plain(value));
        match of.schema().map(|schema| &schema.shape) {
            None | Some(Shape::Any) => {}
            Some(Shape::Object(_)) => match value {
                Value::Object(fields) => {
                    for (name, value) in fields {
                        match of.field(name) {
                            Some(field) => self.below(Step::Field(name), |walk| walk.value(value, &field.of)),
                            None => {
                                self.below(Step::Field(name), |walk| walk.error("field not declared in schema".into()));
                                return;
                            }
                        }
                    }
                }
                _ => self.error(format!("expected map, got {}", printed())),
            },
            Some(Shape::Array { .. }) => match value {
                Value::Array(items) => self.items(items, of.atom(value), of),
                _ => self.error(format!("expected list, got {}", printed())),
            },
            Some(Shape::String { format: Some(format) }) if matches!(&**format, "int-or-string" | "quantity") => self.scalar(value),
            Some(Shape::IntOrString) => self.scalar(value),
            Some(Shape::String { .. }) => {
                if !value.is_string() {
                    self.error(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go::syntax(value)));
                }
            }
            Some(Shape::Integer { .. } | Shape::Number) => {
                if !value.is_number() {
                    self.error(format!("expected numeric (int or float), got {}", go::type_name(value)));
                }
            }
            Some(Shape::Boolean) => {
                if !value.is_boolean() {
                    self.error(format!("expected boolean, got {}", printed()));
                }
            }
        }
    }

    fn scalar(&mut self, value: &Value) {
        if value.is_object() || value.is_array() {
            self.error(format!("expected any scalar, got &{{{}}}", go::plain(value)));
        }
    }

    fn items(&mut self, items: &'v [Value], atom: Atom<'_>, of: &Type<'_>) {
        let item_type = of.items();
        let mut seen = BTreeSet::new();
        for (i, item) in items.iter().enumerate() {
            let element = match atom {
                Atom::Set | Atom::Keyed(_) => match of.item_element(atom, item) {
                    Ok(element) => element,
                    Err(why) => {
                        self.error(format!("element {i}: {why}"));
                        return;
                    }
                },
                _ => PathElement::Index(i64::try_from(i).unwrap_or(i64::MAX)),
            };
            if matches!(atom, Atom::Set | Atom::Keyed(_)) && items.len() > 1 && !seen.insert(element.clone()) {
                self.error(format!("duplicate entries for key {element}"));
            }
            self.below(Step::Item(element), |walk| walk.value(item, &item_type));
        }
    }
}
