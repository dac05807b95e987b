//! The restricted standard, on top of baseline: no root, no privileges to gain, no volumes but harmless ones. In the order in which
//! messages tell the checks.

use serde_json::Value;

use super::Level;
use super::baseline::{added, proc_mount};
use super::violation::{Violation, is_windows, named, plural, quoted, setters, violation};
use crate::admission::plugins::pod::containers;

const VOLUMES: &[&str] =
    &["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"];

/// Everything that restricted does not allow beyond baseline.
pub fn check(level: &Level, _metadata: &Value, spec: &Value) -> Vec<Violation> {
    // Since 1.25 what only Linux has is not asked of Windows.
    let linux = !(is_windows(spec) && level.includes(25));
    let all = [
        (linux && level.includes(8)).then(|| privilege_escalation(spec)).flatten(),
        (linux && level.includes(22)).then(|| capabilities(spec)).flatten(),
        level.includes(35).then(|| proc_mount(spec)).flatten(),
        volumes(spec),
        (!level.relaxes(spec)).then(|| run_as_non_root(spec)).flatten(),
        (level.includes(23) && !level.relaxes(spec)).then(|| run_as_user(spec)).flatten(),
        (linux && level.includes(19)).then(|| seccomp(spec)).flatten(),
    ];
    all.into_iter().flatten().collect()
}

fn privilege_escalation(spec: &Value) -> Option<Violation> {
    let names = named(spec, |c| c["securityContext"]["allowPrivilegeEscalation"] != false);
    let told = || format!("{} must set securityContext.allowPrivilegeEscalation=false", plural("container", &names));
    (!names.is_empty()).then(told).and_then(|detail| violation("allowPrivilegeEscalation != false", detail))
}

fn capabilities(spec: &Value) -> Option<Violation> {
    let drops_all = |c: &Value| c["securityContext"]["capabilities"]["drop"].as_array().into_iter().flatten().any(|name| name == "ALL");
    let missing = named(spec, |c| !drops_all(c));
    let allowed = &["NET_BIND_SERVICE"];
    let adding = named(spec, |c| added(c, allowed).next().is_some());
    let mut forbidden: Vec<&str> = containers(spec).flat_map(|c| added(c, allowed)).collect();
    forbidden.sort_unstable();
    let mut parts = Vec::new();
    if !missing.is_empty() {
        parts.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", plural("container", &missing)));
    }
    if !adding.is_empty() {
        parts.push(format!("{} must not include {} in securityContext.capabilities.add", plural("container", &adding), quoted(&forbidden)));
    }
    violation("unrestricted capabilities", parts.join("; "))
}

fn volumes(spec: &Value) -> Option<Violation> {
    let (mut names, mut kinds) = (Vec::new(), Vec::new());
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        let sources = volume.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).filter(|key| *key != "name");
        for kind in sources.filter(|kind| !VOLUMES.contains(kind)) {
            names.push(volume["name"].as_str().unwrap_or_default());
            kinds.push(kind);
        }
    }
    kinds.sort_unstable();
    kinds.dedup();
    let verb = if names.len() == 1 { "uses" } else { "use" };
    let word = if kinds.len() == 1 { "type" } else { "types" };
    let told = || format!("{} {verb} restricted volume {word} {}", plural("volume", &names), quoted(&kinds));
    (!names.is_empty()).then(told).and_then(|detail| violation("restricted volume types", detail))
}

fn run_as_non_root(spec: &Value) -> Option<Violation> {
    let set = |value: &Value| value["securityContext"]["runAsNonRoot"].as_bool();
    let pod = set(spec);
    let explicit = named(spec, |c| set(c) == Some(false));
    let silent = named(spec, |c| set(c).is_none());
    let setters = setters(pod == Some(false), &explicit);
    let told = match (setters.is_empty(), pod.is_none() && !silent.is_empty()) {
        (false, _) => format!("{setters} must not set securityContext.runAsNonRoot=false"),
        (true, true) => format!("pod or {} must set securityContext.runAsNonRoot=true", plural("container", &silent)),
        (true, false) => String::new(),
    };
    violation("runAsNonRoot != true", told)
}

fn run_as_user(spec: &Value) -> Option<Violation> {
    let is_root = |value: &Value| value["securityContext"]["runAsUser"].as_i64() == Some(0);
    let setters = setters(is_root(spec), &named(spec, is_root));
    let told = || format!("{setters} must not set runAsUser=0");
    (!setters.is_empty()).then(told).and_then(|detail| violation("runAsUser=0", detail))
}

fn seccomp(spec: &Value) -> Option<Violation> {
    let kind = |value: &Value| value["securityContext"]["seccompProfile"]["type"].as_str().map(str::to_owned);
    let is_bad = |kind: &Option<String>| kind.as_deref().is_some_and(|k| k != "RuntimeDefault" && k != "Localhost");
    let pod = kind(spec);
    let explicit = named(spec, |c| is_bad(&kind(c)));
    let silent = named(spec, |c| kind(c).is_none());
    let setters = setters(is_bad(&pod), &explicit);
    let mut bad = Vec::new();
    if !setters.is_empty() {
        let mut values: Vec<String> = std::iter::once(kind(spec)).chain(containers(spec).map(kind)).filter(is_bad).flatten().collect();
        values.sort();
        values.dedup();
        bad.push(format!(
            "{setters} must not set securityContext.seccompProfile.type to {}",
            quoted(&values.iter().map(String::as_str).collect::<Vec<_>>())
        ));
    }
    if pod.is_none() && !silent.is_empty() {
        bad.push(format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            plural("container", &silent)
        ));
    }
    violation("seccompProfile", bad.join("; "))
}
