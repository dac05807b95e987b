//! Snapshot, restore, check, dump and fork; and the retention.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use usher::store::redb::{FILE, Options, REVISIONS_SKIPPED_BY_RESTORE, RedbStore, Retention, check, dump, fork, restore};
use usher::store::{At, Error, Expect, Range, Store};

use super::{batch, delete, put};
use crate::until;

fn options() -> Options {
    Options { now: Arc::new(|| 0), ..Options::default() }
}

async fn keys(store: &RedbStore, at: At) -> Vec<String> {
    store.range(Range::default(), at).await.unwrap().entries.iter().map(|entry| entry.key.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_taken_under_writes_is_consistent_and_restores_with_its_history() {
    let directory = tempfile::tempdir().unwrap();
    let store = RedbStore::open(directory.path().join(FILE), options()).unwrap();
    store.commit(batch(vec![put("/left", "0", Expect::Absent), put("/right", "0", Expect::Absent)])).await.unwrap();
    let writer = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for count in 2u64..400 {
                let value = count.to_string();
                let expect = Expect::Revision(count - 1);
                store.commit(batch(vec![put("/left", &value, expect), put("/right", &value, expect)])).await.unwrap();
            }
        }
    });
    let snapshot = directory.path().join("snapshot.redb");
    store.snapshot(&snapshot).await.unwrap();
    assert!(store.snapshot(&snapshot).await.is_err(), "a snapshot was overwritten");
    writer.await.unwrap();
    let before = store.revision().await.unwrap();

    let report = check(&snapshot).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!((report.objects, report.closed), (2, true));
    assert_eq!(report.versions, report.revision * 2);

    let data_dir = directory.path().join("restored");
    restore(&snapshot, &data_dir).unwrap();
    assert!(restore(&snapshot, &data_dir).unwrap_err().to_string().contains("move it away"));
    assert!(check(&data_dir.join(FILE)).unwrap().problems.is_empty());
    let restored = RedbStore::open(data_dir.join(FILE), options()).unwrap();
    // Nothing that was given out after the snapshot is given out again, and clients have to list anew.
    let revision = restored.revision().await.unwrap();
    assert!(revision > before && revision >= REVISIONS_SKIPPED_BY_RESTORE);
    assert_eq!(restored.window(), revision);
    assert_eq!(restored.floor(), 0);
    let page = restored.range(Range::default(), At::Newest).await.unwrap();
    assert_eq!(page.entries.len(), 2);
    assert_eq!(page.entries[0].value, page.entries[1].value);
    assert_eq!(page.entries[0].revision, report.revision);
    assert_eq!(restored.history("/left").await.unwrap().len() as u64, report.revision);
    let next = restored.commit(batch(vec![put("/new", "1", Expect::Absent)])).await.unwrap();
    assert_eq!(next, revision + 1);
    restored.close().await.unwrap();
    assert!(check(&data_dir.join(FILE)).unwrap().problems.is_empty());
}

#[tokio::test]
async fn a_dump_prints_a_prefix_as_it_is_or_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    let store = RedbStore::open(&path, options()).unwrap();
    for number in 0..1200 {
        store.commit(batch(vec![put(&format!("/pods/{number:04}"), "x", Expect::Absent)])).await.unwrap();
    }
    store.commit(batch(vec![delete("/pods/0000", "x", Expect::Revision(1))])).await.unwrap();
    store.commit(batch(vec![put("/other", "x", Expect::Absent)])).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let now: Vec<String> = dump(&path, "/pods/", At::Newest).unwrap().map(|entry| entry.unwrap().key.to_string()).collect();
    assert_eq!(now.len(), 1199);
    assert!(now.is_sorted());
    assert_eq!(dump(&path, "/pods/", At::Revision(1000)).unwrap().count(), 1000);
    assert_eq!(dump(&path, "", At::Newest).unwrap().count(), 1200);
    assert!(matches!(dump(&path, "", At::Revision(5000)).err(), Some(Error::Future { .. })));
}

