//! Containers: names and images, ports, environment, mounts, probes, resources and their security context.

use serde_json::Value;

use super::field::{self, Errors, Path, entries, has, invalid, items, non_negative, number, object, one_of, text};
use super::names;
use crate::schema::quantity::Quantity;
use crate::status::FieldError;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const NAMED_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// What kind of container it is, since they may not all have the same.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// One of `containers`.
    Main,
    /// One of `initContainers`.
    Init,
    /// One of `ephemeralContainers`.
    Ephemeral,
}

/// A list of containers. `taken` are names that other lists have.
pub fn containers(spec: &Value, list: &Path<'_>, field: &str, role: Role, taken: &mut Vec<String>, errors: &mut Errors) {
    let list = list.field(field);
    let containers = items(spec, field);
    if containers.is_empty() && role == Role::Main {
        errors.push(FieldError::required(list, ""));
        return;
    }
    for (i, container) in containers.iter().enumerate() {
        let path = list.index(i);
        common(spec, container, &path, errors);
        let name = text(container, "name");
        if !name.is_empty() {
            if taken.iter().any(|t| t == name) {
                errors.push(FieldError::duplicate(path.field("name"), &name.into()));
            } else {
                taken.push(name.to_owned());
            }
        }
        match role {
            Role::Main => {
                lifecycle(container, &path, errors);
                probes(container, &path, errors);
            }
            Role::Init => init(container, &path, errors),
            Role::Ephemeral => {
                for forbidden in ["ports", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                    if has(container, forbidden) {
                        errors.push(FieldError::forbidden(path.field(forbidden), "cannot be set for an Ephemeral Container"));
                    }
                }
            }
        }
    }
    if role == Role::Main {
        host_ports(containers, &list, errors);
    }
}

fn init(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    match text(container, "restartPolicy") {
        "Always" => {
            lifecycle(container, path, errors);
            probes(container, path, errors);
        }
        policy => {
            if !policy.is_empty() && items(container, "restartPolicyRules").is_empty() && !matches!(policy, "Never" | "OnFailure") {
                let supported = ["Always", "Never", "OnFailure"];
                errors.push(FieldError::not_supported(path.field("restartPolicy"), &policy.into(), &supported));
            }
            for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if has(container, name) {
                    errors.push(FieldError::forbidden(path.field(name), "may not be set for init containers without restartPolicy=Always"));
                }
            }
        }
    }
}

fn common(spec: &Value, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(container, "name");
    if name.is_empty() {
        errors.push(FieldError::required(path.field("name"), ""));
    } else {
        errors.extend(names::label(name).into_iter().map(|why| invalid(&path.field("name"), name, why)));
    }
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(path.field("image"), ""));
    }
    one_of(errors, container, path, "terminationMessagePolicy", false, &["FallbackToLogsOnError", "File"]);
    ports(container, path, errors);
    environment(container, path, errors);
    mounts(spec, container, path, errors);
    one_of(errors, container, path, "imagePullPolicy", false, &["Always", "IfNotPresent", "Never"]);
    if let Some(resources) = object(container, "resources") {
        self::resources(resources, &path.field("resources"), errors);
    }
    if let Some(context) = object(container, "securityContext") {
        security_context(context, &path.field("securityContext"), errors);
    }
}

fn ports(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("ports");
    let ports = items(container, "ports");
    for (i, port) in ports.iter().enumerate() {
        let path = list.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            let wrong = names::port_name(name);
            if wrong.is_empty() && ports[..i].iter().any(|p| text(p, "name") == name) {
                errors.push(FieldError::duplicate(path.field("name"), &name.into()));
            }
            errors.extend(wrong.into_iter().map(|why| invalid(&path.field("name"), name, why)));
        }
        match number(port, "containerPort").unwrap_or(0) {
            0 => errors.push(FieldError::required(path.field("containerPort"), "")),
            number => field::port(errors, number, &path.field("containerPort")),
        }
        if let Some(number) = number(port, "hostPort").filter(|p| *p != 0) {
            field::port(errors, number, &path.field("hostPort"));
        }
        one_of(errors, port, &path, "protocol", false, &PROTOCOLS);
    }
}

