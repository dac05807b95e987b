//! JSON to wire form, one message at a time, as Go's generated code writes it: fields by number, maps by key, scalars and messages that
//! are not pointers always. JSON fields that the message does not have (apiVersion and kind among them) are passed over; a value of
//! the wrong shape is an error.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::decode::MAX_DEPTH;
use super::error::Error;
use super::scalar::{self, Precision};
use super::table::{self, Field, Form, MAX_FIELDS, Message, MessageId, Table, Type};
use super::wire::{FIXED64, put_bytes, put_int, put_nested, put_tag};
use crate::object::json_kind;

/// Writes an object as the content of a message.
pub(super) fn put_message(out: &mut Vec<u8>, id: MessageId, value: &Value) -> Result<(), Error> {
    let encoder = Encoder { table: table::get() };
    let message = encoder.table.message(id);
    match value {
        Value::Object(object) => encoder.message(out, message, object, MAX_DEPTH),
        other => Err(Error::Value { message: message.name, field: "", problem: format!("expected an object, got {}", json_kind(other)) }),
    }
}

#[derive(Clone, Copy)]
struct Encoder {
    table: &'static Table,
}

/// Where a value stands, for the message of an error.
#[derive(Clone, Copy)]
struct Place {
    message: &'static Message,
    field: &'static Field,
    depth: u8,
}

impl Place {
    fn error(self, problem: String) -> Error {
        Error::Value { message: self.message.name, field: self.field.name, problem }
    }

    fn expected(self, what: &str, value: &Value) -> Error {
        self.error(format!("expected {what}, got {}", json_kind(value)))
    }
}

impl Encoder {
    fn message(self, out: &mut Vec<u8>, message: &'static Message, object: &Map<String, Value>, depth: u8) -> Result<(), Error> {
        let depth = depth.checked_sub(1).ok_or(Error::Depth)?;
        // Objects have few of the fields that a message may have, so it is the object that is walked.
        let mut values = [&Value::Null; MAX_FIELDS];
        for (name, value) in object {
            if let Some(place) = message.place_of(name) {
                values[place] = value;
            }
        }
        for (field, value) in message.fields.iter().zip(values) {
            let place = Place { message, field, depth };
            match (field.form, value) {
                (Form::Inline, _) => {
                    if let Type::Message(id) = field.kind {
                        put_nested(out, field.number, |out| self.message(out, self.table.message(id), object, depth))?;
                    }
                }
                (Form::Pointer | Form::List | Form::Map, Value::Null) => {}
                (Form::Plain, Value::Null) if field.kind == Type::Bytes => {}
                (Form::List, Value::Array(list)) => {
                    for item in list {
                        self.value(out, field.number, field.kind, item, place)?;
                    }
                }
                (Form::List, other) => return Err(place.expected("an array", other)),
                (Form::Map, Value::Object(map)) => {
                    for (key, value) in map {
                        put_nested(out, field.number, |out| {
                            put_bytes(out, 1, key.as_bytes());
                            match (field.kind, value) {
                                (Type::Bytes, Value::Null) => Ok(()),
                                _ => self.value(out, 2, field.kind, value, place),
                            }
                        })?;
                    }
                }
                (Form::Map, other) => return Err(place.expected("an object", other)),
                (_, value) => self.value(out, field.number, field.kind, value, place)?,
            }
        }
        Ok(())
    }

