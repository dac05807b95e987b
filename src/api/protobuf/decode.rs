//! Wire form to JSON, one message at a time. Reads bytes that anybody may have sent: every length is checked against what is there, messages
//! nest only so deep, and the number of objects that come out is bounded by the number of bytes that went in.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::envelope::{Envelope, PREFIX};
use super::error::Error;
use super::scalar::{self, Precision};
use super::table::{self, Field, Form, Message, MessageId, Omit, Table, Type};
use super::wire::{FIXED64, LENGTH, Reader, VARINT};

/// How deep messages may nest; a schema of fifty levels stays below it.
pub(super) const MAX_DEPTH: u8 = 128;

/// Objects that may come out of any message, however short: what its absent fields stand for.
const FREE_OBJECTS: usize = 4096;

/// One decoding, with what it may still use up.
pub(super) struct Decoder {
    table: &'static Table,
    objects: usize,
}

impl Decoder {
    /// For a message of so many bytes. An empty list item takes two bytes and may become several objects, so it is objects that
    /// are counted; honest ones take far more than four bytes each.
    pub(super) fn new(length: usize) -> Self {
        Self { table: table::get(), objects: FREE_OBJECTS + length / 4 }
    }

    /// The object that a message stands for.
    pub(super) fn object(&mut self, id: MessageId, bytes: &[u8], depth: u8) -> Result<Map<String, Value>, Error> {
        let mut object = self.new_object()?;
        self.message(self.table.message(id), bytes, &mut object, 0, depth)?;
        Ok(object)
    }

    fn new_object(&mut self) -> Result<Map<String, Value>, Error> {
        self.objects = self.objects.checked_sub(1).ok_or(Error::Amplified)?;
        Ok(Map::new())
    }

