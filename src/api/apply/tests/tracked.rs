//! Creates, updates and patches.

use serde_json::json;

use super::Server;
use crate::api::apply::{keep_timestamps, track_update, validate_managed_fields};

#[test]
fn a_write_that_changes_nothing_leaves_times_alone() {
    let mut server = Server::config_map();
    server.update("u", json!({"data": {"a": "1"}}));
    let before = server.live().clone();
    server.at(1).update("u", json!({"data": {"a": "1"}}));
    server.at(2).update("other", json!({"metadata": {"resourceVersion": "77"}, "data": {"a": "1"}}));
    assert_eq!(server.managed(), &before["metadata"]["managedFields"]);
}

#[test]
fn a_second_update_adds_to_the_first_and_renews_its_time() {
    let mut server = Server::config_map();
    server.update("u", json!({"data": {"a": "1"}}));
    server.at(1).update("u", json!({"data": {"b": "1"}}));
    assert_eq!(server.fields("u", "Update"), json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}}));
    assert_eq!(server.time("u"), "2026-11-16T00:01:00Z");
}

#[test]
fn what_is_removed_is_nobodys_and_renews_no_time() {
    let mut server = Server::config_map();
    server.update("u", json!({"data": {"a": "1", "b": "1"}}));
    server.at(1).update("other", json!({"data": {"a": null}}));
    assert_eq!(server.fields("u", "Update"), json!({"f:data": {".": {}, "f:b": {}}}));
    assert_eq!((server.time("u"), server.managed().as_array().map(Vec::len)), (json!("2026-11-16T00:00:00Z"), Some(1)));
}

#[test]
fn a_client_that_leaves_managed_fields_out_does_not_lose_them_and_one_that_empties_them_resets_them() {
    let mut server = Server::config_map();
    server.update("u", json!({"data": {"a": "1"}}));
    let kept = server.managed().clone();
    for (sent, left) in [(json!(null), kept.clone()), (json!("x"), kept.clone()), (json!([{"manager": "?"}]), kept)] {
        let mut new = server.live().clone();
        new["metadata"]["managedFields"] = sent;
        track_update(server.live.as_ref(), &mut new, &server.schema, &server.context("u", false));
        assert_eq!(new["metadata"]["managedFields"], left);
    }
    for sent in [json!([]), json!([{}])] {
        let mut new = server.live().clone();
        new["metadata"]["managedFields"] = sent;
        track_update(server.live.as_ref(), &mut new, &server.schema, &server.context("u", false));
        assert_eq!(new["metadata"].get("managedFields"), None);
    }
}

#[test]
fn managed_fields_can_be_edited_but_not_through_a_subresource() {
    let mut server = Server::config_map();
    server.update("u", json!({"data": {"a": "1"}}));
    let mut new = server.live().clone();
    new["metadata"]["managedFields"][0]["manager"] = "renamed".into();
    let sent = new.clone();
    track_update(server.live.as_ref(), &mut new, &server.schema, &server.context("u", false));
    assert_eq!(new["metadata"]["managedFields"], sent["metadata"]["managedFields"]);
    server.subresource = "status";
    let mut new = sent;
    track_update(server.live.as_ref(), &mut new, &server.schema, &server.context("u", false));
    assert_eq!(&new["metadata"]["managedFields"], server.managed());
}

#[test]
fn the_oldest_updates_beyond_ten_are_put_together() {
    let mut server = Server::config_map();
    server.update("u00", json!({"data": {"k00": "v"}}));
    for i in 1..15 {
        server.at(i).update(&format!("u{i:02}"), json!({"data": {format!("k{i:02}"): "v"}}));
    }
    let entries = server.managed().as_array().cloned().unwrap_or_default();
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0]["manager"], "ancient-changes");
    assert_eq!(entries[0]["time"], "2026-11-16T00:05:00Z");
    let fields = &server.fields("ancient-changes", "Update")["f:data"];
    assert_eq!(fields, &json!({".": {}, "f:k00": {}, "f:k01": {}, "f:k02": {}, "f:k03": {}, "f:k04": {}, "f:k05": {}}));
    assert_eq!(entries[1]["manager"], "u06");
}

#[test]
fn entries_stand_by_operation_time_and_name() {
    let mut server = Server::config_map();
    server.update("z", json!({"data": {"z": "1"}}));
    server.update("a", json!({"data": {"a": "1"}}));
    server.at(1).apply("m", json!({"data": {"m": "1"}}));
    let names: Vec<&str> = server.managed().as_array().into_iter().flatten().filter_map(|entry| entry["manager"].as_str()).collect();
    assert_eq!(names, ["m", "a", "z"]);
}

#[test]
fn a_write_that_changes_only_times_gets_the_old_ones_back() {
    let mut server = Server::config_map();
    server.update("u", json!({"data": {"a": "1"}}));
    let live = server.live().clone();
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["time"] = "2030-01-01T00:00:00Z".into();
    let mut other = new.clone();
    keep_timestamps(&live, &mut new);
    assert_eq!(new, live);
    other["data"]["a"] = "2".into();
    keep_timestamps(&live, &mut other);
    assert_eq!(other["metadata"]["managedFields"][0]["time"], "2030-01-01T00:00:00Z");
}

#[test]
fn what_a_webhook_makes_of_managed_fields_is_checked() {
    let mut server = Server::config_map();
    server.update("u", json!({"data": {"a": "1"}}));
    assert_eq!(validate_managed_fields(server.live()), Ok(()));
    let mut broken = server.live().clone();
    broken["metadata"]["managedFields"][0]["fieldsV1"] = json!({"nonsense": {}});
    assert!(validate_managed_fields(&broken).is_err());
}

#[test]
fn a_list_that_a_real_server_always_has_is_not_owned_itself() {
    let mut server = Server::of("v1", "Pod");
    server.update(
        "u",
        json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {}}], "volumes": [{"name": "v", "emptyDir": {}}]}}),
    );
    assert_eq!(
        server.fields("u", "Update"),
        json!({"f:spec": {
            "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}},
            "f:volumes": {".": {}, "k:{\"name\":\"v\"}": {".": {}, "f:emptyDir": {}, "f:name": {}}}
        }})
    );
}
