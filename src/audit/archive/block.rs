//! Blocks of records, the part of a segment that is written as events arrive: one block for what arrives together, with a checksum, so
//! that a block that was half written when the machine stopped is recognised. The format is in `docs/storage.md`.

use std::io;

use super::medium::Medium;
use crate::audit::{Event, Story};

/// What a block begins with.
const MAGIC: [u8; 4] = *b"AUDB";
/// Magic, length, count and checksum.
pub const HEADER: usize = 16;
/// A batch is split into blocks of about this size, so that writing needs no more memory than that.
const LARGEST: usize = 4 << 20;

/// Where a record is in its segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// From the beginning of the segment.
    pub offset: u32,
    /// With its own header.
    pub length: u32,
}

/// A record as it is kept: the JSON of the event without its trace, and that of the trace, empty where there is none.
#[derive(Clone, Debug)]
pub struct Record {
    bytes: Vec<u8>,
    event: usize,
}

impl Record {
    /// Reads a record; `None` if it is none.
    pub fn read(bytes: &[u8]) -> Option<Record> {
        let (event, trace) = split(bytes)?;
        let joined = [event, trace].concat();
        Some(Record { event: event.len(), bytes: joined })
    }

    /// The event with its trace as one JSON object.
    pub fn json(&self) -> Vec<u8> {
        let (event, trace) = self.bytes.split_at(self.event);
        match event.strip_suffix(b"}") {
            Some(open) if !trace.is_empty() => [open, b",\"trace\":", trace, b"}"].concat(),
            _ => event.to_vec(),
        }
    }

    /// The event alone as JSON.
    pub fn without_trace(&self) -> &[u8] {
        &self.bytes[..self.event]
    }

    /// The event with its trace.
    pub fn event(&self) -> serde_json::Result<Event> {
        let (event, trace) = self.bytes.split_at(self.event);
        decode(event, trace)
    }
}

/// An event of its two parts.
pub fn decode(event: &[u8], trace: &[u8]) -> serde_json::Result<Event> {
    let mut event: Event = serde_json::from_slice(event)?;
    if !trace.is_empty() {
        event.trace = Some(Box::new(serde_json::from_slice::<Story>(trace)?));
    }
    Ok(event)
}

/// The two parts of a record.
pub fn split(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let event = number(record, 0)? as usize;
    let trace = number(record, 4)? as usize;
    let body = record.get(8..)?;
    let parts = body.get(..event).zip(body.get(event..event.checked_add(trace)?));
    parts.filter(|_| body.len() == event + trace)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// A block to be.
#[derive(Debug, Default)]
pub struct Block {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Block {
    /// Adds an event; one that cannot be written as JSON is left out.
    pub fn push(&mut self, event: &mut Event) -> bool {
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER, 0);
        }
        let start = self.bytes.len();
        self.bytes.resize(start + 8, 0);
        let trace = event.trace.take();
        let mut written = serde_json::to_writer(&mut self.bytes, event).is_ok();
        let middle = self.bytes.len();
        if let Some(trace) = &trace {
            written = written && serde_json::to_writer(&mut self.bytes, trace).is_ok();
        }
        event.trace = trace;
        let end = self.bytes.len();
        let lengths = (u32::try_from(middle - start - 8), u32::try_from(end - middle), u32::try_from(end));
        let (true, (Ok(event_length), Ok(trace_length), Ok(_))) = (written, lengths) else {
            self.bytes.truncate(start);
            return false;
        };
        self.bytes[start..start + 4].copy_from_slice(&event_length.to_le_bytes());
        self.bytes[start + 4..start + 8].copy_from_slice(&trace_length.to_le_bytes());
        self.places.push(Place { offset: start as u32, length: (end - start) as u32 });
        true
    }

    /// Whether there should be another block for what comes.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= LARGEST
    }

    /// The bytes of the block, and where in them the records are.
    pub fn finish(mut self) -> (Vec<u8>, Vec<Place>) {
        if let Some(length) = self.bytes.len().checked_sub(HEADER) {
            self.bytes[..4].copy_from_slice(&MAGIC);
            self.bytes[4..8].copy_from_slice(&(length as u32).to_le_bytes());
            self.bytes[8..12].copy_from_slice(&(self.places.len() as u32).to_le_bytes());
            let sum = checksum(&self.bytes[4..12], &self.bytes[HEADER..]);
            self.bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        }
        (self.bytes, self.places)
    }
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(body);
    hasher.finalize()
}

