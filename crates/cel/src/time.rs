//! Timestamps and durations: their range, their text, and the parts of a date in a time zone. Arithmetic with
//! the language's error texts is in [`crate::operations`].

use jiff::tz::TimeZone;

/// A point in time between the years 1 and 9999, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    seconds: i64,
    nanos: u32,
}

const MIN_SECONDS: i64 = -62_135_596_800;
const MAX_SECONDS: i64 = 253_402_300_799;
const NANOS_PER_SECOND: i128 = 1_000_000_000;

impl Timestamp {
    /// A timestamp from seconds since 1970, if it is in range.
    pub fn from_seconds(seconds: i64) -> Option<Timestamp> {
        (MIN_SECONDS..=MAX_SECONDS).contains(&seconds).then_some(Timestamp { seconds, nanos: 0 })
    }

    /// A timestamp from nanoseconds since 1970, if it is in range.
    pub fn from_nanos(nanos: i128) -> Option<Timestamp> {
        let seconds = i64::try_from(nanos.div_euclid(NANOS_PER_SECOND)).ok()?;
        let rest = nanos.rem_euclid(NANOS_PER_SECOND) as u32;
        Timestamp::from_seconds(seconds).map(|t| Timestamp { nanos: rest, ..t })
    }

    /// Nanoseconds since 1970.
    pub fn nanos(self) -> i128 {
        i128::from(self.seconds) * NANOS_PER_SECOND + i128::from(self.nanos)
    }

    /// Whole seconds since 1970.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Reads RFC 3339, such as `2026-01-02T03:04:05.678Z`.
    pub fn parse(text: &str) -> Option<Timestamp> {
        let b = text.as_bytes();
        let number = |from: usize, to: usize| -> Option<i64> {
            let part = b.get(from..to)?;
            part.iter().all(u8::is_ascii_digit).then_some(())?;
            text.get(from..to)?.parse().ok()
        };
        let separator = |at: usize, c: u8| (b.get(at) == Some(&c)).then_some(());
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        separator(4, b'-').and(separator(7, b'-')).and(separator(10, b'T'))?;
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        separator(13, b':').and(separator(16, b':'))?;
        let valid_day = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
        if !valid_day || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut at = 19;
        let mut nanos = 0u32;
        if b.get(at) == Some(&b'.') {
            let digits = b[at + 1..].iter().take_while(|c| c.is_ascii_digit()).count();
            if digits == 0 {
                return None;
            }
            let mut scale = 100_000_000;
            for c in &b[at + 1..at + 1 + digits.min(9)] {
                nanos += u32::from(c - b'0') * scale;
                scale /= 10;
            }
            at += 1 + digits;
        }
        let offset = match *b.get(at)? {
            b'Z' if b.len() == at + 1 => 0,
            sign @ (b'+' | b'-') if b.len() == at + 6 => {
                let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
                separator(at + 3, b':')?;
                if hours > 23 || minutes > 59 {
                    return None;
                }
                let seconds = hours * 3_600 + minutes * 60;
                if sign == b'-' { -seconds } else { seconds }
            }
            _ => return None,
        };
        let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset;
        Timestamp::from_seconds(seconds).map(|t| Timestamp { nanos, ..t })
    }

    /// The parts of the date and time in a zone: a name, or an offset such as `-08:30`.
    pub(crate) fn parts(self, zone: Option<&str>) -> Result<Parts, String> {
        let offset = match zone {
            None | Some("" | "UTC") => 0,
            Some(zone) => match zone.split_once(':') {
                Some((hours, minutes)) => fixed_offset(zone, hours, minutes)?,
                None => self.named_offset(zone)?,
            },
        };
        let local = self.seconds + offset;
        let days = local.div_euclid(86_400);
        let second_of_day = local.rem_euclid(86_400);
        let (year, month, day) = civil_from_days(days);
        Ok(Parts {
            year,
            month,
            day,
            day_of_year: days - days_from_civil(year, 1, 1),
            day_of_week: (days + 4).rem_euclid(7),
            hour: second_of_day / 3_600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
            milliseconds: i64::from(self.nanos / 1_000_000),
        })
    }

