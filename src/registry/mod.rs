//! What exists. A [`Resource`] describes a built-in kind exactly as a CustomResourceDefinition describes a custom one,
//! and one generic REST implementation serves both. The table is replaced as a whole when a definition changes and read
//! lock-free by everybody.

pub mod bootstrap;
mod builtin;
pub mod custom;
mod resolve;
mod selectable;

pub use custom::{resources_of_definition, storage_version_hash};

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use serde_json::Value;

use crate::schema::Schema;

/// One resource in one version of its group, as discovery tells it.
#[derive(Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The version this record serves.
    pub version: Arc<str>,
    /// The kind of its objects.
    pub kind: Arc<str>,
    /// The kind of its lists.
    pub list_kind: Arc<str>,
    /// The name in paths.
    pub plural: Arc<str>,
    /// The name for people.
    pub singular: Arc<str>,
    /// Abbreviations that kubectl takes.
    pub short_names: Vec<Arc<str>>,
    /// Groups of resources such as `all`.
    pub categories: Vec<Arc<str>>,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// What can be done with it, in the words of discovery.
    pub verbs: Vec<Arc<str>>,
    /// `status`, `scale` and the others.
    pub subresources: Vec<Subresource>,
    /// The group whose form is stored; its own, but for events.k8s.io.
    pub storage_group: Arc<str>,
    /// The version whose form is stored.
    pub storage_version: Arc<str>,
    /// What discovery shows clients so that they notice a change of the stored form.
    pub storage_version_hash: Arc<str>,
    /// The part of the key behind `/registry/`: shared by all versions of a resource (and by core and events.k8s.io Events).
    pub storage: Arc<str>,
    /// The columns of a Table, besides those that [`crate::api`] computes in code.
    pub columns: Vec<Column>,
    /// Field selectors beyond `metadata.name` and `metadata.namespace`, as dotted paths.
    pub selectable: Vec<Arc<str>>,
    /// What users of this version are warned of (`v1 Endpoints is deprecated in v1.33+; …`).
    pub deprecation: Option<Arc<str>>,
    /// Where a custom resource comes from; `None` for a built-in one.
    pub custom: Option<Arc<Custom>>,
    /// The compiled schema, made on first use.
    pub(crate) schema: OnceLock<Arc<Schema>>,
}

/// A subresource of a resource.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// `status`, `scale`, `log`, …
    pub name: Arc<str>,
    /// The group, version and kind of the objects it takes and gives.
    pub group: Arc<str>,
    /// See `group`.
    pub version: Arc<str>,
    /// See `group`.
    pub kind: Arc<str>,
    /// What can be done with it.
    pub verbs: Vec<Arc<str>>,
}

/// One column of a Table.
#[derive(Clone, Debug)]
pub struct Column {
    /// The header.
    pub name: Arc<str>,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: Arc<str>,
    /// `name` for the name column.
    pub format: Arc<str>,
    /// What `kubectl explain` would say of it.
    pub description: Arc<str>,
    /// Zero is always shown; above it, with `-o wide`.
    pub priority: i32,
    /// The JSON path of a custom resource's column.
    pub json_path: Option<Arc<str>>,
}

/// What a custom resource's definition adds.
#[derive(Debug)]
pub struct Custom {
    /// The definition as it was last written.
    pub definition: Arc<Value>,
    /// The version's entry of `spec.versions`.
    pub version: Value,
    /// A hash of what is published of it, made on first use: definitions can be large.
    pub(crate) published_hash: OnceLock<String>,
}

/// The registry as it is now.
#[derive(Debug, Default)]
pub struct Table {
    /// Every resource of every version, in the order of discovery.
    pub resources: Vec<Arc<Resource>>,
    /// Group names in the order of discovery, each with its versions, the preferred one first.
    pub groups: Vec<Group>,
    /// Few resources share a plural, so that a look-up needs no key made of three strings.
    by_plural: HashMap<Arc<str>, Vec<Arc<Resource>>>,
}

/// A group and its versions, the preferred one first.
#[derive(Clone, Debug)]
pub struct Group {
    /// The group's name; empty for the core group.
    pub name: Arc<str>,
    /// Its versions.
    pub versions: Vec<Arc<str>>,
}

/// Read lock-free by everybody, replaced as a whole by whoever changes a definition.
#[derive(Debug)]
pub struct Registry {
    builtin: Vec<Arc<Resource>>,
    table: ArcSwap<Table>,
}

impl Resource {
    /// `apps/v1`, or `v1` in the core group: what `apiVersion` says.
    pub fn group_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// The group that messages give the kind: that of the type behind it, which Events of both groups share.
    pub fn kind_group(&self) -> &str {
        if &*self.group == "events.k8s.io" { "" } else { &self.group }
    }

    /// What its objects look like; compiled on first use.
    pub fn schema(&self) -> Arc<Schema> {
        let compile = || match &self.custom {
            Some(custom) => Arc::new(crate::schema::custom::compile(&custom.version)),
            None => crate::schema::builtin::of_kind(&self.group, &self.version, &self.kind).unwrap_or_default(),
        };
        self.schema.get_or_init(compile).clone()
    }

    /// `deployments.apps`, or `pods`: how messages name a resource.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_string() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The `apiVersion` of the stored form.
    pub fn storage_group_version(&self) -> String {
        api_version(&self.storage_group, &self.storage_version)
    }

    /// Whether objects must be converted between what is stored and what this record serves.
    pub fn is_stored_otherwise(&self) -> bool {
        self.storage_version != self.version || self.storage_group != self.group
    }

    /// Whether objects of this resource are kept at all (reviews and bindings are not).
    pub fn is_stored(&self) -> bool {
        !self.storage_version_hash.is_empty()
    }

