//! Forgetting. Compaction walks the log from where it stopped up to the floor, and at every change removes the older
//! versions of that key, and the change itself if it is a tombstone: what remains of each key is its newest version at the
//! floor, and everything above it. It works in small slices between the groups of the writer, so that no writer waits
//! more than a few milliseconds; most slices are made durable by the next commit.

use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use redb::{ReadTransaction, ReadableTable, WriteTransaction};
use tokio::sync::oneshot;

use super::Shared;
use super::format::{
    KEYS, LOG, META, META_COMPACTED, META_COMPACTED_ORDINAL, META_FLOOR, META_REVISION, Record, Version, split_version_key, version_key,
};
use super::medium::{Ending, Failure};
use crate::store::{Error, Result, Revision};

/// A slice ends after so many changes, or so much time.
const SLICE_CHANGES: usize = 64;
const SLICE_TIME: Duration = Duration::from_millis(1);

/// How long what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How far back clients may list or watch; see [`crate::store::Store::window`].
    pub watch_window: Duration,
    /// How long overwritten and deleted versions are kept.
    pub history_age: Duration,
    /// How many bytes of overwritten and deleted versions are kept; the watch window is kept in any case.
    pub history_bytes: u64,
    /// How often to look.
    pub interval: Duration,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention {
            watch_window: Duration::from_secs(5 * 60),
            history_age: Duration::from_secs(24 * 60 * 60),
            history_bytes: 1 << 30,
            interval: Duration::from_secs(10),
        }
    }
}

/// A place in the log: revision and position in the batch.
pub(super) type Place = (Revision, u32);

/// How far compaction came, and how far it is to go.
pub(super) struct Compaction {
    /// Changes up to this place in the log are done.
    done: Place,
    /// Changes up to here are to be done.
    floor: Revision,
    waiting: Vec<(Revision, oneshot::Sender<Result<()>>)>,
}

impl Compaction {
    pub(super) fn new(done: Place, floor: Revision) -> Compaction {
        Compaction { done, floor, waiting: Vec::new() }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.done < (self.floor, u32::MAX)
    }

    /// Moves the floor and answers when compaction has reached it.
    pub(super) fn ask(&mut self, floor: Revision, answer: oneshot::Sender<Result<()>>) {
        self.ask_quietly(floor);
        if self.done >= (floor, u32::MAX) {
            let _ = answer.send(Ok(()));
        } else {
            self.waiting.push((floor, answer));
        }
    }

    pub(super) fn ask_quietly(&mut self, floor: Revision) {
        self.floor = self.floor.max(floor);
    }

    /// Goes back to what the file knows, after slices that were not yet durable were lost.
    pub(super) fn set_back(&mut self, done: Place) {
        self.done = self.done.min(done);
    }

    /// Ends what cannot go on; asked for again, it resumes where it stopped.
    pub(super) fn give_up(&mut self, error: &Error) {
        self.floor = self.done.0.saturating_sub(1);
        for (_, answer) in self.waiting.drain(..) {
            let _ = answer.send(Err(Error::Unavailable(error.to_string())));
        }
    }

    /// One slice.
    pub(super) fn slice(&mut self, shared: &Shared, newest: Revision, ending: Ending) -> Result<()> {
        // In force before anything is gone: a reader looks at the floor after it has begun its transaction.
        shared.floor.fetch_max(self.floor, Ordering::AcqRel);
        let (from, floor) = (self.done, self.floor);
        let (done, forgotten) = shared
            .medium
            .write(ending, |transaction| slice(transaction, from, floor, newest))
            .map_err(|failure| shared.medium.explain(failure))?;
        self.done = done;
        let _ = shared.history_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| Some(bytes.saturating_sub(forgotten)));
        let (ready, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|(floor, _)| done >= (*floor, u32::MAX));
        self.waiting = waiting;
        for (_, answer) in ready {
            let _ = answer.send(Ok(()));
        }
        Ok(())
    }
}

/// How far compaction came, as the file knows it.
pub(super) fn progress(transaction: &ReadTransaction) -> Result<Place, Failure> {
    let meta = transaction.open_table(META)?;
    let revision = meta.get(META_COMPACTED)?.map_or(0, |value| value.value());
    let ordinal = meta.get(META_COMPACTED_ORDINAL)?.map_or(u64::from(u32::MAX), |value| value.value());
    Ok((revision, u32::try_from(ordinal).unwrap_or(u32::MAX)))
}

