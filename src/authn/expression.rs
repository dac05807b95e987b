//! CEL where identity uses it: claim rules and mappings of an issuer, rules about the resulting user, and the match
//! conditions of an authorisation webhook. Says which variable each of them sees; the language itself is a crate of its
//! own.

use serde_json::Value;
use usher_cel::{Activation, Budget, Environment, Program, Type};

/// What an expression is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `claims`, the claims of a token.
    Claims,
    /// `user`, the user that a token was mapped to.
    User,
    /// `request`, the spec of a SubjectAccessReview.
    Request,
}

impl Scope {
    fn variable(self) -> &'static str {
        match self {
            Scope::Claims => "claims",
            Scope::User => "user",
            Scope::Request => "request",
        }
    }

    fn environment(self) -> Environment {
        let strings = || Type::list(Type::String);
        let extra = || Type::map(Type::String, strings());
        let base = Environment::kubernetes();
        match self {
            Scope::Claims => base.variable("claims", Type::map(Type::String, Type::Dyn)),
            Scope::User => base
                .object_type(
                    "kubernetes.UserInfo",
                    [("username", Type::String), ("uid", Type::String), ("groups", strings()), ("extra", extra())],
                )
                .variable("user", Type::object("kubernetes.UserInfo")),
            Scope::Request => {
                let requirement = [("key", Type::String), ("operator", Type::String), ("values", strings())];
                let selector = |name: &str| [("rawSelector", Type::String), ("requirements", Type::list(Type::object(name)))];
                base.object_type("kubernetes.FieldSelectorRequirement", requirement.clone())
                    .object_type("kubernetes.LabelSelectorRequirement", requirement)
                    .object_type("kubernetes.FieldSelectorAttributes", selector("kubernetes.FieldSelectorRequirement"))
                    .object_type("kubernetes.LabelSelectorAttributes", selector("kubernetes.LabelSelectorRequirement"))
                    .object_type(
                        "kubernetes.ResourceAttributes",
                        [
                            ("namespace", Type::String),
                            ("verb", Type::String),
                            ("group", Type::String),
                            ("version", Type::String),
                            ("resource", Type::String),
                            ("subresource", Type::String),
                            ("name", Type::String),
                            ("fieldSelector", Type::object("kubernetes.FieldSelectorAttributes")),
                            ("labelSelector", Type::object("kubernetes.LabelSelectorAttributes")),
                        ],
                    )
                    .object_type("kubernetes.NonResourceAttributes", [("path", Type::String), ("verb", Type::String)])
                    .object_type(
                        "kubernetes.SubjectAccessReviewSpec",
                        [
                            ("resourceAttributes", Type::object("kubernetes.ResourceAttributes")),
                            ("nonResourceAttributes", Type::object("kubernetes.NonResourceAttributes")),
                            ("user", Type::String),
                            ("groups", strings()),
                            ("extra", extra()),
                            ("uid", Type::String),
                        ],
                    )
                    .variable("request", Type::object("kubernetes.SubjectAccessReviewSpec"))
            }
        }
    }
}

/// A compiled expression.
pub struct Expression {
    scope: Scope,
    program: Program,
}

impl Expression {
    /// Compiles; the error is the one that a real server shows.
    pub fn compile(scope: Scope, text: &str) -> Result<Self, String> {
        let program = scope.environment().compile(text).map_err(|e| format!("compilation failed: {e}"))?;
        Ok(Expression { scope, program })
    }

    /// The same for an expression that must say yes or no.
    pub fn condition(scope: Scope, text: &str) -> Result<Self, String> {
        let expression = Expression::compile(scope, text)?;
        match expression.program.output_type() {
            Type::Bool | Type::Dyn => Ok(expression),
            _ => Err("must evaluate to bool".into()),
        }
    }

    /// What was compiled.
    pub fn source(&self) -> &str {
        self.program.source()
    }

    /// The value of the expression; `null` also for an optional without value.
    pub fn evaluate(&self, value: &Value) -> Result<Value, String> {
        let activation = Activation::new().bind(self.scope.variable(), value);
        let result = self.program.evaluate(&activation, &mut Budget::default()).map_err(|e| e.to_string())?;
        result.value.to_json().map_err(|e| e.to_string())
    }

    /// Yes or no.
    pub fn holds(&self, value: &Value) -> Result<bool, String> {
        self.evaluate(value)?.as_bool().ok_or_else(|| format!("expression '{}' does not evaluate to bool", self.source()))
    }
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Expression({:?})", self.source())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_users_and_requests_are_seen_under_their_names() {
        let claims = json!({"sub": "u", "roles": ["a", "b"], "hd": "example.com"});
        let mapped = Expression::compile(Scope::Claims, "claims.roles.map(r, 'oidc:' + r)").unwrap();
        assert_eq!(mapped.evaluate(&claims), Ok(json!(["oidc:a", "oidc:b"])));
        let absent = Expression::compile(Scope::Claims, "claims.?nope.orValue('none')").unwrap();
        assert_eq!(absent.evaluate(&claims), Ok(json!("none")));
        let user = json!({"username": "system:x", "uid": "", "groups": [], "extra": {}});
        assert_eq!(Expression::condition(Scope::User, "!user.username.startsWith('system:')").unwrap().holds(&user), Ok(false));
        let request =
            json!({"user": "bob", "groups": [], "uid": "", "extra": {}, "resourceAttributes": {"verb": "get", "namespace": "kube-system"}});
        let condition = "has(request.resourceAttributes) && request.resourceAttributes.namespace == 'kube-system'";
        assert_eq!(Expression::condition(Scope::Request, condition).unwrap().holds(&request), Ok(true));
        assert_eq!(Expression::condition(Scope::Request, "!has(request.nonResourceAttributes)").unwrap().holds(&request), Ok(true));
    }

    #[test]
    fn what_does_not_compile_or_is_no_condition_is_refused() {
        assert!(Expression::compile(Scope::Claims, "claims.").is_err());
        assert!(Expression::compile(Scope::Claims, "user.username").is_err());
        assert!(Expression::condition(Scope::User, "user.username").is_err());
    }
}
