//! The bytes in the file: how a key with its revision, an entry of the key table and a record of the log are written
//! and read back. `docs/storage.md` describes the same to the byte. Nothing here touches a file or knows a
//! transaction; every decoder takes arbitrary bytes and says no rather than guess.
//!
//! Three tables:
//!
//! * `log`: (revision, ordinal) → a [`Record`]: time, Audit-ID, key and the bytes of the object. The only place where an
//!   object's bytes are written; it grows at its end, so that its pages are filled completely and written once.
//! * `keys`: key and revision → a [`Version`]: whether it is a tombstone and where in the log its record is. Small,
//!   so that a write at a random key touches a page with fifty neighbours instead of three.
//! * `meta`: the version of this format and how far compaction came.

use std::sync::Arc;

use bytes::Bytes;
use redb::TableDefinition;

use crate::store::{Change, Entry, Key, Revision};

/// What this code writes and reads; a file of any other version is refused.
pub(super) const FORMAT: u64 = 1;

/// (revision, position in the batch) → record.
pub(super) const LOG: TableDefinition<(u64, u32), &[u8]> = TableDefinition::new("log");
/// escaped key, zero byte, revision big-endian → version.
pub(super) const KEYS: TableDefinition<&[u8], &[u8; 12]> = TableDefinition::new("keys");
/// name → number.
pub(super) const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// In `meta`: [`FORMAT`].
pub(super) const META_FORMAT: &str = "format";
/// In `meta`: the oldest revision that can be read exactly.
pub(super) const META_FLOOR: &str = "floor";
/// In `meta`: changes up to this revision have been compacted; not above the floor, and below it while compaction is under
/// way.
pub(super) const META_COMPACTED: &str = "compacted";
/// In `meta`: within that revision, changes up to this position in the batch.
pub(super) const META_COMPACTED_ORDINAL: &str = "compacted-ordinal";
/// In `meta`: a revision that was reached, in case compaction removed the record of the newest one.
pub(super) const META_REVISION: &str = "revision";
/// In `meta`: the revision that the store began with when it was restored from a snapshot; clients may not watch from
/// before it.
pub(super) const META_RESTORED: &str = "restored";

/// Bytes that do not mean what they should.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Damage(pub(super) String);

const TOMBSTONE: u32 = 1 << 31;
const FLAG_TOMBSTONE: u8 = 1;
const FLAG_AUDIT_UUID: u8 = 2;
const FLAG_AUDIT_TEXT: u8 = 4;

/// The largest number of operations of one batch.
pub(super) const MAX_OPERATIONS: usize = 1 << 16;

/// Higher than any revision there will be, and beginning with a zero byte; see [`escape`].
pub(super) const MAX_REVISION: Revision = Revision::MAX >> 8;

/// Appends `key` so that the order of the encoded keys, each followed by a zero byte and a revision, is the order of
/// the plain ones: a zero byte inside a key becomes `00 ff`, and no revision begins with `ff`.
fn escape(key: &str, out: &mut Vec<u8>) {
    let bytes = key.as_bytes();
    if memchr::memchr(0, bytes).is_none() {
        out.extend_from_slice(bytes);
        return;
    }
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
}

/// The key of `keys` for one version.
pub(super) fn version_key(key: &str, revision: Revision) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 9);
    escape(key, &mut out);
    out.push(0);
    out.extend_from_slice(&revision.to_be_bytes());
    out
}

/// Replaces the revision of an encoded version key.
pub(super) fn set_revision(version_key: &mut [u8], revision: Revision) {
    let at = version_key.len() - 8;
    version_key[at..].copy_from_slice(&revision.to_be_bytes());
}

/// Where the keys that begin with `prefix` begin in `keys`, and where they end (`None`: at the end of the table).
pub(super) fn prefix_bounds(prefix: &str) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut start = Vec::with_capacity(prefix.len() + 1);
    escape(prefix, &mut start);
    let mut end = start.clone();
    // UTF-8 has no byte 0xff, so the last byte can always be raised; the escape's own 0xff is preceded by a zero.
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return (start, Some(end));
        }
    }
    (start, None)
}

/// The escaped key and the revision of an encoded version key.
pub(super) fn split_version_key(encoded: &[u8]) -> Result<(&[u8], Revision), Damage> {
    let split = encoded.len().checked_sub(9);
    match split.map(|at| encoded.split_at(at)) {
        Some((key, [0, revision @ ..])) => {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(revision);
            Ok((key, Revision::from_be_bytes(bytes)))
        }
        _ => Err(Damage("an entry of the key table has no revision".to_owned())),
    }
}

