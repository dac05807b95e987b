use serde_json::json;

use super::*;
use crate::registry::{Registry, resources_of_definition};

fn resource(group: &str, plural: &str) -> std::sync::Arc<Resource> {
    Registry::new().table().resources.iter().find(|r| *r.group == *group && *r.plural == *plural).expect("resource").clone()
}

fn read(group: &str, plural: &str, body: &str, validation: FieldValidation) -> Result<(Value, Vec<String>), String> {
    decode(body.as_bytes(), "application/json", &resource(group, plural), validation).map_err(|status| {
        assert_eq!((status.code, &*status.reason), (400, "BadRequest"));
        status.message
    })
}

fn message(group: &str, plural: &str, body: &str) -> String {
    read(group, plural, body, FieldValidation::Strict).expect_err("refused")
}

#[test]
fn what_is_no_json_is_unrecognized() {
    assert_eq!(
        message("", "configmaps", r#"{"apiVersion":"v1","#),
        r#"the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({"apiVersion":"v1",)"#
    );
    assert_eq!(
        message("", "configmaps", ""),
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"
    );
    assert!(
        message("", "configmaps", "hello world, this is not an object at all")
            .ends_with("(68656c6c6f20776f726c642c2074686973206973206e6f7420616e206f62 ...)")
    );
    assert!(message("", "configmaps", "[1]").contains("json: cannot unmarshal array into Go value of type struct { APIVersion string"));
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    assert!(message("", "configmaps", &deep).contains("exceeded max depth"));
}

#[test]
fn another_kind_cannot_be_handled_as_this_one() {
    assert_eq!(
        message("", "configmaps", r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}"#),
        r#"Pod in version "v1" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion"#
    );
    assert_eq!(
        message("apps", "deployments", r#"{"apiVersion":"extensions/v1beta1","kind":"Deployment"}"#),
        r#"Deployment in version "v1beta1" cannot be handled as a Deployment: no kind "Deployment" is registered for version "extensions/v1beta1" in scheme "pkg/api/legacyscheme/scheme.go:30""#
    );
    assert_eq!(
        message("autoscaling", "horizontalpodautoscalers", r#"{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler"}"#),
        "the API version in the data (autoscaling/v1) does not match the expected API version (autoscaling/v2)"
    );
}

#[test]
fn kind_and_version_may_be_left_out() {
    let (object, _) = read("", "configmaps", r#"{"metadata":{"name":"nokind"}}"#, FieldValidation::Strict).expect("read");
    assert_eq!(object, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nokind"}}));
}

#[test]
fn a_wrong_type_is_told_with_its_field_and_type() {
    let body = |spec: &str| format!(r#"{{"apiVersion":"apps/v1","kind":"Deployment","spec":{spec}}}"#);
    for (spec, why) in [
        (r#"{"replicas":"three"}"#, "string into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (r#"{"replicas":3000000000}"#, "number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (r#"{"replicas":1.5}"#, "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (r#"{"paused":"no"}"#, "string into Go struct field DeploymentSpec.spec.paused of type bool"),
        (r#"{"template":[]}"#, "array into Go struct field DeploymentSpec.spec.template of type v1.PodTemplateSpec"),
        (
            r#"{"template":{"spec":{"containers":{}}}}"#,
            "object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            r#"{"template":{"spec":{"containers":[{"image":5}]}}}"#,
            "number into Go struct field Container.spec.template.spec.containers.image of type string",
        ),
        (
            r#"{"template":{"spec":{"containers":[{"imagePullPolicy":5}]}}}"#,
            "number into Go struct field Container.spec.template.spec.containers.imagePullPolicy of type v1.PullPolicy",
        ),
        (
            r#"{"template":{"spec":{"containers":[{"args":[1]}]}}}"#,
            "number into Go struct field Container.spec.template.spec.containers.args of type string",
        ),
        (
            r#"{"template":{"metadata":{"labels":{"a":1}}}}"#,
            "number into Go struct field ObjectMeta.spec.template.metadata.labels of type string",
        ),
        // What reads itself says what it wanted; what is embedded is named on the way to it.
        (
            r#"{"strategy":{"rollingUpdate":{"maxSurge":true}}}"#,
            "bool into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32",
        ),
        (
            r#"{"template":{"spec":{"volumes":[{"configMap":{"defaultMode":"x"}}]}}}"#,
            "string into Go struct field ConfigMapVolumeSource.spec.template.spec.volumes.VolumeSource.configMap.defaultMode of type int32",
        ),
        (
            r#"{"template":{"spec":{"containers":[{"livenessProbe":{"httpGet":[]}}]}}}"#,
            "array into Go struct field Probe.spec.template.spec.containers.livenessProbe.ProbeHandler.httpGet of type v1.HTTPGetAction",
        ),
    ] {
        let expected = format!("Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal {why}");
        assert_eq!(message("apps", "deployments", &body(spec)), expected);
    }
    assert_eq!(
        message("", "configmaps", r#"{"apiVersion":"v1","kind":"ConfigMap","data":5}"#),
        r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type map[string]string"#
    );
}

#[test]
fn bytes_times_and_quantities_must_be_what_they_say() {
    let why = |group, plural, body: &str| message(group, plural, body).rsplit_once(": ").map(|(_, why)| why.to_owned()).expect("why");
    assert_eq!(why("", "secrets", r#"{"data":{"a":"no base64!"}}"#), "illegal base64 data at input byte 2");
    assert!(why("", "pods", r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"lots"}}}]}}"#).starts_with("quantities must match"));
    assert!(why("", "limitranges", r#"{"spec":{"limits":[{"min":{"cpu":{}}}]}}"#).starts_with("quantities must match"));
    assert_eq!(why("", "pods", r#"{"metadata":{"creationTimestamp":"now"}}"#), "cannot parse \"now\" as \"2006\"");
    let (pod, _) =
        read("", "pods", r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":1000,"memory":"1024Mi"}}}]}}"#, FieldValidation::Strict)
            .expect("pod");
    assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"], json!({"cpu": "1k", "memory": "1Gi"}));
    let (event, _) = read(
        "",
        "events",
        r#"{"eventTime":"2026-11-16T02:00:00.500000+02:00","lastTimestamp":"2026-11-16T02:00:00.5+02:00"}"#,
        FieldValidation::Strict,
    )
    .expect("event");
    assert_eq!((&event["eventTime"], &event["lastTimestamp"]), (&json!("2026-11-16T00:00:00.500000Z"), &json!("2026-11-16T00:00:00Z")));
}

#[test]
fn unknown_and_duplicate_fields_are_noted_in_their_order() {
    let body = r#"{"apiVersion":"apps/v1","kind":"Deployment","foo":1,"spec":{"replicas":1,"Paused":true,"replicas":2,
        "template":{"spec":{"containers":[{"name":"c"},{"name":"d","bogus":{}}]},"metadata":{"labels":{"a":"1","a":"2"}}}}}"#;
    let noted = [
        "unknown field \"foo\"",
        "unknown field \"spec.Paused\"",
        "duplicate field \"spec.replicas\"",
        "unknown field \"spec.template.spec.containers[1].bogus\"",
        "duplicate field \"spec.template.metadata.labels.a\"",
    ];
    assert_eq!(
        message("apps", "deployments", body),
        format!("Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: {}", noted.join(", "))
    );
    let (object, warnings) = read("apps", "deployments", body, FieldValidation::Warn).expect("read");
    assert_eq!(warnings, noted);
    assert_eq!(object["spec"]["replicas"], 2);
    assert_eq!(object.get("foo"), None);
    assert_eq!(read("apps", "deployments", body, FieldValidation::Ignore).expect("read").1, Vec::<String>::new());
}

#[test]
fn null_is_absence_and_zero_values_are_left_out_as_a_typed_server_does() {
    let body = r#"{"metadata":{"labels":{},"annotations":null,"name":"p"},"spec":{"hostNetwork":false,"terminationGracePeriodSeconds":0,
        "nodeSelector":{},"volumes":[],"containers":[{"name":"c","image":"","command":[],"securityContext":{},"env":[{"name":"A","value":""}]}, null],
        "automountServiceAccountToken":false}}"#;
    let (pod, warnings) = read("", "pods", body, FieldValidation::Warn).expect("pod");
    assert!(warnings.is_empty());
    assert_eq!(pod["metadata"], json!({"name": "p"}));
    assert_eq!(
        pod["spec"],
        json!({"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
        "containers": [{"name": "c", "securityContext": {}, "env": [{"name": "A"}]}, {}]})
    );
}

#[test]
fn yaml_is_read_with_its_own_words_for_duplicates() {
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y1}\ndata:\n  a: \"1\"\n  a: \"2\"\nbogus: yes\n";
    let configmaps = resource("", "configmaps");
    let (object, warnings) = decode(body.as_bytes(), "application/yaml", &configmaps, FieldValidation::Warn).expect("yaml");
    assert_eq!(object["data"], json!({"a": "2"}));
    assert_eq!(warnings, ["line 6: key \"a\" already set in map", "unknown field \"bogus\""]);
    let error = decode(body.as_bytes(), "application/yaml; charset=utf-8", &configmaps, FieldValidation::Strict).expect_err("strict");
    assert!(
        error
            .message
            .ends_with("strict decoding error: yaml: unmarshal errors:\n  line 6: key \"a\" already set in map, unknown field \"bogus\""),
        "{}",
        error.message
    );
}

#[test]
fn a_custom_object_is_pruned_and_its_metadata_typed() {
    let definition = json!({"spec": {"group": "ex.com", "scope": "Namespaced", "names": {"plural": "wids", "kind": "Wid"}, "versions": [
        {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}]}});
    let wids = resources_of_definition(&definition).remove(0);
    let body = r#"{"apiVersion":"ex.com/v1","kind":"Wid","metadata":{"name":"w","labels":{}},"spec":{"size":"no number","bogus":1}}"#;
    let (object, warnings) = decode(body.as_bytes(), "application/json", &wids, FieldValidation::Warn).expect("read");
    assert_eq!(warnings, ["unknown field \"spec.bogus\""]);
    assert_eq!(object, json!({"apiVersion": "ex.com/v1", "kind": "Wid", "metadata": {"name": "w"}, "spec": {"size": "no number"}}));
    assert_eq!(
        decode(body.as_bytes(), "application/json", &wids, FieldValidation::Strict).expect_err("strict").message,
        "Wid in version \"v1\" cannot be handled as a Wid: strict decoding error: unknown field \"spec.bogus\""
    );
    let bad = r#"{"apiVersion":"ex.com/v1","kind":"Wid","metadata":{"labels":{"a":1}}}"#;
    let error = decode(bad.as_bytes(), "application/json", &wids, FieldValidation::Warn).expect_err("bad metadata");
    assert!(
        error.message.ends_with("json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"),
        "{}",
        error.message
    );
    assert!(
        decode(b"{}", "application/json", &wids, FieldValidation::Warn)
            .expect_err("no kind")
            .message
            .contains("Object 'Kind' is missing in '{}'")
    );
}

#[test]
fn what_a_patch_made_is_read_the_same_way() {
    let schema = resource("", "configmaps").schema();
    let expected = Expected { group: "", version: "v1", kind: "ConfigMap", schema: &schema, custom: false };
    let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}, "bogus": 1});
    let error = conform(value.clone(), expected, FieldValidation::Strict).expect_err("strict");
    assert_eq!(error.to_string(), "strict decoding error: unknown field \"bogus\"");
    assert_eq!(conform(value, expected, FieldValidation::Warn).expect("read").1, ["unknown field \"bogus\""]);
    let error = conform(json!({"data": 5}), expected, FieldValidation::Warn).expect_err("type");
    assert_eq!(error.to_string(), "json: cannot unmarshal number into Go struct field ConfigMap.data of type map[string]string");
}

/// Any JSON, with fields that kinds know among its keys.
fn any_json() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[ -~é]{0,8}".prop_map(Value::from),
        Just(json!("2026-11-16T00:00:00Z")),
        Just(json!("1.5Gi")),
    ];
    let key = prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("status"),
        Just("template"),
        Just("containers"),
        Just("initContainers"),
        Just("resources"),
        Just("limits"),
        Just("labels"),
        Just("ports"),
        Just("conditions"),
        Just("type"),
        Just("name"),
        Just("data"),
        Just("versions"),
        Just("x"),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())),
        ]
    })
}

