//! The embeddable server: puts the rooms together and starts them. `usher up` is this with flags.

mod bootstrap;
pub mod definitions;
mod expiry;
pub mod identity;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::gateway::stack::Stack;
use identity::Identity;
use tokio_util::sync::CancellationToken;
use usher_components::clock::Clock;
use usher_components::controllers::certificates::CertificateAuthority;
use usher_components::kubelet::{NodeConfig, Nodes};
use usher_components::runtime::LeaderElection;
use usher_components::{ClientFor, Options as ComponentOptions, Selection, TokenSigner};

use crate::admission::{self, Cluster};
use crate::aggregator::Aggregator;
use crate::api::{Api, kinds};
use crate::audit::{self, Archive, Audit, archive};
use crate::authn::keys::ServiceAccountKeys;
use crate::authn::token_request::{Reference, legacy_claims};
use crate::authz::rbac::escalation::Escalation;
use crate::gateway::flow::Flows;
use crate::gateway::layers::limits::Limits;
use crate::gateway::pki::Pki;
use crate::gateway::{Gateway, health, listener, metrics, stack, tls};
use crate::registry::Registry;
use crate::request::User;
use crate::store::Store;
use crate::store::etcd::{EtcdOptions, EtcdStore};
use crate::store::redb::{Durability, Options as RedbOptions, RedbStore};
use crate::watch::{Settings, State};

/// Where objects are kept.
#[derive(Clone, Debug)]
pub enum StoreChoice {
    /// In a file under the data directory.
    Redb,
    /// Nowhere: gone when the server stops.
    Memory,
    /// In an etcd cluster, which several servers may share.
    Etcd(EtcdOptions),
}

/// What a server is made of.
#[derive(Clone, Debug)]
pub struct Builder {
    /// Where everything that lasts is kept.
    pub data_dir: Option<PathBuf>,
    /// Where objects are kept.
    pub store: StoreChoice,
    /// Whether a write is durable before it is acknowledged.
    pub durability: Durability,
    /// Where to listen; nowhere if absent.
    pub listen: Option<SocketAddr>,
    /// The serving certificate and key, instead of ones made here.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Which components run in this process.
    pub components: String,
    /// How many nodes on the mock runtime.
    pub nodes: usize,
    /// A directory of manifests whose Pods every node runs without being asked.
    pub pod_manifest_path: Option<PathBuf>,
    /// Where credentials come from.
    pub identity: identity::Settings,
    /// Which admission plugins run, and with what.
    pub admission: admission::registry::Settings,
    /// What is recorded of requests, and where it goes.
    pub audit: audit::Settings,
    /// How long an Event lasts that nobody writes; zero is for ever.
    pub event_ttl: Duration,
    /// What time it is.
    pub clock: Clock,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            data_dir: None,
            store: StoreChoice::Memory,
            durability: Durability::Immediate,
            listen: None,
            tls: None,
            components: "none".into(),
            nodes: 0,
            pod_manifest_path: None,
            identity: identity::Settings::default(),
            admission: admission::registry::Settings::default(),
            audit: audit::Settings::default(),
            event_ttl: Duration::from_secs(3600),
            clock: Clock::system(),
        }
    }
}

/// Why a server did not start: one clear sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

impl Builder {
    /// Keeps nothing: for tests and throw-away runs.
    pub fn in_memory(mut self) -> Self {
        self.store = StoreChoice::Memory;
        self.data_dir = None;
        self
    }

