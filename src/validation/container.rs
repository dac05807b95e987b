//! The containers of a Pod: names and images, ports, mounts, and how each of the three sorts differs from the others. Their
//! parts are in [`super::environment`], [`super::handler`], [`super::resources`] and [`super::security`].

use serde_json::Value;

use super::field::{self, Errors, Path, flag, has, invalid, items, number, object, one_of, required, required_shape, text, word};
use super::volume::{local_path, no_backsteps};
use super::{environment, handler, names, resources, security};
use crate::status::FieldError;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
/// What an ephemeral container has not, in the order in which a real server knows the fields.
const NOT_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// The Pod around a container: its spec and the volumes that can be mounted.
#[derive(Clone, Copy)]
pub struct Around<'v> {
    /// The Pod's spec.
    pub spec: &'v Value,
    /// The volumes that are right.
    pub volumes: &'v [(&'v str, &'v Value)],
}

/// All containers of all lists, with the list and the place of each, in the order in which they start.
pub fn all(spec: &Value) -> impl Iterator<Item = (&'static str, usize, &Value)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(move |list| items(spec, list).iter().enumerate().map(move |(i, container)| (list, i, container)))
}

/// `containers`.
pub fn containers(around: Around<'_>, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("containers");
    let containers = items(around.spec, "containers");
    if containers.is_empty() {
        errors.push(FieldError::required(list, ""));
        return;
    }
    for (i, container) in containers.iter().enumerate() {
        let path = list.index(i);
        common(around, container, &path, errors);
        let name = text(container, "name");
        if containers[..i].iter().any(|c| text(c, "name") == name) {
            errors.push(FieldError::duplicate(path.field("name"), &name.into()));
        }
        handler::lifecycle(around.spec, container, &path, errors);
        handler::probes(around.spec, container, &path, errors);
        restart_policy(container, &path, errors);
    }
    host_ports(containers, &list, errors);
}

/// `initContainers`.
pub fn init_containers(around: Around<'_>, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("initContainers");
    let containers = items(around.spec, "initContainers");
    for (i, container) in containers.iter().enumerate() {
        let path = list.index(i);
        common(around, container, &path, errors);
        if has(container, "restartPolicy") {
            restart_policy(container, &path, errors);
        } else if !items(container, "restartPolicyRules").is_empty() {
            let why = "must specify restartPolicy when restart rules are used";
            errors.push(FieldError::required(path.field("restartPolicy"), why));
        }
        let name = text(container, "name");
        let same = |c: &Value| !name.is_empty() && text(c, "name") == name;
        if items(around.spec, "containers").iter().any(same) || containers[..i].iter().any(same) {
            errors.push(FieldError::duplicate(path.field("name"), &name.into()));
        }
        // They run one after another, so that each is held to its own ports alone.
        host_ports(std::slice::from_ref(container), &list, errors);
        let is_sidecar = text(container, "restartPolicy") == "Always";
        if is_sidecar {
            handler::lifecycle(around.spec, container, &path, errors);
            handler::probes(around.spec, container, &path, errors);
        } else {
            for name in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if has(container, name) {
                    errors.push(FieldError::forbidden(path.field(name), "may not be set for init containers without restartPolicy=Always"));
                }
            }
            let policies = path.field("resizePolicy");
            for (j, policy) in items(container, "resizePolicy").iter().enumerate() {
                if text(policy, "restartPolicy") == "RestartContainer" {
                    let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                    errors.push(invalid(&policies.index(j).field("restartPolicy"), "RestartContainer", why));
                }
            }
        }
    }
}

/// `ephemeralContainers`.
pub fn ephemeral_containers(around: Around<'_>, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("ephemeralContainers");
    let containers = items(around.spec, "ephemeralContainers");
    let others = || items(around.spec, "containers").iter().chain(items(around.spec, "initContainers"));
    for (i, container) in containers.iter().enumerate() {
        let path = list.index(i);
        common(around, container, &path, errors);
        padded_image(container, &path, errors);
        let (name, target) = (text(container, "name"), text(container, "targetContainerName"));
        if others().chain(&containers[..i]).any(|c| text(c, "name") == name) {
            errors.push(FieldError::duplicate(path.field("name"), &name.into()));
        }
        if !target.is_empty() && !others().any(|c| text(c, "name") == target) {
            errors.push(FieldError::not_found(path.field("targetContainerName"), &target.into()));
        }
        const WHY: &str = "cannot be set for an Ephemeral Container";
        for name in NOT_EPHEMERAL.iter().filter(|name| container.get(**name).is_some_and(|v| !is_unset(v))) {
            errors.push(FieldError::forbidden(path.field(name), WHY));
        }
        let mounts = path.field("volumeMounts");
        for (i, mount) in items(container, "volumeMounts").iter().enumerate() {
            for name in ["subPath", "subPathExpr"].iter().filter(|name| !text(mount, name).is_empty()) {
                errors.push(FieldError::forbidden(mounts.index(i).field(name), WHY));
            }
        }
    }
}

fn is_unset(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        other => other.is_null(),
    }
}

