//! Policies in CEL through the front door, with the verdicts and messages that were recorded.

use serde_json::{Value, json};
use usher::Server;

use super::server::*;

const GROUP: &str = "admissionregistration.k8s.io";

async fn server() -> (Server, kube::Client) {
    let server = Server::builder().in_memory().start().await.unwrap();
    let client = server.client();
    (server, client)
}

/// A policy on new ConfigMaps with the label `wh: <name>`, and its binding.
async fn policy(client: &kube::Client, kind: &str, name: &str, spec: Value, binding: Value) {
    let (plural, bindings) = match kind {
        "ValidatingAdmissionPolicy" => ("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        _ => ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
    };
    let mut full = json!({"failurePolicy": "Fail", "matchConstraints": {
        "objectSelector": {"matchLabels": {"wh": name}},
        "resourceRules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    }});
    if kind == "MutatingAdmissionPolicy" {
        full["reinvocationPolicy"] = json!("Never");
    }
    for (key, value) in spec.as_object().unwrap() {
        full[key] = value.clone();
    }
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": full});
    create(&api(client, GROUP, "v1", kind, plural, None), object).await.unwrap();
    let mut full = json!({"policyName": name});
    for (key, value) in binding.as_object().unwrap() {
        full[key] = value.clone();
    }
    let kind = format!("{kind}Binding");
    let object =
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": format!("{name}-b")}, "spec": full});
    create(&api(client, GROUP, "v1", &kind, bindings, None), object).await.unwrap();
}

async fn validating(client: &kube::Client, name: &str, spec: Value, binding: Value) {
    policy(client, "ValidatingAdmissionPolicy", name, spec, binding).await;
}

fn deny() -> Value {
    json!({"validationActions": ["Deny"]})
}

#[tokio::test]
async fn a_policy_is_in_force_for_the_very_next_request_and_denies_in_the_recorded_words() {
    let (_server, client) = server().await;
    validating(&client, "v1", json!({"validations": [{"expression": "object.metadata.name.startsWith('ok')"}]}), deny()).await;
    let refused = create(&configmaps(&client), configmap("w", "v1")).await.unwrap_err();
    assert_eq!(
        refused.message,
        "configmaps \"w\" is forbidden: ValidatingAdmissionPolicy 'v1' with binding 'v1-b' denied request: failed expression: object.metadata.name.startsWith('ok')"
    );
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    assert!(create(&configmaps(&client), configmap("ok-w", "v1")).await.is_ok());
    validating(&client, "v4", json!({"validations": [{"expression": "object.data.missing == 'x'"}]}), deny()).await;
    let refused = create(&configmaps(&client), configmap("w", "v4")).await.unwrap_err();
    assert_eq!(
        refused.message,
        "configmaps \"w\" is forbidden: ValidatingAdmissionPolicy 'v4' with binding 'v4-b' denied request: expression 'object.data.missing == 'x'' resulted in error: no such key: missing"
    );
    let bindings = api(&client, GROUP, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", None);
    bindings.delete("v1-b", &Default::default()).await.unwrap();
    assert!(create(&configmaps(&client), configmap("w", "v1")).await.is_ok(), "out of force as soon as the binding is gone");
}

#[tokio::test]
async fn reasons_messages_variables_and_conditions_work_together() {
    let (_server, client) = server().await;
    let spec = json!({
        "variables": [{"name": "size", "expression": "size(object.data)"}, {"name": "large", "expression": "variables.size > 1"}],
        "matchConditions": [{"name": "not-exempt", "expression": "!object.metadata.name.startsWith('exempt')"}],
        "validations": [
            {"expression": "!variables.large", "messageExpression": "'has ' + string(variables.size) + ' keys'", "reason": "Forbidden"},
            {"expression": "request.userInfo.username == 'kubernetes-admin' && namespaceObject.metadata.name == 'default'"},
            {"expression": "authorizer.group('').resource('pods').namespace('default').check('create').allowed()"},
        ],
    });
    validating(&client, "full", spec, deny()).await;
    let mut large = configmap("w", "full");
    large["data"]["l"] = json!("w");
    let refused = create(&configmaps(&client), large.clone()).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    assert!(refused.message.ends_with("denied request: has 2 keys"), "{}", refused.message);
    large["metadata"]["name"] = json!("exempt-w");
    assert!(create(&configmaps(&client), large).await.is_ok(), "the match condition exempts it");
    assert!(create(&configmaps(&client), configmap("w", "full")).await.is_ok());
}

#[tokio::test]
async fn params_come_by_name_or_selector_and_can_be_missing() {
    let (_server, client) = server().await;
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.data.k == params.data.want", "messageExpression": "'want ' + params.data.want"}],
    });
    let binding = |reference: Value| json!({"validationActions": ["Deny"], "paramRef": reference});
    let mut param = configmap("param", "none");
    param["data"] = json!({"want": "v"});
    create(&configmaps(&client), param).await.unwrap();
    validating(&client, "named", spec.clone(), binding(json!({"name": "param", "parameterNotFoundAction": "Deny"}))).await;
    assert!(create(&configmaps(&client), configmap("a", "named")).await.is_ok());
    let mut wrong = configmap("b", "named");
    wrong["data"]["k"] = json!("x");
    let refused = create(&configmaps(&client), wrong).await.unwrap_err();
    assert!(refused.message.ends_with("denied request: want v"), "{}", refused.message);
    validating(&client, "gone", spec.clone(), binding(json!({"name": "nobody", "parameterNotFoundAction": "Deny"}))).await;
    let refused = create(&configmaps(&client), configmap("c", "gone")).await.unwrap_err();
    assert!(
        refused.message.ends_with("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"),
        "{}",
        refused.message
    );
    validating(&client, "lenient", spec, binding(json!({"selector": {"matchLabels": {"no": "such"}}, "parameterNotFoundAction": "Allow"})))
        .await;
    assert!(create(&configmaps(&client), configmap("d", "lenient")).await.is_ok());
}

#[tokio::test]
async fn a_policy_that_does_not_compile_is_refused() {
    let (_server, client) = server().await;
    let policies = api(&client, GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", None);
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "bad"}, "spec": {
        "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "object.x =="}],
    }});
    let refused = create(&policies, object).await.unwrap_err();
    assert_eq!(refused.code, 422);
    assert!(
        refused.message.contains("spec.validations[0].expression: Invalid value: \"object.x ==\": compilation failed: ERROR:"),
        "{}",
        refused.message
    );
}

#[tokio::test]
async fn mutating_policies_apply_configurations_and_patches() {
    let (_server, client) = server().await;
    let apply = json!({"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {
        "expression": "Object{metadata: Object.metadata{labels: {'frommap': 'yes'}}}"}}]});
    policy(&client, "MutatingAdmissionPolicy", "map1", apply, json!({})).await;
    let made = create(&configmaps(&client), configmap("wmap", "map1")).await.unwrap();
    assert_eq!(made["metadata"]["labels"], json!({"frommap": "yes", "wh": "map1"}));
    let patch = json!({"mutations": [{"patchType": "JSONPatch", "jsonPatch": {
        "expression": "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/name'), value: object.metadata.name}]"}}]});
    policy(&client, "MutatingAdmissionPolicy", "map2", patch, json!({})).await;
    let made = create(&configmaps(&client), configmap("wpatch", "map2")).await.unwrap();
    assert_eq!(made["metadata"]["labels"], json!({"example.com/name": "wpatch", "wh": "map2"}));
}

