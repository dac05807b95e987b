//! Many writers on few keys.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use usher::store::redb::{Options, RedbStore};
use usher::store::{At, Change, Error, Expect, Store};

use super::{batch, put};

const WRITERS: usize = 64;
const KEYS: usize = 8;
const ROUNDS: usize = 25;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_writers_on_8_keys_exactly_one_wins_each_round_and_no_update_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let store = RedbStore::open(directory.path().join("store.redb"), Options::default()).unwrap();
    let told = Arc::new(Mutex::new(Vec::<Change>::new()));
    let sink = Arc::clone(&told);
    store.attach(Arc::new(move |changes: &[Change]| sink.lock().unwrap().extend_from_slice(changes)));
    for key in 0..KEYS {
        store.commit(batch(vec![put(&format!("/k/{key}"), "0", Expect::Absent)])).await.unwrap();
    }
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        let (store, told) = (Arc::clone(&store), Arc::clone(&told));
        tasks.push(tokio::spawn(async move {
            let key = format!("/k/{}", writer % KEYS);
            let mut lost = 0;
            for _ in 0..ROUNDS {
                let mut current = store.get(&key, At::Newest).await.unwrap().unwrap();
                loop {
                    let count: u64 = std::str::from_utf8(&current.value).unwrap().parse().unwrap();
                    let next = put(&key, &(count + 1).to_string(), Expect::Revision(current.revision));
                    match store.commit(batch(vec![next])).await {
                        Ok(revision) => {
                            // Whoever is answered finds that the sink was told.
                            assert!(told.lock().unwrap().iter().any(|change| change.revision == revision));
                            break;
                        }
                        Err(Error::Conflict { current: Some(standing), .. }) => {
                            assert!(standing.revision > current.revision);
                            lost += 1;
                            current = standing;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            lost
        }));
    }
    let mut lost = 0;
    for task in tasks {
        lost += task.await.unwrap();
    }
    assert!(lost > 0, "the writers never met");
    for key in 0..KEYS {
        let entry = store.get(&format!("/k/{key}"), At::Newest).await.unwrap().unwrap();
        assert_eq!(entry.value, (WRITERS / KEYS * ROUNDS).to_string().as_bytes());
    }
    let told = told.lock().unwrap();
    assert_eq!(told.len(), KEYS + WRITERS * ROUNDS);
    assert!(told.windows(2).all(|pair| pair[0].revision + 1 == pair[1].revision), "told out of order");
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for change in told.iter().skip(KEYS) {
        let value: u64 = std::str::from_utf8(&change.value).unwrap().parse().unwrap();
        let previous = last.insert(&change.key, value).unwrap_or(0);
        assert_eq!(value, previous + 1);
    }
}
