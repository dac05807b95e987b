//! The fields that an object has, as a set of paths: what a manager who applies it comes to own.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Atom, Type};
use crate::api::apply::element::PathElement;
use crate::api::apply::fieldset::FieldSet;
use crate::schema::Schema;

/// Every leaf, item and map key of `value`, an object of `schema`.
pub fn field_set(value: &Value, schema: &Schema) -> FieldSet {
    let mut set = FieldSet::default();
    collect(value, &Type::root(schema), &mut set);
    set
}

/// Puts what is below `value` into `set` and says whether `value` itself is a leaf.
fn collect(value: &Value, of: &Type<'_>, set: &mut FieldSet) -> bool {
    let atom = of.atom(value);
    match (atom, value) {
        (Atom::Scalar | Atom::Atomic, _) => return true,
        (Atom::Map, Value::Object(fields)) => {
            // The map's order is the order of the set.
            for (name, value) in fields {
                let field = of.field(name);
                let named = field.as_ref().is_some_and(|field| field.named);
                let mut below = FieldSet::default();
                let leaf = collect(value, &field.map_or(Type::Any, |field| field.of), &mut below);
                let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                set.push(PathElement::field(name), leaf || empty || !named, below);
            }
        }
        (Atom::Set | Atom::Keyed(_), Value::Array(items)) => {
            let mut by_element: BTreeMap<PathElement, (&Value, bool)> = BTreeMap::new();
            for item in items {
                if let Ok(element) = of.item_element(atom, item) {
                    by_element.entry(element).and_modify(|(_, twice)| *twice = true).or_insert((item, false));
                }
            }
            let items = of.items();
            for (element, (item, twice)) in by_element {
                let mut below = FieldSet::default();
                if !twice {
                    collect(item, &items, &mut below);
                }
                set.push(element, true, below);
            }
        }
        _ => {}
    }
    false
}
