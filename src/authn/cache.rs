//! A bounded memory of what was expensive to find out (a signature, a certificate chain, a webhook's answer), keyed by
//! the digest of the credential so that no secret is kept. It is not a place for anything that can be revoked: what a
//! deleted object must change at once is looked up anew each time.

use std::collections::HashMap;

use aws_lc_rs::digest;
use parking_lot::Mutex;

/// The SHA-256 of what is remembered.
pub type Digest = [u8; 32];

const SHARDS: usize = 16;

/// A map that forgets what was not asked for lately once it is full.
pub struct Cache<V> {
    shards: [Mutex<Generations<V>>; SHARDS],
    per_shard: usize,
}

/// New entries go to `young`; when that is full it becomes `old`, and what was old is forgotten. An entry that is asked
/// for moves back to `young`: nearly "least recently used", without a list to maintain.
struct Generations<V> {
    young: HashMap<Digest, V>,
    old: HashMap<Digest, V>,
}

impl<V: Clone> Cache<V> {
    /// A cache of about `capacity` entries.
    pub fn new(capacity: usize) -> Self {
        Cache {
            shards: std::array::from_fn(|_| Mutex::new(Generations { young: HashMap::new(), old: HashMap::new() })),
            per_shard: (capacity / SHARDS / 2).max(1),
        }
    }

    /// What is remembered under a key.
    pub fn get(&self, key: &Digest) -> Option<V> {
        let mut shard = self.shard(key).lock();
        if let Some(value) = shard.young.get(key) {
            return Some(value.clone());
        }
        let value = shard.old.remove(key)?;
        let copy = value.clone();
        self.put(&mut shard, *key, value);
        Some(copy)
    }

    /// Remembers a value.
    pub fn insert(&self, key: Digest, value: V) {
        let mut shard = self.shard(&key).lock();
        shard.old.remove(&key);
        self.put(&mut shard, key, value);
    }

    /// Forgets a value.
    pub fn remove(&self, key: &Digest) {
        let mut shard = self.shard(key).lock();
        shard.young.remove(key);
        shard.old.remove(key);
    }

    /// Forgets everything, as after a reload.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.young.clear();
            shard.old.clear();
        }
    }

    fn put(&self, shard: &mut Generations<V>, key: Digest, value: V) {
        if shard.young.len() >= self.per_shard && !shard.young.contains_key(&key) {
            shard.old = std::mem::take(&mut shard.young);
        }
        shard.young.insert(key, value);
    }

    fn shard(&self, key: &Digest) -> &Mutex<Generations<V>> {
        &self.shards[key[0] as usize % SHARDS]
    }
}

impl<V> std::fmt::Debug for Cache<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cache")
    }
}

/// The SHA-256 of several pieces, each with its length so that no two lists of pieces look alike.
pub fn digest<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    for piece in pieces {
        context.update(&(piece.len() as u64).to_le_bytes());
        context.update(piece);
    }
    let mut out = Digest::default();
    out.copy_from_slice(context.finish().as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_forgets_the_old_and_keeps_what_is_asked_for() {
        let cache = Cache::new(64);
        let keep = digest([b"keep".as_slice()]);
        cache.insert(keep, 0);
        for i in 0..10_000u32 {
            cache.insert(digest([i.to_le_bytes().as_slice()]), i);
            assert_eq!(cache.get(&keep), Some(0));
        }
        let kept = cache.shards.iter().map(|shard| shard.lock()).map(|s| s.young.len() + s.old.len()).sum::<usize>();
        assert!(kept <= 64 + SHARDS, "{kept}");
    }

    #[test]
    fn pieces_cannot_be_shifted_into_each_other() {
        assert_ne!(digest([b"ab".as_slice(), b"c"]), digest([b"a".as_slice(), b"bc"]));
    }
}
