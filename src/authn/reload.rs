//! Files that count anew when they change: token files, bundles of authorities, keys, configuration. Works for a file
//! that is rewritten, replaced by a rename, or reached through symbolic links, whether one of them is swung over (as mounted
//! Secrets are) or the file at their end is written to. What cannot be read leaves the former content in force and is told in the
//! log, without the content.

mod way;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use arc_swap::ArcSwap;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::cache::{Digest, digest};

/// No file that this server is configured with is larger.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// How long files must stay as they are before they count.
const QUIET: Duration = Duration::from_millis(20);

/// Keeps watching until dropped.
#[must_use = "a file is watched only as long as this is kept"]
pub struct Watch(Sender<Word>);

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.0.send(Word::Stop);
    }
}

/// What the thread that reads is told.
enum Word {
    Changed,
    Stop,
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
    let paths: Vec<PathBuf> = paths.iter().map(|p| p.to_path_buf()).collect();
    let contents = read(&paths)?;
    take(&contents).map_err(|e| format!("{}: {e}", paths[0].display()))?;
    let (sender, words) = channel();
    let mut places = Places::over(sender.clone())?;
    places.follow(&paths)?;
    let mut last = Last { taken: fingerprint(&contents), refused: None, told: String::new() };
    // They may have changed before they were watched.
    let _ = sender.send(Word::Changed);
    let work = move || {
        while let Ok(Word::Changed) = words.recv() {
            if words.try_iter().any(|word| matches!(word, Word::Stop)) {
                return;
            }
            last.look(&paths, &take);
            // A link that was swung over leads to another place, where something may have happened meanwhile.
            match places.follow(&paths) {
                Ok(true) => last.look(&paths, &take),
                Ok(false) => {}
                Err(error) => last.complain(&paths, error),
            }
        }
    };
    std::thread::Builder::new().name("reload".into()).spawn(work).map_err(|e| format!("cannot watch files: {e}"))?;
    Ok(Watch(sender))
}

/// Where files are watched: the directories rather than the files, because an inode that was renamed over says nothing any more.
struct Places {
    watcher: RecommendedWatcher,
    directories: BTreeSet<PathBuf>,
    watched: Arc<ArcSwap<BTreeSet<PathBuf>>>,
}

impl Places {
    fn over(sender: Sender<Word>) -> Result<Self, String> {
        let watched = Arc::new(ArcSwap::from_pointee(BTreeSet::new()));
        let ours = watched.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| concerns(&event, &ours.load())) {
                let _ = sender.send(Word::Changed);
            }
        });
        Ok(Places { watcher: watcher.map_err(|e| format!("cannot watch files: {e}"))?, directories: BTreeSet::new(), watched })
    }

    /// Watches wherever the files are now; whether that is somewhere else than before.
    fn follow(&mut self, paths: &[PathBuf]) -> Result<bool, String> {
        let ways: BTreeSet<PathBuf> = paths.iter().flat_map(|path| way::to(path)).collect();
        if ways == **self.watched.load() {
            return Ok(false);
        }
        let directories: BTreeSet<PathBuf> = ways.iter().filter_map(|path| path.parent()).map(Path::to_path_buf).collect();
        self.watched.store(Arc::new(ways));
        for left in self.directories.difference(&directories) {
            // It may be gone itself.
            let _ = self.watcher.unwatch(left);
        }
        self.directories.retain(|known| directories.contains(known));
        for directory in directories {
            if !self.directories.contains(&directory) {
                let watching = self.watcher.watch(&directory, RecursiveMode::NonRecursive);
                watching.map_err(|e| format!("cannot watch {}: {e}", directory.display()))?;
                self.directories.insert(directory);
            }
        }
        Ok(true)
    }
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

