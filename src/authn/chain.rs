//! The whole of authentication as one call: in-process identities, then every configured authenticator in order, then
//! anonymous. The first that knows the credential decides; a credential that nobody accepts is refused even if anonymous
//! requests are allowed. What a known identity may do is not decided here.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use http::request::Parts;

use crate::request::User;

use super::anonymous::Anonymous;
use super::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS, Authenticated, Authenticator, InProcess, Unauthenticated};

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
        if let Some(InProcess(user)) = request.extensions.get::<InProcess>() {
            let known = Authenticated { user: user.clone(), audiences: Vec::new(), by: "in-process" };
            return Ok(with_group(known));
        }
        let mut refusals = Vec::new();
        for authenticator in &self.authenticators {
            match authenticator.authenticate(request).await {
                Ok(Some(known)) if self.is_for_us(&known) => return Ok(with_group(known)),
                Ok(Some(known)) => refusals.push(format!("{}: unable to match the audience {:?}", known.by, known.audiences)),
                Ok(None) => {}
                // As a real server does, a later authenticator may still know another credential of the same request.
                Err(why) => refusals.push(format!("{}: {why}", authenticator.name())),
            }
        }
        if refusals.is_empty() {
            self.anonymous.load().authenticate(request.uri.path()).ok_or_else(|| Unauthenticated::because("no credential was given"))
        } else {
            Err(Unauthenticated(refusals.join("; ")))
        }
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
    async fn a_request_from_inside_the_process_carries_its_identity() {
        let mut parts = request("/api", &[]);
        parts.extensions.insert(InProcess(Arc::new(User::new("system:kube-scheduler", &[]))));
        let known = chain(Anonymous::Nowhere).check(&parts).await.unwrap();
        assert_eq!((&*known.user.name, known.by), ("system:kube-scheduler", "in-process"));
        assert!(known.user.in_group("system:authenticated"));
    }
}
