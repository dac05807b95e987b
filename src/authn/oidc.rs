//! Tokens of outside issuers (OpenID Connect, or anything else that signs JWTs): the signature against the issuer's own
//! keys, the audience, the times, claim validation rules, and the mapping of claims to a user. Which issuers there are is
//! told by [`super::authentication_configuration`]; how their keys are fetched, by [`super::issuer_keys`].

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::request::User;

use super::expression::Expression;
use super::issuer_keys::IssuerKeys;
use super::jws::{Token, number};
use super::{Authenticated, CREDENTIAL_ID, Now, TokenAuthenticator, Unauthenticated};

/// One issuer and what is done with its tokens.
pub struct Issuer {
    /// What `iss` must say.
    pub url: String,
    /// For whom a token must be; one of them is enough.
    pub audiences: Vec<String>,
    /// Where the keys come from.
    pub keys: IssuerKeys,
    /// What claims must say.
    pub claim_rules: Vec<ClaimRule>,
    /// Whose token it is.
    pub username: Mapping,
    /// Their groups.
    pub groups: Option<Mapping>,
    /// Their uid.
    pub uid: Option<Mapping>,
    /// Everything else.
    pub extra: Vec<(String, Expression)>,
    /// What the resulting user must be like, with the message if it is not.
    pub user_rules: Vec<(Expression, String)>,
}

/// What a claim must say.
pub enum ClaimRule {
    /// A claim has exactly this value.
    Required {
        /// Which claim.
        claim: String,
        /// Its value.
        value: String,
    },
    /// An expression holds.
    Holds {
        /// The expression.
        expression: Expression,
        /// What is said if it does not.
        message: String,
    },
}

/// How a value is taken from the claims.
pub enum Mapping {
    /// A claim, with something put before it.
    Claim {
        /// Which claim.
        claim: String,
        /// What is put before it.
        prefix: String,
    },
    /// The value of an expression.
    Expression(Expression),
}

impl Issuer {
    /// The user that a token of this issuer belongs to.
    pub async fn authenticate(&self, token: &Token<'_>, now: i64) -> Result<User, Unauthenticated> {
        self.keys.verify(token).await?;
        let expires = number(token.claims.get("exp")).ok_or_else(|| Unauthenticated::because("oidc: the token says no expiry"))?;
        if now > expires {
            return Err(Unauthenticated::because("oidc: token is expired"));
        }
        // Clocks differ; five minutes is what a real server forgives here.
        if number(token.claims.get("nbf")).is_some_and(|from| now.saturating_add(300) < from) {
            return Err(Unauthenticated::because("oidc: token is not valid yet"));
        }
        let audiences = token.audiences();
        if !audiences.iter().any(|audience| self.audiences.contains(audience)) {
            return Err(Unauthenticated(format!("oidc: expected audience in {:?} got {audiences:?}", self.audiences)));
        }
        self.map(&token.claims)
    }

    fn map(&self, claims: &Map<String, Value>) -> Result<User, Unauthenticated> {
        let refuse = |why: String| Unauthenticated(format!("oidc: {why}"));
        let all = Value::Object(claims.clone());
        for rule in &self.claim_rules {
            rule.check(claims, &all).map_err(refuse)?;
        }
        let name = match self.username.value(claims, &all).map_err(refuse)? {
            Value::String(name) if !name.is_empty() => name,
            _ => return Err(refuse("the username is not a text or empty".into())),
        };
        if let Mapping::Claim { claim, .. } = &self.username {
            // Who could choose an address that was never verified could choose to be anybody.
            if claim == "email" && claims.get("email_verified").is_some_and(|verified| *verified != true) {
                return Err(refuse("email not verified".into()));
            }
        }
        let groups = match &self.groups {
            Some(mapping) => {
                texts(mapping.value(claims, &all).map_err(refuse)?).ok_or_else(|| refuse("the groups are not a list of texts".into()))?
            }
            None => Vec::new(),
        };
        let uid = match &self.uid {
            Some(mapping) => match mapping.value(claims, &all).map_err(refuse)? {
                Value::String(uid) => uid,
                _ => return Err(refuse("the uid is not a text".into())),
            },
            None => String::new(),
        };
        let mut extra = Vec::new();
        for (key, expression) in &self.extra {
            let values =
                texts(expression.evaluate(&all).map_err(refuse)?).ok_or_else(|| refuse(format!("extra {key:?} is not a list of texts")))?;
            if !values.is_empty() {
                extra.push((key.clone(), values));
            }
        }
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty())
            && !extra.iter().any(|(key, _)| key == CREDENTIAL_ID)
        {
            extra.push((CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]));
        }
        let user = User { name, uid, groups, extra };
        if !self.user_rules.is_empty() {
            let shown = json!({
                "username": user.name, "uid": user.uid, "groups": user.groups,
                "extra": user.extra.iter().map(|(k, v)| (k.clone(), json!(v))).collect::<Map<_, _>>(),
            });
            for (expression, message) in &self.user_rules {
                if !expression.holds(&shown).map_err(refuse)? {
                    return Err(refuse(format!("error evaluating user info validation rule: {message}")));
                }
            }
        }
        Ok(user)
    }
}

