//! `MutatingWebhookConfiguration` and `ValidatingWebhookConfiguration`, compiled. The compiled list is replaced as a whole
//! whenever a configuration changes, before that write is acknowledged, and read lock-free by requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;

use super::endpoint::Endpoint;
use crate::admission::expression::{Conditions, Site, environment};
use crate::admission::index::Index;
use crate::admission::matching::Criteria;
use crate::object::{Object, meta};
use crate::watch::Observer;

/// One webhook of one configuration.
#[derive(Debug)]
pub struct Hook {
    /// The name of the configuration.
    pub configuration: Arc<str>,
    /// The name of the webhook.
    pub name: Arc<str>,
    /// What tells it from all others, also from one of the same name.
    pub id: Arc<str>,
    /// Which requests it is about.
    pub criteria: Criteria,
    /// Its `matchConditions`.
    pub conditions: Conditions,
    /// Whether `failurePolicy` is `Ignore`.
    pub fails_open: bool,
    /// Between 1 and 30.
    pub timeout_seconds: u64,
    /// Whether `sideEffects` is `None` or `NoneOnDryRun`.
    pub allows_dry_run: bool,
    /// Whether `reinvocationPolicy` is `IfNeeded`.
    pub reinvocable: bool,
    /// The review version to send: the first that it and this server know.
    pub review_version: Option<&'static str>,
    /// Where it is.
    pub endpoint: Endpoint,
    /// Whether it comes from a manifest: such a webhook is asked also about what the API can configure.
    pub is_static: bool,
}

impl Hook {
    fn compile(configuration: &str, position: usize, webhook: &Value) -> Hook {
        let name = webhook["name"].as_str().unwrap_or_default();
        let conditions = match webhook["matchConditions"].as_array().is_some_and(|c| !c.is_empty()) {
            true => Conditions::compile(&webhook["matchConditions"], &environment(Site { authorizer: true, ..Site::default() })),
            false => Conditions::default(),
        };
        let versions = webhook["admissionReviewVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let known = |version: &str| match version {
            "v1" => Some("admission.k8s.io/v1"),
            "v1beta1" => Some("admission.k8s.io/v1beta1"),
            _ => None,
        };
        Hook {
            configuration: configuration.into(),
            name: name.into(),
            id: format!("{configuration}/{name}/{position}").into(),
            criteria: Criteria::of_webhook(webhook),
            conditions,
            fails_open: webhook["failurePolicy"] == "Ignore",
            timeout_seconds: webhook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30),
            allows_dry_run: matches!(webhook["sideEffects"].as_str(), Some("None" | "NoneOnDryRun")),
            reinvocable: webhook["reinvocationPolicy"] == "IfNeeded",
            review_version: versions.filter_map(known).next(),
            endpoint: Endpoint::from_value(&webhook["clientConfig"]),
            is_static: configuration.ends_with(crate::admission::manifest::SUFFIX),
        }
    }
}

/// All webhooks of one sort in the order in which they are asked.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// By the name of the configuration, then as written.
    pub hooks: Vec<Arc<Hook>>,
    /// Which could be about a resource.
    pub index: Index,
}

/// The webhooks in force.
#[derive(Debug, Default)]
pub struct Hooks {
    configurations: Mutex<BTreeMap<String, Vec<Arc<Hook>>>>,
    snapshot: ArcSwap<Snapshot>,
}

impl Hooks {
    /// The webhooks as they are now.
    pub fn load(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Puts a configuration in force, or with `None` takes it out. `key` keeps apart what comes from different sources.
    pub fn replace(&self, key: &str, configuration: Option<&Value>) {
        let mut configurations = self.configurations.lock();
        match configuration {
            None => {
                configurations.remove(key);
            }
            Some(configuration) => {
                let name = meta(configuration, "name");
                let webhooks = configuration["webhooks"].as_array().into_iter().flatten().enumerate();
                configurations.insert(key.to_owned(), webhooks.map(|(i, w)| Arc::new(Hook::compile(name, i, w))).collect());
            }
        }
        let hooks: Vec<Arc<Hook>> = configurations.values().flatten().cloned().collect();
        let index = Index::new(hooks.iter().map(|hook| &hook.criteria));
        self.snapshot.store(Arc::new(Snapshot { hooks, index }));
    }
}

impl Observer for Hooks {
    fn changed(&self, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>) {
        if let Some(object) = new.or(old) {
            self.replace(object.name(), new.map(|object| &**object.value()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn webhooks_are_ordered_by_configuration_then_as_written() {
        let hooks = Hooks::default();
        let configuration = |name: &str, webhooks: &[&str]| json!({"metadata": {"name": name}, "webhooks": webhooks.iter().map(|w| json!({"name": w, "clientConfig": {"url": "https://x"}})).collect::<Vec<_>>()});
        hooks.replace("b", Some(&configuration("b", &["z.b", "a.b"])));
        hooks.replace("a", Some(&configuration("a", &["m.a"])));
        let names = |hooks: &Hooks| hooks.load().hooks.iter().map(|h| h.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&hooks), ["m.a", "z.b", "a.b"]);
        hooks.replace("b", None);
        assert_eq!(names(&hooks), ["m.a"]);
    }

    #[test]
    fn only_a_webhook_without_side_effects_takes_part_in_a_dry_run() {
        for (side_effects, allows) in [("None", true), ("NoneOnDryRun", true), ("Some", false), ("Unknown", false)] {
            assert_eq!(Hook::compile("c", 0, &json!({"name": "w", "sideEffects": side_effects})).allows_dry_run, allows, "{side_effects}");
        }
    }
}
