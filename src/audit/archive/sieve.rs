//! What the columns alone can say about a CEL expression. An event for which one operand of an `&&` is not true is none that is asked
//! for; an operand that reads nothing but what columns have is asked once for each combination of words there is, and not once for
//! each record. A sieve may let too much through, never too little: what is left is asked the whole expression.

use std::collections::HashMap;

use serde_json::Value;
use usher_cel::{Reads, conjuncts};

use super::columns::{Column, Columns, distinct, hash};
use crate::audit::Event;
use crate::audit::event::{ObjectReference, ResponseStatus, UserInfo};
use crate::audit::expression::Expression;

/// What an expression may read, by the part of an event that it is in, and the column that has it.
const READABLE: [(&str, &str, Column); 8] = [
    ("", "verb", Column::Verb),
    ("", "stage", Column::Stage),
    ("user", "username", Column::User),
    ("objectRef", "resource", Column::Resource),
    ("objectRef", "subresource", Column::Resource),
    ("objectRef", "apiGroup", Column::Group),
    ("objectRef", "namespace", Column::Namespace),
    ("responseStatus", "code", Column::Code),
];

/// What can be compared with a text, and the column of its hashes.
const COMPARABLE: [(&str, Column); 2] = [("event.auditID", Column::AuditId), ("event.objectRef.name", Column::Name)];

/// The operands of an expression that columns can be asked about.
#[derive(Debug, Default)]
pub struct Sieve {
    tests: Vec<Test>,
}

#[derive(Debug)]
enum Test {
    /// What must be true of the words of some columns.
    Words(Expression, Vec<Column>),
    /// What the hash must be.
    Hash(Column, u32),
}

impl Sieve {
    /// What can be known of an expression.
    pub fn of(expression: &Expression) -> Sieve {
        let test = |part: usher_cel::Conjunct| {
            let known = part.equals.and_then(|(name, text)| {
                let column = COMPARABLE.iter().find(|(known, _)| *known == name)?.1;
                Some(Test::Hash(column, hash(&text)))
            });
            known.or_else(|| {
                let operand = Expression::compile(&part.source).ok()?;
                let columns = columns(operand.reads())?;
                Some(Test::Words(operand, columns))
            })
        };
        Sieve { tests: conjuncts(expression.source()).into_iter().filter_map(test).collect() }
    }

    /// The columns that it needs to see.
    pub fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        for test in &self.tests {
            match test {
                Test::Words(_, needed) => columns.extend(needed),
                Test::Hash(column, _) => columns.push(*column),
            }
        }
        distinct(columns)
    }

    /// Leaves the rows that may be what is asked for.
    pub fn keep(&self, rows: &mut Vec<u16>, columns: &Columns) {
        for test in &self.tests {
            match test {
                Test::Hash(column, wanted) => {
                    let hashes = columns.hashes(*column);
                    rows.retain(|row| hashes.get(usize::from(*row)) == Some(wanted));
                }
                Test::Words(operand, needed) => {
                    let mut known: HashMap<u128, bool> = HashMap::new();
                    rows.retain(|row| {
                        let row = usize::from(*row);
                        // A column has 16 bits of each row, and there are no more than eight of them.
                        let words = needed.iter().try_fold(0, |words, column| Some(words << 16 | u128::from(code(columns, *column, row)?)));
                        // A column that is too short says nothing.
                        let Some(words) = words else { return true };
                        *known.entry(words).or_insert_with(|| {
                            event(columns, needed, row).is_none_or(|event| operand.holds(&event) || operand.gave_up().is_some())
                        })
                    });
                }
            }
        }
    }
}

/// The columns that have everything that is read; `None` if there are none.
fn columns(reads: &Reads) -> Option<Vec<Column>> {
    let column = |part: &str, field: &str| Some(READABLE.iter().find(|(of, known, _)| (*of, *known) == (part, field))?.2);
    let mut columns = Vec::new();
    for name in names(reads)? {
        match READABLE.iter().any(|(part, ..)| *part == name) {
            false => columns.push(column("", name)?),
            true => {
                for field in names(reads.field(name)?)? {
                    columns.push(column(name, field)?);
                }
            }
        }
        if name == "objectRef" {
            // It tells whether there is a reference at all.
            columns.push(Column::Resource);
        }
    }
    Some(distinct(columns)).filter(|columns| !columns.is_empty())
}

/// The fields that are read, if nothing else is.
fn names(reads: &Reads) -> Option<Vec<&str>> {
    let named: Vec<&str> = reads.names().collect();
    let else_nothing = !reads.plain() && reads.item().is_none() && reads.field("").is_none();
    (else_nothing && !named.is_empty()).then_some(named)
}

fn code(columns: &Columns, column: Column, row: usize) -> Option<u16> {
    match column {
        Column::Code => columns.codes.get(row).copied(),
        column => columns.words(column).codes.get(row).copied(),
    }
}

