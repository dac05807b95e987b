//! Tables: what `kubectl get` prints. Which columns a resource has is data ([`Resource::columns`]); what stands in them is
//! computed here, as pure functions from an object to its cells. Built-in kinds have a function each, custom kinds a
//! JSON path per column.

mod access;
mod cluster;
mod custom;
mod descriptions;
mod network;
mod pods;
mod storage;
mod workloads;

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::access::{human_duration, text};
use super::representation::{Include, Representation, metadata_only};
use crate::registry::{Column, Resource};

/// The cells of a row.
type Cells = Vec<Value>;

/// A Table of objects.
pub fn document<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a Value>,
    meta: Value,
    now: Timestamp,
    form: Representation,
) -> Value {
    let mut objects: Vec<&Value> = objects.collect();
    if resource.custom.is_none() && *resource.plural == *"flowschemas" {
        // In the order in which they are tried; by name they are already.
        objects.sort_by_key(|schema| schema["spec"]["matchingPrecedence"].as_i64());
    }
    let mut rows: Vec<Value> = objects.iter().map(|object| row(resource, object, now, form)).collect();
    if resource.custom.is_none() && *resource.plural == *"storageclasses" {
        storage::mark_default(&objects, &mut rows);
    }
    json!({
        "kind": "Table", "apiVersion": form.meta_version, "metadata": meta, "columnDefinitions": column_definitions(resource), "rows": rows,
    })
}

/// The heads of a resource's columns.
pub fn column_definitions(resource: &Resource) -> Value {
    let fallback = [column("Name", "string", "name"), column("Created At", "date", "")];
    let columns = if resource.columns.is_empty() { &fallback[..] } else { &resource.columns };
    let definition = |column: &Column| {
        json!({
            "name": *column.name, "type": *column.kind, "format": *column.format,
            "description": description(resource, column), "priority": column.priority,
        })
    };
    columns.iter().map(definition).collect()
}

fn column(name: &str, kind: &str, format: &str) -> Column {
    Column { name: name.into(), kind: kind.into(), format: format.into(), description: "".into(), priority: 0, json_path: None }
}

/// What a column is about. Those of a definition that does not say are described by their path.
fn description(resource: &Resource, column: &Column) -> String {
    match (&*column.description, column.json_path.as_deref()) {
        ("", Some(path)) => format!("Custom resource definition column (in JSONPath format): {path}"),
        ("", None) => descriptions::of(resource, column).unwrap_or_default(),
        (given, _) => given.to_owned(),
    }
}

