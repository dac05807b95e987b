//! The parts of an expression that all have to be true for it to be true: whoever can tell cheaply that one of them is not need not
//! evaluate the whole.

use crate::ast::{Ast, Expr, ExprId, Literal, operators};
use crate::parser::parse;

/// One of the parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conjunct {
    /// Its text, which is an expression of its own.
    pub source: String,
    /// A name such as `a.b.c` and the text that it has to be, if that is all that the part says.
    pub equals: Option<(String, String)>,
}

/// The operands of the outermost `&&`s, or the whole; none of a text that is no expression.
///
/// ```
/// let parts = usher_cel::conjuncts("a.b == 'c' && (d || e)");
/// assert_eq!(parts[0].equals, Some(("a.b".into(), "c".into())));
/// assert_eq!(parts[1].source, "(d || e)");
/// ```
#[must_use]
pub fn conjuncts(source: &str) -> Vec<Conjunct> {
    let Ok(ast) = parse(source) else { return Vec::new() };
    let mut found = Vec::new();
    let mut todo = vec![ast.root];
    while let Some(id) = todo.pop() {
        match ast.expr(id) {
            Expr::Call { function, args, .. } if **function == *operators::AND => todo.extend(args.iter().rev()),
            part => {
                let (start, end) = ast.spans[id as usize];
                let text = source.get(start as usize..end as usize);
                found.extend(text.map(|text| Conjunct { source: text.to_owned(), equals: equals(&ast, part) }));
            }
        }
    }
    found
}

fn equals(ast: &Ast, part: &Expr) -> Option<(String, String)> {
    let Expr::Call { function, args, .. } = part else { return None };
    let compared = |name: ExprId, text: ExprId| match ast.expr(text) {
        Expr::Literal(Literal::String(text)) => Some((ast.qualified_name(name)?, text.to_string())),
        _ => None,
    };
    match **args {
        [left, right] if **function == *operators::EQUALS => compared(left, right).or_else(|| compared(right, left)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operands_of_the_outermost_ands_are_the_parts() {
        let texts = |source: &str| conjuncts(source).into_iter().map(|part| part.source).collect::<Vec<_>>();
        assert_eq!(texts("a && (b && c.d == 'x') && !e"), ["a", "b", "c.d == 'x'", "!e"]);
        assert_eq!(texts("a && b || c"), ["a && b || c"]);
        assert_eq!(texts("x == 'é' && l.all(i, i && j)"), ["x == 'é'", "l.all(i, i && j)"]);
        assert_eq!(texts("(a || b) && (c ? d : e)"), ["(a || b)", "(c ? d : e)"]);
        assert_eq!(texts("a &&"), [""; 0]);
    }

    #[test]
    fn a_comparison_of_a_name_with_a_text_is_known_either_way_round() {
        let equal = |source: &str| conjuncts(source)[0].equals.clone();
        let expected = Some(("a.b".to_owned(), "x".to_owned()));
        assert_eq!((equal("a.b == 'x'"), equal("'x' == a.b")), (expected.clone(), expected));
        for other in ["a.b != 'x'", "a.b == 1", "a.b == c", "a['b'] == 'x'", "has(a.b) == 'x'", "f(a.b) == 'x'"] {
            assert_eq!(equal(other), None, "{other}");
        }
    }
}
