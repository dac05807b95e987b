//! What `/usher/v1/` promises to programs: pages, streams that go on where they broke off, and refusals that say what is wrong.

use axum::body::Body;
use futures::StreamExt;
use http::Request;
use serde_json::{Value, json};
use usher::Server;

use crate::archive::{admin, event, get, import, lines, send, text};

/// Requests of `bulk`, one for each number.
fn bulk(numbers: std::ops::Range<usize>) -> String {
    lines(&numbers.map(|n| event(n, "bulk", "get", &format!("/api/v1/namespaces/far/configmaps/c{n}"), 200)).collect::<Vec<_>>())
}

fn ids(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(|item| item["auditID"].as_str().unwrap().to_owned()).collect()
}

/// Requests of `crowd`, who is in so many groups.
fn crowded(numbers: std::ops::Range<usize>, groups: usize) -> String {
    let one = |number| {
        let mut event = event(number, "crowd", "get", "/api/v1/namespaces/far/pods/p", 200);
        event["user"]["groups"] = (0..groups).map(|group| json!(format!("g{group}"))).collect();
        event
    };
    lines(&numbers.map(one).collect::<Vec<_>>())
}

#[tokio::test]
async fn an_expression_that_costs_too_much_is_refused_and_an_answer_that_is_not_all_says_so() {
    let server = crate::builder().start().await.unwrap();
    import(&server, crowded(0..3, 300)).await;
    let groups = "event.user.groups";
    let filter = format!("user=crowd&filter={groups}.all(a,{groups}.all(b,{groups}.all(c,a%2Bb%2Bc!='')))");
    for path in ["requests", "stats", "rbac"] {
        let (code, status) = get(&server, &admin(), &format!("/usher/v1/{path}?{filter}")).await;
        assert_eq!(code, 400, "{path}: {status}");
        assert!(status["message"].as_str().unwrap().starts_with("filter: it costs too much"), "{path}: {status}");
    }
    // More than are looked at before the first rows are told.
    import(&server, crowded(3..43, 2)).await;
    let ask = async |accept: &str| {
        let request = Request::get(format!("/usher/v1/requests?{filter}")).header("accept", accept);
        text(send(&server, &admin(), request, Body::empty()).await).await
    };
    let answer = ask("application/x-ndjson").await;
    let told: Vec<Value> = answer.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = told.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"Event"), Some(&"Status")), "{answer}");
    let answer = ask("application/json").await;
    assert!(answer.contains("filter: it costs too much") && serde_json::from_str::<Value>(&answer).is_err(), "{answer}");
    let request = Request::get(format!("/usher/v1/requests?follow=true&{filter}")).header("accept", "text/event-stream");
    let mut stream = send(&server, &admin(), request, Body::empty()).await.into_body().into_data_stream();
    import(&server, crowded(43..44, 300)).await;
    let piece = stream.next().await.unwrap().unwrap();
    assert!(piece.starts_with(b"event: error\ndata: {"), "{piece:?}");
    assert!(stream.next().await.is_none(), "and nothing is told behind it");
}

#[tokio::test]
async fn statistics_count_what_an_expression_asks_for() {
    let server = crate::builder().start().await.unwrap();
    import(&server, bulk(0..20)).await;
    let query = "user=bulk&filter=event.objectRef.name.endsWith('5')";
    let (code, stats) = get(&server, &admin(), &format!("/usher/v1/stats?{query}")).await;
    assert_eq!((code, &stats["requests"], &stats["users"][0]["requests"]), (200, &json!(2), &json!(2)), "{stats}");
    assert_eq!(stats["slow"].as_array().unwrap().len(), 2, "{stats}");
    let (_, stats) = get(&server, &admin(), "/usher/v1/stats?user=bulk&filter=false").await;
    assert_eq!(stats["requests"], 0);
}

#[tokio::test]
async fn several_resources_are_asked_for_at_once_and_those_of_other_clusters_by_their_group() {
    let server = crate::builder().start().await.unwrap();
    let uris = ["/api/v1/namespaces/a/pods/p", "/api/v1/namespaces/a/services/s", "/apis/apps/v1/namespaces/a/deployments/d"];
    let far = ["/apis/far.example.com/v1/namespaces/a/widgets/w", "/apis/near.example.com/v1/namespaces/a/widgets/w"];
    let events = uris.iter().chain(&far).enumerate().map(|(n, uri)| event(n, "bulk", "get", uri, 200)).collect::<Vec<_>>();
    import(&server, lines(&events)).await;
    for (resource, expected) in [
        ("po,svc", vec!["imported-1", "imported-0"]),
        ("deployment", vec!["imported-2"]),
        ("widgets.far.example.com", vec!["imported-3"]),
        ("widgets.v1.near.example.com", vec!["imported-4"]),
        ("widgets", vec!["imported-4", "imported-3"]),
    ] {
        let (_, list) = get(&server, &admin(), &format!("/usher/v1/requests?user=bulk&resource={resource}")).await;
        assert_eq!(ids(&list), expected, "{resource}");
    }
    for (query, told) in [
        ("resource=po,deployments.apps", "resource takes a group with one resource alone"),
        ("user=a&user=b", "user is given more than once"),
    ] {
        for path in ["requests", "stats", "rbac"] {
            let (code, status) = get(&server, &admin(), &format!("/usher/v1/{path}?{query}")).await;
            assert_eq!(code, 400, "{path}?{query}");
            assert!(status["message"].as_str().unwrap().starts_with(told), "{status}");
        }
    }
}