/// What the status says of a policy's types, once somebody has looked.
async fn type_warnings(client: &kube::Client, name: &str, spec: Value) -> Vec<(String, String)> {
    let policies = api(client, GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", None);
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec});
    create(&policies, object).await.unwrap();
    let checked =
        async || Some(policies.get(name).await.unwrap().data["status"]["typeChecking"].take()).filter(|checking| !checking.is_null());
    let checking = crate::answer("its types are checked", checked).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let warnings = checking["expressionWarnings"].as_array().into_iter().flatten();
    warnings.map(|warning| (text(&warning["fieldRef"]), text(&warning["warning"]))).collect()
}

#[tokio::test]
async fn what_an_expression_gets_wrong_about_its_kinds_is_told_in_the_status() {
    let (_server, client) = server().await;
    let rules = |group: &str, resources: &[&str]| json!({"resourceRules": [{"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["v1"], "resources": resources}]});
    let about = |group: &str, resources: &[&str], expression: &str| json!({"matchConstraints": rules(group, resources), "validations": [{"expression": "true"}, {"expression": expression}]});
    let mut with_params = about("apps", &["deployments"], "params.data.x == object.spec.replicas");
    with_params["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    // As observed: the policy, and what is told of its second expression.
    let cases = [
        (
            "typo",
            about("apps", &["deployments"], "object.spec.replicaz > 1"),
            "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replicaz'\n | object.spec.replicaz > 1\n | ...........^\n",
        ),
        (
            "core",
            about("", &["configmaps"], "object.data.x == 5"),
            "/v1, Kind=ConfigMap: ERROR: <input>:1:15: found no matching overload for '_==_' applied to '(string, int)'\n | object.data.x == 5\n | ..............^\n",
        ),
        (
            "two",
            about("apps", &["statefulsets", "deployments"], "object.a == 1"),
            "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'a'\n | object.a == 1\n | ......^\n\napps/v1, Kind=StatefulSet: ERROR: <input>:1:7: undefined field 'a'\n | object.a == 1\n | ......^\n",
        ),
        (
            "params",
            with_params,
            "apps/v1, Kind=Deployment: ERROR: <input>:1:15: found no matching overload for '_==_' applied to '(string, int)'\n | params.data.x == object.spec.replicas\n | ..............^\n",
        ),
        // A schema of schemas: it has no end.
        (
            "endless",
            about("apiextensions.k8s.io", &["customresourcedefinitions"], "object.spec.foo == 1"),
            "apiextensions.k8s.io/v1, Kind=CustomResourceDefinition: ERROR: <input>:1:12: undefined field 'foo'\n | object.spec.foo == 1\n | ...........^\n",
        ),
    ];
    for (name, spec, told) in cases {
        assert_eq!(type_warnings(&client, name, spec).await, [("spec.validations[1].expression".to_owned(), told.to_owned())]);
    }
    let right = about("apps", &["deployments"], "object.spec.replicas > 1 && object.metadata.name != ''");
    assert_eq!(type_warnings(&client, "right", right).await, []);
}

#[tokio::test]
async fn what_is_wrong_with_a_policy_is_said_when_it_is_written() {
    let (_server, client) = server().await;
    let rules = |operation: &str| json!({"resourceRules": [{"operations": [operation], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]});
    let validating = |extra: Value| {
        let mut spec = json!({"matchConstraints": rules("CREATE"), "validations": [{"expression": "true"}]});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", spec)
    };
    let mutating = |extra: Value| {
        let mut spec = json!({"matchConstraints": rules("CREATE"), "reinvocationPolicy": "Never"});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies", spec)
    };
    let binding = (
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        json!({"policyName": "p", "matchResources": rules("DELETE")}),
    );
    let made = json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "variables.x"}}]);
    // As observed.
    for ((kind, plural, spec), why) in [
        (validating(json!({"failurePolicy": ""})), "spec.failurePolicy: Unsupported value: \"\": supported values: \"Fail\", \"Ignore\""),
        (
            validating(json!({"validations": [{"expression": "true", "reason": ""}]})),
            "spec.validations[0].reason: Unsupported value: \"\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\"",
        ),
        (
            mutating(json!({"mutations": [{"patchType": "JSONPatch", "applyConfiguration": {"expression": "Object{}"}}]})),
            "[spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch, spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified when patchType is JSONPatch]",
        ),
        (
            mutating(json!({"variables": [{"name": "x", "expression": "Object{}"}], "mutations": made})),
            "[spec.variables[0].expression: Invalid value: \"Object{}\": compilation failed: ERROR: <input>:1:7: undeclared reference to 'Object' (in container '')\n | Object{}\n | ......^, spec.mutations[0].applyConfiguration.expression: Invalid value: \"variables.x\": must evaluate to Object but got dyn]",
        ),
        (
            binding,
            "spec.matchResources.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"",
        ),
    ] {
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "p"}, "spec": spec});
        let refused = create(&api(&client, GROUP, "v1", kind, plural, None), object).await.unwrap_err();
        assert_eq!(refused.message, format!("{kind}.{GROUP} \"p\" is invalid: {why}"));
    }
}

