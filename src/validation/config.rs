//! ConfigMaps and Secrets: keys, size, what a type of Secret must hold, and what cannot change.

use serde_json::{Map, Value};

use super::field::{self, Errors, Path, entries, invalid, map, text};
use super::names;
use crate::status::FieldError;

/// What all values may come to.
const MOST: usize = 1024 * 1024;
const IMMUTABLE: &str = "field is immutable when `immutable` is set";
const HIDDEN: &str = "<secret contents redacted>";

/// A ConfigMap.
pub fn config_map(object: &Value, errors: &mut Errors) {
    let mut total = 0;
    for (key, value) in entries(object, "data") {
        keyed(key, "data", errors);
        if object["binaryData"].get(key).is_some() {
            errors.push(invalid(&Path::root("data").key(key), key, "duplicate of key present in binaryData"));
        }
        total += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries(object, "binaryData") {
        keyed(key, "binaryData", errors);
        total += decoded_length(value);
    }
    too_long(total, errors);
}

/// A changed ConfigMap.
pub fn update_config_map(new: &Value, old: &Value, errors: &mut Errors) {
    unchanged(new, old, &["data", "binaryData"], errors);
    config_map(new, errors);
}

fn keyed(key: &str, field: &str, errors: &mut Errors) {
    errors.extend(names::config_key(key).into_iter().map(|why| invalid(&Path::root(field).key(key), key, why)));
}

/// How many bytes stand behind a base64 text.
fn decoded_length(value: &Value) -> usize {
    value.as_str().map_or(0, |text| text.trim_end_matches('=').len() * 3 / 4)
}

fn too_long(total: usize, errors: &mut Errors) {
    if total > MOST {
        // The object as a whole is too long; a path without a name is written so.
        errors.push(FieldError::too_long("[]", MOST));
    }
}

fn unchanged(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    if new.get("immutable") != Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden("immutable", IMMUTABLE));
    }
    let content = |object: &Value, name: &str| map(object, name).filter(|m: &&Map<String, Value>| !m.is_empty()).cloned();
    for name in fields.iter().filter(|name| content(new, name) != content(old, name)) {
        errors.push(FieldError::forbidden(*name, IMMUTABLE));
    }
}

/// A Secret.
pub fn secret(object: &Value, errors: &mut Errors) {
    let mut total = 0;
    for (key, value) in entries(object, "data") {
        keyed(key, "data", errors);
        total += decoded_length(value);
    }
    let data = Path::root("data");
    if total > MOST {
        errors.push(FieldError::too_long(data, MOST));
    }
    let value = |key: &str| object["data"].get(key).and_then(Value::as_str);
    let mut needed = |key: &str| {
        if value(key).is_none() {
            errors.push(FieldError::required(data.key(key), ""));
        }
    };
    match text(object, "type") {
        "kubernetes.io/tls" => {
            needed("tls.crt");
            needed("tls.key");
        }
        "kubernetes.io/ssh-auth" if value("ssh-privatekey").is_none_or(str::is_empty) => {
            errors.push(FieldError::required(data.key("ssh-privatekey"), ""));
        }
        "kubernetes.io/basic-auth" if value("username").is_none() && value("password").is_none() => {
            needed("username");
            needed("password");
        }
        "kubernetes.io/dockercfg" => docker(value(".dockercfg"), &data.key(".dockercfg"), errors),
        "kubernetes.io/dockerconfigjson" => docker(value(".dockerconfigjson"), &data.key(".dockerconfigjson"), errors),
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            if text(&object["metadata"]["annotations"], NAME).is_empty() {
                let path = Path::root("metadata");
                errors.push(FieldError::required(path.field("annotations").key(NAME), ""));
            }
        }
        _ => {}
    }
}

fn docker(value: Option<&str>, path: &Path<'_>, errors: &mut Errors) {
    use base64::Engine as _;
    let Some(value) = value else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(value).unwrap_or_default();
    if serde_json::from_slice::<Map<String, Value>>(&bytes).is_err() {
        let why = if bytes.is_empty() { "unexpected end of JSON input".to_owned() } else { not_json(&bytes) };
        errors.push(invalid(path, HIDDEN, why));
    }
}

fn not_json(bytes: &[u8]) -> String {
    let first = char::from(bytes.first().copied().unwrap_or_default());
    format!("invalid character '{first}' looking for beginning of value")
}

/// A changed Secret.
pub fn update_secret(new: &Value, old: &Value, errors: &mut Errors) {
    field::immutable(errors, new, old, &Path::object(), "type");
    unchanged(new, old, &["data"], errors);
    secret(new, errors);
}
