//! The one thread that writes. It takes everything that waits on its queue into one transaction and one fsync (group
//! commit), tells the sink, then answers. Between groups it does what else needs the writer: a slice of compaction, and
//! when nothing has come for a moment, a commit that lets the file be opened quickly after a crash.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use redb::{Table, WriteTransaction};
use tokio::sync::oneshot;

use super::compact::{self, Compaction};
use super::format::{AuditId, KEYS, LOG, MAX_OPERATIONS, MAX_REVISION, Record, Version, version_key};
use super::medium::{Ending, Failure};
use super::read;
use super::{Durability, Shared};
use crate::store::{Batch, Change, Entry, Error, Expect, Key, Operation, Result, Revision};

/// A group never holds more batches or bytes than this, so that nobody waits long for a neighbour.
const GROUP_BATCHES: usize = 1024;
const GROUP_BYTES: usize = 8 << 20;
/// How long a group waits for as many batches as the last one had: their writers have just been answered, and who writes again at
/// once had better come with this fsync than cause another. A lone writer never waits.
const COMPANY: Duration = Duration::from_micros(150);
/// A key, an Audit-ID and a value are refused beyond this; etcd and Kubernetes stop far earlier.
const MAX_BYTES: usize = 256 << 20;
/// From so many batches on, the second fsync that lets the file be reopened quickly costs little per write.
const QUICK_GROUP: usize = 16;
/// After so long without a write, one more commit makes the file quick to reopen.
const IDLE: Duration = Duration::from_millis(50);
/// A relaxed store is made durable at least this often while it is written.
const RELAXED_INTERVAL: Duration = Duration::from_secs(1);
/// So many slices of compaction in a row are left to the next commit of a group to make durable; then one pays for itself,
/// so that a group never has to write much more than its own pages.
const SLICES_DEFERRED: u32 = 3;
/// How long writes are refused without trying after one failed, and how long at most if they go on failing: to try means to
/// open the file again afterwards, for which readers wait.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// What the thread is asked to do.
pub(super) enum Request {
    Commit { batch: Batch, answer: oneshot::Sender<Result<Revision>> },
    Compact { floor: Revision, answer: oneshot::Sender<Result<()>> },
    Close { answer: oneshot::Sender<Result<()>> },
}

/// The thread's state.
pub(super) struct Writer {
    shared: Arc<Shared>,
    queue: Receiver<Request>,
    /// The newest revision in the file that the sink knows of.
    revision: Revision,
    compaction: Compaction,
    /// Since when there are commits that a reopening could not take over quickly.
    unsettled: Option<Instant>,
    /// The last moment at which everything was durable, for a relaxed store.
    durable_at: Instant,
    next_retention: Instant,
    /// The same by the clock of the server, in microseconds.
    next_retention_time: i64,
    slices_deferred: u32,
    /// How many batches the last group had.
    last_group: usize,
    /// Since the last write that went well: how many failed, until when writes are refused, and why.
    failed: Option<(u32, Instant, String)>,
}

