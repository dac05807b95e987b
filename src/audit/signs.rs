//! What a body or a text has in it if it is worth the time to look into it: the names that Secrets go by, the beginnings of credentials.
//! Most have none of that, and are recorded as they are; to find that out costs one look at their bytes.

use std::sync::LazyLock;

use memchr::memmem;
use regex::bytes::Regex;

use super::redact::is_sensitive;
use super::{known_fields, manifests, notation, web_tokens};
use crate::request::RequestInfo;

/// How JSON names the kind of a Secret, and that of a list of them.
const SECRET: &str = "\"Secret";

/// A field that only Secrets have, or what Secrets are made of.
pub const STRING_DATA: &str = "stringData";

/// How every private key in PEM begins, whatever its sort; and the same in base64, as it looks where it begins at the first, second or
/// third byte of a group of three.
const PRIVATE_KEYS: [&str; 4] = ["PRIVATE KEY-----", "UFJJVkFURSBLRVktLS0tL", "BSSVZBVEUgS0VZLS0tLS", "QUklWQVRFIEtFWS0tLS0t"];

/// The halves of those in base64: where it is broken into lines, one of them is still whole.
const HALVES: [&str; 6] = ["UFJJVkFURS", "BLRVktLS0tL", "BSSVZBVEUg", "S0VZLS0tLS", "QUklWQVRFI", "EtFWS0tLS0t"];

/// Whether it is worth the time to look into a body.
pub fn may_hold_secrets(info: &RequestInfo, bytes: &[u8]) -> bool {
    is_sensitive(info)
        || begins_somewhere(bytes) && (names_secrets(bytes) || holds_credentials(bytes))
        || known_fields::may_be_in(info, bytes)
}

/// Whether there is something in a text, or in JSON, that is a credential by its looks.
fn holds_credentials(text: &[u8]) -> bool {
    is_credential(text) || notation::folded(text).any(|run| notation::in_base64(&notation::unfold(&text[run]), is_credential))
}

/// Whether a text is one, or has one in it.
pub fn is_credential(text: &[u8]) -> bool {
    holds_private_key(text) || web_tokens::are_in(text)
}

/// Whether JSON names a Secret somewhere, be it in the text of a manifest, or a field or header that is one.
fn names_secrets(json: &[u8]) -> bool {
    static NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| any_of(names()));
    NAMES.as_ref().is_none_or(|names| names.is_match(json))
}

fn names() -> impl Iterator<Item = &'static str> {
    [SECRET, STRING_DATA, known_fields::HEADER].into_iter().chain(manifests::BEGINNINGS)
}

/// Whether a text has anything in it that Secrets and credentials begin with. All of that is looked for at once, because a body is long
/// and mostly has none of it.
pub fn begins_somewhere(text: &[u8]) -> bool {
    static BEGINNINGS: LazyLock<Option<Regex>> =
        LazyLock::new(|| any_of(names().chain([PRIVATE_KEYS[0]]).chain(HALVES).chain(web_tokens::BEGINNINGS)));
    BEGINNINGS.as_ref().is_none_or(|beginnings| beginnings.is_match(text))
}

fn any_of<'a>(needles: impl Iterator<Item = &'a str>) -> Option<Regex> {
    Regex::new(&needles.map(regex::escape).collect::<Vec<_>>().join("|")).ok()
}

/// Whether a private key in PEM is in a text, as it is or in base64.
pub fn holds_private_key(text: &[u8]) -> bool {
    static NEEDLES: LazyLock<[memmem::Finder<'static>; 4]> = LazyLock::new(|| PRIVATE_KEYS.map(memmem::Finder::new));
    text.len() >= PRIVATE_KEYS[0].len() && NEEDLES.iter().any(|needle| needle.find(text).is_some())
}

/// Whether JSON writes letters by their numbers, or slashes with a mark: then words in it are not found by looking for them.
pub fn is_escaped(json: &[u8]) -> bool {
    [br"\u00".as_slice(), br"\/"].iter().any(|mark| memmem::find(json, mark).is_some())
}
