//! What etcd has no place for: when a change was made, and by which request. It stands in front of the object's bytes in
//! every value, and for deletes, which have no value, in a note of the batch.
//!
//! * A **value** is `01`, the time (8 bytes, little-endian), the length of the Audit-ID (4 bytes, little-endian; `ffffffff`
//!   for none), the Audit-ID, and the object. A value that does not begin with `01` was not written by us and is taken as it
//!   is.
//! * The **note** is one key, `<prefix>.batch`, which every batch writes: so its revision is the newest of the store, and all
//!   replicas agree on it by one read. Its value is as above, and behind it for each delete the length of the key, the
//!   key, the length of the last bytes and the last bytes (lengths 4 bytes, little-endian).

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

const OURS: u8 = 1;
const NO_AUDIT_ID: u32 = u32::MAX;

/// A value taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) time: i64,
    pub(super) audit_id: Option<Arc<str>>,
    pub(super) value: Bytes,
}

impl Envelope {
    pub(super) fn encode(time: i64, audit_id: Option<&str>, value: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(1 + 8 + 4 + 36 + value.len());
        out.put_u8(OURS);
        out.put_i64_le(time);
        match audit_id {
            Some(id) => put(&mut out, id.as_bytes()),
            None => out.put_u32_le(NO_AUDIT_ID),
        }
        out.put_slice(value);
        out.freeze()
    }

    /// Never fails: what is not ours is a value without a time.
    pub(super) fn decode(bytes: &Bytes) -> Envelope {
        let foreign = || Envelope { time: 0, audit_id: None, value: bytes.clone() };
        let mut rest = bytes.clone();
        if rest.len() < 13 || rest[0] != OURS {
            return foreign();
        }
        rest.advance(1);
        let time = rest.get_i64_le();
        let audit_id = match (&rest[..4]).get_u32_le() {
            NO_AUDIT_ID => {
                rest.advance(4);
                None
            }
            _ => match take(&mut rest).and_then(|id| std::str::from_utf8(&id).map(Arc::from).ok()) {
                Some(id) => Some(id),
                None => return foreign(),
            },
        };
        Envelope { time, audit_id, value: rest }
    }
}

/// Appends the deletes of a batch to what becomes its note.
pub(super) fn put_deletes<'a>(deletes: impl Iterator<Item = (&'a str, &'a [u8])>) -> Bytes {
    let mut out = BytesMut::new();
    for (key, last) in deletes {
        put(&mut out, key.as_bytes());
        put(&mut out, last);
    }
    out.freeze()
}

/// The last bytes of `key` as a note has them.
pub(super) fn last_of(note: &Envelope, key: &str) -> Option<Bytes> {
    let mut rest = note.value.clone();
    loop {
        let found = take(&mut rest)?;
        let last = take(&mut rest)?;
        if found == key.as_bytes() {
            return Some(last);
        }
    }
}

fn put(out: &mut BytesMut, bytes: &[u8]) {
    // etcd refuses requests of more than a few megabytes long before a u32 is too small.
    out.put_u32_le(u32::try_from(bytes.len()).unwrap_or(NO_AUDIT_ID));
    out.put_slice(bytes);
}

fn take(rest: &mut Bytes) -> Option<Bytes> {
    let length = rest.try_get_u32_le().ok()? as usize;
    (length <= rest.len()).then(|| rest.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_envelope_reads_back(time: i64, audit in proptest::option::of(".{0,40}"), value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let bytes = Envelope::encode(time, audit.as_deref(), &value);
            let expected = Envelope { time, audit_id: audit.map(Arc::from), value: Bytes::from(value) };
            prop_assert_eq!(Envelope::decode(&bytes), expected);
        }

        #[test]
        fn any_bytes_are_a_value(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let envelope = Envelope::decode(&Bytes::from(bytes));
            let _ = last_of(&envelope, "/a");
        }
    }

    #[test]
    fn a_note_knows_the_last_bytes_of_each_delete() {
        let deletes = put_deletes([("/a", &b"1"[..]), ("/b", b"2")].into_iter());
        let note = Envelope::decode(&Envelope::encode(1, None, &deletes));
        assert_eq!(last_of(&note, "/b"), Some(Bytes::from_static(b"2")));
        assert_eq!(last_of(&note, "/c"), None);
    }
}
