//! Where a request came from: what proxies say in `X-Forwarded-For` and `X-Real-Ip`, and the peer itself last.

use std::net::{IpAddr, Ipv4Addr};

use http::HeaderValue;

/// The addresses, the client first. A request from inside the process comes from this host.
pub fn addresses(forwarded_for: Option<&HeaderValue>, real_ip: Option<&HeaderValue>, peer: Option<IpAddr>) -> Vec<String> {
    let text = |header: Option<&'_ HeaderValue>| header.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let mut all: Vec<IpAddr> = text(forwarded_for).split(',').filter_map(parse).collect();
    if let Some(address) = parse(&text(real_ip)).filter(|address| !all.contains(address)) {
        all.push(address);
    }
    let peer = peer.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)).to_canonical();
    if all.last() != Some(&peer) {
        all.push(peer);
    }
    all.iter().map(ToString::to_string).collect()
}

fn parse(text: &str) -> Option<IpAddr> {
    text.trim().parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_of_proxies_ends_with_the_peer_and_names_nobody_twice() {
        let header = |text: &str| HeaderValue::from_str(text).unwrap();
        let peer = Some("10.0.0.9".parse().unwrap());
        assert_eq!(addresses(None, None, None), ["127.0.0.1"]);
        assert_eq!(addresses(None, None, Some("::ffff:10.0.0.9".parse().unwrap())), ["10.0.0.9"]);
        let chain = header("203.0.113.7, nonsense,10.0.0.1");
        assert_eq!(addresses(Some(&chain), Some(&header("10.0.0.1")), peer), ["203.0.113.7", "10.0.0.1", "10.0.0.9"]);
        assert_eq!(addresses(Some(&chain), Some(&header("192.0.2.1")), peer), ["203.0.113.7", "10.0.0.1", "192.0.2.1", "10.0.0.9"]);
        assert_eq!(addresses(Some(&header("10.0.0.9")), None, peer), ["10.0.0.9"]);
    }
}
