//! What a write to the embedded store costs: alone, among many, and as the number of objects grows; what a range and an
//! opening cost. A plain program, not a statistic: each line is one run of a few seconds on a real file.
//!
//! `cargo bench --bench store -- [commits] [growth] [reads] [compaction]`, everything without an argument;
//! `USHER_BENCH_DIR` names the directory for the files, `USHER_BENCH_OBJECTS` the largest number of objects of `growth`.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use usher::store::redb::{Durability, Options, RedbStore};
use usher::store::{At, Batch, Expect, Key, Operation, Range, Store};

const VALUE: usize = 1024;
const RUN: Duration = Duration::from_secs(3);

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let want = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let directory = match std::env::var_os("USHER_BENCH_DIR") {
        Some(parent) => tempfile::tempdir_in(parent),
        None => tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")),
    }
    .unwrap();
    if want("commits") {
        for durability in [Durability::Immediate, Durability::Relaxed] {
            for writers in [1, 8, 32, 64, 256] {
                runtime.block_on(commits(directory.path(), durability, writers));
            }
        }
    }
    if want("growth") {
        runtime.block_on(growth(directory.path()));
    }
    if want("reads") {
        runtime.block_on(reads(directory.path()));
    }
    if want("compaction") {
        runtime.block_on(compaction(directory.path()));
    }
}

fn open(path: &Path, durability: Durability) -> Arc<RedbStore> {
    RedbStore::open(path, Options { durability, ..Options::default() }).unwrap()
}

