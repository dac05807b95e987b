//! A ring of recent events with a bell. Watchers are cursors into it; it knows none of them and keeps nothing for them.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::RwLock;

use super::Settings;
use super::bell::Bell;
use crate::object::Object;
use crate::store::Revision;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It came into being, or into a watcher's selection.
    Added = 0,
    /// It changed.
    Modified = 1,
    /// It was deleted, or left a watcher's selection.
    Deleted = 2,
}

impl EventKind {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::Added => "ADDED",
            EventKind::Modified => "MODIFIED",
            EventKind::Deleted => "DELETED",
        }
    }
}

/// One change of one object, framed at most once for each word it may be told with.
#[derive(Debug)]
pub struct Event {
    /// What happened, seen without a selector.
    pub kind: EventKind,
    /// The object after it (for a deletion its last state at the deletion's revision).
    pub object: Arc<Object>,
    /// The object before it.
    pub previous: Option<Arc<Object>>,
    frames: [OnceLock<Bytes>; 3],
    left: OnceLock<Arc<Object>>,
}

impl Event {
    /// An event that nobody has framed yet.
    pub fn new(kind: EventKind, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Event { kind, object, previous, frames: Default::default(), left: OnceLock::new() }
    }

    /// The object as it is told with a word: the current one, or for an object that left a selection the previous one at
    /// the revision of this event.
    pub fn object_for(&self, kind: EventKind) -> &Arc<Object> {
        match (kind, self.kind, &self.previous) {
            (EventKind::Deleted, EventKind::Added | EventKind::Modified, Some(previous)) => {
                self.left.get_or_init(|| Arc::new(previous.at(self.object.revision)))
            }
            _ => &self.object,
        }
    }

    /// The JSON frame for a word, made once and shared by all watchers.
    pub fn frame(&self, kind: EventKind) -> &Bytes {
        self.frames[kind as usize].get_or_init(|| frame(kind, &self.object_for(kind).json))
    }
}

/// A watch event as a line of JSON.
pub fn frame(kind: EventKind, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 32);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_str().as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out.into()
}

/// The ring and its bell.
pub(super) struct Channel {
    ring: RwLock<Ring>,
    bell: Arc<Bell>,
}

struct Ring {
    events: VecDeque<Arc<Event>>,
    /// The sequence number of the first event in the ring.
    first: u64,
    /// Every event after this revision is in the ring.
    floor: Revision,
    bytes: usize,
    settings: Settings,
}

impl Channel {
    pub fn new(floor: Revision, settings: Settings) -> Self {
        let ring = Ring { events: VecDeque::new(), first: 0, floor, bytes: 0, settings };
        Channel { ring: RwLock::new(ring), bell: Bell::new() }
    }

    /// Adds an event; the bell is rung by the caller once the state is in order.
    pub fn push(&self, event: Arc<Event>) {
        let mut ring = self.ring.write();
        ring.bytes += event.object.json.len();
        ring.events.push_back(event);
        while ring.events.len() > ring.settings.ring_events || (ring.bytes > ring.settings.ring_bytes && ring.events.len() > 1) {
            if let Some(gone) = ring.events.pop_front() {
                ring.bytes -= gone.object.json.len();
                ring.floor = gone.object.revision;
                ring.first += 1;
            }
        }
    }

    pub fn ring_bell(&self) {
        self.bell.ring();
    }

    pub fn subscribe(&self) -> tokio::sync::watch::Receiver<()> {
        self.bell.subscribe()
    }

    /// The revision behind which the ring is complete, and the sequence number of the first event after `revision`.
    pub fn position(&self, revision: Revision) -> (Revision, u64) {
        let ring = self.ring.read();
        let offset = ring.events.partition_point(|event| event.object.revision <= revision);
        (ring.floor, ring.first + offset as u64)
    }

    /// Whether the ring has left a cursor behind.
    pub fn is_past(&self, from: u64) -> bool {
        self.ring.read().first > from
    }

    /// Up to `most` events from a sequence number on; `None` if the ring has left the cursor behind.
    pub fn read(&self, from: u64, most: usize) -> Option<Vec<Arc<Event>>> {
        let ring = self.ring.read();
        let offset = from.checked_sub(ring.first)? as usize;
        Some(ring.events.iter().skip(offset).take(most).cloned().collect())
    }

    /// The frames of events from a sequence number on, each with the word that `word` has for it, until there are `most` bytes or no
    /// more events, and how many events were looked at; `None` if the ring has left the cursor behind.
    pub fn copy(&self, from: u64, most: usize, word: impl Fn(&Event) -> Option<EventKind>) -> Option<(Vec<u8>, u64)> {
        let ring = self.ring.read();
        let offset = from.checked_sub(ring.first)? as usize;
        let (mut frames, mut bytes, mut seen) = (Vec::new(), 0, 0);
        for event in ring.events.iter().skip(offset) {
            if let Some(kind) = word(event) {
                let frame = event.frame(kind);
                bytes += frame.len();
                frames.push(frame);
            }
            seen += 1;
            if bytes >= most {
                break;
            }
        }
        // Room for all of them at once: a vector that grows copies what it has.
        let mut out = Vec::with_capacity(bytes);
        frames.into_iter().for_each(|frame| out.extend_from_slice(frame));
        Some((out, seen))
    }
}
