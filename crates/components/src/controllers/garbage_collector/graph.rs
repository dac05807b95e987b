//! The graph of owners and dependents over all kinds, by uid. Plain data: it is told what changed, and answers which
//! objects need a look.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// An object waits until its dependents are gone.
pub const FOREGROUND: &str = "foregroundDeletion";
/// An object waits until its dependents have let go of it.
pub const ORPHAN: &str = "orphan";
/// How many absent owners are remembered.
const ABSENT: usize = 4096;

/// What the graph knows of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Which of the watched resources it belongs to, by collection path.
    pub resource: Arc<str>,
    /// Its namespace, or nothing.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who owns it.
    pub owners: Vec<OwnerReference>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it waits for its dependents.
    pub foreground: bool,
    /// Whether it waits to be let go of.
    pub orphan: bool,
}

impl Node {
    fn of(resource: &Arc<str>, meta: &ObjectMeta) -> Node {
        let has = |finalizer: &str| meta.finalizers.iter().flatten().any(|own| own == finalizer);
        Node {
            resource: resource.clone(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            owners: meta.owner_references.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            foreground: has(FOREGROUND),
            orphan: has(ORPHAN),
        }
    }

    /// Whether it waits for its dependents to go.
    pub fn waits_for_dependents(&self) -> bool {
        self.deleting && self.foreground
    }

    fn has_owner(&self, uid: &str) -> bool {
        self.owners.iter().any(|owner| owner.uid == uid)
    }
}

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Look {
    /// Whether the object with this uid should go.
    Delete(String),
    /// Whether the dependents of the object with this uid should be let go of.
    Orphan(String),
}

/// All objects, and who depends on whom.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: HashMap<String, Node>,
    /// By owner; also of owners that are not there (yet, or any more).
    dependents: HashMap<String, HashSet<String>>,
    absent: HashSet<String>,
    absent_order: VecDeque<String>,
}

impl Graph {
    /// One object.
    pub fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The dependents of an object, by uid.
    pub fn dependents(&self, uid: &str) -> Vec<(String, Node)> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| Some((uid.clone(), self.nodes.get(uid)?.clone()))).collect()
    }

    /// Whether an owner is known to be gone for good.
    pub fn is_absent(&self, uid: &str) -> bool {
        self.absent.contains(uid)
    }

    /// Remembers that an owner is gone. A uid never comes back.
    pub fn set_absent(&mut self, uid: &str) {
        if self.absent.insert(uid.to_owned()) {
            self.absent_order.push_back(uid.to_owned());
            if self.absent_order.len() > ABSENT
                && let Some(oldest) = self.absent_order.pop_front()
            {
                self.absent.remove(&oldest);
            }
        }
    }

    /// An object is there, or has changed.
    pub fn upsert(&mut self, resource: &Arc<str>, meta: &ObjectMeta) -> Vec<Look> {
        let Some(uid) = meta.uid.clone() else { return Vec::new() };
        let node = Node::of(resource, meta);
        let mut looks = Vec::new();
        let old = self.nodes.get(&uid).cloned();
        if old.as_ref() == Some(&node) {
            return looks;
        }
        for owner in old.iter().flat_map(|old| &old.owners).filter(|owner| !node.has_owner(&owner.uid)) {
            self.unlink(&owner.uid, &uid);
            looks.extend(self.waiting(&owner.uid));
        }
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
            let known = self.nodes.get(&owner.uid);
            // An owner that is not there must be looked for; one that waits for its dependents takes this one along.
            // A changed blockOwnerDeletion may set a waiting owner free.
            if known.is_none_or(Node::waits_for_dependents) && !node.deleting {
                looks.push(Look::Delete(uid.clone()));
            }
            looks.extend(self.waiting(&owner.uid));
        }
        let was = |test: fn(&Node) -> bool| old.as_ref().is_some_and(test);
        if node.deleting && node.orphan && !was(|old| old.deleting && old.orphan) {
            looks.push(Look::Orphan(uid.clone()));
        }
        if node.waits_for_dependents() && !was(Node::waits_for_dependents) {
            looks.extend(self.dependents.get(&uid).into_iter().flatten().cloned().map(Look::Delete));
            looks.push(Look::Delete(uid.clone()));
        }
        self.nodes.insert(uid, node);
        looks.sort_by_key(|look| format!("{look:?}"));
        looks.dedup();
        looks
    }

    /// An object is gone.
    pub fn remove(&mut self, uid: &str) -> Vec<Look> {
        let Some(node) = self.nodes.remove(uid) else { return Vec::new() };
        self.set_absent(uid);
        let mut looks: Vec<Look> = self.dependents.get(uid).into_iter().flatten().cloned().map(Look::Delete).collect();
        for owner in &node.owners {
            self.unlink(&owner.uid, uid);
            looks.extend(self.waiting(&owner.uid));
        }
        looks
    }

    /// Everything of a resource that is served no longer.
    pub fn remove_resource(&mut self, resource: &str) {
        let gone: Vec<_> = self.nodes.iter().filter(|(_, node)| *node.resource == *resource).map(|(uid, _)| uid.clone()).collect();
        for uid in gone {
            // Not absent: the objects are not known to be gone, they can only not be seen.
            if let Some(node) = self.nodes.remove(&uid) {
                for owner in &node.owners {
                    self.unlink(&owner.uid, &uid);
                }
            }
        }
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    fn waiting(&self, uid: &str) -> Option<Look> {
        self.nodes.get(uid).filter(|node| node.waits_for_dependents()).map(|_| Look::Delete(uid.to_owned()))
    }
}

