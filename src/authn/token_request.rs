//! The claims of a service-account token, as a real server writes them. Pure: what the token is bound to has been looked
//! up before, and the body of a TokenRequest is checked in the API's reviews.

use serde_json::{Map, Value, json};

/// What the kubelet asks for; such a token lives for a year, but warns after this long, so that programs which never
/// read their token again go on working.
pub const WARN_ONLY_SECONDS: i64 = 3607;

/// How long such a token lives.
pub const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

/// A named object and its uid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl Reference {
    /// The reference to an object.
    pub fn to(object: &Value) -> Self {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        Reference { name: text("name"), uid: text("uid") }
    }

    /// As it stands in the claims.
    fn claim(&self) -> Value {
        let mut map = Map::new();
        map.insert("name".into(), self.name.clone().into());
        if !self.uid.is_empty() {
            map.insert("uid".into(), self.uid.clone().into());
        }
        map.into()
    }

    /// Reads it from the claims.
    pub(super) fn from_claim(claim: &Value) -> Option<Self> {
        let text = |key: &str| claim[key].as_str().unwrap_or_default().to_owned();
        claim.is_object().then(|| Reference { name: text("name"), uid: text("uid") })
    }
}

/// What a token dies with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Bound {
    /// Only with its service account.
    #[default]
    Nothing,
    /// With a Pod; the node it runs on is told too.
    Pod(Reference, Option<Reference>),
    /// With a Secret.
    Secret(Reference),
    /// With a Node.
    Node(Reference),
}

/// Everything that a token says.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Who issues it.
    pub issuer: &'a str,
    /// For whom it is good.
    pub audiences: &'a [String],
    /// The namespace of the service account.
    pub namespace: &'a str,
    /// The service account.
    pub service_account: Reference,
    /// What it dies with.
    pub bound: Bound,
    /// When it is issued, in seconds since the epoch.
    pub now: i64,
    /// How long it lives.
    pub seconds: i64,
    /// When it begins to warn, in seconds from now.
    pub warn_after: Option<i64>,
    /// Its own id.
    pub id: &'a str,
}

impl Request<'_> {
    /// The claims.
    pub fn claims(&self) -> Value {
        let mut private = Map::new();
        private.insert("namespace".into(), self.namespace.into());
        match &self.bound {
            Bound::Nothing => {}
            Bound::Pod(pod, node) => {
                if let Some(node) = node {
                    private.insert("node".into(), node.claim());
                }
                private.insert("pod".into(), pod.claim());
            }
            Bound::Secret(secret) => {
                private.insert("secret".into(), secret.claim());
            }
            Bound::Node(node) => {
                private.insert("node".into(), node.claim());
            }
        }
        private.insert("serviceaccount".into(), self.service_account.claim());
        if let Some(seconds) = self.warn_after {
            private.insert("warnafter".into(), (self.now + seconds).into());
        }
        json!({
            "aud": self.audiences,
            "exp": self.now.saturating_add(self.seconds),
            "iat": self.now,
            "iss": self.issuer,
            "jti": self.id,
            "kubernetes.io": private,
            "nbf": self.now,
            "sub": username(self.namespace, &self.service_account.name),
        })
    }
}

/// The claims of a token that lives in a Secret of type `kubernetes.io/service-account-token`.
pub fn legacy_claims(namespace: &str, service_account: &Reference, secret: &str) -> Value {
    json!({
        "iss": super::service_account::LEGACY_ISSUER,
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": service_account.name,
        "kubernetes.io/serviceaccount/service-account.uid": service_account.uid,
        "sub": username(namespace, &service_account.name),
    })
}

/// The user name of a service account.
pub fn username(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
