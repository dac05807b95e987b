//! A set of field paths, and its form in managedFields (FieldsV1). A tree whose nodes are sorted, so that the set operations
//! are single passes; a node is in the set, or something below it is, or both.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

use super::element::{PathElement, UnreadableElement};
use super::typed::Type;

/// A set of field paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: Vec<Node>,
}

/// One step, whether the path to it is in the set, and the paths below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub element: PathElement,
    pub member: bool,
    pub children: FieldSet,
}

/// A step of a path that is being walked; made into an element only where a set needs it.
#[derive(Clone, Debug)]
pub(super) enum Step<'v> {
    Field(&'v str),
    Item(PathElement),
}

impl Step<'_> {
    fn compare_to(&self, element: &PathElement) -> Ordering {
        match (self, element) {
            (Step::Field(name), PathElement::Field(field)) => (*name).cmp(field),
            (Step::Field(_), _) => Ordering::Less,
            (Step::Item(item), element) => item.cmp(element),
        }
    }

    pub(super) fn to_element(&self) -> PathElement {
        match self {
            Step::Field(name) => PathElement::field(name),
            Step::Item(element) => element.clone(),
        }
    }
}

/// A path, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path(pub Vec<PathElement>);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| write!(f, "{element}"))
    }
}

impl FieldSet {
    /// The set of these field paths.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = FieldSet::default();
        for path in paths {
            set.insert(path.iter().map(|name| PathElement::field(name)));
        }
        set
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a path. The empty path, the whole object, is nobody's.
    pub fn insert(&mut self, path: impl IntoIterator<Item = PathElement>) {
        let mut path = path.into_iter().peekable();
        let mut set = self;
        while let Some(element) = path.next() {
            let node = set.node_mut(element);
            if path.peek().is_none() {
                node.member = true;
            }
            set = &mut node.children;
        }
    }

    /// Adds the path of these steps.
    pub(super) fn insert_steps(&mut self, path: &[Step<'_>]) {
        let Some((step, rest)) = path.split_first() else { return };
        // Paths mostly come in order, so the place is mostly the last one.
        let found = match self.nodes.last() {
            Some(last) if step.compare_to(&last.element).is_gt() => Err(self.nodes.len()),
            Some(last) if step.compare_to(&last.element).is_eq() => Ok(self.nodes.len() - 1),
            _ => self.nodes.binary_search_by(|node| step.compare_to(&node.element).reverse()),
        };
        let i = found.unwrap_or_else(|i| {
            self.nodes.insert(i, Node { element: step.to_element(), member: false, children: FieldSet::default() });
            i
        });
        let Some(node) = self.nodes.get_mut(i) else { return };
        if rest.is_empty() {
            node.member = true;
        }
        node.children.insert_steps(rest);
    }

    fn node_mut(&mut self, element: PathElement) -> &mut Node {
        let found = self.nodes.binary_search_by(|node| node.element.cmp(&element));
        let i = found.unwrap_or_else(|i| {
            self.nodes.insert(i, Node { element, member: false, children: FieldSet::default() });
            i
        });
        &mut self.nodes[i]
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Appends a node that is greater than all that are there. One that stands for nothing is left out.
    pub(super) fn push(&mut self, element: PathElement, member: bool, children: FieldSet) {
        if member || !children.is_empty() {
            self.nodes.push(Node { element, member, children });
        }
    }

    /// Brings nodes that were pushed in another order, each of them once, into order.
    pub(super) fn sort(&mut self) {
        self.nodes.sort_by(|a, b| a.element.cmp(&b.element));
    }

    /// Whether a path is in the set.
    pub fn contains<'e>(&self, path: impl IntoIterator<Item = &'e PathElement>) -> bool {
        let mut set = self;
        let mut member = false;
        for element in path {
            let Some(node) = set.get(element) else { return false };
            member = node.member;
            set = &node.children;
        }
        member
    }

    pub(super) fn get(&self, element: &PathElement) -> Option<&Node> {
        self.nodes.binary_search_by(|node| node.element.cmp(element)).ok().and_then(|i| self.nodes.get(i))
    }

    /// The node of a field, without making an element of its name.
    pub(super) fn get_field(&self, name: &str) -> Option<&Node> {
        let found = self.nodes.binary_search_by(|node| match &node.element {
            PathElement::Field(field) => (**field).cmp(name),
            _ => Ordering::Greater,
        });
        found.ok().and_then(|i| self.nodes.get(i))
    }

    /// The paths in either.
    pub fn union(self, other: &FieldSet) -> FieldSet {
        if other.is_empty() {
            return self;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len() + other.nodes.len());
        let mut mine = self.nodes.into_iter().peekable();
        for node in &other.nodes {
            while let Some(before) = mine.next_if(|mine| mine.element < node.element) {
                nodes.push(before);
            }
            nodes.push(match mine.next_if(|mine| mine.element == node.element) {
                Some(same) => {
                    Node { element: same.element, member: same.member || node.member, children: same.children.union(&node.children) }
                }
                None => node.clone(),
            });
        }
        nodes.extend(mine);
        FieldSet { nodes }
    }

    /// The paths in both.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut set = FieldSet::default();
        self.for_each_common(other, |mine, theirs| {
            set.push(mine.element.clone(), mine.member && theirs.member, mine.children.intersection(&theirs.children));
        });
        set
    }

