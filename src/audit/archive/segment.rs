//! A segment: a file of blocks, and behind them, once it is sealed, its columns and a trailer that says where they are. One that was
//! never sealed, because the server was killed, is sealed when somebody first looks at it: what was half written is cut, and the
//! columns are made again from the records.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::block;
use super::columns::{self, Column, Columns, MOST_ROWS, NO_TIME};
use super::medium::Medium;
use super::phrases::{Lexicon, Phrases};

/// What a segment begins with.
pub const HEADER: [u8; 8] = *b"AUDITS02";
/// What one began with whose records this version does not read.
const EARLIER: [u8; 8] = *b"AUDITS01";
/// What a sealed segment ends with.
const END: [u8; 8] = *b"AUDITE02";
/// Of each column in the directory: its number, where it is, how long it is, its checksum.
const ENTRY: usize = 17;
/// Behind the directory: entries, rows, oldest, newest, time of the last append, checksum, end.
const TRAILER: usize = 4 + 4 + 8 + 8 + 8 + 4 + 8;
/// As much of the end as is read at once; holds the directory and the trailer.
const LAST: u64 = 1024;

/// What is known of a sealed segment without looking into it.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How many records it has.
    pub rows: usize,
    /// The earliest arrival of a request.
    pub oldest: i64,
    /// The latest arrival of a request.
    pub newest: i64,
    /// When the last record was appended.
    pub appended: i64,
    directory: Vec<(u8, u64, u32, u32)>,
}

/// A segment that is not written any more.
#[derive(Debug)]
pub struct Segment {
    number: u64,
    path: Option<PathBuf>,
    memory: Option<Arc<Medium>>,
    bytes: AtomicU64,
    summary: Mutex<Option<Arc<Summary>>>,
}

impl Segment {
    /// A file that is there; whether it is sealed is told by its end.
    pub fn open(number: u64, path: &Path) -> io::Result<Segment> {
        let medium = Medium::open(path)?;
        let bytes = medium.length()?;
        let mut summary = read_summary(&medium, bytes).map(Arc::new);
        if summary.is_none() && medium.read(0, EARLIER.len()).is_ok_and(|header| header == EARLIER) {
            tracing::warn!(path = %path.display(), "a segment of the audit archive has an earlier format; it stays until it is too old");
            let appended = std::fs::metadata(path)?.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
            let appended = appended.map_or(0, |time| time.as_microsecond());
            summary = Some(Arc::new(Summary { appended, oldest: i64::MAX, newest: i64::MIN, ..Summary::default() }));
        }
        Ok(Segment { number, path: Some(path.to_owned()), memory: None, bytes: bytes.into(), summary: Mutex::new(summary) })
    }

    /// Seals what was written up to `end`.
    pub fn seal(
        number: u64,
        path: Option<PathBuf>,
        medium: Arc<Medium>,
        end: u64,
        columns: &Columns,
        appended: i64,
    ) -> io::Result<Segment> {
        let (summary, bytes) = seal(&medium, end, columns, appended)?;
        medium.settle();
        let memory = path.is_none().then_some(medium);
        Ok(Segment { number, path, memory, bytes: bytes.into(), summary: Mutex::new(Some(Arc::new(summary))) })
    }

    /// Which one it is: later ones have higher numbers.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How large it is.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What is known of it, if it is sealed.
    pub fn known(&self) -> Option<Arc<Summary>> {
        self.summary.lock().clone()
    }

    /// What is known of it; seals it where that has not been done.
    pub fn summary(&self) -> io::Result<Arc<Summary>> {
        let mut held = self.summary.lock();
        if let Some(summary) = &*held {
            return Ok(summary.clone());
        }
        let medium = self.medium()?;
        let (summary, bytes) = recover(&medium)?;
        let summary = Arc::new(summary);
        self.bytes.store(bytes, Ordering::Relaxed);
        *held = Some(summary.clone());
        Ok(summary)
    }

    /// Its bytes.
    pub fn medium(&self) -> io::Result<Arc<Medium>> {
        match (&self.memory, &self.path) {
            (Some(memory), _) => Ok(memory.clone()),
            (None, Some(path)) => Medium::open(path).map(Arc::new),
            (None, None) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Removes it; whoever reads it at the moment reads on.
    pub fn remove(&self) {
        if let Some(path) = &self.path
            && let Err(error) = std::fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "an old segment of the audit archive could not be removed");
        }
    }

