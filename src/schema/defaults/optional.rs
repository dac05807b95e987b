//! Two tables about single fields of built-in definitions: those whose feature is off, which a server forgets when they are written,
//! and those in which an empty text is something that was said, since they can also be absent.

/// Fields of features that are off by default. Nothing stored has them.
const OFF: &[(&str, &[&str])] = &[
    ("batch.v1.JobSpec", &["scheduling"]),
    ("coordination.v1.LeaseSpec", &["preferredHolder", "strategy"]),
    ("core.v1.ConfigMapVolumeSource", &["defaultUser"]),
    ("core.v1.DownwardAPIVolumeFile", &["user"]),
    ("core.v1.DownwardAPIVolumeSource", &["defaultUser"]),
    ("core.v1.EmptyDirVolumeSource", &["mode"]),
    ("core.v1.GRPCAction", &["mode"]),
    ("core.v1.HTTPGetAction", &["protocol"]),
    ("core.v1.KeyToPath", &["user"]),
    ("core.v1.Lifecycle", &["stopSignal"]),
    ("core.v1.NodeSpec", &["configSource", "podPreemptionPolicy"]),
    ("core.v1.PersistentVolumeClaimStatus", &["healthStatus"]),
    ("core.v1.PodCertificateProjection", &["user"]),
    ("core.v1.PodSpec", &["evictionResponders", "schedulingGroup"]),
    ("core.v1.PodStatus", &["volumeHealth"]),
    ("core.v1.ProjectedVolumeSource", &["defaultUser"]),
    ("core.v1.SecretVolumeSource", &["defaultUser"]),
    ("core.v1.ServiceAccountTokenProjection", &["user"]),
    ("core.v1.ClusterTrustBundleProjection", &["user"]),
    ("core.v1.VolumeMount", &["bindMountOptions"]),
    ("storage.v1.CSIDriverSpec", &["preventPodSchedulingIfMissing"]),
];

/// Texts that can be absent as well as empty, and have a default for their absence.
const POINTERS: &[(&str, &[&str])] = &[
    ("admissionregistration.v1.MatchResources", &["matchPolicy"]),
    ("admissionregistration.v1.MutatingAdmissionPolicySpec", &["failurePolicy"]),
    ("admissionregistration.v1.MutatingWebhook", &["failurePolicy", "matchPolicy", "reinvocationPolicy"]),
    ("admissionregistration.v1.NamedRuleWithOperations", &["scope"]),
    ("admissionregistration.v1.RuleWithOperations", &["scope"]),
    ("admissionregistration.v1.ValidatingAdmissionPolicySpec", &["failurePolicy"]),
    ("admissionregistration.v1.ValidatingWebhook", &["failurePolicy", "matchPolicy"]),
    ("core.v1.AzureDiskVolumeSource", &["cachingMode", "fsType", "kind"]),
    ("core.v1.PersistentVolumeClaimSpec", &["volumeMode"]),
    ("core.v1.PersistentVolumeSpec", &["volumeMode"]),
    ("discovery.v1.EndpointPort", &["protocol"]),
    ("networking.v1.IngressClassParametersReference", &["scope"]),
    ("networking.v1.NetworkPolicyPort", &["protocol"]),
    ("scheduling.v1.PriorityClass", &["preemptionPolicy"]),
    ("storage.v1.CSIDriverSpec", &["fsGroupPolicy"]),
    ("storage.v1.StorageClass", &["reclaimPolicy", "volumeBindingMode"]),
];

fn of(table: &'static [(&str, &[&str])], definition: &str) -> &'static [&'static str] {
    let short = definition.strip_prefix("io.k8s.api.").unwrap_or(definition);
    table.iter().find(|(name, _)| *name == short).map(|(_, fields)| *fields).unwrap_or_default()
}

/// The fields of a definition that are off.
pub(in crate::schema) fn off(definition: &str) -> &'static [&'static str] {
    of(OFF, definition)
}

/// The fields of a definition in which an empty text is not absence.
pub(in crate::schema) fn pointers(definition: &str) -> &'static [&'static str] {
    of(POINTERS, definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_speak_of_fields_that_exist() {
        let names = crate::schema::source::names();
        let known = crate::schema::source::definitions_of_all(names.iter().map(String::as_str));
        for (definition, fields) in OFF.iter().chain(POINTERS) {
            let source = known.get(&format!("io.k8s.api.{definition}")).unwrap_or_else(|| panic!("{definition}"));
            for field in *fields {
                assert!(source["properties"].get(*field).is_some(), "{definition}.{field}");
            }
        }
    }
}
