//! Splits an expression into tokens. Characters that start no token become issues and are skipped, as in
//! Kubernetes' parser, which then goes on. Does not unescape literals; see [`crate::literal`].

use crate::source::Finding;

/// How many unrecognised characters are reported before giving up.
const MAX_ERRORS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    Ident,
    /// `` `a-b` ``
    EscapedIdent,
    Int,
    Uint,
    Float,
    String,
    Bytes,
    True,
    False,
    Null,
    In,
    Equals,
    NotEquals,
    Less,
    LessEquals,
    Greater,
    GreaterEquals,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Exclamation,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    End,
}

/// A token and where it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lexeme {
    pub token: Token,
    pub start: u32,
    pub end: u32,
}

pub(crate) fn lex(source: &str, issues: &mut Vec<Finding>) -> Vec<Lexeme> {
    let bytes = source.as_bytes();
    let mut tokens = Vec::with_capacity(source.len() / 3 + 2);
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'\t' | b' ' | b'\r' | b'\n' | 0x0c => {
                at += 1;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = source[at..].find('\n').map_or(bytes.len(), |n| at + n);
                continue;
            }
            _ => {}
        }
        if let Some((token, end)) = next(source, bytes, at) {
            at = end;
            tokens.push(Lexeme { token, start: start as u32, end: end as u32 });
        } else {
            at = skip_unrecognised(source, at);
            if issues.len() == MAX_ERRORS {
                let message = format!("Syntax error: More than {MAX_ERRORS} syntax errors");
                issues.push(Finding::new(start as u32, message));
                break;
            }
            let message = format!("Syntax error: token recognition error at: '{}'", &source[start..at]);
            issues.push(Finding::new(start as u32, message));
        }
    }
    tokens.push(Lexeme { token: Token::End, start: bytes.len() as u32, end: bytes.len() as u32 });
    tokens
}

/// Where recognition starts again: after an unterminated literal as far as it was read, else one character on.
fn skip_unrecognised(source: &str, at: usize) -> usize {
    let rest = &source[at..];
    let bytes = rest.as_bytes();
    let prefix = bytes.iter().take_while(|b| b"bBrR".contains(b)).count();
    let char_end = at + rest.chars().next().map_or(1, char::len_utf8);
    let opens_literal = matches!(bytes.get(prefix), Some(b'"' | b'\''));
    let half_operator = matches!(bytes[0], b'|' | b'&' | b'=') && bytes.len() > 1;
    if opens_literal {
        let stop = rest[prefix + 1..].find(['\n', '\r', '\\']);
        stop.map_or(source.len(), |n| at + prefix + 1 + n + 1)
    } else if half_operator {
        char_end + source[char_end..].chars().next().map_or(0, char::len_utf8)
    } else {
        char_end
    }
}

fn next(source: &str, bytes: &[u8], at: usize) -> Option<(Token, usize)> {
    let second = bytes.get(at + 1).copied();
    let one = |t| Some((t, at + 1));
    let two = |t| Some((t, at + 2));
    match bytes[at] {
        b'=' if second == Some(b'=') => two(Token::Equals),
        b'!' if second == Some(b'=') => two(Token::NotEquals),
        b'<' if second == Some(b'=') => two(Token::LessEquals),
        b'>' if second == Some(b'=') => two(Token::GreaterEquals),
        b'&' if second == Some(b'&') => two(Token::And),
        b'|' if second == Some(b'|') => two(Token::Or),
        b'<' => one(Token::Less),
        b'>' => one(Token::Greater),
        b'[' => one(Token::LeftBracket),
        b']' => one(Token::RightBracket),
        b'{' => one(Token::LeftBrace),
        b'}' => one(Token::RightBrace),
        b'(' => one(Token::LeftParen),
        b')' => one(Token::RightParen),
        b'.' if second.is_some_and(|b| b.is_ascii_digit()) => Some(number(bytes, at)),
        b'.' => one(Token::Dot),
        b',' => one(Token::Comma),
        b'-' => one(Token::Minus),
        b'!' => one(Token::Exclamation),
        b'?' => one(Token::Question),
        b':' => one(Token::Colon),
        b'+' => one(Token::Plus),
        b'*' => one(Token::Star),
        b'/' => one(Token::Slash),
        b'%' => one(Token::Percent),
        b'0'..=b'9' => Some(number(bytes, at)),
        b'"' | b'\'' => string(bytes, at, false).map(|end| (Token::String, end)),
        b'`' => {
            let end = bytes[at + 1..].iter().position(|b| !(b.is_ascii_alphanumeric() || b"_.-/ ".contains(b)))?;
            (end > 0 && bytes[at + 1 + end] == b'`').then_some((Token::EscapedIdent, at + end + 2))
        }
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => Some(prefixed_string(bytes, at).unwrap_or_else(|| word(source, bytes, at))),
        _ => None,
    }
}

