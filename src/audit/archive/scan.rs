//! Reading the archive: segment by segment, the rows that the columns promise, in pieces that grow from a few records (the first rows
//! are there at once) to a few megabytes (a million rows take seconds). The lock that an append needs is held while the columns of
//! the one segment in memory are looked at, and not longer.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::block::{Place, Record};
use super::canvas::Canvas;
use super::columns::{Column, Columns};
use super::medium::Medium;
use super::phrases::Lexicon;
use super::row::Row;
use super::segment::Segment;
use super::select::{is_vague, needed, select};
use super::sieve::Sieve;
use super::{Archive, Order};
use crate::audit::Filter;

/// How many records are looked at first, and at most, before something is handed out.
const FEW: usize = 32;
const MANY: usize = 16_384;
/// How many bytes of records are looked at together; more only where one record is larger.
const PIECE: u64 = 2 << 20;
/// Records that are no further apart than this are read at once.
const NEAR: u64 = 64 << 10;
/// An expression is evaluated on every core where there are at least so many records.
const WORTH_SHARING: usize = 256;

/// What is kept at one moment: the sealed segments, oldest first, and what somebody read off the columns of the one that is being
/// written, with where its records are.
pub(super) type Snapshot<T> = (Vec<Arc<Segment>>, Option<(Arc<Medium>, T)>);

/// Where a record is: positions are in the order in which records were appended, and stay what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    segment: u64,
    offset: u32,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}-{:x}", self.segment, self.offset)
    }
}

impl std::str::FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (segment, offset) = text.split_once('-').ok_or(())?;
        let segment = u64::from_str_radix(segment, 16).map_err(drop)?;
        Ok(Position { segment, offset: u32::from_str_radix(offset, 16).map_err(drop)? })
    }
}

/// Who takes the records, one by one.
type Each<'a> = dyn FnMut(Position, Record) -> ControlFlow<()> + 'a;

/// Whether a segment can have anything that an order comes to after a position.
fn may_follow(order: Order, number: u64, last: Option<Position>) -> bool {
    last.is_none_or(|last| number == last.segment || is_after(order, number, Some(last.segment)))
}

/// Whether an order comes to a position after another one; after none, it comes to all of them.
fn is_after<T: Ord>(order: Order, position: T, last: Option<T>) -> bool {
    last.is_none_or(|last| if order == Order::NewestFirst { position < last } else { position > last })
}

impl Archive {
    /// Hands out the records that a filter asks for, in an order, until there are `limit` or whoever takes them has enough. Reads
    /// files: not for a thread that must not wait.
    pub fn scan(&self, filter: &Filter, order: Order, limit: usize, mut each: impl FnMut(Record) -> ControlFlow<()>) {
        self.scan_after(None, filter, order, limit, |_, record| each(record));
    }

    /// The same from behind a position on, with where each record is.
    pub fn scan_after(
        &self,
        last: Option<Position>,
        filter: &Filter,
        order: Order,
        limit: usize,
        mut each: impl FnMut(Position, Record) -> ControlFlow<()>,
    ) {
        let sieve = filter.expression.as_ref().map(Sieve::of).unwrap_or_default();
        let promised = |number: u64, columns: &Columns| {
            let rows = select(filter, columns);
            let places: Vec<Place> = if rows.is_empty() { Vec::new() } else { columns.places.clone() };
            let lexicon = if rows.is_empty() { Lexicon::default() } else { columns.phrases.lexicon.clone() };
            // An expression is asked when nobody waits for it.
            (number, rows, columns.copy(&sieve.columns()), places, lexicon)
        };
        let (sealed, active) = self.snapshot(promised);
        let active = active.map(|(medium, (number, mut rows, columns, places, lexicon))| {
            sieve.keep(&mut rows, &columns);
            Found { number, medium, lexicon, places: at(&rows, &places) }
        });
        let mut left = limit;
        // The newest part is the one in memory.
        let mut parts: Vec<Option<Arc<Segment>>> = sealed.into_iter().map(Some).chain([None]).collect();
        if order == Order::NewestFirst {
            parts.reverse();
        }
        for part in parts {
            let found = match part {
                None => Ok(active.clone()),
                Some(segment) if !may_follow(order, segment.number(), last) => Ok(None),
                Some(segment) => candidates(&segment, filter, &sieve),
            };
            let ended = match found {
                Ok(Some(found)) => found.after(last, order).read(filter, order, &mut left, &mut each),
                Ok(None) => ControlFlow::Continue(()),
                Err(error) => {
                    unreadable(&error);
                    ControlFlow::Continue(())
                }
            };
            if ended.is_break() {
                return;
            }
        }
    }

