//! The one integration-test binary: a module per room.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

mod admission;
mod aggregation;
mod archive;
mod audit;
mod cel;
mod certificates;
mod controllers;
mod conversion;
mod customs;
mod door;
mod events;
mod explain;
mod hops;
mod hostile;
mod identity;
mod kinds;
mod machinery;
mod nodes;
mod operations;
mod processes;
mod recorded;
mod store;
mod subresources;
mod watches;

/// Asks until there is an answer. What takes longer than a busy machine may need never comes.
async fn answer<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < end, "it never came to this: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    answer(what, async || holds().await.then_some(())).await
}

/// Whether the tests run against a real etcd.
fn on_etcd() -> bool {
    std::env::var("USHER_TEST_STORE").is_ok_and(|store| store == "etcd")
}

/// A server that keeps nothing, or with `USHER_TEST_STORE=etcd` one that keeps everything in the etcd at `USHER_TEST_ETCD_ENDPOINT`, each under
/// a prefix of its own.
fn builder() -> usher::server::Builder {
    let mut builder = usher::Server::builder().in_memory();
    if on_etcd() {
        let endpoint = std::env::var("USHER_TEST_ETCD_ENDPOINT").expect("USHER_TEST_ETCD_ENDPOINT says where etcd listens");
        let url = format!("etcd://{endpoint}/{}", uuid::Uuid::new_v4());
        builder.store = usher::server::StoreChoice::Etcd(usher::store::etcd::EtcdOptions::parse(&url).unwrap());
    }
    builder
}
