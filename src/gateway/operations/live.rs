//! `/usher/v1/requests?follow=true`: requests as they end. Whoever comes back with the `Last-Event-ID` of server-sent events is first
//! told what the archive has behind it, so that a connection that broke loses nothing.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};

use super::requests::{AHEAD, Framing, Question, archive, asked, caught_up};
use crate::audit::archive::{Order, Position};
use crate::audit::{Event, Filter};
use crate::gateway::Gateway;
use crate::status::Status;

/// How often a silent stream says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How many requests are made up for at most; whoever was away for longer asks for a list.
const MOST: usize = 10_000;
/// As many as can be told twice: what was read from the archive, and waits in the channel as well.
const TWICE: usize = 2_048;

/// What names an event in a stream: its stage and its Audit-ID, of which other clusters and clients may have made anything.
pub fn id(event: &Event) -> Option<String> {
    let plain = !event.audit_id.is_empty() && !event.audit_id.chars().any(char::is_control);
    plain.then(|| format!("{:?}/{}", event.stage, event.audit_id))
}

/// Where the event is that a reader saw last.
async fn place(gateway: &Gateway, last: &str) -> Result<Option<Position>, Status> {
    let (stage, audit_id) = last.split_once('/').unwrap_or(("", last));
    let mut filter = Filter { audit_id: Some(audit_id.to_owned()), ..Filter::default() };
    if !stage.is_empty() && filter.set("stage", stage, gateway.api.clock.now()).is_err() {
        return Ok(None);
    }
    let archive = archive(gateway).clone();
    let mut found = None;
    asked(move || {
        archive.scan_after(None, &filter, Order::NewestFirst, 1, |position, _| {
            found = Some(position);
            ControlFlow::Break(())
        });
        found
    })
    .await
}

/// One piece of what is told first: a row with the id of its request, or the rest that is too much.
enum Missed {
    Row(Bytes, Option<String>),
    TooMany,
}

/// A stream under way.
struct Following {
    question: Arc<Question>,
    framing: Framing,
    live: broadcast::Receiver<Arc<Event>>,
    missed: Option<mpsc::Receiver<Missed>>,
    /// A word to begin with.
    note: Option<Value>,
    told: HashSet<String>,
    order: VecDeque<String>,
    /// How many of those that come may have been told: what waited when the archive was read. An Audit-ID may be used again.
    waiting: Option<usize>,
    /// Whether there is nothing more to tell.
    over: bool,
}

/// Requests as they end, until the client hangs up or the server stops; `last` is the id of the one that the reader saw last, if any.
pub async fn follow(
    gateway: &Gateway,
    question: Question,
    framing: Framing,
    last: String,
) -> Result<impl Stream<Item = Bytes> + Send + 'static, Status> {
    // Followed first, so that nothing is lost between the two.
    let live = archive(gateway).follow();
    let (told, order) = (HashSet::new(), VecDeque::new());
    let mut following =
        Following { question: Arc::new(question), framing, live, missed: None, note: None, told, order, waiting: None, over: false };
    if !last.is_empty() {
        caught_up(gateway).await;
        match place(gateway, &last).await? {
            Some(position) => following.missed = Some(missed(gateway, &following, position)),
            None => following.note = Some(json!({"missed": null, "after": last})),
        }
    }
    let stop = gateway.api.shutdown.clone();
    Ok(futures::stream::unfold((following, stop), |(mut following, stop)| async move {
        let row = tokio::select! {
            () = stop.cancelled() => None,
            row = following.next() => row,
        };
        row.map(|row| (row, (following, stop)))
    }))
}

/// Reads what the archive has behind a position, on a thread that may wait for a slow reader.
fn missed(gateway: &Gateway, following: &Following, position: Position) -> mpsc::Receiver<Missed> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    let (archive, question, framing) = (archive(gateway).clone(), following.question.clone(), following.framing);
    tokio::task::spawn_blocking(move || {
        let mut left = MOST;
        archive.scan_after(Some(position), &question.filter, Order::OldestFirst, MOST + 1, |_, record| {
            let id = id(record.as_event());
            let piece = match left {
                0 => Missed::TooMany,
                _ => {
                    let json = if question.trace { record.json() } else { record.without_trace() };
                    Missed::Row(framing.row(&json, id.as_deref(), true), id)
                }
            };
            left = left.saturating_sub(1);
            if sender.blocking_send(piece).is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    });
    receiver
}

impl Following {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(note) = self.note.take() {
            return Some(self.framing.note("lagged", &note));
        }
        if let Some(missed) = &mut self.missed {
            let piece = missed.recv().await;
            self.waiting.get_or_insert(self.live.len());
            match piece {
                Some(Missed::Row(row, id)) => {
                    self.remember(id);
                    return Some(row);
                }
                Some(Missed::TooMany) => return Some(self.framing.note("lagged", &json!({"missed": null}))),
                None => self.missed = None,
            }
        }
        if self.over {
            return None;
        }
        // What is filtered out is no sign of life.
        let mut silence = std::pin::pin!(tokio::time::sleep(HEARTBEAT));
        loop {
            let event = tokio::select! {
                () = &mut silence => return Some(self.framing.heartbeat()),
                next = self.live.recv() => match next {
                    Ok(event) => event,
                    Err(broadcast::error::RecvError::Lagged(missed)) => {
                        self.passed(usize::try_from(missed).unwrap_or(usize::MAX));
                        return Some(self.framing.note("lagged", &json!({"missed": missed})));
                    }
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
            };
            let may_be_told = self.passed(1);
            if !self.question.filter.matches(&event) {
                match self.question.filter.gave_up() {
                    Some(why) => {
                        self.over = true;
                        return Some(self.framing.failure(&Status::bad_request(why)));
                    }
                    None => continue,
                }
            }
            let id = id(&event);
            if !(may_be_told && id.as_ref().is_some_and(|id| self.told.remove(id))) {
                return Some(self.framing.row(&json_of(&event, self.question.trace)?, id.as_deref(), true));
            }
        }
    }

    /// Counts what came, and says whether the first of it may have been told already.
    fn passed(&mut self, count: usize) -> bool {
        let before = self.waiting.unwrap_or(0);
        self.waiting = Some(before.saturating_sub(count));
        before > 0
    }

    /// Keeps in mind what need not be told again.
    fn remember(&mut self, id: Option<String>) {
        let Some(id) = id else { return };
        self.told.insert(id.clone());
        self.order.push_back(id);
        if self.order.len() > TWICE
            && let Some(oldest) = self.order.pop_front()
        {
            self.told.remove(&oldest);
        }
    }
}

fn json_of(event: &Arc<Event>, trace: bool) -> Option<Vec<u8>> {
    match trace {
        true => serde_json::to_vec(&**event).ok(),
        false => serde_json::to_vec(&Event { trace: None, ..Event::clone(event) }).ok(),
    }
}
