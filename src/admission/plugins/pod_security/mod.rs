//! `PodSecurity`: the Pod Security Standards, by labels of the namespace. A level is enforced on Pods, and warned of or noted for the
//! audit on Pods and on everything that makes them. The standards themselves are [`baseline`] and [`restricted`].

mod baseline;
mod restricted;
mod violation;

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::pod::{containers, pod_of};
use crate::admission::{Cluster, Operation, Validate, Write};
use crate::status::{FieldError, Status};
use violation::Violation;

const PREFIX: &str = "pod-security.kubernetes.io/";

/// A level of a version of the standards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    name: &'static str,
    /// The minor version of `v1.x`; nothing is the latest.
    minor: Option<u32>,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.minor {
            Some(minor) => write!(f, "{}:v1.{minor}", self.name),
            None => write!(f, "{}:latest", self.name),
        }
    }
}

impl Level {
    /// What a namespace's labels say for `enforce`, `warn` or `audit`. What is wrong counts as the strictest where it is enforced, and as
    /// nothing elsewhere. Who enforces without a word about warnings wants those of the same level.
    fn of(labels: &Value, mode: &str) -> Level {
        let label = |mode: &str, suffix: &str| labels.get(format!("{PREFIX}{mode}{suffix}")).and_then(Value::as_str);
        let version = |mode: &str| label(mode, "-version").and_then(minor_of);
        let name = match (mode, label(mode, "")) {
            ("warn", None) => {
                let enforced = label("enforce", "").filter(|level| matches!(*level, "baseline" | "restricted"));
                let name = match enforced {
                    Some("baseline") => "baseline",
                    Some(_) => "restricted",
                    None => "privileged",
                };
                let of = if enforced.is_some() && label("warn", "-version").is_none() { "enforce" } else { "warn" };
                return Level { name, minor: version(of) };
            }
            (_, None | Some("privileged")) => "privileged",
            (_, Some("baseline")) => "baseline",
            (_, Some("restricted")) | ("enforce", Some(_)) => "restricted",
            _ => "privileged",
        };
        Level { name, minor: version(mode) }
    }

    /// How strict it is.
    fn rank(&self) -> u8 {
        match self.name {
            "privileged" => 0,
            "baseline" => 1,
            _ => 2,
        }
    }

    /// Whether a check that came with a version is part of it.
    fn includes(&self, since: u32) -> bool {
        self.minor.is_none_or(|minor| minor >= since)
    }

    /// Whether it asks less of a Pod whose users are none of the host's.
    fn relaxes(&self, spec: &Value) -> bool {
        self.includes(35) && spec["hostUsers"] == false
    }

    /// Everything about a Pod that this level does not allow.
    fn violations(&self, metadata: &Value, spec: &Value) -> Vec<Violation> {
        match self.name {
            "privileged" => Vec::new(),
            "baseline" => baseline::check(self, metadata, spec, false),
            _ => {
                let mut all = baseline::check(self, metadata, spec, true);
                all.extend(restricted::check(self, metadata, spec));
                all
            }
        }
    }
}

fn minor_of(version: &str) -> Option<u32> {
    version.strip_prefix("v1.")?.parse().ok()
}

fn told(level: &Level, violations: &[Violation]) -> String {
    let parts: Vec<String> = violations.iter().map(ToString::to_string).collect();
    format!("violate PodSecurity \"{level}\": {}", parts.join(", "))
}

/// What a server asks of Pods where their namespace says nothing, and whom it asks nothing of.
#[derive(Clone, Debug, Default)]
pub struct Standards {
    /// Labels as a namespace could have them, without their prefix.
    defaults: Vec<(String, String)>,
    users: Vec<String>,
    runtime_classes: Vec<String>,
    namespaces: Vec<String>,
}

