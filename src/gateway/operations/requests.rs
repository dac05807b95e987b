//! `/usher/v1/requests` and `/usher/v1/stats`: what the audit archive tells. Questions run on threads that may wait, and their answers
//! are written as they are found; whoever hangs up ends them. Those that go on with what comes are in [`live`].

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderMap, HeaderValue, Request, header};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::live;
use super::subject::no_parameters;
use crate::api::representation::{Representation, header_text, respond_value};
use crate::audit::archive::{Order, Position};
use crate::audit::filter::with_group;
use crate::audit::{Archive, Event, Filter, import};
use crate::gateway::Gateway;
use crate::gateway::layers::Refused;
use crate::request::query_pairs;
use crate::status::Status;

/// How many requests are told where nothing is said; 0 asks for all of them.
const LIMIT: usize = 500;
/// How a list of requests begins; what is behind them is known when they are told.
const LIST_BEGINS: &[u8] = b"{\"kind\":\"EventList\",\"apiVersion\":\"audit.k8s.io/v1\",\"items\":[";
/// How many rows of everything statistics name.
const TOP: usize = 10;
/// How many rows may wait for a slow reader.
pub const AHEAD: usize = 64;
/// How long a question waits for requests that are still being recorded.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest line of an import.
const LONGEST_LINE: usize = 32 << 20;
/// How many events of an import are kept together.
const BATCH: usize = 256;
/// How many bad lines are told in full.
const TOLD: usize = 10;

/// What is asked, and how it is to be told.
pub struct Question {
    /// Which requests.
    pub filter: Filter,
    /// With what was traced of them.
    pub trace: bool,
    limit: usize,
    order: Order,
    after: Option<Position>,
    top: usize,
    follow: bool,
}

impl Question {
    /// Takes a filter, and what else this question may say.
    fn read(gateway: &Gateway, query: &str, besides: &[&str]) -> Result<Question, Status> {
        once(query)?;
        let now = gateway.api.clock.now();
        let (filter, order) = (Filter::default(), Order::default());
        let mut question = Question { filter, trace: true, limit: LIMIT, order, after: None, top: TOP, follow: false };
        for (key, value) in query_pairs(query) {
            let bad = |takes: &str| Status::bad_request(format!("{key} takes {takes}, not {value:?}"));
            match key.as_str() {
                "timeout" => {}
                "resource" => resource(gateway, &mut question.filter, &value)?,
                other if !besides.contains(&other) => {
                    if !question.filter.set(other, &value, now).map_err(Status::bad_request)? {
                        return Err(unknown(other, besides));
                    }
                }
                "continue" if value.is_empty() => {}
                "continue" => question.after = Some(value.parse().map_err(|()| bad("what the page before has in its metadata"))?),
                "limit" => question.limit = value.parse().map_err(|_| bad("a number"))?,
                "top" => question.top = value.parse().map_err(|_| bad("a number"))?,
                "order" => {
                    question.order = match value.as_str() {
                        "newest" => Order::NewestFirst,
                        "oldest" => Order::OldestFirst,
                        _ => return Err(bad("newest or oldest")),
                    }
                }
                "follow" => question.follow = value.parse().map_err(|_| bad("true or false"))?,
                "trace" => question.trace = value.parse().map_err(|_| bad("true or false"))?,
                other => return Err(unknown(other, besides)),
            }
        }
        if question.limit == 0 {
            question.limit = usize::MAX;
        }
        Ok(question)
    }
}

/// The refusal of a parameter that a question with a filter does not have.
pub fn unknown(parameter: &str, besides: &[&str]) -> Status {
    let known = [Filter::PARAMETERS.as_slice(), besides].concat().join(", ");
    Status::bad_request(format!("unknown parameter {parameter:?}; this takes {known}"))
}

/// Takes a resource, or several with commas between them, by any of the names that kubectl takes: `deploy`, `Deployment`,
/// `deployments.apps`. What the server does not serve is taken as it is: the records may be of another cluster.
pub fn resource(gateway: &Gateway, filter: &mut Filter, words: &str) -> Result<(), Status> {
    let table = gateway.api.registry.table();
    let meant = |word: &str| {
        let (name, subresource) = word.split_once('/').unwrap_or((word, ""));
        let Some(found) = table.resolve(name) else { return with_group(word) };
        let resource = if subresource.is_empty() { found.plural.to_string() } else { format!("{}/{subresource}", found.plural) };
        (resource, name.contains('.').then(|| found.group.to_string()))
    };
    let (resources, groups): (Vec<String>, Vec<Option<String>>) = words.split(',').map(|word| meant(word.trim())).unzip();
    let is_one = resources.len() == 1;
    for group in groups.into_iter().flatten() {
        if !is_one {
            return Err(Status::bad_request(format!("resource takes a group with one resource alone, not with several: {words:?}")));
        }
        filter.group = Some(group);
    }
    filter.resource = Some(resources.join(","));
    Ok(())
}