/// The image of a container of a Pod, which in a template may be anything.
pub fn padded_image(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let image = text(container, "image");
    if image.trim() != image {
        errors.push(invalid(&path.field("image"), image, "must not have leading or trailing whitespace"));
    }
}

fn common(around: Around<'_>, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    required_shape(errors, container, path, "name", names::label);
    required(errors, container, path, &["image"]);
    one_of(errors, container, path, "terminationMessagePolicy", true, &["File", "FallbackToLogsOnError"]);
    ports(container, path, errors);
    environment::environment(container, path, errors);
    mounts(around, container, path, errors);
    devices(around, container, path, errors);
    one_of(errors, container, path, "imagePullPolicy", true, &["Always", "IfNotPresent", "Never"]);
    if let Some(amounts) = object(container, "resources") {
        resources::container(around.spec, amounts, &path.field("resources"), errors);
    }
    resize_policy(around.spec, container, &path.field("resizePolicy"), errors);
    security::container(around.spec, container, path, errors);
}

fn ports(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("ports");
    let ports = items(container, "ports");
    for (i, port) in ports.iter().enumerate() {
        let path = list.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            let why = names::port_name(name);
            if why.is_empty() && ports[..i].iter().any(|p| text(p, "name") == name) {
                errors.push(FieldError::duplicate(path.field("name"), &name.into()));
            }
            field::wrong(errors, &path.field("name"), name, why);
        }
        match number(port, "containerPort").unwrap_or(0) {
            0 => errors.push(FieldError::required(path.field("containerPort"), "")),
            number => field::port(errors, number, &path.field("containerPort")),
        }
        if let Some(number) = number(port, "hostPort").filter(|p| *p != 0) {
            field::port(errors, number, &path.field("hostPort"));
        }
        one_of(errors, port, &path, "protocol", true, &PROTOCOLS);
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
                errors.push(FieldError::duplicate(path.index(j).field("hostPort"), &key.into()));
            } else {
                seen.push(key);
            }
        }
    }
}

fn mounts(around: Around<'_>, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("volumeMounts");
    let mounts = items(container, "volumeMounts");
    let devices = items(container, "volumeDevices");
    for (i, mount) in mounts.iter().enumerate() {
        let path = list.index(i);
        let (name, at) = (text(mount, "name"), text(mount, "mountPath"));
        required(errors, mount, &path, &["name"]);
        if !around.volumes.iter().any(|(volume, _)| *volume == name) {
            errors.push(FieldError::not_found(path.field("name"), &name.into()));
        }
        required(errors, mount, &path, &["mountPath"]);
        if mounts[..i].iter().any(|m| text(m, "mountPath") == at) {
            errors.push(invalid(&path.field("mountPath"), at, "must be unique"));
        }
        if devices.iter().any(|d| text(d, "name") == name) {
            errors.push(invalid(&path.field("name"), name, "must not already exist in volumeDevices"));
        }
        if devices.iter().any(|d| text(d, "devicePath") == at) {
            errors.push(invalid(&path.field("mountPath"), at, "must not already exist as a path in volumeDevices"));
        }
        local_path(text(mount, "subPath"), &list.field("subPath"), errors);
        let expression = text(mount, "subPathExpr");
        if !expression.is_empty() {
            if !text(mount, "subPath").is_empty() {
                errors.push(invalid(&path.field("subPathExpr"), expression, "subPathExpr and subPath are mutually exclusive"));
            }
            local_path(expression, &list.field("subPathExpr"), errors);
        }
        word(errors, mount, &list, "mountPropagation", &["Bidirectional", "HostToContainer", "None"]);
        if text(mount, "mountPropagation") == "Bidirectional" && !flag(&container["securityContext"], "privileged") {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            errors.push(FieldError::forbidden(list.field("mountPropagation"), why));
        }
        recursive_read_only(mount, &list, errors);
    }
}

