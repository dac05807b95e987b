//! The environment of a container: plain values, the Pod's own fields, and what ConfigMaps and Secrets hold.
//!
//! What refers to something that is not there keeps the container from being made (CreateContainerConfigError), unless it is optional.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::{Method, StatusCode};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, Pod, Secret};
use serde::de::DeserializeOwned;

use super::api;

/// Where ConfigMaps and Secrets are read from.
pub(super) struct Sources<'a> {
    pub client: &'a kube::Client,
    pub namespace: &'a str,
}

type Data = BTreeMap<String, String>;

impl Sources<'_> {
    async fn get<K: DeserializeOwned>(&self, plural: &str, singular: &str, name: &str) -> Result<Option<K>, String> {
        let path = format!("/api/v1/namespaces/{}/{plural}/{name}", self.namespace);
        match api::send(self.client, Method::GET, &path, "application/json", &serde_json::Value::Null).await {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| error.to_string()),
            Err(error) if error.is(StatusCode::NOT_FOUND) => Ok(None),
            Err(error) => Err(format!("couldn't get {singular} \"{name}\": {error}")),
        }
    }

    async fn config_map(&self, name: &str) -> Result<Option<Data>, String> {
        let found: Option<ConfigMap> = self.get("configmaps", "configmap", name).await?;
        Ok(found.map(|map| map.data.unwrap_or_default()))
    }

    async fn secret(&self, name: &str) -> Result<Option<Data>, String> {
        let found: Option<Secret> = self.get("secrets", "secret", name).await?;
        let text = |ByteString(bytes): ByteString| String::from_utf8_lossy(&bytes).into_owned();
        Ok(found.map(|secret| secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, text(value))).collect()))
    }
}

/// What a variable takes from the Pod's own fields.
fn field(path: &str, pod: &Pod, host_ip: IpAddr, pod_ip: &str) -> Option<String> {
    let meta = &pod.metadata;
    let keyed = |map: &Option<Data>, prefix: &str| {
        let key = path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']")?;
        Some(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default())
    };
    match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "spec.nodeName" => pod.spec.as_ref()?.node_name.clone(),
        "spec.serviceAccountName" => pod.spec.as_ref()?.service_account_name.clone(),
        "status.hostIP" | "status.hostIPs" => Some(host_ip.to_string()),
        "status.podIP" | "status.podIPs" => Some(pod_ip.to_owned()),
        _ => keyed(&meta.labels, "metadata.labels").or_else(|| keyed(&meta.annotations, "metadata.annotations")),
    }
}

/// Replaces `$(NAME)` by what was defined before; `$$` is a dollar.
fn expand(text: &str, defined: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix("$(").and_then(|inner| inner.split_once(')')) {
            match defined.iter().rev().find(|(known, _)| known == name) {
                Some((_, value)) => out.push_str(value),
                // What is not known stays as it was written.
                None => out.push_str(&rest[..name.len() + 3]),
            }
            rest = after;
        } else {
            out.push('$');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    out
}

/// One key of a ConfigMap or Secret: its value, nothing if it is optional and missing, or what is missing.
fn pick(data: Option<Data>, kind: &str, name: &str, key: &str, optional: bool) -> Result<Option<String>, String> {
    match data {
        None if optional => Ok(None),
        None => Err(format!("{kind} \"{name}\" not found")),
        Some(data) => match data.get(key) {
            Some(value) => Ok(Some(value.clone())),
            None if optional => Ok(None),
            None => Err(format!("couldn't find key {key} in {} {name}", if kind == "secret" { "Secret" } else { "ConfigMap" })),
        },
    }
}

async fn value(variable: &EnvVar, pod: &Pod, host_ip: IpAddr, pod_ip: &str, sources: &Sources<'_>) -> Result<Option<String>, String> {
    let Some(from) = &variable.value_from else { return Ok(Some(variable.value.clone().unwrap_or_default())) };
    if let Some(reference) = &from.field_ref {
        return Ok(field(&reference.field_path, pod, host_ip, pod_ip));
    }
    if let Some(reference) = &from.config_map_key_ref {
        let data = sources.config_map(&reference.name).await?;
        return pick(data, "configmap", &reference.name, &reference.key, reference.optional.unwrap_or_default());
    }
    if let Some(reference) = &from.secret_key_ref {
        let data = sources.secret(&reference.name).await?;
        return pick(data, "secret", &reference.name, &reference.key, reference.optional.unwrap_or_default());
    }
    Ok(None)
}

/// The whole environment, later definitions winning over earlier ones.
pub(super) async fn resolve(
    container: &Container,
    pod: &Pod,
    host_ip: IpAddr,
    pod_ip: &str,
    sources: &Sources<'_>,
) -> Result<Vec<(String, String)>, String> {
    let mut environment: Vec<(String, String)> = Vec::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.clone().unwrap_or_default();
        let (data, kind, name, optional) = if let Some(reference) = &from.config_map_ref {
            (sources.config_map(&reference.name).await?, "configmap", &reference.name, reference.optional)
        } else if let Some(reference) = &from.secret_ref {
            (sources.secret(&reference.name).await?, "secret", &reference.name, reference.optional)
        } else {
            continue;
        };
        match data {
            Some(data) => environment.extend(data.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value))),
            None if optional.unwrap_or_default() => {}
            None => return Err(format!("{kind} \"{name}\" not found")),
        }
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(variable, pod, host_ip, pod_ip, sources).await? {
            let value = if variable.value_from.is_none() { expand(&value, &environment) } else { value };
            environment.push((variable.name.clone(), value));
        }
    }
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_to_earlier_variables_are_replaced() {
        let defined = vec![("A".to_owned(), "1".to_owned())];
        assert_eq!(expand("x$(A)y $(B) $$(A) $ $(", &defined), "x1y $(B) $(A) $ $(");
    }

    #[test]
    fn fields_of_the_pod_are_found() {
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": {"nodeName": "n", "containers": []}}),
        )
        .unwrap();
        let get = |path: &str| field(path, &pod, IpAddr::from([1, 2, 3, 4]), "10.0.0.1");
        assert_eq!(get("metadata.labels['app']").as_deref(), Some("web"));
        assert_eq!(get("spec.nodeName").as_deref(), Some("n"));
        assert_eq!(get("status.podIP").as_deref(), Some("10.0.0.1"));
        assert_eq!(get("spec.nonsense"), None);
    }

    #[test]
    fn what_is_missing_is_named_unless_it_is_optional() {
        assert_eq!(pick(None, "configmap", "c", "k", false).unwrap_err(), "configmap \"c\" not found");
        assert_eq!(pick(Some(Data::new()), "secret", "s", "k", false).unwrap_err(), "couldn't find key k in Secret s");
        assert_eq!(pick(None, "configmap", "c", "k", true), Ok(None));
    }
}
