//! Records in pieces that grow from a few records, so that the first rows are there at once, to a megabyte, so that a million of them take
//! seconds. Where an expression is asked, every core evaluates pieces of its own, and whoever asked finds the next ones meanwhile and
//! hands out in order what was found; no more pieces are under way than it takes to keep everybody busy.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use parking_lot::Mutex;

use super::Order;
use super::block::{Place, Record};
use super::canvas::Canvas;
use super::scan::{Found, Position, unreadable};
use crate::audit::Filter;

/// How many records are looked at first, and at most, before something is handed out.
const FEW: usize = 32;
const MANY: usize = 16_384;
/// How many bytes of records are looked at together; more only where one record is larger.
const PIECE: u64 = 1 << 20;
/// From so many records on a piece is worth a thread of its own.
const WORTH_SHARING: usize = 256;
/// How many pieces are under way for each core.
const AHEAD: usize = 3;

/// Who takes the records, one by one.
type Each<'a> = dyn FnMut((Position, Record)) -> ControlFlow<()> + 'a;

/// Some records of a segment.
struct Piece {
    of: Arc<Found>,
    range: Range<usize>,
}

/// The pieces of what was found in one segment after the other.
struct Pieces<'f, F> {
    found: F,
    filter: &'f Filter,
    order: Order,
    of: Option<Arc<Found>>,
    rest: Range<usize>,
    most: usize,
}

impl<F: Iterator<Item = Found>> Iterator for Pieces<'_, F> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.filter.gave_up().is_some() {
            return None;
        }
        while self.rest.is_empty() {
            let found = self.found.next()?;
            self.rest = 0..found.places.len();
            self.of = Some(Arc::new(found));
        }
        let of = self.of.clone()?;
        let places = &of.places[self.rest.clone()];
        let range = match self.order {
            Order::OldestFirst => {
                let middle = self.rest.start + fitting(places.iter(), self.most);
                std::mem::replace(&mut self.rest.start, middle)..middle
            }
            Order::NewestFirst => {
                let middle = self.rest.end - fitting(places.iter().rev(), self.most);
                middle..std::mem::replace(&mut self.rest.end, middle)
            }
        };
        self.most = (self.most * 2).min(MANY);
        Some(Piece { of, range })
    }
}

/// How many places make the next piece.
fn fitting<'a>(places: impl Iterator<Item = &'a Place>, most: usize) -> usize {
    let mut bytes = 0;
    let fits = |place: &&Place| {
        bytes += u64::from(place.length);
        bytes <= PIECE
    };
    places.take(most).take_while(fits).count().max(1)
}

/// Whoever evaluates pieces: what one record has in common with the one before is painted once.
struct Reader<'f> {
    filter: &'f Filter,
    order: Order,
    segment: Option<u64>,
    canvas: Option<Canvas<'f>>,
}

impl<'f> Reader<'f> {
    fn new(filter: &'f Filter, order: Order) -> Self {
        Reader { filter, order, segment: None, canvas: None }
    }

    /// The records of a piece that are asked for, in the order in which they are handed out.
    fn read(&mut self, piece: &Piece) -> Vec<(Position, Record)> {
        if self.segment.replace(piece.of.number) != Some(piece.of.number) {
            // Another segment has other phrases.
            self.canvas = self.filter.expression.as_ref().map(|expression| Canvas::new(expression.reads()));
        }
        let read = piece.of.matching(&piece.of.places[piece.range.clone()], self.filter, &mut self.canvas);
        let mut records = read.inspect_err(unreadable).unwrap_or_default();
        if self.order == Order::NewestFirst {
            records.reverse();
        }
        records
    }
}

/// Hands out the records of what was found that a filter asks for, in an order, until whoever takes them has enough.
pub fn read(found: impl Iterator<Item = Found>, filter: &Filter, order: Order, each: &mut Each<'_>) -> ControlFlow<()> {
    let mut pieces = Pieces { found, filter, order, of: None, rest: 0..0, most: FEW };
    let mut reader = Reader::new(filter, order);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let shared = filter.expression.is_some() && cores > 1;
    while !shared || pieces.most < WORTH_SHARING {
        let Some(piece) = pieces.next() else { return ControlFlow::Continue(()) };
        reader.read(&piece).into_iter().try_for_each(&mut *each)?;
    }
    drop(reader);
    read_side_by_side(pieces, || Reader::new(filter, order), cores, each)
}

/// What a thread is asked to read, and where the answer goes.
type Work = (Piece, SyncSender<Vec<(Position, Record)>>);

/// The same on every core.
fn read_side_by_side<'f>(
    mut pieces: impl Iterator<Item = Piece>,
    reader: impl Fn() -> Reader<'f> + Sync,
    cores: usize,
    each: &mut Each<'_>,
) -> ControlFlow<()> {
    let (work, queue) = channel::<Work>();
    let (queue, enough) = (Mutex::new(queue), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let serve = || {
            let mut reader = reader();
            let next = || queue.lock().recv().ok().filter(|_| !enough.load(Ordering::Relaxed));
            while let Some((piece, answer)) = next() {
                // Nobody listens who has enough.
                let _ = answer.send(reader.read(&piece));
            }
        };
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(serve)).collect();
        let taken = hand_out(&mut pieces, &work, AHEAD * cores, each);
        enough.store(true, Ordering::Relaxed);
        drop(work);
        // One that ended early has told why.
        threads.into_iter().for_each(|thread| drop(thread.join()));
        taken
    })
}

fn hand_out(pieces: &mut dyn Iterator<Item = Piece>, work: &Sender<Work>, ahead: usize, each: &mut Each<'_>) -> ControlFlow<()> {
    let mut answers: VecDeque<Receiver<Vec<(Position, Record)>>> = VecDeque::new();
    loop {
        for piece in pieces.take(ahead - answers.len()) {
            let (answer, receiver) = sync_channel(1);
            answers.extend(work.send((piece, answer)).is_ok().then_some(receiver));
        }
        let Some(next) = answers.pop_front() else { return ControlFlow::Continue(()) };
        next.recv().unwrap_or_default().into_iter().try_for_each(&mut *each)?;
    }
}
