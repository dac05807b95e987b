//! The archive answers as a plain list would, keeps its bounds, and comes back from a crash with what was written.

use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::audit::Stage;

fn event(number: usize) -> Event {
    let users = ["admin", "jane", "system:node:a"];
    let verbs = ["get", "list", "create", "patch", "watch"];
    let resources = ["pods", "deployments", "secrets"];
    let code = [200, 201, 403, 404, 500][number % 5];
    serde_json::from_value(json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": format!("id-{number}"),
        "stage": "ResponseComplete", "requestURI": format!("/api/v1/pods/{number}"), "verb": verbs[number % verbs.len()],
        "user": {"username": users[number % users.len()]},
        "objectRef": {"resource": resources[number % resources.len()], "namespace": format!("ns-{}", number % 7), "name": format!("n{}", number % 11)},
        "responseStatus": {"metadata": {}, "code": code},
        "requestReceivedTimestamp": Timestamp::from_second(1_700_000_000 + number as i64).unwrap(),
        "annotations": {"authorization.k8s.io/decision": if code == 403 { "forbid" } else { "allow" }},
        "trace": {"took": number as u64 * 10, "steps": [
            {"hop": "validate", "name": format!("policy-{}", number % 3), "verdict": "allowed", "detail": {"binding": "b"}, "at": 1, "took": 1},
            {"hop": "mutate", "name": "hook", "verdict": "mutated", "detail": {"configuration": format!("c{}", number % 2)}, "at": 1, "took": 1},
        ], "wrote": {"revision": number, "kind": "Pod", "name": format!("w{}", number % 13), "uid": format!("u{number}"), "owners": [format!("o{}", number % 4)]}},
    }))
    .unwrap()
}

fn filter(pairs: &[(&str, &str)]) -> Filter {
    let mut filter = Filter::default();
    for (key, value) in pairs {
        assert!(filter.set(key, value, Timestamp::from_second(1_700_000_100).unwrap()).unwrap());
    }
    filter
}

fn ids(events: &[Arc<Event>]) -> Vec<&str> {
    events.iter().map(|event| event.audit_id.as_str()).collect()
}

fn limits(bytes: u64) -> Limits {
    Limits { bytes, ..Limits::default() }
}

