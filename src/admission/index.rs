//! Which of many criteria could be about a request at all. A server may know a thousand policies of which a request concerns two;
//! the others must cost nothing, whether they are for other resources, for other operations, or for objects with other labels.

use std::collections::HashMap;

use serde_json::Value;

use super::matching::{Criteria, Need, Surroundings};
use super::{Operation, Write};

/// From how many on criteria for one resource and operation are also told apart by the labels they need. Fewer are looked at one by one,
/// so that a trace can name each with its reason.
const MANY: usize = 64;

type Positions = Vec<u32>;

/// Criteria for one resource, for each operation.
type ByOperation = [Listing; Operation::ALL.len()];

/// Positions of criteria by the plurals and operations that their rules name.
#[derive(Debug, Default)]
pub struct Index {
    by_plural: HashMap<Box<str>, ByOperation>,
    wildcard: ByOperation,
    len: usize,
}

/// The criteria for one resource and operation.
#[derive(Debug, Default)]
struct Listing {
    all: Positions,
    /// The same by the labels they need, where they are many.
    by_need: Option<Box<ByNeed>>,
}

#[derive(Debug, Default)]
struct ByNeed {
    /// Those that need none.
    open: Positions,
    /// Those that need a label of the object.
    object: ByLabel,
    /// Those that need a label of the object's namespace.
    namespace: ByLabel,
}

#[derive(Debug, Default)]
struct ByLabel {
    all: Positions,
    with_key: HashMap<Box<str>, Positions>,
    with_value: HashMap<Box<str>, HashMap<Box<str>, Positions>>,
}

/// Those that could be about one request.
#[derive(Debug, Default)]
pub struct Candidates {
    /// Where they are, in order and each once.
    pub positions: Positions,
    /// How many others are about such requests, but not about objects with such labels.
    pub unselected: usize,
}

impl ByLabel {
    fn add(&mut self, position: u32, key: &str, values: &[String]) {
        self.all.push(position);
        if values.is_empty() {
            self.with_key.entry(key.into()).or_default().push(position);
        }
        for value in values {
            self.with_value.entry(key.into()).or_default().entry(value.as_str().into()).or_default().push(position);
        }
    }

    fn find<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)>, found: &mut Positions) {
        for (key, value) in labels {
            found.extend(self.with_key.get(key).into_iter().flatten());
            found.extend(self.with_value.get(key).and_then(|values| values.get(value)).into_iter().flatten());
        }
    }
}

impl Listing {
    fn add(&mut self, position: u32) {
        if self.all.last() != Some(&position) {
            self.all.push(position);
        }
    }

    fn sort_by_need<'a>(&mut self, needs: &[Vec<Need<'a>>]) {
        if self.all.len() < MANY {
            return;
        }
        let mut by_need = ByNeed::default();
        for &position in &self.all {
            match needs[position as usize].as_slice() {
                [] => by_need.open.push(position),
                needs => needs.iter().for_each(|need| match need {
                    Need::OfObject(label) => by_need.object.add(position, &label.key, &label.values),
                    Need::OfNamespace(label) => by_need.namespace.add(position, &label.key, &label.values),
                }),
            }
        }
        self.by_need = Some(Box::new(by_need));
    }

    fn find(&self, write: &Write, around: &Surroundings<'_>, found: &mut Positions) {
        let Some(by_need) = &self.by_need else {
            return found.extend(&self.all);
        };
        found.extend(&by_need.open);
        for object in [write.object(), write.old()] {
            let labels = object.get("metadata").and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
            by_need.object.find(labels.into_iter().flatten().filter_map(|(k, v)| Some((k.as_str(), v.as_str()?))), found);
        }
        if by_need.namespace.all.is_empty() {
            return;
        }
        match around.selecting_namespace(write) {
            Some(namespace) => by_need.namespace.find(namespace.labels().iter().map(|(k, v)| (&**k, &**v)), found),
            // Selected by something else, or by nothing; each has to say what that means for it.
            None => found.extend(&by_need.namespace.all),
        }
    }
}

impl Index {
    /// Indexes criteria in their order.
    pub fn new<'a>(criteria: impl IntoIterator<Item = &'a Criteria>) -> Index {
        Index::with_needs(criteria.into_iter().map(|criteria| (criteria, criteria.need().into_iter().collect())))
    }

    /// The same, each with the labels of which a request must have one; none is no such need.
    pub fn with_needs<'a>(criteria: impl IntoIterator<Item = (&'a Criteria, Vec<Need<'a>>)>) -> Index {
        let mut index = Index::default();
        let mut needs = Vec::new();
        for (position, (criteria, need)) in criteria.into_iter().enumerate() {
            needs.push(need);
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            criteria.each_named(|plural, operation| {
                let lists = match plural {
                    "*" => &mut index.wildcard,
                    named => index.by_plural.entry(named.into()).or_default(),
                };
                lists[operation as usize].add(position);
            });
        }
        index.len = needs.len();
        index.by_plural.values_mut().chain([&mut index.wildcard]).flatten().for_each(|listing| listing.sort_by_need(&needs));
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

    /// Those that could be about a resource and an operation, whatever the object is.
    pub fn about(&self, plural: &str, operation: Operation) -> Positions {
        let mut found = Vec::new();
        self.listings(plural, operation).for_each(|listing| found.extend(&listing.all));
        in_order(found)
    }

    /// Those that could be about a write as it stands.
    pub fn candidates(&self, write: &Write, around: &Surroundings<'_>) -> Candidates {
        let mut found = Vec::new();
        let mut is_narrowed = false;
        for listing in self.listings(&write.resource.plural, write.operation) {
            listing.find(write, around, &mut found);
            is_narrowed |= listing.by_need.is_some();
        }
        let positions = in_order(found);
        let all = if is_narrowed { self.about(&write.resource.plural, write.operation).len() } else { positions.len() };
        Candidates { unselected: all - positions.len(), positions }
    }

    fn listings(&self, plural: &str, operation: Operation) -> impl Iterator<Item = &Listing> {
        self.by_plural.get(plural).into_iter().chain([&self.wildcard]).map(move |lists| &lists[operation as usize])
    }
}

fn in_order(mut positions: Positions) -> Positions {
    if !positions.is_sorted_by(|a, b| a < b) {
        positions.sort_unstable();
        positions.dedup();
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn rule(operations: &[&str], resources: &[&str]) -> Value {
        json!({"operations": operations, "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources})
    }

    #[test]
    fn candidates_come_in_order_and_only_where_a_rule_names_the_plural() {
        let criteria = |resources: &[&str]| Criteria::from_value(&json!({"resourceRules": [rule(&["*"], resources)]}));
        let all =
            [criteria(&["pods"]), criteria(&["*"]), criteria(&["secrets"]), criteria(&["pods/status", "pods"]), criteria(&["*/scale"])];
        let index = Index::new(&all);
        assert_eq!(index.about("pods", Operation::Create), [0, 1, 3, 4]);
        assert_eq!(index.about("nodes", Operation::Delete), [1, 4]);
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
        assert_eq!(index.about("pods", Operation::Create), [1, 2], "a policy without rules is about nothing");
        assert_eq!(index.about("pods", Operation::Delete), [0, 2]);
        assert_eq!(index.about("nodes", Operation::Update), [1, 2]);
        assert_eq!(index.len(), 4);
    }
}