/// What the API says of a field of `metadata`.
fn metadata_description(field: &str) -> String {
    static METADATA: LazyLock<Map<String, Value>> =
        LazyLock::new(|| crate::schema::source::definitions_of("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
    let definition = METADATA.get("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let text = definition.and_then(|d| d["properties"][field]["description"].as_str());
    text.unwrap_or_default().to_owned()
}

fn row(resource: &Resource, object: &Value, now: Timestamp, form: Representation) -> Value {
    let mut row = Map::new();
    row.insert("cells".into(), cells(resource, object, now).into());
    if resource.custom.is_none() && *resource.group == *"" && *resource.plural == *"pods" {
        row.extend(pods::completed(object).map(|conditions| ("conditions".to_owned(), conditions)));
    }
    let included = match form.include {
        Include::None => Value::Null,
        Include::Metadata => metadata_only(object, form.meta_version),
        Include::Object => object.clone(),
    };
    row.insert("object".into(), included);
    Value::Object(row)
}

/// The cells of an object, one for each column of its resource.
pub fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    if resource.custom.is_some() {
        return custom::cells(resource, object, now);
    }
    let (name, age) = (|| access::name(object), || access::age(object, now));
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => pods::pod(object, now),
        ("", "podtemplates") => workloads::pod_template(object),
        ("", "replicationcontrollers") => workloads::replication_controller(object, now),
        ("apps", "deployments") => workloads::deployment(object, now),
        ("apps", "replicasets") => workloads::replica_set(object, now),
        ("apps", "statefulsets") => workloads::stateful_set(object, now),
        ("apps", "daemonsets") => workloads::daemon_set(object, now),
        ("apps", "controllerrevisions") => workloads::controller_revision(object, now),
        ("batch", "jobs") => workloads::job(object, now),
        ("batch", "cronjobs") => workloads::cron_job(object, now),
        ("autoscaling", _) => workloads::horizontal_pod_autoscaler(object, now),
        ("policy", "poddisruptionbudgets") => workloads::pod_disruption_budget(object, now),
        ("", "services") => network::service(object, now),
        ("", "endpoints") => network::endpoints(object, now),
        ("discovery.k8s.io", _) => network::endpoint_slice(object, now),
        ("networking.k8s.io", "ingresses") => network::ingress(object, now),
        ("networking.k8s.io", "ingressclasses") => network::ingress_class(object, now),
        ("networking.k8s.io", "networkpolicies") => network::network_policy(object, now),
        ("networking.k8s.io", "servicecidrs") => network::service_cidr(object, now),
        ("networking.k8s.io", "ipaddresses") => network::ip_address(object),
        ("", "persistentvolumes") => storage::persistent_volume(object, now),
        ("", "persistentvolumeclaims") => storage::persistent_volume_claim(object, now),
        ("storage.k8s.io", "storageclasses") => storage::storage_class(object, now),
        ("storage.k8s.io", "csidrivers") => storage::csi_driver(object, now),
        ("storage.k8s.io", "csinodes") => vec![name(), access::length(&object["spec"]["drivers"]), age()],
        ("storage.k8s.io", "volumeattachments") => storage::volume_attachment(object, now),
        ("storage.k8s.io", "volumeattributesclasses") => vec![name(), text(&object["driverName"]).into(), age()],
        ("", "nodes") => cluster::node(object, now),
        ("", "namespaces") => vec![name(), text(&object["status"]["phase"]).into(), age()],
        ("", "events") | ("events.k8s.io", "events") => cluster::event(object, now),
        ("", "componentstatuses") => cluster::component_status(object),
        ("", "resourcequotas") => cluster::resource_quota(object, now),
        ("", "configmaps") => {
            let count = access::count(&object["data"]) + access::count(&object["binaryData"]);
            vec![name(), count.into(), age()]
        }
        ("", "secrets") => vec![name(), text(&object["type"]).into(), access::length(&object["data"]), age()],
        ("", "serviceaccounts") => vec![name(), age()],
        ("coordination.k8s.io", "leases") => vec![name(), text(&object["spec"]["holderIdentity"]).into(), age()],
        ("node.k8s.io", "runtimeclasses") => vec![name(), text(&object["handler"]).into(), age()],
        ("scheduling.k8s.io", "priorityclasses") => cluster::priority_class(object, now),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => cluster::role_binding(object, now),
        ("certificates.k8s.io", "certificatesigningrequests") => cluster::certificate_signing_request(object, now),
        ("certificates.k8s.io", "clustertrustbundles") => vec![name(), access::or(&object["spec"]["signerName"], "<none>")],
        ("certificates.k8s.io", "podcertificaterequests") => cluster::pod_certificate_request(object),
        ("apiregistration.k8s.io", _) => cluster::api_service(object, now),
        ("apiextensions.k8s.io", _) => cluster::custom_resource_definition(object),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations" | "mutatingwebhookconfigurations") => {
            vec![name(), access::length(&object["webhooks"]), age()]
        }
        ("admissionregistration.k8s.io", _) => cluster::admission_policy(resource, object, now),
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => cluster::flow_schema(object, now),
        ("flowcontrol.apiserver.k8s.io", _) => cluster::priority_level_configuration(object, now),
        ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates") => vec![name(), age()],
        ("resource.k8s.io", "resourceclaims") => cluster::resource_claim(object, now),
        ("resource.k8s.io", "resourceslices") => cluster::resource_slice(object, now),
        ("resource.k8s.io", "devicetaintrules") => cluster::device_taint_rule(object, now),
        ("storagemigration.k8s.io", _) => cluster::storage_version_migration(object),
        _ => vec![name(), text(&object["metadata"]["creationTimestamp"]).into()],
    }
}

/// The duration between two times, for people.
fn between(from: Timestamp, to: Timestamp) -> String {
    human_duration(to.as_second() - from.as_second())
}

#[cfg(test)]
mod tests;