/// No two containers can have the same port of the node.
fn host_ports(containers: &[Value], list: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<String> = Vec::new();
    for (i, container) in containers.iter().enumerate() {
        let path = list.index(i);
        let path = path.field("ports");
        for (j, port) in items(container, "ports").iter().enumerate() {
            let Some(number) = number(port, "hostPort").filter(|p| *p != 0) else { continue };
            let key = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
            if seen.contains(&key) {
                errors.push(FieldError::duplicate(path.index(j).field("hostPort"), &key.clone().into()));
            }
            seen.push(key);
        }
    }
}

fn environment(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("env");
    for (i, variable) in items(container, "env").iter().enumerate() {
        let path = list.index(i);
        let name = text(variable, "name");
        if name.is_empty() {
            errors.push(FieldError::required(path.field("name"), ""));
        } else {
            errors.extend(names::environment_variable(name).into_iter().map(|why| invalid(&path.field("name"), name, why)));
        }
        let Some(from) = object(variable, "valueFrom") else { continue };
        let path = path.field("valueFrom");
        const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
        match SOURCES.iter().filter(|s| has(from, s)).count() {
            0 => {
                let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
                errors.push(invalid(&path, "", why));
            }
            1 => {}
            _ => errors.push(invalid(&path, "", "may not have more than one field specified at a time")),
        }
        if !text(variable, "value").is_empty() {
            errors.push(invalid(&path, "", "may not be specified when `value` is not empty"));
        }
        for source in ["configMapKeyRef", "secretKeyRef"] {
            if let Some(reference) = object(from, source) {
                key_reference(reference, &path.field(source), errors);
            }
        }
        if let Some(reference) = object(from, "fieldRef")
            && text(reference, "fieldPath").is_empty()
        {
            errors.push(FieldError::required(path.field("fieldRef").field("fieldPath"), ""));
        }
        if let Some(reference) = object(from, "resourceFieldRef")
            && text(reference, "resource").is_empty()
        {
            errors.push(FieldError::required(path.field("resourceFieldRef").field("resource"), ""));
        }
    }
    let list = path.field("envFrom");
    for (i, from) in items(container, "envFrom").iter().enumerate() {
        let path = list.index(i);
        let prefix = text(from, "prefix");
        if !prefix.is_empty() {
            errors.extend(names::environment_variable(prefix).into_iter().map(|why| invalid(&path.field("prefix"), prefix, why)));
        }
        let sources = ["configMapRef", "secretRef"];
        for source in sources {
            if let Some(reference) = object(from, source)
                && text(reference, "name").is_empty()
            {
                errors.push(FieldError::required(path.field(source).field("name"), ""));
            }
        }
        match sources.iter().filter(|s| has(from, s)).count() {
            0 => errors.push(invalid(&path, "", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => errors.push(invalid(&path, "", "may not have more than one field specified at a time")),
        }
    }
}

fn key_reference(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    if text(reference, "name").is_empty() {
        errors.push(FieldError::required(path.field("name"), ""));
    }
    let key = text(reference, "key");
    if key.is_empty() {
        errors.push(FieldError::required(path.field("key"), ""));
    } else {
        errors.extend(names::config_key(key).into_iter().map(|why| invalid(&path.field("key"), key, why)));
    }
}

fn mounts(spec: &Value, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("volumeMounts");
    let mounts = items(container, "volumeMounts");
    let known = |name: &str| items(spec, "volumes").iter().any(|v| text(v, "name") == name);
    for (i, mount) in mounts.iter().enumerate() {
        let path = list.index(i);
        let name = text(mount, "name");
        if name.is_empty() {
            errors.push(FieldError::required(path.field("name"), ""));
        } else if !known(name) {
            errors.push(FieldError::not_found(path.field("name"), &name.into()));
        }
        let at = text(mount, "mountPath");
        if at.is_empty() {
            errors.push(FieldError::required(path.field("mountPath"), ""));
        } else if mounts[..i].iter().any(|m| text(m, "mountPath") == at) {
            errors.push(invalid(&path.field("mountPath"), at, "must be unique"));
        }
        for name in ["subPath", "subPathExpr"] {
            let sub = text(mount, name);
            if sub.starts_with('/') {
                errors.push(invalid(&path.field(name), sub, "must be a relative path"));
            }
            if sub.split('/').any(|part| part == "..") {
                errors.push(invalid(&path.field(name), sub, "must not contain '..'"));
            }
        }
        if !text(mount, "subPath").is_empty() && !text(mount, "subPathExpr").is_empty() {
            let expression = text(mount, "subPathExpr");
            errors.push(invalid(&path.field("subPathExpr"), expression, "subPathExpr and subPath are mutually exclusive"));
        }
        one_of(errors, mount, &path, "mountPropagation", false, &["Bidirectional", "HostToContainer", "None"]);
    }
    let list = path.field("volumeDevices");
    for (i, device) in items(container, "volumeDevices").iter().enumerate() {
        let path = list.index(i);
        let name = text(device, "name");
        if name.is_empty() {
            errors.push(FieldError::required(path.field("name"), ""));
        } else if !known(name) {
            errors.push(FieldError::not_found(path.field("name"), &name.into()));
        }
        if text(device, "devicePath").is_empty() {
            errors.push(FieldError::required(path.field("devicePath"), ""));
        }
    }
}

fn lifecycle(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(lifecycle) = object(container, "lifecycle") else { return };
    let path = path.field("lifecycle");
    for name in ["postStart", "preStop"] {
        if let Some(handler) = object(lifecycle, name) {
            self::handler(handler, &path.field(name), &["exec", "httpGet", "tcpSocket", "sleep"], errors);
        }
    }
}

fn probes(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = object(container, name) else { continue };
        let path = path.field(name);
        handler(probe, &path, &["exec", "httpGet", "tcpSocket", "grpc"], errors);
        for number in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
            non_negative(errors, probe, &path, number);
        }
        if let Some(seconds) = number(probe, "terminationGracePeriodSeconds").filter(|s| *s <= 0) {
            errors.push(FieldError::invalid(path.field("terminationGracePeriodSeconds"), &seconds.into(), "must be greater than 0"));
        }
        if name != "readinessProbe"
            && let Some(threshold) = number(probe, "successThreshold").filter(|t| *t > 1)
        {
            errors.push(FieldError::invalid(path.field("successThreshold"), &threshold.into(), "must be 1"));
        }
    }
}

