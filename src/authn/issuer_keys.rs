//! The keys of an outside issuer: found by discovery, fetched when first needed, fetched again when a token names a key
//! that is not known or when they have grown old, and in the long run never more often than once a second, so that made-up
//! key ids cannot be used to make this server call another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use reqwest::Client;
use serde_json::Value;

use super::Unauthenticated;
use super::jws::{PublicKey, Token};
use super::trust;
use super::webhook_client::builder;

/// How long fetched keys are used without asking again.
const FRESH: Duration = Duration::from_secs(3600);

/// How often keys may be fetched one after the other; every second that passes allows one more again.
const BURST: f64 = 10.0;

/// No discovery document or key set is larger.
const MAX_BYTES: usize = 1 << 20;

/// Where an issuer's keys come from, and what was fetched last.
pub struct IssuerKeys {
    issuer: String,
    discovery: String,
    client: Client,
    fetched: ArcSwapOption<Fetched>,
    // Held while fetching, so that a burst of tokens makes one call.
    fetching: tokio::sync::Mutex<Allowance>,
}

/// How many fetches are left, and since when they have been growing again.
struct Allowance {
    left: f64,
    since: Instant,
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        self.left = (self.left + now.duration_since(self.since).as_secs_f64()).min(BURST);
        self.since = now;
        let allowed = self.left >= 1.0;
        if allowed {
            self.left -= 1.0;
        }
        allowed
    }
}

struct Fetched {
    keys: Vec<PublicKey>,
    at: Instant,
}

impl IssuerKeys {
    /// The keys of `issuer`, discovered at its own well-known address or at `discovery_url`; `ca` is a bundle in PEM.
    pub fn new(issuer: &str, discovery_url: Option<&str>, ca: Option<&str>) -> Result<Self, String> {
        let discovery = match discovery_url {
            Some(url) => url.to_owned(),
            None => format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/')),
        };
        let mut builder = builder(Duration::from_secs(30)).https_only(true);
        if let Some(ca) = ca {
            let bundle = trust::bundle(ca.as_bytes()).map_err(|_| "certificateAuthority: not a bundle of certificates in PEM")?;
            builder = builder.tls_backend_preconfigured(trust::config(&bundle, None)?);
        }
        let client = builder.build().map_err(|e| format!("cannot make a client for the issuer: {e}"))?;
        let fetching = tokio::sync::Mutex::new(Allowance { left: BURST, since: Instant::now() });
        Ok(IssuerKeys { issuer: issuer.to_owned(), discovery, client, fetched: ArcSwapOption::empty(), fetching })
    }

    /// Whether the issuer signed the token.
    pub async fn verify(&self, token: &Token<'_>) -> Result<(), Unauthenticated> {
        let known = self.fetched.load_full();
        if let Some(known) = &known {
            let names_known = token.key_id.as_ref().is_some_and(|id| known.keys.iter().any(|key| key.id == *id));
            if names_known && known.at.elapsed() < FRESH {
                return token.verify(known.keys.iter());
            }
            if token.key_id.is_none() && known.at.elapsed() < FRESH && token.verify(known.keys.iter()).is_ok() {
                return Ok(());
            }
        }
        match self.fetch(known.as_ref()).await {
            Ok(fresh) => token.verify(fresh.keys.iter()),
            // Old keys are better than none while the issuer is out of reach.
            Err(error) => match known {
                Some(known) => token.verify(known.keys.iter()),
                None => Err(Unauthenticated(format!("oidc: cannot fetch the issuer's keys: {error}"))),
            },
        }
    }

    async fn fetch(&self, seen: Option<&Arc<Fetched>>) -> Result<Arc<Fetched>, String> {
        let mut allowance = self.fetching.lock().await;
        // Somebody else may have fetched while this one waited.
        if let Some(current) = self.fetched.load_full()
            && seen.is_none_or(|seen| !Arc::ptr_eq(seen, &current))
        {
            return Ok(current);
        }
        if !allowance.take(Instant::now()) {
            return Err("asked too often".into());
        }
        let document = self.get(&self.discovery).await?;
        if document["issuer"].as_str() != Some(&self.issuer) {
            return Err("the discovery document is of another issuer".into());
        }
        let jwks_uri = document["jwks_uri"].as_str().ok_or("the discovery document has no jwks_uri")?;
        let jwks = self.get(jwks_uri).await?;
        let keys = jwks["keys"].as_array().ok_or("the key set has no keys")?.iter().filter_map(PublicKey::from_jwk).collect();
        let fetched = Arc::new(Fetched { keys, at: Instant::now() });
        self.fetched.store(Some(fetched.clone()));
        Ok(fetched)
    }

    async fn get(&self, url: &str) -> Result<Value, String> {
        let failed = |e: reqwest::Error| format!("{}", e.without_url());
        let mut response = self.client.get(url).header("accept", "application/json").send().await.map_err(failed)?;
        if !response.status().is_success() {
            return Err(format!("the issuer answered {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BYTES {
                return Err("the issuer's answer is too large".into());
            }
        }
        serde_json::from_slice(&body).map_err(|_| "the issuer's answer is not JSON".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_are_few_in_the_long_run() {
        let start = Instant::now();
        let mut allowance = Allowance { left: BURST, since: start };
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!((0..100).filter(|_| allowance.take(start)).count(), 10);
        assert_eq!((0..100).filter(|_| allowance.take(at(3))).count(), 3);
        assert_eq!((0..100).filter(|_| allowance.take(at(1000))).count(), 10);
    }
}
