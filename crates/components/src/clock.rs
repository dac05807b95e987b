//! The clock of every component: what time it is, and how to wait.
//!
//! Nothing in this crate asks the operating system for the time or sleeps by itself. A [`Clock`] is either the
//! system's, or a virtual one that runs along with the system and can be moved forward by hand, so that a test (or
//! `usher clock advance 1h`) meets a CronJob, a lease or a back-off without waiting for it.
//!
//! A virtual clock is moved through the waiting deadlines in order and not past them all at once: whoever renews a
//! lease every ten seconds gets to do so on the way, as it would have if the hour had really gone by.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// How much of an advance may be jumped over in one step, at most. Shorter than any lease is renewed, so that none
/// expires because the steps were too coarse.
const LONGEST_STEP: Duration = Duration::from_secs(5);

/// Into how many steps an advance is cut at most, as far as [`LONGEST_STEP`] allows.
const STEPS: u32 = 1000;

/// How long an advance waits for work that a step has set off.
const PATIENCE: Duration = Duration::from_millis(200);

/// Tells the time and waits for it. Clones are the same clock.
#[derive(Clone)]
pub struct Clock {
    ahead: Option<Arc<Virtual>>,
    work: Arc<Work>,
}

#[derive(Default)]
struct Virtual {
    state: Mutex<State>,
    advancing: tokio::sync::Mutex<()>,
}

/// Who works at the moment.
#[derive(Default)]
struct Work {
    busy: Hands,
    placing: Hands,
}

/// How many are at it, and a bell for when nobody is.
#[derive(Default)]
struct Hands {
    number: AtomicUsize,
    rest: tokio::sync::Notify,
}

impl Hands {
    fn take(&self) {
        self.number.fetch_add(1, Ordering::AcqRel);
    }

    fn leave(&self) {
        if self.number.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.rest.notify_waiters();
        }
    }

    fn at_rest(&self) -> bool {
        self.number.load(Ordering::Acquire) == 0
    }

    async fn rest(&self) {
        loop {
            // Registered before the look, so that a rest between the two is not missed.
            let mut rest = std::pin::pin!(self.rest.notified());
            rest.as_mut().enable();
            if self.at_rest() {
                return;
            }
            rest.await;
        }
    }
}

#[derive(Default)]
struct State {
    ahead: SignedDuration,
    next: u64,
    sleepers: BTreeMap<(Timestamp, u64), oneshot::Sender<()>>,
}

/// The time ran out before the future was done.
#[derive(Debug, thiserror::Error)]
#[error("deadline exceeded")]
pub struct Elapsed;

/// Held while work goes on that others wait for: an advance of the clock (for a moment, before the next step), and whoever has
/// something to do that can wait ([`Clock::calm`]).
pub struct Busy {
    work: Arc<Work>,
    placing: bool,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.work.busy.leave();
        if self.placing {
            self.work.placing.leave();
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.ahead.is_some() { "Clock::virtual_clock" } else { "Clock::system" })
    }
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Clock { ahead: None, work: Arc::default() }
    }

    /// A clock that starts at the system's time, runs as fast, and can be moved forward.
    pub fn virtual_clock() -> Self {
        Clock { ahead: Some(Arc::default()), work: Arc::default() }
    }

    /// Whether [`Clock::advance`] can move it.
    pub fn is_virtual(&self) -> bool {
        self.ahead.is_some()
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        match &self.ahead {
            None => Timestamp::now(),
            Some(clock) => clock.now(),
        }
    }

    /// The time, as API objects carry it.
    pub fn time(&self) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
        let now = self.now();
        // Whole seconds, because that is what comes back from the server: a component that compares what it wrote with
        // what it reads must not see a difference.
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        match &self.ahead {
            None => tokio::time::sleep(duration).await,
            Some(_) => self.sleep_until(later(self.now(), duration)).await,
        }
    }

    /// Waits until `deadline`.
    pub async fn sleep_until(&self, deadline: Timestamp) {
        loop {
            let left = left(self.now(), deadline);
            if left.is_zero() {
                return;
            }
            match &self.ahead {
                None => tokio::time::sleep(left).await,
                Some(clock) => {
                    let mut sleeper = clock.register(deadline);
                    // The timer's own granularity is a millisecond; the loop catches what it rounds away.
                    let _ = tokio::time::timeout(left, &mut sleeper.woken).await;
                }
            }
        }
    }

    /// Runs `future`, but no longer than `duration`.
    pub async fn timeout<F: Future>(&self, duration: Duration, future: F) -> Result<F::Output, Elapsed> {
        match &self.ahead {
            None => tokio::time::timeout(duration, future).await.map_err(|_| Elapsed),
            Some(_) => {
                tokio::select! {
                    biased;
                    output = future => Ok(output),
                    () = self.sleep(duration) => Err(Elapsed),
                }
            }
        }
    }

    /// Says that work is going on which an advance should wait for.
    pub fn busy(&self) -> Busy {
        self.at_work(false)
    }

    /// Says that Pods are being made or given their nodes, which the nodes of this process wait for, too ([`Clock::placed`]).
    pub fn placing(&self) -> Busy {
        self.work.placing.take();
        self.at_work(true)
    }

    fn at_work(&self, placing: bool) -> Busy {
        self.work.busy.take();
        Busy { work: self.work.clone(), placing }
    }

    /// Waits until nobody is busy, but no longer than until `deadline`: for what is not urgent. This is about the machine's time and
    /// not about the clock's, so a virtual clock waits no longer than it really takes.
    pub async fn calm(&self, deadline: Timestamp) {
        let _ = tokio::time::timeout(left(self.now(), deadline), self.work.busy.rest()).await;
    }

    /// Waits until every Pod that is being made has its node, but no longer than until `deadline`.
    pub async fn placed(&self, deadline: Timestamp) {
        let _ = tokio::time::timeout(left(self.now(), deadline), self.work.placing.rest()).await;
    }

    /// Moves a virtual clock forward, through all deadlines that are waited for, in order. Answers the time after it,
    /// or `None` if this is the system's clock, which nobody moves.
    pub async fn advance(&self, duration: Duration) -> Option<Timestamp> {
        let clock = self.ahead.as_ref()?;
        let _one_at_a_time = clock.advancing.lock().await;
        let start = clock.now();
        let shortest = (duration / STEPS).min(LONGEST_STEP);
        let mut moved = Duration::ZERO;
        self.settle().await;
        while moved < duration {
            // Time also flows by itself while the sleepers work; that is not part of what was asked for.
            let now = clock.now();
            let step = match clock.earliest() {
                Some(deadline) => left(now, deadline).max(shortest),
                None => duration - moved,
            };
            let step = step.min(duration - moved);
            clock.step(step);
            moved += step;
            self.settle().await;
        }
        tracing::debug!(from = %start, by = ?duration, "the clock was moved");
        Some(clock.now())
    }

    /// Lets those who woke up run: a moment for everybody, longer for those who said that they are busy.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !self.work.busy.at_rest() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Virtual {
    fn now(&self) -> Timestamp {
        let ahead = self.state.lock().ahead;
        Timestamp::now().checked_add(ahead).unwrap_or(Timestamp::MAX)
    }

    fn register(self: &Arc<Self>, deadline: Timestamp) -> Sleeper {
        let (wake, woken) = oneshot::channel();
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        state.sleepers.insert((deadline, id), wake);
        Sleeper { clock: self.clone(), at: (deadline, id), woken }
    }

    fn earliest(&self) -> Option<Timestamp> {
        self.state.lock().sleepers.keys().next().map(|(deadline, _)| *deadline)
    }

    fn step(&self, step: Duration) {
        let mut state = self.state.lock();
        state.ahead = SignedDuration::try_from(step).map_or(state.ahead, |step| state.ahead.saturating_add(step));
        let now = Timestamp::now().checked_add(state.ahead).unwrap_or(Timestamp::MAX);
        while let Some(first) = state.sleepers.first_entry() {
            if first.key().0 > now {
                break;
            }
            // The sleeper may be gone already; then nobody minds.
            let _ = first.remove().send(());
        }
    }
}

