//! Text in UTF-16 as UTF-8: what PowerShell makes of a log that is written to a file with `>`.

use std::io::{self, Read};

/// How much is decoded at once.
const PIECE: usize = 64 << 10;

/// A reader of UTF-16 that gives UTF-8; what is no text becomes the replacement character.
pub struct Utf16<R> {
    input: R,
    big: bool,
    /// What was read and is not decoded yet: half a unit, or the first unit of a pair.
    rest: Vec<u8>,
    decoded: Vec<u8>,
    taken: usize,
}

/// Whether a text begins with the mark of UTF-16, and if so, whether its units begin with their larger half.
pub fn is_big(beginning: &[u8]) -> Option<bool> {
    match beginning {
        [0xfe, 0xff, ..] => Some(true),
        [0xff, 0xfe, ..] => Some(false),
        _ => None,
    }
}

impl<R: Read> Utf16<R> {
    /// Reads on from the mark.
    pub fn new(input: R, big: bool) -> Self {
        Utf16 { input, big, rest: Vec::new(), decoded: Vec::new(), taken: 0 }
    }

    /// Decodes the next piece; nothing is left at the end.
    fn refill(&mut self) -> io::Result<()> {
        let mut piece = std::mem::take(&mut self.rest);
        let read = self.input.by_ref().take(PIECE as u64).read_to_end(&mut piece)?;
        let unit = |pair: &[u8]| {
            let pair = [pair[0], pair[1]];
            if self.big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
        };
        let mut whole = piece.len() & !1;
        let is_half = |at: usize| (0xd800..0xdc00).contains(&unit(&piece[at..]));
        if read > 0 && whole >= 2 && is_half(whole - 2) {
            whole -= 2;
        }
        let units = piece[..whole].chunks_exact(2).map(unit);
        let text: String = char::decode_utf16(units).map(|decoded| decoded.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        (self.decoded, self.taken) = (text.into_bytes(), 0);
        if read > 0 {
            self.rest = piece.split_off(whole);
        }
        Ok(())
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.decoded.len() {
            self.refill()?;
        }
        let left = &self.decoded[self.taken..];
        let count = left.len().min(out.len());
        out[..count].copy_from_slice(&left[..count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_are_read_wherever_a_character_is_cut() {
        let text = format!("\u{feff}{}", "a🦀ß\n".repeat(40_000));
        for big in [true, false] {
            for length in [1, 3, 7] {
                let bytes: Vec<u8> =
                    text.encode_utf16().flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect();
                assert_eq!(is_big(&bytes), Some(big));
                let mut read = String::new();
                // A reader that gives odd pieces.
                let (first, second) = bytes.split_at(length);
                Utf16::new(first.chain(second), big).read_to_string(&mut read).unwrap();
                assert_eq!(read, text);
            }
        }
        let mut broken = String::new();
        Utf16::new(&[b'x', 0, 0x00, 0xd8][..], false).read_to_string(&mut broken).unwrap();
        assert_eq!(broken, "x\u{fffd}");
        assert_eq!(is_big(b"{\"kind\""), None);
    }
}
