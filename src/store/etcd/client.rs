//! Talking to etcd: the endpoints, TLS, and one method per RPC that the store needs. Knows nothing of keys or of what is
//! in a value.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::Stream;
use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, IntoRequest, IntoStreamingRequest, Request, Status};

use super::proto::{
    CompactionRequest, CompactionResponse, SnapshotRequest, SnapshotResponse, StatusRequest, StatusResponse, TxnRequest, TxnResponse,
    WatchRequest, WatchResponse,
};
use crate::store::{Error, Result};

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(5);
/// How long a read is tried again while etcd is out of reach.
const PATIENCE: Duration = Duration::from_secs(3);
/// A list may be large; etcd itself sets no limit to what it sends.
const LARGEST_MESSAGE: usize = 2 << 30;

/// Where etcd is, and how to get in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdOptions {
    /// `host:port` of every member.
    pub endpoints: Vec<String>,
    /// The certificate authority of the members; given, the connection is TLS.
    pub ca: Option<PathBuf>,
    /// Our certificate and key, if the members ask for one.
    pub cert: Option<PathBuf>,
    /// The key of the certificate.
    pub key: Option<PathBuf>,
    /// What every key in etcd begins with, such as `/usher`; several servers of one cluster share it.
    pub prefix: String,
    /// How far back clients may list or watch; older revisions are compacted away. `None` leaves that to others.
    pub watch_window: Option<Duration>,
}

impl EtcdOptions {
    /// Reads `etcd://host:port,host:port`, optionally with `/prefix` behind it.
    pub fn parse(text: &str) -> Result<EtcdOptions> {
        let wrong = || Error::Unavailable(format!("{text:?} does not name an etcd: expected etcd://host:port,host:port"));
        let rest = text.strip_prefix("etcd://").ok_or_else(wrong)?;
        let (hosts, prefix) = rest.split_once('/').map_or((rest, ""), |(hosts, prefix)| (hosts, prefix.trim_end_matches('/')));
        let endpoints: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        let is_endpoint = |endpoint: &String| {
            endpoint.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
                && http::uri::Authority::try_from(endpoint.as_str()).is_ok()
        };
        if !endpoints.iter().all(is_endpoint) {
            return Err(wrong());
        }
        let prefix = if prefix.is_empty() { "/usher".to_owned() } else { format!("/{prefix}") };
        Ok(EtcdOptions { endpoints, prefix, watch_window: Some(Duration::from_secs(5 * 60)), ..EtcdOptions::default() })
    }
}

/// A connection to each member; one of them is in use.
pub(super) struct Client {
    channels: Vec<Channel>,
    names: String,
    current: AtomicUsize,
}

impl Client {
    pub(super) fn new(options: &EtcdOptions) -> Result<Client> {
        let names = options.endpoints.join(",");
        let failed = |why: String| Error::Unavailable(format!("etcd at {names}: {why}"));
        let tls = tls(options)?;
        let mut channels = Vec::new();
        for endpoint in &options.endpoints {
            let scheme = if tls.is_some() { "https" } else { "http" };
            let mut endpoint = Endpoint::from_shared(format!("{scheme}://{endpoint}"))
                .map_err(|error| failed(error.to_string()))?
                .connect_timeout(Duration::from_secs(2))
                .tcp_nodelay(true)
                // A member that went away without a word is noticed, and with it a watch that would wait for ever.
                .http2_keep_alive_interval(Duration::from_secs(10))
                .keep_alive_timeout(Duration::from_secs(5))
                .initial_stream_window_size(4 << 20)
                .initial_connection_window_size(16 << 20);
            if let Some(tls) = &tls {
                endpoint = endpoint.tls_config(tls.clone()).map_err(|error| failed(error.to_string()))?;
            }
            channels.push(endpoint.connect_lazy());
        }
        if channels.is_empty() {
            return Err(Error::Unavailable("no etcd endpoint was given".to_owned()));
        }
        Ok(Client { channels, names, current: AtomicUsize::new(0) })
    }

    /// What the caller is told of a failed request.
    pub(super) fn explain(&self, status: &Status) -> Error {
        Error::Unavailable(format!("etcd at {}: {} ({:?})", self.names, status.message(), status.code()))
    }

    fn grpc(&self) -> (usize, Grpc<Channel>) {
        let at = self.current.load(Ordering::Relaxed) % self.channels.len();
        (at, Grpc::new(self.channels[at].clone()).max_decoding_message_size(LARGEST_MESSAGE))
    }

