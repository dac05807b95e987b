//! Aggregated APIs: group versions that an extension server answers for, as APIService objects say. This file knows which they are and what
//! discovery tells of them; [`availability`] finds out whether they can be reached, [`proxy`] hands requests on, [`openapi`] knows
//! their documents.

pub mod availability;
mod headers;
mod openapi;
pub mod proxy;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::admission::Cluster;
use crate::admission::webhook::endpoint::{Service, ServiceMap};
use crate::object::Object;
use crate::registry::{Group, Table};
use crate::store;
use crate::watch::{Observer, State};

/// A group version that is served elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Remote {
    /// The name of the APIService.
    pub name: String,
    /// The group.
    pub group: Arc<str>,
    /// The version.
    pub version: Arc<str>,
    /// The Service that the extension server stands behind.
    pub service: Service,
    /// Whom to trust: certificates as PEM, or nobody in particular.
    pub ca_bundle: Vec<u8>,
    /// `insecureSkipTLSVerify`.
    pub insecure: bool,
    /// Groups and versions with a higher one come first in discovery.
    pub priority: (i64, i64),
    /// Whether it could be reached when last asked.
    pub available: bool,
}

impl Remote {
    /// Reads an APIService; `None` for one that this server answers for itself.
    pub fn from_value(object: &Value) -> Option<Remote> {
        use base64::Engine;
        let spec = &object["spec"];
        let service = spec["service"].as_object()?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let port = service.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let bundle = spec["caBundle"].as_str().and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
        Some(Remote {
            name: text(object["metadata"].get("name")),
            group: text(spec.get("group")).into(),
            version: text(spec.get("version")).into(),
            service: Service { namespace: text(service.get("namespace")), name: text(service.get("name")), port, path: "/".into() },
            ca_bundle: bundle.unwrap_or_default(),
            insecure: spec["insecureSkipTLSVerify"] == true,
            priority: (spec["groupPriorityMinimum"].as_i64().unwrap_or(0), spec["versionPriority"].as_i64().unwrap_or(0)),
            available: conditions.into_iter().any(|c| c["type"] == "Available" && c["status"] == "True"),
        })
    }
}

/// The extension servers of a cluster.
pub struct Aggregator {
    remotes: ArcSwap<Vec<Arc<Remote>>>,
    /// What the available ones serve, in the form of aggregated discovery, by the name of the APIService.
    resources: Mutex<HashMap<String, Vec<Value>>>,
    /// What they publish in OpenAPI, likewise.
    published: Mutex<HashMap<String, Arc<openapi::Published>>>,
    clients: proxy::Clients,
    cluster: Cluster,
    /// Rung when something changed that availability depends on.
    changed: Notify,
}

impl Aggregator {
    /// Follows APIService objects. `identity` is the certificate and key, as PEM, that this server shows to extension servers.
    pub async fn over(state: &State, cluster: Cluster, services: Arc<ServiceMap>, identity: String) -> store::Result<Arc<Aggregator>> {
        let aggregator = Arc::new(Aggregator {
            remotes: ArcSwap::default(),
            resources: Mutex::default(),
            published: Mutex::default(),
            clients: proxy::Clients::new(services, identity),
            cluster,
            changed: Notify::new(),
        });
        let services = Registered { aggregator: aggregator.clone(), known: Mutex::default() };
        state.topic("apiservices").await?.observe(Arc::new(services));
        for storage in ["services", "endpointslices"] {
            state.topic(storage).await?.observe(Arc::new(Reachable(aggregator.clone())));
        }
        state.topic("customresourcedefinitions").await?.observe(Arc::new(Defined(aggregator.clone())));
        Ok(aggregator)
    }

    /// Whoever answers for a path, unless this server does itself.
    pub fn find(&self, path: &str, table: &Table) -> Option<Arc<Remote>> {
        let remotes = self.remotes.load();
        if remotes.is_empty() {
            return None;
        }
        if path.starts_with("/openapi/") {
            return self.documented(path, table);
        }
        let mut parts = path.trim_start_matches('/').split('/');
        let (Some("apis"), Some(group), Some(version)) = (parts.next(), parts.next(), parts.next()) else { return None };
        let found = remotes.iter().find(|remote| *remote.group == *group && *remote.version == *version)?;
        table.of_version(group, version).next().is_none().then(|| found.clone())
    }

    /// The groups of the table with those of extension servers, as the legacy discovery tells them.
    pub fn groups(&self, table: &Table) -> Vec<Group> {
        let mut groups = table.groups.clone();
        for remote in self.remotes.load().iter() {
            match groups.iter_mut().find(|group| group.name == remote.group) {
                Some(group) if group.versions.contains(&remote.version) => {}
                Some(group) => group.versions.push(remote.version.clone()),
                None => groups.push(Group { name: remote.group.clone(), versions: vec![remote.version.clone()] }),
            }
        }
        groups
    }

