//! `status.typeChecking`: what a policy's expressions would get wrong on the kinds that its rules name. Warnings only, worked out in
//! the background after the policy was written; a policy with warnings is in force all the same.

use std::sync::{Arc, Weak};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use usher_cel::{CompileError, Environment};

use super::params::resource_of;
use crate::admission::Cluster;
use crate::admission::expression::{Site, environment};
use crate::object::{Object, canonical};
use crate::registry::Resource;
use crate::schema::{Schema, SchemaRef, Shape, builtin};
use crate::store::{self, Batch, Error, Expect};
use crate::watch::{Observer, State};

/// The most kinds that a policy is checked against.
const MAX_KINDS: usize = 10;
/// How deep a schema is followed; what is below can be anything.
const MAX_DEPTH: usize = 14;

/// Follows policies and keeps their status.
pub struct Checker(mpsc::UnboundedSender<String>);

impl Observer for Checker {
    fn changed(&self, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>) {
        if let Some(new) = new
            && old.is_none_or(|old| old.value()["spec"] != new.value()["spec"])
        {
            // Nobody listens any more only when the server stops.
            let _ = self.0.send(new.name().to_owned());
        }
    }
}

impl Checker {
    /// An observer, and behind it the work; it ends with the read side.
    pub fn start(cluster: &Cluster) -> Checker {
        let (sender, mut names) = mpsc::unbounded_channel::<String>();
        // The observer belongs to the read side: holding that here would keep both for ever.
        let state: Weak<State> = Arc::downgrade(&cluster.state);
        let (registry, clock) = (cluster.registry.clone(), cluster.clock.clone());
        tokio::spawn(async move {
            while let Some(name) = names.recv().await {
                let Some(state) = state.upgrade() else { return };
                let cluster = Cluster { state, registry: registry.clone(), clock: clock.clone(), converters: Arc::default() };
                if let Err(error) = write_status(&cluster, &name).await {
                    tracing::debug!(policy = %name, %error, "type checking a policy");
                }
            }
        });
        Checker(sender)
    }
}

async fn write_status(cluster: &Cluster, name: &str) -> Result<(), store::Error> {
    for _ in 0..5 {
        let topic = cluster.state.topic("validatingadmissionpolicies").await?;
        let Some(object) = topic.get(&format!("/registry/validatingadmissionpolicies/{name}")) else { return Ok(()) };
        let mut value = object.to_value();
        let mut checking = json!({});
        let warnings = warnings(&value, cluster);
        if !warnings.is_empty() {
            checking["expressionWarnings"] = warnings.into();
        }
        let status = json!({"observedGeneration": value["metadata"]["generation"], "typeChecking": checking});
        if value["status"]["observedGeneration"] == status["observedGeneration"]
            && value["status"]["typeChecking"] == status["typeChecking"]
        {
            return Ok(());
        }
        value["status"]["observedGeneration"] = status["observedGeneration"].clone();
        value["status"]["typeChecking"] = status["typeChecking"].clone();
        let operation =
            store::Operation::Put { key: object.key.clone(), value: canonical(&value), expect: Expect::Revision(object.revision) };
        let batch = Batch { operations: vec![operation], time: cluster.clock.now().as_microsecond(), audit_id: None };
        match cluster.state.store().commit(batch).await {
            Err(Error::Conflict { .. }) => {}
            other => return other.map(|_| ()),
        }
    }
    Ok(())
}

