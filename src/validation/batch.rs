//! Jobs and CronJobs, schedules among them.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, non_negative, number, object, one_of, text};
use super::{pod, selector};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");

/// A Job.
pub fn job(job: &Value, errors: &mut Errors) {
    spec(&job["spec"], &SPEC, errors);
    let spec = &job["spec"];
    if has(spec, "selector") && !selector::takes(&spec["selector"], &spec["template"]) {
        let path = SPEC.field("template");
        let labels = spec["template"]["metadata"].get("labels").unwrap_or(&Value::Null);
        let at = path.field("metadata");
        errors.push(FieldError::invalid(at.field("labels"), labels, "`selector` does not match template `labels`"));
    }
}

fn spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished", "backoffLimitPerIndex"] {
        non_negative(errors, spec, path, name);
    }
    one_of(errors, spec, path, "completionMode", false, &["Indexed", "NonIndexed"]);
    if text(spec, "completionMode") == "Indexed" {
        if number(spec, "completions").is_none() {
            errors.push(FieldError::required(path.field("completions"), "when completion mode is Indexed"));
        }
    } else if has(spec, "backoffLimitPerIndex") {
        let value = &spec["backoffLimitPerIndex"];
        errors.push(FieldError::invalid(path.field("backoffLimitPerIndex"), value, "requires indexed completion mode"));
    }
    let at = path.field("template");
    pod::template(&spec["template"], &at, errors);
    let at = at.field("spec");
    match text(&spec["template"]["spec"], "restartPolicy") {
        "Always" | "" => errors.push(FieldError::required(at.field("restartPolicy"), "valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if has(spec, "podFailurePolicy") => {
            let why = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(invalid(&at.field("restartPolicy"), "OnFailure", why));
        }
        // One that is no policy at all has been told with the template.
        _ => {}
    }
}

/// A changed Job.
pub fn same_job(new: &Value, old: &Value, errors: &mut Errors) {
    let (new_spec, old_spec) = (&new["spec"], &old["spec"]);
    if text(old_spec, "completionMode") != "Indexed" || number(new_spec, "completions") != number(new_spec, "parallelism") {
        field::immutable(errors, new_spec, old_spec, &SPEC, "completions");
    }
    field::immutable(errors, new_spec, old_spec, &SPEC, "selector");
    // A Job that has not begun may still be told where its Pods go.
    let waiting = old_spec["suspend"] == true && !has(&old["status"], "startTime");
    if !waiting {
        field::immutable(errors, new_spec, old_spec, &SPEC, "template");
    }
    field::immutable(errors, new_spec, old_spec, &SPEC, "completionMode");
    field::immutable(errors, new_spec, old_spec, &SPEC, "podFailurePolicy");
    field::immutable(errors, new_spec, old_spec, &SPEC, "backoffLimitPerIndex");
    for name in ["parallelism", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"] {
        non_negative(errors, new_spec, &SPEC, name);
    }
}

/// A CronJob.
pub fn cron_job(job: &Value, errors: &mut Errors) {
    let name = text(&job["metadata"], "name");
    if name.len() > 52 {
        errors.push(invalid(&Path::root("metadata").field("name"), name, "must be no more than 52 characters"));
    }
    same_cron_job(job, errors);
}

/// A CronJob whose name is settled.
pub fn same_cron_job(job: &Value, errors: &mut Errors) {
    let spec = &job["spec"];
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required(SPEC.field("schedule"), ""));
    } else {
        if schedule.contains("TZ") {
            let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.push(invalid(&SPEC.field("schedule"), schedule, why));
        } else if let Err(why) = self::schedule(schedule) {
            errors.push(invalid(&SPEC.field("schedule"), schedule, why));
        }
    }
    non_negative(errors, spec, &SPEC, "startingDeadlineSeconds");
    if has(spec, "timeZone") {
        time_zone(text(spec, "timeZone"), errors);
    }
    one_of(errors, spec, &SPEC, "concurrencyPolicy", true, &["Allow", "Forbid", "Replace"]);
    let path = SPEC.field("jobTemplate");
    if let Some(template) = object(spec, "jobTemplate") {
        self::spec(&template["spec"], &path.field("spec"), errors);
        if template["spec"]["manualSelector"] == true {
            errors.push(FieldError::not_supported(path.field("spec").field("manualSelector"), &true.into(), &["nil", "false"]));
        }
    }
    non_negative(errors, spec, &SPEC, "successfulJobsHistoryLimit");
    non_negative(errors, spec, &SPEC, "failedJobsHistoryLimit");
}

