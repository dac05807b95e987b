//! Blocks of records, the part of a segment that is written as events arrive: one block for what arrives together, with a checksum, so
//! that a block that was half written when the machine stopped is recognised. The format is in `docs/storage.md`.

use std::io;

use super::coding::{put, take};
use super::medium::Medium;
use super::phrases::{Lexicon, Phrases};
use super::repeats::Repeats;
use super::row::{self, Row};
use crate::audit::Event;

/// What a block begins with.
const MAGIC: [u8; 4] = *b"AUDB";
/// Magic, length, count, length of the records, checksum.
pub const HEADER: usize = 20;

/// Where a record is in its segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// From the beginning of the segment.
    pub offset: u32,
    /// Of the record alone.
    pub length: u32,
}

/// A record that was found.
#[derive(Clone, Debug)]
pub struct Record {
    event: Event,
}

impl Record {
    /// Reads a record of a segment; `None` if it is none.
    pub fn read(bytes: &[u8], lexicon: &Lexicon, medium: &Medium) -> Option<Record> {
        Row::read(bytes, lexicon, medium)?.event().map(|event| Record { event })
    }

    /// The event with its trace as JSON.
    pub fn json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.event).unwrap_or_default()
    }

    /// The event alone as JSON.
    pub fn without_trace(mut self) -> Vec<u8> {
        self.event.trace = None;
        self.json()
    }

    /// The event with its trace, to look at.
    pub fn as_event(&self) -> &Event {
        &self.event
    }

    /// The event with its trace.
    pub fn event(self) -> Event {
        self.event
    }
}

/// A block to be: its records are written where they stay, what tells them apart behind them.
#[derive(Debug)]
pub struct Block {
    start: u32,
    known: usize,
    bytes: Vec<u8>,
    lengths: Vec<u8>,
    count: u32,
}

impl Block {
    /// An empty one at a place of a segment that has so many phrases, in memory that was used before.
    pub fn new(start: u32, known: usize, mut bytes: Vec<u8>) -> Block {
        bytes.clear();
        bytes.resize(HEADER, 0);
        Block { start, known, bytes, lengths: Vec::new(), count: 0 }
    }

    /// Adds an event; answers where in the segment its record is.
    pub fn push(&mut self, event: &Event, phrases: &mut Phrases, repeats: &mut Repeats) -> Place {
        let start = self.bytes.len();
        row::encode(event, phrases, repeats, self.start, &mut self.bytes);
        let length = (self.bytes.len() - start) as u32;
        put(&mut self.lengths, u64::from(length));
        self.count += 1;
        Place { offset: self.start + start as u32, length }
    }