impl Standards {
    /// Reads a `PodSecurityConfiguration`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_value(value: &Value) -> Result<Standards, String> {
        if value["kind"] != "PodSecurityConfiguration" {
            return Err("not a PodSecurityConfiguration".into());
        }
        let defaults = value["defaults"].as_object().into_iter().flatten();
        let defaults: Vec<(String, String)> =
            defaults.map(|(mode, level)| (mode.clone(), level.as_str().unwrap_or_default().to_owned())).collect();
        let labels: serde_json::Map<String, Value> =
            defaults.iter().map(|(mode, level)| (format!("{PREFIX}{mode}"), json!(level))).collect();
        if let Some(error) = label_errors(&labels.into()).first() {
            return Err(error.to_string().replace(&format!("metadata.labels[{PREFIX}"), "defaults["));
        }
        let list = |field: &str| -> Vec<String> {
            let all = value["exemptions"][field].as_array().into_iter().flatten();
            all.filter_map(|name| name.as_str().map(str::to_owned)).collect()
        };
        Ok(Standards { defaults, users: list("usernames"), runtime_classes: list("runtimeClasses"), namespaces: list("namespaces") })
    }

    /// The labels of a namespace, with what they leave out.
    fn complete(&self, labels: &Value) -> Value {
        let mut all = labels.as_object().cloned().unwrap_or_default();
        for (mode, level) in &self.defaults {
            all.entry(format!("{PREFIX}{mode}")).or_insert_with(|| json!(level));
        }
        all.into()
    }

    /// What somebody is exempt by, in the word that the audit event has for it.
    fn exemption(&self, write: &Write, spec: &Value) -> Option<&'static str> {
        let runtime_class = spec["runtimeClassName"].as_str().unwrap_or_default();
        if self.namespaces.contains(&write.namespace) {
            return Some("namespace");
        }
        if self.users.contains(&write.user.name) {
            return Some("user");
        }
        let is_exempt = !runtime_class.is_empty() && self.runtime_classes.iter().any(|class| class == runtime_class);
        is_exempt.then_some("runtimeClass")
    }
}

/// The plugin.
pub struct PodSecurity {
    /// The cluster, for the namespace's labels and its Pods.
    pub cluster: Cluster,
    /// What the configuration says.
    pub standards: Standards,
}

impl Validate for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn handles(&self, write: &Write) -> bool {
        if !matches!(write.operation, Operation::Create | Operation::Update) {
            return false;
        }
        let plural = &*write.resource.plural;
        match &*write.resource.group {
            "" => {
                (plural == "pods" && matches!(write.subresource.as_str(), "" | "ephemeralcontainers" | "resize"))
                    || (write.subresource.is_empty() && matches!(plural, "namespaces" | "replicationcontrollers" | "podtemplates"))
            }
            "apps" => write.subresource.is_empty() && matches!(plural, "deployments" | "replicasets" | "statefulsets" | "daemonsets"),
            "batch" => write.subresource.is_empty() && matches!(plural, "jobs" | "cronjobs"),
            _ => false,
        }
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            if write.is("", "namespaces") {
                return self.namespace(write).await;
            }
            let Some(namespace) = self.cluster.namespace(&write.namespace) else { return Ok(()) };
            let Some((metadata, spec)) = pod_of(&write.resource.kind, write.object()) else { return Ok(()) };
            if let Some(exempt) = self.standards.exemption(write, spec) {
                write.context.trace.annotate(format!("{PREFIX}exempt"), exempt);
                return Ok(());
            }
            let labels = self.standards.complete(&namespace.value()["metadata"]["labels"]);
            let is_pod = write.is_of("", "pods");
            let trace = &write.context.trace;
            if is_pod && write.operation == Operation::Update && !is_significant(write) {
                // Where everything is allowed, nobody looks so far.
                let allowed = |mode| Level::of(&labels, mode).name == "privileged";
                if label_errors(&labels).is_empty() && ["enforce", "audit", "warn"].into_iter().all(allowed) {
                    trace.annotate(format!("{PREFIX}enforce-policy"), "privileged:latest");
                }
                return Ok(());
            }
            let errors: Vec<String> = label_errors(&labels).iter().map(ToString::to_string).collect();
            match errors.as_slice() {
                [] => {}
                [one] => trace.annotate(format!("{PREFIX}error"), format!("Failed to parse policy: {one}")),
                many => trace.annotate(format!("{PREFIX}error"), format!("Failed to parse policy: [{}]", many.join(", "))),
            }
            let enforce = Level::of(&labels, "enforce");
            let mut refused = None;
            if is_pod {
                trace.annotate(format!("{PREFIX}enforce-policy"), enforce.to_string());
                let violations = enforce.violations(metadata, spec);
                if !violations.is_empty() {
                    refused = Some(write.forbidden(told(&enforce, &violations).replacen("violate", "violates", 1)));
                }
            }
            let audit = Level::of(&labels, "audit");
            let violations = audit.violations(metadata, spec);
            if !violations.is_empty() {
                trace.annotate(format!("{PREFIX}audit-violations"), format!("would {}", told(&audit, &violations)));
            }
            if let Some(status) = refused {
                return Err(status);
            }
            let warn = Level::of(&labels, "warn");
            let violations = warn.violations(metadata, spec);
            if !violations.is_empty() {
                trace.warn(format!("would {}", told(&warn, &violations)));
            }
            Ok(())
        })
    }
}

/// Whether an update of a Pod can make a difference: other images, more containers.
fn is_significant(write: &Write) -> bool {
    let images = |pod: &Value| containers(&pod["spec"]).map(|c| c["image"].clone()).collect::<Vec<_>>();
    images(write.old()) != images(write.object())
}

