//! `usher audit`: what the archive of a running server tells about who did what. Talks to the server as kubectl does.

mod import;
mod query;
mod rbac;
mod row;
mod stats;
mod tail;
mod utf16;
mod what_if;

use std::pin::Pin;

use clap::{Args, Subcommand, ValueEnum};
use futures::{AsyncBufReadExt, Stream, StreamExt, TryStreamExt};
use serde::de::DeserializeOwned;

use super::client::{Reach, block_on, sentence};
use super::output::Format;

pub(super) const EXAMPLES: &str = "Examples:
  usher audit tail --decision forbid                          what is refused, as it happens
  usher audit query --resource pods --verb delete --since 1h  who deleted Pods
  usher audit query --filter 'event.verb == \"create\" && event.userAgent.startsWith(\"helm\")'
  usher audit stats --since 10m                               who asks most, what is slow
  usher audit rbac --user jane | kubectl apply -f -           the smallest roles for what jane does
  usher audit import audit.log.gz                             the audit log of another cluster
  usher audit what-if --policy policy.yaml --since 1d         what a policy would have had";

/// What to ask.
#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Show requests as they end
    #[command(after_help = tail::EXAMPLES)]
    Tail(tail::Tail),
    /// Show the requests that are kept
    #[command(after_help = query::EXAMPLES)]
    Query(query::Query),
    /// Count them: top users, what is denied, what is slow, how long requests take
    #[command(after_help = stats::EXAMPLES)]
    Stats(stats::Stats),
    /// Write the smallest roles that allow what a user was seen to do
    #[command(after_help = rbac::EXAMPLES)]
    Rbac(rbac::Rbac),
    /// Read the audit log of another cluster into the archive
    #[command(after_help = import::EXAMPLES)]
    Import(import::Import),
    /// Tell what an audit policy would have recorded, and how much
    #[command(after_help = what_if::EXAMPLES)]
    WhatIf(what_if::WhatIf),
}

impl Audit {
    /// Asks it.
    pub fn run(self) -> Result<(), String> {
        match self {
            Audit::Tail(command) => block_on(command.run()),
            Audit::Query(command) => block_on(command.run()),
            Audit::Stats(command) => block_on(command.run()),
            Audit::Rbac(command) => block_on(command.run()),
            Audit::Import(command) => block_on(command.run()),
            Audit::WhatIf(command) => block_on(command.run()),
        }
    }
}

/// Which requests: all that is given must hold.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Which requests")]
pub struct Which {
    /// The user, as authenticated or as impersonated
    #[arg(long)]
    user: Option<String>,
    /// The verb, or several: get,list
    #[arg(long)]
    verb: Option<String>,
    /// The resource, as kubectl takes it: pods, po, deployments.apps; or pods/log, pods/*, */status, *; or several: po,svc
    #[arg(long)]
    resource: Option<String>,
    /// The API group; empty for the core group
    #[arg(long)]
    group: Option<String>,
    /// The namespace
    #[arg(long, short)]
    namespace: Option<String>,
    /// The object's name
    #[arg(long)]
    name: Option<String>,
    /// The HTTP status: 403, 4xx, 400-499
    #[arg(long)]
    code: Option<String>,
    /// What authorisation said: allow, forbid
    #[arg(long)]
    decision: Option<String>,
    /// An admission policy that had a say
    #[arg(long)]
    policy: Option<String>,
    /// An admission webhook, or its configuration, that had a say
    #[arg(long)]
    webhook: Option<String>,
    /// Not before: a time (2026-05-01T12:00:00Z), a date, or so long ago (10m, 2d)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// Before: a time, a date, or so long ago
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<String>,
    /// The request's Audit-ID
    #[arg(long, value_name = "ID")]
    audit_id: Option<String>,
    /// The uid of the object that was written
    #[arg(long)]
    uid: Option<String>,
    /// The uid of an owner of the object that was written
    #[arg(long, value_name = "UID")]
    owner: Option<String>,
    /// Took at least so long: 100ms, 2s
    #[arg(long, value_name = "DURATION")]
    slower_than: Option<String>,
    /// The stage: RequestReceived, ResponseStarted, ResponseComplete, Panic
    #[arg(long)]
    stage: Option<String>,
    /// A CEL expression over `event`, an audit.k8s.io/v1 Event with its trace
    #[arg(long, value_name = "CEL")]
    filter: Option<String>,
}

impl Which {
    /// As the query of a URL, with what else is asked.
    fn query(&self, more: &[(&str, &str)]) -> String {
        let given = [
            ("user", &self.user),
            ("verb", &self.verb),
            ("resource", &self.resource),
            ("group", &self.group),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("code", &self.code),
            ("decision", &self.decision),
            ("policy", &self.policy),
            ("webhook", &self.webhook),
            ("since", &self.since),
            ("until", &self.until),
            ("audit-id", &self.audit_id),
            ("uid", &self.uid),
            ("owner", &self.owner),
            ("slower-than", &self.slower_than),
            ("stage", &self.stage),
            ("filter", &self.filter),
        ];
        let given = given.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?)));
        let pairs: Vec<String> = given.chain(more.iter().copied()).map(|(key, value)| format!("{key}={}", encode(value))).collect();
        pairs.join("&")
    }
}

/// Percent-encodes a value of a query.
fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Which server, and how its answer is written.
#[derive(Debug, Args)]
pub struct Ask {
    #[command(flatten)]
    reach: Reach,
    /// How to write it
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// How requests are written, one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Rows {
    /// For people
    #[default]
    Human,
    /// For people, with Audit-IDs
    Wide,
    /// One JSON document
    Json,
    /// YAML documents
    Yaml,
    /// One JSON document a line
    Jsonl,
}

/// A document of the server.
async fn document(client: &kube::Client, path: &str) -> Result<serde_json::Value, String> {
    let request = http::Request::get(path).body(Vec::new()).map_err(|e| e.to_string())?;
    client.request(request).await.map_err(sentence)
}

/// JSON lines of the server, as they come.
type Lines = Pin<Box<dyn Stream<Item = Result<String, String>> + Send>>;

/// Asks for JSON lines, with what more there is to say; empty ones are left out.
async fn lines(client: &kube::Client, path: &str, headers: &[(&str, &str)]) -> Result<Lines, kube::Error> {
    let mut request = http::Request::get(path).header(http::header::ACCEPT, "application/x-ndjson");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let stream = client.request_stream(request.body(Vec::new()).map_err(kube::Error::HttpError)?).await?;
    let lines = Box::pin(stream).lines().map_err(|e| format!("the answer ended early: {e}"));
    Ok(Box::pin(lines.filter(|line| std::future::ready(!line.as_ref().is_ok_and(|line| line.trim().is_empty())))))
}

/// An event of a line, or what else is said in its place; that the answer is not all, where the line says that.
fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(something_else)?;
    match value["kind"] == "Status" {
        true => Err(value["message"].as_str().unwrap_or("the answer ended early").to_owned()),
        false => serde_json::from_value(value).map_err(something_else),
    }
}

fn something_else(error: serde_json::Error) -> String {
    format!("the server answered something else: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_understood_by_the_server_as_it_was_meant() {
        let which = Which { filter: Some("event.verb == 'get' && 1+1 > 0".into()), group: Some(String::new()), ..Which::default() };
        let query = which.query(&[("limit", "5")]);
        let pairs: Vec<_> = crate::request::query_pairs(&query).collect();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(pairs, [pair("group", ""), pair("filter", "event.verb == 'get' && 1+1 > 0"), pair("limit", "5")]);
    }
}
