//! Requests that are not over yet. A server that stops waits for them before it closes its records, so that whatever it has answered is
//! told; and what comes later is refused, because nobody would tell it.

use std::time::Duration;

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// How long a stopping server waits for answers: as long as a connection has for its last ones.
const ANSWERS: Duration = Duration::from_secs(5);

/// How long for whoever reads a stream to see that it has ended; somebody who looks away sees it never.
const STREAMS: Duration = Duration::from_millis(250);

/// The requests that are not over yet.
#[derive(Debug, Default)]
pub struct UnderWay {
    unanswered: TaskTracker,
    read: TaskTracker,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Token {
    _one: TaskTrackerToken,
}

impl UnderWay {
    /// One that has arrived; none where records are closed already.
    pub fn begin(&self) -> Option<Token> {
        let token = Token { _one: self.unanswered.token() };
        // In this order: whoever closes sees either this one, or no other.
        (!self.read.is_closed()).then_some(token)
    }

    /// One that has been answered and is over when the answer has been read.
    pub fn answered(&self) -> Token {
        Token { _one: self.read.token() }
    }

    /// Waits until all of them are over, or for as long as it is worth it; then there are no more.
    pub async fn end(&self) {
        self.end_within(ANSWERS, STREAMS).await;
    }

    async fn end_within(&self, answers: Duration, streams: Duration) {
        self.unanswered.close();
        let _ = tokio::time::timeout(answers, self.unanswered.wait()).await;
        self.read.close();
        // Those that came in between have a moment too.
        let all = async { tokio::join!(self.unanswered.wait(), self.read.wait()) };
        let _ = tokio::time::timeout(streams, all).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_end_waits_for_every_answer_and_for_its_reader() {
        let requests = UnderWay::default();
        let (first, stream) = (requests.begin().unwrap(), requests.answered());
        let mut end = Box::pin(requests.end_within(Duration::MAX, Duration::MAX));
        let mut is_over = || end.as_mut().now_or_never().is_some();
        assert!(!is_over());
        let second = requests.begin().unwrap();
        drop(first);
        assert!(!is_over(), "there is one more");
        drop(second);
        assert!(!is_over(), "and somebody reads");
        assert!(requests.begin().is_none(), "nobody would tell it");
        drop(stream);
        assert!(is_over());
    }

    #[tokio::test]
    async fn what_is_never_answered_or_read_does_not_hold_up_the_end_for_ever() {
        let requests = UnderWay::default();
        let _stuck = (requests.begin().unwrap(), requests.answered());
        requests.end_within(Duration::from_millis(1), Duration::from_millis(1)).await;
    }
}