fn recursive_read_only(mount: &Value, list: &Path<'_>, errors: &mut Errors) {
    let at = list.field("recursiveReadOnly");
    match text(mount, "recursiveReadOnly") {
        "Enabled" | "IfPossible" => {
            if !flag(mount, "readOnly") {
                errors.push(FieldError::forbidden(at, "may only be specified when readOnly is true"));
            }
            if !matches!(text(mount, "mountPropagation"), "" | "None") {
                errors.push(FieldError::forbidden(at, "may only be specified when mountPropagation is None or not specified"));
            }
        }
        _ => word(errors, mount, list, "recursiveReadOnly", &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn devices(around: Around<'_>, container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("volumeDevices");
    let devices = items(container, "volumeDevices");
    let mounts = items(container, "volumeMounts");
    for (i, device) in devices.iter().enumerate() {
        let path = list.index(i);
        let (name, at) = (text(device, "name"), text(device, "devicePath"));
        let volume = around.volumes.iter().find(|(volume, _)| *volume == name);
        required(errors, device, &path, &["name"]);
        if !name.is_empty() && devices[..i].iter().any(|d| text(d, "name") == name) {
            errors.push(invalid(&path.field("name"), name, "must be unique"));
        }
        match volume {
            Some((_, volume)) if !has(volume, "persistentVolumeClaim") && !has(volume, "ephemeral") => {
                let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(invalid(&path.field("name"), name, why));
            }
            Some(_) => {}
            None => errors.push(FieldError::not_found(path.field("name"), &name.into())),
        }
        required(errors, device, &path, &["devicePath"]);
        if devices[..i].iter().any(|d| text(d, "devicePath") == at && !at.split('/').any(|p| p == "..")) {
            errors.push(invalid(&path.field("devicePath"), at, "must be unique"));
        }
        let mut steps = Vec::new();
        no_backsteps(at, &path, &mut steps);
        if !steps.is_empty() {
            errors.push(invalid(&path.field("devicePath"), at, "can not contain backsteps ('..')"));
        }
        if mounts.iter().any(|m| text(m, "name") == name) {
            errors.push(invalid(&path.field("name"), name, "must not already exist in volumeMounts"));
        }
        if mounts.iter().any(|m| text(m, "mountPath") == at) {
            errors.push(invalid(&path.field("devicePath"), at, "must not already exist as a path in volumeMounts"));
        }
    }
}

fn resize_policy(spec: &Value, container: &Value, list: &Path<'_>, errors: &mut Errors) {
    let policies = items(container, "resizePolicy");
    for (i, policy) in policies.iter().enumerate() {
        let (resource, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if policies[..i].iter().any(|p| text(p, "resourceName") == resource) {
            errors.push(FieldError::duplicate(list.index(i), &resource.into()));
        }
        for (value, supported) in [(resource, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])] {
            if value.is_empty() {
                errors.push(FieldError::required(list, ""));
            } else if !supported.contains(&value) {
                errors.push(FieldError::not_supported(list, &value.into(), &supported));
            }
        }
        if text(spec, "restartPolicy") == "Never" && restart != "NotRequired" {
            errors.push(invalid(list, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"));
        }
    }
}

/// How a container by itself starts again.
fn restart_policy(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rules = items(container, "restartPolicyRules");
    if has(container, "restartPolicy") {
        word(errors, container, path, "restartPolicy", &POLICIES);
    } else if !rules.is_empty() {
        errors.push(FieldError::required(path.field("restartPolicy"), "must specify restartPolicy when restart rules are used"));
    }
    let list = path.field("restartPolicyRules");
    if rules.len() > 20 {
        errors.push(FieldError::too_many(list, rules.len(), 20));
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = list.index(i);
        let actions = ["Restart", "RestartAllContainers"];
        if !actions.contains(&text(rule, "action")) {
            errors.push(FieldError::not_supported(path.field("action"), &text(rule, "action").into(), &actions));
        }
        let at = path.field("exitCodes");
        let Some(codes) = object(rule, "exitCodes") else {
            errors.push(FieldError::required(at, "must be specified"));
            continue;
        };
        let operators = ["In", "NotIn"];
        if !operators.contains(&text(codes, "operator")) {
            errors.push(FieldError::not_supported(at.field("operator"), &text(codes, "operator").into(), &operators));
        }
        let values = items(codes, "values").len();
        if values > 255 {
            errors.push(FieldError::too_many(at.field("values"), values, 255));
        }
    }
}

/// The claims of devices that containers can refer to.
pub fn resource_claims(spec: &Value, path: &Path<'_>, mirror: bool, errors: &mut Errors) {
    let list = path.field("resourceClaims");
    let claims = items(spec, "resourceClaims");
    for (i, claim) in claims.iter().enumerate() {
        if mirror {
            errors.push(FieldError::forbidden("", "static pods do not support resource claims"));
            continue;
        }
        let path = list.index(i);
        let name = text(claim, "name");
        if name.is_empty() {
            errors.push(FieldError::required(path.field("name"), ""));
        } else if claims[..i].iter().any(|c| text(c, "name") == name) {
            errors.push(FieldError::duplicate(path.field("name"), &name.into()));
        } else {
            field::wrong(errors, &path.field("name"), name, names::label(name));
        }
        let shown = || {
            let given = |name: &str| claim.get(name).filter(|v| v.is_string()).map_or_else(|| "null".to_owned(), Value::to_string);
            let (own, template) = (given("resourceClaimName"), given("resourceClaimTemplateName"));
            format!("{{\"Name\":{},\"ResourceClaimName\":{own},\"ResourceClaimTemplateName\":{template}}}", Value::from(name))
        };
        let why = match (has(claim, "resourceClaimName"), has(claim, "resourceClaimTemplateName")) {
            (true, true) => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            (false, false) => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => "",
        };
        if !why.is_empty() {
            errors.push(FieldError { value: shown(), ..invalid(&path, "", why) });
        }
        for name in ["resourceClaimName", "resourceClaimTemplateName"].iter().filter(|name| has(claim, name)) {
            let value = text(claim, name);
            field::wrong(errors, &path.field(name), value, names::subdomain(value));
        }
    }
}
