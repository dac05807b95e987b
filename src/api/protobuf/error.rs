//! Why bytes could not be read as an object, or an object not be written as bytes. The words are those of a real server
//! where clients get to see them.

use thiserror::Error as ThisError;

/// What went wrong.
#[derive(Debug, ThisError, PartialEq, Eq)]
pub enum Error {
    /// No bytes at all.
    #[error("empty data")]
    Empty,
    /// The magic number is missing: somebody sent JSON under protobuf's name.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    /// Nothing behind the magic number.
    #[error("empty body")]
    EmptyBody,
    /// The bytes end in the middle of something.
    #[error("unexpected EOF")]
    Truncated,
    /// A varint of more than ten bytes.
    #[error("proto: integer overflow")]
    Overflow,
    /// A field number that cannot be, or a wire type that protobuf does not have.
    #[error("proto: illegal tag {0} (wire type {1})")]
    Tag(u64, u8),
    /// A group ends that did not begin, or never ends.
    #[error("proto: unexpected end of group")]
    Group,
    /// A known field with another wire type than it has.
    #[error("proto: wrong wireType = {wire} for field {message}.{field}")]
    WireType {
        /// The message.
        message: &'static str,
        /// The field, by its JSON name.
        field: &'static str,
        /// What was on the wire.
        wire: u8,
    },
    /// Messages within messages beyond what any schema needs.
    #[error("exceeded max depth")]
    Depth,
    /// Far more objects than so many bytes can stand for in an honest encoding.
    #[error("too many objects for the size of the message")]
    Amplified,
    /// The envelope does not name a kind, and the request does not either.
    #[error("Object 'Kind' is missing in '{0}'")]
    MissingKind(String),
    /// The envelope does not name a version, and the request does not either.
    #[error("Object 'apiVersion' is missing in '{0}'")]
    MissingVersion(String),
    /// No such kind in protobuf.
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    UnknownKind {
        /// The version that was asked for.
        api_version: String,
        /// The kind that was asked for.
        kind: String,
    },
    /// The envelope says that its content is compressed or not protobuf.
    #[error("unsupported content encoding \"{0}\"")]
    Encoding(String),
    /// A value whose JSON form does not fit the field.
    #[error("{message}.{field}: {problem}")]
    Value {
        /// The message.
        message: &'static str,
        /// The field, by its JSON name.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}
