//! How the server uses the language: policies with variables and the authorizer, mutations, custom resource rules with
//! their schemas, budgets, and explanations.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use serde_json::json;
use usher_cel::{Activation, Authorizer, Budget, CheckAttributes, CompileError, Decision, Environment, EvalError, Schema, Type};

#[test]
fn policy_variables_run_once_when_they_are_needed_and_pay_from_the_budget() {
    let base = Environment::kubernetes().variable("object", Type::Dyn).with_policy_variables();
    let names = base.compile("object.items.map(i, i.name)").unwrap();
    let environment = base.policy_variable("names", names.output_type().clone());
    let broken = environment.compile("1 / 0").unwrap();
    let environment = environment.policy_variable("broken", broken.output_type().clone());
    let rule = environment.compile("variables.names.size() == 2 && variables.names[0] == 'a'").unwrap();
    let unused = environment.compile("object.items.size() == 2 || variables.broken == 1").unwrap();
    let failing = environment.compile("variables.broken == 1").unwrap();

    let object = json!({"items": [{"name": "a"}, {"name": "b"}]});
    let activation = Activation::new().bind("object", &object).policy_variable("names", &names).policy_variable("broken", &broken);
    let mut budget = Budget::default();
    let first = program_cost(&rule, &activation, &mut budget);
    // The rule itself, and the variable: a list of two, each 1 + (1 + 1) + 10 + 1, and 1 at the end, from object.items.
    assert_eq!(first, 2 + 1 + 1 + 3 + 1);
    assert_eq!(budget.used(), first + 2 + 2 * 14 + 1);
    let used = budget.used();
    assert_eq!(program_cost(&rule, &activation, &mut budget), first);
    assert_eq!(budget.used(), used + first);
    assert!(unused.evaluate(&activation, &mut budget).is_ok());
    assert_eq!(
        failing.evaluate(&activation, &mut budget).unwrap_err().to_string(),
        "composited variable \"broken\" fails to evaluate: division by zero"
    );
    assert_eq!(
        environment.compile("variables.nothing").unwrap_err().to_string(),
        "ERROR: <input>:1:10: undefined field 'nothing'\n | variables.nothing\n | .........^"
    );
}

fn program_cost<'a>(program: &'a usher_cel::Program, activation: &Activation<'a>, budget: &mut Budget) -> u64 {
    let evaluation = program.evaluate(activation, budget).unwrap();
    assert_eq!(evaluation.value.as_bool(), Some(true));
    evaluation.cost
}

#[test]
fn a_variable_that_refers_to_itself_fails() {
    let environment = Environment::kubernetes().policy_variable("a", Type::Int);
    let program = environment.compile("variables.a + 1").unwrap();
    let activation = Activation::new().policy_variable("a", &program);
    let error = program.evaluate(&activation, &mut Budget::default()).unwrap_err();
    assert_eq!(error.to_string(), "composited variable \"a\" fails to evaluate: variables.a refers to itself");
}

#[derive(Default)]
struct Recorder(Mutex<Vec<CheckAttributes>>);

impl Authorizer for Recorder {
    fn check(&self, attributes: &CheckAttributes) -> Decision {
        self.0.lock().unwrap().push(attributes.clone());
        let error = (attributes.verb == "fail").then(|| "broken".to_owned());
        Decision { allowed: attributes.verb == "get", reason: "because".into(), error }
    }
}

