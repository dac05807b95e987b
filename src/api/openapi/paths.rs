//! The paths and operations of a resource, in the form of OpenAPI v3.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::parameters as p;
use super::schemas;
use crate::registry::{Resource, Subresource};

const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// Kinds whose deletion answers with the object itself.
const RETURN_DELETED: [&str; 16] = [
    "CSIDriver",
    "CSINode",
    "DeviceClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodTemplate",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceQuota",
    "ResourceSlice",
    "Service",
    "ServiceAccount",
    "StorageClass",
    "VolumeAttachment",
    "VolumeAttributesClass",
];

/// The operations by path and method, each with all of its parameters.
type Operations = BTreeMap<String, BTreeMap<&'static str, Operation>>;

struct Operation {
    parameters: Vec<Value>,
    body: Map<String, Value>,
}

/// All paths of a resource.
pub(super) fn of_resource(resource: &Resource) -> Map<String, Value> {
    let names = Names::of(resource);
    let mut all = Operations::new();
    names.collection(&mut all);
    names.object(&mut all);
    for sub in &resource.subresources {
        names.subresource(sub, &mut all);
    }
    if resource.custom.is_none() && resource.allows("watch") {
        names.watch(&mut all);
    }
    all.into_iter().map(|(path, operations)| (path, item(operations))).collect()
}

/// A path's operations; the parameters that all of them take stand above them.
fn item(operations: BTreeMap<&'static str, Operation>) -> Value {
    let mut lists = operations.values().map(|operation| &operation.parameters);
    let first = lists.next().cloned().unwrap_or_default();
    let lists: Vec<_> = lists.collect();
    let mut shared: Vec<Value> = first.into_iter().filter(|p| lists.iter().all(|list| list.contains(p))).collect();
    let by_name = |a: &Value, b: &Value| a["name"].as_str().cmp(&b["name"].as_str());
    shared.sort_by(by_name);
    let mut item = Map::new();
    for (method, mut operation) in operations {
        let mut own: Vec<Value> = operation.parameters.into_iter().filter(|p| !shared.contains(p)).collect();
        own.sort_by(by_name);
        if !own.is_empty() {
            operation.body.insert("parameters".into(), own.into());
        }
        item.insert(method.into(), Value::Object(operation.body));
    }
    if !shared.is_empty() {
        item.insert("parameters".into(), shared.into());
    }
    Value::Object(item)
}

/// The words from which paths and operation ids are made.
struct Names<'a> {
    resource: &'a Resource,
    base: String,
    /// `AppsV1`.
    group_version: String,
    /// `Namespaced`, or nothing.
    scope: &'static str,
    tag: String,
    definition: String,
}

impl<'a> Names<'a> {
    fn of(resource: &'a Resource) -> Self {
        Self {
            resource,
            base: base_path(&resource.group, &resource.version),
            group_version: format!("{}{}", title(&resource.group), upper_first(&resource.version)),
            scope: if resource.namespaced { "Namespaced" } else { "" },
            tag: tag(&resource.group, &resource.version),
            definition: schemas::name_of_resource(resource),
        }
    }

    /// The path of the collection, in a namespace where there is one.
    fn collection_path(&self) -> String {
        let namespace = if self.resource.namespaced { "namespaces/{namespace}/" } else { "" };
        format!("{}{namespace}{}", self.base, self.resource.plural)
    }

    fn path_parameters(&self, named: Option<&str>) -> Vec<Value> {
        let mut all = Vec::new();
        all.extend(named.map(|kind| p::path("name", kind)));
        all.extend(self.resource.namespaced.then(|| p::path("namespace", "")));
        all
    }

