//! The baseline standard: nothing that reaches into the host. In the order in which messages tell the checks.

use serde_json::Value;

use super::Level;
use super::violation::{Violation, named, plural, quoted, setters, violation};
use crate::admission::plugins::pod::containers;

const CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Sysctls and the minor version that allows them.
const SYSCTLS: &[(&str, u32)] = &[
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
    ("net.ipv4.tcp_slow_start_after_idle", 37),
    ("net.ipv4.tcp_notsent_lowat", 37),
];

/// Everything that baseline does not allow. With `overridden`, without the checks that restricted has a stricter form of in that version.
pub fn check(level: &Level, metadata: &Value, spec: &Value, overridden: bool) -> Vec<Violation> {
    let is_own = |since: u32| !(overridden && level.includes(since));
    let all = [
        app_armor(metadata, spec),
        is_own(22).then(|| capabilities(spec)).flatten(),
        host_namespaces(spec),
        is_own(0).then(|| host_path_volumes(spec)).flatten(),
        host_ports(spec),
        level.includes(34).then(|| host_probes(spec)).flatten(),
        privileged(spec),
        (is_own(35) && !level.relaxes(spec)).then(|| proc_mount(spec)).flatten(),
        se_linux(level, spec),
        match level.includes(19) {
            true => is_own(19).then(|| seccomp(spec)).flatten(),
            false => seccomp_annotations(metadata, spec),
        },
        sysctls(level, spec),
        host_process(spec),
    ];
    all.into_iter().flatten().collect()
}

fn app_armor(metadata: &Value, spec: &Value) -> Option<Violation> {
    let is_forbidden = |value: &Value| value["securityContext"]["appArmorProfile"]["type"] == "Unconfined";
    let names = named(spec, is_forbidden);
    let set = setters(is_forbidden(spec), &names);
    let mut values: Vec<String> = if set.is_empty() { Vec::new() } else { vec!["Unconfined".into()] };
    let annotations = metadata["annotations"].as_object().into_iter().flatten();
    let mut forbidden: Vec<String> = annotations
        .filter(|(key, _)| key.starts_with("container.apparmor.security.beta.kubernetes.io/"))
        .filter(|(_, value)| value.as_str().is_some_and(|v| !v.is_empty() && v != "runtime/default" && !v.starts_with("localhost/")))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let mut setters: Vec<&str> = Some(set.as_str()).filter(|set| !set.is_empty()).into_iter().collect();
    if !forbidden.is_empty() {
        forbidden.sort();
        setters.push(if forbidden.len() == 1 { "annotation" } else { "annotations" });
        values.append(&mut forbidden);
    }
    if setters.is_empty() {
        return None;
    }
    let reason = if values.len() == 1 { "forbidden AppArmor profile" } else { "forbidden AppArmor profiles" };
    // The values stand in quotes as they are, even where they contain some.
    let values: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
    violation(reason, format!("{} must not set AppArmor profile type to {}", setters.join(" and "), values.join(", ")))
}

/// Before 1.19 the profile was an annotation.
fn seccomp_annotations(metadata: &Value, spec: &Value) -> Option<Violation> {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    let keys = std::iter::once(POD.to_owned()).chain(
        containers(spec).map(|c| format!("container.seccomp.security.alpha.kubernetes.io/{}", c["name"].as_str().unwrap_or_default())),
    );
    let is_allowed = |value: &str| matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
    let told = |key: String| {
        let value = metadata["annotations"].get(&key)?.as_str().filter(|value| !is_allowed(value))?;
        Some(format!("{key}={value:?}"))
    };
    let mut forbidden: Vec<String> = keys.filter_map(told).collect();
    forbidden.sort();
    forbidden.dedup();
    let word = if forbidden.len() == 1 { "annotation" } else { "annotations" };
    (!forbidden.is_empty()).then(|| format!("forbidden {word} {}", forbidden.join(", "))).and_then(|d| violation("seccompProfile", d))
}

/// Capabilities that are added and not among the allowed ones.
pub fn added<'a>(container: &'a Value, allowed: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let added = container["securityContext"]["capabilities"]["add"].as_array().into_iter().flatten().filter_map(Value::as_str);
    added.filter(move |name| !allowed.contains(name))
}

fn capabilities(spec: &Value) -> Option<Violation> {
    let names = named(spec, |c| added(c, CAPABILITIES).next().is_some());
    let mut forbidden: Vec<&str> = containers(spec).flat_map(|c| added(c, CAPABILITIES)).collect();
    forbidden.sort_unstable();
    let told = || format!("{} must not include {} in securityContext.capabilities.add", plural("container", &names), quoted(&forbidden));
    (!names.is_empty()).then(told).and_then(|detail| violation("non-default capabilities", detail))
}

fn host_namespaces(spec: &Value) -> Option<Violation> {
    let set = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| spec[field] == true);
    violation("host namespaces", set.map(|field| format!("{field}=true")).collect::<Vec<_>>().join(", "))
}

fn host_path_volumes(spec: &Value) -> Option<Violation> {
    let volumes = spec["volumes"].as_array().into_iter().flatten().filter(|v| !v["hostPath"].is_null());
    let names: Vec<&str> = volumes.map(|v| v["name"].as_str().unwrap_or_default()).collect();
    (!names.is_empty()).then(|| plural("volume", &names)).and_then(|detail| violation("hostPath volumes", detail))
}

