//! The three patches that change an object by themselves: JSON Patch ([`json`]), JSON merge patch ([`merge`]) and
//! strategic merge patch ([`strategic`]). Pure functions from a document and a patch to a document; server-side apply,
//! which also keeps ownership, is [`super::apply`].
//!
//! What the caller still has to do, in this order:
//! - refuse a media type that the resource does not take (415; custom resources take no strategic merge patch);
//! - decode the patched object by its schema. Where that fails, a real server answers 422 with one cause on the field
//!   `patch`: for JSON and merge patches its value is the patched document as JSON, for strategic ones it is the patch as
//!   [`go::plain`] prints it;
//! - default it, and only then track the change with [`super::apply::track_update`];
//! - on a write conflict, patch the newer object again, unless the patch names a resourceVersion (409).

pub mod go;
pub mod json;
pub mod merge;
pub mod strategic;

use crate::status::{Details, Status};

/// Why a patch was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not a patch of its kind: 400.
    #[error("{0}")]
    BadRequest(String),
    /// The patch asks for too much: 413.
    #[error("Request entity too large: {0}")]
    TooLarge(String),
    /// The patch is well-formed but does not fit the document: 422. A real server keeps the reason to itself, so it is for
    /// traces and logs.
    #[error("{0}")]
    Rejected(String),
    /// A failure that a real server does not classify: 500 without a reason.
    #[error("{0}")]
    Unclassified(String),
}

impl From<PatchError> for Status {
    fn from(error: PatchError) -> Status {
        match error {
            PatchError::BadRequest(message) => Status::bad_request(message),
            PatchError::TooLarge(_) => Status::new(413, "RequestEntityTooLarge", error.to_string()),
            PatchError::Rejected(_) => {
                let mut status = Status::new(422, "Invalid", "the server rejected our request due to an error in our request");
                status.details = Some(Box::<Details>::default());
                status
            }
            PatchError::Unclassified(message) => Status::unclassified(message),
        }
    }
}
