//! Writes whose outcome on a real server is known.

use serde_json::{Value, json};

use super::Server;
use crate::api::apply::{ApplyError, FieldSet, ResetFields, manager_name};
use crate::status::Status;

#[test]
fn a_created_config_map_is_owned_with_its_maps() {
    let mut server = Server::config_map();
    server.update("facts", json!({"metadata": {"labels": {"wh": "1"}}, "data": {"k": "v"}}));
    assert_eq!(
        server.managed(),
        &json!([{
            "manager": "facts", "operation": "Update", "apiVersion": "v1", "time": "2026-11-16T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:k": {}}, "f:metadata": {"f:labels": {".": {}, "f:wh": {}}}}
        }])
    );
}

#[test]
fn an_applied_config_map_is_owned_by_its_leaves_and_applying_it_again_changes_nothing() {
    let mut server = Server::config_map();
    server.apply("m1", json!({"data": {"k": "v"}}));
    let entry = json!([{
        "manager": "m1", "operation": "Apply", "apiVersion": "v1", "time": "2026-11-16T00:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:k": {}}}
    }]);
    assert_eq!(server.managed(), &entry);
    let before = server.live().clone();
    server.at(5).apply("m1", json!({"data": {"k": "v"}}));
    assert_eq!(server.live(), &before);
}

#[test]
fn conflicts_name_every_field_and_manager() {
    let mut server = Server::config_map();
    server.apply("m1", json!({"data": {"k": "v"}}));
    server.update("m3", json!({"metadata": {"labels": {"l": "1"}}, "data": {"z": "1"}}));
    let error = server.try_apply("m2", json!({"metadata": {"labels": {"l": "2"}}, "data": {"k": "other", "z": "2"}}), false);
    let status = Status::from(error.expect_err("conflicts")).to_json();
    assert_eq!(status["code"], 409);
    assert_eq!(status["reason"], "Conflict");
    let message = "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .data.k\nconflicts with \"m3\" using v1:\n- .data.z\n- .metadata.labels.l";
    assert_eq!(status["message"], message);
    assert_eq!(
        status["details"],
        json!({"causes": [
            {"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".data.k"},
            {"reason": "FieldManagerConflict", "message": "conflict with \"m3\" using v1", "field": ".data.z"},
            {"reason": "FieldManagerConflict", "message": "conflict with \"m3\" using v1", "field": ".metadata.labels.l"}
        ]})
    );
}

#[test]
fn one_conflict_is_told_in_one_line() {
    let mut server = Server::of("apps/v1", "Deployment");
    server.update("kubectl", json!({"spec": {"replicas": 1}}));
    let error = server.try_apply("m", json!({"spec": {"replicas": 2}}), false).expect_err("a conflict");
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"kubectl\" using apps/v1: .spec.replicas");
}

#[test]
fn a_configuration_that_is_no_such_object_is_refused() {
    let server = Server::config_map();
    let refused = |applied: Value| {
        let context = server.context("m2", false);
        crate::api::apply::apply(None, &applied, &server.schema, &context).expect_err("refused")
    };
    for (applied, error) in [
        (json!({"data": {"k": "x"}}), ApplyError::BadRequest("invalid object type: /, Kind=".into())),
        (
            server.object(json!({"metadata": {"managedFields": [{"manager": "x", "operation": "Apply"}]}})),
            ApplyError::BadRequest("metadata.managedFields must be nil".into()),
        ),
        (
            server.object(json!({"data": {"k": "v"}, "bogus": 1})),
            ApplyError::Unclassified(
                "failed to create typed patch object (/a1; /v1, Kind=ConfigMap): .bogus: field not declared in schema".into(),
            ),
        ),
        (
            server.object(json!({"data": {"k": 5}})),
            ApplyError::Unclassified(
                "failed to create typed patch object (/a1; /v1, Kind=ConfigMap): .data.k: expected string, got &value.valueUnstructured{Value:5}"
                    .into(),
            ),
        ),
    ] {
        assert_eq!(refused(applied), error);
    }
}

#[test]
fn a_status_is_owned_apart_from_the_rest() {
    let mut server = Server::of("v1", "ResourceQuota");
    server.update("facts", json!({"spec": {"hard": {"configmaps": "1", "requests.cpu": "1"}}}));
    server.subresource = "status";
    server.reset = Some(ResetFields::Reset(FieldSet::of_fields(&[&["spec"]])));
    let hard = json!({"configmaps": "1", "requests.cpu": "1"});
    server.at(1).update("facts", json!({"status": {"hard": hard, "used": {"configmaps": "0", "requests.cpu": "0"}}}));
    let fields = json!({".": {}, "f:configmaps": {}, "f:requests.cpu": {}});
    assert_eq!(
        server.managed(),
        &json!([
            {
                "manager": "facts", "operation": "Update", "apiVersion": "v1", "time": "2026-11-16T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:hard": fields}}
            },
            {
                "manager": "facts", "operation": "Update", "apiVersion": "v1", "time": "2026-11-16T00:01:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:hard": fields, "f:used": fields}}, "subresource": "status"
            }
        ])
    );
}