impl ClaimRule {
    fn check(&self, claims: &Map<String, Value>, all: &Value) -> Result<(), String> {
        match self {
            ClaimRule::Required { claim, value } => match claims.get(claim) {
                None => Err(format!("required claim {claim} not present in ID token")),
                Some(Value::String(found)) if found == value => Ok(()),
                Some(_) => Err(format!("required claim {claim} value does not match")),
            },
            ClaimRule::Holds { expression, message } => match expression.holds(all)? {
                true => Ok(()),
                false => Err(format!(
                    "error evaluating claim validation expression: validation expression '{}' failed: {message}",
                    expression.source()
                )),
            },
        }
    }
}

impl Mapping {
    /// The value; claims that are missing are an error for a text and an empty list for groups.
    fn value(&self, claims: &Map<String, Value>, all: &Value) -> Result<Value, String> {
        match self {
            Mapping::Expression(expression) => expression.evaluate(all),
            Mapping::Claim { claim, prefix } => Ok(match claims.get(claim) {
                None | Some(Value::Null) => Value::Null,
                Some(Value::String(text)) => format!("{prefix}{text}").into(),
                Some(Value::Array(list)) => {
                    let prefixed = list.iter().map(|item| item.as_str().map(|text| Value::from(format!("{prefix}{text}"))));
                    prefixed.collect::<Option<Vec<_>>>().ok_or_else(|| format!("claim {claim} is not a list of texts"))?.into()
                }
                Some(_) => return Err(format!("claim {claim} is neither a text nor a list of texts")),
            }),
        }
    }
}

/// A text or a list of texts; empty texts count as none.
fn texts(value: Value) -> Option<Vec<String>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::String(text) if text.is_empty() => Some(Vec::new()),
        Value::String(text) => Some(vec![text]),
        Value::Array(list) => {
            let texts: Option<Vec<String>> = list.into_iter().map(|item| item.as_str().map(str::to_owned)).collect();
            texts.map(|texts| texts.into_iter().filter(|text| !text.is_empty()).collect())
        }
        _ => None,
    }
}

/// Every issuer, replaceable while in use.
pub struct Issuers {
    list: ArcSwap<Vec<Issuer>>,
    now: Now,
}

impl Issuers {
    /// No issuers yet.
    pub fn new(now: Now) -> Self {
        Issuers { list: ArcSwap::default(), now }
    }

    /// Puts other issuers in force.
    pub fn replace(&self, issuers: Vec<Issuer>) {
        self.list.store(Arc::new(issuers));
    }
}

impl TokenAuthenticator for Issuers {
    fn name(&self) -> &'static str {
        "oidc"
    }

    fn authenticate_token<'a>(&'a self, token: &'a str, _: &'a [String]) -> BoxFuture<'a, Result<Option<Authenticated>, Unauthenticated>> {
        Box::pin(async move {
            let issuers = self.list.load_full();
            if issuers.is_empty() {
                return Ok(None);
            }
            let Some(parsed) = Token::parse(token) else { return Ok(None) };
            let Some(issuer) = issuers.iter().find(|issuer| parsed.issuer() == Some(&issuer.url)) else { return Ok(None) };
            let user = issuer.authenticate(&parsed, (self.now)().as_second()).await?;
            Ok(Some(Authenticated { user: Arc::new(user), audiences: Vec::new(), by: "oidc" }))
        })
    }
}

#[cfg(test)]
#[path = "oidc_tests.rs"]
mod tests;
