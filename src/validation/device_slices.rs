//! What nodes offer of devices: ResourceSlices, their devices with attributes and capacities, and rules that taint devices.

use serde_json::Value;

use super::devices::{attribute_name, fits, pool_name, taint};
use super::field::{Errors, Path, entries, has, invalid, items, number, object, text, wrong};
use super::{names, selector, volume};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const NODES: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
const DEVICE_NODES: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";

/// A ResourceSlice.
pub fn slice(slice: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &slice["spec"];
    volume::driver_name(text(spec, "driver"), &SPEC.field("driver"), errors);
    pool(spec, errors);
    if let Some(old) = old {
        unchanged(spec, &old["spec"], errors);
    }
    nodes(spec, errors);
    if has(spec, "sharedCounters") && has(spec, "devices") {
        errors.push(invalid(&SPEC, "", "only one of `sharedCounters` or `devices` is allowed"));
    }
    let mut behind = Vec::new();
    let (devices, list) = (items(spec, "devices"), SPEC.field("devices"));
    let advanced = devices.iter().any(|device| !items(device, "taints").is_empty() || !items(device, "consumesCounters").is_empty());
    if fits(devices, if advanced { 64 } else { 128 }, &list, errors) {
        for (i, device) in devices.iter().enumerate() {
            self::device(device, spec["perDeviceNodeSelection"] == true, &list.index(i), &mut behind, errors);
        }
        for (i, device) in devices.iter().enumerate() {
            if devices[..i].iter().any(|other| text(other, "name") == text(device, "name")) {
                errors.push(FieldError::duplicate(list.index(i), &text(device, "name").into()));
            }
        }
    }
    counters(spec, "sharedCounters", "name", 8, &SPEC, &mut behind);
    errors.append(&mut behind);
}

fn pool(spec: &Value, errors: &mut Errors) {
    let (pool, path) = (&spec["pool"], SPEC.field("pool"));
    pool_name(text(pool, "name"), &path.field("name"), errors);
    let of = |name: &str| number(pool, name).unwrap_or_default();
    if of("resourceSliceCount") <= 0 {
        let why = "must be greater than zero";
        errors.push(FieldError::invalid(path.field("resourceSliceCount"), &of("resourceSliceCount").into(), why));
    }
    if of("generation") < 0 {
        let why = "must be greater than or equal to zero";
        errors.push(FieldError::invalid(path.field("generation"), &of("generation").into(), why));
    }
}

/// Whose devices they are does not change.
fn unchanged(new: &Value, old: &Value, errors: &mut Errors) {
    let pool = SPEC.field("pool");
    for (new, old, path) in [
        (&new["pool"]["name"], &old["pool"]["name"], pool.field("name")),
        (&new["driver"], &old["driver"], SPEC.field("driver")),
        (&new["nodeName"], &old["nodeName"], SPEC.field("nodeName")),
    ] {
        if new != old {
            errors.push(FieldError::invalid(path, new, "field is immutable"));
        }
    }
}

fn nodes(spec: &Value, errors: &mut Errors) {
    let mut set = Vec::new();
    let name = text(spec, "nodeName");
    if !name.is_empty() {
        set.push("`nodeName`");
        wrong(errors, &SPEC.field("nodeName"), name, names::subdomain(name));
    } else if has(spec, "nodeName") {
        errors.push(invalid(&SPEC.field("nodeName"), name, "must be either unset or set to a non-empty string"));
    }
    if let Some(nodes) = object(spec, "nodeSelector") {
        set.push("`nodeSelector`");
        let path = SPEC.field("nodeSelector");
        selector::node_selector(nodes, &path, errors);
        let terms = items(nodes, "nodeSelectorTerms");
        if terms.len() != 1 {
            let why = "must have exactly one node selector term";
            errors.push(FieldError::invalid(path.field("nodeSelectorTerms"), &Value::from(terms.to_vec()), why));
        }
    }
    for (field, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        only_true(spec, field, shown, &SPEC, &mut set, errors);
    }
    match set.len() {
        0 => errors.push(FieldError::required(SPEC, NODES)),
        1 => {}
        _ => errors.push(invalid(&SPEC, &format!("{{{}}}", set.join(", ")), format!("{NODES}, but multiple fields are set"))),
    }
}

