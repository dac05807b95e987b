//! The roles and bindings of the cluster, arranged so that a decision touches only what concerns the user and the
//! namespace: grants lie in a table under (subject, namespace), cut into shards that are swapped as a whole. A changed
//! binding rewrites the shards of its subjects; a changed role only the rules that its bindings already point to. Reads
//! take no lock, and a change is in force when [`Index::changed`] returns.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use serde_json::Value;

use crate::request::User;

use super::compiled::Compiled;
use super::rule::Rule;

const SHARDS: usize = 1024;

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Everything RBAC knows.
pub struct Index {
    hasher: RandomState,
    shards: Box<[ArcSwap<Shard>]>,
    writer: Mutex<Writer>,
}

/// What only changes look at; decisions never take this lock.
#[derive(Default)]
struct Writer {
    roles: HashMap<RoleKey, Arc<Role>>,
}

/// Kind is told by the namespace: a ClusterRole has none.
type RoleKey = (String, String);

type Shard = HashMap<u64, Vec<(Place, Arc<[Grant]>)>, BuildHasherDefault<AlreadyHashed>>;

/// A subject in a namespace (empty for the whole cluster).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    kind: SubjectKind,
    name: Box<str>,
    namespace: Box<str>,
}

/// Service accounts are looked up as the users they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// A user or a service account, by user name.
    User,
    /// A group.
    Group,
}

/// A role, or the place of one that does not exist (yet).
#[derive(Debug)]
pub struct Role {
    /// Empty for a ClusterRole.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// `None` while no such role exists.
    pub rules: ArcSwapOption<Compiled>,
}

/// One subject of one binding.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The binding's name and namespace, to find it again.
    binding: Arc<(String, String)>,
    /// What it grants.
    pub role: Arc<Role>,
    /// The rest of "RBAC: allowed by …".
    pub source: Arc<str>,
    /// Whether an earlier grant of the same subject in the same namespace gives the same role: it need not be looked at.
    pub repeated: bool,
}

impl Grant {
    /// The binding, as kind, namespace where it has one, and name.
    pub fn binding(&self) -> String {
        named("RoleBinding", &self.binding.1, &self.binding.0)
    }
}

impl Role {
    /// The role in the same form.
    pub fn reference(&self) -> String {
        named("Role", &self.namespace, &self.name)
    }
}

fn named(kind: &str, namespace: &str, name: &str) -> String {
    match namespace.is_empty() {
        true => ["Cluster", kind, "/", name].concat(),
        false => [kind, "/", namespace, "/", name].concat(),
    }
}

#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

impl Default for Index {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| ArcSwap::from_pointee(Shard::default())).collect();
        Index { hasher: RandomState::new(), shards, writer: Mutex::default() }
    }
}

impl Index {
    /// Takes over a change of any object; other resources than roles and bindings are passed over. In force on return.
    pub fn changed(&self, plural: &str, group: &str, old: Option<&Value>, new: Option<&Value>) {
        if group != GROUP {
            return;
        }
        match plural {
            "roles" | "clusterroles" => self.role_changed(old, new),
            "rolebindings" | "clusterrolebindings" => self.binding_changed(old, new),
            _ => {}
        }
    }

    /// Every grant of a user, of the cluster first and then of the namespace, handed to `visit` until it returns true.
    pub fn visit(&self, user: &User, namespace: &str, visit: &mut dyn FnMut(&Grant) -> bool) {
        // A name is hashed once for both scopes; who is in more groups than this pays twice for the rest.
        let mut hashes = [0; 32];
        let of_user = self.subject(SubjectKind::User, &user.name);
        for (hash, group) in hashes.iter_mut().zip(&user.groups) {
            *hash = self.subject(SubjectKind::Group, group);
        }
        for scope in [Some(""), Some(namespace).filter(|ns| !ns.is_empty())].into_iter().flatten() {
            let of_scope = self.scope(scope);
            if self.visit_place(SubjectKind::User, &user.name, scope, mixed(of_user, of_scope), visit) {
                return;
            }
            for (i, group) in user.groups.iter().enumerate() {
                let of_group = hashes.get(i).copied().unwrap_or_else(|| self.subject(SubjectKind::Group, group));
                if self.visit_place(SubjectKind::Group, group, scope, mixed(of_group, of_scope), visit) {
                    return;
                }
            }
        }
    }