    /// Keeps everything under a directory.
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(directory.into());
        self.store = StoreChoice::Redb;
        self
    }

    /// Listens on an address; port 0 takes any free one.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Starts the server. One that cannot start leaves no data directory behind that was not there before.
    pub async fn start(self) -> Result<Server, StartError> {
        let selection: Selection = self.components.parse().map_err(|e| StartError(format!("--components: {e}")))?;
        let known: Vec<_> = usher_components::entries().iter().map(|entry| entry.names).collect();
        selection.check(&known).map_err(|e| StartError(format!("--components: {e}")))?;
        // Only one of several that start at once makes it: what another one serves is never removed.
        let made = self.data_dir.clone().filter(|directory| {
            let _ = directory.parent().map(std::fs::create_dir_all);
            std::fs::create_dir(directory).is_ok()
        });
        let started = self.assemble(selection).await;
        if let (Err(_), Some(made)) = (&started, made) {
            let _ = std::fs::remove_dir_all(made);
        }
        started
    }

    async fn assemble(self, selection: Selection) -> Result<Server, StartError> {
        let fail = |text: String| StartError(text);
        let redb_options = || {
            let clock = self.clock.clone();
            RedbOptions { durability: self.durability, now: Arc::new(move || clock.now().as_microsecond()), ..RedbOptions::default() }
        };
        let store: Arc<dyn Store> = match (&self.store, &self.data_dir) {
            (StoreChoice::Redb, Some(directory)) => {
                std::fs::create_dir_all(directory)
                    .map_err(|e| fail(format!("cannot use the data directory {}: {e}", directory.display())))?;
                RedbStore::open(directory.join(crate::store::redb::FILE), redb_options()).map_err(|e| fail(e.to_string()))?
            }
            (StoreChoice::Redb, None) => return Err(fail("a store on disk needs a data directory".into())),
            (StoreChoice::Memory, _) => RedbStore::in_memory_with(redb_options()).map_err(|e| fail(e.to_string()))?,
            (StoreChoice::Etcd(options), _) => EtcdStore::connect(options.clone()).await.map_err(|e| fail(e.to_string()))?,
        };
        let state = State::over(store, Settings::default()).await.map_err(|e| fail(e.to_string()))?;
        let stop = CancellationToken::new();
        let pki_directory = self.data_dir.as_ref().map(|d| d.join("pki"));
        let hosts: Vec<String> = self.listen.iter().filter(|a| !a.ip().is_unspecified()).map(|a| a.ip().to_string()).collect();
        let pki = Pki::open(pki_directory.as_deref(), &hosts).map_err(fail)?;
        let identity = Identity::assemble(&self.identity, &pki, &state, &self.clock).await.map_err(fail)?;
        let nodes = Nodes::new(NodeConfig { static_pod_path: self.pod_manifest_path.clone(), ..NodeConfig::default() }, None);
        nodes.add_numbered(self.nodes);
        let registry = Arc::new(Registry::new());
        let cleanup = definitions::observe(&state, &registry).await.map_err(|e| fail(e.to_string()))?;
        let cluster = Cluster::over(state.clone(), registry.clone(), self.clock.clone()).await.map_err(|e| fail(e.to_string()))?;
        let converter = crate::api::conversion::Converter {
            clients: admission::webhook::client::Clients::new(self.admission.services.clone()),
            cluster: cluster.clone(),
        };
        let identity_pem = format!("{}\n{}", pki.front_proxy_client, pki.front_proxy_client_key);
        let aggregator = Aggregator::over(&state, cluster.clone(), self.admission.services.clone(), identity_pem);
        let aggregator = aggregator.await.map_err(|e| fail(e.to_string()))?;
        let dependencies = admission::registry::Dependencies { cluster, authorizer: identity.authorizer.clone() };
        let admission = admission::registry::build(&self.admission, dependencies).await.map_err(|e| fail(e.to_string()))?;
        let api = Arc::new(Api {
            registry,
            escalation: Escalation { rbac: identity.rbac.clone(), authorizer: identity.authorizer.clone() },
            reviews: identity.reviews(&state, &self.clock),
            state,
            admission,
            converter,
            clock: self.clock.clone(),
            nodes: nodes.clone(),
            kubelets: crate::api::stream::Kubelets::new(&pki.kubelet_client, &pki.kubelet_client_key),
            services: kinds::services::Allocator::default(),
            metrics: crate::api::Metrics::default(),
            shutdown: stop.clone(),
        });
        tokio::spawn(cleanup.run(api.clone(), stop.clone()));
        let kept = archive::Limits::default();
        let kept =
            archive::Limits { bytes: self.audit.store_max_size.unwrap_or(kept.bytes), age: self.audit.store_max_age.unwrap_or(kept.age) };
        let archive = Archive::open(self.data_dir.as_ref().map(|d| d.join(archive::DIRECTORY)).as_deref(), kept)
            .map_err(|e| fail(format!("cannot open the audit archive: {e}")))?;
        let audit = Arc::new(Audit::start(&self.audit, Arc::new(archive), api.clone()).map_err(fail)?);
        let gateway = Arc::new(Gateway {
            audit,
            api: api.clone(),
            authenticator: identity.authenticator.clone(),
            authorizer: identity.authorizer.clone(),
            impersonation: Default::default(),
            flows: Flows::over(&api.state).await.map_err(|e| fail(e.to_string()))?,
            limits: Limits::new(600, 5000),
            metrics: metrics::Metrics::default(),
            health: health::Health::default(),
            aggregator: aggregator.clone(),
            documents: crate::api::openapi::Documents::default(),
            address: std::sync::OnceLock::new(),
            deadline: Duration::from_secs(60),
        });
        let router = stack::stack(gateway.clone());
        let mut address = None;
        let mut serving = None;
        if let Some(wanted) = self.listen {
            let listener = tokio::net::TcpListener::bind(wanted).await.map_err(|e| fail(format!("cannot listen on {wanted}: {e}")))?;
            address = listener.local_addr().ok();
            if let Some(address) = address {
                let _ = gateway.address.set(address);
            }
            let (certificate, key) = match &self.tls {
                None => (pki.serving.clone().into_bytes(), pki.serving_key.clone().into_bytes()),
                Some((certificate, key)) => {
                    let read = |path: &PathBuf| std::fs::read(path).map_err(|e| fail(format!("cannot read {}: {e}", path.display())));
                    (read(certificate)?, read(key)?)
                }
            };
            let config = tls::server_config(&certificate, &key).map_err(fail)?;
            serving = Some(tokio::spawn(listener::serve(listener, config, router.clone(), stop.clone())));
        }
        let taken = api.state.topic("services").await.map_err(|e| fail(e.to_string()))?;
        for service in taken.list(&taken.prefix(), None, 0, 0, |_| true).objects {
            api.services.take(service.value());
        }
        let advertised = address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 6443)));
        let cluster = crate::registry::bootstrap::Settings {
            advertise_address: advertised.ip().to_string(),
            port: advertised.port(),
            client_ca: pki.ca.clone(),
            front_proxy_ca: pki.front_proxy_ca.clone(),
            now: self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            ..Default::default()
        };
        bootstrap::run(&api, &cluster).await.map_err(fail)?;
        if !self.event_ttl.is_zero() {
            tokio::spawn(expiry::run(api.clone(), self.event_ttl, stop.clone()));
        }
        tokio::spawn(aggregator.run(api.clone(), stop.clone()));
        let signing = CertificateAuthority::from_pem(pki.ca.as_bytes(), pki.ca_key.as_bytes()).map_err(fail)?;
        let options = ComponentOptions {
            root_ca: Some(pki.ca.clone()),
            cluster_signing: Some(Arc::new(signing)),
            token_signer: Some(token_signer(api.reviews.keys.clone())),
            // Several servers share an etcd; each of its components runs in one of them. One whose time is moved by hand is alone with it.
            leader_election: (matches!(self.store, StoreChoice::Etcd(_)) && !self.clock.is_virtual())
                .then(|| LeaderElection::new(process_identity())),
            nodes,
            ..ComponentOptions::default()
        };
        let clients: Arc<dyn ClientFor> = Arc::new(InProcessClients(router.clone()));
        let components =
            usher_components::start(&selection, clients, self.clock.clone(), options).map_err(|e| fail(format!("--components: {e}")))?;
        gateway.health.ready();
        Ok(Server { gateway, identity, components, router, pki, address, stop, serving })
    }
}

