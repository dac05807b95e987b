//! The wire form of protobuf (proto2): tags, varints and lengths, checked on the way in. Knows nothing of messages.

use super::error::Error;

pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const LENGTH: u8 = 2;
const GROUP: u8 = 3;
const END_GROUP: u8 = 4;
const FIXED32: u8 = 5;

/// How many groups may be nested in an unknown field that is skipped.
const MAX_GROUPS: usize = 64;

/// A cursor over bytes from somebody else.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next field's number and wire type.
    pub(super) fn tag(&mut self) -> Result<(u32, u8), Error> {
        let tag = self.varint()?;
        let wire = (tag & 7) as u8;
        match u32::try_from(tag >> 3) {
            Ok(number) if number != 0 && wire <= FIXED32 => Ok((number, wire)),
            _ => Err(Error::Tag(tag >> 3, wire)),
        }
    }

    pub(super) fn varint(&mut self) -> Result<u64, Error> {
        if let [byte, rest @ ..] = self.bytes
            && *byte < 0x80
        {
            self.bytes = rest;
            return Ok(u64::from(*byte));
        }
        let mut value = 0;
        for (index, byte) in self.bytes.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                self.bytes = &self.bytes[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.bytes.len() < 10 { Error::Truncated } else { Error::Overflow })
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, Error> {
        let (head, rest) = self.bytes.split_first_chunk::<8>().ok_or(Error::Truncated)?;
        self.bytes = rest;
        Ok(u64::from_le_bytes(*head))
    }

    /// A length and as many bytes.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let length = usize::try_from(self.varint()?).map_err(|_| Error::Truncated)?;
        let (head, rest) = self.bytes.split_at_checked(length).ok_or(Error::Truncated)?;
        self.bytes = rest;
        Ok(head)
    }

    /// Steps over a field that nobody knows.
    pub(super) fn skip(&mut self, wire: u8) -> Result<(), Error> {
        let mut wire = wire;
        let mut open = 0;
        loop {
            match wire {
                VARINT => drop(self.varint()?),
                FIXED64 => drop(self.fixed64()?),
                LENGTH => drop(self.bytes()?),
                FIXED32 => self.bytes = self.bytes.get(4..).ok_or(Error::Truncated)?,
                GROUP if open < MAX_GROUPS => open += 1,
                END_GROUP if open > 0 => open -= 1,
                _ => return Err(Error::Group),
            }
            if open == 0 {
                return Ok(());
            }
            wire = self.tag()?.1;
        }
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn put_tag(out: &mut Vec<u8>, number: u32, wire: u8) {
    put_varint(out, u64::from(number) << 3 | u64::from(wire));
}

pub(super) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_tag(out, number, LENGTH);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn put_int(out: &mut Vec<u8>, number: u32, value: i64) {
    put_tag(out, number, VARINT);
    put_varint(out, value as u64);
}

/// How many bytes [`put_varint`] takes.
pub(super) fn varint_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Writes a field whose length is known only afterwards: one byte is kept free for it, and what was written moves up in the
/// rare case that one is not enough.
pub(super) fn put_nested<E>(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
    put_tag(out, number, LENGTH);
    let at = out.len();
    out.push(0);
    write(out)?;
    let mut length = out.len() - at - 1;
    let more = varint_len(length as u64) - 1;
    if more > 0 {
        let end = out.len();
        out.resize(end + more, 0);
        out.copy_within(at + 1..end, at + 1 + more);
    }
    for slot in &mut out[at..at + more] {
        *slot = length as u8 | 0x80;
        length >>= 7;
    }
    out[at + more] = length as u8;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varint_comes_back_and_has_the_length_that_was_foretold() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
                let mut reader = Reader::new(&out);
                assert_eq!(reader.varint(), Ok(value));
                assert!(reader.is_empty());
                for cut in 0..out.len() {
                    assert_eq!(Reader::new(&out[..cut]).varint(), Err(Error::Truncated));
                }
            }
        }
        assert_eq!(Reader::new(&[0xff; 11]).varint(), Err(Error::Overflow));
    }

    #[test]
    fn a_length_is_written_before_content_of_any_size() {
        for size in [0, 1, 127, 128, 16_383, 16_384, 3_000_000] {
            let mut out = vec![9];
            let written: Result<(), Error> = put_nested(&mut out, 20, |out| {
                out.resize(out.len() + size, 7);
                Ok(())
            });
            written.unwrap();
            let mut reader = Reader::new(&out[1..]);
            assert_eq!(reader.tag(), Ok((20, LENGTH)));
            assert_eq!(reader.bytes(), Ok(&vec![7; size][..]));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn unknown_fields_are_stepped_over_whatever_their_wire_type() {
        // A group with a varint, a fixed32 and a nested group in it, then the end.
        let bytes = [0x0b, 0x10, 0x01, 0x1d, 1, 2, 3, 4, 0x23, 0x24, 0x0c];
        let mut reader = Reader::new(&bytes);
        let (_, wire) = reader.tag().unwrap();
        reader.skip(wire).unwrap();
        assert!(reader.is_empty());
        for cut in 1..bytes.len() {
            let mut reader = Reader::new(&bytes[..cut]);
            let (_, wire) = reader.tag().unwrap();
            assert!(reader.skip(wire).is_err());
        }
        assert_eq!(Reader::new(&[0x0b; 1000][1..]).skip(GROUP), Err(Error::Group));
    }

    #[test]
    fn a_length_beyond_the_end_is_an_error() {
        assert_eq!(Reader::new(&[5, 1, 2]).bytes(), Err(Error::Truncated));
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).bytes(), Err(Error::Truncated));
        assert_eq!(Reader::new(&[0]).tag(), Err(Error::Tag(0, 0)));
        assert_eq!(Reader::new(&[0x0e]).tag(), Err(Error::Tag(1, 6)));
    }
}
