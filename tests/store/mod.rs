//! The store from outside: against a model, killed, damaged, on a full disk, under many writers and under many watchers.

mod contention;
mod crash;
mod damage;
mod disk_full;
mod etcd;
mod kubelets;
mod model;
mod operations;
mod ring;

use std::sync::Arc;

use bytes::Bytes;
use usher::store::{Batch, Expect, Key, Operation};

/// A put, as short as tests like it.
pub fn put(key: &str, value: &str, expect: Expect) -> Operation {
    Operation::Put { key: Key::from(key), value: Bytes::copy_from_slice(value.as_bytes()), expect }
}

/// A delete.
pub fn delete(key: &str, last: &str, expect: Expect) -> Operation {
    Operation::Delete { key: Key::from(key), last: Bytes::copy_from_slice(last.as_bytes()), expect }
}

/// A batch of operations.
pub fn batch(operations: Vec<Operation>) -> Batch {
    Batch { operations, time: 1_700_000_000_000_000, audit_id: Some(Arc::from("6fa459ea-ee8a-3ca4-894e-db77e160355e")) }
}
