//! Reading a built-in kind as a typed server does it: every value is checked against its schema while it is read, `null`
//! is absence, zero values that a typed server would not write are left out, and quantities, times and bytes take their
//! canonical form. The first wrong type is the error; reading goes on behind it, to note the strict mistakes as well.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use base64::Engine;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::schema::quantity::Quantity;
use crate::schema::{ObjectShape, Schema, SchemaRef, Shape, is_zero, overlay, time};

/// Reads a value of a schema. Strict mistakes are added to `noted`; the other result is the first wrong type.
pub(super) fn read<'de, D: Deserializer<'de>>(
    from: D,
    schema: &Schema,
    noted: &mut Vec<String>,
) -> Result<(Value, Option<String>), D::Error> {
    let mut walk = Walk { noted, ..Walk::new(&mut Vec::new()) };
    let value = Node { schema, field: None, layers: 0, walk: &mut walk }.deserialize(from)?;
    Ok((value.unwrap_or_else(|| Value::Object(Map::new())), walk.error))
}

/// Where the reading is, and what has been found on the way.
struct Walk<'w> {
    noted: &'w mut Vec<String>,
    error: Option<String>,
    /// The way from the root, as strict mistakes tell it.
    path: String,
    /// The fields on the way, as wrong types tell it: without list indexes and map keys.
    fields: String,
    /// The definition whose field is being read.
    owner: Option<Arc<str>>,
}

impl<'w> Walk<'w> {
    fn new(noted: &'w mut Vec<String>) -> Self {
        Walk { noted, error: None, path: String::new(), fields: String::new(), owner: None }
    }

    fn fail(&mut self, sentence: String) {
        self.error.get_or_insert(sentence);
    }

    /// Enters a map key or struct field of the path; gives what [`Walk::leave`] needs.
    fn enter(&mut self, key: &str) -> usize {
        let before = self.path.len();
        if before > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        before
    }

    fn leave(&mut self, before: usize) {
        self.path.truncate(before);
    }

    /// Both ways of naming a field of the object that is being read.
    fn note(&mut self, what: &str, key: &str) {
        let before = self.enter(key);
        let sentence = format!("{what} field {:?}", self.path);
        self.leave(before);
        self.noted.push(sentence);
    }
}

/// A schema that is held for as long as its value is read.
enum Held<'s> {
    Borrowed(&'s Schema),
    Shared(Arc<Schema>),
}

impl<'s> From<&'s SchemaRef> for Held<'s> {
    fn from(reference: &'s SchemaRef) -> Self {
        match reference {
            SchemaRef::Inline(schema) => Held::Borrowed(schema),
            SchemaRef::Named(_) => Held::Shared(reference.get()),
        }
    }
}

impl Deref for Held<'_> {
    type Target = Schema;

    fn deref(&self) -> &Schema {
        match self {
            Held::Borrowed(schema) => schema,
            Held::Shared(schema) => schema,
        }
    }
}

/// One value to be read. `None` stands for `null`, or for a value of the wrong type.
struct Node<'s, 'n, 'w> {
    schema: &'s Schema,
    /// The field of the walk's owner that the value is in, and how many lists and maps lie between.
    field: Option<&'n str>,
    layers: usize,
    walk: &'n mut Walk<'w>,
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_, '_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        match self.schema.name.as_deref().and_then(|name| name.rsplit('.').next()) {
            Some("JSONSchemaPropsOrBool") => match Value::deserialize(from)? {
                Value::Null => Ok(None),
                value @ (Value::Bool(_) | Value::Object(_)) => Ok(Some(value)),
                _ => {
                    self.walk.fail("boolean or JSON schema expected".to_owned());
                    Ok(None)
                }
            },
            // What is neither one schema nor several is none.
            Some("JSONSchemaPropsOrArray") => Ok(Some(Value::deserialize(from)?).filter(|v| v.is_object() || v.is_array())),
            _ => from.deserialize_any(self),
        }
    }
}