    fn collection(&self, all: &mut Operations) {
        let (kind, path) = (&self.resource.kind, self.collection_path());
        let list = format!("{}List", self.definition);
        if self.resource.allows("list") {
            let or_watch = if self.resource.allows("watch") { "list or watch" } else { "list" };
            let id = |scope: &str, behind: &str| format!("list{}{scope}{kind}{behind}", self.group_version);
            let describe = format!("{or_watch} objects of kind {kind}");
            let list_responses = || json!({"200": self.listed(&list), "401": {"description": "Unauthorized"}});
            if self.resource.namespaced {
                let everywhere = self.operation("list", &describe, id("", "ForAllNamespaces"), p::LIST, Vec::new(), list_responses());
                add(all, format!("{}{}", self.base, self.resource.plural), "get", everywhere);
            }
            let here = self.operation("list", &describe, id(self.scope, ""), p::LIST, self.path_parameters(None), list_responses());
            add(all, path.clone(), "get", here);
        }
        if self.resource.allows("create") {
            let id = format!("create{}{}{kind}", self.group_version, self.scope);
            let responses = self.responses(&self.definition, &[200, 201, 202]);
            let mut post =
                self.operation("post", &format!("create {}{kind}", article(kind)), id, p::WRITE, self.path_parameters(None), responses);
            post.body.insert("requestBody".into(), body(&self.definition, &["*/*"], true));
            add(all, path.clone(), "post", post);
        }
        if self.resource.allows("deletecollection") {
            let id = format!("delete{}Collection{}{kind}", self.group_version, self.scope);
            let responses = self.responses(STATUS, &[200]);
            let describe = format!("delete collection of {kind}");
            let mut delete = self.operation("deletecollection", &describe, id, p::DELETE_COLLECTION, self.path_parameters(None), responses);
            delete.body.insert("requestBody".into(), body(DELETE_OPTIONS, &["*/*"], false));
            add(all, path, "delete", delete);
        }
    }

    fn object(&self, all: &mut Operations) {
        let (kind, path) = (&self.resource.kind, format!("{}/{{name}}", self.collection_path()));
        let id = |verb: &str| format!("{verb}{}{}{kind}", self.group_version, self.scope);
        let parameters = || self.path_parameters(Some(kind));
        if self.resource.allows("get") {
            let responses = self.responses(&self.definition, &[200]);
            add(
                all,
                path.clone(),
                "get",
                self.operation("get", &format!("read the specified {kind}"), id("read"), p::READ, parameters(), responses),
            );
        }
        if self.resource.allows("update") {
            let responses = self.responses(&self.definition, &[200, 201]);
            let mut put = self.operation("put", &format!("replace the specified {kind}"), id("replace"), p::WRITE, parameters(), responses);
            put.body.insert("requestBody".into(), body(&self.definition, &["*/*"], true));
            add(all, path.clone(), "put", put);
        }
        if self.resource.allows("delete") {
            let returned = if RETURN_DELETED.contains(&&**kind) && self.resource.custom.is_none() { &self.definition } else { STATUS };
            let responses = self.responses(returned, &[200, 202]);
            let describe = format!("delete {}{kind}", article(kind));
            let mut delete = self.operation("delete", &describe, id("delete"), p::DELETE, parameters(), responses);
            delete.body.insert("requestBody".into(), body(DELETE_OPTIONS, &["*/*"], false));
            add(all, path.clone(), "delete", delete);
        }
        if self.resource.allows("patch") {
            let created: &[u16] = if self.resource.custom.is_none() { &[200, 201] } else { &[200] };
            let responses = self.responses(&self.definition, created);
            let mut patch =
                self.operation("patch", &format!("partially update the specified {kind}"), id("patch"), p::PATCH, parameters(), responses);
            patch.body.insert("requestBody".into(), self.patch_body());
            add(all, path, "patch", patch);
        }
    }

