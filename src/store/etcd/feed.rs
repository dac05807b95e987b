//! Following etcd: one watch over everything that is ours, from the revision that was last told of, opened again when it
//! breaks. Also the bounded watches that answer a question about the past.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::time::Instant;
use tonic::{Status, Streaming};

use super::client::Client;
use super::envelope::{Envelope, last_of};
use super::proto::{EVENT_DELETE, Event, WatchCreateRequest, WatchRequest, WatchResponse};
use super::{Keyspace, Shared, entry, revision_of, signed};
use crate::store::{At, Change, Key, Logged, Range, Revision};

/// How long to wait before a broken watch is opened again.
const PAUSE: Duration = Duration::from_millis(200);
/// etcd tells every so often how far a quiet watch has come; longer silence than this means that it is dead.
const SILENCE: Duration = Duration::from_secs(15 * 60);

/// Opens a watch from a revision on.
async fn open(client: &Client, key: Bytes, range_end: Bytes, from: Revision) -> Result<Streaming<WatchResponse>, Status> {
    let start_revision = signed(from.max(1));
    let create = WatchCreateRequest { key, range_end, start_revision, progress_notify: true, prev_kv: true };
    // Never ends by itself: etcd closes the watch when the requests end.
    let requests = stream::iter([WatchRequest { create: Some(create) }]).chain(stream::pending());
    client.watch(requests).await
}

/// The revision up to which etcd was compacted; zero if it never was. A watch from the beginning is told so; if nothing was
/// compacted, it is told of the first note instead.
pub(super) async fn compacted(client: &Client, note: Bytes) -> Result<Revision, Status> {
    let look = async {
        let mut watch = open(client, note, Bytes::new(), 1).await?;
        while let Some(response) = watch.message().await? {
            let empty = response.header.as_ref().is_some_and(|header| header.revision <= 1);
            if response.compact_revision > 0 || !response.created || empty {
                return Ok(revision_of(response.compact_revision));
            }
        }
        Ok(0)
    };
    // Where no note was ever written, and nothing compacted, the watch stays silent.
    tokio::time::timeout(Duration::from_secs(1), look).await.unwrap_or(Ok(0))
}

/// The changes of one response, batch by batch.
fn changes(keyspace: &Keyspace, events: &[Event]) -> Vec<Logged> {
    let mut changes = Vec::with_capacity(events.len());
    let revision = |event: &Event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
    for batch in events.chunk_by(|a, b| revision(a) == revision(b)) {
        let note = batch.iter().filter_map(|event| event.kv.as_ref()).find(|kv| kv.key == keyspace.note());
        let note = note.map(|kv| Envelope::decode(&kv.value));
        for event in batch {
            let Some(kv) = &event.kv else { continue };
            let Some(key) = keyspace.ours(&kv.key) else { continue };
            let replaced = event.prev_kv.as_ref().and_then(|kv| entry(keyspace, kv));
            let deleted = event.kind == EVENT_DELETE;
            let Envelope { time, audit_id, value } = if deleted {
                let last =
                    note.as_ref().and_then(|note| last_of(note, &key)).or_else(|| replaced.as_ref().map(|entry| entry.value.clone()));
                let (time, audit_id) = note.as_ref().map_or((0, None), |note| (note.time, note.audit_id.clone()));
                Envelope { time, audit_id, value: last.unwrap_or_default() }
            } else {
                Envelope::decode(&kv.value)
            };
            let change = Change { revision: revision_of(kv.mod_revision), key, value, deleted, time, audit_id };
            changes.push((change, replaced));
        }
    }
    changes
}

/// The changes of a span of revisions that etcd has reached; `None` if it has been compacted. Every batch writes the note,
/// so that the watch comes to `until` for certain.
pub(super) async fn span(client: &Client, keyspace: &Keyspace, after: Revision, until: Revision) -> Result<Option<Vec<Logged>>, Status> {
    let (key, range_end) = keyspace.everything();
    let mut watch = open(client, key, range_end, after + 1).await?;
    let mut found = Vec::new();
    loop {
        let response = tokio::time::timeout(Duration::from_secs(10), watch.message()).await;
        let response = response.map_err(|_| Status::deadline_exceeded("a watch of the past came to no end"))??;
        let Some(response) = response else { return Err(Status::unavailable("the watch ended")) };
        if response.compact_revision > 0 {
            return Ok(None);
        }
        if response.canceled {
            return Err(Status::unavailable(response.cancel_reason));
        }
        let last = response.events.last().and_then(|event| event.kv.as_ref()).map_or(0, |kv| revision_of(kv.mod_revision));
        found.extend(changes(keyspace, &response.events).into_iter().filter(|(change, _)| change.revision <= until));
        if last >= until {
            return Ok(Some(found));
        }
    }
}

