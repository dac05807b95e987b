//! How bytes last. A store knows keys, revisions and preconditions; it knows nothing of JSON, resources or HTTP.
//!
//! The contract, complete enough to write a further backend from:
//!
//! * **Keys** are `/registry/<resource>/<namespace>/<name>` (see [`crate::registry`]); a store treats them as opaque
//!   strings ordered by their bytes.
//! * **Revisions** are one global counter. Every successful [`Store::commit`] takes the next revision, and all
//!   operations of its batch carry that revision. A revision is never used twice, also not after a crash.
//! * **Preconditions** of all operations of a batch are checked together; the batch is applied as a whole or not at
//!   all. A failed precondition is [`Error::Conflict`] and carries the entry that stood in the way.
//! * **Durability**: `commit` answers only when the batch would survive a crash (unless the store was opened relaxed).
//! * **The sink** is told of every batch in the order of revisions, exactly once, after it is durable and *before*
//!   `commit` answers. Whoever is answered can therefore rely on every reader behind the sink having seen the write.
//! * **Old reads** see exactly the state at their revision as long as it is not below [`Store::floor`]; below it
//!   they are [`Error::Compacted`]. A revision the store has not reached yet is [`Error::Future`].
//! * A delete leaves a tombstone with the last bytes, so that the log can tell what was deleted.

pub mod etcd;
pub mod redb;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;

/// One global counter; a `resourceVersion` on the wire is a revision. Zero means "nothing was ever written".
pub type Revision = u64;

/// The key of an entry, shared by everybody who holds the entry.
pub type Key = Arc<str>;

/// Which state a read looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The newest committed state.
    Newest,
    /// The state exactly as it was when this revision was committed.
    Revision(Revision),
}

/// A value and the revision that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// The revision of the write that made this value.
    pub revision: Revision,
    /// The bytes as they were written.
    pub value: Bytes,
}

/// The keys of a range read: all that begin with `prefix`, strictly after `after` if that is given.
#[derive(Clone, Debug, Default)]
pub struct Range {
    /// What every key of the range begins with.
    pub prefix: String,
    /// The last key of the previous page.
    pub after: Option<String>,
    /// How many entries at most; zero is no limit.
    pub limit: usize,
}

/// What a range read found, in the order of keys.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The entries.
    pub entries: Vec<Entry>,
    /// The revision whose state this is.
    pub revision: Revision,
    /// How many more entries the range has behind this page.
    pub remaining: usize,
}

/// What must hold for an operation to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No entry stands under the key.
    Absent,
    /// The entry was last written by exactly this revision.
    Revision(Revision),
}

/// One change of one key.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Write the value.
    Put {
        /// Where.
        key: Key,
        /// What.
        value: Bytes,
        /// Under which condition.
        expect: Expect,
    },
    /// Remove the entry; the tombstone keeps `last`, the bytes that watchers see in the DELETED event.
    Delete {
        /// Where.
        key: Key,
        /// The last state of the object.
        last: Bytes,
        /// Under which condition.
        expect: Expect,
    },
}

/// Operations that are applied together, or not at all, and share one revision.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Each key at most once.
    pub operations: Vec<Operation>,
    /// Microseconds since the epoch, by the server's clock; kept in the log for history.
    pub time: i64,
    /// The Audit-ID of the request that caused it; kept in the log for history.
    pub audit_id: Option<Arc<str>>,
}

/// One change of one key as the log tells it.
#[derive(Clone, Debug)]
pub struct Change {
    /// The revision of the batch it came with.
    pub revision: Revision,
    /// The key.
    pub key: Key,
    /// The new bytes, or the last ones where it is a delete.
    pub value: Bytes,
    /// Whether the entry was removed.
    pub deleted: bool,
    /// Microseconds since the epoch.
    pub time: i64,
    /// The Audit-ID of the request that caused it.
    pub audit_id: Option<Arc<str>>,
}

/// A change with the entry that it replaced.
pub type Logged = (Change, Option<Entry>);

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A precondition did not hold; the entry as it is now, if there is one.
    #[error("the precondition on {key} does not hold")]
    Conflict {
        /// The first key whose precondition failed.
        key: Key,
        /// What stands there instead.
        current: Option<Entry>,
    },
    /// The revision has been compacted away; the oldest readable one.
    #[error("the required revision has been compacted; the oldest is {floor}")]
    Compacted {
        /// The oldest revision that can still be read.
        floor: Revision,
    },
    /// The revision lies ahead of the newest one.
    #[error("revision {asked} is ahead of the newest, {newest}")]
    Future {
        /// What was asked for.
        asked: Revision,
        /// What there is.
        newest: Revision,
    },
    /// The medium failed: disk full, file damaged, etcd out of reach. The text says what and what to do.
    #[error("{0}")]
    Unavailable(String),
}

/// The result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Where committed changes go, in the order of revisions; see the contract above. Must not block.
pub type Sink = Arc<dyn Fn(&[Change]) + Send + Sync>;

/// A versioned, durable map of keys to bytes. The module's documentation is the contract.
pub trait Store: Send + Sync {
    /// Installs the sink. Called once, before the first commit.
    fn attach(&self, sink: Sink);
    /// The newest committed revision, as seen by every replica over the same data.
    fn revision(&self) -> BoxFuture<'_, Result<Revision>>;
    /// The oldest revision that can be read or followed from.
    fn floor(&self) -> Revision;
    /// The oldest revision that clients may list or watch from: never below the floor, and above it where history is
    /// kept longer than a client may be behind. A client below it is answered 410 Gone; reads of the server's own
    /// (history, what an object was yesterday) go down to the floor.
    fn window(&self) -> Revision {
        self.floor()
    }
    /// One entry.
    fn get<'a>(&'a self, key: &'a str, at: At) -> BoxFuture<'a, Result<Option<Entry>>>;
    /// The entries of a range.
    fn range(&self, range: Range, at: At) -> BoxFuture<'_, Result<Page>>;
    /// Applies a batch; an empty one changes nothing and takes no revision. Answers with its revision when it is durable and the sink has seen it.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision>>;
    /// The changes after `after`, up to and including `until`, of keys that begin with `prefix`, oldest first, each
    /// with the entry that it replaced.
    fn log<'a>(&'a self, prefix: &'a str, after: Revision, until: Revision) -> BoxFuture<'a, Result<Vec<Logged>>>;
    /// Every kept version of one key, oldest first.
    fn history<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Vec<Change>>>;
    /// Forgets what only readers below `floor` could see.
    fn compact(&self, floor: Revision) -> BoxFuture<'_, Result<()>>;
    /// Writes a consistent copy of the newest state, with its history, to a new file while the store is in use.
    fn snapshot<'a>(&'a self, to: &'a Path) -> BoxFuture<'a, Result<()>>;
    /// Flushes and closes; later calls answer [`Error::Unavailable`].
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}
