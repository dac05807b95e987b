//! URLs, parsed with the rules of Go's `net/url`: absolute, or starting with a slash.

use crate::declarations::{Declaration, declare};
use crate::error::{EvalError, failed, no_such_overload};
use crate::library::Opaque;
use crate::meter::Meter;
use crate::operations::Answer;
use crate::value::{Entries, Value};

#[rustfmt::skip]
pub(crate) const DECLARATIONS: &[Declaration] = &[
    declare("url", "string_to_url", "(string) -> kubernetes.URL", url),
    declare("getScheme", "url_get_scheme", "kubernetes.URL.() -> string", get_scheme),
    declare("getHost", "url_get_host", "kubernetes.URL.() -> string", get_host),
    declare("getHostname", "url_get_hostname", "kubernetes.URL.() -> string", get_hostname),
    declare("getPort", "url_get_port", "kubernetes.URL.() -> string", get_port),
    declare("getEscapedPath", "url_get_escaped_path", "kubernetes.URL.() -> string", get_escaped_path),
    declare("getQuery", "url_get_query", "kubernetes.URL.() -> map(string, list(string))", get_query),
    declare("isURL", "is_url_string", "(string) -> bool", is_url),
];

/// A URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    text: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Url {
    /// Reads a URL; the error is Go's.
    pub(crate) fn parse(text: &str) -> Result<Url, String> {
        parse(text).map_err(|why| format!("parse {text:?}: {why}"))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The host without its port and brackets, and the port.
    fn split_host(&self) -> (&str, &str) {
        if let Some(rest) = self.host.strip_prefix('[') {
            let (name, after) = rest.split_once(']').unwrap_or((rest, ""));
            return (name, after.strip_prefix(':').unwrap_or(""));
        }
        self.host.split_once(':').unwrap_or((&self.host, ""))
    }
}

fn parse(text: &str) -> Result<Url, String> {
    if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() {
        return Err("empty url".into());
    }
    let (scheme, rest) = scheme(text)?;
    let rest = if scheme.is_empty() { text } else { rest };
    let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
    // A fragment is only cut off after the first check, which takes it for a part of the path.
    let query = query.split('#').next().unwrap_or("");
    let mut url = Url {
        text: text.to_owned(),
        scheme: scheme.to_ascii_lowercase(),
        host: String::new(),
        path: String::new(),
        query: query.to_owned(),
    };
    if !before_query.starts_with('/') {
        if scheme.is_empty() {
            return Err("invalid URI for request".into());
        }
        return Ok(url);
    }
    let mut path = before_query;
    if let Some(after) = before_query.strip_prefix("//")
        && (!scheme.is_empty() || !before_query.starts_with("///"))
    {
        let end = after.find('/').unwrap_or(after.len());
        let authority = &after[..end];
        path = &after[end..];
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        url.host = check_host(host)?;
    }
    let path = path.split('#').next().unwrap_or("");
    unescape(path)?;
    url.path = path.to_owned();
    Ok(url)
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (i, c) in text.bytes().enumerate() {
        match c {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if i > 0 => {}
            b':' if i == 0 => return Err("missing protocol scheme".into()),
            b':' => return Ok((&text[..i], &text[i + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn check_host(host: &str) -> Result<String, String> {
    let valid_port = |port: &str| port.is_empty() || (port.starts_with(':') && port[1..].bytes().all(|b| b.is_ascii_digit()));
    if host.starts_with('[') {
        let end = host.rfind(']').ok_or("missing ']' in host")?;
        let port = &host[end + 1..];
        if !valid_port(port) {
            return Err(format!("invalid port {port:?} after host"));
        }
        return Ok(host.to_owned());
    }
    if let Some(at) = host.find(':')
        && !valid_port(&host[at..])
    {
        return Err(format!("invalid port {:?} after host", &host[at..]));
    }
    if let Some(bad) = host.chars().find(|c| c.is_ascii() && !(c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(*c))) {
        return Err(format!("invalid character {:?} in host name", bad.to_string()));
    }
    unescape(host)
}

fn unescape(text: &str) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        if bytes[i] != b'%' {
            out.push(bytes[i]);
            i += 1;
            continue;
        }
        let code = text.get(i + 1..i + 3).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => out.push(byte),
            None => {
                let shown: String = text[i..].chars().take(3).collect();
                return Err(format!("invalid URL escape {shown:?}"));
            }
        }
        i += 3;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// The path with everything escaped that has to be.
fn escaped_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for b in path.bytes() {
        let plain = b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&b);
        if plain {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

fn target<'v>(args: &'v [Value<'_>]) -> Result<&'v Url, EvalError> {
    match args {
        [Value::Opaque(Opaque::Url(url))] => Ok(url),
        _ => Err(no_such_overload()),
    }
}

fn url<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else {
        return Err(no_such_overload());
    };
    let url = Url::parse(text).map_err(|error| failed(format!("URL parse error during conversion from string: {error}")))?;
    Ok(Value::Opaque(Opaque::Url(url.into())))
}

fn is_url<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text)] => Ok(Value::Bool(Url::parse(text).is_ok())),
        _ => Err(no_such_overload()),
    }
}

fn get_scheme<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::string(target(args)?.scheme.as_str()))
}

fn get_host<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::string(target(args)?.host.as_str()))
}

fn get_hostname<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::string(target(args)?.split_host().0))
}

fn get_port<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::string(target(args)?.split_host().1))
}

fn get_escaped_path<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::string(escaped_path(&target(args)?.path)))
}

fn get_query<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let mut values: Vec<(String, Vec<Value<'a>>)> = Vec::new();
    for pair in target(args)?.query.split('&').filter(|p| !p.is_empty() && !p.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| unescape(&text.replace('+', " "));
        let (Ok(key), Ok(value)) = (decode(key), decode(value)) else {
            continue;
        };
        match values.iter_mut().find(|(k, _)| *k == key) {
            Some((_, list)) => list.push(Value::string(value)),
            None => values.push((key, vec![Value::string(value)])),
        }
    }
    let mut entries = Entries::default();
    for (key, list) in values {
        entries.insert(Value::string(key), Value::list(list));
    }
    Ok(Value::Map(entries.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_url_are_found() {
        let url = Url::parse("https://user@example.com:80/a b?x=1&y=2&x=3#f").unwrap();
        assert_eq!((url.scheme.as_str(), url.host.as_str(), url.query.as_str()), ("https", "example.com:80", "x=1&y=2&x=3"));
        assert_eq!(url.split_host(), ("example.com", "80"));
        assert_eq!(escaped_path(&url.path), "/a%20b");
        assert_eq!(Url::parse("https://[::1]:80/").unwrap().split_host(), ("::1", "80"));
        assert_eq!(Url::parse("/path").unwrap().host, "");
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in ["", "../relative", "https://a:b/", ":80", "https://a b/", "/%zz", "/\u{1}", "https://[::1"] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