fn time_zone(zone: &str, errors: &mut Errors) {
    let path = SPEC.field("timeZone");
    if zone.is_empty() {
        errors.push(invalid(&path, zone, "timeZone must be nil or non-empty string"));
    } else if zone.eq_ignore_ascii_case("local") {
        errors.push(invalid(&path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"));
    } else if jiff::tz::TimeZone::get(zone).is_err() {
        errors.push(invalid(&path, zone, format!("unknown time zone {zone}")));
    }
}

/// Names of months and days, at the place of their number.
const MONTHS: &[&str] = &["", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Whether a text is a schedule, in the words of the library that a real server reads it with.
fn schedule(text: &str) -> Result<(), String> {
    if let Some(every) = text.strip_prefix("@every ") {
        return match super::formats::is("duration", every) {
            true => Ok(()),
            false => Err(format!("failed to parse duration {text}: time: invalid duration {every:?}")),
        };
    }
    if text.starts_with('@') {
        return match text {
            "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
            _ => Err(format!("unrecognized descriptor: {text}")),
        };
    }
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = parts[..] else {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", parts.len(), parts.join(" ")));
    };
    for (part, least, most, names) in
        [(minute, 0, 59, &[][..]), (hour, 0, 23, &[][..]), (day, 1, 31, &[][..]), (month, 1, 12, MONTHS), (weekday, 0, 6, DAYS)]
    {
        for range in part.split(',').filter(|r| !r.is_empty()) {
            schedule_range(range, least, most, names)?;
        }
    }
    Ok(())
}

fn schedule_range(range: &str, least: u32, most: u32, names: &[&str]) -> Result<(), String> {
    let number = |text: &str| -> Result<u32, String> {
        if let Some(at) = names.iter().position(|n| !n.is_empty() && n.eq_ignore_ascii_case(text)) {
            return Ok(at as u32);
        }
        match text.parse::<i64>() {
            Ok(n) if n < 0 => Err(format!("negative number ({n}) not allowed: {text}")),
            Ok(n) => Ok(u32::try_from(n).unwrap_or(u32::MAX)),
            Err(_) => Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")),
        }
    };
    let mut by_step = range.split('/');
    let span = by_step.next().unwrap_or_default();
    let step = by_step.next();
    if by_step.next().is_some() {
        return Err(format!("too many slashes: {range}"));
    }
    let ends: Vec<&str> = span.split('-').collect();
    let (start, end) = match ends[..] {
        ["*" | "?", ..] => (least, most),
        [start] => {
            let start = number(start)?;
            (start, if step.is_some() { most } else { start })
        }
        [start, end] => (number(start)?, number(end)?),
        _ => return Err(format!("too many hyphens: {range}")),
    };
    let step = step.map_or(Ok(1), number)?;
    if start < least {
        return Err(format!("beginning of range ({start}) below minimum ({least}): {range}"));
    }
    if end > most {
        return Err(format!("end of range ({end}) above maximum ({most}): {range}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::schedule;

    #[test]
    fn schedules_are_read_as_cron_reads_them() {
        for right in ["*/5 * * * *", "0 0 1,15 * MON-FRI", "@hourly", "0 3 * jan *", "@every 1h30m", "5/15 * * * ?"] {
            assert_eq!(schedule(right), Ok(()), "{right}");
        }
        assert_eq!(schedule("nope"), Err("expected exactly 5 fields, found 1: [nope]".into()));
        assert_eq!(schedule("61 * * * *"), Err("end of range (61) above maximum (59): 61".into()));
        assert_eq!(schedule("*/0 * * * *"), Err("step of range should be a positive number: */0".into()));
        assert_eq!(schedule("x * * * *"), Err("failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax".into()));
    }
}
