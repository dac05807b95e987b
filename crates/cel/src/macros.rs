//! Which calls are macros, and the nodes they stand for. Only decides by name and number of arguments, as the
//! language does; what a macro means is known to the checker, the planner and the cost estimate.

use crate::ast::{Comprehension, Expr, ExprId, Literal, Macro};
use crate::parser::Parser;

const OVERWRITES: &str = "iteration variable overwrites accumulator variable";
const ACCUMULATORS: [&str; 2] = ["@result", "__result__"];

/// The node that the call stands for, or nothing if it is not a macro. A misused macro is reported and becomes
/// a literal.
pub(crate) fn expand(parser: &mut Parser<'_>, offset: u32, name: &str, target: Option<ExprId>, args: &[ExprId]) -> Option<Expr> {
    let expanded = match (target, name, args.len()) {
        (None, "has", 1) => has(parser, args[0]),
        (Some(t), "all", 2) => one_variable(parser, Macro::All, t, args),
        (Some(t), "exists", 2) => one_variable(parser, Macro::Exists, t, args),
        (Some(t), "exists_one" | "existsOne", 2) => one_variable(parser, Macro::ExistsOne, t, args),
        (Some(t), "map", 2 | 3) => one_variable(parser, Macro::Map, t, args),
        (Some(t), "filter", 2) => one_variable(parser, Macro::Filter, t, args),
        (Some(t), "sortBy", 2) => sort_by(parser, t, args),
        (Some(t), "all", 3) => two_variables(parser, Macro::All, t, args),
        (Some(t), "exists", 3) => two_variables(parser, Macro::Exists, t, args),
        (Some(t), "exists_one" | "existsOne", 3) => two_variables(parser, Macro::ExistsOne, t, args),
        (Some(t), "transformList", 3 | 4) => two_variables(parser, Macro::Map, t, args),
        (Some(t), "transformMap", 3 | 4) => two_variables(parser, Macro::TransformMap, t, args),
        (Some(t), "transformMapEntry", 3 | 4) => two_variables(parser, Macro::TransformMapEntry, t, args),
        (Some(t), "optMap", 2) => opt_map(parser, t, args, false),
        (Some(t), "optFlatMap", 2) => opt_map(parser, t, args, true),
        _ => return None,
    };
    Some(expanded.unwrap_or_else(|(at, message)| {
        let at = at.map_or(offset, |id| parser.offset(id));
        parser.report(at, message);
        Expr::Literal(Literal::Null)
    }))
}

type Expansion = Result<Expr, (Option<ExprId>, String)>;

fn has(parser: &Parser<'_>, arg: ExprId) -> Expansion {
    match &parser.nodes[arg as usize] {
        Expr::Select { operand, field, test: false } => Ok(Expr::Select { operand: *operand, field: field.clone(), test: true }),
        _ => Err((Some(arg), "invalid argument to has() macro".into())),
    }
}

fn variable(parser: &Parser<'_>, arg: ExprId, message: &str) -> Result<std::sync::Arc<str>, (Option<ExprId>, String)> {
    match &parser.nodes[arg as usize] {
        Expr::Ident(name) if ACCUMULATORS.contains(&&**name) => Err((Some(arg), OVERWRITES.into())),
        Expr::Ident(name) => Ok(name.clone()),
        _ => Err((Some(arg), message.into())),
    }
}

fn one_variable(parser: &Parser<'_>, kind: Macro, range: ExprId, args: &[ExprId]) -> Expansion {
    let message = match kind {
        Macro::Map | Macro::Filter | Macro::SortBy => "argument is not an identifier",
        _ => "argument must be a simple name",
    };
    Ok(Expr::Comprehension(Comprehension {
        kind,
        range,
        var: variable(parser, args[0], message)?,
        var2: None,
        filter: (args.len() == 3).then(|| args[1]),
        body: args[args.len() - 1],
    }))
}

fn sort_by(parser: &Parser<'_>, range: ExprId, args: &[ExprId]) -> Expansion {
    if matches!(&parser.nodes[range as usize], Expr::Literal(_) | Expr::Map(_) | Expr::Struct { .. }) {
        let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err((Some(range), message.into()));
    }
    one_variable(parser, Macro::SortBy, range, args)
}

fn two_variables(parser: &Parser<'_>, kind: Macro, range: ExprId, args: &[ExprId]) -> Expansion {
    let message = "argument must be a simple name";
    let var = variable(parser, args[0], message)?;
    let var2 = variable(parser, args[1], message)?;
    if var == var2 {
        return Err((Some(args[1]), format!("duplicate variable name: {var}")));
    }
    Ok(Expr::Comprehension(Comprehension {
        kind,
        range,
        var,
        var2: Some(var2),
        filter: (args.len() == 4).then(|| args[2]),
        body: args[args.len() - 1],
    }))
}

fn opt_map(parser: &Parser<'_>, target: ExprId, args: &[ExprId], flat: bool) -> Expansion {
    let Expr::Ident(var) = &parser.nodes[args[0] as usize] else {
        let name = if flat { "optFlatMap" } else { "optMap" };
        return Err((Some(args[0]), format!("{name}() variable name must be a simple identifier")));
    };
    Ok(Expr::OptMap { target, var: var.clone(), body: args[1], flat })
}

#[cfg(test)]
mod tests {
    use crate::parser::parse;

    fn message(source: &str) -> String {
        parse(source).err().map(|issues| issues[0].message.clone()).unwrap_or_default()
    }

    #[test]
    fn misused_macros_are_reported_with_the_languages_words() {
        assert_eq!(message("has(a)"), "invalid argument to has() macro");
        assert_eq!(message("[1].all(1, true)"), "argument must be a simple name");
        assert_eq!(message("[1].map(1, true)"), "argument is not an identifier");
        assert_eq!(message("[1].map(__result__, true)"), "iteration variable overwrites accumulator variable");
        assert_eq!(message("[1].all(a, a, true)"), "duplicate variable name: a");
        assert_eq!(message("a.optMap(1, true)"), "optMap() variable name must be a simple identifier");
        assert_eq!(message("a.optFlatMap(1, true)"), "optFlatMap() variable name must be a simple identifier");
        assert!(message("'a'.sortBy(x, x)").starts_with("sortBy can only be applied"));
    }
}
