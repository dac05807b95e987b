//! The one way from many producers to one thread: a queue with a bound by count and by bytes that never makes a producer wait. What
//! does not fit is refused, and the producer counts it. The consumer takes everything that is there at once, and waits a moment
//! before it does: a thread that is woken for every single item costs its producers more than the items do.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

/// Room for so many items stays.
const KEPT: usize = 4096;

/// A bounded queue.
pub struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    done: watch::Sender<u64>,
    most: usize,
    most_bytes: usize,
    enough: usize,
}

struct State<T> {
    items: Vec<T>,
    bytes: usize,
    pushed: u64,
    closed: bool,
}

impl<T> Queue<T> {
    /// A queue that holds so many items of so many bytes in all, and whose consumer does not wait for more than `enough`.
    pub fn new(most: usize, most_bytes: usize, enough: usize) -> Self {
        let state = State { items: Vec::new(), bytes: 0, pushed: 0, closed: false };
        Queue { state: Mutex::new(state), filled: Condvar::new(), done: watch::Sender::new(0), most, most_bytes, enough }
    }

    /// Adds an item; `false` if there is no room, or nobody who would take it.
    pub fn push(&self, item: T, bytes: usize) -> bool {
        let mut state = self.state.lock();
        if state.closed || state.items.len() >= self.most || state.bytes.saturating_add(bytes) > self.most_bytes {
            return false;
        }
        state.bytes += bytes;
        state.pushed += 1;
        state.items.push(item);
        let worth_a_ring = state.items.len() == 1 || state.items.len() == self.enough;
        drop(state);
        if worth_a_ring {
            self.filled.notify_one();
        }
        true
    }

    /// Waits for an item, then for others that may come with it, and takes them all; `None` once the queue is closed and empty.
    pub fn take(&self, gather: Duration) -> Option<Vec<T>> {
        let mut items = Vec::new();
        self.take_into(&mut items, gather).then_some(items)
    }

    /// The same into a vector that has been emptied, whose room the queue goes on with; `false` once the queue is closed and empty.
    pub fn take_into(&self, into: &mut Vec<T>, gather: Duration) -> bool {
        let mut state = self.state.lock();
        while state.items.is_empty() {
            if state.closed {
                return false;
            }
            self.filled.wait(&mut state);
        }
        if !state.closed && !gather.is_zero() {
            let end = std::time::Instant::now() + gather;
            while !state.closed && state.items.len() < self.enough && !self.filled.wait_until(&mut state, end).timed_out() {}
        }
        state.bytes = 0;
        into.clear();
        // What one burst needed is not held for ever.
        into.shrink_to(KEPT);
        std::mem::swap(&mut state.items, into);
        true
    }

    /// Says that so many items more have been dealt with.
    pub fn finish(&self, items: usize) {
        self.done.send_modify(|done| *done += items as u64);
    }

    /// Takes no more items; the consumer ends when it has dealt with what is there.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_all();
    }

    /// Whether it takes no more items.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Waits until everything that has been added so far has been dealt with.
    pub async fn drained(&self) {
        let pushed = self.state.lock().pushed;
        // The sender lives as long as the queue, so this ends by being true.
        let _ = self.done.subscribe().wait_for(|done| *done >= pushed).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_exceeds_either_bound_is_refused_and_everything_else_is_taken_in_order() {
        let queue = Queue::new(3, 100, 3);
        assert!(queue.push(1, 10) && queue.push(2, 80));
        assert!(!queue.push(3, 11), "one byte too many");
        assert!(queue.push(4, 10));
        assert!(!queue.push(5, 0), "one item too many");
        assert_eq!(queue.take(Duration::ZERO), Some(vec![1, 2, 4]));
        assert!(queue.push(6, 100));
        queue.close();
        assert!(!queue.push(7, 0));
        assert_eq!(queue.take(Duration::from_secs(60)), Some(vec![6]));
        assert_eq!(queue.take(Duration::ZERO), None);
    }

    #[test]
    fn the_consumer_does_not_wait_once_there_is_enough() {
        let queue = Queue::new(10, 10, 2);
        assert!(queue.push(1, 0) && queue.push(2, 0));
        assert_eq!(queue.take(Duration::from_secs(60)), Some(vec![1, 2]));
    }

    #[tokio::test]
    async fn drained_waits_for_what_was_there_when_it_was_asked() {
        let queue = Arc::new(Queue::new(10, 10, 10));
        queue.push("a", 1);
        let consumer = queue.clone();
        let thread = std::thread::spawn(move || {
            while let Some(items) = consumer.take(Duration::from_millis(1)) {
                consumer.finish(items.len());
            }
        });
        queue.drained().await;
        queue.close();
        thread.join().unwrap();
    }
}
