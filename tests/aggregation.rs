//! Aggregated APIs from outside: an extension server on loopback over TLS that is found by its APIService, asked for its discovery, and
//! handed the requests of those who may ask, with headers that say who they are.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use base64::Engine;
use futures::StreamExt;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use usher::Server;
use usher::admission::webhook::endpoint::ServiceMap;
use usher::authn::PeerCertificates;
use usher::gateway::pki::Pki;
use usher::gateway::{listener, tls};
use usher::request::User;

const THINGS: &str = "/apis/agg.example.com/v1/namespaces/default/things";

/// What an extension server was asked.
struct Asked {
    method: String,
    path: String,
    headers: HeaderMap,
    certificate: bool,
    body: Value,
}

/// An extension server.
struct Extension {
    port: u16,
    ca_bundle: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    stop: CancellationToken,
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Extension {
    async fn start() -> Extension {
        let pki = Pki::open(None, &["thingd.default.svc".into()]).unwrap();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let seen = asked.clone();
        let handler = move |request: Request<Body>| {
            let seen = seen.clone();
            async move {
                let (parts, body) = request.into_parts();
                let certificate = parts.extensions.get::<PeerCertificates>().is_some_and(|peer| !peer.0.is_empty());
                let body = body.collect().await.unwrap().to_bytes();
                let path = parts.uri.path_and_query().unwrap().to_string();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                seen.lock().push(Asked { method: parts.method.to_string(), path: path.clone(), headers: parts.headers, certificate, body });
                answer(&path)
            }
        };
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let config = tls::server_config(pki.serving.as_bytes(), pki.serving_key.as_bytes()).unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(listener::serve(socket, config, Router::new().fallback(handler), stop.clone()));
        let ca_bundle = base64::engine::general_purpose::STANDARD.encode(&pki.ca);
        Extension { port, ca_bundle, asked, stop }
    }

    fn api_service(&self) -> Value {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.agg.example.com"},
            "spec": {"group": "agg.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10, "caBundle": self.ca_bundle,
                "service": {"namespace": "default", "name": "thingd"}},
        })
    }

    /// The last request for a path.
    fn last(&self, path: &str) -> Asked {
        let mut asked = self.asked.lock();
        let at = asked.iter().rposition(|asked| asked.path == path).unwrap();
        asked.remove(at)
    }
}

fn answer(path: &str) -> Response<Body> {
    let json = |code: u16, value: Value| {
        Response::builder()
            .status(code)
            .header("content-type", "application/json")
            .header("x-thing", "yes")
            .body(Body::from(value.to_string()))
    };
    let thing = json!({"apiVersion": "agg.example.com/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "default", "resourceVersion": "7"}});
    let response = match path {
        "/apis/agg.example.com/v1" => json(
            200,
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "agg.example.com/v1",
                "resources": [{"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get", "list", "watch"]}]}),
        ),
        "/openapi/v3" => json(
            200,
            json!({"paths": {"apis/agg.example.com/v1": {"serverRelativeURL": "/openapi/v3/apis/agg.example.com/v1?hash=AB"}, "version": {"serverRelativeURL": "/openapi/v3/version?hash=CD"}}}),
        ),
        "/openapi/v3/apis/agg.example.com/v1?hash=AB" => {
            json(200, json!({"openapi": "3.0.0", "paths": {"/apis/agg.example.com/v1/things": {}}}))
        }
        "/openapi/v2" => json(
            200,
            json!({"swagger": "2.0", "paths": {
                    "/apis/agg.example.com/v1/things": {"get": {"responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/com.example.Thing"}}}}},
                    "/version/": {"get": {}}},
                "definitions": {
                    "com.example.Thing": {"type": "object", "properties": {"metadata": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}}},
                    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"type": "object", "description": "of another age"}}}),
        ),
        path if path.contains("watch=") => {
            // One event, and a stream that stays open: it must come through at once.
            let event = json!({"type": "ADDED", "object": thing}).to_string() + "\n";
            let events = futures::stream::iter([Ok::<_, std::convert::Infallible>(event)]).chain(futures::stream::pending());
            Response::builder().header("content-type", "application/json").body(Body::from_stream(events))
        }
        THINGS => json(201, thing),
        _ => json(418, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no such thing", "code": 418})),
    };
    response.unwrap()
}

async fn server(extension: &Extension) -> Server {
    let mut builder = crate::builder();
    let entry = ("default/thingd".to_owned(), format!("127.0.0.1:{}", extension.port));
    builder.admission.services = Arc::new(ServiceMap::new([entry]));
    builder.start().await.unwrap()
}