#[test]
fn the_authorizer_is_asked_what_the_expression_built() {
    let environment = Environment::kubernetes().with_authorizer();
    let recorder = Recorder::default();
    let cases = [
        ("authorizer.path('/healthz').check('get').allowed()", true),
        ("authorizer.group('apps').resource('deployments').subresource('status').namespace('n').name('d').check('get').allowed()", true),
        (
            "authorizer.serviceAccount('ns', 'sa').group('').resource('pods').fieldSelector('a=b').labelSelector('c=d').check('list').allowed()",
            false,
        ),
        ("authorizer.requestResource.check('get').reason() == 'because'", true),
        ("authorizer.group('').resource('pods').check('fail').errored()", true),
        ("authorizer.group('').resource('pods').check('fail').error() == 'broken'", true),
    ];
    for (source, expected) in cases {
        let program = environment.compile(source).unwrap();
        let request = CheckAttributes { resource: "secrets".into(), name: "s".into(), ..CheckAttributes::default() };
        let activation = Activation::new().bind_authorizer(&recorder, Some(request));
        let evaluation = program.evaluate(&activation, &mut Budget::default()).unwrap();
        assert_eq!(evaluation.value.as_bool(), Some(expected), "{source}");
        assert!(evaluation.cost > 350_000, "{source}");
    }
    let asked = recorder.0.lock().unwrap();
    assert_eq!(asked[0].path.as_deref(), Some("/healthz"));
    assert_eq!((asked[1].group.as_str(), asked[1].subresource.as_str(), asked[1].name.as_str()), ("apps", "status", "d"));
    assert_eq!(asked[2].service_account, Some(("ns".into(), "sa".into())));
    assert_eq!((asked[2].field_selector.as_deref(), asked[2].label_selector.as_deref()), (Some("a=b"), Some("c=d")));
    assert_eq!(asked[3].resource, "secrets");
    drop(asked);
    for (source, message) in [
        ("authorizer.path(' ').check('get').allowed()", "path must not be empty"),
        ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
        ("authorizer.serviceAccount('ns', 'S!').path('/').check('get').allowed()", "Invalid service account name"),
        ("authorizer.serviceAccount('N', 's').path('/').check('get').allowed()", "Invalid service account namespace"),
    ] {
        let program = environment.compile(source).unwrap();
        let activation = Activation::new().bind_authorizer(&recorder, None);
        assert_eq!(program.evaluate(&activation, &mut Budget::default()).unwrap_err().to_string(), message);
    }
    let three = "authorizer.path('/').check('get').allowed()";
    let program = environment.compile(&format!("{three} && {three} && {three}")).unwrap();
    let activation = Activation::new().bind_authorizer(&recorder, None);
    assert_eq!(program.evaluate(&activation, &mut Budget::default()).err(), Some(EvalError::CostLimitExceeded));
}

#[test]
fn mutations_are_messages_that_become_json() {
    let environment = Environment::kubernetes().variable("object", Type::Dyn).with_mutation_types().with_jsonpatch();
    let object = json!({"metadata": {"labels": {"a/b": "c"}}});
    let activation = Activation::new().bind("object", &object);
    let apply = environment.compile("Object{spec: Object.spec{replicas: 3, ?paused: optional.none(), tags: ['a']}}").unwrap();
    assert_eq!(apply.output_type(), &Type::object("Object"));
    let value = apply.evaluate(&activation, &mut Budget::default()).unwrap().value;
    assert_eq!(value.to_json().unwrap(), json!({"spec": {"replicas": 3, "tags": ["a"]}}));
    assert_eq!(value.check_object_names(), Ok(()));
    let misplaced = environment.compile("Object{spec: Object.status{}}").unwrap();
    let value = misplaced.evaluate(&activation, &mut Budget::default()).unwrap().value;
    assert_eq!(
        value.check_object_names().unwrap_err(),
        "unexpected type name \"Object.status\", expected \"Object.spec\", which matches field name path from root Object type"
    );
    let patch = environment.compile("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~'), value: 'x'}]").unwrap();
    let value = patch.evaluate(&activation, &mut Budget::default()).unwrap().value;
    assert_eq!(value.to_json().unwrap(), json!([{"op": "add", "path": "/metadata/labels/a~1b~0", "value": "x"}]));
    let wrong = environment.compile("JSONPatch{op: 1}").unwrap_err().to_string();
    assert!(wrong.contains("expected type of field 'op' is 'string' but provided type is 'int'"), "{wrong}");
    assert!(environment.compile("JSONPatch{nothing: 1}").unwrap_err().to_string().contains("undefined field 'nothing'"));
}

fn schema() -> Arc<Schema> {
    let schema = json!({"type": "object", "required": ["replicas"], "properties": {
        "replicas": {"type": "integer"},
        "ratio": {"type": "number"},
        "started": {"type": "string", "format": "date-time"},
        "timeout": {"type": "string", "format": "duration"},
        "port": {"x-kubernetes-int-or-string": true},
        "names": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 20}},
        "limits": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}},
        "a-b": {"type": "string"},
        "namespace": {"type": "string"},
        "nested": {"type": "array", "items": {"type": "object", "properties": {"key": {"type": "string"}}}},
    }});
    Arc::new(Schema::from_openapi(&schema, false).unwrap())
}