#[tokio::test]
async fn a_fork_is_a_store_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let store = RedbStore::open(data_dir.join(FILE), options()).unwrap();
    store.commit(batch(vec![put("/a", "1", Expect::Absent)])).await.unwrap();
    let to = directory.path().join("fork");
    assert!(fork(&data_dir, &to).unwrap_err().to_string().contains("in use"));
    store.close().await.unwrap();
    drop(store);
    std::fs::create_dir(data_dir.join("pki")).unwrap();
    std::fs::write(data_dir.join("pki/ca.crt"), "certificate").unwrap();
    fork(&data_dir, &to).unwrap();
    assert!(fork(&data_dir, &to).is_err(), "a fork was overwritten");
    assert_eq!(std::fs::read(to.join("pki/ca.crt")).unwrap(), b"certificate");
    let forked = RedbStore::open(to.join(FILE), options()).unwrap();
    forked.commit(batch(vec![put("/b", "1", Expect::Absent)])).await.unwrap();
    let original = RedbStore::open(data_dir.join(FILE), options()).unwrap();
    assert_eq!(keys(&forked, At::Newest).await, ["/a", "/b"]);
    assert_eq!(keys(&original, At::Newest).await, ["/a"]);
}

/// A store whose clock the test moves, in seconds.
fn with_clock(retention: Retention) -> (Arc<RedbStore>, Arc<AtomicI64>) {
    let clock = Arc::new(AtomicI64::new(0));
    let hand = Arc::clone(&clock);
    let now = Arc::new(move || hand.load(Ordering::Relaxed) * 1_000_000);
    let retention = Retention { interval: Duration::from_millis(5), ..retention };
    (RedbStore::in_memory_with(Options { now, retention, ..Options::default() }).unwrap(), clock)
}

async fn put_at(store: &RedbStore, seconds: i64, value: &str) -> u64 {
    let current = store.get("/a", At::Newest).await.unwrap();
    let expect = current.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
    let mut batch = batch(vec![put("/a", value, expect)]);
    batch.time = seconds * 1_000_000;
    store.commit(batch).await.unwrap()
}

#[tokio::test]
async fn clients_may_look_back_over_the_watch_window_and_history_lasts_longer() {
    let (store, clock) = with_clock(Retention::default());
    for seconds in 0..10 {
        put_at(&store, seconds * 100, "x").await;
    }
    clock.store(950, Ordering::Relaxed);
    // Older than five minutes are the changes up to 600 s, which is revision 7.
    until("the window moves", async || store.window() == 7).await;
    assert_eq!(store.floor(), 0);
    assert_eq!(store.history("/a").await.unwrap().len(), 10);
    clock.store(24 * 3600 + 450, Ordering::Relaxed);
    until("the floor moves", async || store.floor() == 5).await;
    let history = async || Some(store.history("/a").await.unwrap()).filter(|kept| kept.len() <= 6);
    let kept = crate::answer("what is older goes", history).await;
    assert_eq!(kept.iter().map(|change| change.revision).collect::<Vec<_>>(), [5, 6, 7, 8, 9, 10]);
    assert!(matches!(store.get("/a", At::Revision(4)).await, Err(Error::Compacted { floor: 5 })));
    assert!(store.get("/a", At::Revision(5)).await.unwrap().is_some());
}

#[tokio::test]
async fn history_is_bounded_in_bytes_but_never_shorter_than_the_watch_window() {
    let (store, clock) = with_clock(Retention { history_bytes: 50_000, ..Retention::default() });
    let value = "x".repeat(1000);
    for second in 0..200 {
        put_at(&store, second, &value).await;
    }
    assert_eq!(store.floor(), 0);
    clock.store(400, Ordering::Relaxed);
    // Everything before 100 s may go: that is revision 100.
    until("the floor moves", async || store.floor() == 100).await;
    assert!(store.history_bytes() > 50_000);
    clock.store(2000, Ordering::Relaxed);
    until("the bytes are bounded", async || store.history_bytes() <= 50_000).await;
    assert!(store.history_bytes() > 40_000, "{}", store.history_bytes());
}
