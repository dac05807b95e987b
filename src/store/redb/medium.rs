//! The redb database behind the store: opening the file, telling what is wrong with it in words that help, and opening
//! it again after an I/O error, which redb requires before it does anything else. It runs closures in transactions and
//! knows nothing of what is in them.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use redb::backends::InMemoryBackend;
use redb::{Database, Durability, ReadTransaction, ReadableDatabase, WriteTransaction};

use super::format::{Damage, FORMAT, KEYS, LOG, META, META_FORMAT};
use crate::store::Error;

/// What a closure inside a transaction can fail with.
#[derive(Debug)]
pub(super) enum Failure {
    /// An answer to the caller; the medium is fine.
    Answer(Error),
    /// redb or the file system failed.
    Redb(redb::Error),
    /// Bytes in the file do not mean what they should.
    Damage(String),
    /// The file could not be opened again; in words for the caller.
    Broken(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Answer(error)
    }
}

impl From<Damage> for Failure {
    fn from(damage: Damage) -> Failure {
        Failure::Damage(damage.0)
    }
}

macro_rules! from_redb {
    ($($error:ident),*) => {
        $(impl From<redb::$error> for Failure {
            fn from(error: redb::$error) -> Failure {
                Failure::Redb(error.into())
            }
        })*
    };
}
from_redb!(StorageError, TableError, TransactionError, CommitError, CursorError, DatabaseError, SetDurabilityError, CompactionError);

impl Failure {
    /// Whether redb refuses everything from now on until the file is opened again.
    fn needs_reopening(&self) -> bool {
        match self {
            Failure::Redb(error) => matches!(error, redb::Error::Io(_) | redb::Error::PreviousIo | redb::Error::LockPoisoned(_)),
            Failure::Broken(_) => true,
            Failure::Answer(_) | Failure::Damage(_) => false,
        }
    }

    /// What happened, for a report that names the file itself.
    pub(super) fn in_words(self) -> String {
        match self {
            Failure::Answer(error) => error.to_string(),
            Failure::Redb(error) => error.to_string(),
            Failure::Damage(what) | Failure::Broken(what) => what,
        }
    }

    /// What the caller of the store is told.
    pub(super) fn explain(self, path: Option<&Path>) -> Error {
        let name = path.map_or_else(|| "the in-memory store".to_owned(), |path| path.display().to_string());
        let damaged = |what: &str| {
            Error::Unavailable(format!(
                "{name} is damaged: {what}. `usher store check` tells how far; stop the server and put back the last good \
                 copy with `usher snapshot restore`"
            ))
        };
        match self {
            Failure::Answer(error) => error,
            Failure::Damage(what) => damaged(&what),
            Failure::Broken(why) => Error::Unavailable(why),
            Failure::Redb(error) => match error {
                redb::Error::Corrupted(what) => damaged(&what),
                redb::Error::Io(error) if error.kind() == io::ErrorKind::StorageFull => Error::Unavailable(format!(
                    "{name} cannot grow, {error}: free some space on its file system, writes then go on by themselves"
                )),
                redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData || error.kind() == io::ErrorKind::UnexpectedEof => {
                    damaged(&error.to_string())
                }
                redb::Error::Io(error) => Error::Unavailable(format!("{name} cannot be read or written: {error}")),
                redb::Error::DatabaseAlreadyOpen => Error::Unavailable(format!(
                    "{name} is in use by another process; one data directory serves one server (stop the other, or give this \
                     one a data directory of its own)"
                )),
                redb::Error::UpgradeRequired(version) => damaged(&format!("it says that it has version {version} of redb's file format")),
                error @ (redb::Error::TableTypeMismatch { .. }
                | redb::Error::TableIsMultimap(_)
                | redb::Error::TableDoesNotExist(_)
                | redb::Error::TypeDefinitionChanged { .. }) => damaged(&error.to_string()),
                error => Error::Unavailable(format!("{name}: {error}")),
            },
        }
    }
}

/// Turns a panic of redb, which it raises on some kinds of damage, into a [`Failure`].
pub(super) fn guarded<T>(run: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "unknown".to_owned());
        Err(Failure::Damage(format!("reading it failed with {what:?}")))
    })
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Durable with one fsync; a file left behind by a crash is checked from end to end when it is opened again.
    Durable,
    /// Durable with two fsyncs and the allocator's state; opened again without a check of the whole file.
    QuicklyReopened,
    /// In memory, for a later transaction to make durable.
    Deferred,
}

