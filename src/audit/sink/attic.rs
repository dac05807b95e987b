//! Logs that were set aside: their names, how long they are kept, and their compression. That may take seconds for a large one, which is
//! why it has a thread of its own: meanwhile events are written to the next log.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;

use super::log::Settings;

/// The time in the name of a file that was set aside.
const STAMP: &str = "%Y-%m-%dT%H-%M-%S";

/// Where logs go that are set aside. Dropped, it ends when all of them are as they should be.
pub struct Attic {
    bell: Option<Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Attic {
    /// That of a log.
    pub fn open(settings: Settings) -> io::Result<Self> {
        let (bell, rings) = channel();
        let work = move || {
            while rings.recv().is_ok() {
                let _ = rings.try_iter().count();
                tidy(&settings, Timestamp::now());
            }
        };
        let thread = std::thread::Builder::new().name("audit-attic".into()).spawn(work)?;
        Ok(Attic { bell: Some(bell), thread: Some(thread) })
    }

    /// Has it look at what is there.
    pub fn tidy(&self) {
        let _ = self.bell.as_ref().map(|bell| bell.send(()));
    }
}

impl Drop for Attic {
    fn drop(&mut self) {
        self.bell = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Removes what is too old or too many, and compresses the rest: also what an earlier process left as it was.
fn tidy(settings: &Settings, now: Timestamp) {
    let Some(directory) = settings.path.parent() else { return };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let (kept, surplus) = sorted(settings, &names, now);
    for name in surplus {
        if let Err(error) = std::fs::remove_file(directory.join(name)) {
            tracing::warn!(%error, file = name, "cannot remove an old audit log");
        }
    }
    for name in kept.into_iter().filter(|name| settings.compress && !name.ends_with(".gz")) {
        if let Err(error) = compress(&directory.join(name)) {
            tracing::warn!(%error, file = name, "cannot compress an audit log");
        }
    }
}

/// `audit.log` set aside becomes `audit-2026-11-16T00-01-40.713.log`.
pub fn backup_name(path: &Path, at: Timestamp) -> PathBuf {
    let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default();
    let (stem, extension) = (text(path.file_stem()), text(path.extension()));
    let mut millis = at.as_millisecond();
    loop {
        let at = Timestamp::from_millisecond(millis).unwrap_or(at);
        let stamp = format!("{}.{:03}", at.strftime(STAMP), millis.rem_euclid(1000));
        let name = if extension.is_empty() { format!("{stem}-{stamp}") } else { format!("{stem}-{stamp}.{extension}") };
        let name = path.with_file_name(name);
        if !name.exists() && !with_gz(&name).exists() {
            return name;
        }
        // Two within a millisecond.
        millis += 1;
    }
}

fn with_gz(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    name.into()
}

fn compress(path: &Path) -> io::Result<()> {
    let target = with_gz(path);
    let out = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&target)?;
    let mut encoder = GzEncoder::new(out, Compression::default());
    let copied = File::open(path).and_then(|mut file| io::copy(&mut file, &mut encoder));
    if let Err(error) = copied.and_then(|_| encoder.finish()?.sync_all()) {
        // Half of it would only take the room that it lacked.
        let _ = std::fs::remove_file(&target);
        return Err(error);
    }
    std::fs::remove_file(path)
}

/// Which of the files in a directory are logs that were set aside: those that stay, and those that are to go.
fn sorted<'a>(settings: &Settings, names: &'a [String], now: Timestamp) -> (Vec<&'a str>, Vec<&'a str>) {
    let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default();
    let prefix = format!("{}-", text(settings.path.file_stem()));
    let extension = text(settings.path.extension());
    let suffix = if extension.is_empty() { String::new() } else { format!(".{extension}") };
    let time = |name: &str| {
        let stamp = name.strip_suffix(".gz").unwrap_or(name).strip_prefix(&prefix)?.strip_suffix(&suffix)?;
        let (seconds, millis) = stamp.rsplit_once('.')?;
        let at = jiff::civil::DateTime::strptime(STAMP, seconds).ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
        at.checked_add(jiff::SignedDuration::from_millis(millis.parse().ok()?)).ok()
    };
    let mut backups: Vec<(Timestamp, &str)> = names.iter().filter_map(|name| Some((time(name)?, name.as_str()))).collect();
    backups.sort_by(|a, b| b.cmp(a));
    // One whose compression was broken off is there twice.
    let mut newest: Vec<Timestamp> = backups.iter().map(|(at, _)| *at).collect();
    newest.dedup();
    let too_old = |at: Timestamp| !settings.max_age.is_zero() && now.duration_since(at).unsigned_abs() > settings.max_age && at < now;
    let too_many = |at: Timestamp| settings.max_backups > 0 && newest.get(settings.max_backups).is_some_and(|first| at <= *first);
    let (surplus, kept): (Vec<_>, Vec<_>) = backups.into_iter().partition(|(at, _)| too_many(*at) || too_old(*at));
    let names = |files: Vec<(Timestamp, &'a str)>| files.into_iter().map(|(_, name)| name).collect();
    (names(kept), names(surplus))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_too_old_goes_and_what_is_not_a_log_stays() {
        let settings = Settings { max_age: Duration::from_secs(86_400), max_backups: 0, ..Settings::new("/var/log/audit.log") };
        let names =
            ["audit.log", "audit-2026-11-16T00-01-40.713.log", "audit-2026-11-14T00-01-40.713.log.gz", "audit-notes.log", "audit-2026.txt"]
                .map(str::to_owned);
        let (kept, gone) = sorted(&settings, &names, "2026-11-16T12:00:00Z".parse().unwrap());
        assert_eq!((kept, gone), (vec!["audit-2026-11-16T00-01-40.713.log"], vec!["audit-2026-11-14T00-01-40.713.log.gz"]));
    }

    #[test]
    fn a_log_whose_compression_was_broken_off_is_compressed_again_and_counts_once() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for (name, text) in [
            ("audit-2026-11-16T00-01-40.713.log", "all of it"),
            ("audit-2026-11-16T00-01-40.713.log.gz", "half"),
            ("audit-2026-11-15T00-01-40.713.log", "older"),
            ("audit-2026-11-14T00-01-40.713.log", "oldest"),
        ] {
            std::fs::write(at(name), text).unwrap();
        }
        let attic =
            Attic::open(Settings { max_backups: 2, max_age: Duration::ZERO, compress: true, ..Settings::new(at("audit.log")) }).unwrap();
        attic.tidy();
        drop(attic);
        let mut left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        left.sort();
        assert_eq!(left, [at("audit-2026-11-15T00-01-40.713.log.gz"), at("audit-2026-11-16T00-01-40.713.log.gz")]);
        let mut text = String::new();
        io::Read::read_to_string(&mut flate2::read::GzDecoder::new(File::open(&left[1]).unwrap()), &mut text).unwrap();
        assert_eq!(text, "all of it");
    }
}
