//! Which Kubernetes this is on the wire, and which Usher.

use serde_json::{Value, json};

/// The Kubernetes version whose behaviour is served.
pub const KUBERNETES: &str = "v1.37.0";

/// This program's version.
pub const USHER: &str = env!("CARGO_PKG_VERSION");

/// What `/version` answers.
pub fn info() -> Value {
    json!({
        "major": "1", "minor": "37", "emulationMajor": "1", "emulationMinor": "37",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "36",
        "gitVersion": format!("{KUBERNETES}+usher.{USHER}"), "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "go1.27.3", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" }),
    })
}