/// An event that says what the columns of a row say; `None` if those could be of different events.
fn event(columns: &Columns, needed: &[Column], row: usize) -> Option<Value> {
    let word = |column: Column| {
        let code = code(columns, column, row).filter(|_| needed.contains(&column)).map(usize::from);
        code.and_then(|code| columns.words(column).dictionary.words.get(code)).map(ToString::to_string).unwrap_or_default()
    };
    let mut event = Event { verb: word(Column::Verb).into(), ..Event::default() };
    event.user = UserInfo { username: word(Column::User), ..UserInfo::default() };
    if needed.contains(&Column::Resource) {
        let resource = word(Column::Resource);
        // No reference, or one that says nothing; a subresource, or a strange name.
        if resource.is_empty() || resource.contains('/') {
            return None;
        }
        let (namespace, api_group) = (word(Column::Namespace), word(Column::Group));
        event.object_ref = Some(ObjectReference { resource, namespace, api_group, ..ObjectReference::default() });
    }
    if needed.contains(&Column::Code) {
        // No status, or one without a code.
        let code = code(columns, Column::Code, row).filter(|code| *code != 0)?;
        event.response_status = Some(ResponseStatus { code, ..ResponseStatus::default() });
    }
    let mut value = serde_json::to_value(event).ok()?;
    if needed.contains(&Column::Stage) {
        value["stage"] = word(Column::Stage).into();
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::super::block::Place;
    use super::*;

    /// Events that differ in everything that columns have, and in what they do not.
    fn events() -> Vec<Event> {
        let mut all = Vec::new();
        for number in 0..512u32 {
            let bit = |at: u32| number >> at & 1 == 1;
            let mut event = serde_json::json!({"auditID": format!("id-{}", number % 3), "verb": if bit(0) { "get" } else { "delete" },
                "stage": if bit(1) { "ResponseComplete" } else { "ResponseStarted" }, "requestURI": "/x",
                "user": {"username": if bit(2) { "jane" } else { "" }}});
            if bit(3) {
                event["objectRef"] =
                    serde_json::json!({"resource": if bit(4) { "pods" } else { "" }, "name": if bit(5) { "web" } else { "db" }});
                if bit(6) {
                    event["objectRef"]["subresource"] = "log".into();
                }
                if bit(7) {
                    event["objectRef"]["namespace"] = "default".into();
                    event["objectRef"]["apiGroup"] = "apps".into();
                }
                if bit(8) {
                    event["objectRef"]["resource"] = "pods/log".into();
                }
            }
            if bit(7) {
                event["responseStatus"] = serde_json::json!({"metadata": {}, "code": if bit(8) { 403 } else { 0 }});
                event["impersonatedUser"] = serde_json::json!({"username": "joe"});
            }
            all.push(serde_json::from_value(event).unwrap());
        }
        all
    }

    const OPERANDS: [&str; 26] = [
        "event.verb == 'get'",
        "event.verb != 'get'",
        "event.verb in ['get', 'list']",
        "event.verb.size() == 3",
        "event.stage == 'ResponseComplete'",
        "event.user.username.startsWith('j')",
        "!has(event.user.username)",
        "event.user.username == 'jane' || event.verb == 'get'",
        "has(event.objectRef)",
        "!has(event.objectRef)",
        "has(event.objectRef.subresource)",
        "!has(event.objectRef.subresource)",
        "event.objectRef.resource == 'pods'",
        "event.objectRef.resource == 'pods/log'",
        "event.objectRef.subresource == 'log'",
        "event.objectRef.namespace == 'default'",
        "!has(event.objectRef.namespace)",
        "event.objectRef.apiGroup == 'apps'",
        "!has(event.objectRef.apiGroup) && event.objectRef.resource == 'pods'",
        "event.objectRef.name == 'web'",
        "event.responseStatus.code >= 400",
        "!has(event.responseStatus.code) || event.responseStatus.code == 0",
        "event.auditID == 'id-1'",
        "event.impersonatedUser.username == 'joe'",
        "event.exists(k, k == 'objectRef')",
        "true",
    ];

    #[test]
    fn nothing_is_left_out_that_the_expression_asks_for_whatever_its_operands_are() {
        let events = events();
        let mut columns = Columns::default();
        events.iter().for_each(|event| columns.push(Place::default(), event));
        let values: Vec<Value> = events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
        let left = |expression: &Expression| {
            let sieve = Sieve::of(expression);
            let mut rows: Vec<u16> = (0..events.len() as u16).collect();
            sieve.keep(&mut rows, &columns.copy(&sieve.columns()));
            rows
        };
        for first in OPERANDS {
            for second in OPERANDS {
                let expression = Expression::compile(&format!("{first} && ({second})")).unwrap();
                let rows = left(&expression);
                for (row, value) in values.iter().enumerate().filter(|(_, value)| expression.holds(value)) {
                    assert!(rows.contains(&(row as u16)), "{first} && {second} holds for {value}");
                }
            }
        }
        let few = Expression::compile("event.verb == 'get' && event.user.username == 'jane' && event.requestURI == '/y'").unwrap();
        assert_eq!(left(&few).len(), events.len() / 4, "what columns know is asked of no event");
    }

    #[test]
    fn what_columns_have_is_asked_of_them_and_nothing_else() {
        let needed = |source: &str| Sieve::of(&Expression::compile(source).unwrap()).columns();
        assert_eq!(needed("event.verb == 'get' && event.requestURI.contains('x')"), [Column::Verb]);
        assert_eq!(needed("event.objectRef.name == 'a' && event.responseStatus.code > 399"), [Column::Code, Column::Name]);
        assert_eq!(needed("event.objectRef.namespace == 'a'"), [Column::Resource, Column::Namespace]);
        for other in
            ["event.verb == 'a' || event.requestURI == 'b'", "event.user == {'username': 'a'}", "event == {}", "has(event.user)", "true"]
        {
            assert_eq!(needed(other), [], "{other}");
        }
    }
}