#[tokio::test]
async fn a_list_of_requests_comes_in_pages_that_stay_what_they_are_while_others_are_recorded() {
    let server = crate::builder().start().await.unwrap();
    import(&server, bulk(0..7)).await;
    for order in ["newest", "oldest"] {
        let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let query = format!("user=bulk&limit=3&order={order}&until=2026-05-01T12:00:07Z&continue={token}");
            let (code, page) = get(&server, &admin(), &format!("/usher/v1/requests?{query}")).await;
            assert_eq!(code, 200, "{page}");
            seen.extend(ids(&page));
            pages += 1;
            import(&server, bulk(20..21)).await;
            match page["metadata"]["continue"].as_str() {
                Some(next) => token = next.to_owned(),
                None => break,
            }
        }
        let mut expected: Vec<String> = (0..7).map(|n| format!("imported-{n}")).collect();
        if order == "newest" {
            expected.reverse();
        }
        assert_eq!((seen, pages), (expected, 3), "{order}");
    }
    // A page that is full to the last row has none behind it.
    let (_, page) = get(&server, &admin(), "/usher/v1/requests?user=bulk&limit=7&until=2026-05-01T12:00:07Z").await;
    assert_eq!((ids(&page).len(), &page["metadata"]), (7, &json!({})));
}

