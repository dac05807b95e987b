//! Which authorisers stand in the chain: `--authorization-mode`, or the structured `AuthorizationConfiguration`
//! (`apiserver.config.k8s.io`), which can be read again while the server runs. A file with a mistake changes nothing.
//! `system:masters` comes first in every chain and cannot be configured away.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::authn::Now;
use crate::authn::authentication_configuration::{expect_kind, known_fields};
use crate::authn::expression::{Expression, Scope};
use crate::authn::webhook_client::{Retry, WebhookClient};

use super::Authorizer;
use super::abac::Abac;
use super::always::{AlwaysAllow, AlwaysDeny, Masters};
use super::chain::Named;
use super::node::NodeAuthorizer;
use super::rbac::Rbac;
use super::webhook::{FailurePolicy, Settings, WebhookAuthorizer};

/// The authorisers that a chain can be made of.
#[derive(Clone)]
pub struct Modes {
    /// RBAC.
    pub rbac: Arc<Rbac>,
    /// Node.
    pub node: Arc<NodeAuthorizer>,
    /// ABAC, if there is a policy file.
    pub abac: Option<Arc<Abac>>,
    /// The webhook of the mode Webhook, if there is a kubeconfig of it.
    pub webhook: Option<Arc<WebhookAuthorizer>>,
    /// What time it is, for what webhooks' answers are remembered by.
    pub now: Now,
}