fn host_ports(spec: &Value) -> Option<Violation> {
    let ports = |c: &Value| -> Vec<i64> {
        c["ports"].as_array().into_iter().flatten().filter_map(|p| p["hostPort"].as_i64()).filter(|port| *port != 0).collect()
    };
    let names = named(spec, |c| !ports(c).is_empty());
    let mut all: Vec<i64> = containers(spec).flat_map(ports).collect();
    all.sort_unstable();
    all.dedup();
    let (verb, word) = (if names.len() == 1 { "uses" } else { "use" }, if all.len() == 1 { "hostPort" } else { "hostPorts" });
    let shown: Vec<String> = all.iter().map(ToString::to_string).collect();
    let told = || format!("{} {verb} {word} {}", plural("container", &names), shown.join(", "));
    (!names.is_empty()).then(told).and_then(|detail| violation("hostPort", detail))
}

fn host_probes(spec: &Value) -> Option<Violation> {
    fn hosts(container: &Value) -> Vec<&str> {
        let handlers = ["livenessProbe", "readinessProbe", "startupProbe"].into_iter().map(|probe| &container[probe]);
        let hooks = ["postStart", "preStop"].into_iter().map(|hook| &container["lifecycle"][hook]);
        let all = handlers.chain(hooks).flat_map(|h| [h["httpGet"]["host"].as_str(), h["tcpSocket"]["host"].as_str()]);
        all.flatten().filter(|host| !host.is_empty()).collect()
    }
    let names = named(spec, |c| !hosts(c).is_empty());
    let mut all: Vec<&str> = containers(spec).flat_map(hosts).collect();
    all.sort_unstable();
    all.dedup();
    let (verb, word) = (if names.len() == 1 { "uses" } else { "use" }, if all.len() == 1 { "host" } else { "hosts" });
    let told = || format!("{} {verb} probe or lifecycle {word} {}", plural("container", &names), quoted(&all));
    (!names.is_empty()).then(told).and_then(|detail| violation("probe or lifecycle host", detail))
}

fn privileged(spec: &Value) -> Option<Violation> {
    let names = named(spec, |c| c["securityContext"]["privileged"] == true);
    let told = || format!("{} must not set securityContext.privileged=true", plural("container", &names));
    (!names.is_empty()).then(told).and_then(|detail| violation("privileged", detail))
}

/// What is mounted over `/proc`. Restricted has it for every Pod, baseline not for one with users of its own.
pub fn proc_mount(spec: &Value) -> Option<Violation> {
    fn value(container: &Value) -> Option<&str> {
        container["securityContext"]["procMount"].as_str().filter(|mount| *mount != "Default")
    }
    let names = named(spec, |c| value(c).is_some());
    let mut values: Vec<&str> = containers(spec).filter_map(value).collect();
    values.sort_unstable();
    let told = || format!("{} must not set securityContext.procMount to {}", plural("container", &names), quoted(&values));
    (!names.is_empty()).then(told).and_then(|detail| violation("procMount", detail))
}

fn se_linux(level: &Level, spec: &Value) -> Option<Violation> {
    let allowed = |kind: &str| {
        matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t") || (kind == "container_engine_t" && level.includes(31))
    };
    let options = |value: &Value| value["securityContext"]["seLinuxOptions"].clone();
    let text = |options: &Value, field: &str| options[field].as_str().unwrap_or_default().to_owned();
    let is_bad =
        |options: &Value| !allowed(&text(options, "type")) || !text(options, "user").is_empty() || !text(options, "role").is_empty();
    let names = named(spec, |c| is_bad(&options(c)));
    let setters = setters(is_bad(&options(spec)), &names);
    if setters.is_empty() {
        return None;
    }
    let all: Vec<Value> = std::iter::once(options(spec)).chain(containers(spec).map(options)).collect();
    let mut types: Vec<String> = all.iter().map(|o| text(o, "type")).filter(|t| !allowed(t)).collect();
    types.sort();
    types.dedup();
    let mut parts = Vec::new();
    if !types.is_empty() {
        let word = if types.len() == 1 { "type" } else { "types" };
        parts.push(format!("{word} {}", quoted(&types.iter().map(String::as_str).collect::<Vec<_>>())));
    }
    for field in ["user", "role"] {
        if all.iter().any(|o| !text(o, field).is_empty()) {
            parts.push(format!("{field} may not be set"));
        }
    }
    violation("seLinuxOptions", format!("{setters} set forbidden securityContext.seLinuxOptions: {}", parts.join("; ")))
}

fn seccomp(spec: &Value) -> Option<Violation> {
    let is_bad = |value: &Value| value["securityContext"]["seccompProfile"]["type"] == "Unconfined";
    let setters = setters(is_bad(spec), &named(spec, is_bad));
    let told = || format!("{setters} must not set securityContext.seccompProfile.type to \"Unconfined\"");
    (!setters.is_empty()).then(told).and_then(|detail| violation("seccompProfile", detail))
}

fn sysctls(level: &Level, spec: &Value) -> Option<Violation> {
    let allowed = |name: &str| SYSCTLS.iter().any(|(known, since)| *known == name && level.includes(*since));
    let set = spec["securityContext"]["sysctls"].as_array().into_iter().flatten().filter_map(|s| s["name"].as_str());
    violation("forbidden sysctls", set.filter(|name| !allowed(name)).collect::<Vec<_>>().join(", "))
}

fn host_process(spec: &Value) -> Option<Violation> {
    let is_bad = |value: &Value| value["securityContext"]["windowsOptions"]["hostProcess"] == true;
    let setters = setters(is_bad(spec), &named(spec, is_bad));
    let told = || format!("{setters} must not set securityContext.windowsOptions.hostProcess=true");
    (!setters.is_empty()).then(told).and_then(|detail| violation("hostProcess", detail))
}