#[tokio::test]
async fn objects_as_they_were_come_in_pages_of_one_revision() {
    let server = crate::builder().start().await.unwrap();
    let make = async |name: &str| {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string();
        let request = Request::post("/api/v1/namespaces/default/configmaps").header("content-type", "application/json");
        assert_eq!(send(&server, &admin(), request, body).await.status(), 201);
    };
    for name in ["a", "b", "c"] {
        make(name).await;
    }
    let names = |page: &Value| {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (_, first) = get(&server, &admin(), "/usher/v1/objects/cm?limit=2").await;
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a".to_owned(), "b".into()], &json!(1)));
    make("bb").await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = get(&server, &admin(), &format!("/usher/v1/objects/cm?limit=2&continue={token}")).await;
    assert_eq!((names(&second), &second["metadata"]["continue"]), (vec!["c".to_owned()], &Value::Null));
    assert_eq!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn a_parameter_that_nobody_would_look_at_is_refused_by_name() {
    let server = crate::builder().start().await.unwrap();
    import(&server, bulk(0..1)).await;
    for (path, named) in [
        ("requests?usr=x", "usr"),
        ("requests?top=3", "top"),
        ("requests?continue=x", "continue"),
        ("requests/imported-0?trace=false", "trace"),
        ("stats?limit=3", "limit"),
        ("stats?follow=true", "follow"),
        ("rbac?user=bulk&onlyallowed=true", "onlyallowed"),
        ("clock?x=1", "x"),
        ("snapshot?x=1", "x"),
        ("explain/imported-0?deny=true", "deny"),
        ("explain/cm/c0?denied=maybe", "denied"),
        ("trace/cm/c0?everything=true", "everything"),
        ("blame/cm/c0?showsecrets=true", "showsecrets"),
        ("history/cm/c0?last=1", "last"),
        ("objects/cm?rev=1", "rev"),
        ("objects/cm?continue=1", "continue"),
        ("objects/cm?at=2999-01-01", "at"),
        ("objects/cm/c0/status", "cm/c0/status"),
        ("blame/cm/c0/data", "cm/c0/data"),
    ] {
        let (code, status) = get(&server, &admin(), &format!("/usher/v1/{path}")).await;
        assert_eq!((code, &status["reason"]), (400, &json!("BadRequest")), "{path}: {status}");
        assert!(status["message"].as_str().unwrap().contains(named), "{path}: {status}");
    }
    let response = send(&server, &admin(), Request::post("/usher/v1/what-if?anyName=true"), "").await;
    assert_eq!(response.status(), 400);
    let response = send(&server, &admin(), Request::post("/usher/v1/requests?user=x"), "").await;
    assert_eq!(response.status(), 400);
}

#[tokio::test]
async fn a_wrong_method_is_405_and_an_unknown_path_404() {
    let server = crate::builder().start().await.unwrap();
    for (method, path, expected) in [
        ("DELETE", "requests", 405),
        ("PUT", "requests/x", 405),
        ("POST", "stats", 405),
        ("POST", "rbac", 405),
        ("GET", "what-if", 405),
        ("GET", "clock/advance", 405),
        ("POST", "snapshot", 405),
        ("DELETE", "objects/cm/x", 405),
        ("PATCH", "blame/cm/x", 405),
        ("DELETE", "nothing", 404),
        ("GET", "requestsx", 404),
    ] {
        let request = Request::builder().method(method).uri(format!("/usher/v1/{path}"));
        let response = send(&server, &admin(), request, Body::empty()).await;
        assert_eq!(response.status(), expected, "{method} {path}");
        if expected == 405 {
            let status: Value = serde_json::from_str(&text(response).await).unwrap();
            assert_eq!(status["reason"], "MethodNotAllowed", "{method} {path}");
        }
    }
}

/// The ids of so many server-sent events, and whether the stream said that some are lost before them.
async fn stream(server: &Server, last: &str, number: usize, between: impl AsyncFnOnce()) -> (Vec<String>, bool) {
    let request = Request::get("/usher/v1/requests?follow=true&user=bulk").header("accept", "text/event-stream");
    let response = send(server, &admin(), request.header("last-event-id", last), Body::empty()).await;
    let mut body = response.into_body().into_data_stream();
    between().await;
    let (mut seen, mut lagged) = (Vec::new(), false);
    while seen.len() < number {
        let piece = body.next().await.unwrap().unwrap();
        let piece = String::from_utf8(piece.to_vec()).unwrap();
        lagged |= piece.starts_with("event: lagged\n");
        seen.extend(piece.lines().find_map(|line| line.strip_prefix("id: ")).map(str::to_owned));
    }
    (seen, lagged)
}

#[tokio::test]
async fn a_stream_that_broke_goes_on_behind_the_last_request_that_was_seen() {
    let server = crate::builder().start().await.unwrap();
    let id = |n: usize| format!("ResponseComplete/imported-{n}");
    let first = stream(&server, "", 2, async || drop(import(&server, bulk(0..2)).await)).await;
    assert_eq!(first, (vec![id(0), id(1)], false));
    // Missed meanwhile, then live; what is both is told once.
    import(&server, bulk(2..5)).await;
    let again = stream(&server, &id(1), 5, async || drop(import(&server, bulk(5..7)).await)).await;
    assert_eq!(again, ((2..7).map(id).collect(), false));
    // An Audit-ID that is used again is another request.
    let request = Request::get("/usher/v1/requests?follow=true&user=bulk").header("accept", "text/event-stream");
    let response = send(&server, &admin(), request.header("last-event-id", id(5)), Body::empty()).await;
    let mut body = response.into_body().into_data_stream();
    assert!(body.next().await.unwrap().unwrap().starts_with(b"id: ResponseComplete/imported-6\n"));
    import(&server, bulk(6..7)).await;
    assert!(body.next().await.unwrap().unwrap().starts_with(b"id: ResponseComplete/imported-6\n"));
    // Nobody knows what came behind something that is not kept.
    let unknown = stream(&server, &id(99), 1, async || drop(import(&server, bulk(7..8)).await)).await;
    assert_eq!(unknown, (vec![id(7)], true));
}

#[tokio::test]
async fn the_story_of_a_log_that_was_imported_twice_is_told_once() {
    let server = crate::builder().start().await.unwrap();
    let mut write = event(0, "farmer", "update", "/api/v1/namespaces/far/configmaps/c", 200);
    write["level"] = json!("RequestResponse");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "far", "uid": "u", "resourceVersion": "7"},
        "data": {"k": "v"}});
    (write["requestObject"], write["responseObject"]) = (object.clone(), object);
    for _ in 0..2 {
        import(&server, lines(std::slice::from_ref(&write))).await;
    }
    let (_, told) = get(&server, &admin(), "/usher/v1/history/cm/c?namespace=far").await;
    assert_eq!(told["revisions"].as_array().map(Vec::len), Some(1), "{told}");
    let (_, told) = get(&server, &admin(), "/usher/v1/blame/cm/c?namespace=far").await;
    let field = told["fields"].as_array().unwrap().iter().find(|field| field["path"] == "data.k").unwrap();
    assert_eq!((&field["source"], &field["by"]), (&json!("client"), &json!("farmer")), "{told}");
}