impl Modes {
    /// The chain of `--authorization-mode=Node,RBAC`.
    pub fn from_names(&self, names: &[&str]) -> Result<Vec<Named>, String> {
        if names.is_empty() {
            return Err("at least one authorization-mode must be passed".into());
        }
        let mut chain = vec![Named::by_mode(Arc::new(Masters))];
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                return Err(format!("authorization-mode {name:?} has mode specified more than once"));
            }
            chain.push(Named::by_mode(self.named(name)?));
        }
        Ok(chain)
    }

    /// The chain of a structured configuration, YAML or JSON. Relative paths in it begin at `base`.
    pub fn from_file(&self, bytes: &[u8], base: &Path) -> Result<Vec<Named>, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "the file is not text")?;
        self.from_value(&crate::schema::yaml::parse(text)?.value, base)
    }

    /// The same from a document.
    pub fn from_value(&self, document: &Value, base: &Path) -> Result<Vec<Named>, String> {
        expect_kind(document, "AuthorizationConfiguration")?;
        known_fields(document, "", &["apiVersion", "kind", "authorizers"])?;
        let entries = document["authorizers"].as_array().map(Vec::as_slice).unwrap_or_default();
        if entries.is_empty() {
            return Err("authorizers: Required value: at least one authorization mode must be defined".into());
        }
        let mut chain = vec![Named::by_mode(Arc::new(Masters))];
        let (mut names, mut types): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        for (i, entry) in entries.iter().enumerate() {
            let path = format!("authorizers[{i}]");
            known_fields(entry, &path, &["type", "name", "webhook"])?;
            let (sort, name) = (text(entry, "type"), text(entry, "name"));
            if name.is_empty() {
                return Err(format!("{path}.name: Required value"));
            }
            if names.contains(&name) {
                return Err(format!("{path}.name: Duplicate value: {name:?}"));
            }
            if sort != "Webhook" && types.contains(&sort) {
                return Err(format!("{path}.type: Duplicate value: {sort:?}"));
            }
            let authorizer: Arc<dyn Authorizer> = match sort {
                "" => return Err(format!("{path}.type: Required value")),
                "Webhook" => Arc::new(self.webhook(&entry["webhook"], &format!("{path}.webhook"), base)?),
                _ if entry["webhook"].is_object() => {
                    return Err(format!("{path}.webhook: Invalid value: \"non-null\": may only be specified when type=Webhook"));
                }
                _ => self.named(sort).map_err(|e| format!("{path}.type: {e}"))?,
            };
            chain.push(Named { name: name.to_owned(), authorizer });
            names.push(name);
            types.push(sort);
        }
        Ok(chain)
    }

    fn named(&self, name: &str) -> Result<Arc<dyn Authorizer>, String> {
        match name {
            "RBAC" => Ok(self.rbac.clone()),
            "Node" => Ok(self.node.clone()),
            "AlwaysAllow" => Ok(Arc::new(AlwaysAllow)),
            "AlwaysDeny" => Ok(Arc::new(AlwaysDeny)),
            "ABAC" => match &self.abac {
                Some(abac) => Ok(abac.clone()),
                None => Err("authorization-mode ABAC's authorization policy file not passed".into()),
            },
            "Webhook" => match &self.webhook {
                Some(webhook) => Ok(webhook.clone()),
                None => Err("authorization-mode Webhook's authorization config file not passed".into()),
            },
            other => Err(format!("{other:?} is not a valid mode")),
        }
    }

    fn webhook(&self, value: &Value, path: &str, base: &Path) -> Result<WebhookAuthorizer, String> {
        let fields = [
            "timeout",
            "subjectAccessReviewVersion",
            "matchConditionSubjectAccessReviewVersion",
            "failurePolicy",
            "authorizedTTL",
            "unauthorizedTTL",
            "cacheAuthorizedRequests",
            "cacheUnauthorizedRequests",
            "connectionInfo",
            "matchConditions",
        ];
        known_fields(value, path, &fields)?;
        let failure_policy = match text(value, "failurePolicy") {
            "NoOpinion" => FailurePolicy::NoOpinion,
            "Deny" => FailurePolicy::Deny,
            "" => return Err(format!("{path}.failurePolicy: Required value")),
            other => return Err(format!("{path}.failurePolicy: Unsupported value: {other:?}: supported values: \"NoOpinion\", \"Deny\"")),
        };
        let version = text(value, "subjectAccessReviewVersion");
        if !matches!(version, "v1" | "v1beta1") {
            return Err(format!(
                "{path}.subjectAccessReviewVersion: Unsupported value: {version:?}: supported values: \"v1\", \"v1beta1\""
            ));
        }
        let seconds = |key: &str, default: i64, switch: &str| -> Result<i64, String> {
            if value[switch] == false {
                return Ok(0);
            }
            match value[key].as_str() {
                None => Ok(default),
                Some(written) => {
                    duration(written).map(|d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX)).map_err(|e| format!("{path}.{key}: {e}"))
                }
            }
        };
        let timeout = match value["timeout"].as_str() {
            None => return Err(format!("{path}.timeout: Required value")),
            Some(written) => duration(written).map_err(|e| format!("{path}.timeout: {e}"))?,
        };
        if timeout > Duration::from_secs(30) || timeout.is_zero() {
            return Err(format!("{path}.timeout: Invalid value: must be > 0s and <= 30s"));
        }
        let conditions = value["matchConditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        if conditions.len() > 64 {
            return Err(format!("{path}.matchConditions: Too many: {}: must have at most 64 items", conditions.len()));
        }
        if !conditions.is_empty() && text(value, "matchConditionSubjectAccessReviewVersion") != "v1" {
            return Err(format!(
                "{path}.matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified"
            ));
        }
        let mut match_conditions = Vec::new();
        for (i, condition) in conditions.iter().enumerate() {
            let source = text(condition, "expression");
            let compiled = Expression::condition(Scope::Request, source)
                .map_err(|e| format!("{path}.matchConditions[{i}].expression: Invalid value: {source:?}: {e}"))?;
            match_conditions.push(compiled);
        }
        let settings = Settings {
            match_conditions,
            failure_policy,
            beta: version == "v1beta1",
            authorized_seconds: seconds("authorizedTTL", 300, "cacheAuthorizedRequests")?,
            unauthorized_seconds: seconds("unauthorizedTTL", 30, "cacheUnauthorizedRequests")?,
        };
        let connection = &value["connectionInfo"];
        if text(connection, "type") != "KubeConfigFile" {
            return Err(format!("{path}.connectionInfo.type: Unsupported value: supported values: \"KubeConfigFile\""));
        }
        let file = base.join(text(connection, "kubeConfigFile"));
        let kubeconfig = std::fs::read_to_string(&file)
            .map_err(|e| format!("{path}.connectionInfo.kubeConfigFile: cannot read {}: {e}", file.display()))?;
        let kubeconfig = crate::schema::yaml::parse(&kubeconfig)?.value;
        let directory = file.parent().unwrap_or(Path::new("."));
        let client = WebhookClient::from_kubeconfig(&kubeconfig, directory, timeout, Retry::default())
            .map_err(|e| format!("{path}.connectionInfo: {e}"))?;
        Ok(WebhookAuthorizer::new(client, settings, self.now.clone()))
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// A duration as Go writes it: `300ms`, `5m`, `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("Invalid value: {text:?}: not a duration");
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return Err(wrong()),
        };
        total += Duration::try_from_secs_f64(number * unit).map_err(|_| wrong())?;
        rest = &rest[end..];
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::fixtures::{Clock, TlsServer};
    use crate::authz::chain::Chain;
    use crate::authz::rbac::tests::ask;
    use crate::request::User;

    fn modes() -> Modes {
        Modes { rbac: Arc::default(), node: Arc::default(), abac: None, webhook: None, now: Clock::at(0).now() }
    }

    fn names(chain: &[Named]) -> Vec<&str> {
        chain.iter().map(|named| named.name.as_str()).collect()
    }

    #[test]
    fn modes_stand_in_the_order_in_which_they_are_named() {
        assert_eq!(names(&modes().from_names(&["Node", "RBAC"]).unwrap()), ["system:masters", "node", "rbac"]);
        for bad in [&[][..], &["RBAC", "RBAC"], &["Nope"], &["ABAC"]] {
            assert!(modes().from_names(bad).is_err(), "{bad:?}");
        }
    }

    const FILE: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- {type: Node, name: node}
