//! The records of a CustomResourceDefinition: what its `spec` and accepted names make of the registry. Whether the
//! definition is right, and when it becomes established, is decided elsewhere.

use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

use base64::Engine;
use serde_json::Value;

use super::{Column, Custom, Resource, Subresource};

/// One record for each served version of a definition. Empty where the definition lacks what a record needs.
pub fn resources_of_definition(definition: &Value) -> Vec<Resource> {
    let spec = &definition["spec"];
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let stored = versions.iter().find(|v| v["storage"] == true).and_then(|v| v["name"].as_str());
    let (Some(group), Some(stored)) = (spec["group"].as_str(), stored) else { return Vec::new() };
    // Names that conflict with another definition's are not accepted, so that the status knows better than the spec.
    let accepted = &definition["status"]["acceptedNames"];
    let names = if accepted["plural"].as_str().is_some_and(|p| !p.is_empty()) { accepted } else { &spec["names"] };
    let (Some(plural), Some(kind)) = (names["plural"].as_str(), names["kind"].as_str()) else { return Vec::new() };
    let text = |field: &str, otherwise: String| match names[field].as_str() {
        Some(value) if !value.is_empty() => Arc::from(value),
        _ => Arc::from(otherwise),
    };
    let (group, plural, kind, stored): (Arc<str>, Arc<str>, Arc<str>, Arc<str>) = (group.into(), plural.into(), kind.into(), stored.into());
    let definition = Arc::new(definition.clone());

    let served = versions.iter().filter(|v| v["served"] == true);
    served
        .filter_map(|version| {
            let name: Arc<str> = version["name"].as_str()?.into();
            Some(Resource {
                group: group.clone(),
                version: name.clone(),
                kind: kind.clone(),
                list_kind: text("listKind", format!("{kind}List")),
                plural: plural.clone(),
                singular: text("singular", kind.to_lowercase()),
                short_names: strings(&names["shortNames"]),
                categories: strings(&names["categories"]),
                namespaced: spec["scope"] == "Namespaced",
                // The order in which a real server lists the verbs of a custom resource is not the alphabet's.
                verbs: ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"].map(Arc::from).to_vec(),
                subresources: subresources(&group, &name, &kind, &version["subresources"]),
                storage_group: group.clone(),
                storage_version: stored.clone(),
                storage_version_hash: storage_version_hash(&group, &stored, &kind).into(),
                storage: format!("{group}/{plural}").into(),
                columns: columns(&version["additionalPrinterColumns"]),
                selectable: selectable(&version["selectableFields"]),
                deprecation: deprecation(version, versions, &group, &kind),
                custom: Some(Arc::new(Custom {
                    definition: definition.clone(),
                    version: version.clone(),
                    published_hash: OnceLock::new(),
                })),
                schema: OnceLock::new(),
            })
        })
        .collect()
}

/// The warning of a deprecated version: its own words, or the newer version to use.
fn deprecation(version: &Value, versions: &[Value], group: &str, kind: &str) -> Option<Arc<str>> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(own) = version["deprecationWarning"].as_str() {
        return Some(own.into());
    }
    let name = version["name"].as_str()?;
    let usable = versions.iter().filter(|v| v["served"] == true && v["deprecated"] != true).filter_map(|v| v["name"].as_str());
    let newest = usable.filter(|other| compare_versions(other, name) == Ordering::Less).min_by(|a, b| compare_versions(a, b));
    let instead = newest.map(|newest| format!("; use {group}/{newest} {kind}")).unwrap_or_default();
    Some(format!("{group}/{name} {kind} is deprecated{instead}").into())
}

/// What discovery shows of the stored form: the beginning of a hash of its group, version and kind.
pub fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, format!("{group}/{version}/{kind}").as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

/// The order of versions in discovery: stable ones before betas before alphas, newer ones first, all others behind by name.
pub(super) fn compare_versions(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// `v2beta1` is `(1, 2, 1)`; a stable version ranks as stage 2.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let number = |digits: &str| digits.parse::<u64>().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
    let rest = version.strip_prefix('v')?;
    for (word, stage) in [("alpha", 0), ("beta", 1)] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((stage, number(major)?, number(minor)?));
        }
    }
    Some((2, number(rest)?, 0))
}

fn strings(list: &Value) -> Vec<Arc<str>> {
    list.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(Arc::from)).collect()
}

