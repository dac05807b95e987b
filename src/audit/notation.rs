//! Bytes as a sentence may quote them: in base64 and base32 of either alphabet and wherever it begins, in hexadecimal digits with or
//! without something between them, in decimal numbers, and as a URL writes them. Whoever looks for bytes is shown what each of them stands for.

use std::ops::Range;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::redact::MASK;
use crate::request::decode_bytes;

/// Fewer letters than this stand for nothing.
const SHORTEST: usize = 8;

/// Shorter lines are words. The shortest that anybody breaks base64 into have 64 letters, and perhaps less in the first.
const SHORTEST_LINE: usize = 40;

/// Base64 as a part of a sentence: without its padding, and perhaps cut off.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent).with_decode_allow_trailing_bits(true),
);

/// What may stand between hexadecimal digits: `48 75`, `48:75`, `0x48, 0x75`, `\x48\x75`, `\u0048\u0075`.
const BETWEEN_DIGITS: &[u8] = b" :,;-\\xXu";

/// What may stand between decimal numbers: `[72 117]`, `72, 117`, `&#72;&#117;`.
const BETWEEN_NUMBERS: &[u8] = b" ,;&#";

/// Takes from a text what stands for bytes that tell something.
pub fn mask(text: &mut String, tells: impl Fn(&[u8]) -> bool) {
    if text.contains('%') && (tells(&decode_bytes(text)) || tells(&decode_bytes(&text.replace('+', " ")))) {
        *text = MASK.to_owned();
        return;
    }
    mask_folded(text, &tells);
    for run in runs(text, is_letter) {
        let told = &text[run.clone()];
        if in_base64(told, &tells) || in_digits(told, &tells) || in_base32(told, &tells) {
            let padding = text[run.end..].bytes().take_while(|byte| *byte == b'=').count();
            text.replace_range(run.start..run.end + padding, MASK);
        }
    }
    for run in runs(text, |byte| byte.is_ascii_hexdigit() || BETWEEN_DIGITS.contains(&byte)) {
        let words = text[run.clone()].split(|letter: char| !letter.is_ascii_hexdigit()).filter(|word| word.len() % 2 == 0);
        // A letter of four digits begins with two zeros.
        let bytes: Vec<u8> = words.flat_map(bytes_of).filter(|byte| *byte != 0).collect();
        if tells(&bytes) {
            replace_within(text, run, |letter| !letter.is_ascii_hexdigit());
        }
    }
    for run in runs(text, |byte| byte.is_ascii_digit() || BETWEEN_NUMBERS.contains(&byte)) {
        let numbers = text[run.clone()].split(|letter: char| !letter.is_ascii_digit());
        let bytes: Vec<u8> = numbers.filter_map(|number| number.parse().ok()).collect();
        if tells(&bytes) {
            replace_within(text, run, |letter| !letter.is_ascii_digit());
        }
    }
}

/// Takes from a text the base64 in lines that stands for bytes that tell something.
pub fn mask_folded(text: &mut String, tells: impl Fn(&[u8]) -> bool) {
    let found: Vec<Range<usize>> =
        folded(text.as_bytes()).filter(|run| in_base64(&unfold(&text.as_bytes()[run.clone()]), &tells)).collect();
    for run in found.into_iter().rev() {
        text.replace_range(run, MASK);
    }
}

/// Where there is base64 in lines, as `base64` and MIME write it, in a text or in JSON. Looked for by the ends of lines, of which there are
/// few in most bodies.
pub fn folded(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let found = next_folded(text, from)?;
        from = found.end;
        Some(found)
    })
}

fn next_folded(text: &[u8], from: usize) -> Option<Range<usize>> {
    let letters = |part: &[u8]| part.iter().take_while(|byte| is_letter(**byte)).count();
    let mut ends = memchr::memchr2_iter(b'\n', b'\\', &text[from..]).map(|at| from + at);
    ends.find_map(|at| {
        // The first of the two marks is the end of the line.
        let at = at - usize::from(text[at] == b'\n' && text[from..at].ends_with(b"\r"));
        let line = text[from..at].iter().rev().take_while(|byte| is_letter(**byte)).count();
        let mut end = at;
        while let Some(next) = line_behind(text, end).filter(|_| line >= SHORTEST_LINE) {
            match letters(&text[next..]) {
                0 => break,
                more => end = next + more,
            }
        }
        let padding = text[end..].iter().take_while(|byte| **byte == b'=').count();
        (end > at).then(|| at - line..end + padding)
    })
}

/// Where the next line begins, if one ends here, as it is or as JSON writes it.
fn line_behind(text: &[u8], at: usize) -> Option<usize> {
    let ends: [&[u8]; 4] = [b"\n", b"\r\n", br"\n", br"\r\n"];
    let rest = &text[at..];
    let end = ends.iter().find(|end| rest.starts_with(end))?.len();
    Some(at + end + rest[end..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count())
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte)
}

/// The letters of such lines.
pub fn unfold(lines: &[u8]) -> String {
    let text = String::from_utf8_lossy(lines).replace("\\r", "").replace("\\n", "");
    text.chars().filter(|letter| !letter.is_whitespace() && *letter != '=').collect()
}

/// Whether letters of base64 stand for bytes that tell something; of which nobody says where the first group begins.
pub fn in_base64(run: &str, tells: impl Fn(&[u8]) -> bool) -> bool {
    let standard = run.replace('-', "+").replace('_', "/");
    (0..4).any(|skipped| {
        let part = standard.get(skipped..).unwrap_or_default();
        let part = &part[..part.len() - usize::from(part.len() % 4 == 1)];
        LENIENT.decode(part).is_ok_and(|plain| tells(&plain))
    })
}

