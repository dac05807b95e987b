//! `usher up`: reads the flags, starts the server, says one line when it serves, and stops cleanly.

mod audit;
mod identity;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Deserialize;

use super::{config, kubeconfig};
use crate::admission::webhook::endpoint::ServiceMap;
use crate::gateway::layers::deadline::parse_duration;
use crate::server::{Server, StoreChoice};
use crate::store::etcd::EtcdOptions;
use crate::store::redb::Durability;

pub(super) const EXAMPLES: &str = "Examples:
  usher up                                        everything under ./usher-data, on https://127.0.0.1:6443
  usher up --store memory --listen 127.0.0.1:0    a throw-away server on any free port
  usher up --components none                      an API server alone, for the tests of a controller
  usher up --config config/usher.yaml             the same from a file; flags win over it";

/// The flags of `usher up`; each is also a key of the configuration file and an environment variable.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Up {
    /// Read settings from this YAML file
    #[arg(long, value_name = "FILE", env = "USHER_CONFIG")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Keep everything here: objects, certificates, keys, the kubeconfig [default: usher-data]
    #[arg(long, value_name = "DIR", env = "USHER_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Listen here; port 0 takes any free port [default: 127.0.0.1:6443]
    #[arg(long, value_name = "ADDR:PORT", env = "USHER_LISTEN")]
    pub listen: Option<String>,
    /// Write the administrator's kubeconfig here [default: DATA-DIR/kubeconfig]
    #[arg(long, value_name = "FILE", env = "USHER_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// redb (a file under the data directory), memory, or etcd://host:port,… [default: redb]
    #[arg(long, value_name = "STORE", env = "USHER_STORE")]
    pub store: Option<String>,
    /// immediate (a write is on disk before it is acknowledged) or relaxed [default: immediate]
    #[arg(long, value_name = "WHEN", env = "USHER_DURABILITY")]
    pub durability: Option<String>,
    /// The CA of the etcd members; given, the connection is TLS
    #[arg(long, value_name = "FILE", env = "USHER_ETCD_CAFILE")]
    pub etcd_cafile: Option<PathBuf>,
    /// The client certificate for etcd
    #[arg(long, value_name = "FILE", env = "USHER_ETCD_CERTFILE")]
    pub etcd_certfile: Option<PathBuf>,
    /// The key of the client certificate for etcd
    #[arg(long, value_name = "FILE", env = "USHER_ETCD_KEYFILE")]
    pub etcd_keyfile: Option<PathBuf>,
    /// A CSV file of static tokens: token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE", env = "USHER_TOKEN_AUTH_FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// Further CAs whose client certificates are known
    #[arg(long, value_name = "FILE", env = "USHER_CLIENT_CA_FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// The serving certificate, instead of one made by the server's own CA
    #[arg(long, value_name = "FILE", env = "USHER_TLS_CERT_FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// The key of the serving certificate
    #[arg(long, value_name = "FILE", env = "USHER_TLS_PRIVATE_KEY_FILE")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Whether requests without a credential are let through to authorisation [default: true]
    #[arg(long, value_name = "BOOL", env = "USHER_ANONYMOUS_AUTH")]
    pub anonymous_auth: Option<bool>,
    /// An AuthenticationConfiguration: outside issuers, anonymous paths; reloaded when it changes
    #[arg(long, value_name = "FILE", env = "USHER_AUTHENTICATION_CONFIG")]
    pub authentication_config: Option<PathBuf>,
    /// A kubeconfig of the webhook that knows further bearer tokens
    #[arg(long, value_name = "FILE", env = "USHER_AUTHENTICATION_TOKEN_WEBHOOK_CONFIG_FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,
    /// How long the answers of that webhook are remembered [default: 2m]
    #[arg(long, value_name = "DURATION", env = "USHER_AUTHENTICATION_TOKEN_WEBHOOK_CACHE_TTL")]
    pub authentication_token_webhook_cache_ttl: Option<String>,
    /// An outside issuer whose tokens are known; for more than one, or for rules, see --authentication-config
    #[arg(long, value_name = "URL", env = "USHER_OIDC_ISSUER_URL")]
    pub oidc_issuer_url: Option<String>,
    /// The audience that tokens of that issuer must be for
    #[arg(long, value_name = "ID", env = "USHER_OIDC_CLIENT_ID")]
    pub oidc_client_id: Option<String>,
    /// Which claim of such a token is the user [default: sub]
    #[arg(long, value_name = "CLAIM", env = "USHER_OIDC_USERNAME_CLAIM")]
    pub oidc_username_claim: Option<String>,
    /// What is put before it; - for nothing [default: the issuer and #, or nothing for the claim email]
    #[arg(long, value_name = "PREFIX", env = "USHER_OIDC_USERNAME_PREFIX")]
    pub oidc_username_prefix: Option<String>,
    /// Which claim of such a token are the groups
    #[arg(long, value_name = "CLAIM", env = "USHER_OIDC_GROUPS_CLAIM")]
    pub oidc_groups_claim: Option<String>,
    /// What is put before each of them
    #[arg(long, value_name = "PREFIX", env = "USHER_OIDC_GROUPS_PREFIX")]
    pub oidc_groups_prefix: Option<String>,
    /// What such a token must say: claim=value,…
    #[arg(long, value_name = "LIST", env = "USHER_OIDC_REQUIRED_CLAIM")]
    pub oidc_required_claim: Option<String>,
    /// The CA of that issuer
    #[arg(long, value_name = "FILE", env = "USHER_OIDC_CA_FILE")]
    pub oidc_ca_file: Option<PathBuf>,
    /// Who issues service-account tokens; tokens of all of them are known, the first one signs [default: https://kubernetes.default.svc.cluster.local]
    #[arg(long, value_name = "LIST", env = "USHER_SERVICE_ACCOUNT_ISSUER")]
    pub service_account_issuer: Option<String>,
    /// The key that service-account tokens are signed with, instead of the server's own; reloaded when it changes
    #[arg(long, value_name = "FILE", env = "USHER_SERVICE_ACCOUNT_SIGNING_KEY_FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Further keys that service-account tokens may be signed with; reloaded when they change
    #[arg(long, value_name = "LIST", env = "USHER_SERVICE_ACCOUNT_KEY_FILE")]
    pub service_account_key_file: Option<String>,
    /// The longest that a service-account token lives; 0 is any time [default: 0]
    #[arg(long, value_name = "DURATION", env = "USHER_SERVICE_ACCOUNT_MAX_TOKEN_EXPIRATION")]
    pub service_account_max_token_expiration: Option<String>,
    /// Whom a token must be for [default: the issuers of service-account tokens]
    #[arg(long, value_name = "LIST", env = "USHER_API_AUDIENCES")]
    pub api_audiences: Option<String>,
    /// The CA of front proxies, instead of the server's own; reloaded when it changes
    #[arg(long, value_name = "FILE", env = "USHER_REQUESTHEADER_CLIENT_CA_FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// The common names of front proxies; empty for any [default: front-proxy-client, or any with --requestheader-client-ca-file]
    #[arg(long, value_name = "LIST", env = "USHER_REQUESTHEADER_ALLOWED_NAMES")]
    pub requestheader_allowed_names: Option<String>,
    /// Where a front proxy says the user [default: X-Remote-User]
    #[arg(long, value_name = "LIST", env = "USHER_REQUESTHEADER_USERNAME_HEADERS")]
    pub requestheader_username_headers: Option<String>,
    /// Where a front proxy says the uid [default: X-Remote-Uid]
    #[arg(long, value_name = "LIST", env = "USHER_REQUESTHEADER_UID_HEADERS")]
    pub requestheader_uid_headers: Option<String>,
    /// Where a front proxy says the groups [default: X-Remote-Group]
    #[arg(long, value_name = "LIST", env = "USHER_REQUESTHEADER_GROUP_HEADERS")]
    pub requestheader_group_headers: Option<String>,
    /// What the headers begin with in which a front proxy says anything else [default: X-Remote-Extra-]
    #[arg(long, value_name = "LIST", env = "USHER_REQUESTHEADER_EXTRA_HEADERS_PREFIX")]
    pub requestheader_extra_headers_prefix: Option<String>,
    /// The policies of ABAC, one JSON object a line; reloaded when they change
    #[arg(long, value_name = "FILE", env = "USHER_AUTHORIZATION_POLICY_FILE")]
    pub authorization_policy_file: Option<PathBuf>,
    /// The authorisers in order: Node, RBAC, Webhook, ABAC, AlwaysAllow, AlwaysDeny [default: Node,RBAC]
    #[arg(long, value_name = "LIST", env = "USHER_AUTHORIZATION_MODE")]
    pub authorization_mode: Option<String>,
    /// A kubeconfig of the webhook of the mode Webhook
    #[arg(long, value_name = "FILE", env = "USHER_AUTHORIZATION_WEBHOOK_CONFIG_FILE")]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// An AuthorizationConfiguration, instead of --authorization-mode; reloaded when it changes
    #[arg(long, value_name = "FILE", env = "USHER_AUTHORIZATION_CONFIG")]
    pub authorization_config: Option<PathBuf>,
    /// Admission plugins to turn on besides the default ones
    #[arg(long, value_name = "LIST", env = "USHER_ENABLE_ADMISSION_PLUGINS")]
    pub enable_admission_plugins: Option<String>,
    /// Admission plugins to turn off
    #[arg(long, value_name = "LIST", env = "USHER_DISABLE_ADMISSION_PLUGINS")]
    pub disable_admission_plugins: Option<String>,
    /// An AdmissionConfiguration: what admission plugins are configured with
    #[arg(long, value_name = "FILE", env = "USHER_ADMISSION_CONTROL_CONFIG_FILE")]
    pub admission_control_config_file: Option<PathBuf>,
    /// A directory of policies, bindings and webhook configurations that are in force from the first request
    #[arg(long, value_name = "DIR", env = "USHER_POLICIES")]
    pub policies: Option<PathBuf>,
    /// Where the Services of webhooks are served instead: namespace/name[:port]=host:port,…
    #[arg(long, value_name = "LIST", env = "USHER_SERVICE_MAP")]
    pub service_map: Option<String>,
    /// An audit policy: what is recorded of which request [default: Metadata of everything]
    #[arg(long, value_name = "FILE", env = "USHER_AUDIT_POLICY", alias = "audit-policy-file")]
    pub audit_policy: Option<PathBuf>,
    /// Write audit events to this file, one JSON object a line; - is standard output
    #[arg(long, value_name = "FILE", env = "USHER_AUDIT_LOG", alias = "audit-log-path")]
    pub audit_log: Option<PathBuf>,
    /// Set the audit log aside at this size [default: 100]
    #[arg(long, value_name = "MB", env = "USHER_AUDIT_LOG_MAXSIZE")]
    pub audit_log_maxsize: Option<u64>,
    /// Remove audit logs that were set aside so many days ago; 0 for never [default: 366]
    #[arg(long, value_name = "DAYS", env = "USHER_AUDIT_LOG_MAXAGE")]
    pub audit_log_maxage: Option<u64>,
    /// Keep so many audit logs that were set aside; 0 for all [default: 100]
    #[arg(long, value_name = "N", env = "USHER_AUDIT_LOG_MAXBACKUP")]
    pub audit_log_maxbackup: Option<usize>,
    /// Compress audit logs that are set aside
    #[arg(long, value_name = "BOOL", env = "USHER_AUDIT_LOG_COMPRESS", num_args = 0..=1, default_missing_value = "true")]
    pub audit_log_compress: Option<bool>,
    /// Send audit events to the server that this kubeconfig names
    #[arg(long, value_name = "FILE", env = "USHER_AUDIT_WEBHOOK_CONFIG_FILE")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// How many audit events may wait for the webhook [default: 10000]
    #[arg(long, value_name = "N", env = "USHER_AUDIT_WEBHOOK_BATCH_BUFFER_SIZE")]
    pub audit_webhook_batch_buffer_size: Option<usize>,
    /// How many audit events go to the webhook at once [default: 400]
    #[arg(long, value_name = "N", env = "USHER_AUDIT_WEBHOOK_BATCH_MAX_SIZE")]
    pub audit_webhook_batch_max_size: Option<usize>,
    /// How long an audit event waits for others before it is sent [default: 30s]
    #[arg(long, value_name = "DURATION", env = "USHER_AUDIT_WEBHOOK_BATCH_MAX_WAIT")]
    pub audit_webhook_batch_max_wait: Option<String>,
    /// How many batches a second; 0 for any number [default: 10]
    #[arg(long, value_name = "N", env = "USHER_AUDIT_WEBHOOK_BATCH_THROTTLE_QPS")]
    pub audit_webhook_batch_throttle_qps: Option<f64>,
    /// How many batches at once after a rest [default: 15]
    #[arg(long, value_name = "N", env = "USHER_AUDIT_WEBHOOK_BATCH_THROTTLE_BURST")]
    pub audit_webhook_batch_throttle_burst: Option<u32>,
    /// How long to wait before a batch is sent again [default: 10s]
    #[arg(long, value_name = "DURATION", env = "USHER_AUDIT_WEBHOOK_INITIAL_BACKOFF")]
    pub audit_webhook_initial_backoff: Option<String>,
    /// How much the archive of requests keeps at most, such as 512Mi
    #[arg(long, value_name = "SIZE", env = "USHER_AUDIT_STORE_MAX_SIZE")]
    pub audit_store_max_size: Option<String>,
    /// How long the archive of requests keeps them, such as 168h
    #[arg(long, value_name = "DURATION", env = "USHER_AUDIT_STORE_MAX_AGE")]
    pub audit_store_max_age: Option<String>,
    /// Send a span of every request and of its steps to this OpenTelemetry collector, over OTLP/HTTP
    #[arg(long, value_name = "URL", env = "USHER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
    /// How many nodes to run on the mock runtime [default: 1]
    #[arg(long, value_name = "N", env = "USHER_NODES")]
    pub nodes: Option<usize>,
    /// A directory of manifests whose Pods every node runs without being asked by the API
    #[arg(long, value_name = "DIR", env = "USHER_POD_MANIFEST_PATH")]
    pub pod_manifest_path: Option<PathBuf>,
    /// Which components run in this process: all, none, or a list such as *,-scheduler [default: all]
    #[arg(long, value_name = "LIST", env = "USHER_COMPONENTS")]
    pub components: Option<String>,
    /// How long an Event lasts that nobody writes any more, such as 90m; 0 is for ever [default: 1h]
    #[arg(long, value_name = "DURATION", env = "USHER_EVENT_TTL")]
    pub event_ttl: Option<String>,
    /// Let `usher clock advance` move the time
    #[arg(long, value_name = "BOOL", env = "USHER_VIRTUAL_CLOCK", num_args = 0..=1, default_missing_value = "true")]
    pub virtual_clock: Option<bool>,
}

