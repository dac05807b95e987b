//! Which of many criteria could be about a request at all. A server may know a thousand policies of which a request concerns two;
//! the others must cost nothing, whether they are for other resources or for other operations.

use std::collections::HashMap;

use super::Operation;
use super::matching::Criteria;

/// Positions of criteria, for each operation.
type ByOperation = [Vec<u32>; Operation::ALL.len()];

/// Positions of criteria by the plurals and operations that their rules name.
#[derive(Debug, Default)]
pub struct Index {
    by_plural: HashMap<Box<str>, ByOperation>,
    wildcard: ByOperation,
    len: usize,
}

impl Index {
    /// Indexes criteria in their order.
    pub fn new<'a>(criteria: impl IntoIterator<Item = &'a Criteria>) -> Index {
        let mut index = Index::default();
        for (position, criteria) in criteria.into_iter().enumerate() {
            index.len += 1;
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            criteria.each_named(|plural, operation| {
                let lists = match plural {
                    "*" => &mut index.wildcard,
                    named => index.by_plural.entry(named.into()).or_default(),
                };
                let positions = &mut lists[operation as usize];
                if positions.last() != Some(&position) {
                    positions.push(position);
                }
            });
        }
        index
    }

    /// How many criteria there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The positions of those that could be about a resource and an operation, in order and each once.
    pub fn candidates(&self, plural: &str, operation: Operation) -> impl Iterator<Item = usize> + '_ {
        let named = self.by_plural.get(plural).map(|lists| lists[operation as usize].as_slice()).unwrap_or_default();
        let mut named = named.iter().copied().peekable();
        let mut wildcard = self.wildcard[operation as usize].iter().copied().peekable();
        std::iter::from_fn(move || match (named.peek(), wildcard.peek()) {
            (Some(a), Some(b)) if a == b => {
                named.next();
                wildcard.next()
            }
            (Some(a), Some(b)) if a < b => named.next(),
            (Some(_), None) => named.next(),
            _ => wildcard.next(),
        })
        .map(|position| position as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn rule(operations: &[&str], resources: &[&str]) -> Value {
        json!({"operations": operations, "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources})
    }

    fn found(index: &Index, plural: &str, operation: Operation) -> Vec<usize> {
        index.candidates(plural, operation).collect()
    }

    #[test]
    fn candidates_come_in_order_and_only_where_a_rule_names_the_plural() {
        let criteria = |resources: &[&str]| Criteria::from_value(&json!({"resourceRules": [rule(&["*"], resources)]}));
        let all =
            [criteria(&["pods"]), criteria(&["*"]), criteria(&["secrets"]), criteria(&["pods/status", "pods"]), criteria(&["*/scale"])];
        let index = Index::new(&all);
        assert_eq!(found(&index, "pods", Operation::Create), [0, 1, 3, 4]);
        assert_eq!(found(&index, "nodes", Operation::Delete), [1, 4]);
    }

    #[test]
    fn a_rule_for_other_operations_is_no_candidate_and_several_rules_make_one() {
        let all = [
            Criteria::from_value(&json!({"resourceRules": [rule(&["DELETE"], &["pods"])]})),
            Criteria::from_value(&json!({"resourceRules": [rule(&["CREATE"], &["pods"]), rule(&["UPDATE", "CREATE"], &["*"])]})),
            Criteria::of_binding(&json!({})),
            Criteria::default(),
        ];
        let index = Index::new(&all);
        assert_eq!(found(&index, "pods", Operation::Create), [1, 2], "a policy without rules is about nothing");
        assert_eq!(found(&index, "pods", Operation::Delete), [0, 2]);
        assert_eq!(found(&index, "nodes", Operation::Update), [1, 2]);
        assert_eq!(index.len(), 4);
    }
}
