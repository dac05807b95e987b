//! `x-kubernetes-validations` of custom resources: compiled once for a version of a definition, evaluated on the parts of an
//! object that they stand at. Whether rules compile and what they may cost is told when a definition is written
//! ([`super::definition`]); a rule that does not compile here is told as a mistake of the object.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::RwLock;
use serde_json::{Value, json};
use usher_cel::{Activation, Budget, Environment, EvalError, Program};

use super::field::{Errors, Path, invalid_unshown, items, object, text};
use super::schema::correlated;
use crate::registry::Custom;
use crate::schema::ListType;
use crate::status::{FieldError, FieldReason};

/// The rules of a schema and of the schemas inside it; only the branches that have some.
#[derive(Debug, Default)]
pub struct Rules {
    own: Vec<Rule>,
    fields: Vec<(Box<str>, Rules)>,
    items: Option<Box<Rules>>,
    values: Option<Box<Rules>>,
    list_type: ListType,
}

#[derive(Debug)]
struct Rule {
    source: String,
    program: Result<Program, String>,
    message: String,
    message_expression: Option<Program>,
    reason: FieldReason,
    /// What to put behind the path of the object.
    field_path: String,
    optional_old: bool,
    /// Whether it speaks of the old object, so that it can be evaluated only where there is one.
    transition: bool,
}

/// What is done with a rule, the part of an object that it stands at, and what was there before; gives false to end it.
type Visit<'v, 'a> = dyn FnMut(&'a Rule, &'a Value, Option<&'a Value>, &Path<'_>) -> bool + 'v;

/// How many broken rules are told with their values, how many of those, and how long one may be.
const MAX_BROKEN: usize = 10;
const MAX_VALUES: usize = 40;
const MAX_VALUE_BYTES: usize = 512;

type Known = HashMap<usize, (Weak<Custom>, Option<Arc<Rules>>)>;

/// Compiled rules by the address of the version's record; the weak reference tells whether it is still that one.
static KNOWN: LazyLock<RwLock<Known>> = LazyLock::new(RwLock::default);

/// The rules of a version, compiled on first use; `None` if it has none.
pub fn of(custom: &Arc<Custom>) -> Option<Arc<Rules>> {
    let address = Arc::as_ptr(custom) as usize;
    if let Some((record, rules)) = KNOWN.read().get(&address)
        && record.upgrade().is_some_and(|record| Arc::ptr_eq(&record, custom))
    {
        return rules.clone();
    }
    let rules = Rules::compile(&custom.version["schema"]["openAPIV3Schema"], true).map(Arc::new);
    let mut known = KNOWN.write();
    known.retain(|_, (record, _)| record.strong_count() > 0);
    known.insert(address, (Arc::downgrade(custom), rules.clone()));
    rules
}

/// What a rule can refer to: `self`, and `oldSelf` as it is or as an optional value.
pub fn environment(schema: &Value, resource_root: bool, optional_old: bool) -> Option<(Environment, Arc<usher_cel::Schema>)> {
    let schema = Arc::new(usher_cel::Schema::from_openapi(schema, resource_root)?);
    let environment = Environment::kubernetes().schema_variable("self", schema.clone());
    let environment = match optional_old {
        true => environment.optional_schema_variable("oldSelf", schema.clone()),
        false => environment.schema_variable("oldSelf", schema.clone()),
    };
    Some((environment, schema))
}

impl Rules {
    fn compile(schema: &Value, root: bool) -> Option<Rules> {
        let is_whole = root || schema["x-kubernetes-embedded-resource"] == true;
        let mut rules = Rules::default();
        let written = items(schema, "x-kubernetes-validations");
        rules.own = written.iter().filter_map(|rule| Rule::compile(rule, schema, is_whole)).collect();
        for (name, field) in super::field::entries(schema, "properties") {
            // Nothing can be said of the metadata of a whole object but what its root says.
            if is_whole && name == "metadata" {
                continue;
            }
            rules.fields.extend(Rules::compile(field, false).map(|inner| (name.as_str().into(), inner)));
        }
        rules.items = schema.get("items").and_then(|s| Rules::compile(s, false)).map(Box::new);
        rules.values = schema.get("additionalProperties").and_then(|s| Rules::compile(s, false)).map(Box::new);
        if schema["x-kubernetes-list-type"] == "map" {
            let keys = items(schema, "x-kubernetes-list-map-keys").iter().filter_map(|k| k.as_str().map(Arc::from));
            rules.list_type = ListType::Map(keys.collect());
        }
        let empty = rules.own.is_empty() && rules.fields.is_empty() && rules.items.is_none() && rules.values.is_none();
        (!empty).then_some(rules)
    }

