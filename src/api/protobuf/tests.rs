//! The codec as a whole: what real clients send, objects made up from the table, and bytes made up from nothing.

use std::collections::BTreeSet;

use k8s_openapi::api;
use proptest::prelude::*;
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::table::{self, Form, MessageId, Type};
use super::wire::{put_bytes, put_nested};
use super::*;

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

#[test]
fn what_kubectl_sends_is_read_and_written_to_the_byte() {
    let lines: Vec<_> = include_str!("vectors.txt").lines().skip(1).collect();
    assert_eq!(lines.len(), 3 * 14);
    for lines in lines.chunks(3) {
        let [command, bytes, object] = lines else { panic!("three lines a vector") };
        let (bytes, object): (_, Value) = (from_hex(bytes), serde_json::from_str(object).unwrap());
        let (api_version, kind, decoded) = decode(&bytes).unwrap();
        assert_eq!(decoded, object, "{command}");
        assert_eq!(encode(&decoded, &api_version, &kind).unwrap(), bytes, "{command}");
        let bare = Envelope::open(&bytes).unwrap();
        assert_eq!(wrap(&encode_message(&object, &api_version, &kind).unwrap(), &api_version, &kind), bytes);
        assert_eq!(decode_as(&wrap(bare.raw, "", ""), &api_version, &kind).unwrap().2, object);
    }
}

#[test]
fn absence_is_told_from_zero_only_where_go_has_a_pointer() {
    let there_and_back = |object: Value, version, kind| decode(&encode(&object, version, kind).unwrap()).unwrap().2;
    let scale = there_and_back(json!({"spec": {"replicas": 0}}), "apps/v1", "Deployment");
    assert_eq!(scale["spec"]["replicas"], json!(0));
    let absent = there_and_back(json!({"spec": {}}), "apps/v1", "Deployment");
    assert!(absent["spec"].get("replicas").is_none());
    assert_eq!(absent["spec"]["selector"], Value::Null);
    let autoscaling = there_and_back(json!({"spec": {"replicas": 0}}), "autoscaling/v1", "Scale");
    assert_eq!(autoscaling["spec"], json!({}));
    let role = there_and_back(json!({}), "rbac.authorization.k8s.io/v1", "Role");
    assert_eq!(role["rules"], Value::Null);
    let secret = there_and_back(json!({"immutable": false, "data": {"empty": ""}}), "v1", "Secret");
    assert_eq!(secret["immutable"], json!(false));
    assert_eq!(secret["data"], json!({"empty": ""}));
}

#[test]
fn inlined_messages_are_flat_in_json() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "creationTimestamp": "2026-01-02T03:04:05Z"}, "spec": {
        "containers": [{"name": "c", "resources": {"limits": {"cpu": "500m"}}, "livenessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 3}}],
        "volumes": [{"name": "v", "configMap": {"name": "cm", "defaultMode": 420}}],
    }, "status": {}});
    assert_eq!(decode(&encode(&pod, "v1", "Pod").unwrap()).unwrap().2, pod);
}

#[test]
fn schemas_of_custom_resources_keep_their_either_or() {
    let schema = json!({"type": "object", "maximum": 1, "minimum": 0.5, "x-kubernetes-preserve-unknown-fields": true, "default": {"a": [1, null]},
        "enum": ["a", 1, null], "items": {"type": "string"}, "additionalProperties": false, "additionalItems": {"type": "integer"},
        "properties": {"a": {"items": [{"type": "string"}, {"type": "integer"}], "additionalProperties": true}},
        "dependencies": {"a": ["b"], "c": {"type": "string"}}});
    let crd = json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let decoded = decode(&encode(&crd, "apiextensions.k8s.io/v1", "CustomResourceDefinition").unwrap()).unwrap().2;
    assert_eq!(decoded["spec"]["versions"][0]["schema"]["openAPIV3Schema"], schema);
}

#[test]
fn a_list_is_the_same_whether_its_items_were_encoded_before_or_not() {
    let items = [json!({"metadata": {"name": "a"}}), json!({"metadata": {"name": "b"}, "data": {"k": "v".repeat(300)}})];
    let meta = json!({"resourceVersion": "12", "continue": "x", "remainingItemCount": 0});
    let whole = encode(&json!({"metadata": meta, "items": items}), "v1", "ConfigMapList").unwrap();
    let parts: Vec<_> = items.iter().map(|item| encode_message(item, "v1", "ConfigMap").unwrap()).collect();
    assert_eq!(encode_list(&meta, parts.iter().map(Vec::as_slice), "v1", "ConfigMapList").unwrap(), whole);
    let none = decode(&encode_list(&Value::Null, [], "v1", "PodList").unwrap()).unwrap().2;
    assert_eq!(none, json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": null}));
}

#[test]
fn a_watch_frame_is_a_length_and_a_bare_event_around_an_enveloped_object() {
    let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410,
        "message": "too old resource version: 1 (2)"});
    let frame = watch_event("ERROR", &status, "v1", "Status").unwrap();
    let (length, event) = frame.split_first_chunk::<4>().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, event.len());
    let object = encode(&status, "v1", "Status").unwrap();
    let mut expected = Vec::new();
    put_bytes(&mut expected, 1, b"ERROR");
    let nested: Result<(), Error> = put_nested(&mut expected, 2, |out| {
        put_bytes(out, 1, &object);
        Ok(())
    });
    nested.unwrap();
    assert_eq!(event, expected);
    let (_, _, read) = decode(&wrap(event, "v1", "WatchEvent")).unwrap();
    assert_eq!(read["object"], status);
    assert_eq!(read["type"], "ERROR");
}

