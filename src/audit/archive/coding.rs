//! How the parts of a record are written: numbers, texts, ids and values, each in as few bytes as it takes. The format is in
//! `docs/storage.md`.

use serde_json::{Map, Value};

/// Writes a number, seven bits in a byte, the lowest first; the highest bit says that another follows.
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads a number.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Writes bytes with their length in front.
pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Reads bytes with their length in front.
pub fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take(bytes)?).ok()?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(text)
}

/// Reads a text.
pub fn text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take_text(bytes)?).ok()
}

/// An id in 16 bytes where it is a UUID as UUIDs are written, else as it is.
pub fn put_id(out: &mut Vec<u8>, id: &str) {
    match uuid(id.as_bytes()) {
        Some(bytes) => {
            out.push(0);
            out.extend_from_slice(&bytes);
        }
        None => {
            put(out, id.len() as u64 + 1);
            out.extend_from_slice(id.as_bytes());
        }
    }
}

/// An id as it was written.
#[derive(Clone, Copy, Debug)]
pub enum Id<'a> {
    /// A UUID.
    Uuid([u8; 16]),
    /// Anything else.
    Text(&'a str),
}

impl Id<'_> {
    /// Reads one.
    pub fn take<'a>(bytes: &mut &'a [u8]) -> Option<Id<'a>> {
        match take(bytes)? {
            0 => {
                let (id, rest) = bytes.split_first_chunk::<16>()?;
                *bytes = rest;
                Some(Id::Uuid(*id))
            }
            length => {
                let (id, rest) = bytes.split_at_checked(usize::try_from(length - 1).ok()?)?;
                *bytes = rest;
                Some(Id::Text(std::str::from_utf8(id).ok()?))
            }
        }
    }

    /// Adds it to a text.
    pub fn write(&self, out: &mut String) {
        match self {
            Id::Text(text) => out.push_str(text),
            Id::Uuid(bytes) => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                for (at, byte) in bytes.iter().enumerate() {
                    if matches!(at, 4 | 6 | 8 | 10) {
                        out.push('-');
                    }
                    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
                    out.push(char::from(DIGITS[usize::from(byte & 15)]));
                }
            }
        }
    }

    /// As a text.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(36);
        self.write(&mut text);
        text
    }
}

/// The bytes of a UUID in lower case with its four dashes.
fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if text.len() != 36 || [8, 13, 18, 23].iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let mut bytes = [0; 16];
    let mut at = 0;
    for byte in &mut bytes {
        at += usize::from(text.get(at) == Some(&b'-'));
        *byte = digit(*text.get(at)?)? << 4 | digit(*text.get(at + 1)?)?;
        at += 2;
    }
    Some(bytes)
}

/// What a value begins with; nothing for nothing.
const NOTHING: u8 = 0;
const NULL: u8 = 1;
const FALSE: u8 = 2;
const TRUE: u8 = 3;
const NUMBER: u8 = 4;
const TEXT: u8 = 5;
const LIST: u8 = 6;
const MAP: u8 = 7;

/// A value, in less time than it takes to write it as JSON.
pub fn put_value(out: &mut Vec<u8>, value: Option<&Value>) {
    let Some(value) = value else { return out.push(NOTHING) };
    match value {
        Value::Null => out.push(NULL),
        Value::Bool(false) => out.push(FALSE),
        Value::Bool(true) => out.push(TRUE),
        Value::Number(number) => {
            out.push(NUMBER);
            put_text(out, number.to_string().as_bytes());
        }
        Value::String(text) => {
            out.push(TEXT);
            put_text(out, text.as_bytes());
        }
        Value::Array(items) => {
            out.push(LIST);
            put(out, items.len() as u64);
            items.iter().for_each(|item| put_value(out, Some(item)));
        }
        Value::Object(map) => put_map(out, map),
    }
}

/// The same of a map.
pub fn put_map(out: &mut Vec<u8>, map: &Map<String, Value>) {
    out.push(MAP);
    put(out, map.len() as u64);
    for (key, value) in map {
        put_text(out, key.as_bytes());
        put_value(out, Some(value));
    }
}

/// How deep a value may be; none that came in as JSON is deeper.
const DEEPEST: usize = 256;

/// A value, at a depth; the outer `None` is damage.
pub fn value(bytes: &mut &[u8], depth: usize) -> Option<Option<Value>> {
    let (sort, rest) = bytes.split_first()?;
    *bytes = rest;
    if depth > DEEPEST {
        return None;
    }
    Some(Some(match *sort {
        NOTHING => return Some(None),
        NULL => Value::Null,
        FALSE => false.into(),
        TRUE => true.into(),
        NUMBER => Value::Number(text(bytes)?.parse().ok()?),
        TEXT => text(bytes)?.into(),
        LIST => Value::Array((0..take(bytes)?).map(|_| value(bytes, depth + 1)?).collect::<Option<_>>()?),
        MAP => Value::Object((0..take(bytes)?).map(|_| Some((text(bytes)?.to_owned(), value(bytes, depth + 1)??))).collect::<Option<_>>()?),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_they_need_to_be() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, number);
            assert_eq!(take(&mut &*out), Some(number));
            assert_eq!(take(&mut &out[..out.len() - 1]), None);
        }
        assert_eq!(take(&mut &[0xff; 11][..]), None);
    }

    #[test]
    fn ids_and_values_are_read_as_they_were_written() {
        for id in [
            "0d1fb1f4-70cc-4a2e-ae08-b39b0d5d2bbc",
            "0D1FB1F4-70cc-4a2e-ae08-b39b0d5d2bbc",
            "",
            "not one",
            "0d1fb1f4070cc04a2e0ae080b39b0d5d2bbc",
        ] {
            let mut out = Vec::new();
            put_id(&mut out, id);
            assert_eq!(Id::take(&mut &*out).unwrap().text(), id);
        }
        let all = serde_json::json!({"a": [1, -2, 2.5, 18_446_744_073_709_551_615_u64, true, false, null, "x"], "": {}, "é": []});
        let mut out = Vec::new();
        put_value(&mut out, Some(&all));
        assert_eq!(value(&mut &*out, 0), Some(Some(all)));
        assert_eq!(value(&mut &[LIST].repeat(100_000)[..], 0), None, "no depth is too deep for it");
    }
}
