//! What changed between two objects, as sets of field paths. Equal parts are passed over without looking for paths in
//! them, so the cost is that of an equality check plus that of what changed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Atom, Type, fields_of, items_of};
use crate::api::apply::element::{self, PathElement};
use crate::api::apply::fieldset::{FieldSet, Step};
use crate::schema::Schema;

/// Fields of an object that no manager ever owns.
pub const NEVER_OWNED: [&str; 2] = ["apiVersion", "kind"];

/// Fields of `metadata` that no manager ever owns.
pub const NEVER_OWNED_METADATA: [&str; 9] =
    ["name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields", "resourceVersion"];

/// What the second object has more than, other than, and less than the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Only in the second.
    pub added: FieldSet,
    /// In both, but different.
    pub modified: FieldSet,
    /// Only in the first.
    pub removed: FieldSet,
}

impl Comparison {
    /// Whether nothing changed.
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }
}

/// Compares two objects of one schema. Of a built-in kind, a struct that is absent counts as empty, as it does for a real
/// server; so the first object may be `{}` for a create.
pub fn compare(before: &Value, after: &Value, schema: &Schema) -> Comparison {
    let builtin = schema.name.is_some();
    let mut walk = Walk { comparison: Comparison::default(), path: Vec::new(), builtin };
    walk.compare(Some(before), Some(after), &Type::root(schema));
    walk.comparison
}

struct Walk<'v> {
    comparison: Comparison,
    path: Vec<Step<'v>>,
    builtin: bool,
}

enum Change {
    Added,
    Modified,
    Removed,
}

impl<'v> Walk<'v> {
    fn compare(&mut self, before: Option<&'v Value>, after: Option<&'v Value>, of: &Type<'_>) {
        let leaf = match (before, after) {
            (None, None) => return,
            (Some(before), Some(after)) if before == after => return,
            (Some(value), None) | (None, Some(value)) => self.by_atom(of.atom(value), before, after, of),
            (Some(old), Some(new)) => {
                let (old, new) = (of.atom(old), of.atom(new));
                if old != new {
                    // The value became one of another kind: what it was goes, what it is comes.
                    self.by_atom(old, before, after, of);
                }
                self.by_atom(new, before, after, of)
            }
        };
        if !leaf {
            match (before, after) {
                (None, _) => self.note(Change::Added),
                (_, None) => self.note(Change::Removed),
                _ => {}
            }
        }
    }

    /// Says whether the value was treated as a leaf, and so was noted itself where it changed.
    fn by_atom(&mut self, atom: Atom<'_>, before: Option<&'v Value>, after: Option<&'v Value>, of: &Type<'_>) -> bool {
        match atom {
            Atom::Map => {
                let (old, new) = (fields_of(before), fields_of(after));
                if old.is_some() || new.is_some() {
                    let is_there = |side: Option<&Value>| self.builtin && side.is_some_and(Value::is_object);
                    self.fields(old, new, (is_there(before), is_there(after)), of);
                    return false;
                }
            }
            Atom::Set | Atom::Keyed(_) => {
                let (old, new) = (items_of(before), items_of(after));
                if old.is_some() || new.is_some() {
                    self.items(old.unwrap_or_default(), new.unwrap_or_default(), atom, of);
                    return false;
                }
            }
            Atom::Scalar | Atom::Atomic => {}
        }
        match (before, after) {
            (None, _) => self.note(Change::Added),
            (_, None) => self.note(Change::Removed),
            (Some(before), Some(after)) if !element::equal(before, after) => self.note(Change::Modified),
            _ => {}
        }
        true
    }

    /// `zeros` says on which side an absent field stands for the zero value that a real server has there.
    fn fields(
        &mut self,
        before: Option<&'v Map<String, Value>>,
        after: Option<&'v Map<String, Value>>,
        zeros: (bool, bool),
        of: &Type<'_>,
    ) {
        let mut old = before.into_iter().flatten().peekable();
        let mut new = after.into_iter().flatten().peekable();
        loop {
            let (name, mut before, mut after) = match (old.peek(), new.peek()) {
                (Some((a, _)), Some((b, _))) if a == b => {
                    let (Some((name, before)), Some((_, after))) = (old.next(), new.next()) else { return };
                    if before == after {
                        continue;
                    }
                    (name, Some(before), Some(after))
                }
                (Some((a, _)), Some((b, _))) if a > b => {
                    let Some((name, after)) = new.next() else { return };
                    (name, None, Some(after))
                }
                (Some(_), _) => {
                    let Some((name, before)) = old.next() else { return };
                    (name, Some(before), None)
                }
                (None, Some(_)) => {
                    let Some((name, after)) = new.next() else { return };
                    (name, None, Some(after))
                }
                (None, None) => return,
            };
            if self.is_never_owned(name) {
                continue;
            }
            let field = of.field(name).map_or(Type::Any, |field| field.of);
            if zeros.0 && before.is_none() {
                before = of.zero(name);
            }
            if zeros.1 && after.is_none() {
                after = of.zero(name);
            }
            self.path.push(Step::Field(name));
            self.compare(before, after, &field);
            self.path.pop();
        }
    }

    /// What the server itself keeps is nobody's, and so its changes are no changes.
    fn is_never_owned(&self, name: &str) -> bool {
        match self.path.as_slice() {
            [] => NEVER_OWNED.contains(&name),
            [Step::Field("metadata")] => NEVER_OWNED_METADATA.contains(&name),
            _ => false,
        }
    }

    fn items(&mut self, before: &'v [Value], after: &'v [Value], atom: Atom<'_>, of: &Type<'_>) {
        let mut by_element: BTreeMap<PathElement, (Vec<&'v Value>, Vec<&'v Value>)> = BTreeMap::new();
        for item in before {
            // An item without a key cannot be told apart, nor owned.
            if let Ok(element) = of.item_element(atom, item) {
                by_element.entry(element).or_default().0.push(item);
            }
        }
        for item in after {
            if let Ok(element) = of.item_element(atom, item) {
                by_element.entry(element).or_default().1.push(item);
            }
        }
        let items = of.items();
        for (element, (old, new)) in by_element {
            self.path.push(Step::Item(element));
            match (old.as_slice(), new.as_slice()) {
                ([] | [_], [] | [_]) => self.compare(old.first().copied(), new.first().copied(), &items),
                // Duplicates are owned as one, without what is in them.
                ([_, _, ..], [_, _, ..]) => {
                    if old.len() != new.len() || !old.iter().zip(&new).all(|(a, b)| element::equal(a, b)) {
                        self.note(Change::Modified);
                    }
                }
                ([_, _, ..], rest) => {
                    if let Some(item) = rest.first() {
                        self.compare(None, Some(item), &items);
                    }
                    self.note(Change::Removed);
                }
                (rest, _) => {
                    if let Some(item) = rest.first() {
                        self.compare(Some(item), None, &items);
                    }
                    self.note(Change::Added);
                }
            }
            self.path.pop();
        }
    }

    fn note(&mut self, change: Change) {
        let set = match change {
            Change::Added => &mut self.comparison.added,
            Change::Modified => &mut self.comparison.modified,
            Change::Removed => &mut self.comparison.removed,
        };
        set.insert_steps(&self.path);
    }
}