enum State {
    Open(Database),
    /// It could not be opened again after an I/O error; why.
    Broken(String),
    Closed,
}

impl State {
    fn database(&self) -> Result<&Database, Failure> {
        match self {
            State::Open(database) => Ok(database),
            State::Broken(why) => Err(Failure::Broken(why.clone())),
            State::Closed => Err(Failure::Answer(Error::Unavailable("the store is closed".to_owned()))),
        }
    }
}

/// The file, or the memory, and the redb database over it.
pub(super) struct Medium {
    path: Option<PathBuf>,
    cache_size: usize,
    state: RwLock<State>,
    /// redb met an I/O error and has to be opened again.
    sick: AtomicBool,
}

impl Medium {
    /// Opens the file, or makes a new one where there is none.
    pub(super) fn open(path: &Path, cache_size: usize) -> Result<Medium, Error> {
        let opened = guarded(|| {
            if !fs::exists(path).map_err(redb::StorageError::from)? {
                create(path)?;
            }
            open_existing(path, cache_size)
        });
        let database = opened.map_err(|failure| failure.explain(Some(path)))?;
        Ok(Medium { path: Some(path.to_owned()), cache_size, state: RwLock::new(State::Open(database)), sick: AtomicBool::new(false) })
    }

    /// A new database in memory.
    pub(super) fn in_memory(cache_size: usize) -> Result<Medium, Error> {
        Medium::over(InMemoryBackend::new(), cache_size)
    }

    /// A database on anything that can hold one; a new one where there is nothing yet.
    pub(super) fn over(backend: impl redb::StorageBackend, cache_size: usize) -> Result<Medium, Error> {
        let made = guarded(|| {
            let new = backend.len().map_err(redb::StorageError::from)? == 0;
            let database = redb::Builder::new().set_cache_size(cache_size).create_with_backend(backend)?;
            if new {
                initialise(&database)?;
            }
            Ok(database)
        });
        let database = made.map_err(|failure| failure.explain(None))?;
        Ok(Medium { path: None, cache_size, state: RwLock::new(State::Open(database)), sick: AtomicBool::new(false) })
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The failure in words, with the name of the file.
    pub(super) fn explain(&self, failure: Failure) -> Error {
        failure.explain(self.path())
    }

    /// Runs `look` in a read transaction; once more on a freshly opened file if redb had met an I/O error.
    pub(super) fn read<T>(&self, look: impl Fn(&ReadTransaction) -> Result<T, Failure>) -> Result<T, Error> {
        let attempt = || {
            let state = self.state.read();
            let database = state.database()?;
            guarded(|| look(&database.begin_read()?))
        };
        let result = match attempt() {
            Err(failure) if failure.needs_reopening() => {
                self.sick.store(true, Ordering::Release);
                self.heal();
                attempt()
            }
            result => result,
        };
        result.map_err(|failure| self.explain(failure))
    }

    /// Runs `copy`, which writes to another file, in a read transaction; a failure is told with the name of that file.
    pub(super) fn read_once(&self, other: &Path, copy: impl FnOnce(&ReadTransaction) -> Result<(), Failure>) -> Result<(), Error> {
        let state = self.state.read();
        let transaction = state.database().and_then(|database| guarded(|| Ok(database.begin_read()?)));
        let transaction = transaction.map_err(|failure| self.explain(failure))?;
        guarded(|| copy(&transaction)).map_err(|failure| match failure {
            Failure::Damage(_) => self.explain(failure),
            _ => failure.explain(Some(other)),
        })
    }

    /// Runs `change` in a write transaction and commits it, unless `change` fails: then nothing happened. After a
    /// failure of the commit itself it is open whether the transaction is in the file.
    pub(super) fn write<T>(&self, ending: Ending, change: impl FnOnce(&WriteTransaction) -> Result<T, Failure>) -> Result<T, Failure> {
        let result = {
            let state = self.state.read();
            let database = state.database()?;
            guarded(|| {
                let mut transaction = database.begin_write()?;
                match ending {
                    Ending::Durable => {}
                    Ending::QuicklyReopened => transaction.set_quick_repair(true),
                    Ending::Deferred => transaction.set_durability(Durability::None)?,
                }
                match change(&transaction) {
                    Ok(value) => {
                        transaction.commit()?;
                        Ok(value)
                    }
                    Err(failure) => {
                        transaction.abort()?;
                        Err(failure)
                    }
                }
            })
        };
        if result.as_ref().is_err_and(|failure| !matches!(failure, Failure::Answer(_))) {
            self.sick.store(true, Ordering::Release);
        }
        result
    }

    /// Opens the file again if redb needs it. Waits for transactions under way. A file that cannot be opened is tried
    /// again the next time.
    pub(super) fn heal(&self) {
        let Some(path) = &self.path else { return };
        let mut state = self.state.write();
        if !self.sick.load(Ordering::Acquire) || matches!(*state, State::Closed) {
            return;
        }
        // Dropped first: it holds the lock on the file.
        let previous = std::mem::replace(&mut *state, State::Broken(String::new()));
        let _ = guarded(|| {
            drop(previous);
            Ok(())
        });
        match guarded(|| open_existing(path, self.cache_size)) {
            Ok(opened) => {
                *state = State::Open(opened);
                self.sick.store(false, Ordering::Release);
            }
            Err(failure) => {
                let why = match failure {
                    // Its lock is ours, from before a panic.
                    Failure::Redb(redb::Error::DatabaseAlreadyOpen) => Failure::Damage("it could not be opened again".to_owned()),
                    failure => failure,
                };
                let why = why.explain(Some(path)).to_string();
                tracing::error!("the store cannot be opened again: {why}");
                *state = State::Broken(why);
            }
        }
    }

    /// Closes the database; redb then notes that it was left in good order.
    pub(super) fn close(&self) -> Result<(), Failure> {
        let state = std::mem::replace(&mut *self.state.write(), State::Closed);
        guarded(|| {
            drop(state);
            Ok(())
        })
    }
}

/// Makes a new file.
fn create(path: &Path) -> Result<(), Failure> {
    let (unfinished, database) = begin_file(path)?;
    finish_file(&unfinished, path, database)
}

/// The name of a file while it is being made.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    PathBuf::from(name)
}

