//! What an expression reads of a variable, as far as its text tells: whoever has to make the variable's value first need not make what
//! nobody looks at.

use std::rc::Rc;
use std::sync::Arc;

use crate::ast::{Ast, Expr, ExprId, Literal, Macro, operators};
use crate::parser::parse;

/// What is read of a value. The default is that it is there, and nothing else of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    all: bool,
    /// What it is, if it is no object and no list.
    plain: bool,
    /// Which keys it has, or how many items.
    keys: bool,
    fields: Vec<(Arc<str>, Reads)>,
    /// Of every item, if it is a list.
    item: Option<Box<Reads>>,
    /// Of every field, if it is an object, and of every item.
    member: Option<Box<Reads>>,
}

/// More than this is not gone into: what an expression reads in so many ways may as well be read as a whole.
const MOST: usize = 10_000;

static ALL: Reads = Reads::only(true, false);
static PLAIN: Reads = Reads::only(false, true);
static PRESENCE: Reads = Reads::only(false, false);

impl Reads {
    const fn only(all: bool, plain: bool) -> Reads {
        Reads { all, plain, keys: false, fields: Vec::new(), item: None, member: None }
    }

    /// What `source` reads of `variable`; everything if that cannot be told.
    #[must_use]
    pub fn of(source: &str, variable: &str) -> Reads {
        let told = || {
            let mut reads = walk(&parse(source).ok()?, variable)?;
            reads.settle(&mut MOST.clone()).then_some(reads)
        };
        told().unwrap_or_else(|| ALL.clone())
    }

    /// Whether everything is read.
    #[must_use]
    pub fn all(&self) -> bool {
        self.all
    }

    /// Whether nothing matters but that it is there.
    #[must_use]
    pub fn only_presence(&self) -> bool {
        *self == PRESENCE
    }

    /// Whether of an object or a list nothing matters but that it is one.
    #[must_use]
    pub fn only_plain(&self) -> bool {
        *self == PLAIN
    }

    /// Whether more matters of what is neither an object nor a list than its type.
    #[must_use]
    pub fn plain(&self) -> bool {
        self.all || self.plain
    }

    /// What is read of a field; `None` for nothing.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Reads> {
        if self.all {
            return Some(&ALL);
        }
        let known = self.fields.iter().find(|(known, _)| **known == *name).map(|(_, reads)| reads);
        known.or(self.member.as_deref()).or_else(|| self.keys.then_some(&PRESENCE))
    }

    /// What is read of each item of a list; `None` for nothing, not even how many there are.
    #[must_use]
    pub fn item(&self) -> Option<&Reads> {
        if self.all {
            return Some(&ALL);
        }
        self.item.as_deref().or(self.member.as_deref()).or_else(|| self.keys.then_some(&PRESENCE))
    }

    /// Whether something is read of every field, whatever its name.
    #[must_use]
    pub fn of_every_field(&self) -> bool {
        self.member.is_some()
    }

    /// The fields that are read by their names, or asked for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| &**name)
    }

    fn add(&mut self, path: &[Step], what: Use) {
        let mut reads = self;
        for step in path.iter().rev() {
            reads = match step {
                Step::Item => reads.item.get_or_insert_default(),
                Step::Member => reads.member.get_or_insert_default(),
                Step::Field(name) => {
                    let at = reads.fields.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
                        reads.fields.push((name.clone(), Reads::default()));
                        reads.fields.len() - 1
                    });
                    &mut reads.fields[at].1
                }
            };
        }
        match what {
            Use::Whole => reads.all = true,
            Use::Plain => reads.plain = true,
            Use::Keys => reads.keys = true,
            Use::Presence => {}
        }
    }

    /// Adds what somebody else reads; `false` if that is too much.
    fn merge(&mut self, other: &Reads, left: &mut usize) -> bool {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        self.all |= other.all;
        self.plain |= other.plain;
        self.keys |= other.keys;
        let fields = other.fields.iter().all(|(name, theirs)| {
            let at = self.fields.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
                self.fields.push((name.clone(), Reads::default()));
                self.fields.len() - 1
            });
            self.fields[at].1.merge(theirs, left)
        });
        let mut rest = [(&mut self.item, &other.item), (&mut self.member, &other.member)].into_iter();
        fields && rest.all(|(ours, theirs)| theirs.as_ref().is_none_or(|theirs| ours.get_or_insert_default().merge(theirs, left)))
    }

    /// Adds what is read of every member to what is read of single ones; `false` if that is too much.
    fn settle(&mut self, left: &mut usize) -> bool {
        let member = self.member.as_deref();
        let mut single = self.fields.iter_mut().map(|(_, reads)| reads).chain(self.item.as_deref_mut());
        let merged = single.all(|reads| member.is_none_or(|member| reads.merge(member, left)) && reads.settle(left));
        merged && self.member.as_deref_mut().is_none_or(|member| member.settle(left))
    }
}