impl Node<'_, '_, '_> {
    /// Notes that the value is of the wrong type. `what` is JSON's word for it, a number with its digits.
    fn mismatch<E>(self, what: &str) -> Result<Option<Value>, E> {
        // A quantity is whatever is written there, read as text.
        if matches!(&self.schema.shape, Shape::String { format: Some(format) } if **format == *"quantity") {
            return self.quantity(what);
        }
        if self.walk.error.is_none() {
            let into = match (&self.walk.owner, self.field) {
                (Some(owner), Some(field)) => {
                    let name = owner.rsplit('.').next().unwrap_or_default();
                    let go = go_type_of_field(owner, field, self.layers).unwrap_or_else(|| go_type(self.schema));
                    // These read themselves, and tell what they wanted to read.
                    let go = match &self.schema.shape {
                        Shape::IntOrString => "int32".to_owned(),
                        Shape::String { format: Some(format) } if **format == *"date-time" => "string".to_owned(),
                        _ => go,
                    };
                    format!("Go struct field {name}.{} of type {go}", self.walk.fields)
                }
                _ => format!("Go value of type {}", go_type(self.schema)),
            };
            self.walk.fail(format!("json: cannot unmarshal {what} into {into}"));
        }
        Ok(None)
    }

    fn whole<E>(self, number: Number) -> Result<Option<Value>, E> {
        let in_range = match &self.schema.shape {
            Shape::Integer { format } if format.as_deref() == Some("int32") => number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
            Shape::Integer { .. } => number.is_i64(),
            Shape::IntOrString => number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
            Shape::Number | Shape::Any => true,
            Shape::String { format: Some(format) } if **format == *"quantity" => return self.quantity(&number.to_string()),
            _ => return self.mismatch("number"),
        };
        if in_range { Ok(Some(Value::Number(number))) } else { self.mismatch(&format!("number {number}")) }
    }

    fn quantity<E>(self, text: &str) -> Result<Option<Value>, E> {
        match Quantity::parse(text.trim()) {
            Ok(quantity) => Ok(Some(quantity.to_string().into())),
            Err(error) => {
                self.walk.fail(error.to_string());
                Ok(None)
            }
        }
    }

    fn text<E>(self, text: &str) -> Result<Option<Value>, E> {
        let format = match &self.schema.shape {
            Shape::String { format } => format.as_deref(),
            Shape::Any | Shape::IntOrString => None,
            _ => return self.mismatch("string"),
        };
        let read = match format {
            Some("quantity") => return self.quantity(text),
            Some("byte") => bytes(text),
            Some("date-time") if self.schema.name.as_deref().is_some_and(|n| n.ends_with(".MicroTime")) => time::normalize_micro(text),
            Some("date-time") => time::normalize(text),
            _ => Ok(text.to_owned()),
        };
        match read {
            Ok(text) => Ok(Some(Value::String(text))),
            Err(error) => {
                self.walk.fail(error);
                Ok(None)
            }
        }
    }

    /// The fields of a struct: those that it has, each by its schema.
    fn fields<'de, A: MapAccess<'de>>(self, object: &ObjectShape, mut map: A) -> Result<Option<Value>, A::Error> {
        let walk = self.walk;
        let owner = std::mem::replace(&mut walk.owner, self.schema.name.clone());
        let mut out = Map::new();
        // Fields that were there and left no value behind; a second one of them is a duplicate all the same.
        let mut left_out: Vec<String> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let Some(reference) = object.properties.get(key.as_str()) else {
                map.next_value::<IgnoredAny>()?;
                walk.note("unknown", &key);
                continue;
            };
            if out.contains_key(&key) || left_out.contains(&key) {
                walk.note("duplicate", &key);
            }
            let (path, fields) = (walk.enter(&key), walk.fields.len());
            if fields > 0 {
                walk.fields.push('.');
            }
            if let Some(part) = walk.owner.as_deref().and_then(|owner| embedded(owner, &key)) {
                walk.fields.push_str(part);
                walk.fields.push('.');
            }
            walk.fields.push_str(&key);
            let schema = Held::from(reference);
            let value = map.next_value_seed(Node { schema: &schema, field: Some(&key), layers: 0, walk })?;
            walk.fields.truncate(fields);
            walk.leave(path);
            let omitted = |value: &Value| {
                is_zero(value) && object.omit_empty.binary_search_by(|f| (**f).cmp(key.as_str())).is_ok()
                    || is_none(value, &schema)
                        && object.defaults.get(key.as_str()) == Some(&Value::Null)
                        && !is_kept_as_json(walk.owner.as_deref())
            };
            match value {
                Some(value) if !omitted(&value) => {
                    out.insert(key, value);
                }
                // What is empty now was perhaps not the first time.
                Some(_) => {
                    out.remove(&key);
                    left_out.push(key);
                }
                None => left_out.push(key),
            }
        }
        walk.owner = owner;
        Ok(Some(Value::Object(out)))
    }

    /// The entries of a map, all of one schema.
    fn entries<'de, A: MapAccess<'de>>(self, of: &SchemaRef, mut map: A) -> Result<Option<Value>, A::Error> {
        let schema = Held::from(of);
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if out.contains_key(&key) {
                self.walk.note("duplicate", &key);
            }
            let path = self.walk.enter(&key);
            let node = Node { schema: &schema, field: self.field, layers: self.layers + 1, walk: self.walk };
            let value = map.next_value_seed(node)?.unwrap_or_else(|| zero(&schema));
            self.walk.leave(path);
            out.insert(key, value);
        }
        Ok(Some(Value::Object(out)))
    }
}