    /// How many bytes it has so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of the block.
    pub fn finish(self, lexicon: &Lexicon) -> Vec<u8> {
        let Block { known, mut bytes, lengths, count, .. } = self;
        let rows = bytes.len() - HEADER;
        bytes.extend_from_slice(&lengths);
        lexicon.write(known, &mut bytes);
        let length = bytes.len() - HEADER;
        bytes[..4].copy_from_slice(&MAGIC);
        for (at, number) in [(4, length as u32), (8, count), (12, rows as u32)] {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        let sum = checksum(&bytes[4..16], &bytes[HEADER..]);
        bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(body);
    hasher.finalize()
}

/// Reads the blocks of a segment from a place on, learns their phrases and hands out every record with its place; answers where the last
/// whole block ends. Whatever is behind it was not written to its end, or is no block.
pub fn replay(medium: &Medium, from: u64, lexicon: &mut Lexicon, mut each: impl FnMut(Place, Event)) -> io::Result<u64> {
    let length = medium.length()?;
    let mut at = from;
    while at + HEADER as u64 <= length {
        let header = medium.read(at, HEADER)?;
        let field = |i| number(&header, i).unwrap_or_default();
        let (size, count, rows, sum) = (field(4), field(8), field(12), field(16));
        if header[..4] != MAGIC || at + (HEADER as u64) + u64::from(size) > length {
            break;
        }
        let body = medium.read(at + HEADER as u64, size as usize)?;
        let whole = checksum(&header[4..16], &body) == sum;
        if !whole || records(&body, rows as usize, (medium, at + HEADER as u64), count, lexicon, &mut each).is_none() {
            break;
        }
        at += HEADER as u64 + u64::from(size);
    }
    Ok(at)
}

/// The records of one block.
fn records(
    body: &[u8],
    rows: usize,
    (medium, at): (&Medium, u64),
    count: u32,
    lexicon: &mut Lexicon,
    each: &mut impl FnMut(Place, Event),
) -> Option<()> {
    let (mut rows, mut behind) = body.split_at_checked(rows)?;
    let mut lengths = Vec::new();
    for _ in 0..count {
        lengths.push(u32::try_from(take(&mut behind)?).ok()?);
    }
    lexicon.read(&mut behind)?;
    let mut offset = u32::try_from(at).ok()?;
    for length in lengths {
        let bytes;
        (bytes, rows) = rows.split_at_checked(length as usize)?;
        if let Some(event) = Row::read(bytes, lexicon, medium).and_then(|row| row.event()) {
            each(Place { offset, length }, event);
        }
        offset = offset.checked_add(length)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Story;

    fn event(id: &str) -> Event {
        Event { audit_id: id.into(), trace: Some(Box::new(Story { took: 3, ..Story::default() })), ..Event::default() }
    }

    fn block(phrases: &mut Phrases) -> (Vec<u8>, Vec<Place>) {
        let (mut block, mut repeats) = (Block::new(0, phrases.lexicon.len(), Vec::new()), Repeats::default());
        let places = vec![block.push(&event("a"), phrases, &mut repeats), block.push(&event("b"), phrases, &mut repeats)];
        (block.finish(&phrases.lexicon), places)
    }

    #[test]
    fn what_is_written_in_a_block_is_read_again_and_a_torn_one_is_not() {
        let medium = Medium::memory();
        let mut phrases = Phrases::default();
        let ((first, places), (second, _)) = (block(&mut phrases), block(&mut phrases));
        let ids = |medium: &Medium| {
            let mut ids = Vec::new();
            let each = |place: Place, event: Event| ids.push((place.offset, event.audit_id, event.trace.map(|t| t.took)));
            let end = replay(medium, 0, &mut Lexicon::default(), each).unwrap();
            (ids, end)
        };
        medium.write(0, &first).unwrap();
        let whole = first.len() as u64;
        let (found, end) = ids(&medium);
        assert_eq!(found, [(places[0].offset, "a".into(), Some(3)), (places[1].offset, "b".into(), Some(3))]);
        assert_eq!(end, whole);
        for torn in 1..second.len() {
            medium.write(whole, &second[..torn]).unwrap();
            assert_eq!((ids(&medium).0.len(), ids(&medium).1), (2, whole));
        }
        medium.write(whole, &second).unwrap();
        assert_eq!(ids(&medium).0.len(), 4);
        let mut flipped = second.clone();
        flipped[30] ^= 1;
        medium.write(whole, &flipped).unwrap();
        assert_eq!(ids(&medium).1, whole);
    }

    #[test]
    fn a_record_gives_back_the_event_with_its_trace_as_one_object() {
        let mut phrases = Phrases::default();
        let (bytes, places) = block(&mut phrases);
        let medium = Medium::memory();
        let record = |place: Place| &bytes[place.offset as usize..][..place.length as usize];
        let read = |place: Place| Record::read(record(place), &phrases.lexicon, &medium).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&read(places[1]).json()).unwrap();
        assert_eq!((json["auditID"].as_str(), json["trace"]["took"].as_u64()), (Some("b"), Some(3)));
        let json: serde_json::Value = serde_json::from_slice(&read(places[0]).without_trace()).unwrap();
        assert_eq!((json["auditID"].as_str(), json.get("trace")), (Some("a"), None));
    }
}