/// A flag that says something only when it is set.
fn only_true(value: &Value, field: &str, shown: &'static str, path: &Path<'_>, set: &mut Vec<&'static str>, errors: &mut Errors) {
    if value[field] == true {
        set.push(shown);
    } else if has(value, field) {
        errors.push(FieldError::invalid(path.field(field), &false.into(), "must be either unset or set to true"));
    }
}

fn device(device: &Value, each: bool, path: &Path<'_>, behind: &mut Errors, errors: &mut Errors) {
    let name = text(device, "name");
    wrong(errors, &path.field("name"), name, names::label(name));
    let total = entries(device, "attributes").count() + entries(device, "capacity").count();
    if total > 32 {
        errors.push(FieldError::invalid(path, &total.into(), "the total number of attributes and capacities must not exceed 32"));
    }
    let map = path.field("attributes");
    for (name, attribute) in entries(device, "attributes") {
        attribute_name(name, &map, errors);
        self::attribute(attribute, &map.key(name), behind, errors);
    }
    let map = path.field("capacity");
    for (name, capacity) in entries(device, "capacity") {
        attribute_name(name, &map, errors);
        if has(capacity, "requestPolicy") && device["allowMultipleAllocations"] != true {
            errors.push(FieldError::forbidden(map.key(name).field("requestPolicy"), "allowMultipleAllocations must be true"));
        }
    }
    let (taints, list) = (items(device, "taints"), path.field("taints"));
    if fits(taints, 16, &list, errors) {
        for (i, one) in taints.iter().enumerate() {
            taint(one, &list.index(i), behind, errors);
        }
    }
    counters(device, "consumesCounters", "counterSet", 2, path, behind);
    if each {
        device_nodes(device, path, errors);
    } else if ["nodeName", "nodeSelector", "allNodes"].iter().any(|field| has(device, field)) {
        let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        errors.push(FieldError::invalid(path, &Value::Null, why));
    }
    binding_conditions(device, path, errors);
}

fn device_nodes(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut set = Vec::new();
    let name = text(device, "nodeName");
    if !name.is_empty() {
        set.push("`nodeName`");
        wrong(errors, &path.field("nodeName"), name, names::subdomain(name));
    } else if has(device, "nodeName") {
        errors.push(invalid(&path.field("nodeName"), name, "must not be empty"));
    }
    if let Some(nodes) = object(device, "nodeSelector") {
        set.push("`nodeSelector`");
        selector::node_selector(nodes, &path.field("nodeSelector"), errors);
    }
    only_true(device, "allNodes", "`allNodes`", path, &mut set, errors);
    match set.len() {
        0 => errors.push(FieldError::required(path, DEVICE_NODES)),
        1 => {}
        _ => errors.push(invalid(path, &format!("{{{}}}", set.join(", ")), DEVICE_NODES)),
    }
}

fn attribute(attribute: &Value, path: &Path<'_>, behind: &mut Errors, errors: &mut Errors) {
    let string = |value: &str, path: &Path<'_>, errors: &mut Errors| {
        if value.len() > 64 {
            errors.push(FieldError::too_long(path, 64));
        }
    };
    let version = |value: &str, path: &Path<'_>, errors: &mut Errors| {
        if !is_version(value) {
            errors.push(invalid(path, value, "must be a string compatible with semver.org spec 2.0.0"));
        }
        string(value, path, errors);
    };
    if has(attribute, "string") {
        string(text(attribute, "string"), &path.field("string"), errors);
    }
    if has(attribute, "version") {
        version(text(attribute, "version"), &path.field("version"), errors);
    }
    for field in ["bools", "ints", "strings", "versions"] {
        let (values, list) = (items(attribute, field), path.field(field));
        if has(attribute, field) && values.is_empty() {
            errors.push(FieldError::invalid(list, &Value::Array(Vec::new()), "must not be empty if specified"));
        }
        for (i, value) in values.iter().enumerate() {
            match field {
                "strings" => string(value.as_str().unwrap_or_default(), &list.index(i), behind),
                "versions" => version(value.as_str().unwrap_or_default(), &list.index(i), errors),
                _ => {}
            }
        }
    }
    let fields = ["int", "bool", "string", "version", "ints", "bools", "strings", "versions"];
    let set: Vec<&str> = fields.into_iter().filter(|field| has(attribute, field)).collect();
    if set.len() != 1 {
        let shown = if set.is_empty() { String::new() } else { format!("{{{}}}", set.join(", ")) };
        let fields = fields.map(|field| format!("`{field}`")).join(", ");
        behind.push(invalid(path, &shown, format!("must specify exactly one of: {fields}")));
    }
}

