//! Bodies as an audit event shows them: JSON whatever the wire format was, and of a request what the server understood, with kind,
//! version and defaults. Called by the recorder, long after the request has been answered.

use http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};

use super::body::{decode_delete_options, decode_part, decode_plain};
use super::{Api, protobuf};
use crate::audit::Json;
use crate::audit::record::Bodies;
use crate::registry::api_version;
use crate::request::Context;
use crate::schema::decode::FieldValidation;

impl Bodies for Api {
    fn request(&self, context: &Context, content_type: &str, bytes: &[u8]) -> Option<Json> {
        // Whoever served the request has read it already, unless it was refused before that.
        let read = context.understood().cloned().map(Json::written);
        read.or_else(|| self.read_again(context, content_type, bytes).as_ref().map(Json::from))
    }

    fn response(&self, _: &Context, content_type: &str, bytes: &[u8]) -> Option<Value> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json" => serde_json::from_slice(bytes).ok(),
            "application/yaml" => yaml(bytes),
            "application/vnd.kubernetes.protobuf" => protobuf::decode(bytes).ok().map(|(version, kind, mut object)| {
                name_items(&kind, &version, &mut object);
                object["kind"] = kind.into();
                object["apiVersion"] = version.into();
                object
            }),
            _ => None,
        }
    }
}

impl Api {
    fn read_again(&self, context: &Context, content_type: &str, bytes: &[u8]) -> Option<Value> {
        let info = &context.info;
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(content_type).ok()?);
        // What goes through to a Pod or a node is no object of this server's.
        if !info.is_resource || info.is_long_running() {
            return None;
        }
        match info.verb {
            // A patch stands for itself.
            "patch" => patch(bytes),
            "delete" | "deletecollection" => {
                let mut options = decode_delete_options(&headers, bytes).ok()?;
                let map = options.as_object_mut()?;
                map.insert("kind".into(), "DeleteOptions".into());
                // What a real server shows here, where options have no version of their own any more.
                map.insert("apiVersion".into(), "meta.k8s.io/__internal".into());
                Some(options)
            }
            "create" | "update" => {
                let resource = self.registry.lookup(&info.group, &info.version, &info.resource)?;
                match resource.subresource(&info.subresource) {
                    Some(sub) if sub.kind != resource.kind => {
                        let kind = (&*sub.group, &*sub.version, &*sub.kind);
                        // Old clients still say policy/v1beta1.
                        let old = kind.2 == "Eviction" && memchr::memmem::find(bytes, b"policy/v1beta1").is_some();
                        let mut object = match old {
                            true => decode_plain(&headers, bytes, "policy/v1beta1", kind.2).ok()?,
                            false => decode_part(context, &headers, bytes, kind, FieldValidation::Ignore).ok()?,
                        };
                        let map = object.as_object_mut()?;
                        map.entry("kind").or_insert_with(|| sub.kind.to_string().into());
                        map.entry("apiVersion").or_insert_with(|| api_version(&sub.group, &sub.version).into());
                        spell_out(&mut object);
                        Some(object)
                    }
                    // What nobody could read is not recorded as if somebody had.
                    None => None,
                    Some(_) => self.decode_object(context, &headers, bytes, &resource, FieldValidation::Ignore).ok(),
                }
            }
            _ => None,
        }
    }
}

/// In protobuf the items of a list do not say what they are; those that stand for others do elsewhere.
fn name_items(kind: &str, version: &str, list: &mut Value) {
    // Nor is an empty list told from none, and the server answers with no other.
    if kind.ends_with("List") && list["items"].is_null() {
        list["items"] = json!([]);
    }
    if kind != "PartialObjectMetadataList" {
        return;
    }
    for item in list["items"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        item.insert("kind".into(), "PartialObjectMetadata".into());
        item.insert("apiVersion".into(), version.into());
    }
}

/// What a real server shows of these kinds also where nobody said it.
fn spell_out(object: &mut Value) {
    let shown = match object["kind"].as_str() {
        Some("TokenRequest") => json!({"metadata": {}, "spec": {"audiences": null, "expirationSeconds": 3600, "boundObjectRef": null},
            "status": {"token": "", "expirationTimestamp": null}}),
        Some("Scale") => json!({"metadata": {}, "spec": {}, "status": {"replicas": 0}}),
        Some("Binding") => json!({"metadata": {}, "target": {}}),
        Some("Eviction") => json!({"metadata": {}}),
        _ => return,
    };
    fn fill(object: &mut Value, shown: Value) {
        let (Value::Object(object), Value::Object(shown)) = (object, shown) else { return };
        for (key, value) in shown {
            match object.get_mut(&key) {
                Some(known) => fill(known, value),
                None => drop(object.insert(key, value)),
            }
        }
    }
    fill(object, shown);
    // A wish for none is not shown.
    if object["kind"] == "Scale" && object["spec"]["replicas"] == 0 {
        object["spec"].as_object_mut().into_iter().for_each(|spec| drop(spec.remove("replicas")));
    }
}

/// An apply may be YAML, every other patch is JSON; JSON is YAML, but slower to read as such.
fn patch(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice(bytes).ok().or_else(|| yaml(bytes))
}

fn yaml(bytes: &[u8]) -> Option<Value> {
    let document = crate::schema::yaml::parse(std::str::from_utf8(bytes).ok()?).ok()?;
    document.value.is_object().then_some(document.value)
}
