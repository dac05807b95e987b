//! Cron schedules: five fields or a macro, and when they fall next in a time zone.

use std::time::Duration;

use jiff::{
    Timestamp, ToSpan,
    civil::{Date, DateTime, Time},
    tz::TimeZone,
};

use crate::clock::later;

/// A parsed schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// At the times that all fields allow.
    Fields(Fields),
    /// After every such time.
    Every(Duration),
}

/// The fields, as sets of bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    any_day: bool,
    any_weekday: bool,
}

/// Why a schedule cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Not five fields.
    #[error("expected exactly 5 fields, found {0}: {1:?}")]
    Fields(usize, String),
    /// A field that is no list of numbers, ranges and steps.
    #[error("failed to parse {0:?}")]
    Field(String),
    /// A macro that nobody knows.
    #[error("unrecognized descriptor: {0}")]
    Macro(String),
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl std::str::FromStr for Schedule {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let text = text.trim();
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => match text.strip_prefix("@every ") {
                Some(period) => return go_duration(period).map(Schedule::Every).ok_or_else(|| Unreadable::Field(text.into())),
                None if text.starts_with('@') => return Err(Unreadable::Macro(text.into())),
                None => text,
            },
        };
        let parts: Vec<_> = fields.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = parts[..] else {
            return Err(Unreadable::Fields(parts.len(), text.into()));
        };
        let starred = |field: &str| field.starts_with('*') || field.starts_with('?');
        Ok(Schedule::Fields(Fields {
            minutes: field(minute, 0, 59, &[])?,
            hours: field(hour, 0, 23, &[])?,
            days: field(day, 1, 31, &[])?,
            months: field(month, 1, 12, &MONTHS)?,
            weekdays: field(weekday, 0, 6, &WEEKDAYS)?,
            any_day: starred(day),
            any_weekday: starred(weekday),
        }))
    }
}

/// One field: numbers, names, ranges and steps, separated by commas.
fn field(text: &str, least: u32, most: u32, names: &[&str]) -> Result<u64, Unreadable> {
    let bad = || Unreadable::Field(text.to_owned());
    let number = |word: &str| -> Option<u32> {
        let word = word.to_ascii_lowercase();
        let named = names.iter().position(|name| *name == word).and_then(|at| u32::try_from(at).ok()).map(|at| at + least);
        named.or_else(|| word.parse().ok())
    };
    let mut bits = 0_u64;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse::<u32>().ok().filter(|step| *step > 0).ok_or_else(bad)?),
            None => (part, 1),
        };
        let (first, last) = match range {
            "*" | "?" => (least, most),
            _ => match range.split_once('-') {
                Some((first, last)) => (number(first).ok_or_else(bad)?, number(last).ok_or_else(bad)?),
                None => {
                    let first = number(range).ok_or_else(bad)?;
                    (first, if part.contains('/') { most } else { first })
                }
            },
        };
        if first < least || last > most || first > last {
            return Err(bad());
        }
        (first..=last).step_by(usize::try_from(step).unwrap_or(1)).for_each(|value| bits |= 1 << value);
    }
    Ok(bits)
}

/// Durations as Go writes them: `1h30m`, `90s`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value: f64 = rest[..end].parse().ok()?;
        let unit = rest[end..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| at + end);
        let seconds = match &rest[end..unit] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(value * seconds).ok()?)?;
        rest = &rest[unit..];
    }
    // Less than a second makes no sense for what is looked at every second.
    (total >= Duration::from_secs(1)).then(|| Duration::from_secs(total.as_secs()))
}

impl Fields {
    fn has_day(&self, date: Date) -> bool {
        let bit = |set: u64, value: i8| u32::try_from(value).is_ok_and(|value| set & (1 << value) != 0);
        let day = bit(self.days, date.day());
        let weekday = bit(self.weekdays, date.weekday().to_sunday_zero_offset());
        // If both are restricted, either will do.
        if self.any_day || self.any_weekday { day && weekday } else { day || weekday }
    }

    /// The first time on the wall that is later than `from`, within the next years.
    fn next(&self, from: DateTime) -> Option<DateTime> {
        let bit = |set: u64, value: i8| u32::try_from(value).is_ok_and(|value| set & (1 << value) != 0);
        let start = from.checked_add(1.minute()).ok()?.with().second(0).subsec_nanosecond(0).build().ok()?;
        let mut date = start.date();
        let mut earliest = start.time();
        let end = date.checked_add(5.years()).ok()?;
        while date < end {
            if !bit(self.months, date.month()) {
                date = date.first_of_month().checked_add(1.month()).ok()?;
                earliest = Time::midnight();
                continue;
            }
            if self.has_day(date) {
                let hours = (earliest.hour()..24).filter(|hour| bit(self.hours, *hour));
                for hour in hours {
                    let first = if hour == earliest.hour() { earliest.minute() } else { 0 };
                    if let Some(minute) = (first..60).find(|minute| bit(self.minutes, *minute)) {
                        return Some(date.at(hour, minute, 0, 0));
                    }
                }
            }
            date = date.tomorrow().ok()?;
            earliest = Time::midnight();
        }
        None
    }
}

impl Schedule {
    /// The first time after `time`.
    pub fn next(&self, time: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Schedule::Every(period) => {
                let whole = Timestamp::from_second(time.as_second()).ok()?;
                Some(later(whole, *period))
            }
            Schedule::Fields(fields) => {
                let mut wall = zone.to_datetime(time);
                // A time that the wall clock skips is moved forward and may then not be later than `time`.
                for _ in 0..4 {
                    wall = fields.next(wall)?;
                    let at = zone.to_timestamp(wall).ok()?;
                    if at > time {
                        return Some(at);
                    }
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &str, from: &str) -> String {
        let schedule: Schedule = schedule.parse().unwrap();
        schedule.next(from.parse().unwrap(), &TimeZone::UTC).unwrap().to_string()
    }

    #[test]
    fn schedules_fall_where_they_should() {
        let from = "2030-01-01T10:07:30Z"; // a Tuesday
        assert_eq!(next("* * * * *", from), "2030-01-01T10:08:00Z");
        assert_eq!(next("*/15 * * * *", from), "2030-01-01T10:15:00Z");
        assert_eq!(next("0 9-17 * * MON-FRI", from), "2030-01-01T11:00:00Z");
        assert_eq!(next("30 4 1 * *", from), "2030-02-01T04:30:00Z");
        assert_eq!(next("0 0 29 2 *", from), "2032-02-29T00:00:00Z");
        assert_eq!(next("0 0 13 * FRI", from), "2030-01-04T00:00:00Z");
        assert_eq!(next("@hourly", from), "2030-01-01T11:00:00Z");
        assert_eq!(next("@every 1h30m", from), "2030-01-01T11:37:30Z");
        assert_eq!(next("5/20 * * * *", from), "2030-01-01T10:25:00Z");
    }

    #[test]
    fn a_time_zone_moves_the_wall_clock() {
        let Ok(zone) = TimeZone::get("Europe/Berlin") else { return };
        let schedule: Schedule = "0 9 * * *".parse().unwrap();
        let at = |from: &str| schedule.next(from.parse().unwrap(), &zone).unwrap().to_string();
        assert_eq!(at("2030-01-01T10:00:00Z"), "2030-01-02T08:00:00Z");
        assert_eq!(at("2030-07-01T10:00:00Z"), "2030-07-02T07:00:00Z");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "* * * *", "61 * * * *", "* * * 13 *", "a * * * *", "*/0 * * * *", "5-1 * * * *", "@often", "* * 0 * *"] {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
    }
}