/// Whether a text is a version by semver.org: three numbers, and perhaps what was released before and what was built.
fn is_version(text: &str) -> bool {
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (text, before) = text.split_once('-').map_or((text, None), |(text, before)| (text, Some(before)));
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let number = |part: &str| !part.is_empty() && digits(part) && (part == "0" || !part.starts_with('0'));
    text.split('.').count() == 3
        && text.split('.').all(number)
        && before.is_none_or(|before| before.split('.').all(|part| if digits(part) { number(part) } else { word(part) }))
        && build.is_none_or(|build| build.split('.').all(word))
}

/// Sets of counters, which are shared or drawn from.
fn counters(holder: &Value, field: &str, key: &str, most: usize, path: &Path<'_>, errors: &mut Errors) {
    let (sets, list) = (items(holder, field), path.field(field));
    if !fits(sets, most, &list, errors) {
        return;
    }
    for (i, set) in sets.iter().enumerate() {
        let path = list.index(i);
        if sets[..i].iter().any(|other| text(other, key) == text(set, key)) {
            errors.push(FieldError::duplicate(path, &serde_json::json!({ key: text(set, key) })));
        }
        let name = text(set, key);
        if name.is_empty() {
            errors.push(FieldError::required(path.field(key), ""));
        } else {
            wrong(errors, &path.field(key), name, names::label(name));
        }
        if entries(set, "counters").next().is_none() {
            errors.push(FieldError::required(path.field("counters"), ""));
        }
        for (name, _) in entries(set, "counters") {
            wrong(errors, &path.field("counters"), name, names::label(name));
        }
    }
}

fn binding_conditions(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    const BOTH: [(&str, &str); 2] = [
        ("bindingConditions", "bindingConditions are required to use bindingFailureConditions"),
        ("bindingFailureConditions", "bindingFailureConditions are required to use bindingConditions"),
    ];
    for (field, _) in BOTH {
        let (names, list) = (items(device, field), path.field(field));
        if fits(names, 4, &list, errors) {
            for (i, name) in names.iter().enumerate() {
                let name = name.as_str().unwrap_or_default();
                wrong(errors, &list.index(i), name, names::qualified(name));
            }
        }
    }
    let bound = items(device, "bindingConditions");
    for (field, _) in BOTH {
        let (names, list) = (items(device, field), path.field(field));
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                errors.push(FieldError::duplicate(list.index(i), name));
            }
            if field == "bindingFailureConditions" && bound.contains(name) {
                let why = "bindingFailureConditions must not overlap with bindingConditions";
                errors.push(FieldError::invalid(list.index(i), name, why));
            }
        }
    }
    let empty = |field: &str| items(device, field).is_empty();
    for ((field, why), (other, _)) in [(BOTH[0], BOTH[1]), (BOTH[1], BOTH[0])] {
        if empty(field) && !empty(other) {
            errors.push(FieldError::invalid(path.field(field), device.get(field).unwrap_or(&Value::Null), why));
        }
    }
}

/// A DeviceTaintRule.
pub fn taint_rule(rule: &Value, errors: &mut Errors) {
    let spec = &rule["spec"];
    let mut behind = Vec::new();
    if let Some(devices) = object(spec, "deviceSelector") {
        let path = SPEC.field("deviceSelector");
        if has(devices, "driver") {
            volume::driver_name(text(devices, "driver"), &path.field("driver"), errors);
        }
        if has(devices, "pool") {
            pool_name(text(devices, "pool"), &path.field("pool"), errors);
        }
        if has(devices, "device") {
            let name = text(devices, "device");
            wrong(errors, &path.field("device"), name, names::label(name));
        }
    }
    taint(&spec["taint"], &SPEC.field("taint"), &mut behind, errors);
    errors.append(&mut behind);
}
