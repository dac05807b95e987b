//! Hands out the addresses of a node's Pods from its podCIDR, and takes them back.

use std::collections::HashSet;
use std::net::Ipv4Addr;

/// A range of IPv4 addresses, the first two (network and gateway) and the last (broadcast) left out.
#[derive(Debug, Default)]
pub struct Addresses {
    first: u32,
    size: u32,
    next: u32,
    taken: HashSet<u32>,
}

/// Reads `10.244.1.0/24`.
fn parse(cidr: &str) -> Option<(u32, u32)> {
    let (address, prefix) = cidr.split_once('/')?;
    let prefix: u32 = prefix.parse().ok().filter(|prefix| (1..=30).contains(prefix))?;
    let size = 1u32 << (32 - prefix);
    let address = u32::from(address.parse::<Ipv4Addr>().ok()?) & !(size - 1);
    Some((address, size))
}

impl Addresses {
    /// The addresses of `cidr`; what is no range has none.
    #[must_use]
    pub fn of(cidr: &str) -> Self {
        let (first, size) = parse(cidr).unwrap_or_default();
        Self { first, size, ..Self::default() }
    }

    /// Whether there is a range at all.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.size > 0
    }

    /// Moves to another range. Addresses handed out before stay with whoever has them.
    pub fn reconfigure(&mut self, cidr: &str) {
        if let Some((first, size)) = parse(cidr)
            && (first, size) != (self.first, self.size)
        {
            *self = Self { first, size, ..Self::default() };
        }
    }

    /// The next free address; each is used once before any is used again, as CNI's host-local does.
    pub fn allocate(&mut self) -> Option<Ipv4Addr> {
        let usable = self.size.checked_sub(3)?;
        for _ in 0..usable {
            let offset = self.next % usable;
            self.next = (self.next + 1) % usable;
            if self.taken.insert(offset) {
                return Some(Ipv4Addr::from(self.first + 2 + offset));
            }
        }
        None
    }

    /// Takes an address back.
    pub fn release(&mut self, address: Ipv4Addr) {
        if let Some(offset) = u32::from(address).checked_sub(self.first + 2) {
            self.taken.remove(&offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unique_until_they_are_given_back() {
        let mut addresses = Addresses::of("10.0.0.0/29");
        let all: Vec<String> = std::iter::from_fn(|| addresses.allocate()).map(|address| address.to_string()).collect();
        assert_eq!(all, ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        addresses.release(Ipv4Addr::new(10, 0, 0, 4));
        assert_eq!(addresses.allocate(), Some(Ipv4Addr::new(10, 0, 0, 4)));
    }

    #[test]
    fn what_is_no_range_has_no_addresses() {
        for cidr in ["", "10.0.0.0", "10.0.0.0/33", "x/8", "fd00::/64"] {
            assert!(Addresses::of(cidr).allocate().is_none(), "{cidr:?}");
        }
    }
}