/// What is wrong with the labels of a namespace.
fn label_errors(labels: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for mode in ["enforce", "audit", "warn"] {
        let field = |suffix: &str| format!("metadata.labels[{PREFIX}{mode}{suffix}]");
        let label = |suffix: &str| labels.get(format!("{PREFIX}{mode}{suffix}"));
        if let Some(value) = label("").filter(|v| !matches!(v.as_str(), Some("privileged" | "baseline" | "restricted"))) {
            errors.push(FieldError::invalid(field(""), value, "must be one of privileged, baseline, restricted"));
        }
        if let Some(value) = label("-version").filter(|v| v.as_str() != Some("latest") && v.as_str().and_then(minor_of).is_none()) {
            errors.push(FieldError::invalid(field("-version"), value, "must be \"latest\" or \"v1.x\""));
        }
    }
    errors
}

impl PodSecurity {
    /// Labels must say something, and a stricter level is told of the Pods that are already there.
    async fn namespace(&self, write: &Write) -> Result<(), Status> {
        let labels = &write.object()["metadata"]["labels"];
        let errors = label_errors(labels);
        // What was wrong before may stay so.
        let was_so = write.operation == Operation::Update && label_errors(&write.old()["metadata"]["labels"]) == errors;
        if !errors.is_empty() && !was_so {
            return Err(Status::invalid("", "Namespace", &write.name, errors));
        }
        let enforced = |labels: &Value| Level::of(&self.standards.complete(labels), "enforce");
        let (old, new) = (enforced(&write.old()["metadata"]["labels"]), enforced(labels));
        if self.standards.namespaces.contains(&write.name) {
            return Ok(());
        }
        let is_relaxed = old.minor == new.minor && new.rank() <= old.rank();
        if write.operation != Operation::Update || old == new || new.name == "privileged" || is_relaxed {
            return Ok(());
        }
        let mut groups: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for pod in self.cluster.list("pods", &write.name).await? {
            let violations = new.violations(&pod.value()["metadata"], &pod.value()["spec"]);
            if !violations.is_empty() {
                let reasons: Vec<&str> = violations.iter().map(|v| v.reason).collect();
                groups.entry(reasons.join(", ")).or_insert_with(|| (pod.name().to_owned(), 0)).1 += 1;
            }
        }
        if groups.is_empty() {
            return Ok(());
        }
        let trace = &write.context.trace;
        trace.warn(format!("existing pods in namespace {} violate the new PodSecurity enforce level \"{new}\"", json!(write.name)));
        let mut told = Vec::new();
        for (reasons, (first, count)) in groups {
            let others = match count {
                1 => String::new(),
                2 => " (and 1 other pod)".to_owned(),
                n => format!(" (and {} other pods)", n - 1),
            };
            told.push(format!("{first}{others}: {reasons}"));
        }
        told.sort();
        told.into_iter().for_each(|warning| trace.warn(warning));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told_of(level: &str, spec: Value) -> Vec<String> {
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        Level::of(&labels, "enforce").violations(&Value::Null, &spec).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_recorded_violations_of_restricted() {
        assert_eq!(
            told_of("restricted", json!({"containers": [{"name": "c", "image": "i"}]})),
            [
                "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false)",
                "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"])",
                "runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true)",
                "seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
            ]
        );
    }

    #[test]
    fn a_hardened_pod_is_restricted_enough() {
        let spec = json!({
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        });
        assert_eq!(told_of("restricted", spec), Vec::<String>::new());
    }

    #[test]
    fn baseline_forbids_what_reaches_the_host() {
        let spec = json!({
            "hostNetwork": true, "hostPID": true,
            "containers": [
                {"name": "a", "ports": [{"hostPort": 80}], "securityContext": {"privileged": true, "capabilities": {"add": ["NET_ADMIN"]}}},
                {"name": "b", "securityContext": {"privileged": true, "procMount": "Unmasked"}},
            ],
            "volumes": [{"name": "h", "hostPath": {"path": "/"}}],
            "securityContext": {"sysctls": [{"name": "kernel.msgmax"}]},
        });
        assert_eq!(
            told_of("baseline", spec),
            [
                "non-default capabilities (container \"a\" must not include \"NET_ADMIN\" in securityContext.capabilities.add)",
                "host namespaces (hostNetwork=true, hostPID=true)",
                "hostPath volumes (volume \"h\")",
                "hostPort (container \"a\" uses hostPort 80)",
                "privileged (containers \"a\", \"b\" must not set securityContext.privileged=true)",
                "procMount (container \"b\" must not set securityContext.procMount to \"Unmasked\")",
                "forbidden sysctls (kernel.msgmax)",
            ]
        );
    }
}