fn condition() -> impl Strategy<Value = (&'static str, String)> {
    let one_of = |key: &'static str, values: &'static [&'static str]| {
        proptest::sample::select(values).prop_map(move |value| (key, value.to_owned())).boxed()
    };
    prop_oneof![
        one_of("user", &["admin", "jane", "nobody"]),
        one_of("verb", &["get", "create,patch", "delete"]),
        one_of("resource", &["pods", "secrets", "*", "pods/*"]),
        one_of("group", &["", "apps"]),
        one_of("namespace", &["ns-1", "ns-6", "other"]),
        one_of("name", &["n3", "w3", "x"]),
        one_of("code", &["403", "4xx", "200-299", "5xx"]),
        one_of("decision", &["allow", "forbid"]),
        one_of("policy", &["policy-1", "policy-9"]),
        one_of("webhook", &["hook", "c1", "other"]),
        one_of("owner", &["o1", "o9"]),
        one_of("uid", &["u17", "u150"]),
        one_of("audit-id", &["id-17", "id-180", "id-9999"]),
        one_of("slower-than", &["500us", "1ms", "1h"]),
        one_of("since", &["50s", "2023-11-14T22:14:00Z"]),
        one_of("until", &["20s", "2023-11-14T22:14:20.0000005Z"]),
        one_of("stage", &["ResponseComplete", "Panic"]),
        one_of("filter", &["event.responseStatus.code >= 400", "event.trace.took % 20 == 0", "event.user.username == 'jane'"]),
        one_of(
            "filter",
            &[
                "event.verb in ['get', 'patch'] && event.objectRef.name == 'n3' && event.requestURI.endsWith('3')",
                "(event.objectRef.resource == 'pods' || event.verb == 'list') && has(event.trace.wrote)",
                "event.auditID == 'id-17' && event.objectRef.namespace.startsWith('ns')",
                "!has(event.objectRef.apiGroup) && event.responseStatus.code == 403",
            ],
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_archive_answers_as_a_filtered_list_would(
        conditions in proptest::collection::vec(condition(), 0..4),
        batches in proptest::collection::vec(1usize..60, 1..12),
        limit in 1usize..300,
        on_disk in any::<bool>(),
        reopened in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let place = on_disk.then_some(directory.path());
        // Small enough that there are several segments, large enough that nothing is forgotten.
        let mut archive = Archive::open(place, limits(1 << 20)).unwrap();
        let mut all = Vec::new();
        for batch in batches {
            let events: Vec<Event> = (all.len()..all.len() + batch).map(event).collect();
            all.extend(events.iter().cloned());
            archive.append(events);
        }
        if reopened && on_disk {
            drop(archive);
            archive = Archive::open(place, limits(1 << 20)).unwrap();
        }
        let pairs: Vec<(&str, &str)> = conditions.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let filter = filter(&pairs);
        let expected: Vec<&str> = all.iter().filter(|event| filter.matches(event)).map(|event| event.audit_id.as_str()).collect();
        let newest = &expected[expected.len().saturating_sub(limit)..];
        let found = archive.query(&filter, limit);
        prop_assert_eq!(ids(&found), newest);
        let mut oldest = Vec::new();
        archive.scan(&filter, Order::OldestFirst, limit, |record| {
            oldest.push(record.event().audit_id);
            ControlFlow::Continue(())
        });
        prop_assert_eq!(oldest, &expected[..expected.len().min(limit)]);
        if filter.expression.is_none() {
            prop_assert_eq!(archive.stats(&filter, 5).requests, expected.len() as u64);
        }
    }
}

#[test]
fn what_was_written_is_there_after_a_restart_and_a_kill_and_a_torn_tail_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let archive = Archive::open(Some(directory.path()), Limits::default()).unwrap();
    archive.append((0..10).map(event));
    archive.append((10..20).map(event));
    // A kill: the segment is never sealed, and the last block is not whole.
    let file = directory.path().join("0000000000.segment");
    let bytes = std::fs::read(&file).unwrap();
    std::mem::forget(archive);
    for torn in [1, 100, bytes.len() / 4] {
        std::fs::write(&file, &bytes[..bytes.len() - torn]).unwrap();
        let archive = Archive::open(Some(directory.path()), Limits::default()).unwrap();
        let found = archive.query(&Filter::default(), 100);
        assert_eq!(found.len(), 10, "{torn} bytes are missing");
        assert_eq!(found[9].trace.as_ref().unwrap().took, 90);
        assert_eq!(archive.query(&filter(&[("audit-id", "id-3")]), 1).len(), 1);
    }
    // Rubbish behind what was written, or instead of everything, is no error either.
    std::fs::write(&file, [&bytes[..], b"AUDB rubbish"].concat()).unwrap();
    assert_eq!(Archive::open(Some(directory.path()), Limits::default()).unwrap().query(&Filter::default(), 100).len(), 20);
    std::fs::write(&file, b"rubbish").unwrap();
    let archive = Archive::open(Some(directory.path()), Limits::default()).unwrap();
    assert!(archive.query(&Filter::default(), 100).is_empty());
    archive.append(vec![event(1)]);
    drop(archive);
    assert_eq!(Archive::open(Some(directory.path()), Limits::default()).unwrap().query(&Filter::default(), 100).len(), 1);
}

#[test]
fn what_cannot_be_written_is_counted_and_what_comes_after_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let archive = Archive::open(Some(&directory.path().join("audit")), Limits::default()).unwrap();
    std::fs::remove_dir_all(directory.path().join("audit")).unwrap();
    archive.append((0..3).map(event));
    assert_eq!((archive.kept().lost, archive.kept().records), (3, 0));
    std::fs::create_dir(directory.path().join("audit")).unwrap();
    archive.append((3..5).map(event));
    assert_eq!(ids(&archive.query(&Filter::default(), 10)), ["id-3", "id-4"]);
}

#[test]
fn a_segment_of_an_earlier_format_is_neither_read_nor_touched() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("0000000003.segment");
    std::fs::write(&file, b"AUDITS01 and whatever was there").unwrap();
    let archive = Archive::open(Some(directory.path()), Limits::default()).unwrap();
    assert!(archive.query(&Filter::default(), 10).is_empty());
    archive.append([event(1)]);
    assert_eq!(ids(&archive.query(&Filter::default(), 10)), ["id-1"]);
    assert_eq!(archive.stats(&Filter::default(), 1).requests, 1);
    assert_eq!(std::fs::read(&file).unwrap(), b"AUDITS01 and whatever was there");
}

