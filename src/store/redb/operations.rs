//! What an operator does with a store: copy it while it runs, put a copy back, look whether it is whole, print what is in
//! it, and make a throw-away copy for an experiment. Plain functions over files; the commands around them live in
//! `src/cli/`.

use std::fs;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable};

use super::compact;
use super::format::{FORMAT, KEYS, LOG, META, META_FORMAT, META_RESTORED, META_REVISION, Record};
use super::medium::{self, Failure, guarded};
use super::overlay::Overlay;
use super::read;
use crate::store::{At, Entry, Error, Range, Result, Revision};

/// The name of the store's file in a data directory.
pub const FILE: &str = "store.redb";

/// How far a restored store's revisions jump ahead: further than any server can have gone on after its last snapshot.
pub const REVISIONS_SKIPPED_BY_RESTORE: u64 = 1_000_000_000;

/// A copy is written in transactions of so many bytes.
const COPY_BYTES: usize = 16 << 20;
/// How many entries a dump reads at a time.
const DUMP_ENTRIES: usize = 500;

fn io(error: io::Error) -> Failure {
    Failure::from(redb::StorageError::from(error))
}

/// Copies everything that a transaction sees to a new file. Every record is checked on the way: a damaged store does not
/// make a snapshot that looks whole.
pub(super) fn copy(from: &ReadTransaction, to: &Path) -> Result<(), Failure> {
    if fs::exists(to).map_err(io)? {
        return Err(Error::Unavailable(format!("{} is there already and is not overwritten", to.display())).into());
    }
    let (unfinished, database) = medium::begin_file(to)?;
    let copied = fill(from, &database);
    match copied {
        Ok(()) => medium::finish_file(&unfinished, to, database),
        Err(failure) => {
            drop(database);
            let _ = fs::remove_file(&unfinished);
            Err(failure)
        }
    }
}

fn fill(from: &ReadTransaction, to: &Database) -> Result<(), Failure> {
    let (keys, log, meta) = (from.open_table(KEYS)?, from.open_table(LOG)?, from.open_table(META)?);
    let mut records = log.iter()?.peekable();
    while records.peek().is_some() {
        let mut transaction = to.begin_write()?;
        transaction.set_durability(redb::Durability::None)?;
        {
            let mut table = transaction.open_table(LOG)?;
            let mut end = table.upper_bound_mut(Bound::<(u64, u32)>::Unbounded)?;
            let mut bytes = 0;
            while bytes < COPY_BYTES
                && let Some(item) = records.next()
            {
                let (place, record) = item?;
                let (revision, ordinal) = place.value();
                Record::decode(revision, ordinal, record.value())?;
                bytes += record.value().len();
                end.insert_before(place.value(), record.value())?;
            }
            end.close()?;
        }
        transaction.commit()?;
    }
    let mut transaction = to.begin_write()?;
    transaction.set_quick_repair(true);
    {
        let mut table = transaction.open_table(KEYS)?;
        let mut end = table.upper_bound_mut(Bound::<&[u8]>::Unbounded)?;
        for item in keys.iter()? {
            let (key, version) = item?;
            end.insert_before(key.value(), version.value())?;
        }
        end.close()?;
        let mut table = transaction.open_table(META)?;
        for item in meta.iter()? {
            let (name, value) = item?;
            table.insert(name.value(), value.value())?;
        }
        table.insert(META_REVISION, compact::newest(from)?)?;
    }
    transaction.commit()?;
    read::survey(&to.begin_read()?)?;
    Ok(())
}

/// Puts a snapshot into a data directory that has no store yet. Its revisions go on far ahead of those that were given out
/// after the snapshot was made, and clients that hold older ones are told to list again: none of them can take a new
/// object for one that it knew.
pub fn restore(snapshot: &Path, data_dir: &Path) -> Result<Report> {
    let report = check(snapshot)?;
    if let Some(problem) = report.problems.first() {
        return Err(Error::Unavailable(format!("{} is not whole and is not restored: {problem}", snapshot.display())));
    }
    let to = data_dir.join(FILE);
    let put_back = || {
        if fs::exists(&to).map_err(io)? {
            let text = format!("{} is there already; move it away first, it is not overwritten", to.display());
            return Err(Error::Unavailable(text).into());
        }
        fs::create_dir_all(data_dir).map_err(io)?;
        let unfinished = medium::unfinished(&to);
        fs::copy(snapshot, &unfinished).map_err(io)?;
        let database = redb::Builder::new().open(&unfinished)?;
        let newest = compact::newest(&database.begin_read()?)?;
        let mut transaction = database.begin_write()?;
        transaction.set_quick_repair(true);
        {
            let mut meta = transaction.open_table(META)?;
            meta.insert(META_REVISION, newest.saturating_add(REVISIONS_SKIPPED_BY_RESTORE))?;
            meta.insert(META_RESTORED, newest.saturating_add(REVISIONS_SKIPPED_BY_RESTORE))?;
        }
        transaction.commit()?;
        medium::finish_file(&unfinished, &to, database)
    };
    guarded(put_back).map_err(|failure| failure.explain(Some(&to)))?;
    Ok(report)
}

/// What [`check`] found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The size of the file.
    pub file_bytes: u64,
    /// The newest revision.
    pub revision: Revision,
    /// The oldest revision that can be read exactly.
    pub floor: Revision,
    /// Objects that exist.
    pub objects: u64,
    /// All versions that are kept, those of the objects that exist included.
    pub versions: u64,
    /// The bytes of versions that only history needs.
    pub history_bytes: u64,
    /// Whether the file was closed in good order; if not, the next start repairs it, which is no damage.
    pub closed: bool,
    /// What is wrong; empty if nothing is.
    pub problems: Vec<String>,
}

