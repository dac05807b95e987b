//! The protobuf form of an OpenAPI v2 document (`openapi.v2.Document` of gnostic): what old clients ask for because it is
//! quicker to read. A writer for the handful of messages that our documents have; nothing is read here.

use serde_json::Value;

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u32, message: Message) {
        self.bytes(field, &message.bytes);
    }

    /// A text, if there is one.
    fn text(&mut self, field: u32, value: &Value) {
        if let Some(text) = value.as_str() {
            self.bytes(field, text.as_bytes());
        }
    }

    fn texts(&mut self, field: u32, values: &Value) {
        values.as_array().into_iter().flatten().for_each(|value| self.text(field, value));
    }

    /// A boolean, if it is true.
    fn truth(&mut self, field: u32, value: &Value) {
        if value == true {
            self.varint(u64::from(field) << 3);
            self.bytes.push(1);
        }
    }

    fn whole(&mut self, field: u32, value: &Value) {
        if let Some(number) = value.as_i64() {
            self.varint(u64::from(field) << 3);
            self.varint(number as u64);
        }
    }

    fn number(&mut self, field: u32, value: &Value) {
        if let Some(number) = value.as_f64() {
            self.varint(u64::from(field) << 3 | 1);
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// The whole document.
pub(super) fn document(info: &Value, token: &Value, paths: Message, definitions: Message) -> Vec<u8> {
    let mut out = Message::default();
    out.bytes(1, b"2.0");
    let mut message = Message::default();
    message.text(1, &info["title"]);
    message.text(2, &info["version"]);
    out.message(2, message);
    out.message(8, paths);
    out.message(9, definitions);
    let mut requirement = Message::default();
    requirement.message(1, named("BearerToken", Message::default()));
    out.message(12, requirement);
    let mut key = Message::default();
    key.text(1, &token["type"]);
    key.text(2, &token["name"]);
    key.text(3, &token["in"]);
    key.text(4, &token["description"]);
    let mut definition = Message::default();
    definition.message(2, key);
    let mut security = Message::default();
    security.message(1, named("BearerToken", definition));
    out.message(13, security);
    out.bytes
}

/// Adds a path to the message of all paths.
pub(super) fn add_path(paths: &mut Message, path: &str, item: &Value) {
    let mut message = Message::default();
    for (field, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")] {
        if let Some(value) = item.get(method) {
            message.message(field, operation(value));
        }
    }
    parameters(&mut message, 9, &item["parameters"]);
    paths.message(2, named(path, message));
}

/// Adds a definition to the message of all definitions.
pub(super) fn add_definition(definitions: &mut Message, name: &str, given: &Value) {
    definitions.message(1, named(name, schema(given)));
}

/// The many messages that are a name and a value.
fn named(name: &str, value: Message) -> Message {
    let mut message = Message::default();
    message.bytes(1, name.as_bytes());
    message.message(2, value);
    message
}

fn operation(given: &Value) -> Message {
    let mut message = Message::default();
    message.texts(1, &given["tags"]);
    message.text(3, &given["description"]);
    message.text(5, &given["operationId"]);
    message.texts(6, &given["produces"]);
    message.texts(7, &given["consumes"]);
    parameters(&mut message, 8, &given["parameters"]);
    let mut responses = Message::default();
    for (code, response) in given["responses"].as_object().into_iter().flatten() {
        let mut value = Message::default();
        value.text(1, &response["description"]);
        if let Some(given) = response.get("schema") {
            let mut item = Message::default();
            item.message(1, schema(given));
            value.message(2, item);
        }
        let mut either = Message::default();
        either.message(1, value);
        responses.message(1, named(code, either));
    }
    message.message(9, responses);
    message.texts(10, &given["schemes"]);
    extensions(&mut message, 13, given);
    message
}

fn parameters(message: &mut Message, field: u32, given: &Value) {
    for parameter in given.as_array().into_iter().flatten() {
        let mut either = Message::default();
        if parameter["in"] == "body" {
            let mut body = Message::default();
            body.text(2, &parameter["name"]);
            body.text(3, &parameter["in"]);
            body.truth(4, &parameter["required"]);
            body.message(5, schema(&parameter["schema"]));
            either.message(1, body);
        } else {
            let mut non_body = Message::default();
            let in_path = parameter["in"] == "path";
            // The two messages differ by one field, which shifts what follows.
            let (place, kind, unique) = if in_path { (4, 5, 19) } else { (3, 6, 20) };
            let mut value = Message::default();
            value.truth(1, &parameter["required"]);
            value.text(2, &parameter["in"]);
            value.text(3, &parameter["description"]);
            value.text(4, &parameter["name"]);
            value.text(kind, &parameter["type"]);
            value.truth(unique, &parameter["uniqueItems"]);
            non_body.message(place, value);
            either.message(2, non_body);
        }
        let mut item = Message::default();
        item.message(1, either);
        message.message(field, item);
    }
}

fn schema(given: &Value) -> Message {
    let mut message = Message::default();
    message.text(1, &given["$ref"]);
    message.text(2, &given["format"]);
    message.text(3, &given["title"]);
    message.text(4, &given["description"]);
    message.number(6, &given["multipleOf"]);
    message.number(7, &given["maximum"]);
    message.truth(8, &given["exclusiveMaximum"]);
    message.number(9, &given["minimum"]);
    message.truth(10, &given["exclusiveMinimum"]);
    message.whole(11, &given["maxLength"]);
    message.whole(12, &given["minLength"]);
    message.text(13, &given["pattern"]);
    message.whole(14, &given["maxItems"]);
    message.whole(15, &given["minItems"]);
    message.truth(16, &given["uniqueItems"]);
    message.whole(17, &given["maxProperties"]);
    message.whole(18, &given["minProperties"]);
    message.texts(19, &given["required"]);
    match &given["additionalProperties"] {
        Value::Null => {}
        Value::Bool(yes) => {
            let mut item = Message::default();
            item.truth(2, &Value::Bool(*yes));
            message.message(21, item);
        }
        inner => {
            let mut item = Message::default();
            item.message(1, schema(inner));
            message.message(21, item);
        }
    }
    if let Some(kind) = given["type"].as_str() {
        let mut item = Message::default();
        item.bytes(1, kind.as_bytes());
        message.message(22, item);
    }
    if let Some(items) = given.get("items") {
        let mut item = Message::default();
        item.message(1, schema(items));
        message.message(23, item);
    }
    if let Some(properties) = given["properties"].as_object() {
        let mut all = Message::default();
        for (name, property) in properties {
            all.message(1, named(name, schema(property)));
        }
        message.message(25, all);
    }
    extensions(&mut message, 31, given);
    message
}

/// `x-…`, each as a text that is YAML, since JSON is.
fn extensions(message: &mut Message, field: u32, given: &Value) {
    for (name, value) in given.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
        let mut any = Message::default();
        any.bytes(2, value.to_string().as_bytes());
        message.message(field, named(name, any));
    }
}
