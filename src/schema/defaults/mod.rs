//! Defaults of built-in definitions that depend on other fields, as plain functions on the fields of one object. Those
//! that do not are in the overlay. Parents are filled in before their parts.

mod apps;
mod autoscaling;
mod batch;
mod core;
mod extensions;
mod networking;
pub(super) mod optional;

use serde_json::{Map, Value};

type Fields = Map<String, Value>;

/// Fills in the fields of an object of a definition (`io.k8s.api.core.v1.Pod`), its code's part only.
pub(super) fn apply(definition: &str, fields: &mut Fields) {
    for field in optional::off(definition) {
        fields.remove(*field);
    }
    let Some(short) = definition.strip_prefix("io.k8s.") else { return };
    match short {
        "api.core.v1.Pod" => core::pod(fields),
        "api.core.v1.PodSpec" => core::pod_spec(fields),
        "api.core.v1.PodStatus" => core::pod_status(fields),
        "api.core.v1.Container" | "api.core.v1.EphemeralContainer" => core::container(fields),
        "api.core.v1.ResourceRequirements" => core::resource_requirements(fields),
        "api.core.v1.Volume" => core::volume(fields),
        "api.core.v1.Service" => core::service(fields),
        "api.core.v1.Secret" => core::secret(fields),
        "api.core.v1.Namespace" => core::namespace(fields),
        "api.core.v1.NodeSpec" => core::node_spec(fields),
        "api.core.v1.NodeStatus" => core::node_status(fields),
        "api.core.v1.LimitRangeItem" => core::limit_range_item(fields),
        "api.core.v1.ReplicationController" => core::replication_controller(fields),
        "api.apps.v1.DeploymentStrategy" => apps::deployment_strategy(fields),
        "api.apps.v1.DaemonSetUpdateStrategy" => apps::daemon_set_update_strategy(fields),
        "api.apps.v1.StatefulSetUpdateStrategy" => apps::stateful_set_update_strategy(fields),
        "api.apps.v1.StatefulSetSpec" => apps::stateful_set_spec(fields),
        "api.batch.v1.Job" => batch::job(fields),
        "api.autoscaling.v2.HorizontalPodAutoscalerSpec" => autoscaling::horizontal_pod_autoscaler_spec(fields),
        "api.networking.v1.NetworkPolicySpec" => networking::network_policy_spec(fields),
        "api.rbac.v1.Subject" => extensions::subject(fields),
        "api.flowcontrol.v1.FlowSchemaSpec" => extensions::flow_schema_spec(fields),
        "api.flowcontrol.v1.QueuingConfiguration" => extensions::queuing_configuration(fields),
        "api.resource.v1.ExactDeviceRequest" | "api.resource.v1.DeviceSubRequest" => extensions::device_request(fields),
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition" => extensions::custom_resource_definition(fields),
        _ => {}
    }
}

/// The text of a field; empty where there is none.
fn text<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a field is absent, or present without a value.
fn is_absent(fields: &Fields, name: &str) -> bool {
    fields.get(name).is_none_or(Value::is_null)
}

/// Gives an absent field its value.
fn set(fields: &mut Fields, name: &str, value: impl Into<Value>) {
    if is_absent(fields, name) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// Gives a field its value if it is absent or zero.
fn set_nonzero(fields: &mut Fields, name: &str, value: impl Into<Value>) {
    if fields.get(name).is_none_or(super::is_zero) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// The fields of a part, made where it is absent; `None` where it is something else than an object.
fn part<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    if is_absent(fields, name) {
        fields.insert(name.to_owned(), Value::Object(Fields::new()));
    }
    fields.get_mut(name)?.as_object_mut()
}

/// The objects of a list.
fn objects<'a>(fields: &'a mut Fields, name: &str) -> impl Iterator<Item = &'a mut Fields> {
    fields.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}
