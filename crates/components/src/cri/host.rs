//! The machine that a real runtime's containers run on: log files in the CRI format, and probes over the network.
//!
//! The mock has neither files nor network and answers for itself.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::v1::{ContainerState, ContainerStatusRequest, ExecSyncRequest};
use super::{ContainerHandle, Host, LogLine, ProbeKind, RuntimeService};
use crate::clock::Clock;

/// How often a followed log file is looked at.
const POLL: Duration = Duration::from_millis(250);

/// See the module's description.
pub struct MachineHost {
    runtime: Option<Arc<dyn RuntimeService>>,
    clock: Clock,
}

impl MachineHost {
    /// `runtime` runs exec probes and says when a container has ended.
    #[must_use]
    pub fn new(runtime: Option<Arc<dyn RuntimeService>>, clock: Clock) -> Self {
        Self { runtime, clock }
    }
}

/// Reads one line of a CRI log: `time stream F|P text`.
#[must_use]
pub fn parse_line(line: &str) -> Option<(LogLine, bool)> {
    let mut parts = line.splitn(4, ' ');
    let time = parts.next()?.parse().ok()?;
    let stderr = parts.next()? == "stderr";
    let partial = parts.next()? == "P";
    Some((LogLine { time, stderr, text: parts.next().unwrap_or_default().to_owned() }, partial))
}

struct Tail {
    path: PathBuf,
    id: String,
    offset: u64,
    rest: Vec<u8>,
    partial: String,
    ready: VecDeque<LogLine>,
    ended: bool,
}

impl Tail {
    async fn read(&mut self) -> std::io::Result<()> {
        use tokio::io::AsyncSeekExt;
        let mut file = tokio::fs::File::open(&self.path).await?;
        file.seek(std::io::SeekFrom::Start(self.offset)).await?;
        let mut chunk = Vec::new();
        self.offset += u64::try_from(file.read_to_end(&mut chunk).await?).unwrap_or_default();
        self.rest.extend(chunk);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line[..line.len() - 1]).into_owned();
            let Some((mut line, partial)) = parse_line(&text) else { continue };
            if partial {
                self.partial.push_str(&line.text);
            } else {
                line.text.insert_str(0, &std::mem::take(&mut self.partial));
                self.ready.push_back(line);
            }
        }
        Ok(())
    }
}

impl Host for MachineHost {
    fn logs(&self, container: &ContainerHandle, follow: bool) -> BoxStream<'static, LogLine> {
        let tail = Tail {
            path: PathBuf::from(&container.log_path),
            id: container.id.clone(),
            offset: 0,
            rest: Vec::new(),
            partial: String::new(),
            ready: VecDeque::new(),
            ended: false,
        };
        let (runtime, clock) = (self.runtime.clone(), self.clock.clone());
        futures::stream::unfold((tail, true), move |(mut tail, mut first)| {
            let (runtime, clock) = (runtime.clone(), clock.clone());
            async move {
                loop {
                    if let Some(line) = tail.ready.pop_front() {
                        return Some((line, (tail, first)));
                    }
                    if tail.ended || (!first && !follow) {
                        return None;
                    }
                    if !first {
                        clock.sleep(POLL).await;
                        // Asked before the last read, so that nothing printed before the end is missed.
                        tail.ended = has_ended(runtime.as_deref(), &tail.id).await;
                    }
                    first = false;
                    if tail.read().await.is_err() {
                        return None;
                    }
                }
            }
        })
        .boxed()
    }

    fn probe<'a>(
        &'a self,
        container: &'a ContainerHandle,
        probe: &'a Probe,
        _: ProbeKind,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let attempt = async {
                if let Some(exec) = &probe.exec {
                    return self.exec(container, exec.command.clone().unwrap_or_default(), timeout).await;
                }
                if let Some(get) = &probe.http_get {
                    return http_get(container, get).await;
                }
                let port = probe
                    .tcp_socket
                    .as_ref()
                    .map(|action| number(&action.port))
                    .or(probe.grpc.as_ref().map(|action| u16::try_from(action.port).ok()));
                let host = probe.tcp_socket.as_ref().and_then(|action| action.host.clone()).unwrap_or_else(|| container.pod_ip.clone());
                match port.flatten() {
                    Some(port) => connect(&host, port).await.map(|_| ()),
                    None => Err("missing probe handler".to_owned()),
                }
            };
            self.clock.timeout(timeout, attempt).await.unwrap_or_else(|_| Err(format!("timed out after {timeout:?}")))
        }
        .boxed()
    }
}

async fn has_ended(runtime: Option<&dyn RuntimeService>, id: &str) -> bool {
    let Some(runtime) = runtime else { return true };
    let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    match runtime.container_status(request).await {
        Ok(answer) => answer.status.is_none_or(|status| status.state == ContainerState::ContainerExited as i32),
        Err(_) => true,
    }
}

impl MachineHost {
    async fn exec(&self, container: &ContainerHandle, command: Vec<String>, timeout: Duration) -> Result<(), String> {
        let Some(runtime) = &self.runtime else { return Err("no runtime to run the command".into()) };
        let timeout = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        let request = ExecSyncRequest { container_id: container.id.clone(), cmd: command, timeout };
        match runtime.exec_sync(request).await {
            Ok(answer) if answer.exit_code == 0 => Ok(()),
            Ok(answer) => Err(String::from_utf8_lossy(&[answer.stdout, answer.stderr].concat()).into_owned()),
            Err(status) => Err(status.message().to_owned()),
        }
    }
}

fn number(port: &IntOrString) -> Option<u16> {
    match port {
        IntOrString::Int(port) => u16::try_from(*port).ok(),
        IntOrString::String(text) => text.parse().ok(),
    }
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((host, port)).await.map_err(|error| format!("dial tcp {host}:{port}: {error}"))
}

async fn http_get(container: &ContainerHandle, get: &HTTPGetAction) -> Result<(), String> {
    let host = get.host.clone().unwrap_or_else(|| container.pod_ip.clone());
    let Some(port) = number(&get.port) else { return Err("the probe's port is not a number".into()) };
    let path = get.path.clone().unwrap_or_else(|| "/".into());
    let mut stream = connect(&host, port).await?;
    let mut request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: kube-probe/1.37\r\nAccept: */*\r\nConnection: close\r\n");
    for header in get.http_headers.iter().flatten() {
        request.push_str(&format!("{}: {}\r\n", header.name, header.value));
    }
    request.push_str("\r\n");
    let failed = |error: std::io::Error| format!("Get \"http://{host}:{port}{path}\": {error}");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut head = vec![0u8; 64];
    let read = stream.read(&mut head).await.map_err(failed)?;
    let head = String::from_utf8_lossy(&head[..read]).into_owned();
    match head.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok()) {
        Some(200..=399) => Ok(()),
        Some(code) => Err(format!("HTTP probe failed with statuscode: {code}")),
        None => Err(format!("Get \"http://{host}:{port}{path}\": malformed HTTP response")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_cri_log_format_is_read() {
        let (line, partial) = parse_line("2026-01-02T03:04:05.000000006Z stderr F hello  world").unwrap();
        assert_eq!((line.stderr, line.text.as_str(), partial), (true, "hello  world", false));
        assert!(parse_line("2026-01-02T03:04:05Z stdout P half").unwrap().1);
        assert!(parse_line("no time here").is_none());
    }
}
