//! The write stack of a server: which plugins run and in which order. The order is kube-apiserver's; what may change an object comes
//! before what judges it, webhooks come after everything built in, and quota comes last, so that nothing is counted that somebody
//! else would still have refused.

use std::path::PathBuf;
use std::sync::Arc;

use super::manifest::{Manifests, Targets};
use super::plugins::always::{AlwaysAdmit, AlwaysDeny};
use super::plugins::always_pull_images::AlwaysPullImages;
use super::plugins::certificates::{CertificateApproval, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest};
use super::plugins::default_ingress_class::DefaultIngressClass;
use super::plugins::default_storage_class::DefaultStorageClass;
use super::plugins::default_toleration_seconds::DefaultTolerationSeconds;
use super::plugins::deny_service_external_ips::DenyServiceExternalIPs;
use super::plugins::event_rate_limit::{EventRateLimit, Limit};
use super::plugins::extended_resource_toleration::ExtendedResourceToleration;
use super::plugins::image_policy_webhook::{Backend, ImagePolicyWebhook};
use super::plugins::limit_pod_hard_anti_affinity_topology::LimitPodHardAntiAffinityTopology;
use super::plugins::limit_ranger::LimitRanger;
use super::plugins::namespace_auto_provision::NamespaceAutoProvision;
use super::plugins::namespace_exists::NamespaceExists;
use super::plugins::namespace_lifecycle::NamespaceLifecycle;
use super::plugins::node_declared_feature_validator::NodeDeclaredFeatureValidator;
use super::plugins::node_restriction::NodeRestriction;
use super::plugins::owner_references_permission_enforcement::OwnerReferencesPermissionEnforcement;
use super::plugins::persistent_volume_claim_resize::PersistentVolumeClaimResize;
use super::plugins::pod_group_protection::PodGroupProtection;
use super::plugins::pod_node_selector::PodNodeSelector;
use super::plugins::pod_resize_validator::PodResizeValidator;
use super::plugins::pod_security::{PodSecurity, Standards};
use super::plugins::pod_toleration_restriction::{PodTolerationRestriction, Tolerations};
use super::plugins::pod_topology_labels::PodTopologyLabels;
use super::plugins::priority::Priority;
use super::plugins::resource_quota::{Limited, ResourceQuota};
use super::plugins::runtime_class::RuntimeClass;
use super::plugins::service_account::ServiceAccount;
use super::plugins::storage_object_in_use_protection::StorageObjectInUseProtection;
use super::plugins::taint_nodes_by_condition::TaintNodesByCondition;
use super::policy::Evaluator;
use super::policy::mutating::MutatingAdmissionPolicy;
use super::policy::snapshot::{FollowBindings, FollowPolicies, Policies};
use super::policy::type_check::Checker;
use super::policy::validating::ValidatingAdmissionPolicy;
use super::webhook::Caller;
use super::webhook::client::Clients;
use super::webhook::configuration::Hooks;
use super::webhook::endpoint::ServiceMap;
use super::webhook::mutating::MutatingAdmissionWebhook;
use super::webhook::validating::ValidatingAdmissionWebhook;
use super::{Cluster, Mutate, Stack, Validate};
use crate::authz::Authorizer;
use crate::store;

/// What flags say about admission.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `--enable-admission-plugins`.
    pub enable: Vec<String>,
    /// `--disable-admission-plugins`.
    pub disable: Vec<String>,
    /// Services of webhooks that are served from elsewhere.
    pub services: Arc<ServiceMap>,
    /// `--policies`: a directory of policies, bindings and webhook configurations.
    pub policies: Option<PathBuf>,
    /// The backend of `ImagePolicyWebhook`.
    pub image_policy: Option<Backend>,
    /// The limits of `EventRateLimit`.
    pub event_limits: Vec<Limit>,
    /// What `PodSecurity` asks where a namespace says nothing, and of whom it asks nothing.
    pub pod_security: Standards,
    /// What `PodTolerationRestriction` holds to where a namespace says nothing.
    pub tolerations: Tolerations,
    /// What `ResourceQuota` gives nobody without a quota.
    pub limited_resources: Vec<Limited>,
    /// `staticManifestsDir` of the plugins for webhooks and policies.
    pub manifests: Vec<(String, PathBuf)>,
    /// The selectors of `PodNodeSelector` by namespace; `clusterDefaultNodeSelector` is for all others.
    pub node_selectors: Vec<(String, String)>,
}

