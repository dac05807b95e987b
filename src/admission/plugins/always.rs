//! `AlwaysAdmit` and `AlwaysDeny`: for those who still name them. The one says nothing, the other says no to every change.

use futures::future::BoxFuture;

use crate::admission::{Mutate, Write};
use crate::status::Status;

/// The plugin `AlwaysAdmit`.
pub struct AlwaysAdmit;

impl Mutate for AlwaysAdmit {
    fn name(&self) -> &'static str {
        "AlwaysAdmit"
    }

    fn handles(&self, _write: &Write) -> bool {
        false
    }

    fn admit<'a>(&'a self, _write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
}

/// The plugin `AlwaysDeny`. What the server itself writes is not asked about: it would not start.
pub struct AlwaysDeny;

impl Mutate for AlwaysDeny {
    fn name(&self) -> &'static str {
        "AlwaysDeny"
    }

    fn handles(&self, write: &Write) -> bool {
        !crate::admission::matching::is_servers_own(write)
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async { Err(write.forbidden("admission control is denying all modifications")) })
    }
}