/// The plain key of an escaped one.
pub(super) fn unescape(escaped: &[u8]) -> Result<Key, Damage> {
    let not_text = |_| Damage("an entry of the key table is not UTF-8".to_owned());
    if memchr::memchr(0, escaped).is_none() {
        return std::str::from_utf8(escaped).map(Arc::from).map_err(not_text);
    }
    let mut plain = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(byte);
        if byte == 0 && bytes.next() != Some(&0xff) {
            return Err(Damage("an entry of the key table is not escaped".to_owned()));
        }
    }
    String::from_utf8(plain).map(Arc::from).map_err(|_| Damage("an entry of the key table is not UTF-8".to_owned()))
}

/// What `keys` knows of one version of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// Whether the entry was removed.
    pub(super) deleted: bool,
    /// The position in its batch, the second half of the key of its record.
    pub(super) ordinal: u32,
    /// The length of its record.
    pub(super) length: u32,
}

impl Version {
    pub(super) fn encode(self, encoded_key: &[u8]) -> [u8; 12] {
        let place = self.ordinal | if self.deleted { TOMBSTONE } else { 0 };
        let mut out = [0; 12];
        out[..4].copy_from_slice(&place.to_le_bytes());
        out[4..8].copy_from_slice(&self.length.to_le_bytes());
        let sum = version_sum(encoded_key, &out[..8]);
        out[8..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub(super) fn decode(encoded_key: &[u8], bytes: &[u8; 12]) -> Result<Version, Damage> {
        let [p0, p1, p2, p3, l0, l1, l2, l3, s0, s1, s2, s3] = *bytes;
        if version_sum(encoded_key, &bytes[..8]) != u32::from_le_bytes([s0, s1, s2, s3]) {
            let key = String::from_utf8_lossy(encoded_key.get(..encoded_key.len().saturating_sub(9)).unwrap_or_default());
            return Err(Damage(format!("the checksum of an entry of the key table does not match (its key reads {key:?})")));
        }
        let place = u32::from_le_bytes([p0, p1, p2, p3]);
        Ok(Version { deleted: place & TOMBSTONE != 0, ordinal: place & !TOMBSTONE, length: u32::from_le_bytes([l0, l1, l2, l3]) })
    }
}

fn version_sum(encoded_key: &[u8], rest: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(encoded_key);
    sum.update(rest);
    sum.finalize()
}

/// One change as the log keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) deleted: bool,
    pub(super) time: i64,
    pub(super) audit_id: Option<AuditId<'a>>,
    pub(super) key: &'a str,
    pub(super) value: &'a [u8],
}

/// An Audit-ID is nearly always a UUID, which takes 16 bytes instead of 36.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuditId<'a> {
    Uuid([u8; 16]),
    Text(&'a str),
}

impl<'a> AuditId<'a> {
    pub(super) fn from_text(text: &'a str) -> AuditId<'a> {
        match uuid::Uuid::try_parse(text) {
            // Only the form that we would write back; another spelling stays as it is.
            Ok(uuid) if uuid.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()) == text => AuditId::Uuid(*uuid.as_bytes()),
            _ => AuditId::Text(text),
        }
    }

    pub(super) fn to_text(self) -> Arc<str> {
        match self {
            AuditId::Uuid(bytes) => Arc::from(&*uuid::Uuid::from_bytes(bytes).hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer())),
            AuditId::Text(text) => Arc::from(text),
        }
    }
}