/// Looks at every page and every record of a store that no server has open, and changes nothing. Fails only if the file
/// cannot be looked at at all; what is wrong inside it is in the report.
pub fn check(path: &Path) -> Result<Report> {
    let mut report = Report { file_bytes: fs::metadata(path).map_or(0, |metadata| metadata.len()), ..Report::default() };
    let repaired = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let noted = std::sync::Arc::clone(&repaired);
    let looked = guarded(|| {
        let mut builder = redb::Builder::new();
        builder.set_repair_callback(move |_| noted.store(true, std::sync::atomic::Ordering::Relaxed));
        let mut database = builder.create_with_backend(Overlay::open(path)?)?;
        let whole = guarded(|| Ok(database.check_integrity()?));
        match whole {
            Ok(true) => {}
            Ok(false) => report.problems.push("some of its pages do not match their checksums".to_owned()),
            Err(failure) => report.problems.push(failure.in_words()),
        }
        if let Err(failure) = guarded(|| super::check::invariants(&database.begin_read()?, &mut report)) {
            report.problems.push(failure.in_words());
        }
        Ok(())
    });
    report.closed = !repaired.load(std::sync::atomic::Ordering::Relaxed);
    match looked {
        Ok(()) => Ok(report),
        Err(failure @ (Failure::Damage(_) | Failure::Redb(redb::Error::Corrupted(_)))) => {
            report.problems.push(failure.in_words());
            Ok(report)
        }
        Err(failure) => Err(failure.explain(Some(path))),
    }
}

/// The entries of a store that no server has open, in the order of keys; see [`dump`].
pub struct Dump {
    database: Database,
    path: PathBuf,
    revision: Revision,
    range: Range,
    page: std::vec::IntoIter<Entry>,
    ended: bool,
}

/// Everything that begins with `prefix`, at the newest or an older revision, read page by page.
pub fn dump(path: &Path, prefix: &str, at: At) -> Result<Dump> {
    let opened = guarded(|| {
        let database = redb::Builder::new().create_with_backend(Overlay::open(path)?)?;
        let transaction = database.begin_read()?;
        let meta = transaction.open_table(META)?;
        if meta.get(META_FORMAT)?.map(|value| value.value()) != Some(FORMAT) {
            return Err(Failure::Damage("it has no format that this version reads".to_owned()));
        }
        let newest = compact::newest(&transaction)?;
        let floor = meta.get(super::format::META_FLOOR)?.map_or(0, |value| value.value());
        let revision = match at {
            At::Newest => newest,
            At::Revision(asked) if asked > newest => return Err(Error::Future { asked, newest }.into()),
            At::Revision(asked) if asked < floor => return Err(Error::Compacted { floor }.into()),
            At::Revision(asked) => asked,
        };
        drop((meta, transaction));
        Ok((database, revision))
    });
    let (database, revision) = opened.map_err(|failure| failure.explain(Some(path)))?;
    let range = Range { prefix: prefix.to_owned(), after: None, limit: DUMP_ENTRIES };
    Ok(Dump { database, path: path.to_owned(), revision, range, page: Vec::new().into_iter(), ended: false })
}

impl Dump {
    /// The revision that is dumped.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    fn turn_page(&mut self) -> Result<()> {
        let page = guarded(|| {
            let transaction = self.database.begin_read()?;
            // Nobody asks how many are left.
            let left = Some(usize::MAX);
            read::range(&transaction.open_table(KEYS)?, &transaction.open_table(LOG)?, &self.range, self.revision, left)
        });
        let page = page.map_err(|failure| failure.explain(Some(&self.path)))?;
        self.range.after = page.entries.last().map(|entry| entry.key.to_string());
        self.ended = page.entries.is_empty();
        self.page = page.entries.into_iter();
        Ok(())
    }
}

impl Iterator for Dump {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if let Some(entry) = self.page.next() {
            return Some(Ok(entry));
        }
        if self.ended {
            return None;
        }
        if let Err(error) = self.turn_page() {
            self.ended = true;
            return Some(Err(error));
        }
        self.page.next().map(Ok)
    }
}

/// Copies a data directory that no server uses, for an experiment that may break it. Where the file system can share the
/// blocks of two files until one of them changes (XFS, btrfs), the copy takes no time and no space.
pub fn fork(data_dir: &Path, to: &Path) -> Result<()> {
    let copied = guarded(|| {
        if fs::exists(to).map_err(io)? {
            return Err(Error::Unavailable(format!("{} is there already and is not overwritten", to.display())).into());
        }
        // Held while it is copied: no server begins to write meanwhile.
        let _lock = Overlay::open(&data_dir.join(FILE))?;
        copy_directory(data_dir, to)
    });
    copied.map_err(|failure| failure.explain(Some(&data_dir.join(FILE))))
}

fn copy_directory(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir(to).map_err(io)?;
    fs::set_permissions(to, fs::metadata(from).map_err(io)?.permissions()).map_err(io)?;
    for entry in fs::read_dir(from).map_err(io)? {
        let entry = entry.map_err(io)?;
        let kind = entry.file_type().map_err(io)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy_directory(&source, &target)?;
        } else if kind.is_file() {
            // On Linux this asks the kernel to copy, which shares the blocks where the file system can.
            fs::copy(&source, &target).map_err(io)?;
        }
    }
    Ok(())
}
