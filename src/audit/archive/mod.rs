//! The embedded archive of audit events: append-only segments under `<data-dir>/audit/`, bounded by size and age, the newest kept
//! longest. Recording costs one buffered write for what arrives together and no fsync: an archive that loses its last second with
//! the power is worth less than a server that waits. Questions are answered by the columns at the end of each segment, on the thread
//! of whoever asks; nothing but the segment that is being written is held in memory. The format is in `docs/storage.md`.

mod block;
mod body;
mod canvas;
mod coding;
mod columns;
mod medium;
mod phrases;
mod pieces;
mod repeats;
mod row;
mod scan;
mod segment;
mod select;
mod sieve;
mod stats;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use block::Block;
use columns::{Columns, MOST_ROWS};
use jiff::Timestamp;
use medium::Medium;
use parking_lot::Mutex;
use repeats::Repeats;
use segment::{HEADER, Segment};
use tokio::sync::broadcast;

pub use block::Record;
pub use scan::Position;
pub use stats::{Bucket, Count, Denial, Judged, Kept, Latency, Missed, Slow, Stats};

use super::{Event, Filter};

/// The folder of a data directory.
pub const DIRECTORY: &str = "audit";
/// What the name of a segment ends with.
const EXTENSION: &str = "segment";
/// A segment is at most a sixteenth of what may be kept, and at most this large.
const LARGEST_SEGMENT: u64 = 64 << 20;
/// A batch is split into blocks of about this size, so that writing needs no more memory than that.
const LARGEST_BLOCK: usize = 4 << 20;
/// How much memory for blocks stays.
const KEPT_BUFFER: usize = 256 << 10;
/// How much is kept at most where it is kept in memory.
const MOST_IN_MEMORY: u64 = 32 << 20;
/// How far somebody who follows may fall behind.
const BEHIND: usize = 1024;
/// How often it is said that events are lost.
const TELL: Duration = Duration::from_secs(10);

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In all.
    pub bytes: u64,
    /// For how long.
    pub age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bytes: 1 << 30, age: Duration::from_secs(7 * 24 * 3600) }
    }
}

/// In which order events are told; the order is that of their arrival in the archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The newest first.
    #[default]
    NewestFirst,
    /// The oldest first.
    OldestFirst,
}

/// The kept events.
#[derive(Debug)]
pub struct Archive {
    directory: Option<PathBuf>,
    limits: Limits,
    inner: Mutex<Inner>,
    live: broadcast::Sender<Arc<Event>>,
    lost: AtomicU64,
    told: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Inner {
    sealed: VecDeque<Arc<Segment>>,
    active: Option<Active>,
    next: u64,
    buffer: Vec<u8>,
}

/// The segment that is being written.
#[derive(Debug)]
struct Active {
    number: u64,
    path: Option<PathBuf>,
    medium: Arc<Medium>,
    columns: Columns,
    repeats: Repeats,
    end: u64,
    created: Timestamp,
}

impl Default for Archive {
    fn default() -> Self {
        Archive::new(None, Limits::default())
    }
}

impl Archive {
    fn new(directory: Option<PathBuf>, mut limits: Limits) -> Archive {
        if directory.is_none() {
            limits.bytes = limits.bytes.min(MOST_IN_MEMORY);
        }
        Archive {
            directory,
            limits,
            inner: Mutex::default(),
            live: broadcast::Sender::new(BEHIND),
            lost: AtomicU64::new(0),
            told: Mutex::default(),
        }
    }

