//! Taking items out of an object by a set of paths.

use serde_json::Value;

use super::{Atom, Type};
use crate::api::apply::fieldset::{FieldSet, Node};

/// What becomes of an object or list out of which everything was taken.
#[derive(Clone, Copy, Debug)]
pub enum Emptied<'s> {
    /// It stays as null, so that it still counts as a field.
    Null,
    /// It goes, too, unless it is an object and its path is in this set: then it stays, empty.
    GoneUnlessIn(Option<&'s FieldSet>),
}

impl<'s> Emptied<'s> {
    fn below(self, node: impl FnOnce(&'s FieldSet) -> Option<&'s Node>) -> (Self, bool) {
        match self {
            Emptied::Null => (self, false),
            Emptied::GoneUnlessIn(kept) => {
                let node = kept.and_then(node);
                (Emptied::GoneUnlessIn(node.map(|node| &node.children)), node.is_some_and(|node| node.member))
            }
        }
    }
}

/// Takes `paths` out of `value`, with all that is below them.
pub fn remove(value: &mut Value, paths: &FieldSet, of: &Type<'_>, emptied: Emptied<'_>) {
    take(value, paths, of, emptied);
}

/// Says whether nothing is left.
fn take(value: &mut Value, paths: &FieldSet, of: &Type<'_>, emptied: Emptied<'_>) -> bool {
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
                let (below, kept) = emptied.below(|set| set.get_field(name));
                !take(value, &node.children, &field, below) || stays(value, emptied, kept)
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
                let (below, kept) = emptied.below(|set| set.get(&element));
                !take(item, &node.children, &items, below) || stays(item, emptied, kept)
            });
            list.is_empty()
        }
        // A path into something that is one value takes all of it.
        (_, value) => {
            *value = match value {
                Value::Array(_) => Value::Array(Vec::new()),
                _ => Value::Object(serde_json::Map::new()),
            };
            true
        }
    }
}

/// Whether a value of which nothing is left stays.
fn stays(value: &mut Value, emptied: Emptied<'_>, kept: bool) -> bool {
    match emptied {
        // Nobody can apply an empty list, so there is none to keep.
        Emptied::GoneUnlessIn(_) => kept && value.is_object(),
        Emptied::Null => {
            *value = Value::Null;
            true
        }
    }
}
