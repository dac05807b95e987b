//! Who asked, for whom, and about what, less the tokens that a client put there: a name in a path, the id of a request, a user that is
//! impersonated, or one of its extras may be anything, also a credential. Whoever is called like one is told without it.

use serde_json::Value;

use super::Event;
use super::event::{ObjectReference, UserInfo};
use super::redact::MASK;
use super::{named, web_tokens};
use crate::request::Step;

/// No token is shorter than this, and hardly any name is longer.
const SHORTEST: usize = 32;

/// Extras in which the server says what it knows of a credential, never the credential.
const OWN: &str = "authentication.kubernetes.io/";

/// Masks tokens in what an event says of users and objects.
pub fn mask(event: &mut Event) {
    user(&mut event.user);
    event.impersonated_user.iter_mut().for_each(user);
    event.object_ref.iter_mut().for_each(reference);
    text(&mut event.audit_id);
    event.trace.iter_mut().flat_map(|story| &mut story.steps).for_each(step);
}

/// A step is called after the user who is impersonated, and says what would have been needed.
fn step(step: &mut Step) {
    for told in [&mut step.name, &mut step.verdict] {
        if told.len() >= SHORTEST {
            text(told.to_mut());
        }
    }
    let needed = step.detail.as_mut().and_then(|detail| detail.get_mut("needed")).and_then(Value::as_object_mut);
    for told in needed.into_iter().flat_map(|needed| needed.values_mut()) {
        if let Value::String(told) = told {
            text(told);
        }
    }
}

fn user(user: &mut UserInfo) {
    [&mut user.username, &mut user.uid].into_iter().chain(&mut user.groups).for_each(text);
    for (key, values) in &mut user.extra {
        values.iter_mut().for_each(|value| extra(key, value));
    }
}

/// Masks a credential that is an extra of a user.
pub fn extra(key: &str, value: &mut String) {
    let own = key.starts_with(OWN);
    match !own && (named::is_credential(key) || named::is_authorization(value)) {
        true => *value = MASK.to_owned(),
        false => text(value),
    }
}

fn reference(object: &mut ObjectReference) {
    let ObjectReference { resource, namespace, name, uid, api_group, api_version, resource_version, subresource } = object;
    [resource, namespace, name, uid, api_group, api_version, resource_version, subresource].into_iter().for_each(text);
}

fn text(text: &mut String) {
    if text.len() >= SHORTEST {
        web_tokens::mask(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJzdWIiOiJhIn0.c2lnbmF0dXJl";

    #[test]
    fn a_token_in_a_name_or_an_extra_goes_and_what_the_server_knows_of_a_credential_stays() {
        let extras = [
            ("authentication.kubernetes.io/credential-id", "JTI=9914cbbd-dab4-4ca3-bd90-436d0012bcc6"),
            ("access-token", "planted"),
            ("header", "Bearer planted"),
            ("note", TOKEN),
            ("scopes", "openid profile"),
        ];
        let extra = extras.map(|(key, value)| (key.to_owned(), vec![value.to_owned()]));
        let asked =
            UserInfo { username: format!("u-{TOKEN}"), groups: vec!["g".into(), TOKEN.into()], extra: extra.into(), ..UserInfo::default() };
        let object = ObjectReference { name: TOKEN.into(), api_group: TOKEN.into(), resource: "pods".into(), ..ObjectReference::default() };
        let mut event = Event { impersonated_user: Some(asked), object_ref: Some(object), audit_id: TOKEN.into(), ..Event::default() };
        mask(&mut event);
        assert_eq!(event.audit_id, MASK);
        let user = event.impersonated_user.unwrap();
        assert_eq!((user.username.as_str(), user.groups), ("u-[redacted]", vec!["g".to_owned(), MASK.to_owned()]));
        let told: Vec<&str> = user.extra.values().map(|values| values[0].as_str()).collect();
        assert_eq!(told, [MASK, "JTI=9914cbbd-dab4-4ca3-bd90-436d0012bcc6", MASK, MASK, "openid profile"]);
        let object = event.object_ref.unwrap();
        assert_eq!([object.name.as_str(), &object.api_group, &object.resource], [MASK, MASK, "pods"]);
    }
}
