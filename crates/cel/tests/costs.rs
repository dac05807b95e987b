//! What expressions cost, and what they are estimated to cost before anybody runs them: one of every sort of function and loop. The
//! figures are those by which Kubernetes' budgets are spent; a change here makes a policy cheaper or dearer than on a real server.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use usher_cel::golden::evaluate_line;
use usher_cel::{Activation, Budget, Environment, EvalError, MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, RUNTIME_BUDGET, Type};

/// Expression, cost, least and most that is estimated.
#[rustfmt::skip]
const COSTS: &[(&str, u64, u64, u64)] = &[
    ("1 + 2 == 3", 2, 2, 2),
    ("'usher' + ' shows a seat' == 'usher shows a seat'", 4, 3, 4),
    ("[1, 2] + [3] == [1, 2, 3]", 2, 32, 32),
    ("3 in [1, 2, 3]", 0, 13, 13),
    ("'k' in {'k': 1}", 1, 31, 31),
    ("true || 1 / 0 == 1", 0, 0, 2),
    ("false ? 1 : 2", 0, 0, 0),
    ("has({'seat': 1}.seat)", 1, 30, 30),
    ("['a', 'b', 'c'].all(x, x != 'd')", 16, 20, 26),
    ("['a', 'b', 'c'].exists(x, x == 'b')", 16, 23, 29),
    ("['a', 'b', 'c'].exists_one(x, x == 'b')", 10, 21, 24),
    ("['a', 'b', 'c'].map(x, x + '!')", 43, 63, 63),
    ("['a', 'b', 'c'].filter(x, x != 'b')", 33, 30, 66),
    ("[1, 2].map(x, [3, 4].map(y, x * y))", 87, 147, 147),
    ("{'a': 1, 'b': 2}.all(k, v, v > 0)", 11, 37, 41),
    ("['a', 'b'].transformList(i, v, v)", 27, 47, 47),
    ("{'a': 1}.transformMap(k, v, v + 1)", 6, 66, 66),
    ("{'a': 1}.transformMapEntry(k, v, {v: k})", 35, 95, 95),
    ("optional.of(1).optMap(x, x + 1)", 7, 3, 17),
    ("{'a': 1}.?a.orValue(2)", 2, 32, 32),
    ("'the quick brown fox'.contains('brown')", 2, 2, 2),
    ("'the quick brown fox'.startsWith('the')", 1, 1, 1),
    ("'the quick brown fox'.matches('q[a-z]+k')", 4, 4, 4),
    ("'the quick brown fox'.find('b[a-z]+')", 4, 4, 4),
    ("'the quick brown fox'.findAll('[a-z]+')", 4, 4, 4),
    ("'the quick brown fox'.split(' ')", 4, 4, 4),
    ("'the quick brown fox'.replace('quick', 'slow')", 4, 4, 4),
    ("'the quick brown fox'.upperAscii()", 2, 2, 2),
    ("'the quick brown fox'.substring(4, 9)", 2, 2, 2),
    ("'the quick brown fox'.indexOf('fox')", 1, 2, 2),
    ("['the', 'quick'].join(' ')", 2, 11, 1844674407370955274),
    ("'%s %d'.format(['seat', 12])", 1, 11, 11),
    ("size('the quick brown fox')", 1, 1, 1),
    ("string(12345)", 0, 1, 1),
    ("[3, 1, 2].sum()", 3, 13, 13),
    ("[3, 1, 2].max()", 3, 13, 13),
    ("[1, 2, 3].isSorted()", 3, 13, 13),
    ("[1, 2, 2].indexOf(2)", 3, 13, 13),
    ("[3, 1, 2].sort()", 29, 39, 39),
    ("[[1], [2]].flatten()", 13, 43, 43),
    ("[1, 2, 1].distinct()", 29, 39, 39),
    ("[1, 2, 3].slice(0, 2)", 13, 23, 23),
    ("lists.range(3)", 14, 14, 14),
    ("sets.contains([1, 2], [2])", 3, 23, 23),
    ("sets.intersects([1, 2], [2])", 3, 23, 23),
    ("quantity('1Gi').isGreaterThan(quantity('1G'))", 3, 3, 3),
    ("quantity('1').add(quantity('2'))", 3, 3, 3),
    ("ip('192.168.0.1').family()", 3, 3, 3),
    ("cidr('192.168.0.0/16').containsIP('192.168.3.4')", 5, 5, 8),
    ("url('https://example.com/seat').getHost()", 4, 4, 4),
    ("isURL('https://example.com/seat')", 1, 1, 1),
    ("semver('1.2.3').isLessThan(semver('1.3.0'))", 3, 3, 3),
    ("format.dns1123Label().validate('row-12')", 9, 33, 33),
    ("timestamp('2030-01-01T00:00:00Z').getFullYear()", 1, 2, 2),
    ("duration('90s').getSeconds()", 1, 2, 2),
];