    /// Turns to the next member after the one at `at` failed.
    fn turn(&self, at: usize) {
        let _ = self.current.compare_exchange(at, (at + 1) % self.channels.len(), Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn unary<Q: Message + 'static, A: Message + Default + 'static>(&self, path: &'static str, request: Q) -> Result<A, Status> {
        let (at, mut grpc) = self.grpc();
        let call = async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            grpc.unary(Request::new(request), PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await
        };
        let answer = tokio::time::timeout(REQUEST, call).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
        if answer.as_ref().is_err_and(out_of_reach) {
            self.turn(at);
        }
        answer.map(tonic::Response::into_inner)
    }

    /// A transaction that writes: sent once, because a lost answer does not tell whether it was applied.
    pub(super) async fn commit(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        self.unary("/etcdserverpb.KV/Txn", request).await
    }

    /// A transaction that only reads: sent again while etcd is out of reach.
    pub(super) async fn read(&self, request: TxnRequest) -> Result<TxnResponse, Status> {
        let begun = tokio::time::Instant::now();
        loop {
            match self.unary("/etcdserverpb.KV/Txn", request.clone()).await {
                Err(status) if out_of_reach(&status) && begun.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                answer => return answer,
            }
        }
    }

    pub(super) async fn compact(&self, request: CompactionRequest) -> Result<CompactionResponse, Status> {
        self.unary("/etcdserverpb.KV/Compact", request).await
    }

    /// The version of the member in use.
    pub(super) async fn version(&self) -> Result<String, Status> {
        let status: StatusResponse = self.unary("/etcdserverpb.Maintenance/Status", StatusRequest {}).await?;
        Ok(status.version)
    }

    /// Opens a watch; the stream of requests has to stay alive as long as the answers are wanted.
    pub(super) async fn watch(
        &self,
        requests: impl Stream<Item = WatchRequest> + Send + 'static,
    ) -> Result<Streaming<WatchResponse>, Status> {
        let (at, mut grpc) = self.grpc();
        let call = async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
            grpc.streaming(requests.into_streaming_request(), path, ProstCodec::default()).await
        };
        let answer = tokio::time::timeout(REQUEST, call).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
        if answer.is_err() {
            self.turn(at);
        }
        answer.map(tonic::Response::into_inner)
    }

    pub(super) async fn snapshot(&self) -> Result<Streaming<SnapshotResponse>, Status> {
        let (_, mut grpc) = self.grpc();
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static("/etcdserverpb.Maintenance/Snapshot");
        let answer = grpc.server_streaming(SnapshotRequest {}.into_request(), path, ProstCodec::default()).await;
        answer.map(tonic::Response::into_inner)
    }
}

/// Whether a request may fare better with another member, or later.
fn out_of_reach(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled)
}

fn tls(options: &EtcdOptions) -> Result<Option<ClientTlsConfig>> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(|error| Error::Unavailable(format!("{}: {error}", path.display())));
    let Some(ca) = &options.ca else {
        return match &options.cert {
            Some(_) => Err(Error::Unavailable("a client certificate for etcd needs the certificate authority of etcd too".to_owned())),
            None => Ok(None),
        };
    };
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
    match (&options.cert, &options.key) {
        (Some(cert), Some(key)) => tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?)),
        (None, None) => {}
        _ => return Err(Error::Unavailable("the client certificate for etcd and its key belong together".to_owned())),
    }
    Ok(Some(tls))
}

/// Protobuf messages in gRPC frames.
struct ProstCodec<Q, A>(PhantomData<(Q, A)>);

impl<Q, A> Default for ProstCodec<Q, A> {
    fn default() -> ProstCodec<Q, A> {
        ProstCodec(PhantomData)
    }
}

impl<Q: Message + 'static, A: Message + Default + 'static> Codec for ProstCodec<Q, A> {
    type Encode = Q;
    type Decode = A;
    type Encoder = ProstCodec<Q, A>;
    type Decoder = ProstCodec<Q, A>;

    fn encoder(&mut self) -> ProstCodec<Q, A> {
        ProstCodec::default()
    }

    fn decoder(&mut self) -> ProstCodec<Q, A> {
        ProstCodec::default()
    }
}

impl<Q: Message, A> Encoder for ProstCodec<Q, A> {
    type Item = Q;
    type Error = Status;

    fn encode(&mut self, item: Q, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl<Q, A: Message + Default> Decoder for ProstCodec<Q, A> {
    type Item = A;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<A>, Status> {
        A::decode(buffer).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_every_member_and_perhaps_a_prefix() {
        let options = EtcdOptions::parse("etcd://a:2379,10.0.0.1:2380").unwrap();
        assert_eq!(options.endpoints, ["a:2379", "10.0.0.1:2380"]);
        assert_eq!(options.prefix, "/usher");
        assert_eq!(EtcdOptions::parse("etcd://[::1]:2379/my/cluster/").unwrap().prefix, "/my/cluster");
        for wrong in ["", "a:2379", "etcd://", "etcd://a", "etcd://a:x", "etcd://a:1,,b:2", "etcd://a b:1", "http://a:1"] {
            assert!(EtcdOptions::parse(wrong).is_err(), "{wrong}");
        }
    }
}
