//! Policies, bindings and webhook configurations from a directory: in force from the first request, out of reach of the API, and taken
//! anew when a file changes. A file that does not parse or compile leaves its last good content in force and is told in the log.
//!
//! Their names end in `.static.k8s.io`, which the API does not let anybody else use; a name in a file that lacks the ending gets it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::policy::snapshot::Policies;
use super::webhook::configuration::Hooks;
use crate::object::meta;
use crate::registry::Registry;
use crate::schema::decode::{Expected, FieldValidation, conform};
use crate::schema::{default, yaml};
use crate::validation;

/// What the names of manifests end in.
pub const SUFFIX: &str = ".static.k8s.io";

/// No manifest is larger.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Where manifests go.
#[derive(Clone)]
pub struct Targets {
    /// `MutatingAdmissionPolicy` and its bindings.
    pub mutating_policies: Arc<Policies>,
    /// `ValidatingAdmissionPolicy` and its bindings.
    pub validating_policies: Arc<Policies>,
    /// `MutatingWebhookConfiguration`.
    pub mutating_hooks: Arc<Hooks>,
    /// `ValidatingWebhookConfiguration`.
    pub validating_hooks: Arc<Hooks>,
}

/// A directory of manifests; followed as long as this is kept.
#[must_use = "the directory is followed only as long as this is kept"]
pub struct Manifests {
    _watcher: RecommendedWatcher,
}

struct Loaded {
    directory: PathBuf,
    /// The plugin whose directory it is; one that is nobody's may hold everything.
    plugin: Option<String>,
    registry: Arc<Registry>,
    targets: Targets,
    /// The last good content of every file.
    files: BTreeMap<PathBuf, Vec<Value>>,
    /// What is in force, by kind and name.
    in_force: BTreeSet<(String, String)>,
}

impl Manifests {
    /// Loads a directory and follows it; that of a plugin holds what the plugin is about, under names that have their ending.
    ///
    /// # Errors
    /// If a file is wrong from the start, or the directory cannot be read.
    pub fn follow(directory: &Path, plugin: Option<&str>, registry: Arc<Registry>, targets: Targets) -> Result<Manifests, String> {
        let (directory_owned, plugin) = (directory.to_owned(), plugin.map(str::to_owned));
        let (files, in_force) = (BTreeMap::new(), BTreeSet::new());
        let mut loaded = Loaded { directory: directory_owned, plugin, registry, targets, files, in_force };
        let errors = loaded.reload()?;
        if let Some(error) = errors.first() {
            return Err(error.clone());
        }
        let shared = Mutex::new(loaded);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| event.kind.is_access()) {
                return;
            }
            match shared.lock().reload() {
                Ok(errors) => {
                    for error in errors {
                        tracing::warn!(%error, "admission manifest not taken; its last good content stays in force");
                    }
                }
                Err(error) => tracing::warn!(%error, "admission manifests not reloaded"),
            }
        })
        .map_err(|e| format!("cannot watch {}: {e}", directory.display()))?;
        watcher.watch(directory, RecursiveMode::Recursive).map_err(|e| format!("cannot watch {}: {e}", directory.display()))?;
        Ok(Manifests { _watcher: watcher })
    }
}

impl Loaded {
    /// Reads everything anew; gives back what is wrong with single files.
    fn reload(&mut self) -> Result<Vec<String>, String> {
        let (mut files, mut errors) = (BTreeMap::new(), Vec::new());
        for path in paths(&self.directory)? {
            match read(&path, self.plugin.as_deref(), &self.registry) {
                Ok(objects) => {
                    files.insert(path, objects);
                }
                Err(error) => {
                    errors.push(format!("{}: {error}", path.display()));
                    if let Some(last) = self.files.get(&path) {
                        files.insert(path, last.clone());
                    }
                }
            }
        }
        self.files = files;
        let mut now: BTreeMap<(String, String), &Path> = BTreeMap::new();
        for (path, object) in self.files.iter().flat_map(|(path, objects)| objects.iter().map(move |object| (path, object))) {
            let (kind, name) = (object["kind"].as_str().unwrap_or_default().to_owned(), meta(object, "name").to_owned());
            if let Some(first) = now.get(&(kind.clone(), name.clone())) {
                errors.push(format!("{}: duplicate name {name:?} of a {kind} (previously seen in {:?})", path.display(), first.display()));
                continue;
            }
            self.put(&kind, &name, Some(object));
            now.insert((kind, name), path);
        }
        let now: BTreeSet<(String, String)> = now.into_keys().collect();
        let gone: Vec<_> = self.in_force.difference(&now).cloned().collect();
        for (kind, name) in gone {
            self.put(&kind, &name, None);
        }
        self.in_force = now;
        Ok(errors)
    }

