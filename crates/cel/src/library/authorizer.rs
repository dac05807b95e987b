//! The authorizer: builds a question step by step (`authorizer.group('apps').resource('deployments')…`) and asks
//! it with `check(verb)`. Who answers is the caller's business, behind the [`Authorizer`] trait.

use std::fmt;
use std::sync::Arc;

use crate::declarations::{Declaration, declare};
use crate::error::{EvalError, failed, no_such_overload};
use crate::library::Opaque;
use crate::library::format::{dns1123_subdomain_errors, is_dns1123_label};
use crate::meter::Meter;
use crate::operations::Answer;
use crate::value::Value;

macro_rules! authorization {
    ($name:literal) => {
        concat!("kubernetes.authorization.", $name)
    };
}

#[rustfmt::skip]
pub(crate) const DECLARATIONS: &[Declaration] = &[
    declare("path", "authorizer_path", concat!(authorization!("Authorizer"), ".(string) -> ", authorization!("PathCheck")), path),
    declare("group", "authorizer_group", concat!(authorization!("Authorizer"), ".(string) -> ", authorization!("GroupCheck")), group),
    declare("serviceAccount", "authorizer_serviceaccount", concat!(authorization!("Authorizer"), ".(string, string) -> ", authorization!("Authorizer")), service_account),
    declare("resource", "groupcheck_resource", concat!(authorization!("GroupCheck"), ".(string) -> ", authorization!("ResourceCheck")), resource),
    declare("subresource", "resourcecheck_subresource", concat!(authorization!("ResourceCheck"), ".(string) -> ", authorization!("ResourceCheck")), subresource),
    declare("namespace", "resourcecheck_namespace", concat!(authorization!("ResourceCheck"), ".(string) -> ", authorization!("ResourceCheck")), namespace),
    declare("name", "resourcecheck_name", concat!(authorization!("ResourceCheck"), ".(string) -> ", authorization!("ResourceCheck")), name),
    declare("fieldSelector", "authorizer_fieldselector", concat!(authorization!("ResourceCheck"), ".(string) -> ", authorization!("ResourceCheck")), field_selector),
    declare("labelSelector", "authorizer_labelselector", concat!(authorization!("ResourceCheck"), ".(string) -> ", authorization!("ResourceCheck")), label_selector),
    declare("check", "pathcheck_check", concat!(authorization!("PathCheck"), ".(string) -> ", authorization!("Decision")), check),
    declare("check", "resourcecheck_check", concat!(authorization!("ResourceCheck"), ".(string) -> ", authorization!("Decision")), check),
    declare("errored", "decision_errored", concat!(authorization!("Decision"), ".() -> bool"), errored),
    declare("error", "decision_error", concat!(authorization!("Decision"), ".() -> string"), error),
    declare("allowed", "decision_allowed", concat!(authorization!("Decision"), ".() -> bool"), allowed),
    declare("reason", "decision_reason", concat!(authorization!("Decision"), ".() -> string"), reason),
];

/// Answers the questions that expressions ask of `authorizer`.
pub trait Authorizer: Send + Sync {
    /// Decides one question.
    fn check(&self, attributes: &CheckAttributes) -> Decision;
}

/// What is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckAttributes {
    /// Namespace and name of a service account to ask for, instead of the user of the request.
    pub service_account: Option<(String, String)>,
    /// The verb.
    pub verb: String,
    /// A path; a question about a path has no resource.
    pub path: Option<String>,
    /// The API group.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// A field selector, unparsed.
    pub field_selector: Option<String>,
    /// A label selector, unparsed.
    pub label_selector: Option<String>,
}

/// What was answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What went wrong while deciding.
    pub error: Option<String>,
}

/// The authorizer, a question on its way, or an answer.
#[derive(Clone)]
pub struct Authorization<'a> {
    authorizer: Option<&'a dyn Authorizer>,
    state: State,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Authorizer(Option<Arc<(String, String)>>),
    Group(Arc<CheckAttributes>),
    Path(Arc<CheckAttributes>),
    Resource(Arc<CheckAttributes>),
    Decided(Arc<Decision>),
}

impl fmt::Debug for Authorization<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

impl PartialEq for Authorization<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.state == other.state
    }
}