async fn send(client: &kube::Client, method: &str, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> (u16, HeaderMap, String) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let response =
        client.send(request.header("content-type", "application/json").body(kube::client::Body::from(bytes)).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), parts.headers, String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits for a condition of an APIService by a watch.
async fn condition(client: &kube::Client, name: &str, reason: &str) -> Value {
    let kind = kube::core::GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kube::core::ApiResource::from_gvk_with_plural(&kind, "apiservices"));
    let watch = async {
        let stream = api.watch(&WatchParams::default().fields(&format!("metadata.name={name}")), "0").await.unwrap();
        let mut stream = std::pin::pin!(stream);
        while let Some(Ok(event)) = stream.next().await {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
                if let Some(found) = conditions.into_iter().find(|c| c["type"] == "Available" && c["reason"] == reason) {
                    return found;
                }
            }
        }
        panic!("the watch ended")
    };
    tokio::time::timeout(Duration::from_secs(20), watch).await.unwrap_or_else(|_| panic!("{name} never said {reason}"))
}

#[tokio::test]
async fn an_extension_server_is_asked_in_the_name_of_who_asks() {
    let extension = Extension::start().await;
    let server = server(&extension).await;
    let admin = server.client();
    let (code, ..) = send(&admin, "POST", "/apis/apiregistration.k8s.io/v1/apiservices", &[], Some(extension.api_service())).await;
    assert_eq!(code, 201);
    let passed = condition(&admin, "v1.agg.example.com", "Passed").await;
    assert_eq!((&passed["status"], &passed["message"]), (&json!("True"), &json!("all checks passed")));

    let mut user = User::new("alice", &["makers", "system:masters", "system:authenticated"]);
    user.extra = vec![("example.com/team".into(), vec!["blue".into()])];
    let alice = server.client_as(user);
    let forged = [("X-Remote-User", "root"), ("X-Remote-Group", "gods"), ("X-Remote-Extra-Example.com%2fteam", "red")];
    let (code, headers, body) = send(&alice, "POST", THINGS, &forged, Some(json!({"kind": "Thing"}))).await;
    assert_eq!((code, headers["x-thing"].to_str().unwrap()), (201, "yes"), "{body}");
    let asked = extension.last(THINGS);
    let all = |name: &str| asked.headers.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!((asked.method.as_str(), &asked.body, asked.certificate), ("POST", &json!({"kind": "Thing"}), true));
    assert_eq!(all("x-remote-user"), ["alice"]);
    assert_eq!(all("x-remote-group"), ["makers", "system:masters", "system:authenticated"]);
    assert_eq!(all("x-remote-extra-example.com%2fteam"), ["blue"]);
    let (code, _, body) = send(&admin, "GET", &format!("{THINGS}/none"), &[], None).await;
    assert_eq!((code, body.contains("no such thing")), (418, true), "answers come as they are");

    let bob = server.client_as(User::new("bob", &["system:authenticated"]));
    let (code, _, body) = send(&bob, "GET", THINGS, &[], None).await;
    assert_eq!(code, 403, "nobody asks in the name of who may not: {body}");
    assert!(body.contains("things.agg.example.com is forbidden: User \\\"bob\\\" cannot list resource"), "{body}");

    let kind = kube::core::GroupVersionKind::gvk("agg.example.com", "v1", "Thing");
    let things: Api<DynamicObject> =
        Api::namespaced_with(admin.clone(), "default", &kube::core::ApiResource::from_gvk_with_plural(&kind, "things"));
    let stream = things.watch(&WatchParams::default(), "0").await.unwrap();
    let first = tokio::time::timeout(Duration::from_secs(10), std::pin::pin!(stream).next()).await.unwrap().unwrap().unwrap();
    assert!(matches!(first, WatchEvent::Added(thing) if thing.metadata.name.as_deref() == Some("t")));
    server.stop().await;
}

