//! What it costs clients that everything is recorded: the same load on a server that records nothing and on one that records both
//! bodies of every request, in turn, so that a slow minute of the machine is everybody's. A third one writes a log file besides. A plain
//! program over TLS and HTTP/2, with every write durable. Told are medians of the rounds, and by how much a server differed from the one
//! that records nothing in the same round: the median, and between which figures the middle half of the rounds lies.
//!
//! `cargo bench --bench audit_load`; `USHER_BENCH_ROUNDS` says how many rounds, `USHER_BENCH_DIR` where the servers keep their data.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

/// How many requests are under way at a time, over so many connections.
const AT_A_TIME: usize = 32;
const CONNECTIONS: usize = 4;

/// What is done in a round, and how often.
const WORK: [(&str, usize); 4] = [("create", 6_000), ("get", 30_000), ("patch", 6_000), ("list", 2_000)];

/// The servers: what they are called, the level of their policy, whether they write a log.
const SERVERS: [(&str, &str, bool); 3] =
    [("None", "None", false), ("RequestResponse", "RequestResponse", false), ("and a log", "RequestResponse", true)];

/// What one load came to.
#[derive(Clone, Copy)]
struct Figures {
    per_second: f64,
    p99: f64,
}

struct Server {
    process: Child,
    clients: Vec<reqwest::Client>,
    url: String,
    _directory: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(parent: &Path, level: &str, log: bool) -> Server {
        let directory = tempfile::tempdir_in(parent).unwrap();
        let file = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let policy = file("policy.yaml", format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{{level: {level}}}]\n"));
        let tokens = file("tokens.csv", "load-token,load,load-uid,\"system:masters\"\n".into());
        let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
        command.args(["up", "--components", "none", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory.path().join("data"));
        command.arg("--audit-policy").arg(policy).arg("--token-auth-file").arg(tokens);
        if log {
            command.arg("--audit-log").arg(directory.path().join("audit.log"));
        }
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("https://")).expect("the server says where it is").to_owned();
        let client = || reqwest::Client::builder().tls_danger_accept_invalid_certs(true).http2_prior_knowledge().build().unwrap();
        Server { process, clients: (0..CONNECTIONS).map(|_| client()).collect(), url, _directory: directory }
    }

    /// Does so many requests, each with a number of its own from `first` on.
    async fn load(&self, work: &str, first: usize, count: usize) -> Figures {
        let next = Arc::new(AtomicUsize::new(0));
        let begin = Instant::now();
        let workers: Vec<_> = (0..AT_A_TIME)
            .map(|worker| {
                let (client, next) = (self.clients[worker % CONNECTIONS].clone(), next.clone());
                let (work, all) = (work.to_owned(), format!("{}/api/v1/namespaces/default/configmaps", self.url));
                tokio::spawn(async move {
                    let mut times = Vec::new();
                    loop {
                        let number = first + next.fetch_add(1, Ordering::Relaxed);
                        if number >= first + count {
                            return times;
                        }
                        let start = Instant::now();
                        let response = request(&client, &work, &all, number).send().await.unwrap();
                        assert!(response.status().is_success(), "{work}: {}", response.status());
                        response.bytes().await.unwrap();
                        times.push(start.elapsed());
                    }
                })
            })
            .collect();
        let mut times: Vec<Duration> = Vec::with_capacity(count);
        for worker in workers {
            times.extend(worker.await.unwrap());
        }
        let took = begin.elapsed();
        times.sort_unstable();
        Figures { per_second: count as f64 / took.as_secs_f64(), p99: times[count * 99 / 100].as_secs_f64() * 1e3 }
    }
}

fn request(client: &reqwest::Client, work: &str, all: &str, number: usize) -> reqwest::RequestBuilder {
    // There are as many gets as there may be; the objects of the first round are there in every one.
    let number = if work == "get" { number % WORK[0].1 } else { number };
    let one = format!("{all}/load-{number}");
    let (method, url, kind, body) = match work {
        "create" => {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("load-{number}")}, "data": {"text": "x".repeat(800)}});
            (Method::POST, all.to_owned(), "application/json", object.to_string())
        }
        "patch" => (Method::PATCH, one, "application/merge-patch+json", json!({"data": {"patched": number.to_string()}}).to_string()),
        "list" => (Method::GET, format!("{all}?limit=500"), "application/json", String::new()),
        _ => (Method::GET, one, "application/json", String::new()),
    };
    client.request(method, url).bearer_auth("load-token").header("content-type", kind).body(body)
}

/// A quarter, half and three quarters of the figures are at most these.
fn quartiles(figures: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| figures[(figures.len() - 1) * quarter / 4])
}

#[tokio::main]
async fn main() {
    // `cargo test --benches` wants to know only that it can be started.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let rounds: usize = std::env::var("USHER_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let parent = std::env::var("USHER_BENCH_DIR").unwrap_or_else(|_| env!("CARGO_TARGET_TMPDIR").to_owned());
    let servers = SERVERS.map(|(_, level, log)| Server::start(Path::new(&parent), level, log));
    let mut figures = vec![vec![Vec::new(); SERVERS.len()]; WORK.len()];
    // The first round warms everything up and does not count.
    for round in 0..=rounds {
        for (which, (work, count)) in WORK.into_iter().enumerate() {
            for at in 0..SERVERS.len() {
                // Each is the first of its round as often as the others.
                let at = (at + round) % SERVERS.len();
                let seen = servers[at].load(work, round * count, count).await;
                if round > 0 {
                    figures[which][at].push(seen);
                }
            }
        }
        eprint!("\rround {round} of {rounds}");
    }
    eprintln!();
    println!("{:8}{:>17}{:>12}{:>25}{:>12}{:>25}", "", "", "a second", "of None", "p99", "against None");
    for ((work, _), figures) in WORK.iter().zip(&figures) {
        for ((name, ..), seen) in SERVERS.iter().zip(figures) {
            let pairs = || seen.iter().zip(&figures[0]);
            let [_, per_second, _] = quartiles(seen.iter().map(|seen| seen.per_second));
            let [_, p99, _] = quartiles(seen.iter().map(|seen| seen.p99));
            let [low, part, high] = quartiles(pairs().map(|(seen, none)| (seen.per_second / none.per_second - 1.0) * 100.0));
            let [least, more, most] = quartiles(pairs().map(|(seen, none)| seen.p99 - none.p99));
            let (part, more) = (format!("{part:+.1}% ({low:+.1} to {high:+.1})"), format!("{more:+.2} ms ({least:+.2} to {most:+.2})"));
            println!("{work:8}{name:>17}{per_second:>12.0}{part:>25}{p99:>9.2} ms{more:>25}");
        }
    }
}
