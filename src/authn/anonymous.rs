//! Who asks without a credential: `system:anonymous`, on every path, on some paths only (structured configuration), or
//! nowhere. It stands apart from the chain's other members because it must never answer for a bad credential.

use std::sync::Arc;

use crate::request::User;

use super::{ALL_UNAUTHENTICATED, ANONYMOUS, Authenticated};

/// Where anonymous requests are let through to authorisation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Everywhere, as a real server does by default.
    #[default]
    Everywhere,
    /// On these paths only.
    Paths(Vec<String>),
    /// Nowhere.
    Nowhere,
}

impl Anonymous {
    /// The identity of a request without credential, if this path may have one.
    pub fn authenticate(&self, path: &str) -> Option<Authenticated> {
        let allowed = match self {
            Anonymous::Everywhere => true,
            Anonymous::Paths(paths) => paths.iter().any(|p| p == path),
            Anonymous::Nowhere => false,
        };
        allowed.then(|| Authenticated {
            user: Arc::new(User::new(ANONYMOUS, &[ALL_UNAUTHENTICATED])),
            audiences: Vec::new(),
            by: "anonymous",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_can_be_switched_off_and_narrowed_to_paths() {
        assert_eq!(Anonymous::Everywhere.authenticate("/api").unwrap().user.name, "system:anonymous");
        let paths = Anonymous::Paths(vec!["/livez".into()]);
        assert!(paths.authenticate("/livez").is_some());
        assert!(paths.authenticate("/livez/ping").is_none());
        assert!(Anonymous::Nowhere.authenticate("/livez").is_none());
    }
}
