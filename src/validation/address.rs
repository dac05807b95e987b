//! IP addresses and blocks of them. Fields that are older than the strict rules take what is not in its shortest form; newer
//! ones do not. What older servers read and newer ones refuse (leading zeros, IPv4 in IPv6, bits behind the prefix) is told apart.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::field::{Errors, Path, invalid};

const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Reads an address as old servers did: octets may begin with zeros.
pub fn sloppy(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return match text.contains('%') {
            true => None,
            false => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        };
    }
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next().filter(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))?;
        *octet = part.trim_start_matches('0').parse().or_else(|e| if part.trim_matches('0').is_empty() { Ok(0) } else { Err(e) }).ok()?;
    }
    parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(octets)))
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// How Go writes an address: mapped ones as what they map.
fn canonical(address: IpAddr) -> String {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or_else(|| v6.to_string(), |v4| v4.to_string()),
        IpAddr::V4(v4) => v4.to_string(),
    }
}

fn parsed(errors: &mut Errors, path: &Path<'_>, text: &str) -> Option<IpAddr> {
    let Some(address) = sloppy(text) else {
        errors.push(invalid(path, text, IP));
        return None;
    };
    let before = errors.len();
    if text.parse::<IpAddr>().is_err() {
        errors.push(invalid(path, text, "must not have leading 0s"));
    }
    if is_mapped(address) {
        errors.push(invalid(path, text, "must not be an IPv4-mapped IPv6 address"));
    }
    (errors.len() == before).then_some(address)
}

/// An address in a field that is older than the strict rules.
pub fn ip(errors: &mut Errors, path: &Path<'_>, text: &str) -> Option<IpAddr> {
    parsed(errors, path, text)
}

/// An address in its shortest form.
pub fn strict_ip(errors: &mut Errors, path: &Path<'_>, text: &str) -> Option<IpAddr> {
    let address = parsed(errors, path, text)?;
    let wanted = canonical(address);
    if wanted != text {
        errors.push(invalid(path, text, format!("must be in canonical form ({wanted:?})")));
        return None;
    }
    Some(address)
}

/// An address that is the name of an object.
pub fn name(text: &str) -> super::names::Wrong {
    let mut errors = Vec::new();
    strict_ip(&mut errors, &Path::object(), text);
    errors.into_iter().map(|error| error.detail).collect()
}

/// A block: its address as written, its first address, and the length of its prefix.
pub fn block(text: &str) -> Option<(IpAddr, IpAddr, u32)> {
    let (address, length) = text.split_once('/')?;
    let address = sloppy(address)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let right = !length.is_empty() && length.len() <= 8 && length.bytes().all(|b| b.is_ascii_digit());
    let length: u32 = length.parse().ok().filter(|l| right && *l <= most)?;
    let first = match address {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from(u32::from(v4) & u32::MAX.checked_shl(32 - length).unwrap_or(0))),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) & u128::MAX.checked_shl(128 - length).unwrap_or(0))),
    };
    Some((address, first, length))
}

/// A block in a field that is older than the strict rules.
pub fn cidr(errors: &mut Errors, path: &Path<'_>, text: &str) -> bool {
    let Some((address, first, _)) = block(text) else {
        errors.push(invalid(path, text, CIDR));
        return false;
    };
    let (written, length) = text.split_once('/').unwrap_or((text, ""));
    let why = if written.parse::<IpAddr>().is_err() || (length.len() > 1 && length.starts_with('0')) {
        "must not have leading 0s in IP or prefix length"
    } else if is_mapped(address) {
        "must not have an IPv4-mapped IPv6 address"
    } else if address != first {
        "must not have bits set beyond the prefix length"
    } else {
        return true;
    };
    errors.push(invalid(path, text, why));
    false
}

/// A block in its shortest form.
pub fn strict_cidr(errors: &mut Errors, path: &Path<'_>, text: &str) -> bool {
    if !cidr(errors, path, text) {
        return false;
    }
    let wanted = block(text).map(|(_, first, length)| format!("{}/{length}", canonical(first))).unwrap_or_default();
    if wanted != text {
        errors.push(invalid(path, text, format!("must be in canonical form ({wanted:?})")));
        return false;
    }
    true
}

/// Whether addresses are one of each family.
pub fn is_dual_stack<'a>(addresses: impl Iterator<Item = &'a str>) -> Result<bool, String> {
    let (mut four, mut six) = (false, false);
    for text in addresses {
        match sloppy(text) {
            None => return Err(text.to_owned()),
            Some(IpAddr::V4(_)) => four = true,
            Some(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => four = true,
            Some(IpAddr::V6(_)) => six = true,
        }
    }
    Ok(four && six)
}

/// An address that something can be sent to.
pub fn endpoint(errors: &mut Errors, path: &Path<'_>, text: &str) {
    let Some(address) = sloppy(text) else {
        errors.push(invalid(path, text, "must be a valid IP address"));
        return;
    };
    let address = match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4),
        v4 => v4,
    };
    let (link_local, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0 == 0xfe80, v6.segments()[0] & 0xff0f == 0xff02),
    };
    if address.is_unspecified() {
        errors.push(invalid(path, text, format!("may not be unspecified ({text})")));
    }
    if address.is_loopback() {
        errors.push(invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"));
    }
    if link_local {
        errors.push(invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"));
    }
    if multicast {
        errors.push(invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"));
    }
}

/// What to say of an address in an unusual form.
pub fn ip_warning(path: &Path<'_>, text: &str) -> Option<String> {
    let address = sloppy(text)?;
    if text.parse::<IpAddr>().is_err() || is_mapped(address) {
        return Some(format!("{path}: non-standard IP address {text:?} is invalid: use {:?}", canonical(address)));
    }
    let wanted = address.to_string();
    (address.is_ipv6() && wanted != text)
        .then(|| format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format ({wanted:?})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(check: impl Fn(&mut Errors, &Path<'_>)) -> Vec<String> {
        let mut errors = Vec::new();
        check(&mut errors, &Path::root("f"));
        errors.into_iter().map(|e| e.detail).collect()
    }

    #[test]
    fn addresses_are_held_to_what_their_field_is_old_enough_for() {
        let old = |text: &str| told(|errors, path| _ = ip(errors, path, text));
        let new = |text: &str| told(|errors, path| _ = strict_ip(errors, path, text));
        assert!(old("1.2.3.4").is_empty() && old("FE80:0::1").is_empty());
        assert_eq!(old("010.1.1.1"), ["must not have leading 0s"]);
        assert_eq!(old("::ffff:1.2.3.4"), ["must not be an IPv4-mapped IPv6 address"]);
        assert_eq!(old("x"), [IP]);
        assert_eq!(new("FE80:0::1"), ["must be in canonical form (\"fe80::1\")"]);
    }

    #[test]
    fn blocks_begin_where_their_prefix_ends() {
        let check = |text: &str| told(|errors, path| _ = cidr(errors, path, text));
        assert!(check("10.0.0.0/8").is_empty() && check("::/0").is_empty());
        assert_eq!(check("10.0.0.1/8"), ["must not have bits set beyond the prefix length"]);
        assert_eq!(check("10.0.0.0/08"), ["must not have leading 0s in IP or prefix length"]);
        assert_eq!(check("10.0.0.0/33"), [CIDR]);
    }
}
