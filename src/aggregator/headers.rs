//! Which headers travel to an extension server and back: none that speak of one connection, none by which a client could say who it is, and
//! those of the front proxy, which do.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::request::User;

/// Headers that are about one connection only.
const HOP_BY_HOP: &[HeaderName] = &[
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

fn is_of_connection(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name) || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// The headers of a request on its way to an extension server.
pub fn request(given: &HeaderMap, user: &User) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(given.len() + 4);
    for (name, value) in given {
        let says_who = name.as_str().starts_with("x-remote-") || name.as_str().starts_with("impersonate-") || name == header::AUTHORIZATION;
        if !is_of_connection(name) && !says_who && name != header::HOST && name != header::CONTENT_LENGTH {
            headers.append(name.clone(), value.clone());
        }
    }
    identify(&mut headers, user);
    headers
}

/// Says who asks, as front proxies do.
pub fn identify(headers: &mut HeaderMap, user: &User) {
    let mut add = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes())) {
            headers.append(name, value);
        }
    };
    add("x-remote-user", &user.name);
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid);
    }
    user.groups.iter().for_each(|group| add("x-remote-group", group));
    for (key, values) in &user.extra {
        let name = format!("x-remote-extra-{}", escaped(key));
        values.iter().for_each(|value| add(&name, value));
    }
}

/// The headers of an answer on its way back.
pub fn response(given: &HeaderMap) -> HeaderMap {
    given.iter().filter(|(name, _)| !is_of_connection(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A key of `extra` as part of a header's name: whatever a name cannot hold is written as `%xx`.
fn escaped(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b'!'
            | b'#'
            | b'$'
            | b'&'
            | b'\''
            | b'*'
            | b'+'
            | b'-'
            | b'.'
            | b'^'
            | b'_'
            | b'`'
            | b'|'
            | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02x}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_say_who_it_is_and_the_proxy_does() {
        let mut given = HeaderMap::new();
        for (name, value) in [("x-remote-user", "root"), ("x-remote-extra-a", "b"), ("connection", "close"), ("accept", "a"), ("host", "h")]
        {
            given.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let mut user = User::new("bob", &["devs", "system:authenticated"]);
        user.extra = vec![("example.com/scopes".into(), vec!["x".into(), "y".into()])];
        let sent = request(&given, &user);
        let all = |name: &str| sent.get_all(name).iter().map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(
            (all("x-remote-user"), all("x-remote-group")),
            (vec!["bob".into()], vec!["devs".into(), "system:authenticated".to_owned()])
        );
        assert_eq!(all("x-remote-extra-example.com%2fscopes"), ["x", "y"]);
        assert_eq!((all("x-remote-extra-a").len(), all("connection").len(), all("host").len(), all("accept").len()), (0, 0, 0, 1));
    }
}
