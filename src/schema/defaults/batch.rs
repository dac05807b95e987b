//! Defaults of a Job. A CronJob's template of one gets none of them; the Jobs that are made from it do.

use super::{Fields, is_absent, part, set};

pub(super) fn job(fields: &mut Fields) {
    let labels = fields.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels")).cloned();
    if let Some(labels) = labels.filter(|labels| !crate::schema::is_zero(labels))
        && let Some(metadata) = part(fields, "metadata")
    {
        super::set_nonzero(metadata, "labels", labels);
    }
    let Some(spec) = part(fields, "spec") else { return };
    if is_absent(spec, "parallelism") {
        set(spec, "completions", 1);
        spec.insert("parallelism".into(), 1.into());
    }
    let backoff_limit = if is_absent(spec, "backoffLimitPerIndex") { 6 } else { i32::MAX };
    set(spec, "backoffLimit", backoff_limit);
    let replacement = if is_absent(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
    set(spec, "podReplacementPolicy", replacement);
    set(spec, "completionMode", "NonIndexed");
    set(spec, "suspend", false);
    set(spec, "manualSelector", false);
}
