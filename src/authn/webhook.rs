//! Tokens that somebody else knows: a TokenReview is sent to a webhook, and its answer remembered for a while, the yes
//! and the no alike. A webhook that cannot be reached refuses.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::request::User;

use super::cache::{Cache, digest};
use super::webhook_client::WebhookClient;
use super::{Authenticated, Now, TokenAuthenticator, Unauthenticated};

/// The authenticator.
pub struct TokenReviewWebhook {
    client: WebhookClient,
    seconds: i64,
    now: Now,
    answers: Cache<(i64, Answer)>,
}

type Answer = Result<Option<Authenticated>, Unauthenticated>;

impl TokenReviewWebhook {
    /// Asks `client`, and remembers an answer for `seconds` (`--authentication-token-webhook-cache-ttl`).
    pub fn new(client: WebhookClient, seconds: i64, now: Now) -> Self {
        TokenReviewWebhook { client, seconds, now, answers: Cache::new(8192) }
    }

    async fn ask(&self, token: &str, audiences: &[String]) -> Result<Answer, String> {
        let mut spec = json!({"token": token});
        if !audiences.is_empty() {
            spec["audiences"] = json!(audiences);
        }
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
        let answer = self.client.post(&review).await?;
        Ok(read(&answer["status"]))
    }
}

fn read(status: &Value) -> Answer {
    if status["authenticated"] != true {
        return match status["error"].as_str().unwrap_or_default() {
            "" => Ok(None),
            error => Err(Unauthenticated::because(error)),
        };
    }
    let strings =
        |list: &Value| -> Vec<String> { list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect() };
    let user = &status["user"];
    let text = |key: &str| user[key].as_str().unwrap_or_default().to_owned();
    let user = User {
        name: text("username"),
        uid: text("uid"),
        groups: strings(&user["groups"]),
        extra: user["extra"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), strings(v))).collect(),
    };
    if user.name.is_empty() {
        return Err(Unauthenticated::because("the webhook's answer names no user"));
    }
    Ok(Some(Authenticated { user: Arc::new(user), audiences: strings(&status["audiences"]), by: "webhook" }))
}

impl TokenAuthenticator for TokenReviewWebhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn authenticate_token<'a>(&'a self, token: &'a str, audiences: &'a [String]) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let now = (self.now)().as_second();
            let key = digest([token.as_bytes()].into_iter().chain(audiences.iter().map(String::as_bytes)));
            if let Some((until, answer)) = self.answers.get(&key)
                && now < until
            {
                return answer;
            }
            let answer = self.ask(token, audiences).await.map_err(Unauthenticated)?;
            if self.seconds > 0 {
                self.answers.insert(key, (now + self.seconds, answer.clone()));
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::super::fixtures::{Clock, TlsServer};
    use super::super::webhook_client::Retry;
    use super::*;

    fn webhook(server: &TlsServer, clock: &Clock) -> TokenReviewWebhook {
        let retry = Retry { attempts: 2, wait: Duration::from_millis(1) };
        let client = WebhookClient::from_kubeconfig(&server.kubeconfig(), Path::new("."), Duration::from_secs(5), retry).unwrap();
        TokenReviewWebhook::new(client, 120, clock.now())
    }

    #[tokio::test]
    async fn a_webhook_over_tls_says_who_it_is_and_is_not_asked_again_for_a_while() {
        let server = TlsServer::start(|_, body| {
            let review: Value = serde_json::from_slice(body).unwrap();
            assert_eq!(review["spec"]["audiences"], json!(["api"]));
            let status = match review["spec"]["token"].as_str() {
                Some("good") => json!({"authenticated": true, "audiences": ["api"], "user": {"username": "bob", "groups": ["g"], "extra": {"k": ["v"]}}}),
                Some("cursed") => json!({"authenticated": false, "error": "revoked"}),
                _ => json!({"authenticated": false}),
            };
            (200, json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}).to_string())
        })
        .await;
        let clock = Clock::at(0);
        let webhook = webhook(&server, &clock);
        let audiences = ["api".to_owned()];
        for _ in 0..3 {
            let known = webhook.authenticate_token("good", &audiences).await.unwrap().unwrap();
            assert_eq!((&*known.user.name, known.user.extra.len()), ("bob", 1));
        }
        assert_eq!(server.calls.load(Ordering::SeqCst), 1);
        clock.advance(121);
        webhook.authenticate_token("good", &audiences).await.unwrap().unwrap();
        assert_eq!(server.calls.load(Ordering::SeqCst), 2);
        assert!(webhook.authenticate_token("bad", &audiences).await.unwrap().is_none());
        assert_eq!(webhook.authenticate_token("cursed", &audiences).await.unwrap_err().0, "revoked");
    }

    #[tokio::test]
    async fn a_webhook_that_fails_or_is_somebody_else_refuses() {
        let server = TlsServer::start(|_, _| (500, "{}".into())).await;
        let webhook = webhook(&server, &Clock::at(0));
        assert!(webhook.authenticate_token("t", &[]).await.is_err());
        assert_eq!(server.calls.load(Ordering::SeqCst), 2, "tried again once");
        let mut foreign = server.kubeconfig();
        let other = TlsServer::start(|_, _| (200, "{}".into())).await.kubeconfig();
        foreign["clusters"][0]["cluster"]["certificate-authority-data"] =
            other["clusters"][0]["cluster"]["certificate-authority-data"].clone();
        let retry = Retry { attempts: 1, wait: Duration::ZERO };
        let client = WebhookClient::from_kubeconfig(&foreign, Path::new("."), Duration::from_secs(5), retry).unwrap();
        assert!(client.post(&json!({})).await.is_err());
    }

    #[tokio::test]
    async fn an_answer_for_another_audience_and_one_that_is_no_review_name_nobody() {
        let server = TlsServer::start(|_, body| {
            let review: Value = serde_json::from_slice(body).unwrap();
            match review["spec"]["token"].as_str() {
                Some("elsewhere") => {
                    (200, json!({"status": {"authenticated": true, "audiences": ["vault"], "user": {"username": "bob"}}}).to_string())
                }
                Some("nameless") => (200, json!({"status": {"authenticated": true, "audiences": ["api"], "user": {}}}).to_string()),
                Some("html") => (200, "<html>".into()),
                _ => (200, "{}".into()),
            }
        })
        .await;
        let tokens = super::super::bearer::Bearer::new(vec![std::sync::Arc::new(webhook(&server, &Clock::at(0)))], vec!["api".into()]);
        for token in ["elsewhere", "html", "empty"] {
            assert!(tokens.review(token, &[]).await.is_err(), "{token}");
        }
    }
}