/// Refuses a parameter that is given twice: one of the two would count, and nobody would know which.
pub fn once(query: &str) -> Result<(), Status> {
    let mut seen = HashSet::new();
    match query_pairs(query).find(|(key, _)| !seen.insert(key.clone())) {
        Some((key, _)) => Err(Status::bad_request(format!("{key} is given more than once"))),
        None => Ok(()),
    }
}

/// How rows are written.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Framing {
    Lines,
    ServerSentEvents,
    List,
}

impl Framing {
    fn of(accept: &str) -> Framing {
        match accept {
            _ if accept.contains("text/event-stream") => Framing::ServerSentEvents,
            _ if accept.contains("application/x-ndjson") || accept.contains("application/jsonl") => Framing::Lines,
            _ => Framing::List,
        }
    }

    /// A request; `id` is what a reader of server-sent events says to be told what came after it.
    pub fn row(self, json: &[u8], id: Option<&str>, first: bool) -> Bytes {
        match self {
            Framing::Lines => [json, b"\n"].concat().into(),
            Framing::ServerSentEvents => {
                let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
                [id.as_bytes(), b"event: request\ndata: ", json, b"\n\n"].concat().into()
            }
            Framing::List if first => json.to_vec().into(),
            Framing::List => [b",", json].concat().into(),
        }
    }

    /// A word about the stream itself: that somebody fell behind, say.
    pub fn note(self, kind: &str, note: &Value) -> Bytes {
        match self {
            Framing::ServerSentEvents => format!("event: {kind}\ndata: {note}\n\n").into(),
            _ => format!("{}\n", json!({ kind: note })).into(),
        }
    }

    /// A sign of life.
    pub fn heartbeat(self) -> Bytes {
        match self {
            Framing::ServerSentEvents => Bytes::from_static(b":\n\n"),
            _ => Bytes::from_static(b"\n"),
        }
    }

    /// That what was told is not all. A list is not closed, so that nobody takes it for a whole one.
    pub fn failure(self, status: &Status) -> Bytes {
        let status = status.to_json();
        match self {
            Framing::Lines => format!("{status}\n").into(),
            Framing::ServerSentEvents => self.note("error", &status),
            Framing::List => format!("],\"error\":{status}").into(),
        }
    }

    fn respond(self, rows: impl Stream<Item = Bytes> + Send + 'static) -> Response {
        let content_type = match self {
            Framing::Lines => "application/x-ndjson",
            Framing::ServerSentEvents => "text/event-stream",
            Framing::List => "application/json",
        };
        let body = rows.map(Ok::<_, std::convert::Infallible>);
        let mut response = Response::new(Body::from_stream(body));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        response
    }
}

/// What was recorded.
pub fn archive(gateway: &Gateway) -> &Arc<Archive> {
    &gateway.audit.archive
}

/// Lets the requests that were answered before this one reach the archive: whoever was answered can ask about it.
pub async fn caught_up(gateway: &Gateway) {
    let _ = tokio::time::timeout(PATIENCE, gateway.audit.flush()).await;
}

/// `GET /usher/v1/requests`.
pub async fn list(gateway: &Arc<Gateway>, query: &str, headers: &HeaderMap) -> Result<Response, Refused> {
    let question = Question::read(gateway, query, &["limit", "continue", "order", "follow", "trace"])?;
    let framing = Framing::of(header_text(headers, header::ACCEPT));
    if question.follow {
        return match framing {
            Framing::List => Err(Status::bad_request("follow needs Accept: text/event-stream or application/x-ndjson").into()),
            framing => {
                let last = header_text(headers, header::HeaderName::from_static("last-event-id")).to_owned();
                Ok(framing.respond(live::follow(gateway, question, framing, last).await?))
            }
        };
    }
    caught_up(gateway).await;
    let (sender, mut receiver) = mpsc::channel::<Result<Bytes, Status>>(AHEAD);
    let archive = archive(gateway).clone();
    tokio::task::spawn_blocking(move || {
        let is_list = framing == Framing::List;
        let begin = |told: usize| if is_list && told == 0 { LIST_BEGINS } else { b"" };
        let (mut told, mut last, mut more) = (0, None, None);
        // One more than is asked for: whether there is a next page is known when it has begun.
        archive.scan_after(question.after, &question.filter, question.order, question.limit.saturating_add(1), |position, record| {
            if told == question.limit {
                more = last;
                return ControlFlow::Break(());
            }
            let id = live::id(record.as_event());
            let json = if question.trace { record.json() } else { record.without_trace() };
            let row = framing.row(&json, id.as_deref(), told == 0);
            let row = if begin(told).is_empty() { row } else { [begin(told), &row].concat().into() };
            (told, last) = (told + 1, Some(position));
            if sender.blocking_send(Ok(row)).is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let end = match question.filter.gave_up() {
            Some(why) => Err(Status::bad_request(why)),
            None if is_list => {
                let metadata = more.map_or_else(|| json!({}), |last| json!({"continue": last.to_string()}));
                Ok([begin(told), format!("],\"metadata\":{metadata}}}\n").as_bytes()].concat().into())
            }
            None => return,
        };
        let _ = sender.blocking_send(end);
    });
    // Until the first row is there a refusal can still be one.
    let first = receiver.recv().await.transpose()?;
    let rest = futures::stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|row| (row, receiver)) });
    let rest = rest.map(move |piece| piece.unwrap_or_else(|status| framing.failure(&status)));
    Ok(framing.respond(futures::stream::iter(first).chain(rest)))
}

