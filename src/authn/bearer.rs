//! Bearer tokens: where a request carries one, and which token authenticator knows it. Also the place that TokenReview
//! asks, with the audiences of its own question. How a single sort of token is checked is no business of this file.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::request::Parts;

use super::{Authenticated, Authenticator, TokenAuthenticator, Unauthenticated};

/// No token that anybody issues is as long as this; what is longer is refused unread.
pub const MAX_TOKEN_BYTES: usize = 64 * 1024;

const PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Every way to know a token, in order.
pub struct Bearer {
    tokens: Vec<Arc<dyn TokenAuthenticator>>,
    audiences: Vec<String>,
}

impl Bearer {
    /// Token authenticators in order, and the API audiences.
    pub fn new(tokens: Vec<Arc<dyn TokenAuthenticator>>, audiences: Vec<String>) -> Self {
        Bearer { tokens, audiences }
    }

    /// The audiences that the server identifies with.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Who a token belongs to. The error lists every refusal the way a real server aggregates them, beginning with
    /// "invalid bearer token".
    pub async fn review(&self, token: &str, audiences: &[String]) -> Result<Authenticated, Unauthenticated> {
        let mut refusals = vec!["invalid bearer token".to_owned()];
        let asked = if audiences.is_empty() { &self.audiences } else { audiences };
        if token.len() <= MAX_TOKEN_BYTES {
            for authenticator in &self.tokens {
                match authenticator.authenticate_token(token, asked).await {
                    Ok(Some(known)) => match self.narrow(known, asked) {
                        Some(known) => return Ok(known),
                        None => continue,
                    },
                    Ok(None) => {}
                    Err(why) if refusals.contains(&why.0) => {}
                    Err(why) => refusals.push(why.0),
                }
            }
        }
        Err(Unauthenticated(match refusals.len() {
            1 => refusals.remove(0),
            _ => format!("[{}]", refusals.join(", ")),
        }))
    }

    /// The identity with the audiences that it and the asker share; none if they share no audience. A token that says
    /// nothing of audiences is one for this server.
    fn narrow(&self, mut known: Authenticated, asked: &[String]) -> Option<Authenticated> {
        if known.audiences.is_empty() {
            known.audiences.clone_from(&self.audiences);
        }
        if asked.is_empty() {
            return Some(known);
        }
        known.audiences.retain(|audience| asked.contains(audience));
        (!known.audiences.is_empty()).then_some(known)
    }
}

impl Authenticator for Bearer {
    fn name(&self) -> &'static str {
        "bearer"
    }

    fn absent(&self) -> &'static str {
        "no bearer token"
    }

    fn reads(&self, header: &str) -> bool {
        header.eq_ignore_ascii_case(AUTHORIZATION.as_str())
    }

    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Option<Authenticated>, Unauthenticated>> {
        Box::pin(async move {
            match token_of(&request.headers)? {
                None => Ok(None),
                Some(token) => self.review(&token, &self.audiences).await.map(Some),
            }
        })
    }
}

/// The token of a request: `Authorization: Bearer …`, or the subprotocol that a browser's WebSocket must use instead.
pub fn token_of(headers: &HeaderMap) -> Result<Option<String>, Unauthenticated> {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let text = value.to_str().map_err(|_| Unauthenticated::because("the Authorization header is not text"))?.trim();
        let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
        if !scheme.eq_ignore_ascii_case("bearer") {
            // Another scheme (Basic, Negotiate) is a credential all the same, and one that nobody here knows.
            return Err(Unauthenticated::because("the Authorization header is of an unknown scheme"));
        }
        let token = rest.trim();
        if token.is_empty() {
            return Err(Unauthenticated::because("the bearer token is empty"));
        }
        return Ok(Some(token.to_owned()));
    }
    for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        let Ok(text) = value.to_str() else { continue };
        let Some(encoded) = text.split(',').find_map(|p| p.trim().strip_prefix(PROTOCOL_PREFIX)) else { continue };
        let token = URL_SAFE_NO_PAD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        return match token {
            Some(token) if !token.is_empty() => Ok(Some(token)),
            _ => Err(Unauthenticated::because("the bearer token in the WebSocket subprotocol is malformed")),
        };
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{OneToken, request};
    use super::*;

    #[test]
    fn a_token_is_read_from_either_header_and_nothing_else_passes_as_none() {
        let token = |headers: &[(&'static str, &str)]| token_of(&request("/", headers).headers);
        assert_eq!(token(&[]).unwrap(), None);
        assert_eq!(token(&[("authorization", "bearer  t")]).unwrap(), Some("t".into()));
        assert!(token(&[("authorization", "Bearer ")]).is_err());
        assert!(token(&[("authorization", "Basic YTpi")]).is_err());
        let protocol = format!("{PROTOCOL_PREFIX}{}, v4.channel.k8s.io", URL_SAFE_NO_PAD.encode("t"));
        assert_eq!(token(&[("sec-websocket-protocol", &protocol)]).unwrap(), Some("t".into()));
        assert!(token(&[("sec-websocket-protocol", &format!("{PROTOCOL_PREFIX}!!"))]).is_err());
        assert_eq!(token(&[("sec-websocket-protocol", "v4.channel.k8s.io")]).unwrap(), None);
    }

    #[tokio::test]
    async fn an_unknown_or_oversized_token_is_an_invalid_bearer_token() {
        let bearer = Bearer::new(vec![Arc::new(OneToken("good", "bob"))], vec![]);
        assert_eq!(bearer.review("bad", &[]).await.unwrap_err().0, "invalid bearer token");
        assert!(bearer.review(&"x".repeat(MAX_TOKEN_BYTES + 1), &[]).await.is_err());
        assert_eq!(bearer.review("good", &[]).await.unwrap().user.name, "bob");
    }

    #[tokio::test]
    async fn a_token_without_audiences_is_good_for_this_server_only() {
        let bearer = Bearer::new(vec![Arc::new(OneToken("good", "bob"))], vec!["api".into()]);
        assert_eq!(bearer.review("good", &[]).await.unwrap().audiences, ["api"]);
        assert_eq!(bearer.review("good", &["other".into()]).await.unwrap_err().0, "invalid bearer token");
    }
}
