//! Credentials that are known by their names: a parameter of a query that is called `token`, an extra of a user, an argument of a command
//! such as `--password=…`, a header. Their values never get into a record; the names do.

use http::Uri;

use super::redact::MASK;
use super::web_tokens;
use crate::request::decode;

/// What the key of a query's parameter holds if its value is a credential, without marks between its letters.
const CREDENTIALS: [&str; 14] = [
    "token",
    "passw",
    "passphrase",
    "pwd",
    "secret",
    "credential",
    "authorization",
    "bearer",
    "jwt",
    "apikey",
    "accesskey",
    "signature",
    "session",
    "saml",
];

/// The path and query of a request without the credentials that some clients put there.
pub fn uri(uri: &Uri) -> String {
    target(uri.path_and_query().map_or("/", |target| target.as_str()))
}

/// The same of a text, which need not be one that this server would take.
pub fn target(text: &str) -> String {
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let mut told = path.to_owned();
    if path.len() < text.len() {
        told.push('?');
    }
    for pair in query.split_inclusive(['&', ';']) {
        match pair.split_once('=') {
            Some((key, value)) if is_credential(key) || tells_credential(value) => {
                let separator = value.trim_start_matches(|c| c != '&' && c != ';');
                told.extend([key, "=", MASK, separator]);
            }
            _ => told.push_str(pair),
        }
    }
    web_tokens::mask_in_uri(&mut told);
    told
}

/// Whether a value names a credential and brings it along: one may be an argument of a command.
fn tells_credential(value: &str) -> bool {
    let value = decode(value);
    let argument = || value.strip_prefix('-').and_then(|rest| rest.split_once('='));
    let header = || value.split_once(':').filter(|(name, _)| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
    is_authorization(&value) || argument().or_else(header).is_some_and(|(name, _)| is_credential(name))
}

/// Takes from a text what stands there as in the header of that name: `Bearer …`.
pub fn mask_authorization(text: &mut String) {
    if !text.split(' ').any(is_scheme) {
        return;
    }
    let words: Vec<&str> = text.split(' ').collect();
    let follows = |at: usize| at > 0 && is_scheme(words[at - 1]);
    *text = words.iter().enumerate().map(|(at, word)| if follows(at) { MASK } else { word }).collect::<Vec<_>>().join(" ");
}

fn is_scheme(word: &str) -> bool {
    ["bearer", "basic"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Whether what has this name is a credential.
pub fn is_credential(key: &str) -> bool {
    let mut key = decode(key).to_ascii_lowercase();
    key.retain(|letter| letter.is_ascii_alphanumeric());
    key != "showsecrets" && (CREDENTIALS.iter().any(|word| key.contains(word)) || matches!(key.as_str(), "auth" | "key" | "sig" | "pass"))
}

/// Whether a value is what belongs into the header of that name.
pub fn is_authorization(value: &str) -> bool {
    let value = decode(value).to_ascii_lowercase();
    ["bearer", "basic"].iter().any(|scheme| value.strip_prefix(scheme).is_some_and(|rest| rest.starts_with([' ', '+'])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authorization_in_a_text_goes_and_the_rest_stays() {
        let masked = |text: &str| {
            let mut text = text.to_owned();
            mask_authorization(&mut text);
            text
        };
        assert_eq!(masked("curl Bearer abc/1 (x)  y basic"), "curl Bearer [redacted] (x)  y basic");
        assert_eq!(masked("kubectl/v1.36 (linux/amd64) bearers"), "kubectl/v1.36 (linux/amd64) bearers");
    }

    #[test]
    fn credentials_in_a_query_are_masked_and_nothing_else_is() {
        let of = |text: &str| uri(&text.parse().unwrap());
        assert_eq!(of("/api/v1/pods?watch=1&limit=5"), "/api/v1/pods?watch=1&limit=5");
        assert_eq!(of("/api?access_token=abc&x=y"), "/api?access_token=[redacted]&x=y");
        assert_eq!(of("/api?access_tok%65n=abc"), "/api?access_tok%65n=[redacted]");
        assert_eq!(of("/api?x=Bearer%20abc&y=basic+abc&z=bearers"), "/api?x=[redacted]&y=[redacted]&z=bearers");
        assert_eq!(of("/api"), "/api");
        assert_eq!(of("/api?"), "/api?");
        assert_eq!(
            of(
                "/exec?command=curl&command=-H&command=Authorization%3A+Bearer+abc&command=--password%3Dabc&command=-token=abc&command=-a=b"
            ),
            "/exec?command=curl&command=-H&command=[redacted]&command=[redacted]&command=[redacted]&command=-a=b"
        );
        assert_eq!(
            of("/exec?command=x-api-key:%20abc&command=at%2012:30&command=a:b"),
            "/exec?command=[redacted]&command=at%2012:30&command=a:b"
        );
        let filter = "/usher/v1/requests?filter=a==%22secrets%22?b:c";
        assert_eq!(of(filter), filter);
        for key in [
            "api_key",
            "X-Amz-Signature",
            "X-Amz-Credential",
            "passwd",
            "pwd",
            "jwt",
            "auth",
            "sig",
            "client_secret",
            "key",
            "pass",
            "SAMLResponse",
        ] {
            assert_eq!(of(&format!("/api?a=b;{key}=abc=&c=d")), format!("/api?a=b;{key}=[redacted]&c=d"));
        }
        assert_eq!(of("/api/eyJhbGci.eyJpc3Mi.c2ln-_/x?y=eyJhbGci.eyJpc3Mi.&z=eyJh"), "/api/[redacted]/x?y=[redacted]&z=eyJh");
        assert_eq!(
            of("/api/v1/pods?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEi&fieldSelector=metadata.name%3Da"),
            "/api/v1/pods?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEi&fieldSelector=metadata.name%3Da"
        );
    }
}
