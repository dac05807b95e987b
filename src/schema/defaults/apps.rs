//! Defaults of the apps group: how workloads roll out.

use super::{Fields, objects, part, set, text};

fn is_rolling(fields: &Fields) -> bool {
    matches!(text(fields, "type"), "" | "RollingUpdate")
}

pub(super) fn deployment_strategy(fields: &mut Fields) {
    if is_rolling(fields)
        && let Some(rolling) = part(fields, "rollingUpdate")
    {
        set(rolling, "maxUnavailable", "25%");
        set(rolling, "maxSurge", "25%");
    }
}

pub(super) fn daemon_set_update_strategy(fields: &mut Fields) {
    if is_rolling(fields)
        && let Some(rolling) = part(fields, "rollingUpdate")
    {
        set(rolling, "maxUnavailable", 1);
        set(rolling, "maxSurge", 0);
    }
}

/// Only a strategy that names no type gets its details made.
pub(super) fn stateful_set_update_strategy(fields: &mut Fields) {
    if text(fields, "type").is_empty() {
        fields.insert("type".into(), "RollingUpdate".into());
        part(fields, "rollingUpdate");
    }
    if is_rolling(fields)
        && !super::is_absent(fields, "rollingUpdate")
        && let Some(rolling) = part(fields, "rollingUpdate")
    {
        set(rolling, "partition", 0);
        set(rolling, "maxUnavailable", 1);
    }
}

/// The templates of claims are whole objects.
pub(super) fn stateful_set_spec(fields: &mut Fields) {
    for claim in objects(fields, "volumeClaimTemplates") {
        claim.insert("apiVersion".to_owned(), "v1".into());
        claim.insert("kind".to_owned(), "PersistentVolumeClaim".into());
    }
}