/// One step of a way into a value.
#[derive(Clone, Debug)]
enum Step {
    Field(Arc<str>),
    Item,
    Member,
}

/// What is done with the value at the end of a path.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    /// Anything.
    Whole,
    /// Something that goes wrong, or has one and the same outcome, for every object and every list.
    Plain,
    /// It is gone through, counted, or searched for something: of an object only the keys matter.
    Keys,
    /// It is asked for whether it is there.
    Presence,
}

/// What a name stands for that an expression has given to something itself; the innermost first.
struct Scope {
    name: Arc<str>,
    /// What it is taken from, with the names known there, and the way from there; `None` for a key.
    from: Option<(ExprId, Names, Option<Step>)>,
    outer: Names,
}

type Names = Option<Rc<Scope>>;

fn find<'s>(mut names: &'s Names, name: &str) -> Option<&'s Scope> {
    while let Some(scope) = names {
        if *scope.name == *name {
            return Some(scope);
        }
        names = &scope.outer;
    }
    None
}

/// Whether a function takes nothing but what is neither an object nor a list.
fn takes_plain(function: &str) -> bool {
    use operators as op;
    const OPERATORS: [&str; 12] = [
        op::AND,
        op::OR,
        op::NOT,
        op::NEGATE,
        op::LESS,
        op::LESS_EQUALS,
        op::GREATER,
        op::GREATER_EQUALS,
        op::SUBTRACT,
        op::MULTIPLY,
        op::DIVIDE,
        op::MODULO,
    ];
    const FUNCTIONS: [&str; 17] = [
        "contains",
        "startsWith",
        "endsWith",
        "matches",
        "find",
        "lowerAscii",
        "upperAscii",
        "trim",
        "replace",
        "split",
        "substring",
        "timestamp",
        "duration",
        "int",
        "double",
        "string",
        "quantity",
    ];
    OPERATORS.contains(&function) || FUNCTIONS.contains(&function)
}

/// Something to go through: a node, the way into its value with the last step first, what is done there, and the names it knows.
struct Todo {
    id: ExprId,
    path: Vec<Step>,
    what: Use,
    names: Names,
}

