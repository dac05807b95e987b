//! What an expression reads of a variable, as far as its text tells: whoever has to make the variable's value first need not make what
//! nobody looks at.

use std::sync::Arc;

use crate::ast::{Ast, Expr, ExprId, Literal, Macro, operators};
use crate::parser::parse;

/// What is read of a value. The default is that it is there, and nothing else of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    all: bool,
    keys: bool,
    fields: Vec<(Arc<str>, Reads)>,
}

static ALL: Reads = Reads { all: true, keys: false, fields: Vec::new() };
static PRESENCE: Reads = Reads { all: false, keys: false, fields: Vec::new() };

/// What is done with the value at the end of a path.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    /// Anything.
    Whole,
    /// It is gone through, counted, or searched for something: of an object only the keys matter.
    Members,
    /// It is asked for whether it is there.
    Presence,
}

impl Reads {
    /// What `source` reads of `variable`; everything if that cannot be told.
    #[must_use]
    pub fn of(source: &str, variable: &str) -> Reads {
        parse(source).ok().and_then(|ast| walk(&ast, variable)).unwrap_or_else(|| ALL.clone())
    }

    /// Whether everything is read.
    #[must_use]
    pub fn all(&self) -> bool {
        self.all
    }

    /// Whether the members of a list and the keys of an object are read.
    #[must_use]
    pub fn members(&self) -> bool {
        self.all || self.keys
    }

    /// Whether nothing matters but that it is there.
    #[must_use]
    pub fn only_presence(&self) -> bool {
        *self == PRESENCE
    }

    /// What is read of a field; `None` for nothing.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Reads> {
        if self.all {
            return Some(&ALL);
        }
        let known = self.fields.iter().find(|(known, _)| **known == *name).map(|(_, reads)| reads);
        known.or_else(|| self.keys.then_some(&PRESENCE))
    }

    fn add(&mut self, path: &[Arc<str>], what: Use) {
        let mut reads = self;
        for name in path.iter().rev() {
            let at = reads.fields.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
                reads.fields.push((name.clone(), Reads::default()));
                reads.fields.len() - 1
            });
            reads = &mut reads.fields[at].1;
        }
        match what {
            Use::Whole => reads.all = true,
            Use::Members => reads.keys = true,
            Use::Presence => {}
        }
    }
}

/// Goes through the tree from the root with what becomes of each node's value: the fields that are selected from it, the last one first,
/// and what is done with what is found there.
fn walk(ast: &Ast, variable: &str) -> Option<Reads> {
    let mut reads = Reads::default();
    let mut todo: Vec<(ExprId, Vec<Arc<str>>, Use)> = vec![(ast.root, Vec::new(), Use::Whole)];
    while let Some((id, mut path, what)) = todo.pop() {
        let mut go = |id: &ExprId, what: Use| todo.push((*id, Vec::new(), what));
        match ast.expr(id) {
            Expr::Literal(_) => {}
            Expr::Ident(name) if name.trim_start_matches('.') == variable => reads.add(&path, what),
            Expr::Ident(_) => {}
            Expr::Select { operand, field, test: true } => todo.push((*operand, vec![field.clone()], Use::Presence)),
            Expr::Select { operand, field, test: false } => {
                path.push(field.clone());
                todo.push((*operand, path, what));
            }
            Expr::Call { function, target, args } => match (&**function, &**args) {
                (operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT, [operand, key]) => match ast.expr(*key) {
                    Expr::Literal(Literal::String(field)) => {
                        path.push(field.clone());
                        todo.push((*operand, path, what));
                    }
                    _ => [operand, key].into_iter().for_each(|id| go(id, Use::Whole)),
                },
                (operators::IN, [element, members]) => {
                    go(element, Use::Whole);
                    go(members, Use::Members);
                }
                ("size", _) => target.iter().chain(args).for_each(|id| go(id, Use::Members)),
                _ => target.iter().chain(args).for_each(|id| go(id, Use::Whole)),
            },
            Expr::List { items, .. } => items.iter().for_each(|id| go(id, Use::Whole)),
            Expr::Map(entries) => entries.iter().flat_map(|entry| [&entry.key, &entry.value]).for_each(|id| go(id, Use::Whole)),
            Expr::Struct { fields, .. } => fields.iter().for_each(|field| go(&field.value, Use::Whole)),
            Expr::Comprehension(each) => {
                if *each.var == *variable || each.var2.as_deref() == Some(variable) {
                    return None;
                }
                let over_keys = each.var2.is_none() && each.kind != Macro::SortBy;
                go(&each.range, if over_keys { Use::Members } else { Use::Whole });
                each.filter.iter().chain([&each.body]).for_each(|id| go(id, Use::Whole));
            }
            Expr::OptMap { target, var, body, .. } => {
                if **var == *variable {
                    return None;
                }
                [target, body].into_iter().for_each(|id| go(id, Use::Whole));
            }
        }
    }
    Some(reads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_expression_reads_is_known_where_it_can_be() {
        fn told(reads: &Reads) -> String {
            let fields: Vec<String> = reads.fields.iter().map(|(name, reads)| format!("{name}{}", told(reads))).collect();
            let fields = if fields.is_empty() { String::new() } else { format!("({})", fields.join(" ")) };
            format!("{}{}{fields}", if reads.all { "*" } else { "" }, if reads.keys { "#" } else { "" })
        }
        for (source, expected) in [
            ("event.verb == 'get' && has(event.objectRef.name)", "(objectRef(name) verb*)"),
            ("event.user.username.startsWith('a') || event.user.groups.exists(g, g == 'b')", "(user(groups# username*))"),
            ("event.user.username == 'a' && event.user == {}", "(user*(username*))"),
            ("event.?trace.?took.orValue(0) > 1", "(trace(took*))"),
            ("event[?'trace'].took.orValue(0) > 1", "(trace(took*))"),
            ("event.annotations['a/b'] == 'c'", "(annotations(a/b*))"),
            ("event['verb'] == \"get\"", "(verb*)"),
            ("event .verb == '' || event.`verb` == ''", "(verb*)"),
            ("'event.user' == '' && events.x == 1 && myevent.y", ""),
            ("event.trace.steps[0].hop == 'store'", "(trace(steps*))"),
            ("event.exists(k, k == 'verb')", "#"),
            ("event.size() == 1 || size(event) == 2 || 'x' in event", "#"),
            ("event.exists(k, event[k] == 'x')", "*#"),
            ("event.exists(k, v, v == 'x')", "*"),
            ("event == {}", "*"),
            ("(event.verb == 'x' ? event : {}).verb == 'y'", "*(verb*)"),
            ("[1].exists(event, event == 1)", "*"),
            ("event.", "*"),
        ] {
            assert_eq!(told(&Reads::of(source, "event")), expected, "{source}");
        }
    }

    #[test]
    fn of_keys_nothing_matters_but_that_they_are_there() {
        let reads = Reads::of("event.exists(k, k == 'a') && event.verb == 'b'", "event");
        assert!(reads.field("anything").is_some_and(Reads::only_presence));
        assert!(reads.field("verb").is_some_and(Reads::all));
        assert_eq!(Reads::of("event.verb == ''", "event").field("user"), None);
    }
}