/// Digits without a gap, of which nobody says at which the first byte begins.
fn in_digits(run: &str, tells: impl Fn(&[u8]) -> bool) -> bool {
    let words = run.split(|letter: char| !letter.is_ascii_hexdigit()).filter(|word| word.len() >= 2 * SHORTEST);
    words.flat_map(|word| [word, &word[1..]]).any(|word| tells(&bytes_of(word).collect::<Vec<u8>>()))
}

/// Letters of either alphabet, large or small, of which nobody says with which the first group begins.
fn in_base32(run: &str, tells: impl Fn(&[u8]) -> bool) -> bool {
    let usual = |letter: u8| match letter.to_ascii_uppercase() {
        letter @ b'A'..=b'Z' => Some(letter - b'A'),
        letter @ b'2'..=b'7' => Some(letter - b'2' + 26),
        _ => None,
    };
    let extended_hex = |letter: u8| (letter as char).to_digit(32).map(|digit| digit as u8);
    let alphabets: [&dyn Fn(u8) -> Option<u8>; 2] = [&usual, &extended_hex];
    alphabets.iter().any(|value| {
        let words = run.as_bytes().split(|letter| value(*letter).is_none()).filter(|word| word.len() >= 13);
        words.flat_map(|word| (0..8).map(move |skipped| &word[skipped..])).any(|word| tells(&bytes_of_32(word, value)))
    })
}

fn bytes_of_32(letters: &[u8], value: impl Fn(u8) -> Option<u8>) -> Vec<u8> {
    let groups = letters.chunks(8).map(|group| {
        let bits = group.iter().fold(0_u64, |bits, letter| bits << 5 | u64::from(value(*letter).unwrap_or_default()));
        (bits << (64 - 5 * group.len()), group.len() * 5 / 8)
    });
    groups.flat_map(|(bits, length)| bits.to_be_bytes().into_iter().take(length)).collect()
}

fn bytes_of(digits: &str) -> impl Iterator<Item = u8> {
    let digit = |letter: u8| (letter as char).to_digit(16).unwrap_or_default() as u8;
    digits.as_bytes().chunks_exact(2).map(move |pair| digit(pair[0]) << 4 | digit(pair[1]))
}

/// Masks a run, less what stands around it.
fn replace_within(text: &mut String, run: Range<usize>, around: impl Fn(char) -> bool) {
    let told = &text[run.clone()];
    let (start, end) = (told.len() - told.trim_start_matches(&around).len(), told.trim_end_matches(&around).len());
    text.replace_range(run.start + start..run.start + end, MASK);
}

/// The long runs of some letters in a text, the last one first.
fn runs(text: &str, of: impl Fn(u8) -> bool) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut start = 0;
    for (at, byte) in text.bytes().chain([0]).enumerate() {
        if !of(byte) {
            if at - start >= SHORTEST {
                runs.push(start..at);
            }
            start = at + 1;
        }
    }
    runs.reverse();
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_however_they_are_written_and_what_is_around_them_stays() {
        let masked = |text: &str| {
            let mut text = text.to_owned();
            mask(&mut text, |bytes| memchr::memmem::find(bytes, b"correct horse").is_some());
            text
        };
        for (told, rest) in [
            ("no: 63 6f 72 72 65 63 74 20 68 6f 72 73 65.", "no: [redacted]."),
            ("no: 63:6F:72:72:65:63:74:20:68:6F:72:73:65", "no: [redacted]"),
            ("no: 0x63, 0x6f, 0x72, 0x72, 0x65, 0x63, 0x74, 0x20, 0x68, 0x6f, 0x72, 0x73, 0x65!", "no: [redacted]!"),
            (r"no: \x63\x6f\x72\x72\x65\x63\x74\x20\x68\x6f\x72\x73\x65 (of it)", r"no: \x[redacted] (of it)"),
            (r"no: \u0063\u006f\u0072\u0072\u0065\u0063\u0074\u0020\u0068\u006f\u0072\u0073\u0065", r"no: \u[redacted]"),
            ("no: f636f727265637420686f727365", "no: [redacted]"),
            ("no: &#99;&#111;&#114;&#114;&#101;&#99;&#116;&#32;&#104;&#111;&#114;&#115;&#101;", "no: &#[redacted];"),
            ("no 403, [99 111 114 114 101 99 116 32 104 111 114 115 101]", "no 403, [[redacted]]"),
            ("no: Y29ycmVjdCBob3JzZQ== it is", "no: [redacted] it is"),
            ("no: MNXXE4TFMN2CA2DPOJZWK=== it is", "no: [redacted] it is"),
            ("no: xymnxxe4tfmn2ca2dpojzwk", "no: [redacted]"),
            ("no: CDNN4SJ5CDQ20Q3FE9PMA===", "no: [redacted]"),
        ] {
            assert_eq!(masked(told), rest, "{told}");
        }
        let folded = |text: &str, end: &str| {
            let text = base64::engine::general_purpose::STANDARD.encode(text);
            text.as_bytes().chunks(64).map(|line| format!("{}{end}", String::from_utf8_lossy(line))).collect::<String>()
        };
        for before in 30..60 {
            let text = format!("{}correct horse{}", "a".repeat(before), "z".repeat(40));
            for end in ["\n", "\r\n", "\n  "] {
                assert_eq!(masked(&format!("no: {}(of it)", folded(&text, end))), format!("no: [redacted]{end}(of it)"), "{before}");
            }
            assert!(super::folded(folded(&text, r"\r\n").as_bytes()).any(|run| run.start == 0));
        }
        for innocent in ["at 12:30:45, 2026-11-16", "fe80::1 dead:beef 0x10", "a bad face faded, decade by decade", "1, 2, 3, 4, 5"] {
            assert_eq!(masked(innocent), innocent);
        }
    }
}
