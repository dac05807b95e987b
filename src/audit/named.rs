//! Credentials that are known by their names: a parameter of a query that is called `token`, an extra of a user, an argument of a command
//! such as `--password=…`, a header. Their values never get into a record; the names do.

use http::Uri;

use super::redact::MASK;
use super::web_tokens;
use crate::request::decode;

/// What the key of a query's parameter holds if its value is a credential, without marks between its letters.
const CREDENTIALS: [&str; 22] = [
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
    "accountkey",
    "authkey",
    "encryptionkey",
    "privatekey",
    "sharedkey",
    "sshkey",
    "assertion",
    "sessid",
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
    // An argument of a command may say what the next one is.
    let mut before = String::new();
    for pair in query.split_inclusive(['&', ';']) {
        let Some((key, value)) = pair.split_once('=') else {
            told.push_str(pair);
            continue;
        };
        let plain = decode(value.trim_end_matches(['&', ';']));
        let secret = match key {
            "command" => is_announced(&std::mem::replace(&mut before, plain.clone()), &plain) || is_told_in_command(&plain),
            "fieldSelector" => plain.split(',').any(|term| term.starts_with("data.") || term.starts_with("stringData.")),
            _ => is_credential(key),
        };
        if secret || tells_credential(&plain) {
            let separator = value.trim_start_matches(|c| c != '&' && c != ';');
            told.extend([key, "=", MASK, separator]);
        } else {
            told.push_str(pair);
        }
    }
    web_tokens::mask_in_uri(&mut told);
    told
}

/// A URL that is no path of this server, without the credentials in it.
pub fn url(text: &str) -> String {
    let told = target(text);
    match userinfo(&told) {
        Some(secret) => told.replacen(&format!("{secret}@"), &format!("{MASK}@"), 1),
        None => told,
    }
}

/// The user and the password that a URL begins with.
fn userinfo(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#', ' ']).next().unwrap_or_default();
    authority.rsplit_once('@').map(|(userinfo, _)| userinfo).filter(|userinfo| userinfo.contains(':'))
}

/// Whether a value names a credential and brings it along: one may be an argument of a command.
fn tells_credential(value: &str) -> bool {
    let argument = || value.strip_prefix('-').and_then(|rest| rest.split_once('='));
    let header = || value.split_once(':').filter(|(name, _)| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
    is_authorization(value) || userinfo(value).is_some() || argument().or_else(header).is_some_and(|(name, _)| is_credential(name))
}

/// Whether an argument of a command is the credential that the one before it names: `--password hunter2`, `-u jane:hunter2`.
fn is_announced(before: &str, argument: &str) -> bool {
    let names = before.starts_with('-') && !before.contains(['=', ':', ' ']) && is_credential(before);
    !argument.is_empty() && (names || matches!(before, "-u" | "--user" | "--proxy-user") && argument.contains(':'))
}

/// Whether an argument sets a variable that is a credential, or is a script that does: `PGPASSWORD=hunter2 psql`.
fn is_told_in_command(argument: &str) -> bool {
    let words = || argument.split([' ', '\n', '\t', ';']).map(|word| word.trim_matches(['"', '\'']));
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let sets = |word: &str| {
        word.split_once('=').is_some_and(|(name, value)| !value.is_empty() && name.bytes().all(of_name) && is_credential(name))
    };
    words().any(sets) || words().zip(words().skip(1)).any(|(word, next)| !next.is_empty() && is_scheme(word) || is_announced(word, next))
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
    key != "showsecrets"
        && (CREDENTIALS.iter().any(|word| key.contains(word))
            || matches!(key.as_str(), "auth" | "key" | "sig" | "sid" | "otp" | "pass" | "cred" | "creds"))
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
        assert_eq!(
            of("/exec?command=env&command=PGPASSWORD=abc&command=psql&command=--password&command=abc&command=x&command=A=b"),
            "/exec?command=env&command=[redacted]&command=psql&command=--password&command=[redacted]&command=x&command=A=b"
        );
        for script in [
            "curl%20-H%20%22Authorization:%20Bearer%20abc%22",
            "x%20--token%20abc",
            "curl%20-u%20a:abc%20x",
            "TOKEN=abc%20x",
            "cd%20a%3Bexport%20PASS=%27abc%27",
        ] {
            assert_eq!(
                of(&format!("/exec?command=sh&command=-c&command={script}&stdin=1")),
                "/exec?command=sh&command=-c&command=[redacted]&stdin=1"
            );
        }
        for script in ["cat%20/etc/password", "echo%20a%20basic%22", "ls%20-l%20token", "mysql%20-u%20a", "a=b%20x", "echo%20PASSWORD="] {
            assert_eq!(of(&format!("/exec?command={script}")), format!("/exec?command={script}"));
        }
        assert_eq!(
            of("/a?url=https://u:abc@host/&u=https%3A%2F%2Fu:abc%40host&v=https://host/@b:c"),
            "/a?url=[redacted]&u=[redacted]&v=https://host/@b:c"
        );
        let selector = "/api/v1/secrets?fieldSelector=metadata.name%3Da,type=b";
        assert_eq!(of(selector), selector);
        assert_eq!(of("/api/v1/secrets?fieldSelector=type%3Da,data.k%3Dabc&limit=1"), "/api/v1/secrets?fieldSelector=[redacted]&limit=1");
        assert_eq!(url("https://u:abc@host:1/x?password=abc#y"), "https://[redacted]@host:1/x?password=[redacted]");
        assert_eq!(url("https://u@host/x"), "https://u@host/x");
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
