use serde_json::{Value, json};

use super::*;
use crate::registry::{Registry, resources_of_definition};

fn defaulted(group: &str, plural: &str, object: Value) -> Value {
    let table = Registry::new().table();
    let resource = table.resources.iter().find(|r| *r.group == *group && *r.plural == *plural).expect("resource").clone();
    let mut object = object;
    apply_defaults(&mut object, &resource);
    let once = object.clone();
    apply_defaults(&mut object, &resource);
    assert_eq!(object, once, "defaulting twice changes nothing more");
    object
}

fn container() -> Value {
    json!({"name": "c", "image": "i", "resources": {}, "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File", "imagePullPolicy": "Always"})
}

fn pod_spec() -> Value {
    json!({"containers": [container()], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "securityContext": {}, "schedulerName": "default-scheduler"})
}

fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[test]
fn a_deployment_is_given_back_as_a_real_server_does() {
    let given =
        json!({"metadata": {"name": "d1"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template()}});
    assert_eq!(
        defaulted("apps", "deployments", given),
        json!({"metadata": {"name": "d1"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod_spec()},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}, "status": {}})
    );
}

#[test]
fn a_service_is_given_back_as_a_real_server_does_but_for_its_address() {
    let given = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "externalIPs": ["1.2.3.4"]}});
    assert_eq!(
        defaulted("", "services", given),
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}], "type": "ClusterIP",
            "externalIPs": ["1.2.3.4"], "sessionAffinity": "None", "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster"},
            "status": {"loadBalancer": {}}})
    );
}

#[test]
fn a_pod_has_requests_from_limits_and_its_own_switches() {
    let pod = defaulted(
        "",
        "pods",
        json!({"spec": {"serviceAccount": "robot", "hostNetwork": true, "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}],
        "containers": [{"name": "c", "image": "nginx:1.25", "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
            "livenessProbe": {"httpGet": {"port": 80}}, "env": [{"name": "N", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}]}}),
    );
    let spec = &pod["spec"];
    assert_eq!((&spec["serviceAccountName"], &spec["enableServiceLinks"]), (&json!("robot"), &json!(true)));
    assert_eq!(spec["volumes"], json!([{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}}]));
    let container = &spec["containers"][0];
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(container["resources"]["requests"], json!({"cpu": "500m", "memory": "1Gi"}));
    assert_eq!(container["ports"], json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]));
    assert_eq!(
        container["livenessProbe"],
        json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
        "successThreshold": 1, "failureThreshold": 3})
    );
    assert_eq!(container["env"][0]["valueFrom"]["resourceFieldRef"]["divisor"], "0");
}

#[test]
fn workloads_get_their_strategies() {
    let set = defaulted(
        "apps",
        "statefulsets",
        json!({"spec": {"serviceName": "s", "template": template(), "volumeClaimTemplates": [{"metadata": {"name": "d"}}]}}),
    );
    assert_eq!(set["spec"]["updateStrategy"], json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1}}));
    assert_eq!(set["spec"]["persistentVolumeClaimRetentionPolicy"], json!({"whenDeleted": "Retain", "whenScaled": "Retain"}));
    assert_eq!(
        set["spec"]["volumeClaimTemplates"][0],
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "d"},
        "spec": {"resources": {}, "volumeMode": "Filesystem"}, "status": {"phase": "Pending"}})
    );
    assert_eq!(set["status"], json!({"replicas": 0, "availableReplicas": 0}));
    let daemon = defaulted("apps", "daemonsets", json!({"spec": {"template": template()}}));
    assert_eq!(daemon["spec"]["updateStrategy"], json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}));
    let recreate = defaulted("apps", "deployments", json!({"spec": {"strategy": {"type": "Recreate"}, "template": template()}}));
    assert_eq!(recreate["spec"]["strategy"], json!({"type": "Recreate"}));
}

