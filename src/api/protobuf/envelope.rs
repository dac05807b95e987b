//! What stands around a message on the wire. An object travels as the magic number `k8s\0` and a `runtime.Unknown` that names its version
//! and kind; a list is put together from items that were encoded before; a watch stream is frames of a big-endian length and a bare
//! `WatchEvent`, whose object is in an envelope again.

use serde_json::{Map, Value};

use super::decode::{Decoder, MAX_DEPTH};
use super::encode::put_message;
use super::error::Error;
use super::table;
use super::wire::{LENGTH, Reader, put_bytes, put_nested, put_tag, put_varint, varint_len};

/// What every enveloped object begins with.
pub const PREFIX: [u8; 4] = *b"k8s\0";

/// An opened `runtime.Unknown`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The version that it names; may be empty.
    pub api_version: &'a str,
    /// The kind that it names; may be empty.
    pub kind: &'a str,
    /// The message.
    pub raw: &'a [u8],
    content_encoding: &'a str,
}

impl<'a> Envelope<'a> {
    /// Opens an envelope without looking at the message in it.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes.is_empty() {
            return Err(Error::Empty);
        }
        let body = bytes.strip_prefix(&PREFIX).ok_or(Error::Prefix)?;
        if body.is_empty() {
            return Err(Error::EmptyBody);
        }
        let mut envelope = Self::default();
        let mut reader = Reader::new(body);
        while !reader.is_empty() {
            match reader.tag()? {
                (1, LENGTH) => {
                    let mut meta = Reader::new(reader.bytes()?);
                    while !meta.is_empty() {
                        match meta.tag()? {
                            (1, LENGTH) => envelope.api_version = text("apiVersion", meta.bytes()?)?,
                            (2, LENGTH) => envelope.kind = text("kind", meta.bytes()?)?,
                            (1 | 2, wire) => {
                                return Err(Error::WireType { message: "TypeMeta", field: "kind", wire });
                            }
                            (_, wire) => meta.skip(wire)?,
                        }
                    }
                }
                (2, LENGTH) => envelope.raw = reader.bytes()?,
                (3, LENGTH) => envelope.content_encoding = text("contentEncoding", reader.bytes()?)?,
                (4, LENGTH) => drop(text("contentType", reader.bytes()?)?),
                (1..=4, wire) => {
                    return Err(Error::WireType { message: "Unknown", field: "raw", wire });
                }
                (_, wire) => reader.skip(wire)?,
            }
        }
        Ok(envelope)
    }

    pub(super) fn decode(&self, decoder: &mut Decoder, depth: u8) -> Result<(String, String, Value), Error> {
        let (api_version, kind) = (self.api_version, self.kind);
        let told = || format!("{{apiVersion: {api_version:?}, kind: {kind:?}}}");
        if kind.is_empty() {
            return Err(Error::MissingKind(told()));
        }
        if api_version.is_empty() {
            return Err(Error::MissingVersion(told()));
        }
        if !self.content_encoding.is_empty() {
            return Err(Error::Encoding(self.content_encoding.to_owned()));
        }
        let id = message_of(api_version, kind)?;
        let mut object = decoder.object(id, self.raw, depth)?;
        object.insert("apiVersion".to_owned(), Value::from(api_version));
        object.insert("kind".to_owned(), Value::from(kind));
        Ok((api_version.to_owned(), kind.to_owned(), Value::Object(object)))
    }
}

/// Reads an enveloped object: its version, its kind, and its JSON form, apiVersion and kind included.
pub fn decode(bytes: &[u8]) -> Result<(String, String, Value), Error> {
    decode_as(bytes, "", "")
}

/// The same for a request whose path says what an envelope that names nothing must hold.
pub fn decode_as(bytes: &[u8], api_version: &str, kind: &str) -> Result<(String, String, Value), Error> {
    let opened = Envelope::open(bytes)?;
    let envelope = Envelope {
        api_version: if opened.api_version.is_empty() { api_version } else { opened.api_version },
        kind: if opened.kind.is_empty() { kind } else { opened.kind },
        ..opened
    };
    envelope.decode(&mut Decoder::new(bytes.len()), MAX_DEPTH)
}

