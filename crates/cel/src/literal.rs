//! The value of a literal token: numbers with their ranges, strings and bytes with their escapes. Knows nothing
//! of the tokens around it.

use std::sync::Arc;

use crate::ast::Literal;

pub(crate) fn int(text: &str, negative: bool) -> Result<Literal, &'static str> {
    let (digits, radix) = radix(text);
    let signed = if negative { format!("-{digits}") } else { digits.to_owned() };
    i64::from_str_radix(&signed, radix).map(Literal::Int).map_err(|_| "invalid int literal")
}

pub(crate) fn uint(text: &str) -> Result<Literal, &'static str> {
    let (digits, radix) = radix(&text[..text.len() - 1]);
    u64::from_str_radix(digits, radix).map(Literal::Uint).map_err(|_| "invalid uint literal")
}

fn radix(text: &str) -> (&str, u32) {
    text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16))
}

pub(crate) fn double(text: &str, negative: bool) -> Result<Literal, &'static str> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Literal::Double(if negative { -value } else { value })),
        _ => Err("invalid double literal"),
    }
}

pub(crate) fn string(text: &str) -> Result<Literal, &'static str> {
    let (body, raw) = body(text);
    if raw || !body.contains('\\') {
        return Ok(Literal::String(body.into()));
    }
    let bytes = unescape(body, false)?;
    let text = String::from_utf8(bytes).map_err(|_| "invalid unicode code point")?;
    Ok(Literal::String(text.into()))
}

pub(crate) fn bytes(text: &str) -> Result<Literal, &'static str> {
    let (body, raw) = body(&text[1..]);
    let bytes: Arc<[u8]> = if raw { body.as_bytes().into() } else { unescape(body, true)?.into() };
    Ok(Literal::Bytes(bytes))
}

/// What stands between the quotes, and whether escapes mean nothing there.
fn body(text: &str) -> (&str, bool) {
    let unprefixed = text.trim_start_matches(['r', 'R']);
    let raw = unprefixed.len() != text.len();
    let quotes = if unprefixed.len() >= 6 && (unprefixed.starts_with("'''") || unprefixed.starts_with("\"\"\"")) { 3 } else { 1 };
    (&unprefixed[quotes..unprefixed.len() - quotes], raw)
}

fn unescape(body: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    let mut buffer = [0u8; 4];
    while let Some(c) = rest.chars().next() {
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let kind = *rest.as_bytes().get(1).ok_or("unable to unescape string, found '\\' as last character")?;
        rest = &rest[2..];
        let digits = match kind {
            b'x' | b'X' => 2,
            b'u' if !is_bytes => 4,
            b'U' if !is_bytes => 8,
            b'0'..=b'3' => 2,
            _ => 0,
        };
        let value = match kind {
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => 0x0a,
            b'r' => 0x0d,
            b't' => 0x09,
            b'v' => 0x0b,
            b'\\' | b'\'' | b'"' | b'`' | b'?' => u32::from(kind),
            b'0'..=b'3' => {
                let octal = rest.get(..digits).ok_or("unable to unescape octal sequence in string")?;
                let tail = u32::from_str_radix(octal, 8).map_err(|_| "unable to unescape octal sequence in string")?;
                u32::from(kind - b'0') * 64 + tail
            }
            _ if digits > 0 => {
                let hex = rest.get(..digits).ok_or("unable to unescape string")?;
                u32::from_str_radix(hex, 16).map_err(|_| "unable to unescape string")?
            }
            _ => return Err("unable to unescape string"),
        };
        rest = &rest[digits..];
        if is_bytes {
            out.push(value as u8);
        } else {
            let c = char::from_u32(value).ok_or("invalid unicode code point")?;
            out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_escape_is_a_byte_in_bytes_and_a_code_point_in_a_string() {
        assert_eq!(bytes(r"b'\xff'"), Ok(Literal::Bytes([0xff].as_slice().into())));
        assert_eq!(string(r"'\xff'"), Ok(Literal::String("ÿ".into())));
        assert_eq!(bytes("b'ÿ'"), Ok(Literal::Bytes("ÿ".as_bytes().into())));
    }

    #[test]
    fn surrogates_and_overflows_are_refused() {
        assert_eq!(string(r"'\ud800'"), Err("invalid unicode code point"));
        assert_eq!(int("9223372036854775808", false), Err("invalid int literal"));
        assert_eq!(int("9223372036854775808", true), Ok(Literal::Int(i64::MIN)));
        assert_eq!(uint("18446744073709551616u"), Err("invalid uint literal"));
        assert_eq!(double("1e400", false), Err("invalid double literal"));
    }

    #[test]
    fn raw_literals_keep_their_backslashes() {
        assert_eq!(string(r"r'\d'"), Ok(Literal::String(r"\d".into())));
        assert_eq!(string("'''a'''"), Ok(Literal::String("a".into())));
    }
}
