//! `/usher/v1/blame/KIND/NAME`: who set each field of an object.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::records;
use super::subject::Question;
use crate::api::representation::{Representation, respond_value};
use crate::audit::story::blame::{Facts, Kept, blame};
use crate::audit::story::fields::{redact_secret, redact_within};
use crate::gateway::Gateway;
use crate::gateway::layers::Refused;
use crate::schema::default::apply_defaults;

/// How many revisions are walked through at most.
const REVISIONS: usize = 10_000;

/// Answers.
pub async fn serve(gateway: &Arc<Gateway>, request: Request<Body>) -> Result<Response, Refused> {
    let question = Question::of(&request, "/usher/v1/blame/", &["namespace", "showSecrets"])?;
    let subject = question.object(gateway).await?;
    let changes = subject.history(gateway).await?;
    let changes = &changes[changes.len().saturating_sub(REVISIONS)..];
    let ids: Vec<Arc<str>> = changes.iter().filter_map(|change| change.audit_id.clone()).collect();
    let events = records::by_audit_id(gateway, &subject, &ids).await;
    let kept: Vec<Kept> = changes
        .iter()
        .map(|change| Kept {
            revision: change.revision,
            time: Timestamp::from_microsecond(change.time).unwrap_or_default(),
            audit_id: change.audit_id.clone(),
            object: subject.value(change),
        })
        .collect();
    let resource = subject.resource.clone();
    let is_default = |object: &Value, pointer: &str| {
        let mut without = object.clone();
        remove(&mut without, pointer);
        apply_defaults(&mut without, &resource);
        without.pointer(pointer).is_some() && without.pointer(pointer) == object.pointer(pointer)
    };
    let schema = subject.resource.schema();
    let find = |id: &str| events.get(id).cloned();
    let mut told = blame(&kept, &Facts { schema: &schema, event: &find, is_default: &is_default });
    if !question.flag("showSecrets") {
        match subject.is_secret() {
            true => redact_secret(&mut told.object),
            false => redact_within(&mut told.object),
        }
        for field in &mut told.fields {
            field.value = told.object.pointer(&field.pointer).cloned().unwrap_or_default();
        }
    }
    let deleted = changes.last().is_some_and(|change| change.deleted);
    let answer = json!({"subject": subject.display(), "deleted": deleted, "object": told.object, "fields": told.fields});
    Ok(respond_value(200, &answer, Representation::JSON)?)
}

/// Takes a field out of an object; an item of a list together with the list, since the others would move up.
fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, field)) = pointer.rsplit_once('/') else { return };
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.remove(&field.replace("~1", "/").replace("~0", "~"))),
        Some(Value::Array(_)) => remove(object, parent),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_removed_alone_and_an_item_with_its_list() {
        let mut object = json!({"a": {"b/c": 1, "d": [1, 2], "e": [{"f": 1, "g": 2}]}});
        remove(&mut object, "/a/b~1c");
        remove(&mut object, "/a/d/0");
        remove(&mut object, "/a/e/0/f");
        assert_eq!(object, json!({"a": {"e": [{"g": 2}]}}));
    }
}
