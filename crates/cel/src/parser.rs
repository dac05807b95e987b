//! From tokens to a tree, by recursive descent with precedence climbing. The depth of nesting and the length of
//! chains are bounded as in Kubernetes (250), as is the size of the text (100,000 code points), so no input can
//! exhaust the stack. Stops at the first syntax error; what stands in
//! brackets is in [`crate::aggregates`], macros are recognised in [`crate::macros`].

use std::sync::Arc;

use crate::ast::{Ast, Expr, ExprId, Literal, operators};
use crate::lexer::{Lexeme, Token, lex};
use crate::macros;
use crate::source::Finding;

/// The largest expression, in code points.
pub const MAX_EXPRESSION_CODE_POINTS: usize = 100_000;
/// How deep an expression may nest, and how long a chain of operators or selections may be.
pub const MAX_RECURSION_DEPTH: usize = 250;

const OPERAND: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// Words that stand for nothing yet.
pub(crate) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A syntax error has been reported; there is nothing to go on with.
pub(crate) struct Stop;

pub(crate) type Parsed<T> = Result<T, Stop>;

pub(crate) fn parse(source: &str) -> Result<Ast, Vec<Finding>> {
    let size = source.chars().count();
    if size > MAX_EXPRESSION_CODE_POINTS {
        return Err(vec![Finding::everywhere(format!(
            "expression code point size exceeds limit: size: {size}, limit {MAX_EXPRESSION_CODE_POINTS}"
        ))]);
    }
    let mut issues = Vec::new();
    let tokens = lex(source, &mut issues);
    let mut parser = Parser::new(source, tokens, issues);
    let root = parser.start();
    match root {
        Ok(root) if parser.issues.is_empty() => {
            if parser.heights[root as usize] > MAX_RECURSION_DEPTH as u32 {
                return Err(vec![Finding::everywhere("max recursion depth exceeded")]);
            }
            Ok(Ast { nodes: parser.nodes, offsets: parser.offsets, spans: parser.spans, root })
        }
        _ => Err(parser.issues),
    }
}

pub(crate) struct Parser<'s> {
    source: &'s str,
    tokens: Vec<Lexeme>,
    at: usize,
    pub nodes: Vec<Expr>,
    offsets: Vec<u32>,
    spans: Vec<(u32, u32)>,
    /// Levels of operators, selections and calls below each node.
    heights: Vec<u32>,
    issues: Vec<Finding>,
    expr_depth: usize,
    relation_depth: usize,
    calc_depth: usize,
    member_depth: usize,
}

impl<'s> Parser<'s> {
    fn new(source: &'s str, tokens: Vec<Lexeme>, issues: Vec<Finding>) -> Self {
        let capacity = tokens.len();
        Parser {
            source,
            tokens,
            at: 0,
            nodes: Vec::with_capacity(capacity),
            offsets: Vec::with_capacity(capacity),
            spans: Vec::with_capacity(capacity),
            heights: Vec::with_capacity(capacity),
            issues,
            expr_depth: 0,
            relation_depth: 0,
            calc_depth: 0,
            member_depth: 0,
        }
    }

    fn start(&mut self) -> Parsed<ExprId> {
        let root = self.expr()?;
        if self.peek() == Token::End {
            return Ok(root);
        }
        let kind = if self.peek_at(1) == Token::End { "extraneous" } else { "mismatched" };
        self.unexpected(kind, "<EOF>")
    }

    pub fn lexeme(&self) -> Lexeme {
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    pub fn peek(&self) -> Token {
        self.lexeme().token
    }

    pub fn peek_at(&self, ahead: usize) -> Token {
        self.tokens.get(self.at + ahead).map_or(Token::End, |l| l.token)
    }

    pub fn advance(&mut self) -> Lexeme {
        let lexeme = self.lexeme();
        self.at += 1;
        lexeme
    }

    pub fn eat(&mut self, token: Token) -> Option<Lexeme> {
        (self.peek() == token).then(|| self.advance())
    }

    pub fn text(&self, lexeme: Lexeme) -> &'s str {
        &self.source[lexeme.start as usize..lexeme.end as usize]
    }

