//! What is allowed but not wise: fields and annotations that are deprecated or do nothing, definitions that hide each other. Clients hear of it
//! in `Warning` headers, in the words of a real server; nothing here refuses a write.

use std::collections::HashSet;

use serde_json::Value;

use super::field::{Path, items, map, text};
use super::{container, pod_warnings};
use crate::registry::Resource;
use crate::schema::quantity::Quantity;

/// Warnings about a new object.
pub fn create(resource: &Resource, object: &Value) -> Vec<String> {
    if resource.custom.is_some() {
        return super::metadata::finalizer_warnings(object);
    }
    let mut found = Vec::new();
    name(resource, object, &mut found);
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => pod(&Path::object(), object, false, &mut found),
        ("", "services") => service(object, &mut found),
        ("", "nodes") => node(object, &mut found),
        ("", "persistentvolumes") => volume(object, &mut found),
        ("", "persistentvolumeclaims") => {
            class_annotation(object, &mut found);
            claim_amounts(&Path::root("spec"), &object["spec"], &mut found);
        }
        ("", "secrets") => secret(object, &mut found),
        ("", "resourcequotas") => quota(object, &mut found),
        ("", "namespaces") => {}
        ("storage.k8s.io", "csidrivers") => {
            if !items(&object["spec"], "tokenRequests").is_empty() && object["spec"]["serviceAccountTokenInSecrets"].is_null() {
                found.push(TOKENS.into());
            }
        }
        ("discovery.k8s.io", "endpointslices") if text(object, "addressType") == "FQDN" => {
            found.push("spec.addressType: FQDN endpoints are deprecated".into());
        }
        ("networking.k8s.io", "ingresses") => ingress(object, &mut found),
        ("apiextensions.k8s.io", "customresourcedefinitions") => found.append(&mut super::formats::warnings(object)),
        _ => templates(resource, object, &mut found),
    }
    found
}

/// Warnings about a changed object. Pods are changed by machines, which do not read them; workloads are looked at when their spec changed.
pub fn update(resource: &Resource, new: &Value, old: &Value) -> Vec<String> {
    let is = |group: &str, plural: &str| &*resource.group == group && &*resource.plural == plural;
    if is("", "pods") || (has_template(resource) && new["metadata"]["generation"] == old["metadata"]["generation"]) {
        return Vec::new();
    }
    // Those of a custom object are told when they come.
    if resource.custom.is_some() {
        let known = super::metadata::finalizer_warnings(old);
        return super::metadata::finalizer_warnings(new).into_iter().filter(|warning| !known.contains(warning)).collect();
    }
    let mut found = create(resource, new);
    // Of definitions, only what is new is told.
    if is("apiextensions.k8s.io", "customresourcedefinitions") {
        let known = create(resource, old);
        found.retain(|warning| !known.contains(warning));
    }
    // A name does not change.
    found.retain(|warning| !warning.starts_with("metadata.name: "));
    found
}

const TOKENS: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";

/// More that may be asked for than may be used.
fn quota(quota: &Value, found: &mut Vec<String>) {
    let hard = &quota["spec"]["hard"];
    for name in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let (mut asked, used) = (format!("requests.{name}"), format!("limits.{name}"));
        if hard.get(&asked).is_none() && matches!(name, "cpu" | "memory") {
            asked = name.to_owned();
        }
        let amount = |name: &str| hard.get(name).and_then(Value::as_str).and_then(|text| Quantity::parse(text).ok());
        if let (Some(request), Some(limit)) = (amount(&asked), amount(&used))
            && request.nanos() > limit.nanos()
        {
            let (request, limit) = (text(hard, &asked), text(hard, &used));
            found.push(format!("ResourceQuota {asked} ({request}) should be less than {used} ({limit})"));
        }
    }
}

/// Names that become names of hosts.
fn name(resource: &Resource, object: &Value, found: &mut Vec<String>) {
    let used = match (&*resource.group, &*resource.plural) {
        ("", "pods") => "the Pod's hostname",
        ("", "replicationcontrollers") | ("apps", "deployments" | "replicasets") | ("batch", "jobs" | "cronjobs") => {
            "Pod names and hostnames"
        }
        _ => return,
    };
    let wrong = super::names::label(text(&object["metadata"], "name"));
    if !wrong.is_empty() {
        let why = "which can result in surprising behavior; a DNS label is recommended";
        found.push(format!("metadata.name: this is used in {used}, {why}: [{}]", wrong.join(" ")));
    }
}

/// Storage comes in whole bytes.
fn claim_amounts(at: &Path<'_>, spec: &Value, found: &mut Vec<String>) {
    let resources = at.field("resources");
    for list in ["requests", "limits"] {
        fractions(&resources.field(list), &spec["resources"][list], &["storage"], found);
    }
}