#[test]
fn fields_of_a_later_version_are_passed_over() {
    let bytes = encode(&json!({"metadata": {"name": "a"}}), "v1", "ConfigMap").unwrap();
    let mut message = Envelope::open(&bytes).unwrap().raw.to_vec();
    put_bytes(&mut message, 900, b"news");
    assert_eq!(decode(&wrap(&message, "v1", "ConfigMap")).unwrap(), decode(&bytes).unwrap());
}

#[test]
fn a_message_in_two_parts_is_merged() {
    let mut message =
        encode_message(&json!({"metadata": {"name": "a", "finalizers": ["x"]}, "data": {"a": "1"}}), "v1", "ConfigMap").unwrap();
    // A second part of the metadata, then of the data.
    message.extend([0x0a, 0x04, 0x72, 0x02, b'o', b'k', 0x12, 0x06, 0x0a, 0x01, b'b', 0x12, 0x01, b'2']);
    let (_, _, object) = decode(&wrap(&message, "v1", "ConfigMap")).unwrap();
    assert_eq!(object["metadata"], json!({"name": "a", "finalizers": ["x", "ok"]}));
    assert_eq!(object["data"], json!({"a": "1", "b": "2"}));
}

#[test]
fn numbers_of_a_list_may_be_packed() {
    let pod = encode_message(&json!({"spec": {"securityContext": {"supplementalGroups": [1, 300]}}}), "v1", "Pod").unwrap();
    // supplementalGroups as two fields becomes one of five bytes.
    let at = pod.windows(5).position(|window| window == [0x20, 1, 0x20, 0xac, 2]).unwrap();
    let mut packed = pod.clone();
    packed.splice(at..at + 5, [0x22, 3, 1, 0xac, 2]);
    assert_eq!(decode(&wrap(&packed, "v1", "Pod")).unwrap(), decode(&wrap(&pod, "v1", "Pod")).unwrap());
}

#[test]
fn what_is_not_an_enveloped_object_is_refused_with_the_words_of_a_real_server() {
    let told = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
    assert_eq!(told(b""), "empty data");
    assert_eq!(told(b"{\"kind\":\"Pod\"}"), "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]");
    assert_eq!(told(&PREFIX), "empty body");
    assert_eq!(
        decode(&wrap(b"", "example.com/v1", "Widget")),
        Err(Error::UnknownKind { api_version: "example.com/v1".into(), kind: "Widget".into() })
    );
    assert!(matches!(decode(&wrap(b"", "v1", "")), Err(Error::MissingKind(_))));
    assert!(matches!(decode(&wrap(b"", "", "Pod")), Err(Error::MissingVersion(_))));
    assert_eq!(decode(&wrap(&[0x08, 1], "v1", "Pod")), Err(Error::WireType { message: "Pod", field: "metadata", wire: 0 }));
    assert_eq!(decode(&wrap(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], "v1", "Pod")), Err(Error::Truncated));
    assert!(matches!(encode(&json!({"spec": {"replicas": "two"}}), "apps/v1", "Deployment"), Err(Error::Value { field: "replicas", .. })));
}

#[test]
fn depth_is_bounded_both_ways() {
    let mut schema = Vec::new();
    let mut value = json!({});
    for _ in 0..500 {
        let inner = std::mem::take(&mut schema);
        put_bytes(&mut schema, 28, &inner); // `not`
        value = json!({"not": value});
    }
    let crd = |schema: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
    assert_eq!(encode(&crd(value), "apiextensions.k8s.io/v1", "CustomResourceDefinition"), Err(Error::Depth));
    let mut message = Vec::new();
    let nested: Result<(), Error> = put_nested(&mut message, 2, |spec| {
        put_nested(spec, 7, |version| {
            put_nested(version, 4, |validation| {
                put_bytes(validation, 1, &schema);
                Ok(())
            })
        })
    });
    nested.unwrap();
    assert_eq!(decode(&wrap(&message, "apiextensions.k8s.io/v1", "CustomResourceDefinition")), Err(Error::Depth));
    // Envelopes within envelopes, by way of RawExtension.
    let mut list = encode(&json!({"items": []}), "v1", "List").unwrap();
    for _ in 0..500 {
        let mut message = Vec::new();
        let nested: Result<(), Error> = put_nested(&mut message, 2, |out| {
            put_bytes(out, 1, &list);
            Ok(())
        });
        nested.unwrap();
        list = wrap(&message, "v1", "List");
    }
    assert_eq!(decode(&list), Err(Error::Depth));
}

