//! What never gets into a record, whatever the policy says: the data of a Secret, tokens, private keys. Keys stay, so that one sees
//! that something was there; values become `[redacted]`. This is stricter than a real server, which records what its policy asks for.
//!
//! Two nets, one behind the other: places that are known to hold secrets are masked here ([`object`], [`patch`], [`story`]; by their names, in [`named`](super::named)),
//! and the values that a request about Secrets brought along are looked for in everything else that is told of it
//! ([`Secrets`](super::quoted::Secrets)): the message of a policy may well quote what it refused.

use serde_json::Value;

use super::quoted::Secrets;
use super::record::PATCH_ANNOTATION;
use super::signs::{STRING_DATA, begins_somewhere, holds_private_key, is_credential};
use super::{Event, Story, known_fields, manifests, notation, patches, web_tokens};
use crate::request::RequestInfo;

/// What stands in the place of a secret.
pub const MASK: &str = "[redacted]";

/// The annotation in which `kubectl apply` keeps the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether a request is about Secrets.
pub fn is_about_secrets(info: &RequestInfo) -> bool {
    info.resource == "secrets" && info.group.is_empty()
}

/// Whether what a request carries or is answered with is secret.
pub fn is_sensitive(info: &RequestInfo) -> bool {
    is_about_secrets(info) || info.resource == "tokenreviews" || info.subresource == "token"
}

/// Masks what is secret in the body of a request.
pub fn request(info: &RequestInfo, value: &mut Value) {
    match info.verb == "patch" && is_about_secrets(info) {
        true => {
            change(value);
            credentials(value);
        }
        false => object(info, value),
    }
}

/// Masks what is secret in an object, be it the body of a request or of a response.
pub fn object(info: &RequestInfo, value: &mut Value) {
    let about_secrets = is_about_secrets(info);
    match value {
        Value::Array(_) if about_secrets => change(value),
        Value::Array(_) => embedded(value),
        _ => document(value, about_secrets),
    }
    known_fields::mask(info, value);
    credentials(value);
}

/// Masks what an object that is no Secret holds of Secrets and credentials.
pub fn within(object: &mut Value) {
    document(object, false);
    credentials(object);
}

/// Masks what is secret in what is told of a request's way; `guarded` if it met Secrets that it is not about, such as the parameters
/// of a policy.
pub fn story(info: &RequestInfo, guarded: bool, story: &mut Story) {
    let sensitive = guarded || is_sensitive(info);
    // Who asked and whether they may is told without anything that the request brought along.
    let admitted = story.steps.iter_mut().filter(|step| !matches!(&*step.hop, "authenticate" | "authorize"));
    for detail in admitted.filter_map(|step| step.detail.as_mut()) {
        if let Some(patch) = detail.get_mut("patch").filter(|_| sensitive) {
            self::patch(info, patch);
        }
        if sensitive {
            values(detail);
            detail.get_mut("further").and_then(Value::as_array_mut).into_iter().flatten().for_each(values);
        }
        embedded(detail);
        credentials(detail);
    }
}

/// The parts of an expression stay, what they came to goes.
fn values(detail: &mut Value) {
    for part in detail.get_mut("values").and_then(Value::as_array_mut).into_iter().flatten() {
        part.get_mut("value").into_iter().for_each(mask);
    }
}

/// Masks what is secret in what a webhook or a policy changed in the object of a request.
pub fn patch(info: &RequestInfo, patch: &mut Value) {
    match is_about_secrets(info) {
        true => change(patch),
        false => object(info, patch),
    }
}

/// Whether an object calls itself a Secret or a list of them; of other groups' kinds of that name nothing is known.
pub fn is_secret(object: &Value) -> bool {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    matches!(text("kind"), "Secret" | "SecretList") && matches!(text("apiVersion"), "" | "v1")
}

fn document(value: &mut Value, secret: bool) {
    let secret = secret || is_secret(value);
    if secret {
        copies(value);
    }
    let Some(map) = value.as_object_mut() else { return };
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if secret {
        for field in ["data", "stringData"] {
            if let Some(data) = map.get_mut(field) {
                mask_data(data);
            }
        }
    }
    let token = match kind.as_str() {
        "TokenRequest" => map.get_mut("status"),
        "TokenReview" => map.get_mut("spec"),
        _ => None,
    };
    if let Some(token) = token.and_then(|part| part.get_mut("token")) {
        mask(token);
    }
    let annotations = map.get_mut("metadata").and_then(|m| m.get_mut("annotations")).and_then(Value::as_object_mut);
    for (key, text) in annotations.into_iter().flatten() {
        // Other tools than kubectl keep the whole object too, under names of their own.
        if key == LAST_APPLIED && (secret || kind == "TokenReview") || text.as_str().is_some_and(manifests::tell) {
            mask(text);
        }
    }
    for item in map.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        document(item, secret);
    }
    for row in map.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(object) = row.get_mut("object") {
            document(object, secret);
        }
    }
    map.iter_mut().filter(|(key, _)| !matches!(key.as_str(), "items" | "rows")).for_each(|(_, part)| embedded(part));
}

