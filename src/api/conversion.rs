//! Custom objects that are wanted in another version than the one they are stored in. Without a webhook the versions differ in nothing but
//! their apiVersion; with one it is asked, once for all objects of a request, and its answer is checked: a conversion may change labels,
//! annotations and everything below the metadata, and nothing else.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Api, convert};
use crate::admission::Cluster;
use crate::admission::webhook::client::Clients;
use crate::admission::webhook::endpoint::Endpoint;
use crate::object::{Object, canonical, meta};
use crate::registry::Resource;
use crate::schema::{default, prune};
use crate::status::Status;
use crate::store::Revision;
use crate::validation;

/// How long a webhook may take.
const TIMEOUT_SECONDS: u64 = 30;

/// Asks conversion webhooks.
pub struct Converter {
    /// Connections to them.
    pub clients: Clients,
    /// Where Services are found.
    pub cluster: Cluster,
}

/// The `spec.conversion.webhook` of a resource's definition, if that is how its versions are converted.
pub fn webhook(resource: &Resource) -> Option<&Value> {
    let conversion = &resource.custom.as_ref()?.definition["spec"]["conversion"];
    (conversion["strategy"] == "Webhook").then(|| &conversion["webhook"])
}

/// Whether a definition has more than one version, so that its objects may be stored in another one than is wanted.
pub fn has_versions(resource: &Resource) -> bool {
    let versions = resource.custom.as_ref().and_then(|custom| custom.definition["spec"]["versions"].as_array());
    versions.is_some_and(|versions| versions.len() > 1)
}

/// Whether an object has to be converted, or made to fit a newer schema, before it can be shown as one of this resource.
pub fn is_other(object: &Object, resource: &Resource) -> bool {
    is_older(object, resource) || (has_versions(resource) && !is_version(object, resource))
}

/// Whether an object was written before its definition was last changed: defaults may have come, and fields may have gone.
fn is_older(object: &Object, resource: &Resource) -> bool {
    let Some(custom) = &resource.custom else { return false };
    meta(&custom.definition, "resourceVersion").parse::<Revision>().is_ok_and(|defined| object.revision < defined)
}

fn is_version(object: &Object, resource: &Resource) -> bool {
    let (group, version) = object.api_version().split_once('/').unwrap_or(("", object.api_version()));
    group == &*resource.group && version == &*resource.version
}

impl Api {
    /// Stored objects in the version of a resource.
    pub async fn converted(&self, mut objects: Vec<Arc<Object>>, resource: &Resource, is_list: bool) -> Result<Vec<Arc<Object>>, Status> {
        if resource.custom.is_none() {
            return Ok(objects);
        }
        let others: Vec<usize> = (0..objects.len()).filter(|at| is_other(&objects[*at], resource)).collect();
        if others.is_empty() {
            return Ok(objects);
        }
        let mut values: Vec<Value> = others.iter().map(|at| objects[*at].to_value()).collect();
        let differing: Vec<usize> = (0..values.len()).filter(|at| !is_version(&objects[others[*at]], resource)).collect();
        // Defaults are those of the version that an object is read in, which is the one it was written in.
        for (at, value) in values.iter_mut().enumerate() {
            let own = objects[others[at]].api_version();
            let version = own.rsplit('/').next().unwrap_or_default();
            if let Some(own) = self.registry.lookup(&resource.group, version, &resource.plural) {
                default::apply_defaults(value, &own);
            }
        }
        match webhook(resource).filter(|_| !differing.is_empty()) {
            None => {
                for at in differing {
                    values[at] = convert::to_version(std::mem::take(&mut values[at]), resource);
                }
            }
            Some(webhook) => {
                let given: Vec<Value> = differing.iter().map(|at| std::mem::take(&mut values[*at])).collect();
                let kind = match is_list {
                    true => format!("{}, Kind={}", resource.storage_group_version(), resource.list_kind),
                    false => kind_of(given.first().unwrap_or(&Value::Null)),
                };
                let converted = self.converter.ask(webhook, given, &resource.group_version(), &kind, is_list).await?;
                for (at, value) in differing.into_iter().zip(converted) {
                    values[at] = value;
                }
            }
        }
        for value in &mut values {
            prune::prune(value, &resource.schema());
        }
        for (at, value) in others.into_iter().zip(values) {
            let old = &objects[at];
            objects[at] = Arc::new(Object::new(old.key.clone(), old.revision, &canonical(&value)));
        }
        Ok(objects)
    }