#[test]
fn a_few_bytes_do_not_become_gigabytes() {
    let empty_items = [0x12, 0x00].repeat(1_000_000);
    assert_eq!(decode(&wrap(&empty_items, "v1", "PodList")), Err(Error::Amplified));
    let some = [0x12, 0x00].repeat(500);
    assert_eq!(decode(&wrap(&some, "v1", "PodList")).unwrap().2["items"].as_array().unwrap().len(), 500);
}

/// A small generator of numbers, so that one seed is one object.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn text(&mut self) -> String {
        let length = 1 + self.roll(12);
        (0..length).map(|_| ['a', 'Z', '0', '-', '.', '/', '"', 'é', '漢', '\n'][self.roll(10) as usize]).collect()
    }

    fn object(&mut self, id: MessageId, depth: u8) -> Map<String, Value> {
        let mut object = Map::new();
        for field in &table::get().message(id).fields {
            if field.form == Form::Inline {
                let Type::Message(id) = field.kind else { panic!("only messages are inlined") };
                object.extend(self.object(id, depth));
                continue;
            }
            if self.roll(3) == 0 || depth == 0 && !field.kind.is_scalar() {
                continue;
            }
            let several = 1 + self.roll(3);
            let value = match field.form {
                Form::List => Value::Array((0..several).map(|_| self.value(field.kind, depth)).collect()),
                Form::Map => Value::Object((0..several).map(|_| (self.text(), self.value(field.kind, depth))).collect()),
                _ => self.value(field.kind, depth),
            };
            object.insert(field.name.to_owned(), value);
        }
        object
    }

    fn value(&mut self, kind: Type, depth: u8) -> Value {
        let props = table::get().json_schema_props;
        let depth = depth.saturating_sub(1);
        match (kind, self.roll(2)) {
            (Type::String | Type::Quantity, _) | (Type::IntOrString, 0) => json!(self.text()),
            (Type::Int32 | Type::IntOrString, _) => json!(self.roll(1 << 32) as i32),
            (Type::Int64, _) => json!(self.roll(u64::MAX) as i64),
            (Type::Bool, _) => json!(self.roll(2) == 0),
            (Type::Double, _) => json!(0.25 + self.roll(1000) as f64),
            (Type::Bytes, _) => json!(["AA==", "aGVsbG8=", "/+8="][self.roll(3) as usize]),
            (Type::Message(id), _) => Value::Object(self.object(id, depth)),
            (Type::Time, _) => json!(format!("20{:02}-03-04T05:06:{:02}Z", self.roll(100), self.roll(60))),
            (Type::MicroTime, _) => json!(format!("20{:02}-03-04T05:06:07.{:06}Z", self.roll(100), self.roll(1_000_000))),
            (Type::Raw | Type::Fields | Type::Json, 0) => {
                json!({"f:a": {}, "n": [1, -2.5, null, true, self.text()]})
            }
            (Type::Raw | Type::Fields | Type::Json, _) => json!({}),
            (Type::Strings, _) | (Type::SchemaOrStrings, 0) => json!([self.text(), ""]),
            (Type::SchemaOrBool, 0) => json!(self.roll(2) == 0),
            (Type::SchemaOrArray, 0) => json!([self.object(props, depth), {}]),
            (Type::SchemaOrArray | Type::SchemaOrBool | Type::SchemaOrStrings, _) => Value::Object(self.object(props, depth)),
        }
    }

    fn kind(&mut self) -> (&'static str, &'static str, MessageId) {
        let kinds: BTreeSet<_> = table::get().kinds().collect();
        kinds.into_iter().nth(self.roll(table::get().kinds().count() as u64) as usize).unwrap()
    }
}

