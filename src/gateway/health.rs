//! `/livez`, `/readyz`, `/healthz`: whether the server is alive, and whether it is ready; `?verbose` says it check by check.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::request::query_pairs;

/// How the server is.
#[derive(Default)]
pub struct Health {
    ready: AtomicBool,
    stopping: AtomicBool,
}

/// The checks, in the order they are told. The store has the name under which clients ask for it, whatever it is.
const STORE: &str = "etcd";
const LIVE: &[&str] = &["ping", "log", STORE];
const READY: &[&str] = &["ping", "log", STORE, "etcd-readiness", "informer-sync", "poststarthook/rbac/bootstrap-roles", "shutdown"];

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
            STORE | "etcd-readiness" => store,
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
        let verbose = query_pairs(query).any(|(key, _)| key == "verbose");
        let excluded: Vec<String> = query_pairs(query).filter(|(key, _)| key == "exclude").map(|(_, value)| value).collect();
        let unknown: Vec<String> = excluded.iter().filter(|name| !names.contains(&name.as_str())).map(|name| format!("{name:?}")).collect();
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
        if !unknown.is_empty() {
            text.push_str(&format!("warn: some health checks cannot be excluded: no matches for {}\n", unknown.join(",")));
        }
        match (failed, verbose) {
            (true, _) => (500, format!("{text}{kind} check failed\n")),
            (false, true) => (200, format!("{text}{kind} check passed\n")),
            (false, false) => (200, "ok".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_have_the_names_that_clients_ask_for() {
        let health = Health::default();
        health.ready();
        assert_eq!(health.probe("livez", None, "", true), (200, "ok".into()));
        assert_eq!(health.probe("readyz", Some("etcd"), "", true), (200, "ok".into()));
        assert_eq!(health.probe("readyz", Some("poststarthook/rbac/bootstrap-roles"), "", true).0, 200);
        assert_eq!(health.probe("livez", Some("store"), "", true), (404, "404 page not found\n".into()));
        let told = "[+]ping ok\n[+]log excluded: ok\n[+]etcd ok\n\
                    warn: some health checks cannot be excluded: no matches for \"disk\"\nlivez check passed\n";
        assert_eq!(health.probe("livez", None, "verbose=false&exclude=log&exclude=disk", true), (200, told.into()));
        let (code, told) = health.probe("livez", None, "", false);
        assert!(code == 500 && told.contains("[-]etcd failed: reason withheld\n") && told.ends_with("livez check failed\n"));
        assert_eq!(health.probe("livez", None, "exclude=etcd", false).0, 200);
    }
}
