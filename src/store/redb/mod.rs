//! The embedded store: one redb file, one thread that writes it. The contract is that of [`crate::store`]; the format is in
//! [`format`](mod@format) and in `docs/storage.md`; what happens to a write is in [`writer`]; reading is in [`read`], forgetting
//! in [`compact`], and the file with its failures in [`medium`].
//!
//! Everything is read from redb's own snapshots: there is no second copy of the keys in memory.

mod check;
mod compact;
mod format;
mod medium;
pub mod operations;
mod overlay;
#[cfg(test)]
mod power_loss;
mod read;
mod writer;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use redb::ReadTransaction;
use tokio::sync::oneshot;

use compact::Compaction;
pub use compact::Retention;
use format::{KEYS, LOG, META, META_FLOOR, META_RESTORED};
use medium::{Failure, Medium};
pub use operations::{Dump, FILE, REVISIONS_SKIPPED_BY_RESTORE, Report, check, dump, fork, restore};
use writer::{Request, Writer};

use super::{At, Batch, Change, Entry, Error, Key, Logged, Page, Range, Result, Revision, Sink, Store};

/// A range that may be longer than this is read on a thread for blocking work.
const INLINE_ENTRIES: usize = 512;

/// When a commit answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the write is on the disk.
    #[default]
    Immediate,
    /// At once; the write is on the disk a second later at most. A crash, or an error of the disk, may take the last second
    /// with it, never more and never parts.
    Relaxed,
}

/// The settings of a store.
#[derive(Clone)]
pub struct Options {
    /// When a commit answers.
    pub durability: Durability,
    /// How much of the file redb keeps in memory. Small by default: the read side of the server has its own.
    pub cache_size: usize,
    /// How long what is kept.
    pub retention: Retention,
    /// The server's clock, in microseconds since the epoch, for the retention.
    pub now: Arc<dyn Fn() -> i64 + Send + Sync>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            durability: Durability::Immediate,
            cache_size: 32 << 20,
            retention: Retention::default(),
            now: Arc::new(|| jiff::Timestamp::now().as_microsecond()),
        }
    }
}

/// What the writer and the readers share.
struct Shared {
    medium: Medium,
    options: Options,
    sink: OnceLock<Sink>,
    revision: AtomicU64,
    floor: AtomicU64,
    window: AtomicU64,
    history_bytes: AtomicU64,
    pages: Mutex<VecDeque<Turned>>,
}

/// A page that was handed out and has more behind it: the next one need not count them again.
struct Turned {
    prefix: String,
    revision: Revision,
    last: Key,
    remaining: usize,
}

/// How many such pages are remembered.
const TURNED_PAGES: usize = 64;

/// A [`Store`] in one redb file.
pub struct RedbStore {
    shared: Arc<Shared>,
    queue: Sender<Request>,
    writer: Mutex<Option<thread::JoinHandle<()>>>,
}

impl RedbStore {
    /// Opens the file, or makes a new one. Fails with a text that says what to do if the file is damaged or in use.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Arc<RedbStore>> {
        RedbStore::start(Medium::open(path.as_ref(), options.cache_size)?, options)
    }

    /// A store that is gone when it is dropped.
    pub fn in_memory() -> Result<Arc<RedbStore>> {
        RedbStore::in_memory_with(Options::default())
    }

    /// The same with settings.
    pub fn in_memory_with(options: Options) -> Result<Arc<RedbStore>> {
        RedbStore::start(Medium::in_memory(options.cache_size)?, options)
    }

    fn start(medium: Medium, options: Options) -> Result<Arc<RedbStore>> {
        let (revision, floor, compacted, restored, survey) = medium.read(|transaction| {
            let survey = read::survey(transaction)?;
            let meta = transaction.open_table(META)?;
            let number = |name: &str| -> Result<u64, Failure> { Ok(meta.get(name)?.map_or(0, |value| value.value())) };
            Ok((compact::newest(transaction)?, number(META_FLOOR)?, compact::progress(transaction)?, number(META_RESTORED)?, survey))
        })?;
        let shared = Arc::new(Shared {
            medium,
            options,
            sink: OnceLock::new(),
            revision: AtomicU64::new(revision),
            floor: AtomicU64::new(floor),
            window: AtomicU64::new(floor.max(restored)),
            history_bytes: AtomicU64::new(survey.history_bytes),
            pages: Mutex::new(VecDeque::new()),
        });
        let (queue, requests) = channel();
        let writer = Writer::new(Arc::clone(&shared), requests, Compaction::new(compacted, floor));
        let writer = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| Error::Unavailable(format!("the writer of the store cannot be started: {error}")))?;
        Ok(Arc::new(RedbStore { shared, queue, writer: Mutex::new(Some(writer)) }))
    }

    /// The bytes of overwritten and deleted versions that are kept.
    pub fn history_bytes(&self) -> u64 {
        self.shared.history_bytes.load(Ordering::Relaxed)
    }

    /// Asks the writer, and waits for its answer.
    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<Result<T>>) -> Request) -> Result<T> {
        let closed = || Error::Unavailable("the store is closed".to_owned());
        let (answer, answered) = oneshot::channel();
        self.queue.send(request(answer)).map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        // The writer ends when the queue does. It is waited for, so that the file is free when the store is gone.
        let (queue, _) = channel();
        drop(std::mem::replace(&mut self.queue, queue));
        if let Some(writer) = self.writer.lock().take() {
            // The sink may have held the last reference, on the writer's own thread, which cannot wait for itself.
            if writer.thread().id() != thread::current().id() {
                let _ = writer.join();
            }
        }
    }
}

