//! What the server serves: its resources by the version it prefers, for components that work on every kind there is.

use std::collections::HashSet;

use http::{Request, header};
use kube::Client;
use serde::Deserialize;

use super::{component::Error, object::Partial, watches::collection_path, writer::object_path};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// Asks for no more than the metadata of a list's objects.
pub(super) const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// One resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource {
    /// The API group; empty for the core one.
    pub group: String,
    /// The version.
    pub version: String,
    /// The name in paths.
    pub plural: String,
    /// The kind.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it.
    pub verbs: Vec<String>,
}

impl Resource {
    /// Whether all of these can be done with it.
    pub fn can(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|own| own == verb))
    }

    /// The path of the collection over all namespaces.
    pub fn collection(&self) -> String {
        collection_path(&self.group, &self.version, &self.plural)
    }

    /// The path of one object, or of a collection if the name is empty.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        object_path(&self.group, &self.version, &self.plural, namespace, name)
    }

    /// The metadata of all its objects in a namespace.
    pub async fn list_metadata(&self, client: &Client, namespace: &str) -> Result<Vec<Partial>, Error> {
        let text = get(client, &self.path(namespace, ""), METADATA).await?;
        Ok(serde_json::from_str::<Listed>(&text)?.items.unwrap_or_default())
    }
}

#[derive(Deserialize)]
struct Listed {
    /// A list of no metadata is none.
    items: Option<Vec<Partial>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Groups {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    items: Vec<Group>,
    #[serde(default)]
    groups: Vec<LegacyGroup>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Named,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    resources: Vec<Served>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Served {
    resource: String,
    #[serde(default)]
    response_kind: Option<Kind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize, Default)]
struct Kind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct LegacyGroup {
    #[serde(default)]
    versions: Vec<LegacyVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyVersion {
    group_version: String,
}

/// All resources, each in the first version of its group that has it.
pub async fn discover(client: &Client) -> Result<Vec<Resource>, Error> {
    let mut found = Vec::new();
    for root in ["/api", "/apis"] {
        let groups: Groups = serde_json::from_str(&get(client, root, AGGREGATED).await?)?;
        if groups.kind == "APIGroupDiscoveryList" {
            found.extend(aggregated(groups));
        } else if root == "/api" {
            found.extend(one_version(client, "v1").await?);
        } else {
            for version in groups.groups.iter().flat_map(|group| &group.versions) {
                found.extend(one_version(client, &version.group_version).await?);
            }
        }
    }
    Ok(preferred(found))
}

async fn get(client: &Client, path: &str, accept: &str) -> Result<String, Error> {
    let request = Request::get(path).header(header::ACCEPT, accept).body(Vec::new());
    Ok(client.request_text(request.map_err(kube::Error::HttpError)?).await?)
}

fn aggregated(groups: Groups) -> Vec<Resource> {
    let mut found = Vec::new();
    for group in groups.items {
        for version in group.versions {
            for served in version.resources {
                found.push(Resource {
                    group: group.metadata.name.clone(),
                    version: version.version.clone(),
                    plural: served.resource,
                    kind: served.response_kind.unwrap_or_default().kind,
                    namespaced: served.scope == "Namespaced",
                    verbs: served.verbs,
                });
            }
        }
    }
    found
}

async fn one_version(client: &Client, group_version: &str) -> Result<Vec<Resource>, Error> {
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    let list = if group.is_empty() {
        client.list_core_api_resources(version).await?
    } else {
        client.list_api_group_resources(group_version).await?
    };
    let own = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
    let own = own.map(|resource| Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: resource.name,
        kind: resource.kind,
        namespaced: resource.namespaced,
        verbs: resource.verbs,
    });
    Ok(own.collect())
}

fn preferred(all: Vec<Resource>) -> Vec<Resource> {
    let mut seen = HashSet::new();
    all.into_iter().filter(|resource| seen.insert((resource.group.clone(), resource.plural.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_taken_in_the_first_version_that_has_it() {
        let groups: Groups = serde_json::from_str(
            r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"autoscaling"},"versions":[
            {"version":"v2","resources":[{"resource":"horizontalpodautoscalers","responseKind":{"kind":"HorizontalPodAutoscaler"},"scope":"Namespaced","verbs":["list","watch"]}]},
            {"version":"v1","resources":[{"resource":"horizontalpodautoscalers","responseKind":{"kind":"HorizontalPodAutoscaler"},"scope":"Namespaced","verbs":["list"]}]}]}]}"#,
        )
        .unwrap();
        let found = preferred(aggregated(groups));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].collection(), "/apis/autoscaling/v2/horizontalpodautoscalers");
        assert!(found[0].can(&["list", "watch"]) && !found[0].can(&["delete"]));
    }
}