#[tokio::test]
async fn what_a_mutating_policy_gets_wrong_is_told_in_the_words_of_a_real_server() {
    let (_server, client) = server().await;
    let apply = |expression: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    let patch = |expression: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    // As observed: the mutation, the code, and what is told of it.
    for (name, mutation, code, words) in [
        (
            "unknown",
            apply("Object{foo: 'x'}"),
            403,
            "error applying patch: failed to convert patch object to typed object: .foo: field not declared in schema",
        ),
        (
            "typed",
            apply("Object{data: 'x'}"),
            403,
            "error applying patch: failed to convert patch object to typed object: .data: expected map, got &{x}",
        ),
        (
            "mismatch",
            apply("Object{metadata: Object.spec{}}"),
            403,
            "type mismatch: unexpected type name \"Object.spec\", expected \"Object.metadata\", which matches field name path from root Object type",
        ),
        (
            "error",
            apply("Object{data: {'z': object.data.nope}}"),
            403,
            "expression 'Object{data: {'z': object.data.nope}}' resulted in error: no such key: nope",
        ),
        (
            "missing",
            patch("[JSONPatch{op: 'remove', path: '/data/nope'}]"),
            403,
            "JSON Patch: error in remove for path: '/data/nope': Unable to remove nonexistent key: nope: missing value",
        ),
        ("strict", patch("[JSONPatch{op: 'add', path: '/foo', value: 'x'}]"), 500, "strict decoding error: unknown field \"foo\""),
    ] {
        policy(&client, "MutatingAdmissionPolicy", name, json!({"mutations": [mutation]}), json!({})).await;
        let refused = create(&configmaps(&client), configmap("w", name)).await.unwrap_err();
        let expected = match code {
            403 => format!("policy '{name}' with binding '{name}-b' denied request: {words}"),
            _ => format!("Internal error occurred: {words}"),
        };
        assert_eq!((refused.code, refused.message), (code, expected));
        assert_eq!(refused.reason, if code == 403 { "Invalid" } else { "InternalError" });
    }
    // A test that fails is how a patch says "not here", and one that fails open leaves the others in force.
    let tested = patch("[JSONPatch{op: 'test', path: '/data/k', value: 'zz'}, JSONPatch{op: 'add', path: '/data/z', value: '9'}]");
    policy(&client, "MutatingAdmissionPolicy", "tested", json!({"mutations": [tested]}), json!({})).await;
    assert_eq!(create(&configmaps(&client), configmap("tested", "tested")).await.unwrap()["data"], json!({"k": "v"}));
    let both = json!({"failurePolicy": "Ignore", "mutations": [apply("Object{data: {'z': object.data.nope}}"), apply("Object{data: {'y': '1'}}")]});
    policy(&client, "MutatingAdmissionPolicy", "half", both, json!({})).await;
    assert_eq!(create(&configmaps(&client), configmap("half", "half")).await.unwrap()["data"], json!({"k": "v", "y": "1"}));
}

