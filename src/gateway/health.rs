//! `/livez`, `/readyz`, `/healthz`: whether the server is alive, and whether it is ready; `?verbose` says it check by check.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::request::query_pairs;

/// How the server is.
#[derive(Default)]
pub struct Health {
    ready: AtomicBool,
    stopping: AtomicBool,
}

/// The checks, in the order they are told.
const LIVE: &[&str] = &["ping", "log", "store"];
const READY: &[&str] = &["ping", "log", "store", "informer-sync", "poststarthook/rbac/bootstrap-roles", "shutdown"];

impl Health {
    /// Bootstrap is done.
    pub fn ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// The server is stopping; it answers, but wants no new clients.
    pub fn stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Answers a probe: `kind` is `livez`, `readyz` or `healthz`; `store` says whether the store answers.
    pub fn probe(&self, kind: &str, single: Option<&str>, query: &str, store: bool) -> (u16, String) {
        let names = if kind == "readyz" { READY } else { LIVE };
        let passes = |name: &str| match name {
            "store" => store,
            "shutdown" => !self.stopping.load(Ordering::Acquire),
            "informer-sync" | "poststarthook/rbac/bootstrap-roles" => self.ready.load(Ordering::Acquire),
            _ => true,
        };
        if let Some(name) = single {
            return match names.iter().find(|n| **n == name) {
                Some(name) if passes(name) => (200, "ok".into()),
                Some(name) => (500, format!("internal server error: {name} failed\n")),
                None => (404, "404 page not found\n".into()),
            };
        }
        let verbose = query_pairs(query).any(|(key, value)| key == "verbose" && value != "false");
        let excluded: Vec<String> = query_pairs(query).filter(|(key, _)| key == "exclude").map(|(_, value)| value).collect();
        let mut text = String::new();
        let mut failed = false;
        for name in names {
            let line = match (excluded.iter().any(|e| e == name), passes(name)) {
                (true, _) => format!("[+]{name} excluded: ok\n"),
                (_, true) => format!("[+]{name} ok\n"),
                (_, false) => {
                    failed = true;
                    format!("[-]{name} failed: reason withheld\n")
                }
            };
            text.push_str(&line);
        }
        match (failed, verbose) {
            (true, _) => (500, format!("{text}{kind} check failed\n")),
            (false, true) => (200, format!("{text}{kind} check passed\n")),
            (false, false) => (200, "ok".into()),
        }
    }
}