    /// One stored object in the version of a resource.
    pub async fn converted_one(&self, object: Arc<Object>, resource: &Resource) -> Result<Arc<Object>, Status> {
        if !is_other(&object, resource) {
            return Ok(object);
        }
        let mut objects = self.converted(vec![object], resource, false).await?;
        objects.pop().ok_or_else(|| Status::internal("a conversion lost its object"))
    }

    /// The bytes of an object in its stored version.
    pub(super) async fn stored_bytes(&self, resource: &Resource, object: &Value) -> Result<Bytes, Status> {
        match webhook(resource).filter(|_| resource.is_stored_otherwise()) {
            None if resource.is_stored_otherwise() => {
                let mut stored = convert::to_storage(object.clone(), resource);
                let own = resource.storage_group_version();
                let version = own.rsplit('/').next().unwrap_or_default();
                // What is kept is what the version that it is kept in knows, with its defaults.
                if let Some(own) = self.registry.lookup(&resource.group, version, &resource.plural).filter(|r| r.custom.is_some()) {
                    crate::schema::prune::prune(&mut stored, &own.schema());
                    crate::schema::default::apply_defaults(&mut stored, &own);
                }
                Ok(canonical(&stored))
            }
            None => Ok(canonical(object)),
            Some(webhook) => {
                let (desired, kind) = (resource.storage_group_version(), kind_of(object));
                let values = self.converter.ask(webhook, vec![object.clone()], &desired, &kind, false).await?;
                Ok(canonical(values.first().unwrap_or(object)))
            }
        }
    }

    /// The bytes that the writer of an object is shown: those that are stored, unless a webhook made them.
    pub(super) fn shown_bytes(&self, resource: &Resource, object: &Value, stored: &Bytes) -> Bytes {
        match webhook(resource).is_some() && resource.is_stored_otherwise() {
            true => canonical(object),
            false => stored.clone(),
        }
    }
}

fn kind_of(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    format!("{}, Kind={}", text("apiVersion"), text("kind"))
}

impl Converter {
    /// An object in another version of its resource, over the version that is stored, as it is when the one is written and the other read.
    pub async fn convert(&self, resource: &Resource, mut object: Value, desired: &str) -> Result<Value, Status> {
        let Some(webhook) = webhook(resource) else { return Err(Status::internal("no conversion webhook")) };
        for desired in [&*resource.storage_group_version(), desired] {
            if object["apiVersion"] != *desired {
                let kind = kind_of(&object);
                object = self.ask(webhook, vec![object], desired, &kind, false).await?.pop().unwrap_or_default();
            }
        }
        Ok(object)
    }

    async fn ask(&self, webhook: &Value, objects: Vec<Value>, desired: &str, kind: &str, is_list: bool) -> Result<Vec<Value>, Status> {
        ask(&self.clients, &self.cluster, webhook, objects, desired, kind, is_list).await
    }
}

/// An object of a request in the version that somebody who is asked about it wants: made by the definition's webhook, if it has one.
pub async fn between(cluster: &Cluster, object: Value, from: &Resource, to: &Resource) -> Result<Value, Status> {
    let Some(webhook) = webhook(from) else { return Ok(convert::between(object, from, to)) };
    let kind = kind_of(&object);
    let mut converted = ask(&cluster.converters, cluster, webhook, vec![object], &to.group_version(), &kind, false).await?;
    let mut object = converted.pop().unwrap_or_default();
    prune::prune(&mut object, &to.schema());
    default::apply_defaults(&mut object, to);
    Ok(object)
}

