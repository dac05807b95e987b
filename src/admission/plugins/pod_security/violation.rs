//! One thing about a Pod that a level does not allow, and the words for it.

use std::fmt;

use serde_json::Value;

use crate::admission::plugins::pod::containers;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which check.
    pub reason: &'static str,
    /// Which containers or volumes.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.is_empty() {
            true => f.write_str(self.reason),
            false => write!(f, "{} ({})", self.reason, self.detail),
        }
    }
}

/// A violation, if there is anything to tell.
pub fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    (!detail.is_empty()).then_some(Violation { reason, detail })
}

/// The names of the containers that a condition holds for.
pub fn named<'a>(spec: &'a Value, holds: impl Fn(&Value) -> bool + 'a) -> Vec<&'a str> {
    containers(spec).filter(|c| holds(c)).map(|c| c["name"].as_str().unwrap_or_default()).collect()
}

/// `container "a"` or `containers "a", "b"`.
pub fn plural(word: &str, names: &[&str]) -> String {
    let ending = if names.len() == 1 { "" } else { "s" };
    format!("{word}{ending} {}", quoted(names))
}

/// `"a", "b"`, each once.
pub fn quoted(names: &[&str]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if !seen.contains(name) {
            seen.push(name);
        }
    }
    let quoted: Vec<String> = seen.iter().map(|name| format!("{name:?}")).collect();
    quoted.join(", ")
}

/// `pod`, `container "a"`, or `pod and containers "a", "b"`: who set something.
pub fn setters(pod: bool, names: &[&str]) -> String {
    match (pod, names.is_empty()) {
        (true, true) => "pod".into(),
        (true, false) => format!("pod and {}", plural("container", names)),
        (false, true) => String::new(),
        (false, false) => plural("container", names),
    }
}

/// Whether the Pod is for Windows, where some of the standards mean nothing.
pub fn is_windows(spec: &Value) -> bool {
    spec["os"]["name"] == "windows"
}