/// Who puts tokens into Secrets signs them with the key of this server.
pub fn token_signer(keys: Arc<ServiceAccountKeys>) -> TokenSigner {
    TokenSigner::new(move |namespace, name, uid, secret| {
        let account = Reference { name: name.to_owned(), uid: uid.to_owned() };
        let keys = keys.load();
        let key = keys.signing.as_ref().ok_or("there is no key to sign tokens with")?;
        key.sign(&legacy_claims(namespace, &account, secret))
    })
}

/// This process among those that could do the same: its machine, and something that no other has.
pub fn process_identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", host.trim(), uuid::Uuid::new_v4())
}

/// A running server.
pub struct Server {
    gateway: Arc<Gateway>,
    /// Hops 02 and 03.
    pub identity: Identity,
    /// Hops 09 to 12.
    pub components: usher_components::Handle,
    router: Stack,
    pki: Pki,
    address: Option<SocketAddr>,
    stop: CancellationToken,
    serving: Option<tokio::task::JoinHandle<()>>,
}

impl Server {
    /// A server to be.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client of the administrator that goes through the whole stack but no socket.
    pub fn client(&self) -> kube::Client {
        self.client_as(User::new("kubernetes-admin", &["system:masters", "system:authenticated"]))
    }

    /// The same for any identity.
    pub fn client_as(&self, user: User) -> kube::Client {
        crate::client::client(&self.router, user)
    }

    /// Where it listens, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Its certificates and keys.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// What happened to the requests so far.
    pub fn audit(&self) -> &Arc<Audit> {
        &self.gateway.audit
    }

    /// The whole stack as a tower service.
    pub fn router(&self) -> Stack {
        self.router.clone()
    }

    /// Stops: components end, no new connections, watches end, requests are drained, what they did is recorded, the store is closed.
    pub async fn stop(mut self) {
        self.gateway.health.stopping();
        // While the door still stands: they give their Leases back, and what they have asked for is answered.
        let _ = tokio::time::timeout(Duration::from_secs(5), self.components.shutdown()).await;
        self.stop.cancel();
        if let Some(serving) = self.serving.take() {
            let _ = serving.await;
        }
        self.gateway.audit.stop().await;
        self.gateway.audit.archive.close();
        if let Err(error) = self.gateway.api.state.store().close().await {
            tracing::warn!(%error, "closing the store");
        }
    }
}

/// Clients of this server's own stack, one for each identity.
struct InProcessClients(Stack);

impl ClientFor for InProcessClients {
    fn client(&self, identity: &usher_components::Identity) -> kube::Client {
        let mut user = User { name: identity.name.clone(), groups: identity.groups.clone(), ..User::default() };
        user.groups.push("system:authenticated".into());
        let agent = match identity.name.as_str() {
            "system:kube-scheduler" => "kube-scheduler",
            name if name.starts_with("system:node:") => "kubelet",
            _ => "kube-controller-manager",
        };
        crate::client::client_of(&self.0, user, agent)
    }
}
