//! What a mock container has printed: kept in memory, bounded, followed without polling.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::super::LogLine;

/// How many lines and bytes of one container are kept; older ones go first.
const MOST_LINES: usize = 10_000;
const MOST_BYTES: usize = 1 << 20;

/// The log of one container.
#[derive(Debug)]
pub struct Log {
    lines: Mutex<Lines>,
    /// How many lines there have been, and whether there will be more.
    progress: watch::Sender<(u64, bool)>,
}

#[derive(Debug, Default)]
struct Lines {
    kept: VecDeque<LogLine>,
    bytes: usize,
    dropped: u64,
}

impl Default for Log {
    fn default() -> Self {
        Self { lines: Mutex::default(), progress: watch::Sender::new((0, false)) }
    }
}

impl Log {
    /// Adds a line.
    pub fn push(&self, line: LogLine) {
        let mut lines = self.lines.lock();
        lines.bytes += line.text.len();
        lines.kept.push_back(line);
        while lines.kept.len() > MOST_LINES || lines.bytes > MOST_BYTES {
            let Some(oldest) = lines.kept.pop_front() else { break };
            lines.bytes -= oldest.text.len();
            lines.dropped += 1;
        }
        drop(lines);
        self.progress.send_modify(|(count, _)| *count += 1);
    }

    /// No more lines will come.
    pub fn end(&self) {
        self.progress.send_modify(|(_, ended)| *ended = true);
    }

    /// The line with this number, or the oldest after it.
    fn at(&self, number: u64) -> Option<(u64, LogLine)> {
        let lines = self.lines.lock();
        let number = number.max(lines.dropped);
        let index = usize::try_from(number - lines.dropped).ok()?;
        lines.kept.get(index).map(|line| (number, line.clone()))
    }

    /// All lines so far, and with `follow` all that come until the end.
    pub fn read(self: Arc<Self>, follow: bool) -> BoxStream<'static, LogLine> {
        let progress = self.progress.subscribe();
        futures::stream::unfold((self, progress, 0u64), move |(log, mut progress, next)| async move {
            loop {
                let ended = progress.borrow_and_update().1;
                if let Some((number, line)) = log.at(next) {
                    return Some((line, (log, progress, number + 1)));
                }
                if !follow || ended || progress.changed().await.is_err() {
                    return None;
                }
            }
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn line(text: &str) -> LogLine {
        LogLine { time: Timestamp::UNIX_EPOCH, stderr: false, text: text.into() }
    }

    #[tokio::test]
    async fn a_follower_gets_what_comes_later_and_ends_with_the_container() {
        let log = Arc::new(Log::default());
        log.push(line("a"));
        let mut reader = log.clone().read(true);
        assert_eq!(reader.next().await.unwrap().text, "a");
        log.push(line("b"));
        log.end();
        assert_eq!(reader.next().await.unwrap().text, "b");
        assert!(reader.next().await.is_none());
    }

    #[tokio::test]
    async fn the_log_is_bounded_and_keeps_the_newest() {
        let log = Arc::new(Log::default());
        for number in 0..MOST_LINES + 5 {
            log.push(line(&number.to_string()));
        }
        let lines: Vec<LogLine> = log.read(false).collect().await;
        assert_eq!((lines.len(), lines[0].text.as_str()), (MOST_LINES, "5"));
    }
}