impl Up {
    /// Flags win over the file.
    fn or(self, file: Up) -> Up {
        Up {
            config: self.config,
            data_dir: self.data_dir.or(file.data_dir),
            listen: self.listen.or(file.listen),
            kubeconfig: self.kubeconfig.or(file.kubeconfig),
            store: self.store.or(file.store),
            durability: self.durability.or(file.durability),
            etcd_cafile: self.etcd_cafile.or(file.etcd_cafile),
            etcd_certfile: self.etcd_certfile.or(file.etcd_certfile),
            etcd_keyfile: self.etcd_keyfile.or(file.etcd_keyfile),
            token_auth_file: self.token_auth_file.or(file.token_auth_file),
            client_ca_file: self.client_ca_file.or(file.client_ca_file),
            tls_cert_file: self.tls_cert_file.or(file.tls_cert_file),
            tls_private_key_file: self.tls_private_key_file.or(file.tls_private_key_file),
            anonymous_auth: self.anonymous_auth.or(file.anonymous_auth),
            authentication_config: self.authentication_config.or(file.authentication_config),
            authentication_token_webhook_config_file: self
                .authentication_token_webhook_config_file
                .or(file.authentication_token_webhook_config_file),
            authentication_token_webhook_cache_ttl: self
                .authentication_token_webhook_cache_ttl
                .or(file.authentication_token_webhook_cache_ttl),
            oidc_issuer_url: self.oidc_issuer_url.or(file.oidc_issuer_url),
            oidc_client_id: self.oidc_client_id.or(file.oidc_client_id),
            oidc_username_claim: self.oidc_username_claim.or(file.oidc_username_claim),
            oidc_username_prefix: self.oidc_username_prefix.or(file.oidc_username_prefix),
            oidc_groups_claim: self.oidc_groups_claim.or(file.oidc_groups_claim),
            oidc_groups_prefix: self.oidc_groups_prefix.or(file.oidc_groups_prefix),
            oidc_required_claim: self.oidc_required_claim.or(file.oidc_required_claim),
            oidc_ca_file: self.oidc_ca_file.or(file.oidc_ca_file),
            service_account_issuer: self.service_account_issuer.or(file.service_account_issuer),
            service_account_signing_key_file: self.service_account_signing_key_file.or(file.service_account_signing_key_file),
            service_account_key_file: self.service_account_key_file.or(file.service_account_key_file),
            service_account_max_token_expiration: self.service_account_max_token_expiration.or(file.service_account_max_token_expiration),
            api_audiences: self.api_audiences.or(file.api_audiences),
            requestheader_client_ca_file: self.requestheader_client_ca_file.or(file.requestheader_client_ca_file),
            requestheader_allowed_names: self.requestheader_allowed_names.or(file.requestheader_allowed_names),
            requestheader_username_headers: self.requestheader_username_headers.or(file.requestheader_username_headers),
            requestheader_uid_headers: self.requestheader_uid_headers.or(file.requestheader_uid_headers),
            requestheader_group_headers: self.requestheader_group_headers.or(file.requestheader_group_headers),
            requestheader_extra_headers_prefix: self.requestheader_extra_headers_prefix.or(file.requestheader_extra_headers_prefix),
            authorization_policy_file: self.authorization_policy_file.or(file.authorization_policy_file),
            authorization_mode: self.authorization_mode.or(file.authorization_mode),
            authorization_webhook_config_file: self.authorization_webhook_config_file.or(file.authorization_webhook_config_file),
            authorization_config: self.authorization_config.or(file.authorization_config),
            enable_admission_plugins: self.enable_admission_plugins.or(file.enable_admission_plugins),
            admission_control_config_file: self.admission_control_config_file.or(file.admission_control_config_file),
            disable_admission_plugins: self.disable_admission_plugins.or(file.disable_admission_plugins),
            policies: self.policies.or(file.policies),
            service_map: self.service_map.or(file.service_map),
            audit_policy: self.audit_policy.or(file.audit_policy),
            audit_log: self.audit_log.or(file.audit_log),
            audit_log_maxsize: self.audit_log_maxsize.or(file.audit_log_maxsize),
            audit_log_maxage: self.audit_log_maxage.or(file.audit_log_maxage),
            audit_log_maxbackup: self.audit_log_maxbackup.or(file.audit_log_maxbackup),
            audit_log_compress: self.audit_log_compress.or(file.audit_log_compress),
            audit_webhook_config_file: self.audit_webhook_config_file.or(file.audit_webhook_config_file),
            audit_webhook_batch_buffer_size: self.audit_webhook_batch_buffer_size.or(file.audit_webhook_batch_buffer_size),
            audit_webhook_batch_max_size: self.audit_webhook_batch_max_size.or(file.audit_webhook_batch_max_size),
            audit_webhook_batch_max_wait: self.audit_webhook_batch_max_wait.or(file.audit_webhook_batch_max_wait),
            audit_webhook_batch_throttle_qps: self.audit_webhook_batch_throttle_qps.or(file.audit_webhook_batch_throttle_qps),
            audit_webhook_batch_throttle_burst: self.audit_webhook_batch_throttle_burst.or(file.audit_webhook_batch_throttle_burst),
            audit_webhook_initial_backoff: self.audit_webhook_initial_backoff.or(file.audit_webhook_initial_backoff),
            audit_store_max_size: self.audit_store_max_size.or(file.audit_store_max_size),
            audit_store_max_age: self.audit_store_max_age.or(file.audit_store_max_age),
            otlp_endpoint: self.otlp_endpoint.or(file.otlp_endpoint),
            nodes: self.nodes.or(file.nodes),
            pod_manifest_path: self.pod_manifest_path.or(file.pod_manifest_path),
            components: self.components.or(file.components),
            event_ttl: self.event_ttl.or(file.event_ttl),
            virtual_clock: self.virtual_clock.or(file.virtual_clock),
        }
    }