/// Reads the blocks of a segment from a place on and hands out every record with its place; answers where the last whole block ends.
/// Whatever is behind it was not written to its end, or is no block.
pub fn replay(medium: &Medium, from: u64, mut each: impl FnMut(Place, Event)) -> io::Result<u64> {
    let length = medium.length()?;
    let mut at = from;
    while at + HEADER as u64 <= length {
        let header = medium.read(at, HEADER)?;
        let field = |i| number(&header, i).unwrap_or_default();
        let (size, count, sum) = (field(4), field(8), field(12));
        if header[..4] != MAGIC || at + (HEADER as u64) + u64::from(size) > length {
            break;
        }
        let body = medium.read(at + HEADER as u64, size as usize)?;
        if checksum(&header[4..12], &body) != sum {
            break;
        }
        let mut inside = 0;
        for _ in 0..count {
            let lengths = number(&body, inside).zip(number(&body, inside + 4));
            let Some(end) =
                lengths.and_then(|(event, trace)| inside.checked_add(8)?.checked_add(event as usize)?.checked_add(trace as usize))
            else {
                break;
            };
            let Some((event, trace)) = body.get(inside..end).and_then(split) else { break };
            let offset = at + (HEADER + inside) as u64;
            if let (Ok(event), Ok(offset)) = (decode(event, trace), u32::try_from(offset)) {
                each(Place { offset, length: (end - inside) as u32 }, event);
            }
            inside = end;
        }
        at += HEADER as u64 + u64::from(size);
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str) -> Event {
        Event { audit_id: id.into(), trace: Some(Box::new(Story { took: 3, ..Story::default() })), ..Event::default() }
    }

    #[test]
    fn what_is_written_in_a_block_is_read_again_and_a_torn_one_is_not() {
        let medium = Medium::memory();
        let mut block = Block::default();
        assert!(block.push(&mut event("a")) && block.push(&mut event("b")));
        let (bytes, places) = block.finish();
        let ids = |medium: &Medium| {
            let mut ids = Vec::new();
            let end = replay(medium, 0, |place, event| ids.push((place.offset, event.audit_id, event.trace.map(|t| t.took)))).unwrap();
            (ids, end)
        };
        medium.write(0, &bytes).unwrap();
        let whole = bytes.len() as u64;
        let (found, end) = ids(&medium);
        assert_eq!(found, [(16, "a".into(), Some(3)), (places[1].offset, "b".into(), Some(3))]);
        assert_eq!(end, whole);
        for torn in 1..bytes.len() {
            medium.write(whole, &bytes[..torn]).unwrap();
            assert_eq!((ids(&medium).0.len(), ids(&medium).1), (2, whole));
        }
        let mut flipped = bytes.clone();
        flipped[30] ^= 1;
        medium.write(whole, &flipped).unwrap();
        assert_eq!(ids(&medium).1, whole);
    }

    #[test]
    fn a_record_gives_back_the_event_with_its_trace_as_one_object() {
        let mut block = Block::default();
        block.push(&mut event("a"));
        let (bytes, places) = block.finish();
        let place = places[0];
        let record = Record::read(&bytes[place.offset as usize..][..place.length as usize]).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&record.json()).unwrap();
        assert_eq!((json["auditID"].as_str(), json["trace"]["took"].as_u64()), (Some("a"), Some(3)));
        assert_eq!(record.event().unwrap().trace.unwrap().took, 3);
    }
}
