//! `--admission-control-config-file`: an `AdmissionConfiguration`, which holds or names what single plugins are configured with.
//! Configurable are `EventRateLimit`, `ImagePolicyWebhook`, `PodNodeSelector`, `PodSecurity`, `PodTolerationRestriction`, `ResourceQuota`,
//! and of the plugins for webhooks and policies the directory that their manifests are in (`staticManifestsDir`).

use std::path::{Path, PathBuf};

use base64::Engine;
use serde_json::Value;

use super::plugins::event_rate_limit::Limit;
use super::plugins::image_policy_webhook::Backend;
use super::plugins::pod_security::Standards;
use super::plugins::pod_toleration_restriction::Tolerations;
use super::plugins::resource_quota::Limited;
use super::registry::Settings;
use crate::schema::yaml;

/// Reads a file into the settings.
///
/// # Errors
/// One sentence that says what is wrong with which file.
pub fn read(path: &Path, settings: &mut Settings) -> Result<(), String> {
    let document = load(path)?;
    let wrong = |why: String| format!("{}: {why}", path.display());
    if document["kind"] != "AdmissionConfiguration" || document["apiVersion"] != "apiserver.config.k8s.io/v1" {
        return Err(wrong("not an AdmissionConfiguration of apiserver.config.k8s.io/v1".into()));
    }
    let base = path.parent().unwrap_or(Path::new("."));
    for plugin in document["plugins"].as_array().into_iter().flatten() {
        let name = plugin["name"].as_str().unwrap_or_default();
        let (configuration, base) = match (plugin["configuration"].is_null(), plugin["path"].as_str().filter(|p| !p.is_empty())) {
            (false, Some(_)) => return Err(wrong(format!("plugin {name:?}: path and configuration are mutually exclusive"))),
            (false, None) => (plugin["configuration"].clone(), base.to_owned()),
            (true, Some(file)) => {
                let file = base.join(file);
                let base = file.parent().map_or_else(PathBuf::new, Path::to_owned);
                (load(&file)?, base)
            }
            (true, None) => continue,
        };
        let of = |why: String| wrong(format!("plugin {name:?}: {why}"));
        match name {
            "EventRateLimit" => settings.event_limits = event_limits(&configuration).map_err(of)?,
            "ImagePolicyWebhook" => settings.image_policy = Some(image_policy(&configuration, &base).map_err(of)?),
            "PodSecurity" => settings.pod_security = Standards::from_value(&configuration).map_err(of)?,
            "PodNodeSelector" => settings.node_selectors = node_selectors(&configuration),
            "PodTolerationRestriction" => settings.tolerations = tolerations(&configuration),
            "ResourceQuota" => settings.limited_resources = limited_resources(&configuration).map_err(of)?,
            "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" | "ValidatingAdmissionWebhook" | "MutatingAdmissionWebhook" => {
                if let Some(directory) = manifests(&configuration).map_err(of)? {
                    settings.manifests.push((name.to_owned(), directory));
                }
            }
            _ => return Err(of("takes no configuration".into())),
        }
    }
    Ok(())
}

fn load(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    yaml::parse(&text).map(|document| document.value).map_err(|why| format!("{}: {why}", path.display()))
}