    /// Starts the server and runs it until a signal comes.
    pub fn run(self) -> Result<(), String> {
        let start = Instant::now();
        let file = self.config.as_deref().map(config::read).transpose()?.unwrap_or_default();
        let settings = self.or(file);
        log_to_stderr();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| format!("cannot start: {e}"))?;
        runtime.block_on(settings.serve(start))?;
        runtime.shutdown_timeout(Duration::from_secs(2));
        Ok(())
    }

    async fn serve(self, start: Instant) -> Result<(), String> {
        let data_dir = self.data_dir.clone().unwrap_or_else(|| config::DATA_DIR.into());
        let mut builder = Server::builder();
        builder.store = parse_store(self.store.as_deref().unwrap_or("redb"))?;
        if let StoreChoice::Etcd(options) = &mut builder.store {
            options.ca = self.etcd_cafile.clone();
            options.cert = self.etcd_certfile.clone();
            options.key = self.etcd_keyfile.clone();
        }
        builder.durability = match self.durability.as_deref().unwrap_or("immediate") {
            "immediate" => Durability::Immediate,
            "relaxed" => Durability::Relaxed,
            other => return Err(format!("--durability is immediate or relaxed, not {other:?}")),
        };
        builder.data_dir = Some(data_dir.clone());
        let listen = self.listen.as_deref().unwrap_or(config::LISTEN);
        let address: SocketAddr =
            listen.parse().map_err(|_| format!("--listen takes an address and a port such as 127.0.0.1:6443, not {listen:?}"))?;
        builder.listen = Some(address);
        builder.identity = self.identity()?;
        if let Some(file) = &self.admission_control_config_file {
            crate::admission::configuration::read(file, &mut builder.admission)
                .map_err(|why| format!("--admission-control-config-file: {why}"))?;
        }
        builder.admission.enable = self.enable_admission_plugins.as_deref().map(list).unwrap_or_default();
        builder.admission.policies = self.policies.clone();
        builder.admission.services = Arc::new(service_map(self.service_map.as_deref().unwrap_or_default())?);
        builder.audit = self.audit()?;
        builder.admission.disable = self.disable_admission_plugins.as_deref().map(list).unwrap_or_default();
        builder.tls = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            _ => return Err("--tls-cert-file and --tls-private-key-file go together".into()),
        };
        builder.components = self.components.clone().unwrap_or_else(|| "all".into());
        builder.nodes = self.nodes.unwrap_or(1);
        builder.pod_manifest_path = self.pod_manifest_path.clone();
        if let Some(ttl) = &self.event_ttl {
            builder.event_ttl = parse_duration(ttl).ok_or_else(|| format!("--event-ttl takes a duration such as 1h30m, not {ttl:?}"))?;
        }
        if self.virtual_clock == Some(true) {
            builder.clock = usher_components::clock::Clock::virtual_clock();
        }
        // Where events are written, nothing else is: whoever reads them line by line reads JSON.
        let events_are_told = builder.audit.log.as_ref().is_some_and(|log| log.path.as_os_str() == "-");
        let server = builder.start().await.map_err(|e| e.to_string())?;
        let address = server.address().unwrap_or(address);
        let reached = if address.ip().is_unspecified() { SocketAddr::new([127, 0, 0, 1].into(), address.port()) } else { address };
        let url = format!("https://{reached}");
        let path = self.kubeconfig.clone().unwrap_or_else(|| data_dir.join("kubeconfig"));
        let pki = server.pki();
        kubeconfig::write(&path, &kubeconfig::text(&pki.ca, &url, "kubernetes-admin", &pki.admin, &pki.admin_key))?;
        let shown = std::path::absolute(&path).unwrap_or(path);
        let ready = format!("ready in {} ms  {url}  KUBECONFIG={}", start.elapsed().as_millis(), shown.display());
        match events_are_told {
            true => super::output::note(&format!("{ready}\n")),
            false => super::output::tell(&ready),
        }
        wait_for_signal().await?;
        server.stop().await;
        Ok(())
    }
}