/// `GET /usher/v1/requests/{audit-id}`: the last event of the request.
pub async fn get(gateway: &Arc<Gateway>, id: &str, query: &str) -> Result<Response, Refused> {
    no_parameters(query)?;
    caught_up(gateway).await;
    let filter = Filter { audit_id: Some(id.to_owned()), ..Filter::default() };
    let archive = archive(gateway).clone();
    let found = asked(move || archive.query(&filter, 1)).await?;
    match found.first() {
        Some(event) => {
            let value = serde_json::to_value(&**event).map_err(|e| Status::internal(e.to_string()))?;
            Ok(respond_value(200, &value, Representation::JSON)?)
        }
        None => Err(Status::new(404, "NotFound", format!("no request with the Audit-ID {id:?} is kept")).into()),
    }
}

/// `GET /usher/v1/stats`.
pub async fn stats(gateway: &Arc<Gateway>, query: &str) -> Result<Response, Refused> {
    let question = Question::read(gateway, query, &["top"])?;
    caught_up(gateway).await;
    let archive = archive(gateway).clone();
    let filter = question.filter.clone();
    let mut stats = asked(move || archive.stats(&filter, question.top)).await?;
    whole(&question.filter)?;
    stats.sinks = gateway.audit.missed();
    let value = serde_json::to_value(stats).map_err(|e| Status::internal(e.to_string()))?;
    Ok(respond_value(200, &value, Representation::JSON)?)
}

/// Refuses an answer that is not all, because the expression of its filter gave up.
pub fn whole(filter: &Filter) -> Result<(), Status> {
    filter.gave_up().map_or(Ok(()), |why| Err(Status::bad_request(why)))
}

/// Asks on a thread that may wait.
pub async fn asked<T: Send + 'static>(question: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(question).await.map_err(|e| Status::internal(format!("the question ended early: {e}")))
}

/// `POST /usher/v1/requests`: JSON lines of audit events, in the envelope of a cloud or without, of any number.
pub async fn import(gateway: &Arc<Gateway>, request: Request<Body>) -> Result<Response, Refused> {
    no_parameters(request.uri().query().unwrap_or_default())?;
    let archive = archive(gateway).clone();
    let before = archive.kept().lost;
    let mut body = request.into_body().into_data_stream();
    let mut import = Import::default();
    let mut rest: Vec<u8> = Vec::new();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|e| Status::bad_request(format!("error reading the request body: {e}")))?;
        let mut piece = &piece[..];
        while let Some(end) = memchr::memchr(b'\n', piece) {
            rest.extend_from_slice(&piece[..end]);
            import.line(&rest);
            rest.clear();
            piece = &piece[end + 1..];
        }
        rest.extend_from_slice(piece);
        if rest.len() > LONGEST_LINE {
            return Err(Status::new(
                413,
                "RequestEntityTooLarge",
                format!("line {} is longer than {LONGEST_LINE} bytes", import.lines + 1),
            )
            .into());
        }
        if import.events.len() >= BATCH {
            let (archive, events) = (archive.clone(), std::mem::take(&mut import.events));
            asked(move || archive.append(events)).await?;
        }
    }
    import.line(&rest);
    let (kept, events) = (archive.clone(), std::mem::take(&mut import.events));
    asked(move || kept.append(events)).await?;
    let answer = json!({"imported": import.imported, "refused": import.refused, "errors": import.errors,
        "lost": archive.kept().lost - before});
    Ok(respond_value(200, &answer, Representation::JSON)?)
}

/// An import under way.
#[derive(Default)]
struct Import {
    lines: u64,
    imported: u64,
    refused: u64,
    errors: Vec<String>,
    events: Vec<Event>,
}

impl Import {
    fn line(&mut self, line: &[u8]) {
        self.lines += 1;
        let found = import::line(&String::from_utf8_lossy(line));
        self.imported += found.events.len() as u64;
        self.events.extend(found.events);
        self.refused += found.refused.len() as u64;
        let room = TOLD.saturating_sub(self.errors.len());
        self.errors.extend(found.refused.iter().take(room).map(|why| format!("line {}: {why}", self.lines)));
    }
}