fn prefixed_string(bytes: &[u8], at: usize) -> Option<(Token, usize)> {
    let is_bytes = matches!(bytes[at], b'b' | b'B');
    let after_b = at + usize::from(is_bytes);
    let raw = matches!(bytes.get(after_b), Some(b'r' | b'R'));
    let quote = after_b + usize::from(raw);
    if quote == at || !matches!(bytes.get(quote), Some(b'"' | b'\'')) {
        return None;
    }
    let token = if is_bytes { Token::Bytes } else { Token::String };
    string(bytes, quote, raw).map(|end| (token, end))
}

/// The end of the literal whose opening quote stands at `at`.
fn string(bytes: &[u8], at: usize, raw: bool) -> Option<usize> {
    let quote = bytes[at];
    let triple = bytes.get(at + 1) == Some(&quote) && bytes.get(at + 2) == Some(&quote);
    if triple {
        let mut i = at + 3;
        while i < bytes.len() {
            if bytes[i..].starts_with(&[quote, quote, quote]) {
                return Some(i + 3);
            }
            i += match bytes[i] {
                b'\\' if !raw => escape_length(bytes, i)?,
                _ => 1,
            };
        }
        // Not terminated as a triple quoted literal: the two first quotes are an empty one.
        return Some(at + 2);
    }
    let mut i = at + 1;
    while i < bytes.len() {
        match bytes[i] {
            b if b == quote => return Some(i + 1),
            b'\n' | b'\r' => return None,
            b'\\' if !raw => i += escape_length(bytes, i)?,
            _ => i += 1,
        }
    }
    None
}

fn escape_length(bytes: &[u8], at: usize) -> Option<usize> {
    let hex = |n: usize| {
        let digits = bytes.get(at + 2..at + 2 + n)?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(n + 2)
    };
    match bytes.get(at + 1)? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => Some(2),
        b'x' | b'X' => hex(2),
        b'u' => hex(4),
        b'U' => hex(8),
        b'0'..=b'3' => {
            let digits = bytes.get(at + 2..at + 4)?;
            digits.iter().all(|b| (b'0'..=b'7').contains(b)).then_some(4)
        }
        _ => None,
    }
}

fn number(bytes: &[u8], at: usize) -> (Token, usize) {
    let digits = |mut i: usize| {
        while bytes.get(i).is_some_and(u8::is_ascii_digit) {
            i += 1;
        }
        i
    };
    let uint = |i: usize| match bytes.get(i) {
        Some(b'u' | b'U') => (Token::Uint, i + 1),
        _ => (Token::Int, i),
    };
    if bytes[at] == b'0' && bytes.get(at + 1) == Some(&b'x') && bytes.get(at + 2).is_some_and(u8::is_ascii_hexdigit) {
        let mut i = at + 2;
        while bytes.get(i).is_some_and(u8::is_ascii_hexdigit) {
            i += 1;
        }
        return uint(i);
    }
    let mut i = digits(at);
    let mut float = false;
    if bytes.get(i) == Some(&b'.') && bytes.get(i + 1).is_some_and(u8::is_ascii_digit) {
        i = digits(i + 1);
        float = true;
    }
    if matches!(bytes.get(i), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(i + 1), Some(b'+' | b'-')));
        if bytes.get(i + 1 + sign).is_some_and(u8::is_ascii_digit) {
            i = digits(i + 1 + sign);
            float = true;
        }
    }
    if float { (Token::Float, i) } else { uint(i) }
}

fn word(source: &str, bytes: &[u8], at: usize) -> (Token, usize) {
    let mut end = at + 1;
    while bytes.get(end).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_') {
        end += 1;
    }
    let token = match &source[at..end] {
        "true" => Token::True,
        "false" => Token::False,
        "null" => Token::Null,
        "in" => Token::In,
        _ => Token::Ident,
    };
    (token, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(source: &str) -> Vec<(Token, &str)> {
        let mut issues = Vec::new();
        let lexemes = lex(source, &mut issues);
        assert!(issues.is_empty(), "{issues:?}");
        lexemes.iter().map(|l| (l.token, &source[l.start as usize..l.end as usize])).collect()
    }

    #[test]
    fn numbers_strings_and_names_are_told_apart() {
        assert_eq!(
            tokens("0x1fu 1.5e3 .5 1.a rb'x' b\"\\x41\" '''a'b''' in inner // rest"),
            vec![
                (Token::Uint, "0x1fu"),
                (Token::Float, "1.5e3"),
                (Token::Float, ".5"),
                (Token::Int, "1"),
                (Token::Dot, "."),
                (Token::Ident, "a"),
                (Token::Ident, "rb"),
                (Token::String, "'x'"),
                (Token::Bytes, "b\"\\x41\""),
                (Token::String, "'''a'b'''"),
                (Token::In, "in"),
                (Token::Ident, "inner"),
                (Token::End, ""),
            ]
        );
    }

    #[test]
    fn characters_that_start_no_token_are_reported_and_skipped() {
        let mut issues = Vec::new();
        lex("*@a | b", &mut issues);
        let texts: Vec<_> = issues.iter().map(|i| i.message.as_str()).collect();
        assert_eq!(texts, ["Syntax error: token recognition error at: '@'", "Syntax error: token recognition error at: '| '"]);
    }
}
