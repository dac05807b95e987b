//! The schemas of built-in kinds, by definition name: [`super::source`] and [`super::overlay`] brought together, on first
//! use, and kept. Custom kinds are compiled in [`super::custom`].

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use serde_json::{Map, Value};

use super::overlay::{self, Definition, Field};
use super::{Constraints, ListType, ObjectShape, PatchStrategy, Schema, SchemaRef, Shape, source};

type Definitions = HashMap<Arc<str>, Arc<Schema>>;

fn compiled() -> &'static ArcSwap<Definitions> {
    static COMPILED: OnceLock<ArcSwap<Definitions>> = OnceLock::new();
    COMPILED.get_or_init(ArcSwap::default)
}

/// The full name of a kind's definition: `io.k8s.api.apps.v1.Deployment`.
pub fn definition_name(group: &str, version: &str, kind: &str) -> String {
    match group.split('.').next().unwrap_or_default() {
        "" => format!("io.k8s.api.core.{version}.{kind}"),
        "apiextensions" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{kind}"),
        "apiregistration" => format!("io.k8s.kube-aggregator.pkg.apis.apiregistration.{version}.{kind}"),
        "internal" => format!("io.k8s.api.apiserverinternal.{version}.{kind}"),
        "meta" => format!("io.k8s.apimachinery.pkg.apis.meta.{version}.{kind}"),
        package => format!("io.k8s.api.{package}.{version}.{kind}"),
    }
}

/// The schema of a built-in kind, among them those that only subresources take (Scale, Eviction, …).
pub fn of_kind(group: &str, version: &str, kind: &str) -> Option<Arc<Schema>> {
    of_definition(&definition_name(group, version, kind))
}

/// The schema of a definition. The first look at a kind compiles everything that it is made of.
pub fn of_definition(name: &str) -> Option<Arc<Schema>> {
    if let Some(schema) = compiled().load().get(name) {
        return Some(schema.clone());
    }
    let sources = source::definitions_of(name);
    if !sources.contains_key(name) {
        return None;
    }
    compiled().rcu(|old| {
        let mut all = Definitions::clone(old);
        for (name, json) in &sources {
            if !all.contains_key(name.as_str()) {
                let name: Arc<str> = name.as_str().into();
                all.insert(name.clone(), Arc::new(definition(name, json, &sources)));
            }
        }
        all
    });
    compiled().load().get(name).cloned()
}

fn definition(name: Arc<str>, json: &Value, sources: &Map<String, Value>) -> Schema {
    let shape = match name.rsplit('.').next().unwrap_or_default() {
        "Quantity" => Shape::String { format: Some("quantity".into()) },
        "IntOrString" => Shape::IntOrString,
        "JSON" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" | "RawExtension" | "FieldsV1" => {
            Shape::Any
        }
        _ if json.get("properties").is_some() || json["type"] == "object" => {
            Shape::Object(object(json, &overlay::definition(&name), sources))
        }
        _ => shape(json, &Field::default()),
    };
    Schema { name: Some(name), shape, ..Schema::default() }
}

fn object(json: &Value, overlay: &Definition, sources: &Map<String, Value>) -> ObjectShape {
    let nothing = Field::default();
    let mut object = ObjectShape {
        required: overlay.required.iter().map(|&f| f.into()).collect(),
        atomic: overlay.map_type == Some("atomic"),
        ..ObjectShape::default()
    };
    for (name, json) in json["properties"].as_object().into_iter().flatten() {
        let field = overlay.fields.get(name.as_str()).unwrap_or(&nothing);
        let name: Box<str> = name.as_str().into();
        if field.omit {
            object.omit_empty.push(name.clone());
        }
        let default = if field.null { Some(Value::Null) } else { field.set.clone().or_else(|| field.default.clone()) };
        // A default that would be left out again is none.
        if let Some(default) = default.filter(|d| !(field.omit && super::is_zero(d))) {
            if field.set.is_none() && super::is_zero(&default) {
                object.plain.push(name.clone());
            }
            object.defaults.insert(name.clone(), default);
        }
        object.properties.insert(name, property(json, field, sources));
    }
    object
}

/// A property is the definition it refers to, unless the table says something of this use of it.
fn property(json: &Value, field: &Field, sources: &Map<String, Value>) -> SchemaRef {
    let Some(name) = reference(json) else { return SchemaRef::Inline(Arc::new(inline(json, field))) };
    if field.patch_strategy.is_none() && field.map_type.is_none() {
        return SchemaRef::Named(name.into());
    }
    let Some(json) = sources.get(name) else { return SchemaRef::Named(name.into()) };
    let mut schema = definition(name.into(), json, sources);
    if let Shape::Object(object) = &mut schema.shape {
        object.patch = patch(field);
        object.atomic = field.map_type.map_or(object.atomic, |kind| kind == "atomic");
    }
    SchemaRef::Inline(Arc::new(schema))
}

