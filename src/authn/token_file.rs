//! The static token file (`--token-auth-file`): lines of `token,user,uid,"group1,group2"`. Read anew when the file
//! changes. Tokens are kept as digests and compared in constant time.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;

use crate::request::User;

use super::cache::{Digest, digest};
use super::{Authenticated, TokenAuthenticator, Unauthenticated};

/// The tokens as last read.
#[derive(Default)]
pub struct TokenFile {
    // Looking up a digest in a map tells nothing about how much of a token was right.
    tokens: ArcSwap<HashMap<Digest, Arc<User>>>,
}

impl TokenFile {
    /// Takes the new content of the file; the old one stays in force if this one cannot be read.
    pub fn replace(&self, csv: &str) -> Result<(), String> {
        let mut tokens = HashMap::new();
        for (row, fields) in rows(csv)?.into_iter().enumerate() {
            let line = row + 1;
            let [token, name, uid, rest @ ..] = fields.as_slice() else {
                return Err(format!("record {line} must have at least 3 columns (token, user name, user uid), found {}", fields.len()));
            };
            // As a real server does: a line without token is passed over.
            if token.is_empty() {
                continue;
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let groups = groups.split(',').map(str::trim).filter(|g| !g.is_empty()).map(str::to_owned).collect();
            let user = User { name: name.clone(), uid: uid.clone(), groups, extra: Vec::new() };
            tokens.insert(digest([token.as_bytes()]), Arc::new(user));
        }
        self.tokens.store(Arc::new(tokens));
        Ok(())
    }
}

/// The records of comma-separated values: quoted fields, doubled quotes, comments and empty lines passed over.
fn rows(csv: &str) -> Result<Vec<Vec<String>>, String> {
    let mut rows = Vec::new();
    let mut chars = csv.chars().peekable();
    while chars.peek().is_some() {
        let mut row = Vec::new();
        let mut field = String::new();
        let mut quoted = false;
        let mut started = false;
        let mut comment = false;
        loop {
            match chars.next() {
                None if quoted => return Err("a quoted field does not end".into()),
                Some('"') if quoted && chars.peek() == Some(&'"') => {
                    chars.next();
                    field.push('"');
                }
                Some('"') if quoted => quoted = false,
                Some('"') if field.is_empty() => quoted = true,
                Some(',') if !quoted => row.push(std::mem::take(&mut field)),
                None | Some('\n') if !quoted => break,
                Some('\r') if !quoted && chars.peek() == Some(&'\n') => {}
                Some('#') if !started && !quoted => comment = true,
                // Leading blanks of a field are not part of it.
                Some(' ' | '\t') if !quoted && field.is_empty() => {}
                Some(c) => field.push(c),
                None => break,
            }
            started = true;
        }
        row.push(field);
        if !comment && row.iter().any(|f| !f.is_empty()) {
            rows.push(row);
        }
    }
    Ok(rows)
}

impl TokenAuthenticator for TokenFile {
    fn name(&self) -> &'static str {
        "token-file"
    }

    fn authenticate_token<'a>(&'a self, token: &'a str, _: &'a [String]) -> BoxFuture<'a, Result<Option<Authenticated>, Unauthenticated>> {
        let user = self.tokens.load().get(&digest([token.as_bytes()])).cloned();
        Box::pin(async move { Ok(user.map(|user| Authenticated { user, audiences: Vec::new(), by: "token-file" })) })
    }
}

impl std::fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenFile({} tokens)", self.tokens.load().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn who(file: &TokenFile, token: &str) -> Option<Arc<User>> {
        file.authenticate_token(token, &[]).await.unwrap().map(|known| known.user)
    }

    #[tokio::test]
    async fn each_line_names_a_user_with_uid_and_groups() {
        let file = TokenFile::default();
        file.replace("# comment\nt1,bob,1,\"devs, ops\"\r\n\nt2,\"al \"\"x\"\" ice\",2\n,nobody,3\n").unwrap();
        let bob = who(&file, "t1").await.unwrap();
        assert_eq!((&*bob.name, &*bob.uid, &*bob.groups), ("bob", "1", &["devs".to_owned(), "ops".to_owned()][..]));
        assert_eq!(who(&file, "t2").await.unwrap().name, "al \"x\" ice");
        for bad in ["", "t", "t1 ", "T1", "t3"] {
            assert!(who(&file, bad).await.is_none(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn a_changed_file_counts_at_once_and_a_malformed_one_does_not() {
        let file = TokenFile::default();
        file.replace("t1,bob,1").unwrap();
        assert!(file.replace("t1,bob").is_err());
        assert!(file.replace("t1,\"bob,1").is_err());
        assert!(who(&file, "t1").await.is_some());
        file.replace("t2,bob,1").unwrap();
        assert!(who(&file, "t1").await.is_none() && who(&file, "t2").await.is_some());
        assert!(!format!("{file:?}").contains("t2"));
    }
}
