//! Reading the archive: segment by segment, the rows that the columns promise, piece by piece ([`pieces`]). The lock that an append needs
//! is held while the columns of the one segment in memory are looked at, and not longer.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::block::{Place, Record};
use super::canvas::Canvas;
use super::columns::{Column, Columns, distinct};
use super::medium::Medium;
use super::phrases::Lexicon;
use super::row::Row;
use super::segment::Segment;
use super::select::{is_vague, needed, select};
use super::sieve::Sieve;
use super::{Archive, Order, pieces};
use crate::audit::Filter;

/// Records that are no further apart than this are read at once.
const NEAR: u64 = 64 << 10;

/// What is kept at one moment: the sealed segments, oldest first, and what somebody read off the columns of the one that is being
/// written, with where its records are.
pub(super) type Snapshot<T> = (Vec<Arc<Segment>>, Option<(Arc<Medium>, T)>);

/// Where a record is: positions are in the order in which records were appended, and stay what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub(super) segment: u64,
    pub(super) offset: u32,
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
        // The newest part is the one in memory.
        let mut parts: Vec<Option<Arc<Segment>>> = sealed.into_iter().map(Some).chain([None]).collect();
        if order == Order::NewestFirst {
            parts.reverse();
        }
        let found = parts.into_iter().filter_map(|part| {
            let found = match part {
                None => Ok(active.clone()),
                Some(segment) if !may_follow(order, segment.number(), last) => Ok(None),
                Some(segment) => candidates(&segment, filter, &sieve),
            };
            found.inspect_err(unreadable).ok().flatten().map(|found| found.after(last, order))
        });
        let mut left = limit;
        // Whoever takes them may have enough.
        let _ = pieces::read(found, filter, order, &mut |(position, record)| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            each(position, record)?;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
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
pub(super) struct Found {
    pub(super) number: u64,
    medium: Arc<Medium>,
    lexicon: Lexicon,
    pub(super) places: Vec<Place>,
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
    let wanted = distinct(wanted);
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

    fn position(&self, place: &Place) -> Position {
        Position { segment: self.number, offset: place.offset }
    }

    /// The records of some places that match, in their order.
    pub(super) fn matching(
        &self,
        places: &[Place],
        filter: &Filter,
        canvas: &mut Option<Canvas<'_>>,
    ) -> io::Result<Vec<(Position, Record)>> {
        let (Some(first), Some(last)) = (places.first(), places.last()) else { return Ok(Vec::new()) };
        let vague = is_vague(filter);
        let mut asked = filter.expression.as_ref().zip(canvas.as_mut());
        let mut keep = |place: &Place, bytes: &[u8]| {
            if let Some((expression, canvas)) = &mut asked {
                let row = Row::read(bytes, &self.lexicon, &self.medium)?;
                canvas.paint(&row).filter(|event| expression.holds(event))?;
            }
            let record = Record::read(bytes, &self.lexicon, &self.medium)?;
            (!vague || filter.matches_fields(record.as_event())).then_some((self.position(place), record))
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