/// What admission stands on.
#[derive(Clone)]
pub struct Dependencies {
    /// The objects that decisions look at.
    pub cluster: Cluster,
    /// Who answers `authorizer` in CEL, and whether somebody may do what a plugin asks about.
    pub authorizer: Arc<dyn Authorizer>,
}

/// Why a stack could not be built: one clear sentence.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A flag names a plugin that does not exist.
    #[error("unknown admission plugin {0:?}")]
    UnknownPlugin(String),
    /// A flag pair contradicts itself.
    #[error("admission plugin {0:?} is both enabled and disabled")]
    Contradiction(String),
    /// A manifest is wrong from the start.
    #[error("{0}")]
    Manifests(String),
    /// What admission depends on could not be read.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// One plugin: its two halves, of which most have one.
struct Plugin {
    name: &'static str,
    default: bool,
    mutate: Option<Arc<dyn Mutate>>,
    validate: Option<Arc<dyn Validate>>,
}

fn mutating(plugin: impl Mutate + 'static, default: bool) -> Plugin {
    Plugin { name: plugin.name(), default, mutate: Some(Arc::new(plugin)), validate: None }
}

fn validating(plugin: impl Validate + 'static, default: bool) -> Plugin {
    Plugin { name: plugin.name(), default, mutate: None, validate: Some(Arc::new(plugin)) }
}

fn both<P: Mutate + Validate + 'static>(plugin: P, default: bool) -> Plugin {
    let (name, plugin) = (Mutate::name(&plugin), Arc::new(plugin));
    Plugin { name, default, mutate: Some(plugin.clone()), validate: Some(plugin) }
}

const ON: bool = true;
const OFF: bool = false;

