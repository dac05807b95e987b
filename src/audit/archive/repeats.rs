//! Large bodies that say nearly what an earlier one said, such as a list that somebody asks for again and again: of these the difference
//! is kept, and where in the same segment the earlier one lies. What is compared is the earlier body itself, not a hash of it: nobody
//! can make a record say what was not said.

use std::borrow::Cow;
use std::collections::VecDeque;

use bytes::Bytes;

use super::block::Place;
use super::coding::{put, put_text, take, take_text};
use super::medium::Medium;

/// From this size on it is worth looking for an earlier one.
const LARGE: usize = 8 << 10;
/// How many earlier ones are remembered at most, and how many bytes of them.
const MOST: usize = 32;
const MOST_BYTES: usize = 8 << 20;
/// Texts are compared in pieces of this size, and where they differ byte by byte.
const PIECE: usize = 512;

/// The bodies of the segment that is being written that later ones may repeat; the one that was last of use is the last.
#[derive(Debug, Default)]
pub struct Repeats {
    known: VecDeque<Known>,
}

#[derive(Debug)]
struct Known {
    part: u64,
    uri: String,
    text: Bytes,
    place: Place,
}

impl Repeats {
    /// How a body is to be kept, by what that part of a request to the same URI was before.
    pub fn find<'t>(&mut self, part: u64, uri: &str, text: &'t [u8]) -> Body<'t> {
        let at = self.known.iter().position(|known| known.part == part && known.uri == uri);
        let Some(known) = at.filter(|_| text.len() >= LARGE).and_then(|at| self.known.remove(at)) else { return Body::Whole(text) };
        let start = common_start(&known.text, text);
        let end = common_end(&known.text[start..], &text[start..]);
        let middle = &text[start..text.len() - end];
        // One that has become another is not asked for again.
        if middle.len() > text.len() / 4 {
            return Body::Whole(text);
        }
        let like = known.place;
        self.known.push_back(known);
        Body::Like { like, start: start as u32, middle, end: end as u32 }
    }

    /// Remembers a body that is kept as it is, and where it lies in the segment.
    pub fn remember(&mut self, part: u64, uri: &str, text: &Bytes, offset: u32) {
        if text.len() < LARGE {
            return;
        }
        let place = Place { offset, length: text.len() as u32 };
        self.known.push_back(Known { part, uri: uri.to_owned(), text: text.clone(), place });
        let mut bytes: usize = self.known.iter().map(|known| known.text.len()).sum();
        while self.known.len() > MOST || bytes > MOST_BYTES {
            let Some(gone) = self.known.pop_front() else { return };
            bytes -= gone.text.len();
        }
    }
}

