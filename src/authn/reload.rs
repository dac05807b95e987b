//! Files that count anew when they change: token files, bundles of authorities, keys, configuration. Works for a file
//! that is rewritten, replaced by a rename, or reached through a symbolic link that is swung over (as mounted Secrets
//! are). What cannot be read leaves the former content in force and is told in the log, without the content.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;

use super::cache::{Digest, digest};

/// No file that this server is configured with is larger.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// How long files must stay as they are before they count.
const QUIET: Duration = Duration::from_millis(20);

/// Keeps watching until dropped.
#[must_use = "a file is watched only as long as this is kept"]
pub struct Watch {
    _watcher: RecommendedWatcher,
}

/// Reads a file, hands it to `take`, and does so again whenever it changes. Fails if the first reading does.
pub fn file<F>(path: &Path, take: F) -> Result<Watch, String>
where
    F: Fn(&[u8]) -> Result<(), String> + Send + Sync + 'static,
{
    files(&[path], move |contents| take(&contents[0]))
}

/// The same for several files that are only right together, such as a certificate and its key.
pub fn files<F>(paths: &[&Path], take: F) -> Result<Watch, String>
where
    F: Fn(&[Vec<u8>]) -> Result<(), String> + Send + Sync + 'static,
{
    let paths: Arc<[PathBuf]> = paths.iter().map(|p| p.to_path_buf()).collect();
    let contents = read(&paths)?;
    take(&contents).map_err(|e| format!("{}: {e}", paths[0].display()))?;
    let last = Mutex::new(Last { taken: fingerprint(&contents), refused: None, told: String::new() });
    let watched = paths.clone();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !concerns(&event, &watched)) {
            return;
        }
        // Between the writing of one file and the next, a pair may be unreadable: the event of the last one puts it right.
        let mut last = last.lock();
        let outcome = settled(&watched).and_then(|contents| {
            let now = fingerprint(&contents);
            if now == last.taken || last.refused.as_ref() == Some(&now) {
                return Ok(false);
            }
            take(&contents).inspect_err(|_| last.refused = Some(now))?;
            (last.taken, last.refused) = (now, None);
            Ok(true)
        });
        let told = match outcome {
            Ok(true) => {
                tracing::info!(file = %watched[0].display(), "configuration file reloaded");
                String::new()
            }
            Ok(false) => return,
            Err(error) => error,
        };
        // Once: the log may well lie in the same directory, and what is written there comes back as an event.
        if !told.is_empty() && told != last.told {
            tracing::warn!(file = %watched[0].display(), error = %told, "configuration file not reloaded; the former content stays in force");
        }
        last.told = told;
    })
    .map_err(|e| format!("cannot watch files: {e}"))?;
    let mut directories: Vec<PathBuf> = Vec::new();
    for path in paths.iter() {
        // The directory rather than the file: an inode that was renamed over says nothing any more.
        let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf();
        if !directories.contains(&directory) {
            watcher.watch(&directory, RecursiveMode::NonRecursive).map_err(|e| format!("cannot watch {}: {e}", directory.display()))?;
            directories.push(directory);
        }
    }
    Ok(Watch { _watcher: watcher })
}

/// What came of the changes so far.
struct Last {
    /// What is in force.
    taken: Digest,
    /// What was refused since.
    refused: Option<Digest>,
    /// The last complaint.
    told: String,
}

/// Whether an event can be about one of the files. That some other file in their directory is written to says nothing; that one comes
/// or goes may be a link that is swung over.
fn concerns(event: &notify::Event, watched: &[PathBuf]) -> bool {
    use notify::event::{EventKind, ModifyKind};
    match event.kind {
        EventKind::Access(_) => false,
        EventKind::Modify(ModifyKind::Data(_)) => event.paths.iter().any(|path| {
            let is_named = |own: &Path| own.file_name() == path.file_name();
            watched.iter().any(|own| is_named(own) || own.canonicalize().is_ok_and(|target| is_named(&target)))
        }),
        _ => true,
    }
}

/// What the files hold once nobody is writing to them any more: a file that is written in place is empty for a moment,
/// and an empty file must not be taken for the wish to have no tokens.
fn settled(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, String> {
    let mut contents = read(paths)?;
    for _ in 0..50 {
        std::thread::sleep(QUIET);
        let again = read(paths)?;
        if again == contents {
            break;
        }
        contents = again;
    }
    Ok(contents)
}

fn read(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, String> {
    let read_one = |path: &PathBuf| {
        let length = std::fs::metadata(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?.len();
        if length > MAX_FILE_BYTES {
            return Err(format!("{} is too large: {length} bytes", path.display()));
        }
        std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
    };
    paths.iter().map(read_one).collect()
}

fn fingerprint(contents: &[Vec<u8>]) -> Digest {
    digest(contents.iter().map(Vec::as_slice))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use futures::FutureExt;

    use super::super::token_file::TokenFile;
    use super::*;
    use crate::authn::TokenAuthenticator;

    fn eventually(what: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(5);
        while !what() {
            assert!(Instant::now() < end, "did not happen in time");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_token_file_counts_anew_when_written_and_when_renamed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.csv");
        std::fs::write(&path, "t1,bob,1").unwrap();
        let tokens = Arc::new(TokenFile::default());
        let taker = tokens.clone();
        let _watch = file(&path, move |bytes| taker.replace(&String::from_utf8_lossy(bytes))).unwrap();
        let knows = |token: &str| tokens.authenticate_token(token, &[]).now_or_never().unwrap().unwrap().is_some();
        assert!(knows("t1"));
        std::fs::write(&path, "t2,bob,1").unwrap();
        eventually(|| knows("t2") && !knows("t1"));
        let other = directory.path().join("other");
        std::fs::write(&other, "t3,bob,1").unwrap();
        std::fs::rename(&other, &path).unwrap();
        eventually(|| knows("t3"));
        std::fs::write(&path, "only one column").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(knows("t3"));
    }

    #[test]
    fn what_was_refused_is_not_tried_again_because_of_other_files() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy");
        std::fs::write(&path, "good").unwrap();
        let (tried, taken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, counts) = (tried.clone(), taken.clone());
        let _watch = file(&path, move |bytes| {
            counted.fetch_add(1, Ordering::SeqCst);
            if bytes == b"bad" {
                return Err("bad".into());
            }
            counts.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
        .unwrap();
        std::fs::write(&path, "bad").unwrap();
        eventually(|| tried.load(Ordering::SeqCst) == 2);
        for index in 0..20 {
            std::fs::write(directory.path().join(format!("log-{index}")), "a line").unwrap();
        }
        std::fs::write(&path, "better").unwrap();
        eventually(|| taken.load(Ordering::SeqCst) == 2);
        assert_eq!(tried.load(Ordering::SeqCst), 3, "the good, the bad, the better");
    }

    #[test]
    fn only_what_can_be_about_the_file_concerns_it() {
        use notify::event::{AccessKind, CreateKind, DataChange, EventKind, ModifyKind};
        let own = [PathBuf::from("/etc/usher/policy.yaml")];
        let about = |kind: EventKind, name: &str| concerns(&notify::Event::new(kind).add_path(Path::new("/etc/usher").join(name)), &own);
        let written = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        assert!(about(written, "policy.yaml") && !about(written, "audit.log"));
        assert!(about(EventKind::Create(CreateKind::Any), "..data") && !about(EventKind::Access(AccessKind::Any), "policy.yaml"));
    }

    #[test]
    fn a_missing_file_is_an_error_at_the_start() {
        assert!(file(Path::new("/nonexistent/tokens.csv"), |_| Ok(())).is_err());
    }
}