    /// Whether any path is in both.
    pub fn intersects(&self, other: &FieldSet) -> bool {
        let mut found = false;
        self.for_each_common(other, |mine, theirs| {
            found = found || (mine.member && theirs.member) || mine.children.intersects(&theirs.children);
        });
        found
    }

    fn for_each_common(&self, other: &FieldSet, mut see: impl FnMut(&Node, &Node)) {
        let (mut i, mut j) = (0, 0);
        while let (Some(mine), Some(theirs)) = (self.nodes.get(i), other.nodes.get(j)) {
            match mine.element.cmp(&theirs.element) {
                Ordering::Less => i += 1,
                Ordering::Greater => j += 1,
                Ordering::Equal => {
                    see(mine, theirs);
                    i += 1;
                    j += 1;
                }
            }
        }
    }

    /// Takes the paths of `other` out, but not what is below them.
    pub fn subtract(&mut self, other: &FieldSet) {
        self.subtract_nodes(other, &|node, theirs| {
            node.member &= !theirs.member;
            node.children.subtract(&theirs.children);
        });
    }

    /// Takes the paths of `other` out, with all that is below them.
    pub fn subtract_with_children(&mut self, other: &FieldSet) {
        self.subtract_nodes(other, &|node, theirs| {
            if theirs.member {
                node.member = false;
                node.children = FieldSet::default();
            } else {
                node.children.subtract_with_children(&theirs.children);
            }
        });
    }

    fn subtract_nodes(&mut self, other: &FieldSet, take: &dyn Fn(&mut Node, &Node)) {
        if other.is_empty() {
            return;
        }
        self.nodes.retain_mut(|node| {
            if let Some(theirs) = other.get(&node.element) {
                take(node, theirs);
            }
            node.member || !node.children.is_empty()
        });
    }

    /// Whether every path is in `other`.
    pub fn is_subset_of(&self, other: &FieldSet) -> bool {
        self.nodes.iter().all(|node| match other.get(&node.element) {
            Some(theirs) => (theirs.member || !node.member) && node.children.is_subset_of(&theirs.children),
            None => false,
        })
    }

    /// Keeps only what lies on, or below, a path of `kept`.
    pub fn keep_below(&mut self, kept: &FieldSet) {
        self.nodes.retain_mut(|node| match kept.get(&node.element) {
            None => false,
            Some(kept) if kept.member => true,
            Some(kept) => {
                // A step on the way is not below a path.
                node.member = false;
                node.children.keep_below(&kept.children);
                !node.children.is_empty()
            }
        });
    }

