//! Random operations against a plain model that keeps every change in a vector and answers everything by going through it.
//! Any [`Store`] can be held against it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use usher::store::redb::{Options, RedbStore};
use usher::store::{At, Batch, Change, Entry, Error, Expect, Key, Operation, Page, Range, Revision, Store};

/// Few keys, so that they collide; some are prefixes of others, and one has a zero byte.
const KEYS: [&str; 7] = ["/a/1", "/a/2", "/a/2/x", "/a/2\0", "/a/20", "/b/1", "/é"];
const PREFIXES: [&str; 6] = ["", "/a/", "/a/2", "/b/", "/c/", "/é"];

#[derive(Clone, Debug)]
pub enum Condition {
    Right,
    Absent,
    Off(u64),
}

#[derive(Clone, Debug)]
pub enum Step {
    Commit { operations: Vec<(usize, bool, Condition)>, audit: bool },
    Get { key: usize, at: Option<prop::sample::Index> },
    Range { prefix: usize, after: Option<usize>, limit: usize, at: Option<prop::sample::Index> },
    Log { prefix: usize, after: prop::sample::Index, until: prop::sample::Index },
    History { key: usize },
    Compact { at: prop::sample::Index },
    Reopen,
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let condition = prop_oneof![8 => Just(Condition::Right), 1 => Just(Condition::Absent), 1 => (1u64..5).prop_map(Condition::Off)];
    let operation = (0..KEYS.len(), prop::bool::weighted(0.3), condition);
    let at = || prop::option::of(any::<prop::sample::Index>());
    let step = prop_oneof![
        12 => (prop::collection::vec(operation, 0..4), any::<bool>()).prop_map(|(operations, audit)| Step::Commit { operations, audit }),
        3 => (0..KEYS.len(), at()).prop_map(|(key, at)| Step::Get { key, at }),
        5 => (0..PREFIXES.len(), prop::option::of(0..KEYS.len()), 0usize..4, at())
            .prop_map(|(prefix, after, limit, at)| Step::Range { prefix, after, limit, at }),
        2 => (0..PREFIXES.len(), any::<prop::sample::Index>(), any::<prop::sample::Index>())
            .prop_map(|(prefix, after, until)| Step::Log { prefix, after, until }),
        2 => (0..KEYS.len()).prop_map(|key| Step::History { key }),
        1 => any::<prop::sample::Index>().prop_map(|at| Step::Compact { at }),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

/// Everything that ever happened.
#[derive(Default)]
struct Model {
    changes: Vec<Change>,
    /// The revisions there were, from the one the store began with.
    revisions: Vec<Revision>,
    floor: Revision,
}

impl Model {
    fn newest(&self) -> Revision {
        *self.revisions.last().expect("a revision")
    }

    fn pick(&self, at: &prop::sample::Index) -> Revision {
        *at.get(&self.revisions)
    }

    fn state(&self, at: Revision) -> BTreeMap<Key, Entry> {
        let mut state = BTreeMap::new();
        for change in self.changes.iter().filter(|change| change.revision <= at) {
            if change.deleted {
                state.remove(&change.key);
            } else {
                let entry = Entry { key: change.key.clone(), revision: change.revision, value: change.value.clone() };
                state.insert(change.key.clone(), entry);
            }
        }
        state
    }

    fn conflict(&self, batch: &Batch) -> Option<(Key, Option<Entry>)> {
        let state = self.state(self.newest());
        batch.operations.iter().find_map(|operation| {
            let (Operation::Put { key, expect, .. } | Operation::Delete { key, expect, .. }) = operation;
            let current = state.get(key);
            let holds = match expect {
                Expect::Absent => current.is_none(),
                Expect::Revision(revision) => current.is_some_and(|entry| entry.revision == *revision),
            };
            (!holds).then(|| (key.clone(), current.cloned()))
        })
    }

    fn apply(&mut self, batch: &Batch, revision: Revision) {
        self.revisions.push(revision);
        for operation in &batch.operations {
            let (key, value, deleted) = match operation {
                Operation::Put { key, value, .. } => (key, value, false),
                Operation::Delete { key, last, .. } => (key, last, true),
            };
            self.changes.push(Change {
                revision,
                key: key.clone(),
                value: value.clone(),
                deleted,
                time: batch.time,
                audit_id: batch.audit_id.clone(),
            });
        }
    }

    fn range(&self, range: &Range, at: Revision) -> Page {
        let all: Vec<Entry> = self
            .state(at)
            .into_values()
            .filter(|entry| entry.key.starts_with(&range.prefix) && range.after.as_deref().is_none_or(|after| &*entry.key > after))
            .collect();
        let take = if range.limit == 0 { all.len() } else { range.limit.min(all.len()) };
        Page { remaining: all.len() - take, entries: all[..take].to_vec(), revision: at }
    }

    fn log(&self, prefix: &str, after: Revision, until: Revision) -> Vec<(Change, Option<Entry>)> {
        let span = self.changes.iter().filter(|change| change.revision > after && change.revision <= until);
        span.filter(|change| change.key.starts_with(prefix))
            .map(|change| (change.clone(), self.state(change.revision - 1).get(&change.key).cloned()))
            .collect()
    }

    fn history(&self, key: &str) -> Vec<Change> {
        let all: Vec<&Change> = self.changes.iter().filter(|change| &*change.key == key).collect();
        let newest_at_floor = all.iter().rev().find(|change| change.revision <= self.floor).map(|change| change.revision);
        all.into_iter()
            .filter(|change| change.revision > self.floor || Some(change.revision) == newest_at_floor && !change.deleted)
            .cloned()
            .collect()
    }
}

fn told(store: &dyn Store) -> Arc<Mutex<Vec<Change>>> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    store.attach(Arc::new(move |changes: &[Change]| sink.lock().expect("told").extend_from_slice(changes)));
    told
}

fn same_changes(found: &[Change], expected: &[Change]) -> TestCaseResult {
    prop_assert_eq!(format!("{found:#?}"), format!("{expected:#?}"));
    Ok(())
}

/// Runs the steps on a store that `open` gives, and compares every answer with the model's.
pub async fn agree(open: &dyn Fn() -> Arc<dyn Store>, steps: Vec<Step>) -> TestCaseResult {
    let mut store = open();
    let mut sink = told(&*store);
    let begin = store.revision().await.expect("revision");
    let mut model = Model { revisions: vec![begin], floor: store.floor(), ..Model::default() };
    let mut untold = 0;
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Commit { operations, audit } => {
                let state = model.state(model.newest());
                let mut batch =
                    Batch { time: number as i64, audit_id: audit.then(|| Arc::from(format!("audit-{number}"))), ..Batch::default() };
                for (at, deleted, condition) in operations {
                    let key = Key::from(KEYS[at]);
                    if batch.operations.iter().any(|operation| matches!(operation, Operation::Put { key: other, .. } | Operation::Delete { key: other, .. } if *other == key)) {
                        continue;
                    }
                    let current = state.get(&key);
                    let expect = match condition {
                        Condition::Right => current.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision)),
                        Condition::Absent => Expect::Absent,
                        Condition::Off(by) => Expect::Revision(current.map_or(0, |entry| entry.revision) + by),
                    };
                    let value = bytes::Bytes::from(format!("value {number} of {key}"));
                    if deleted && expect != Expect::Absent {
                        // The last bytes of a delete are those that stand there: a backend may take them from itself.
                        let last = current.map_or(value, |entry| entry.value.clone());
                        batch.operations.push(Operation::Delete { key, last, expect });
                    } else {
                        batch.operations.push(Operation::Put { key, value, expect });
                    }
                }
                match (store.commit(batch.clone()).await, model.conflict(&batch)) {
                    (Ok(revision), None) if batch.operations.is_empty() => prop_assert!(revision >= model.newest()),
                    (Ok(revision), None) => {
                        prop_assert!(revision > model.newest(), "revision {} after {}", revision, model.newest());
                        model.apply(&batch, revision);
                    }
                    (Err(Error::Conflict { key, current }), Some((expected_key, expected))) => {
                        prop_assert_eq!((key, current), (expected_key, expected));
                    }
                    (found, expected) => prop_assert!(false, "{:?} where the model has {:?}", found, expected),
                }
                let told = sink.lock().expect("told").clone();
                same_changes(&told, &model.changes[untold..])?;
                prop_assert_eq!(store.revision().await.expect("revision"), model.newest());
            }
            Step::Get { key, at } => {
                let revision = at.map(|at| model.pick(&at));
                let found = store.get(KEYS[key], revision.map_or(At::Newest, At::Revision)).await;
                let at = revision.unwrap_or(model.newest());
                if at < model.floor {
                    prop_assert!(matches!(found, Err(Error::Compacted { floor }) if floor == model.floor), "{:?}", found);
                } else {
                    prop_assert_eq!(found.expect("get"), model.state(at).get(KEYS[key]).cloned());
                }
            }
            Step::Range { prefix, after, limit, at } => {
                let range = Range { prefix: PREFIXES[prefix].to_owned(), after: after.map(|key| KEYS[key].to_owned()), limit };
                let revision = at.map(|at| model.pick(&at));
                let found = store.range(range.clone(), revision.map_or(At::Newest, At::Revision)).await;
                let at = revision.unwrap_or(model.newest());
                if at < model.floor {
                    prop_assert!(matches!(found, Err(Error::Compacted { floor }) if floor == model.floor), "{:?}", found);
                } else {
                    prop_assert_eq!(format!("{:#?}", found.expect("range")), format!("{:#?}", model.range(&range, at)));
                }
            }
            Step::Log { prefix, after, until } => {
                let (after, until) = (model.pick(&after), model.pick(&until));
                let found = store.log(PREFIXES[prefix], after, until).await;
                if after < model.floor {
                    prop_assert!(matches!(found, Err(Error::Compacted { floor }) if floor == model.floor), "{:?}", found);
                } else {
                    let expected = model.log(PREFIXES[prefix], after, until);
                    prop_assert_eq!(format!("{:#?}", found.expect("log")), format!("{:#?}", expected));
                }
            }
            Step::History { key } => {
                same_changes(&store.history(KEYS[key]).await.expect("history"), &model.history(KEYS[key]))?;
            }
            Step::Compact { at } => {
                let floor = model.pick(&at);
                store.compact(floor).await.expect("compact");
                model.floor = model.floor.max(floor);
                prop_assert_eq!(store.floor(), model.floor);
            }
            Step::Reopen => {
                store.close().await.expect("close");
                prop_assert!(matches!(store.get("/a/1", At::Newest).await, Err(Error::Unavailable(_))));
                drop(store);
                store = open();
                sink = told(&*store);
                untold = model.changes.len();
                prop_assert_eq!(store.revision().await.expect("revision"), model.newest());
                prop_assert_eq!(store.floor(), model.floor);
            }
        }
    }
    let ahead = At::Revision(model.newest() + 1);
    let future = matches!(store.get("/a/1", ahead).await, Err(Error::Future { .. }));
    prop_assert!(future, "a read ahead of the newest revision was answered");
    store.close().await.expect("close");
    Ok(())
}

/// A runtime for one case.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime")
}

/// The clock stands still: nothing is forgotten but what the steps ask for.
fn options() -> Options {
    Options { now: Arc::new(|| 0), ..Options::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn redb_agrees_with_the_model(steps in steps()) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("store.redb");
        let open = || RedbStore::open(&path, options()).expect("open") as Arc<dyn Store>;
        runtime().block_on(agree(&open, steps))?;
    }

    #[test]
    fn redb_in_memory_agrees_with_the_model(steps in steps()) {
        let steps = steps.into_iter().filter(|step| !matches!(step, Step::Reopen)).collect();
        let open = || RedbStore::in_memory_with(options()).expect("open") as Arc<dyn Store>;
        runtime().block_on(agree(&open, steps))?;
    }
}
