//! Classes of storage, the drivers behind them and what they attach where.

use serde_json::Value;

use super::field::{self, Errors, Path, entries, has, invalid, items, map, number, object, required, text, word, wrong};
use super::{names, selector, storage, volume};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");

/// A StorageClass.
pub fn class(class: &Value, errors: &mut Errors) {
    let root = Path::object();
    provisioner(class, "provisioner", errors);
    parameters(class, true, errors);
    field::one_of(errors, class, &root, "reclaimPolicy", false, &["Delete", "Retain"]);
    match has(class, "volumeBindingMode") {
        true => word(errors, class, &root, "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"]),
        false => errors.push(FieldError::required("volumeBindingMode", "")),
    }
    let list = Path::root("allowedTopologies");
    let terms = items(class, "allowedTopologies");
    let sets = |term: &Value| -> Value {
        let mut found = serde_json::Map::new();
        for expression in items(term, "matchLabelExpressions") {
            let mut values = items(expression, "values").to_vec();
            values.sort_by_key(Value::to_string);
            values.dedup();
            found.insert(text(expression, "key").to_owned(), values.into());
        }
        found.into()
    };
    for (i, term) in terms.iter().enumerate() {
        let path = list.index(i);
        selector::topology_term(term, &path, errors);
        let own = sets(term);
        // An empty term equals the empty places that a real server leaves in front.
        let empty = if own.as_object().is_some_and(serde_json::Map::is_empty) { terms.len() } else { 0 };
        let twice = empty + terms[..i].iter().filter(|other| sets(other) == own).count();
        errors.extend((0..twice).map(|_| FieldError::duplicate(path.field("matchLabelExpressions"), &"".into())));
    }
}

fn provisioner(class: &Value, name: &str, errors: &mut Errors) {
    let provisioner = text(class, name).to_lowercase();
    match provisioner.is_empty() {
        true => errors.push(FieldError::required(name, "")),
        false => wrong(errors, &Path::root(name), &provisioner, names::qualified(&provisioner)),
    }
}

fn parameters(class: &Value, may_be_empty: bool, errors: &mut Errors) {
    let path = Path::root("parameters");
    let count = map(class, "parameters").map_or(0, serde_json::Map::len);
    if count > 512 {
        errors.push(FieldError::too_long(path, 512));
        return;
    }
    for (key, _) in entries(class, "parameters").filter(|(key, _)| key.is_empty()) {
        errors.push(invalid(&path, key, "field can not be empty."));
    }
    let size: usize = entries(class, "parameters").map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > 256 * 1024 {
        errors.push(FieldError::too_long(path, 256 * 1024));
    }
    if !may_be_empty && count == 0 {
        errors.push(FieldError::required(path, "must contain at least one key/value pair"));
    }
}

/// A changed StorageClass.
pub fn update_class(new: &Value, old: &Value, errors: &mut Errors) {
    class(new, errors);
    for name in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        let content = |class: &Value| class.get(name).filter(|v| !crate::schema::is_zero(v)).cloned();
        if content(new) != content(old) {
            field::settled(errors, new, old, &Path::object(), name);
        }
    }
}

/// A VolumeAttributesClass.
pub fn attributes_class(class: &Value, errors: &mut Errors) {
    provisioner(class, "driverName", errors);
    parameters(class, false, errors);
}

/// A changed VolumeAttributesClass.
pub fn update_attributes_class(new: &Value, old: &Value, errors: &mut Errors) {
    for name in ["driverName", "parameters"] {
        let content = |class: &Value| class.get(name).filter(|v| !crate::schema::is_zero(v)).cloned();
        if content(new) != content(old) {
            errors.push(FieldError::forbidden(name, format!("updates to {name} are forbidden.")));
        }
    }
    attributes_class(new, errors);
}

/// A CSIDriver.
pub fn driver(driver: &Value, errors: &mut Errors) {
    let spec = &driver["spec"];
    for (name, shown) in
        [("attachRequired", "attachedRequired"), ("podInfoOnMount", "podInfoOnMount"), ("storageCapacity", "storageCapacity")]
    {
        if !has(spec, name) {
            errors.push(FieldError::required(SPEC.field(shown), ""));
        }
    }
    word(errors, spec, &SPEC, "fsGroupPolicy", &["File", "None", "ReadWriteOnceWithFSType"]);
    let list = SPEC.field("tokenRequests");
    let requests = items(spec, "tokenRequests");
    for (i, request) in requests.iter().enumerate() {
        let path = list.index(i);
        let audience = text(request, "audience");
        if requests[..i].iter().any(|r| text(r, "audience") == audience) {
            errors.push(FieldError::duplicate(path.field("audience"), &audience.into()));
            continue;
        }
        let Some(seconds) = number(request, "expirationSeconds") else { continue };
        let why = match seconds {
            ..600 => "may not specify a duration less than 10 minutes",
            seconds if seconds > 1 << 32 => "may not specify a duration larger than 2^32 seconds",
            _ => continue,
        };
        errors.push(FieldError::invalid(path.field("expirationSeconds"), &seconds.into(), why));
    }
    let modes = ["Persistent", "Ephemeral"];
    for mode in items(spec, "volumeLifecycleModes").iter().filter(|m| !m.as_str().is_some_and(|m| modes.contains(&m))) {
        errors.push(FieldError::not_supported(SPEC.field("volumeLifecycleModes"), mode, &modes));
    }
    if !has(spec, "seLinuxMount") {
        errors.push(FieldError::required(SPEC.field("seLinuxMount"), ""));
    }
    if let Some(seconds) = number(spec, "nodeAllocatableUpdatePeriodSeconds").filter(|s| *s < 10) {
        let why = "must be greater than or equal to 10 seconds";
        errors.push(FieldError::invalid(SPEC.field("nodeAllocatableUpdatePeriodSeconds"), &seconds.into(), why));
    }
    if has(spec, "serviceAccountTokenInSecrets") && requests.is_empty() {
        let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        let at = SPEC.field("serviceAccountTokenInSecrets");
        errors.push(FieldError::invalid(at, &spec["serviceAccountTokenInSecrets"], why));
    }
}

