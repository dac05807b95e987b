//! `/usher/v1/explain/AUDIT-ID` and `/usher/v1/explain/KIND/NAME`: the full story of a request, or of the last write of an object.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::Request;

use super::records;
use super::subject::Question;
use crate::api::representation::{Representation, respond_value};
use crate::audit::event::ObjectReference;
use crate::audit::story::Lane;
use crate::audit::story::explain::explain;
use crate::audit::{Event, Filter};
use crate::gateway::Gateway;
use crate::gateway::layers::Refused;
use crate::status::Status;

/// How many requests about an object are looked through for its last write.
const MOST: usize = 5_000;

/// Answers.
pub async fn serve(gateway: &Arc<Gateway>, request: Request<Body>) -> Result<Response, Refused> {
    let question = Question::of(&request, "/usher/v1/explain/", &["namespace", "denied", "any"])?;
    let event = match question.parts.as_slice() {
        [audit_id] => by_id(gateway, &question, audit_id).await?,
        [_, _] => last_write(gateway, &question).await?,
        _ => return Err(Status::bad_request("say what: an Audit-ID, or KIND/NAME").into()),
    };
    let answer = serde_json::to_value(explain(&event)).map_err(Status::internal)?;
    Ok(respond_value(200, &answer, Representation::JSON)?)
}

async fn by_id(gateway: &Gateway, question: &Question, audit_id: &str) -> Result<Arc<Event>, Refused> {
    let unknown = || Status::new(404, "NotFound", format!("no request with the Audit-ID {audit_id:?} is recorded"));
    let event = match records::one(gateway, audit_id).await {
        Some(event) => event,
        None => records::beginning_with(gateway, audit_id).await?.ok_or_else(|| Refused(unknown()))?,
    };
    if let Some((object, is_collection)) = about(&event) {
        question.may(gateway, if is_collection { "list" } else { "get" }, &object).await?;
    }
    Ok(event)
}

/// What a request was about, and whether that was a collection; `None` for a path that is no resource's.
pub fn about(event: &Event) -> Option<(ObjectReference, bool)> {
    let mut object = event.object_ref.clone().filter(|object| !object.resource.is_empty())?;
    let is_collection = object.name.is_empty() && matches!(&*event.verb, "list" | "watch" | "deletecollection");
    if let Some(wrote) = event.trace.as_ref().and_then(|story| story.wrote.as_ref()).filter(|_| !is_collection) {
        object.name = wrote.name.clone();
    }
    Some((object, is_collection))
}

/// The last write of an object, or the last that was refused: somebody's from outside, if there is one and not anybody's is asked for.
/// Components write a status many times for one wish of a client.
async fn last_write(gateway: &Gateway, question: &Question) -> Result<Arc<Event>, Refused> {
    let subject = question.object(gateway).await?;
    let code = question.flag("denied").then_some((400, 599));
    let filter = Filter { namespace: records::namespace(&subject), name: Some(subject.name.clone()), code, ..Filter::default() };
    let mut events = records::ask(gateway, filter, MOST).await;
    // Whoever removes a collection names none of its objects; the store knows who removed this one.
    let removal = subject.history(gateway).await.ok().and_then(|changes| changes.last().filter(|change| change.deleted)?.audit_id.clone());
    let removal = match removal.filter(|id| code.is_none() && events.iter().all(|event| *event.audit_id != **id)) {
        Some(id) => records::one(gateway, &id).await,
        None => None,
    };
    events.extend(removal.filter(|event| event.verb == "deletecollection"));
    let is_write = |event: &&Arc<Event>| {
        let object = event.object_ref.as_ref();
        let same = object.is_some_and(|object| object.resource == *subject.resource.plural && object.api_group == *subject.resource.group);
        same && matches!(&*event.verb, "create" | "update" | "patch" | "delete" | "deletecollection")
    };
    let by_client = |event: &&Arc<Event>| is_write(event) && Lane::of(&event.effective_user().username) == Lane::Client;
    let wished = events.iter().rev().find(by_client).filter(|_| !question.flag("any"));
    let found = wished.or_else(|| events.iter().rev().find(is_write)).cloned();
    found.ok_or_else(|| {
        let which = if question.flag("denied") { "refused write" } else { "write" };
        Status::new(404, "NotFound", format!("no {which} of {} is recorded", subject.display())).into()
    })
}