    fn named_offset(self, zone: &str) -> Result<i64, String> {
        let unknown = |_| format!("unknown time zone {zone}");
        let zone = TimeZone::get(zone).map_err(unknown)?;
        let at = jiff::Timestamp::from_second(self.seconds).map_err(|e| e.to_string())?;
        Ok(i64::from(zone.to_offset(at).seconds()))
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let days = self.seconds.div_euclid(86_400);
        let second = self.seconds.rem_euclid(86_400);
        let (year, month, day) = civil_from_days(days);
        let (h, m, s) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}")?;
        if self.nanos > 0 {
            let fraction = format!("{:09}", self.nanos);
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// A date and a time of day. Months, days and weekdays count from one, one and zero.
pub(crate) struct Parts {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub day_of_year: i64,
    pub day_of_week: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    pub milliseconds: i64,
}

fn fixed_offset(zone: &str, hours: &str, minutes: &str) -> Result<i64, String> {
    let number = |text: &str| text.parse::<i64>().map_err(|_| format!("strconv.Atoi: parsing {text:?}: invalid syntax"));
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    if !(0..=59).contains(&minutes) {
        return Err(format!("timezone offset minutes out of range [0, 59]: {zone}"));
    }
    if hours.abs() > 1_000 {
        return Err(format!("timezone offset hours out of range: {zone}"));
    }
    let minutes = if zone.starts_with('-') { hours * 60 - minutes } else { hours * 60 + minutes };
    Ok(minutes * 60)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(crate) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01. Counts years from March, so that the leap day is the last of its year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Reads a duration such as `-1h2.5m` into nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let whole = &rest[..digits];
        rest = &rest[digits..];
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            fraction = &after[..digits];
            rest = &after[digits..];
        }
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let unit_len = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
        let unit: i128 = match &rest[..unit_len] {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => NANOS_PER_SECOND,
            "m" => 60 * NANOS_PER_SECOND,
            "h" => 3_600 * NANOS_PER_SECOND,
            _ => return None,
        };
        rest = &rest[unit_len..];
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.into() };
        total += whole * unit;
        if !fraction.is_empty() {
            let fraction = &fraction[..fraction.len().min(18)];
            let scale = 10i128.pow(fraction.len() as u32);
            total += fraction.parse::<i128>().ok()? * unit / scale;
        }
        if total > i128::from(i64::MAX) + i128::from(negative) {
            return None;
        }
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// A duration in seconds, such as `1.5s`.
pub(crate) fn format_duration(nanos: i64) -> String {
    let seconds = (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9;
    format!("{seconds}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_survive_their_text() {
        for text in ["2009-02-13T23:31:30Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2024-02-29T01:02:03.5Z"] {
            assert_eq!(Timestamp::parse(text).map(|t| t.to_string()).as_deref(), Some(text));
        }
        assert_eq!(Timestamp::parse("2009-02-13T23:31:30+01:30").map(Timestamp::seconds), Some(1_234_562_490));
        for bad in ["0000-01-01T00:00:00Z", "2023-02-29T00:00:00Z", "2023-01-01", "2023-01-01T00:00:00", "2023-01-01t00:00:00z"] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn parts_follow_the_zone() {
        let t = Timestamp::parse("2009-02-13T23:31:30.25Z").unwrap();
        let p = t.parts(Some("Asia/Kathmandu")).unwrap();
        assert_eq!((p.day, p.hour, p.minute, p.day_of_week, p.milliseconds), (14, 5, 16, 6, 250));
        let p = t.parts(Some("-02:30")).unwrap();
        assert_eq!((p.hour, p.minute, p.day_of_year, p.year, p.month, p.second), (21, 1, 43, 2009, 2, 30));
        assert!(t.parts(Some("Nowhere/Land")).is_err());
        assert!(t.parts(Some("01:70")).is_err());
    }

    #[test]
    fn durations_are_read_and_written_as_in_go() {
        assert_eq!(parse_duration("1h2m3.5s"), Some(3_723_500_000_000));
        assert_eq!(parse_duration("-1.5ms"), Some(-1_500_000));
        assert_eq!(parse_duration("0"), Some(0));
        for bad in ["", "1", "s", "1x", "320000000000s", "-", "."] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
        assert_eq!(format_duration(1_500_000_000), "1.5s");
        assert_eq!(format_duration(7_200_000_000_000), "7200s");
        assert_eq!(format_duration(-1), "-0.000000001s");
    }
}
