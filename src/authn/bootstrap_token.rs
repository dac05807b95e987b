//! Bootstrap tokens: `<id>.<secret>`, good as long as the Secret `bootstrap-token-<id>` in `kube-system` says so. They
//! let a new node ask for its certificate, and nothing else by default.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::request::User;

use super::{Authenticated, Now, Objects, TokenAuthenticator, Unauthenticated};

/// The authenticator.
pub struct BootstrapTokens {
    objects: Arc<dyn Objects>,
    now: Now,
}

impl BootstrapTokens {
    /// Reads Secrets through `objects`.
    pub fn new(objects: Arc<dyn Objects>, now: Now) -> Self {
        BootstrapTokens { objects, now }
    }

    fn check(&self, token: &str) -> Result<Option<Authenticated>, Unauthenticated> {
        let Some((id, secret)) = parts(token) else { return Ok(None) };
        let refused = |why: &str| Err(Unauthenticated(format!("bootstrap token {id}: {why}")));
        let Some(object) = self.objects.get("secrets", "kube-system", &format!("bootstrap-token-{id}")) else { return Ok(None) };
        let data = |key: &str| {
            let value = object["data"][key].as_str().and_then(|v| STANDARD.decode(v).ok()).unwrap_or_default();
            String::from_utf8(value).unwrap_or_default()
        };
        if object["type"] != "bootstrap.kubernetes.io/token" || !object["metadata"]["deletionTimestamp"].is_null() {
            return refused("its secret is of another type or being deleted");
        }
        if data("token-id") != id || verify_slices_are_equal(data("token-secret").as_bytes(), secret.as_bytes()).is_err() {
            return refused("its secret is another");
        }
        let expiration = data("expiration");
        if !expiration.is_empty() {
            match expiration.parse::<jiff::Timestamp>() {
                Ok(at) if (self.now)() < at => {}
                Ok(_) => return refused("it has expired"),
                Err(_) => return refused("its expiration is not a time"),
            }
        }
        if data("usage-bootstrap-authentication") != "true" {
            return refused("it is not for authentication");
        }
        let mut groups = vec!["system:bootstrappers".to_owned()];
        for group in data("auth-extra-groups").split(',').filter(|g| !g.is_empty()) {
            if !is_bootstrap_group(group) {
                return refused("it names a group that bootstrap tokens cannot have");
            }
            groups.push(group.to_owned());
        }
        let user = User { name: format!("system:bootstrap:{id}"), groups, ..User::default() };
        Ok(Some(Authenticated { user: Arc::new(user), audiences: Vec::new(), by: "bootstrap-token" }))
    }
}

/// The two halves of `[a-z0-9]{6}.[a-z0-9]{16}`.
fn parts(token: &str) -> Option<(&str, &str)> {
    let plain = |text: &str, length| text.len() == length && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    token.split_once('.').filter(|(id, secret)| plain(id, 6) && plain(secret, 16))
}

fn is_bootstrap_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b':' | b'-'))
        && edge(rest.bytes().next())
        && edge(rest.bytes().last())
        && rest.len() <= 256
}

impl TokenAuthenticator for BootstrapTokens {
    fn name(&self) -> &'static str {
        "bootstrap-token"
    }

    fn authenticate_token<'a>(&'a self, token: &'a str, _: &'a [String]) -> BoxFuture<'a, Result<Option<Authenticated>, Unauthenticated>> {
        let found = self.check(token);
        Box::pin(async move { found })
    }
}

/// What a Secret of this sort must look like, for tests and for `usher token create`.
pub fn secret(id: &str, secret: &str, expiration: &str, groups: &str) -> Value {
    let encode = |text: &str| STANDARD.encode(text);
    serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "data": {
            "token-id": encode(id), "token-secret": encode(secret), "expiration": encode(expiration),
            "usage-bootstrap-authentication": encode("true"), "auth-extra-groups": encode(groups),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{Clock, Map};
    use super::*;

    const GOOD: &str = "abcdef.0123456789abcdef";

    #[test]
    fn a_token_is_good_while_its_secret_says_so() {
        let (objects, clock) = (Arc::new(Map::default()), Clock::at(0));
        let tokens = BootstrapTokens::new(objects.clone(), clock.now());
        assert!(tokens.check(GOOD).unwrap().is_none());
        let groups = "system:bootstrappers:kubeadm:default-node-token";
        objects.put("secrets", secret("abcdef", "0123456789abcdef", "1970-01-01T01:00:00Z", groups));
        let user = tokens.check(GOOD).unwrap().unwrap().user;
        assert_eq!((&*user.name, &*user.groups), ("system:bootstrap:abcdef", &["system:bootstrappers".to_owned(), groups.to_owned()][..]));
        assert!(tokens.check("abcdef.0123456789abcdee").is_err());
        for other in ["", "abcdef", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcde", "abcdef.0123456789abcdef0"] {
            assert!(tokens.check(other).unwrap().is_none(), "{other}");
        }
        clock.advance(3600);
        assert!(tokens.check(GOOD).is_err());
        objects.remove("secrets", "kube-system", "bootstrap-token-abcdef");
        assert!(tokens.check(GOOD).unwrap().is_none());
    }

    #[test]
    fn a_token_cannot_give_itself_foreign_groups() {
        let objects = Arc::new(Map::default());
        objects.put("secrets", secret("abcdef", "0123456789abcdef", "", "system:masters"));
        assert!(BootstrapTokens::new(objects, Clock::at(0).now()).check(GOOD).is_err());
    }
}