fn service_map(text: &str) -> Result<ServiceMap, String> {
    let wrong = |entry: &str| format!("--service-map takes namespace/name[:port]=host:port, not {entry:?}");
    let entries = list(text).into_iter().map(|entry| match entry.split_once('=') {
        Some((service, address)) if service.contains('/') && address.contains(':') => Ok((service.to_owned(), address.to_owned())),
        _ => Err(wrong(&entry)),
    });
    Ok(ServiceMap::new(entries.collect::<Result<Vec<_>, _>>()?))
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}

fn parse_store(text: &str) -> Result<StoreChoice, String> {
    match text {
        "redb" => Ok(StoreChoice::Redb),
        "memory" => Ok(StoreChoice::Memory),
        other if other.starts_with("etcd://") => EtcdOptions::parse(other).map(StoreChoice::Etcd).map_err(|e| format!("--store: {e}")),
        other => Err(format!("--store is redb, memory or etcd://host:port,…, not {other:?}")),
    }
}

pub(super) async fn wait_for_signal() -> Result<(), String> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

pub(super) fn log_to_stderr() {
    use std::io::IsTerminal;
    let filter = tracing_subscriber::EnvFilter::try_from_env("USHER_LOG").unwrap_or_else(|_| "warn,usher=info".into());
    // What it says there of a path that it cannot read quotes the query, and somebody's token in it.
    let filter = match "h2::server=info".parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    };
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colour);
    // To complain of a log that nobody reads any more would be to write to it once more, and to panic.
    let subscriber = subscriber.log_internal_errors(false);
    // A process that embeds the server may have a subscriber of its own.
    let _ = subscriber.try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_configuration_has_a_line_for_every_flag_and_no_other() {
        use clap::CommandFactory;
        let text = include_str!("../../config/usher.yaml");
        let command = super::super::Cli::command();
        let up = command.find_subcommand("up").unwrap();
        let mut flags: Vec<String> = up.get_arguments().filter_map(|a| a.get_long()).map(str::to_owned).collect();
        flags.retain(|flag| !matches!(flag.as_str(), "config" | "help" | "version"));
        for flag in &flags {
            assert!(
                text.lines().any(|line| line.trim_start_matches("# ").starts_with(&format!("{flag}:"))),
                "config/usher.yaml has no line for {flag}"
            );
        }
        // With every line in force it must still be a configuration.
        let all: String = text
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(rest) if flags.iter().any(|f| rest.starts_with(&format!("{f}:"))) => format!("{rest}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let document = crate::schema::yaml::parse(&all).unwrap();
        assert_eq!(document.value.as_object().unwrap().len(), flags.len());
        let _: Up = serde_json::from_value(document.value).unwrap();
    }
}
