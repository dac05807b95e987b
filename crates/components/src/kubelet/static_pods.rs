//! Static Pods: manifests in a directory of the node, which the kubelet runs without being asked by the API.
//!
//! Each gets a mirror Pod in the API, so that it can be seen; deleting the mirror does not stop the Pod.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use super::agent::{Agent, MIRROR_ANNOTATION};
use super::api;
use super::worker::Mail;
use crate::runtime::Informer;

/// How often the directory is looked at.
const LOOK: Duration = Duration::from_secs(1);

const HASH_ANNOTATION: &str = "kubernetes.io/config.hash";
const SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";
const SEEN_ANNOTATION: &str = "kubernetes.io/config.seen";

/// Runs until the agent stops.
pub(super) async fn run(agent: Arc<Agent>, directory: PathBuf, pods: Informer<Pod>) {
    let stop = agent.stop.clone();
    let work = async {
        let mut running: HashMap<String, Arc<Pod>> = HashMap::new();
        loop {
            let found = read(&directory, &agent).await;
            running.retain(|uid, pod| {
                let stays = found.contains_key(uid);
                if !stays {
                    agent.send(pod, Mail::Gone);
                    unmirror(&agent, pod);
                }
                stays
            });
            for (uid, pod) in found {
                if !running.contains_key(&uid) {
                    agent.run(&pod, true);
                }
                mirror(&agent, &pod, &pods).await;
                running.entry(uid).or_insert(pod);
            }
            agent.clock.sleep(LOOK).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

/// All manifests of the directory by the UID that follows from their content.
async fn read(directory: &Path, agent: &Agent) -> HashMap<String, Arc<Pod>> {
    let mut pods = HashMap::new();
    let Ok(mut entries) = tokio::fs::read_dir(directory).await else { return pods };
    while let Ok(Some(entry)) = entries.next_entry().await {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if hidden || !matches!(path.extension().and_then(|e| e.to_str()), Some("yaml" | "yml" | "json")) {
            continue;
        }
        let Ok(text) = tokio::fs::read_to_string(&path).await else { continue };
        match parse(&text, &agent.name, &agent.clock.now().to_string()) {
            Ok(pod) => {
                pods.insert(pod.metadata.uid.clone().unwrap_or_default(), Arc::new(pod));
            }
            Err(error) => tracing::warn!(path = %path.display(), error, "a static Pod cannot be read"),
        }
    }
    pods
}

/// A manifest as the kubelet runs it: named after the node, bound to it, with a UID that follows from the content.
fn parse(text: &str, node: &str, now: &str) -> Result<Pod, String> {
    // JSON is YAML, so that one parser reads both.
    let manifest: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    if manifest["kind"] != "Pod" {
        return Err(format!("expected a Pod, not {}", manifest["kind"]));
    }
    let mut pod: Pod = serde_json::from_value(manifest.clone()).map_err(|error| error.to_string())?;
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, node, manifest.to_string()).hash(&mut hasher);
        hasher.finish()
    };
    let hash = format!("{:016x}{:016x}", half(0), half(1));
    let name = pod.metadata.name.take().ok_or("the Pod has no name")?;
    pod.metadata.name = Some(format!("{name}-{node}"));
    pod.metadata.namespace.get_or_insert_with(|| "default".into());
    pod.metadata.uid = Some(hash.clone());
    let annotations = pod.metadata.annotations.get_or_insert_with(BTreeMap::new);
    annotations.insert(HASH_ANNOTATION.into(), hash);
    annotations.insert(SOURCE_ANNOTATION.into(), "file".into());
    annotations.insert(SEEN_ANNOTATION.into(), now.into());
    let spec = pod.spec.as_mut().ok_or("the Pod has no spec")?;
    spec.node_name = Some(node.to_owned());
    // A static Pod cannot be evicted by taints: nobody would start it elsewhere.
    let tolerations = spec.tolerations.get_or_insert_with(Vec::new);
    tolerations.push(k8s_openapi::api::core::v1::Toleration {
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        ..Default::default()
    });
    Ok(pod)
}

fn place(pod: &Pod) -> (String, String) {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

/// Makes the mirror if it is not there, or is there for an earlier content.
async fn mirror(agent: &Agent, pod: &Pod, pods: &Informer<Pod>) {
    let (namespace, name) = place(pod);
    let hash = pod.metadata.uid.clone().unwrap_or_default();
    if let Some(known) = pods.get(&namespace, &name) {
        let same = known.metadata.annotations.as_ref().and_then(|annotations| annotations.get(MIRROR_ANNOTATION)) == Some(&hash);
        if !same && known.metadata.deletion_timestamp.is_none() {
            let uid = known.metadata.uid.clone().unwrap_or_default();
            let _ = api::delete_pod(&agent.client, &namespace, &name, &uid).await;
        }
        return;
    }
    // A mirror is owned by its node; whoever could make one without could make any Pod.
    let Ok(node) = api::send(&agent.client, Method::GET, &format!("/api/v1/nodes/{}", agent.name), "application/json", &Value::Null).await
    else {
        return;
    };
    let Ok(node) = serde_json::from_slice::<Node>(&node) else { return };
    let mut mirror = pod.clone();
    mirror.metadata.uid = None;
    mirror.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: agent.name.clone(),
        uid: node.metadata.uid.unwrap_or_default(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    mirror.metadata.annotations.get_or_insert_with(BTreeMap::new).insert(MIRROR_ANNOTATION.into(), hash);
    let Ok(mut body) = serde_json::to_value(&mirror) else { return };
    body["apiVersion"] = "v1".into();
    body["kind"] = "Pod".into();
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    match api::send(&agent.client, Method::POST, &path, "application/json", &body).await {
        // The worker writes its status again, now that there is something to write it to.
        Ok(_) => agent.send(pod, Mail::Mirrored),
        Err(error) if error.is(StatusCode::CONFLICT) => {}
        Err(error) => tracing::warn!(node = %agent.name, pod = name, %error, "the mirror of a static Pod could not be made"),
    }
}

fn unmirror(agent: &Arc<Agent>, pod: &Arc<Pod>) {
    let (agent, pod) = (agent.clone(), pod.clone());
    tokio::spawn(async move {
        let (namespace, name) = place(&pod);
        let path = api::pod_path(&namespace, &name);
        let options = serde_json::json!({"gracePeriodSeconds": 0});
        let _ = api::send(&agent.client, Method::DELETE, &path, "application/json", &options).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_becomes_a_pod_of_its_node() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: c\n    image: nginx\n";
        let pod = parse(text, "n1", "now").unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("web-n1"));
        assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("n1"));
        assert_eq!(parse(text, "n1", "later").unwrap().metadata.uid, pod.metadata.uid, "the same content is the same Pod");
        assert_ne!(parse(&text.replace("nginx", "httpd"), "n1", "now").unwrap().metadata.uid, pod.metadata.uid);
        assert!(parse("kind: Service", "n1", "now").is_err());
    }
}