impl<'de> Visitor<'de> for Node<'_, '_, '_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, yes: bool) -> Result<Self::Value, E> {
        match &self.schema.shape {
            Shape::Boolean | Shape::Any => Ok(Some(yes.into())),
            _ => self.mismatch("bool"),
        }
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        self.whole(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        self.whole(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        let number = Number::from_f64(number).unwrap_or_else(|| 0.into());
        match &self.schema.shape {
            Shape::Number | Shape::Any => Ok(Some(Value::Number(number))),
            Shape::Integer { .. } | Shape::IntOrString => self.mismatch(&format!("number {number}")),
            Shape::String { format: Some(format) } if **format == *"quantity" => self.quantity(&number.to_string()),
            _ => self.mismatch("number"),
        }
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        self.text(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let items = match &self.schema.shape {
            Shape::Array { items, .. } => items,
            Shape::Any => {
                let mut all = Vec::new();
                while let Some(item) = seq.next_element::<Value>()? {
                    all.push(item);
                }
                return Ok(Some(Value::Array(all)));
            }
            _ => {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                return self.mismatch("array");
            }
        };
        let schema = Held::from(items);
        let mut all = Vec::new();
        loop {
            let path = self.walk.path.len();
            self.walk.path.push_str(&format!("[{}]", all.len()));
            let node = Node { schema: &schema, field: self.field, layers: self.layers + 1, walk: self.walk };
            let item = seq.next_element_seed(node)?;
            self.walk.path.truncate(path);
            match item {
                Some(item) => all.push(item.unwrap_or_else(|| zero(&schema))),
                None => return Ok(Some(Value::Array(all))),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        match &self.schema.shape {
            Shape::Object(object) => match &object.additional {
                Some(additional) if object.properties.is_empty() => self.entries(additional, map),
                _ => self.fields(object, map),
            },
            Shape::Any => {
                let mut all = Map::new();
                while let Some((key, value)) = map.next_entry::<String, Value>()? {
                    all.insert(key, value);
                }
                Ok(Some(Value::Object(all)))
            }
            _ => {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                self.mismatch("object")
            }
        }
    }
}

/// A list or map of nothing: what is kept as protobuf cannot tell it from none, and shows `null` for both.
fn is_none(value: &Value, schema: &Schema) -> bool {
    match &schema.shape {
        Shape::Array { .. } => value.as_array().is_some_and(Vec::is_empty),
        Shape::Object(object) if object.additional.is_some() => value.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Definitions and extension servers are the built-in kinds that a real server keeps as JSON.
fn is_kept_as_json(owner: Option<&str>) -> bool {
    owner.is_some_and(|owner| owner.starts_with("io.k8s.apiextensions-apiserver.") || owner.starts_with("io.k8s.kube-aggregator."))
}

/// What `null` leaves behind where it cannot be absence: in a list or as a map's value.
fn zero(schema: &Schema) -> Value {
    match &schema.shape {
        Shape::String { format: Some(format) } if **format == *"quantity" => "0".into(),
        Shape::String { format: Some(format) } if **format == *"date-time" => Value::Null,
        Shape::String { .. } => "".into(),
        Shape::Integer { .. } | Shape::IntOrString | Shape::Number => 0.into(),
        Shape::Boolean => false.into(),
        Shape::Object(object) if object.additional.is_none() => Value::Object(Map::new()),
        Shape::Object(_) | Shape::Array { .. } | Shape::Any => Value::Null,
    }
}

/// Base64 as it is written again; line breaks in it are not kept.
fn bytes(text: &str) -> Result<String, String> {
    let engine = base64::engine::general_purpose::STANDARD;
    let joined;
    let text = if text.contains(['\r', '\n']) {
        joined = text.replace(['\r', '\n'], "");
        &joined
    } else {
        text
    };
    match engine.decode(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => {
            Err(format!("illegal base64 data at input byte {at}"))
        }
        Err(_) => Err(format!("illegal base64 data at input byte {}", text.len() / 4 * 4)),
    }
}

/// The struct inside of a definition's own that a field is in, which wrong types name on their way.
fn embedded(owner: &str, field: &str) -> Option<&'static str> {
    let part = match owner.rsplit('.').next().unwrap_or_default() {
        "Volume" if field != "name" => "VolumeSource",
        "PersistentVolumeSpec" => match field {
            "accessModes" | "capacity" | "claimRef" | "mountOptions" | "nodeAffinity" | "persistentVolumeReclaimPolicy" => return None,
            "storageClassName" | "volumeAttributesClassName" | "volumeMode" => return None,
            _ => "PersistentVolumeSource",
        },
        "ConfigMapEnvSource" | "ConfigMapKeySelector" | "ConfigMapProjection" | "ConfigMapVolumeSource" if field == "name" => {
            "LocalObjectReference"
        }
        "SecretEnvSource" | "SecretKeySelector" | "SecretProjection" if field == "name" => "LocalObjectReference",
        "Probe" if matches!(field, "exec" | "grpc" | "httpGet" | "tcpSocket") => "ProbeHandler",
        "EphemeralContainer" if field != "targetContainerName" => "EphemeralContainerCommon",
        "IngressRule" if field == "http" => "IngressRuleValue",
        "RuleWithOperations" if field != "operations" => "Rule",
        "NamedRuleWithOperations" => match field {
            "resourceNames" => return None,
            "operations" => "RuleWithOperations",
            _ => "RuleWithOperations.Rule",
        },
        "DeviceClaimConfiguration" | "DeviceClassConfiguration" | "DeviceAllocationConfiguration" if field == "opaque" => {
            "DeviceConfiguration"
        }
        _ => return None,
    };
    Some(part)
}

/// The type of a field, or of what is in its lists and maps, where the table has a name for it.
fn go_type_of_field(owner: &str, field: &str, layers: usize) -> Option<String> {
    let whole = overlay::go_type(owner, field)?;
    (0..layers)
        .try_fold(whole, |name, _| name.strip_prefix("[]").or_else(|| name.strip_prefix("map[")?.split_once(']').map(|(_, value)| value)))
        .map(str::to_owned)
}

/// The name of a schema's type, as messages have it.
fn go_type(schema: &Schema) -> String {
    if let Some(name) = &schema.name {
        let mut words = name.rsplit('.');
        if let (Some(kind), Some(package)) = (words.next(), words.next()) {
            return format!("{package}.{kind}");
        }
    }
    let part = |reference: &SchemaRef| go_type(&Held::from(reference));
    match &schema.shape {
        Shape::String { format: Some(format) } if **format == *"byte" => "[]uint8".to_owned(),
        Shape::String { .. } => "string".to_owned(),
        Shape::Integer { format } => format.as_deref().unwrap_or("int64").to_owned(),
        Shape::Number => "float64".to_owned(),
        Shape::Boolean => "bool".to_owned(),
        Shape::Array { items, .. } => format!("[]{}", part(items)),
        Shape::Object(object) => object.additional.as_ref().map_or_else(|| "struct {}".to_owned(), |a| format!("map[string]{}", part(a))),
        Shape::IntOrString => "intstr.IntOrString".to_owned(),
        Shape::Any => "interface {}".to_owned(),
    }
}
