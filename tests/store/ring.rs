//! A watch from long ago: served as long as the ring has everything since, and refused when something would be missing.

use usher::object::canonical;
use usher::store::redb::RedbStore;
use usher::store::{Error, Expect, Store};
use usher::watch::{EventKind, Filter, Item, Settings, Start, State, Watcher};

use super::{batch, put};

fn map(n: usize) -> String {
    let map = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")}});
    String::from_utf8(canonical(&map).to_vec()).unwrap()
}

#[tokio::test]
async fn a_revision_behind_the_window_is_good_while_the_ring_has_everything_since() {
    let store = RedbStore::in_memory().unwrap();
    let state = State::over(store.clone(), Settings { ring_events: 4, ..Settings::default() }).await.unwrap();
    let topic = state.topic("configmaps").await.unwrap();
    let filter = || Filter { prefix: "/registry/configmaps/".into(), ..Filter::default() };
    let mut revisions = Vec::new();
    for n in 0..8 {
        let key = format!("/registry/configmaps/d/m{n}");
        revisions.push(store.commit(batch(vec![put(&key, &map(n), Expect::Absent)])).await.unwrap());
    }
    store.compact(revisions[7]).await.unwrap();
    assert!(state.window_floor() >= revisions[7]);
    // Four events are in the ring: whoever saw the fourth misses nothing.
    let mut watcher = Watcher::open(&state, &topic, filter(), Start::After(revisions[3])).await.unwrap();
    let heard: Vec<_> = watcher.take().unwrap();
    let names = heard.iter().map(|item| match item {
        Item::Event(EventKind::Added, event) => event.object.name().to_owned(),
        _ => panic!("only additions happened"),
    });
    assert_eq!(names.collect::<Vec<_>>(), ["m4", "m5", "m6", "m7"]);
    // Whoever saw the third one would miss the fourth.
    let missed = Watcher::open(&state, &topic, filter(), Start::After(revisions[2])).await;
    assert!(matches!(missed, Err(Error::Compacted { floor }) if floor >= revisions[7]));
}