impl<'a> Authorization<'a> {
    /// The value of `authorizer`.
    pub(crate) fn value(authorizer: &'a dyn Authorizer) -> Value<'a> {
        Value::Opaque(Opaque::Authorization(Arc::new(Authorization { authorizer: Some(authorizer), state: State::Authorizer(None) })))
    }

    /// The value of `authorizer.requestResource`.
    pub(crate) fn request_resource(authorizer: &'a dyn Authorizer, attributes: CheckAttributes) -> Value<'a> {
        Value::Opaque(Opaque::Authorization(Arc::new(Authorization {
            authorizer: Some(authorizer),
            state: State::Resource(Arc::new(attributes)),
        })))
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self.state {
            State::Authorizer(_) => authorization!("Authorizer"),
            State::Group(_) => authorization!("GroupCheck"),
            State::Path(_) => authorization!("PathCheck"),
            State::Resource(_) => authorization!("ResourceCheck"),
            State::Decided(_) => authorization!("Decision"),
        }
    }

    fn next(&self, state: State) -> Value<'a> {
        Value::Opaque(Opaque::Authorization(Arc::new(Authorization { authorizer: self.authorizer, state })))
    }
}

fn target<'v, 'a>(args: &'v [Value<'a>]) -> Result<&'v Authorization<'a>, EvalError> {
    match args {
        [Value::Opaque(Opaque::Authorization(target)), ..] => Ok(target),
        _ => Err(no_such_overload()),
    }
}

fn text(args: &[Value<'_>], at: usize) -> Result<String, EvalError> {
    match args.get(at) {
        Some(Value::String(text)) => Ok(text.to_string()),
        _ => Err(no_such_overload()),
    }
}

fn asking(service_account: &Option<Arc<(String, String)>>) -> CheckAttributes {
    CheckAttributes { service_account: service_account.as_deref().cloned(), ..CheckAttributes::default() }
}

fn path<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let (target, path) = (target(args)?, text(args, 1)?);
    let State::Authorizer(account) = &target.state else {
        return Err(no_such_overload());
    };
    if path.trim().is_empty() {
        return Err(failed("path must not be empty"));
    }
    let attributes = CheckAttributes { path: Some(path), ..asking(account) };
    Ok(target.next(State::Path(Arc::new(attributes))))
}

fn group<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let (target, group) = (target(args)?, text(args, 1)?);
    let State::Authorizer(account) = &target.state else {
        return Err(no_such_overload());
    };
    let attributes = CheckAttributes { group, ..asking(account) };
    Ok(target.next(State::Group(Arc::new(attributes))))
}

fn service_account<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let (target, namespace, name) = (target(args)?, text(args, 1)?, text(args, 2)?);
    let State::Authorizer(_) = &target.state else {
        return Err(no_such_overload());
    };
    if !dns1123_subdomain_errors(&name).is_empty() {
        return Err(failed("Invalid service account name"));
    }
    if namespace.len() > 63 || !is_dns1123_label(&namespace) {
        return Err(failed("Invalid service account namespace"));
    }
    Ok(target.next(State::Authorizer(Some(Arc::new((namespace, name))))))
}

fn resource<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let (target, resource) = (target(args)?, text(args, 1)?);
    let State::Group(attributes) = &target.state else {
        return Err(no_such_overload());
    };
    if resource.trim().is_empty() {
        return Err(failed("resource must not be empty"));
    }
    let attributes = CheckAttributes { resource, ..(**attributes).clone() };
    Ok(target.next(State::Resource(Arc::new(attributes))))
}

fn with<'a>(args: &[Value<'a>], set: fn(&mut CheckAttributes, String)) -> Answer<'a> {
    let (target, text) = (target(args)?, text(args, 1)?);
    let State::Resource(attributes) = &target.state else {
        return Err(no_such_overload());
    };
    let mut attributes = (**attributes).clone();
    set(&mut attributes, text);
    Ok(target.next(State::Resource(Arc::new(attributes))))
}

fn subresource<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    with(args, |attributes, text| attributes.subresource = text)
}

fn namespace<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    with(args, |attributes, text| attributes.namespace = text)
}

fn name<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    with(args, |attributes, text| attributes.name = text)
}

fn field_selector<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    with(args, |attributes, text| attributes.field_selector = Some(text).filter(|t| !t.is_empty()))
}

fn label_selector<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    with(args, |attributes, text| attributes.label_selector = Some(text).filter(|t| !t.is_empty()))
}

fn check<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let (target, verb) = (target(args)?, text(args, 1)?);
    let (State::Path(attributes) | State::Resource(attributes)) = &target.state else {
        return Err(no_such_overload());
    };
    let attributes = CheckAttributes { verb, ..(**attributes).clone() };
    let authorizer = target.authorizer.ok_or_else(|| failed("no authorizer"))?;
    Ok(target.next(State::Decided(Arc::new(authorizer.check(&attributes)))))
}

fn decision(args: &[Value<'_>]) -> Result<Arc<Decision>, EvalError> {
    match &target(args)?.state {
        State::Decided(decision) => Ok(decision.clone()),
        _ => Err(no_such_overload()),
    }
}

fn errored<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(decision(args)?.error.is_some()))
}

fn error<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::string(decision(args)?.error.as_deref().unwrap_or("")))
}

fn allowed<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(decision(args)?.allowed))
}

fn reason<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::string(decision(args)?.reason.as_str()))
}
