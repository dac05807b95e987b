//! A value and its schema walked together: what structured merge does with a value depends on whether its schema says
//! scalar, atomic, map, set or list by keys. Here is how a schema is read for that; the walks are
//! [`validate`], [`fields`], [`compare`], [`merge`] and [`remove`].

pub mod compare;
pub mod fields;
pub mod merge;
pub mod remove;
pub mod validate;

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use super::element::PathElement;
use crate::schema::{ListType, ObjectShape, Schema, SchemaRef, Shape};

/// The schema at a place, with references followed.
#[derive(Clone, Debug)]
pub enum Type<'s> {
    /// Nothing is known: the value says what it is.
    Any,
    /// The schema of a whole object.
    Root(&'s Schema),
    /// A schema inside of another.
    Inner(&'s Schema),
    /// A definition that was looked up.
    Shared(Arc<Schema>),
}

/// A field's schema, and whether the field is declared by name rather than being a key of a map.
pub struct Field<'t> {
    /// The schema.
    pub of: Type<'t>,
    /// Declared by name.
    pub named: bool,
}

/// How structured merge treats a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atom<'t> {
    /// A scalar.
    Scalar,
    /// An object or list that is one value.
    Atomic,
    /// An object whose fields are values of their own.
    Map,
    /// A list of unique scalars.
    Set,
    /// A list of objects, told apart by these keys.
    Keyed(&'t [Arc<str>]),
}