/// Compacts the changes after `from`, at most to `floor`; answers how far it came and how many bytes it removed.
fn slice(transaction: &WriteTransaction, from: Place, floor: Revision, newest: Revision) -> Result<(Place, u64), Failure> {
    let begun = Instant::now();
    let mut keys = transaction.open_table(KEYS)?;
    let mut log = transaction.open_table(LOG)?;
    let mut changes: Vec<(Place, String, bool)> = Vec::with_capacity(SLICE_CHANGES);
    for item in log.range((Bound::Excluded(from), Bound::Included((floor, u32::MAX))))?.take(SLICE_CHANGES) {
        let (place, bytes) = item?;
        let (revision, ordinal) = place.value();
        let record = Record::decode(revision, ordinal, bytes.value())?;
        changes.push(((revision, ordinal), record.key.to_owned(), record.deleted));
    }
    let mut done = if changes.len() < SLICE_CHANGES { (floor, u32::MAX) } else { from };
    let mut forgotten = 0;
    for (at, (place, key, deleted)) in changes.iter().enumerate() {
        forgotten += forget(&mut keys, &mut log, key, place.0, *deleted)?;
        let more = at + 1 < changes.len();
        if !more && changes.len() == SLICE_CHANGES || more && begun.elapsed() >= SLICE_TIME {
            done = *place;
            break;
        }
    }
    let mut meta = transaction.open_table(META)?;
    meta.insert(META_FLOOR, floor)?;
    meta.insert(META_COMPACTED, done.0)?;
    meta.insert(META_COMPACTED_ORDINAL, u64::from(done.1))?;
    meta.insert(META_REVISION, newest)?;
    Ok((done, forgotten))
}

/// Removes the versions of `key` before `revision`, and that one too if it is a tombstone.
fn forget(
    keys: &mut redb::Table<'_, &'static [u8], &'static [u8; 12]>,
    log: &mut redb::Table<'_, (u64, u32), &'static [u8]>,
    key: &str,
    revision: Revision,
    deleted: bool,
) -> Result<u64, Failure> {
    let first = version_key(key, 0);
    let last = version_key(key, revision);
    let mut old: Vec<(Vec<u8>, Revision, Version)> = Vec::new();
    for item in keys.range(first.as_slice()..=last.as_slice())? {
        let (encoded, version) = item?;
        let (_, at) = split_version_key(encoded.value())?;
        if at < revision || deleted {
            old.push((encoded.value().to_owned(), at, Version::decode(encoded.value(), version.value())?));
        }
    }
    let mut forgotten = 0;
    for (encoded, at, version) in old {
        keys.remove(encoded.as_slice())?;
        if log.remove((at, version.ordinal))?.is_none() {
            return Err(Failure::Damage(format!("the log has no record of revision {at}")));
        }
        forgotten += u64::from(version.length);
    }
    Ok(forgotten)
}

/// The newest revision in the file.
pub(super) fn newest(transaction: &ReadTransaction) -> Result<Revision, Failure> {
    let noted = transaction.open_table(META)?.get(META_REVISION)?.map_or(0, |value| value.value());
    let last = transaction.open_table(LOG)?.last()?.map_or(0, |(place, _)| place.value().0);
    Ok(noted.max(last))
}

/// Where the floor should be now by the settings; also moves the watch window.
pub(super) fn due(shared: &Shared, newest: Revision, pending: bool) -> Result<Revision> {
    let retention = shared.options.retention;
    let now = (shared.options.now)();
    let before = |age: Duration| now.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX));
    shared.medium.read(|transaction| {
        let floor = shared.floor.load(Ordering::Acquire);
        let window = last_before(transaction, before(retention.watch_window), floor, newest)?;
        shared.window.fetch_max(window, Ordering::AcqRel);
        let by_age = last_before(transaction, before(retention.history_age), floor, newest)?;
        let excess = shared.history_bytes.load(Ordering::Relaxed).saturating_sub(retention.history_bytes);
        // While compaction is under way, the bytes that it will remove are still counted.
        let by_size = if excess > 0 && !pending { after_bytes(transaction, excess, floor, window)? } else { floor };
        Ok(by_age.max(by_size).min(window).max(floor))
    })
}

/// The last revision whose change is older than `time`, by bisection: the server's clock runs forward.
fn last_before(transaction: &ReadTransaction, time: i64, floor: Revision, newest: Revision) -> Result<Revision, Failure> {
    let log = transaction.open_table(LOG)?;
    let (mut low, mut high) = (floor, newest);
    // Everything up to `low` is older than `time`, everything after `high` is not.
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        let next = log.range((middle, 0)..=(high, u32::MAX))?.next().transpose()?;
        match next {
            None => high = middle - 1,
            Some((place, bytes)) => {
                let (revision, ordinal) = place.value();
                if Record::decode(revision, ordinal, bytes.value())?.time < time {
                    low = revision;
                } else {
                    high = middle - 1;
                }
            }
        }
    }
    Ok(low)
}

/// The revision up to which the changes after `floor` hold `bytes`, at most `limit`. What they replaced is about as
/// large as they are.
fn after_bytes(transaction: &ReadTransaction, bytes: u64, floor: Revision, limit: Revision) -> Result<Revision, Failure> {
    let log = transaction.open_table(LOG)?;
    let mut seen = 0;
    for item in log.range((floor.saturating_add(1), 0)..=(limit, u32::MAX))? {
        let (place, value) = item?;
        seen += value.value().len() as u64;
        if seen >= bytes {
            return Ok(place.value().0);
        }
    }
    Ok(limit)
}
