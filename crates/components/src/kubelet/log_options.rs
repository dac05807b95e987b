//! What a reader of a log asks for: which lines, how many, in what form. Pure.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};

use crate::cri::LogLine;

/// The query of a log request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on with what is printed from now on.
    pub follow: bool,
    /// The run before the current one.
    pub previous: bool,
    /// Only the last so many lines.
    pub tail_lines: Option<usize>,
    /// Only lines at most so many seconds old.
    pub since_seconds: Option<i64>,
    /// Only lines from this time on.
    pub since_time: Option<Timestamp>,
    /// Each line with its time.
    pub timestamps: bool,
    /// At most so many bytes.
    pub limit_bytes: Option<usize>,
    /// `Stdout` or `Stderr` alone: whether standard error.
    pub only_stderr: Option<bool>,
}

/// Reads `%3A` and `+`.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match (first, tail) {
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                bytes.push(hex(*high).unwrap_or_default() * 16 + hex(*low).unwrap_or_default());
                rest = after;
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl LogOptions {
    /// Reads a query string; the error is for the client.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = decode(value);
            let bad = || format!("Invalid value: \"{value}\" for {key}");
            let flag = || value.parse::<bool>().or(if value == "1" { Ok(true) } else { Err(()) }).map_err(|()| bad());
            let number = || value.parse::<usize>().map_err(|_| bad());
            match key {
                "follow" => options.follow = flag()?,
                "previous" => options.previous = flag()?,
                "timestamps" => options.timestamps = flag()?,
                "tailLines" => options.tail_lines = Some(number()?),
                "limitBytes" => options.limit_bytes = Some(number()?),
                "sinceSeconds" => options.since_seconds = Some(value.parse().map_err(|_| bad())?),
                "sinceTime" => options.since_time = Some(value.parse().map_err(|_| bad())?),
                "stream" => {
                    options.only_stderr = match value.as_str() {
                        "Stdout" => Some(false),
                        "Stderr" => Some(true),
                        _ => None,
                    }
                }
                _ => {}
            }
        }
        Ok(options)
    }

    /// Whether the reader wants a line.
    #[must_use]
    pub fn wants(&self, line: &LogLine, now: Timestamp) -> bool {
        let since = self.since_seconds.map(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN));
        since.is_none_or(|since| line.time >= since)
            && self.since_time.is_none_or(|since| line.time >= since)
            && self.only_stderr.is_none_or(|stderr| line.stderr == stderr)
    }

    /// A line as bytes, cut to what is left of the limit. Nothing when nothing is left.
    #[must_use]
    pub fn render(&self, line: &LogLine, left: &mut Option<usize>) -> Bytes {
        let mut text = if self.timestamps { format!("{:.9} {}\n", line.time, line.text) } else { format!("{}\n", line.text) }.into_bytes();
        if let Some(left) = left {
            text.truncate(*left);
            *left -= text.len();
        }
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: i64, text: &str) -> LogLine {
        LogLine { time: Timestamp::from_second(second).unwrap(), stderr: false, text: text.into() }
    }

    #[test]
    fn a_query_is_read() {
        let options = LogOptions::parse("follow=true&tailLines=5&sinceTime=2026-01-02T03%3A04%3A05Z&container=c&timestamps=1").unwrap();
        assert_eq!((options.follow, options.tail_lines, options.timestamps), (true, Some(5), true));
        assert_eq!(options.since_time, "2026-01-02T03:04:05Z".parse().ok());
        assert!(LogOptions::parse("tailLines=-1").is_err());
        assert_eq!(LogOptions::parse(""), Ok(LogOptions::default()));
    }

    #[test]
    fn old_lines_are_left_out() {
        let options = LogOptions { since_seconds: Some(10), ..LogOptions::default() };
        let now = Timestamp::from_second(100).unwrap();
        assert!(options.wants(&line(90, ""), now));
        assert!(!options.wants(&line(89, ""), now));
    }

    #[test]
    fn lines_carry_times_and_end_at_the_limit() {
        let options = LogOptions { timestamps: true, ..LogOptions::default() };
        assert_eq!(options.render(&line(0, "x"), &mut None), "1970-01-01T00:00:00.000000000Z x\n");
        let mut left = Some(4);
        assert_eq!(LogOptions::default().render(&line(0, "abc"), &mut left), "abc\n");
        assert!(LogOptions::default().render(&line(0, "abc"), &mut left).is_empty());
    }
}
