//! What is wrong with a policy, a binding or a webhook configuration that somebody wants to write: expressions that do not compile or
//! give the wrong type are errors; a binding whose policy or parameters are not there is worth a warning.

use serde_json::{Value, json};
use usher_cel::{Environment, Type};

use super::params::resource_of;
use super::snapshot::Policies;
use crate::admission::expression::{Site, compile_error, environment};
use crate::admission::{Cluster, Write};
use crate::status::{FieldError, Status};

/// Checks a write of a policy, a binding or a webhook configuration.
pub fn definition(write: &Write, validating: &Policies, cluster: &Cluster) -> Result<(), Status> {
    let object = write.object();
    let errors = match &*write.resource.plural {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => policy(object),
        "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => webhooks(object),
        "validatingadmissionpolicybindings" => {
            warn_of_missing(write, validating, cluster);
            Vec::new()
        }
        _ => Vec::new(),
    };
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Status::invalid(&write.resource.group, &write.resource.kind, &write.name, errors)),
    }
}

fn warn_of_missing(write: &Write, policies: &Policies, cluster: &Cluster) {
    let spec = &write.object()["spec"];
    let name = spec["policyName"].as_str().unwrap_or_default();
    let Some(policy) = policies.policy(name) else {
        write.context.trace.warn(format!("the policy {name:?} does not exist: this binding has no effect until it does"));
        return;
    };
    let Some((api_version, kind)) = &policy.param_kind else { return };
    let Some(resource) = resource_of(api_version, kind, cluster) else {
        write.context.trace.warn(format!("the paramKind {api_version}, Kind={kind} of policy {name:?} is not served"));
        return;
    };
    let reference = &spec["paramRef"];
    let namespace = reference["namespace"].as_str().unwrap_or_default();
    if let Some(param) = reference["name"].as_str().filter(|n| !n.is_empty())
        && (!resource.namespaced || !namespace.is_empty())
        && cluster.state.loaded(&resource.storage).is_some()
        && cluster.peek(&resource.storage, namespace, param).is_none()
    {
        write.context.trace.warn(format!("the parameter {kind} {param:?} of this binding does not exist"));
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Compiles one expression and checks what it gives.
fn expression(field: String, source: &str, environment: &Environment, wanted: &[Type], errors: &mut Vec<FieldError>) -> Option<Type> {
    if source.trim().is_empty() {
        errors.push(FieldError::required(field, ""));
        return None;
    }
    match environment.compile(source) {
        Err(error) => {
            errors.push(FieldError::invalid(field, &json!(source), compile_error(&error)));
            None
        }
        Ok(program) => {
            let gives = program.output_type();
            if !wanted.is_empty() && *gives != Type::Dyn && !wanted.contains(gives) {
                let names: Vec<String> = wanted.iter().map(ToString::to_string).collect();
                let detail = match names.as_slice() {
                    [one] => format!("must evaluate to {one}"),
                    many => format!("must evaluate to one of: {many:?}"),
                };
                errors.push(FieldError::invalid(field, &json!(source), detail));
            }
            Some(gives.clone())
        }
    }
}

fn conditions(list: &Value, path: &str, environment: &Environment, errors: &mut Vec<FieldError>) {
    for (i, condition) in list.as_array().into_iter().flatten().enumerate() {
        expression(format!("{path}[{i}].expression"), text(&condition["expression"]), environment, &[Type::Bool], errors);
    }
}

/// The errors of a policy of either sort.
pub fn policy(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let is_mutating = object["kind"] == "MutatingAdmissionPolicy";
    let mut errors = Vec::new();
    let site = Site { params: spec["paramKind"].is_object(), authorizer: true, mutation: is_mutating };
    let list = |field: &str| spec[field].as_array().map(Vec::as_slice).unwrap_or_default();
    if spec["matchConstraints"].is_object() && spec["matchConstraints"]["resourceRules"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.matchConstraints.resourceRules", ""));
    }
    if !is_mutating && list("validations").is_empty() && list("auditAnnotations").is_empty() {
        for field in ["spec.validations", "spec.auditAnnotations"] {
            errors.push(FieldError::required(field, "validations or auditAnnotations must contain at least one item"));
        }
    }
    if is_mutating && list("mutations").is_empty() {
        errors.push(FieldError::required("spec.mutations", "mutations must contain at least one item"));
    }
    let plain = environment(site);
    conditions(&spec["matchConditions"], "spec.matchConditions", &plain, &mut errors);
    let (mut full, mut messages) = (plain.with_policy_variables(), environment(Site { authorizer: false, ..site }).with_policy_variables());
    for (i, variable) in list("variables").iter().enumerate() {
        let field = format!("spec.variables[{i}].expression");
        if let Some(gives) = expression(field, text(&variable["expression"]), &full, &[], &mut errors) {
            full = full.policy_variable(text(&variable["name"]), gives.clone());
            messages = messages.policy_variable(text(&variable["name"]), gives);
        }
    }
    for (i, validation) in list("validations").iter().enumerate() {
        let path = format!("spec.validations[{i}]");
        expression(format!("{path}.expression"), text(&validation["expression"]), &full, &[Type::Bool], &mut errors);
        if let Some(message) = validation["messageExpression"].as_str().filter(|m| !m.is_empty()) {
            expression(format!("{path}.messageExpression"), message, &messages, &[Type::String], &mut errors);
        }
    }
    for (i, annotation) in list("auditAnnotations").iter().enumerate() {
        let wanted = [Type::String, Type::Null];
        expression(
            format!("spec.auditAnnotations[{i}].valueExpression"),
            text(&annotation["valueExpression"]),
            &full,
            &wanted,
            &mut errors,
        );
    }
    for (i, mutation) in list("mutations").iter().enumerate() {
        let path = format!("spec.mutations[{i}]");
        match mutation["patchType"].as_str() {
            Some("JSONPatch") => {
                let wanted = [Type::list(Type::object("JSONPatch"))];
                expression(format!("{path}.jsonPatch.expression"), text(&mutation["jsonPatch"]["expression"]), &full, &wanted, &mut errors);
            }
            Some("ApplyConfiguration") => {
                let wanted = [Type::object("Object")];
                let source = text(&mutation["applyConfiguration"]["expression"]);
                expression(format!("{path}.applyConfiguration.expression"), source, &full, &wanted, &mut errors);
            }
            _ => errors.push(FieldError::required(format!("{path}.patchType"), "")),
        }
    }
    errors
}

/// The errors of the match conditions of webhooks.
fn webhooks(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let list = object["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    if list.iter().all(|webhook| webhook["matchConditions"].as_array().is_none_or(Vec::is_empty)) {
        return errors;
    }
    let environment = environment(Site { authorizer: true, ..Site::default() });
    for (i, webhook) in list.iter().enumerate() {
        conditions(&webhook["matchConditions"], &format!("webhooks[{i}].matchConditions"), &environment, &mut errors);
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validating(spec: Value) -> Vec<String> {
        policy(&json!({"kind": "ValidatingAdmissionPolicy", "spec": spec})).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn expressions_must_compile_and_give_what_they_are_for() {
        let rules = json!({"resourceRules": [{}]});
        let errors =
            validating(json!({"matchConstraints": rules, "validations": [{"expression": "object.x ==", "messageExpression": "1"}]}));
        assert!(
            errors[0]
                .starts_with("spec.validations[0].expression: Invalid value: \"object.x ==\": compilation failed: ERROR: <input>:1:12"),
            "{errors:?}"
        );
        assert_eq!(errors[1], "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string");
        let fine = json!({"matchConstraints": rules, "variables": [{"name": "n", "expression": "size(object.metadata.name)"}], "validations": [{"expression": "variables.n > 3 && request.operation == 'CREATE' && namespaceObject.metadata.name != ''"}]});
        assert_eq!(validating(fine), Vec::<String>::new());
        let params = json!({"matchConstraints": rules, "validations": [{"expression": "params.x == 1"}]});
        assert!(validating(params)[0].contains("undeclared reference to 'params'"));
    }

    #[test]
    fn a_policy_must_do_something_about_something() {
        assert_eq!(
            validating(json!({"matchConstraints": {"resourceRules": []}})),
            [
                "spec.matchConstraints.resourceRules: Required value",
                "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
            ]
        );
    }

    #[test]
    fn mutations_make_objects_or_patches() {
        let mutating = |mutation: Value| policy(&json!({"kind": "MutatingAdmissionPolicy", "spec": {"mutations": [mutation]}}));
        let apply = |e: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": e}});
        let patch = |e: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": e}});
        assert!(mutating(apply("Object{metadata: Object.metadata{labels: {'a': 'b'}}}")).is_empty());
        assert_eq!(mutating(apply("1"))[0].detail, "must evaluate to Object");
        assert!(mutating(patch("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'c'}]")).is_empty());
    }
}
