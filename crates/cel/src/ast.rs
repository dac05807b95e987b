//! The tree of an expression as the parser leaves it: an arena of nodes that refer to each other by number, so
//! that no walk and no drop of it depends on the depth of the input. Macros are nodes of their own here (not
//! expanded into loops with accumulators as the language's definition has it); the checker, the planner and
//! the cost estimate each know what the expansion would have meant.

use std::sync::Arc;

/// The number of a node in its tree.
pub(crate) type ExprId = u32;

/// A literal as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// Which macro made a comprehension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Macro {
    All,
    Exists,
    ExistsOne,
    /// `map`, `map` with a filter and `transformList`.
    Map,
    Filter,
    TransformMap,
    TransformMapEntry,
    SortBy,
}

/// A loop over a list or map.
#[derive(Debug, Clone)]
pub(crate) struct Comprehension {
    pub kind: Macro,
    pub range: ExprId,
    pub var: Arc<str>,
    pub var2: Option<Arc<str>>,
    pub filter: Option<ExprId>,
    /// The predicate, or the expression for each element.
    pub body: ExprId,
}

/// An entry of a map literal or a field of a message literal.
#[derive(Debug, Clone)]
pub(crate) struct Entry<K> {
    /// Where the colon is.
    pub offset: u32,
    pub key: K,
    pub value: ExprId,
    pub optional: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Expr {
    Literal(Literal),
    Ident(Arc<str>),
    Select {
        operand: ExprId,
        field: Arc<str>,
        /// `has(operand.field)`
        test: bool,
    },
    Call {
        function: Arc<str>,
        target: Option<ExprId>,
        args: Vec<ExprId>,
    },
    List {
        items: Vec<ExprId>,
        /// Positions of `?item`.
        optional: Vec<usize>,
    },
    Map(Vec<Entry<ExprId>>),
    Struct {
        name: Arc<str>,
        fields: Vec<Entry<Arc<str>>>,
    },
    Comprehension(Comprehension),
    /// `target.optMap(var, body)`, or `optFlatMap` when `flat`.
    OptMap {
        target: ExprId,
        var: Arc<str>,
        body: ExprId,
        flat: bool,
    },
}

/// A parsed expression.
#[derive(Debug, Clone)]
pub(crate) struct Ast {
    pub nodes: Vec<Expr>,
    /// Byte offset of each node, as the language's own parser places it: an operator, a dot, an opening bracket.
    pub offsets: Vec<u32>,
    /// First and last byte of the text of each node.
    pub spans: Vec<(u32, u32)>,
    pub root: ExprId,
}

impl Ast {
    pub fn expr(&self, id: ExprId) -> &Expr {
        &self.nodes[id as usize]
    }

    /// `a.b.c` as a dotted name, if the node is nothing but that.
    pub fn qualified_name(&self, id: ExprId) -> Option<String> {
        let mut parts = Vec::new();
        let mut at = id;
        loop {
            match self.expr(at) {
                Expr::Select { operand, field, test: false } => {
                    parts.push(field.clone());
                    at = *operand;
                }
                Expr::Ident(name) => {
                    parts.push(name.clone());
                    parts.reverse();
                    return Some(parts.join("."));
                }
                _ => return None,
            }
        }
    }
}

/// The names by which the language's definition knows its operators.
pub(crate) mod operators {
    pub const CONDITIONAL: &str = "_?_:_";
    pub const AND: &str = "_&&_";
    pub const OR: &str = "_||_";
    pub const NOT: &str = "!_";
    pub const NEGATE: &str = "-_";
    pub const EQUALS: &str = "_==_";
    pub const NOT_EQUALS: &str = "_!=_";
    pub const LESS: &str = "_<_";
    pub const LESS_EQUALS: &str = "_<=_";
    pub const GREATER: &str = "_>_";
    pub const GREATER_EQUALS: &str = "_>=_";
    pub const ADD: &str = "_+_";
    pub const SUBTRACT: &str = "_-_";
    pub const MULTIPLY: &str = "_*_";
    pub const DIVIDE: &str = "_/_";
    pub const MODULO: &str = "_%_";
    pub const IN: &str = "@in";
    pub const INDEX: &str = "_[_]";
    pub const OPT_INDEX: &str = "_[?_]";
    pub const OPT_SELECT: &str = "_?._";
}
