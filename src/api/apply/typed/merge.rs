//! An applied configuration laid over the live object. Nothing is removed by this: what a manager no longer applies is taken
//! out afterwards, by what it owned before.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Atom, Type};
use crate::api::apply::element::PathElement;
use crate::schema::Schema;

/// Merges `applied` into `live`, both objects of `schema`. `applied` must have been validated.
pub fn merge(live: &mut Value, applied: &Value, schema: &Schema) {
    merge_into(live, applied, &Type::root(schema));
}

fn merge_into(live: &mut Value, applied: &Value, of: &Type<'_>) {
    let atom = of.atom(applied);
    match (atom, live, applied) {
        (Atom::Map, Value::Object(live), Value::Object(applied)) => {
            for (name, applied) in applied {
                match live.get_mut(name) {
                    Some(live) => merge_into(live, applied, &of.field(name).map_or(Type::Any, |field| field.of)),
                    None => {
                        live.insert(name.clone(), applied.clone());
                    }
                }
            }
        }
        (Atom::Set | Atom::Keyed(_), Value::Array(live), Value::Array(applied)) if !live.is_empty() => {
            if !applied.is_empty() {
                let merged = merge_lists(std::mem::take(live), applied, atom, of);
                *live = merged;
            }
        }
        // No opinion does not empty what is there.
        (Atom::Map, Value::Object(live), Value::Null) if !live.is_empty() => {}
        (Atom::Set | Atom::Keyed(_), Value::Array(live), Value::Null) if !live.is_empty() => {}
        (_, live, applied) => *live = applied.clone(),
    }
}

/// Items of both lists stand in the applied order, and the others stay where they are between them.
fn merge_lists(live: Vec<Value>, applied: &[Value], atom: Atom<'_>, of: &Type<'_>) -> Vec<Value> {
    let element = |item: &Value| of.item_element(atom, item).ok();
    let right: Vec<(PathElement, &Value)> = applied.iter().filter_map(|item| Some((element(item)?, item))).collect();
    let mut left: Vec<(PathElement, Option<Value>)> = Vec::with_capacity(live.len());
    let mut unkeyed = Vec::new();
    for item in live {
        match element(&item) {
            Some(element) => left.push((element, Some(item))),
            None => unkeyed.push(item),
        }
    }
    // The place in the live list; none for duplicates, which cannot be merged with.
    let mut places: BTreeMap<PathElement, Option<usize>> = BTreeMap::new();
    for (i, (element, _)) in left.iter().enumerate() {
        places.entry(element.clone()).and_modify(|place| *place = None).or_insert(Some(i));
    }
    let in_right: BTreeSet<&PathElement> = right.iter().map(|(element, _)| element).collect();
    let mut shared = right.iter().map(|(element, _)| element).filter(|element| places.contains_key(*element)).peekable();
    let items = of.items();
    let mut merged: BTreeSet<&PathElement> = BTreeSet::new();
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if let (Some((ours, _)), Some((theirs, _))) = (left.get(l), right.get(r))
            && ours != theirs
            && in_right.contains(ours)
            && shared.peek().is_some_and(|next| *next != ours)
        {
            // In both, but its turn comes with the applied order.
            l += 1;
            continue;
        }
        let mut together = false;
        if let Some((ours, item)) = left.get_mut(l) {
            if !in_right.contains(ours) {
                out.extend(item.take());
                l += 1;
                continue;
            }
            together = right.get(r).is_some_and(|(theirs, _)| theirs == ours);
            if together || merged.contains(ours) {
                l += 1;
            }
        }
        if let Some((theirs, item)) = right.get(r) {
            merged.insert(theirs);
            let ours = places.get(theirs).copied().flatten().and_then(|i| left.get_mut(i)).and_then(|(_, item)| item.take());
            out.push(match ours {
                Some(mut ours) => {
                    merge_into(&mut ours, item, &items);
                    ours
                }
                None => (*item).clone(),
            });
            r += 1;
            if together || shared.peek().is_some_and(|next| *next == theirs) {
                shared.next();
            }
        }
    }
    out.extend(unkeyed);
    out
}