/// Exactly one way to do something to a container.
fn handler(handler: &Value, path: &Path<'_>, ways: &[&str], errors: &mut Errors) {
    let mut chosen = 0;
    for way in ways.iter().filter(|way| has(handler, way)) {
        chosen += 1;
        let at = path.field(way);
        if chosen > 1 {
            errors.push(FieldError::forbidden(at, "may not specify more than 1 handler type"));
            continue;
        }
        let action = &handler[*way];
        match *way {
            "exec" if items(action, "command").is_empty() => errors.push(FieldError::required(at.field("command"), "")),
            "httpGet" => {
                if text(action, "path").is_empty() {
                    errors.push(FieldError::required(at.field("path"), ""));
                }
                port_or_name(&action["port"], &at.field("port"), errors);
                one_of(errors, action, &at, "scheme", false, &["HTTP", "HTTPS"]);
            }
            "tcpSocket" => port_or_name(&action["port"], &at.field("port"), errors),
            "grpc" => field::port(errors, number(action, "port").unwrap_or(0), &at.field("port")),
            _ => {}
        }
    }
    if chosen == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

/// A port by its number or its name.
pub fn port_or_name(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    match port {
        Value::String(name) => errors.extend(names::port_name(name).into_iter().map(|why| invalid(path, name, why))),
        _ => field::port(errors, port.as_i64().unwrap_or(0), path),
    }
}

/// Limits and requests.
pub fn resources(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let limits = path.field("limits");
    for (name, amount) in entries(resources, "limits") {
        resource(name, amount, &limits.key(name), errors);
    }
    let requests = path.field("requests");
    for (name, amount) in entries(resources, "requests") {
        resource(name, amount, &requests.key(name), errors);
        let Some(limit) = resources["limits"].get(name) else {
            if name.contains('/') || name.starts_with("hugepages-") {
                errors.push(FieldError::required(limits, "Limit must be set for non overcommitable resources"));
            }
            continue;
        };
        let (Some(request), Some(most)) = (quantity(amount), quantity(limit)) else { continue };
        if (name.contains('/') || name.starts_with("hugepages-")) && request.nanos() != most.nanos() {
            let why = format!("must be equal to {name} limit of {most}");
            errors.push(invalid(&requests, &request.to_string(), why));
        } else if request > most {
            errors.push(invalid(&requests, &request.to_string(), format!("must be less than or equal to {name} limit of {most}")));
        }
    }
}

fn resource(name: &str, amount: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !name.contains('/') && !NAMED_RESOURCES.contains(&name) && !name.starts_with("hugepages-") {
        let wrong = names::qualified(name);
        let right = wrong.is_empty();
        errors.extend(wrong.into_iter().map(|why| invalid(path, name, why)));
        if right {
            errors.push(invalid(path, name, "must be a standard resource for containers"));
        }
    }
    non_negative_quantity(amount, path, errors);
    if name.contains('/')
        && let Some(amount) = quantity(amount).filter(|q| q.nanos() % 1_000_000_000 != 0)
    {
        errors.push(invalid(path, &amount.to_string(), "must be an integer"));
    }
}

/// The amount that a field holds.
pub fn quantity(amount: &Value) -> Option<Quantity> {
    match amount {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// An amount that is not below zero.
pub fn non_negative_quantity(amount: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(amount) = quantity(amount).filter(|q| q.nanos() < 0) {
        errors.push(invalid(path, &amount.to_string(), "must be greater than or equal to 0"));
    }
}

fn security_context(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["runAsUser", "runAsGroup"] {
        user(context, path, name, errors);
    }
    one_of(errors, context, path, "procMount", false, &["Default", "Unmasked"]);
    if context["allowPrivilegeEscalation"] == false {
        if context["privileged"] == true {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(FieldError::invalid(path, context, why));
        }
        if items(&context["capabilities"], "add").iter().any(|c| matches!(c.as_str(), Some("CAP_SYS_ADMIN"))) {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(FieldError::invalid(path, context, why));
        }
    }
    seccomp(context, path, errors);
}

/// A user's or group's number.
pub fn user(context: &Value, path: &Path<'_>, name: &str, errors: &mut Errors) {
    if let Some(id) = number(context, name).filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        errors.push(FieldError::invalid(path.field(name), &id.into(), "must be between 0 and 2147483647, inclusive"));
    }
}

/// A seccomp profile.
pub fn seccomp(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(profile) = object(context, "seccompProfile") else { return };
    let path = path.field("seccompProfile");
    one_of(errors, profile, &path, "type", true, &["Localhost", "RuntimeDefault", "Unconfined"]);
    let local = text(profile, "type") == "Localhost";
    if local && text(profile, "localhostProfile").is_empty() {
        errors.push(FieldError::required(path.field("localhostProfile"), "must be set when seccomp type is Localhost"));
    } else if !local && has(profile, "localhostProfile") {
        let value = &profile["localhostProfile"];
        errors.push(FieldError::invalid(path.field("localhostProfile"), value, "can only be set when seccomp type is Localhost"));
    }
}