#[test]
fn rules_see_objects_as_their_schema_says() {
    let environment = Environment::kubernetes().schema_variable("self", schema()).optional_schema_variable("oldSelf", schema());
    let object = json!({"replicas": 3, "ratio": 1, "started": "2020-01-01T00:00:00Z", "timeout": "1h", "port": "http",
        "names": ["x", "y"], "limits": {"cpu": 1}, "a-b": "c", "namespace": "n", "nested": [{"key": "k"}]});
    let old = json!({"replicas": 2, "names": ["y", "x"]});
    for source in [
        "self.replicas == 3 && self.ratio == 1.0 && self.port == 'http'",
        "self.started < timestamp('2021-01-01T00:00:00Z') && self.started.getFullYear() == 2020",
        "self.timeout == duration('60m')",
        "self.a__dash__b == 'c' && self.__namespace__ == 'n' && has(self.a__dash__b)",
        "self.limits.all(k, v, v > 0) && self.limits['cpu'] == 1 && 'cpu' in self.limits",
        "self.nested.exists(n, n.key == 'k') && self.nested.map(n, n.key) == ['k']",
        "oldSelf.hasValue() && oldSelf.value().replicas <= self.replicas && oldSelf.?names.orValue([]) == self.names",
        "oldSelf.optMap(o, o.names == self.names).orValue(false)",
        "self.names + ['x'] == self.names",
        "self == self && !has(oldSelf.value().ratio)",
    ] {
        let program = environment.compile(source).unwrap_or_else(|e| panic!("{source}: {e}"));
        let activation = Activation::new().bind("self", &object).bind_optional("oldSelf", Some(&old));
        let value = program.evaluate(&activation, &mut Budget::default()).unwrap_or_else(|e| panic!("{source}: {e}")).value;
        assert_eq!(value.as_bool(), Some(true), "{source}");
    }
    let first = environment.compile("!oldSelf.hasValue()").unwrap();
    let activation = Activation::new().bind("self", &object).bind_optional("oldSelf", None);
    assert_eq!(first.evaluate(&activation, &mut Budget::default()).unwrap().value.as_bool(), Some(true));
    assert_eq!(first.variables().collect::<Vec<_>>(), ["oldSelf"]);
    let undefined = environment.compile("self.nothing").unwrap_err().to_string();
    assert_eq!(undefined, "ERROR: <input>:1:5: undefined field 'nothing'\n | self.nothing\n | ....^");
    let mismatch = environment.compile("self.replicas == 'a'").unwrap_err().to_string();
    assert!(mismatch.contains("found no matching overload for '_==_' applied to '(int, string)'"), "{mismatch}");
}

#[test]
fn estimates_use_the_bounds_of_the_schema() {
    let environment = Environment::kubernetes().schema_variable("self", schema());
    let estimate = |source: &str| {
        let cost = environment.compile(source).unwrap().cost_estimate();
        (cost.min, cost.max)
    };
    // self.names is 2; each of at most 10 rounds costs 2 and 1, and the comparison of two strings of at most 80.
    assert_eq!(estimate("self.names.all(n, n == 'abcdefghijklmnop')"), (3, 3 + 10 * (2 + 1 + 1 + 2)));
    assert_eq!(estimate("self.limits.all(k, self.limits[k] > 0)"), (3, 3 + 5 * (2 + 1 + 5)));
    assert!(estimate("self.nested.all(a, self.nested.all(b, a.key == b.key))").1 > usher_cel::STATIC_ESTIMATED_COST_LIMIT);
}

#[test]
fn a_budget_is_shared_and_runs_out() {
    let program = Environment::kubernetes().compile("[1, 2, 3].all(x, x > 0)").unwrap();
    let mut budget = Budget::new(30);
    let activation = Activation::new();
    assert_eq!(program.evaluate(&activation, &mut budget).unwrap().cost, 16);
    assert_eq!(program.evaluate(&activation, &mut budget).err(), Some(EvalError::BudgetExhausted));
    let mut budget = Budget::default().per_call(10);
    assert_eq!(program.evaluate(&activation, &mut budget).err(), Some(EvalError::CostLimitExceeded));
}

#[test]
fn constants_that_fail_are_found_when_compiling() {
    match Environment::kubernetes().compile("int('x') == 1") {
        Err(CompileError::Program { message, output_type, .. }) => {
            assert_eq!((message.as_str(), output_type), ("type conversion error from 'string' to 'int'", Type::Bool));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_explanation_has_the_value_of_every_part() {
    let program = Environment::kubernetes().variable("o", Type::Dyn).compile("o.a.b > 1 && has(o.c) && o.l.all(x, x > 0)").unwrap();
    let object = json!({"a": {"b": 2}, "c": 1, "l": [1]});
    let explanation = program.explain(&Activation::new().bind("o", &object), &mut Budget::default());
    let steps: Vec<String> = explanation.steps.iter().map(ToString::to_string).collect();
    for step in ["o.a = {\"b\":2}", "o.a.b = 2", "o.a.b > 1 = true", "has(o.c) = true", "o.l = [1]", "x > 0 = true"] {
        assert!(steps.iter().any(|s| s == step), "{step} is not in {steps:#?}");
    }
    let plain = program.evaluate(&Activation::new().bind("o", &object), &mut Budget::default()).unwrap();
    assert_eq!(explanation.cost, plain.cost);
}
