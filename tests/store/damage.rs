//! Files that are not what was written: cut short, with flipped bytes, empty, of another format, in use. Whatever it is, the
//! answer is an error that names the file and says what to do, or exactly the data that was written; never less of it, and
//! never a panic.

use std::path::Path;
use std::sync::Arc;

use usher::store::redb::{Options, RedbStore, check, dump};
use usher::store::{At, Change, Entry, Error, Expect, Range, Revision, Store};

use super::{batch, delete, put};

fn options() -> Options {
    Options { now: Arc::new(|| 0), ..Options::default() }
}

/// What a store holds, as far as anybody can ask.
type Contents = (Vec<Entry>, Vec<String>, Revision);

async fn contents(store: &RedbStore) -> Result<Contents, Error> {
    let page = store.range(Range::default(), At::Newest).await?;
    let changes: Vec<Change> = store.log("", 0, page.revision).await?.into_iter().map(|(change, _)| change).collect();
    Ok((page.entries, changes.iter().map(|change| format!("{change:?}")).collect(), page.revision))
}

/// A file with a few hundred objects, some overwritten, some deleted, closed in good order.
async fn sample(path: &Path) -> Contents {
    let store = RedbStore::open(path, options()).unwrap();
    for number in 0..300 {
        let key = format!("/registry/pods/default/pod-{number}");
        let first = store.commit(batch(vec![put(&key, &format!("{number}").repeat(100), Expect::Absent)])).await.unwrap();
        match number % 3 {
            0 => drop(store.commit(batch(vec![put(&key, "second", Expect::Revision(first))])).await.unwrap()),
            1 => drop(store.commit(batch(vec![delete(&key, "last", Expect::Revision(first))])).await.unwrap()),
            _ => {}
        }
    }
    let contents = contents(&store).await.unwrap();
    store.close().await.unwrap();
    contents
}

fn names_the_file_and_the_way_out(error: &Error, path: &Path) {
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
    assert!(text.contains("usher snapshot restore"), "{text}");
}

/// Opens and reads everything; whether it noticed. Anything but an error or the whole truth fails the test.
async fn notices(path: &Path, truth: &Contents, what: &str) -> bool {
    let found = match RedbStore::open(path, options()) {
        Ok(store) => contents(&store).await,
        Err(error) => Err(error),
    };
    match found {
        Ok(found) => {
            assert!(found == *truth, "{what}: data is missing or wrong, and nobody said so");
            false
        }
        Err(error) => {
            names_the_file_and_the_way_out(&error, path);
            true
        }
    }
}

#[tokio::test]
async fn a_file_that_was_cut_short_is_refused_or_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let truth = sample(&path).await;
    let bytes = std::fs::read(&path).unwrap();
    let damaged = directory.path().join("damaged.redb");
    let mut noticed = 0;
    for part in 0..40 {
        let length = bytes.len() * part / 40 + part;
        std::fs::write(&damaged, &bytes[..length]).unwrap();
        noticed += u32::from(notices(&damaged, &truth, &format!("cut to {length} bytes")).await);
    }
    assert!(noticed >= 39, "only {noticed} of 40 cuts were noticed");
}

#[tokio::test]
async fn flipped_bytes_are_noticed_or_do_not_matter() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let truth = sample(&path).await;
    let bytes = std::fs::read(&path).unwrap();
    let damaged = directory.path().join("damaged.redb");
    // Where something is written at all, at many places; a file has room to grow into, which does not count.
    let written: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let mut noticed = 0;
    let tries = 400;
    for number in 0..tries {
        let at = if number < 100 { number * 3 % 320 } else { written[number * 7919 % written.len()] };
        let mut copy = bytes.clone();
        copy[at] ^= 1 << (number % 8);
        std::fs::write(&damaged, &copy).unwrap();
        noticed += u32::from(notices(&damaged, &truth, &format!("byte {at} flipped")).await);
    }
    assert!(noticed > tries as u32 / 4, "only {noticed} of {tries} flips were noticed");
}

#[tokio::test]
async fn an_overwritten_stretch_is_noticed_and_found_by_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let truth = sample(&path).await;
    let bytes = std::fs::read(&path).unwrap();
    for page in 0..bytes.len() / 4096 {
        // A file of its own each time: redb keeps its lock if it panics.
        let damaged = directory.path().join(format!("damaged.redb.{page}"));
        let mut copy = bytes.clone();
        copy[page * 4096..(page + 1) * 4096].fill(0x5a);
        std::fs::write(&damaged, &copy).unwrap();
        if notices(&damaged, &truth, &format!("page {page} overwritten")).await {
            std::fs::remove_file(&damaged).unwrap();
            std::fs::write(&damaged, &copy).unwrap();
            match check(&damaged) {
                Ok(report) => assert!(!report.problems.is_empty(), "page {page}: the check found nothing"),
                Err(error) => assert!(error.to_string().contains("damaged.redb"), "{error}"),
            }
            assert!(std::fs::read(&damaged).unwrap() == copy, "the check changed the file");
        }
        std::fs::remove_file(&damaged).unwrap();
    }
}

#[tokio::test]
async fn an_empty_file_and_a_file_of_something_else_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    for content in [&b""[..], b"not a database", &[0; 100_000]] {
        std::fs::write(&path, content).unwrap();
        let error = RedbStore::open(&path, options()).err().unwrap();
        names_the_file_and_the_way_out(&error, &path);
        assert_eq!(std::fs::read(&path).unwrap(), content, "the file was changed");
    }
}

#[tokio::test]
async fn a_second_server_on_the_same_file_is_told_that_it_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let store = RedbStore::open(&path, options()).unwrap();
    let looks: [Result<(), Error>; 3] =
        [RedbStore::open(&path, options()).map(drop), check(&path).map(drop), dump(&path, "", At::Newest).map(drop)];
    for look in looks {
        let text = look.err().unwrap().to_string();
        assert!(text.contains("in use by another process") && text.contains("store.redb"), "{text}");
    }
    store.commit(batch(vec![put("/a", "1", Expect::Absent)])).await.unwrap();
    drop(store);
    let store = RedbStore::open(&path, options()).unwrap();
    assert_eq!(store.revision().await.unwrap(), 1);
}
