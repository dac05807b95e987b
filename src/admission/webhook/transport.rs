//! What went wrong on the way to a webhook, in the words that a real server's HTTP client has for it.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};

use rustls::CertificateError;

use crate::authn::trust::{LEGACY_NAME, LegacyCommonName};

/// A transport error in Go's words, as far as there are any. `dialled` is the address of a Service.
pub fn explain(error: &reqwest::Error, dialled: Option<SocketAddr>, url: &str) -> String {
    let host = authority(url);
    let name = host_of(url);
    let address = dialled.map_or_else(|| host.to_owned(), |address| address.to_string());
    if error.is_redirect() {
        return "stopped after 10 redirects".into();
    }
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(rustls::Error::InvalidCertificate(why)) = cause.downcast_ref::<rustls::Error>() {
            return format!("tls: failed to verify certificate: x509: {}", certificate(why, name));
        }
        causes.push(cause.to_string());
        // An I/O error gives as its source that of what it holds, and not what it holds.
        let held = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match held {
            Some(held) => Some(held),
            None => cause.source(),
        };
    }
    let says = |text: &str| causes.iter().any(|cause| cause.contains(text));
    if says("Connection refused") {
        return format!("dial tcp {address}: connect: connection refused");
    }
    if says("InvalidContentType") || says("corrupt message") {
        return "http: server gave HTTP response to HTTPS client".into();
    }
    if says("Connection reset") {
        return format!("read tcp {address}: read: connection reset by peer");
    }
    if says("handshake eof")
        || says("connection closed")
        || says("unexpected end of file")
        || says("close_notify")
        || says("unexpected EOF")
    {
        return "EOF".into();
    }
    if says("failed to lookup") || says("dns error") {
        return format!("dial tcp: lookup {name}{}: no such host", name_server());
    }
    causes.pop().unwrap_or_else(|| error.to_string())
}

fn authority(url: &str) -> &str {
    url.trim_start_matches("https://").split(['/', '?']).next().unwrap_or_default()
}

/// The host of a URL, without its port.
pub fn host_of(url: &str) -> &str {
    let host = authority(url);
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// Whom the machine asks for names.
fn name_server() -> String {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let server = text.lines().find_map(|line| line.strip_prefix("nameserver ")?.trim().parse::<IpAddr>().ok());
    server.map(|server| format!(" on {}", SocketAddr::new(server, 53))).unwrap_or_default()
}

/// Why a certificate is not believed.
fn certificate(why: &CertificateError, name: &str) -> String {
    match why {
        CertificateError::ExpiredContext { time, not_after } => {
            format!("certificate has expired or is not yet valid: current time {} is after {}", at(*time), at(*not_after))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            format!("certificate has expired or is not yet valid: current time {} is before {}", at(*time), at(*not_before))
        }
        CertificateError::Expired | CertificateError::NotValidYet => "certificate has expired or is not yet valid".into(),
        CertificateError::BadSignature => {
            "certificate signed by unknown authority (possibly because of \"x509: ECDSA verification failure\" while trying to verify candidate authority certificate)".into()
        }
        CertificateError::NotValidForNameContext { presented, .. } => wrong_name(presented, name),
        CertificateError::NotValidForName => wrong_name(&[], name),
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".into(),
        CertificateError::Other(held) if held.0.is::<LegacyCommonName>() => LEGACY_NAME.into(),
        other => match other.to_string() {
            // Only certificates from before there were extensions have no version.
            text if text.contains("UnsupportedCertVersion") => {
                LEGACY_NAME.into()
            }
            text if text.contains("CaUsedAsEndEntity") => "certificate is not valid for any names".into(),
            text => text,
        },
    }
}

fn at(time: rustls::pki_types::UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A certificate of others: it is told whose it is. The library gives names as `DnsName("a")` and addresses as `IpAddress(1.2.3.4)`.
fn wrong_name(presented: &[String], name: &str) -> String {
    let of = |kind: &str| -> Vec<String> {
        let mine = presented.iter().filter_map(|one| one.strip_prefix(kind)?.strip_prefix('(')?.strip_suffix(')'));
        mine.map(|one| one.trim_matches('"').to_owned()).collect()
    };
    match name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        true => match of("IpAddress") {
            none if none.is_empty() => format!("cannot validate certificate for {name} because it doesn't contain any IP SANs"),
            some => format!("certificate is valid for {}, not {name}", some.join(", ")),
        },
        false => match of("DnsName") {
            none if none.is_empty() => format!("certificate is not valid for any names, but wanted to match {name}"),
            some => format!("certificate is valid for {}, not {name}", some.join(", ")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_others_is_told_whose_it_is() {
        let names = ["DnsName(\"a.example.com\")".to_owned(), "IpAddress(10.1.2.3)".to_owned()];
        assert_eq!(wrong_name(&names, "b.svc"), "certificate is valid for a.example.com, not b.svc");
        assert_eq!(wrong_name(&names, "127.0.0.1"), "certificate is valid for 10.1.2.3, not 127.0.0.1");
        assert_eq!(
            wrong_name(&names[..1], "127.0.0.1"),
            "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"
        );
        assert_eq!(wrong_name(&[], "b.svc"), "certificate is not valid for any names, but wanted to match b.svc");
    }
}
