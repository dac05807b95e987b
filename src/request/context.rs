//! What travels with a request through both stacks: what it is about, who asks, its Audit-ID and its trace.

use std::sync::{Arc, OnceLock};

use super::{RequestInfo, Trace, User};

/// One request under way. Put into the request's extensions by the outermost layer.
#[derive(Debug)]
pub struct Context {
    /// What it is about.
    pub info: Arc<RequestInfo>,
    /// The query, as written.
    pub query: String,
    /// Its Audit-ID: the client's, or one made here.
    pub audit_id: Arc<str>,
    /// The client's User-Agent.
    pub user_agent: String,
    /// What happened so far.
    pub trace: Trace,
    user: OnceLock<Arc<User>>,
    impersonated: OnceLock<Arc<User>>,
}

/// A context as layers hand it on.
pub type SharedContext = Arc<Context>;

impl Context {
    /// A request that has just arrived.
    pub fn new(info: RequestInfo, query: &str, audit_id: Arc<str>, user_agent: &str) -> Self {
        Context {
            info: Arc::new(info),
            query: query.to_owned(),
            audit_id,
            user_agent: user_agent.to_owned(),
            trace: Trace::default(),
            user: OnceLock::new(),
            impersonated: OnceLock::new(),
        }
    }

    /// Who asks, once that is known: the impersonated user where there is one.
    pub fn user(&self) -> Option<&Arc<User>> {
        self.impersonated.get().or_else(|| self.user.get())
    }

    /// Who really asks.
    pub fn authenticated(&self) -> Option<&Arc<User>> {
        self.user.get()
    }

    /// Whom they are taken for, if for somebody else.
    pub fn impersonated(&self) -> Option<&Arc<User>> {
        self.impersonated.get()
    }

    /// Says who asks. The first answer stays.
    pub fn identify(&self, user: Arc<User>) {
        let _ = self.user.set(user);
    }

    /// Says whom they are taken for.
    pub fn impersonate(&self, user: Arc<User>) {
        let _ = self.impersonated.set(user);
    }

    /// The first value of a query parameter.
    pub fn parameter(&self, key: &str) -> Option<String> {
        super::query_value(&self.query, key)
    }
}