/// The warnings of a policy, each with the field that it is about.
pub fn warnings(policy: &Value, cluster: &Cluster) -> Vec<Value> {
    let spec = &policy["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut expressions = Vec::new();
    for (i, validation) in spec["validations"].as_array().into_iter().flatten().enumerate() {
        expressions.push((format!("spec.validations[{i}].expression"), text(&validation["expression"]), true));
        if let Some(message) = validation["messageExpression"].as_str().filter(|m| !m.is_empty()) {
            expressions.push((format!("spec.validations[{i}].messageExpression"), message.to_owned(), false));
        }
    }
    let params = spec["paramKind"]
        .as_object()
        .and_then(|_| resource_of(&text(&spec["paramKind"]["apiVersion"]), &text(&spec["paramKind"]["kind"]), cluster));
    let environments: Vec<(String, Environment, Environment)> = kinds(spec, cluster)
        .iter()
        .filter_map(|resource| {
            let (full, messages) = environments(spec, resource, params.as_deref())?;
            Some((shown(resource), full, messages))
        })
        .collect();
    let mut warnings = Vec::new();
    for (field, source, with_authorizer) in expressions {
        let mut found = Vec::new();
        for (kind, full, messages) in &environments {
            let environment = if with_authorizer { full } else { messages };
            if let Err(CompileError::Issues(issues)) = environment.compile(&source) {
                found.push(format!("{kind}: {issues}\n"));
            }
        }
        if !found.is_empty() {
            warnings.push(json!({"fieldRef": field, "warning": found.join("\n")}));
        }
    }
    warnings
}

/// The kinds that the rules name outright, in order.
fn kinds(spec: &Value, cluster: &Cluster) -> Vec<Arc<Resource>> {
    let mut found: Vec<Arc<Resource>> = Vec::new();
    let words = |rule: &Value, field: &str| rule[field].as_array().cloned().unwrap_or_default();
    for rule in spec["matchConstraints"]["resourceRules"].as_array().into_iter().flatten() {
        for group in words(rule, "apiGroups") {
            for version in words(rule, "apiVersions") {
                for plural in words(rule, "resources") {
                    let (Some(group), Some(version), Some(plural)) = (group.as_str(), version.as_str(), plural.as_str()) else { continue };
                    if let Some(resource) = cluster.registry.lookup(group, version, plural)
                        && !found.iter().any(|known| Arc::ptr_eq(known, &resource))
                        && found.len() < MAX_KINDS
                    {
                        found.push(resource);
                    }
                }
            }
        }
    }
    found.sort_by_key(|resource| shown(resource));
    found
}

/// A kind as warnings name it.
fn shown(resource: &Resource) -> String {
    format!("{}/{}, Kind={}", resource.group, resource.version, resource.kind)
}

/// The environments of expressions and of messages, with the object's type in them.
fn environments(spec: &Value, resource: &Resource, params: Option<&Resource>) -> Option<(Environment, Environment)> {
    let object = Arc::new(typed(resource, &resource.kind)?);
    let params = params.and_then(|params| typed(params, &format!("{}Params", params.kind))).map(Arc::new);
    let build = |authorizer: bool| {
        let site = Site { params: spec["paramKind"].is_object(), authorizer, mutation: false };
        let mut environment = environment(site).schema_variable("object", object.clone()).schema_variable("oldObject", object.clone());
        if let Some(params) = &params {
            environment = environment.schema_variable("params", params.clone());
        }
        environment = environment.with_policy_variables();
        for variable in spec["variables"].as_array().into_iter().flatten() {
            let source = variable["expression"].as_str().unwrap_or_default();
            let gives = environment.compile(source).map_or(usher_cel::Type::Dyn, |program| program.output_type().clone());
            environment = environment.policy_variable(variable["name"].as_str().unwrap_or_default(), gives);
        }
        environment
    };
    Some((build(true), build(false)))
}

/// The type of a resource's objects, under a name.
fn typed(resource: &Resource, name: &str) -> Option<usher_cel::Schema> {
    let mut document = openapi(&resource.schema(), &mut Vec::new());
    if let Some(properties) = document["properties"].as_object_mut() {
        for field in ["apiVersion", "kind"] {
            properties.entry(field).or_insert_with(|| json!({"type": "string"}));
        }
        if let Some(metadata) = builtin::of_definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") {
            properties.insert("metadata".into(), openapi(&metadata, &mut Vec::new()));
        }
    }
    usher_cel::Schema::from_openapi_as(name, &document)
}

/// A schema as the CEL crate reads it. What is too deep, or is part of itself, can be anything: a schema of schemas has no end.
fn openapi(schema: &Schema, within: &mut Vec<String>) -> Value {
    let anything = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut follow = |reference: &SchemaRef| {
        let name = match reference {
            SchemaRef::Named(name) => name.to_string(),
            SchemaRef::Inline(_) => String::new(),
        };
        if within.len() >= MAX_DEPTH || (!name.is_empty() && within.contains(&name)) {
            return anything();
        }
        within.push(name);
        let document = openapi(&reference.get(), within);
        within.pop();
        document
    };
    match &schema.shape {
        Shape::Any => anything(),
        Shape::Object(object) if object.preserve_unknown && object.properties.is_empty() => anything(),
        Shape::Object(object) => {
            let mut document = json!({"type": "object"});
            if let Some(additional) = &object.additional {
                document["additionalProperties"] = follow(additional);
            } else {
                document["properties"] = object
                    .properties
                    .iter()
                    .map(|(name, field)| (name.to_string(), follow(field)))
                    .collect::<serde_json::Map<_, _>>()
                    .into();
            }
            if object.preserve_unknown {
                document["x-kubernetes-preserve-unknown-fields"] = json!(true);
            }
            document
        }
        Shape::Array { items, .. } => json!({"type": "array", "items": follow(items)}),
        Shape::String { format } => match format.as_deref() {
            Some("int-or-string") => json!({"x-kubernetes-int-or-string": true}),
            // A real server has no type for it, and so no field where there is one.
            Some("quantity") => json!({}),
            Some(format) => json!({"type": "string", "format": format}),
            None => json!({"type": "string"}),
        },
        Shape::Integer { .. } => json!({"type": "integer"}),
        Shape::Number => json!({"type": "number"}),
        Shape::Boolean => json!({"type": "boolean"}),
        Shape::IntOrString => json!({"x-kubernetes-int-or-string": true}),
    }
}
