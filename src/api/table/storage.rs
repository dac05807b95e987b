//! The rows of volumes, claims, and the classes and drivers behind them.

use jiff::Timestamp;
use serde_json::Value;

use super::Cells;
use super::access::{age, items, name, or, text, time};

const DEFAULT_CLASS: [&str; 2] = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The phase, unless the object is on its way out.
fn phase(object: &Value) -> Value {
    if object["metadata"].get("deletionTimestamp").is_some_and(|t| !t.is_null()) {
        return "Terminating".into();
    }
    text(&object["status"]["phase"]).into()
}

fn class(object: &Value) -> Value {
    match text(&object["metadata"]["annotations"][OLD_CLASS]) {
        "" => text(&object["spec"]["storageClassName"]).into(),
        class => class.into(),
    }
}

fn access_modes(modes: &Value) -> String {
    let known = [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let told = known.into_iter().filter(|(mode, _)| items(modes).iter().any(|m| m == mode)).map(|(_, short)| short);
    told.collect::<Vec<_>>().join(",")
}

pub(super) fn persistent_volume(object: &Value, now: Timestamp) -> Cells {
    let spec = &object["spec"];
    let claim = &spec["claimRef"];
    let claim = if claim.is_object() { format!("{}/{}", text(&claim["namespace"]), text(&claim["name"])) } else { String::new() };
    vec![
        name(object),
        or(&spec["capacity"]["storage"], "0"),
        access_modes(&spec["accessModes"]).into(),
        text(&spec["persistentVolumeReclaimPolicy"]).into(),
        phase(object),
        claim.into(),
        class(object),
        or(&spec["volumeAttributesClassName"], "<unset>"),
        text(&object["status"]["reason"]).into(),
        age(object, now),
        or(&spec["volumeMode"], "<unset>"),
    ]
}

pub(super) fn persistent_volume_claim(object: &Value, now: Timestamp) -> Cells {
    let (spec, status) = (&object["spec"], &object["status"]);
    let volume = text(&spec["volumeName"]);
    // What was asked for is not told; what was given is.
    let (capacity, modes) = match volume {
        "" => ("".into(), String::new()),
        _ => (or(&status["capacity"]["storage"], "0"), access_modes(&status["accessModes"])),
    };
    vec![
        name(object),
        phase(object),
        volume.into(),
        capacity,
        modes.into(),
        class(object),
        or(&spec["volumeAttributesClassName"], "<unset>"),
        age(object, now),
        or(&spec["volumeMode"], "<unset>"),
    ]
}

pub(super) fn storage_class(object: &Value, now: Timestamp) -> Cells {
    vec![
        name(object),
        text(&object["provisioner"]).into(),
        or(&object["reclaimPolicy"], "Delete"),
        or(&object["volumeBindingMode"], "Immediate"),
        (object["allowVolumeExpansion"] == true).into(),
        age(object, now),
    ]
}

/// Of several classes that say they are the default, the newest is.
pub(super) fn mark_default(classes: &[&Value], rows: &mut [Value]) {
    let says_default = |class: &Value| DEFAULT_CLASS.iter().any(|key| class["metadata"]["annotations"][*key] == "true");
    let candidates = classes.iter().enumerate().filter(|(_, class)| says_default(class));
    let newest = candidates.max_by(|(_, a), (_, b)| {
        let created = |class: &Value| time(&class["metadata"]["creationTimestamp"]);
        created(a).cmp(&created(b)).then_with(|| text(&b["metadata"]["name"]).cmp(text(&a["metadata"]["name"])))
    });
    if let Some((index, class)) = newest
        && let Some(cell) = rows.get_mut(index).and_then(|row| row.pointer_mut("/cells/0"))
    {
        *cell = format!("{} (default)", text(&class["metadata"]["name"])).into();
    }
}

pub(super) fn csi_driver(object: &Value, now: Timestamp) -> Cells {
    let spec = &object["spec"];
    let joined = |values: Vec<&str>, none: &str| if values.is_empty() { none.to_owned() } else { values.join(",") };
    let audiences = items(&spec["tokenRequests"]).iter().map(|request| text(&request["audience"])).collect();
    let modes = items(&spec["volumeLifecycleModes"]).iter().map(text).collect();
    vec![
        name(object),
        (spec["attachRequired"] != false).into(),
        (spec["podInfoOnMount"] == true).into(),
        (spec["storageCapacity"] == true).into(),
        joined(audiences, "<unset>").into(),
        (spec["requiresRepublish"] == true).into(),
        joined(modes, "<none>").into(),
        age(object, now),
    ]
}

pub(super) fn volume_attachment(object: &Value, now: Timestamp) -> Cells {
    let spec = &object["spec"];
    vec![
        name(object),
        text(&spec["attacher"]).into(),
        text(&spec["source"]["persistentVolumeName"]).into(),
        text(&spec["nodeName"]).into(),
        (object["status"]["attached"] == true).into(),
        age(object, now),
    ]
}