#[test]
fn a_job_gets_its_defaults_but_a_cron_jobs_template_does_not() {
    let job = defaulted("batch", "jobs", json!({"metadata": {"name": "j"}, "spec": {"template": template()}}));
    assert_eq!(job["metadata"]["labels"], json!({"a": "b"}));
    for (field, value) in [
        ("completions", json!(1)),
        ("parallelism", json!(1)),
        ("backoffLimit", json!(6)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("manualSelector", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
    ] {
        assert_eq!(job["spec"][field], value, "{field}");
    }
    let queue = defaulted("batch", "jobs", json!({"spec": {"parallelism": 3, "template": template()}}));
    assert_eq!(queue["spec"].get("completions"), None);
    let cron =
        defaulted("batch", "cronjobs", json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template()}}}}));
    assert_eq!(cron["spec"]["jobTemplate"]["spec"].get("backoffLimit"), None);
    assert_eq!((&cron["spec"]["concurrencyPolicy"], &cron["spec"]["failedJobsHistoryLimit"]), (&json!("Allow"), &json!(1)));
}

#[test]
fn absent_lists_that_are_always_written_are_null() {
    let role = defaulted("rbac.authorization.k8s.io", "clusterroles", json!({"metadata": {"name": "r"}}));
    assert_eq!(role, json!({"metadata": {"name": "r"}, "rules": null}));
    let binding = defaulted(
        "rbac.authorization.k8s.io",
        "rolebindings",
        json!({"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]}),
    );
    assert_eq!(binding["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    assert_eq!(
        binding["subjects"],
        json!([{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}, {"kind": "ServiceAccount", "name": "s"}])
    );
}

#[test]
fn a_definition_gets_its_names_and_an_empty_status() {
    let crd = defaulted(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        json!({"metadata": {"name": "wids.ex.com"}, "spec": {"group": "ex.com",
        "scope": "Namespaced", "names": {"plural": "wids", "kind": "Wid"}, "versions": [{"name": "v1", "served": true, "storage": true}]}}),
    );
    assert_eq!(crd["spec"]["names"], json!({"plural": "wids", "singular": "wid", "kind": "Wid", "listKind": "WidList"}));
    assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(crd["status"], json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}));
}

#[test]
fn an_autoscaler_measures_cpu_and_webhooks_fail_closed() {
    let hpa = defaulted(
        "autoscaling",
        "horizontalpodautoscalers",
        json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"}, "behavior": {}}}),
    );
    assert_eq!(hpa["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
    assert_eq!(hpa["spec"]["behavior"]["scaleUp"]["selectPolicy"], "Max");
    let hooks = defaulted(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        json!({"metadata": {"name": "w"}, "webhooks": [
        {"name": "a.b.c", "clientConfig": {"service": {"namespace": "n", "name": "s"}}, "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
         "sideEffects": "None", "admissionReviewVersions": ["v1"]}]}),
    );
    let hook = &hooks["webhooks"][0];
    assert_eq!((&hook["failurePolicy"], &hook["timeoutSeconds"], &hook["namespaceSelector"]), (&json!("Fail"), &json!(10), &json!({})));
    assert_eq!((&hook["rules"][0]["scope"], &hook["clientConfig"]["service"]["port"]), (&json!("*"), &json!(443)));
}

#[test]
fn a_custom_object_gets_what_its_schema_says() {
    let definition = json!({"spec": {"group": "ex.com", "scope": "Namespaced", "names": {"plural": "wids", "kind": "Wid"}, "versions": [
        {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "color": {"type": "string", "default": "red"}, "maybe": {"type": "string", "nullable": true, "default": "x"}, "gone": {"type": "string"},
                "parts": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}}}}}}}}]}});
    let wids = resources_of_definition(&definition).remove(0);
    let mut object = json!({"metadata": {"name": "w"}});
    apply_defaults(&mut object, &wids);
    assert_eq!(object, json!({"metadata": {"name": "w"}, "spec": {"color": "red", "maybe": "x"}}));
    let mut object = json!({"spec": {"color": null, "maybe": null, "gone": null, "parts": [{}, {"n": 2}]}});
    apply_defaults(&mut object, &wids);
    assert_eq!(object, json!({"spec": {"color": "red", "maybe": null, "parts": [{"n": 1}, {"n": 2}]}}));
}