/// Goes through the tree from the root with what becomes of each node's value; `None` if that is too much.
fn walk(ast: &Ast, variable: &str) -> Option<Reads> {
    let mut reads = Reads::default();
    let mut left = MOST;
    let mut todo = vec![Todo { id: ast.root, path: Vec::new(), what: Use::Whole, names: None }];
    while let Some(Todo { id, mut path, what, names }) = todo.pop() {
        left = left.checked_sub(1)?;
        let mut go = |id: ExprId, path: Vec<Step>, what: Use, names: &Names| todo.push(Todo { id, path, what, names: names.clone() });
        match ast.expr(id) {
            Expr::Literal(_) => {}
            Expr::Ident(name) => match find(&names, name) {
                Some(Scope { from: Some((id, names, step)), .. }) => {
                    path.extend(step.clone());
                    go(*id, path, what, names);
                }
                Some(_) => {}
                None if name.trim_start_matches('.') == variable => reads.add(&path, what),
                None => {}
            },
            Expr::Select { operand, field, test: true } => go(*operand, vec![Step::Field(field.clone())], Use::Presence, &names),
            Expr::Select { operand, field, test: false } => {
                path.push(Step::Field(field.clone()));
                go(*operand, path, what, &names);
            }
            Expr::Call { function, target, args } => match (&**function, &**args) {
                (operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT, [operand, key]) => {
                    path.push(match ast.expr(*key) {
                        Expr::Literal(Literal::String(field)) => Step::Field(field.clone()),
                        _ => Step::Member,
                    });
                    go(*operand, path, what, &names);
                    go(*key, Vec::new(), Use::Plain, &names);
                }
                (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => {
                    for (id, other) in [(*left, *right), (*right, *left)] {
                        compare(ast, other, Vec::new(), &mut |path, what| go(id, path, what, &names));
                    }
                }
                (operators::IN, [element, members]) => {
                    match ast.expr(*members) {
                        Expr::List { items, .. } => {
                            items
                                .iter()
                                .for_each(|item| compare(ast, *item, Vec::new(), &mut |path, what| go(*element, path, what, &names)));
                        }
                        _ => go(*element, Vec::new(), Use::Whole, &names),
                    }
                    go(*members, Vec::new(), Use::Keys, &names);
                    compare(ast, *element, vec![Step::Item], &mut |path, what| go(*members, path, what, &names));
                }
                (operators::CONDITIONAL, [condition, yes, no]) => {
                    go(*condition, Vec::new(), Use::Plain, &names);
                    [yes, no].into_iter().for_each(|id| go(*id, path.clone(), what, &names));
                }
                ("dyn", [operand]) => go(*operand, path, what, &names),
                (name, _) => {
                    let uses: &[Use] = match name {
                        // Of a text, too.
                        "size" => &[Use::Keys, Use::Plain],
                        name if takes_plain(name) => &[Use::Plain],
                        _ => &[Use::Whole],
                    };
                    for id in target.iter().chain(args) {
                        uses.iter().for_each(|what| go(*id, Vec::new(), *what, &names));
                    }
                }
            },
            Expr::List { items, .. } => {
                let (path, what) = of_items(path, what);
                items.iter().for_each(|id| go(*id, path.clone(), what, &names));
            }
            Expr::Map(entries) => {
                let parts = entries.iter().flat_map(|entry| [entry.key, entry.value]);
                parts.for_each(|id| go(id, Vec::new(), Use::Whole, &names));
            }
            Expr::Struct { fields, .. } => fields.iter().for_each(|field| go(field.value, Vec::new(), Use::Whole, &names)),
            Expr::Comprehension(each) => {
                go(each.range, Vec::new(), Use::Keys, &names);
                let bound = |name: &Arc<str>, step: Option<Step>, outer: Names| {
                    let from = step.map(|step| (each.range, names.clone(), Some(step)));
                    Some(Rc::new(Scope { name: name.clone(), from, outer }))
                };
                // With one variable, an object's keys are gone through.
                let inner = match &each.var2 {
                    None => bound(&each.var, Some(Step::Item), names.clone()),
                    Some(var2) => bound(var2, Some(Step::Member), bound(&each.var, None, names.clone())),
                };
                let (path, what) = match each.kind {
                    Macro::All | Macro::Exists | Macro::ExistsOne => (Vec::new(), Use::Plain),
                    Macro::Filter | Macro::SortBy => {
                        // What comes out is what went in.
                        go(each.range, path, what, &names);
                        (Vec::new(), Use::Whole)
                    }
                    Macro::Map => of_items(path, what),
                    Macro::TransformMap | Macro::TransformMapEntry => (Vec::new(), Use::Whole),
                };
                go(each.body, path, what, &inner);
                each.filter.iter().for_each(|id| go(*id, Vec::new(), Use::Plain, &inner));
            }
            Expr::OptMap { target, var, body, .. } => {
                let from = Some((*target, names.clone(), None));
                let inner = Some(Rc::new(Scope { name: var.clone(), from, outer: names.clone() }));
                go(*target, Vec::new(), Use::Presence, &names);
                go(*body, Vec::new(), Use::Whole, &inner);
            }
        }
    }
    Some(reads)
}

/// What is done with the items of a list with which something is done.
fn of_items(mut path: Vec<Step>, what: Use) -> (Vec<Step>, Use) {
    match (path.pop(), what) {
        (Some(Step::Item | Step::Member), what) => (path, what),
        (None, Use::Keys | Use::Plain | Use::Presence) => (path, Use::Presence),
        _ => (Vec::new(), Use::Whole),
    }
}

/// Tells what is read of a value to compare it with another that the text spells out; everything if it does not.
fn compare(ast: &Ast, with: ExprId, path: Vec<Step>, tell: &mut dyn FnMut(Vec<Step>, Use)) {
    let within = |step: Step| [&[step], &*path].concat();
    match ast.expr(with) {
        Expr::Literal(_) => tell(path, Use::Plain),
        Expr::Map(entries) => {
            for entry in entries {
                match ast.expr(entry.key) {
                    Expr::Literal(Literal::String(key)) => compare(ast, entry.value, within(Step::Field(key.clone())), tell),
                    _ => tell(within(Step::Member), Use::Whole),
                }
            }
            tell(path, Use::Keys);
        }
        Expr::List { items, .. } => {
            items.iter().for_each(|item| compare(ast, *item, within(Step::Item), tell));
            tell(path, Use::Keys);
        }
        _ => tell(path, Use::Whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_expression_reads_is_known_where_it_can_be() {
        fn told(reads: &Reads) -> String {
            let mut parts: Vec<String> = reads.fields.iter().map(|(name, reads)| format!("{name}{}", told(reads))).collect();
            parts.extend(reads.item.as_ref().map(|reads| format!("[]{}", told(reads))));
            parts.extend(reads.member.as_ref().map(|reads| format!("?{}", told(reads))));
            parts.sort();
            let parts = if parts.is_empty() { String::new() } else { format!("({})", parts.join(" ")) };
            let signs = [(reads.all, "*"), (reads.plain, "="), (reads.keys, "#")];
            let signs: String = signs.into_iter().filter(|(is, _)| *is).map(|(_, sign)| sign).collect();
            format!("{signs}{parts}")
        }
        for (source, expected) in [
            ("event.verb == 'get' && has(event.objectRef.name)", "(objectRef(name) verb=)"),
            ("event.user.username.startsWith('a') || event.user.groups.exists(g, g == 'b')", "(user(groups#([]=) username=))"),
            ("event.user.username == 'a' && event.user == event.user", "(user*(username=))"),
            ("event.?trace.?took.orValue(0) > 1", "(trace(took*))"),
            ("event[?'trace'].took.orValue(0) > 1", "(trace(took*))"),
            ("event.annotations['a/b'] == 'c'", "(annotations(a/b=))"),
            ("event['verb'] == \"get\"", "(verb=)"),
            ("event .verb == '' || event.`verb` == ''", "(verb=)"),
            ("'event.user' == '' && events.x == 1 && myevent.y", ""),
            ("event.trace.steps[0].hop == 'store'", "(trace(steps(?(hop=))))"),
            ("event.o.containers.exists(c, c.image.contains('x'))", "(o(containers#([](image=))))"),
            ("event.o.containers.filter(c, c.a == 1).exists(c, c.b == 2)", "(o(containers#([](a= b=))))"),
            ("event.o.containers.filter(c, c.a == 1)[0] == event.x", "(o(containers#(?* []*(a=))) x*)"),
            ("event.o.containers.map(c, c.ports) == event.x", "(o(containers#([](ports*))) x*)"),
            ("event.o.containers.map(c, c.ports).exists(p, p == 1)", "(o(containers#([](ports=))))"),
            ("event.map(k, event[k]).exists(v, v.a == 'x')", "#(?(a=) []=(a=))"),
            ("event.o.containers.map(c, c.ports).size() == 1", "(o(containers#([](ports))))"),
            ("[event.a, event.b].exists(o, o.name == 'x')", "(a(name=) b(name=))"),
            ("event.list.all(a, event.other.all(b, a.x == b.y))", "(list#([](x*)) other#([](y*)))"),
            ("event.exists(k, k == 'verb')", "#([]=)"),
            ("event.size() == 1 || size(event) == 2 || 'x' in event", "=#([]=)"),
            ("event.verb in ['a', 'b'] && event.a in event.b", "(a* b#([]*) verb=)"),
            ("event.exists(k, event[k] == 'x')", "#(?= []=)"),
            ("event.exists(k, v, v.startsWith('x'))", "#(?=)"),
            ("event.exists(k, v, k == 'x' && v.a == 1) && event.verb.size() == 2", "#(?(a=) verb=#(a=))"),
            ("event == {}", "#"),
            ("event == {'a': 1, 'b': {'c': [event.x]}}", "#(a= b#(c#([]*)) x*)"),
            ("event.o.optMap(o, o.a == 1).hasValue()", "(o(a=))"),
            ("(event.verb == 'x' ? event : {}).verb == 'y'", "(verb=)"),
            ("[1].exists(event, event == 1)", ""),
            ("dyn(event).verb == 'a' && dyn(event.user) == 'b'", "(user= verb=)"),
            ("[event][0].verb == 'a'", "(verb=)"),
            ("[event] == [event.a]", "*(a*)"),
            ("event.", "*"),
        ] {
            assert_eq!(told(&Reads::of(source, "event")), expected, "{source}");
        }
    }

    #[test]
    fn of_keys_nothing_matters_but_that_they_are_there() {
        let reads = Reads::of("event.exists(k, k == 'a') && event.verb == event.user", "event");
        assert!(reads.field("anything").is_some_and(Reads::only_presence));
        assert!(reads.field("verb").is_some_and(Reads::all));
        assert_eq!(Reads::of("event.verb == ''", "event").field("user"), None);
    }

    #[test]
    fn what_would_take_too_long_to_find_out_is_everything() {
        let filters = format!("event.a{}.size() == 1", ".filter(x, x.b == 1)".repeat(100));
        assert!(Reads::of(&filters, "event").all());
        let indexes = format!("event{} == 1", "[event.k]".repeat(200));
        let reads = Reads::of(&indexes, "event");
        assert!(reads.field("a").and_then(|reads| reads.field("b")).and_then(Reads::item).is_some_and(|reads| !reads.only_presence()));
    }
}
