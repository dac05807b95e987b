//! From a Pod to what CRI wants to know of it: the configuration of its sandbox and of its containers.
//!
//! Volumes are not mounted.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;

use super::machine::{ContainerMachine, Kind};
use crate::cri::mock::CONTAINER_TYPE_ANNOTATION;
use crate::cri::v1::*;

/// The label with a Pod's UID on sandboxes and containers.
pub const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";
/// The label with a container's name.
pub const CONTAINER_NAME_LABEL: &str = "io.kubernetes.container.name";
const POD_NAME_LABEL: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";
const RESTART_COUNT_ANNOTATION: &str = "io.kubernetes.container.restartCount";

fn text(field: &Option<String>) -> String {
    field.clone().unwrap_or_default()
}

fn identity(pod: &Pod) -> HashMap<String, String> {
    HashMap::from([
        (POD_NAME_LABEL.to_owned(), text(&pod.metadata.name)),
        (POD_NAMESPACE_LABEL.to_owned(), text(&pod.metadata.namespace)),
        (POD_UID_LABEL.to_owned(), text(&pod.metadata.uid)),
    ])
}

/// Where a Pod's logs go, as kubelets name it.
#[must_use]
pub fn log_directory(pod: &Pod) -> String {
    let meta = &pod.metadata;
    format!("/var/log/pods/{}_{}_{}", text(&meta.namespace), text(&meta.name), text(&meta.uid))
}

/// The sandbox of a Pod.
#[must_use]
pub fn sandbox_config(pod: &Pod, attempt: u32) -> PodSandboxConfig {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let host = |wanted: Option<bool>| if wanted.unwrap_or_default() { NamespaceMode::Node } else { NamespaceMode::Pod } as i32;
    let mut labels: HashMap<String, String> = meta.labels.clone().unwrap_or_default().into_iter().collect();
    labels.extend(identity(pod));
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata { name: text(&meta.name), uid: text(&meta.uid), namespace: text(&meta.namespace), attempt }),
        hostname: spec.and_then(|spec| spec.hostname.clone()).unwrap_or_else(|| text(&meta.name)),
        log_directory: log_directory(pod),
        dns_config: None,
        port_mappings: Vec::new(),
        labels,
        annotations: meta.annotations.clone().unwrap_or_default().into_iter().collect(),
        linux: Some(LinuxPodSandboxConfig {
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(NamespaceOption {
                    network: host(spec.and_then(|spec| spec.host_network)),
                    pid: if spec.and_then(|spec| spec.share_process_namespace).unwrap_or_default() {
                        NamespaceMode::Pod as i32
                    } else if spec.and_then(|spec| spec.host_pid).unwrap_or_default() {
                        NamespaceMode::Node as i32
                    } else {
                        NamespaceMode::Container as i32
                    },
                    ipc: host(spec.and_then(|spec| spec.host_ipc)),
                    target_id: String::new(),
                }),
                privileged: false,
            }),
            ..LinuxPodSandboxConfig::default()
        }),
    }
}

/// A container of a Pod; `image` is the runtime's id of the image.
#[must_use]
pub fn container_config(pod: &Pod, container: &ContainerMachine, image: &str, environment: Vec<(String, String)>) -> ContainerConfig {
    let spec = &container.spec;
    let attempt = u32::try_from(container.restart_count).unwrap_or_default();
    let mut labels = identity(pod);
    labels.insert(CONTAINER_NAME_LABEL.to_owned(), container.name.clone());
    let kind = match container.kind {
        Kind::Init => "init",
        Kind::Sidecar => "sidecar",
        Kind::Main => "container",
    };
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: container.name.clone(), attempt }),
        image: Some(ImageSpec {
            image: image.to_owned(),
            user_specified_image: spec.image.clone().unwrap_or_default(),
            ..ImageSpec::default()
        }),
        command: spec.command.clone().unwrap_or_default(),
        args: spec.args.clone().unwrap_or_default(),
        working_dir: spec.working_dir.clone().unwrap_or_default(),
        envs: environment.into_iter().map(|(key, value)| KeyValue { key, value: value.into_bytes() }).collect(),
        mounts: Vec::new(),
        labels,
        annotations: HashMap::from([
            (RESTART_COUNT_ANNOTATION.to_owned(), container.restart_count.to_string()),
            (CONTAINER_TYPE_ANNOTATION.to_owned(), kind.to_owned()),
        ]),
        log_path: format!("{}/{attempt}.log", container.name),
        stdin: spec.stdin.unwrap_or_default(),
        stdin_once: spec.stdin_once.unwrap_or_default(),
        tty: spec.tty.unwrap_or_default(),
        linux: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "web"}, "annotations": {"a": "b"}},
            "spec": {"hostNetwork": true, "nodeName": "n", "containers": [{"name": "c"}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_sandbox_carries_the_pods_identity_labels_and_annotations() {
        let config = sandbox_config(&pod(), 2);
        assert_eq!(config.metadata.unwrap().attempt, 2);
        assert_eq!((config.labels["app"].as_str(), config.labels[POD_UID_LABEL].as_str()), ("web", "u"));
        assert_eq!(config.annotations["a"], "b");
        assert_eq!(config.log_directory, "/var/log/pods/ns_p_u");
        let namespaces = config.linux.unwrap().security_context.unwrap().namespace_options.unwrap();
        assert_eq!(namespaces.network, NamespaceMode::Node as i32);
    }

    #[test]
    fn a_container_is_named_and_numbered() {
        let pod = pod();
        let container = ContainerMachine::new(&pod.spec.as_ref().unwrap().containers[0], Kind::Main);
        let config = container_config(&pod, &container, "sha256:1", vec![("A".into(), "1".into())]);
        assert_eq!(config.envs, [KeyValue { key: "A".into(), value: b"1".to_vec() }]);
        assert_eq!((config.log_path.as_str(), config.labels[CONTAINER_NAME_LABEL].as_str()), ("c/0.log", "c"));
    }
}
