//! How a webhook is called whose address, certificates and credentials stand in a kubeconfig: the TokenReview webhook
//! here and the SubjectAccessReview webhook of the authorisers. Tries again where that can help, and never follows a
//! redirect with a credential.

use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use reqwest::{Client, ClientBuilder, Identity, Url, redirect};
use serde_json::Value;

use super::trust;

/// No review is larger.
const MAX_ANSWER_BYTES: usize = 3 << 20;

/// How often it is tried, and how long is waited before the second time; every further wait is half as long again.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// How often in all.
    pub attempts: u32,
    /// The first wait.
    pub wait: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { attempts: 5, wait: Duration::from_millis(500) }
    }
}

/// A webhook that takes a review and answers with one.
pub struct WebhookClient {
    client: Client,
    url: Url,
    authorization: Option<String>,
    retry: Retry,
}

impl WebhookClient {
    /// Reads the current context of a kubeconfig; relative paths in it begin at `base`.
    pub fn from_kubeconfig(config: &Value, base: &Path, timeout: Duration, retry: Retry) -> Result<Self, String> {
        let named = |list: &str, name: &str, part: &str| {
            let items = config[list].as_array().map(Vec::as_slice).unwrap_or_default();
            let found = items.iter().find(|item| item["name"].as_str() == Some(name));
            found.map(|item| item[part].clone()).ok_or_else(|| format!("the kubeconfig has no {part} named {name:?}"))
        };
        let context = named("contexts", config["current-context"].as_str().unwrap_or_default(), "context")?;
        let cluster = named("clusters", context["cluster"].as_str().unwrap_or_default(), "cluster")?;
        let user = match context["user"].as_str() {
            Some(user) if !user.is_empty() => named("users", user, "user")?,
            _ => Value::Null,
        };
        let mut url = Url::parse(cluster["server"].as_str().unwrap_or_default()).map_err(|e| format!("the webhook's server: {e}"))?;
        let mut builder = builder(timeout);
        if let Some(name) = cluster["tls-server-name"].as_str().filter(|name| !name.is_empty()) {
            let addresses = url.socket_addrs(|| None).map_err(|e| format!("the webhook's server: {e}"))?;
            builder = builder.resolve_to_addrs(name, &addresses);
            url.set_host(Some(name)).map_err(|e| format!("the webhook's tls-server-name: {e}"))?;
        }
        let mut identity = bytes(&user, "client-certificate", base)?;
        if let Some(pem) = &mut identity {
            pem.push(b'\n');
            pem.extend(bytes(&user, "client-key", base)?.ok_or("the kubeconfig has a client-certificate but no client-key")?);
        }
        let insecure = cluster["insecure-skip-tls-verify"] == true;
        builder = match (bytes(&cluster, "certificate-authority", base)?, &identity) {
            (Some(ca), _) if !insecure => {
                let tls = trust::bundle(&ca).and_then(|bundle| trust::config(&bundle, identity.as_deref()));
                builder.tls_backend_preconfigured(tls.map_err(|e| format!("the webhook's certificate authority: {e}"))?)
            }
            (_, Some(pem)) => {
                let identity = Identity::from_pem(pem).map_err(|e| format!("the client certificate for the webhook: {e}"))?;
                builder.tls_backend_rustls().identity(identity).tls_danger_accept_invalid_certs(insecure)
            }
            (_, None) => builder.tls_backend_rustls().tls_danger_accept_invalid_certs(insecure),
        };
        let token = match (user["token"].as_str(), user["tokenFile"].as_str()) {
            (Some(token), _) => Some(token.to_owned()),
            (None, Some(file)) => {
                Some(std::fs::read_to_string(base.join(file)).map_err(|e| format!("cannot read {file}: {e}"))?.trim().to_owned())
            }
            (None, None) => None,
        };
        let authorization = match (token, user["username"].as_str()) {
            (Some(token), _) => Some(format!("Bearer {token}")),
            (None, Some(name)) => {
                Some(format!("Basic {}", STANDARD.encode(format!("{name}:{}", user["password"].as_str().unwrap_or_default()))))
            }
            (None, None) => None,
        };
        let client = builder.build().map_err(|e| format!("cannot make a client for the webhook: {e}"))?;
        Ok(WebhookClient { client, url, authorization, retry })
    }

    /// Sends a review and returns the answer. The error never contains the review.
    pub async fn post(&self, review: &Value) -> Result<Value, String> {
        let body = review.to_string();
        let mut wait = self.retry.wait;
        let mut attempt = 1;
        loop {
            let (error, again) = match self.attempt(body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            if !again || attempt >= self.retry.attempts {
                return Err(error);
            }
            attempt += 1;
            tokio::time::sleep(wait).await;
            wait = wait.mul_f32(1.5);
        }
    }

    /// Sends a body, once. What the answer says does not count, but whoever does not come to its end may not have come to that of the
    /// body either.
    pub async fn deliver(&self, body: String) -> Result<(), String> {
        let mut response = self.send(body).await.map_err(|(why, _)| why)?;
        while response.chunk().await.map_err(unread)?.is_some() {}
        Ok(())
    }

    /// One try; the second part of the error says whether another may help.
    async fn attempt(&self, body: String) -> Result<Value, (String, bool)> {
        let mut response = self.send(body).await?;
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| (unread(error), true))? {
            answer.extend_from_slice(&chunk);
            if answer.len() > MAX_ANSWER_BYTES {
                return Err(("the webhook's answer is too large".into(), false));
            }
        }
        serde_json::from_slice(&answer).map_err(|_| ("the webhook's answer is not JSON".into(), false))
    }

    async fn send(&self, body: String) -> Result<reqwest::Response, (String, bool)> {
        let mut request =
            self.client.post(self.url.clone()).header("content-type", "application/json").header("accept", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let response = request.body(body).send().await.map_err(|e| (format!("failed to call the webhook: {}", causes(e)), true))?;
        let status = response.status();
        // Of the further ones a real server makes nothing good either.
        if !(200..=206).contains(&status.as_u16()) {
            let again = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
            return Err((format!("the webhook answered {status}"), again));
        }
        Ok(response)
    }
}

fn unread(error: reqwest::Error) -> String {
    format!("reading the webhook's answer: {}", causes(error))
}

/// What went wrong, down to its cause, without the address: there may be a credential in it.
fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut next = std::error::Error::source(&error);
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// A client that this room uses for anything.
pub(super) fn builder(timeout: Duration) -> ClientBuilder {
    Client::builder().timeout(timeout).redirect(redirect::Policy::none())
}

/// `key-data` in base64, or the file named by `key`.
fn bytes(map: &Value, key: &str, base: &Path) -> Result<Option<Vec<u8>>, String> {
    if let Some(data) = map[format!("{key}-data")].as_str().filter(|data| !data.is_empty()) {
        return STANDARD.decode(data).map(Some).map_err(|_| format!("{key}-data is not base64"));
    }
    match map[key].as_str().filter(|file| !file.is_empty()) {
        Some(file) => std::fs::read(base.join(file)).map(Some).map_err(|e| format!("cannot read {file}: {e}")),
        None => Ok(None),
    }
}

impl std::fmt::Debug for WebhookClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WebhookClient({:?})", self.url.host_str())
    }
}