/// A changed CSIDriver.
pub fn update_driver(new: &Value, old: &Value, errors: &mut Errors) {
    driver(new, errors);
    if new["spec"].get("attachRequired") != old["spec"].get("attachRequired") {
        let value = new["spec"].get("attachRequired").cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid(SPEC.field("attachedRequired"), &value, "field is immutable"));
    }
    field::immutable(errors, &new["spec"], &old["spec"], &SPEC, "volumeLifecycleModes");
}

/// A CSINode.
pub fn node(node: &Value, errors: &mut Errors) {
    let list = SPEC.field("drivers");
    let drivers = items(&node["spec"], "drivers");
    for (i, driver) in drivers.iter().enumerate() {
        let path = list.index(i);
        let (name, id) = (text(driver, "name"), text(driver, "nodeID"));
        volume::driver_name(name, &path.field("name"), errors);
        required(errors, driver, &path, &["nodeID"]);
        if id.len() > 256 {
            errors.push(invalid(&path.field("nodeID"), id, "must be 256 characters or less"));
        }
        field::non_negative(errors, &driver["allocatable"], &path.field("allocatable"), "count");
        if drivers[..i].iter().any(|d| text(d, "name") == name) {
            errors.push(FieldError::duplicate(path.field("name"), &name.into()));
        }
        let keys = items(driver, "topologyKeys");
        for (j, key) in keys.iter().filter_map(Value::as_str).enumerate() {
            if key.is_empty() {
                errors.push(FieldError::required(path, ""));
            }
            if keys[..j].iter().any(|k| k == key) {
                errors.push(FieldError::duplicate(path, &key.into()));
            }
            wrong(errors, &path, key, names::qualified(key));
        }
    }
}

/// A changed CSINode: a driver stays as it registered itself, but for how much it can attach.
pub fn update_node(new: &Value, old: &Value, errors: &mut Errors) {
    use super::internal::{Field, show};
    const DRIVER: &[Field] = &[
        Field::text("Name", "name"),
        Field::text("NodeID", "nodeID"),
        Field::plain("TopologyKeys", "topologyKeys"),
        Field::plain("Allocatable", "allocatable"),
    ];
    node(new, errors);
    let fixed = |driver: &Value| {
        let mut driver = driver.clone();
        if let Some(map) = driver.as_object_mut() {
            map.remove("allocatable");
        }
        driver
    };
    for before in items(&old["spec"], "drivers") {
        for after in items(&new["spec"], "drivers").iter().filter(|after| text(after, "name") == text(before, "name")) {
            let (after, before) = (fixed(after), fixed(before));
            if after != before {
                let value = show(&after, DRIVER);
                errors.push(FieldError { value, ..invalid(&SPEC.field("drivers"), "", "field is immutable") });
            }
        }
    }
}

/// A VolumeAttachment.
pub fn attachment(attachment: &Value, errors: &mut Errors) {
    let spec = &attachment["spec"];
    let (source, path) = (&spec["source"], SPEC.field("source"));
    let name = text(source, "persistentVolumeName");
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (object(source, "inlineVolumeSpec"), has(source, "persistentVolumeName")) {
        (None, false) => errors.push(FieldError::required(path, ONE)),
        (Some(_), true) => errors.push(FieldError::forbidden(path, ONE)),
        (None, true) if name.is_empty() => {
            errors.push(FieldError::required(path.field("persistentVolumeName"), "must specify non empty persistentVolumeName"));
        }
        (None, true) => {}
        (Some(inline), false) => storage::volume_spec(inline, "", true, &path.field("inlineVolumeSpec"), errors),
    }
    let node = text(spec, "nodeName");
    wrong(errors, &SPEC.field("nodeName"), node, names::subdomain(node));
    attachment_status(&attachment["status"], errors);
    if has(source, "persistentVolumeName") {
        wrong(errors, &path.field("persistentVolumeName"), name, names::subdomain(name));
    }
    // By newer rules, told last.
    volume::caseless_driver_name(text(spec, "attacher"), &SPEC.field("attacher"), errors);
}

fn attachment_status(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let size: usize = entries(status, "attachmentMetadata").map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > 256 * 1024 {
        errors.push(FieldError::too_long(path.field("attachmentMetadata"), 256 * 1024));
    }
    for name in ["attachError", "detachError"] {
        let Some(error) = object(status, name) else { continue };
        let path = path.field(name);
        if text(error, "message").len() > 1024 {
            errors.push(FieldError::too_long(path.field("message"), 1024));
        }
        if let Some(code) = number(error, "errorCode").filter(|c| *c < 0) {
            errors.push(FieldError::invalid(path.field("errorCode"), &code.into(), "must be between 0 and 2147483647, inclusive"));
        }
    }
}

/// A changed VolumeAttachment.
pub fn update_attachment(new: &Value, old: &Value, errors: &mut Errors) {
    attachment(new, errors);
    field::settled(errors, new, old, &Path::object(), "spec");
}
