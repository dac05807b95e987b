//! Taking items out of an object by a set of paths.

use serde_json::Value;

use super::{Atom, Type};
use crate::api::apply::fieldset::FieldSet;

/// What becomes of an object or list out of which everything was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// It stays as null, so that it still counts as a field.
    Null,
    /// It goes, too.
    Gone,
}

/// Takes `paths` out of `value`, with all that is below them.
pub fn remove(value: &mut Value, paths: &FieldSet, of: &Type<'_>, emptied: Emptied) {
    take(value, paths, of, emptied);
}

/// Says whether nothing is left.
fn take(value: &mut Value, paths: &FieldSet, of: &Type<'_>, emptied: Emptied) -> bool {
    let atom = of.atom(value);
    match (atom, value) {
        (Atom::Scalar, _) => false,
        (Atom::Map, Value::Object(fields)) => {
            fields.retain(|name, value| {
                let Some(node) = paths.get_field(name) else { return true };
                if node.member {
                    return false;
                }
                let field = of.field(name).map_or(Type::Any, |field| field.of);
                keep(take(value, &node.children, &field, emptied), value, emptied)
            });
            fields.is_empty()
        }
        (Atom::Set | Atom::Keyed(_), Value::Array(list)) => {
            let items = of.items();
            list.retain_mut(|item| {
                let Ok(element) = of.item_element(atom, item) else { return true };
                let Some(node) = paths.get(&element) else { return true };
                if node.member {
                    return false;
                }
                keep(take(item, &node.children, &items, emptied), item, emptied)
            });
            list.is_empty()
        }
        // A path into something that is one value takes all of it.
        _ => true,
    }
}

fn keep(nothing_left: bool, value: &mut Value, emptied: Emptied) -> bool {
    match (nothing_left, emptied) {
        (false, _) => true,
        (true, Emptied::Gone) => false,
        (true, Emptied::Null) => {
            *value = Value::Null;
            true
        }
    }
}
