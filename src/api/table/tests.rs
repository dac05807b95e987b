use super::*;
use crate::registry::{Registry, resources_of_definition};

fn now() -> Timestamp {
    "2026-11-16T01:00:00Z".parse().expect("time")
}

fn cells_of(group: &str, plural: &str, object: Value) -> Vec<Value> {
    let table = Registry::new().table();
    let resource = table.resources.iter().find(|r| *r.group == *group && *r.plural == *plural).expect("resource").clone();
    let cells = cells(&resource, &object, now());
    assert_eq!(cells.len(), resource.columns.len().max(2), "{plural}: a cell for each column");
    cells
}

fn pod(status: Value) -> Vec<String> {
    let object = json!({"metadata": {"name": "p", "creationTimestamp": "2026-11-16T00:55:00Z"},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "nodeName": "n"},
        "status": status});
    cells_of("", "pods", object).iter().map(|cell| cell.as_str().expect("text").to_owned()).collect()
}

#[test]
fn every_resource_gives_a_cell_for_each_of_its_columns() {
    for resource in &Registry::new().table().resources {
        for object in [
            json!({}),
            json!({"metadata": {"name": "x", "creationTimestamp": "2026-11-16T00:59:00Z"}, "spec": {}, "status": {}}),
            json!([1]),
            json!({"spec": 1, "status": "x", "metadata": []}),
        ] {
            let cells = cells(resource, &object, now());
            assert_eq!(cells.len(), if resource.columns.is_empty() { 2 } else { resource.columns.len() }, "{}", resource.plural);
        }
    }
}

#[test]
fn a_pod_tells_how_its_containers_are() {
    let running = json!({"ready": true, "restartCount": 0, "state": {"running": {}}});
    let sidecar = json!({"name": "s", "started": true, "ready": true, "state": {"running": {}}});
    let done = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
    let all = pod(
        json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "initContainerStatuses": [done, sidecar], "containerStatuses": [running, running]}),
    );
    assert_eq!(all, ["p", "3/3", "Running", "0", "5m", "10.0.0.1", "n", "<none>", "<none>"]);

    let waiting = json!({"restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"finishedAt": "2026-11-16T00:55:00Z"}}});
    let crashing = pod(json!({"phase": "Running", "initContainerStatuses": [done, sidecar], "containerStatuses": [waiting, running]}));
    assert_eq!(crashing[1..4], ["2/3", "CrashLoopBackOff", "2 (5m ago)"]);

    assert_eq!(pod(json!({"phase": "Pending"}))[1..4], ["0/3", "Pending", "0"]);
    assert_eq!(
        pod(json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}}]}))[2],
        "Init:0/2"
    );
    assert_eq!(
        pod(json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 3}}}]}))[2],
        "Init:ExitCode:3"
    );
    let ended = json!({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    assert_eq!(pod(json!({"phase": "Succeeded", "containerStatuses": [ended, ended]}))[2], "Completed");
    assert_eq!(pod(json!({"phase": "Running", "containerStatuses": [ended, running]}))[2], "NotReady");
    assert_eq!(pod(json!({"phase": "Failed", "reason": "Evicted"}))[2], "Evicted");
    assert_eq!(
        pod(json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}))[2],
        "SchedulingGated"
    );
}

#[test]
fn a_pod_that_is_going_is_terminating() {
    let object = json!({"metadata": {"name": "p", "deletionTimestamp": "2026-11-16T00:55:00Z"}, "status": {"phase": "Running"}});
    assert_eq!(cells_of("", "pods", object)[2], "Terminating");
}

#[test]
fn a_service_tells_where_it_is_reached() {
    let service = |spec: Value, status: Value| cells_of("", "services", json!({"metadata": {"name": "s"}, "spec": spec, "status": status}));
    let ports = json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]);
    let cells = service(json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.5"], "ports": ports, "selector": {"a": "b"}}), json!({}));
    assert_eq!(cells[1..5], ["LoadBalancer", "10.96.0.5", "<pending>", "80:30080/TCP,53/UDP"]);
    assert_eq!(cells[6], "a=b");
    let given = json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}});
    assert_eq!(service(json!({"type": "LoadBalancer"}), given)[3], "1.2.3.4");
    assert_eq!(service(json!({"type": "ClusterIP"}), json!({}))[2..5], ["<none>", "<none>", "<none>"]);
    assert_eq!(service(json!({"type": "ExternalName", "externalName": "x.y"}), json!({}))[3], "x.y");
}

