//! The parts of the grammar that are written in brackets or quotes: lists, maps, messages and literals. The rest of
//! the grammar is in [`crate::parser`].

use std::sync::Arc;

use crate::ast::{Entry, Expr, ExprId, Literal};
use crate::lexer::Token;
use crate::literal;
use crate::parser::{Parsed, Parser};

impl Parser<'_> {
    /// Whether `a.b.c{` comes next.
    pub fn starts_message(&self) -> bool {
        let mut ahead = 1;
        while self.peek_at(ahead) == Token::Dot && self.peek_at(ahead + 1) == Token::Ident {
            ahead += 2;
        }
        self.peek_at(ahead) == Token::LeftBrace
    }

    pub fn message(&mut self, start: u32, absolute: bool) -> Parsed<ExprId> {
        let mut name = String::from(if absolute { "." } else { "" });
        loop {
            let lexeme = self.advance();
            match lexeme.token {
                Token::LeftBrace => {
                    let fields = self.fields()?;
                    let height = self.height(fields.iter().map(|f| f.value));
                    let expr = Expr::Struct { name: name.into(), fields };
                    return Ok(self.node(lexeme.start, start, height, expr));
                }
                _ => name.push_str(self.text(lexeme)),
            }
        }
    }

    fn fields(&mut self) -> Parsed<Vec<Entry<Arc<str>>>> {
        let mut fields = Vec::new();
        while self.peek() != Token::RightBrace && !(self.peek() == Token::Comma && self.peek_at(1) == Token::RightBrace) {
            let optional = self.eat(Token::Question).is_some();
            let lexeme = self.lexeme();
            let key = match lexeme.token {
                Token::Ident => self.text(lexeme).into(),
                Token::EscapedIdent => {
                    let text = self.text(lexeme);
                    text[1..text.len() - 1].into()
                }
                _ => {
                    return self.unexpected("mismatched", "{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}");
                }
            };
            self.advance();
            let colon = self.expect(Token::Colon, "':'")?;
            let value = self.expr()?;
            fields.push(Entry { offset: colon.start, key, value, optional });
            if self.peek() != Token::Comma || self.peek_at(1) == Token::RightBrace {
                break;
            }
            self.advance();
        }
        self.eat(Token::Comma);
        self.close(Token::RightBrace, "'}'")?;
        Ok(fields)
    }

    fn close(&mut self, token: Token, name: &str) -> Parsed<()> {
        if self.eat(token).is_some() {
            return Ok(());
        }
        let expected = format!("{{{name}, ','}}");
        self.unexpected("mismatched", &expected)
    }

    pub fn list(&mut self) -> Parsed<ExprId> {
        let open = self.advance();
        let mut items = Vec::new();
        let mut optional = Vec::new();
        while !matches!(self.peek(), Token::RightBracket | Token::Comma) {
            if self.eat(Token::Question).is_some() {
                optional.push(items.len());
            }
            items.push(self.expr()?);
            if self.peek() != Token::Comma || self.peek_at(1) == Token::RightBracket {
                break;
            }
            self.advance();
        }
        self.eat(Token::Comma);
        self.close(Token::RightBracket, "']'")?;
        let height = self.height(items.iter().copied());
        Ok(self.node(open.start, open.start, height, Expr::List { items, optional }))
    }

    pub fn map(&mut self) -> Parsed<ExprId> {
        let open = self.advance();
        let mut entries = Vec::new();
        while !matches!(self.peek(), Token::RightBrace | Token::Comma) {
            let optional = self.eat(Token::Question).is_some();
            let key = self.expr()?;
            let colon = self.expect(Token::Colon, "':'")?;
            let value = self.expr()?;
            entries.push(Entry { offset: colon.start, key, value, optional });
            if self.peek() != Token::Comma || self.peek_at(1) == Token::RightBrace {
                break;
            }
            self.advance();
        }
        self.eat(Token::Comma);
        self.close(Token::RightBrace, "'}'")?;
        let height = self.height(entries.iter().flat_map(|e| [e.key, e.value]));
        Ok(self.node(open.start, open.start, height, Expr::Map(entries)))
    }

    pub fn literal(&mut self) -> Parsed<ExprId> {
        let first = self.advance();
        let negative = first.token == Token::Minus;
        let lexeme = if negative { self.advance() } else { first };
        let text = self.text(lexeme);
        let value = match lexeme.token {
            Token::Int => literal::int(text, negative),
            Token::Float => literal::double(text, negative),
            Token::Uint => literal::uint(text),
            Token::String => literal::string(text),
            Token::Bytes => literal::bytes(text),
            Token::True => Ok(Literal::Bool(true)),
            Token::False => Ok(Literal::Bool(false)),
            _ => Ok(Literal::Null),
        };
        let value = value.unwrap_or_else(|message| {
            self.report(first.start, message);
            Literal::Null
        });
        Ok(self.node(first.start, first.start, 0, Expr::Literal(value)))
    }
}
