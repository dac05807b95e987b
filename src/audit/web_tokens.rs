//! JSON web tokens, which are credentials wherever somebody writes them down: in a query, in the kubeconfig that a ConfigMap holds, in a
//! refusal that quotes what was asked for. They are known by their shape, so that nobody need say where they are.

use std::ops::Range;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use memchr::memmem;

use super::notation;
use super::redact::MASK;

/// How every one begins: `{"` in base64.
const BEGINNING: &str = "eyJ";

/// How that looks in base64 once more, where it begins at the first, second or third byte of a group of three.
const ENCODED: [&str; 3] = ["ZXlK", "V5S", "leU"];

/// What a text has in it somewhere that one is in.
pub const BEGINNINGS: [&str; 4] = [BEGINNING, ENCODED[0], ENCODED[1], ENCODED[2]];

/// How long the header of one is at most; what is longer is something else.
const LONGEST_HEADER: usize = 4096;

/// Whether there is one in a text.
pub fn are_in(text: &[u8]) -> bool {
    holds(text) || next_encoded(text, 0).is_some()
}

fn holds(text: &[u8]) -> bool {
    next(text, 0, is_token).is_some()
}

/// Takes them from a text; where they are in base64 with something else, all of it.
pub fn mask(text: &mut String) {
    replace(text, |text, from| next(text, from, is_token));
    replace(text, next_encoded);
}

/// Takes from a path or a query whatever looks like one.
pub fn mask_in_uri(text: &mut String) {
    let is_one = |run: &[u8]| memchr::memchr_iter(b'.', run).nth(1).is_some();
    replace(text, |text, from| next(text, from, is_one));
    replace(text, next_encoded);
}

fn replace(text: &mut String, next: impl Fn(&[u8], usize) -> Option<Range<usize>>) {
    let mut from = 0;
    while let Some(found) = next(text.as_bytes(), from) {
        from = found.start + MASK.len();
        text.replace_range(found, MASK);
    }
}

/// The next run of a token's letters that is one.
fn next(text: &[u8], mut from: usize, is_one: impl Fn(&[u8]) -> bool) -> Option<Range<usize>> {
    static FINDER: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(BEGINNING));
    let of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    while let Some(start) = FINDER.find(&text[from..]).map(|at| from + at) {
        let end = start + text[start..].iter().take_while(|byte| of_token(byte)).count();
        if is_one(&text[start..end]) {
            return Some(start..end);
        }
        from = end;
    }
    None
}

/// The next run of letters of base64 that stands for one, or for something that one is in.
fn next_encoded(text: &[u8], mut from: usize) -> Option<Range<usize>> {
    static FINDERS: LazyLock<[memmem::Finder<'static>; 3]> = LazyLock::new(|| ENCODED.map(memmem::Finder::new));
    let of_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    let mut hits = FINDERS.each_ref().map(|finder| finder.find(&text[from..]).map(|at| from + at));
    while let Some(hit) = hits.iter().flatten().min().copied() {
        let start = from + text[from..hit].iter().rposition(|byte| !of_base64(byte)).map_or(0, |before| before + 1);
        let end = hit + text[hit..].iter().take_while(|byte| of_base64(byte)).count();
        let run = std::str::from_utf8(&text[start..end]).unwrap_or_default();
        if notation::in_base64(run, holds) {
            return Some(start..end + text[end..].iter().take_while(|byte| **byte == b'=').count());
        }
        from = end;
        // Only what lies behind is looked for again: some are found everywhere, others nowhere.
        for (hit, finder) in hits.iter_mut().zip(&*FINDERS) {
            *hit = hit.and_then(|at| if at < from { finder.find(&text[from..]).map(|at| from + at) } else { Some(at) });
        }
    }
    None
}

/// A header that names an algorithm, and two parts more.
fn is_token(run: &[u8]) -> bool {
    let mut dots = memchr::memchr_iter(b'.', run);
    let (Some(header), Some(_)) = (dots.next(), dots.next()) else { return false };
    header <= LONGEST_HEADER && URL_SAFE_NO_PAD.decode(&run[..header]).is_ok_and(|header| memmem::find(&header, br#""alg""#).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_and_what_is_around_it_stays() {
        let token = format!("{}.{}.c2lnbmF0dXJl-_", URL_SAFE_NO_PAD.encode(r#"{"kid":"a","alg":"RS256"}"#), URL_SAFE_NO_PAD.encode("{}"));
        let mut text = format!("users: [{{user: {{token: {token}}}}}] and \"{token}\"");
        assert!(are_in(text.as_bytes()));
        mask(&mut text);
        assert_eq!(text, "users: [{user: {token: [redacted]}}] and \"[redacted]\"");
        assert!(!are_in(text.as_bytes()));
    }

    #[test]
    fn a_token_that_is_encoded_once_more_goes_wherever_it_begins_with_what_is_encoded_with_it() {
        use base64::engine::general_purpose::{STANDARD, URL_SAFE};
        let token = format!("{}.{}.c2lnbmF0dXJl-_", URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"RS256"}"#), URL_SAFE_NO_PAD.encode("{}"));
        for before in ["", "a", "bc", "def", "users: [{user: {token: ", "ü"] {
            for encoded in [STANDARD.encode(format!("{before}{token}\n")), URL_SAFE.encode(format!("{before}{token}, and more"))] {
                for glue in ["", "x", "/", "le+"] {
                    let mut text = format!("innocent V5S leU: {glue}{encoded}, and more");
                    assert!(are_in(text.as_bytes()), "{text}");
                    mask(&mut text);
                    assert_eq!(text, "innocent V5S leU: [redacted], and more");
                }
            }
        }
    }

    #[test]
    fn text_that_looks_like_the_beginnings_of_many_tokens_is_looked_at_once() {
        // If every beginning were followed to the end of the text, this would not end today.
        for often in ["ZXlK", "V5S,", "leU ", "ZXlK.", "eyJ", "eyJ.", "ZXlK V5S leU "] {
            assert!(!are_in(often.repeat((1 << 20) / often.len()).as_bytes()));
        }
    }

    #[test]
    fn what_only_begins_like_a_token_stays() {
        for innocent in [
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjU4fQ",
            "eyJ",
            "eyJ.eyJ.eyJ",
            "eyJ2IjoxfQ.eyJ2IjoxfQ.a",
            "they J. and eyJa.b",
            "ZXlKaGJHY2lPaUpTVXpJMU5pSjk",
            "exampleUser, V5S",
        ] {
            let mut text = innocent.to_owned();
            mask(&mut text);
            assert_eq!(text, innocent);
        }
    }
}