    /// One value with its tag. Null is the zero value.
    fn value(self, out: &mut Vec<u8>, number: u32, kind: Type, value: &Value, place: Place) -> Result<(), Error> {
        match (kind, value) {
            (Type::String, Value::String(text)) => put_bytes(out, number, text.as_bytes()),
            (Type::String | Type::Bytes, Value::Null) => put_bytes(out, number, &[]),
            (Type::Bool, Value::Bool(value)) => put_int(out, number, i64::from(*value)),
            (Type::Bool | Type::Int32 | Type::Int64, Value::Null) => put_int(out, number, 0),
            (Type::Int32, value) => put_int(out, number, i64::from(scalar::int32_of(value).map_err(|problem| place.error(problem))?)),
            (Type::Int64, value) => put_int(out, number, scalar::int64_of(value).map_err(|problem| place.error(problem))?),
            (Type::Bytes, Value::String(text)) => {
                let bytes = STANDARD.decode(text).map_err(|error| place.error(format!("illegal base64 data: {error}")))?;
                put_bytes(out, number, &bytes);
            }
            (Type::Double, value) => {
                let float = if value.is_null() { Some(0.0) } else { value.as_f64() };
                let float = float.ok_or_else(|| place.expected("a number", value))?;
                put_tag(out, number, FIXED64);
                out.extend_from_slice(&float.to_bits().to_le_bytes());
            }
            (Type::String, other) => return Err(place.expected("a string", other)),
            (Type::Bool, other) => return Err(place.expected("a bool", other)),
            (Type::Bytes, other) => return Err(place.expected("base64", other)),
            (_, value) => put_nested(out, number, |out| self.content(out, kind, value, place))?,
        }
        Ok(())
    }

    /// What is inside a value that is a message.
    fn content(self, out: &mut Vec<u8>, kind: Type, value: &Value, place: Place) -> Result<(), Error> {
        let told = |problem| place.error(problem);
        match (kind, value) {
            (Type::Message(id), value) => self.object(out, id, value, place),
            (Type::Time, value) => scalar::put_time(out, value, Precision::Seconds).map_err(told),
            (Type::MicroTime, value) => scalar::put_time(out, value, Precision::Micros).map_err(told),
            (Type::Quantity, value) => scalar::put_quantity(out, value).map_err(told),
            (Type::IntOrString, value) => scalar::put_int_or_string(out, value).map_err(told),
            (Type::Raw | Type::Fields | Type::Json | Type::Strings | Type::SchemaOrArray | Type::SchemaOrStrings, Value::Null) => Ok(()),
            (Type::Raw | Type::Fields | Type::Json, value) => {
                put_nested(out, 1, |out| serde_json::to_writer(out, value)).map_err(|error| place.error(error.to_string()))
            }
            (Type::Strings, value) => put_strings(out, 1, value, place),
            (Type::SchemaOrArray, Value::Array(list)) => list.iter().try_for_each(|item| self.schema(out, 2, item, place)),
            (Type::SchemaOrArray | Type::SchemaOrStrings, Value::Object(_)) => self.schema(out, 1, value, place),
            (Type::SchemaOrStrings, value) => put_strings(out, 2, value, place),
            (Type::SchemaOrBool, Value::Bool(allows)) => {
                put_int(out, 1, i64::from(*allows));
                Ok(())
            }
            (Type::SchemaOrBool, Value::Object(_)) => {
                put_int(out, 1, 1);
                self.schema(out, 2, value, place)
            }
            (Type::SchemaOrBool, Value::Null) => {
                put_int(out, 1, 0);
                Ok(())
            }
            (_, other) => Err(place.expected("a schema", other)),
        }
    }

    fn object(self, out: &mut Vec<u8>, id: MessageId, value: &Value, place: Place) -> Result<(), Error> {
        match value {
            Value::Object(object) => self.message(out, self.table.message(id), object, place.depth),
            Value::Null => self.message(out, self.table.message(id), &Map::new(), place.depth),
            other => Err(place.expected("an object", other)),
        }
    }

    fn schema(self, out: &mut Vec<u8>, number: u32, value: &Value, place: Place) -> Result<(), Error> {
        put_nested(out, number, |out| self.object(out, self.table.json_schema_props, value, place))
    }
}

fn put_strings(out: &mut Vec<u8>, number: u32, value: &Value, place: Place) -> Result<(), Error> {
    let Value::Array(list) = value else {
        return Err(place.expected("an array", value));
    };
    for item in list {
        match item {
            Value::String(text) => put_bytes(out, number, text.as_bytes()),
            Value::Null => put_bytes(out, number, &[]),
            other => return Err(place.expected("a string", other)),
        }
    }
    Ok(())
}
