//! As many watches as a large cluster has kubelets, each for the Pods of its own node.

use futures::FutureExt;
use serde_json::json;
use usher::object::canonical;
use usher::object::selector::FieldSelector;
use usher::store::redb::RedbStore;
use usher::store::{Expect, Store};
use usher::watch::{EventKind, Filter, Item, Settings, Start, State, Watcher};

use super::{batch, put};

const NODES: usize = 5_000;

fn pod(name: usize, node: &str) -> String {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{name}")}, "spec": {"nodeName": node}});
    String::from_utf8(canonical(&pod).to_vec()).unwrap()
}

#[tokio::test]
async fn of_5000_kubelets_only_those_whose_pods_change_are_woken_and_each_hears_of_its_own() {
    let store = RedbStore::in_memory().unwrap();
    let state = State::over(store.clone(), Settings::default()).await.unwrap();
    let topic = state.topic("pods").await.unwrap();
    let mut watchers = Vec::with_capacity(NODES);
    for node in 0..NODES {
        let fields = FieldSelector::parse(&format!("spec.nodeName=n{node}")).unwrap();
        let filter = Filter { prefix: "/registry/pods/".into(), fields, ..Filter::default() };
        let mut watcher = Watcher::open(&state, &topic, filter, Start::Current).await.unwrap();
        assert!(matches!(watcher.take().unwrap()[..], [Item::InitialEnd(_)]));
        watchers.push(watcher);
    }
    // 500 Pods are made without a node, as clients make them, then bound to every tenth node.
    for name in 0..500 {
        let made = store.commit(batch(vec![put(&format!("/registry/pods/d/p{name}"), &pod(name, ""), Expect::Absent)])).await.unwrap();
        let bound = pod(name, &format!("n{}", name * 10));
        store.commit(batch(vec![put(&format!("/registry/pods/d/p{name}"), &bound, Expect::Revision(made))])).await.unwrap();
    }
    for (node, watcher) in watchers.iter_mut().enumerate() {
        let woken = tokio::task::unconstrained(watcher.changed()).now_or_never().is_some();
        assert_eq!(woken, node % 10 == 0, "node {node}");
        let heard: Vec<_> = watcher.take().unwrap();
        match &heard[..] {
            [Item::Event(EventKind::Added, event)] => assert_eq!(event.object.name(), format!("p{}", node / 10)),
            others => assert!(!woken && others.is_empty(), "node {node} heard {} items", others.len()),
        }
    }
}