impl<'a> Record<'a> {
    /// The bytes of the record; the checksum covers its place in the log too.
    pub(super) fn encode(&self, revision: Revision, ordinal: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + 1 + 8 + 16 + 4 + self.key.len() + self.value.len());
        out.extend_from_slice(&[0; 4]);
        let audit_flag = match self.audit_id {
            None => 0,
            Some(AuditId::Uuid(_)) => FLAG_AUDIT_UUID,
            Some(AuditId::Text(_)) => FLAG_AUDIT_TEXT,
        };
        out.push(audit_flag | if self.deleted { FLAG_TOMBSTONE } else { 0 });
        out.extend_from_slice(&self.time.to_le_bytes());
        match self.audit_id {
            None => {}
            Some(AuditId::Uuid(bytes)) => out.extend_from_slice(&bytes),
            Some(AuditId::Text(text)) => push_text(text, &mut out),
        }
        push_text(self.key, &mut out);
        out.extend_from_slice(self.value);
        let sum = record_sum(revision, ordinal, &out[4..]);
        out[..4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub(super) fn decode(revision: Revision, ordinal: u32, bytes: &'a [u8]) -> Result<Record<'a>, Damage> {
        let damage = |what: &str| Damage(format!("the log's record of revision {revision} {what}"));
        let short = || damage("is cut short");
        let (sum, rest) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
        if record_sum(revision, ordinal, rest) != u32::from_le_bytes(*sum) {
            return Err(damage("has a checksum that does not match"));
        }
        let (&[flags], rest) = rest.split_first_chunk::<1>().ok_or_else(short)?;
        let (time, rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
        let (audit_id, rest) = if flags & FLAG_AUDIT_UUID != 0 {
            let (uuid, rest) = rest.split_first_chunk::<16>().ok_or_else(short)?;
            (Some(AuditId::Uuid(*uuid)), rest)
        } else if flags & FLAG_AUDIT_TEXT != 0 {
            let (text, rest) = take_text(rest).ok_or_else(|| damage("has no readable Audit-ID"))?;
            (Some(AuditId::Text(text)), rest)
        } else {
            (None, rest)
        };
        let (key, value) = take_text(rest).ok_or_else(|| damage("has no readable key"))?;
        Ok(Record { deleted: flags & FLAG_TOMBSTONE != 0, time: i64::from_le_bytes(*time), audit_id, key, value })
    }

    /// The entry that this record made.
    pub(super) fn to_entry(self, key: Key, revision: Revision) -> Entry {
        Entry { key, revision, value: Bytes::copy_from_slice(self.value) }
    }

    /// The change that this record tells of.
    pub(super) fn to_change(self, revision: Revision) -> Change {
        Change {
            revision,
            key: Arc::from(self.key),
            value: Bytes::copy_from_slice(self.value),
            deleted: self.deleted,
            time: self.time,
            audit_id: self.audit_id.map(AuditId::to_text),
        }
    }
}

fn record_sum(revision: Revision, ordinal: u32, rest: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&revision.to_le_bytes());
    sum.update(&ordinal.to_le_bytes());
    sum.update(rest);
    sum.finalize()
}

fn push_text(text: &str, out: &mut Vec<u8>) {
    // A commit refuses keys and Audit-IDs that a u32 could not count.
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn take_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn encoded_keys_sort_as_plain_keys_and_then_by_revision(
            a in "[\\x00ab/é]{0,6}", b in "[\\x00ab/é]{0,6}", ra in 0u64..1 << 60, rb in 0u64..1 << 60,
        ) {
            let (ea, eb) = (version_key(&a, ra), version_key(&b, rb));
            prop_assert_eq!(ea.cmp(&eb), a.as_bytes().cmp(b.as_bytes()).then(ra.cmp(&rb)));
            let (escaped, revision) = split_version_key(&ea).unwrap();
            prop_assert_eq!(&*unescape(escaped).unwrap(), &*a);
            prop_assert_eq!(revision, ra);
        }

        #[test]
        fn the_bounds_of_a_prefix_hold_exactly_the_keys_that_begin_with_it(
            prefix in "[\\x00ab/é]{0,4}", key in "[\\x00ab/é]{0,6}", revision in 0u64..1 << 60,
        ) {
            let encoded = version_key(&key, revision);
            let (start, end) = prefix_bounds(&prefix);
            let inside = encoded >= start && end.is_none_or(|end| encoded < end);
            prop_assert_eq!(inside, key.starts_with(&prefix));
        }

        #[test]
        fn a_record_reads_back_and_any_changed_byte_is_noticed(
            key in ".{0,40}", value in proptest::collection::vec(any::<u8>(), 0..200), time: i64, deleted: bool,
            audit in proptest::option::of("[a-z0-9-]{0,40}"), revision in 1u64..1 << 60, ordinal in 0u32..100,
            position: prop::sample::Index, flip in 1u8..,
        ) {
            let audit_id = audit.as_deref().map(AuditId::from_text);
            let record = Record { deleted, time, audit_id, key: &key, value: &value };
            let mut bytes = record.encode(revision, ordinal);
            prop_assert_eq!(Record::decode(revision, ordinal, &bytes).unwrap(), record);
            prop_assert!(Record::decode(revision + 1, ordinal, &bytes).is_err());
            let at = position.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(Record::decode(revision, ordinal, &bytes).is_err());
        }

        #[test]
        fn decoders_take_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Record::decode(1, 0, &bytes);
            let _ = split_version_key(&bytes);
            let _ = unescape(&bytes);
        }
    }

    #[test]
    fn a_version_is_tied_to_its_key() {
        let version = Version { deleted: true, ordinal: 7, length: 99 };
        let encoded = version.encode(&version_key("/a", 3));
        assert_eq!(Version::decode(&version_key("/a", 3), &encoded), Ok(version));
        assert!(Version::decode(&version_key("/b", 3), &encoded).is_err());
        assert!(Version::decode(&version_key("/a", 4), &encoded).is_err());
    }

    #[test]
    fn a_uuid_takes_sixteen_bytes_and_other_spellings_stay_as_they_are() {
        let plain = "6fa459ea-ee8a-3ca4-894e-db77e160355e";
        assert!(matches!(AuditId::from_text(plain), AuditId::Uuid(_)));
        assert_eq!(&*AuditId::from_text(plain).to_text(), plain);
        let shouting = "6FA459EA-EE8A-3CA4-894E-DB77E160355E";
        assert_eq!(&*AuditId::from_text(shouting).to_text(), shouting);
    }
}
