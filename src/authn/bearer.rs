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

/// The token of a request: `Authorization: Bearer …`, or the subprotocol that a browser's WebSocket must use instead. What follows
/// a token behind a blank is passed over, as a real server does.
pub fn token_of(headers: &HeaderMap) -> Result<Option<String>, Unauthenticated> {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let text = value.to_str().map_err(|_| Unauthenticated::because("the Authorization header is not text"))?.trim();
        let mut words = text.split(' ');
        let scheme = words.next().unwrap_or_default();
        if !scheme.is_empty() {
            if !scheme.eq_ignore_ascii_case("bearer") {
                // Another scheme (Basic, Negotiate) is a credential all the same, and one that nobody here knows.
                return Err(Unauthenticated::because("the Authorization header is of an unknown scheme"));
            }
            // Several blanks in between leave an empty token: what was meant is not guessed.
            return match words.next().filter(|token| !token.is_empty()) {
                Some(token) => Ok(Some(token.to_owned())),
                None => Err(Unauthenticated::because("the bearer token is empty")),
            };
        }
    }
    if is_websocket(headers) { protocol_token(headers) } else { Ok(None) }
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let says = |name: http::HeaderName, word: &str| {
        let values = headers.get_all(name);
        values.iter().filter_map(|value| value.to_str().ok()).any(|value| value.to_ascii_lowercase().contains(word))
    };
    says(http::header::CONNECTION, "upgrade") && says(http::header::UPGRADE, "websocket")
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

fn protocol_token(headers: &HeaderMap) -> Result<Option<String>, Unauthenticated> {
    let mut tokens = protocols(headers).filter_map(|protocol| protocol.strip_prefix(PROTOCOL_PREFIX));
    let Some(encoded) = tokens.next() else { return Ok(None) };
    if tokens.next().is_some() {
        return Err(Unauthenticated::because("multiple base64.bearer.authorization tokens specified"));
    }
    let decoded = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| "invalid base64.bearer.authorization token encoding");
    let token = decoded.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "invalid base64.bearer.authorization token"));
    let token = token.map_err(Unauthenticated::because)?;
    if token.is_empty() {
        return Err(Unauthenticated::because("the bearer token is empty"));
    }
    // There must be one to answer with that is no secret.
    if protocols(headers).all(|protocol| protocol.starts_with(PROTOCOL_PREFIX)) {
        return Err(Unauthenticated::because("missing additional subprotocol"));
    }
    Ok(Some(token))
}

/// Takes a token out of the subprotocols, where nobody behind authentication needs it.
pub fn strip_protocol(headers: &mut HeaderMap) {
    if !protocols(headers).any(|protocol| protocol.starts_with(PROTOCOL_PREFIX)) {
        return;
    }
    let rest = protocols(headers).filter(|protocol| !protocol.starts_with(PROTOCOL_PREFIX)).collect::<Vec<_>>().join(",");
    match http::HeaderValue::from_str(&rest) {
        Ok(rest) if !rest.is_empty() => drop(headers.insert(SEC_WEBSOCKET_PROTOCOL, rest)),
        _ => drop(headers.remove(SEC_WEBSOCKET_PROTOCOL)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{OneToken, request};
    use super::*;

    #[test]
    fn a_token_is_read_from_either_header_and_nothing_else_passes_as_none() {
        let token = |headers: &[(&'static str, &str)]| token_of(&request("/", headers).headers);
        assert_eq!(token(&[]).unwrap(), None);
        assert_eq!(token(&[("authorization", "")]).unwrap(), None);
        assert_eq!(token(&[("authorization", "bearer t")]).unwrap(), Some("t".into()));
        assert_eq!(token(&[("authorization", "Bearer t u")]).unwrap(), Some("t".into()));
        for bad in ["Bearer", "Bearer ", "Bearer  t", "Basic YTpi", "t"] {
            assert!(token(&[("authorization", bad)]).is_err(), "{bad}");
        }
        let upgrade = |protocol: &str| token(&[("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-protocol", protocol)]);
        let one = format!("{PROTOCOL_PREFIX}{}", URL_SAFE_NO_PAD.encode("t"));
        assert_eq!(upgrade(&format!("{one}, v4.channel.k8s.io")).unwrap(), Some("t".into()));
        assert_eq!(upgrade("v4.channel.k8s.io").unwrap(), None);
        for bad in [format!("{PROTOCOL_PREFIX}!!, v4"), format!("{one},{one},v4"), one.clone(), format!("{PROTOCOL_PREFIX},v4")] {
            assert!(upgrade(&bad).is_err(), "{bad}");
        }
        assert_eq!(token(&[("sec-websocket-protocol", &format!("{one}, v4"))]).unwrap(), None, "no WebSocket, no token");
    }

    #[test]
    fn a_token_does_not_travel_on_in_the_subprotocols() {
        let protocol = format!("v4.channel.k8s.io, {PROTOCOL_PREFIX}dA, v5.channel.k8s.io");
        let mut headers = request("/", &[("sec-websocket-protocol", &protocol)]).headers;
        strip_protocol(&mut headers);
        assert_eq!(headers[SEC_WEBSOCKET_PROTOCOL], "v4.channel.k8s.io,v5.channel.k8s.io");
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