fn event_limits(configuration: &Value) -> Result<Vec<Limit>, String> {
    let limit = |limit: &Value| {
        let kind = limit["type"].as_str().unwrap_or_default();
        if !matches!(kind, "Server" | "Namespace" | "User" | "SourceAndObject") {
            return Err(format!("unknown event rate limit type: {kind}"));
        }
        let positive = |field: &str| limit[field].as_f64().filter(|n| *n > 0.0).ok_or_else(|| format!("{field} must be positive"));
        let cache_size = limit["cacheSize"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(4096);
        Ok(Limit { kind: kind.to_owned(), qps: positive("qps")?, burst: positive("burst")?, cache_size })
    };
    let limits: Vec<Limit> = configuration["limits"].as_array().into_iter().flatten().map(limit).collect::<Result<_, _>>()?;
    match limits.is_empty() {
        true => Err("limits must not be empty".into()),
        false => Ok(limits),
    }
}

/// Where the backend is stands in a kubeconfig.
fn image_policy(configuration: &Value, base: &Path) -> Result<Backend, String> {
    let policy = &configuration["imagePolicy"];
    let file = policy["kubeConfigFile"].as_str().filter(|file| !file.is_empty()).ok_or("kubeConfigFile is missing")?;
    let file = base.join(file);
    let kubeconfig = load(&file)?;
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    let url = cluster["server"].as_str().ok_or_else(|| format!("{}: no server", file.display()))?.to_owned();
    if !url.starts_with("https://") {
        return Err(format!("{}: the server must be asked over https", file.display()));
    }
    let ca_bundle = match (cluster["certificate-authority-data"].as_str(), cluster["certificate-authority"].as_str()) {
        (Some(data), _) => data.to_owned(),
        (None, Some(path)) => {
            let path = file.parent().unwrap_or(base).join(path);
            let pem = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            base64::engine::general_purpose::STANDARD.encode(pem)
        }
        (None, None) => String::new(),
    };
    let seconds = |field: &str| match policy[field].as_i64() {
        None | Some(0) => Ok(300),
        Some(n @ 1..=1800) => Ok(n.unsigned_abs()),
        Some(-1) => Ok(0),
        Some(n) => Err(format!("{field} must be between 1 and 1800 seconds, 0 or -1, not {n}")),
    };
    Ok(Backend {
        url,
        ca_bundle,
        default_allow: policy["defaultAllow"] == true,
        allow_ttl: seconds("allowTTL")?,
        deny_ttl: seconds("denyTTL")?,
    })
}

fn node_selectors(configuration: &Value) -> Vec<(String, String)> {
    let all = configuration["podNodeSelectorPluginConfig"].as_object().into_iter().flatten();
    all.filter_map(|(namespace, selector)| Some((namespace.clone(), selector.as_str()?.to_owned()))).collect()
}

fn tolerations(configuration: &Value) -> Tolerations {
    let list = |field: &str| configuration[field].as_array().cloned().unwrap_or_default();
    Tolerations { default: list("default"), whitelist: list("whitelist") }
}

fn limited_resources(configuration: &Value) -> Result<Vec<Limited>, String> {
    let all = configuration["limitedResources"].as_array().map(Vec::as_slice).unwrap_or_default();
    match all.iter().position(|limited| limited["resource"].as_str().is_none_or(str::is_empty)) {
        Some(at) => Err(format!("limitedResources[{at}].resource: Required value")),
        None => Ok(all.iter().map(Limited::from_value).collect()),
    }
}

/// `staticManifestsDir`. With which identity a webhook is asked (`kubeConfigFile`) cannot be configured, and is not passed over in silence.
fn manifests(configuration: &Value) -> Result<Option<PathBuf>, String> {
    if configuration["kubeConfigFile"].as_str().is_some_and(|file| !file.is_empty()) {
        return Err("kubeConfigFile is not supported".into());
    }
    let Some(directory) = configuration["staticManifestsDir"].as_str().filter(|directory| !directory.is_empty()) else { return Ok(None) };
    let wrong = |why: &str| Err(format!("staticManifestsDir: Invalid value: {directory:?}: {why}"));
    let path = PathBuf::from(directory);
    match std::fs::metadata(&path) {
        _ if !path.is_absolute() => wrong("must be an absolute file path"),
        Err(error) => wrong(&format!("unable to read: {error}")),
        Ok(found) if !found.is_dir() => wrong("must be a directory"),
        Ok(_) => Ok(Some(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(plugins: &str) -> Result<Settings, String> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("kc"), "clusters: [{name: c, cluster: {server: 'https://images.example.com/policy'}}]\n")
            .unwrap();
        let file = directory.path().join("admission.yaml");
        let text = format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n{plugins}");
        std::fs::write(&file, text).unwrap();
        let mut settings = Settings::default();
        read(&file, &mut settings).map(|()| settings)
    }

    #[test]
    fn plugins_are_configured_in_place_or_by_a_file() {
        let settings = configured(
            "- name: EventRateLimit\n  configuration: {limits: [{type: Namespace, qps: 5, burst: 10}]}\n\
             - name: ImagePolicyWebhook\n  configuration: {imagePolicy: {kubeConfigFile: kc, defaultAllow: true, denyTTL: 7}}\n\
             - name: PodNodeSelector\n  configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: 'a=b'}}\n",
        )
        .unwrap();
        assert_eq!((settings.event_limits[0].kind.as_str(), settings.event_limits[0].burst), ("Namespace", 10.0));
        let backend = settings.image_policy.unwrap();
        assert_eq!(
            (backend.url.as_str(), backend.default_allow, backend.allow_ttl, backend.deny_ttl),
            ("https://images.example.com/policy", true, 300, 7)
        );
        assert_eq!(settings.node_selectors, [("clusterDefaultNodeSelector".to_owned(), "a=b".to_owned())]);
    }

    #[test]
    fn what_is_wrong_is_said_with_the_plugin_it_is_wrong_for() {
        for (plugins, why) in [
            ("- {name: EventRateLimit, configuration: {limits: [{type: Foo, qps: 1, burst: 1}]}}\n", "unknown event rate limit type: Foo"),
            ("- {name: EventRateLimit, configuration: {limits: []}}\n", "limits must not be empty"),
            ("- {name: LimitRanger, configuration: {a: b}}\n", "takes no configuration"),
            ("- {name: ValidatingAdmissionPolicy, configuration: {staticManifestsDir: here}}\n", "must be an absolute file path"),
            ("- {name: MutatingAdmissionWebhook, configuration: {staticManifestsDir: /nowhere/at/all}}\n", "unable to read"),
            ("- {name: MutatingAdmissionWebhook, configuration: {kubeConfigFile: x}}\n", "kubeConfigFile is not supported"),
            (
                "- {name: ResourceQuota, configuration: {limitedResources: [{apiGroup: x}]}}\n",
                "limitedResources[0].resource: Required value",
            ),
            ("- {name: PodSecurity, path: nope.yaml}\n", "cannot read"),
            ("- {name: PodSecurity, path: kc, configuration: {a: b}}\n", "mutually exclusive"),
        ] {
            let error = configured(plugins).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
