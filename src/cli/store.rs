//! `usher snapshot`, `usher store`, `usher fork`: the store as operators see it.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use futures::AsyncReadExt;

use super::client::{Reach, block_on};
use super::output;
use crate::store::At;
use crate::store::redb::operations;

pub(super) const SNAPSHOT_EXAMPLES: &str =
    "Examples:\n  usher snapshot save backup.snapshot\n  usher snapshot restore backup.snapshot --data-dir restored";
pub(super) const STORE_EXAMPLES: &str = "Examples:\n  usher store check\n  usher store dump --prefix /registry/pods/default/";
pub(super) const FORK_EXAMPLES: &str = "Examples:\n  usher fork --to experiment && usher up --data-dir experiment --listen 127.0.0.1:7443";

/// The file of a data directory.
fn file(data_dir: &Path) -> PathBuf {
    data_dir.join(crate::store::redb::FILE)
}

/// Save or restore a snapshot.
#[derive(Debug, Subcommand)]
pub enum Snapshot {
    /// Write a consistent copy of a running server's store to a file
    Save {
        /// Where to write it; must not exist
        file: PathBuf,
        #[command(flatten)]
        reach: Reach,
    },
    /// Make a data directory of a snapshot
    Restore {
        /// The snapshot
        file: PathBuf,
        /// The data directory to make; must hold no store
        #[arg(long, value_name = "DIR", default_value = super::config::DATA_DIR)]
        data_dir: PathBuf,
    },
}

impl Snapshot {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        match self {
            Snapshot::Save { file, reach } => block_on(save(file, reach)),
            Snapshot::Restore { file, data_dir } => {
                let report = operations::restore(&file, &data_dir).map_err(|e| e.to_string())?;
                output::line(&format!("restored {} to {}: {}", file.display(), data_dir.display(), told(&report)))
            }
        }
    }
}

fn told(report: &operations::Report) -> String {
    let closed = if report.closed { "closed in good order" } else { "not closed; the next start repairs it" };
    format!(
        "{} objects at revision {}, history from {} in {} bytes, {} bytes in all, {closed}",
        report.objects, report.revision, report.floor, report.history_bytes, report.file_bytes
    )
}

async fn save(path: PathBuf, reach: Reach) -> Result<(), String> {
    let bad = |error: &dyn std::fmt::Display| format!("cannot save {}: {error}", path.display());
    let client = reach.client().await?;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path).map_err(|e| bad(&e))?;
    let request = http::Request::get("/usher/v1/snapshot").body(Vec::new()).map_err(|e| bad(&e))?;
    let mut total = 0;
    let copied: Result<(), String> = async {
        let mut stream = std::pin::pin!(client.request_stream(request).await.map_err(|e| bad(&e))?);
        let mut piece = vec![0; 256 << 10];
        loop {
            let read = stream.read(&mut piece).await.map_err(|e| bad(&e))?;
            if read == 0 {
                return file.sync_all().map_err(|e| bad(&e));
            }
            file.write_all(&piece[..read]).map_err(|e| bad(&e))?;
            total += read;
        }
    }
    .await;
    if copied.is_err() {
        // Half a snapshot is worse than none.
        let _ = std::fs::remove_file(&path);
    }
    copied?;
    output::line(&format!("saved {} ({total} bytes)", path.display()))
}

/// Look into a store that no server has open.
#[derive(Debug, Subcommand)]
pub enum Store {
    /// Verify the file
    Check(Which),
    /// Print keys and objects as JSON lines
    Dump {
        #[command(flatten)]
        which: Which,
        /// Only keys that begin with this
        #[arg(long, default_value = "/registry/")]
        prefix: String,
        /// The state at this revision instead of the newest
        #[arg(long, value_name = "REVISION")]
        at: Option<u64>,
    },
}

/// Which store.
#[derive(Debug, Args)]
pub struct Which {
    /// The data directory
    #[arg(long, value_name = "DIR", env = "USHER_DATA_DIR", default_value = super::config::DATA_DIR)]
    data_dir: PathBuf,
}

impl Store {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        match self {
            Store::Check(which) => {
                let report = operations::check(&file(&which.data_dir)).map_err(|e| e.to_string())?;
                let path = file(&which.data_dir);
                // Of a file that could not be read as far as its figures, there are none to tell.
                if report.problems.is_empty() || report.revision > 0 {
                    output::line(&format!("{}: {}", path.display(), told(&report)))?;
                }
                match report.problems.as_slice() {
                    [] => Ok(()),
                    problems => Err(format!("{} is damaged:\n  {}", path.display(), problems.join("\n  "))),
                }
            }
            Store::Dump { which, prefix, at } => {
                let at = at.map_or(At::Newest, At::Revision);
                let dump = operations::dump(&file(&which.data_dir), &prefix, at).map_err(|e| e.to_string())?;
                let mut out = std::io::BufWriter::new(std::io::stdout().lock());
                for entry in dump {
                    let entry = entry.map_err(|e| e.to_string())?;
                    let value: serde_json::Value = serde_json::from_slice(&entry.value).unwrap_or_default();
                    let line = serde_json::json!({"key": &*entry.key, "revision": entry.revision, "value": value});
                    if writeln!(out, "{line}").is_err() {
                        // The reader has seen enough.
                        return Ok(());
                    }
                }
                Ok(())
            }
        }
    }
}

/// A throw-away copy of a data directory.
#[derive(Debug, Args)]
pub struct Fork {
    #[command(flatten)]
    which: Which,
    /// The directory to make; must not exist
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

impl Fork {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        operations::fork(&self.which.data_dir, &self.to).map_err(|e| e.to_string())?;
        output::line(&format!("forked {} to {}", self.which.data_dir.display(), self.to.display()))
    }
}