    fn subresource(&self, sub: &Subresource, all: &mut Operations) {
        if sub.kind.ends_with("Options") {
            return self.connect(sub, all);
        }
        let (kind, name) = (&self.resource.kind, &sub.name);
        let path = format!("{}/{{name}}/{name}", self.collection_path());
        let id = |verb: &str| format!("{verb}{}{}{kind}{}", self.group_version, self.scope, upper_first(name));
        let taken = schemas::name_of_kind(self.resource, &sub.group, &sub.version, &sub.kind);
        for verb in &sub.verbs {
            let (method, action, describe, id, parameters, codes): (_, _, _, _, _, &[u16]) = match &**verb {
                "get" => ("get", "get", format!("read {name} of the specified {kind}"), id("read"), p::of_subresource(name), &[200]),
                "update" => ("put", "put", format!("replace {name} of the specified {kind}"), id("replace"), p::WRITE, &[200, 201]),
                "patch" if self.resource.custom.is_some() => {
                    ("patch", "patch", format!("partially update {name} of the specified {kind}"), id("patch"), p::PATCH, &[200])
                }
                "patch" => {
                    ("patch", "patch", format!("partially update {name} of the specified {kind}"), id("patch"), p::PATCH, &[200, 201])
                }
                "create" => ("post", "post", format!("create {name} of {}{kind}", article(kind)), id("create"), p::WRITE, &[200, 201, 202]),
                _ => continue,
            };
            let responses = match &**name {
                "log" => {
                    let types = ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml", "text/plain"];
                    json!({"200": {"description": "OK", "content": content(&types, &json!({"type": "string"}))}, "401": {"description": "Unauthorized"}})
                }
                _ => self.responses(&taken, codes),
            };
            let mut operation = self.operation(action, &describe, id, parameters, self.path_parameters(Some(&sub.kind)), responses);
            operation.body.insert("x-kubernetes-group-version-kind".into(), gvk(&sub.group, &sub.version, &sub.kind));
            match method {
                "put" | "post" => operation.body.insert("requestBody".into(), body(&taken, &["*/*"], true)),
                "patch" => operation.body.insert("requestBody".into(), self.patch_body()),
                _ => None,
            };
            add(all, path.clone(), method, operation);
        }
    }

    /// A subresource that is a connection: any method, any answer.
    fn connect(&self, sub: &Subresource, all: &mut Operations) {
        let methods: &[&str] =
            if *sub.name == *"proxy" { &["get", "put", "post", "delete", "options", "head", "patch"] } else { &["get", "post"] };
        let path = format!("{}/{{name}}/{}", self.collection_path(), sub.name);
        for method in methods {
            for (path, with_path) in [(path.clone(), ""), (format!("{path}/{{path}}"), "WithPath")] {
                if !with_path.is_empty() && *sub.name != *"proxy" {
                    continue;
                }
                let describe = format!("connect {} requests to {} of {}", method.to_uppercase(), sub.name, self.resource.kind);
                let id = format!(
                    "connect{}{}{}{}{}{with_path}",
                    self.group_version,
                    upper_first(method),
                    self.scope,
                    self.resource.kind,
                    upper_first(&sub.name)
                );
                let mut parameters = self.path_parameters(Some(&sub.kind));
                if !with_path.is_empty() {
                    parameters.push(p::path("path", ""));
                }
                let answer = json!({"description": "OK", "content": {"*/*": {"schema": {"type": "string"}}}});
                let responses = json!({"200": answer, "401": {"description": "Unauthorized"}});
                let mut operation = self.operation("connect", &describe, id, p::of_subresource(&sub.name), parameters, responses);
                operation.body.insert("x-kubernetes-group-version-kind".into(), gvk(&sub.group, &sub.version, &sub.kind));
                add(all, path, method, operation);
            }
        }
    }

    /// The old way to watch.
    fn watch(&self, all: &mut Operations) {
        let kind = &self.resource.kind;
        let responses = || json!({"200": self.listed(WATCH_EVENT), "401": {"description": "Unauthorized"}});
        let instead = "deprecated: use the 'watch' parameter with a list operation instead";
        let of_list = format!("watch individual changes to a list of {kind}. {instead}.");
        let of_one =
            format!("watch changes to an object of kind {kind}. {instead}, filtered to a single item with the 'fieldSelector' parameter.");
        let id = |scope: &str, behind: &str| format!("watch{}{scope}{kind}{behind}", self.group_version);
        let collection = self.collection_path();
        let path = format!("{}watch/{}", self.base, collection.strip_prefix(&self.base).unwrap_or_default());
        if self.resource.namespaced {
            let everywhere = self.operation("watchlist", &of_list, id("", "ListForAllNamespaces"), p::LIST, Vec::new(), responses());
            add(all, format!("{}watch/{}", self.base, self.resource.plural), "get", everywhere);
        }
        let here = self.operation("watchlist", &of_list, id(self.scope, "List"), p::LIST, self.path_parameters(None), responses());
        add(all, path.clone(), "get", here);
        if self.resource.allows("get") {
            let one = self.operation("watch", &of_one, id(self.scope, ""), p::LIST, self.path_parameters(Some(kind)), responses());
            add(all, format!("{path}/{{name}}"), "get", one);
        }
    }

