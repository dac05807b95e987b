//! What an expression is said to read of a variable is enough for it: cut down to that, a value gives the same answer as whole.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use usher_cel::{Activation, Budget, Environment, Reads, Type};

/// A value with nothing in it but what is read.
fn cut(value: &Value, reads: &Reads) -> Value {
    match value {
        _ if reads.only_presence() => Value::Null,
        Value::Object(map) => {
            let kept = map.iter().filter_map(|(name, value)| Some((name.clone(), cut(value, reads.field(name)?))));
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(items) => {
            Value::Array(reads.item().map(|reads| items.iter().map(|item| cut(item, reads)).collect()).unwrap_or_default())
        }
        plain if reads.plain() => plain.clone(),
        Value::String(_) => "".into(),
        Value::Number(_) => 7.into(),
        other => other.clone(),
    }
}

/// Ways to values; `x` and `v` stand for what is gone through, `k` for a key or an index.
fn path() -> impl Strategy<Value = String> {
    let root = prop_oneof![2 => Just("event".to_owned()), 2 => Just("event.list".to_owned()), 2 => Just("x".to_owned()), 1 => Just("v".to_owned()), 1 => Just("k".to_owned())];
    let step = || {
        prop_oneof![
            4 => prop_oneof![Just(".a"), Just(".b"), Just(".list"), Just("['a']")].prop_map(str::to_owned),
            1 => Just("[0]".to_owned()),
            1 => Just("[k]".to_owned()),
            1 => Just("[event.key]".to_owned()),
            1 => Just(".?b.orValue({'a': 1})".to_owned()),
            1 => Just(".filter(x, x.a == 1)".to_owned()),
            1 => Just(".map(x, x.b)".to_owned()),
            1 => Just(".sortBy(x, x.a)".to_owned()),
        ]
    };
    (root, proptest::collection::vec(step(), 0..3)).prop_map(|(root, steps)| root + &steps.concat())
}

fn literal() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("1"),
        Just("'s'"),
        Just("{}"),
        Just("[]"),
        Just("{'a': 1}"),
        Just("[1, 's']"),
        Just("{'b': {'a': 1}}"),
        Just("null"),
        Just("[{'a': 1}]")
    ]
}

fn condition() -> impl Strategy<Value = String> {
    let simple = prop_oneof![
        (path(), literal()).prop_map(|(path, literal)| format!("{path} == {literal}")),
        (path(), literal()).prop_map(|(path, literal)| format!("{literal} != {path}")),
        (path(), path()).prop_map(|(left, right)| format!("{left} == {right}")),
        (path(), path()).prop_map(|(left, right)| format!("{left} in {right}")),
        (path(), literal()).prop_map(|(path, literal)| format!("{literal} in {path}")),
        (path(), literal(), literal()).prop_map(|(path, one, two)| format!("{path} in [{one}, {two}]")),
        path().prop_map(|path| format!("has({path}.a)")),
        (path(), literal()).prop_map(|(path, literal)| format!("dyn({path}).a == {literal}")),
        path().prop_map(|path| format!("size({path}) == 2")),
        path().prop_map(|path| format!("{path} > 0")),
        path().prop_map(|path| format!("{path}.startsWith('s')")),
        path().prop_map(|path| format!("type({path}) == string")),
        (path(), path()).prop_map(|(left, right)| format!("[{left}].exists(x, x == {right})")),
        (path(), path()).prop_map(|(left, right)| format!("{left} + {right} == {right} + {left}")),
    ];
    simple.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|one| format!("!({one})")),
            (inner.clone(), inner.clone()).prop_map(|(one, two)| format!("({one} && {two})")),
            (inner.clone(), inner.clone()).prop_map(|(one, two)| format!("({one} || {two})")),
            (inner.clone(), path(), path(), literal())
                .prop_map(|(one, left, right, literal)| format!("({one} ? {left} : {right}) == {literal}")),
            (path(), inner.clone()).prop_map(|(path, one)| format!("{path}.exists(x, {one})")),
            (path(), inner.clone()).prop_map(|(path, one)| format!("{path}.all(x, {one})")),
            (path(), inner.clone()).prop_map(|(path, one)| format!("{path}.exists(k, v, {one})")),
            (path(), inner.clone()).prop_map(|(path, one)| format!("{path}.exists(k, {one})")),
            (path(), inner.clone()).prop_map(|(path, one)| format!("{path}.filter(x, {one}).size() == 1")),
            (path(), inner.clone(), literal()).prop_map(|(path, one, literal)| format!("{path}.filter(x, {one}) == {literal}")),
            (path(), inner.clone()).prop_map(|(path, one)| format!("{path}.transformMap(k, v, {one}) == {{'a': true}}")),
            (path(), inner.clone()).prop_map(|(path, one)| format!("optional.of({path}).optMap(x, {one}).orValue(false)")),
            (inner.clone(), literal()).prop_map(|(one, literal)| format!("event.list.filter(x, {one})[0].b == {literal}")),
            (inner.clone(), inner.clone()).prop_map(|(one, two)| format!("event.list.filter(x, {one}).exists(x, {two})")),
            (path(), path(), inner.clone()).prop_map(|(range, body, one)| format!("{range}.map(x, {body}).exists(x, {one})")),
            (path(), path(), inner.clone()).prop_map(|(range, body, one)| format!("{range}.map(k, {body}).all(v, {one})")),
            (path(), path(), inner.clone()).prop_map(|(one, two, three)| format!("[{one}, {two}].exists(x, {three})")),
            (path(), path(), literal()).prop_map(|(one, two, literal)| format!("[{one}, {two}][0].a == {literal}")),
            (path(), path()).prop_map(|(range, body)| format!("size({range}.map(x, {body})) == 2")),
            (inner.clone(), literal())
                .prop_map(|(one, literal)| format!("(event.list + event.list).filter(x, {one}).map(x, x.a) == [{literal}]")),
            (path(), inner).prop_map(|(path, one)| format!("[1].exists(event, {one}) || {path} == 1")),
        ]
    })
}

fn event() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(1)), Just(json!(0)), Just(json!("s")), Just(json!("a")), Just(Value::Null), Just(json!(true))];
    let any = leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            proptest::collection::btree_map(prop_oneof![Just("a"), Just("b"), Just("list"), Just("s")], inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())),
        ]
    });
    let item = (any.clone(), any.clone()).prop_map(|(a, b)| json!({"a": a, "b": b}));
    let list = proptest::collection::vec(prop_oneof![4 => item, 1 => any.clone()], 0..3);
    (any.clone(), any, list).prop_map(|(a, b, list)| json!({"a": a, "b": b, "list": list, "key": "a"}))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_not_read_changes_no_answer(source in condition(), event in event()) {
        let environment = Environment::kubernetes().variable("event", Type::Dyn).variable("x", Type::Dyn).variable("v", Type::Dyn).variable("k", Type::Dyn);
        // Not all that is put together this way is of the right type.
        if let Ok(program) = environment.compile(&source) {
            let answer = |event: &Value| {
                let (x, k) = (json!({"a": 1}), json!("b"));
                let activation = Activation::new().bind("event", event).bind("x", &x).bind("v", &x).bind("k", &k);
                program.evaluate(&activation, &mut Budget::default()).ok().and_then(|done| done.value.as_bool())
            };
            let seen = cut(&event, &Reads::of(&source, "event"));
            prop_assert_eq!(answer(&seen), answer(&event), "{} sees {}", source, seen);
        }
    }
}
