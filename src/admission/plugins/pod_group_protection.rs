//! `PodGroupProtection`: the name, for those who turn it on or off. What it protects is behind the feature gate `GenericWorkload`, which
//! is off in 1.37 unless somebody turns it on; until then a real server has no PodGroups either, and the plugin nothing to say.

use futures::future::BoxFuture;

use crate::admission::{Mutate, Write};
use crate::status::Status;

/// The plugin.
pub struct PodGroupProtection;

impl Mutate for PodGroupProtection {
    fn name(&self) -> &'static str {
        "PodGroupProtection"
    }

    fn handles(&self, _write: &Write) -> bool {
        false
    }

    fn admit<'a>(&'a self, _write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }
}
