//! JSON web tokens, which are credentials wherever somebody writes them down: in a query, in the kubeconfig that a ConfigMap holds, in a
//! refusal that quotes what was asked for. They are known by their shape, so that nobody need say where they are.

use std::ops::Range;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use memchr::memmem;

use super::redact::MASK;

/// How every one begins: `{"` in base64.
const BEGINNING: &str = "eyJ";

/// How long the header of one is at most; what is longer is something else.
const LONGEST_HEADER: usize = 4096;

/// Whether there is one in a text.
pub fn are_in(text: &[u8]) -> bool {
    next(text, 0, is_token).is_some()
}

/// Takes them from a text.
pub fn mask(text: &mut String) {
    replace(text, is_token);
}

/// Takes from a path or a query whatever looks like one.
pub fn mask_in_uri(text: &mut String) {
    replace(text, |run| memchr::memchr_iter(b'.', run).nth(1).is_some());
}

fn replace(text: &mut String, is_one: impl Fn(&[u8]) -> bool) {
    let mut from = 0;
    while let Some(found) = next(text.as_bytes(), from, &is_one) {
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
    fn what_only_begins_like_a_token_stays() {
        for innocent in
            ["eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjU4fQ", "eyJ", "eyJ.eyJ.eyJ", "eyJ2IjoxfQ.eyJ2IjoxfQ.a", "they J. and eyJa.b"]
        {
            let mut text = innocent.to_owned();
            mask(&mut text);
            assert_eq!(text, innocent);
        }
    }
}