    /// Evaluates all rules on an object.
    pub fn validate(&self, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        let mut budget = Budget::default();
        self.walk(object, old, &Path::object(), &mut |rule, value, old, path| rule.evaluate(value, old, path, &mut budget, errors));
    }

    /// The rules that an object breaks, each with the values of its parts, for whoever asks why. They are evaluated anew, which is only
    /// worth it then.
    pub fn broken(&self, object: &Value, old: Option<&Value>) -> Vec<Value> {
        let mut budget = Budget::default();
        let mut broken = Vec::new();
        self.walk(object, old, &Path::object(), &mut |rule, value, old, path| {
            let (Ok(program), Some(activation)) = (&rule.program, rule.activation(value, old)) else { return true };
            let explanation = program.explain(&activation, &mut budget);
            match &explanation.value {
                Ok(value) if value.as_bool() == Some(true) => return true,
                Ok(_) | Err(EvalError::Failed(_)) => {}
                Err(_) => return false,
            }
            let because = rule.message(&activation, &mut budget);
            let values = explanation.told(MAX_VALUES, MAX_VALUE_BYTES);
            broken.push(json!({"field": path.to_string(), "because": because, "expression": rule.source, "values": values}));
            broken.len() < MAX_BROKEN
        });
        broken
    }

    /// Visits every rule with the part of the object that it stands at; gives false when a visit said that it was the last one.
    fn walk<'a>(&'a self, value: &'a Value, old: Option<&'a Value>, path: &Path<'_>, visit: &mut Visit<'_, 'a>) -> bool {
        if value.is_null() {
            return true;
        }
        let unchanged = old == Some(value);
        for rule in &self.own {
            // An old mistake that nobody touches does not stand in the way of other changes.
            if unchanged && !rule.transition {
                continue;
            }
            if !visit(rule, value, old, path) {
                return false;
            }
        }
        match value {
            Value::Object(map) => {
                for (name, inner) in &self.fields {
                    if let Some(field) = map.get(&**name)
                        && !inner.walk(field, old.and_then(|o| o.get(&**name)), &path.field(name), visit)
                    {
                        return false;
                    }
                }
                if let Some(inner) = &self.values {
                    for (name, field) in map.iter().filter(|(name, _)| !self.fields.iter().any(|(known, _)| **known == **name)) {
                        if !inner.walk(field, old.and_then(|o| o.get(name)), &path.key(name), visit) {
                            return false;
                        }
                    }
                }
            }
            Value::Array(list) => {
                if let Some(inner) = &self.items {
                    for (i, item) in list.iter().enumerate() {
                        if !inner.walk(item, correlated(&self.list_type, item, old), &path.index(i), visit) {
                            return false;
                        }
                    }
                }
            }
            _ => {}
        }
        true
    }
}

impl Rule {
    fn compile(rule: &Value, schema: &Value, whole: bool) -> Option<Rule> {
        let source = text(rule, "rule").to_owned();
        if source.trim().is_empty() {
            return None;
        }
        let optional_old = rule["optionalOldSelf"] == true;
        let (environment, _) = environment(schema, whole, optional_old)?;
        let program = environment.compile(&source).map_err(|error| error.to_string());
        let transition = program.as_ref().is_ok_and(|p| p.variables().any(|v| v == "oldSelf"));
        let expression = text(rule, "messageExpression");
        let message_expression = (!expression.is_empty()).then(|| environment.compile(expression).ok()).flatten();
        let reason = match text(rule, "reason") {
            "FieldValueForbidden" => FieldReason::Forbidden,
            "FieldValueRequired" => FieldReason::Required,
            "FieldValueDuplicate" => FieldReason::Duplicate,
            _ => FieldReason::Invalid,
        };
        let field_path = dotted(text(rule, "fieldPath"));
        let message = text(rule, "message").trim().to_owned();
        Some(Rule { source, program, message, message_expression, reason, field_path, optional_old, transition })
    }

