//! The embedded archive of audit events: bounded, in the order of arrival, the newest kept longest.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Event, Filter};

/// How many events are kept.
const MOST: usize = 10_000;

/// The kept events.
#[derive(Debug, Default)]
pub struct Archive {
    events: Mutex<VecDeque<Arc<Event>>>,
}

impl Archive {
    /// Keeps events that have just been made; only the recorder calls it.
    pub fn append(&self, new: Vec<Event>) {
        let mut events = self.events.lock();
        events.extend(new.into_iter().map(Arc::new));
        let surplus = events.len().saturating_sub(MOST);
        events.drain(..surplus);
    }

    /// The events that a filter asks for, oldest first, at most so many of the newest.
    pub fn query(&self, filter: &Filter, limit: usize) -> Vec<Arc<Event>> {
        let events = self.events.lock();
        let mut found: Vec<_> = events.iter().rev().filter(|event| filter.matches(event)).take(limit).cloned().collect();
        found.reverse();
        found
    }
}
