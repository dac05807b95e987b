//! One OpenAPI v3 document: what it is about, its paths, and the schemas that those need.

use serde_json::{Map, Value, json};

use super::paths::{self, reference, tag, title, upper_first};
use super::{SERVED, schemas};
use crate::registry::{Resource, Table};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The paths of all documents below `/openapi/v3/`.
pub(super) fn paths(table: &Table) -> impl Iterator<Item = String> {
    let mut all: Vec<String> = [".well-known/openid-configuration", "api", "apis", "openid/v1/jwks", "version"].map(str::to_owned).to_vec();
    for group in &table.groups {
        let base = if group.name.is_empty() { "api".to_owned() } else { format!("apis/{}", group.name) };
        all.extend(group.versions.iter().map(|version| format!("{base}/{version}")));
        // A group of custom resources has no document of its own.
        let custom = table.resources.iter().any(|r| r.group == group.name && r.custom.is_some());
        if !group.name.is_empty() && !custom {
            all.push(base);
        }
    }
    all.sort_unstable();
    all.into_iter()
}

pub(super) fn exists(table: &Table, path: &str) -> bool {
    paths(table).any(|known| known == path)
}

/// The group and version that a document is about.
pub(super) fn group_version(path: &str) -> Option<(&str, &str)> {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["api", version] => Some(("", version)),
        ["apis", group, version] => Some((group, version)),
        _ => None,
    }
}

/// The document at a path that [`paths`] gives.
pub(super) fn document(table: &Table, path: &str) -> Value {
    match group_version(path) {
        Some((group, version)) => of_group_version(table, group, version),
        None => of_other(path),
    }
}

fn of_group_version(table: &Table, group: &str, version: &str) -> Value {
    let resources: Vec<&Resource> = table.of_version(group, version).map(|r| &**r).collect();
    let mut all: Map<String, Value> = resources.iter().flat_map(|resource| paths::of_resource(resource)).collect();
    // A group of custom resources does not describe its own discovery.
    if resources.iter().all(|resource| resource.custom.is_none()) {
        let id = format!("get{}{}APIResources", title(group), upper_first(version));
        let list = get("get available resources", &id, &tag(group, version), &reference(&format!("{META}.APIResourceList")));
        all.insert(paths::base_path(group, version), list);
    }
    assemble(all, &resources, group, version)
}

/// The documents that are not about resources.
fn of_other(path: &str) -> Value {
    let meta = |kind: &str| reference(&format!("{META}.{kind}"));
    let json_only = |media: &str, description: &str, id: &str, tag: &str, schema: Value| {
        json!({"get": {"tags": [tag], "description": description, "operationId": id, "responses": {
            "200": {"description": "OK", "content": {media: {"schema": schema}}}, "401": {"description": "Unauthorized"}}}})
    };
    let text = || json!({"type": "string"});
    let item = match path {
        "api" => get("get available API versions", "getCoreAPIVersions", "core", &meta("APIVersions")),
        "apis" => get("get available API versions", "getAPIVersions", "apis", &meta("APIGroupList")),
        "version" => json_only(
            "application/json",
            "get the version information for this server",
            "getCodeVersion",
            "version",
            reference("io.k8s.apimachinery.pkg.version.Info"),
        ),
        "openid/v1/jwks" => json_only(
            "application/jwk-set+json",
            "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
            "getServiceAccountIssuerOpenIDKeyset",
            "openid",
            text(),
        ),
        ".well-known/openid-configuration" => json_only(
            "application/json",
            "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
            "getServiceAccountIssuerOpenIDConfiguration",
            "WellKnown",
            text(),
        ),
        _ => {
            let group = path.trim_start_matches("apis/");
            get("get information of a group", &format!("get{}APIGroup", title(group)), &tag(group, ""), &meta("APIGroup"))
        }
    };
    let mut all = Map::new();
    all.insert(format!("/{path}/"), item);
    assemble(all, &[], "", "v1")
}

fn get(description: &str, id: &str, tag: &str, schema: &Value) -> Value {
    let types = ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"];
    let content: Map<String, Value> = types.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect();
    json!({"get": {"tags": [tag], "description": description, "operationId": id, "responses": {
        "200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}}}})
}

fn assemble(paths: Map<String, Value>, resources: &[&Resource], group: &str, version: &str) -> Value {
    let paths = Value::Object(paths);
    let mut wanted = Vec::new();
    schemas::references(&paths, &mut wanted);
    wanted.sort_unstable();
    wanted.dedup();
    let schemas = schemas::closure(wanted, resources, group, version);
    let token = json!({"type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"});
    let mut components = json!({"securitySchemes": {"BearerToken": token}});
    if !schemas.is_empty() {
        components["schemas"] = Value::Object(schemas);
    }
    json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": SERVED}, "paths": paths, "components": components})
}
