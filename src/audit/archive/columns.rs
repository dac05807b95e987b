//! The column summaries of a segment: of every record the little that questions are about, each kind of it in one piece, so that a
//! question reads the columns it names and then only the records that it wants. Kept in memory while a segment is written, at its end
//! once it is sealed. A column may promise too much (it keeps a hash of names, not the names) but never too little.

use std::collections::HashMap;
use std::sync::Arc;

use super::block::Place;
use super::phrases::{Lexicon, Phrases};
use crate::audit::Event;
use crate::audit::facets::{self, Judge};

/// A segment has at most this many records, so that a row fits into 16 bits.
pub const MOST_ROWS: usize = 16_384;
/// The time of an event that has none.
pub const NO_TIME: i64 = i64::MIN;

/// The columns, by the number that stands for them in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Column {
    /// Where the record is.
    Place = 1,
    /// When the request arrived, microseconds since the epoch.
    Time = 2,
    /// How long it took, microseconds.
    Took = 3,
    /// The HTTP status.
    Code = 4,
    /// A hash of the audit id.
    AuditId = 5,
    /// A hash of the name that the request named.
    Name = 6,
    /// A hash of the name of what was written.
    WroteName = 7,
    /// A hash of the uid of what was written.
    Uid = 8,
    /// The authenticated user.
    User = 16,
    /// The user that decisions were about.
    Acting = 17,
    /// The verb.
    Verb = 18,
    /// The resource with its subresource.
    Resource = 19,
    /// The group.
    Group = 20,
    /// The namespace.
    Namespace = 21,
    /// What authorisation said.
    Decision = 22,
    /// The stage.
    Stage = 23,
    /// Policies that had a say.
    Policies = 32,
    /// Webhooks that had a say.
    Webhooks = 33,
    /// The owners of what was written.
    Owners = 34,
    /// The phrases of the records; no row of its own.
    Phrases = 48,
}

/// The columns of words, in the order of [`Columns::words`].
const WORDS: [Column; 8] =
    [Column::User, Column::Acting, Column::Verb, Column::Resource, Column::Group, Column::Namespace, Column::Decision, Column::Stage];
/// The columns of hashes, in the order of [`Columns::hashes`].
const HASHES: [Column; 4] = [Column::AuditId, Column::Name, Column::WroteName, Column::Uid];
/// The columns of many words, in the order of [`Columns::marks`].
const MARKS: [Column; 3] = [Column::Policies, Column::Webhooks, Column::Owners];

/// All columns.
pub fn all() -> impl Iterator<Item = Column> {
    [Column::Place, Column::Time, Column::Took, Column::Code].into_iter().chain(HASHES).chain(WORDS).chain(MARKS).chain([Column::Phrases])
}

/// Columns, each once, in the order of their numbers.
pub fn distinct(mut columns: Vec<Column>) -> Vec<Column> {
    columns.sort_by_key(|column| *column as u8);
    columns.dedup();
    columns
}

/// The hash by which a text is found.
pub fn hash(text: &str) -> u32 {
    crc32fast::hash(text.as_bytes())
}

/// What is between the parts of a judge in a dictionary; no name has it.
const BETWEEN: char = '\u{1f}';

/// A judge as a word of a dictionary.
fn judge_word(judge: &Judge) -> String {
    format!("{}{BETWEEN}{}{BETWEEN}{}", judge.name, judge.under, judge.verdict)
}

/// The parts of such a word: name, binding or configuration, verdict.
pub fn judge_parts(word: &str) -> (&str, &str, &str) {
    let mut parts = word.split(BETWEEN);
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// Words, each written once.
#[derive(Clone, Debug, Default)]
pub struct Dictionary {
    /// The words; a code is a position here.
    pub words: Vec<Arc<str>>,
    /// The one that was asked for last, which is likely to be asked for next.
    last: u32,
    index: HashMap<Arc<str>, u32>,
}

impl Dictionary {
    fn code(&mut self, word: &str) -> u32 {
        if self.words.get(self.last as usize).is_some_and(|last| **last == *word) {
            return self.last;
        }
        self.last = self.index.get(word).copied().unwrap_or_else(|| self.add(word));
        self.last
    }

    fn add(&mut self, word: &str) -> u32 {
        let code = self.words.len() as u32;
        let word: Arc<str> = word.into();
        self.words.push(word.clone());
        self.index.insert(word, code);
        code
    }
}

/// A word for each row.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// The words.
    pub dictionary: Dictionary,
    /// Row by row.
    pub codes: Vec<u16>,
}