proptest::proptest! {
    #[test]
    fn nothing_that_is_read_brings_the_server_down(value in any_json(), index in 0..72usize) {
        let table = Registry::new().table();
        let resource = &table.resources[index];
        let schema = resource.schema();
        let expected = Expected { group: &resource.group, version: &resource.version, kind: &resource.kind, schema: &schema, custom: false };
        if let Ok((mut object, _)) = conform(value.clone(), expected, FieldValidation::Warn) {
            crate::schema::apply_defaults(&mut object, resource);
            // What has been read and defaulted once is read and defaulted to the same.
            let (mut again, noted) = conform(object.clone(), expected, FieldValidation::Strict).expect("fits its own schema");
            crate::schema::apply_defaults(&mut again, resource);
            proptest::prop_assert_eq!(&again, &object);
            proptest::prop_assert!(noted.is_empty());
        }
        let _ = crate::api::table::cells(resource, &value, jiff::Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn no_text_brings_the_server_down(text in ".{0,60}") {
        let _ = crate::schema::yaml::parse(&text);
        let _ = crate::schema::quantity::Quantity::parse(&text).map(|quantity| quantity.to_string());
        let _ = crate::schema::time::normalize(&text);
        let _ = syntax::explain(text.as_bytes());
        let _ = read("", "configmaps", &text, FieldValidation::Strict);
    }
}