    /// Whether `verb` is among those that discovery shows.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| **v == *verb)
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| *s.name == *name)
    }

    /// Whether there are fields besides name and namespace to select by.
    pub fn has_selectable_fields(&self) -> bool {
        !self.selectable.is_empty()
    }

    /// Whether fields may be selected by `label`, which clients write as a dotted path.
    pub fn is_selectable(&self, label: &str) -> bool {
        label == "metadata.name" || (label == "metadata.namespace" && self.namespaced) || self.selectable.iter().any(|s| **s == *label)
    }
}

/// What `apiVersion` says of a group and a version.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

impl Table {
    /// A table of these resources; the order of groups and versions is that of their first resource.
    pub fn new(resources: Vec<Arc<Resource>>) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut by_plural: HashMap<Arc<str>, Vec<Arc<Resource>>> = HashMap::with_capacity(resources.len());
        for resource in &resources {
            match groups.iter_mut().find(|g| g.name == resource.group) {
                Some(group) if group.versions.contains(&resource.version) => {}
                Some(group) => group.versions.push(resource.version.clone()),
                None => groups.push(Group { name: resource.group.clone(), versions: vec![resource.version.clone()] }),
            }
            by_plural.entry(resource.plural.clone()).or_default().push(resource.clone());
        }
        Self { resources, groups, by_plural }
    }

    /// The resource served at a path.
    pub fn lookup(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let same_plural = self.by_plural.get(plural)?;
        same_plural.iter().find(|r| *r.group == *group && *r.version == *version).cloned()
    }

    /// The resource whose objects are of a kind.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        self.resources.iter().find(|r| *r.kind == *kind && *r.group == *group && *r.version == *version).cloned()
    }

    /// The group of that name.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|g| *g.name == *name)
    }

    /// The resources of one version of a group, in the order of discovery.
    pub fn of_version<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.resources.iter().filter(move |r| *r.group == *group && *r.version == *version)
    }

    /// All versions of one resource.
    pub fn versions_of<'a>(&'a self, group: &'a str, plural: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.resources.iter().filter(move |r| *r.group == *group && *r.plural == *plural)
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// The built-in resources alone.
    pub fn new() -> Self {
        let builtin = builtin::resources();
        let table = ArcSwap::from_pointee(Table::new(builtin.clone()));
        Self { builtin, table }
    }

    /// What exists now. Hold it for the length of a request, not longer.
    pub fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// The resource served at a path.
    pub fn lookup(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.table.load().lookup(group, version, plural)
    }

    /// The resource whose objects are of a kind.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        self.table.load().by_kind(group, version, kind)
    }

    /// Puts these custom resources in the place of all earlier ones. Records that have not changed are best handed back
    /// as they were, since they carry their compiled schema. Where a path is already a built-in one's, the built-in wins.
    pub fn replace_custom<R: Into<Arc<Resource>>>(&self, custom: impl IntoIterator<Item = R>) {
        let mut custom: Vec<Arc<Resource>> = custom.into_iter().map(Into::into).collect();
        custom.retain(|c| !self.builtin.iter().any(|b| b.group == c.group && b.version == c.version && b.plural == c.plural));
        custom.sort_by(|a, b| {
            a.group.cmp(&b.group).then_with(|| custom::compare_versions(&a.version, &b.version)).then_with(|| a.plural.cmp(&b.plural))
        });
        let mut resources = self.builtin.clone();
        resources.append(&mut custom);
        self.table.store(Arc::new(Table::new(resources)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_and_apps_are_looked_up_by_path_and_by_kind() {
        let registry = Registry::new();
        let pods = registry.lookup("", "v1", "pods").expect("pods");
        assert_eq!((&*pods.kind, pods.namespaced, &*pods.storage), ("Pod", true, "pods"));
        assert_eq!(registry.by_kind("apps", "v1", "Deployment").expect("kind").qualified(), "deployments.apps");
        assert!(registry.lookup("apps", "v1beta1", "deployments").is_none());
        assert!(registry.lookup("certificates.k8s.io", "v1beta1", "clustertrustbundles").is_none(), "off by default");
    }

    #[test]
    fn versions_of_one_kind_share_their_storage() {
        let registry = Registry::new();
        let v1 = registry.lookup("autoscaling", "v1", "horizontalpodautoscalers").expect("v1");
        let v2 = registry.lookup("autoscaling", "v2", "horizontalpodautoscalers").expect("v2");
        assert_eq!((&v1.storage, v1.storage_group_version()), (&v2.storage, v2.group_version()));
        let events = registry.lookup("events.k8s.io", "v1", "events").expect("events");
        assert_eq!(events.storage_group_version(), "v1");
        assert!(events.is_stored_otherwise());
    }

    #[test]
    fn storage_segments_are_unique_but_for_shared_objects() {
        let table = Registry::new().table();
        let mut seen: HashMap<Arc<str>, (Arc<str>, Arc<str>)> = HashMap::new();
        for resource in &table.resources {
            let stored = (resource.storage_group.clone(), resource.kind.clone());
            assert_eq!(seen.entry(resource.storage.clone()).or_insert_with(|| stored.clone()), &stored, "{}", resource.plural);
        }
    }

    #[test]
    fn groups_come_in_the_order_of_discovery_with_the_preferred_version_first() {
        let table = Registry::new().table();
        assert_eq!(table.groups.iter().take(3).map(|g| &*g.name).collect::<Vec<_>>(), ["", "apiregistration.k8s.io", "apps"]);
        let autoscaling = table.group("autoscaling").expect("autoscaling");
        assert_eq!(autoscaling.versions.iter().map(|v| &**v).collect::<Vec<_>>(), ["v2", "v1"]);
    }
}