    fn last_end(&self) -> u32 {
        self.tokens[self.at.saturating_sub(1)].end
    }

    pub fn report(&mut self, offset: u32, message: impl Into<String>) {
        self.issues.push(Finding::new(offset, message));
    }

    fn shown(&self, lexeme: Lexeme) -> &'s str {
        if lexeme.token == Token::End { "<EOF>" } else { self.text(lexeme) }
    }

    pub fn unexpected<T>(&mut self, kind: &str, expected: &str) -> Parsed<T> {
        let lexeme = self.lexeme();
        let shown = self.shown(lexeme);
        self.report(lexeme.start, format!("Syntax error: {kind} input '{shown}' expecting {expected}"));
        Err(Stop)
    }

    pub fn expect(&mut self, token: Token, name: &str) -> Parsed<Lexeme> {
        if let Some(lexeme) = self.eat(token) {
            return Ok(lexeme);
        }
        let lexeme = self.lexeme();
        if lexeme.token == Token::End {
            // One that is only left out at the end is missed; behind a colon something would have to follow.
            if token == Token::Colon {
                return self.unexpected("mismatched", name);
            }
            self.report(lexeme.start, format!("Syntax error: missing {name} at '<EOF>'"));
            return Err(Stop);
        }
        let kind = if self.peek_at(1) == token { "extraneous" } else { "mismatched" };
        self.unexpected(kind, name)
    }

    fn too_deep<T>(&mut self) -> Parsed<T> {
        self.issues.push(Finding::everywhere(format!("expression recursion limit exceeded: {MAX_RECURSION_DEPTH}")));
        Err(Stop)
    }

    pub fn offset(&self, id: ExprId) -> u32 {
        self.offsets[id as usize]
    }

    fn span(&self, id: ExprId) -> (u32, u32) {
        self.spans[id as usize]
    }

    /// Adds a node; `start` is where its text begins, it ends at the last token read.
    pub fn node(&mut self, offset: u32, start: u32, height: u32, expr: Expr) -> ExprId {
        self.nodes.push(expr);
        self.offsets.push(offset);
        self.spans.push((start, self.last_end()));
        self.heights.push(height);
        (self.nodes.len() - 1) as ExprId
    }

    pub fn height(&self, ids: impl IntoIterator<Item = ExprId>) -> u32 {
        ids.into_iter().map(|id| self.heights[id as usize]).max().unwrap_or(0)
    }

    fn call(&mut self, offset: u32, start: u32, function: &str, args: Vec<ExprId>) -> ExprId {
        let height = 1 + self.height(args.iter().copied());
        let call = Expr::Call { function: function.into(), target: None, args };
        self.node(offset, start, height, call)
    }

    pub fn expr(&mut self) -> Parsed<ExprId> {
        self.expr_depth += 1;
        if self.expr_depth > MAX_RECURSION_DEPTH {
            return self.too_deep();
        }
        let condition = self.logical(Token::Or)?;
        let result = if let Some(question) = self.eat(Token::Question) {
            let truthy = self.logical(Token::Or)?;
            self.expect(Token::Colon, "':'")?;
            let falsy = self.expr()?;
            let start = self.span(condition).0;
            self.call(question.start, start, operators::CONDITIONAL, vec![condition, truthy, falsy])
        } else {
            condition
        };
        self.expr_depth -= 1;
        Ok(result)
    }

    /// A chain of `||`, or of `&&` one level below. Not nested: the chain is one node, however long.
    fn logical(&mut self, operator: Token) -> Parsed<ExprId> {
        let first = self.logical_term(operator)?;
        if self.peek() != operator {
            return Ok(first);
        }
        let offset = self.lexeme().start;
        let mut terms = vec![first];
        while self.eat(operator).is_some() {
            terms.push(self.logical_term(operator)?);
        }
        let name = if operator == Token::Or { operators::OR } else { operators::AND };
        let height = self.height(terms.iter().copied());
        let start = self.span(first).0;
        let call = Expr::Call { function: name.into(), target: None, args: terms };
        Ok(self.node(offset, start, height, call))
    }

    fn logical_term(&mut self, operator: Token) -> Parsed<ExprId> {
        if operator == Token::Or { self.logical(Token::And) } else { self.relation() }
    }

    fn relation(&mut self) -> Parsed<ExprId> {
        let outer = self.relation_depth;
        self.relation_depth += 1;
        let mut left = self.calc(0)?;
        while let Some(operator) = relation_operator(self.peek()) {
            let lexeme = self.advance();
            self.relation_depth += 1;
            if self.relation_depth >= MAX_RECURSION_DEPTH {
                return self.too_deep();
            }
            let right = self.calc(0)?;
            let start = self.span(left).0;
            left = self.call(lexeme.start, start, operator, vec![left, right]);
        }
        self.relation_depth = outer;
        Ok(left)
    }

    /// Sums (level 0) and products (level 1).
    fn calc(&mut self, level: u8) -> Parsed<ExprId> {
        let outer = self.calc_depth;
        self.calc_depth += 1;
        let mut left = self.unary()?;
        while let Some((operator, precedence)) = calc_operator(self.peek()) {
            if precedence < level {
                break;
            }
            let lexeme = self.advance();
            self.calc_depth += 1;
            if self.calc_depth >= MAX_RECURSION_DEPTH {
                return self.too_deep();
            }
            let right = self.calc(precedence + 1)?;
            let start = self.span(left).0;
            left = self.call(lexeme.start, start, operator, vec![left, right]);
        }
        self.calc_depth = outer;
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<ExprId> {
        let first = self.lexeme();
        let (token, function) = match first.token {
            Token::Exclamation => (Token::Exclamation, operators::NOT),
            // A single sign before a number belongs to the number.
            Token::Minus if matches!(self.peek_at(1), Token::Int | Token::Float) => {
                return self.member();
            }
            Token::Minus => (Token::Minus, operators::NEGATE),
            _ => return self.member(),
        };
        let mut count = 0;
        while self.eat(token).is_some() {
            count += 1;
        }
        let operand = self.member()?;
        if count % 2 == 0 {
            return Ok(operand);
        }
        let height = self.height([operand]);
        let call = Expr::Call { function: function.into(), target: None, args: vec![operand] };
        Ok(self.node(first.start, first.start, height, call))
    }

    fn member(&mut self) -> Parsed<ExprId> {
        let outer = self.member_depth;
        self.member_depth += 1;
        let mut operand = self.primary()?;
        loop {
            let start = self.span(operand).0;
            let operator = self.lexeme();
            match operator.token {
                Token::Dot => {
                    self.advance();
                    operand = self.selection(operand, start, operator)?;
                }
                Token::LeftBracket => {
                    self.advance();
                    let optional = self.eat(Token::Question).is_some();
                    let index = self.expr()?;
                    self.expect(Token::RightBracket, "']'")?;
                    let function = if optional { operators::OPT_INDEX } else { operators::INDEX };
                    operand = self.call(operator.start, start, function, vec![operand, index]);
                }
                _ => break,
            }
            self.member_depth += 1;
            if self.member_depth > MAX_RECURSION_DEPTH {
                return self.too_deep();
            }
        }
        self.member_depth = outer;
        Ok(operand)
    }

    /// What follows `operand.`: a field, an optional field, or a call.
    fn selection(&mut self, operand: ExprId, start: u32, dot: Lexeme) -> Parsed<ExprId> {
        let optional = self.eat(Token::Question).is_some();
        let name = self.lexeme();
        if !matches!(name.token, Token::Ident | Token::EscapedIdent) {
            return self.bad_field_name(optional, dot);
        }
        self.advance();
        let text = self.text(name);
        if name.token == Token::Ident && !optional && self.peek() == Token::LeftParen {
            let open = self.advance();
            let args = self.arguments()?;
            return Ok(self.member_call(open.start, start, text, operand, args));
        }
        let field: Arc<str> = if name.token == Token::EscapedIdent {
            // Kubernetes does not switch this syntax off, so backquoted names may be selected.
            text[1..text.len() - 1].into()
        } else {
            text.into()
        };
        let height = 1 + self.height([operand]);
        if optional {
            let literal = self.node(name.start, name.start, 0, Expr::Literal(Literal::String(field)));
            let call = Expr::Call { function: operators::OPT_SELECT.into(), target: None, args: vec![operand, literal] };
            return Ok(self.node(dot.start, start, height, call));
        }
        let select = Expr::Select { operand, field, test: false };
        Ok(self.node(dot.start, start, height, select))
    }

    fn bad_field_name<T>(&mut self, optional: bool, dot: Lexeme) -> Parsed<T> {
        let lexeme = self.lexeme();
        let shown = self.shown(lexeme);
        let message = match lexeme.token {
            Token::True | Token::False | Token::Null if !optional => {
                format!("Syntax error: mismatched input '{shown}' expecting IDENTIFIER")
            }
            _ if optional => format!("Syntax error: mismatched input '{shown}' expecting {{IDENTIFIER, ESC_IDENTIFIER}}"),
            Token::End => "Syntax error: no viable alternative at input '.'".to_owned(),
            _ => {
                let seen = &self.source[dot.start as usize..lexeme.end as usize];
                format!("Syntax error: no viable alternative at input '{seen}'")
            }
        };
        self.report(lexeme.start, message);
        Err(Stop)
    }

    fn member_call(&mut self, offset: u32, start: u32, name: &str, target: ExprId, args: Vec<ExprId>) -> ExprId {
        let height = 1 + self.height(args.iter().copied().chain([target]));
        let expr = match macros::expand(self, offset, name, Some(target), &args) {
            Some(expr) => expr,
            None => Expr::Call { function: name.into(), target: Some(target), args },
        };
        self.node(offset, start, height, expr)
    }

    fn arguments(&mut self) -> Parsed<Vec<ExprId>> {
        let mut args = Vec::new();
        if self.eat(Token::RightParen).is_some() {
            return Ok(args);
        }
        if self.peek() == Token::End {
            return self.unexpected("mismatched", &OPERAND.replacen("'(', ", "'(', ')', ", 1));
        }
        loop {
            args.push(self.expr()?);
            if self.eat(Token::Comma).is_none() {
                break;
            }
        }
        self.expect(Token::RightParen, "')'")?;
        Ok(args)
    }

    fn primary(&mut self) -> Parsed<ExprId> {
        let first = self.lexeme();
        match first.token {
            Token::Dot if self.peek_at(1) == Token::Ident => {
                self.advance();
                self.name(first.start, true)
            }
            Token::Ident => self.name(first.start, false),
            Token::LeftParen => {
                self.advance();
                let inner = self.expr()?;
                self.expect(Token::RightParen, "')'")?;
                self.spans[inner as usize] = (first.start, self.last_end());
                Ok(inner)
            }
            Token::LeftBracket => self.list(),
            Token::LeftBrace => self.map(),
            Token::Minus
            | Token::Int
            | Token::Uint
            | Token::Float
            | Token::String
            | Token::Bytes
            | Token::True
            | Token::False
            | Token::Null => self.literal(),
            Token::End | Token::Dot => self.unexpected("mismatched", OPERAND),
            _ => {
                let next_starts = matches!(
                    self.peek_at(1),
                    Token::Ident
                        | Token::Dot
                        | Token::LeftParen
                        | Token::LeftBracket
                        | Token::LeftBrace
                        | Token::Minus
                        | Token::Exclamation
                        | Token::Int
                        | Token::Uint
                        | Token::Float
                        | Token::String
                        | Token::Bytes
                        | Token::True
                        | Token::False
                        | Token::Null
                );
                self.unexpected(if next_starts { "extraneous" } else { "mismatched" }, OPERAND)
            }
        }
    }

    fn name(&mut self, start: u32, absolute: bool) -> Parsed<ExprId> {
        if self.starts_message() {
            return self.message(start, absolute);
        }
        let lexeme = self.advance();
        let text = self.text(lexeme);
        let name: Arc<str> = if absolute { format!(".{text}").into() } else { text.into() };
        if RESERVED.contains(&text) {
            self.report(start, format!("reserved identifier: {text}"));
        }
        let Some(open) = self.eat(Token::LeftParen) else {
            return Ok(self.node(lexeme.start, start, 0, Expr::Ident(name)));
        };
        let args = self.arguments()?;
        let height = self.height(args.iter().copied());
        let expr = match macros::expand(self, open.start, &name, None, &args) {
            Some(expr) => expr,
            None => Expr::Call { function: name, target: None, args },
        };
        Ok(self.node(open.start, start, height, expr))
    }
}