type Waiting = (Batch, oneshot::Sender<Result<Revision>>);

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, queue: Receiver<Request>, compaction: Compaction) -> Writer {
        let revision = shared.revision.load(Ordering::Acquire);
        let now = Instant::now();
        Writer {
            shared,
            queue,
            revision,
            compaction,
            unsettled: None,
            durable_at: now,
            next_retention: now,
            next_retention_time: i64::MIN,
            slices_deferred: 0,
            last_group: 0,
            failed: None,
        }
    }

    /// Works until the store is closed or dropped.
    pub(super) fn run(mut self) {
        loop {
            let first = if self.compaction.is_pending() {
                match self.queue.try_recv() {
                    Ok(request) => Some(request),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => break,
                }
            } else {
                match self.queue.recv_timeout(self.patience()) {
                    Ok(request) => Some(request),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            };
            let (group, close) = self.gather(first);
            if !group.is_empty() {
                self.commit(group);
            }
            if let Some(answer) = close {
                let _ = answer.send(self.close());
                return;
            }
            self.compact_a_little();
            self.settle();
            self.retain();
        }
        if let Err(error) = self.close() {
            tracing::error!("closing the store: {error}");
        }
    }

    /// How long the queue may stay empty before there is something else to do.
    fn patience(&self) -> Duration {
        let mut until = self.next_retention;
        if let Some(since) = self.unsettled {
            until = until.min(since + IDLE);
        }
        until.saturating_duration_since(Instant::now())
    }

    /// Takes what is waiting, up to the size of a group.
    fn gather(&mut self, first: Option<Request>) -> (Vec<Waiting>, Option<oneshot::Sender<Result<()>>>) {
        let mut group = Vec::new();
        let mut bytes = 0;
        let mut next = first;
        let until = Instant::now() + COMPANY;
        while let Some(request) = next {
            match request {
                Request::Commit { batch, answer } => {
                    bytes += batch.operations.iter().map(|operation| operation.bytes().len()).sum::<usize>();
                    group.push((batch, answer));
                }
                Request::Compact { floor, answer } => self.compaction.ask(floor.min(self.revision), answer),
                Request::Close { answer } => return (group, Some(answer)),
            }
            next = if group.len() < GROUP_BATCHES && bytes < GROUP_BYTES { self.queue.try_recv().ok() } else { None };
            if next.is_none() && !group.is_empty() && group.len() < self.last_group {
                next = self.queue.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
            }
        }
        if !group.is_empty() {
            self.last_group = group.len();
        }
        (group, None)
    }

    fn ending(&self, batches: usize) -> Ending {
        match self.shared.options.durability {
            Durability::Immediate if batches >= QUICK_GROUP => Ending::QuicklyReopened,
            Durability::Immediate => Ending::Durable,
            Durability::Relaxed if self.durable_at.elapsed() >= RELAXED_INTERVAL => Ending::QuicklyReopened,
            Durability::Relaxed => Ending::Deferred,
        }
    }

    /// Notes how the last transaction ended.
    fn ended(&mut self, ending: Ending) {
        if ending != Ending::Deferred {
            self.slices_deferred = 0;
        }
        if ending == Ending::QuicklyReopened {
            self.unsettled = None;
            self.durable_at = Instant::now();
        } else {
            self.unsettled = Some(Instant::now());
        }
    }

    /// One transaction for all of the group.
    fn commit(&mut self, group: Vec<Waiting>) {
        if let Some((_, until, why)) = &self.failed
            && Instant::now() < *until
        {
            for (_, answer) in group {
                let _ = answer.send(Err(Error::Unavailable(why.clone())));
            }
            return;
        }
        let ending = self.ending(group.len());
        let first = self.revision + 1;
        let (batches, answers): (Vec<Batch>, Vec<_>) = group.into_iter().unzip();
        let result = self.shared.medium.write(ending, |transaction| apply_group(transaction, &batches, first));
        match result {
            Ok(outcome) => {
                self.failed = None;
                self.ended(ending);
                self.revision = outcome.newest;
                self.shared.revision.store(outcome.newest, Ordering::Release);
                self.shared.history_bytes.fetch_add(outcome.superseded, Ordering::Relaxed);
                for applied in &outcome.batches {
                    if let Ok((_, changes)) = applied
                        && !changes.is_empty()
                    {
                        self.tell(changes);
                    }
                }
                for (applied, answer) in outcome.batches.into_iter().zip(answers) {
                    let _ = answer.send(applied.map(|(revision, _)| revision));
                }
            }
            Err(failure) => {
                let why = self.shared.medium.explain(failure).to_string();
                tracing::error!("a write failed: {why}");
                self.recover();
                let failures = self.failed.as_ref().map_or(0, |(failures, ..)| *failures) + 1;
                let pause = (PAUSE_AFTER_FAILURE * 2u32.saturating_pow(failures.min(10) - 1)).min(LONGEST_PAUSE);
                self.failed = Some((failures, Instant::now() + pause, why.clone()));
                for answer in answers {
                    let _ = answer.send(Err(Error::Unavailable(why.clone())));
                }
            }
        }
    }

    /// After a failed commit: opens the file again, and tells the sink of what turns out to be in it after all.
    fn recover(&mut self) {
        self.shared.medium.heal();
        let known = self.revision;
        let found = self.shared.medium.read(|transaction| {
            let newest = compact::newest(transaction)?;
            Ok((newest, read::log(transaction, "", known, newest)?, compact::progress(transaction)?))
        });
        match found {
            Ok((newest, changes, compacted)) => {
                self.compaction.set_back(compacted);
                let changes: Vec<Change> = changes.into_iter().map(|(change, _)| change).collect();
                for batch in changes.chunk_by(|a, b| a.revision == b.revision) {
                    self.tell(batch);
                }
                self.revision = known.max(newest);
                self.shared.revision.store(self.revision, Ordering::Release);
            }
            Err(error) => tracing::error!("after a failed write: {error}"),
        }
    }

    /// Tells the sink of one batch. A sink that panics is a bug elsewhere, which must not end the writer.
    fn tell(&self, changes: &[Change]) {
        if let Some(sink) = self.shared.sink.get()
            && catch_unwind(AssertUnwindSafe(|| sink(changes))).is_err()
        {
            tracing::error!("the sink of the store panicked");
        }
    }

    fn compact_a_little(&mut self) {
        if !self.compaction.is_pending() {
            return;
        }
        let relaxed = self.shared.options.durability == Durability::Relaxed;
        let ending = if relaxed || self.slices_deferred < SLICES_DEFERRED { Ending::Deferred } else { Ending::Durable };
        match self.compaction.slice(&self.shared, self.revision, ending) {
            Ok(()) => {
                self.slices_deferred += 1;
                self.ended(ending);
            }
            Err(error) => {
                tracing::error!("compaction failed: {error}");
                self.recover();
                self.compaction.give_up(&error);
            }
        }
    }

    /// After a quiet moment, one commit that makes everything durable and the file quick to reopen.
    fn settle(&mut self) {
        if self.unsettled.is_none_or(|since| since.elapsed() < IDLE) || self.compaction.is_pending() {
            return;
        }
        match self.shared.medium.write(Ending::QuicklyReopened, |_| Ok(())) {
            Ok(()) => self.ended(Ending::QuicklyReopened),
            Err(failure) => {
                tracing::error!("settling the store: {}", self.shared.medium.explain(failure));
                self.recover();
                self.unsettled = Some(Instant::now() + LONGEST_PAUSE);
            }
        }
    }

    /// From time to time, moves the floor as the retention asks for.
    fn retain(&mut self) {
        // By the machine's time or by the server's own clock, which may be moved.
        let (interval, now) = (self.shared.options.retention.interval, (self.shared.options.now)());
        if Instant::now() < self.next_retention && now < self.next_retention_time {
            return;
        }
        self.next_retention = Instant::now() + interval;
        self.next_retention_time = now.saturating_add(i64::try_from(interval.as_micros()).unwrap_or(i64::MAX));
        match compact::due(&self.shared, self.revision, self.compaction.is_pending()) {
            Ok(floor) => self.compaction.ask_quietly(floor),
            Err(error) => tracing::error!("looking for history to forget: {error}"),
        }
    }

    fn close(&mut self) -> Result<()> {
        let settled = match self.unsettled {
            Some(_) => self.shared.medium.write(Ending::QuicklyReopened, |_| Ok(())),
            None => Ok(()),
        };
        self.compaction.give_up(&Error::Unavailable("the store is closed".to_owned()));
        settled.and(self.shared.medium.close()).map_err(|failure| self.shared.medium.explain(failure))
    }
}