    fn operation(
        &self,
        action: &str,
        description: &str,
        id: String,
        query: &[&str],
        mut parameters: Vec<Value>,
        responses: Value,
    ) -> Operation {
        parameters.extend(query.iter().map(|name| p::query(name)));
        let body = json!({
            "tags": [self.tag], "description": description, "operationId": id, "responses": responses, "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk(&self.resource.group, &self.resource.version, &self.resource.kind),
        });
        let Value::Object(body) = body else { return Operation { parameters, body: Map::new() } };
        Operation { parameters, body }
    }

    fn media_types(&self) -> &'static [&'static str] {
        if self.resource.custom.is_some() {
            &["application/json", "application/yaml"]
        } else {
            &["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"]
        }
    }

    fn responses(&self, definition: &str, codes: &[u16]) -> Value {
        let mut all = Map::new();
        for code in codes {
            let description = match code {
                200 => "OK",
                201 => "Created",
                _ => "Accepted",
            };
            let content = content(self.media_types(), &reference(definition));
            all.insert(code.to_string(), json!({"description": description, "content": content}));
        }
        all.insert("401".into(), json!({"description": "Unauthorized"}));
        Value::Object(all)
    }

    fn listed(&self, definition: &str) -> Value {
        let types: &[&str] = if self.resource.custom.is_some() {
            &["application/json", "application/yaml"]
        } else {
            &[
                "application/json",
                "application/json;stream=watch",
                "application/vnd.kubernetes.protobuf",
                "application/vnd.kubernetes.protobuf;stream=watch",
                "application/yaml",
            ]
        };
        json!({"description": "OK", "content": content(types, &reference(definition))})
    }

    fn patch_body(&self) -> Value {
        let mut types = vec!["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
        if self.resource.custom.is_none() {
            types.push("application/strategic-merge-patch+json");
        }
        body(PATCH, &types, true)
    }
}

fn add(all: &mut Operations, path: String, method: &'static str, operation: Operation) {
    all.entry(path).or_default().insert(method, operation);
}

fn content(types: &[&str], schema: &Value) -> Value {
    types.iter().map(|media| ((*media).to_owned(), json!({"schema": schema}))).collect::<Map<_, _>>().into()
}

fn body(definition: &str, types: &[&str], required: bool) -> Value {
    let mut value = json!({"content": content(types, &reference(definition))});
    if required {
        value["required"] = true.into();
    }
    value
}

pub(super) fn reference(definition: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{definition}")})
}

fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

/// `/apis/apps/v1/`.
pub(super) fn base_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}/") } else { format!("/apis/{group}/{version}/") }
}

/// `RbacAuthorization`: a group as operation ids have it.
pub(super) fn title(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    group.split(['.', '-']).map(upper_first).collect()
}

/// `rbacAuthorization_v1`, or without the version for the group itself.
pub(super) fn tag(group: &str, version: &str) -> String {
    let title = title(group);
    let mut letters = title.chars();
    let lower: String = letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect();
    if version.is_empty() { lower } else { format!("{lower}_{version}") }
}

pub(super) fn upper_first(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

fn article(kind: &str) -> &'static str {
    match kind {
        // The one kind that is a plural.
        "Endpoints" => "",
        _ if kind.starts_with(['A', 'E', 'I', 'O', 'U']) => "an ",
        _ => "a ",
    }
}
