//! Puts hops 02 and 03 together: which authenticators stand in the chain, which authorisers, and what keeps their indexes in step with
//! the objects they are made of.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use usher_components::clock::Clock;

use crate::api::reviews::Reviews;
use crate::authn::anonymous::Anonymous;
use crate::authn::bearer::Bearer;
use crate::authn::bootstrap_token::BootstrapTokens;
use crate::authn::keys::ServiceAccountKeys;
use crate::authn::oidc::Issuers;
use crate::authn::request_header::{Headers, RequestHeader};
use crate::authn::service_account::ServiceAccounts;
use crate::authn::token_file::TokenFile;
use crate::authn::webhook::TokenReviewWebhook;
use crate::authn::webhook_client::{Retry, WebhookClient};
use crate::authn::x509::{Authorities, ClientCertificate};
use crate::authn::{self, Authenticator, Now, Objects, TokenAuthenticator, authentication_configuration, reload};
use crate::authz;
use crate::authz::abac::Abac;
use crate::authz::configuration::Modes;
use crate::authz::node::NodeAuthorizer;
use crate::authz::node::graph::Graph;
use crate::authz::rbac::Rbac;
use crate::authz::rbac::index::Index;
use crate::authz::webhook::WebhookAuthorizer;
use crate::gateway::pki::Pki;
use crate::object::Object;
use crate::store;
use crate::watch::{Observer, State};

/// Who issues service-account tokens, and for whom.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The common name of this server's own front proxy: the client of extension servers.
const FRONT_PROXY: &str = "front-proxy-client";

/// How long a webhook may take.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the answers of the token webhook are remembered if nothing is said.
const TOKEN_WEBHOOK_CACHE: Duration = Duration::from_secs(120);

/// Where credentials come from besides the server's own.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--token-auth-file`.
    pub token_auth_file: Option<PathBuf>,
    /// `--client-ca-file`.
    pub client_ca_file: Option<PathBuf>,
    /// `--anonymous-auth`.
    pub no_anonymous: bool,
    /// `--authentication-config`.
    pub authentication_config: Option<PathBuf>,
    /// `--authentication-token-webhook-config-file`.
    pub authentication_token_webhook_config_file: Option<PathBuf>,
    /// `--authentication-token-webhook-cache-ttl`.
    pub authentication_token_webhook_cache_ttl: Duration,
    /// One issuer that is not told by a file but by the flags `--oidc-*`, in the form of an entry of `jwt` there.
    pub oidc: Option<Value>,
    /// `--service-account-issuer`: the first one issues, tokens of all are known. Empty for this server's own.
    pub service_account_issuers: Vec<String>,
    /// `--service-account-signing-key-file`, instead of this server's own key.
    pub service_account_signing_key_file: Option<PathBuf>,
    /// `--service-account-key-file`: what tokens are verified with besides the key that signs them.
    pub service_account_key_files: Vec<PathBuf>,
    /// `--service-account-max-token-expiration`; zero is no limit.
    pub service_account_max_token_expiration: Duration,
    /// `--api-audiences`. Empty for the issuers.
    pub api_audiences: Vec<String>,
    /// `--requestheader-client-ca-file`: who may speak for others besides this server's own front proxy.
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// The other settings of a front proxy.
    pub requestheader: Headers,
    /// `--authorization-policy-file`, for ABAC.
    pub authorization_policy_file: Option<PathBuf>,
    /// `--authorization-mode`.
    pub authorization_mode: Vec<String>,
    /// `--authorization-webhook-config-file`, for the mode Webhook.
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// `--authorization-config`.
    pub authorization_config: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            token_auth_file: None,
            client_ca_file: None,
            no_anonymous: false,
            authentication_config: None,
            authentication_token_webhook_config_file: None,
            authentication_token_webhook_cache_ttl: TOKEN_WEBHOOK_CACHE,
            oidc: None,
            service_account_issuers: Vec::new(),
            service_account_signing_key_file: None,
            service_account_key_files: Vec::new(),
            service_account_max_token_expiration: Duration::ZERO,
            api_audiences: Vec::new(),
            requestheader_client_ca_file: None,
            requestheader: Headers { allowed_names: vec![FRONT_PROXY.into()], ..Headers::default() },
            authorization_policy_file: None,
            authorization_mode: vec!["Node".into(), "RBAC".into()],
            authorization_webhook_config_file: None,
            authorization_config: None,
        }
    }
}