impl Operation {
    fn key(&self) -> &Key {
        match self {
            Operation::Put { key, .. } | Operation::Delete { key, .. } => key,
        }
    }

    fn bytes(&self) -> &bytes::Bytes {
        match self {
            Operation::Put { value, .. } => value,
            Operation::Delete { last, .. } => last,
        }
    }

    fn expect(&self) -> Expect {
        match self {
            Operation::Put { expect, .. } | Operation::Delete { expect, .. } => *expect,
        }
    }

    fn deletes(&self) -> bool {
        matches!(self, Operation::Delete { .. })
    }
}

/// What became of a group.
struct Outcome {
    /// One for each batch: its revision and changes, or why it was refused.
    batches: Vec<Result<(Revision, Vec<Change>)>>,
    newest: Revision,
    /// The bytes of the records that only history needs from now on.
    superseded: u64,
}

/// Records that the group has made but not yet inserted: they go to the end of the log in one run, which fills its pages.
type Pending = Vec<((Revision, u32), Vec<u8>)>;

fn apply_group(transaction: &WriteTransaction, batches: &[Batch], first: Revision) -> Result<Outcome, Failure> {
    let mut keys = transaction.open_table(KEYS)?;
    let mut log = transaction.open_table(LOG)?;
    let mut pending = Pending::new();
    let mut outcome = Outcome { batches: Vec::with_capacity(batches.len()), newest: first - 1, superseded: 0 };
    for batch in batches {
        let revision = outcome.newest + 1;
        match check(&keys, &log, &pending, batch) {
            Ok(_) if batch.operations.is_empty() => outcome.batches.push(Ok((outcome.newest, Vec::new()))),
            Ok(superseded) => {
                let (changes, tombstones) = insert(&mut keys, &mut pending, batch, revision)?;
                outcome.superseded += superseded + tombstones;
                outcome.newest = revision;
                outcome.batches.push(Ok((revision, changes)));
            }
            Err(Failure::Answer(refused)) => outcome.batches.push(Err(refused)),
            Err(failure) => return Err(failure),
        }
    }
    let mut end = log.upper_bound_mut(std::ops::Bound::<(u64, u32)>::Unbounded)?;
    for (place, record) in &pending {
        end.insert_before(*place, record.as_slice())?;
    }
    end.close()?;
    Ok(outcome)
}