/// Any number of words for each row.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    /// The words.
    pub dictionary: Dictionary,
    /// Row and word, in the order of the rows.
    pub pairs: Vec<(u16, u32)>,
}

/// The columns of a segment, or those of them that were read.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Where the records are.
    pub places: Vec<Place>,
    /// When the requests arrived.
    pub times: Vec<i64>,
    /// How long they took.
    pub took: Vec<u32>,
    /// How they ended.
    pub codes: Vec<u16>,
    /// What the records say more than once.
    pub phrases: Phrases,
    hashes: [Vec<u32>; 4],
    words: [Words; 8],
    marks: [Marks; 3],
}

impl Columns {
    /// A column of words.
    pub fn words(&self, column: Column) -> &Words {
        &self.words[position(&WORDS, column)]
    }

    /// A column of hashes.
    pub fn hashes(&self, column: Column) -> &[u32] {
        &self.hashes[position(&HASHES, column)]
    }

    /// A column of many words.
    pub fn marks(&self, column: Column) -> &Marks {
        &self.marks[position(&MARKS, column)]
    }

    /// Some columns of words, hashes or codes, to be looked at elsewhere.
    pub fn copy(&self, columns: &[Column]) -> Columns {
        let mut copy = Columns::default();
        for column in columns {
            match column {
                Column::Code => copy.codes.clone_from(&self.codes),
                column if HASHES.contains(column) => copy.hashes[position(&HASHES, *column)] = self.hashes(*column).to_vec(),
                column => {
                    let Words { dictionary, codes } = self.words(*column);
                    let dictionary = Dictionary { words: dictionary.words.clone(), ..Dictionary::default() };
                    copy.words[position(&WORDS, *column)] = Words { dictionary, codes: codes.clone() };
                }
            }
        }
        copy
    }

    /// Adds a row.
    pub fn push(&mut self, place: Place, event: &Event) {
        let row = self.places.len() as u16;
        self.places.push(place);
        self.times.push(event.request_received_timestamp.map_or(NO_TIME, |time| time.as_microsecond()));
        self.took.push(u32::try_from(event.took()).unwrap_or(u32::MAX));
        self.codes.push(event.code());
        let object = event.object_ref.as_ref();
        let wrote = event.trace.as_ref().and_then(|trace| trace.wrote.as_ref());
        let name = object.map_or("", |object| &object.name);
        let hashed = [&*event.audit_id, name, wrote.map_or("", |wrote| &wrote.name), wrote.map_or("", |wrote| &wrote.uid)];
        for (column, text) in self.hashes.iter_mut().zip(hashed) {
            column.push(hash(text));
        }
        let resource = event.resource();
        let words = [
            &*event.user.username,
            &*event.effective_user().username,
            &*event.verb,
            &*resource,
            object.map_or("", |object| &object.api_group),
            object.map_or("", |object| &object.namespace),
            event.decision(),
            event.stage.name(),
        ];
        for (column, word) in self.words.iter_mut().zip(words) {
            // No more words than rows, and rows fit.
            let code = column.dictionary.code(word) as u16;
            column.codes.push(code);
        }
        let judges = facets::judges(event);
        let [policies, webhooks, owners] = &mut self.marks;
        for (column, judges) in [(policies, &judges.policies), (webhooks, &judges.webhooks)] {
            for judge in judges {
                let code = column.dictionary.code(&judge_word(judge));
                column.pairs.push((row, code));
            }
        }
        for owner in wrote.iter().flat_map(|wrote| &wrote.owners) {
            let code = owners.dictionary.code(owner);
            owners.pairs.push((row, code));
        }
    }

    /// Forgets the rows from one on; words that only they had stay, and stand for nothing.
    pub fn truncate(&mut self, rows: usize) {
        self.places.truncate(rows);
        self.times.truncate(rows);
        self.took.truncate(rows);
        self.codes.truncate(rows);
        self.hashes.iter_mut().for_each(|column| column.truncate(rows));
        self.words.iter_mut().for_each(|column| column.codes.truncate(rows));
        self.marks.iter_mut().for_each(|column| column.pairs.retain(|(row, _)| usize::from(*row) < rows));
    }

