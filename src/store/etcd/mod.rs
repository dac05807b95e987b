//! The store on etcd, for more than one machine: several servers over one etcd see each other's writes. The contract is that
//! of [`crate::store`]. Compare-and-swap is etcd's own, by the revision of the last change; what etcd has no place for is in
//! [`envelope`]; one watch ([`feed`]) tells the sink of every change, ours and the others', in the order of revisions; and a
//! commit answers when the feed has told of it.
//!
//! What is different from the embedded store: etcd decides about durability; history is kept as long as the watch window;
//! a batch has at most 127 operations; keys begin with a slash; a snapshot is one of etcd's own (put back with
//! `etcdutl snapshot restore`).

mod client;
mod envelope;
mod feed;
mod proto;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tonic::{Code, Status};

use client::Client;
pub use client::EtcdOptions;
use envelope::{Envelope, put_deletes};
use proto::{
    COMPARE_MOD, CompactionRequest, Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RangeResponse, RequestKind, RequestOp,
    TxnRequest,
};

use super::{At, Batch, Change, Entry, Error, Expect, Key, Logged, Operation, Page, Range, Result, Revision, Sink, Store};

/// etcd takes 128 operations in a transaction; one of them is our note.
const MAX_OPERATIONS: usize = 127;
/// How many entries one request reads at most.
const PAGE: usize = 10_000;
/// How long a commit waits for the feed to tell of it.
const FEED_PATIENCE: Duration = Duration::from_secs(15);

/// What the store and its tasks share.
struct Shared {
    client: Client,
    keyspace: Keyspace,
    sink: OnceLock<Sink>,
    floor: AtomicU64,
    /// The newest revision that the sink was told of.
    told: watch::Sender<Revision>,
    closed: AtomicBool,
}

/// A [`Store`] in an etcd cluster.
pub struct EtcdStore {
    shared: Arc<Shared>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

/// Where our keys are in etcd's.
struct Keyspace {
    prefix: String,
}

impl Keyspace {
    fn key(&self, key: &str) -> Bytes {
        Bytes::from(format!("{}{key}", self.prefix))
    }

    fn note(&self) -> Bytes {
        self.key(".batch")
    }

    /// From the note to the last key: a full stop comes right before the slash that all keys begin with.
    fn everything(&self) -> (Bytes, Bytes) {
        (self.key("."), self.key("0"))
    }

    /// All keys that begin with `prefix`, after `after`.
    fn range(&self, prefix: &str, after: Option<&str>) -> (Bytes, Bytes) {
        let prefix = if prefix.is_empty() { "/" } else { prefix };
        let start = match after {
            Some(after) if after >= prefix => Bytes::from(format!("{}{after}\0", self.prefix)),
            _ => self.key(prefix),
        };
        let mut end = self.key(prefix).to_vec();
        // UTF-8 has no byte 0xff.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        (start, Bytes::from(end))
    }

