//! Which of many criteria could be about a resource at all. A server may know a thousand policies of which a request concerns two;
//! the others must cost nothing.

use std::collections::HashMap;

use super::matching::Criteria;

/// Positions of criteria by the plurals that their rules name.
#[derive(Debug, Default)]
pub struct Index {
    by_plural: HashMap<Box<str>, Vec<u32>>,
    wildcard: Vec<u32>,
    len: usize,
}

impl Index {
    /// Indexes criteria in their order.
    pub fn new<'a>(criteria: impl IntoIterator<Item = &'a Criteria>) -> Index {
        let mut index = Index::default();
        for (position, criteria) in criteria.into_iter().enumerate() {
            index.len += 1;
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            match criteria.plurals() {
                None => index.wildcard.push(position),
                Some(plurals) => {
                    for plural in plurals {
                        let positions = index.by_plural.entry(plural.into()).or_default();
                        if positions.last() != Some(&position) {
                            positions.push(position);
                        }
                    }
                }
            }
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

    /// The positions of those that could be about a resource, in order.
    pub fn candidates(&self, plural: &str) -> impl Iterator<Item = usize> + '_ {
        let mut named = self.by_plural.get(plural).map(Vec::as_slice).unwrap_or_default().iter().copied().peekable();
        let mut wildcard = self.wildcard.iter().copied().peekable();
        std::iter::from_fn(move || match (named.peek(), wildcard.peek()) {
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
    use serde_json::json;

    #[test]
    fn candidates_come_in_order_and_only_where_a_rule_names_the_plural() {
        let criteria = |resources: &[&str]| {
            Criteria::from_value(
                &json!({"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources}]}),
            )
        };
        let all =
            [criteria(&["pods"]), criteria(&["*"]), criteria(&["secrets"]), criteria(&["pods/status", "pods"]), criteria(&["*/scale"])];
        let index = Index::new(&all);
        assert_eq!(index.candidates("pods").collect::<Vec<_>>(), [0, 1, 3, 4]);
        assert_eq!(index.candidates("nodes").collect::<Vec<_>>(), [1, 4]);
    }
}
