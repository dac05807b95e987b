//! Where the schemas of built-in kinds come from: the types of `k8s-openapi` describe themselves, descriptions included.
//! What they do not say (list types, defaults, …) is in [`super::overlay`]; what is made of it, in [`super::builtin`]
//! and in the published documents.

use k8s_openapi::{api, apiextensions_apiserver, apimachinery, kube_aggregator};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The definitions that `name` (`io.k8s.api.apps.v1.Deployment`) is made of, by their full names, itself among them.
/// Empty for a name that is not in the list below.
pub fn definitions_of(name: &str) -> Map<String, Value> {
    definitions_of_all([name])
}

/// The same for several names at once, which costs less than one by one since they share most of what they are made of.
pub fn definitions_of_all<'a>(names: impl IntoIterator<Item = &'a str>) -> Map<String, Value> {
    let mut generator = SchemaSettings::draft07().into_generator();
    for name in names {
        describe(name, &mut generator);
    }
    generator.take_definitions(false)
}

macro_rules! sources {
    ($($($module:ident)::+ => [$($kind:ident),+ $(,)?]),+ $(,)?) => {
        fn describe(name: &str, generator: &mut SchemaGenerator) {
            $({
                use $($module)::+ as module;
                let path = stringify!($($module)::+);
                $(if is_named(name, path, stringify!($kind)) {
                    generator.subschema_for::<module::$kind>();
                    return;
                })+
            })+
        }

        /// Whether a definition is one of a kind of its own, rather than a part of others.
        pub fn is_kind(name: &str) -> bool {
            $({
                let path = stringify!($($module)::+);
                $(if is_named(name, path, stringify!($kind)) {
                    return true;
                })+
            })+
            false
        }

        /// Every name that [`definitions_of`] knows.
        #[cfg(test)]
        pub fn names() -> Vec<String> {
            use schemars::JsonSchema;
            let mut names = Vec::new();
            $({
                use $($module)::+ as module;
                $(names.push(<module::$kind as JsonSchema>::schema_name().into_owned());)+
            })+
            names
        }
    };
}

/// Whether `io.k8s.api.apps.v1.Deployment` is the `Deployment` of the module `api::apps::v1`.
fn is_named(name: &str, module: &str, kind: &str) -> bool {
    let Some(path) = name.strip_prefix("io.k8s.").and_then(|rest| rest.strip_suffix(kind)).and_then(|rest| rest.strip_suffix('.')) else {
        return false;
    };
    let words = module.split("::").map(|word| word.trim());
    path.split('.').map(|word| word.replace('-', "_")).eq(words)
}

sources! {
    api::core::v1 => [Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount],
    kube_aggregator::pkg::apis::apiregistration::v1 => [APIService],
    api::apps::v1 => [ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet],
    api::events::v1 => [Event],
    api::authentication::v1 => [SelfSubjectReview, TokenRequest, TokenReview],
    api::authorization::v1 => [LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview],
    api::autoscaling::v2 => [HorizontalPodAutoscaler],
    api::autoscaling::v1 => [HorizontalPodAutoscaler, Scale],
    api::batch::v1 => [CronJob, Job],
    api::certificates::v1 => [CertificateSigningRequest, ClusterTrustBundle, PodCertificateRequest],
    api::networking::v1 => [IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR],
    api::policy::v1 => [Eviction, PodDisruptionBudget],
    api::rbac::v1 => [ClusterRole, ClusterRoleBinding, Role, RoleBinding],
    api::storage::v1 => [CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass],
    api::admissionregistration::v1 => [MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration],
    apiextensions_apiserver::pkg::apis::apiextensions::v1 => [CustomResourceDefinition],
    api::scheduling::v1 => [PriorityClass],
    api::coordination::v1 => [Lease],
    api::node::v1 => [RuntimeClass],
    api::discovery::v1 => [EndpointSlice],
    api::resource::v1 => [DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice],
    api::flowcontrol::v1 => [FlowSchema, PriorityLevelConfiguration],
    api::storagemigration::v1 => [StorageVersionMigration],
    apimachinery::pkg::apis::meta::v1 => [APIGroup, APIGroupList, APIResourceList, APIVersions, DeleteOptions, ListMeta, ObjectMeta, Patch, Status],
    apimachinery::pkg::runtime => [RawExtension],
    apimachinery::pkg::version => [Info],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_gives_its_definition() {
        for name in names() {
            assert!(definitions_of(&name).contains_key(&name), "{name}");
        }
    }

    #[test]
    fn a_pod_is_made_of_its_parts() {
        let definitions = definitions_of("io.k8s.api.core.v1.Pod");
        assert!(definitions.contains_key("io.k8s.api.core.v1.Container"));
        assert!(!definitions.contains_key("io.k8s.api.apps.v1.Deployment"));
        assert!(definitions_of("io.k8s.api.core.v1.Nothing").is_empty());
    }
}
