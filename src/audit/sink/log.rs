//! The log: one event per line, in a file that is set aside when it has grown too large; what becomes of it then is told in
//! [`attic`](super::attic). `-` is standard output.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::attic::{Attic, backup_name};
use super::{Inlet, Outlet, Pieces, ends};

/// How many pieces of some lines each may wait for the disk.
const MOST: usize = 1 << 16;

/// How many of them are worth writing at once.
const ENOUGH: usize = 16;

/// How long it waits for a batch to fill.
const GATHER: Duration = Duration::from_millis(10);

/// How often it is told that it cannot be written.
const TELL: Duration = Duration::from_secs(10);

/// Where the log is, and how much of it is kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file, or `-`.
    pub path: PathBuf,
    /// The size at which it is set aside, in bytes.
    pub max_size: u64,
    /// How old files may become that were set aside; zero for any age.
    pub max_age: Duration,
    /// How many of them are kept; zero for all.
    pub max_backups: usize,
    /// Whether they are compressed.
    pub compress: bool,
}

impl Settings {
    /// A log with a real server's limits: 100 MB each, 100 files, 366 days.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Settings { path: path.into(), max_size: 100 << 20, max_age: Duration::from_secs(366 * 86_400), max_backups: 100, compress: false }
    }
}

/// Opens the log.
///
/// # Errors
/// Why it cannot be written.
pub fn open(settings: &Settings) -> Result<Outlet, String> {
    let mut log: Box<dyn Log> = match settings.path.as_os_str() == "-" {
        true => Box::new(Stdout),
        false => {
            let name = settings.path.display();
            Box::new(Rotating::open(settings.clone()).map_err(|error| format!("--audit-log: cannot write {name}: {error}"))?)
        }
    };
    Outlet::start("log", Pieces::Lines, (MOST, ENOUGH), move |inlet: Inlet| {
        let mut told: Option<Instant> = None;
        while let Some(pieces) = inlet.queue.take(GATHER) {
            for lines in &pieces {
                if let Err((error, lost)) = log.write(lines) {
                    inlet.tally.errors.fetch_add(ends(lost).count() as u64, Ordering::Relaxed);
                    // A disk that is nearly full takes one line and refuses the next.
                    if told.is_none_or(|told| told.elapsed() >= TELL) {
                        tracing::warn!(%error, "cannot write the audit log");
                        told = Some(Instant::now());
                    }
                }
            }
            inlet.queue.finish(pieces.len());
        }
    })
}

trait Log: Send {
    /// Writes lines; or says why not all, and which of them are lost.
    fn write<'a>(&mut self, lines: &'a [u8]) -> Result<(), (io::Error, &'a [u8])>;
}

struct Stdout;

impl Log for Stdout {
    fn write<'a>(&mut self, lines: &'a [u8]) -> Result<(), (io::Error, &'a [u8])> {
        let mut out = io::stdout().lock();
        out.write_all(lines).and_then(|()| out.flush()).map_err(|error| (error, lines))
    }
}

struct Rotating {
    settings: Settings,
    file: Option<File>,
    size: u64,
    attic: Attic,
}

impl Rotating {
    fn open(settings: Settings) -> io::Result<Self> {
        let attic = Attic::open(settings.clone())?;
        let mut log = Rotating { settings, file: None, size: 0, attic };
        log.reopen()?;
        log.attic.tidy();
        Ok(log)
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let Some(directory) = self.settings.path.parent().filter(|d| !d.as_os_str().is_empty()) {
            std::fs::create_dir_all(directory)?;
        }
        // Who may read the log may read who did what: nobody else's business.
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.settings.path)?;
        self.size = file.metadata()?.len();
        if is_torn(&self.settings.path, self.size) {
            // Whoever wrote last did not come to the end of the line: the next event has one of its own.
            file.write_all(b"\n")?;
            self.size += 1;
        }
        self.file = Some(file);
        Ok(())
    }

    /// Lets go of a file that somebody else has set aside or removed, and sees what somebody else has cut off: an event that is
    /// written where nobody finds it is lost.
    fn follow(&mut self) {
        let Some(ours) = self.file.as_ref().and_then(|file| file.metadata().ok()) else { return };
        self.size = ours.len();
        let is_gone = match std::fs::metadata(&self.settings.path) {
            Ok(theirs) => (theirs.dev(), theirs.ino()) != (ours.dev(), ours.ino()),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if is_gone {
            self.file = None;
        }
    }

    /// Sets the file aside and begins a new one.
    fn rotate(&mut self) -> io::Result<()> {
        self.file = None;
        if self.settings.path.exists() {
            std::fs::rename(&self.settings.path, backup_name(&self.settings.path, Timestamp::now()))?;
        }
        self.attic.tidy();
        self.reopen()
    }
}

impl Log for Rotating {
    fn write<'a>(&mut self, lines: &'a [u8]) -> Result<(), (io::Error, &'a [u8])> {
        self.follow();
        let mut rest = lines;
        while !rest.is_empty() {
            let written = self.write_some(rest).map_err(|error| (error, rest))?;
            rest = &rest[written..];
        }
        Ok(())
    }
}