impl Settings {
    /// Who issues service-account tokens; never empty.
    fn issuers(&self) -> Vec<String> {
        if self.service_account_issuers.is_empty() { vec![ISSUER.into()] } else { self.service_account_issuers.clone() }
    }

    /// Whom a token must be for.
    fn audiences(&self) -> Vec<String> {
        if self.api_audiences.is_empty() { self.issuers() } else { self.api_audiences.clone() }
    }
}

/// Hops 02 and 03 of a server.
pub struct Identity {
    /// Hop 02.
    pub authenticator: Arc<authn::chain::Chain>,
    /// Hop 03.
    pub authorizer: Arc<authz::chain::Chain>,
    /// What roles and bindings say.
    pub rbac: Arc<Rbac>,
    /// Whom bearer tokens belong to; reviews ask it too.
    pub tokens: Arc<Bearer>,
    /// The keys of service-account tokens.
    pub keys: Arc<ServiceAccountKeys>,
    issuer: String,
    audiences: Vec<String>,
    max_token_seconds: i64,
    _watches: Vec<reload::Watch>,
}

/// The objects that identity depends on, as they are now.
pub struct Current(pub Arc<State>);

impl Objects for Current {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let topic = self.0.loaded(resource)?;
        let key = if namespace.is_empty() { format!("{}{name}", topic.prefix()) } else { format!("{}{namespace}/{name}", topic.prefix()) };
        topic.get(&key).map(|object| object.value().clone())
    }
}

/// What an authoriser's index does with a change of an object: plural, group, old, new.
type Changed = dyn Fn(&str, &str, Option<&Value>, Option<&Value>) + Send + Sync;

/// The bytes of an object's `spec`.
fn spec(object: &[u8]) -> Option<&str> {
    #[derive(serde::Deserialize)]
    struct Spec<'a> {
        #[serde(borrow)]
        spec: Option<&'a serde_json::value::RawValue>,
    }
    serde_json::from_slice::<Spec<'_>>(object).ok()?.spec.map(serde_json::value::RawValue::get)
}

/// Tells an index of the changes of one resource.
struct IndexObserver {
    plural: &'static str,
    group: &'static str,
    index: Arc<Changed>,
}

impl Observer for IndexObserver {
    fn changed(&self, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>) {
        // Most changes of a Pod are of its status, in which only the claims of devices matter.
        let claims = |object: &Object| memchr::memmem::find(&object.json, b"esourceClaimStatus").is_some();
        if let (Some(old), Some(new), "pods") = (old, new, self.plural)
            && !claims(old)
            && !claims(new)
            && let (Some(old), Some(new)) = (spec(&old.json), spec(&new.json))
            && old == new
        {
            return;
        }
        // Parsed for this and let go: an index keeps what it needs, and roles are many.
        let (old, new) = (old.map(|o| o.to_value()), new.map(|o| o.to_value()));
        (self.index)(self.plural, self.group, old.as_ref(), new.as_ref());
    }
}

/// The webhook that a kubeconfig points to.
fn webhook(file: &Path) -> Result<WebhookClient, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let kubeconfig = crate::schema::yaml::parse(&text)?.value;
    let base = file.parent().unwrap_or(Path::new("."));
    WebhookClient::from_kubeconfig(&kubeconfig, base, WEBHOOK_TIMEOUT, Retry::default())
}