/// A pair of certificate and key that is none.
fn secret(secret: &Value, found: &mut Vec<String>) {
    use base64::Engine as _;
    if text(secret, "type") != "kubernetes.io/tls" {
        return;
    }
    let bytes = |key: &str| base64::engine::general_purpose::STANDARD.decode(text(&secret["data"], key)).unwrap_or_default();
    let labels = |key: &str| -> Vec<String> {
        x509_parser::pem::Pem::iter_from_buffer(&bytes(key)).map_while(Result::ok).map(|block| block.label).collect()
    };
    let (certificates, keys) = (labels("tls.crt"), labels("tls.key"));
    let is_key = |label: &String| label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY");
    let why = if certificates.is_empty() {
        "tls: failed to find any PEM data in certificate input".to_owned()
    } else if !certificates.iter().any(|label| label == "CERTIFICATE") {
        match certificates.iter().any(is_key) {
            true if certificates.len() == 1 => {
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched"
                    .to_owned()
            }
            _ => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]",
                certificates.join(" ")
            ),
        }
    } else if keys.is_empty() {
        "tls: failed to find any PEM data in key input".to_owned()
    } else if !keys.iter().any(is_key) {
        match keys.len() == 1 && keys[0] == "CERTIFICATE" {
            true => "tls: found a certificate rather than a key in the PEM for the private key".to_owned(),
            false => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
                keys.join(" ")
            ),
        }
    } else {
        return;
    };
    found.push(why);
}

fn has_template(resource: &Resource) -> bool {
    matches!(
        (&*resource.group, &*resource.plural),
        ("", "replicationcontrollers")
            | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
            | ("batch", "jobs" | "cronjobs")
    )
}

fn templates(resource: &Resource, object: &Value, found: &mut Vec<String>) {
    let spec = Path::root("spec");
    match (&*resource.group, &*resource.plural) {
        ("", "podtemplates") => pod(&Path::root("template"), &object["template"], true, found),
        ("batch", "cronjobs") => {
            let (template, job) = (spec.field("jobTemplate"), &object["spec"]["jobTemplate"]["spec"]["template"]);
            pod(&template.field("spec").field("template"), job, true, found);
        }
        _ if has_template(resource) => {
            pod(&spec.field("template"), &object["spec"]["template"], true, found);
            if &*resource.plural == "statefulsets" && object["spec"]["revisionHistoryLimit"].as_i64().is_some_and(|n| n < 0) {
                let why = "a negative value retains all historical revisions; a value >= 0 is recommended";
                found.push(format!("{}: {why}", spec.field("revisionHistoryLimit")));
            }
        }
        _ => {}
    }
}

/// Labels of nodes that have newer names.
fn deprecated_label(label: &str) -> Option<&'static str> {
    Some(match label {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
        "failure-domain.beta.kubernetes.io/zone" => "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
        "beta.kubernetes.io/instance-type" => "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
        _ => return None,
    })
}

