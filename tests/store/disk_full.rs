//! A file system that has no room left: writes say so, reads go on, and writes go on when there is room again. Needs a
//! small tmpfs of its own, so it only runs where it may mount one.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use usher::store::redb::{Options, RedbStore, check};
use usher::store::{At, Error, Expect, Range, Revision, Store};

use super::{batch, put};

struct Mount(tempfile::TempDir);

impl Mount {
    fn tmpfs(size: &str) -> Option<Mount> {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "usher-test"]).arg(directory.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Mount(directory)),
            _ => None,
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

async fn write(store: &RedbStore, number: usize) -> Result<Revision, Error> {
    store.commit(batch(vec![put(&format!("/pods/{number:05}"), &"x".repeat(20_000), Expect::Absent)])).await
}

#[tokio::test]
async fn on_a_full_disk_writes_fail_with_a_reason_reads_go_on_and_writes_go_on_when_there_is_room() {
    let Some(mount) = Mount::tmpfs("24m") else {
        println!("skipped: no tmpfs can be mounted here");
        return;
    };
    let ballast = mount.path().join("ballast");
    std::fs::write(&ballast, vec![1; 8 << 20]).unwrap();
    let path = mount.path().join("store.redb");
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    let store = RedbStore::open(&path, Options { now: Arc::new(|| 0), ..Options::default() }).unwrap();
    store.attach(Arc::new(move |changes| sink.lock().unwrap().extend(changes.iter().map(|change| change.revision))));
    let mut written = 0;
    let error = loop {
        match write(&store, written).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 10_000, "the disk is never full");
    };
    let text = error.to_string();
    assert!(matches!(error, Error::Unavailable(_)) && text.contains("store.redb") && text.contains("free some space"), "{text}");
    assert!(written > 50, "{written}");
    for _ in 0..5 {
        // Reads go on, and every further write says the same.
        let page = store.range(Range::default(), At::Newest).await.unwrap();
        assert!(page.entries.len() >= written);
        assert_eq!(store.get("/pods/00000", At::Newest).await.unwrap().unwrap().value.len(), 20_000);
        match write(&store, written).await {
            Err(Error::Unavailable(text)) => assert!(text.contains("free some space"), "{text}"),
            // What failed before may have left room that a smaller write fits into, or may be in the file after all.
            Ok(_) => written += 1,
            Err(Error::Conflict { .. }) => written += 1,
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    std::fs::remove_file(&ballast).unwrap();
    // It takes up to three seconds until a write is tried again.
    for _ in 0..200 {
        match write(&store, written).await {
            Err(Error::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            _ => break,
        }
    }
    let mut again = 0;
    for number in 0..50 {
        match write(&store, 20_000 + number).await {
            Ok(_) => again += 1,
            Err(error) => panic!("with room again: {error}"),
        }
    }
    assert_eq!(again, 50);
    // What the sink was told is what is there: nothing twice, nothing missing.
    let newest = store.revision().await.unwrap();
    let told = told.lock().unwrap().clone();
    assert_eq!(told, (1..=newest).collect::<Vec<_>>());
    store.close().await.unwrap();
    drop(store);
    let report = check(&path).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