    /// A column as it is written.
    pub fn encode(&self, column: Column) -> Vec<u8> {
        let mut out = Vec::new();
        match column {
            Column::Place => {
                for place in &self.places {
                    out.extend(place.offset.to_le_bytes());
                    out.extend(place.length.to_le_bytes());
                }
            }
            Column::Time => out.extend(self.times.iter().flat_map(|time| time.to_le_bytes())),
            Column::Took => out.extend(self.took.iter().flat_map(|took| took.to_le_bytes())),
            Column::Code => out.extend(self.codes.iter().flat_map(|code| code.to_le_bytes())),
            Column::Phrases => self.phrases.lexicon.write(0, &mut out),
            column if HASHES.contains(&column) => out.extend(self.hashes(column).iter().flat_map(|hash| hash.to_le_bytes())),
            column if WORDS.contains(&column) => {
                let words = self.words(column);
                write_words(&mut out, &words.dictionary.words);
                out.extend(words.codes.iter().flat_map(|code| code.to_le_bytes()));
            }
            column => {
                let marks = self.marks(column);
                write_words(&mut out, &marks.dictionary.words);
                for (row, code) in &marks.pairs {
                    out.extend(row.to_le_bytes());
                    out.extend(code.to_le_bytes());
                }
            }
        }
        out
    }

    /// Takes a column as it was written; answers whether it is one.
    pub fn decode(&mut self, column: Column, bytes: &[u8]) -> bool {
        self.try_decode(column, bytes).is_some()
    }

    fn try_decode(&mut self, column: Column, mut bytes: &[u8]) -> Option<()> {
        match column {
            Column::Place => {
                let numbers = chunks(bytes, |four: [u8; 8]| {
                    let (offset, length) = (u64::from_le_bytes(four) as u32, (u64::from_le_bytes(four) >> 32) as u32);
                    Place { offset, length }
                });
                self.places = numbers;
            }
            Column::Time => self.times = chunks(bytes, i64::from_le_bytes),
            Column::Took => self.took = chunks(bytes, u32::from_le_bytes),
            Column::Code => self.codes = chunks(bytes, u16::from_le_bytes),
            Column::Phrases => {
                let mut lexicon = Lexicon::default();
                lexicon.read(&mut bytes)?;
                self.phrases = Phrases::known(lexicon);
            }
            column if HASHES.contains(&column) => self.hashes[position(&HASHES, column)] = chunks(bytes, u32::from_le_bytes),
            column if WORDS.contains(&column) => {
                let words = read_words(&mut bytes)?;
                let codes: Vec<u16> = chunks(bytes, u16::from_le_bytes);
                if codes.iter().any(|code| usize::from(*code) >= words.len()) {
                    return None;
                }
                self.words[position(&WORDS, column)] = Words { dictionary: Dictionary { words, ..Dictionary::default() }, codes };
            }
            column => {
                let words = read_words(&mut bytes)?;
                let pairs: Vec<(u16, u32)> = chunks(bytes, |six: [u8; 6]| {
                    (u16::from_le_bytes([six[0], six[1]]), u32::from_le_bytes([six[2], six[3], six[4], six[5]]))
                });
                if pairs.iter().any(|(_, code)| *code as usize >= words.len()) {
                    return None;
                }
                self.marks[position(&MARKS, column)] = Marks { dictionary: Dictionary { words, ..Dictionary::default() }, pairs };
            }
        }
        Some(())
    }
}

fn position(among: &[Column], column: Column) -> usize {
    among.iter().position(|known| *known == column).unwrap_or_default()
}

fn chunks<const N: usize, T>(bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|chunk| read(*chunk)).collect()
}

fn write_words(out: &mut Vec<u8>, words: &[Arc<str>]) {
    out.extend((words.len() as u32).to_le_bytes());
    for word in words {
        out.extend((word.len() as u32).to_le_bytes());
        out.extend(word.as_bytes());
    }
}

fn read_words(bytes: &mut &[u8]) -> Option<Vec<Arc<str>>> {
    let number = |bytes: &mut &[u8]| {
        let (four, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        Some(u32::from_le_bytes(*four) as usize)
    };
    let count = number(bytes)?;
    let mut words = Vec::with_capacity(count.min(MOST_ROWS));
    for _ in 0..count {
        let length = number(bytes)?;
        let (word, rest) = bytes.split_at_checked(length)?;
        words.push(std::str::from_utf8(word).ok()?.into());
        *bytes = rest;
    }
    Some(words)
}
