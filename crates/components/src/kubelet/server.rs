//! The kubelet's own HTTP server, as a plain `tower::Service`: called in process by the API server, or put behind a socket.
//!
//! | path | answer |
//! |---|---|
//! | `/containerLogs/{namespace}/{pod}/{container}` | the container's log; `follow`, `previous`, `tailLines`, `sinceSeconds`, `sinceTime`, `timestamps`, `limitBytes`, `stream` |
//! | `/pods` | the Pods on the node as a PodList |
//! | `/healthz` | `ok` |

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::{Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::ContainerStatus;
use serde_json::json;

use super::agent::{Agent, Known};
use super::log_options::LogOptions;
use super::pod_config::log_directory;
use crate::cri::ContainerHandle;

/// What answers are made of.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The server of one node.
#[derive(Clone)]
pub struct KubeletServer {
    agent: Arc<Agent>,
}

impl<B> tower::Service<Request<B>> for KubeletServer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (server, uri) = (self.clone(), request.uri().clone());
        async move { Ok(server.get(uri.path(), uri.query().unwrap_or_default()).await) }.boxed()
    }
}

fn respond(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}

fn refuse(code: StatusCode, message: String) -> Response<Body> {
    respond(code, "text/plain; charset=utf-8", message)
}

/// Which run of a container a log request is about: its id, and which attempt it was.
fn run_of(status: &ContainerStatus, pod: &str, previous: bool) -> Result<(String, i32), String> {
    let name = &status.name;
    let bare = |id: &String| id.split_once("://").map_or_else(|| id.clone(), |(_, id)| id.to_owned());
    let state = status.state.clone().unwrap_or_default();
    let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref()).and_then(|run| run.container_id.as_ref()).map(bare);
    if previous {
        let missing = || format!("previous terminated container \"{name}\" in pod \"{pod}\" not found");
        // After the end of a run and before the start of the next, the run that has just ended is the one of interest.
        return last.map(|id| (id, status.restart_count - 1)).ok_or_else(missing);
    }
    if state.running.is_some() || state.terminated.is_some() {
        let missing = || format!("container \"{name}\" in pod \"{pod}\" is not available");
        return status.container_id.as_ref().map(|id| (bare(id), status.restart_count)).ok_or_else(missing);
    }
    if let Some(id) = last {
        return Ok((id, status.restart_count));
    }
    let reason = match state.waiting.and_then(|waiting| waiting.reason).as_deref() {
        Some("ErrImagePull") => "image can't be pulled".to_owned(),
        Some("ImagePullBackOff") => "trying and failing to pull image".to_owned(),
        other => other.unwrap_or("no logs yet").to_owned(),
    };
    Err(format!("container \"{name}\" in pod \"{pod}\" is waiting to start: {reason}"))
}

impl KubeletServer {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        Self { agent }
    }

    /// Answers a GET of a path with a query.
    pub async fn get(&self, path: &str, query: &str) -> Response<Body> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match parts.as_slice() {
            ["healthz"] => respond(StatusCode::OK, "text/plain; charset=utf-8", "ok"),
            ["pods"] => {
                let items: Vec<_> = self.agent.all_known().into_iter().map(with_status).collect();
                let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items});
                respond(StatusCode::OK, "application/json", list.to_string())
            }
            ["containerLogs", namespace, pod, container] => self.logs(namespace, pod, container, query).await,
            _ => refuse(StatusCode::NOT_FOUND, "404 page not found\n".into()),
        }
    }

    async fn logs(&self, namespace: &str, pod: &str, container: &str, query: &str) -> Response<Body> {
        let options = match LogOptions::parse(query) {
            Ok(options) => options,
            Err(message) => return refuse(StatusCode::BAD_REQUEST, message),
        };
        let Some(known) = self.agent.known(namespace, pod) else {
            return refuse(StatusCode::NOT_FOUND, format!("pod \"{pod}\" does not exist\n"));
        };
        let Some(status) = known.container(container) else {
            return refuse(StatusCode::NOT_FOUND, format!("container \"{container}\" not found in pod \"{pod}\"\n"));
        };
        let (id, attempt) = match run_of(status, pod, options.previous) {
            Ok(run) => run,
            Err(message) => return refuse(StatusCode::BAD_REQUEST, message),
        };
        let log_path = format!("{}/{container}/{attempt}.log", log_directory(&known.pod));
        let handle = ContainerHandle { id, log_path, ..ContainerHandle::default() };
        let follow = options.follow && !options.previous;
        let runtime = &self.agent.runtime;
        let now = self.agent.clock.now();
        // How many lines there are decides where the last N begin, also when more are to come.
        let skip = match options.tail_lines {
            Some(tail) => {
                let wanted = |line: &crate::cri::LogLine| std::future::ready(options.wants(line, now));
                runtime.logs(&handle, false).filter(wanted).count().await.saturating_sub(tail)
            }
            None => 0,
        };
        let wanted = options.clone();
        let lines = runtime.logs(&handle, follow).filter(move |line| std::future::ready(wanted.wants(line, now))).skip(skip);
        let limit = options.limit_bytes;
        let chunks = lines.scan(limit, move |left, line| {
            let chunk = options.render(&line, left);
            std::future::ready((!chunk.is_empty()).then_some(chunk))
        });
        let body = StreamBody::new(chunks.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk))));
        let mut response = Response::new(body.boxed_unsync());
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
        response
    }
}

fn with_status(known: Known) -> k8s_openapi::api::core::v1::Pod {
    let mut pod = (*known.pod).clone();
    pod.status = Some((*known.status).clone());
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(value: serde_json::Value) -> ContainerStatus {
        let mut full = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 2});
        for (key, value) in value.as_object().unwrap() {
            full[key] = value.clone();
        }
        serde_json::from_value(full).unwrap()
    }

    #[test]
    fn the_run_that_a_request_means_is_found() {
        let running = status(json!({"containerID": "mock://now", "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "containerID": "mock://before"}}}));
        assert_eq!(run_of(&running, "p", false), Ok(("now".into(), 2)));
        assert_eq!(run_of(&running, "p", true), Ok(("before".into(), 1)));
        let crashed = status(json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "containerID": "mock://before"}}}));
        assert_eq!(run_of(&crashed, "p", false).unwrap().0, "before");
        assert_eq!(run_of(&crashed, "p", true).unwrap().0, "before");
    }

    #[test]
    fn a_container_without_a_log_says_why() {
        let waiting = |reason: &str| run_of(&status(json!({"state": {"waiting": {"reason": reason}}})), "p", false).unwrap_err();
        assert_eq!(waiting("ContainerCreating"), "container \"c\" in pod \"p\" is waiting to start: ContainerCreating");
        assert_eq!(waiting("ImagePullBackOff"), "container \"c\" in pod \"p\" is waiting to start: trying and failing to pull image");
        let first = status(json!({"containerID": "mock://now", "state": {"running": {}}, "restartCount": 0}));
        assert_eq!(run_of(&first, "p", true).unwrap_err(), "previous terminated container \"c\" in pod \"p\" not found");
    }
}
