//! Security contexts of Pods and containers, what belongs to which operating system, and the annotations that stood for some
//! of it before there were fields.

use serde_json::Value;

use super::field::{self, Errors, Path, between, entries, flag, has, invalid, items, object, required, text, word, wrong};
use super::volume::local_path;
use super::{container, names};
use crate::status::FieldError;

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// What only Linux knows, of a Pod's context and of a container's.
const LINUX_POD: [&str; 11] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
const LINUX_CONTAINER: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];
const NOT_WINDOWS: &str = "cannot be set for a windows pod";

/// A user's or group's number.
fn id(context: &Value, path: &Path<'_>, name: &str, errors: &mut Errors) {
    between(errors, context, path, name, 0, i64::from(i32::MAX));
}

/// The context of a container.
pub fn container(spec: &Value, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(context) = object(container, "securityContext") else { return };
    let path = &path.field("securityContext");
    for name in ["runAsUser", "runAsGroup"] {
        id(context, path, name, errors);
    }
    word(errors, context, path, "procMount", &["Default", "Unmasked"]);
    if text(context, "procMount") == "Unmasked" && spec.get("hostUsers") != Some(&Value::Bool(false)) {
        errors.push(invalid(&path.field("procMount"), "Unmasked", "`hostUsers` must be false to use `Unmasked`"));
    }
    seccomp(context, path, errors);
    if context["allowPrivilegeEscalation"] == false {
        if flag(context, "privileged") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(FieldError { value: shown(context), ..invalid(path, "", why) });
        }
        for _ in items(&context["capabilities"], "add").iter().filter(|c| *c == "CAP_SYS_ADMIN") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(FieldError { value: shown(context), ..invalid(path, "", why) });
        }
    }
    windows_options(context, path, errors);
    app_armor(context, path, errors);
}

/// A context as a real server shows it: its own type, all fields of it.
fn shown(context: &Value) -> String {
    use super::internal::{Field, show};
    const CAPABILITIES: &[Field] = &[Field::plain("Add", "add"), Field::plain("Drop", "drop")];
    const SE_LINUX: &[Field] =
        &[Field::text("User", "user"), Field::text("Role", "role"), Field::text("Type", "type"), Field::text("Level", "level")];
    const WINDOWS: &[Field] = &[
        Field::plain("GMSACredentialSpecName", "gmsaCredentialSpecName"),
        Field::plain("GMSACredentialSpec", "gmsaCredentialSpec"),
        Field::plain("RunAsUserName", "runAsUserName"),
        Field::plain("HostProcess", "hostProcess"),
    ];
    const PROFILE: &[Field] = &[Field::text("Type", "type"), Field::plain("LocalhostProfile", "localhostProfile")];
    const CONTEXT: &[Field] = &[
        Field::part("Capabilities", "capabilities", CAPABILITIES),
        Field::plain("Privileged", "privileged"),
        Field::part("SELinuxOptions", "seLinuxOptions", SE_LINUX),
        Field::part("WindowsOptions", "windowsOptions", WINDOWS),
        Field::plain("RunAsUser", "runAsUser"),
        Field::plain("RunAsGroup", "runAsGroup"),
        Field::plain("RunAsNonRoot", "runAsNonRoot"),
        Field::plain("ReadOnlyRootFilesystem", "readOnlyRootFilesystem"),
        Field::plain("AllowPrivilegeEscalation", "allowPrivilegeEscalation"),
        Field::plain("ProcMount", "procMount"),
        Field::part("SeccompProfile", "seccompProfile", PROFILE),
        Field::part("AppArmorProfile", "appArmorProfile", PROFILE),
    ];
    show(context, CONTEXT)
}

fn seccomp(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(profile) = object(context, "seccompProfile") else { return };
    let path = path.field("seccompProfile");
    match text(profile, "type") {
        "" => errors.push(FieldError::required(path.field("type"), "type is required when seccompProfile is set")),
        _ => word(errors, profile, &path, "type", &PROFILES),
    }
    let at = path.field("localhostProfile");
    match (text(profile, "type") == "Localhost", has(profile, "localhostProfile")) {
        (true, false) => errors.push(FieldError::required(at, "must be set when seccomp type is Localhost")),
        (true, true) => local_path(text(profile, "localhostProfile"), &at, errors),
        (false, true) => {
            let (kind, local) = (Value::from(text(profile, "type")), &profile["localhostProfile"]);
            let value = format!("{{\"Type\":{kind},\"LocalhostProfile\":{local}}}");
            errors.push(FieldError { value, ..invalid(&at, "", "can only be set when seccomp type is Localhost") });
        }
        (false, false) => {}
    }
}

