//! CronJobs, schedules among them.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, non_negative, one_of, text};
use super::job;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");

/// A new CronJob.
pub fn cron_job(job: &Value, errors: &mut Errors) {
    spec(job, None, errors);
    let name = text(&job["metadata"], "name");
    if name.len() > 52 {
        errors.push(invalid(&Path::root("metadata").field("name"), name, "must be no more than 52 characters"));
    }
    needed(job, errors);
}

/// A changed CronJob.
pub fn update_cron_job(new: &Value, old: &Value, errors: &mut Errors) {
    spec(new, Some(&old["spec"]), errors);
    needed(new, errors);
}

/// What newer rules ask for, told last.
fn needed(job: &Value, errors: &mut Errors) {
    field::required(errors, &job["spec"], &SPEC, &["schedule"]);
}

fn spec(job: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &job["spec"];
    let schedule = text(spec, "schedule");
    let path = SPEC.field("schedule");
    if !schedule.is_empty() {
        if let Err(why) = self::schedule(schedule) {
            errors.push(invalid(&path, schedule, why));
        }
        let zoned = |text: &str| text.contains("TZ");
        match old.is_some_and(|old| zoned(text(old, "schedule"))) {
            true if zoned(schedule) && has(spec, "timeZone") => {
                errors.push(invalid(&path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule"));
            }
            false if zoned(schedule) => {
                errors.push(invalid(&path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"));
            }
            _ => {}
        }
    }
    non_negative(errors, spec, &SPEC, "startingDeadlineSeconds");
    if has(spec, "timeZone") && old.is_none_or(|old| old.get("timeZone") != spec.get("timeZone")) {
        time_zone(text(spec, "timeZone"), errors);
    }
    one_of(errors, spec, &SPEC, "concurrencyPolicy", true, &["Allow", "Forbid", "Replace"]);
    let path = SPEC.field("jobTemplate");
    let path = path.field("spec");
    let template = &spec["jobTemplate"]["spec"];
    job::spec(template, &path, errors);
    if has(template, "selector") {
        errors.push(FieldError::invalid(path.field("selector"), &template["selector"], "`selector` will be auto-generated"));
    }
    if field::flag(template, "manualSelector") {
        errors.push(FieldError::not_supported(path.field("manualSelector"), &true.into(), &["nil", "false"]));
    }
    non_negative(errors, spec, &SPEC, "successfulJobsHistoryLimit");
    non_negative(errors, spec, &SPEC, "failedJobsHistoryLimit");
}

fn time_zone(zone: &str, errors: &mut Errors) {
    let path = SPEC.field("timeZone");
    if zone.is_empty() {
        errors.push(invalid(&path, zone, "timeZone must be nil or non-empty string"));
        return;
    }
    let is_part = |part: &str| {
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+');
        !matches!(part, "." | "..") && !part.starts_with('-') && (1..=14).contains(&part.len()) && part.bytes().all(known)
    };
    if !zone.split('/').all(is_part) {
        errors.push(invalid(&path, zone, format!("unknown time zone {zone}")));
        return;
    }
    if zone.eq_ignore_ascii_case("local") {
        errors.push(invalid(&path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"));
    }
    if zone != "Local" && jiff::tz::TimeZone::get(zone).is_err() {
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