#[test]
fn a_created_deployment_is_owned_as_every_cluster_shows_it() {
    let mut server = Server::of("apps/v1", "Deployment");
    server.update(
        "kubectl-client-side-apply",
        json!({
            "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"app": "nginx"}}, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                "template": {
                    "metadata": {"labels": {"app": "nginx"}},
                    "spec": {
                        "containers": [{
                            "name": "nginx", "image": "nginx", "imagePullPolicy": "Always", "resources": {},
                            "ports": [{"containerPort": 80, "protocol": "TCP"}],
                            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"
                        }],
                        "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                        "securityContext": {}, "terminationGracePeriodSeconds": 30
                    }
                }
            },
            "status": {}
        }),
    );
    assert_eq!(
        server.managed()[0]["fieldsV1"],
        json!({
            "f:metadata": {"f:annotations": {".": {}, "f:kubectl.kubernetes.io/last-applied-configuration": {}}},
            "f:spec": {
                "f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {}, "f:selector": {},
                "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
                "f:template": {
                    "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                    "f:spec": {
                        "f:containers": {"k:{\"name\":\"nginx\"}": {
                            ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
                            "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                                ".": {}, "f:containerPort": {}, "f:protocol": {}
                            }},
                            "f:resources": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}
                        }},
                        "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
                        "f:terminationGracePeriodSeconds": {}
                    }
                }
            }
        })
    );
}

#[test]
fn the_manager_is_what_the_request_says_or_the_first_word_of_its_client() {
    assert_eq!(manager_name("m", "kubectl/v1.37.0 (linux/amd64)"), "m");
    assert_eq!(manager_name("", "kubectl/v1.37.0 (linux/amd64)"), "kubectl");
    assert_eq!(manager_name("", "a\u{7}b"), "ab");
    assert_eq!(manager_name("", &"x".repeat(500)).len(), 128);
    let mut server = Server::config_map();
    server.update("", json!({"data": {"k": "v"}}));
    assert_eq!(server.managed()[0]["manager"], "unknown");
}

#[test]
fn what_a_create_comes_to_own_is_what_a_real_server_says() {
    for (api_version, kind, object, owned) in [
        (
            "authentication.k8s.io/v1",
            "TokenRequest",
            json!({"spec": {"audiences": null, "expirationSeconds": 3600, "boundObjectRef": null}, "status": {"token": "", "expirationTimestamp": null}}),
            json!({"f:spec": {"f:expirationSeconds": {}}}),
        ),
        (
            "authorization.k8s.io/v1",
            "SelfSubjectAccessReview",
            json!({"spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "configmaps", "name": "a1"}}, "status": {"allowed": false}}),
            json!({"f:spec": {"f:resourceAttributes": {".": {}, "f:name": {}, "f:namespace": {}, "f:resource": {}, "f:verb": {}}}}),
        ),
        (
            "admissionregistration.k8s.io/v1",
            "MutatingAdmissionPolicy",
            json!({"spec": {
                "matchConstraints": {
                    "namespaceSelector": {}, "objectSelector": {"matchLabels": {"vap": "map1"}}, "matchPolicy": "Equivalent",
                    "resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "scope": "*"}]
                },
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}],
                "failurePolicy": "Fail", "reinvocationPolicy": "Never"
            }}),
            json!({"f:spec": {"f:failurePolicy": {}, "f:matchConstraints": {}, "f:mutations": {}, "f:reinvocationPolicy": {}}}),
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1",
            "PriorityLevelConfiguration",
            json!({
                "metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}},
                "spec": {"type": "Limited", "limited": {
                    "nominalConcurrencyShares": 30, "lendablePercent": 33,
                    "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}}
                }},
                "status": {}
            }),
            json!({
                "f:metadata": {"f:annotations": {".": {}, "f:apf.kubernetes.io/autoupdate-spec": {}}},
                "f:spec": {
                    "f:limited": {
                        ".": {}, "f:lendablePercent": {}, "f:nominalConcurrencyShares": {},
                        "f:limitResponse": {
                            ".": {}, "f:type": {},
                            "f:queuing": {".": {}, "f:handSize": {}, "f:queueLengthLimit": {}, "f:queues": {}}
                        }
                    },
                    "f:type": {}
                }
            }),
        ),
    ] {
        let mut server = Server::of(api_version, kind);
        server.update("facts", object);
        assert_eq!(server.fields("facts", "Update"), owned, "{kind}");
    }
}

#[test]
fn a_created_custom_resource_is_owned_with_its_objects() {
    let mut server = Server::config_map();
    let spec =
        json!({"type": "object", "properties": {"color": {"type": "string"}, "fixed": {"type": "string"}, "size": {"type": "integer"}}});
    let version = json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}});
    server.schema = std::sync::Arc::new(crate::schema::custom::compile(&version));
    server.update("facts", json!({"spec": {"color": "red", "fixed": "a", "size": 2}}));
    assert_eq!(server.fields("facts", "Update"), json!({"f:spec": {".": {}, "f:color": {}, "f:fixed": {}, "f:size": {}}}));
}