/// Builds the stack, and has everything that is compiled follow the objects it is compiled from.
///
/// # Errors
/// If a flag names no plugin, or the read side cannot be loaded.
pub async fn build(settings: &Settings, dependencies: Dependencies) -> Result<Stack, BuildError> {
    let (cluster, authorizer) = (&dependencies.cluster.with_services(settings.services.clone()), &dependencies.authorizer);
    let (mutating_hooks, validating_hooks) = (Arc::new(Hooks::default()), Arc::new(Hooks::default()));
    cluster.state.topic("mutatingwebhookconfigurations").await?.observe(mutating_hooks.clone());
    cluster.state.topic("validatingwebhookconfigurations").await?.observe(validating_hooks.clone());
    let (mutating_policies, validating_policies) = (Arc::new(Policies::default()), Arc::new(Policies::default()));
    for (policies, plural, bindings) in [
        (&mutating_policies, "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
        (&validating_policies, "validatingadmissionpolicies", "validatingadmissionpolicybindings"),
    ] {
        cluster.state.topic(plural).await?.observe(Arc::new(FollowPolicies(policies.clone())));
        cluster.state.topic(bindings).await?.observe(Arc::new(FollowBindings(policies.clone())));
    }
    cluster.state.topic("validatingadmissionpolicies").await?.observe(Arc::new(Checker::start(cluster)));
    let targets = Targets {
        mutating_policies: mutating_policies.clone(),
        validating_policies: validating_policies.clone(),
        mutating_hooks: mutating_hooks.clone(),
        validating_hooks: validating_hooks.clone(),
    };
    let mut manifests = Vec::new();
    if let Some(directory) = &settings.policies {
        let followed = Manifests::follow(directory, None, cluster.registry.clone(), targets.clone());
        manifests.push(followed.map_err(|why| BuildError::Manifests(format!("--policies: {why}")))?);
    }
    for (plugin, directory) in &settings.manifests {
        let followed = Manifests::follow(directory, Some(plugin), cluster.registry.clone(), targets.clone());
        manifests.push(followed.map_err(|why| BuildError::Manifests(format!("staticManifestsDir of {plugin}: {why}")))?);
    }
    let evaluator = Arc::new(Evaluator { cluster: cluster.clone(), authorizer: authorizer.clone() });
    let caller =
        Arc::new(Caller { cluster: cluster.clone(), authorizer: authorizer.clone(), clients: Clients::new(settings.services.clone()) });
    let plugins = vec![
        mutating(AlwaysAdmit, OFF),
        mutating(NamespaceAutoProvision(cluster.clone()), OFF),
        mutating(NamespaceLifecycle(cluster.clone()), ON),
        validating(NamespaceExists(cluster.clone()), OFF),
        validating(LimitPodHardAntiAffinityTopology, OFF),
        both(LimitRanger(cluster.clone()), ON),
        both(ServiceAccount(cluster.clone()), ON),
        // Off by default in kube-apiserver, and on in every cluster that has kubelets.
        mutating(NodeRestriction { cluster: cluster.clone(), authorizer: authorizer.clone() }, ON),
        mutating(TaintNodesByCondition, ON),
        both(AlwaysPullImages, OFF),
        validating(ImagePolicyWebhook::new(settings.image_policy.clone(), caller.clone()), OFF),
        validating(PodSecurity { cluster: cluster.clone(), standards: settings.pod_security.clone() }, ON),
        both(PodNodeSelector { cluster: cluster.clone(), selectors: settings.node_selectors.clone() }, OFF),
        both(Priority(cluster.clone()), ON),
        mutating(DefaultTolerationSeconds, ON),
        both(PodTolerationRestriction { cluster: cluster.clone(), configured: settings.tolerations.clone() }, OFF),
        validating(EventRateLimit::new(settings.event_limits.clone()), OFF),
        mutating(ExtendedResourceToleration, OFF),
        mutating(DefaultStorageClass(cluster.clone()), ON),
        mutating(StorageObjectInUseProtection, ON),
        mutating(PodGroupProtection, ON),
        validating(OwnerReferencesPermissionEnforcement { cluster: cluster.clone(), authorizer: authorizer.clone() }, OFF),
        validating(PersistentVolumeClaimResize(cluster.clone()), ON),
        both(RuntimeClass(cluster.clone()), ON),
        validating(CertificateApproval(authorizer.clone()), ON),
        validating(CertificateSigning(authorizer.clone()), ON),
        validating(ClusterTrustBundleAttest(authorizer.clone()), ON),
        validating(CertificateSubjectRestriction, ON),
        mutating(DefaultIngressClass(cluster.clone()), ON),
        validating(DenyServiceExternalIPs, OFF),
        mutating(PodTopologyLabels(cluster.clone()), ON),
        validating(NodeDeclaredFeatureValidator(cluster.clone()), ON),
        validating(PodResizeValidator(cluster.clone()), ON),
        // What comes from outside stands behind everything built in, and quota behind everybody.
        mutating(MutatingAdmissionPolicy { policies: mutating_policies, evaluator: evaluator.clone() }, ON),
        mutating(MutatingAdmissionWebhook { hooks: mutating_hooks, caller: caller.clone() }, ON),
        validating(ValidatingAdmissionPolicy { policies: validating_policies, evaluator }, ON),
        validating(ValidatingAdmissionWebhook { hooks: validating_hooks, caller }, ON),
        validating(ResourceQuota::new(cluster.clone(), settings.limited_resources.clone()), ON),
        mutating(AlwaysDeny, OFF),
    ];
    let mut stack = assemble(settings, plugins)?;
    stack.manifests = manifests;
    Ok(stack)
}

fn assemble(settings: &Settings, plugins: Vec<Plugin>) -> Result<Stack, BuildError> {
    for name in settings.enable.iter().chain(&settings.disable) {
        if !plugins.iter().any(|plugin| plugin.name == name) {
            return Err(BuildError::UnknownPlugin(name.clone()));
        }
    }
    if let Some(name) = settings.enable.iter().find(|name| settings.disable.contains(name)) {
        return Err(BuildError::Contradiction(name.clone()));
    }
    let mut stack = Stack::default();
    for plugin in plugins {
        let named = |list: &[String]| list.iter().any(|name| name == plugin.name);
        if named(&settings.disable) || !(plugin.default || named(&settings.enable)) {
            continue;
        }
        stack.mutating.extend(plugin.mutate);
        stack.validating.extend(plugin.validate);
    }
    Ok(stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(enable: &[&str], disable: &[&str]) -> Result<Vec<&'static str>, BuildError> {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        let settings = Settings { enable: own(enable), disable: own(disable), ..Settings::default() };
        let plugins = vec![mutating(TaintNodesByCondition, true), mutating(DefaultTolerationSeconds, false)];
        assemble(&settings, plugins).map(|stack| stack.mutating.iter().map(|p| p.name()).collect())
    }

    #[test]
    fn flags_turn_plugins_on_and_off_by_name() {
        assert_eq!(names(&[], &[]).unwrap(), ["TaintNodesByCondition"]);
        assert_eq!(names(&["DefaultTolerationSeconds"], &["TaintNodesByCondition"]).unwrap(), ["DefaultTolerationSeconds"]);
        assert_eq!(names(&["Nope"], &[]).unwrap_err().to_string(), "unknown admission plugin \"Nope\"");
        assert!(names(&["DefaultTolerationSeconds"], &["DefaultTolerationSeconds"]).is_err());
    }
}