/// Tells the sink of everything after `told`, for as long as the store lives.
pub(super) async fn follow(shared: Arc<Shared>, mut told: Revision) {
    // What is there, for the case that etcd forgot what happened while we were cut off.
    let mut known: Option<BTreeMap<Key, Revision>> = None;
    loop {
        if known.is_none() {
            known = list(&shared, told).await;
        }
        match follow_once(&shared, &mut told, &mut known).await {
            Ok(()) => {}
            Err(status) => tracing::warn!("the watch on etcd broke and is opened again: {}", status.message()),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn list(shared: &Shared, at: Revision) -> Option<BTreeMap<Key, Revision>> {
    let at = if at == 0 { At::Newest } else { At::Revision(at) };
    let page = shared.range(Range::default(), at).await.ok()?;
    Some(page.entries.into_iter().map(|entry| (entry.key, entry.revision)).collect())
}

async fn follow_once(shared: &Shared, told: &mut Revision, known: &mut Option<BTreeMap<Key, Revision>>) -> Result<(), Status> {
    let (key, range_end) = shared.keyspace.everything();
    let mut watch = open(&shared.client, key, range_end, *told + 1).await?;
    loop {
        let response = tokio::time::timeout(SILENCE, watch.message()).await;
        let response = response.map_err(|_| Status::unavailable("etcd fell silent"))??;
        let Some(response) = response else { return Err(Status::unavailable("etcd ended it")) };
        if response.compact_revision > 0 {
            shared.floor.fetch_max(revision_of(response.compact_revision), Ordering::AcqRel);
            return catch_up(shared, told, known).await;
        }
        if response.canceled {
            return Err(Status::unavailable(response.cancel_reason));
        }
        let last = response.events.last().and_then(|event| event.kv.as_ref()).map_or(0, |kv| revision_of(kv.mod_revision));
        let changes: Vec<Change> = changes(&shared.keyspace, &response.events).into_iter().map(|(change, _)| change).collect();
        tell(shared, &changes, *told, known);
        if last > *told {
            *told = last;
            shared.told.send_replace(last);
        }
    }
}

/// Hands changes to the sink, batch by batch, and never one twice.
fn tell(shared: &Shared, changes: &[Change], told: Revision, known: &mut Option<BTreeMap<Key, Revision>>) {
    for batch in changes.chunk_by(|a, b| a.revision == b.revision).filter(|batch| batch[0].revision > told) {
        if let Some(sink) = shared.sink.get() {
            sink(batch);
        }
        for change in batch {
            let Some(known) = known.as_mut() else { continue };
            if change.deleted {
                known.remove(&change.key);
            } else {
                known.insert(Arc::clone(&change.key), change.revision);
            }
        }
    }
}

/// What was missed has been compacted away: the sink is told of the difference between what was known and what is there now,
/// as if it had happened at once. The last bytes of what was deleted meanwhile are gone, and empty here.
async fn catch_up(shared: &Shared, told: &mut Revision, known: &mut Option<BTreeMap<Key, Revision>>) -> Result<(), Status> {
    let page = shared.range(Range::default(), At::Newest).await.map_err(|error| Status::unavailable(error.to_string()))?;
    let before = known.clone().unwrap_or_default();
    let present: BTreeMap<&Key, Revision> = page.entries.iter().map(|entry| (&entry.key, entry.revision)).collect();
    let mut missed: Vec<Change> = Vec::new();
    for entry in page.entries.iter().filter(|entry| before.get(&entry.key) != Some(&entry.revision)) {
        let (key, value) = (Arc::clone(&entry.key), entry.value.clone());
        missed.push(Change { revision: entry.revision, key, value, deleted: false, time: 0, audit_id: None });
    }
    for key in before.keys().filter(|key| !present.contains_key(key)) {
        missed.push(Change { revision: page.revision, key: Arc::clone(key), value: Bytes::new(), deleted: true, time: 0, audit_id: None });
    }
    missed.sort_by_key(|change| change.revision);
    tracing::warn!(changes = missed.len(), "cut off from etcd for longer than it keeps its history");
    tell(shared, &missed, *told, known);
    *told = (*told).max(page.revision);
    shared.told.send_replace(*told);
    Ok(())
}

/// Compacts what no client may look back to any more. Every replica does it; whoever comes second finds it done.
pub(super) async fn retain(shared: Arc<Shared>, window: Duration) {
    let mut samples: VecDeque<(Instant, Revision)> = VecDeque::new();
    let interval = (window / 10).max(Duration::from_millis(100));
    loop {
        tokio::time::sleep(interval).await;
        samples.push_back((Instant::now(), *shared.told.borrow()));
        let mut due = None;
        while let Some((at, revision)) = samples.front().copied()
            && at.elapsed() >= window
        {
            due = Some(revision);
            samples.pop_front();
        }
        if let Some(floor) = due
            && let Err(error) = shared.compact(floor).await
        {
            tracing::warn!("compacting etcd: {error}");
        }
    }
}