fn inline(json: &Value, field: &Field) -> Schema {
    let mut schema = Schema { shape: shape(json, field), default: field.default.clone(), ..Schema::default() };
    schema.constraints = enumeration(&field.enumeration);
    schema
}

fn enumeration(values: &[String]) -> Option<Box<Constraints>> {
    let enumeration: Vec<Value> = values.iter().map(|v| v.as_str().into()).collect();
    (!enumeration.is_empty()).then(|| Box::new(Constraints { enumeration, ..Constraints::default() }))
}

fn shape(json: &Value, field: &Field) -> Shape {
    let format = || json["format"].as_str().map(Arc::from);
    let part = |json: &Value| match reference(json) {
        Some(name) => SchemaRef::Named(name.into()),
        None => {
            let constraints = enumeration(&field.item_enumeration);
            SchemaRef::Inline(Arc::new(Schema { shape: shape(json, &Field::default()), constraints, ..Schema::default() }))
        }
    };
    match json["type"].as_str() {
        Some("string") => Shape::String { format: format() },
        Some("integer") => Shape::Integer { format: format() },
        Some("number") => Shape::Number,
        Some("boolean") => Shape::Boolean,
        Some("array") => Shape::Array {
            items: part(&json["items"]),
            list_type: match field.list_type {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map(field.list_keys.iter().map(|&k| k.into()).collect()),
                _ => ListType::Atomic,
            },
            patch: patch(field),
        },
        Some("object") => Shape::Object(ObjectShape {
            additional: json.get("additionalProperties").map(part),
            atomic: field.map_type == Some("atomic"),
            patch: patch(field),
            ..ObjectShape::default()
        }),
        _ => Shape::Any,
    }
}

fn patch(field: &Field) -> PatchStrategy {
    let has = |word: &str| field.patch_strategy.is_some_and(|s| s.split(',').any(|w| w == word));
    PatchStrategy {
        merge: has("merge"),
        retain_keys: has("retainKeys"),
        replace: has("replace"),
        merge_key: field.patch_merge_key.map(Arc::from),
    }
}

fn reference(json: &Value) -> Option<&str> {
    json["$ref"].as_str()?.strip_prefix("#/definitions/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(schema: &Schema, path: &str) -> Arc<Schema> {
        path.split('.').fold(Arc::new(Schema { shape: Shape::Any, ..Schema::default() }), |at, name| {
            let from = if at.name.is_none() && matches!(at.shape, Shape::Any) { schema } else { &at };
            match &from.shape {
                Shape::Object(object) => object.properties[name].get(),
                Shape::Array { items, .. } => match &items.get().shape {
                    Shape::Object(object) => object.properties[name].get(),
                    other => panic!("{name} of {other:?}"),
                },
                other => panic!("{name} of {other:?}"),
            }
        })
    }

    #[test]
    fn every_kind_of_the_registry_has_a_schema() {
        for resource in &crate::registry::Registry::new().table().resources {
            assert!(of_kind(&resource.group, &resource.version, &resource.kind).is_some(), "{}", resource.plural);
            for sub in resource.subresources.iter().filter(|s| !s.kind.ends_with("Options")) {
                assert!(of_kind(&sub.group, &sub.version, &sub.kind).is_some(), "{}/{}", resource.plural, sub.name);
            }
        }
    }

    #[test]
    fn list_types_and_patch_strategies_are_there() {
        let pod = of_kind("", "v1", "Pod").expect("Pod");
        let containers = field(&pod, "spec.containers");
        let Shape::Array { list_type, patch, .. } = &containers.shape else { panic!("{containers:?}") };
        assert_eq!(list_type, &ListType::Map(vec!["name".into()]));
        assert_eq!((patch.merge, patch.merge_key.as_deref()), (true, Some("name")));
        assert!(matches!(&field(&pod, "spec.nodeSelector").shape, Shape::Object(o) if o.atomic));
        let deployment = of_kind("apps", "v1", "Deployment").expect("Deployment");
        assert!(matches!(&field(&deployment, "spec.strategy").shape, Shape::Object(o) if o.patch.retain_keys));
        let protocol = field(&pod, "spec.containers.ports.protocol");
        assert_eq!(protocol.default, Some("TCP".into()));
    }

    #[test]
    fn a_claim_of_a_volume_is_granular_though_references_are_atomic() {
        let volume = of_kind("", "v1", "PersistentVolume").expect("PersistentVolume");
        assert!(matches!(&field(&volume, "spec.claimRef").shape, Shape::Object(o) if !o.atomic));
        let event = of_kind("", "v1", "Event").expect("Event");
        assert!(matches!(&field(&event, "involvedObject").shape, Shape::Object(o) if o.atomic));
    }

    #[test]
    fn definitions_may_recur() {
        let crd = of_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").expect("CustomResourceDefinition");
        let not = field(&crd, "spec.versions.schema.openAPIV3Schema.not.not");
        assert_eq!(not.name.as_deref(), Some("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"));
    }
}