fn relation_operator(token: Token) -> Option<&'static str> {
    Some(match token {
        Token::Less => operators::LESS,
        Token::LessEquals => operators::LESS_EQUALS,
        Token::Greater => operators::GREATER,
        Token::GreaterEquals => operators::GREATER_EQUALS,
        Token::Equals => operators::EQUALS,
        Token::NotEquals => operators::NOT_EQUALS,
        Token::In => operators::IN,
        _ => return None,
    })
}

fn calc_operator(token: Token) -> Option<(&'static str, u8)> {
    Some(match token {
        Token::Plus => (operators::ADD, 0),
        Token::Minus => (operators::SUBTRACT, 0),
        Token::Star => (operators::MULTIPLY, 1),
        Token::Slash => (operators::DIVIDE, 1),
        Token::Percent => (operators::MODULO, 1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Issues;

    fn error(source: &str) -> String {
        match parse(source) {
            Ok(_) => panic!("{source} parses"),
            Err(issues) => Issues::new(source, issues).to_string(),
        }
    }

    #[test]
    fn syntax_errors_point_at_the_token() {
        assert_eq!(
            error("1 + "),
            format!("ERROR: <input>:1:5: Syntax error: mismatched input '<EOF>' expecting {OPERAND}\n | 1 + \n | ....^")
        );
        assert_eq!(error("a b"), "ERROR: <input>:1:3: Syntax error: extraneous input 'b' expecting <EOF>\n | a b\n | ..^");
        assert_eq!(error("(1"), "ERROR: <input>:1:3: Syntax error: missing ')' at '<EOF>'\n | (1\n | ..^");
        assert_eq!(error("[1, 2"), "ERROR: <input>:1:6: Syntax error: mismatched input '<EOF>' expecting {']', ','}\n | [1, 2\n | .....^");
        assert!(error("f(").starts_with("ERROR: <input>:1:3: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', ')', '.', "));
        assert!(error("F{a").starts_with("ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting ':'"));
        assert!(error("a.true").contains("mismatched input 'true' expecting IDENTIFIER"));
        assert!(error("namespace.x").contains("reserved identifier: namespace"));
    }

    #[test]
    fn nesting_and_chains_stop_at_the_limit() {
        let limit = "ERROR: <input>:-1:0: expression recursion limit exceeded: 250";
        assert_eq!(error(&format!("{}1{}", "(".repeat(10_000), ")".repeat(10_000))), limit);
        assert_eq!(error(&format!("{}{}", "[".repeat(10_000), "]".repeat(10_000))), limit);
        assert_eq!(error(&format!("a{}", ".b".repeat(40_000))), limit);
        assert_eq!(error(&format!("1{}", " + 1".repeat(20_000))), limit);
        assert!(parse(&format!("1{}", " + 1".repeat(240))).is_ok());
        assert!(parse(&format!("a{}", ".b".repeat(240))).is_ok());
        assert!(parse(&format!("a{}", " && a".repeat(10_000))).is_ok());
        assert!(parse(&"-".repeat(50_000)).is_err());
        let huge = error(&"1 + ".repeat(262_144));
        assert_eq!(huge, "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 1048576, limit 100000");
    }

    #[test]
    fn signs_belong_to_numbers_and_doubled_operators_cancel_out() {
        let ast = parse("-1").ok().unwrap();
        assert!(matches!(ast.expr(ast.root), Expr::Literal(Literal::Int(-1))));
        let ast = parse("!!a").ok().unwrap();
        assert!(matches!(ast.expr(ast.root), Expr::Ident(_)));
    }
}