    /// Our key of one of etcd's; `None` for the note and for what is not ours.
    fn ours(&self, key: &[u8]) -> Option<Key> {
        let key = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        key.starts_with('/').then(|| Key::from(key))
    }
}

impl EtcdStore {
    /// Connects, and starts to follow what is written. Fails if etcd is out of reach.
    pub async fn connect(options: EtcdOptions) -> Result<Arc<EtcdStore>> {
        let client = Client::new(&options)?;
        let version = client.version().await.map_err(|status| client.explain(&status))?;
        tracing::info!(version, "connected to etcd");
        let shared = Arc::new(Shared {
            client,
            keyspace: Keyspace { prefix: options.prefix.trim_end_matches('/').to_owned() },
            sink: OnceLock::new(),
            floor: AtomicU64::new(0),
            told: watch::Sender::new(0),
            closed: AtomicBool::new(false),
        });
        shared.learn_floor().await?;
        let newest = shared.newest().await?;
        shared.told.send_replace(newest);
        let mut tasks = vec![tokio::spawn(feed::follow(Arc::clone(&shared), newest))];
        if let Some(window) = options.watch_window {
            tasks.push(tokio::spawn(feed::retain(Arc::clone(&shared), window)));
        }
        Ok(Arc::new(EtcdStore { shared, tasks }))
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn entry(keyspace: &Keyspace, kv: &KeyValue) -> Option<Entry> {
    let key = keyspace.ours(&kv.key)?;
    Some(Entry { key, revision: revision_of(kv.mod_revision), value: Envelope::decode(&kv.value).value })
}

/// etcd's revisions are signed and never negative.
fn revision_of(revision: i64) -> Revision {
    Revision::try_from(revision).unwrap_or(0)
}

fn signed(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

fn reads(range: RangeRequest) -> RequestOp {
    RequestKind::Range(range).into()
}

impl Shared {
    fn alive(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Unavailable("the store is closed".to_owned())) } else { Ok(()) }
    }

    fn floor(&self) -> Revision {
        self.floor.load(Ordering::Acquire)
    }

    /// The newest revision of our data, by agreement of the cluster.
    async fn newest(&self) -> Result<Revision> {
        let (newest, _) = self.read_at(None, None).await?;
        Ok(newest)
    }

    /// Reads the note, and with it perhaps a range at a revision, in one transaction.
    async fn read_at(&self, range: Option<RangeRequest>, at: Option<Revision>) -> Result<(Revision, RangeResponse)> {
        self.alive()?;
        let note = RangeRequest { key: self.keyspace.note(), keys_only: true, ..RangeRequest::default() };
        let mut success = vec![reads(note)];
        if let Some(mut range) = range {
            if let Some(at) = at {
                if at < self.floor() {
                    return Err(Error::Compacted { floor: self.floor() });
                }
                range.revision = signed(at);
            }
            success.push(reads(range));
        }
        let answer = match self.client.read(TxnRequest { success, ..TxnRequest::default() }).await {
            Ok(answer) => answer,
            Err(status) => return Err(self.refused(status, at).await),
        };
        let mut ranges = answer.responses.into_iter().map(|response| response.range.unwrap_or_default());
        let note = ranges.next().unwrap_or_default();
        let newest = note.kvs.first().map_or(0, |kv| revision_of(kv.mod_revision)).max(self.floor());
        match at {
            Some(asked) if asked > newest => Err(Error::Future { asked, newest }),
            _ => {
                let mut found = ranges.next().unwrap_or_default();
                // In answers inside a transaction etcd may leave the header out.
                found.header = found.header.or(answer.header);
                Ok((newest, found))
            }
        }
    }

    /// What a refusal of etcd means.
    async fn refused(&self, status: Status, asked: Option<Revision>) -> Error {
        match asked {
            Some(asked) if status.code() == Code::OutOfRange && status.message().contains("compacted") => {
                match self.learn_floor().await {
                    // At least that much is known.
                    Ok(()) => Error::Compacted { floor: self.floor.fetch_max(asked + 1, Ordering::AcqRel).max(asked + 1) },
                    Err(error) => error,
                }
            }
            Some(asked) if status.code() == Code::OutOfRange => Error::Future { asked, newest: *self.told.borrow() },
            _ => self.client.explain(&status),
        }
    }

    /// Asks etcd how far it was compacted, perhaps by somebody else: a watch from the beginning is told.
    async fn learn_floor(&self) -> Result<()> {
        let compacted = feed::compacted(&self.client, self.keyspace.note()).await.map_err(|status| self.client.explain(&status))?;
        self.floor.fetch_max(compacted, Ordering::AcqRel);
        Ok(())
    }

    async fn get(&self, key: &str, at: At) -> Result<Option<Entry>> {
        let at = match at {
            At::Newest => None,
            // To etcd, revision zero is the newest; to us, it is the time before the first write.
            At::Revision(0) if self.floor() == 0 => return self.alive().map(|()| None),
            At::Revision(revision) => Some(revision),
        };
        let range = RangeRequest { key: self.keyspace.key(key), ..RangeRequest::default() };
        let (_, found) = self.read_at(Some(range), at).await?;
        Ok(found.kvs.first().and_then(|kv| entry(&self.keyspace, kv)))
    }

    async fn range(&self, range: Range, at: At) -> Result<Page> {
        let mut at = match at {
            At::Newest => None,
            At::Revision(0) if self.floor() == 0 => return self.alive().map(|()| Page::default()),
            At::Revision(revision) => Some(revision),
        };
        let mut page = Page { revision: at.unwrap_or(0), ..Page::default() };
        let mut after = range.after.clone();
        loop {
            let wanted = if range.limit == 0 { PAGE } else { PAGE.min(range.limit - page.entries.len()) };
            let (key, range_end) = self.keyspace.range(&range.prefix, after.as_deref());
            if key >= range_end {
                // After the last key that could begin with the prefix; whether the revision can be read is asked all the same.
                let anything = RangeRequest { key: self.keyspace.note(), keys_only: true, ..RangeRequest::default() };
                let (newest, _) = self.read_at(Some(anything), at).await?;
                page.revision = at.unwrap_or(newest);
                return Ok(page);
            }
            let request = RangeRequest { key, range_end, limit: signed(wanted as u64), ..RangeRequest::default() };
            let (newest, found) = self.read_at(Some(request), at).await?;
            if at.is_none() {
                page.revision = newest;
            }
            page.entries.extend(found.kvs.iter().filter_map(|kv| entry(&self.keyspace, kv)));
            page.remaining = usize::try_from(found.count).unwrap_or(0).saturating_sub(found.kvs.len());
            if page.remaining == 0 || range.limit != 0 && page.entries.len() >= range.limit {
                return Ok(page);
            }
            // The further pages are of the state that the first one was of.
            at = at.or_else(|| Some(newest.max(1)));
            after = page.entries.last().map(|entry| entry.key.to_string());
        }
    }

    async fn commit(&self, batch: Batch) -> Result<Revision> {
        self.alive()?;
        if batch.operations.is_empty() {
            return self.newest().await;
        }
        let request = self.transaction(&batch)?;
        let answer = self.client.commit(request).await.map_err(|status| self.client.explain(&status))?;
        if !answer.succeeded {
            return Err(self.conflict(&batch, answer.responses.into_iter().map(|response| response.range.unwrap_or_default())));
        }
        let revision = revision_of(answer.header.unwrap_or_default().revision);
        let mut told = self.told.subscribe();
        match tokio::time::timeout(FEED_PATIENCE, told.wait_for(|told| *told >= revision)).await {
            Ok(Ok(_)) => Ok(revision),
            _ => Err(Error::Unavailable(format!("etcd took the write at revision {revision}, but its watch does not tell of it"))),
        }
    }

    fn transaction(&self, batch: &Batch) -> Result<TxnRequest> {
        if batch.operations.len() > MAX_OPERATIONS {
            return Err(Error::Unavailable(format!("etcd takes at most {MAX_OPERATIONS} operations at once")));
        }
        let audit_id = batch.audit_id.as_deref();
        let mut request = TxnRequest::default();
        let mut deletes = Vec::new();
        for operation in &batch.operations {
            let (key, expect, kind) = match operation {
                Operation::Put { key, value, expect } => {
                    let value = Envelope::encode(batch.time, audit_id, value);
                    (key, expect, RequestKind::Put(PutRequest { key: self.keyspace.key(key), value }))
                }
                Operation::Delete { key, last, expect } => {
                    deletes.push((&**key, &**last));
                    (key, expect, RequestKind::DeleteRange(DeleteRangeRequest { key: self.keyspace.key(key) }))
                }
            };
            if !key.starts_with('/') {
                return Err(Error::Unavailable(format!("{key:?} does not begin with a slash")));
            }
            let expected = match expect {
                Expect::Absent => 0,
                // Zero would mean that there is none.
                Expect::Revision(0) => i64::MAX,
                Expect::Revision(revision) => signed(*revision),
            };
            let key = self.keyspace.key(key);
            request.compare.push(Compare { result: 0, target: COMPARE_MOD, key: key.clone(), mod_revision: Some(expected) });
            request.failure.push(reads(RangeRequest { key, ..RangeRequest::default() }));
            request.success.push(kind.into());
        }
        let note = Envelope::encode(batch.time, audit_id, &put_deletes(deletes.into_iter()));
        request.success.push(RequestKind::Put(PutRequest { key: self.keyspace.note(), value: note }).into());
        Ok(request)
    }

    /// The first operation whose precondition does not hold, from what etcd found instead.
    fn conflict(&self, batch: &Batch, found: impl Iterator<Item = RangeResponse>) -> Error {
        for (operation, found) in batch.operations.iter().zip(found) {
            let (Operation::Put { key, expect, .. } | Operation::Delete { key, expect, .. }) = operation;
            let current = found.kvs.first().and_then(|kv| entry(&self.keyspace, kv));
            let holds = match expect {
                Expect::Absent => current.is_none(),
                Expect::Revision(expected) => current.as_ref().is_some_and(|entry| entry.revision == *expected),
            };
            if !holds {
                return Error::Conflict { key: Arc::clone(key), current };
            }
        }
        Error::Unavailable("etcd refused a transaction whose conditions hold".to_owned())
    }

    async fn log(&self, prefix: &str, after: Revision, until: Revision) -> Result<Vec<Logged>> {
        self.alive()?;
        if after < self.floor() {
            return Err(Error::Compacted { floor: self.floor() });
        }
        let newest = self.newest().await?;
        if after > newest {
            return Err(Error::Future { asked: after, newest });
        }
        let until = until.min(newest);
        if until <= after {
            return Ok(Vec::new());
        }
        match feed::span(&self.client, &self.keyspace, after, until).await {
            Ok(Some(mut changes)) => {
                changes.retain(|(change, _)| change.key.starts_with(prefix));
                Ok(changes)
            }
            Ok(None) => {
                self.learn_floor().await?;
                Err(Error::Compacted { floor: self.floor() })
            }
            Err(status) => Err(self.client.explain(&status)),
        }
    }

    async fn history(&self, key: &str) -> Result<Vec<Change>> {
        let floor = self.floor();
        let mut history = Vec::new();
        if floor > 0 {
            let range = RangeRequest { key: self.keyspace.key(key), ..RangeRequest::default() };
            let (_, found) = self.read_at(Some(range), Some(floor)).await?;
            if let Some(kv) = found.kvs.first() {
                let Envelope { time, audit_id, value } = Envelope::decode(&kv.value);
                history.push(Change { revision: revision_of(kv.mod_revision), key: Key::from(key), value, deleted: false, time, audit_id });
            }
        }
        let since = self.log(key, floor, Revision::MAX).await?;
        history.extend(since.into_iter().map(|(change, _)| change).filter(|change| &*change.key == key));
        Ok(history)
    }

    async fn compact(&self, floor: Revision) -> Result<()> {
        let floor = floor.min(self.newest().await?);
        if floor <= self.floor() {
            return Ok(());
        }
        match self.client.compact(CompactionRequest { revision: signed(floor) }).await {
            Ok(_) => {
                self.floor.fetch_max(floor, Ordering::AcqRel);
                Ok(())
            }
            // Somebody else was there first.
            Err(status) if status.code() == Code::OutOfRange => self.learn_floor().await,
            Err(status) => Err(self.client.explain(&status)),
        }
    }

    async fn snapshot(&self, to: &Path) -> Result<()> {
        self.alive()?;
        let failed = |error: std::io::Error| Error::Unavailable(format!("{}: {error}", to.display()));
        let mut stream = self.client.snapshot().await.map_err(|status| self.client.explain(&status))?;
        let mut options = tokio::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        options.mode(0o600);
        let mut file = options.open(to).await.map_err(failed)?;
        while let Some(part) = stream.message().await.map_err(|status| self.client.explain(&status))? {
            file.write_all(&part.blob).await.map_err(failed)?;
        }
        file.sync_all().await.map_err(failed)
    }
}

impl Store for EtcdStore {
    fn attach(&self, sink: Sink) {
        if self.shared.sink.set(sink).is_err() {
            tracing::error!("the store has a sink already; the second one is ignored");
        }
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision>> {
        self.shared.newest().boxed()
    }

    fn floor(&self) -> Revision {
        self.shared.floor()
    }

    fn get<'a>(&'a self, key: &'a str, at: At) -> BoxFuture<'a, Result<Option<Entry>>> {
        self.shared.get(key, at).boxed()
    }

    fn range(&self, range: Range, at: At) -> BoxFuture<'_, Result<Page>> {
        self.shared.range(range, at).boxed()
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision>> {
        self.shared.commit(batch).boxed()
    }

    fn log<'a>(&'a self, prefix: &'a str, after: Revision, until: Revision) -> BoxFuture<'a, Result<Vec<Logged>>> {
        self.shared.log(prefix, after, until).boxed()
    }

    fn history<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Vec<Change>>> {
        self.shared.history(key).boxed()
    }

    fn compact(&self, floor: Revision) -> BoxFuture<'_, Result<()>> {
        self.shared.compact(floor).boxed()
    }

    fn snapshot<'a>(&'a self, to: &'a Path) -> BoxFuture<'a, Result<()>> {
        self.shared.snapshot(to).boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.shared.closed.store(true, Ordering::Release);
        for task in &self.tasks {
            task.abort();
        }
        std::future::ready(Ok(())).boxed()
    }
}
