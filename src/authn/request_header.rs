//! The front proxy: whoever shows a certificate of the proxies' own authority may say in headers who asks. Headers
//! without such a certificate mean nothing; [`RequestHeader::headers`] names those that must not travel further.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::HeaderMap;
use http::request::Parts;

use crate::request::{User, decode};

use super::x509::Authorities;
use super::{Authenticated, Authenticator, PeerCertificates, Unauthenticated};

/// The `--requestheader-*` settings.
#[derive(Clone, Debug)]
pub struct Headers {
    /// Where the user's name stands; the first that is not empty counts.
    pub username: Vec<String>,
    /// Where the uid stands.
    pub uid: Vec<String>,
    /// Where groups stand; every value of each counts.
    pub group: Vec<String>,
    /// What headers with extra values begin with.
    pub extra_prefix: Vec<String>,
    /// The common names of the proxies; empty admits every certificate of the authority.
    pub allowed_names: Vec<String>,
}

impl Default for Headers {
    fn default() -> Self {
        Headers {
            username: vec!["X-Remote-User".into()],
            uid: vec!["X-Remote-Uid".into()],
            group: vec!["X-Remote-Group".into()],
            extra_prefix: vec!["X-Remote-Extra-".into()],
            allowed_names: Vec::new(),
        }
    }
}

/// The authenticator.
pub struct RequestHeader {
    authorities: Arc<Authorities>,
    settings: Headers,
}

impl RequestHeader {
    /// Proxies are known by certificates of `authorities`.
    pub fn new(authorities: Arc<Authorities>, settings: Headers) -> Self {
        RequestHeader { authorities, settings }
    }

    /// Whether a header is one of a proxy's, and therefore to be dropped behind authentication.
    pub fn headers(&self, name: &str) -> bool {
        let settings = &self.settings;
        let plain = [&settings.username, &settings.uid, &settings.group];
        plain.into_iter().flatten().any(|h| h.eq_ignore_ascii_case(name))
            || settings.extra_prefix.iter().any(|prefix| strip_prefix(name, prefix).is_some())
    }

    fn check(&self, request: &Parts) -> Result<Option<Authenticated>, Unauthenticated> {
        let Some(peer) = request.extensions.get::<PeerCertificates>() else { return Ok(None) };
        let Some(name) = first(&request.headers, &self.settings.username)? else { return Ok(None) };
        let Some(proxy) = self.authorities.verify(&peer.0)? else { return Ok(None) };
        let allowed = &self.settings.allowed_names;
        if !allowed.is_empty() && !allowed.contains(&proxy.name) {
            return Err(Unauthenticated(format!("x509: subject with cn={} is not in the allowed list", proxy.name)));
        }
        let mut user = User { name, uid: first(&request.headers, &self.settings.uid)?.unwrap_or_default(), ..User::default() };
        for header in &self.settings.group {
            for value in request.headers.get_all(header.as_str()) {
                user.groups.push(text(value)?);
            }
        }
        for (header, value) in &request.headers {
            let Some(key) = self.settings.extra_prefix.iter().find_map(|p| strip_prefix(header.as_str(), p)) else { continue };
            let key = decode(&key.to_ascii_lowercase());
            let value = text(value)?;
            match user.extra.iter_mut().find(|(k, _)| *k == key) {
                Some((_, values)) => values.push(value),
                None => user.extra.push((key, vec![value])),
            }
        }
        Ok(Some(Authenticated { user: Arc::new(user), audiences: Vec::new(), by: "request-header" }))
    }
}

fn first(headers: &HeaderMap, names: &[String]) -> Result<Option<String>, Unauthenticated> {
    for name in names {
        if let Some(value) = headers.get(name.as_str()) {
            let value = text(value)?;
            if !value.is_empty() {
                return Ok(Some(value));
            }
        }
    }
    Ok(None)
}

fn text(value: &http::HeaderValue) -> Result<String, Unauthenticated> {
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| Unauthenticated::because("a header of the front proxy is not text"))?;
    Ok(text.to_owned())
}

fn strip_prefix<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = name.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

impl Authenticator for RequestHeader {
    fn name(&self) -> &'static str {
        "request-header"
    }

    fn absent(&self) -> &'static str {
        "no headers of a front proxy"
    }

    fn reads(&self, header: &str) -> bool {
        self.headers(header)
    }

    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Option<Authenticated>, Unauthenticated>> {
        let found = self.check(request);
        Box::pin(async move { found })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{Authority, Clock, Leaf, request};
    use super::*;

    fn proxied(ca: &Authority, cn: &str, headers: &[(&'static str, &str)]) -> Parts {
        let mut parts = request("/api", headers);
        parts.extensions.insert(PeerCertificates(Arc::new(vec![ca.issue(&Leaf { cn, ..Leaf::default() }).0])));
        parts
    }

    #[test]
    fn a_proxy_says_who_asks_and_nobody_else_can() {
        let ca = Authority::new("proxies");
        let authorities = Arc::new(Authorities::new(Clock::system().now()));
        authorities.replace(ca.pem.as_bytes()).unwrap();
        let allowed_names = vec!["front".into()];
        let proxy = RequestHeader::new(authorities, Headers { allowed_names, ..Headers::default() });
        let headers =
            [("x-remote-user", "bob"), ("x-remote-group", "a"), ("x-remote-group", "b"), ("x-remote-extra-acme.com%2fproject", "p")];

        let user = proxy.check(&proxied(&ca, "front", &headers)).unwrap().unwrap().user;
        assert_eq!((&*user.name, user.groups.len()), ("bob", 2));
        assert_eq!(user.extra, [("acme.com/project".to_owned(), vec!["p".to_owned()])]);

        assert!(proxy.check(&proxied(&ca, "mallory", &headers)).is_err());
        assert!(proxy.check(&proxied(&Authority::new("proxies"), "front", &headers)).is_err());
        assert!(proxy.check(&request("/api", &headers)).unwrap().is_none());
        assert!(proxy.check(&proxied(&ca, "front", &[])).unwrap().is_none());
        assert!(proxy.headers("X-Remote-User") && proxy.headers("x-remote-extra-x") && !proxy.headers("accept"));
    }

    #[test]
    fn a_proxy_whose_certificate_is_not_good_now_or_whose_headers_are_no_text_is_refused() {
        let ca = Authority::new("proxies");
        let authorities = Arc::new(Authorities::new(Clock::system().now()));
        authorities.replace(ca.pem.as_bytes()).unwrap();
        let proxy = RequestHeader::new(authorities, Headers::default());
        let with = |leaf: &Leaf<'_>| {
            let mut parts = request("/api", &[("x-remote-user", "bob")]);
            parts.extensions.insert(PeerCertificates(Arc::new(vec![ca.issue(leaf).0])));
            parts
        };
        assert!(proxy.check(&with(&Leaf::default())).unwrap().is_some());
        assert!(proxy.check(&with(&Leaf { from: -7200, until: -3600, ..Leaf::default() })).is_err(), "expired");
        assert!(proxy.check(&with(&Leaf { from: 3600, until: 7200, ..Leaf::default() })).is_err(), "not yet valid");
        let mut malformed = with(&Leaf::default());
        malformed.headers.insert("x-remote-group", http::HeaderValue::from_bytes(b"\xff\xfe").unwrap());
        assert!(proxy.check(&malformed).is_err());
    }
}