/// Has a webhook convert objects. `kind` is what messages call them.
async fn ask(
    clients: &Clients,
    cluster: &Cluster,
    webhook: &Value,
    objects: Vec<Value>,
    desired: &str,
    kind: &str,
    is_list: bool,
) -> Result<Vec<Value>, Status> {
    let failed = |why: String| Status::unclassified(format!("conversion webhook for {kind} failed: {why}"));
    let versions = webhook["conversionReviewVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let Some(version) = versions.into_iter().find(|version| matches!(*version, "v1" | "v1beta1")) else {
        return Err(Status::unclassified("no supported conversion review versions"));
    };
    let uid = uuid::Uuid::new_v4().to_string();
    let review = json!({
        "kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{version}"),
        "request": {"uid": uid, "desiredAPIVersion": desired, "objects": objects},
    });
    let endpoint = Endpoint::from_value(&webhook["clientConfig"]);
    let shown = endpoint.shown_url(TIMEOUT_SECONDS);
    let post = clients.post(&endpoint, TIMEOUT_SECONDS, cluster, &shown, None, review.to_string().into_bytes());
    let received = post.await.map_err(failed)?;
    let answer = received.value().map_err(failed)?;
    let converted = response(answer, version, &uid).map_err(failed)?;
    verify(&objects, converted, desired, is_list).map_err(|why| Status::unclassified(format!("conversion webhook for {kind} {why}")))
}

/// The objects of an answer.
fn response(mut review: Value, version: &str, uid: &str) -> Result<Vec<Value>, String> {
    if version == "v1" && (review["apiVersion"] != "apiextensions.k8s.io/v1" || review["kind"] != "ConversionReview") {
        let text = |field: &str| review[field].as_str().unwrap_or_default().to_owned();
        let (group, version) =
            text("apiVersion").split_once('/').map_or((String::new(), text("apiVersion")), |(g, v)| (g.into(), v.into()));
        let got = format!("{group}/{version}, Kind={}", text("kind"));
        return Err(format!("expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {got}"));
    }
    let response = &mut review["response"];
    if !response.is_object() {
        return Err("no response provided".into());
    }
    if version == "v1" && response["uid"] != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", response["uid"].as_str().unwrap_or_default()));
    }
    let status = response["result"]["status"].as_str().unwrap_or_default();
    if status != "Success" {
        return Err(match response["result"]["message"].as_str().unwrap_or_default() {
            "" => format!("response.result.status was '{status}', not 'Success'"),
            message => message.to_owned(),
        });
    }
    match response["convertedObjects"].take() {
        Value::Array(objects) => Ok(objects),
        _ => Ok(Vec::new()),
    }
}

/// Checks converted objects against the ones they were made of, and gives them back what no conversion may change.
fn verify(originals: &[Value], converted: Vec<Value>, desired: &str, is_list: bool) -> Result<Vec<Value>, String> {
    if converted.len() != originals.len() {
        return Err(format!("returned {} objects, expected {}", converted.len(), originals.len()));
    }
    let pairs = originals.iter().zip(converted).enumerate();
    let mut out = Vec::with_capacity(originals.len());
    for (at, (original, mut object)) in pairs {
        let what = if is_list { format!("invalid converted object at index {at}") } else { "invalid object at index 0".to_owned() };
        let received = object["apiVersion"].as_str().unwrap_or_default();
        if received != desired {
            return Err(format!("returned {what}: invalid groupVersion (expected {desired}, received {received})"));
        }
        let text = |value: &Value| value["kind"].as_str().unwrap_or_default().to_owned();
        if text(original) != text(&object) {
            return Err(format!("returned {what}: invalid kind (expected {}, received {})", text(original), text(&object)));
        }
        let what = if is_list { what } else { "invalid object".to_owned() };
        for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
            let (expected, received) = (meta(original, field), meta(&object, field));
            if expected != received {
                return Err(format!("returned {what}: must have the same {name}: {expected} != {received}"));
            }
        }
        restore_metadata(original, &mut object).map_err(|why| match is_list {
            true => format!("returned invalid metadata in object at index {at}: {why}"),
            false => format!("returned invalid metadata: {why}"),
        })?;
        out.push(object);
    }
    Ok(out)
}