#[test]
fn no_more_than_the_limit_is_kept_and_the_newest_stays() {
    for on_disk in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let bound = 256 << 10;
        let archive = Archive::open(on_disk.then_some(directory.path()), limits(bound)).unwrap();
        for batch in 0..200 {
            archive.append((batch * 10..batch * 10 + 10).map(event));
            assert!(archive.kept().bytes <= bound);
        }
        if on_disk {
            let sizes = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
            assert!(sizes.sum::<u64>() <= bound);
        }
        let kept = archive.query(&Filter::default(), usize::MAX);
        assert!(kept.len() > 100 && kept.len() < 2000, "{}", kept.len());
        assert_eq!(kept.last().unwrap().audit_id, "id-1999");
    }
}

#[test]
fn what_is_too_old_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let age = Duration::from_millis(40);
    let archive = Archive::open(Some(directory.path()), Limits { age, ..Limits::default() }).unwrap();
    archive.append(vec![event(1)]);
    archive.close();
    std::thread::sleep(2 * age);
    archive.append(vec![event(2)]);
    assert_eq!(ids(&archive.query(&Filter::default(), 10)), ["id-2"]);
}

#[test]
fn somebody_who_follows_sees_what_is_appended_and_is_told_what_they_missed() {
    let archive = Archive::default();
    let mut live = archive.follow();
    archive.append(vec![event(1)]);
    assert_eq!(live.try_recv().unwrap().audit_id, "id-1");
    archive.append((0..BEHIND + 7).map(event));
    assert!(matches!(live.try_recv(), Err(broadcast::error::TryRecvError::Lagged(7))));
}

#[test]
fn statistics_tell_who_is_denied_what_is_slow_and_what_policies_said() {
    let archive = Archive::open(None, limits(1 << 20)).unwrap();
    for batch in 0..10 {
        archive.append((batch * 50..batch * 50 + 50).map(event));
    }
    archive.append(vec![Event { stage: Stage::RequestReceived, ..event(3) }]);
    let stats = archive.stats(&Filter::default(), 3);
    assert_eq!(stats.requests, 500);
    assert_eq!(stats.users.iter().map(|user| user.requests).sum::<u64>(), 500);
    assert_eq!(stats.codes.iter().find(|code| code.name == "403").unwrap(), &Count { name: "403".into(), requests: 100, denied: 100 });
    // Watches (every fifth) are no part of the latency.
    assert_eq!(stats.latency.buckets.iter().map(|bucket| bucket.requests).sum::<u64>(), 400);
    assert_eq!(stats.slow.iter().map(|slow| slow.audit_id.as_str()).collect::<Vec<_>>(), ["id-498", "id-497", "id-496"]);
    assert!((2_300..2_800).contains(&stats.latency.p50), "{}", stats.latency.p50);
    assert_eq!(stats.policies.iter().map(|policy| policy.verdicts["allowed"]).collect::<Vec<_>>(), [167, 167, 166]);
    assert_eq!(stats.webhooks[0].verdicts["mutated"], 500);
    assert_eq!(archive.stats(&filter(&[("user", "jane")]), 3).requests, 167);

    let judged = |code: u16, verdict: &str| -> Event {
        let step = json!({"hop": "validate", "name": "p", "verdict": verdict, "detail": {"binding": "b"}, "at": 1, "took": 1});
        serde_json::from_value(json!({"stage": "ResponseComplete", "verb": "create", "user": {"username": "joe"},
            "responseStatus": {"metadata": {}, "code": code}, "trace": {"took": 1, "steps": [step]}}))
        .unwrap()
    };
    archive.append([judged(422, "denied"), judged(422, "allowed"), judged(201, "denied")]);
    let stats = archive.stats(&filter(&[("user", "joe")]), 3);
    assert_eq!(
        stats.users,
        [Count { name: "joe".into(), requests: 3, denied: 1 }],
        "what a policy refused is denied, what it only noted is not"
    );
}