/// Writes an object with its envelope.
pub fn encode(object: &Value, api_version: &str, kind: &str) -> Result<Vec<u8>, Error> {
    let id = message_of(api_version, kind)?;
    let mut out = Vec::with_capacity(1024);
    open_envelope(&mut out, api_version, kind);
    put_nested(&mut out, 2, |out| put_message(out, id, object))?;
    close_envelope(&mut out);
    Ok(out)
}

/// Writes an object without an envelope: an item for [`encode_list`], or content for [`wrap`], to be kept and used again.
pub fn encode_message(object: &Value, api_version: &str, kind: &str) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(1024);
    put_message(&mut out, message_of(api_version, kind)?, object)?;
    Ok(out)
}

/// Puts an envelope around a message.
pub fn wrap(message: &[u8], api_version: &str, kind: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + api_version.len() + kind.len() + 32);
    open_envelope(&mut out, api_version, kind);
    put_bytes(&mut out, 2, message);
    close_envelope(&mut out);
    out
}

/// Writes a list, with its envelope, from the list's metadata and items that [`encode_message`] made. The iterator is walked
/// twice: the lengths come first. `api_version` and `kind` are the list's.
pub fn encode_list<'a, I>(list_meta: &Value, items: I, api_version: &str, kind: &str) -> Result<Vec<u8>, Error>
where
    I: IntoIterator<Item = &'a [u8]>,
    I::IntoIter: Clone,
{
    let items = items.into_iter();
    let mut meta = Vec::with_capacity(128);
    put_nested(&mut meta, 1, |out| match list_meta {
        Value::Null => put_message(out, table::get().list_meta, &Value::Object(Map::new())),
        meta => put_message(out, table::get().list_meta, meta),
    })?;
    let length = items.clone().fold(meta.len(), |sum, item| sum + 1 + varint_len(item.len() as u64) + item.len());
    let mut out = Vec::with_capacity(length + api_version.len() + kind.len() + 32);
    open_envelope(&mut out, api_version, kind);
    put_tag(&mut out, 2, LENGTH);
    put_varint(&mut out, length as u64);
    out.extend_from_slice(&meta);
    for item in items {
        put_bytes(&mut out, 2, item);
    }
    close_envelope(&mut out);
    Ok(out)
}

/// One frame of a watch stream: `event` is `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`, `object` an enveloped object (a `Status` for
/// an error).
pub fn watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let object_len = 1 + varint_len(object.len() as u64) + object.len();
    let length = 1 + varint_len(event.len() as u64) + event.len() + 1 + varint_len(object_len as u64) + object_len;
    let mut out = Vec::with_capacity(4 + length);
    out.extend_from_slice(&(length as u32).to_be_bytes());
    put_bytes(&mut out, 1, event.as_bytes());
    put_tag(&mut out, 2, LENGTH);
    put_varint(&mut out, object_len as u64);
    put_bytes(&mut out, 1, object);
    out
}

/// One frame of a watch stream from an object as JSON.
pub fn watch_event(event: &str, object: &Value, api_version: &str, kind: &str) -> Result<Vec<u8>, Error> {
    Ok(watch_frame(event, &encode(object, api_version, kind)?))
}

fn message_of(api_version: &str, kind: &str) -> Result<table::MessageId, Error> {
    table::get().kind(api_version, kind).ok_or_else(|| Error::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() })
}

fn open_envelope(out: &mut Vec<u8>, api_version: &str, kind: &str) {
    out.extend_from_slice(&PREFIX);
    let field = |text: &str| 1 + varint_len(text.len() as u64) + text.len();
    put_tag(out, 1, LENGTH);
    put_varint(out, (field(api_version) + field(kind)) as u64);
    put_bytes(out, 1, api_version.as_bytes());
    put_bytes(out, 2, kind.as_bytes());
}

/// contentEncoding and contentType, both empty, as Go writes them.
fn close_envelope(out: &mut Vec<u8>) {
    put_bytes(out, 3, &[]);
    put_bytes(out, 4, &[]);
}

fn text<'a>(field: &'static str, bytes: &'a [u8]) -> Result<&'a str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::Value { message: "Unknown", field, problem: "not UTF-8".to_owned() })
}