struct Sleeper {
    clock: Arc<Virtual>,
    at: (Timestamp, u64),
    woken: oneshot::Receiver<()>,
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.clock.state.lock().sleepers.remove(&self.at);
    }
}

/// `duration` after `time`; the end of time if that is later than any.
pub fn later(time: Timestamp, duration: Duration) -> Timestamp {
    SignedDuration::try_from(duration).ok().and_then(|d| time.checked_add(d).ok()).unwrap_or(Timestamp::MAX)
}

/// How long it is from `now` to `deadline`; zero if that has passed.
pub fn left(now: Timestamp, deadline: Timestamp) -> Duration {
    deadline.duration_since(now).try_into().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_advance_wakes_a_sleeper_without_waiting() {
        let clock = Clock::virtual_clock();
        let before = std::time::Instant::now();
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep(Duration::from_secs(3600)).await }
        });
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(3601)).await;
        sleeper.await.unwrap();
        assert!(before.elapsed() < Duration::from_secs(20));
    }

    #[tokio::test]
    async fn a_loop_runs_at_each_of_its_deadlines_on_the_way() {
        let clock = Clock::virtual_clock();
        let count = Arc::new(AtomicUsize::new(0));
        tokio::spawn({
            let (clock, count) = (clock.clone(), count.clone());
            async move {
                loop {
                    clock.sleep(Duration::from_secs(10)).await;
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(101)).await;
        assert_eq!(count.load(Ordering::SeqCst), 10);
    }

    #[tokio::test]
    async fn what_is_not_urgent_waits_for_the_others_but_not_for_ever() {
        let clock = Clock::system();
        clock.calm(later(clock.now(), Duration::from_secs(60))).await;
        let busy = clock.busy();
        clock.calm(later(clock.now(), Duration::from_millis(5))).await;
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move { clock.calm(later(clock.now(), Duration::from_secs(60))).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(busy);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn whoever_places_pods_is_busy_and_whoever_is_busy_need_not_place_any() {
        let clock = Clock::system();
        let soon = || later(clock.now(), Duration::from_millis(5));
        let never = later(clock.now(), Duration::from_secs(600));
        let busy = clock.busy();
        clock.placed(never).await;
        drop(busy);
        let placing = clock.placing();
        clock.placed(soon()).await;
        assert!(!clock.work.placing.at_rest() && !clock.work.busy.at_rest());
        drop(placing);
        clock.placed(never).await;
        clock.calm(never).await;
    }

    #[tokio::test]
    async fn the_system_clock_is_not_moved() {
        assert!(Clock::system().advance(Duration::from_secs(1)).await.is_none());
    }

    #[tokio::test]
    async fn a_timeout_follows_the_virtual_time() {
        let clock = Clock::virtual_clock();
        let waiting = tokio::spawn({
            let clock = clock.clone();
            async move { clock.timeout(Duration::from_secs(60), std::future::pending::<()>()).await }
        });
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(61)).await;
        assert!(waiting.await.unwrap().is_err());
    }
}