    /// Adds the groups of extension servers to those of aggregated discovery.
    pub fn discover(&self, items: &mut Vec<Value>) {
        let resources = self.resources.lock();
        for remote in self.remotes.load().iter() {
            let version = match resources.get(&remote.name).filter(|_| remote.available) {
                Some(resources) => json!({"version": *remote.version, "resources": resources, "freshness": "Current"}),
                None => json!({"version": *remote.version, "freshness": "Stale"}),
            };
            match items.iter_mut().find(|item| item["metadata"]["name"] == *remote.group) {
                None => items.push(json!({"metadata": {"name": *remote.group}, "versions": [version]})),
                Some(item) => {
                    if let Some(versions) = item["versions"].as_array_mut()
                        && !versions.iter().any(|known| known["version"] == version["version"])
                    {
                        versions.push(version);
                    }
                }
            }
        }
    }
}

/// Keeps the list of extension servers in step with APIService objects.
struct Registered {
    aggregator: Arc<Aggregator>,
    known: Mutex<BTreeMap<String, Arc<Remote>>>,
}

impl Observer for Registered {
    fn changed(&self, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>) {
        let Some(either) = new.or(old) else { return };
        let mut known = self.known.lock();
        let before = known.len();
        match new.and_then(|new| Remote::from_value(new.value())) {
            Some(remote) => drop(known.insert(either.name().to_owned(), Arc::new(remote))),
            None => drop(known.remove(either.name())),
        }
        if before == 0 && known.is_empty() {
            return;
        }
        let mut remotes: Vec<Arc<Remote>> = known.values().cloned().collect();
        remotes.sort_by_key(|remote| std::cmp::Reverse(remote.priority));
        self.aggregator.remotes.store(Arc::new(remotes));
        // What this server itself writes of availability is no reason to ask again.
        let spec = |object: Option<&Arc<Object>>| object.map(|object| object.value()["spec"].clone());
        if spec(old) != spec(new) {
            self.aggregator.changed.notify_one();
        }
    }
}

/// Services and their endpoints matter while there are extension servers.
struct Reachable(Arc<Aggregator>);

impl Observer for Reachable {
    fn changed(&self, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>) {
        let remotes = self.0.remotes.load();
        if remotes.is_empty() {
            return;
        }
        let Some(key) = new.or(old).map(|object| &object.key) else { return };
        if remotes.iter().any(|remote| key.contains(&format!("/{}/{}", remote.service.namespace, remote.service.name))) {
            self.0.changed.notify_one();
        }
    }
}

/// Groups of custom resources have APIServices of their own.
struct Defined(Arc<Aggregator>);

impl Observer for Defined {
    fn changed(&self, _: Option<&Arc<Object>>, _: Option<&Arc<Object>>) {
        self.0.changed.notify_one();
    }
}

/// The resources of a legacy discovery document, as aggregated discovery tells them.
fn aggregated_resources(group: &str, version: &str, list: &Value) -> Vec<Value> {
    let kind_of = |entry: &Value| {
        let text = |field: &str, usual: &str| entry[field].as_str().filter(|text| !text.is_empty()).unwrap_or(usual).to_owned();
        json!({"group": text("group", group), "version": text("version", version), "kind": text("kind", "")})
    };
    let mut out: Vec<Value> = Vec::new();
    for entry in list["resources"].as_array().into_iter().flatten() {
        let name = entry["name"].as_str().unwrap_or_default();
        if let Some((resource, subresource)) = name.split_once('/') {
            let told = json!({"subresource": subresource, "responseKind": kind_of(entry), "verbs": entry["verbs"]});
            if let Some(parent) = out.iter_mut().find(|parent| parent["resource"] == resource) {
                match parent["subresources"].as_array_mut() {
                    Some(all) => all.push(told),
                    None => parent["subresources"] = json!([told]),
                }
            }
            continue;
        }
        let mut told = json!({
            "resource": name, "responseKind": kind_of(entry), "scope": if entry["namespaced"] == true { "Namespaced" } else { "Cluster" },
            "singularResource": entry["singularName"].as_str().unwrap_or_default(), "verbs": entry["verbs"],
        });
        for field in ["shortNames", "categories"] {
            if entry[field].is_array() {
                told[field] = entry[field].clone();
            }
        }
        out.push(told);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_service_without_a_service_is_this_servers_own() {
        assert_eq!(Remote::from_value(&json!({"spec": {"group": "apps", "version": "v1"}})), None);
        let remote = Remote::from_value(
            &json!({"metadata": {"name": "v1.g"}, "spec": {"group": "g", "version": "v1", "service": {"name": "s", "namespace": "n"}}}),
        );
        let remote = remote.unwrap();
        assert_eq!((remote.service.port, remote.available), (443, false));
    }

    #[test]
    fn a_legacy_document_becomes_an_aggregated_one() {
        let list = json!({"resources": [
            {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get"]},
            {"name": "things/scale", "singularName": "", "namespaced": true, "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get"]},
        ]});
        let scale =
            json!({"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}, "verbs": ["get"]});
        let thing = json!({"resource": "things", "responseKind": {"group": "g", "version": "v2", "kind": "Thing"}, "scope": "Namespaced",
            "singularResource": "thing", "verbs": ["get"], "subresources": [scale]});
        assert_eq!(aggregated_resources("g", "v2", &list), [thing]);
    }
}