    /// Every path, each level's own before those below it.
    pub fn paths(&self) -> Vec<Path> {
        fn walk(set: &FieldSet, prefix: &mut Vec<PathElement>, paths: &mut Vec<Path>) {
            for node in set.nodes.iter().filter(|node| node.member) {
                prefix.push(node.element.clone());
                paths.push(Path(prefix.clone()));
                prefix.pop();
            }
            for node in &set.nodes {
                prefix.push(node.element.clone());
                walk(&node.children, prefix, paths);
                prefix.pop();
            }
        }
        let mut paths = Vec::new();
        walk(self, &mut Vec::new(), &mut paths);
        paths
    }

    /// The set with every declared field on the way to a path in it, too.
    pub(crate) fn with_named_fields(&self, of: &Type<'_>) -> FieldSet {
        let mut set = FieldSet { nodes: Vec::with_capacity(self.nodes.len()) };
        for node in &self.nodes {
            let (below, named) = match &node.element {
                PathElement::Field(name) => match of.field(name) {
                    Some(field) => (field.of, field.named),
                    None => (Type::Any, false),
                },
                PathElement::Key(_) => (of.items(), false),
                _ => (Type::Any, false),
            };
            let member = node.member || (named && !node.children.is_empty());
            set.push(node.element.clone(), member, node.children.with_named_fields(&below));
        }
        set
    }

    /// What this set becomes by a schema in which a part that was granular is now atomic: the part as a whole instead of the
    /// paths in it. `None` if nothing changes.
    pub(super) fn reconciled(&self, of: &Type<'_>) -> Option<FieldSet> {
        let mut changed = false;
        let mut set = FieldSet { nodes: Vec::with_capacity(self.nodes.len()) };
        for node in &self.nodes {
            let below = match &node.element {
                PathElement::Field(name) => of.field(name).map(|field| field.of),
                _ => Some(of.items()),
            };
            let next = match below {
                Some(below) if !node.children.is_empty() => {
                    if below.is_atomic() {
                        changed = true;
                        Some(Node { element: node.element.clone(), member: true, children: FieldSet::default() })
                    } else {
                        node.children.reconciled(&below).map(|children| {
                            changed = true;
                            Node { element: node.element.clone(), member: node.member, children }
                        })
                    }
                }
                _ => None,
            };
            set.nodes.push(next.unwrap_or_else(|| node.clone()));
        }
        changed.then_some(set)
    }

    /// Reads FieldsV1.
    pub fn from_fields_v1(fields: &Value) -> Result<FieldSet, UnreadableElement> {
        match fields {
            Value::Object(fields) => FieldSet::from_members(fields),
            Value::Null => Ok(FieldSet::default()),
            _ => Err(UnreadableElement("ReadMapCB: expect { or n".into())),
        }
    }

    fn from_members(fields: &Map<String, Value>) -> Result<FieldSet, UnreadableElement> {
        let mut set = FieldSet { nodes: Vec::with_capacity(fields.len()) };
        let mut in_order = true;
        for (key, below) in fields {
            if key == "." {
                continue;
            }
            let Some(element) = PathElement::parse(key)? else { continue };
            let (itself, children) = match below {
                Value::Object(below) => (below.contains_key("."), FieldSet::from_members(below)?),
                Value::Null => (true, FieldSet::default()),
                _ => return Err(UnreadableElement("ReadMapCB: expect { or n".into())),
            };
            let member = itself || children.is_empty();
            in_order = in_order && set.nodes.last().is_none_or(|last| last.element < element);
            set.nodes.push(Node { element, member, children });
        }
        if !in_order {
            set.sort();
            // Two spellings of one step are one step.
            set.nodes.dedup_by(|later, earlier| {
                let same = later.element == earlier.element;
                if same {
                    earlier.member |= later.member;
                    earlier.children = std::mem::take(&mut earlier.children).union(&later.children);
                }
                same
            });
        }
        Ok(set)
    }