    /// Opens the archive of a directory, or one in memory. Looks at the end of each segment and no further; what a killed server left
    /// behind is put in order in the background.
    pub fn open(directory: Option<&Path>, limits: Limits) -> io::Result<Archive> {
        let archive = Archive::new(directory.map(Path::to_owned), limits);
        let Some(directory) = directory else { return Ok(archive) };
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(directory)?;
        let mut numbers: Vec<u64> = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                numbers.extend(stem);
            }
        }
        numbers.sort_unstable();
        let mut left_behind = Vec::new();
        {
            let mut inner = archive.inner.lock();
            for number in numbers {
                let segment = Arc::new(Segment::open(number, &path(directory, number))?);
                if segment.known().is_none() {
                    left_behind.push(segment.clone());
                }
                inner.sealed.push_back(segment);
                inner.next = number + 1;
            }
            archive.evict(&mut inner, Timestamp::now());
        }
        if !left_behind.is_empty() {
            let tidy = move || left_behind.iter().for_each(|segment| drop(segment.summary()));
            std::thread::Builder::new().name("audit-recovery".into()).spawn(tidy)?;
        }
        Ok(archive)
    }

    /// Keeps events that have just been made; only the recorder and an import call it. What cannot be kept, because the disk is full
    /// say, is counted.
    pub fn append<E: Into<Box<Event>>>(&self, events: impl IntoIterator<Item = E>) {
        let followed = self.live.receiver_count() > 0;
        let mut events = events.into_iter().map(Into::into).peekable();
        while events.peek().is_some() {
            let mut told = Vec::new();
            let mut taken = 0;
            let each = events.by_ref().inspect(|_| taken += 1);
            if let Err(error) = self.write_block(each, followed.then_some(&mut told)) {
                // What cannot be written now cannot be written a moment later.
                self.lose(taken + events.count() as u64, &error);
                return;
            }
            for event in told {
                let _ = self.live.send(event);
            }
        }
    }

    fn lose(&self, count: u64, error: &io::Error) {
        let lost = self.lost.fetch_add(count, Ordering::Relaxed) + count;
        let mut told = self.told.lock();
        if told.is_none_or(|told| told.elapsed() >= TELL) {
            *told = Some(Instant::now());
            tracing::error!(%error, lost, "the audit archive cannot be written; events are lost");
        }
    }

    /// Writes a block of as many events as it and its segment have room for, each as it comes.
    fn write_block(&self, events: impl Iterator<Item = Box<Event>>, mut told: Option<&mut Vec<Arc<Event>>>) -> io::Result<()> {
        let now = Timestamp::now();
        let inner = &mut *self.inner.lock();
        let full = |active: &Active| {
            let old = now.duration_since(active.created).unsigned_abs() > self.limits.age / 8;
            active.end >= self.largest_segment() || active.columns.places.len() >= MOST_ROWS || old
        };
        if inner.active.as_ref().is_some_and(full) {
            self.seal(inner, now);
        }
        let active = match &mut inner.active {
            Some(active) => active,
            empty => {
                let number = inner.next;
                let path = self.directory.as_ref().map(|directory| path(directory, number));
                inner.next += 1;
                let medium = path.as_ref().map_or_else(|| Ok(Medium::memory()), |path| Medium::create(path))?;
                medium.write(0, &HEADER)?;
                let medium = Arc::new(medium);
                let (columns, repeats) = Default::default();
                empty.insert(Active { number, path, medium, columns, repeats, end: HEADER.len() as u64, created: now })
            }
        };
        let columns = &mut active.columns;
        let (rows, known) = (columns.places.len(), columns.phrases.lexicon.len());
        let mut block = Block::new(active.end as u32, known, std::mem::take(&mut inner.buffer));
        let room = LARGEST_BLOCK.min(self.largest_segment() as usize);
        for event in events {
            let place = block.push(&event, &mut columns.phrases, &mut active.repeats);
            columns.push(place, &event);
            if let Some(told) = &mut told {
                told.push(Arc::from(event));
            }
            if block.len() >= room || columns.places.len() >= MOST_ROWS {
                break;
            }
        }
        let bytes = block.finish(&columns.phrases.lexicon);
        let written = active.medium.write(active.end, &bytes);
        let length = bytes.len() as u64;
        // What is usual is kept for the next block, what was needed once is not.
        inner.buffer = if bytes.capacity() <= KEPT_BUFFER { bytes } else { Vec::new() };
        if let Err(error) = written {
            columns.truncate(rows);
            columns.phrases.truncate(known);
            active.repeats = Repeats::default();
            return Err(error);
        }
        active.end += length;
        self.evict(inner, now);
        Ok(())
    }

    fn largest_segment(&self) -> u64 {
        (self.limits.bytes / 16).min(LARGEST_SEGMENT)
    }

    /// Ends the segment that is being written. One that cannot be sealed, because the disk is full say, stays as a killed server
    /// would have left it, and is put in order by whoever looks at it next.
    fn seal(&self, inner: &mut Inner, now: Timestamp) {
        let Some(active) = inner.active.take() else { return };
        let sealed = Segment::seal(active.number, active.path.clone(), active.medium, active.end, &active.columns, now.as_microsecond());
        let segment = sealed.or_else(|error| {
            tracing::warn!(%error, "a segment of the audit archive could not be sealed");
            active.path.as_deref().map_or(Err(error), |path| Segment::open(active.number, path))
        });
        inner.sealed.extend(segment.ok().map(Arc::new));
    }

    /// Forgets what is too much or too old.
    fn evict(&self, inner: &mut Inner, now: Timestamp) {
        let active = inner.active.as_ref().map_or(0, |active| active.end);
        let mut total = active + inner.sealed.iter().map(|segment| segment.bytes()).sum::<u64>();
        let oldest = now.as_microsecond().saturating_sub(i64::try_from(self.limits.age.as_micros()).unwrap_or(i64::MAX));
        while let Some(first) = inner.sealed.front() {
            let old = first.known().is_some_and(|summary| summary.appended < oldest);
            if total <= self.limits.bytes && !old {
                break;
            }
            total = total.saturating_sub(first.bytes());
            first.remove();
            inner.sealed.pop_front();
        }
    }

    /// The events that a filter asks for, oldest first, at most so many of the newest. Reads files: not for a thread that must not wait.
    pub fn query(&self, filter: &Filter, limit: usize) -> Vec<Arc<Event>> {
        let mut found = Vec::new();
        self.scan(filter, Order::NewestFirst, limit, |record| {
            found.push(Arc::new(record.event()));
            ControlFlow::Continue(())
        });
        found.reverse();
        found
    }

    /// Events from now on, as they are appended. Whoever falls too far behind is told how many they missed.
    pub fn follow(&self) -> broadcast::Receiver<Arc<Event>> {
        self.live.subscribe()
    }

    /// How much is kept.
    pub fn kept(&self) -> Kept {
        let inner = self.inner.lock();
        let active = inner.active.as_ref().map_or((0, 0), |active| (active.columns.places.len(), active.end));
        let sealed = inner.sealed.iter().map(|segment| (segment.known().map_or(0, |summary| summary.rows), segment.bytes()));
        let (records, bytes) = sealed.fold(active, |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Kept { records: records as u64, bytes, lost: self.lost.load(Ordering::Relaxed) }
    }

    /// Ends the segment that is being written, so that the next start finds everything in order. More may be appended.
    pub fn close(&self) {
        self.seal(&mut self.inner.lock(), Timestamp::now());
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        if self.directory.is_some() {
            self.close();
        }
    }
}

fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:010}.{EXTENSION}"))
}