    /// What is there now.
    pub(super) fn snapshot<T>(&self, look: impl FnOnce(u64, &Columns) -> T) -> Snapshot<T> {
        let inner = self.inner.lock();
        let active = inner.active.as_ref().map(|active| (active.medium.clone(), look(active.number, &active.columns)));
        (inner.sealed.iter().cloned().collect(), active)
    }
}

pub(super) fn unreadable(error: &io::Error) {
    // One that was removed meanwhile, because it is too old, is not missed.
    if error.kind() != io::ErrorKind::NotFound {
        tracing::warn!(%error, "a segment of the audit archive cannot be read");
    }
}

/// Whether a segment can have anything of the asked time.
pub(super) fn in_time(segment: &Segment, filter: &Filter) -> io::Result<bool> {
    let summary = segment.summary()?;
    Ok(summary.rows > 0
        && filter.since.is_none_or(|since| summary.newest >= since.as_microsecond())
        && filter.until.is_none_or(|until| summary.oldest <= until.as_microsecond()))
}

/// Where the records of a segment are that its columns promise, and what it takes to read them.
#[derive(Clone)]
struct Found {
    number: u64,
    medium: Arc<Medium>,
    lexicon: Lexicon,
    places: Vec<Place>,
}

/// What the columns of a segment promise.
fn candidates(segment: &Segment, filter: &Filter, sieve: &Sieve) -> io::Result<Option<Found>> {
    if !in_time(segment, filter)? {
        return Ok(None);
    }
    let medium = segment.medium()?;
    let mut wanted = needed(filter);
    wanted.extend(sieve.columns());
    wanted.retain(|column| *column != Column::Place);
    wanted.sort_by_key(|column| *column as u8);
    wanted.dedup();
    // The places are read when it is known that there are any.
    let mut columns = segment.load(&medium, &wanted)?;
    columns.places = vec![Place::default(); segment.summary()?.rows];
    let mut rows = select(filter, &columns);
    sieve.keep(&mut rows, &columns);
    if rows.is_empty() {
        return Ok(None);
    }
    let places = at(&rows, &segment.load(&medium, &[Column::Place])?.places);
    Ok(Some(Found { number: segment.number(), lexicon: segment.lexicon(&medium)?, medium, places }))
}

fn at(rows: &[u16], places: &[Place]) -> Vec<Place> {
    rows.iter().filter_map(|row| places.get(usize::from(*row))).copied().collect()
}

impl Found {
    /// Without what an order comes to before a position, and without that itself.
    fn after(mut self, last: Option<Position>, order: Order) -> Self {
        let segment = self.number;
        self.places.retain(|place| is_after(order, Position { segment, offset: place.offset }, last));
        self
    }

