//! `application/vnd.kubernetes.protobuf`: built-in kinds between their JSON form and the wire form of Kubernetes' protobuf, by
//! descriptor. One table (`messages.txt`) says what every message looks like on both sides; nothing here knows a kind by name.
//!
//! What comes out of [`decode`] is what a Go server's JSON encoder would print for the same object: empty values that carry
//! `omitempty` are gone, `status: {}` and `rules: null` are there. What comes out of [`encode`] is, byte for byte, what Go's generated
//! code writes: scalars that are not pointers are always written, map entries are sorted by key.
//!
//! This room does not validate, default or convert; custom resources have no protobuf form and are refused ([`supports`]).
//!
//! ```
//! use serde_json::json;
//! use usher::api::protobuf;
//!
//! let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "blue"}, "spec": {}, "status": {}});
//! let bytes = protobuf::encode(&namespace, "v1", "Namespace")?;
//! assert_eq!(protobuf::decode(&bytes)?, ("v1".to_owned(), "Namespace".to_owned(), namespace));
//! # Ok::<(), protobuf::Error>(())
//! ```

mod decode;
mod encode;
mod envelope;
mod error;
mod scalar;
mod table;
mod wire;

#[cfg(test)]
mod tests;

pub use envelope::{Envelope, PREFIX, decode, decode_as, encode, encode_list, encode_message, watch_event, watch_frame, wrap};
pub use error::Error;

/// Whether the kind has a protobuf form. Custom kinds, and the few built-in ones that are JSON only (Table), have none.
pub fn supports(api_version: &str, kind: &str) -> bool {
    table::get().kind(api_version, kind).is_some()
}