/// Whether `read` is `written` but for empty values, which the wire does not tell from absent ones.
fn is_same(written: &Value, read: &Value) -> bool {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            let names: BTreeSet<_> = written.keys().chain(read.keys()).collect();
            names.into_iter().all(|name| match (written.get(name), read.get(name)) {
                (Some(written), Some(read)) => is_same(written, read),
                (Some(only), None) | (None, Some(only)) => is_empty(only),
                (None, None) => true,
            })
        }
        (Value::Array(written), Value::Array(read)) => {
            written.len() == read.len() && written.iter().zip(read).all(|(written, read)| is_same(written, read))
        }
        _ => written == read,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(object) => object.values().all(is_empty),
        value => [json!(null), json!(0), json!(""), json!("0"), json!(false)].contains(value),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_object_comes_back_as_go_would_print_it(seed in 1u64..) {
        let mut dice = Dice(seed);
        let (api_version, kind, id) = dice.kind();
        let mut object = dice.object(id, 6);
        object.insert("apiVersion".into(), json!(api_version));
        object.insert("kind".into(), json!(kind));
        let object = Value::Object(object);
        let bytes = encode(&object, api_version, kind).unwrap();
        let (_, _, read) = decode(&bytes).unwrap();
        prop_assert!(is_same(&object, &read), "{object}\n{read}");
        prop_assert_eq!(encode(&read, api_version, kind).unwrap(), bytes);
    }

    #[test]
    fn broken_bytes_are_an_error_or_another_object_but_never_a_panic(seed in 1u64.., cut in any::<bool>()) {
        let mut dice = Dice(seed);
        let (api_version, kind, id) = dice.kind();
        let mut bytes = encode(&Value::Object(dice.object(id, 4)), api_version, kind).unwrap();
        for _ in 0..=dice.roll(4) {
            let at = dice.roll(bytes.len() as u64) as usize;
            bytes[at] = dice.roll(256) as u8;
        }
        if cut {
            bytes.truncate(dice.roll(bytes.len() as u64) as usize);
        }
        if let Ok((api_version, kind, object)) = decode(&bytes) {
            prop_assert!(encode(&object, &api_version, &kind).is_ok());
        }
    }

    #[test]
    fn noise_is_never_a_panic(message in prop::collection::vec(any::<u8>(), 0..200), seed in 1u64..) {
        let (api_version, kind, _) = Dice(seed).kind();
        drop(decode(&wrap(&message, api_version, kind)));
        drop(decode(&message));
    }
}

#[test]
fn every_cut_of_an_object_is_an_error_or_a_shorter_object() {
    let bytes =
        encode(&json!({"metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {"containers": [{"name": "d"}]}}), "v1", "Pod").unwrap();
    for cut in 0..bytes.len() {
        drop(decode(&bytes[..cut]));
    }
}

/// Every JSON property of the schemas has a field, and no field is without a property.
#[test]
fn the_table_has_the_fields_that_the_schemas_have() {
    let mut generator = SchemaGenerator::default();
    macro_rules! kinds {
        ($($module:ident::$version:ident: $($kind:ident)*;)*) => { $($(generator.subschema_for::<api::$module::$version::$kind>();)*)* };
    }
    kinds! {
        admissionregistration::v1: MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration
            ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration;
        apps::v1: ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet;
        authentication::v1: SelfSubjectReview TokenRequest TokenReview;
        authorization::v1: LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview;
        autoscaling::v1: HorizontalPodAutoscaler Scale;
        autoscaling::v2: HorizontalPodAutoscaler;
        batch::v1: CronJob Job;
        certificates::v1: CertificateSigningRequest;
        coordination::v1: Lease;
        core::v1: Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim
            Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount;
        discovery::v1: EndpointSlice;
        events::v1: Event;
        flowcontrol::v1: FlowSchema PriorityLevelConfiguration;
        networking::v1: IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR;
        node::v1: RuntimeClass;
        policy::v1: Eviction PodDisruptionBudget;
        rbac::v1: ClusterRole ClusterRoleBinding Role RoleBinding;
        resource::v1: DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice;
        scheduling::v1: PriorityClass;
        storage::v1: CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass;
    }
    generator.subschema_for::<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>();
    generator.subschema_for::<k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService>();
    generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::Status>();
    generator.subschema_for::<k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions>();

    let mut compared = 0;
    for (name, schema) in generator.definitions() {
        let path: Vec<_> = name.split('.').collect();
        let [.., package, version, name] = path[..] else { panic!("{name}") };
        let (Some(message), Some(properties)) =
            (table::get().named(&format!("{package}.{version}"), name), schema["properties"].as_object())
        else {
            assert!(schema.get("properties").is_none(), "no message {package}.{version}.{name}");
            continue;
        };
        let fields = fields_of(message);
        let properties: BTreeSet<_> = properties.keys().map(String::as_str).collect();
        let typed = BTreeSet::from(["apiVersion", "kind"]);
        assert_eq!(&fields - &typed, &properties - &typed, "{package}.{version}.{name}");
        compared += 1;
    }
    assert!(compared > 400, "{compared}");
}

fn fields_of(message: &table::Message) -> BTreeSet<&'static str> {
    message
        .fields
        .iter()
        .flat_map(|field| match (field.form, field.kind) {
            (Form::Inline, Type::Message(id)) => fields_of(table::get().message(id)),
            _ => BTreeSet::from([field.name]),
        })
        .collect()
}