    /// Reads records and hands out those that match.
    fn read(&self, filter: &Filter, order: Order, left: &mut usize, each: &mut Each<'_>) -> ControlFlow<()> {
        let mut rest = &*self.places;
        let mut most = FEW;
        // One for each core, from piece to piece: what one record has in common with another is painted once.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let canvas = || filter.expression.as_ref().map(|expression| Canvas::new(expression.reads()));
        let mut canvases: Vec<_> = (0..cores).map(|_| canvas()).collect();
        while !rest.is_empty() {
            if *left == 0 {
                return ControlFlow::Break(());
            }
            let piece;
            (piece, rest) = cut(rest, order, most);
            most = (most * 2).min(MANY);
            let mut found = match self.matching(piece, filter, &mut canvases) {
                Ok(found) => found,
                Err(error) => {
                    unreadable(&error);
                    continue;
                }
            };
            if order == Order::NewestFirst {
                found.reverse();
            }
            for (offset, record) in found {
                if *left == 0 {
                    return ControlFlow::Break(());
                }
                *left -= 1;
                each(Position { segment: self.number, offset }, record)?;
            }
        }
        if *left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The records of some places that match, in their order.
    fn matching(&self, places: &[Place], filter: &Filter, canvases: &mut [Option<Canvas<'_>>]) -> io::Result<Vec<(u32, Record)>> {
        let shared = filter.expression.is_some() && places.len() >= WORTH_SHARING;
        let shares = if shared { canvases.len() } else { 1 };
        let mut shares = places.chunks(places.len().div_ceil(shares).max(1)).zip(canvases);
        let Some((first, canvas)) = shares.next() else { return Ok(Vec::new()) };
        std::thread::scope(|scope| {
            let others: Vec<_> = shares.map(|(share, canvas)| scope.spawn(|| self.matching_here(share, filter, canvas))).collect();
            let mut found = self.matching_here(first, filter, canvas)?;
            for thread in others {
                found.extend(thread.join().map_err(|_| io::Error::other("a thread that evaluates an expression ended early"))??);
            }
            Ok(found)
        })
    }

    fn matching_here(&self, places: &[Place], filter: &Filter, canvas: &mut Option<Canvas<'_>>) -> io::Result<Vec<(u32, Record)>> {
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(Vec::new()) };
        let vague = is_vague(filter);
        let mut asked = filter.expression.as_ref().zip(canvas.as_mut());
        let mut keep = |place: &Place, bytes: &[u8]| {
            if let Some((expression, canvas)) = &mut asked {
                let row = Row::read(bytes, &self.lexicon)?;
                canvas.paint(&row).filter(|event| expression.holds(event))?;
            }
            let record = Record::read(bytes, &self.lexicon)?;
            (!vague || filter.matches_fields(record.as_event())).then_some((place.offset, record))
        };
        let start = u64::from(first.offset);
        let span = (u64::from(last.offset) + u64::from(last.length)).saturating_sub(start);
        let wanted: u64 = places.iter().map(|place| u64::from(place.length)).sum();
        // Records that lie close together are read at once, others one by one.
        if span <= 4 * wanted + NEAR {
            let bytes = self.medium.read(start, span as usize)?;
            let slices = places.iter().map(|place| {
                let from = u64::from(place.offset).saturating_sub(start) as usize;
                Some((place, bytes.get(from..from + place.length as usize)?))
            });
            return Ok(slices.flatten().filter_map(|(place, bytes)| keep(place, bytes)).collect());
        }
        let mut found = Vec::new();
        for place in places {
            found.extend(keep(place, &self.medium.read(u64::from(place.offset), place.length as usize)?));
        }
        Ok(found)
    }
}

/// The next piece of the places, from the end that comes first, and the rest.
fn cut(places: &[Place], order: Order, most: usize) -> (&[Place], &[Place]) {
    let mut bytes = 0;
    let mut fits = |place: &&Place| {
        bytes += u64::from(place.length);
        bytes <= PIECE
    };
    match order {
        Order::OldestFirst => places.split_at(places.iter().take(most).take_while(&mut fits).count().max(1)),
        Order::NewestFirst => {
            let count = places.iter().rev().take(most).take_while(&mut fits).count().max(1);
            let (rest, piece) = places.split_at(places.len() - count);
            (piece, rest)
        }
    }
}