#[tokio::test]
async fn expressions_are_refused_for_their_type_in_the_words_of_a_real_server() {
    let (_server, client) = server().await;
    let policies = api(&client, GROUP, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", None);
    let rules =
        json!({"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]});
    // As observed: what is added to the spec, and what is told of it.
    for (spec, words) in [
        (
            json!({"validations": [{"expression": "'x'"}]}),
            "spec.validations[0].expression: Invalid value: \"'x'\": must evaluate to bool but got string",
        ),
        (
            json!({"validations": [{"expression": "object.metadata.name"}]}),
            "spec.validations[0].expression: Invalid value: \"object.metadata.name\": must evaluate to bool but got dyn",
        ),
        (
            json!({"validations": [{"expression": "true", "messageExpression": "1"}]}),
            "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
        ),
        (
            json!({"validations": [{"expression": "true", "messageExpression": " "}]}),
            "spec.validations[0].messageExpression: Invalid value: \" \": must be non-empty if specified",
        ),
        (
            json!({"validations": [{"expression": "true", "message": "a\nb"}]}),
            "spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
        ),
        (
            json!({"validations": [{"expression": "true"}], "auditAnnotations": [{"key": "k", "valueExpression": "1"}]}),
            "spec.auditAnnotations[0].valueExpression: Invalid value: \"1\": must evaluate to one of [string null_type] but got int",
        ),
        (
            json!({"validations": [{"expression": "true"}], "variables": [{"name": "a-b", "expression": "1"}]}),
            "spec.variables[0].name: Invalid value: \"a-b\": must be a valid CEL identifier",
        ),
        (
            json!({"validations": [{"expression": "true"}], "paramKind": {"apiVersion": "1/2/3", "kind": "X"}}),
            "spec.paramKind.apiVersion: Invalid value: \"1/2/3\": unexpected GroupVersion string: 1/2/3",
        ),
    ] {
        let mut full = spec;
        full["matchConstraints"] = rules.clone();
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "bad"}, "spec": full});
        let refused = create(&policies, object).await.unwrap_err();
        assert_eq!(refused.message, format!("ValidatingAdmissionPolicy.admissionregistration.k8s.io \"bad\" is invalid: {words}"));
    }
}

