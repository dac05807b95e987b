//! Networks in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::declarations::{Declaration, declare};
use crate::error::{EvalError, failed, no_such_overload};
use crate::library::Opaque;
use crate::library::ip::{Ip, reason};
use crate::meter::Meter;
use crate::operations::Answer;
use crate::value::Value;

#[rustfmt::skip]
pub(crate) const DECLARATIONS: &[Declaration] = &[
    declare("cidr", "string_to_cidr", "(string) -> net.CIDR()", cidr),
    declare("containsIP", "cidr_contains_ip_string", "net.CIDR().(string) -> bool", contains_ip),
    declare("containsIP", "cidr_contains_ip_ip", "net.CIDR().(net.IP()) -> bool", contains_ip),
    declare("containsCIDR", "cidr_contains_cidr_string", "net.CIDR().(string) -> bool", contains_cidr),
    declare("containsCIDR", "cidr_contains_cidr", "net.CIDR().(net.CIDR()) -> bool", contains_cidr),
    declare("ip", "cidr_ip", "net.CIDR().() -> net.IP()", ip),
    declare("prefixLength", "cidr_prefix_length", "net.CIDR().() -> int", prefix_length),
    declare("masked", "cidr_masked", "net.CIDR().() -> net.CIDR()", masked),
    declare("isCIDR", "is_cidr", "(string) -> bool", is_cidr),
    declare("string", "cidr_to_string", "(net.CIDR()) -> string", super::standard::to_string),
];

/// A network: an address and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl Cidr {
    pub(crate) fn parse(text: &str) -> Result<Cidr, EvalError> {
        let conversion = "network address parse error during conversion from string";
        let fail = |why: String| failed(format!("{conversion}: {conversion}: netip.ParsePrefix({text:?}): {why}"));
        let (address, bits) = text.rsplit_once('/').ok_or_else(|| fail("no '/'".into()))?;
        let parsed: IpAddr = address.parse().map_err(|_| fail(format!("ParseAddr({address:?}): {}", reason(address))))?;
        let leading_zero = bits.len() > 1 && bits.starts_with('0');
        if bits.is_empty() || leading_zero || !bits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(fail(format!("bad bits after slash: {bits:?}")));
        }
        let most = if parsed.is_ipv4() { 32 } else { 128 };
        let bits = bits.parse::<u8>().ok().filter(|b| *b <= most).ok_or_else(|| fail("prefix length out of range".into()))?;
        if matches!(parsed, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
            return Err(failed(format!("{conversion}: IPv4-mapped IPv6 address {text:?} is not allowed")));
        }
        Ok(Cidr { address: parsed, bits })
    }

    fn mask(self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
            }
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && self.mask(self.address) == self.mask(address)
    }

    pub(crate) fn size(&self) -> u64 {
        u64::from(self.bits.div_ceil(8))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn network(args: &[Value<'_>]) -> Result<Cidr, EvalError> {
    match args {
        [Value::Opaque(Opaque::Cidr(cidr)), ..] => Ok(*cidr),
        _ => Err(no_such_overload()),
    }
}

fn cidr<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text)] => Cidr::parse(text).map(|cidr| Value::Opaque(Opaque::Cidr(cidr))),
        _ => Err(no_such_overload()),
    }
}

fn is_cidr<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text)] => Ok(Value::Bool(Cidr::parse(text).is_ok())),
        _ => Err(no_such_overload()),
    }
}

fn contains_ip<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let address = match args {
        [_, Value::String(text)] => Ip::parse(text)?.0,
        [_, Value::Opaque(Opaque::Ip(ip))] => ip.0,
        _ => return Err(no_such_overload()),
    };
    Ok(Value::Bool(network(args)?.contains(address)))
}

fn contains_cidr<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let inner = match args {
        [_, Value::String(text)] => Cidr::parse(text)?,
        [_, Value::Opaque(Opaque::Cidr(cidr))] => *cidr,
        _ => return Err(no_such_overload()),
    };
    let outer = network(args)?;
    Ok(Value::Bool(outer.bits <= inner.bits && outer.contains(inner.address)))
}

fn ip<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Opaque(Opaque::Ip(Ip(network(args)?.address))))
}

fn prefix_length<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Int(network(args)?.bits.into()))
}

fn masked<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let network = network(args)?;
    let address = network.mask(network.address);
    Ok(Value::Opaque(Opaque::Cidr(Cidr { address, ..network })))
}