/// Names as a cluster has them: spread over the key space, as the hash of a ReplicaSet spreads Pods.
fn key(number: u64) -> Key {
    Key::from(format!("/registry/configmaps/default/object-{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

fn value() -> Bytes {
    Bytes::from((0..VALUE).map(|at| b'a' + (at * 7 % 26) as u8).collect::<Vec<u8>>())
}

fn create(number: u64) -> Batch {
    Batch {
        operations: vec![Operation::Put { key: key(number), value: value(), expect: Expect::Absent }],
        time: jiff::Timestamp::now().as_microsecond(),
        audit_id: Some(Arc::from("6fa459ea-ee8a-3ca4-894e-db77e160355e")),
    }
}

async fn fill(store: &RedbStore, from: u64, to: u64) {
    for start in (from..to).step_by(1000) {
        let mut batch = create(start);
        batch.operations = (start..(start + 1000).min(to)).flat_map(|number| create(number).operations).collect();
        store.commit(batch).await.unwrap();
    }
}

/// Creates from so many tasks at once; answers how many per second, and the latency of each.
async fn creates(store: &Arc<RedbStore>, writers: usize, first: u64, run: Duration) -> (f64, Vec<Duration>, u64) {
    let next = Arc::new(AtomicU64::new(first));
    let begun = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let (store, next) = (Arc::clone(store), Arc::clone(&next));
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                while begun.elapsed() < run {
                    let batch = create(next.fetch_add(1, Ordering::Relaxed));
                    let asked = Instant::now();
                    store.commit(batch).await.unwrap();
                    latencies.push(asked.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.unwrap());
    }
    let rate = latencies.len() as f64 / begun.elapsed().as_secs_f64();
    latencies.sort_unstable();
    (rate, latencies, next.load(Ordering::Relaxed))
}

fn percentiles(latencies: &[Duration]) -> String {
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    format!("p50 {:.2} ms, p99 {:.2} ms, worst {:.2} ms", at(0.5), at(0.99), at(1.0))
}

/// The bytes this process has written so far, where the system counts them.
fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok()).unwrap_or(0)
}

async fn commits(directory: &Path, durability: Durability, writers: usize) {
    let path = directory.join("commits.redb");
    let store = open(&path, durability);
    fill(&store, 0, 20_000).await;
    let before = written();
    let (rate, latencies, _) = creates(&store, writers, 20_000, RUN).await;
    let each = (written() - before) / latencies.len() as u64;
    println!("commits, {durability:?}, {writers:>3} writers: {rate:>7.0}/s, {}, {each} bytes written each", percentiles(&latencies));
    store.close().await.unwrap();
    std::fs::remove_file(path).unwrap();
}

async fn growth(directory: &Path) {
    let path: PathBuf = directory.join("growth.redb");
    let most: u64 = std::env::var("USHER_BENCH_OBJECTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let store = open(&path, Durability::Immediate);
    let mut objects = 0;
    for target in [1_000, 10_000, 100_000, 300_000, 1_000_000].into_iter().filter(|target| *target <= most) {
        fill(&store, objects, target).await;
        let (alone, one, next) = creates(&store, 1, target.max(objects), RUN / 2).await;
        let before = written();
        let (among, many, next) = creates(&store, 32, next, RUN / 2).await;
        let each = (written() - before) / many.len() as u64;
        println!(
            "growth, {target:>7} objects: alone {:.0} µs ({}); among 32 {:.0} µs each ({}), {each} bytes written each",
            1e6 / alone,
            percentiles(&one),
            1e6 / among,
            percentiles(&many)
        );
        objects = next;
    }
    store.close().await.unwrap();
    std::fs::remove_file(path).unwrap();
}

async fn reads(directory: &Path) {
    for objects in [20_000u64, 200_000] {
        let path = directory.join("reads.redb");
        let store = open(&path, Durability::Immediate);
        fill(&store, 0, objects).await;
        let begun = Instant::now();
        let page = store.range(Range::default(), At::Newest).await.unwrap();
        println!("reads, {objects} objects: all of them in {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
        assert_eq!(page.entries.len() as u64, objects);
        let begun = Instant::now();
        let page = store.range(Range { limit: 500, ..Range::default() }, At::Newest).await.unwrap();
        println!("reads, {objects} objects: a page of 500 in {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
        assert_eq!(page.remaining as u64, objects - 500);
        let begun = Instant::now();
        for number in 0..10_000 {
            store.get(&key(number % objects), At::Newest).await.unwrap().unwrap();
        }
        println!("reads, {objects} objects: a get in {:.1} µs", begun.elapsed().as_secs_f64() * 1e6 / 1e4);
        store.close().await.unwrap();
        drop(store);
        let begun = Instant::now();
        let store = open(&path, Durability::Immediate);
        println!("reads, {objects} objects: opened in {:.1} ms after a clean close", begun.elapsed().as_secs_f64() * 1e3);
        // A copy of a file in use is what a crash leaves behind.
        for (what, group) in [("a lone write", 1), ("a group of 32", 32), ("an idle moment", 0)] {
            if group > 0 {
                creates(&store, group, objects + 1_000_000 * group as u64, Duration::from_millis(100)).await;
            } else {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            let left = directory.join("left.redb");
            std::fs::copy(&path, &left).unwrap();
            let begun = Instant::now();
            let reopened = open(&left, Durability::Immediate);
            println!("reads, {objects} objects: opened in {:.1} ms after a kill behind {what}", begun.elapsed().as_secs_f64() * 1e3);
            reopened.close().await.unwrap();
            std::fs::remove_file(left).unwrap();
        }
        store.close().await.unwrap();
        std::fs::remove_file(path).unwrap();
    }
}

/// What writers notice of a compaction under way.
async fn compaction(directory: &Path) {
    let path = directory.join("compaction.redb");
    let store = open(&path, Durability::Immediate);
    fill(&store, 0, 20_000).await;
    for _ in 0..4 {
        let page = store.range(Range::default(), At::Newest).await.unwrap();
        for entries in page.entries.chunks(500) {
            let operations = entries.iter().map(|entry| Operation::Put {
                key: Arc::clone(&entry.key),
                value: value(),
                expect: Expect::Revision(entry.revision),
            });
            let batch = Batch { operations: operations.collect(), time: jiff::Timestamp::now().as_microsecond(), audit_id: None };
            store.commit(batch).await.unwrap();
        }
    }
    let (rate, latencies, next) = creates(&store, 8, 20_000, RUN).await;
    println!("compaction, none: 8 writers {rate:.0}/s, {}", percentiles(&latencies));
    let floor = store.revision().await.unwrap();
    let begun = Instant::now();
    let compacting = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            store.compact(floor).await.unwrap();
            begun.elapsed()
        }
    });
    let (rate, latencies, _) = creates(&store, 8, next, RUN).await;
    let took = compacting.await.unwrap();
    println!("compaction of 80,000 versions, {:.0} ms: 8 writers {rate:.0}/s, {}", took.as_secs_f64() * 1e3, percentiles(&latencies));
    store.close().await.unwrap();
    std::fs::remove_file(path).unwrap();
}
