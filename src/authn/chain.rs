//! The whole of authentication as one call: in-process identities, then every configured authenticator in order, then
//! anonymous. The first that knows the credential decides; a credential that nobody accepts is refused even if anonymous
//! requests are allowed. What a known identity may do is not decided here.

use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use http::HeaderMap;
use http::request::Parts;

use crate::request::User;

use super::anonymous::Anonymous;
use super::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS, Authenticated, Authenticator, InProcess, Unauthenticated};

/// An authenticator that was asked before the one that decided, and why it was not the one.
pub type Passed = (&'static str, Cow<'static, str>);

/// The authenticators in order, and what to do without a credential.
pub struct Chain {
    authenticators: Vec<Arc<dyn Authenticator>>,
    anonymous: ArcSwap<Anonymous>,
    audiences: Vec<String>,
}

impl Chain {
    /// A chain that identifies itself with `audiences` (the API audiences; usually the service-account issuer).
    pub fn new(authenticators: Vec<Arc<dyn Authenticator>>, anonymous: Anonymous, audiences: Vec<String>) -> Self {
        Chain { authenticators, anonymous: ArcSwap::from_pointee(anonymous), audiences }
    }

    /// Lets anonymous requests in elsewhere from now on (structured configuration).
    pub fn set_anonymous(&self, anonymous: Anonymous) {
        self.anonymous.store(Arc::new(anonymous));
    }

    /// Who asks. The error says what every authenticator had against the credential; the client only hears 401.
    pub async fn check(&self, request: &Parts) -> Result<Authenticated, Unauthenticated> {
        self.examine(request).await.1
    }

    /// Who asks, and who was passed on the way to that answer.
    pub async fn examine(&self, request: &Parts) -> (Vec<Passed>, Result<Authenticated, Unauthenticated>) {
        let mut passed: Vec<Passed> = Vec::new();
        if let Some(InProcess(user)) = request.extensions.get::<InProcess>() {
            let known = Authenticated { user: user.clone(), audiences: Vec::new(), by: "in-process" };
            return (passed, Ok(with_group(known)));
        }
        let mut refusals = Vec::new();
        for authenticator in &self.authenticators {
            let why = match authenticator.authenticate(request).await {
                Ok(Some(known)) if self.is_for_us(&known) => return (passed, Ok(with_group(known))),
                Ok(Some(known)) => {
                    refusals.push(format!("{}: unable to match the audience {:?}", known.by, known.audiences));
                    "for another audience".into()
                }
                Ok(None) => authenticator.absent().into(),
                // As a real server does, a later authenticator may still know another credential of the same request.
                Err(why) => {
                    refusals.push(format!("{}: {why}", authenticator.name()));
                    why.0.into()
                }
            };
            passed.push((authenticator.name(), why));
        }
        let known = if refusals.is_empty() {
            self.anonymous.load().authenticate(request.uri.path()).ok_or_else(|| Unauthenticated::because("no credential was given"))
        } else {
            Err(Unauthenticated(refusals.join("; ")))
        };
        (passed, known)
    }

    /// Takes everything that an authenticator reads out of the headers: nobody behind this hop needs a credential, nobody can log what
    /// is not there, and what a client wrote into the headers of a front proxy must not pass for the word of one.
    pub fn strip(&self, headers: &mut HeaderMap) {
        let read = |name: &str| self.authenticators.iter().any(|authenticator| authenticator.reads(name));
        let names: Vec<_> = headers.keys().filter(|name| read(name.as_str())).cloned().collect();
        for name in names {
            headers.remove(name);
        }
        super::bearer::strip_protocol(headers);
    }

    fn is_for_us(&self, known: &Authenticated) -> bool {
        self.audiences.is_empty() || known.audiences.is_empty() || known.audiences.iter().any(|a| self.audiences.contains(a))
    }
}

impl Authenticator for Chain {
    fn name(&self) -> &'static str {
        "chain"
    }

    /// Never `Ok(None)`: without a credential it is anonymous or refused.
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Option<Authenticated>, Unauthenticated>> {
        Box::pin(async move { self.check(request).await.map(Some) })
    }
}

