//! What an event of another server tells beyond its fields, in the form of a trace: what was written, read off the answer, so that what
//! belongs together is found by uid and owner; and who judged it, read off the annotations of admission. Nothing is guessed: an event of
//! level Metadata has no answer, and times of single steps are known to nobody.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::event::Wrote;
use super::super::{Event, Json, Story};
use crate::request::Step;

/// More rounds than any server makes.
const ROUNDS: usize = 10;

/// The story of an event, if it tells any.
pub fn of(event: &Event) -> Option<Box<Story>> {
    let (wrote, steps) = (wrote(event), steps(event));
    (wrote.is_some() || !steps.is_empty()).then(|| Box::new(Story { took: event.took(), steps, wrote, ..Story::default() }))
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// What the answer of a write tells of the object.
fn wrote(event: &Event) -> Option<Wrote> {
    let is_write = matches!(&*event.verb, "create" | "update" | "patch" | "delete") && (200..300).contains(&event.code());
    let answer = event.response_object.as_ref().filter(|_| is_write).and_then(Json::value)?;
    let wrote = match answer["kind"] == "Status" && answer["apiVersion"] == "v1" {
        // What a delete leaves nothing of is answered with its name and its uid.
        true => Wrote {
            kind: text(&answer, "/details/kind"),
            name: text(&answer, "/details/name"),
            uid: text(&answer, "/details/uid"),
            deleted: event.verb == "delete",
            ..Wrote::default()
        },
        false => Wrote {
            revision: text(&answer, "/metadata/resourceVersion").parse().unwrap_or_default(),
            kind: text(&answer, "/kind"),
            name: text(&answer, "/metadata/name"),
            uid: text(&answer, "/metadata/uid"),
            owners: answer["metadata"]["ownerReferences"].as_array().into_iter().flatten().map(|owner| text(owner, "/uid")).collect(),
            deleted: event.verb == "delete" && answer["metadata"]["deletionTimestamp"].is_null(),
        },
    };
    (!wrote.uid.is_empty()).then_some(wrote)
}

/// Who judged it: the webhooks by round, then the policies that a validation failed.
fn steps(event: &Event) -> Vec<Step> {
    let step = |hop: &'static str, name: String, verdict: &'static str, detail: Value| Step {
        hop: hop.into(),
        name: name.into(),
        verdict: verdict.into(),
        detail: Some(detail),
        at: Duration::ZERO,
        took: Duration::ZERO,
    };
    let mut calls: BTreeMap<(usize, usize), Value> = BTreeMap::new();
    for (key, value) in &event.annotations {
        let place = ["mutation", "patch"].iter().find_map(|what| key.strip_prefix(&format!("{what}.webhook.admission.k8s.io/round_")));
        let place = place.and_then(|place| place.split_once("_index_"));
        let (Some((Ok(round), Ok(index))), Ok(Value::Object(call))) =
            (place.map(|(round, index)| (round.parse(), index.parse())), serde_json::from_str(value))
        else {
            continue;
        };
        let known = calls.entry((round, index)).or_insert_with(|| json!({}));
        if let Value::Object(known) = known {
            known.extend(call);
        }
    }
    let mut steps: Vec<Step> = Vec::new();
    let mut current = 0;
    for ((round, _), mut call) in calls {
        // The plugin ends each of its rounds with a step of its own.
        while current < round.min(ROUNDS) {
            steps.push(step("mutate", "MutatingAdmissionWebhook".into(), "admitted", json!({})));
            current += 1;
        }
        let (name, verdict) = (text(&call, "/webhook"), if call["mutated"] == false { "allowed" } else { "mutated" });
        if let Value::Object(call) = &mut call {
            call.retain(|field, _| field == "configuration" || field == "patch");
        }
        steps.push(step("mutate", name, verdict, call));
    }
    let failures = event.annotations.get("validation.policy.admission.k8s.io/validation_failure");
    for failure in failures.and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok()).unwrap_or_default() {
        let deny = failure["validationActions"].as_array().is_some_and(|actions| actions.iter().any(|action| action == "Deny"));
        let detail = json!({"binding": failure["binding"], "message": failure["message"]});
        steps.push(step("validate", text(&failure, "/policy"), if deny { "denied" } else { "noted" }, detail));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(value: Value) -> Event {
        let mut event =
            json!({"kind": "Event", "auditID": "a", "verb": "create", "requestURI": "/x", "responseStatus": {"metadata": {}, "code": 201}});
        event.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn the_answer_of_a_write_tells_what_was_written_and_whose_it_is() {
        let object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "uid": "u", "resourceVersion": "7", "ownerReferences": [{"uid": "o"}]}});
        let told = of(&event(json!({"responseObject": object}))).unwrap().wrote.unwrap();
        let expected =
            Wrote { revision: 7, kind: "Pod".into(), name: "p".into(), uid: "u".into(), owners: vec!["o".into()], deleted: false };
        assert_eq!(told, expected);
        let gone = json!({"kind": "Status", "apiVersion": "v1", "details": {"name": "p", "kind": "pods", "uid": "u"}});
        let told = of(&event(json!({"verb": "delete", "responseObject": gone}))).unwrap().wrote.unwrap();
        assert!(told.deleted && told.uid == "u");
        assert!(of(&event(json!({}))).is_none(), "level Metadata");
    }

    #[test]
    fn webhooks_have_their_patches_and_rounds_and_policies_their_failures() {
        let call = |webhook: &str, more: &str| format!("{{\"configuration\":\"c\",\"webhook\":\"{webhook}\",{more}}}");
        let patch = "\"patch\":[{\"op\":\"add\",\"path\":\"/a\",\"value\":1}],\"patchType\":\"JSONPatch\"";
        let story = of(&event(json!({"annotations": {
            "mutation.webhook.admission.k8s.io/round_0_index_0": call("w", "\"mutated\":true"),
            "patch.webhook.admission.k8s.io/round_0_index_0": call("w", patch),
            "mutation.webhook.admission.k8s.io/round_1_index_0": call("w", "\"mutated\":false"),
            "validation.policy.admission.k8s.io/validation_failure":
                "[{\"message\":\"no\",\"policy\":\"p\",\"binding\":\"b\",\"validationActions\":[\"Deny\"]}]",
        }})))
        .unwrap();
        let told: Vec<_> = story.steps.iter().map(|step| format!("{} {}", step.name, step.verdict)).collect();
        assert_eq!(told, ["w mutated", "MutatingAdmissionWebhook admitted", "w allowed", "p denied"]);
        assert_eq!(story.steps[0].detail.as_ref().unwrap()["patch"][0]["path"], "/a");
        assert_eq!(crate::audit::story::blame::round(&story.steps, 2), 1);
    }
}
