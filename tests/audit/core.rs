//! What the archive has of a request with no policy at all.

use http::Method;
use serde_json::json;
use usher::audit::{Level, Stage};

use super::{admin, events, request, send};

#[tokio::test]
async fn a_write_leaves_an_event_with_the_story_of_its_way() {
    let server = crate::builder().start().await.unwrap();
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "c-", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u-1"}]}, "data": {"k": "v"}});
    let mut asked = request(Method::POST, "/api/v1/namespaces/default/configmaps", &admin(), Some(body));
    let headers = asked.headers_mut();
    headers.insert("usher-cause", "7".parse().unwrap());
    headers.insert("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap());
    let (code, id) = send(&server, asked).await;
    assert_eq!(code, 201);
    let events = events(&server, &id).await;
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((event.level, event.stage, event.code()), (Level::Metadata, Stage::ResponseComplete, 201));
    assert!(event.request_object.is_none() && event.response_object.is_none());
    let story = event.trace.as_ref().unwrap();
    let wrote = story.wrote.as_ref().unwrap();
    assert_eq!((wrote.kind.as_str(), wrote.deleted, wrote.owners.as_slice()), ("ConfigMap", false, ["u-1".to_owned()].as_slice()));
    assert!(wrote.name.starts_with("c-") && !wrote.uid.is_empty() && wrote.revision > 0);
    assert_eq!(event.object_ref.as_ref().unwrap().name, "", "a real server does not tell the name that it makes up");
    assert_eq!((story.cause, story.trace_id.as_str()), (Some(7), "0af7651916cd43dd8448eb211c80319c"));
    assert!(story.steps.iter().any(|step| step.hop == "store") && story.steps.iter().any(|step| step.hop == "authorize"));

    let (code, id) =
        send(&server, request(Method::DELETE, &format!("/api/v1/namespaces/default/configmaps/{}", wrote.name), &admin(), None)).await;
    assert_eq!(code, 200);
    let events = super::events(&server, &id).await;
    let gone = events[0].trace.as_ref().unwrap().wrote.as_ref().unwrap();
    assert!(gone.deleted && gone.uid == wrote.uid && gone.revision > wrote.revision);
    assert_eq!(events[0].response_status.as_ref().unwrap().status, "Success");
    server.stop().await;
}

#[tokio::test]
async fn a_watch_is_told_when_it_starts_and_when_its_client_goes_away() {
    let server = crate::builder().start().await.unwrap();
    let asked = request(Method::GET, "/api/v1/namespaces/default/configmaps?watch=true", &admin(), None);
    let response = tower::ServiceExt::oneshot(server.router(), asked).await.unwrap();
    let id = response.headers()["audit-id"].to_str().unwrap().to_owned();
    let stages = |events: Vec<usher::audit::Event>| events.iter().map(|event| event.stage).collect::<Vec<_>>();
    assert_eq!(stages(events(&server, &id).await), [Stage::ResponseStarted]);
    drop(response);
    let all = events(&server, &id).await;
    assert_eq!(all[1].code(), 200);
    assert_eq!(stages(all), [Stage::ResponseStarted, Stage::ResponseComplete]);
}