const ANNOTATIONS: &[(&str, &str)] = &[
    ("scheduler.alpha.kubernetes.io/critical-pod", "non-functional in v1.16+; use the \"priorityClassName\" field instead"),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

const VOLUMES: &[(&str, &str)] = &[
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";

/// A Pod, or the template of one.
fn pod(path: &Path<'_>, pod: &Value, is_template: bool, found: &mut Vec<String>) {
    let (spec, at) = (&pod["spec"], path.field("spec"));
    for label in map(spec, "nodeSelector").into_iter().flat_map(|labels| labels.keys()) {
        if let Some(why) = deprecated_label(label) {
            found.push(format!("{}: {why}", at.field("nodeSelector").key(label)));
        }
    }
    affinity(&at, spec, found);
    for (i, constraint) in items(spec, "topologySpreadConstraints").iter().enumerate() {
        let (list, key) = (at.field("topologySpreadConstraints"), text(constraint, "topologyKey"));
        if let Some(why) = deprecated_label(key) {
            found.push(format!("{}: {key} is {why}", list.index(i).field("topologyKey")));
        }
        if constraint["labelSelector"].is_null() {
            found.push(format!("{}: a null labelSelector results in matching no pod", list.index(i).field("labelSelector")));
        }
    }
    let (annotations, annotations_at) = (&pod["metadata"]["annotations"], path.field("metadata"));
    let annotations_at = annotations_at.field("annotations");
    for (key, why) in ANNOTATIONS {
        if !annotations[*key].is_null() {
            found.push(format!("{}: {why}", annotations_at.key(key)));
        }
    }
    for (i, volume) in items(spec, "volumes").iter().enumerate() {
        for (source, why) in VOLUMES.iter().filter(|(source, _)| !volume[*source].is_null()) {
            let shown = if *source == "storageos" { "storageOS" } else { source };
            found.push(format!("{}: {why}", at.field("volumes").index(i).field(shown)));
        }
        let (list, template) = (at.field("volumes"), &volume["ephemeral"]["volumeClaimTemplate"]["spec"]);
        claim_amounts(&list.index(i).field("ephemeral").field("volumeClaimTemplate").field("spec"), template, found);
    }
    pod_warnings::files_overlap(spec, found);
    repeated(&at, spec, "hostAliases", "ip", found);
    repeated(&at, spec, "imagePullSecrets", "name", found);
    for (i, secret) in items(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() {
            found.push(format!("{}: invalid empty name \"\"", at.field("imagePullSecrets").index(i).field("name")));
        }
    }
    fractions(&at.field("overhead"), &spec["overhead"], &["memory", "ephemeral-storage"], found);
    let seccomp = "seccomp.security.alpha.kubernetes.io/pod";
    if !annotations[seccomp].is_null() && spec["securityContext"]["seccompProfile"].is_null() {
        found.push(format!("{}: {SECCOMP}", annotations_at.key(seccomp)));
    }
    let has_profile = !spec["securityContext"]["appArmorProfile"].is_null();
    for (list, i, container) in container::all(spec) {
        let at = at.field(list);
        let at = at.index(i);
        let name = text(container, "name");
        let key = format!("container.seccomp.security.alpha.kubernetes.io/{name}");
        if !annotations[&key].is_null() && container["securityContext"]["seccompProfile"].is_null() {
            found.push(format!("{}: {SECCOMP}", annotations_at.key(&key)));
        }
        let key = format!("container.apparmor.security.beta.kubernetes.io/{name}");
        if !annotations[&key].is_null() && !has_profile && container["securityContext"]["appArmorProfile"].is_null() {
            match is_template {
                true => {
                    found.push(format!("{}: deprecated since v1.30; use the \"appArmorProfile\" field instead", annotations_at.key(&key)));
                }
                false => {
                    found.push(format!("metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"))
                }
            }
        }
        let (resources, resources_at) = (&container["resources"], at.field("resources"));
        for resource in ["memory", "ephemeral-storage"] {
            fractions(&resources_at.field("limits"), &resources["limits"], &[resource], found);
            fractions(&resources_at.field("requests"), &resources["requests"], &[resource], found);
        }
        hidden_variables(&at, container, found);
    }
    pod_warnings::ports(&at, spec, found);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        found.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            at.field("terminationGracePeriodSeconds")
        ));
    }
    pod_warnings::affinity(&at, spec, found);
    pod_warnings::addresses(&at, spec, found);
}

fn affinity(at: &Path<'_>, spec: &Value, found: &mut Vec<String>) {
    let (affinity, node) = (at.field("affinity"), &spec["affinity"]["nodeAffinity"]);
    let node_at = affinity.field("nodeAffinity");
    let mut term = |at: &Path<'_>, term: &Value, preferred: bool| {
        for (i, expression) in items(term, "matchExpressions").iter().enumerate() {
            let key = text(expression, "key");
            if let Some(why) = deprecated_label(key) {
                found.push(format!("{}: {key} is {why}", at.field("matchExpressions").index(i).field("key")));
            }
            // What is required is refused; what would only be better is kept, and never found.
            for (j, value) in items(expression, "values").iter().filter_map(Value::as_str).enumerate().filter(|_| preferred) {
                let at = at.field("matchExpressions").index(i).field("values").index(j).to_string();
                found.extend(super::names::label_value(value).into_iter().map(|why| format!("{at}: {value} is invalid, {why}")));
            }
        }
    };
    let required = node_at.field("requiredDuringSchedulingIgnoredDuringExecution");
    for (i, one) in items(&node["requiredDuringSchedulingIgnoredDuringExecution"], "nodeSelectorTerms").iter().enumerate() {
        term(&required.field("nodeSelectorTerms").index(i), one, false);
    }
    let preferred = node_at.field("preferredDuringSchedulingIgnoredDuringExecution");
    for (i, one) in items(node, "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
        term(&preferred.index(i).field("preference"), &one["preference"], true);
    }
}

fn repeated(at: &Path<'_>, spec: &Value, list: &str, field: &str, found: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for (i, item) in items(spec, list).iter().enumerate() {
        let value = text(item, field);
        if !seen.insert(value) {
            found.push(format!("{}: duplicate {field} {value:?}", at.field(list).index(i).field(field)));
        }
    }
}

