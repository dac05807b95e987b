//! Every function and macro with what it gives and what it refuses, without the vector files. Costs and estimates are
//! in `costs.rs`.
#![allow(clippy::unwrap_used)]

use serde_json::json;
use usher_cel::golden::evaluate_line;

/// The value of an expression, or the text of its error.
fn eval(expr: &str) -> String {
    let answer = evaluate_line(&json!({"expr": expr}));
    for key in ["compileError", "error"] {
        if let Some(text) = answer.get(key) {
            return format!("error: {}", text.as_str().unwrap().lines().next().unwrap());
        }
    }
    answer["value"].to_string()
}

/// Expressions that must be true.
fn holds(expressions: &[&str]) {
    for expr in expressions {
        assert_eq!(eval(expr), r#"{"bool":true}"#, "{expr}");
    }
}

/// Expressions and the text of their errors.
fn fails(expressions: &[(&str, &str)]) {
    for (expr, text) in expressions {
        let found = eval(expr);
        assert!(found.starts_with("error: ") && found.ends_with(text), "{expr}: {found}, not {text}");
    }
}

#[test]
fn operators() {
    holds(&[
        "1 + 2 * 3 - 4 / 2 == 5",
        "7 % 3 == 1 && -7 % 3 == -1",
        "'a' + 'b' == 'ab' && b'a' + b'b' == b'ab' && [1] + [2] == [1, 2]",
        "1.5 * 2.0 == 3.0 && 3u / 2u == 1u",
        "1 < 2 && 2u >= 2u && 'a' < 'b' && b'a' <= b'b' && false < true",
        "1 == dyn(1.0) && dyn(1u) == 1 && dyn(1) != '1' && 1 < 1.5 && 2u > 1",
        "2 in [1, 2] && 'a' in {'a': 1} && !(3 in [1, 2]) && !('b' in {'a': 1})",
        "[1, 2][1] == 2 && {'a': 1}['a'] == 1 && {1: 2}[dyn(1u)] == 2 && [1][dyn(0.0)] == 1",
        "true || 1 / 0 == 1",
        "!(false && 1 / 0 == 1)",
        "1 / 0 == 1 || true",
        "true ? true : 1 / 0 == 1",
        "duration('1h') + duration('30m') == duration('90m')",
        "timestamp('2020-01-01T00:00:00Z') + duration('24h') == timestamp('2020-01-02T00:00:00Z')",
        "timestamp('2020-01-02T00:00:00Z') - timestamp('2020-01-01T00:00:00Z') == duration('24h')",
        "{'a': 1, 'a': 2}['a'] == 2",
        "[1, 2,] == [1, 2] && {'a': 1,} == {'a': 1}",
    ]);
    fails(&[
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("0u - 1u", "unsigned integer overflow"),
        ("[1][1]", "index out of bounds: 1"),
        ("[1][-1]", "index out of bounds: -1"),
        ("{'a': 1}.b", "no such key: b"),
        ("dyn(1).b", "no such key: b"),
        ("dyn('a') + 1", "no such overload"),
        ("dyn([1])['a']", "unsupported index type 'string' in list"),
        ("1 + 'a'", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("1 ? 2 : 3", "found no matching overload for '_?_:_' applied to '(int, int, int)'"),
        ("true && 1", "expected type 'bool' but found 'int'"),
        ("foo", "undeclared reference to 'foo' (in container '')"),
        ("'a'.foo()", "undeclared reference to 'foo' (in container '')"),
        ("'a'.b", "type 'string' does not support field selection"),
        ("dyn(true) && dyn(1)", "no such overload"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "timestamp overflow"),
        ("duration('2562047h') + duration('2562047h')", "duration overflow"),
        ("Object{a: 1}", "undeclared reference to 'Object' (in container '')"),
        ("int{a: 1}", "'int' is not a message type"),
        ("[1, 'a']", "expected type 'int' but found 'string'"),
        ("{'a': 1, 'b': true}", "expected type 'int' but found 'bool'"),
    ]);
}

#[test]
fn conversions_and_types() {
    holds(&[
        "int('1') == 1 && int(1.9) == 1 && int(1u) == 1 && int(timestamp('1970-01-01T00:00:01Z')) == 1 && int(duration('1s')) == 1000000000",
        "uint('1') == 1u && uint(1) == 1u && uint(1.9) == 1u",
        "double('1.5') == 1.5 && double(1) == 1.0 && double(1u) == 1.0",
        "string(1) == '1' && string(1u) == '1' && string(1.5) == '1.5' && string(true) == 'true' && string(b'a') == 'a'",
        "string(timestamp('2020-01-01T00:00:00Z')) == '2020-01-01T00:00:00Z' && string(duration('90s')) == '90s'",
        "bytes('a') == b'a' && bool('true') && !bool('0')",
        "type(1) == int && type('') == string && type([]) == list && type({}) == map && type(null) == null_type && type(int) == type",
        "type(timestamp(0)) == google.protobuf.Timestamp && type(duration('0')) == google.protobuf.Duration",
        "size('é') == 1 && size(b'é') == 2 && [1].size() == 1 && {'a': 1}.size() == 1 && 'ab'.size() == 2",
    ]);
    fails(&[
        ("int('x')", "type conversion error from 'string' to 'int'"),
        ("int(9.3e18)", "integer overflow"),
        ("timestamp('x')", "invalid timestamp argument"),
        ("duration('x')", "invalid duration argument"),
        ("'a'.matches('(')", "invalid matches argument"),
        ("dyn(1).startsWith('a')", "no such overload: startsWith(int, string)"),
    ]);
}

#[test]
fn strings() {
    holds(&[
        "'abc'.contains('b') && 'abc'.startsWith('a') && 'abc'.endsWith('c')",
        "'tacocat'.charAt(3) == 'o' && 'ab'.charAt(2) == ''",
        "'tacocat'.indexOf('o') == 3 && 'tacocat'.indexOf('a', 2) == 5 && 'tacocat'.indexOf('x') == -1 && 'abc'.indexOf('') == 0 && 'abc'.indexOf('a', 30) == -1",
        "'tacocat'.lastIndexOf('a') == 5 && 'tacocat'.lastIndexOf('a', 4) == 1 && 'tacocat'.lastIndexOf('') == 7 && 'héé'.lastIndexOf('é') == 2",
        "'TacoCÆt'.lowerAscii() == 'tacocÆt' && 'TacoCÆt'.upperAscii() == 'TACOCÆT'",
        "'hello hello'.replace('he', 'we') == 'wello wello' && 'hello hello'.replace('he', 'we', 1) == 'wello hello' && 'ab'.replace('', '_') == '_a_b_'",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'abc'.split('') == ['a', 'b', 'c'] && 'a,b'.split(',', 0) == []",
        "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco' && 'ta©o'.substring(2, 3) == '©'",
        "'  a\\n'.trim() == 'a'",
        "['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b' && [].join('x') == ''",
        "strings.quote('a\\n\"b\"') == '\"a\\\\n\\\\\"b\\\\\"\"'",
        "'%s is %d, %.2f, %x, %b, %o, %%'.format(['a', 1, 1.5, 255, 5, 8]) == 'a is 1, 1.50, ff, 101, 10, %'",
    ]);
    fails(&[
        ("'ab'.charAt(3)", "index out of range: 3"),
        ("'ab'.indexOf('a', -1)", "index out of range: -1"),
        ("'ab'.substring(3)", "index out of range: 3"),
        ("'ab'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
        ("'abc'.reverse()", "found no matching overload for 'reverse' applied to 'string.()'"),
        ("'%d'.format(['a'])", "error during formatting: decimal clause can only be used on integers, was given string"),
        ("'%s'.format([])", "index 0 out of range"),
        ("'a'.format([1])", "too many arguments supplied to string.format (expected 0, got 1)"),
    ]);
}

#[test]
fn lists_and_sets() {
    holds(&[
        "[1, 2, 2].isSorted() && !['b', 'a'].isSorted()",
        "[1, 2].sum() == 3 && [1.5, 1.5].sum() == 3.0 && [1u].sum() == 1u && [duration('1s'), duration('1s')].sum() == duration('2s')",
        "[3, 1, 2].min() == 1 && ['a', 'c', 'b'].max() == 'c' && [b'a', b'b'].max() == b'b'",
        "[1, 2, 2, 3].indexOf(2) == 1 && [1, 2, 2, 3].lastIndexOf(2) == 2 && [1].indexOf(5) == -1",
        "[1, 2].includes(1) && 'a'.includes('a') && ![1].includes(2)",
        "[1, 2, 3, 4].slice(1, 3) == [2, 3]",
        "[[1], [2, 3]].flatten() == [1, 2, 3] && [[[1], [2]], [[3]]].flatten(2) == [1, 2, 3]",
        "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b']",
        "[3, 1, 2].sortBy(x, -x) == [3, 2, 1] && ['ccc', 'a', 'bb'].sortBy(s, s.size()) == ['a', 'bb', 'ccc']",
        "lists.range(3) == [0, 1, 2] && lists.range(-1) == []",
        "[1, 2, 3].reverse() == [3, 2, 1]",
        "[dyn(1), dyn(2), dyn(1), dyn(1.0)].distinct() == [1, 2]",
        "sets.contains([1, 2, 3], [2, 3]) && !sets.contains([1], [2]) && sets.equivalent([1, 2, 1], [2, 1]) && sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2])",
        "[].sum() == 0",
    ]);
    fails(&[
        ("dyn([]).min()", "min called on empty list"),
        ("[1].slice(0, 2)", "cannot slice(0, 2), list is length 1"),
        ("[1].slice(-1, 0)", "cannot slice(-1, 0), negative indexes not supported"),
        ("[1, 2].slice(2, 1)", "cannot slice(2, 1), start index must be less than or equal to end index"),
        ("[[1]].flatten(-1)", "level must be non-negative"),
        ("[dyn(1), dyn('a')].sort()", "list elements must have the same type"),
        (
            "[{}].sortBy(x, x)",
            "found no matching overload for '@sortByAssociatedKeys' applied to 'list(map(dyn, dyn)).(list(map(dyn, dyn)))'",
        ),
    ]);
}

#[test]
fn macros() {
    holds(&[
        "has({'a': 1}.a) && !has({'a': 1}.b) && !has(dyn(1).b)",
        "[1, 2].all(x, x > 0) && ![1, 2].all(x, x > 1) && [].all(x, false)",
        "[1, 2].exists(x, x > 1) && !{'a': 1}.exists(k, k == 'b') && ![].exists(x, true)",
        "[1, 2, 3].exists_one(x, x > 2) && ![1, 2, 3].existsOne(x, x > 1)",
        "[1, 2].map(x, x * 2) == [2, 4] && [1, 2, 3].map(x, x > 1, x * 2) == [4, 6] && {'a': 1}.map(k, k) == ['a']",
        "[1, 2, 3].filter(x, x > 1) == [2, 3] && {'a': 1, 'b': 2}.filter(k, k > 'a') == ['b']",
        "[1, 2].all(i, v, v == i + 1) && {'a': 1}.all(k, v, k == 'a' && v == 1)",
        "['a'].exists(i, v, i == 0 && v == 'a') && [5, 6].existsOne(i, v, v > 5) && [5, 6].exists_one(i, v, v > 5)",
        "['a', 'b'].transformList(i, v, string(i) + v) == ['0a', '1b'] && [1, 2].transformList(i, v, i > 0, v) == [2]",
        "{'a': 1, 'b': 2}.transformMap(k, v, v * 2) == {'a': 2, 'b': 4} && ['x'].transformMap(i, v, v) == {0: 'x'} && {'a': 1, 'b': 2}.transformMap(k, v, v > 1, v) == {'b': 2}",
        "{'a': 'x'}.transformMapEntry(k, v, {v: k}) == {'x': 'a'} && {'a': 1, 'b': 2}.transformMapEntry(k, v, v > 1, {k: v}) == {'b': 2}",
        "[1, 0].exists(x, 1 / x > 0)",
        "[[1, 2], [3]].map(l, l.map(x, x + l.size())) == [[3, 4], [4]]",
    ]);
    fails(&[
        ("{'a': 1, 'b': 1}.transformMapEntry(k, v, {v: k})", "insert failed: key 1 already exists"),
        ("[0].all(x, 1 / x > 0)", "division by zero"),
        ("[0].map(x, 1 / x)", "division by zero"),
        ("[0].filter(x, 1 / x > 0)", "division by zero"),
        ("[0, 1].exists_one(x, 1 / x > 0)", "division by zero"),
        ("dyn(1).all(x, true)", "got 'int', expected iterable type"),
        ("dyn(1).all(i, v, true)", "unsupported comprehension range type: int"),
        ("1.all(x, true)", "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)"),
        ("[1].all(x, 1)", "expected type 'bool' but found 'int'"),
        ("[1].exists_one(x, 1)", "found no matching overload for '_?_:_' applied to '(int, int, int)'"),
        ("[dyn(1)].all(x, x)", "no such overload"),
    ]);
}

#[test]
fn optionals() {
    holds(&[
        "optional.of(1).value() == 1 && optional.of(1).hasValue() && !optional.none().hasValue()",
        "optional.ofNonZeroValue(0) == optional.none() && optional.ofNonZeroValue('a') == optional.of('a') && !optional.ofNonZeroValue(null).hasValue()",
        "{'a': 1}.?a == optional.of(1) && {'a': 1}.?b == optional.none() && {'a': {'b': 1}}.?a.b == optional.of(1) && {'a': {}}.?a.?b.?c == optional.none()",
        "[1][?0] == optional.of(1) && [1][?1] == optional.none() && {'a': 1}[?'b'] == optional.none()",
        "optional.none().or(optional.of(1)) == optional.of(1) && optional.none().orValue(1) == 1 && optional.of(2).orValue(1 / 0) == 2",
        "optional.of(1).optMap(x, x + 1) == optional.of(2) && optional.none().optMap(x, x + 1) == optional.none()",
        "optional.of({'a': 1}).optFlatMap(x, x.?a) == optional.of(1) && optional.of({'a': 1}).optFlatMap(x, x.?b) == optional.none()",
        "[1, 2].first() == optional.of(1) && [1, 2].last() == optional.of(2) && ![].first().hasValue() && ![].last().hasValue()",
        "optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of(1), optional.none()].unwrapOpt() == [1]",
        "[?optional.of(1), ?optional.none()] == [1] && {?'a': optional.of(1), ?'b': optional.none()} == {'a': 1}",
        "has({'a': {'b': 1}}.?a.b) && !has({}.?a.b)",
    ]);
    fails(&[
        ("optional.none().value()", "optional.none() dereference"),
        ("[?1]", "expected type 'optional_type(int)' but found 'int'"),
        ("[?dyn(1)]", "cannot initialize optional list element from non-optional value 1"),
        ("{?'a': dyn(1)}", "cannot initialize optional entry 'a' from non-optional value 1"),
        ("1.optMap(x, x)", "found no matching overload for 'hasValue' applied to 'int.()'"),
        ("dyn(1).orValue(2)", "no such overload"),
    ]);
}

#[test]
fn regular_expressions() {
    holds(&[
        "'abc'.matches('^a.c$') && matches('abc', 'b') && !'abc'.matches('^b')",
        "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('x') == ''",
        "'1 2 3'.findAll('[0-9]') == ['1', '2', '3'] && '1 2 3'.findAll('[0-9]', 2) == ['1', '2'] && 'a'.findAll('x') == []",
        "'a'.matches(['[a', ']'].join())",
    ]);
    assert!(eval("'a'.matches(['(', 'a'].join())").starts_with("error: error parsing regexp"));
    assert!(eval("'a'.find(['(', 'a'].join())").starts_with("error: Illegal regex: error parsing regexp"));
}

#[test]
fn urls() {
    holds(&[
        "isURL('https://a.b:80/c?d=e') && !isURL('../a') && isURL('/a')",
        "url('https://user:pw@a.b:80/c d?x=1&x=2&y=%20').getScheme() == 'https' && url('https://a.b:80/').getHost() == 'a.b:80'",
        "url('https://a.b:80/').getHostname() == 'a.b' && url('https://a.b:80/').getPort() == '80' && url('https://[::1]/').getHostname() == '::1'",
        "url('https://a/c d').getEscapedPath() == '/c%20d' && url('https://a').getEscapedPath() == ''",
        "url('https://a/?x=1&x=2&y=%20').getQuery() == {'x': ['1', '2'], 'y': [' ']}",
        "url('https://a/') == url('https://a/') && url('https://a/') != url('https://b/')",
    ]);
    fails(&[("url('../a')", "URL parse error during conversion from string: parse \"../a\": invalid URI for request")]);
}

#[test]
fn quantities() {
    holds(&[
        "isQuantity('1.5Gi') && !isQuantity('1.5Go')",
        "quantity('1k').isLessThan(quantity('1Ki')) && quantity('2').isGreaterThan(quantity('1')) && quantity('1').compareTo(quantity('1000m')) == 0",
        "quantity('50k').asInteger() == 50000 && quantity('50k').isInteger() && !quantity('1.5').isInteger() && quantity('1.5').asApproximateFloat() == 1.5",
        "sign(quantity('-1')) == -1 && quantity('1').add(quantity('500m')) == quantity('1500m') && quantity('1').add(1) == quantity('2') && quantity('1').sub(2) == quantity('-1')",
    ]);
    fails(&[("quantity('1.5').asInteger()", "cannot convert value to integer")]);
}

#[test]
fn addresses() {
    holds(&[
        "isIP('127.0.0.1') && isIP('::1') && !isIP('127.0.0.256') && !isIP('01.0.0.1') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')",
        "ip('127.0.0.1').family() == 4 && ip('::1').family() == 6 && ip('::1').isLoopback() && ip('0.0.0.0').isUnspecified()",
        "ip('224.0.0.1').isLinkLocalMulticast() && ip('169.254.0.1').isLinkLocalUnicast() && ip('fe80::1').isLinkLocalUnicast() && ip('8.8.8.8').isGlobalUnicast() && !ip('127.0.0.1').isGlobalUnicast()",
        "ip.isCanonical('::1') && !ip.isCanonical('::01') && string(ip('::01')) == '::1' && ip('::1') == ip('0::1')",
        "isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0')",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsIP(ip('10.1.2.3')) && !cidr('10.0.0.0/8').containsIP('11.0.0.1') && !cidr('::/0').containsIP('1.2.3.4')",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.0.0.0/8').containsCIDR(cidr('10.0.0.0/8')) && !cidr('10.0.0.0/8').containsCIDR('0.0.0.0/0')",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.1.2.3/8').ip() == ip('10.1.2.3') && cidr('10.0.0.0/8').prefixLength() == 8 && string(cidr('10.0.0.0/8')) == '10.0.0.0/8'",
        "type(ip('::1')) == net.IP && type(cidr('::/0')) == net.CIDR",
    ]);
    fails(&[("ip('::ffff:1.2.3.4')", "IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed")]);
}

#[test]
fn formats() {
    let names = [
        "dns1123Label",
        "dns1123Subdomain",
        "dns1035Label",
        "qualifiedName",
        "dns1123LabelPrefix",
        "dns1123SubdomainPrefix",
        "dns1035LabelPrefix",
        "labelValue",
    ];
    for name in names {
        holds(&[
            &format!("!format.{name}().validate('abc').hasValue()"),
            &format!("format.{name}().validate('a b!').hasValue()"),
            &format!("format.named('{name}').value() == format.{name}()"),
        ]);
    }
    holds(&[
        "!format.uri().validate('https://a/').hasValue() && format.uri().validate('../a').hasValue()",
        "!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue() && format.uuid().validate('x').value() == ['does not match the UUID format']",
        "!format.byte().validate('aGk=').hasValue() && format.byte().validate('aGk').value() == ['invalid base64']",
        "!format.date().validate('2020-02-29').hasValue() && format.date().validate('2021-02-29').value() == ['invalid date']",
        "!format.datetime().validate('2020-02-29T00:00:00Z').hasValue() && format.datetime().validate('x').value() == ['invalid datetime']",
        "!format.named('nothing').hasValue()",
    ]);
}

#[test]
fn versions() {
    holds(&[
        "isSemver('1.2.3') && !isSemver('v1.2') && isSemver('v1.2', true) && !isSemver('1.2.3-')",
        "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0').isGreaterThan(semver('1.0.0-rc.1')) && semver('1.0.0').compareTo(semver('1.0.0+build')) == 0",
        "semver('v01.2', true) == semver('1.2.0')",
    ]);
    fails(&[("semver('v1.0')", "No Major.Minor.Patch elements found")]);
}

#[test]
fn dates() {
    let t = "timestamp('2009-02-13T23:31:30.250Z')";
    holds(&[
        &format!(
            "{t}.getFullYear() == 2009 && {t}.getMonth() == 1 && {t}.getDate() == 13 && {t}.getDayOfMonth() == 12 && {t}.getDayOfYear() == 43 && {t}.getDayOfWeek() == 5"
        ),
        &format!("{t}.getHours() == 23 && {t}.getMinutes() == 31 && {t}.getSeconds() == 30 && {t}.getMilliseconds() == 250"),
        &format!("{t}.getHours('02:00') == 1 && {t}.getHours('-02:30') == 21 && {t}.getDate('Asia/Tokyo') == 14"),
        &format!(
            "{t}.getFullYear('UTC') == 2009 && {t}.getMonth('UTC') == 1 && {t}.getDayOfMonth('UTC') == 12 && {t}.getDayOfYear('UTC') == 43 && {t}.getDayOfWeek('UTC') == 5 && {t}.getMinutes('UTC') == 31 && {t}.getSeconds('UTC') == 30 && {t}.getMilliseconds('UTC') == 250"
        ),
        "duration('1h30m').getHours() == 1 && duration('1h30m').getMinutes() == 90 && duration('1m').getSeconds() == 60 && duration('1s').getMilliseconds() == 1000",
    ]);
    fails(&[(&format!("{t}.getHours('Nowhere')"), "unknown time zone Nowhere")]);
}

/// The macros, which are no functions and stand in no table.
const MACROS: &[&str] = &[
    "has",
    "all",
    "exists",
    "exists_one",
    "existsOne",
    "map",
    "filter",
    "transformList",
    "transformMap",
    "transformMapEntry",
    "optMap",
    "optFlatMap",
    "sortBy",
];

#[test]
fn every_function_and_macro_is_tried_by_these_tests() {
    let tests = [include_str!("functions.rs"), include_str!("policies.rs")].concat();
    let functions = usher_cel::Environment::kubernetes().with_jsonpatch().completions();
    assert!(functions.len() > 100, "{functions:?}");
    for name in functions.iter().map(String::as_str).chain(MACROS.iter().copied()) {
        // The named formats are called in a loop over their quoted names.
        let called = format!("{name}(");
        let listed = name.strip_prefix("format.").map(|format| format!("\"{format}\""));
        assert!(tests.contains(&called) || listed.is_some_and(|listed| tests.contains(&listed)), "no test calls {name}");
    }
}
