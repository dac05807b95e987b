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
    impersonator: OnceLock<Arc<User>>,
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
            impersonator: OnceLock::new(),
        }
    }

    /// Who asks, once that is known: the impersonated user where there is one.
    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.get()
    }

    /// Says who asks. The first answer stays.
    pub fn identify(&self, user: Arc<User>) {
        let _ = self.user.set(user);
    }

    /// Who asked to be taken for [`Context::user`], if somebody did.
    pub fn impersonator(&self) -> Option<&Arc<User>> {
        self.impersonator.get()
    }

    /// Says who asked to be taken for somebody else.
    pub fn impersonated_by(&self, user: Arc<User>) {
        let _ = self.impersonator.set(user);
    }

    /// The first value of a query parameter.
    pub fn parameter(&self, key: &str) -> Option<String> {
        super::query_value(&self.query, key)
    }
}