/// Checks all preconditions of a batch; answers with the bytes that it would supersede.
fn check(
    keys: &Table<'_, &'static [u8], &'static [u8; 12]>,
    log: &Table<'_, (u64, u32), &'static [u8]>,
    pending: &Pending,
    batch: &Batch,
) -> Result<u64, Failure> {
    well_formed(batch)?;
    let mut superseded = 0;
    for operation in &batch.operations {
        let current = read::version_at(keys, operation.key(), MAX_REVISION)?.filter(|(_, version)| !version.deleted);
        let holds = match operation.expect() {
            Expect::Absent => current.is_none(),
            Expect::Revision(expected) => current.is_some_and(|(revision, _)| revision == expected),
        };
        match current {
            Some((_, version)) if holds => superseded += u64::from(version.length),
            None if holds => {}
            None => return Err(Error::Conflict { key: Arc::clone(operation.key()), current: None }.into()),
            Some((revision, version)) => {
                let key = Arc::clone(operation.key());
                let entry = standing(log, pending, Arc::clone(&key), revision, version)?;
                return Err(Error::Conflict { key, current: Some(entry) }.into());
            }
        }
    }
    Ok(superseded)
}

/// The entry that stands in the way; perhaps one of this very group.
fn standing(
    log: &Table<'_, (u64, u32), &'static [u8]>,
    pending: &Pending,
    key: Key,
    revision: Revision,
    version: Version,
) -> Result<Entry, Failure> {
    match pending.binary_search_by_key(&(revision, version.ordinal), |(place, _)| *place) {
        Ok(at) => Ok(Record::decode(revision, version.ordinal, &pending[at].1)?.to_entry(key, revision)),
        Err(_) => read::with_record(log, revision, version, |record| record.to_entry(key, revision)),
    }
}

/// What no caller should send, and no file should hold.
fn well_formed(batch: &Batch) -> Result<()> {
    let refuse = |why: String| Err(Error::Unavailable(why));
    if batch.operations.len() > MAX_OPERATIONS {
        return refuse(format!("a batch of {} operations is more than {MAX_OPERATIONS}", batch.operations.len()));
    }
    if batch.audit_id.as_ref().is_some_and(|id| id.len() > MAX_BYTES) {
        return refuse("the Audit-ID is too long".to_owned());
    }
    let mut seen = HashSet::new();
    for operation in &batch.operations {
        if operation.key().len() > MAX_BYTES || operation.bytes().len() > MAX_BYTES {
            return refuse(format!("an object of {} bytes is too large to store", operation.bytes().len()));
        }
        if batch.operations.len() > 1 && !seen.insert(operation.key()) {
            return refuse(format!("a batch changes {} twice", operation.key()));
        }
    }
    Ok(())
}

/// Writes a batch whose preconditions hold; answers with its changes and the bytes of its tombstones.
fn insert(
    keys: &mut Table<'_, &'static [u8], &'static [u8; 12]>,
    pending: &mut Pending,
    batch: &Batch,
    revision: Revision,
) -> Result<(Vec<Change>, u64), Failure> {
    let mut changes = Vec::with_capacity(batch.operations.len());
    let mut tombstones = 0;
    let audit_id = batch.audit_id.as_deref().map(AuditId::from_text);
    for (ordinal, operation) in (0u32..).zip(&batch.operations) {
        let deleted = operation.deletes();
        let record = Record { deleted, time: batch.time, audit_id, key: operation.key(), value: operation.bytes() };
        let bytes = record.encode(revision, ordinal);
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let encoded = version_key(operation.key(), revision);
        keys.insert(encoded.as_slice(), &Version { deleted, ordinal, length }.encode(&encoded))?;
        tombstones += if deleted { u64::from(length) } else { 0 };
        pending.push(((revision, ordinal), bytes));
        changes.push(Change {
            revision,
            key: Arc::clone(operation.key()),
            value: operation.bytes().clone(),
            deleted,
            time: batch.time,
            audit_id: batch.audit_id.clone(),
        });
    }
    Ok((changes, tombstones))
}