#[tokio::test]
async fn discovery_tells_of_extension_servers_and_of_those_that_are_gone() {
    let extension = Extension::start().await;
    let server = server(&extension).await;
    let admin = server.client();
    send(&admin, "POST", "/apis/apiregistration.k8s.io/v1/apiservices", &[], Some(extension.api_service())).await;
    condition(&admin, "v1.agg.example.com", "Passed").await;
    let get = async |path: &str, accept: &str| -> Value {
        let (_, _, body) = send(&admin, "GET", path, &[("accept", accept)], None).await;
        serde_json::from_str(&body).unwrap_or_else(|_| json!(body))
    };
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let of_group = |document: &Value, list: &str, name: &str| -> Value {
        let groups = document[list].as_array().unwrap();
        groups.iter().find(|group| group["name"] == name || group["metadata"]["name"] == name).cloned().unwrap_or_default()
    };
    let group = of_group(&get("/apis", aggregated).await, "items", "agg.example.com");
    assert_eq!(
        (&group["versions"][0]["freshness"], &group["versions"][0]["resources"][0]["resource"]),
        (&json!("Current"), &json!("things"))
    );
    let group = of_group(&get("/apis", "application/json").await, "groups", "agg.example.com");
    assert_eq!(group["preferredVersion"]["groupVersion"], "agg.example.com/v1");
    assert_eq!(get("/apis/agg.example.com", "application/json").await["versions"][0]["version"], "v1");
    assert_eq!(get("/apis/agg.example.com/v1", "application/json").await["resources"][0]["name"], "things");
    // The Service that the map led to is another one now, and nobody is behind it.
    let patch = json!({"spec": {"service": {"name": "nobody"}}});
    let request = Request::builder().method("PATCH").uri("/apis/apiregistration.k8s.io/v1/apiservices/v1.agg.example.com");
    let request = request.header("content-type", "application/merge-patch+json");
    let response = admin.send(request.body(kube::client::Body::from(patch.to_string().into_bytes())).unwrap()).await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    let missing = condition(&admin, "v1.agg.example.com", "ServiceNotFound").await;
    assert_eq!((&missing["status"], &missing["message"]), (&json!("False"), &json!("service/nobody in \"default\" is not present")));
    let (code, headers, body) = send(&admin, "GET", THINGS, &[], None).await;
    assert_eq!(
        (code, body.as_str(), headers["content-type"].to_str().unwrap()),
        (503, "service unavailable\n", "text/plain; charset=utf-8")
    );
    let group = of_group(&get("/apis", aggregated).await, "items", "agg.example.com");
    assert_eq!(group["versions"], json!([{"version": "v1", "freshness": "Stale"}]));
    let (code, ..) = send(&admin, "DELETE", "/apis/apiregistration.k8s.io/v1/apiservices/v1.agg.example.com", &[], None).await;
    assert_eq!(code, 200);
    assert_eq!(get("/apis/agg.example.com/v1", "application/json").await, json!("404 page not found\n"));
    server.stop().await;
}

#[tokio::test]
async fn the_documents_of_an_extension_server_are_part_of_this_servers() {
    let extension = Extension::start().await;
    let server = server(&extension).await;
    let admin = server.client();
    send(&admin, "POST", "/apis/apiregistration.k8s.io/v1/apiservices", &[], Some(extension.api_service())).await;
    condition(&admin, "v1.agg.example.com", "Passed").await;
    let index = async || {
        let (_, _, body) = send(&admin, "GET", "/openapi/v3", &[], None).await;
        let index: Value = serde_json::from_str(&body).unwrap();
        index["paths"].get("apis/agg.example.com/v1").is_some().then_some(index)
    };
    let index = crate::answer("the documents come behind the condition", index).await;
    let url = index["paths"]["apis/agg.example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    assert_eq!(url, "/openapi/v3/apis/agg.example.com/v1?hash=AB");
    assert!(
        index["paths"].get("apis/apps/v1").is_some() && index["paths"]["version"]["serverRelativeURL"] != "/openapi/v3/version?hash=CD"
    );
    let (code, headers, body) = send(&admin, "GET", url, &[], None).await;
    assert_eq!((code, headers["x-thing"].to_str().unwrap()), (200, "yes"), "the extension server answers itself: {body}");
    let asked = extension.last("/openapi/v2");
    assert_eq!(asked.headers["x-remote-user"], "system:aggregator");
    let (_, _, body) = send(&admin, "GET", "/openapi/v2", &[], None).await;
    let document: Value = serde_json::from_str(&body).unwrap();
    assert!(document["paths"].get("/apis/agg.example.com/v1/things").is_some());
    let thing = &document["definitions"]["com.example.Thing"]["properties"]["metadata"]["$ref"];
    assert_eq!(thing, "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta_v2", "its metadata is not ours");
    assert_ne!(document["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["description"], "of another age");
    server.stop().await;
}

#[tokio::test]
async fn extension_servers_are_told_by_whom_they_know_their_callers() {
    let server = crate::builder().start().await.unwrap();
    let (code, _, body) =
        send(&server.client(), "GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", &[], None).await;
    let map: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &map["data"]["requestheader-username-headers"]), (200, &json!("[\"X-Remote-User\"]")));
    assert_eq!(map["data"]["client-ca-file"], server.pki().ca);
    assert_eq!(map["data"]["requestheader-client-ca-file"], server.pki().front_proxy_ca);
    server.stop().await;
}

#[tokio::test]
async fn a_group_of_custom_resources_has_an_api_service_as_long_as_it_is_defined() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "foos.local.example.com"},
        "spec": {"group": "local.example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"}, "versions": [version]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    send(&client, "POST", definitions, &[], Some(definition)).await;
    let local = condition(&client, "v1.local.example.com", "Local").await;
    assert_eq!(local["message"], "Local APIServices are always available");
    send(&client, "DELETE", &format!("{definitions}/foos.local.example.com"), &[], None).await;
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1.local.example.com";
    crate::until("the APIService goes with its last definition", async || send(&client, "GET", path, &[], None).await.0 == 404).await;
    server.stop().await;
}
