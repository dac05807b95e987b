//! What exists, told to clients: the legacy documents, one request each, and the aggregated ones, one request for all.
//! Pure functions from the registry's table; who may see them and which one is wanted is decided by the router.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::registry::{Group, Resource, Subresource, Table, api_version};

/// A document as it is sent, and the tag by which a client knows that it has it already.
#[derive(Clone, Debug)]
pub struct Document {
    /// The body.
    pub body: Bytes,
    /// The value of `ETag`, quotes included.
    pub etag: String,
}

impl Document {
    /// A document with this body.
    pub fn new(body: Vec<u8>) -> Self {
        let etag = format!("\"{}\"", hash(&[&body]));
        Self { body: body.into(), etag }
    }

    /// A document with this value as JSON.
    pub fn json(value: &Value) -> Self {
        Self::new(value.to_string().into_bytes())
    }
}

/// The hash that tags and OpenAPI addresses carry.
pub(super) fn hash(parts: &[&[u8]]) -> String {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA512);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

/// `/api`, in its legacy form.
pub fn api_versions(server_address: &str) -> Value {
    let address = json!({"clientCIDR": "0.0.0.0/0", "serverAddress": server_address});
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]})
}

/// `/apis`, in its legacy form.
pub fn api_group_list(groups: &[Group]) -> Value {
    let groups: Vec<Value> = groups.iter().filter(|g| !g.name.is_empty()).map(|g| Value::Object(group(g))).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`.
pub fn api_group(groups: &[Group], name: &str) -> Option<Value> {
    let mut value = group(groups.iter().find(|g| *g.name == *name && !g.name.is_empty())?);
    value.insert("kind".into(), "APIGroup".into());
    value.insert("apiVersion".into(), "v1".into());
    Some(Value::Object(value))
}

fn group(group: &Group) -> Map<String, Value> {
    let version = |v: &str| json!({"groupVersion": api_version(&group.name, v), "version": v});
    let versions: Vec<Value> = group.versions.iter().map(|v| version(v)).collect();
    let mut value = Map::new();
    value.insert("name".into(), (*group.name).into());
    value.insert("preferredVersion".into(), versions.first().cloned().unwrap_or_default());
    value.insert("versions".into(), versions.into());
    value
}

/// `/api/v1` and `/apis/<group>/<version>`.
pub fn api_resource_list(table: &Table, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for resource in table.of_version(group, version) {
        resources.push(resource_entry(resource));
        resources.extend(resource.subresources.iter().map(|sub| subresource_entry(resource, sub)));
    }
    if resources.is_empty() {
        return None;
    }
    let mut value = json!({"kind": "APIResourceList", "groupVersion": api_version(group, version), "resources": resources});
    if !group.is_empty() {
        value["apiVersion"] = "v1".into();
    }
    Some(value)
}

fn resource_entry(resource: &Resource) -> Value {
    let mut value = json!({
        "name": *resource.plural, "singularName": *resource.singular, "namespaced": resource.namespaced,
        "kind": *resource.kind, "verbs": words(&resource.verbs),
    });
    for (key, names) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !names.is_empty() {
            value[key] = words(names);
        }
    }
    if !resource.storage_version_hash.is_empty() {
        value["storageVersionHash"] = (*resource.storage_version_hash).into();
    }
    value
}

fn subresource_entry(resource: &Resource, sub: &Subresource) -> Value {
    let mut value = json!({
        "name": format!("{}/{}", resource.plural, sub.name), "singularName": "", "namespaced": resource.namespaced,
        "kind": *sub.kind, "verbs": words(&sub.verbs),
    });
    // Only a kind of another group says so.
    if sub.group != resource.group || sub.version != resource.version {
        value["group"] = (*sub.group).into();
        value["version"] = (*sub.version).into();
    }
    value
}

fn words(names: &[std::sync::Arc<str>]) -> Value {
    names.iter().map(|name| Value::from(&**name)).collect()
}

/// `/api` (`core`) or `/apis`, in the aggregated form of `version`, which is `v2` or `v2beta1`.
pub fn aggregated(table: &Table, core: bool, version: &str) -> Value {
    aggregated_of(aggregated_items(table, core), version)
}

/// The aggregated form of these groups: the table's, and perhaps those of extension servers.
pub fn aggregated_of(items: Vec<Value>, version: &str) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"), "metadata": {}, "items": items})
}

/// The groups of the table, each with everything in it.
pub fn aggregated_items(table: &Table, core: bool) -> Vec<Value> {
    let groups = table.groups.iter().filter(|group| group.name.is_empty() == core);
    groups
        .map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = table.of_version(&group.name, version).map(|r| aggregated_resource(r)).collect();
                    json!({"version": **version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if core { json!({}) } else { json!({"name": *group.name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect()
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut value = json!({
        "resource": *resource.plural,
        "responseKind": {"group": *resource.group, "version": *resource.version, "kind": *resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": *resource.singular,
        "verbs": words(&resource.verbs),
    });
    for (key, names) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !names.is_empty() {
            value[key] = words(names);
        }
    }
    if !resource.subresources.is_empty() {
        let subresources = resource.subresources.iter().map(|sub| {
            json!({
                "subresource": *sub.name,
                "responseKind": {"group": *sub.group, "version": *sub.version, "kind": *sub.kind},
                "verbs": words(&sub.verbs),
            })
        });
        value["subresources"] = subresources.collect();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn legacy_documents_have_their_known_shape() {
        let table = Registry::new().table();
        let core = api_resource_list(&table, "", "v1").expect("core");
        assert_eq!(core.get("apiVersion"), None);
        let pods = core["resources"].as_array().expect("list").iter().find(|r| r["name"] == "pods").expect("pods").clone();
        assert_eq!(
            pods,
            json!({"name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod", "shortNames": ["po"], "categories": ["all"],
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"], "storageVersionHash": "xPOwRZ+Yhw8="})
        );
        let eviction = core["resources"].as_array().expect("list").iter().find(|r| r["name"] == "pods/eviction").expect("eviction").clone();
        assert_eq!(
            eviction,
            json!({"name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]})
        );
        assert_eq!(
            api_group(&table.groups, "apps"),
            Some(
                json!({"kind": "APIGroup", "apiVersion": "v1", "name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
                "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"}})
            )
        );
        assert_eq!(api_group(&table.groups, ""), None);
        assert_eq!(api_resource_list(&table, "apps", "v2"), None);
    }

    #[test]
    fn the_aggregated_document_holds_every_group_once() {
        let table = Registry::new().table();
        let document = aggregated(&table, false, "v2");
        let items = document["items"].as_array().expect("items");
        assert_eq!(items.len(), table.groups.len() - 1);
        assert_eq!(items[0]["metadata"]["name"], "apiregistration.k8s.io");
        let core = aggregated(&table, true, "v2");
        assert_eq!(core["items"][0]["metadata"], json!({}));
        assert_eq!(core["items"][0]["versions"][0]["freshness"], "Current");
        let (one, two) = (Document::json(&document), Document::json(&aggregated(&table, false, "v2")));
        assert_eq!(one.etag, two.etag);
        assert_eq!(one.etag.len(), 130);
    }
}
