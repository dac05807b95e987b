//! Timestamps as a typed server reads and writes them: RFC 3339 in, UTC out, to the second or to the microsecond; with
//! the words it has for a text that is no time.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// `2026-11-16T00:01:40Z`: what `Time` is written as.
///
/// # Errors
/// The sentence of a real server, if the text is not a time.
pub fn normalize(text: &str) -> Result<String, String> {
    let (year, month, day, hour, minute, second) = fields(parse(text)?);
    Ok(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"))
}

/// `2026-11-16T00:01:40.000000Z`: what `MicroTime` is written as.
///
/// # Errors
/// The sentence of a real server, if the text is not a time.
pub fn normalize_micro(text: &str) -> Result<String, String> {
    let time = parse_layout(text, MICRO_LAYOUT)?;
    let (year, month, day, hour, minute, second) = fields(time);
    let micros = time.subsec_nanosecond().unsigned_abs() / 1000;
    Ok(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z"))
}

fn fields(time: Timestamp) -> (i16, i8, i8, i8, i8, i8) {
    let time = time.to_zoned(TimeZone::UTC);
    (time.year(), time.month(), time.day(), time.hour(), time.minute(), time.second())
}

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
/// Here the six digits must be there.
const MICRO_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Reads RFC 3339, and nothing but that.
///
/// # Errors
/// The sentence of a real server, if the text is not a time.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    parse_layout(text, LAYOUT)
}

fn parse_layout(text: &str, layout: &str) -> Result<Timestamp, String> {
    let mut rest = text;
    let fail = |rest: &str, part: &str| format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}");
    for (part, digits) in
        [("2006", 4), ("-", 0), ("01", 2), ("-", 0), ("02", 2), ("T", 0), ("15", 2), (":", 0), ("04", 2), (":", 0), ("05", 2)]
    {
        rest = match digits {
            0 => rest.strip_prefix(part).ok_or_else(|| fail(rest, part))?,
            _ if rest.len() >= digits && rest.as_bytes()[..digits].iter().all(u8::is_ascii_digit) => &rest[digits..],
            _ => return Err(fail(rest, part)),
        };
    }
    let digits = rest.strip_prefix(['.', ',']).map_or(0, |fraction| fraction.bytes().take_while(u8::is_ascii_digit).count());
    rest = match digits {
        0..6 if layout == MICRO_LAYOUT => return Err(fail(rest, ".000000")),
        6.. if layout == MICRO_LAYOUT => &rest[7..],
        0 => rest,
        digits => &rest[digits + 1..],
    };
    let offset =
        rest == "Z" || matches!(rest.as_bytes(), [b'+' | b'-', a, b, b':', c, d] if [a, b, c, d].iter().all(|b| b.is_ascii_digit()));
    if !offset {
        return Err(match rest.strip_prefix('Z') {
            Some(extra) => format!("parsing time {text:?}: extra text: {extra:?}"),
            None => fail(rest, "Z07:00"),
        });
    }
    text.parse().map_err(|_| format!("parsing time {text:?}: day out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_given_back_in_utc_without_what_is_too_fine() {
        assert_eq!(normalize("2026-11-16T02:01:40+02:00").as_deref(), Ok("2026-11-16T00:01:40Z"));
        assert_eq!(normalize("2026-11-16T00:01:40.123456789Z").as_deref(), Ok("2026-11-16T00:01:40Z"));
        assert_eq!(normalize_micro("2026-11-16T00:01:40.123456Z").as_deref(), Ok("2026-11-16T00:01:40.123456Z"));
        assert!(normalize_micro("2026-11-16T00:01:40Z").expect_err("refused").ends_with(r#"cannot parse "Z" as ".000000""#));
    }

    #[test]
    fn the_first_part_that_cannot_be_read_is_named() {
        assert_eq!(normalize("x").expect_err("refused"), r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#);
        assert_eq!(
            normalize("2026-11-16").expect_err("refused"),
            r#"parsing time "2026-11-16" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#
        );
        assert!(normalize("2026-13-40T00:00:00Z").is_err());
        assert!(normalize("2026-11-16T00:00:00Zz").expect_err("refused").contains("extra text"));
        assert!(normalize("éé26-11-16T00:00:00Z").is_err());
    }
}
