//! Claims, volumes and classes of storage.

use serde_json::Value;

use super::container::{non_negative_quantity, quantity};
use super::field::{self, Errors, Path, entries, has, invalid, items, map, object, one_of, text};
use super::{names, pod, selector};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// A PersistentVolumeClaim.
pub fn claim(claim: &Value, errors: &mut Errors) {
    claim_spec(&claim["spec"], &SPEC, errors);
}

fn claim_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    access_modes(spec, path, errors);
    selector::label_selector(&spec["selector"], &path.field("selector"), errors);
    let resources = path.field("resources");
    match spec["resources"]["requests"].get("storage") {
        None => errors.push(FieldError::required(resources.key("storage"), "")),
        Some(amount) => {
            let at = resources.field("requests");
            positive(amount, &at.key("storage"), errors);
        }
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.extend(names::subdomain(class).into_iter().map(|why| invalid(&path.field("storageClassName"), class, why)));
    }
    one_of(errors, spec, path, "volumeMode", false, &["Block", "Filesystem"]);
    for name in ["dataSource", "dataSourceRef"] {
        if let Some(source) = object(spec, name) {
            let path = path.field(name);
            for name in ["name", "kind"] {
                if text(source, name).is_empty() {
                    errors.push(FieldError::required(path.field(name), ""));
                }
            }
        }
    }
}

fn access_modes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let modes = items(spec, "accessModes");
    let list = path.field("accessModes");
    if modes.is_empty() {
        errors.push(FieldError::required(list, "at least 1 access mode is required"));
    }
    for mode in modes.iter().filter(|m| !m.as_str().is_some_and(|m| MODES.contains(&m))) {
        errors.push(FieldError::not_supported(list, mode, &MODES));
    }
    if modes.len() > 1 && modes.iter().any(|m| m == "ReadWriteOncePod") {
        let why = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(list, why));
    }
}

fn positive(amount: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(amount) = quantity(amount).filter(|q| q.nanos() <= 0) {
        errors.push(invalid(path, &amount.to_string(), "must be greater than zero"));
    }
}

/// A changed claim: hardly anything but its size.
pub fn update_claim(new: &Value, old: &Value, errors: &mut Errors) {
    claim(new, errors);
    let rest = |claim: &Value| {
        let mut spec = map(claim, "spec").cloned().unwrap_or_default();
        spec.remove("volumeAttributesClassName");
        // Set once, by whoever binds the claim.
        if text(&old["spec"], "volumeName").is_empty() {
            spec.remove("volumeName");
        }
        if !has(&old["spec"], "storageClassName") {
            spec.remove("storageClassName");
        }
        if let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut) {
            resources.remove("requests");
        }
        Value::Object(spec)
    };
    let (new_rest, old_rest) = (rest(new), rest(old));
    if new_rest != old_rest {
        let why = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{}",
            pod::difference(&old_rest, &new_rest)
        );
        errors.push(FieldError::forbidden("spec", why));
    }
    let size = |claim: &Value| quantity(&claim["spec"]["resources"]["requests"]["storage"]);
    if let (Some(new), Some(old)) = (size(new), size(old))
        && new < old
    {
        let path = SPEC.field("resources");
        let path = path.field("requests");
        errors.push(FieldError::forbidden(path.field("storage"), "field can not be less than status.capacity"));
    }
}

/// The words of a volume's spec that are no source of it.
const PLAIN: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

fn source(spec: &Value) -> Option<(&String, &Value)> {
    spec.as_object()?.iter().find(|(name, value)| !PLAIN.contains(&name.as_str()) && value.is_object())
}

/// A PersistentVolume.
pub fn volume(volume: &Value, errors: &mut Errors) {
    let spec = &volume["spec"];
    access_modes(spec, &SPEC, errors);
    let path = SPEC.field("capacity");
    if map(spec, "capacity").is_none_or(serde_json::Map::is_empty) {
        errors.push(FieldError::required(path, ""));
    } else if spec["capacity"].get("storage").is_none() || map(spec, "capacity").is_some_and(|c| c.len() > 1) {
        errors.push(FieldError::not_supported(path, &spec["capacity"], &["storage"]));
    }
    for (name, amount) in entries(spec, "capacity") {
        positive(amount, &path.key(name), errors);
    }
    one_of(errors, spec, &SPEC, "persistentVolumeReclaimPolicy", false, &["Delete", "Recycle", "Retain"]);
    if let Some(required) = object(&spec["nodeAffinity"], "required") {
        let path = SPEC.field("nodeAffinity");
        selector::node_selector(required, &path.field("required"), errors);
    }
    let count = spec.as_object().into_iter().flatten().filter(|(name, value)| !PLAIN.contains(&name.as_str()) && value.is_object()).count();
    match count {
        0 => errors.push(FieldError::required(SPEC, "must specify a volume type")),
        1 => {}
        _ => {
            if let Some((name, _)) = source(spec) {
                errors.push(FieldError::forbidden(SPEC.field(name), "may not specify more than 1 volume type"));
            }
        }
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.extend(names::subdomain(class).into_iter().map(|why| invalid(&SPEC.field("storageClassName"), class, why)));
    }
    one_of(errors, spec, &SPEC, "volumeMode", false, &["Block", "Filesystem"]);
}