/// All metadata stay as they were, but for labels and annotations.
fn restore_metadata(original: &Value, converted: &mut Value) -> Result<(), String> {
    let given = match converted.get("metadata") {
        None => return Err("missing metadata in converted object".into()),
        Some(Value::Object(given)) => given.clone(),
        Some(other) => return Err(format!("invalid metadata of type {} in converted object", super::patch::go::type_name(other))),
    };
    let mut metadata = original["metadata"].as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match given.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
            }
            Some(Value::Object(values)) => {
                if let Some((key, value)) = values.iter().find(|(_, value)| !value.is_string()) {
                    let kind = super::patch::go::type_name(value);
                    return Err(format!("metadata.{field}[{key}] must be a string, but is {kind} in converted object"));
                }
                if metadata.get(field) != Some(&Value::Object(values.clone())) {
                    validation::check_map(field, &json!({field: values}))?;
                }
                metadata.insert(field.into(), Value::Object(values.clone()));
            }
            Some(other) => {
                let kind = super::patch::go::type_name(other);
                return Err(format!("invalid metadata.{field} of type {kind} in converted object"));
            }
        }
    }
    converted["metadata"] = Value::Object(metadata);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str, name: &str) -> Value {
        json!({"apiVersion": format!("ex.com/{version}"), "kind": "Wid", "metadata": {"name": name, "uid": "u", "generation": 3}})
    }

    #[test]
    fn an_answer_must_be_about_the_question() {
        let review = |uid: &str, result: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": {"uid": uid, "result": result, "convertedObjects": []}});
        let success = json!({"status": "Success"});
        assert_eq!(response(review("a", success.clone()), "v1", "a"), Ok(Vec::new()));
        assert_eq!(response(review("b", success.clone()), "v1", "a"), Err("expected response.uid=\"a\", got \"b\"".into()));
        assert_eq!(response(review("b", success), "v1beta1", "a"), Ok(Vec::new()));
        assert_eq!(response(review("a", json!({"status": "Failure", "message": "no way"})), "v1", "a"), Err("no way".into()));
        assert_eq!(response(review("a", json!({})), "v1", "a"), Err("response.result.status was '', not 'Success'".into()));
        assert_eq!(response(json!({}), "v1beta1", "a"), Err("no response provided".into()));
    }

    #[test]
    fn metadata_survive_a_webhook_that_loses_them_but_names_must_agree() {
        let mut answer = object("v2", "w");
        answer["metadata"] = json!({"name": "w", "uid": "u", "labels": {"a": "b"}, "generation": 9});
        let checked = verify(&[object("v1", "w")], vec![answer], "ex.com/v2", false).unwrap();
        assert_eq!(checked[0]["metadata"], json!({"name": "w", "uid": "u", "generation": 3, "labels": {"a": "b"}}));
        let wrong = |answer: Value| verify(&[object("v1", "w")], vec![answer], "ex.com/v2", false).unwrap_err();
        assert_eq!(wrong(object("v2", "x")), "returned invalid object: must have the same name: w != x");
        assert_eq!(
            wrong(object("v3", "w")),
            "returned invalid object at index 0: invalid groupVersion (expected ex.com/v2, received ex.com/v3)"
        );
        assert_eq!(verify(&[object("v1", "w")], Vec::new(), "ex.com/v2", true).unwrap_err(), "returned 0 objects, expected 1");
        let mut bad = object("v2", "w");
        bad["metadata"]["labels"] = json!({"-": "b"});
        assert!(wrong(bad).starts_with("returned invalid metadata: metadata.labels: Invalid value: \"-\""));
    }
}
