//! What is wrong with a text that is not JSON, in the words that a real server has for it. Only called once it is known
//! that something is.

/// Deeper than this is refused.
const MAX_DEPTH: usize = 10_000;

/// The sentence for a text that is not JSON; for one that is, what would be said if more were expected.
pub fn explain(text: &[u8]) -> String {
    let mut scanner = Scanner { text, at: 0, open: Vec::new() };
    match scanner.run() {
        Err(sentence) => sentence,
        // What the scanner takes and the decoder does not is a matter of depth.
        Ok(()) => "exceeded max depth".to_owned(),
    }
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// The brackets that are open.
    open: Vec<u8>,
}

impl Scanner<'_> {
    fn run(&mut self) -> Result<(), String> {
        loop {
            self.value()?;
            // Behind a value: close what closes here, and go on to the next value.
            loop {
                let Some(&bracket) = self.open.last() else {
                    return match self.skip_space() {
                        Some(byte) => Err(invalid(byte, "after top-level value")),
                        None => Ok(()),
                    };
                };
                let (close, place) = if bracket == b'{' { (b'}', "after object key:value pair") } else { (b']', "after array element") };
                match self.skip_space().ok_or_else(end)? {
                    b',' => {
                        self.at += 1;
                        if bracket == b'{' {
                            self.key()?;
                        }
                        break;
                    }
                    byte if byte == close => {
                        self.at += 1;
                        self.open.pop();
                    }
                    byte => return Err(invalid(byte, place)),
                }
            }
        }
    }

    /// A scalar, an empty list or object, or the beginning of one.
    fn value(&mut self) -> Result<(), String> {
        loop {
            match self.skip_space().ok_or_else(end)? {
                bracket @ (b'{' | b'[') => {
                    self.at += 1;
                    self.open.push(bracket);
                    if self.open.len() > MAX_DEPTH {
                        return Err("exceeded max depth".to_owned());
                    }
                    let close = if bracket == b'{' { b'}' } else { b']' };
                    if self.skip_space().ok_or_else(end)? == close {
                        self.at += 1;
                        self.open.pop();
                        return Ok(());
                    }
                    if bracket == b'{' {
                        self.key()?;
                    }
                }
                b'"' => return self.string(),
                b't' => return self.literal("true"),
                b'f' => return self.literal("false"),
                b'n' => return self.literal("null"),
                b'-' | b'0'..=b'9' => return self.number(),
                byte => return Err(invalid(byte, "looking for beginning of value")),
            }
        }
    }

    fn key(&mut self) -> Result<(), String> {
        match self.skip_space().ok_or_else(end)? {
            b'"' => self.string()?,
            byte => return Err(invalid(byte, "looking for beginning of object key string")),
        }
        match self.skip_space().ok_or_else(end)? {
            b':' => {
                self.at += 1;
                Ok(())
            }
            byte => Err(invalid(byte, "after object key")),
        }
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.next().ok_or_else(end)? {
                b'"' => return Ok(()),
                b'\\' => match self.next().ok_or_else(end)? {
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.next().ok_or_else(end)?;
                            if !byte.is_ascii_hexdigit() {
                                return Err(invalid(byte, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    byte => return Err(invalid(byte, "in string escape code")),
                },
                byte if byte < 0x20 => return Err(invalid(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        self.at += 1;
        for expected in word.bytes().skip(1) {
            let byte = self.next().ok_or_else(end)?;
            if byte != expected {
                return Err(invalid(byte, &format!("in literal {word} (expecting '{}')", char::from(expected))));
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), String> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.next().ok_or_else(end)? {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            byte => return Err(invalid(byte, "in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, place: &str) -> Result<(), String> {
        match self.next().ok_or_else(end)? {
            byte if byte.is_ascii_digit() => Ok(()),
            byte => Err(invalid(byte, place)),
        }
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// The next byte that means something; it is not taken.
    fn skip_space(&mut self) -> Option<u8> {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.peek()
    }
}

fn end() -> String {
    "unexpected end of JSON input".to_owned()
}

fn invalid(byte: u8, place: &str) -> String {
    let shown = match byte {
        b'\'' => "\\'".to_owned(),
        b'\\' => "\\\\".to_owned(),
        b'\n' => "\\n".to_owned(),
        b'\r' => "\\r".to_owned(),
        b'\t' => "\\t".to_owned(),
        0..0x20 | 0x7f => format!("\\x{byte:02x}"),
        _ => char::from(byte).to_string(),
    };
    format!("invalid character '{shown}' {place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told_in_known_words() {
        for (text, sentence) in [
            ("", "unexpected end of JSON input"),
            (r#"{"apiVersion":"v1","#, "unexpected end of JSON input"),
            ("{a: 1}", "invalid character 'a' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 "b":2}"#, "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("[tru]", "invalid character ']' in literal true (expecting 'e')"),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("hello", "invalid character 'h' looking for beginning of value"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
        ] {
            assert_eq!(explain(text.as_bytes()), sentence, "{text}");
        }
    }

    #[test]
    fn depth_is_a_mistake_of_its_own() {
        assert_eq!(explain("[".repeat(20_000).as_bytes()), "exceeded max depth");
        assert_eq!(explain(format!("{}{}", "[".repeat(500), "]".repeat(500)).as_bytes()), "exceeded max depth");
    }
}
