//! The bell of a channel: tells waiting watchers that there is something to read. To wake a watcher costs far more than to hand it
//! one event more, so a bell that many listen to rests a little between two rings, and what happens meanwhile is read together. With
//! few listeners, or after a quiet moment, it rings at once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

/// The rest for each listener: about what it costs to serve one.
const REST_EACH: Duration = Duration::from_micros(15);

/// The longest rest: what a watcher may hear later than it could have.
const LONGEST_REST: Duration = Duration::from_millis(4);

/// So few listeners need no rest.
const FEW: usize = 16;

/// The bell.
pub(super) struct Bell {
    listeners: watch::Sender<()>,
    state: Mutex<State>,
    runtime: Option<Handle>,
}

#[derive(Default)]
struct State {
    rung: Option<Instant>,
    /// A ring is due at the end of the rest.
    due: bool,
}

#[derive(Debug, PartialEq)]
enum Ring {
    Now,
    /// At the end of the rest.
    At(Instant),
    /// With the one that is due.
    Together,
}

impl State {
    fn ring(&mut self, now: Instant, rest: Duration) -> Ring {
        match self.rung.map(|rung| rung + rest).filter(|end| *end > now) {
            None => {
                *self = State { rung: Some(now), due: false };
                Ring::Now
            }
            Some(_) if self.due => Ring::Together,
            Some(end) => {
                self.due = true;
                Ring::At(end)
            }
        }
    }
}

impl Bell {
    pub fn new() -> Arc<Self> {
        Arc::new(Bell { listeners: watch::channel(()).0, state: Mutex::default(), runtime: Handle::try_current().ok() })
    }

    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.listeners.subscribe()
    }

    /// Rings, now or at the end of the rest.
    pub fn ring(self: &Arc<Self>) {
        let (rest, Some(runtime)) = (rest(self.listeners.receiver_count()), &self.runtime) else { return self.ring_now() };
        if rest.is_zero() {
            return self.ring_now();
        }
        let ring = self.state.lock().ring(Instant::now(), rest);
        match ring {
            Ring::Now => self.ring_now(),
            Ring::Together => {}
            Ring::At(end) => {
                let bell = self.clone();
                runtime.spawn(async move {
                    tokio::time::sleep_until(end).await;
                    *bell.state.lock() = State { rung: Some(Instant::now()), due: false };
                    bell.ring_now();
                });
            }
        }
    }

    fn ring_now(&self) {
        self.listeners.send_replace(());
    }
}

fn rest(listeners: usize) -> Duration {
    if listeners <= FEW { Duration::ZERO } else { (REST_EACH * listeners as u32).min(LONGEST_REST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rests_between_rings_and_rings_once_for_all_that_happened_meanwhile() {
        let (start, rest) = (Instant::now(), Duration::from_millis(3));
        let mut state = State::default();
        assert_eq!(state.ring(start, rest), Ring::Now);
        assert_eq!(state.ring(start + rest / 3, rest), Ring::At(start + rest));
        assert_eq!(state.ring(start + rest / 2, rest), Ring::Together);
        state = State { rung: Some(start + rest), due: false };
        assert_eq!(state.ring(start + rest * 2, rest), Ring::Now);
    }

    #[tokio::test]
    async fn every_ring_is_heard_by_many_at_the_latest_after_the_rest() {
        let bell = Bell::new();
        let mut ears: Vec<_> = (0..FEW * 10).map(|_| bell.subscribe()).collect();
        for _ in 0..5 {
            bell.ring();
            for ear in &mut ears {
                ear.changed().await.expect("the bell is there");
            }
        }
    }

    #[tokio::test]
    async fn a_bell_with_few_listeners_never_rests() {
        let bell = Bell::new();
        let mut ear = bell.subscribe();
        for _ in 0..3 {
            bell.ring();
            assert!(ear.has_changed().expect("rings"));
            ear.mark_unchanged();
        }
    }
}