fn subresources(group: &Arc<str>, version: &Arc<str>, kind: &Arc<str>, given: &Value) -> Vec<Subresource> {
    let verbs = || ["get", "patch", "update"].map(Arc::from).to_vec();
    let mut all = Vec::new();
    if given["status"].is_object() {
        all.push(Subresource { name: "status".into(), group: group.clone(), version: version.clone(), kind: kind.clone(), verbs: verbs() });
    }
    if given["scale"].is_object() {
        all.push(Subresource {
            name: "scale".into(),
            group: "autoscaling".into(),
            version: "v1".into(),
            kind: "Scale".into(),
            verbs: verbs(),
        });
    }
    all
}

fn columns(given: &Value) -> Vec<Column> {
    let column = |name: &str, kind: &str, format: &str, path: Option<&str>| Column {
        name: name.into(),
        kind: kind.into(),
        format: format.into(),
        description: "".into(),
        priority: 0,
        json_path: path.map(Arc::from),
    };
    let mut all = vec![column("Name", "string", "name", None)];
    match given.as_array() {
        Some(given) if !given.is_empty() => all.extend(given.iter().map(|c| Column {
            description: c["description"].as_str().unwrap_or_default().into(),
            priority: c["priority"].as_i64().and_then(|p| i32::try_from(p).ok()).unwrap_or_default(),
            ..column(
                c["name"].as_str().unwrap_or_default(),
                c["type"].as_str().unwrap_or("string"),
                c["format"].as_str().unwrap_or_default(),
                c["jsonPath"].as_str(),
            )
        })),
        _ => all.push(column("Age", "date", "", Some(".metadata.creationTimestamp"))),
    }
    all
}

fn selectable(given: &Value) -> Vec<Arc<str>> {
    let paths = given.as_array().into_iter().flatten().filter_map(|f| f["jsonPath"].as_str());
    paths.map(|path| Arc::from(path.trim_start_matches('.'))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    fn definition() -> Value {
        json!({"spec": {"group": "ex.com", "scope": "Namespaced", "names": {"plural": "wids", "kind": "Wid", "shortNames": ["w"]},
            "versions": [
                {"name": "v1beta1", "served": true, "storage": false},
                {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": {}},
                 "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1}],
                 "selectableFields": [{"jsonPath": ".spec.color"}]},
                {"name": "v1alpha1", "served": false, "storage": false}]}})
    }

    #[test]
    fn a_definition_gives_a_record_for_each_served_version() {
        let registry = Registry::new();
        registry.replace_custom(resources_of_definition(&definition()));
        let table = registry.table();
        assert_eq!(table.group("ex.com").expect("group").versions.iter().map(|v| &**v).collect::<Vec<_>>(), ["v1", "v1beta1"]);
        let v1 = table.lookup("ex.com", "v1", "wids").expect("v1");
        assert_eq!((&*v1.list_kind, &*v1.singular, &*v1.storage), ("WidList", "wid", "ex.com/wids"));
        assert_eq!(v1.columns.iter().map(|c| &*c.name).collect::<Vec<_>>(), ["Name", "Size"]);
        assert!(v1.is_selectable("spec.color") && !v1.is_selectable("spec.size"));
        assert_eq!(v1.subresources.len(), 2);
        registry.replace_custom(Vec::<Resource>::new());
        assert!(registry.lookup("ex.com", "v1", "wids").is_none());
    }

    #[test]
    fn a_deprecated_version_names_the_one_to_use() {
        let mut definition = definition();
        definition["spec"]["versions"][0]["deprecated"] = true.into();
        let of = |definition: &Value| resources_of_definition(definition).into_iter().map(|r| r.deprecation).collect::<Vec<_>>();
        assert_eq!(of(&definition), [Some("ex.com/v1beta1 Wid is deprecated; use ex.com/v1 Wid".into()), None]);
        definition["spec"]["versions"][0]["deprecationWarning"] = "no more".into();
        assert_eq!(of(&definition), [Some("no more".into()), None]);
    }

    #[test]
    fn hashes_are_those_of_a_real_server() {
        assert_eq!(storage_version_hash("", "v1", "Pod"), "xPOwRZ+Yhw8=");
        assert_eq!(storage_version_hash("apps", "v1", "Deployment"), "8aSe+NMegvE=");
    }

    #[test]
    fn versions_are_ordered_by_stability_and_age() {
        let mut versions = ["foo10", "v1", "v11alpha2", "v10", "v3beta1", "v12alpha1", "v2", "foo1", "v11beta2", "v10beta3"];
        versions.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(versions, ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]);
    }
}
