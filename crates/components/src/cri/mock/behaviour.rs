//! How a mock container behaves, as its Pod's annotations ask for.
//!
//! Every annotation is `mock.usher.dev/<setting>` for all containers of the Pod or `mock.usher.dev/<container>.<setting>` for one:
//!
//! | setting | value | meaning |
//! |---|---|---|
//! | `pull-time` | duration | how long fetching the image takes (default 0) |
//! | `pull-error` | text, or `true` | fetching the image fails with this message |
//! | `start-delay` | duration | how long starting the container takes |
//! | `start-error` | text | starting the container fails with this message |
//! | `run-time` | duration | it ends by itself after this long (default exit code 0) |
//! | `crash-after` | duration | the same, but the default exit code is 1 |
//! | `exit-code` | number | the exit code when it ends by itself; alone, it ends at once |
//! | `exit-reason` | text | such as `OOMKilled` |
//! | `ready-after` | duration | readiness and startup probes fail before that |
//! | `live-for` | duration | liveness probes fail after that |
//! | `stop-time` | duration | how long it takes to stop when asked to |
//! | `ignore-sigterm` | `true` | it must be killed |
//! | `log-lines` | text | what it prints when it starts |
//!
//! Without any of these the container's command decides, as far as the mock understands it (see `script`).

use std::collections::HashMap;
use std::time::Duration;

/// What every annotation starts with.
pub const PREFIX: &str = "mock.usher.dev/";

/// What the annotations say about one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    pub pull_time: Duration,
    pub pull_error: Option<String>,
    pub start_delay: Duration,
    pub start_error: Option<String>,
    pub run_time: Option<Duration>,
    pub exit_code: Option<i32>,
    pub exit_reason: Option<String>,
    pub ready_after: Duration,
    pub live_for: Option<Duration>,
    pub stop_time: Duration,
    pub ignore_sigterm: bool,
    pub log_lines: Vec<String>,
}

impl Behaviour {
    /// Reads the annotations of a Pod for one of its containers (empty for what concerns the image alone).
    #[must_use]
    pub fn of(annotations: &HashMap<String, String>, container: &str) -> Self {
        let get = |setting: &str| {
            annotations
                .get(&format!("{PREFIX}{container}.{setting}"))
                .or_else(|| annotations.get(&format!("{PREFIX}{setting}")))
                .map(String::as_str)
        };
        let duration = |setting| get(setting).and_then(parse_duration);
        let crash_after = duration("crash-after");
        let exit_code = get("exit-code").and_then(|code| code.trim().parse().ok());
        // An exit code without a time means: at once.
        let run_time = duration("run-time").or(crash_after).or(exit_code.map(|_| Duration::ZERO));
        Self {
            pull_time: duration("pull-time").unwrap_or_default(),
            pull_error: get("pull-error").filter(|text| *text != "false").map(str::to_owned),
            start_delay: duration("start-delay").unwrap_or_default(),
            start_error: get("start-error").map(str::to_owned),
            run_time,
            exit_code: exit_code.or(crash_after.map(|_| 1)),
            exit_reason: get("exit-reason").map(str::to_owned),
            ready_after: duration("ready-after").unwrap_or_default(),
            live_for: duration("live-for"),
            stop_time: duration("stop-time").unwrap_or_default(),
            ignore_sigterm: get("ignore-sigterm") == Some("true"),
            log_lines: get("log-lines").map(|text| text.lines().map(str::to_owned).collect()).unwrap_or_default(),
        }
    }
}

/// Reads `1h2m3.5s`, `500ms` or a plain number of seconds.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number * unit).ok()?)?;
        rest = &rest[end..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behaviour(pairs: &[(&str, &str)], container: &str) -> Behaviour {
        Behaviour::of(&pairs.iter().map(|(k, v)| (format!("{PREFIX}{k}"), (*v).to_owned())).collect(), container)
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        assert_eq!(parse_duration("1h2m3.5s"), Some(Duration::from_millis(3_723_500)));
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("2"), Some(Duration::from_secs(2)));
        for text in ["", "s", "1x", "-1", "1h2"] {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_containers_own_setting_wins_over_the_pods() {
        let pairs = [("exit-code", "1"), ("side.exit-code", "7")];
        assert_eq!(behaviour(&pairs, "main").exit_code, Some(1));
        assert_eq!(behaviour(&pairs, "side").exit_code, Some(7));
    }

    #[test]
    fn an_exit_code_alone_means_at_once_and_a_crash_means_one() {
        assert_eq!(behaviour(&[("exit-code", "3")], "c").run_time, Some(Duration::ZERO));
        let crash = behaviour(&[("crash-after", "5s")], "c");
        assert_eq!((crash.run_time, crash.exit_code), (Some(Duration::from_secs(5)), Some(1)));
        assert_eq!(behaviour(&[], "c").run_time, None);
    }
}