    fn visit_place(&self, kind: SubjectKind, name: &str, scope: &str, hash: u64, visit: &mut dyn FnMut(&Grant) -> bool) -> bool {
        let shard = self.shards[hash as usize % SHARDS].load();
        let Some(bucket) = shard.get(&hash) else { return false };
        let found = bucket.iter().find(|(place, _)| place.kind == kind && &*place.name == name && &*place.namespace == scope);
        found.is_some_and(|(_, grants)| grants.iter().any(visit))
    }

    /// The rules of a role, if it exists; `namespace` empty for a ClusterRole.
    pub fn role(&self, namespace: &str, name: &str) -> Option<Arc<Compiled>> {
        self.writer.lock().roles.get(&(namespace.to_owned(), name.to_owned()))?.rules.load_full()
    }

    fn subject(&self, kind: SubjectKind, name: &str) -> u64 {
        self.hasher.hash_one((kind as u8, name))
    }

    fn scope(&self, namespace: &str) -> u64 {
        if namespace.is_empty() { 0 } else { self.hasher.hash_one(namespace) }
    }

    fn hash(&self, kind: SubjectKind, name: &str, namespace: &str) -> u64 {
        mixed(self.subject(kind, name), self.scope(namespace))
    }

    fn role_changed(&self, old: Option<&Value>, new: Option<&Value>) {
        let Some(object) = new.or(old) else { return };
        let mut writer = self.writer.lock();
        let role = writer.role(&metadata(object, "namespace"), &metadata(object, "name"));
        role.rules.store(new.map(|role| Arc::new(Compiled::new(Rule::list(role)))));
        writer.forget_unused(&role);
    }

    fn binding_changed(&self, old: Option<&Value>, new: Option<&Value>) {
        let Some(object) = new.or(old) else { return };
        let namespace = metadata(object, "namespace");
        let binding = Arc::new((metadata(object, "name"), namespace.clone()));
        let mut writer = self.writer.lock();
        let mut places: Vec<(u64, Place, Option<Grant>)> = Vec::new();
        let former = old.map(|old| writer.role_of(old, &namespace));
        if let Some(old) = old {
            for subject in subjects(old) {
                if let Some((place, _)) = self.place(subject, &namespace) {
                    places.push((self.hash(place.kind, &place.name, &namespace), place, None));
                }
            }
        }
        if let Some(new) = new {
            let role = writer.role_of(new, &namespace);
            for subject in subjects(new) {
                let Some((place, described)) = self.place(subject, &namespace) else { continue };
                let source = source(new, &binding, &described).into();
                let grant = Grant { binding: binding.clone(), role: role.clone(), source, repeated: false };
                let hash = self.hash(place.kind, &place.name, &namespace);
                match places.iter_mut().find(|(_, known, _)| *known == place) {
                    Some((_, _, slot)) => *slot = Some(grant),
                    None => places.push((hash, place, Some(grant))),
                }
            }
        }
        for (hash, place, grant) in places {
            self.put(hash, place, &binding, grant);
        }
        if let Some(role) = former {
            writer.forget_unused(&role);
        }
    }