    /// What its records say more than once.
    pub fn lexicon(&self, medium: &Medium) -> io::Result<Lexicon> {
        Ok(self.load(medium, &[Column::Phrases])?.phrases.lexicon)
    }

    /// Some of its columns.
    pub fn load(&self, medium: &Medium, wanted: &[Column]) -> io::Result<Columns> {
        let summary = self.summary()?;
        let mut columns = Columns::default();
        for column in wanted {
            let entry = summary.directory.iter().find(|entry| entry.0 == *column as u8);
            let (_, offset, length, sum) = entry.ok_or_else(|| damaged("a column is missing"))?;
            let bytes = medium.read(*offset, *length as usize)?;
            if crc32fast::hash(&bytes) != *sum || !columns.decode(*column, &bytes) {
                return Err(damaged("a column is damaged"));
            }
        }
        Ok(columns)
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Writes columns, directory and trailer; answers the summary and how large the segment is now.
fn seal(medium: &Medium, end: u64, columns: &Columns, appended: i64) -> io::Result<(Summary, u64)> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for column in columns::all() {
        let bytes = columns.encode(column);
        directory.push((column as u8, end + out.len() as u64, bytes.len() as u32, crc32fast::hash(&bytes)));
        out.extend(bytes);
    }
    let times = || columns.times.iter().copied().filter(|time| *time != NO_TIME);
    let summary = Summary {
        rows: columns.places.len(),
        oldest: times().min().unwrap_or(i64::MAX),
        newest: times().max().unwrap_or(i64::MIN),
        appended,
        directory,
    };
    let start = out.len();
    for (column, offset, length, sum) in &summary.directory {
        out.push(*column);
        out.extend(offset.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend(sum.to_le_bytes());
    }
    out.extend((summary.directory.len() as u32).to_le_bytes());
    out.extend((summary.rows as u32).to_le_bytes());
    for time in [summary.oldest, summary.newest, summary.appended] {
        out.extend(time.to_le_bytes());
    }
    let sum = crc32fast::hash(&out[start..]);
    out.extend(sum.to_le_bytes());
    out.extend(END);
    medium.write(end, &out)?;
    Ok((summary, end + out.len() as u64))
}

/// The summary of a sealed segment; `None` for one that was never sealed, or not to its end.
fn read_summary(medium: &Medium, length: u64) -> Option<Summary> {
    let size = length.min(LAST);
    let last = medium.read(length - size, size as usize).ok()?;
    let last = last.strip_suffix(&END)?;
    let (last, sum) = last.split_last_chunk::<4>()?;
    let fixed = last.len().checked_sub(TRAILER - 12)?;
    let four = |at: usize| last.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let eight = |at: usize| last.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let (count, rows) = (four(fixed)? as usize, four(fixed + 4)? as usize);
    let start = fixed.checked_sub(count.checked_mul(ENTRY)?)?;
    if crc32fast::hash(&last[start..]) != u32::from_le_bytes(*sum) {
        return None;
    }
    let directory = (0..count).map(|entry| {
        let at = start + entry * ENTRY;
        Some((last[at], eight(at + 1)?, four(at + 9)?, four(at + 13)?))
    });
    let time = |at| eight(at).map(|time| time as i64);
    Some(Summary {
        rows,
        oldest: time(fixed + 8)?,
        newest: time(fixed + 16)?,
        appended: time(fixed + 24)?,
        directory: directory.collect::<Option<_>>()?,
    })
}

/// Seals a segment that was left behind.
fn recover(medium: &Medium) -> io::Result<(Summary, u64)> {
    let mut columns = Columns::default();
    let mut lexicon = Lexicon::default();
    let length = medium.length()?;
    let begins = length >= HEADER.len() as u64 && medium.read(0, HEADER.len())? == HEADER;
    let end = match begins {
        true => block::replay(medium, HEADER.len() as u64, &mut lexicon, |place, event| {
            if columns.places.len() < MOST_ROWS {
                columns.push(place, &event);
            }
        })?,
        false => {
            medium.write(0, &HEADER)?;
            HEADER.len() as u64
        }
    };
    if end < length {
        tracing::info!(cut = length - end, "the audit archive was not closed; what was half written is cut");
    }
    medium.cut(end)?;
    columns.phrases = Phrases::known(lexicon);
    seal(medium, end, &columns, Timestamp::now().as_microsecond())
}
