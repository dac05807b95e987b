//! A watcher: a cursor into a channel with a filter, and what it has to tell before it reaches the channel (the initial
//! state, or events that only the store still has).

use std::collections::VecDeque;
use std::sync::Arc;

use super::channel::{Channel, Event, EventKind};
use super::{State, Topic};
use crate::object::Object;
use crate::object::selector::{FieldSelector, LabelSelector};
use crate::store::{self, Error, Revision};

/// How many events a watcher takes out of the ring at once.
const BATCH: usize = 256;

/// Which objects a watcher wants to hear of.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// What the key begins with.
    pub prefix: String,
    /// The labels.
    pub labels: LabelSelector,
    /// The fields.
    pub fields: FieldSelector,
}

impl Filter {
    /// Whether an object is selected.
    pub fn selects(&self, object: &Object) -> bool {
        object.key.starts_with(&self.prefix)
            && self.labels.matches_object(object)
            && (self.fields.is_empty() || self.selects_fields(object))
    }

    fn selects_fields(&self, object: &Object) -> bool {
        // The name stands in the key; most field selectors ask for nothing else.
        if self.fields.0.iter().all(|term| term.field == "metadata.name") {
            return self.fields.0.iter().all(|term| (object.name() == term.value) == term.equal);
        }
        self.fields.0.iter().all(|term| (object.field(&term.field) == term.value) == term.equal)
    }

    /// The word with which a watcher hears of an event, if at all.
    fn word(&self, event: &Event) -> Option<EventKind> {
        if !event.object.key.starts_with(&self.prefix) {
            return None;
        }
        if self.labels.is_empty() && self.fields.is_empty() {
            return Some(event.kind);
        }
        let before = event.previous.as_ref().is_some_and(|object| self.selects(object));
        let after = event.kind != EventKind::Deleted && self.selects(&event.object);
        match (before, after) {
            (false, true) => Some(EventKind::Added),
            (true, true) => Some(EventKind::Modified),
            (true, false) => Some(EventKind::Deleted),
            (false, false) => None,
        }
    }
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the current state, told as ADDED.
    Current,
    /// With the first event after a revision.
    After(Revision),
}

/// What a watcher delivers.
pub enum Item {
    /// An object of the initial state.
    Initial(Arc<Object>),
    /// An event, with the word for this watcher.
    Event(EventKind, Arc<Event>),
    /// The initial state is complete at this revision.
    InitialEnd(Revision),
}

/// The watcher was too slow: the ring has left it behind.
#[derive(Debug)]
pub struct Lagged;

/// A cursor with a filter.
pub struct Watcher {
    channel: Arc<Channel>,
    bell: tokio::sync::watch::Receiver<()>,
    next: u64,
    filter: Filter,
    backlog: VecDeque<Item>,
    /// Events up to here were told before the cursor's place, or lie before the start.
    after: Revision,
}

impl Watcher {
    /// Opens a watcher. [`Error::Compacted`] if the start lies too far back.
    pub async fn open(state: &State, topic: &Topic, filter: Filter, start: Start) -> store::Result<Watcher> {
        let (channel, objects, revision) = topic.attach(&filter, start == Start::Current, state.revision());
        let bell = channel.subscribe();
        let mut watcher = Watcher { channel, bell, next: 0, filter, backlog: VecDeque::new(), after: revision };
        match start {
            Start::Current => {
                watcher.backlog.extend(objects.into_iter().map(Item::Initial));
                watcher.backlog.push_back(Item::InitialEnd(revision));
                watcher.next = watcher.channel.position(revision).1;
            }
            Start::After(after) => {
                watcher.after = after;
                let (floor, next) = watcher.channel.position(after);
                watcher.next = next;
                // However long ago: as long as the ring has everything since, nothing is missing.
                if after < floor {
                    if after < state.window_floor() {
                        return Err(Error::Compacted { floor: state.window_floor() });
                    }
                    let log = state.store().log(&watcher.filter.prefix, after, floor).await?;
                    for (change, previous) in log {
                        let object = Arc::new(Object::new(change.key.clone(), change.revision, &change.value));
                        let previous = previous.map(|e| Arc::new(Object::new(e.key, e.revision, &e.value)));
                        let kind = match (change.deleted, &previous) {
                            (true, _) => EventKind::Deleted,
                            (false, Some(_)) => EventKind::Modified,
                            (false, None) => EventKind::Added,
                        };
                        let event = Arc::new(Event::new(kind, object, previous));
                        if let Some(kind) = watcher.filter.word(&event) {
                            watcher.backlog.push_back(Item::Event(kind, event));
                        }
                    }
                    watcher.after = floor;
                    watcher.next = watcher.channel.position(floor).1;
                }
            }
        }
        Ok(watcher)
    }

    /// What there is to tell now; empty if nothing is.
    pub fn take(&mut self) -> Result<Vec<Item>, Lagged> {
        if !self.backlog.is_empty() {
            let many = self.backlog.len().min(BATCH);
            return Ok(self.backlog.drain(..many).collect());
        }
        let mut out = Vec::new();
        loop {
            self.bell.mark_unchanged();
            let events = self.channel.read(self.next, BATCH).ok_or(Lagged)?;
            let full = events.len() == BATCH;
            self.next += events.len() as u64;
            for event in events {
                if event.object.revision > self.after {
                    out.extend(self.filter.word(&event).map(|kind| Item::Event(kind, event)));
                }
            }
            if !out.is_empty() || !full {
                return Ok(out);
            }
        }
    }

    /// Whether the ring has gone on without it.
    pub fn is_left_behind(&self) -> bool {
        self.channel.is_past(self.next)
    }

    /// Whether there is something to tell that is not in the ring.
    pub fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// The JSON frames of what there is to tell now, about `most` bytes of them; only for a watcher without backlog. Copies straight
    /// out of the ring: with many watchers, even counting who holds an event costs.
    pub fn take_frames(&mut self, most: usize) -> Result<Vec<u8>, Lagged> {
        self.bell.mark_unchanged();
        let (filter, after) = (&self.filter, self.after);
        let word = |event: &Event| filter.word(event).filter(|_| event.object.revision > after);
        let (out, seen) = self.channel.copy(self.next, most, word).ok_or(Lagged)?;
        self.next += seen;
        Ok(out)
    }

    /// Waits until there may be something to tell.
    pub async fn changed(&mut self) {
        if self.backlog.is_empty() {
            let _ = self.bell.changed().await;
        }
    }
}