#[test]
fn every_sort_of_work_has_its_price() {
    for (expression, cost, least, most) in COSTS {
        let answer = evaluate_line(&json!({"expr": expression}));
        let found = (answer["cost"].as_u64(), answer["estMin"].as_u64(), answer["estMax"].as_u64());
        assert_eq!(found, (Some(*cost), Some(*least), Some(*most)), "{expression}");
    }
}

#[test]
fn work_grows_with_what_it_is_done_on() {
    let environment = Environment::kubernetes().variable("object", Type::Dyn);
    let cost = |expression: &str, n: usize| {
        let object = json!({"list": vec!["x"; n], "text": "x".repeat(n)});
        let program = environment.compile(expression).unwrap();
        program.evaluate(&Activation::new().bind("object", &object), &mut Budget::default()).unwrap().cost
    };
    for expression in
        ["object.list.all(x, x == 'x')", "object.text.contains('y')", "object.list.map(x, x + x)", "object.text.matches('y+')"]
    {
        let (small, large) = (cost(expression, 100), cost(expression, 1000));
        assert!(large > small * 5 && large < small * 20, "{expression}: {small} for 100, {large} for 1000");
    }
    assert_eq!(cost("object.list.size() > 0", 10), cost("object.list.size() > 0", 10_000), "a size is known without counting");
}

#[test]
fn a_budget_runs_out_exactly_where_it_says() {
    let environment = Environment::kubernetes().variable("object", Type::Dyn);
    let program = environment.compile("object.list.all(x, object.list.all(y, x == y))").unwrap();
    let small = json!({"list": vec![1; 50]});
    let activation = Activation::new().bind("object", &small);
    let cost = program.evaluate(&activation, &mut Budget::new(RUNTIME_BUDGET)).unwrap().cost;
    assert!(program.evaluate(&activation, &mut Budget::new(cost)).is_ok());
    assert!(matches!(program.evaluate(&activation, &mut Budget::new(cost - 1)), Err(EvalError::BudgetExhausted)));
    // What several expressions share is spent by all of them.
    let mut shared = Budget::new(MATCH_CONDITIONS_BUDGET);
    let rounds = (0..).take_while(|_| program.evaluate(&activation, &mut shared).is_ok()).count() as u64;
    assert_eq!(rounds, MATCH_CONDITIONS_BUDGET / cost);
}

#[test]
fn one_expression_may_not_spend_more_than_its_own_limit_whatever_the_budget() {
    let environment = Environment::kubernetes().variable("object", Type::Dyn);
    let program = environment.compile("object.list.all(x, object.list.all(y, x == y))").unwrap();
    let large = json!({"list": vec![1; 3000]});
    let activation = Activation::new().bind("object", &large);
    let mut budget = Budget::new(u64::MAX);
    assert!(program.evaluate(&activation, &mut budget).is_err());
    assert!(budget.used() <= PER_CALL_LIMIT * 2, "it stopped soon after the limit, at {}", budget.used());
}