    /// Reads a message into an object; fields that are there already are overwritten, lists grow. `seen` has a bit for every field that
    /// may be there already: asking the object costs more.
    fn message(
        &mut self,
        message: &'static Message,
        bytes: &[u8],
        into: &mut Map<String, Value>,
        mut seen: u64,
        depth: u8,
    ) -> Result<(), Error> {
        let depth = depth.checked_sub(1).ok_or(Error::Depth)?;
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let (number, wire) = reader.tag()?;
            let Some(place) = message.place(number) else {
                reader.skip(wire)?;
                continue;
            };
            let field = &message.fields[place];
            let again = seen & 1 << place != 0;
            seen |= 1 << place;
            match (field.form, field.kind) {
                (Form::List, Type::Int32 | Type::Int64 | Type::Bool | Type::Double) if wire == LENGTH => {
                    let mut packed = Reader::new(reader.bytes()?);
                    while !packed.is_empty() {
                        push(into, field.name, number_from(&mut packed, field.kind)?);
                    }
                }
                _ if wire != wire_type(field) => return Err(Error::WireType { message: message.name, field: field.name, wire }),
                (Form::List, kind) => {
                    let item = self.value(&mut reader, kind, depth)?;
                    push(into, field.name, item);
                }
                (Form::Map, kind) => {
                    let (key, value) = self.entry(reader.bytes()?, message, field, kind, depth)?;
                    if !again || !matches!(into.get(field.name), Some(Value::Object(_))) {
                        let map = self.new_object()?;
                        into.insert(field.name.to_owned(), Value::Object(map));
                    }
                    if let Some(Value::Object(map)) = into.get_mut(field.name) {
                        map.insert(key, value);
                    }
                }
                (Form::Inline, Type::Message(id)) => {
                    let seen = if again { u64::MAX } else { 0 };
                    self.message(self.table.message(id), reader.bytes()?, into, seen, depth)?;
                }
                (_, Type::Message(id)) => {
                    let bytes = reader.bytes()?;
                    match into.get_mut(field.name) {
                        Some(Value::Object(object)) if again => self.message(self.table.message(id), bytes, object, u64::MAX, depth)?,
                        _ => {
                            let object = self.object(id, bytes, depth)?;
                            into.insert(field.name.to_owned(), Value::Object(object));
                        }
                    }
                }
                (_, kind) => {
                    let value = self.value(&mut reader, kind, depth)?;
                    if field.form != Form::Plain || !is_left_out(field, &value) {
                        into.insert(field.name.to_owned(), value);
                    } else if again {
                        into.remove(field.name);
                    }
                }
            }
        }
        self.absent(message, into, seen)
    }

    /// Fills in what JSON shows of fields that are not on the wire.
    fn absent(&mut self, message: &'static Message, into: &mut Map<String, Value>, seen: u64) -> Result<(), Error> {
        for place in &message.always {
            let field = &message.fields[usize::from(*place)];
            let seen = seen & 1 << place != 0;
            match (field.form, field.kind) {
                (Form::Inline, Type::Message(id)) if !seen => self.absent(self.table.message(id), into, 0)?,
                (Form::Inline, _) => {}
                // Seen by an earlier part of the message only.
                _ if seen && into.contains_key(field.name) => {}
                (Form::Plain, kind) if kind != Type::Bytes => {
                    let zero = self.zero(kind)?;
                    into.insert(field.name.to_owned(), zero);
                }
                _ => drop(into.insert(field.name.to_owned(), Value::Null)),
            }
        }
        Ok(())
    }

    fn zero(&mut self, kind: Type) -> Result<Value, Error> {
        Ok(match kind {
            Type::String | Type::Bytes => Value::String(String::new()),
            Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => Value::from(0),
            Type::Bool | Type::SchemaOrBool => Value::Bool(false),
            Type::Quantity => Value::String("0".to_owned()),
            Type::Strings => Value::Array(Vec::new()),
            Type::Message(id) => {
                let mut object = self.new_object()?;
                self.absent(self.table.message(id), &mut object, 0)?;
                Value::Object(object)
            }
            Type::Time | Type::MicroTime | Type::Raw | Type::Fields | Type::Json | Type::SchemaOrArray | Type::SchemaOrStrings => {
                Value::Null
            }
        })
    }

    /// One entry of a map: a message with a key and a value, either of which may be missing.
    fn entry(
        &mut self,
        bytes: &[u8],
        message: &'static Message,
        field: &'static Field,
        kind: Type,
        depth: u8,
    ) -> Result<(String, Value), Error> {
        let mut key = String::new();
        let mut value = None;
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            match reader.tag()? {
                (1, LENGTH) => key = text(reader.bytes()?),
                (2, LENGTH) => value = Some(self.value(&mut reader, kind, depth)?),
                (1 | 2, wire) => {
                    return Err(Error::WireType { message: message.name, field: field.name, wire });
                }
                (_, wire) => reader.skip(wire)?,
            }
        }
        match value {
            Some(value) => Ok((key, value)),
            None => Ok((key, self.zero(kind)?)),
        }
    }

    /// One value, whose wire type has been checked.
    fn value(&mut self, reader: &mut Reader<'_>, kind: Type, depth: u8) -> Result<Value, Error> {
        Ok(match kind {
            Type::Int32 | Type::Int64 | Type::Bool | Type::Double => number_from(reader, kind)?,
            Type::String => Value::String(text(reader.bytes()?)),
            Type::Bytes => Value::String(STANDARD.encode(reader.bytes()?)),
            Type::Message(id) => Value::Object(self.object(id, reader.bytes()?, depth)?),
            Type::Time => scalar::time_from(reader.bytes()?, Precision::Seconds)?,
            Type::MicroTime => scalar::time_from(reader.bytes()?, Precision::Micros)?,
            Type::Quantity => scalar::quantity_from(reader.bytes()?)?,
            Type::IntOrString => scalar::int_or_string_from(reader.bytes()?)?,
            Type::Raw => self.raw("RawExtension", reader.bytes()?, depth)?,
            Type::Fields => self.raw("FieldsV1", reader.bytes()?, depth)?,
            Type::Json => self.raw("JSON", reader.bytes()?, depth)?,
            Type::Strings => {
                let list = repeated("ExtraValue", "items", 1, reader.bytes()?)?;
                Value::Array(list.into_iter().map(|item| Value::String(text(item))).collect())
            }
            Type::SchemaOrArray => {
                let bytes = reader.bytes()?;
                let list = repeated("JSONSchemaPropsOrArray", "jSONSchemas", 2, bytes)?;
                if list.is_empty() {
                    self.schema("JSONSchemaPropsOrArray", 1, bytes, depth)?.unwrap_or(Value::Null)
                } else {
                    let id = self.table.json_schema_props;
                    let list: Result<_, _> = list.into_iter().map(|item| self.object(id, item, depth).map(Value::Object)).collect();
                    Value::Array(list?)
                }
            }
            Type::SchemaOrStrings => {
                let bytes = reader.bytes()?;
                let list = repeated("JSONSchemaPropsOrStringArray", "property", 2, bytes)?;
                if list.is_empty() {
                    self.schema("JSONSchemaPropsOrStringArray", 1, bytes, depth)?.unwrap_or(Value::Null)
                } else {
                    Value::Array(list.into_iter().map(|item| Value::String(text(item))).collect())
                }
            }
            Type::SchemaOrBool => {
                let bytes = reader.bytes()?;
                match self.schema("JSONSchemaPropsOrBool", 2, bytes, depth)? {
                    Some(schema) => schema,
                    None => Value::Bool(allows(bytes)?),
                }
            }
        })
    }

    /// The schema in one of the three messages that hold a schema or something else.
    fn schema(&mut self, message: &'static str, number: u32, bytes: &[u8], depth: u8) -> Result<Option<Value>, Error> {
        match repeated(message, "schema", number, bytes)?.last() {
            Some(bytes) => Ok(Some(Value::Object(self.object(self.table.json_schema_props, bytes, depth)?))),
            None => Ok(None),
        }
    }

    /// JSON as it was written, or an object in an envelope of its own.
    fn raw(&mut self, message: &'static str, bytes: &[u8], depth: u8) -> Result<Value, Error> {
        match repeated(message, "raw", 1, bytes)?.last() {
            None | Some([]) => Ok(Value::Null),
            Some(raw) if raw.starts_with(&PREFIX) => {
                let depth = depth.checked_sub(1).ok_or(Error::Depth)?;
                Envelope::open(raw)?.decode(self, depth).map(|(_, _, object)| object)
            }
            Some(raw) => serde_json::from_slice(raw).map_err(|error| Error::Value { message, field: "raw", problem: error.to_string() }),
        }
    }
}

