//! Where events go besides the archive, as a real server sends them: a file of JSON lines, or a webhook. Each sink has a queue and a
//! thread of its own, so that one that hangs holds up neither the requests nor the other.

pub(crate) mod attic;
pub mod log;
pub mod webhook;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::queue::Queue;

/// How many bytes may wait for a sink.
const MOST_BYTES: usize = 64 << 20;

/// What a sink did not manage.
#[derive(Default)]
pub struct Tally {
    /// Events for which there was no room.
    pub dropped: AtomicU64,
    /// Events that could not be written.
    pub errors: AtomicU64,
}

/// The recorder's end of a sink.
pub struct Outlet {
    /// `log` or `webhook`.
    pub name: &'static str,
    /// What it did not manage.
    pub tally: Arc<Tally>,
    queue: Arc<Queue<Bytes>>,
    pieces: Pieces,
    give_up: CancellationToken,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// How a sink wants its events.
#[derive(Clone, Copy, PartialEq)]
enum Pieces {
    /// As they were written together.
    Lines,
    /// One by one, each without its end.
    Events,
}

/// The sink's end: what it is given, and whether it should give up.
struct Inlet {
    queue: Arc<Queue<Bytes>>,
    tally: Arc<Tally>,
    give_up: CancellationToken,
}

impl Outlet {
    /// Starts a sink's thread, with room for so many pieces, of which `enough` make a batch.
    fn start(
        name: &'static str,
        pieces: Pieces,
        (most, enough): (usize, usize),
        run: impl FnOnce(Inlet) + Send + 'static,
    ) -> Result<Self, String> {
        let queue = Arc::new(Queue::new(most, MOST_BYTES, enough));
        let (tally, give_up) = (Arc::<Tally>::default(), CancellationToken::new());
        let inlet = Inlet { queue: queue.clone(), tally: tally.clone(), give_up: give_up.clone() };
        let thread = std::thread::Builder::new()
            .name(format!("audit-{name}"))
            .spawn(move || run(inlet))
            .map_err(|error| format!("cannot start the audit {name}: {error}"))?;
        Ok(Outlet { name, tally, queue, pieces, give_up, thread: Mutex::new(Some(thread)) })
    }

    /// Offers events, a line each; what does not fit is counted.
    pub fn offer(&self, lines: &Bytes) {
        let refused = |piece: Bytes| {
            let bytes = piece.len();
            !self.queue.push(piece, bytes)
        };
        let dropped = match self.pieces {
            Pieces::Lines if refused(lines.clone()) => ends(lines).count(),
            Pieces::Lines => 0,
            Pieces::Events => {
                let mut start = 0;
                ends(lines).filter(|end| refused(lines.slice(std::mem::replace(&mut start, end + 1)..*end))).count()
            }
        };
        self.tally.dropped.fetch_add(dropped as u64, Ordering::Relaxed);
    }

    /// Waits until everything that was taken so far has been dealt with.
    pub async fn drained(&self) {
        self.queue.drained().await;
    }

    /// Takes no more, and lets what is there be written until `end`.
    pub fn stop(&self, end: Instant) {
        self.queue.close();
        let Some(thread) = self.thread.lock().take() else { return };
        while !thread.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.give_up.cancel();
    }

    /// Takes no more, and gives up what is there.
    pub fn close(&self) {
        self.queue.close();
        self.give_up.cancel();
    }
}

/// Where lines end.
fn ends(lines: &[u8]) -> memchr::Memchr<'_> {
    memchr::memchr_iter(b'\n', lines)
}