impl Last {
    fn look(&mut self, paths: &[PathBuf], take: &impl Fn(&[Vec<u8>]) -> Result<(), String>) {
        // Between the writing of one file and the next, a pair may be unreadable: the event of the last one puts it right.
        let outcome = settled(paths).and_then(|contents| {
            let now = fingerprint(&contents);
            if now == self.taken || self.refused.as_ref() == Some(&now) {
                return Ok(false);
            }
            take(&contents).inspect_err(|_| self.refused = Some(now))?;
            (self.taken, self.refused) = (now, None);
            Ok(true)
        });
        match outcome {
            Ok(true) => {
                tracing::info!(file = %paths[0].display(), "configuration file reloaded");
                self.told.clear();
            }
            Ok(false) => {}
            Err(error) => self.complain(paths, error),
        }
    }

    /// Once, and again when there is something else to say.
    fn complain(&mut self, paths: &[PathBuf], error: String) {
        if error != self.told {
            tracing::warn!(file = %paths[0].display(), %error, "configuration file not reloaded; the former content stays in force");
            self.told = error;
        }
    }
}

/// Whether an event is about one of the files, or a link on the way to it. The log may well lie in the same directory, so that this is
/// asked often, and mostly for nothing.
fn concerns(event: &notify::Event, watched: &BTreeSet<PathBuf>) -> bool {
    use notify::event::{AccessKind, AccessMode, EventKind};
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => event.paths.iter().any(|path| watched.contains(path)),
        EventKind::Access(_) => false,
        // That events were lost is told without a path.
        _ => event.paths.is_empty() || event.paths.iter().any(|path| watched.contains(path)),
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
    fn only_what_is_about_the_file_or_a_link_to_it_concerns_it() {
        use notify::event::{AccessKind, CreateKind, DataChange, EventKind, Flag, ModifyKind};
        let watched = ["/etc/usher/policy.yaml", "/etc/usher/..data"].map(PathBuf::from).into();
        let about =
            |kind: EventKind, name: &str| concerns(&notify::Event::new(kind).add_path(Path::new("/etc/usher").join(name)), &watched);
        let written = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        assert!(about(written, "policy.yaml") && !about(written, "audit.log") && !about(EventKind::Create(CreateKind::Any), "audit-1.log"));
        assert!(about(EventKind::Create(CreateKind::Any), "..data") && !about(EventKind::Access(AccessKind::Any), "policy.yaml"));
        assert!(concerns(&notify::Event::new(EventKind::Other).set_flag(Flag::Rescan), &watched), "some events were lost");
    }

    #[test]
    fn a_file_behind_links_counts_anew_when_it_is_written_to_where_it_lies_and_when_a_link_is_swung_over() {
        use std::os::unix::fs::symlink;
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for made in ["etc", "far", "farther"] {
            std::fs::create_dir(at(made)).unwrap();
        }
        std::fs::write(at("far/policy"), "one").unwrap();
        symlink("../far", at("etc/..data")).unwrap();
        symlink("..data/policy", at("etc/policy")).unwrap();
        let taken = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let taker = taken.clone();
        let take = move |bytes: &[u8]| {
            taker.lock().push(String::from_utf8_lossy(bytes).into_owned());
            Ok(())
        };
        let _watch = file(&at("etc/policy"), take).unwrap();
        let swing = |to: &str, link: &str| {
            symlink(to, at("new")).unwrap();
            std::fs::rename(at("new"), at(link)).unwrap();
        };
        let counts = |content: &str| eventually(|| taken.lock().last().is_some_and(|last| last == content));
        counts("one");
        std::fs::write(at("far/policy"), "two").unwrap();
        counts("two");
        std::fs::write(at("farther/policy"), "three").unwrap();
        swing("../farther", "etc/..data");
        counts("three");
        std::fs::write(at("farther/policy"), "four").unwrap();
        counts("four");
        std::fs::write(at("own"), "five").unwrap();
        swing("../own", "etc/policy");
        counts("five");
        std::fs::write(at("own"), "six").unwrap();
        counts("six");
        assert_eq!(taken.lock().len(), 6, "{:?}", taken.lock());
    }

    #[test]
    fn a_missing_file_is_an_error_at_the_start() {
        assert!(file(Path::new("/nonexistent/tokens.csv"), |_| Ok(())).is_err());
    }
}
