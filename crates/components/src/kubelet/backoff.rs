//! The kubelet's back-off: ten seconds, doubling to five minutes, forgotten after ten quiet minutes.
//!
//! One per container for restarts and one per image for pulls. Plain arithmetic on times that are passed in.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock::later;

/// The first delay.
pub const INITIAL: Duration = Duration::from_secs(10);
/// The longest delay.
pub const MAX: Duration = Duration::from_secs(300);

/// How long to hold off something that keeps failing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    entry: Option<(Duration, Timestamp)>,
}

impl Backoff {
    fn current(&self, event: Timestamp) -> Option<Duration> {
        let (delay, updated) = self.entry?;
        // Something that went well for twice the longest delay starts afresh.
        (event <= later(updated, MAX * 2)).then_some(delay)
    }

    /// Until when something that failed at `event` is held off; `None` if it may be tried at once.
    #[must_use]
    pub fn until(&self, event: Timestamp, now: Timestamp) -> Option<(Timestamp, Duration)> {
        let delay = self.current(event)?;
        let until = later(event, delay);
        (until > now).then_some((until, delay))
    }

    /// Takes note of another try because of what failed at `event`: the next delay is longer.
    pub fn next(&mut self, event: Timestamp, now: Timestamp) -> Duration {
        let delay = self.current(event).map_or(INITIAL, |delay| (delay * 2).min(MAX));
        self.entry = Some((delay, now));
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    #[test]
    fn the_first_failure_is_tried_at_once_and_then_the_delay_doubles_to_five_minutes() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.until(at(0), at(0)), None);
        let mut now = 0;
        let mut delays = Vec::new();
        for _ in 0..8 {
            backoff.next(at(now), at(now));
            let (until, delay) = backoff.until(at(now), at(now)).unwrap();
            delays.push(delay.as_secs());
            now = until.as_second() - 1_000_000;
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn ten_quiet_minutes_forget_the_past() {
        let mut backoff = Backoff::default();
        backoff.next(at(0), at(0));
        backoff.next(at(10), at(10));
        assert_eq!(backoff.until(at(700), at(700)), None);
        assert_eq!(backoff.next(at(700), at(700)), INITIAL);
    }
}