    /// Replaces what a binding grants at one place, in one swap: nobody ever sees the place without it in between.
    fn put(&self, hash: u64, place: Place, binding: &Arc<(String, String)>, grant: Option<Grant>) {
        let slot = &self.shards[hash as usize % SHARDS];
        let mut shard = Shard::clone(&slot.load());
        let bucket = shard.entry(hash).or_default();
        let position = bucket.iter().position(|(known, _)| *known == place);
        let before: &[Grant] = position.map(|p| &*bucket[p].1).unwrap_or_default();
        let mut after: Vec<Grant> = before.iter().filter(|g| g.binding != *binding).cloned().collect();
        after.extend(grant);
        // In the order of names, so that the reason given does not depend on the order of writes.
        after.sort_by(|a, b| a.binding.cmp(&b.binding));
        let mut seen = HashSet::new();
        for grant in &mut after {
            grant.repeated = !seen.insert(Arc::as_ptr(&grant.role));
        }
        match (position, after.is_empty()) {
            (Some(p), true) => drop(bucket.swap_remove(p)),
            (Some(p), false) => bucket[p].1 = after.into(),
            (None, true) => {}
            (None, false) => bucket.push((place, after.into())),
        }
        if bucket.is_empty() {
            shard.remove(&hash);
        }
        slot.store(Arc::new(shard));
    }

    /// Where a subject's grants lie, and how messages describe it.
    fn place(&self, subject: &Value, namespace: &str) -> Option<(Place, String)> {
        let name = subject["name"].as_str()?;
        let place = |kind, name: &str| Place { kind, name: name.into(), namespace: namespace.into() };
        match subject["kind"].as_str()? {
            "User" => Some((place(SubjectKind::User, name), format!("User {name:?}"))),
            "Group" => Some((place(SubjectKind::Group, name), format!("Group {name:?}"))),
            "ServiceAccount" => {
                let own = subject["namespace"].as_str().filter(|ns| !ns.is_empty()).unwrap_or(namespace);
                if own.is_empty() {
                    return None;
                }
                let user = crate::authn::token_request::username(own, name);
                Some((place(SubjectKind::User, &user), format!("ServiceAccount {:?}", format!("{name}/{own}"))))
            }
            _ => None,
        }
    }
}

impl Writer {
    fn role(&mut self, namespace: &str, name: &str) -> Arc<Role> {
        let key = (namespace.to_owned(), name.to_owned());
        let make = || Role { namespace: namespace.to_owned(), name: name.to_owned(), rules: ArcSwapOption::empty() };
        self.roles.entry(key).or_insert_with(|| Arc::new(make())).clone()
    }

    fn role_of(&mut self, binding: &Value, namespace: &str) -> Arc<Role> {
        let reference = &binding["roleRef"];
        let namespace = if reference["kind"] == "ClusterRole" { "" } else { namespace };
        self.role(namespace, reference["name"].as_str().unwrap_or_default())
    }

    /// Drops the place of a role that does not exist and that no binding points to: two holders are this map and `role`.
    fn forget_unused(&mut self, role: &Arc<Role>) {
        if role.rules.load().is_none() && Arc::strong_count(role) <= 2 {
            self.roles.remove(&(role.namespace.clone(), role.name.clone()));
        }
    }
}

/// Both hashes are keyed, so nobody can choose names that meet in one place.
fn mixed(subject: u64, scope: u64) -> u64 {
    let product = u128::from(subject.wrapping_add(scope.rotate_left(32))) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

fn metadata(object: &Value, key: &str) -> String {
    object["metadata"][key].as_str().unwrap_or_default().to_owned()
}

fn subjects(binding: &Value) -> &[Value] {
    binding["subjects"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn source(object: &Value, binding: &(String, String), subject: &str) -> String {
    let role = &object["roleRef"];
    let (kind, name) = (role["kind"].as_str().unwrap_or_default(), role["name"].as_str().unwrap_or_default());
    match binding {
        (binding, namespace) if namespace.is_empty() => format!("ClusterRoleBinding {binding:?} of {kind} {name:?} to {subject}"),
        (binding, namespace) => format!("RoleBinding {:?} of {kind} {name:?} to {subject}", format!("{binding}/{namespace}")),
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Index")
    }
}
