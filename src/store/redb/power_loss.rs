//! The power goes: of what was written since the last fsync, any part may be on the disk and any other not, in any order
//! and torn. A kill of the process, which the integration tests practise, is milder, because the kernel still writes
//! everything. Here a medium of our own forgets at random, and what was acknowledged has to be there all the same.

use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use redb::StorageBackend;

use super::medium::Medium;
use super::{Durability, Options, RedbStore};
use crate::store::{At, Batch, Change, Expect, Key, Operation, Range, Store};

/// A sector is written whole or not at all.
const SECTOR: usize = 512;

#[derive(Debug, Default)]
struct Disk {
    durable: Vec<u8>,
    seen: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

/// A disk that can be copied as the power leaves it.
#[derive(Clone, Debug, Default)]
struct Forgetful(Arc<Mutex<Disk>>);

impl Forgetful {
    /// What a new start finds if the power goes now.
    fn after_power_loss(&self, mut random: impl FnMut() -> u64) -> Forgetful {
        let disk = self.0.lock().unwrap();
        let mut left = disk.durable.clone();
        for (offset, data) in &disk.unsynced {
            let fate = random() % 4;
            for (number, sector) in data.chunks(SECTOR).enumerate() {
                let survives = match fate {
                    0 => false,
                    1 => true,
                    _ => random().is_multiple_of(2),
                };
                let start = offset + number * SECTOR;
                if survives {
                    let end = start + sector.len();
                    left.resize(left.len().max(end), 0);
                    left[start..end].copy_from_slice(sector);
                }
            }
        }
        // The length is the file system's own metadata, which its journal keeps in order.
        left.resize(left.len().max(disk.seen.len()), 0);
        Forgetful(Arc::new(Mutex::new(Disk { durable: left.clone(), seen: left, unsynced: Vec::new() })))
    }
}

impl StorageBackend for Forgetful {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let disk = self.0.lock().unwrap();
        let from = offset as usize;
        let found = disk.seen.get(from..from + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.seen.resize(length as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.durable = disk.seen.clone();
        disk.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        let from = offset as usize;
        disk.seen[from..from + data.len()].copy_from_slice(data);
        disk.unsynced.push((from, data.to_owned()));
        Ok(())
    }
}

fn store(disk: &Forgetful, durability: Durability) -> Arc<RedbStore> {
    let options = Options { durability, now: Arc::new(|| 0), ..Options::default() };
    RedbStore::start(Medium::over(disk.clone(), 1 << 20).unwrap(), options).unwrap()
}

fn write(writer: u64, count: u64, before: Option<u64>) -> Batch {
    let expect = before.map_or(Expect::Absent, Expect::Revision);
    let value = Bytes::from(format!("{writer}-{count}-{}", "x".repeat((count * 37 % 900) as usize)));
    let put = |side: &str| Operation::Put { key: Key::from(format!("/{side}/{writer}")), value: value.clone(), expect };
    Batch { operations: vec![put("left"), put("right")], time: 0, audit_id: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_there_after_the_power_went_at_any_moment() {
    let mut seed = 88_172_645_463_325_252u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..30u64 {
        let disk = Forgetful::default();
        let running = store(&disk, Durability::Immediate);
        let acknowledged = Arc::new(Mutex::new(Vec::<u64>::new()));
        let tasks: Vec<_> = (0..6)
            .map(|writer| {
                let (running, acknowledged) = (Arc::clone(&running), Arc::clone(&acknowledged));
                tokio::spawn(async move {
                    let mut before = None;
                    for count in 0..20 {
                        let revision = running.commit(write(writer, count, before)).await.unwrap();
                        before = Some(revision);
                        acknowledged.lock().unwrap().push(revision);
                        if count % 7 == 6 {
                            running.compact(revision.saturating_sub(60)).await.unwrap();
                        }
                    }
                })
            })
            .collect();
        for _ in 0..6 {
            // First what was acknowledged, then the power.
            let acknowledged = acknowledged.lock().unwrap().clone();
            let left = disk.after_power_loss(&mut random);
            examine(&left, round, &acknowledged).await;
            tokio::time::sleep(std::time::Duration::from_micros(random() % 3000)).await;
        }
        for task in tasks {
            task.await.unwrap();
        }
    }
}

async fn examine(left: &Forgetful, round: u64, acknowledged: &[u64]) {
    let found = store(left, Durability::Immediate);
    let newest = found.revision().await.unwrap();
    let page = found.range(Range::default(), At::Newest).await.unwrap();
    let side = |name: &str| -> Vec<(u64, Bytes)> {
        page.entries.iter().filter(|entry| entry.key.starts_with(name)).map(|entry| (entry.revision, entry.value.clone())).collect()
    };
    assert_eq!(side("/left/"), side("/right/"), "round {round}: half a batch");
    let newest_acknowledged = acknowledged.iter().copied().max().unwrap_or(0);
    assert!(newest >= newest_acknowledged, "round {round}: {newest_acknowledged} was acknowledged, {newest} is left");
    let floor = found.floor();
    let log: Vec<Change> = found.log("", floor, newest).await.unwrap().into_iter().map(|(change, _)| change).collect();
    let revisions: Vec<u64> = log.chunks(2).map(|pair| pair[0].revision).collect();
    assert_eq!(revisions, (floor + 1..=newest).collect::<Vec<_>>(), "round {round}: a gap or a repeat");
    found.commit(write(99, 0, None)).await.unwrap();
}

#[tokio::test]
async fn a_relaxed_store_loses_its_last_moments_at_most_and_nothing_by_half() {
    let disk = Forgetful::default();
    let running = store(&disk, Durability::Relaxed);
    let mut before = None;
    for count in 0..200 {
        before = Some(running.commit(write(0, count, before)).await.unwrap());
    }
    let left = disk.after_power_loss(|| 0);
    examine(&left, 0, &[]).await;
    // After a quiet moment everything is durable.
    let revision = running.revision().await.unwrap();
    for _ in 0..200 {
        if store(&disk.after_power_loss(|| 0), Durability::Immediate).revision().await.unwrap() == revision {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    examine(&disk.after_power_loss(|| 0), 1, &[revision]).await;
}
