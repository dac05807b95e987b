//! The policies in `policies/`: every one lets through and refuses the objects that stand beside it.

use std::path::Path;

use serde_json::Value;
use usher::Server;

use super::server::*;

/// The plural of a kind that tests use.
fn plural(kind: &str) -> String {
    match kind {
        "Ingress" => "ingresses".into(),
        kind => format!("{}s", kind.to_lowercase()),
    }
}

async fn send(client: &kube::Client, object: &Value) -> Result<Value, kube::core::Status> {
    let (group, version) = match object["apiVersion"].as_str().unwrap().split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", object["apiVersion"].as_str().unwrap()),
    };
    let kind = object["kind"].as_str().unwrap();
    let is_global = matches!(kind, "Namespace" | "ClusterRole" | "ClusterRoleBinding");
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let objects = api(client, group, version, kind, &plural(kind), (!is_global).then_some(namespace));
    create_with(&objects, object.clone(), true).await
}

#[tokio::test]
async fn every_policy_of_the_library_allows_and_denies_what_its_tests_say() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
    let mut names: Vec<String> = std::fs::read_dir(library.join("tests"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().trim_end_matches(".yaml").to_owned())
        .collect();
    names.sort();
    assert!(names.len() >= 30);
    let mut wrong = Vec::new();
    for name in names {
        let directory = tempfile::tempdir().unwrap();
        std::fs::copy(library.join(format!("{name}.yaml")), directory.path().join("policy.yaml")).unwrap();
        let mut builder = Server::builder().in_memory();
        builder.admission.policies = Some(directory.path().to_owned());
        // The Pods of these tests need no account.
        builder.admission.disable = vec!["ServiceAccount".into()];
        let server = match builder.start().await {
            Ok(server) => server,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let client = server.client();
        let cases = std::fs::read_to_string(library.join("tests").join(format!("{name}.yaml"))).unwrap();
        let cases = usher::schema::yaml::parse(&cases).unwrap().value;
        let list = |field: &str| cases[field].as_array().cloned().unwrap_or_default();
        assert!(!list("allow").is_empty() && !list("deny").is_empty(), "{name} has both sorts of cases");
        for object in list("allow") {
            if let Err(status) = send(&client, &object).await {
                wrong.push(format!("{name} should allow {object}: {}", status.message));
            }
        }
        let denied = format!("ValidatingAdmissionPolicy '{name}.static.k8s.io' with binding '{name}.static.k8s.io' denied request");
        for object in list("deny") {
            match send(&client, &object).await {
                Err(status) if status.message.contains(&denied) && !status.message.contains("resulted in error") => {}
                Err(status) => wrong.push(format!("{name} should deny {object}: {}", status.message)),
                Ok(_) => wrong.push(format!("{name} should deny {object}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