impl Rotating {
    /// Writes as many lines as still fit, at least one; how many bytes they are.
    fn write_some(&mut self, lines: &[u8]) -> io::Result<usize> {
        if self.file.is_none() {
            self.reopen()?;
        }
        if self.size > 0 && self.size + first_line(lines) as u64 > self.settings.max_size {
            self.rotate()?;
        }
        let room = self.settings.max_size.saturating_sub(self.size).min(lines.len() as u64) as usize;
        let fits = memchr::memrchr(b'\n', &lines[..room]).map_or_else(|| first_line(lines), |end| end + 1);
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(&lines[..fits]));
        if let Err(error) = written {
            // A disk that is full takes a part of it: better none.
            if let Some(file) = self.file.take() {
                let _ = file.set_len(self.size);
            }
            return Err(error);
        }
        self.size += fits as u64;
        Ok(fits)
    }
}

/// Whether a file ends within a line.
fn is_torn(path: &Path, size: u64) -> bool {
    let mut last = [b'\n'];
    // What has a size is a file; one that must not be read is believed to be whole.
    size > 0 && File::open(path).is_ok_and(|file| file.read_exact_at(&mut last, size - 1).is_ok()) && last != *b"\n"
}

fn first_line(text: &[u8]) -> usize {
    memchr::memchr(b'\n', text).map_or(text.len(), |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(path: PathBuf) -> Settings {
        Settings { max_size: 20, max_backups: 2, ..Settings::new(path) }
    }

    #[test]
    fn a_log_that_would_grow_too_large_is_set_aside_between_two_lines_and_only_so_many_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let mut log = Rotating::open(settings(path.clone())).unwrap();
        log.write(b"one 90123456\ntwo\n").unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        log.write(b"three\nfour 0123456789012345678901234567890\nfive\nsix\n").unwrap();
        drop(log);
        let mut kept: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().path()).collect();
        kept.sort();
        let content: Vec<_> = kept.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        assert_eq!(content, ["three\n", "four 0123456789012345678901234567890\n", "five\nsix\n"], "{kept:?}");
        assert_eq!(kept.last(), Some(&path));
    }

    #[test]
    fn a_line_that_was_not_written_to_its_end_takes_no_other_along() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        std::fs::write(&path, "one\ntw").unwrap();
        let mut log = Rotating::open(Settings::new(path.clone())).unwrap();
        log.write(b"three\n").unwrap();
        drop(log);
        Rotating::open(Settings::new(path.clone())).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntw\nthree\n");
    }

    #[test]
    fn a_log_that_somebody_else_sets_aside_removes_or_cuts_off_goes_on_where_it_belongs() {
        let directory = tempfile::tempdir().unwrap();
        let (path, aside) = (directory.path().join("logs/audit.log"), directory.path().join("logs/audit.log.1"));
        let mut log = Rotating::open(settings(path.clone())).unwrap();
        let content = |path: &Path| std::fs::read_to_string(path).unwrap();
        log.write(b"one\n").unwrap();
        std::fs::rename(&path, &aside).unwrap();
        log.write(b"two\n").unwrap();
        assert_eq!((content(&aside).as_str(), content(&path).as_str()), ("one\n", "two\n"));
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        log.write(b"three 0123456789\n").unwrap();
        assert_eq!(content(&path), "three 0123456789\n");
        // As logrotate's copytruncate does; what is left has room for more.
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        log.write(b"four 90123\n").unwrap();
        assert_eq!(content(&path), "four 90123\n");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_lost_is_told_from_what_was_written_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let mut log = Rotating::open(settings(path.clone())).unwrap();
        log.write(b"one 9012345678\n").unwrap();
        // Nothing can be set aside under a name that is too long.
        let long = directory.path().join("a".repeat(250));
        std::fs::rename(&path, &long).unwrap();
        log.settings.path = long.clone();
        let (_, lost) = log.write(b"two\nthree\nfour\n").unwrap_err();
        assert_eq!((lost, std::fs::read_to_string(&long).unwrap().as_str()), (b"three\nfour\n".as_slice(), "one 9012345678\ntwo\n"));
    }

    #[test]
    fn a_log_that_is_set_aside_is_compressed_where_that_is_wished() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let mut log = Rotating::open(Settings { compress: true, ..settings(path.clone()) }).unwrap();
        log.write(b"one 9012345678901234\n").unwrap();
        log.write(b"two\n").unwrap();
        drop(log);
        let aside = std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().path()).find(|p| *p != path).unwrap();
        assert!(aside.to_string_lossy().ends_with(".log.gz"));
        let mut text = String::new();
        io::Read::read_to_string(&mut flate2::read::GzDecoder::new(File::open(aside).unwrap()), &mut text).unwrap();
        assert_eq!(text, "one 9012345678901234\n");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
