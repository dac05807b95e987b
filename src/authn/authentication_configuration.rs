//! `AuthenticationConfiguration` (`apiserver.config.k8s.io`): issuers with their rules and mappings, and where anonymous
//! requests are let in. Reads and checks the whole file before any of it counts; a file with a mistake changes nothing.

use serde_json::Value;

use super::anonymous::Anonymous;
use super::expression::{Expression, Scope};
use super::issuer_keys::IssuerKeys;
use super::oidc::{ClaimRule, Issuer, Mapping};

/// What the file says.
pub struct AuthenticationConfiguration {
    /// The issuers.
    pub issuers: Vec<Issuer>,
    /// Where anonymous requests are let in, if the file says.
    pub anonymous: Option<Anonymous>,
}

/// Reads a file, YAML or JSON. The errors name the field. `taken` are the issuers of service-account tokens: nobody else can be one of
/// them.
pub fn parse(bytes: &[u8], taken: &[String]) -> Result<AuthenticationConfiguration, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the file is not text")?;
    from_value(&crate::schema::yaml::parse(text)?.value, taken)
}

/// The same from a document.
pub fn from_value(document: &Value, taken: &[String]) -> Result<AuthenticationConfiguration, String> {
    expect_kind(document, "AuthenticationConfiguration")?;
    known_fields(document, "", &["apiVersion", "kind", "jwt", "anonymous"])?;
    let mut issuers: Vec<Issuer> = Vec::new();
    for (i, jwt) in list(&document["jwt"]).iter().enumerate() {
        let path = format!("jwt[{i}]");
        let issuer = issuer(jwt, &path)?;
        if taken.contains(&issuer.url) {
            let why = format!("URL must not overlap with disallowed issuers: [{}]", taken.join(" "));
            return Err(format!("{path}.issuer.url: Invalid value: {:?}: {why}", issuer.url));
        }
        if issuers.iter().any(|known| known.url == issuer.url) {
            return Err(format!("{path}.issuer.url: Duplicate value: {:?}", issuer.url));
        }
        issuers.push(issuer);
    }
    Ok(AuthenticationConfiguration { issuers, anonymous: anonymous(&document["anonymous"])? })
}

/// Whether a document is of a kind of `apiserver.config.k8s.io`.
pub fn expect_kind(document: &Value, kind: &str) -> Result<(), String> {
    let version = document["apiVersion"].as_str().unwrap_or_default();
    let known = matches!(version, "apiserver.config.k8s.io/v1" | "apiserver.config.k8s.io/v1beta1" | "apiserver.config.k8s.io/v1alpha1");
    if known && document["kind"] == kind { Ok(()) } else { Err(format!("expected a {kind} of apiserver.config.k8s.io/v1")) }
}

/// Refuses fields that nobody would read: a misspelt rule must not silently be no rule.
pub fn known_fields(value: &Value, path: &str, known: &[&str]) -> Result<(), String> {
    let unknown = value.as_object().into_iter().flatten().find(|(key, _)| !known.contains(&key.as_str()));
    match unknown {
        Some((key, _)) if path.is_empty() => Err(format!("unknown field {key:?}")),
        Some((key, _)) => Err(format!("unknown field \"{path}.{key}\"")),
        None => Ok(()),
    }
}

fn anonymous(value: &Value) -> Result<Option<Anonymous>, String> {
    if !value.is_object() {
        return Ok(None);
    }
    known_fields(value, "anonymous", &["enabled", "conditions"])?;
    let paths: Vec<String> = list(&value["conditions"]).iter().filter_map(|c| c["path"].as_str()).map(str::to_owned).collect();
    match (value["enabled"] == true, paths.is_empty()) {
        (false, false) => Err("anonymous.conditions: Invalid value: enabled should be set to true when conditions are defined".into()),
        (false, true) => Ok(Some(Anonymous::Nowhere)),
        (true, true) => Ok(Some(Anonymous::Everywhere)),
        (true, false) => Ok(Some(Anonymous::Paths(paths))),
    }
}

