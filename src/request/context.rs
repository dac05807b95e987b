//! What travels with a request through both stacks: what it is about, who asks, its Audit-ID and its trace.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;

use super::{RequestInfo, SpanContext, Trace, User};

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
    /// Its place in a distributed trace, if it has one.
    pub span: Option<SpanContext>,
    /// What happened so far.
    pub trace: Trace,
    user: OnceLock<Arc<User>>,
    impersonated: OnceLock<Arc<User>>,
    constraint: OnceLock<&'static str>,
    body: OnceLock<Body>,
    guarded: Mutex<Vec<Arc<Value>>>,
    wanted: AtomicBool,
    understood: OnceLock<Bytes>,
}

/// What the object in the body calls itself, where the path does not say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
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
            span: None,
            trace: Trace::default(),
            user: OnceLock::new(),
            impersonated: OnceLock::new(),
            constraint: OnceLock::new(),
            body: OnceLock::new(),
            guarded: Mutex::default(),
            wanted: AtomicBool::new(false),
            understood: OnceLock::new(),
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

    /// By which constraint of impersonation (`impersonate:user-info`) they are.
    pub fn constraint(&self) -> Option<&'static str> {
        self.constraint.get().copied()
    }

    /// Says by which constraint of impersonation.
    pub fn constrain(&self, constraint: &'static str) {
        let _ = self.constraint.set(constraint);
    }

    /// What the body called itself, if one was read.
    pub fn body(&self) -> Option<&Body> {
        self.body.get()
    }

    /// Takes note of what the object in the body calls itself. The first one stays.
    pub fn read(&self, object: &Value) {
        let Some(metadata) = object.get("metadata") else { return };
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let unless = |known: &str, key: &str| if known.is_empty() { text(key) } else { String::new() };
        let _ = self.body.set(Body {
            namespace: unless(&self.info.namespace, "namespace"),
            name: unless(&self.info.name, "name"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        });
    }

    /// The Secrets whose data must not be told in what is told of the request.
    pub fn guarded(&self) -> Vec<Arc<Value>> {
        self.guarded.lock().clone()
    }

    /// Guards the data of a Secret: one that the request is about, as it is stored or as mutating admission left it, or one that a
    /// policy is given as its parameters.
    pub fn guard(&self, secret: Arc<Value>) {
        self.guarded.lock().push(secret);
    }

    /// Asks for the object in the body as the server understands it.
    pub fn want_body(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Takes note of it, if somebody asked. The first one stays.
    pub fn understand<'v>(&self, object: impl FnOnce() -> Cow<'v, Value>) {
        if self.wanted.load(Ordering::Relaxed) {
            // As a text: to copy the object would take longer, and to let go of the copy as well.
            self.understood.get_or_init(|| serde_json::to_vec(&*object()).unwrap_or_default().into());
        }
    }

    /// The object in the body as the server understood it, as JSON, if somebody asked in time.
    pub fn understood(&self) -> Option<&Bytes> {
        self.understood.get()
    }

    /// The first value of a query parameter.
    pub fn parameter(&self, key: &str) -> Option<String> {
        super::query_value(&self.query, key)
    }
}