    /// The set as FieldsV1.
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(self.to_members(false))
    }

    fn to_members(&self, itself: bool) -> Map<String, Value> {
        let mut fields = Map::new();
        if itself && !self.is_empty() {
            fields.insert(".".into(), Value::Object(Map::new()));
        }
        for node in &self.nodes {
            fields.insert(node.element.to_key(), Value::Object(node.children.to_members(node.member)));
        }
        fields
    }

    /// The set as FieldsV1 text, its members in the order of their meaning (port 80 before port 443), which a
    /// [`serde_json::Map`] does not keep.
    pub fn to_fields_v1_text(&self) -> String {
        fn write(set: &FieldSet, itself: bool, out: &mut String) {
            out.push('{');
            let mut first = true;
            let mut comma = |out: &mut String| {
                if !std::mem::take(&mut first) {
                    out.push(',');
                }
            };
            if itself && !set.is_empty() {
                comma(out);
                out.push_str("\".\":{}");
            }
            for node in &set.nodes {
                comma(out);
                out.push_str(&Value::String(node.element.to_key()).to_string());
                out.push(':');
                write(&node.children, node.member, out);
            }
            out.push('}');
        }
        let mut out = String::new();
        write(self, false, &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(fields: Value) -> FieldSet {
        FieldSet::from_fields_v1(&fields).expect("readable")
    }

    #[test]
    fn fields_v1_is_read_and_written_back() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:finalizers": {".": {}, "v:\"example.com/f\"": {}}},
            "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}}}}
        });
        assert_eq!(set(fields.clone()).to_fields_v1(), fields);
    }

    #[test]
    fn text_has_members_in_the_order_of_their_meaning() {
        let ports = set(json!({"f:ports": {"k:{\"port\":443}": {}, "k:{\"port\":80}": {".": {}, "f:name": {}}}}));
        assert_eq!(ports.to_fields_v1_text(), r#"{"f:ports":{"k:{\"port\":80}":{".":{},"f:name":{}},"k:{\"port\":443}":{}}}"#);
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_what_is_of_the_future_is_left_out() {
        assert!(FieldSet::from_fields_v1(&json!({"fdata": {}})).is_err());
        assert!(FieldSet::from_fields_v1(&json!({"f:data": 1})).is_err());
        assert!(FieldSet::from_fields_v1(&json!([])).is_err());
        assert!(set(json!({"z:data": {}})).is_empty());
    }

    #[test]
    fn set_operations_treat_a_step_and_what_is_below_it_apart() {
        let both = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let parent = set(json!({"f:a": {}}));
        let mut rest = both.clone();
        rest.subtract(&parent);
        assert_eq!(rest, set(json!({"f:a": {"f:b": {}}, "f:c": {}})));
        let mut rest = both.clone();
        rest.subtract_with_children(&parent);
        assert_eq!(rest, set(json!({"f:c": {}})));
        assert_eq!(both.intersection(&parent), parent);
        assert!(both.intersects(&parent) && !both.intersects(&set(json!({"f:a": {"f:z": {}}}))));
        assert!(parent.is_subset_of(&both) && !both.is_subset_of(&parent));
        assert_eq!(parent.union(&set(json!({"f:a": {"f:b": {}}, "f:c": {}}))), both);
    }

    #[test]
    fn only_what_is_below_a_kept_path_is_kept() {
        let mut fields = set(json!({"f:spec": {".": {}, "f:x": {}, "f:y": {".": {}, "f:z": {}}}, "f:status": {"f:n": {}}}));
        fields.keep_below(&set(json!({"f:spec": {"f:y": {}}})));
        assert_eq!(fields, set(json!({"f:spec": {"f:y": {".": {}, "f:z": {}}}})));
    }

    #[test]
    fn paths_come_level_by_level() {
        let fields = set(json!({"f:a": {".": {}, "f:x": {}}, "f:b": {}}));
        let paths: Vec<String> = fields.paths().iter().map(Path::to_string).collect();
        assert_eq!(paths, [".a", ".b", ".a.x"]);
    }
}