fn issuer(jwt: &Value, path: &str) -> Result<Issuer, String> {
    known_fields(jwt, path, &["issuer", "claimValidationRules", "claimMappings", "userValidationRules"])?;
    let issuer = &jwt["issuer"];
    let fields = ["url", "discoveryURL", "certificateAuthority", "audiences", "audienceMatchPolicy", "egressSelectorType"];
    known_fields(issuer, &format!("{path}.issuer"), &fields)?;
    let url = text(issuer, "url");
    check_url(url, &format!("{path}.issuer.url"))?;
    let discovery = issuer["discoveryURL"].as_str().filter(|url| !url.is_empty());
    if let Some(discovery) = discovery {
        check_url(discovery, &format!("{path}.issuer.discoveryURL"))?;
        if discovery.trim_end_matches('/') == url.trim_end_matches('/') {
            return Err(format!("{path}.issuer.discoveryURL: Invalid value: {discovery:?}: discoveryURL must be different from url"));
        }
    }
    let audiences: Vec<String> = list(&issuer["audiences"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if audiences.is_empty() {
        return Err(format!("{path}.issuer.audiences: Required value: at least one {path}.issuer.audiences is required"));
    }
    for (i, audience) in audiences.iter().enumerate() {
        if audience.is_empty() {
            return Err(format!("{path}.issuer.audiences[{i}]: Required value"));
        }
        if audiences[..i].contains(audience) {
            return Err(format!("{path}.issuer.audiences[{i}]: Duplicate value: {audience:?}"));
        }
    }
    let policy = text(issuer, "audienceMatchPolicy");
    let why = match (audiences.len(), policy) {
        (_, "MatchAny") | (1, "") => None,
        (1, _) => Some("audienceMatchPolicy must be empty or MatchAny for single audience"),
        _ => Some("audienceMatchPolicy must be MatchAny for multiple audiences"),
    };
    if let Some(why) = why {
        return Err(format!("{path}.issuer.audienceMatchPolicy: Invalid value: {policy:?}: {why}"));
    }
    let ca = issuer["certificateAuthority"].as_str().filter(|ca| !ca.is_empty());
    let keys = IssuerKeys::new(url, discovery, ca).map_err(|e| format!("{path}.issuer: {e}"))?;
    let mappings = &jwt["claimMappings"];
    let at = |field: &str| format!("{path}.claimMappings.{field}");
    known_fields(mappings, &format!("{path}.claimMappings"), &["username", "groups", "uid", "extra"])?;
    let username = mapping(&mappings["username"], &at("username"), true)?
        .ok_or_else(|| format!("{}: Required value: claim or expression is required", at("username")))?;
    let mut extra = Vec::new();
    for (i, entry) in list(&mappings["extra"]).iter().enumerate() {
        let (key, path) = (text(entry, "key"), at(&format!("extra[{i}]")));
        if !key.contains('/') || key != key.to_lowercase() {
            return Err(format!("{path}.key: Invalid value: {key:?}: must be a domain-prefixed path in lower case"));
        }
        let reserved = |domain: &str| {
            domain == "kubernetes.io" || domain == "k8s.io" || domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io")
        };
        if key.split('/').next().is_some_and(reserved) {
            return Err(format!(
                "{path}.key: Invalid value: {key:?}: k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"
            ));
        }
        if extra.iter().any(|(known, _)| known == key) {
            return Err(format!("{path}.key: Duplicate value: {key:?}"));
        }
        extra.push((key.to_owned(), compile(Scope::Claims, text(entry, "valueExpression"), &format!("{path}.valueExpression"))?));
    }
    let claim_rules = claim_rules(&jwt["claimValidationRules"], path)?;
    if let Mapping::Expression(name) = &username
        && selects(name, "email")
    {
        // Who could choose an address that was never verified could choose to be anybody.
        let of_rules = claim_rules.iter().filter_map(|rule| match rule {
            ClaimRule::Holds { expression, .. } => Some(expression),
            ClaimRule::Required { .. } => None,
        });
        if !of_rules.chain(extra.iter().map(|(_, expression)| expression)).chain([name]).any(|e| selects(e, "email_verified")) {
            let why = "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression";
            return Err(format!("{}.expression: Invalid value: {:?}: {why}", at("username"), name.source()));
        }
    }
    Ok(Issuer {
        url: url.to_owned(),
        audiences,
        keys,
        claim_rules,
        username,
        groups: mapping(&mappings["groups"], &at("groups"), true)?,
        uid: mapping(&mappings["uid"], &at("uid"), false)?,
        extra,
        user_rules: user_rules(&jwt["userValidationRules"], path)?,
    })
}

/// Whether an expression takes a claim by its name: `claims.email` or `claims.?email`.
fn selects(expression: &Expression, claim: &str) -> bool {
    let source: String = expression.source().chars().filter(|c| !c.is_whitespace()).collect();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    source.match_indices("claims.").any(|(at, found)| {
        let after = source[at + found.len()..].trim_start_matches('?');
        let own = !source[..at].ends_with(|c: char| is_word(c) || c == '.');
        own && after.strip_prefix(claim).is_some_and(|rest| !rest.starts_with(is_word))
    })
}

fn check_url(url: &str, path: &str) -> Result<(), String> {
    if url.is_empty() {
        return Err(format!("{path}: Required value: URL is required"));
    }
    let parsed = reqwest::Url::parse(url).map_err(|e| format!("{path}: Invalid value: {url:?}: {e}"))?;
    let wrong = |why: &str| Err(format!("{path}: Invalid value: {url:?}: {why}"));
    match () {
        () if parsed.scheme() != "https" => wrong("URL scheme must be https"),
        () if !parsed.username().is_empty() || parsed.password().is_some() => wrong("URL must not contain a username or password"),
        () if parsed.query().is_some() => wrong("URL must not contain a query"),
        () if parsed.fragment().is_some() => wrong("URL must not contain a fragment"),
        () => Ok(()),
    }
}

/// A claim (with a prefix, which must be written even if it is empty, except for uids) or an expression.
fn mapping(value: &Value, path: &str, prefixed: bool) -> Result<Option<Mapping>, String> {
    known_fields(value, path, &["claim", "prefix", "expression"])?;
    let (claim, expression) = (text(value, "claim"), text(value, "expression"));
    match (claim.is_empty(), expression.is_empty()) {
        (true, true) => Ok(None),
        (false, false) => Err(format!("{path}: Invalid value: \"\": claim and expression can't both be set")),
        (true, false) if value["prefix"].is_string() => {
            Err(format!("{path}.prefix: Invalid value: {:?}: may not be specified when expression is set", text(value, "prefix")))
        }
        (true, false) => compile(Scope::Claims, expression, &format!("{path}.expression")).map(Mapping::Expression).map(Some),
        (false, true) if prefixed && !value["prefix"].is_string() => Err(format!(
            "{path}.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing"
        )),
        (false, true) => Ok(Some(Mapping::Claim { claim: claim.to_owned(), prefix: text(value, "prefix").to_owned() })),
    }
}

fn claim_rules(value: &Value, path: &str) -> Result<Vec<ClaimRule>, String> {
    let rule = |(i, rule): (usize, &Value)| {
        let path = format!("{path}.claimValidationRules[{i}]");
        known_fields(rule, &path, &["claim", "requiredValue", "expression", "message"])?;
        match (text(rule, "claim"), text(rule, "expression")) {
            ("", "") => Err(format!("{path}: Required value: claim or expression is required")),
            (_, "") if !text(rule, "message").is_empty() => {
                Err(format!("{path}.message: Invalid value: {:?}: may not be specified when claim is set", text(rule, "message")))
            }
            ("", _) if !text(rule, "requiredValue").is_empty() => Err(format!(
                "{path}.requiredValue: Invalid value: {:?}: may not be specified when expression is set",
                text(rule, "requiredValue")
            )),
            (claim, "") => Ok(ClaimRule::Required { claim: claim.to_owned(), value: text(rule, "requiredValue").to_owned() }),
            ("", expression) => {
                let expression = condition(Scope::Claims, expression, &format!("{path}.expression"))?;
                Ok(ClaimRule::Holds { expression, message: text(rule, "message").to_owned() })
            }
            _ => Err(format!("{path}: Invalid value: claim and expression can't both be set")),
        }
    };
    list(value).iter().enumerate().map(rule).collect()
}

fn user_rules(value: &Value, path: &str) -> Result<Vec<(Expression, String)>, String> {
    let rule = |(i, rule): (usize, &Value)| {
        let path = format!("{path}.userValidationRules[{i}]");
        known_fields(rule, &path, &["expression", "message"])?;
        let expression = condition(Scope::User, text(rule, "expression"), &format!("{path}.expression"))?;
        Ok((expression, text(rule, "message").to_owned()))
    };
    list(value).iter().enumerate().map(rule).collect()
}

fn compile(scope: Scope, source: &str, path: &str) -> Result<Expression, String> {
    if source.is_empty() {
        return Err(format!("{path}: Required value"));
    }
    Expression::compile(scope, source).map_err(|e| format!("{path}: Invalid value: {source:?}: {e}"))
}

fn condition(scope: Scope, source: &str, path: &str) -> Result<Expression, String> {
    if source.is_empty() {
        return Err(format!("{path}: Required value"));
    }
    Expression::condition(scope, source).map_err(|e| format!("{path}: Invalid value: {source:?}: {e}"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://issuer.example
    audiences: [a, b]
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - claim: hd
    requiredValue: example.com
  - expression: claims.exp - claims.nbf <= 86400
    message: too long
  claimMappings:
    username: {expression: \"'oidc:' + claims.sub\"}
    groups: {claim: groups, prefix: 'oidc:'}
    uid: {claim: sub}
    extra:
    - {key: example.com/tenant, valueExpression: claims.tenant}
  userValidationRules:
  - expression: \"!user.username.startsWith('system:')\"
    message: reserved
anonymous:
  enabled: true
  conditions: [{path: /livez}]
";

    #[test]
    fn a_whole_configuration_is_read() {
        let read = parse(GOOD.as_bytes(), &[]).unwrap();
        assert_eq!(read.issuers.len(), 1);
        assert_eq!((read.issuers[0].audiences.len(), read.issuers[0].claim_rules.len()), (2, 2));
        assert_eq!(read.anonymous, Some(Anonymous::Paths(vec!["/livez".into()])));
    }

    #[test]
    fn every_mistake_is_told_with_its_field() {
        let wrong = |from: &str, to: &str, says: &str| {
            assert!(GOOD.contains(from), "{from}");
            let error = parse(GOOD.replace(from, to).as_bytes(), &["https://own.example".to_owned()]).map(|_| ()).unwrap_err();
            assert!(error.contains(says), "{error}");
        };
        wrong("https://issuer.example", "http://issuer.example", "jwt[0].issuer.url: Invalid value");
        wrong("    audienceMatchPolicy: MatchAny\n", "", "jwt[0].issuer.audienceMatchPolicy");
        wrong("prefix: 'oidc:'", "x: y", "unknown field \"jwt[0].claimMappings.groups.x\"");
        wrong(", prefix: 'oidc:'", "", "jwt[0].claimMappings.groups.prefix: Required value");
        wrong("claims.exp - claims.nbf <= 86400", "claims.", "jwt[0].claimValidationRules[1].expression: Invalid value");
        wrong("example.com/tenant", "kubernetes.io/tenant", "reserved");
        wrong("https://issuer.example", "https://own.example", "must not overlap with disallowed issuers");
        wrong("[a, b]", "[a, a]", "jwt[0].issuer.audiences[1]: Duplicate value");
        wrong("'oidc:' + claims.sub", "claims.?email.orValue('x')", "claims.email_verified must be used");
        wrong("    message: too long", "    requiredValue: x", "may not be specified when expression is set");
        wrong("enabled: true", "enabled: false", "anonymous.conditions");
        wrong("claimValidationRules", "claimValidationRule", "unknown field");
        wrong("kind: AuthenticationConfiguration", "kind: Other", "expected a AuthenticationConfiguration");
        assert!(parse(b"\xff", &[]).is_err());
    }
}
