//! Mistakes that the checker's types do not show but literals do: bad duration, timestamp and regular expression
//! literals, lists and maps that mix types under `dyn`, and format strings that do not fit their arguments.

use crate::ast::{Expr, ExprId, Literal};
use crate::check::{Called, Checked};
use crate::convert;
use crate::library::regex;
use crate::library::string_format::{self, Piece};
use crate::source::Finding;
use crate::types::Type;
use crate::value::Value;

pub(crate) fn validate(checked: &Checked) -> Vec<Finding> {
    let mut validator = Validator { checked, found: Vec::new() };
    let formatted = inside_format(checked);
    for id in 0..checked.ast.nodes.len() as ExprId {
        validator.literal_argument(id);
        validator.format(id);
        if !formatted[id as usize] {
            validator.homogeneous(id);
        }
    }
    let placed = |(id, message): (ExprId, String)| Finding::new(checked.ast.offsets[id as usize], message);
    validator.found.into_iter().map(placed).collect()
}

/// Which nodes stand inside the arguments of `format`, where literals may mix types. Children come before their
/// parents in the arena, so one pass from the end is enough.
fn inside_format(checked: &Checked) -> Vec<bool> {
    let mut inside = vec![false; checked.ast.nodes.len()];
    for id in (0..checked.ast.nodes.len()).rev() {
        let is_format = matches!(&checked.ast.nodes[id], Expr::Call { function, .. } if &**function == "format");
        if inside[id] || is_format {
            for child in children(&checked.ast.nodes[id]) {
                inside[child as usize] = true;
            }
        }
    }
    inside
}

fn children(expr: &Expr) -> Vec<ExprId> {
    match expr {
        Expr::Literal(_) | Expr::Ident(_) => Vec::new(),
        Expr::Select { operand, .. } => vec![*operand],
        Expr::Call { target, args, .. } => target.iter().chain(args).copied().collect(),
        Expr::List { items, .. } => items.clone(),
        Expr::Map(entries) => entries.iter().flat_map(|e| [e.key, e.value]).collect(),
        Expr::Struct { fields, .. } => fields.iter().map(|f| f.value).collect(),
        Expr::Comprehension(c) => [Some(c.range), c.filter, Some(c.body)].into_iter().flatten().collect(),
        Expr::OptMap { target, body, .. } => vec![*target, *body],
    }
}

struct Validator<'c> {
    checked: &'c Checked,
    found: Vec<(ExprId, String)>,
}

impl Validator<'_> {
    fn literal_argument(&mut self, id: ExprId) {
        let Some(Called { function, args, .. }) = self.checked.function(id) else {
            return;
        };
        let Some(arg) = args.first() else {
            return;
        };
        let Expr::Literal(literal) = self.checked.ast.expr(*arg) else {
            return;
        };
        let valid = match (function, literal) {
            ("duration", literal) => convert::to_duration(&constant(literal)).is_ok(),
            ("timestamp", literal) => convert::to_timestamp(&constant(literal)).is_ok(),
            ("matches", Literal::String(pattern)) => regex::compile(pattern).is_ok(),
            _ => true,
        };
        if !valid {
            self.found.push((*arg, format!("invalid {function} argument")));
        }
    }

    fn homogeneous(&mut self, id: ExprId) {
        let unwrapped = |id: ExprId, optional: bool| {
            let t = self.checked.type_of(id);
            if optional { t.unwrap_optional().unwrap_or(t).clone() } else { t.clone() }
        };
        let mut found = Vec::new();
        match self.checked.ast.expr(id) {
            Expr::List { items, optional } => {
                let types = items.iter().enumerate().map(|(i, item)| (*item, unwrapped(*item, optional.contains(&i))));
                found.extend(first_difference(types));
            }
            Expr::Map(entries) => {
                found.extend(differences(entries.iter().map(|e| (e.key, unwrapped(e.key, false)))));
                found.extend(differences(entries.iter().map(|e| (e.value, unwrapped(e.value, e.optional)))));
            }
            _ => {}
        }
        self.found.extend(found);
    }

    fn format(&mut self, id: ExprId) {
        let Some(Called { function: "format", target: Some(target), args: [arguments], .. }) = self.checked.function(id) else {
            return;
        };
        let (Expr::Literal(Literal::String(format)), Expr::List { items, .. }) =
            (self.checked.ast.expr(target), self.checked.ast.expr(*arguments))
        else {
            return;
        };
        let mut rest = &**format;
        let mut used = 0;
        loop {
            match string_format::next_piece(rest) {
                Err(message) => return self.found.push((id, message)),
                Ok(None) => break,
                Ok(Some((piece, after))) => {
                    rest = after;
                    let Piece::Clause(clause) = piece else {
                        continue;
                    };
                    let Some(item) = items.get(used) else {
                        return self.found.push((id, format!("index {used} out of range")));
                    };
                    used += 1;
                    if let Some(bad) = self.unfit(*item, clause.verb) {
                        let message = string_format::mismatch(clause.verb, self.checked.type_of(bad).name());
                        return self.found.push((bad, message));
                    }
                }
            }
        }
        if items.len() > used {
            let message = format!("too many arguments supplied to string.format (expected {used}, got {})", items.len());
            self.found.push((id, message));
        }
    }

    /// The node whose type a clause does not take.
    fn unfit(&self, id: ExprId, verb: char) -> Option<ExprId> {
        let t = self.checked.type_of(id);
        let fits = match verb {
            'd' | 'o' => matches!(t, Type::Int | Type::Uint),
            'b' => matches!(t, Type::Int | Type::Uint | Type::Bool),
            'x' | 'X' => matches!(t, Type::Int | Type::Uint | Type::String | Type::Bytes),
            'f' | 'e' => matches!(t, Type::Double | Type::String),
            _ => !matches!(t, Type::Object(_) | Type::Opaque(..) | Type::Error),
        };
        if !fits && !t.is_dyn() {
            return Some(id);
        }
        if verb != 's' {
            return None;
        }
        match self.checked.ast.expr(id) {
            Expr::List { items, .. } => items.iter().find_map(|i| self.unfit(*i, 's')),
            Expr::Map(entries) => entries.iter().flat_map(|e| [e.key, e.value]).find_map(|i| self.unfit(i, 's')),
            _ => None,
        }
    }
}

fn constant(literal: &Literal) -> Value<'_> {
    match literal {
        Literal::String(s) => Value::borrowed(s),
        Literal::Int(i) => Value::Int(*i),
        Literal::Uint(u) => Value::Uint(*u),
        Literal::Double(d) => Value::Double(*d),
        _ => Value::Null,
    }
}

type Typed = (ExprId, Type);

fn first_difference(types: impl Iterator<Item = Typed>) -> Option<(ExprId, String)> {
    differences(types).into_iter().next()
}

fn differences(mut types: impl Iterator<Item = Typed>) -> Vec<(ExprId, String)> {
    let Some((_, first)) = types.next() else {
        return Vec::new();
    };
    let different = types.filter(|(_, t)| !equivalent(&first, t));
    let message = |t: &Type| format!("expected type '{}' but found '{}'", first.in_messages(), t.in_messages());
    different.map(|(id, t)| (id, message(&t))).collect()
}

/// Same kind and same parameters; the parameter of a type does not matter.
fn equivalent(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::List(a), Type::List(b)) => equivalent(a, b),
        (Type::Map(a), Type::Map(b)) => equivalent(&a.0, &b.0) && equivalent(&a.1, &b.1),
        (Type::Opaque(name, a), Type::Opaque(other, b)) => {
            name == other && a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equivalent(a, b))
        }
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}
