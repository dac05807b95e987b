//! The configuration file: the same keys as the flags of `usher up`, in YAML. A flag or an environment variable wins over the file; a key
//! that does not exist is an error, not a typo that nobody notices.

use std::path::Path;

use super::up::Up;

/// Where everything is kept if nothing is said.
pub const DATA_DIR: &str = "usher-data";

/// Where the server listens unless told otherwise.
pub const LISTEN: &str = "127.0.0.1:6443";

/// Reads a configuration file.
pub fn read(path: &Path) -> Result<Up, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read the configuration {}: {e}", path.display()))?;
    let bad = |why: String| format!("{}: {why}", path.display());
    let document = crate::schema::yaml::parse(&text).map_err(bad)?;
    if let Some(line) = document.duplicates.first() {
        return Err(bad(line.clone()));
    }
    if document.value.is_null() {
        return Ok(Up::default());
    }
    serde_json::from_value(document.value).map_err(|e| bad(e.to_string()))
}