fn fractions(at: &Path<'_>, amounts: &Value, names: &[&str], found: &mut Vec<String>) {
    for name in names {
        let amount = text(amounts, name);
        if Quantity::parse(amount).is_ok_and(|amount| amount.milli() % 1000 != 0) {
            found.push(format!("{}: fractional byte value {amount:?} is invalid, must be an integer", at.key(name)));
        }
    }
}

/// A variable may build on the one of its name before it; otherwise it hides it.
fn hidden_variables(at: &Path<'_>, container: &Value, found: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for (i, variable) in items(container, "env").iter().enumerate() {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        if seen.insert(name) {
            continue;
        }
        let reference = format!("$({name})");
        if !variable["valueFrom"].is_null() || value == reference || !value.contains(&reference) {
            let at = at.field("env");
            found.push(format!("{}: hides previous definition of {name:?}, which may be dropped when using apply", at.index(i)));
        }
    }
}

fn service(service: &Value, found: &mut Vec<String>) {
    let (spec, kind) = (&service["spec"], text(&service["spec"], "type"));
    let headless = kind == "ClusterIP" && text(spec, "clusterIP") == "None";
    let external = !items(spec, "externalIPs").is_empty();
    if !service["metadata"]["annotations"]["service.kubernetes.io/topology-aware-hints"].is_null() {
        let text =
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead";
        found.push(text.into());
    }
    if headless {
        if !text(spec, "loadBalancerIP").is_empty() {
            found.push("spec.loadBalancerIP is ignored for headless services".into());
        }
        if external {
            found.push("spec.externalIPs is ignored for headless services".into());
        }
        if text(spec, "sessionAffinity") != "None" {
            found.push("spec.SessionAffinity is ignored for headless services".into());
        }
    }
    if external && !headless && kind != "ExternalName" {
        found.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".into());
    }
    if external && kind == "ExternalName" {
        found.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".into());
    }
    if kind != "ExternalName" && !text(spec, "externalName").is_empty() {
        found.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
    }
    if text(spec, "trafficDistribution") == "PreferClose" {
        found.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".into());
    }
}

fn node(node: &Value, found: &mut Vec<String>) {
    if !node["spec"]["configSource"].is_null() {
        found.push("spec.configSource: the feature is no longer supported".into());
    }
    if !text(&node["spec"], "externalID").is_empty() {
        found.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".into());
    }
}

fn class_annotation(object: &Value, found: &mut Vec<String>) {
    let annotation = "volume.beta.kubernetes.io/storage-class";
    if !object["metadata"]["annotations"][annotation].is_null() {
        found.push(format!("metadata.annotations[{annotation}]: deprecated since v1.8; use \"storageClassName\" attribute instead"));
    }
}

fn volume(volume: &Value, found: &mut Vec<String>) {
    class_annotation(volume, found);
    let spec = &volume["spec"];
    if text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        let why = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
        found.push(format!("spec.persistentVolumeReclaimPolicy: {why}"));
    }
    for (source, why) in VOLUMES.iter().filter(|(source, _)| !spec[*source].is_null()) {
        let shown = if *source == "storageos" { "storageOS" } else { source };
        found.push(format!("spec.{shown}: {why}"));
    }
}

fn ingress(ingress: &Value, found: &mut Vec<String>) {
    if !ingress["metadata"]["annotations"]["kubernetes.io/ingress.class"].is_null() {
        found.push("annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    fn of(group: &str, version: &str, plural: &str, object: Value) -> Vec<String> {
        create(&Registry::new().lookup(group, version, plural).expect("resource"), &object)
    }

    #[test]
    fn a_template_is_warned_about_where_it_stands() {
        let template = json!({"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "x"}},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "100m"}}}], "nodeSelector": {"beta.kubernetes.io/arch": "x"}}});
        let found = of("apps", "v1", "deployments", json!({"metadata": {"name": "d"}, "spec": {"template": template}}));
        assert_eq!(
            found,
            [
                "spec.template.spec.nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; use \"kubernetes.io/arch\" instead",
                "spec.template.metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the \"seccompProfile\" field instead",
                "spec.template.spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an integer",
            ]
        );
    }

    #[test]
    fn a_variable_that_builds_on_the_one_before_it_is_fine() {
        let env = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "$(A)"}]);
        let found = of("", "v1", "pods", json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "env": env}]}}));
        assert_eq!(found, ["spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply"]);
    }

    #[test]
    fn ports_of_one_pod_that_are_the_same_are_told() {
        let port = json!({"containerPort": 80, "protocol": "TCP"});
        let spec = json!({"containers": [{"name": "a", "ports": [port]}, {"name": "b", "ports": [port, {"containerPort": 80, "protocol": "UDP"}]}]});
        let found = of("", "v1", "pods", json!({"metadata": {"name": "p"}, "spec": spec}));
        assert_eq!(found, ["spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]"]);
    }
}