/// Adds `system:authenticated`, except to anonymous users and to who has it already.
pub fn with_group(known: Authenticated) -> Authenticated {
    let user = &known.user;
    if user.name == ANONYMOUS || user.in_group(ALL_AUTHENTICATED) || user.in_group(ALL_UNAUTHENTICATED) {
        return known;
    }
    let mut user = User::clone(user);
    user.groups.push(ALL_AUTHENTICATED.to_owned());
    Authenticated { user: Arc::new(user), ..known }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.authenticators.iter().map(|a| a.name()).collect();
        f.debug_struct("Chain").field("authenticators", &names).field("anonymous", &self.anonymous.load()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::bearer::Bearer;
    use super::super::fixtures::{OneToken, request};
    use super::super::request_header::{Headers, RequestHeader};
    use super::super::x509::Authorities;
    use super::*;

    fn chain(anonymous: Anonymous) -> Chain {
        let tokens = Bearer::new(vec![Arc::new(OneToken("good", "bob"))], vec!["api".into()]);
        Chain::new(vec![Arc::new(tokens)], anonymous, vec!["api".into()])
    }

    #[tokio::test]
    async fn a_known_user_gets_the_group_of_the_authenticated_once() {
        let known = chain(Anonymous::Nowhere).check(&request("/api", &[("authorization", "Bearer good")])).await.unwrap();
        assert_eq!((&*known.user.name, &*known.user.groups), ("bob", &["system:authenticated".to_owned()][..]));
    }

    #[tokio::test]
    async fn a_bad_credential_is_never_taken_for_anonymous() {
        let chain = chain(Anonymous::Everywhere);
        assert!(chain.check(&request("/api", &[("authorization", "Bearer bad")])).await.is_err());
        assert_eq!(chain.check(&request("/api", &[])).await.unwrap().user.name, "system:anonymous");
    }

    #[tokio::test]
    async fn the_way_to_an_answer_is_told() {
        let chain = chain(Anonymous::Everywhere);
        let (passed, known) = chain.examine(&request("/api", &[])).await;
        assert_eq!((passed, known.unwrap().by), (vec![("bearer", "no bearer token".into())], "anonymous"));
        let (passed, known) = chain.examine(&request("/api", &[("authorization", "Bearer bad")])).await;
        assert_eq!(passed, [("bearer", "invalid bearer token".into())]);
        assert!(known.is_err());
    }

    #[test]
    fn no_credential_and_no_word_of_a_front_proxy_travels_on() {
        let now = super::super::fixtures::Clock::system().now();
        let proxy = RequestHeader::new(Arc::new(Authorities::new(now)), Headers::default());
        let bearer = Bearer::new(Vec::new(), Vec::new());
        let chain = Chain::new(vec![Arc::new(proxy), Arc::new(bearer)], Anonymous::Everywhere, Vec::new());
        let claimed = [
            ("X-Remote-User", "kubernetes-admin"),
            ("x-remote-group", "system:masters"),
            ("x-remote-group", "system:nodes"),
            ("X-Remote-Uid", "1"),
            ("x-remote-extra-scopes", "all"),
            ("authorization", "Bearer t"),
            ("accept", "application/json"),
            ("x-remote", "kept"),
        ];
        let mut headers = request("/api", &claimed).headers;
        chain.strip(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(http::HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "x-remote"]);
    }

    #[tokio::test]
    async fn a_request_from_inside_the_process_carries_its_identity() {
        let mut parts = request("/api", &[]);
        parts.extensions.insert(InProcess(Arc::new(User::new("system:kube-scheduler", &[]))));
        let known = chain(Anonymous::Nowhere).check(&parts).await.unwrap();
        assert_eq!((&*known.user.name, known.by), ("system:kube-scheduler", "in-process"));
        assert!(known.user.in_group("system:authenticated"));
    }
}