impl Shared {
    /// How many entries follow the page that ended with `range.after`, if that page is remembered.
    fn remaining(&self, range: &Range, revision: Revision) -> Option<usize> {
        let after = range.after.as_deref()?;
        let pages = self.pages.lock();
        pages
            .iter()
            .find(|page| page.revision == revision && &*page.last == after && page.prefix == range.prefix)
            .map(|page| page.remaining)
    }

    fn remember(&self, range: &Range, page: &Page) {
        let Some(last) = page.entries.last().filter(|_| page.remaining > 0) else { return };
        let (revision, last, remaining) = (page.revision, Arc::clone(&last.key), page.remaining);
        let mut pages = self.pages.lock();
        if pages.len() == TURNED_PAGES {
            pages.pop_front();
        }
        pages.push_back(Turned { prefix: range.prefix.clone(), revision, last, remaining });
    }

    /// Runs `look` at a revision in one snapshot. The newest revision is read first: what the snapshot has beyond it was
    /// not there yet when the read began.
    fn at<T>(&self, at: At, look: impl Fn(&ReadTransaction, Revision) -> Result<T, Failure>) -> Result<T> {
        loop {
            let newest = self.revision.load(Ordering::Acquire);
            let revision = match at {
                At::Newest => newest,
                At::Revision(asked) if asked > newest => return Err(Error::Future { asked, newest }),
                At::Revision(asked) => asked,
            };
            let result = self.medium.read(|transaction| {
                let floor = self.floor.load(Ordering::Acquire);
                if revision < floor {
                    return Err(Error::Compacted { floor }.into());
                }
                look(transaction, revision)
            });
            match result {
                // Compaction overtook the newest revision between the two looks.
                Err(Error::Compacted { .. }) if at == At::Newest => {}
                result => return result,
            }
        }
    }
}

/// Runs `work` where it may block.
async fn blocking<T: Send + 'static>(shared: &Arc<Shared>, work: impl FnOnce(&Shared) -> Result<T> + Send + 'static) -> Result<T> {
    let shared = Arc::clone(shared);
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime
            .spawn_blocking(move || work(&shared))
            .await
            .unwrap_or_else(|error| Err(Error::Unavailable(format!("a read of the store was given up: {error}")))),
        Err(_) => work(&shared),
    }
}

impl Store for RedbStore {
    fn attach(&self, sink: Sink) {
        if self.shared.sink.set(sink).is_err() {
            tracing::error!("the store has a sink already; the second one is ignored");
        }
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision>> {
        std::future::ready(Ok(self.shared.revision.load(Ordering::Acquire))).boxed()
    }

    fn floor(&self) -> Revision {
        self.shared.floor.load(Ordering::Acquire)
    }

    fn window(&self) -> Revision {
        self.shared.window.load(Ordering::Acquire).max(self.floor())
    }

    fn get<'a>(&'a self, key: &'a str, at: At) -> BoxFuture<'a, Result<Option<Entry>>> {
        async move {
            self.shared
                .at(at, |transaction, revision| read::get(&transaction.open_table(KEYS)?, &transaction.open_table(LOG)?, key, revision))
        }
        .boxed()
    }

    fn range(&self, range: Range, at: At) -> BoxFuture<'_, Result<Page>> {
        let inline = range.limit != 0 && range.limit <= INLINE_ENTRIES;
        let work = move |shared: &Shared| {
            let page = shared.at(at, |transaction, revision| {
                let remaining = shared.remaining(&range, revision);
                read::range(&transaction.open_table(KEYS)?, &transaction.open_table(LOG)?, &range, revision, remaining)
            })?;
            shared.remember(&range, &page);
            Ok(page)
        };
        async move { if inline { work(&self.shared) } else { blocking(&self.shared, work).await } }.boxed()
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision>> {
        self.ask(|answer| Request::Commit { batch, answer }).boxed()
    }

    fn log<'a>(&'a self, prefix: &'a str, after: Revision, until: Revision) -> BoxFuture<'a, Result<Vec<Logged>>> {
        let prefix = prefix.to_owned();
        let work = move |shared: &Shared| {
            let newest = shared.revision.load(Ordering::Acquire);
            shared.at(At::Revision(after), |transaction, after| read::log(transaction, &prefix, after, until.min(newest)))
        };
        blocking(&self.shared, work).boxed()
    }

    fn history<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Vec<Change>>> {
        let key = key.to_owned();
        blocking(&self.shared, move |shared| shared.medium.read(|transaction| read::history(transaction, &key))).boxed()
    }

    fn compact(&self, floor: Revision) -> BoxFuture<'_, Result<()>> {
        self.ask(move |answer| Request::Compact { floor, answer }).boxed()
    }

    fn snapshot<'a>(&'a self, to: &'a Path) -> BoxFuture<'a, Result<()>> {
        let to = to.to_owned();
        let work = move |shared: &Shared| shared.medium.read_once(&to, |transaction| operations::copy(transaction, &to));
        blocking(&self.shared, work).boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.ask(|answer| Request::Close { answer }).boxed()
    }
}