    /// What it is evaluated with; `None` where it is not, for want of an old object.
    fn activation<'a>(&self, value: &'a Value, old: Option<&'a Value>) -> Option<Activation<'a>> {
        if self.transition && !self.optional_old && old.is_none() {
            return None;
        }
        let activation = Activation::new().bind("self", value);
        Some(match (self.optional_old, old) {
            (true, old) => activation.bind_optional("oldSelf", old),
            (false, Some(old)) => activation.bind("oldSelf", old),
            (false, None) => activation,
        })
    }

    fn evaluate<'a>(&'a self, value: &'a Value, old: Option<&'a Value>, path: &Path<'_>, budget: &mut Budget, errors: &mut Errors) -> bool {
        let Some(activation) = self.activation(value, old) else { return true };
        let program = match &self.program {
            Ok(program) => program,
            Err(error) => {
                let why = format!("rule compile error: {error}");
                errors.push(wrong(FieldReason::Invalid, path.to_string(), value, &why));
                return true;
            }
        };
        let rule = || match self.message.is_empty() {
            true => self.source.clone(),
            false => self.message.clone(),
        };
        let failed = match program.evaluate(&activation, budget) {
            Ok(evaluation) if evaluation.value.as_bool() == Some(true) => return true,
            Ok(_) => {
                let message = self.message(&activation, budget);
                errors.push(wrong(self.reason, format!("{path}{}", self.behind(path)), value, &message));
                return true;
            }
            Err(failed) => failed,
        };
        let (why, go_on) = match &failed {
            EvalError::BudgetExhausted | EvalError::Interrupted => (EvalError::BudgetExhausted.to_string(), false),
            EvalError::CostLimitExceeded => {
                (format!("'{failed}': no further validation rules will be run due to call cost exceeds limit for rule: {}", rule()), false)
            }
            EvalError::Failed(text) if text.starts_with("no such overload") => {
                let why = "call arguments did not match a supported operator, function or macro signature for rule";
                (format!("'{failed}': {why}: {}", rule()), true)
            }
            EvalError::Failed(_) => (format!("{failed} evaluating rule: {}", rule()), true),
        };
        errors.push(wrong(FieldReason::Invalid, path.to_string(), value, &why));
        go_on
    }

    /// The field path to put behind the object's: without its dot where the object is the root.
    fn behind(&self, path: &Path<'_>) -> &str {
        let root = path.to_string().is_empty();
        if root { self.field_path.strip_prefix('.').unwrap_or(&self.field_path) } else { &self.field_path }
    }

    fn message<'a>(&'a self, activation: &Activation<'a>, budget: &mut Budget) -> String {
        let told = self.message_expression.as_ref().and_then(|program| program.evaluate(activation, budget).ok());
        // A message that cannot be made, or is none, is no reason to say nothing.
        if let Some(told) = told.as_ref().and_then(|e| e.value.as_str()).map(str::trim)
            && !told.is_empty()
            && !told.contains('\n')
        {
            return told.to_owned();
        }
        match self.message.is_empty() {
            true => format!("failed rule: {}", self.source.replace('\n', " ")),
            false => self.message.clone(),
        }
    }
}

/// Scalars are shown; objects and lists are not, since they can be long.
fn wrong(reason: FieldReason, field: String, value: &Value, message: &str) -> FieldError {
    let field = if field.is_empty() { "<nil>".to_owned() } else { field };
    match reason {
        FieldReason::Forbidden => FieldError::forbidden(field, message),
        FieldReason::Required => FieldError::required(field, message),
        FieldReason::Duplicate => FieldError::duplicate(field, value),
        _ if value.is_object() || value.is_array() => invalid_unshown(field, message),
        _ => FieldError::invalid(field, value, message),
    }
}