fn wire_type(field: &Field) -> u8 {
    match (field.form, field.kind) {
        (Form::Map, _) => LENGTH,
        (_, Type::Int32 | Type::Int64 | Type::Bool) => VARINT,
        (_, Type::Double) => FIXED64,
        _ => LENGTH,
    }
}

/// Whether Go's JSON leaves out this value of a field that is not a pointer.
fn is_left_out(field: &Field, value: &Value) -> bool {
    match field.omit {
        Omit::Never => false,
        Omit::Empty => field.kind.is_scalar() && is_zero(value),
        Omit::Zero => is_zero(value),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

fn push(into: &mut Map<String, Value>, name: &str, item: Value) {
    if let Some(Value::Array(list)) = into.get_mut(name) {
        list.push(item);
    } else {
        into.insert(name.to_owned(), Value::Array(vec![item]));
    }
}

fn number_from(reader: &mut Reader<'_>, kind: Type) -> Result<Value, Error> {
    Ok(match kind {
        Type::Int32 => Value::from(reader.varint()? as i32),
        Type::Int64 => Value::from(reader.varint()? as i64),
        Type::Double => scalar::double_from(f64::from_bits(reader.fixed64()?)),
        _ => Value::Bool(reader.varint()? != 0),
    })
}

/// Go prints what is not UTF-8 as replacement characters.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Every occurrence of one field with a length.
fn repeated<'a>(message: &'static str, field: &'static str, number: u32, bytes: &'a [u8]) -> Result<Vec<&'a [u8]>, Error> {
    let mut found = Vec::new();
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        match reader.tag()? {
            (at, LENGTH) if at == number => found.push(reader.bytes()?),
            (at, wire) if at == number => {
                return Err(Error::WireType { message, field, wire });
            }
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(found)
}

/// The boolean of a `JSONSchemaPropsOrBool`.
fn allows(bytes: &[u8]) -> Result<bool, Error> {
    let mut allows = false;
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        match reader.tag()? {
            (1, VARINT) => allows = reader.varint()? != 0,
            (1, wire) => {
                return Err(Error::WireType { message: "JSONSchemaPropsOrBool", field: "allows", wire });
            }
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(allows)
}