/// The keys of service-account tokens: this server's own, or those of files that count anew when they change.
fn service_account_keys(settings: &Settings, pki: &Pki, watches: &mut Vec<reload::Watch>) -> Result<Arc<ServiceAccountKeys>, String> {
    let own = pki.service_account_key.clone().into_bytes();
    let keys = Arc::new(ServiceAccountKeys::new(Some(&own), &[])?);
    let signing = settings.service_account_signing_key_file.as_deref();
    let files: Vec<&Path> = signing.into_iter().chain(settings.service_account_key_files.iter().map(PathBuf::as_path)).collect();
    if !files.is_empty() {
        let (taker, from_file) = (keys.clone(), signing.is_some());
        watches.push(reload::files(&files, move |contents| {
            let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
            match contents.as_slice() {
                [signing, verification @ ..] if from_file => taker.replace(Some(signing), verification),
                verification => taker.replace(Some(&own), verification),
            }
        })?);
    }
    Ok(keys)
}

impl Identity {
    /// Builds both chains over the read side.
    pub async fn assemble(settings: &Settings, pki: &Pki, state: &Arc<State>, clock: &Clock) -> Result<Identity, String> {
        let text = |error: store::Error| error.to_string();
        let mut watches = Vec::new();
        let now: Now = {
            let clock = clock.clone();
            Arc::new(move || clock.now())
        };
        let now_for_modes = now.clone();
        for resource in ["serviceaccounts", "secrets", "pods", "nodes"] {
            state.topic(resource).await.map_err(text)?;
        }
        let objects: Arc<dyn Objects> = Arc::new(Current(state.clone()));
        let authorities = Arc::new(Authorities::new(now.clone()));
        match &settings.client_ca_file {
            None => authorities.replace(pki.ca.as_bytes())?,
            Some(file) => {
                // The server's own CA stays: the administrator's certificate and those of the signers come from it.
                let (authorities, own) = (authorities.clone(), pki.ca.clone().into_bytes());
                watches.push(reload::file(file, move |pem| authorities.replace(&[own.as_slice(), b"\n", pem].concat()))?);
            }
        }
        let front_proxy = Arc::new(Authorities::new(now.clone()));
        match &settings.requestheader_client_ca_file {
            None => front_proxy.replace(pki.front_proxy_ca.as_bytes())?,
            Some(file) => {
                let front_proxy = front_proxy.clone();
                watches.push(reload::file(file, move |pem| front_proxy.replace(pem))?);
            }
        }
        let mut tokens: Vec<Arc<dyn TokenAuthenticator>> = Vec::new();
        if let Some(file) = &settings.token_auth_file {
            let known = Arc::new(TokenFile::default());
            tokens.push(known.clone());
            watches.push(reload::file(file, move |csv| known.replace(&String::from_utf8_lossy(csv)))?);
        }
        let keys = service_account_keys(settings, pki, &mut watches)?;
        let (service_issuers, audiences) = (settings.issuers(), settings.audiences());
        tokens.push(Arc::new(ServiceAccounts::new(service_issuers.clone(), keys.clone(), objects.clone(), now.clone())));
        tokens.push(Arc::new(BootstrapTokens::new(objects, now.clone())));
        let issuers = Arc::new(Issuers::new(now.clone()));
        tokens.push(issuers.clone());
        if let Some(file) = &settings.authentication_token_webhook_config_file {
            let seconds = i64::try_from(settings.authentication_token_webhook_cache_ttl.as_secs()).unwrap_or(i64::MAX);
            tokens.push(Arc::new(TokenReviewWebhook::new(webhook(file)?, seconds, now)));
        }
        let tokens = Arc::new(Bearer::new(tokens, audiences.clone()));
        let authenticators: Vec<Arc<dyn Authenticator>> = vec![
            Arc::new(RequestHeader::new(front_proxy, settings.requestheader.clone())),
            Arc::new(ClientCertificate(authorities)),
            tokens.clone(),
        ];
        let anonymous = if settings.no_anonymous { Anonymous::Nowhere } else { Anonymous::Everywhere };
        let authenticator = Arc::new(authn::chain::Chain::new(authenticators, anonymous.clone(), audiences.clone()));
        if let Some(jwt) = &settings.oidc {
            let document = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [jwt]});
            issuers.replace(authentication_configuration::from_value(&document, &service_issuers)?.issuers);
        }
        if let Some(file) = &settings.authentication_config {
            let (chain, taken) = (authenticator.clone(), service_issuers.clone());
            watches.push(reload::file(file, move |bytes| {
                let read = authentication_configuration::parse(bytes, &taken)?;
                issuers.replace(read.issuers);
                chain.set_anonymous(read.anonymous.unwrap_or_else(|| anonymous.clone()));
                Ok(())
            })?);
        }

        let (index, graph) = (Arc::new(Index::default()), Arc::new(Graph::default()));
        let rbac_changed: Arc<Changed> = {
            let index = index.clone();
            Arc::new(move |plural, group, old, new| index.changed(plural, group, old, new))
        };
        let graph_changed: Arc<Changed> = {
            let graph = graph.clone();
            Arc::new(move |plural, group, old, new| graph.changed(plural, group, old, new))
        };
        let rbac_group = "rbac.authorization.k8s.io";
        let sources = [
            ("clusterroles", rbac_group, &rbac_changed),
            ("roles", rbac_group, &rbac_changed),
            ("clusterrolebindings", rbac_group, &rbac_changed),
            ("rolebindings", rbac_group, &rbac_changed),
            ("pods", "", &graph_changed),
            ("persistentvolumes", "", &graph_changed),
            ("volumeattachments", "storage.k8s.io", &graph_changed),
            ("resourceslices", "resource.k8s.io", &graph_changed),
            ("podcertificaterequests", "certificates.k8s.io", &graph_changed),
        ];
        for (plural, group, index) in sources {
            let topic = state.topic(plural).await.map_err(text)?;
            topic.observe(Arc::new(IndexObserver { plural, group, index: index.clone() }));
        }
        let rbac = Arc::new(Rbac::new(index));
        let mut abac = None;
        if let Some(file) = &settings.authorization_policy_file {
            let policies = Arc::new(Abac::default());
            abac = Some(policies.clone());
            watches.push(reload::file(file, move |text| policies.replace(&String::from_utf8_lossy(text)))?);
        }
        let webhook = match &settings.authorization_webhook_config_file {
            None => None,
            Some(file) => Some(Arc::new(WebhookAuthorizer::new(webhook(file)?, Default::default(), now_for_modes.clone()))),
        };
        let modes = Modes { rbac: rbac.clone(), node: Arc::new(NodeAuthorizer::new(graph)), abac, webhook, now: now_for_modes };
        let authorizer = Arc::new(authz::chain::Chain::new(Vec::new()));
        match &settings.authorization_config {
            None => {
                let names: Vec<&str> = settings.authorization_mode.iter().map(String::as_str).collect();
                authorizer.replace(modes.from_names(&names)?);
            }
            Some(file) => {
                let (chain, base) = (authorizer.clone(), file.parent().map(PathBuf::from).unwrap_or_default());
                watches.push(reload::file(file, move |bytes| {
                    chain.replace(modes.from_file(bytes, &base)?);
                    Ok(())
                })?);
            }
        }
        let max_token_seconds = i64::try_from(settings.service_account_max_token_expiration.as_secs()).unwrap_or(i64::MAX);
        let issuer = service_issuers.into_iter().next().unwrap_or_else(|| ISSUER.into());
        Ok(Identity { authenticator, authorizer, rbac, tokens, keys, issuer, audiences, max_token_seconds, _watches: watches })
    }

    /// The reviews that ask these chains.
    pub fn reviews(&self, state: &Arc<State>, clock: &Clock) -> Reviews {
        let clock = clock.clone();
        Reviews {
            authorizer: self.authorizer.clone(),
            tokens: self.tokens.clone(),
            objects: Arc::new(Current(state.clone())),
            keys: self.keys.clone(),
            issuer: self.issuer.clone(),
            audiences: self.audiences.clone(),
            max_token_seconds: self.max_token_seconds,
            now: Arc::new(move || clock.now()),
        }
    }
}