/// What is known of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It is there.
    Solid,
    /// It is gone.
    Dangling,
    /// It is there and waits for its dependents to go.
    Waiting,
}

/// What to do with a dependent.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Somebody still owns it.
    Keep,
    /// Somebody still owns it; these others do not.
    Disown(Vec<String>),
    /// Nobody owns it any more; its own dependents go first.
    DeleteForeground,
    /// Nobody owns it any more.
    Delete,
}

/// Decides on an object by what its owners are. `has_dependents` says whether anything depends on it.
pub fn judge(owners: &[(OwnerReference, Owner)], has_dependents: bool) -> Verdict {
    if owners.is_empty() {
        return Verdict::Keep;
    }
    let solid = owners.iter().any(|(_, owner)| *owner == Owner::Solid);
    let gone = owners.iter().filter(|(_, owner)| *owner != Owner::Solid);
    match (solid, owners.iter().any(|(_, owner)| *owner == Owner::Waiting)) {
        (true, _) => {
            let gone: Vec<_> = gone.map(|(reference, _)| reference.uid.clone()).collect();
            if gone.is_empty() { Verdict::Keep } else { Verdict::Disown(gone) }
        }
        (false, true) if has_dependents => Verdict::DeleteForeground,
        (false, _) => Verdict::Delete,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn object(uid: &str, owners: &[&str]) -> ObjectMeta {
        let owner = |uid: &&str| OwnerReference { uid: (*uid).into(), block_owner_deletion: Some(true), ..OwnerReference::default() };
        ObjectMeta {
            uid: Some(uid.into()),
            name: Some(uid.into()),
            owner_references: Some(owners.iter().map(owner).collect()),
            ..ObjectMeta::default()
        }
    }

    fn deleting(mut meta: ObjectMeta, finalizer: &str) -> ObjectMeta {
        meta.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        meta.finalizers = Some(vec![finalizer.into()]);
        meta
    }

    fn delete(uid: &str) -> Look {
        Look::Delete(uid.into())
    }

    #[test]
    fn the_dependents_of_a_deleted_owner_need_a_look() {
        let mut graph = Graph::default();
        graph.upsert(&"sets".into(), &object("set", &[]));
        assert_eq!(graph.upsert(&"pods".into(), &object("pod", &["set"])), []);
        assert_eq!(graph.remove("set"), [delete("pod")]);
        assert!(graph.is_absent("set"));
    }

    #[test]
    fn a_dependent_that_comes_before_its_owner_needs_a_look() {
        let mut graph = Graph::default();
        assert_eq!(graph.upsert(&"pods".into(), &object("pod", &["set"])), [delete("pod")]);
        graph.upsert(&"sets".into(), &object("set", &[]));
        assert_eq!(graph.dependents("set").len(), 1);
    }

    #[test]
    fn a_foreground_deletion_takes_the_dependents_first() {
        let mut graph = Graph::default();
        graph.upsert(&"sets".into(), &object("set", &[]));
        graph.upsert(&"pods".into(), &object("pod", &["set"]));
        let looks = graph.upsert(&"sets".into(), &deleting(object("set", &[]), FOREGROUND));
        assert_eq!(looks, [delete("pod"), delete("set")]);
        assert_eq!(graph.remove("pod"), [delete("set")], "then the owner is looked at again");
    }

    #[test]
    fn an_orphaning_deletion_is_noticed_once() {
        let mut graph = Graph::default();
        let going = deleting(object("set", &[]), ORPHAN);
        assert_eq!(graph.upsert(&"sets".into(), &going), [Look::Orphan("set".into())]);
        assert_eq!(graph.upsert(&"sets".into(), &going), []);
    }

    #[test]
    fn an_object_goes_only_when_nobody_owns_it_any_more() {
        let owner = |uid: &str, state| (OwnerReference { uid: uid.into(), ..OwnerReference::default() }, state);
        assert_eq!(judge(&[], false), Verdict::Keep);
        assert_eq!(judge(&[owner("a", Owner::Solid)], false), Verdict::Keep);
        let mixed = [owner("a", Owner::Solid), owner("b", Owner::Dangling), owner("c", Owner::Waiting)];
        assert_eq!(judge(&mixed, false), Verdict::Disown(vec!["b".into(), "c".into()]));
        assert_eq!(judge(&[owner("b", Owner::Dangling)], true), Verdict::Delete);
        assert_eq!(judge(&[owner("c", Owner::Waiting)], true), Verdict::DeleteForeground);
        assert_eq!(judge(&[owner("c", Owner::Waiting)], false), Verdict::Delete);
    }
}
