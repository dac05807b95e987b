//! What follows from the recorded requests: `/usher/v1/rbac`, the smallest roles that allow what a user did, and `/usher/v1/what-if`, what an
//! audit policy would have recorded. The work is done here, where the records are: a client gets the answer and not a million events.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use serde_json::json;

use super::requests::{archive, asked, caught_up, once, resource, unknown, whole};
use crate::api::representation::{Representation, respond_value};
use crate::audit::archive::Order;
use crate::audit::rbac::{Options, Usage, role_name};
use crate::audit::what_if::Outcome;
use crate::audit::{Event, Filter, Policy};
use crate::gateway::Gateway;
use crate::gateway::layers::Refused;
use crate::request::query_pairs;
use crate::status::Status;

/// The longest audit policy.
const LONGEST_POLICY: usize = 3 << 20;

/// How many events are handed over at once, and how many such batches may wait.
const BATCH: usize = 256;
const AHEAD: usize = 4;

/// What a question says besides its filter.
#[derive(Default)]
struct Question {
    filter: Filter,
    name: Option<String>,
    options: Options,
}

impl Question {
    /// Takes a filter, and what else this question may say.
    fn read(gateway: &Gateway, query: &str, besides: &[&str]) -> Result<Question, Status> {
        once(query)?;
        let mut question = Question::default();
        for (key, value) in query_pairs(query) {
            let flag = || match value.as_str() {
                "" | "1" | "true" => Ok(true),
                "0" | "false" => Ok(false),
                _ => Err(Status::bad_request(format!("{key} takes true or false, not {value:?}"))),
            };
            match key.as_str() {
                "timeout" => {}
                "resource" => resource(gateway, &mut question.filter, &value)?,
                other if !besides.contains(&other) => {
                    if !question.filter.set(other, &value, gateway.api.clock.now()).map_err(Status::bad_request)? {
                        return Err(unknown(other, besides));
                    }
                }
                "roleName" => question.name = Some(value),
                "anyName" => question.options.any_name = flag()?,
                "onlyAllowed" => question.options.only_allowed = flag()?,
                "includeDefault" => question.options.include_default = flag()?,
                other => return Err(unknown(other, besides)),
            }
        }
        Ok(question)
    }
}

/// `GET /usher/v1/rbac?user=`: a List of roles and bindings, and the groups that the user was seen with.
pub async fn roles(gateway: &Arc<Gateway>, query: &str) -> Result<Response, Refused> {
    let Question { filter, name, options } = Question::read(gateway, query, &["roleName", "anyName", "onlyAllowed", "includeDefault"])?;
    let user = filter.user.clone().filter(|user| !user.is_empty()).ok_or_else(|| Status::bad_request("say whose: user="))?;
    caught_up(gateway).await;
    let (archive, seen) = (archive(gateway).clone(), filter.clone());
    let usage = asked(move || {
        let mut usage = Usage::of(&user, options);
        archive.scan(&filter, Order::OldestFirst, usize::MAX, |record| {
            usage.see(record.as_event());
            ControlFlow::Continue(())
        });
        (usage, user)
    });
    let (usage, user) = usage.await?;
    whole(&seen)?;
    if usage.is_empty() {
        return Err(Status::new(404, "NotFound", format!("no request of {user} is kept that needs a role")).into());
    }
    let roles = usage.roles(&name.unwrap_or_else(|| role_name(&user)));
    let answer = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": roles, "user": user, "groups": usage.groups,
        "notes": usage.notes()});
    Ok(respond_value(200, &answer, Representation::JSON)?)
}

/// `POST /usher/v1/what-if`, with an audit policy for its body.
pub async fn what_if(gateway: &Arc<Gateway>, request: Request<Body>) -> Result<Response, Refused> {
    let Question { filter, .. } = Question::read(gateway, request.uri().query().unwrap_or_default(), &[])?;
    let text = axum::body::to_bytes(request.into_body(), LONGEST_POLICY).await.map_err(|e| Status::bad_request(e.to_string()))?;
    let policy = Policy::parse(&text).map_err(|why| Status::bad_request(format!("the policy cannot be used: {why}")))?;
    caught_up(gateway).await;
    let (archive, seen) = (archive(gateway).clone(), filter.clone());
    // One reads, another counts: both take their time over a million.
    let (found, counted) = std::sync::mpsc::sync_channel::<Vec<Event>>(AHEAD);
    let reading = asked(move || {
        let mut batch = Vec::with_capacity(BATCH);
        archive.scan(&filter, Order::OldestFirst, usize::MAX, |record| {
            batch.push(record.event());
            let full = batch.len() >= BATCH;
            let sent = !full || found.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH))).is_ok();
            if sent { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let _ = found.send(batch);
    });
    let counting = asked(move || {
        let mut outcome = Outcome::default();
        counted.into_iter().flatten().for_each(|event| outcome.see(&policy, event));
        outcome
    });
    let (read, outcome) = tokio::join!(reading, counting);
    let outcome = read.and(outcome)?;
    whole(&seen)?;
    let answer = serde_json::to_value(outcome).map_err(|e| Status::internal(e.to_string()))?;
    Ok(respond_value(200, &answer, Representation::JSON)?)
}