/// Begins a new file under a name of its own. It gets the right one when it is complete, so that a file of the right name
/// is never an empty one: an empty file is a damaged file.
pub(super) fn begin_file(path: &Path) -> Result<(PathBuf, Database), Failure> {
    let io = |error: io::Error| Failure::from(redb::StorageError::from(error));
    fs::create_dir_all(directory(path)).map_err(io)?;
    let unfinished = unfinished(path);
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // Secrets are in it.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&unfinished).map_err(io)?;
    // Left behind by a server that was killed at this point, or in the hands of one that is at it: then redb says so.
    if file.metadata().map_err(io)?.len() > 0 && file.try_lock().is_ok() {
        file.set_len(0).map_err(io)?;
        file.unlock().map_err(io)?;
    }
    let database = redb::Builder::new().create_file(file)?;
    initialise(&database)?;
    Ok((unfinished, database))
}

/// Gives a complete file its name, and closes it.
pub(super) fn finish_file(unfinished: &Path, path: &Path, database: Database) -> Result<(), Failure> {
    let io = |error: io::Error| Failure::from(redb::StorageError::from(error));
    drop(database);
    fs::File::open(unfinished).and_then(|file| file.sync_all()).map_err(io)?;
    fs::rename(unfinished, path).map_err(io)?;
    fs::File::open(directory(path)).and_then(|directory| directory.sync_all()).map_err(io)
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

fn initialise(database: &Database) -> Result<(), Failure> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    {
        transaction.open_table(LOG)?;
        transaction.open_table(KEYS)?;
        transaction.open_table(META)?.insert(META_FORMAT, FORMAT)?;
    }
    transaction.commit()?;
    Ok(())
}

fn open_existing(path: &Path, cache_size: usize) -> Result<Database, Failure> {
    let length = fs::metadata(path).map_err(redb::StorageError::from)?.len();
    if length == 0 {
        return Err(Failure::Damage("it is empty".to_owned()));
    }
    let database = redb::Builder::new().set_cache_size(cache_size).open(path)?;
    let transaction = database.begin_read()?;
    let format = transaction.open_table(META)?.get(META_FORMAT)?.map(|value| value.value());
    match format {
        Some(FORMAT) => {}
        Some(other) => {
            return Err(Failure::Answer(Error::Unavailable(format!(
                "{} has format {other}, this server reads format {FORMAT}: use the version of usher that wrote it",
                path.display()
            ))));
        }
        None => return Err(Failure::Damage("it does not say which format it has".to_owned())),
    }
    drop(transaction);
    Ok(database)
}