#[tokio::test]
async fn a_variable_that_fails_is_named_and_an_unknown_kind_of_parameters_is_the_policys_fault() {
    let (_server, client) = server().await;
    let spec =
        json!({"variables": [{"name": "a", "expression": "object.data.nope"}], "validations": [{"expression": "variables.a == 'v'"}]});
    validating(&client, "var", spec, deny()).await;
    let refused = create(&configmaps(&client), configmap("w", "var")).await.unwrap_err();
    assert!(
        refused.message.ends_with("resulted in error: composited variable \"a\" fails to evaluate: no such key: nope"),
        "{}",
        refused.message
    );
    let spec = json!({"paramKind": {"apiVersion": "nope.io/v1", "kind": "Nope"}, "validations": [{"expression": "true"}]});
    let binding = json!({"validationActions": ["Deny"], "paramRef": {"name": "x", "parameterNotFoundAction": "Deny"}});
    validating(&client, "unknown", spec, binding).await;
    let refused = create(&configmaps(&client), configmap("w", "unknown")).await.unwrap_err();
    assert_eq!(
        refused.message,
        "configmaps \"w\" is forbidden: ValidatingAdmissionPolicy 'unknown' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'nope.io/v1, Kind=Nope'"
    );
}

#[tokio::test]
async fn a_hundred_policies_with_selectors_are_told_apart_exactly() {
    let (_server, client) = server().await;
    // Each policy leaves its name in the object.
    let add = |name: String, selectors: Value, binding: Value| {
        let client = client.clone();
        async move {
            let rules =
                json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
            let mut constraints = selectors;
            constraints["resourceRules"] = rules;
            let expression = format!("Object{{data: {{'{name}': 'was here'}}}}");
            let mutations = json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]);
            policy(
                &client,
                "MutatingAdmissionPolicy",
                &name,
                json!({"matchConstraints": constraints, "mutations": mutations}),
                json!({"matchResources": binding}),
            )
            .await;
        }
    };
    let object = |labels: Value| json!({"objectSelector": {"matchLabels": labels}});
    let expression =
        |operator: &str, values: Value| json!({"matchExpressions": [{"key": "shard", "operator": operator, "values": values}]});
    for number in 0..90 {
        add(format!("shard-{number}"), object(json!({"shard": number.to_string()})), json!({})).await;
    }
    let namespace = |name: &str| json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}});
    for (name, constraints, binding) in [
        ("any-shard", json!({"objectSelector": expression("Exists", Value::Null)}), json!({})),
        ("not-one", json!({"objectSelector": expression("NotIn", json!(["1"]))}), json!({})),
        ("one-or-two", json!({"objectSelector": expression("In", json!(["1", "2"]))}), json!({})),
        ("home", namespace("default"), json!({})),
        ("away", namespace("kube-system"), json!({})),
        ("binding-of-one", json!({}), object(json!({"shard": "1"}))),
        ("binding-away", json!({}), namespace("kube-system")),
        ("everything", json!({}), json!({})),
    ] {
        add(name.to_owned(), constraints, binding).await;
    }
    let touched = |object: &Value| object["data"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let with = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}});
    let one = create(&configmaps(&client), with("one", json!({"shard": "1"}))).await.unwrap();
    assert_eq!(touched(&one), ["any-shard", "binding-of-one", "everything", "home", "one-or-two", "shard-1"]);
    let none = create(&configmaps(&client), with("none", json!({}))).await.unwrap();
    assert_eq!(touched(&none), ["everything", "home", "not-one"]);
    let last = create(&configmaps(&client), with("last", json!({"shard": "89", "a": "b"}))).await.unwrap();
    assert_eq!(touched(&last), ["any-shard", "everything", "home", "not-one", "shard-89"]);
    let elsewhere = api(&client, "", "v1", "ConfigMap", "configmaps", Some("kube-system"));
    let away = create(&elsewhere, with("away", json!({"shard": "1"}))).await.unwrap();
    assert_eq!(touched(&away), ["any-shard", "away", "binding-away", "binding-of-one", "everything", "one-or-two", "shard-1"]);
    // What it was counts as well as what it becomes.
    let mut moved = with("one", json!({"shard": "2"}));
    moved["metadata"]["resourceVersion"] = one["metadata"]["resourceVersion"].clone();
    let moved = configmaps(&client).replace("one", &Default::default(), &serde_json::from_value(moved).unwrap()).await.unwrap();
    let moved = serde_json::to_value(moved).unwrap();
    assert_eq!(touched(&moved), ["any-shard", "binding-of-one", "everything", "home", "not-one", "one-or-two", "shard-1", "shard-2"]);
}