/// Masks the Secrets that are somewhere within an object, such as a template for them, or the text of a manifest.
fn embedded(value: &mut Value) {
    match value {
        Value::Object(_) if is_secret(value) => document(value, true),
        Value::Object(map) => {
            // An operation of a patch, and a patch, reach into a Secret without a word about its kind.
            let reaches = map.get("path").and_then(Value::as_str).is_some_and(|path| path.split('/').any(|key| key == STRING_DATA));
            for (key, part) in map {
                match key == STRING_DATA && is_texts(part) || reaches && key == "value" {
                    true => mask_data(part),
                    false => embedded(part),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(embedded),
        Value::String(text) if manifests::tell(text) => *value = MASK.into(),
        _ => {}
    }
}

/// Whether something has texts in it and nothing else; the schema of a field has more.
fn is_texts(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.values().all(|value| value.is_string() || value.is_null()))
}

/// Masks what somebody copied from the data of a Secret to its labels and annotations.
pub fn copies(secret: &mut Value) {
    let is_told = |part: &&str| secret["metadata"][*part].as_object().is_some_and(|map| !map.is_empty());
    let parts: Vec<&str> = ["annotations", "labels"].into_iter().filter(is_told).collect();
    if parts.is_empty() || !(secret["data"].is_object() || secret["stringData"].is_object()) {
        return;
    }
    let mut known = Secrets::default();
    known.guard(secret);
    // Many a Secret is called like the user in it, and labelled so.
    ["name", "namespace"].iter().filter_map(|key| secret["metadata"][*key].as_str()).for_each(|open| known.forget(open));
    let known = known.found();
    for part in parts {
        known.clean_value(&mut secret["metadata"][part]);
    }
}

/// A patch of a Secret, of whatever sort: nobody has checked it yet, so that only what is known to be harmless stays.
pub fn change(patch: &mut Value) {
    match patch {
        Value::Array(operations) => operations.iter_mut().for_each(operation),
        Value::Object(map) => map.iter_mut().for_each(|(key, value)| member(key, value)),
        other => whole(other),
    }
}

fn member(key: &str, value: &mut Value) {
    match key {
        "metadata" => metadata(value),
        _ if is_harmless(key, value) => {}
        _ => mask_data(value),
    }
}

fn is_harmless(key: &str, value: &Value) -> bool {
    match key {
        "apiVersion" | "kind" | "type" => value.is_string(),
        "immutable" => value.is_boolean(),
        "$patch" => matches!(value.as_str(), Some("replace" | "merge" | "delete")),
        _ => false,
    }
}

fn metadata(value: &mut Value) {
    match value {
        Value::Object(map) => map.get_mut("annotations").into_iter().for_each(annotations),
        other => whole(other),
    }
}

fn annotations(value: &mut Value) {
    if let Some(applied) = value.get_mut(LAST_APPLIED) {
        mask(applied);
    }
}

/// One operation of a JSON patch on a Secret.
fn operation(operation: &mut Value) {
    let path = operation.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Value::Object(map) = operation else { return whole(operation) };
    for (key, part) in map {
        let stays = match key.as_str() {
            "op" => matches!(part.as_str(), Some("add" | "remove" | "replace" | "move" | "copy" | "test")),
            "path" | "from" => part.is_string(),
            "value" => {
                written(&path, part);
                true
            }
            _ => false,
        };
        if !stays {
            whole(part);
        }
    }
}

/// What an operation writes at a path.
fn written(path: &str, value: &mut Value) {
    match path.split('/').collect::<Vec<_>>().as_slice() {
        [""] if value.is_object() => change(value),
        ["", "metadata", "annotations"] => annotations(value),
        ["", "metadata", .., last] if last.ends_with("last-applied-configuration") => mask(value),
        ["", "metadata", _, ..] => {}
        ["", key] => member(key, value),
        _ => whole(value),
    }
}

/// The data of a Secret: the first keys stay, whatever is behind them goes.
fn mask_data(data: &mut Value) {
    match data {
        Value::Object(map) => map.values_mut().for_each(whole),
        other => whole(other),
    }
}

fn whole(value: &mut Value) {
    if !value.is_null() {
        *value = MASK.into();
    }
}

/// Replaces every value; the keys of maps stay, and so does what is empty.
pub fn mask(value: &mut Value) {
    match value {
        Value::Null => {}
        Value::String(text) if text.is_empty() => {}
        Value::Object(map) => map.values_mut().for_each(mask),
        Value::Array(items) => items.iter_mut().for_each(mask),
        other => *other = MASK.into(),
    }
}

/// Masks what is a credential by its looks: the whole text around a private key, and of others the token alone.
pub fn credentials(value: &mut Value) {
    match value {
        Value::String(text) => credentials_in(text),
        Value::Object(map) => {
            known_fields::header(map);
            map.values_mut().for_each(credentials);
        }
        Value::Array(items) => items.iter_mut().for_each(credentials),
        _ => {}
    }
}

/// The same in a text.
pub fn credentials_in(text: &mut String) {
    match holds_private_key(text.as_bytes()) {
        true => *text = MASK.to_owned(),
        false => {
            web_tokens::mask(text);
            notation::mask_folded(text, is_credential);
            known_fields::refused_url(text);
        }
    }
}

/// The same in what an event says of how a request ended, and of what webhooks and policies had to say: a refusal may quote what was
/// asked for.
pub fn ending(event: &mut Event) {
    if let Some(status) = &mut event.response_status {
        credentials_in(&mut status.message);
        status.details.iter_mut().for_each(credentials);
    }
    for warning in event.trace.iter_mut().flat_map(|story| &mut story.warnings) {
        credentials_in(warning);
    }
    let (patches, others): (Vec<_>, Vec<_>) = event
        .annotations
        .iter_mut()
        .filter(|(_, text)| begins_somewhere(text.as_bytes()))
        .partition(|(key, _)| key.starts_with(PATCH_ANNOTATION));
    others.into_iter().for_each(|(_, text)| credentials_in(text));
    if !patches.is_empty() {
        patches::each(event, |patch| {
            embedded(patch);
            credentials(patch);
        });
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::*;
    use crate::request::parse;

    fn cleaned(path: &str, mut value: Value) -> Value {
        object(&parse("POST", path, ""), &mut value);
        value
    }

    const SECRETS: &str = "/api/v1/namespaces/a/secrets";

    #[test]
    fn keys_of_a_secret_stay_and_values_go_in_objects_lists_patches_and_tables() {
        let secret = json!({"kind": "Secret", "metadata": {"annotations": {LAST_APPLIED: "{..}"}}, "data": {"k": "djE="}, "stringData": {"l": "v2"}});
        let masked =
            json!({"kind": "Secret", "metadata": {"annotations": {LAST_APPLIED: MASK}}, "data": {"k": MASK}, "stringData": {"l": MASK}});
        assert_eq!(cleaned(SECRETS, secret.clone()), masked);
        assert_eq!(cleaned("/api/v1/nodes", json!({"kind": "List", "items": [secret]})), json!({"kind": "List", "items": [masked]}));
        let list = json!({"kind": "SecretList", "items": [{"data": {"k": "djE="}}]});
        assert_eq!(cleaned(SECRETS, list), json!({"kind": "SecretList", "items": [{"data": {"k": MASK}}]}));
        assert_eq!(cleaned(SECRETS, json!({"data": {"k": "djE=", "gone": null}})), json!({"data": {"k": MASK, "gone": null}}));
        let rows = json!({"kind": "Table", "rows": [{"cells": ["n", 1], "object": {"data": {"k": "x"}}}]});
        assert_eq!(cleaned(SECRETS, rows)["rows"][0]["object"]["data"]["k"], MASK);
        assert_eq!(cleaned("/api/v1/namespaces/a/configmaps", json!({"data": {"k": "v"}})), json!({"data": {"k": "v"}}));
    }

    #[test]
    fn a_secret_within_another_object_is_one() {
        let secret = |value: &str| json!({"apiVersion": "v1", "kind": "Secret", "data": {"k": value}, "metadata": {"name": "s"}});
        let vault =
            |value: &str| json!({"kind": "Vault", "spec": {"template": secret(value), "objects": [[secret(value)], {"data": {"k": "v"}}]}});
        let path = "/apis/example.com/v1/namespaces/a/vaults";
        assert_eq!(cleaned(path, vault("djE=")), vault(MASK));
        let applied = |value: &str| json!({"kind": "Vault", "metadata": {"annotations": {LAST_APPLIED: value}}});
        assert_eq!(cleaned(path, applied(&vault("djE=").to_string())), applied(MASK));
        assert_eq!(cleaned(path, json!([{"op": "add", "path": "/spec/a", "value": secret("djE=")}]))[0]["value"], secret(MASK));
        let manifest =
            json!({"kind": "ConfigMap", "data": {"a": format!("\n{}", secret("djE=")), "b": "{\"kind\":\"Secret\"}", "c": "{ Secret"}});
        let data = &cleaned("/api/v1/namespaces/a/configmaps", manifest)["data"];
        assert_eq!(*data, json!({"a": MASK, "b": "{\"kind\":\"Secret\"}", "c": "{ Secret"}));
        let reference = json!({"kind": "Vault", "spec": {"kind": "Secret", "name": "s"}});
        assert_eq!(cleaned(path, reference.clone()), reference);
    }

    #[test]
    fn operations_of_a_json_patch_are_masked_by_their_path() {
        let patch = json!([{"op": "add", "path": "/data/k", "value": "djE="}, {"op": "test", "path": "/data", "value": {"k": "djE="}},
            {"op": "add", "path": "/metadata/labels/a", "value": "b"}, {"op": "replace", "path": "", "value": {"data": {"k": "djE="}}},
            {"op": "add", "path": "/metadata/annotations", "value": {LAST_APPLIED: "{}", "a": "b"}}, {"op": "remove", "path": "/data/k"}]);
        let wanted = json!([{"op": "add", "path": "/data/k", "value": MASK}, {"op": "test", "path": "/data", "value": {"k": MASK}},
            {"op": "add", "path": "/metadata/labels/a", "value": "b"}, {"op": "replace", "path": "", "value": {"data": {"k": MASK}}},
            {"op": "add", "path": "/metadata/annotations", "value": {LAST_APPLIED: MASK, "a": "b"}}, {"op": "remove", "path": "/data/k"}]);
        assert_eq!(cleaned(SECRETS, patch), wanted);
    }

    #[test]
    fn tokens_and_private_keys_go_wherever_they_are() {
        let request = json!({"kind": "TokenRequest", "spec": {"audiences": ["a"]}, "status": {"token": "t"}});
        assert_eq!(cleaned("/api/v1/namespaces/a/serviceaccounts/b/token", request)["status"]["token"], MASK);
        assert_eq!(
            cleaned("/apis/authentication.k8s.io/v1/tokenreviews", json!({"kind": "TokenReview", "spec": {"token": "t"}}))["spec"]["token"],
            MASK
        );
        let pem = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----";
        assert_eq!(
            cleaned("/api/v1/namespaces/a/configmaps", json!({"data": {"tls.key": pem, "a": "b"}})),
            json!({"data": {"tls.key": MASK, "a": "b"}})
        );
        let kubeconfig = "users: [{user: {token: eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln}}]";
        assert_eq!(
            cleaned("/api/v1/namespaces/a/configmaps", json!({"data": {"kubeconfig": kubeconfig}})),
            json!({"data": {"kubeconfig": "users: [{user: {token: [redacted]}}]"}})
        );
    }

    #[test]
    fn a_private_key_is_found_in_base64_wherever_it_begins() {
        for before in ["", "a", "bc", "a cert\n", "two\n"] {
            let text = STANDARD.encode(format!("{before}-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"));
            let map = json!({"binaryData": {"tls.key": text, "other": STANDARD.encode("-----BEGIN CERTIFICATE-----")}});
            let cleaned = cleaned("/api/v1/namespaces/a/configmaps", map);
            assert_eq!(cleaned["binaryData"]["tls.key"], MASK, "{before:?}");
            assert_ne!(cleaned["binaryData"]["other"], MASK);
        }
    }

    #[test]
    fn the_values_of_an_expression_about_a_secret_go_and_the_expression_stays() {
        let told = |method: &str, path: &str| {
            let trace = crate::request::Trace::default();
            let values = json!([{"expression": "object.data.p", "value": "aHVudGVyMg=="}]);
            let detail =
                json!({"values": values, "further": [{"values": values}], "patch": [{"op": "add", "path": "/data/p", "value": "x"}]});
            trace.step_with("validate", "p", "denied", trace.start(), Some(detail));
            let mut told = Story { steps: trace.steps(), ..Story::default() };
            story(&parse(method, path, ""), false, &mut told);
            told.steps.remove(0).detail.unwrap()
        };
        let values = json!([{"expression": "object.data.p", "value": MASK}]);
        let wanted = json!({"values": values, "further": [{"values": values}], "patch": [{"op": "add", "path": "/data/p", "value": MASK}]});
        assert_eq!(told("POST", SECRETS), wanted);
        assert_eq!(told("POST", "/api/v1/namespaces/a/configmaps")["values"][0]["value"], "aHVudGVyMg==");
    }

    #[test]
    fn of_a_patch_of_a_secret_only_what_is_known_to_be_harmless_stays() {
        let cleaned = |mut patch: Value| {
            request(&parse("PATCH", "/api/v1/namespaces/a/secrets/s", ""), &mut patch);
            patch
        };
        let merge = json!({"stringDat": {"k": "v"}, "Data": "v", "type": ["v"], "immutable": true, "metadata": {"labels": {"a": "b"}},
            "data": {"k": null}, "$patch": "v", "kind": "Secret"});
        let wanted = json!({"stringDat": {"k": MASK}, "Data": MASK, "type": MASK, "immutable": true, "metadata": {"labels": {"a": "b"}},
            "data": {"k": null}, "$patch": MASK, "kind": "Secret"});
        assert_eq!(cleaned(merge), wanted);
        for value in [json!("v"), json!(7)] {
            assert_eq!(cleaned(value), MASK);
        }
        assert_eq!(cleaned(json!(["v", ["v"]])), json!([MASK, MASK]));
        let operations = json!([{"op": "add", "path": "data/k", "value": "v"}, {"op": "v", "path": 7, "value": "v", "note": "v"},
            {"value": "v"}, {"op": "copy", "from": "/data/a", "path": "/data/b"}, {"op": "replace", "path": "/type", "value": "Opaque"},
            {"op": "add", "path": "/Data/k", "value": {"a": "v"}}, {"op": "add", "path": "/metadata", "value": "v"}]);
        let wanted = json!([{"op": "add", "path": "data/k", "value": MASK}, {"op": MASK, "path": MASK, "value": MASK, "note": MASK},
            {"value": MASK}, {"op": "copy", "from": "/data/a", "path": "/data/b"}, {"op": "replace", "path": "/type", "value": "Opaque"},
            {"op": "add", "path": "/Data/k", "value": MASK}, {"op": "add", "path": "/metadata", "value": MASK}]);
        assert_eq!(cleaned(operations), wanted);
    }

    #[test]
    fn a_secret_of_another_group_is_none_of_ours() {
        let path = "/apis/example.com/v1/namespaces/a/secrets";
        let open = json!({"apiVersion": "example.com/v1", "kind": "Secret", "data": {"k": "open"}, "metadata": {"annotations": {
            LAST_APPLIED: "{\"apiVersion\":\"example.com/v1\",\"kind\":\"Secret\",\"data\":{\"k\":\"open\"}}"}}});
        assert_eq!(cleaned(path, open.clone()), open);
        let list = json!({"apiVersion": "example.com/v1", "kind": "SecretList", "items": [open]});
        assert_eq!(cleaned(path, list.clone()), list);
        let mixed = json!({"kind": "List", "metadata": {"annotations": {LAST_APPLIED: "{\"kind\":\"Secret\",\"data\":{\"k\":\"v\"}}"}}});
        assert_eq!(cleaned(path, mixed)["metadata"]["annotations"][LAST_APPLIED], MASK);
    }

    #[test]
    fn the_copy_of_a_secret_that_a_tool_keeps_goes_where_only_metadata_is_told() {
        let copy = r#"{"apiVersion":"v1","kind":"Secret","data":{"k":"djE="}}"#;
        let metadata = json!({"annotations": {"kapp.k14s.io/original": copy, "a": "a Secret", "b": "{\"kind\":\"Secret\"}"}});
        let rows = json!({"kind": "Table", "rows": [{"object": {"kind": "PartialObjectMetadata", "metadata": metadata}}]});
        let wanted = json!({"kapp.k14s.io/original": MASK, "a": "a Secret", "b": "{\"kind\":\"Secret\"}"});
        assert_eq!(cleaned(SECRETS, rows)["rows"][0]["object"]["metadata"]["annotations"], wanted);
    }

    #[test]
    fn what_was_copied_from_the_data_of_a_secret_to_its_annotations_goes_too() {
        let secret = json!({"kind": "Secret", "data": {"k": "cGxhbnRlZC12YWx1ZQ=="}, "metadata": {"name": "planted",
            "annotations": {"a": "is planted-value", "b": "other"}, "labels": {"c": "cGxhbnRlZC12YWx1ZQ"}}});
        let wanted = json!({"kind": "Secret", "data": {"k": MASK}, "metadata": {"name": "planted",
            "annotations": {"a": "is [redacted]", "b": "other"}, "labels": {"c": MASK}}});
        assert_eq!(cleaned(SECRETS, secret), wanted);
    }
}