- type: Webhook
  name: first
  webhook:
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    authorizedTTL: 1m30s
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: webhook.kubeconfig}
    matchConditions:
    - expression: \"!('system:nodes' in request.groups)\"
- {type: RBAC, name: rbac}
";

    #[tokio::test]
    async fn a_structured_configuration_is_read_and_its_webhook_asked() {
        let server = TlsServer::start(|_, _| (200, r#"{"status":{"allowed":true,"reason":"hook"}}"#.into())).await;
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("webhook.kubeconfig"), server.kubeconfig().to_string()).unwrap();
        let chain = modes().from_file(FILE.as_bytes(), directory.path()).unwrap();
        assert_eq!(names(&chain), ["system:masters", "node", "first", "rbac"]);
        let named = Chain::new(Vec::new());
        named.replace(chain);
        let chain = named;
        assert_eq!(chain.decide(&ask(User::new("bob", &["x"]), "GET", "/api/v1/pods")).await.reason(), "hook");
    }

    #[test]
    fn every_mistake_is_told_with_its_field() {
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = "{current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]}";
        std::fs::write(directory.path().join("webhook.kubeconfig"), kubeconfig).unwrap();
        let wrong = |from: &str, to: &str, says: &str| {
            assert!(FILE.contains(from), "{from}");
            let error = modes().from_file(FILE.replace(from, to).as_bytes(), directory.path()).map(|_| ()).unwrap_err();
            assert!(error.contains(says), "{error}");
        };
        wrong("failurePolicy: Deny", "failurePolicy: Maybe", "authorizers[1].webhook.failurePolicy: Unsupported value");
        wrong("timeout: 3s", "timeout: 3 parsecs", "authorizers[1].webhook.timeout");
        wrong("timeout: 3s", "timeout: 31s", "must be > 0s and <= 30s");
        wrong("name: rbac", "name: first", "authorizers[2].name: Duplicate value");
        wrong("type: RBAC", "type: Node", "authorizers[2].type: Duplicate value");
        wrong("type: RBAC", "type: Nope", "authorizers[2].type");
        wrong("in request.groups", "in request.nope", "matchConditions[0].expression: Invalid value");
        wrong("failurePolicy: Deny", "failurePolicies: Deny", "unknown field");
        wrong("webhook.kubeconfig", "missing.kubeconfig", "cannot read");
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        assert_eq!(duration("1h2m3.5s").unwrap(), Duration::from_millis(3_723_500));
        assert_eq!(duration("300ms").unwrap(), Duration::from_millis(300));
        for bad in ["", "5", "s", "5x", "-1s", "1s1"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