    fn put(&self, kind: &str, name: &str, object: Option<&Value>) {
        // Sorts before every name that the API can have: manifests come first.
        let key = format!("\0{name}");
        let targets = &self.targets;
        match kind {
            "ValidatingAdmissionPolicy" => targets.validating_policies.replace_policy(&key, object),
            "ValidatingAdmissionPolicyBinding" => targets.validating_policies.replace_binding(&key, object),
            "MutatingAdmissionPolicy" => targets.mutating_policies.replace_policy(&key, object),
            "MutatingAdmissionPolicyBinding" => targets.mutating_policies.replace_binding(&key, object),
            "ValidatingWebhookConfiguration" => targets.validating_hooks.replace(&key, object),
            "MutatingWebhookConfiguration" => targets.mutating_hooks.replace(&key, object),
            _ => {}
        }
    }
}

/// The manifests under a directory, in order. Tests that stand beside a policy are not manifests.
fn paths(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(directory).map_err(|e| format!("cannot read {}: {e}", directory.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "tests" && !name.starts_with('.') {
                found.extend(paths(&path)?);
            }
        } else if matches!(path.extension().and_then(|e| e.to_str()), Some("yaml" | "yml" | "json")) && !name.contains(".test.") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path, plugin: Option<&str>, registry: &Registry) -> Result<Vec<Value>, String> {
    let length = std::fs::metadata(path).map_err(|e| e.to_string())?.len();
    if length > MAX_FILE_BYTES {
        return Err(format!("too large: {length} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    // Whoever writes a file anew empties it first, and what it guards must not be open meanwhile.
    if text.is_empty() {
        return Err("the file is empty".into());
    }
    parse(&text, plugin, registry)
}

/// The objects of a manifest, checked and with their endings.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str, plugin: Option<&str>, registry: &Registry) -> Result<Vec<Value>, String> {
    let mut objects = Vec::new();
    for part in split(text) {
        let document = yaml::parse(&part)?.value;
        match (document.is_null(), document["kind"].as_str()) {
            (true, _) => {}
            (_, Some("List")) => objects.extend(document["items"].as_array().cloned().unwrap_or_default()),
            _ => objects.push(document),
        }
    }
    if let Some(plugin) = plugin {
        objects.iter().try_for_each(|object| belongs(object, plugin))?;
    }
    objects.into_iter().map(|object| checked(object, registry)).collect()
}

/// Whether an object is one for a plugin's own directory.
fn belongs(object: &Value, plugin: &str) -> Result<(), String> {
    let (kind, name) = (object["kind"].as_str().unwrap_or_default(), meta(object, "name"));
    // `…Policy` takes policies and their bindings, `…Webhook` webhook configurations, each of its own sort.
    let is_its = match plugin.strip_suffix("AdmissionWebhook") {
        Some(sort) => kind == format!("{sort}WebhookConfiguration"),
        None => kind == plugin || kind.strip_suffix("Binding") == Some(plugin),
    };
    match (is_its, name) {
        (false, _) => Err(format!("{kind} {name:?} is nothing for {plugin}")),
        (_, "") => Err(format!("a {kind} must have a name")),
        _ if !name.ends_with(SUFFIX) => Err(format!("{name:?} must have a name ending with {SUFFIX:?}")),
        _ => Ok(()),
    }
}

fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for line in text.lines() {
        if line.trim_end() == "---" {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    let is_blank = |part: &String| part.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    parts.retain(|part| !is_blank(part));
    parts
}

/// An object as the API would have taken it, under the name that a manifest has.
fn checked(object: Value, registry: &Registry) -> Result<Value, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]), meta(&object, "name").to_owned());
    let api_version = text(&object["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or_default();
    let resource = registry.by_kind(group, version, &kind).filter(|_| group == "admissionregistration.k8s.io");
    let resource = resource.ok_or_else(|| format!("{kind} {name:?} is no policy, binding or webhook configuration"))?;
    let schema = resource.schema();
    let expected = Expected { group, version, kind: &kind, schema: &schema, custom: false };
    let (mut made, _) = conform(object, expected, FieldValidation::Strict).map_err(|e| format!("{kind} {name:?}: {e}"))?;
    default::apply_defaults(&mut made, &resource);
    let ended = |name: &str| if name.ends_with(SUFFIX) { name.to_owned() } else { format!("{name}{SUFFIX}") };
    made["metadata"]["name"] = json!(ended(&name));
    if kind.ends_with("Binding") {
        let policy = text(&made["spec"]["policyName"]);
        made["spec"]["policyName"] = json!(ended(&policy));
    }
    match validation::create(&resource, &made).first() {
        Some(error) => Err(format!("{kind} {name:?}: {error}")),
        None => Ok(made),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n  matchConstraints:\n    resourceRules: [{operations: ['*'], apiGroups: [''], apiVersions: ['*'], resources: [pods]}]\n  validations: [{expression: 'true'}]\n";
    const BINDING: &str = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: p, validationActions: [Deny]}\n";

    fn targets() -> Targets {
        Targets {
            mutating_policies: Arc::default(),
            validating_policies: Arc::default(),
            mutating_hooks: Arc::default(),
            validating_hooks: Arc::default(),
        }
    }

    #[test]
    fn names_get_their_ending_and_references_follow() {
        let registry = Registry::new();
        let objects = parse(&format!("# why\n---\n{POLICY}---\n{BINDING}"), None, &registry).unwrap();
        assert_eq!(objects[0]["metadata"]["name"], "p.static.k8s.io");
        assert_eq!(objects[1]["spec"]["policyName"], "p.static.k8s.io");
        assert!(parse("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", None, &registry).is_err());
        let own = |text: &str, plugin: &str| parse(text, Some(plugin), &registry).map_err(|why| why.to_string());
        assert_eq!(own(POLICY, "ValidatingAdmissionPolicy").unwrap_err(), "\"p\" must have a name ending with \".static.k8s.io\"");
        let named = POLICY.replace("name: p", "name: p.static.k8s.io");
        assert_eq!(own(&named, "ValidatingAdmissionPolicy").unwrap().len(), 1);
        let elsewhere = "ValidatingAdmissionPolicy \"p.static.k8s.io\" is nothing for MutatingAdmissionWebhook";
        assert_eq!(own(&named, "MutatingAdmissionWebhook").unwrap_err(), elsewhere);
    }

    #[test]
    fn a_broken_file_keeps_its_last_good_content() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("p.yaml");
        std::fs::write(&file, format!("{POLICY}---\n{BINDING}")).unwrap();
        let targets = targets();
        let mut loaded = Loaded {
            directory: directory.path().into(),
            plugin: None,
            registry: Arc::new(Registry::new()),
            targets: targets.clone(),
            files: BTreeMap::new(),
            in_force: BTreeSet::new(),
        };
        assert!(loaded.reload().unwrap().is_empty());
        assert_eq!(targets.validating_policies.load().bound.len(), 1);
        std::fs::write(&file, POLICY.replace("'true'", "'object.x =='")).unwrap();
        assert_eq!(loaded.reload().unwrap().len(), 1);
        assert_eq!(targets.validating_policies.load().bound.len(), 1, "the last good one stays in force");
        std::fs::remove_file(&file).unwrap();
        assert!(loaded.reload().unwrap().is_empty());
        assert!(targets.validating_policies.load().bound.is_empty());
    }
}
