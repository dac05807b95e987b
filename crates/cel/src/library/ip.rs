//! IP addresses. Parsing is strict as in Go: no leading zeros, no zones, no IPv4 in IPv6.

use std::fmt;
use std::net::IpAddr;

use crate::declarations::{Declaration, declare};
use crate::error::{EvalError, failed, no_such_overload};
use crate::library::Opaque;
use crate::meter::Meter;
use crate::operations::Answer;
use crate::value::Value;

#[rustfmt::skip]
pub(crate) const DECLARATIONS: &[Declaration] = &[
    declare("ip", "string_to_ip", "(string) -> net.IP()", ip),
    declare("family", "ip_family", "net.IP().() -> int", family),
    declare("ip.isCanonical", "ip_is_canonical", "(string) -> bool", is_canonical),
    declare("isUnspecified", "ip_is_unspecified", "net.IP().() -> bool", is_unspecified),
    declare("isLoopback", "ip_is_loopback", "net.IP().() -> bool", is_loopback),
    declare("isLinkLocalMulticast", "ip_is_link_local_multicast", "net.IP().() -> bool", is_link_local_multicast),
    declare("isLinkLocalUnicast", "ip_is_link_local_unicast", "net.IP().() -> bool", is_link_local_unicast),
    declare("isGlobalUnicast", "ip_is_global_unicast", "net.IP().() -> bool", is_global_unicast),
    declare("isIP", "is_ip", "(string) -> bool", is_ip),
    declare("string", "ip_to_string", "(net.IP()) -> string", super::standard::to_string),
];

/// An address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ip(pub(crate) IpAddr);

impl Ip {
    /// Reads an address.
    pub(crate) fn parse(text: &str) -> Result<Ip, EvalError> {
        if let Some((_, zone)) = text.split_once('%')
            && !zone.is_empty()
            && text.contains(':')
        {
            return Err(failed(format!("IP address {text:?} with zone value is not allowed")));
        }
        let addr: IpAddr = text.parse().map_err(|_| {
            failed(format!("IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): {}", reason(text)))
        })?;
        match addr {
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err(failed(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))),
            addr => Ok(Ip(addr)),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        if self.0.is_ipv4() { 4 } else { 16 }
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a text is not an address, in Go's words.
pub(crate) fn reason(text: &str) -> String {
    match text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => reason_v4(text).to_owned(),
        Some(b':') => reason_v6(text),
        Some(_) => "missing IPv6 address".to_owned(),
        None => "unable to parse IP".to_owned(),
    }
}

fn reason_v4(text: &str) -> &'static str {
    let fields: Vec<&str> = text.split('.').collect();
    for (i, field) in fields.iter().enumerate() {
        if !field.bytes().all(|b| b.is_ascii_digit()) {
            return "unexpected character";
        }
        if field.is_empty() {
            return "IPv4 field must have at least one digit";
        }
        if field.len() > 1 && field.starts_with('0') {
            return "IPv4 field has octet with leading zero";
        }
        if field.parse::<u16>().is_ok_and(|n| n > 255) || field.len() > 3 {
            return "IPv4 field has value >255";
        }
        if i == 3 && fields.len() > 4 {
            return "IPv4 address too long";
        }
    }
    "IPv4 address too short"
}

fn reason_v6(text: &str) -> String {
    let mut rest = text;
    let mut fields = 0;
    if let Some(after) = rest.strip_prefix("::") {
        rest = after;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits == 0 {
            return format!("each colon-separated field must have at least one digit (at {rest:?})");
        }
        if digits > 4 {
            return format!("each group must have 4 or less digits (at {rest:?})");
        }
        fields += 1;
        rest = &rest[digits..];
        match rest.strip_prefix(':') {
            None if rest.is_empty() => break,
            None => return format!("unexpected character, want colon (at {rest:?})"),
            Some("") => return format!("colon must be followed by more characters (at {rest:?})"),
            Some(after) => rest = after.strip_prefix(':').unwrap_or(after),
        }
        if fields > 8 {
            return format!("trailing garbage after address (at {rest:?})");
        }
    }
    "address string too short".to_owned()
}

fn address(args: &[Value<'_>]) -> Result<IpAddr, EvalError> {
    match args {
        [Value::Opaque(Opaque::Ip(ip))] => Ok(ip.0),
        _ => Err(no_such_overload()),
    }
}

fn text<'v>(args: &'v [Value<'_>]) -> Result<&'v str, EvalError> {
    match args {
        [Value::String(text)] => Ok(text),
        _ => Err(no_such_overload()),
    }
}

fn ip<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ip::parse(text(args)?).map(|ip| Value::Opaque(Opaque::Ip(ip)))
}

fn is_ip<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(Ip::parse(text(args)?).is_ok()))
}

fn is_canonical<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let text = text(args)?;
    Ip::parse(text).map(|ip| Value::Bool(ip.to_string() == text))
}

fn family<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Int(if address(args)?.is_ipv4() { 4 } else { 6 }))
}

fn is_unspecified<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(address(args)?.is_unspecified()))
}

fn is_loopback<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(address(args)?.is_loopback()))
}

fn link_local_multicast(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn link_local_unicast(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_link_local_multicast<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(link_local_multicast(address(args)?)))
}

fn is_link_local_unicast<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(link_local_unicast(address(args)?)))
}

fn is_global_unicast<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let addr = address(args)?;
    let broadcast = matches!(addr, IpAddr::V4(v4) if v4.is_broadcast());
    let global = !broadcast && !addr.is_unspecified() && !addr.is_loopback() && !addr.is_multicast() && !link_local_unicast(addr);
    Ok(Value::Bool(global))
}
