//! The way of a request hop by hop, as `explain` tells it: also the hop where it ended, and why.

use kube::Client;
use serde_json::{Value, json};
use usher::request::User;

use crate::admission::server::{configmap, create};
use crate::explain::ask;

/// Sends a body as it is, under an Audit-ID, and asks for its story.
async fn sent(client: &Client, id: &str, method: &str, path: &str, kind: &str, body: &str) -> Value {
    let request = http::Request::builder().method(method).uri(path).header("audit-id", id).header("content-type", kind);
    let _ = client.request_text(request.body(body.as_bytes().to_vec()).unwrap()).await;
    ask(client, &format!("explain/{id}")).await.unwrap()
}

#[tokio::test]
async fn every_hop_of_a_write_is_told_also_the_one_where_it_ended() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let maps = "/api/v1/namespaces/default/configmaps";
    let hops = |told: &Value| {
        let hops = told["hops"].as_array().unwrap().iter().map(|hop| hop["hop"].as_str().unwrap().to_owned());
        hops.collect::<Vec<_>>().join(" ")
    };
    let last = |told: &Value| {
        let step = &told["hops"].as_array().unwrap().last().unwrap()["steps"][0];
        ["kind", "name", "verdict", "because"].map(|field| step[field].as_str().unwrap_or_default().to_owned())
    };
    let told = sent(&client, "hops-1", "POST", maps, "application/json", &configmap("way", "x").to_string()).await;
    assert_eq!(hops(&told), "authenticate authorize decode mutate schema validate store");
    let told = sent(&client, "hops-2", "POST", maps, "application/json", &configmap("Not a name", "x").to_string()).await;
    assert_eq!(hops(&told), "authenticate authorize decode mutate schema");
    let [kind, name, verdict, because] = last(&told);
    assert_eq!([kind, name, verdict], ["schema", "validation", "refused"]);
    assert!(because.contains("metadata.name: Invalid value"), "{because}");
    let told = sent(&client, "hops-3", "POST", maps, "application/json", "{\"data\": 1}").await;
    assert_eq!((told["response"]["code"].as_u64(), hops(&told).as_str()), (Some(400), "authenticate authorize decode"));
    assert_eq!(last(&told)[..3], ["decoder", "JSON", "refused"]);
    let (path, merge) = (format!("{maps}/way"), "application/merge-patch+json");
    let told = sent(&client, "hops-4", "PATCH", &path, merge, "{\"data\": {\"k\": \"w\"}}").await;
    assert_eq!(told["hops"][2]["steps"][0]["name"], "merge patch", "{told:#}");
    let told = sent(&client, "hops-5", "PATCH", &path, merge, "{\"data\": {\"k\": \"w\"}}").await;
    assert!(told["summary"].as_str().unwrap().ends_with("(200); nothing was written"), "{told:#}");
    let told = sent(&client, "hops-6", "DELETE", &format!("{path}?dryRun=All"), "application/json", "").await;
    assert!(told["summary"].as_str().unwrap().ends_with("(200); a dry run, nothing was written"), "{told:#}");
}

#[tokio::test]
async fn a_stream_by_get_without_the_right_to_create_is_a_denial_with_its_missing_rule() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "looks"},
        "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "looks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}]});
    let api = |kind: &str, plural: &str| crate::admission::server::api(&client, "rbac.authorization.k8s.io", "v1", kind, plural, None);
    create(&api("ClusterRole", "clusterroles"), role).await.unwrap();
    create(&api("ClusterRoleBinding", "clusterrolebindings"), binding).await.unwrap();
    let bob = server.client_as(User::new("bob", &["system:authenticated"]));
    let request = http::Request::get("/api/v1/namespaces/default/pods/p/exec?command=sh").header("audit-id", "bobs-shell");
    let refused = bob.request_text(request.body(Vec::new()).unwrap()).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");
    let told = ask(&client, "explain/bobs-shell").await.unwrap();
    assert_eq!(told["verdict"], "denied", "{told:#}");
    let found = &told["authorization"];
    assert_eq!((&found["role"], &found["binding"]), (&json!("ClusterRole/looks"), &json!("ClusterRoleBinding/looks")));
    assert_eq!(found["missing"]["rule"], json!({"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]}));
    let asked = told["hops"].as_array().unwrap().iter().filter(|hop| hop["hop"] == "authorize");
    let verdicts: Vec<&Value> = asked.map(|hop| &hop["steps"][0]["verdict"]).collect();
    assert_eq!(verdicts, ["allowed", "denied"], "for the verb, and for the right to create");
}

#[tokio::test]
async fn a_rule_of_a_definition_that_was_broken_is_told_with_its_values() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"size": {"type": "integer"}, "copies": {"type": "integer"}},
        "x-kubernetes-validations": [
            {"rule": "self.size > 0 && self.copies <= self.size", "message": "too many"},
            {"rule": "self.copies != 9", "message": "anything but nine"}]}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "boxes", "singular": "box", "kind": "Box"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    sent(&client, "a-definition", "POST", definitions, "application/json", &definition.to_string()).await;
    let boxes = "/apis/example.com/v1/namespaces/default/boxes";
    let wish = json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "b"}, "spec": {"size": 2, "copies": 9}});
    let told = sent(&client, "a-broken-rule", "POST", boxes, "application/json", &wish.to_string()).await;
    let step = &told["hops"].as_array().unwrap().last().unwrap()["steps"][0];
    assert_eq!((&step["kind"], &step["verdict"]), (&json!("schema"), &json!("refused")), "{told:#}");
    assert!(step["because"].as_str().unwrap().contains("spec: Invalid value: too many"), "{step:#}");
    assert_eq!(step["false"], json!(["self.copies <= self.size", "self.copies != 9"]));
    assert_eq!(step["detail"]["expression"], "self.size > 0 && self.copies <= self.size");
    assert!(step["detail"]["values"].as_array().unwrap().contains(&json!({"expression": "self.copies", "value": 9})), "{step:#}");
}

#[tokio::test]
async fn whoever_may_not_be_somebody_else_is_denied_that_and_not_what_was_asked_for() {
    let server = crate::builder().start().await.unwrap();
    let ann = server.client_as(User::new("ann", &["system:authenticated"]));
    let request = http::Request::get("/api/v1/pods").header("audit-id", "hops-imp").header("impersonate-user", "bob");
    assert!(ann.request_text(request.body(Vec::new()).unwrap()).await.is_err());
    let told = ask(&server.client(), "explain/hops-imp").await.unwrap();
    assert_eq!(told["verdict"], "denied", "{told:#}");
    let last = told["hops"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["hop"], &last["steps"][0]["name"], &last["steps"][0]["verdict"]),
        (&json!("impersonate"), &json!("bob"), &json!("denied"))
    );
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:user-info:list"]});
    assert_eq!((&told["authorization"]["missing"]["rule"], &told["authorization"]["missing"]["subject"]), (&rule, &json!("User ann")));
    let found = ask(&server.client(), "requests?decision=forbid&user=ann").await.unwrap();
    assert_eq!(found["items"][0]["auditID"], "hops-imp");
}