fn common_start(a: &[u8], b: &[u8]) -> usize {
    // The text of a list whose objects are the same is the same.
    if std::ptr::eq(a, b) {
        return a.len();
    }
    let same = a.chunks_exact(PIECE).zip(b.chunks_exact(PIECE)).take_while(|(a, b)| a == b).count() * PIECE;
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

fn common_end(a: &[u8], b: &[u8]) -> usize {
    let same = a.rchunks_exact(PIECE).zip(b.rchunks_exact(PIECE)).take_while(|(a, b)| a == b).count() * PIECE;
    let (a, b) = (&a[..a.len() - same], &b[..b.len() - same]);
    same + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

/// A body as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// As it is.
    Whole(&'a [u8]),
    /// Of an earlier one so much from its start, then something else, then so much to its end.
    Like {
        /// The earlier one.
        like: Place,
        /// How many bytes they begin with in common.
        start: u32,
        /// What differs.
        middle: &'a [u8],
        /// How many bytes they end with in common.
        end: u32,
    },
}

impl<'a> Body<'a> {
    /// Whether it is kept as it is.
    pub fn is_whole(&self) -> bool {
        matches!(self, Body::Whole(_))
    }

    /// Writes it; answers where its text begins.
    pub fn write(&self, out: &mut Vec<u8>) -> usize {
        let text = match self {
            Body::Whole(text) => text,
            Body::Like { like, start, middle, end } => {
                [like.offset, like.length, *start, *end].into_iter().for_each(|number| put(out, u64::from(number)));
                middle
            }
        };
        put_text(out, text);
        out.len() - text.len()
    }

    /// Reads one.
    pub fn take(bytes: &mut &'a [u8], whole: bool) -> Option<Body<'a>> {
        if whole {
            return take_text(bytes).map(Body::Whole);
        }
        let mut number = || u32::try_from(take(bytes)?).ok();
        let (like, start, end) = (Place { offset: number()?, length: number()? }, number()?, number()?);
        Some(Body::Like { like, start, middle: take_text(bytes)?, end })
    }

    /// What it says; `None` if the earlier one cannot be read.
    pub fn text(&self, medium: &Medium) -> Option<Cow<'a, [u8]>> {
        let (like, start, middle, end) = match *self {
            Body::Whole(text) => return Some(Cow::Borrowed(text)),
            Body::Like { like, .. } if like.length as usize > MOST_BYTES => return None,
            Body::Like { like, start, middle, end } => (like, start, middle, end),
        };
        let earlier = medium.read(u64::from(like.offset), like.length as usize).ok()?;
        let end = earlier.len().checked_sub(end as usize)?;
        Some(Cow::Owned([earlier.get(..start as usize)?, middle, earlier.get(end..)?].concat()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Writes bodies of one URI as a segment would, and reads them again.
    fn kept(texts: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<bool>, usize) {
        let (mut repeats, mut out, mut wholes, mut starts) = (Repeats::default(), Vec::new(), Vec::new(), Vec::new());
        for text in texts {
            let text = Bytes::copy_from_slice(text);
            let body = repeats.find(1, "/u", &text);
            starts.push(out.len());
            wholes.push(body.is_whole());
            let offset = body.write(&mut out) as u32;
            if body.is_whole() {
                repeats.remember(1, "/u", &text, offset);
            }
        }
        let medium = Medium::memory();
        medium.write(0, &out).unwrap();
        let read = |(start, whole): (&usize, &bool)| Body::take(&mut &out[*start..], *whole)?.text(&medium).map(Cow::into_owned);
        (starts.iter().zip(&wholes).map(|pair| read(pair).unwrap()).collect(), wholes, out.len())
    }

    #[test]
    fn a_list_that_is_asked_for_again_is_kept_once_whatever_its_revision_is() {
        let list = |revision: usize, item: &str| {
            format!("{{\"metadata\":{{\"resourceVersion\":\"{revision}\"}},\"items\":[{item}{}]}}", ",{\"a\":1}".repeat(3000)).into_bytes()
        };
        let lists = [list(9, "{}"), list(9, "{}"), list(10, "{}"), list(11, "{\"b\":2}"), vec![b' '; LARGE], list(12, "{}")];
        let (read, whole, size) = kept(&lists);
        assert_eq!(read, lists);
        assert_eq!(whole, [true, false, false, false, true, true]);
        assert!(size < 2 * lists[0].len() + LARGE + 200, "{size}");
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let mut repeats = Repeats::default();
        let text = |n: usize| Bytes::from(vec![b'x'; n]);
        for number in 0..100 {
            repeats.remember(1, &format!("/{number}"), &text(LARGE), 0);
        }
        assert_eq!(repeats.known.len(), MOST);
        repeats.remember(1, "/large", &text(MOST_BYTES - LARGE), 0);
        assert_eq!(repeats.known.len(), 2);
        repeats.remember(1, "/small", &text(LARGE - 1), 0);
        assert!(repeats.find(1, "/small", &text(LARGE)).is_whole() && repeats.find(2, "/99", &text(LARGE)).is_whole());
        assert!(!repeats.find(1, "/99", &text(LARGE + 1)).is_whole());
    }

    #[test]
    fn a_place_that_is_not_there_is_damage() {
        let medium = Medium::memory();
        medium.write(0, b"0123456789").unwrap();
        let text = |offset, length, start, end| {
            Body::Like { like: Place { offset, length }, start, middle: b"-", end }.text(&medium).map(Cow::into_owned)
        };
        assert_eq!(text(2, 6, 2, 1).as_deref(), Some(&b"23-7"[..]));
        assert_eq!((text(8, 6, 0, 0), text(0, 4, 5, 0), text(0, 4, 0, 5), text(0, u32::MAX, 0, 0)), (None, None, None, None));
    }

    proptest! {
        #[test]
        fn what_is_kept_is_what_was_said(edits in prop::collection::vec((0usize..20_000, 0usize..200, prop::collection::vec(any::<u8>(), 0..300)), 1..8)) {
            let mut text: Vec<u8> = (0..20_000u32).map(|n| (n % 251) as u8).collect();
            let mut texts = vec![text.clone()];
            for (at, gone, new) in edits {
                let at = at.min(text.len());
                text.splice(at..(at + gone).min(text.len()), new);
                texts.push(text.clone());
            }
            prop_assert_eq!(kept(&texts).0, texts);
        }
    }
}
