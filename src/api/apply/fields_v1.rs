//! Operations of a small set on FieldsV1 as they are stored, without reading them: most writes change a field or two of what
//! others own, and the rest of their entries is to stay as it is. `fields` must be as the server itself writes them.

use serde_json::{Map, Value};

use super::fieldset::FieldSet;

type Fields = Map<String, Value>;

/// A path of the set is above paths in the fields: what that means needs the schema, so the fields have to be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NeedsSchema;

fn is_member(fields: &Fields) -> bool {
    fields.is_empty() || fields.contains_key(".")
}

fn has_children(fields: &Fields) -> bool {
    fields.len() > usize::from(fields.contains_key("."))
}

/// Whether the fields are exactly the set.
pub(super) fn equals(set: &FieldSet, fields: &Fields) -> bool {
    fn level(set: &FieldSet, member: bool, fields: &Fields) -> bool {
        let count = fields.len() - usize::from(fields.contains_key("."));
        count == set.nodes().len()
            && member == is_member(fields)
            && set.nodes().iter().all(|node| match fields.get(&node.element.to_key()) {
                Some(Value::Object(below)) => level(&node.children, node.member, below),
                _ => false,
            })
    }
    level(set, fields.is_empty(), fields)
}

/// The paths of `set` that are among the fields.
pub(super) fn intersection(set: &FieldSet, fields: &Fields) -> Result<FieldSet, NeedsSchema> {
    let mut common = FieldSet::default();
    for node in set.nodes() {
        let Some(Value::Object(below)) = fields.get(&node.element.to_key()) else { continue };
        if node.member && has_children(below) {
            return Err(NeedsSchema);
        }
        common.push(node.element.clone(), node.member && is_member(below), intersection(&node.children, below)?);
    }
    Ok(common)
}

/// Takes the paths of `set` out of the fields. On an error, and only then, nothing is changed.
pub(super) fn subtract(set: &FieldSet, fields: &mut Fields) -> Result<(), NeedsSchema> {
    if intersection(set, fields)?.is_empty() {
        return Ok(());
    }
    take(set, fields);
    Ok(())
}

fn take(set: &FieldSet, fields: &mut Fields) {
    for node in set.nodes() {
        let key = node.element.to_key();
        let Some(Value::Object(below)) = fields.get_mut(&key) else { continue };
        let mut member = is_member(below);
        if node.member && member {
            below.remove(".");
            member = false;
        }
        take(&node.children, below);
        if has_children(below) {
            continue;
        }
        // Nothing is below: the step is there for itself, and then without a dot, or not at all.
        if member {
            below.clear();
        } else {
            fields.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn set(fields: &Value) -> FieldSet {
        FieldSet::from_fields_v1(fields).expect("readable")
    }

    fn fields_v1() -> impl Strategy<Value = Value> {
        let leaf = any::<bool>().prop_map(|_| json!({}));
        let level = leaf.prop_recursive(3, 16, 3, |inner| {
            (prop::collection::btree_map("f:[a-c]|v:[1-3]", inner, 1..4), any::<bool>()).prop_map(|(mut fields, itself)| {
                if itself {
                    fields.insert(".".into(), json!({}));
                }
                json!(fields)
            })
        });
        // The whole object is nobody's.
        level.prop_map(|mut fields| {
            fields.as_object_mut().map(|fields| fields.remove("."));
            fields
        })
    }

    proptest! {
        #[test]
        fn stored_fields_give_the_same_as_fields_that_were_read(stored in fields_v1(), other in fields_v1()) {
            let raw = stored.as_object().expect("an object");
            let (read, other_set) = (set(&stored), set(&other));
            prop_assert!(equals(&read, raw));
            prop_assert_eq!(equals(&other_set, raw), read == other_set);
            let mut left = raw.clone();
            match intersection(&other_set, raw) {
                Ok(common) => {
                    prop_assert_eq!(common, read.intersection(&other_set));
                    prop_assert_eq!(subtract(&other_set, &mut left), Ok(()));
                    let mut wanted = read;
                    wanted.subtract(&other_set);
                    prop_assert_eq!(Value::Object(left), wanted.to_fields_v1());
                }
                Err(NeedsSchema) => {
                    prop_assert_eq!(subtract(&other_set, &mut left), Err(NeedsSchema));
                    prop_assert_eq!(&left, raw);
                }
            }
        }
    }
}
