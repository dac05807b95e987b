//! The front door through a real client: `kube` over the whole stack, without a socket and with one.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some(name.into()), ..Default::default() },
        data: Some(BTreeMap::from([("k".to_owned(), value.to_owned())])),
        ..Default::default()
    }
}

#[tokio::test]
async fn an_embedded_server_answers_a_kube_client_without_a_socket() {
    let server = crate::builder().start().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let made = maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert!(made.metadata.uid.is_some() && made.metadata.resource_version.is_some() && made.metadata.creation_timestamp.is_some());
    let manager = &made.metadata.managed_fields.as_ref().unwrap()[0];
    assert_eq!(manager.operation.as_deref(), Some("Update"));

    let patched = maps.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"l": "2"}}))).await.unwrap();
    assert_eq!(patched.data.unwrap().len(), 2);
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "other"}});
    let conflict = maps.patch("a", &PatchParams::apply("me"), &Patch::Apply(&applied)).await.unwrap_err();
    assert!(conflict.to_string().contains("Apply failed with 1 conflict"), "{conflict}");

    let list = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.iter().filter(|m| m.metadata.name.as_deref() == Some("a")).count(), 1);
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
    server.stop().await;
}

#[tokio::test]
async fn discovery_is_told_as_protobuf_too() {
    use http_body_util::BodyExt;
    let server = crate::builder().start().await.unwrap();
    for path in ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1"] {
        let mut request = crate::audit::request(http::Method::GET, path, &crate::audit::admin(), None);
        request.headers_mut().insert("accept", http::HeaderValue::from_static("application/vnd.kubernetes.protobuf"));
        let response = tower::ServiceExt::oneshot(server.router(), request).await.unwrap();
        assert_eq!(response.status(), http::StatusCode::OK, "{path}");
        assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf", "{path}");
        assert!(response.into_body().collect().await.unwrap().to_bytes().starts_with(b"k8s\0"), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_watch_continues_from_a_list_without_gap_or_repeat() {
    let server = crate::builder().start().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    maps.create(&PostParams::default(), &config_map("before", "1")).await.unwrap();
    let version = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    maps.create(&PostParams::default(), &config_map("after", "1")).await.unwrap();
    maps.delete("before", &DeleteParams::default()).await.unwrap();
    let mut events = std::pin::pin!(maps.watch(&WatchParams::default(), &version).await.unwrap());
    let first = events.try_next().await.unwrap().unwrap();
    assert!(matches!(&first, WatchEvent::Added(m) if m.metadata.name.as_deref() == Some("after")), "{first:?}");
    let second = events.try_next().await.unwrap().unwrap();
    assert!(matches!(&second, WatchEvent::Deleted(m) if m.metadata.name.as_deref() == Some("before")), "{second:?}");
}

#[tokio::test]
async fn pages_of_a_list_show_the_state_of_the_first_page() {
    let server = crate::builder().start().await.unwrap();
    let namespaces: Api<Namespace> = Api::all(server.client());
    let pages = Namespace { metadata: kube::api::ObjectMeta { name: Some("pages".into()), ..Default::default() }, ..Default::default() };
    namespaces.create(&PostParams::default(), &pages).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "pages");
    for i in 0..5 {
        maps.create(&PostParams::default(), &config_map(&format!("m{i}"), "1")).await.unwrap();
    }
    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!((first.items.len(), first.metadata.remaining_item_count), (2, Some(3)));
    maps.delete("m3", &DeleteParams::default()).await.unwrap();
    maps.create(&PostParams::default(), &config_map("m9", "1")).await.unwrap();
    let mut names: Vec<String> = first.items.into_iter().filter_map(|m| m.metadata.name).collect();
    let mut token = first.metadata.continue_;
    while let Some(next) = token.filter(|t| !t.is_empty()) {
        let page = maps.list(&ListParams::default().limit(2).continue_token(&next)).await.unwrap();
        names.extend(page.items.into_iter().filter_map(|m| m.metadata.name));
        token = page.metadata.continue_;
    }
    assert_eq!(names, ["m0", "m1", "m2", "m3", "m4"]);
}

#[tokio::test]
async fn the_answer_to_a_head_has_no_body_whatever_the_protocol() {
    let door = crate::identity::Door::open(crate::builder().listen("127.0.0.1:0".parse().unwrap())).await;
    let client = door.admin();
    // Whoever sees a body where there is none loses the stream: asked twice, on the same connection.
    for _ in 0..2 {
        let answer = client.head(format!("https://{}/version", door.server.address().unwrap())).send().await.unwrap();
        assert_eq!((answer.version(), answer.status().as_u16()), (http::Version::HTTP_2, 405));
        assert_eq!(answer.headers()["content-type"], "application/json");
        assert_ne!(answer.headers()["content-length"], "0");
        assert!(answer.bytes().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn somebody_who_opens_a_connection_and_says_nothing_does_not_keep_others_from_being_answered_at_the_end() {
    use usher::gateway::{listener, pki::Pki, tls};
    let pki = Pki::open(None, &["127.0.0.1".into()]).unwrap();
    let config = tls::server_config(pki.serving.as_bytes(), pki.serving_key.as_bytes()).unwrap();
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let (arrived, mut arrives) = tokio::sync::mpsc::channel(1);
    let answer = std::sync::Arc::new(tokio::sync::Notify::new());
    let told = answer.clone();
    let router = axum::Router::new().fallback(move || async move {
        arrived.send(()).await.unwrap();
        told.notified().await;
        "answered"
    });
    let stop = tokio_util::sync::CancellationToken::new();
    let mut serving = tokio::spawn(listener::serve(socket, config, router, stop.clone()));
    let _silent = tokio::net::TcpStream::connect(address).await.unwrap();
    let ca = reqwest::Certificate::from_pem(pki.ca.as_bytes()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().build().unwrap();
    let asking = tokio::spawn(client.get(format!("https://{address}/")).send());
    arrives.recv().await.unwrap();
    stop.cancel();
    assert!(tokio::time::timeout(std::time::Duration::from_millis(300), &mut serving).await.is_err(), "one is not answered yet");
    answer.notify_one();
    assert_eq!(asking.await.unwrap().unwrap().text().await.unwrap(), "answered");
    serving.await.unwrap();
}