static STRING: LazyLock<Schema> = LazyLock::new(|| Schema { shape: Shape::String { format: None }, ..Schema::default() });
static ZERO: LazyLock<Value> = LazyLock::new(|| Value::from(0));
static EMPTY_STRING: Value = Value::String(String::new());
static EMPTY_OBJECT: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl<'s> Type<'s> {
    /// The type of a whole object.
    pub fn root(schema: &'s Schema) -> Self {
        Type::Root(schema)
    }

    /// The type that a reference names.
    pub fn follow(reference: &'s SchemaRef) -> Self {
        match reference {
            SchemaRef::Inline(schema) => Type::Inner(schema),
            SchemaRef::Named(name) => crate::schema::builtin::of_definition(name).map_or(Type::Any, Type::Shared),
        }
    }

    /// The schema, where one is known.
    pub fn schema(&self) -> Option<&Schema> {
        match self {
            Type::Any => None,
            Type::Root(schema) | Type::Inner(schema) => Some(schema),
            Type::Shared(schema) => Some(schema),
        }
    }

    fn object(&self) -> Option<&ObjectShape> {
        match self.schema().map(|schema| &schema.shape) {
            Some(Shape::Object(shape)) => Some(shape),
            _ => None,
        }
    }

    /// The type of a field that is declared by name.
    pub fn named_field(&self, name: &str) -> Option<Type<'_>> {
        let shape = self.object()?;
        if let Some(field) = shape.properties.get(name) {
            return Some(Type::follow(field));
        }
        // A custom resource need not declare what every object has.
        if matches!(self, Type::Root(_)) || shape.embedded {
            return match name {
                "apiVersion" | "kind" => Some(Type::Inner(&STRING)),
                "metadata" => Some(crate::schema::builtin::of_definition(OBJECT_META).map_or(Type::Any, Type::Shared)),
                _ => None,
            };
        }
        None
    }

    /// The type of a field or of a map's value; `None` if the schema does not allow it.
    pub fn field(&self, name: &str) -> Option<Field<'_>> {
        let Some(shape) = self.object() else { return Some(Field { of: Type::Any, named: false }) };
        if let Some(of) = self.named_field(name) {
            return Some(Field { of, named: true });
        }
        match &shape.additional {
            Some(values) => Some(Field { of: Type::follow(values), named: false }),
            None if shape.preserve_unknown || shape.properties.is_empty() => Some(Field { of: Type::Any, named: false }),
            None => None,
        }
    }

    /// The type of a list's items.
    pub fn items(&self) -> Type<'_> {
        match self.schema().map(|schema| &schema.shape) {
            Some(Shape::Array { items, .. }) => Type::follow(items),
            _ => Type::Any,
        }
    }

    /// Whether the schema says that the value is one.
    pub fn is_atomic(&self) -> bool {
        match self.schema().map(|schema| &schema.shape) {
            Some(Shape::Object(shape)) => shape.atomic,
            Some(Shape::Array { list_type, .. }) => *list_type == ListType::Atomic,
            _ => false,
        }
    }

    /// How `value` is treated.
    pub fn atom(&self, value: &Value) -> Atom<'_> {
        // What belongs to somebody else's type is never looked into.
        if self.schema().and_then(|schema| schema.name.as_deref()).is_some_and(|name| name.ends_with(".RawExtension")) {
            return Atom::Atomic;
        }
        match self.schema().map(|schema| &schema.shape) {
            None | Some(Shape::Any) => match value {
                Value::Object(_) | Value::Null => Atom::Map,
                Value::Array(_) => Atom::Atomic,
                _ => Atom::Scalar,
            },
            Some(Shape::Object(shape)) if shape.atomic => Atom::Atomic,
            Some(Shape::Object(_)) => Atom::Map,
            Some(Shape::Array { list_type, .. }) => match list_type {
                ListType::Atomic => Atom::Atomic,
                ListType::Set => Atom::Set,
                ListType::Map(keys) => Atom::Keyed(keys),
            },
            Some(_) => Atom::Scalar,
        }
    }

    /// What a real server has for a field that is absent, because it holds it as a plain value and not as a pointer: an empty
    /// struct, an empty string, zero, or a null list.
    pub fn zero(&self, name: &str) -> Option<&'static Value> {
        let shape = self.object()?;
        if shape.plain.binary_search_by(|plain| (**plain).cmp(name)).is_err() {
            return None;
        }
        match shape.defaults.get(name)? {
            Value::Null => Some(&Value::Null),
            Value::Bool(false) => Some(&Value::Bool(false)),
            Value::Number(number) if number.as_f64() == Some(0.0) => Some(&ZERO),
            Value::String(text) if text.is_empty() => Some(&EMPTY_STRING),
            Value::Object(fields) if fields.is_empty() => Some(&EMPTY_OBJECT),
            _ => None,
        }
    }

    /// The step to an item of this list, or why it has none.
    pub fn item_element(&self, atom: Atom<'_>, item: &Value) -> Result<PathElement, String> {
        match atom {
            Atom::Keyed(keys) => self.keyed_element(keys, item),
            Atom::Set => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
                scalar => Ok(PathElement::Value(scalar.clone())),
            },
            _ => Err("invalid indexing of non-associative list".into()),
        }
    }

    fn keyed_element(&self, keys: &[Arc<str>], item: &Value) -> Result<PathElement, String> {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".into()),
            _ => return Err("associative list with keys may not have non-map elements".into()),
        };
        let mut found: Vec<(Box<str>, Value)> = Vec::with_capacity(keys.len());
        for key in keys {
            match fields.get(&**key) {
                Some(value) => found.push(((**key).into(), value.clone())),
                None => {
                    let items = self.items();
                    let field = items.named_field(key);
                    if let Some(default) = field.as_ref().and_then(Type::schema).and_then(|schema| schema.default.clone()) {
                        found.push(((**key).into(), default));
                    }
                }
            }
        }
        if found.is_empty() && !keys.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            let keys = keys.join(" ");
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{keys}] (and doesn't have default values for any key fields)"
            ));
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(PathElement::Key(found.into()))
    }
}

/// The fields of an object; none for anything else.
pub(super) fn fields_of(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|fields| !fields.is_empty())
}

/// The items of a list; none for anything else.
pub(super) fn items_of(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).map(Vec::as_slice).filter(|items| !items.is_empty())
}