#[test]
fn workloads_tell_how_far_they_are() {
    let template = json!({"spec": {"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y"}]}});
    let deployment = cells_of(
        "apps",
        "deployments",
        json!({"metadata": {"name": "d"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template},
        "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2}}),
    );
    assert_eq!(deployment[1..], [json!("2/3"), json!(3), json!(2), json!("<unknown>"), json!("a,b"), json!("x:1,y"), json!("a=b")]);
    let job = cells_of(
        "batch",
        "jobs",
        json!({"spec": {"completions": 1}, "status": {"succeeded": 1, "startTime": "2026-11-16T00:00:00Z",
        "completionTime": "2026-11-16T00:00:42Z", "conditions": [{"type": "Complete", "status": "True"}]}}),
    );
    assert_eq!(job[1..4], ["Complete", "1/1", "42s"]);
    let hpa = cells_of(
        "autoscaling",
        "horizontalpodautoscalers",
        json!({"spec": {"maxReplicas": 5, "minReplicas": 1, "scaleTargetRef": {"kind": "Deployment", "name": "d"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}}]}}),
    );
    assert_eq!(hpa[1..4], ["Deployment/d", "cpu: <unknown>/80%", "1"]);
}

#[test]
fn nodes_claims_and_events_read_as_people_know_them() {
    let node = cells_of(
        "",
        "nodes",
        json!({"metadata": {"name": "n", "labels": {"node-role.kubernetes.io/control-plane": ""}}, "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.37.0"}, "addresses": [{"type": "InternalIP", "address": "10.1.1.1"}]}}),
    );
    assert_eq!(node[1..3], ["Ready,SchedulingDisabled", "control-plane"]);
    assert_eq!(node[4..7], ["v1.37.0", "10.1.1.1", "<none>"]);
    let claim = cells_of(
        "",
        "persistentvolumeclaims",
        json!({"spec": {"volumeName": "pv", "storageClassName": "fast", "volumeMode": "Filesystem"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}),
    );
    assert_eq!(claim[1..7], ["Bound", "pv", "1Gi", "RWO", "fast", "<unset>"]);
    let event = cells_of(
        "",
        "events",
        json!({"metadata": {"name": "e"}, "type": "Normal", "reason": "Pulled", "message": " done ", "involvedObject": {"kind": "Pod", "name": "p"},
        "lastTimestamp": "2026-11-16T00:59:30Z", "firstTimestamp": "2026-11-16T00:50:00Z", "count": 3, "source": {"component": "kubelet", "host": "n"}}),
    );
    assert_eq!(
        event,
        [
            json!("30s"),
            json!("Normal"),
            json!("Pulled"),
            json!("pod/p"),
            json!(""),
            json!("kubelet, n"),
            json!("done"),
            json!("10m"),
            json!(3),
            json!("e")
        ]
    );
}

#[test]
fn a_custom_object_prints_the_columns_of_its_definition() {
    let definition = json!({"spec": {"group": "ex.com", "scope": "Namespaced", "names": {"plural": "wids", "kind": "Wid"}, "versions": [
        {"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}, {"name": "Tags", "type": "string", "jsonPath": ".spec.tags"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]}]}});
    let wids = resources_of_definition(&definition).remove(0);
    let object = json!({"metadata": {"name": "w", "creationTimestamp": "2026-11-16T00:58:00Z"}, "spec": {"size": 3, "tags": ["a"]}});
    assert_eq!(cells(&wids, &object, now()), [json!("w"), json!(3), json!("[\"a\"]"), json!("2m")]);
    assert_eq!(cells(&wids, &json!({"metadata": {"name": "w"}}), now()), [json!("w"), Value::Null, Value::Null, Value::Null]);
}