/// A changed volume.
pub fn update_volume(new: &Value, old: &Value, errors: &mut Errors) {
    volume(new, errors);
    let (after, before) = (source(&new["spec"]), source(&old["spec"]));
    if after != before {
        let shown = |found: Option<(&String, &Value)>| found.map_or(Value::Null, |(name, value)| serde_json::json!({name.as_str(): value}));
        let difference = pod::difference(&shown(before), &shown(after));
        let why = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
        errors.push(FieldError::forbidden("spec.persistentvolumesource", why));
    }
    field::immutable(errors, &new["spec"], &old["spec"], &SPEC, "volumeMode");
}

/// A StorageClass.
pub fn class(class: &Value, errors: &mut Errors) {
    let root = Path::object();
    let provisioner = text(class, "provisioner");
    if provisioner.is_empty() {
        errors.push(FieldError::required("provisioner", ""));
    } else {
        let wrong = names::qualified(&provisioner.to_ascii_lowercase());
        errors.extend(wrong.into_iter().map(|why| invalid(&root.field("provisioner"), provisioner, why)));
    }
    let path = Path::root("parameters");
    for (key, _) in entries(class, "parameters").filter(|(key, _)| key.is_empty()) {
        errors.push(invalid(&path, key, "field can not be empty."));
    }
    one_of(errors, class, &root, "reclaimPolicy", false, &["Delete", "Retain"]);
    one_of(errors, class, &root, "volumeBindingMode", true, &["Immediate", "WaitForFirstConsumer"]);
}

/// A changed StorageClass.
pub fn update_class(new: &Value, old: &Value, errors: &mut Errors) {
    let content = |class: &Value, name: &str| class.get(name).filter(|v| !crate::schema::is_zero(v)).cloned();
    for name in ["parameters", "provisioner", "reclaimPolicy"] {
        if content(new, name) != content(old, name) {
            errors.push(FieldError::forbidden(name, format!("updates to {name} are forbidden.")));
        }
    }
    field::immutable(errors, new, old, &Path::object(), "volumeBindingMode");
}

/// The amounts of a quota.
pub fn quota(quota: &Value, errors: &mut Errors) {
    let path = SPEC.field("hard");
    for (name, amount) in entries(&quota["spec"], "hard") {
        errors.extend(names::qualified(name).into_iter().map(|why| invalid(&path.key(name), name, why)));
        non_negative_quantity(amount, &path.key(name), errors);
    }
    const SCOPES: [&str; 7] = [
        "BestEffort",
        "CrossNamespacePodAffinity",
        "NotBestEffort",
        "NotTerminating",
        "PriorityClass",
        "Terminating",
        "VolumeAttributesClass",
    ];
    let path = SPEC.field("scopes");
    let scopes = items(&quota["spec"], "scopes");
    if !scopes.iter().all(|s| s.as_str().is_some_and(|s| SCOPES.contains(&s))) {
        errors.push(FieldError::invalid(path, &Value::from(scopes.to_vec()), "unsupported scope"));
    }
}

/// A changed quota keeps its scopes.
pub fn update_quota(new: &Value, old: &Value, errors: &mut Errors) {
    quota(new, errors);
    let sorted = |quota: &Value| {
        let mut scopes: Vec<String> = items(&quota["spec"], "scopes").iter().filter_map(|s| s.as_str().map(str::to_owned)).collect();
        scopes.sort();
        scopes
    };
    if sorted(new) != sorted(old) {
        field::immutable(errors, &new["spec"], &old["spec"], &SPEC, "scopes");
    }
}

/// The bounds of a LimitRange, which must not contradict each other.
pub fn limit_range(range: &Value, errors: &mut Errors) {
    let list = SPEC.field("limits");
    let limits = items(&range["spec"], "limits");
    for (i, limit) in limits.iter().enumerate() {
        let path = list.index(i);
        let kind = text(limit, "type");
        if limits[..i].iter().any(|l| text(l, "type") == kind) {
            errors.push(FieldError::duplicate(path.field("type"), &kind.into()));
        }
        if kind == "Pod" {
            for name in ["default", "defaultRequest"] {
                if map(limit, name).is_some_and(|m| !m.is_empty()) {
                    errors.push(FieldError::forbidden(path.field(name), "may not be specified when `type` is 'Pod'"));
                }
            }
        }
        let of = |name: &str, key: &str| limit[name].get(key).and_then(quantity);
        for (less, more) in [
            ("min", "max"),
            ("min", "default"),
            ("min", "defaultRequest"),
            ("default", "max"),
            ("defaultRequest", "default"),
            ("defaultRequest", "max"),
        ] {
            let at = path.field(less);
            for (key, _) in entries(limit, less) {
                if let (Some(low), Some(high)) = (of(less, key), of(more, key))
                    && low > high
                {
                    let word = |name: &str| match name {
                        "defaultRequest" => "default request",
                        "default" => "default",
                        "min" => "min",
                        _ => "max",
                    };
                    let why = format!("{} value {low} is greater than {} value {high}", word(less), word(more));
                    errors.push(invalid(&at.key(key), &low.to_string(), why));
                }
            }
        }
    }
}
