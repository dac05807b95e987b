//! A writer process is killed at random points, again and again over the same file. What it was told is durable is there,
//! nothing is there by half, and the log goes on without a gap or a repeat.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use usher::store::redb::{Options, RedbStore, check};
use usher::store::{At, Change, Expect, Range, Revision, Store};

use super::{batch, delete, put};

const KILLS: u64 = 200;
const WRITERS: u64 = 6;
const DIRECTORY: &str = "USHER_TEST_CRASH_DIRECTORY";

/// The clock stands still: the test decides what is compacted.
fn options() -> Options {
    Options { now: Arc::new(|| 0), ..Options::default() }
}

fn file(directory: &Path) -> PathBuf {
    directory.join("store.redb")
}

/// Not a test: the process that is killed. It writes without end and says on its output what it was told is durable.
#[test]
#[ignore = "the child process of the crash test"]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = RedbStore::open(file(Path::new(&directory)), options()).unwrap();
        let started = store.revision().await.unwrap();
        // On a line of its own: the harness has begun one.
        say(&format!("\nready {started}"));
        let mut tasks = Vec::new();
        for writer in 0..WRITERS {
            tasks.push(tokio::spawn(write(Arc::clone(&store), writer, started)));
        }
        let compacting = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(7)).await;
                // Far enough behind that what the parent still wants to see is kept.
                let floor = compacting.revision().await.unwrap().saturating_sub(20_000);
                compacting.compact(floor).await.unwrap();
            }
        }));
        for task in tasks {
            task.await.unwrap();
        }
    });
}

fn say(line: &str) {
    // One write for a line, past the test harness' capture.
    std::io::stdout().lock().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Writes pairs of keys that belong together, and deletes them from time to time.
async fn write(store: Arc<RedbStore>, writer: u64, started: Revision) {
    let (left, right) = (format!("/left/{writer}"), format!("/right/{writer}"));
    let expect = |entry: Option<Revision>| entry.map_or(Expect::Absent, Expect::Revision);
    let mut current = store.get(&left, At::Newest).await.unwrap().map(|entry| entry.revision);
    for count in 0u64.. {
        let value = format!("{started}-{writer}-{count}-{}", "x".repeat((count % 50 * 40) as usize));
        let deletes = count % 5 == 4 && current.is_some();
        let operations = if deletes {
            vec![delete(&left, &value, expect(current)), delete(&right, &value, expect(current))]
        } else {
            vec![put(&left, &value, expect(current)), put(&right, &value, expect(current))]
        };
        let revision = store.commit(batch(operations)).await.unwrap();
        current = (!deletes).then_some(revision);
        say(&format!("told {revision} {writer} {value}"));
    }
}

#[derive(Debug)]
struct Told {
    revision: Revision,
    writer: u64,
    value: String,
}

/// Starts the child, kills it after so long, and answers with what it said.
fn run_and_kill(directory: &Path, after: Duration) -> (Option<Revision>, Vec<Told>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "--test-threads=1", "store::crash::child"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = child.stdout.take().unwrap();
    let ready = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let ready = Arc::clone(&ready);
        move || {
            let (mut started, mut told) = (None, Vec::new());
            for line in BufReader::new(output).lines() {
                let line = line.unwrap();
                let mut words = line.split(' ');
                match words.next() {
                    Some("ready") => {
                        started = words.next().map(|word| word.parse().unwrap());
                        ready.store(true, Ordering::Release);
                    }
                    Some("told") => told.push(Told {
                        revision: words.next().unwrap().parse().unwrap(),
                        writer: words.next().unwrap().parse().unwrap(),
                        value: words.next().unwrap().to_owned(),
                    }),
                    _ => {}
                }
            }
            (started, told)
        }
    });
    // Some are killed while they open the file, most while they write.
    for _ in 0..10_000 {
        if ready.load(Ordering::Acquire) || after < Duration::from_millis(2) || child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(after);
    let _ = child.kill();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[test]
fn a_writer_killed_two_hundred_times_loses_nothing_that_it_was_told_is_durable() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut seen: Revision = 0;
    let mut total = 0;
    for round in 0..KILLS {
        let after = Duration::from_micros(round * 7919 % 30_000);
        let (started, told) = run_and_kill(directory.path(), after);
        total += told.len();
        if let Some(started) = started {
            assert!(started >= seen, "round {round}: the store began again at {started} after {seen}");
        }
        if !file(directory.path()).exists() {
            continue;
        }
        // Looked at in a copy: the next child opens what the kill left behind, not what we repaired.
        let copy = directory.path().join("copy.redb");
        std::fs::copy(file(directory.path()), &copy).unwrap();
        if round % 10 == 0 {
            let report = check(&copy).unwrap();
            assert!(report.problems.is_empty(), "round {round}: {:?}", report.problems);
        }
        let store = RedbStore::open(&copy, options()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        seen = runtime.block_on(examine(&store, round, seen, &told));
        drop(store);
        std::fs::remove_file(&copy).unwrap();
    }
    // How many a round gets done depends on the machine; a test in which nearly none was acknowledged would show nothing.
    assert!(total > KILLS as usize, "only {total} writes were acknowledged");
}

/// Looks at what a kill left behind; answers with the newest revision.
async fn examine(store: &RedbStore, round: u64, seen: Revision, told: &[Told]) -> Revision {
    let newest = store.revision().await.unwrap();
    // The log goes on where it was last seen.
    let log: Vec<Change> = store.log("", seen, newest).await.unwrap().into_iter().map(|(change, _)| change).collect();
    let mut expected = seen;
    for pair in log.chunks(2) {
        let [left, right] = pair else { panic!("round {round}: half a batch at {:?}", pair[0]) };
        expected += 1;
        assert_eq!((left.revision, right.revision), (expected, expected), "round {round}: a gap or a repeat");
        assert!(left.key.starts_with("/left/") && right.key.starts_with("/right/"), "round {round}");
        assert_eq!((&left.value, left.deleted), (&right.value, right.deleted), "round {round}");
    }
    assert_eq!(expected, newest, "round {round}: the log ends early");
    // Everything that was acknowledged is in it.
    let by_revision: BTreeMap<Revision, &Change> =
        log.iter().filter(|change| change.key.starts_with("/left/")).map(|change| (change.revision, change)).collect();
    for told in told {
        let change = by_revision.get(&told.revision).unwrap_or_else(|| panic!("round {round}: revision {} is lost", told.revision));
        assert_eq!(&*change.key, format!("/left/{}", told.writer), "round {round}");
        assert_eq!(change.value, told.value.as_bytes(), "round {round}");
    }
    // Both halves of every pair are as the last change left them.
    let page = store.range(Range::default(), At::Newest).await.unwrap();
    let halves = |side: &str| -> Vec<(String, Revision, bytes::Bytes)> {
        let of_side = page.entries.iter().filter_map(|entry| Some((entry.key.strip_prefix(side)?.to_owned(), entry)));
        of_side.map(|(writer, entry)| (writer, entry.revision, entry.value.clone())).collect()
    };
    assert_eq!(halves("/left/"), halves("/right/"), "round {round}");
    newest
}
