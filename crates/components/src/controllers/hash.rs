//! The short hashes in names: of a Pod template in `pod-template-hash`, of a revision in its name.
//!
//! They need to be stable and short, and to contain no vowels (so that no name spells a word). The values differ from
//! those that Kubernetes computes, which are made of Go's way to print a struct.

use serde::Serialize;

const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Hashes anything by its JSON, together with how often that has collided so far.
pub fn of<T: Serialize>(value: &T, collisions: Option<i32>) -> Result<String, serde_json::Error> {
    let mut hash = fnv(0x811c_9dc5, &serde_json::to_vec(value)?);
    if let Some(collisions) = collisions {
        hash = fnv(hash, &collisions.to_le_bytes());
    }
    Ok(safe(&hash.to_string()))
}

fn fnv(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn safe(text: &str) -> String {
    text.bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collision_gives_another_hash() {
        let first = of(&"template", None).unwrap();
        assert_eq!(first, of(&"template", None).unwrap());
        assert_ne!(first, of(&"template", Some(1)).unwrap());
        assert!(first.len() <= 10 && first.bytes().all(|b| ALPHABET.contains(&b)));
    }
}