fn app_armor(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(profile) = object(context, "appArmorProfile") else { return };
    let path = path.field("appArmorProfile");
    let at = path.field("localhostProfile");
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    match text(profile, "type") {
        "Localhost" if !has(profile, "localhostProfile") => errors.push(FieldError::required(at, NEEDED)),
        "Localhost" => {
            let name = text(profile, "localhostProfile");
            if name.trim() != name {
                errors.push(invalid(&at, name, "must not be padded with whitespace"));
            } else if name.is_empty() {
                errors.push(FieldError::required(at, NEEDED));
            }
            if name.len() > 4095 {
                errors.push(FieldError::too_long(at, 4095));
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if has(profile, "localhostProfile") {
                errors.push(invalid(&at, text(profile, "localhostProfile"), "can only be set when AppArmor type is Localhost"));
            }
        }
        "" => errors.push(FieldError::required(path.field("type"), "type is required when appArmorProfile is set")),
        _ => word(errors, profile, &path, "type", &PROFILES),
    }
}

fn windows_options(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(options) = object(context, "windowsOptions") else { return };
    let path = path.field("windowsOptions");
    if has(options, "gmsaCredentialSpecName") {
        let name = text(options, "gmsaCredentialSpecName");
        wrong(errors, &path.field("gmsaCredentialSpecName"), name, names::subdomain(name));
    }
    if has(options, "gmsaCredentialSpec") {
        let (credential, at) = (text(options, "gmsaCredentialSpec"), path.field("gmsaCredentialSpec"));
        if credential.is_empty() {
            errors.push(invalid(&at, credential, "gmsaCredentialSpec cannot be an empty string"));
        } else if credential.len() > 64 * 1024 {
            errors.push(invalid(&at, credential, "gmsaCredentialSpec size must be under 64 KiB"));
        }
    }
    if has(options, "runAsUserName") {
        let name = text(options, "runAsUserName");
        wrong(errors, &path.field("runAsUserName"), name, windows_user(name));
    }
}

fn windows_user(name: &str) -> names::Wrong {
    let mut found = Vec::new();
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string".into()];
    }
    if name.contains(|c: char| c.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters".into()];
    }
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return vec!["runAsUserName cannot contain more than one backslash".into()],
    };
    let mut say = |why: &str| found.push(why.to_owned());
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            say("runAsUserName's Domain length must be under 256 characters");
        }
        let forbidden = |c: char| matches!(c, '\\' | '/' | ':' | '*' | '?' | '"' | '<' | '>' | '|');
        let count = domain.chars().count();
        let net_bios = (1..=15).contains(&count) && !domain.starts_with('.') && !domain.contains(forbidden);
        let label = |part: &str| part.len() <= 63 && names::label(&part.to_ascii_lowercase()).is_empty();
        if !net_bios && !domain.split('.').all(label) {
            say("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        say("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        say("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.bytes().all(|b| matches!(b, b'.' | b' ')) {
        say("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(|c: char| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        say("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
    found
}

/// The context of a Pod.
pub fn pod(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(context) = object(spec, "securityContext") else { return };
    let path = path.field("securityContext");
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(context, &path, name, errors);
    }
    let groups = path.field("supplementalGroups");
    for (i, group) in items(context, "supplementalGroups").iter().enumerate() {
        if !group.as_i64().is_some_and(|id| (0..=i64::from(i32::MAX)).contains(&id)) {
            errors.push(FieldError::invalid(groups.index(i), group, "must be between 0 and 2147483647, inclusive"));
        }
    }
    sysctls(spec, context, &path.field("sysctls"), errors);
    word(errors, context, &path, "fsGroupChangePolicy", &["Always", "OnRootMismatch"]);
    seccomp(context, &path, errors);
    windows_options(context, &path, errors);
    app_armor(context, &path, errors);
    word(errors, context, &path, "supplementalGroupsPolicy", &["Merge", "Strict"]);
    word(errors, context, &path, "seLinuxChangePolicy", &["MountOption", "Recursive"]);
}

fn sysctls(spec: &Value, context: &Value, list: &Path<'_>, errors: &mut Errors) {
    let sysctls = items(context, "sysctls");
    for (i, sysctl) in sysctls.iter().enumerate() {
        let (name, path) = (text(sysctl, "name"), list.index(i));
        let path = path.field("name");
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if name.len() > 253 || !is_sysctl(name) {
            let why =
                "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.push(invalid(&path, name, why));
        } else if sysctls[..i].iter().any(|s| text(s, "name") == name) {
            errors.push(FieldError::duplicate(path, &name.into()));
        }
        let plain = name.replace('/', ".");
        let of_ipc = plain.starts_with("fs.mqueue.")
            || ["sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced", "shm", "msgmax", "msgmnb", "msgmni", "msg"]
                .iter()
                .any(|rest| plain.strip_prefix("kernel.") == Some(rest));
        if flag(spec, "hostNetwork") && plain.starts_with("net.") {
            errors.push(invalid(&path, name, "may not be specified when 'hostNetwork' is true"));
        } else if flag(spec, "hostIPC") && of_ipc {
            errors.push(invalid(&path, name, "may not be specified when 'hostIPC' is true"));
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    name.split(['.', '/']).all(|part| {
        let part = part.as_bytes();
        edge(part.first())
            && edge(part.last())
            && part.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
    })
}

/// Containers of Windows that are processes of the host: all of them or none, and on the host's network.
pub fn host_processes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let wish = |holder: &Value| holder["securityContext"]["windowsOptions"]["hostProcess"].as_bool();
    let pod = wish(spec);
    let (mut all, mut chosen) = (0, 0);
    for (list, i, container) in container::all(spec) {
        all += 1;
        let own = wish(container);
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let field = format!("{path}.{list}[{i}].securityContext.windowsOptions.hostProcess");
            let why = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.push(FieldError::invalid(field, &own.into(), why));
        }
        chosen += usize::from(own.or(pod) == Some(true));
    }
    if chosen == 0 {
        return;
    }
    if chosen != all {
        let why = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(invalid(path, "", why));
    }
    if !flag(spec, "hostNetwork") {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(FieldError::invalid(path.field("hostNetwork"), &false.into(), why));
    }
}

/// Users of the host, or of the Pod alone.
pub fn host_users(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if spec.get("hostUsers") != Some(&Value::Bool(false)) {
        return;
    }
    const WHY: &str = "when `hostUsers` is false";
    for (name, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if flag(spec, name) {
            errors.push(FieldError::forbidden(path.field(shown), WHY));
        }
    }
    for (list, i, container) in container::all(spec) {
        if !items(container, "volumeDevices").is_empty() {
            errors.push(FieldError::forbidden(format!("{path}.{list}[{i}].volumeDevices"), WHY));
        }
    }
}

/// What belongs to the operating system that the Pod says.
pub fn operating_system(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(os) = object(spec, "os") else { return };
    let at = path.field("os");
    let context = path.field("securityContext");
    match text(os, "name") {
        "" => required(errors, os, &at, &["name"]),
        "linux" => {
            const WHY: &str = "windows options cannot be set for a linux pod";
            if has(&spec["securityContext"], "windowsOptions") {
                errors.push(FieldError::forbidden(context.field("windowsOptions"), WHY));
            }
            for (list, i, container) in container::all(spec) {
                if has(&container["securityContext"], "windowsOptions") {
                    errors.push(FieldError::forbidden(format!("{path}.{list}[{i}].securityContext.windowsOptions"), WHY));
                }
            }
        }
        "windows" => {
            for name in LINUX_POD.iter().filter(|name| has(&spec["securityContext"], name)) {
                errors.push(FieldError::forbidden(context.field(name), NOT_WINDOWS));
            }
            for name in ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"] {
                let set = if matches!(name, "hostPID" | "hostIPC") { flag(spec, name) } else { has(spec, name) };
                if set {
                    errors.push(FieldError::forbidden(path.field(name), NOT_WINDOWS));
                }
            }
            for (list, i, container) in container::all(spec) {
                for name in LINUX_CONTAINER.iter().filter(|name| has(&container["securityContext"], name)) {
                    errors.push(FieldError::forbidden(format!("{path}.{list}[{i}].securityContext.{name}"), NOT_WINDOWS));
                }
            }
        }
        other => errors.push(FieldError::not_supported(at, &other.into(), &["linux", "windows"])),
    }
}

/// Annotations that stand for profiles.
pub fn annotations(pod: &Value, path: &Path<'_>, errors: &mut Errors) {
    let profile = |key: &str, value: &str, errors: &mut Errors| {
        let at = path.field(key);
        match value.strip_prefix("localhost/") {
            Some(local) => local_path(local, &at, errors),
            None if matches!(value, "runtime/default" | "docker/default" | "unconfined") => {}
            None => errors.push(invalid(&at, value, "must be a valid seccomp profile")),
        }
    };
    let all = || entries(&pod["metadata"], "annotations").map(|(key, value)| (key, value.as_str().unwrap_or_default()));
    for (key, value) in all().filter(|(key, _)| *key == SECCOMP_POD).chain(all().filter(|(key, _)| key.starts_with(SECCOMP_CONTAINER))) {
        profile(key, value, errors);
    }
    for (key, value) in all() {
        let Some(name) = key.strip_prefix(APP_ARMOR) else { continue };
        if !container::all(&pod["spec"]).any(|(_, _, container)| text(container, "name") == name) {
            errors.push(invalid(&path.key(key), name, "container not found"));
        }
        if !matches!(value, "" | "runtime/default" | "unconfined") && !value.starts_with("localhost/") {
            errors.push(invalid(&path.key(key), value, format!("invalid AppArmor profile name: {value:?}")));
        }
    }
}

/// Where annotation and field both say something, they say the same.
pub fn annotations_match(pod: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (spec, annotations) = (&pod["spec"], &pod["metadata"]["annotations"]);
    let mut compare = |field: String, profile: &Value, annotation: &Value, what: &str, also: &str| {
        let Some(annotation) = annotation.as_str() else { return };
        let wrong_type = match text(profile, "type") {
            "Unconfined" => annotation != "unconfined",
            "RuntimeDefault" => annotation != "runtime/default" && annotation != also,
            "Localhost" => !annotation.starts_with("localhost/"),
            _ => return,
        };
        if wrong_type {
            errors.push(FieldError::forbidden(format!("{field}.type"), format!("{what} type in annotation and field must match")));
        } else if text(profile, "type") == "Localhost" && profile["localhostProfile"].as_str() != annotation.strip_prefix("localhost/") {
            let why = format!("{what} profile in annotation and field must match");
            errors.push(FieldError::forbidden(format!("{field}.localhostProfile"), why));
        }
    };
    let own = &spec["securityContext"]["seccompProfile"];
    compare(format!("{path}.securityContext.seccompProfile"), own, &annotations[SECCOMP_POD], "seccomp", "docker/default");
    for (list, i, container) in container::all(spec) {
        let key = format!("{SECCOMP_CONTAINER}{}", text(container, "name"));
        let field = format!("{path}.{list}[{i}].securityContext.seccompProfile");
        compare(field, &container["securityContext"]["seccompProfile"], &annotations[&key], "seccomp", "docker/default");
    }
    if text(&spec["os"], "name") == "windows" {
        return;
    }
    for (list, i, container) in container::all(spec) {
        let own = &container["securityContext"]["appArmorProfile"];
        let profile = if own.is_object() { own } else { &spec["securityContext"]["appArmorProfile"] };
        let key = format!("{APP_ARMOR}{}", text(container, "name"));
        let field = format!("{path}.{list}[{i}].securityContext.appArmorProfile");
        compare(field, profile, &annotations[&key], "apparmor", "");
    }
}

/// Annotations that may not come or go once the Pod is there.
pub fn annotation_updates(new: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MIRROR: &str = "kubernetes.io/config.mirror";
    let (after, before) = (&new["metadata"]["annotations"], &old["metadata"]["annotations"]);
    let mut tell = |key: &str, what: &str| {
        if key.starts_with(APP_ARMOR) {
            errors.push(FieldError::forbidden(path.key(key), format!("may not {what} AppArmor annotations")));
        } else if key == MIRROR {
            errors.push(FieldError::forbidden(path.key(key), format!("may not {what} mirror pod annotation")));
        }
    };
    for (key, value) in field::map(&old["metadata"], "annotations").into_iter().flatten() {
        if after.get(key) != Some(value) {
            tell(key, "remove or update");
        }
    }
    for (key, _) in field::map(&new["metadata"], "annotations").into_iter().flatten() {
        if before.get(key).is_none() {
            tell(key, "add");
        }
    }
}