#[test]
fn pages_in_either_order_have_every_record_once_across_segments_and_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut archive = Archive::open(Some(directory.path()), limits(1 << 20)).unwrap();
    for batch in 0..3 {
        archive.append((batch * 10..batch * 10 + 10).map(event));
        archive.close();
    }
    archive.append((30..35).map(event));
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let (mut last, mut seen): (Option<Position>, Vec<String>) = (None, Vec::new());
        loop {
            let before = seen.len();
            archive.scan_after(last, &filter(&[("user", "admin")]), order, 2, |position, record| {
                // What is handed to a client comes back as text.
                last = Some(position.to_string().parse().unwrap());
                seen.push(record.as_event().audit_id.clone());
                ControlFlow::Continue(())
            });
            if seen.len() == before {
                break;
            }
            // A segment that is sealed meanwhile, and a server that is started again, change no position.
            if seen.len() == 6 {
                drop(archive);
                archive = Archive::open(Some(directory.path()), limits(1 << 20)).unwrap();
                archive.append(Some(event(100 + seen.len())));
            }
        }
        let mut expected: Vec<String> = (0..35).filter(|number| number % 3 == 0).map(|number| format!("id-{number}")).collect();
        if order == Order::NewestFirst {
            expected.reverse();
        }
        seen.retain(|id| id.len() < 6);
        assert_eq!(seen, expected, "{order:?}");
    }
    assert!(["", "-", "1", "x-1", "1-1-1", "1-fffffffff"].iter().all(|text| text.parse::<Position>().is_err()));
}

#[test]
fn what_an_expression_finds_on_every_core_comes_in_order_and_ends_where_somebody_has_enough() {
    let directory = tempfile::tempdir().unwrap();
    let archive = Archive::open(Some(directory.path()), Limits::default()).unwrap();
    for batch in 0..3 {
        archive.append((batch * 3000..batch * 3000 + 3000).map(event));
        archive.close();
    }
    let filter = filter(&[("filter", "event.auditID.endsWith('7')")]);
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let mut expected: Vec<String> = (0..9000).filter(|number| number % 10 == 7).map(|number| format!("id-{number}")).collect();
        if order == Order::NewestFirst {
            expected.reverse();
        }
        for limit in [1, 350, 899, 900, usize::MAX] {
            let mut seen = Vec::new();
            archive.scan(&filter, order, limit, |record| {
                seen.push(record.event().audit_id);
                ControlFlow::Continue(())
            });
            assert_eq!(seen, &expected[..limit.min(900)], "{order:?}, {limit}");
        }
        let mut seen = 0;
        archive.scan(&filter, order, usize::MAX, |_| {
            seen += 1;
            if seen == 500 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(seen, 500);
    }
}

#[test]
fn a_list_that_is_asked_for_again_takes_no_room_and_is_told_whole_also_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let items = json!([{"metadata": {"name": "a"}}, {"data": "x".repeat(100_000)}]);
    let list = |number: usize| Event {
        request_uri: format!("/api/v1/configmaps?limit={}", number % 2),
        response_object: Some(crate::audit::Json::from(&json!({"metadata": {"resourceVersion": number.to_string()}, "items": items}))),
        ..event(number)
    };
    let archive = Archive::open(Some(directory.path()), Limits::default()).unwrap();
    archive.append((0..50).map(list));
    archive.append((50..100).map(list));
    assert!(archive.kept().bytes < 300_000, "{}", archive.kept().bytes);
    let check = |archive: &Archive| {
        let asked = filter(&[("filter", "event.responseObject.metadata.resourceVersion in ['1', '64', '99']")]);
        let found = archive.query(&asked, 10);
        assert_eq!(ids(&found), ["id-1", "id-64", "id-99"]);
        assert!(found.iter().zip([1, 64, 99]).all(|(found, number)| found.response_object == list(number).response_object));
    };
    check(&archive);
    // A kill: the segment is never sealed.
    let killed = directory.path().join("killed");
    std::fs::create_dir(&killed).unwrap();
    std::fs::copy(directory.path().join("0000000000.segment"), killed.join("0000000000.segment")).unwrap();
    check(&Archive::open(Some(&killed), Limits::default()).unwrap());
    drop(archive);
    check(&Archive::open(Some(directory.path()), Limits::default()).unwrap());
}
