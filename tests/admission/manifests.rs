//! Policies and webhook configurations from a directory: in force from the first request, taken anew when a file changes, and out of
//! reach of the API.

use std::path::Path;

use serde_json::json;
use usher::Server;

use super::server::*;

const GROUP: &str = "admissionregistration.k8s.io";

fn policy(expression: &str) -> String {
    format!(
        "apiVersion: {GROUP}/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: p.static.k8s.io}}\nspec:\n  matchConstraints:\n    resourceRules: [{{operations: ['*'], apiGroups: ['', {GROUP}], apiVersions: ['*'], resources: [configmaps, mutatingwebhookconfigurations]}}]\n  validations: [{{expression: \"{expression}\"}}]\n---\napiVersion: {GROUP}/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: b.static.k8s.io}}\nspec: {{policyName: p.static.k8s.io, validationActions: [Deny]}}\n"
    )
}

async fn server(directory: &Path) -> (Server, kube::Client) {
    let mut builder = Server::builder().in_memory();
    builder.admission.policies = Some(directory.to_owned());
    let server = builder.start().await.unwrap();
    let client = server.client();
    (server, client)
}

/// Tries until a creation ends as wanted: a file is noticed a moment after it was written.
async fn until(client: &kube::Client, name: &str, allowed: bool) {
    let what = format!("{name} is {}", if allowed { "allowed" } else { "refused" });
    crate::until(&what, async || create_with(&configmaps(client), configmap(name, ""), true).await.is_ok() == allowed).await;
}

#[tokio::test]
async fn a_manifest_is_in_force_at_once_and_anew_when_it_changes_and_a_broken_one_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("p.yaml");
    std::fs::write(&file, policy("object.metadata.name != 'a'")).unwrap();
    let (_server, client) = server(directory.path()).await;
    assert!(create_with(&configmaps(&client), configmap("a", ""), true).await.is_err(), "from the first request");
    assert!(create_with(&configmaps(&client), configmap("b", ""), true).await.is_ok());
    std::fs::write(&file, policy("object.metadata.name != 'b'")).unwrap();
    until(&client, "b", false).await;
    until(&client, "a", true).await;
    // A second file says when the directory has been read again; the broken one keeps what it said.
    std::fs::write(&file, policy("object.metadata.name ==")).unwrap();
    let second = policy("object.metadata.name != 'c'").replace("p.static", "q.static").replace("b.static", "c.static");
    std::fs::write(directory.path().join("q.yaml"), second).unwrap();
    until(&client, "c", false).await;
    assert!(create_with(&configmaps(&client), configmap("b", ""), true).await.is_err(), "the last good content stays in force");
    std::fs::remove_file(&file).unwrap();
    until(&client, "b", true).await;
}

#[tokio::test]
async fn what_comes_from_a_manifest_is_out_of_reach_of_the_api_and_guards_what_the_api_configures() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("p.yaml"), policy("object.metadata.name != 'a'")).unwrap();
    let (_server, client) = server(directory.path()).await;
    let policies = api(&client, GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", None);
    assert!(policies.list(&Default::default()).await.unwrap().items.is_empty());
    let missing = policies.delete("p.static.k8s.io", &Default::default()).await.unwrap_err();
    assert!(missing.to_string().contains("not found"), "{missing}");
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p.static.k8s.io"}, "spec": {
        "matchConstraints": {"resourceRules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["pods"]}]},
        "validations": [{"expression": "true"}]}});
    let refused = create(&policies, object).await.unwrap_err();
    assert_eq!(
        refused.message,
        "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p.static.k8s.io\" is invalid: metadata.name: Invalid value: \"p.static.k8s.io\": names ending with \".static.k8s.io\" are reserved for static manifest-based configurations and cannot be managed via the API"
    );
    assert!(create(&configmaps(&client), configmap("a", "")).await.is_err(), "still in force");
    let webhooks = api(&client, GROUP, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", None);
    let configuration =
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "a"}});
    let refused = create(&webhooks, configuration).await.unwrap_err();
    assert!(refused.message.contains("ValidatingAdmissionPolicy 'p.static.k8s.io'"), "{}", refused.message);
}

#[tokio::test]
async fn a_webhook_from_a_manifest_is_asked_about_webhook_configurations_too() {
    let hooks = Webhooks::start().await;
    hooks.on("/guard", |_| Reply::Response(json!({"allowed": false, "status": {"message": "guarded"}})));
    let mut entry = hooks.entry("guard", "/guard");
    entry["objectSelector"] = json!({});
    entry["rules"] = json!([{"operations": ["*"], "apiGroups": [GROUP], "apiVersions": ["v1"], "resources": ["*"]}]);
    let manifest = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "guard.static.k8s.io"}, "webhooks": [entry]});
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("guard.json"), manifest.to_string()).unwrap();
    let (_server, client) = server(directory.path()).await;
    let webhooks = api(&client, GROUP, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", None);
    let configuration =
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "a"}});
    let refused = create(&webhooks, configuration).await.unwrap_err();
    assert_eq!(refused.message, "admission webhook \"guard.example.com\" denied the request: guarded");
}