/// `.a.b` and `['a']['b']` as messages write them.
fn dotted(path: &str) -> String {
    let mut out = String::new();
    let mut rest = path.trim();
    while !rest.is_empty() {
        if let Some((name, tail)) = rest.strip_prefix("['").and_then(|r| r.split_once("']")) {
            out = format!("{out}.{name}");
            rest = tail;
            continue;
        }
        let rest_of = rest.strip_prefix('.').unwrap_or(rest);
        let end = rest_of.find(['.', '[']).unwrap_or(rest_of.len()).max(usize::from(!rest_of.is_empty()));
        let end = (end..=rest_of.len()).find(|at| rest_of.is_char_boundary(*at)).unwrap_or(rest_of.len());
        out = format!("{out}.{}", &rest_of[..end]);
        rest = &rest_of[end..];
        if rest_of.is_empty() {
            break;
        }
    }
    out
}

/// Whether a `fieldPath` names a field that the schema has.
pub fn names_a_field(schema: &Value, path: &str) -> bool {
    let mut at = schema;
    for name in path.replace("['", ".").replace("']", "").trim_start_matches('.').split('.') {
        at = match at["properties"].get(name).or_else(|| object(at, "additionalProperties")) {
            Some(inner) => inner,
            None => return false,
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(schema: Value, new: Value, old: Option<Value>) -> Vec<String> {
        let rules = Rules::compile(&schema, false).expect("rules");
        let mut errors = Vec::new();
        rules.validate(&new, old.as_ref(), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    fn widget() -> Value {
        json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"size": {"type": "integer"}, "color": {"type": "string"},
                "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}]}},
            "x-kubernetes-validations": [
                {"rule": "self.size < 8 || self.color == 'blue'", "message": "big ones must be blue"},
                {"rule": "self.size != 7", "messageExpression": "'size ' + string(self.size) + ' is wrong'", "reason": "FieldValueForbidden", "fieldPath": ".size"}]}}})
    }

    #[test]
    fn a_failed_rule_is_told_with_its_message_reason_and_field() {
        assert_eq!(found(widget(), json!({"spec": {"size": 9, "color": "red"}}), None), ["spec: Invalid value: big ones must be blue"]);
        assert_eq!(found(widget(), json!({"spec": {"size": 7, "color": "red"}}), None), ["spec.size: Forbidden: size 7 is wrong"]);
    }

    #[test]
    fn a_broken_rule_can_say_which_values_it_found() {
        let rules = Rules::compile(&widget(), false).expect("rules");
        let broken = rules.broken(&json!({"spec": {"size": 9, "color": "red"}}), None);
        assert_eq!(broken.len(), 1, "{broken:?}");
        let told = ["field", "because", "expression"].map(|field| &broken[0][field]);
        assert_eq!(told, ["spec", "big ones must be blue", "self.size < 8 || self.color == 'blue'"]);
        let values = broken[0]["values"].as_array().expect("values");
        assert!(values.contains(&json!({"expression": "self.size", "value": 9})), "{values:?}");
        assert!(rules.broken(&json!({"spec": {"size": 1, "color": "red"}}), None).is_empty());
    }

    #[test]
    fn a_transition_rule_needs_an_old_value() {
        let (a, b) = (json!({"spec": {"size": 1, "fixed": "a"}}), json!({"spec": {"size": 1, "fixed": "b"}}));
        assert!(found(widget(), b.clone(), None).is_empty());
        assert_eq!(found(widget(), b, Some(a)), ["spec.fixed: Invalid value: \"b\": fixed is immutable"]);
    }

    #[test]
    fn an_unchanged_mistake_does_not_stand_in_the_way() {
        let old = json!({"spec": {"size": 9, "color": "red"}, "x": 1});
        let new = json!({"spec": {"size": 9, "color": "red"}, "x": 2});
        assert!(found(widget(), new, Some(old)).is_empty());
    }

    #[test]
    fn field_paths_are_written_with_dots() {
        assert_eq!(dotted(".a.b"), ".a.b");
        assert_eq!(dotted("['a-b'].c"), ".a-b.c");
        assert_eq!(dotted("["), ".[");
    }
}
