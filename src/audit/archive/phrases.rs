//! Phrases: what the records of a segment say again and again (who asked, with which program, which role allowed it) is written once and
//! then named by its number. A text becomes a phrase when it is seen for the second time, so that what is said once does not fill the
//! list; the list is bounded, and what does not fit is written out. Phrases of a block are written in front of its records, those of a
//! sealed segment once more in one piece at its end.

use std::collections::HashMap;

use super::coding::{put, put_text, take, take_text};

/// A segment has at most so many phrases, of so many bytes in all, none longer than this.
const MOST: usize = 1 << 14;
const MOST_BYTES: usize = 1 << 20;
const LONGEST: usize = 2048;
/// How many texts are remembered as seen once.
const SEEN: usize = 1 << 12;
/// How many places in a record remember the phrase that they had last.
const SLOTS: usize = 32;

/// Phrases by number.
#[derive(Clone, Debug, Default)]
pub struct Lexicon {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Lexicon {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The phrase with this number.
    pub fn get(&self, code: u32) -> Option<&[u8]> {
        let code = code as usize;
        let from = if code == 0 { 0 } else { *self.ends.get(code - 1)? };
        self.bytes.get(from as usize..*self.ends.get(code)? as usize)
    }

    /// Adds one.
    pub fn add(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as u32);
    }

    fn truncate(&mut self, length: usize) {
        self.ends.truncate(length);
        self.bytes.truncate(self.ends.last().map_or(0, |end| *end as usize));
    }

    /// Writes those from a number on: how many, then each with its length.
    pub fn write(&self, from: usize, out: &mut Vec<u8>) {
        put(out, self.len().saturating_sub(from) as u64);
        for code in from..self.len() {
            put_text(out, self.get(code as u32).unwrap_or_default());
        }
    }

    /// Adds what was so written; `None` if it is something else.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Option<()> {
        for _ in 0..take(bytes)? {
            if self.ends.len() > MOST || self.bytes.len() > MOST_BYTES {
                return None;
            }
            self.add(take_text(bytes)?);
        }
        Some(())
    }
}

/// The phrases of the segment that is being written.
#[derive(Clone, Debug, Default)]
pub struct Phrases {
    /// By number.
    pub lexicon: Lexicon,
    index: HashMap<Box<[u8]>, u32>,
    seen: Vec<u32>,
    recent: [u32; SLOTS],
}

impl Phrases {
    /// Those of a segment that is only read.
    pub fn known(lexicon: Lexicon) -> Phrases {
        Phrases { lexicon, ..Phrases::default() }
    }

    /// The number of a text, if it is a phrase or becomes one. Whoever asks says for which place in a record: there it is likely to be
    /// the one of the record before.
    pub fn code(&mut self, slot: usize, text: &[u8]) -> Option<u32> {
        let slot = slot % SLOTS;
        if self.lexicon.get(self.recent[slot]) == Some(text) {
            return Some(self.recent[slot]);
        }
        let code = match self.index.get(text) {
            Some(code) => *code,
            None => self.learn(text)?,
        };
        self.recent[slot] = code;
        Some(code)
    }

    fn learn(&mut self, text: &[u8]) -> Option<u32> {
        if text.len() > LONGEST || self.lexicon.len() >= MOST || self.lexicon.bytes.len() + text.len() > MOST_BYTES {
            return None;
        }
        if self.seen.is_empty() {
            self.seen = vec![0; SEEN];
        }
        let hash = crc32fast::hash(text);
        let seen = &mut self.seen[hash as usize % SEEN];
        if std::mem::replace(seen, hash) != hash {
            return None;
        }
        let code = self.lexicon.len() as u32;
        self.lexicon.add(text);
        self.index.insert(text.into(), code);
        Some(code)
    }

    /// Forgets those from a number on: they were not written.
    pub fn truncate(&mut self, length: usize) {
        self.lexicon.truncate(length);
        self.index.retain(|_, code| (*code as usize) < length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_twice_is_a_phrase_and_what_was_not_written_is_forgotten() {
        let mut phrases = Phrases::default();
        assert_eq!(phrases.code(0, b"jane"), None);
        assert_eq!(phrases.code(0, b"jane"), Some(0));
        assert_eq!(phrases.code(1, b"admin"), None);
        assert_eq!(phrases.code(2, b"admin"), Some(1));
        assert_eq!((phrases.code(2, b"jane"), phrases.code(2, b"jane")), (Some(0), Some(0)));
        let mut written = Vec::new();
        phrases.lexicon.write(1, &mut written);
        let mut read = Lexicon::default();
        read.add(b"jane");
        read.read(&mut &*written).unwrap();
        assert_eq!((read.get(0), read.get(1), read.get(2)), (Some(&b"jane"[..]), Some(&b"admin"[..]), None));
        phrases.truncate(1);
        assert_eq!(phrases.code(0, b"jane"), Some(0));
        assert_eq!(phrases.code(1, b"other"), None);
        assert_eq!(phrases.code(1, b"other"), Some(1));
        assert_eq!(phrases.code(1, b"admin"), Some(2), "it has been seen before");
        assert_eq!(phrases.code(1, &[b'x'; LONGEST + 1]), None);
        assert_eq!(phrases.code(1, &[b'x'; LONGEST + 1]), None);
    }
}
