//! Values: what an expression computes. JSON is not converted; a list or map of it is a reference into the
//! caller's document, together with the schema that says how its strings and numbers are to be read. Equality,
//! order and arithmetic are in [`crate::operations`].

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::library::Opaque;
use crate::schema::Schema;
use crate::time::Timestamp;
use crate::types::Type;

/// A value. Borrows from the documents bound to the activation and from the program.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `bool`
    Bool(bool),
    /// `int`
    Int(i64),
    /// `uint`
    Uint(u64),
    /// `double`
    Double(f64),
    /// `string`
    String(Text<'a>),
    /// `bytes`
    Bytes(Arc<[u8]>),
    /// `google.protobuf.Duration`, in nanoseconds
    Duration(i64),
    /// `google.protobuf.Timestamp`
    Timestamp(Timestamp),
    /// `list(T)`
    List(List<'a>),
    /// `map(K, V)`, or an object that comes from JSON
    Map(Map<'a>),
    /// A type
    Type(Arc<Type>),
    /// `optional_type(T)`
    Optional(Option<Arc<Value<'a>>>),
    /// A message such as `Object{…}` or `JSONPatch{…}`
    Struct(Arc<Struct<'a>>),
    /// A value of one of Kubernetes' own types, such as a quantity
    Opaque(Opaque<'a>),
}

/// Something that is borrowed if it can be: to count who shares it would cost more than most of what is done with it.
pub enum Held<'a, T: ?Sized> {
    /// From a document or a program.
    Borrowed(&'a T),
    /// Made by an expression.
    Shared(Arc<T>),
}

/// A string.
pub type Text<'a> = Held<'a, str>;

impl<T: ?Sized> Clone for Held<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            Held::Borrowed(held) => Held::Borrowed(held),
            Held::Shared(held) => Held::Shared(held.clone()),
        }
    }
}

impl<T: ?Sized> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            Held::Borrowed(held) => held,
            Held::Shared(held) => held,
        }
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Held<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A list.
#[derive(Debug, Clone)]
pub enum List<'a> {
    /// An array of a document.
    Json(&'a [Json], Option<&'a Schema>),
    /// Values made by an expression.
    Values(Held<'a, [Value<'a>]>),
    /// Two lists put together without copying them.
    Concat(Arc<Concat<'a>>),
}

/// Two lists, one after the other.
#[derive(Debug)]
pub struct Concat<'a> {
    first: List<'a>,
    second: List<'a>,
    len: usize,
}

/// Lists up to this long are copied when they are put together.
const COPIED: usize = 64;

impl<'a> List<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            List::Json(items, _) => items.len(),
            List::Values(items) => items.len(),
            List::Concat(both) => both.len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at a position.
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        let mut list = self;
        let mut index = index;
        loop {
            match list {
                List::Json(items, schema) => {
                    let element = schema.and_then(Schema::element);
                    return items.get(index).map(|item| Value::from_json(item, element));
                }
                List::Values(items) => return items.get(index).cloned(),
                List::Concat(both) if index < both.first.len() => list = &both.first,
                List::Concat(both) => {
                    index -= both.first.len();
                    list = &both.second;
                }
            }
        }
    }

    /// The elements in order.
    pub fn iter(&self) -> ListIter<'_, 'a> {
        ListIter { list: self, at: 0, pending: Vec::new() }
    }

    /// This list with another one after it. Takes no longer for long lists than for short ones.
    pub fn concat(&self, other: &List<'a>) -> List<'a> {
        if other.is_empty() {
            return self.clone();
        }
        if self.is_empty() {
            return other.clone();
        }
        let len = self.len().saturating_add(other.len());
        if len <= COPIED {
            return List::Values(Held::Shared(self.iter().chain(other.iter()).collect()));
        }
        List::Concat(Arc::new(Concat { first: self.clone(), second: other.clone(), len }))
    }
}

impl<'a> From<Vec<Value<'a>>> for List<'a> {
    fn from(values: Vec<Value<'a>>) -> Self {
        List::Values(Held::Shared(values.into()))
    }
}

/// Iterator over the elements of a [`List`].
pub struct ListIter<'l, 'a> {
    list: &'l List<'a>,
    at: usize,
    /// What comes after the list that is being walked through.
    pending: Vec<&'l List<'a>>,
}

impl<'a> Iterator for ListIter<'_, 'a> {
    type Item = Value<'a>;

    #[inline]
    fn next(&mut self) -> Option<Value<'a>> {
        loop {
            match self.list {
                List::Concat(both) => {
                    self.pending.push(&both.second);
                    self.list = &both.first;
                    continue;
                }
                List::Json(items, schema) => {
                    if let Some(item) = items.get(self.at) {
                        self.at += 1;
                        return Some(Value::from_json(item, schema.and_then(Schema::element)));
                    }
                }
                List::Values(items) => {
                    if let Some(item) = items.get(self.at) {
                        self.at += 1;
                        return Some(item.clone());
                    }
                }
            }
            self.list = self.pending.pop()?;
            self.at = 0;
        }
    }
}

/// A map, or an object that comes from JSON.
#[derive(Debug, Clone)]
pub enum Map<'a> {
    /// An object of a document.
    Json(&'a serde_json::Map<String, Json>, Option<&'a Schema>),
    /// Entries made by an expression.
    Entries(Held<'a, Entries<'a>>),
}

/// The entries of a map that an expression made, in the order in which they were made.
#[derive(Debug, Default)]
pub struct Entries<'a> {
    entries: Vec<(Value<'a>, Value<'a>)>,
    /// Where each key is, once there are more than a few.
    index: HashMap<Key, usize>,
}

/// Maps up to this size are searched from front to back.
const SEARCHED: usize = 8;

/// A key in a form in which equal numbers of different types are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(u64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

impl Key {
    /// Nothing for values that cannot be keys; they are equal to no key.
    fn of(value: &Value<'_>) -> Option<Key> {
        Some(match value {
            Value::Bool(b) => Key::Bool(*b),
            Value::Int(i) => Key::Int(*i),
            Value::Uint(u) => i64::try_from(*u).map_or(Key::Uint(*u), Key::Int),
            Value::Double(d) => {
                if d.fract() == 0.0 && *d >= -9.223_372_036_854_775e18 && *d <= 9.223_372_036_854_775e18 {
                    Key::Int(*d as i64)
                } else if d.fract() == 0.0 && *d >= 0.0 && *d < 1.844_674_407_370_955e19 {
                    Key::Uint(*d as u64)
                } else {
                    Key::Double(d.to_bits())
                }
            }
            Value::String(s) => Key::String((&**s).into()),
            Value::Bytes(b) => Key::Bytes(b.clone()),
            _ => return None,
        })
    }
}

fn same_key(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => **a == **b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::String(_), _) | (_, Value::String(_)) => false,
        _ => Key::of(a).is_some_and(|key| Key::of(b) == Some(key)),
    }
}

impl<'a> Entries<'a> {
    fn position(&self, key: &Value<'_>) -> Option<usize> {
        if self.index.is_empty() {
            return self.entries.iter().position(|(k, _)| same_key(k, key));
        }
        self.index.get(&Key::of(key)?).copied()
    }

    /// Sets a key; gives back the earlier value if there was one.
    pub fn insert(&mut self, key: Value<'a>, value: Value<'a>) -> Option<Value<'a>> {
        if let Some(at) = self.position(&key) {
            return Some(std::mem::replace(&mut self.entries[at].1, value));
        }
        self.entries.push((key, value));
        if self.index.is_empty() {
            self.reindex();
        } else if let Some(key) = self.entries.last().and_then(|(key, _)| Key::of(key)) {
            self.index.insert(key, self.entries.len() - 1);
        }
        None
    }

    fn reindex(&mut self) {
        self.index.clear();
        if self.entries.len() > SEARCHED {
            let keys = self.entries.iter().enumerate().filter_map(|(at, (key, _))| Some((Key::of(key)?, at)));
            self.index = keys.collect();
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &Value<'_>) {
        if let Some(at) = self.position(key) {
            self.entries.remove(at);
            self.reindex();
        }
    }

    /// Whether a key is there.
    pub fn contains(&self, key: &Value<'_>) -> bool {
        self.position(key).is_some()
    }
}

impl<'a> Map<'a> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        match self {
            Map::Json(object, _) => object.len(),
            Map::Entries(entries) => entries.entries.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key. Numbers of different types that are equal are the same key.
    pub fn get(&self, key: &Value<'_>) -> Option<Value<'a>> {
        match (self, key) {
            (Map::Json(..), Value::String(name)) => self.get_str(name),
            (Map::Json(..), _) => None,
            (Map::Entries(entries), _) => entries.position(key).map(|at| entries.entries[at].1.clone()),
        }
    }

    /// The value of a string key.
    pub fn get_str(&self, name: &str) -> Option<Value<'a>> {
        match self {
            Map::Json(object, None) => object.get(name).map(|value| Value::from_json(value, None)),
            Map::Json(object, Some(schema)) => {
                let (property, schema) = schema.property(name);
                object.get(property).map(|value| Value::from_json(value, schema))
            }
            Map::Entries(entries) => {
                if entries.index.is_empty() {
                    let found = entries.entries.iter().find(|(k, _)| matches!(k, Value::String(s) if **s == *name));
                    return found.map(|(_, v)| v.clone());
                }
                self.get(&Value::String(Text::Shared(name.into())))
            }
        }
    }

    /// The entries, in the order in which the map has them.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (Value<'a>, Value<'a>)> + '_> {
        match self {
            Map::Json(object, schema) => Box::new(object.iter().map(move |(key, value)| {
                let schema = schema.and_then(|s| s.property_by_json_name(key));
                (Value::String(Text::Borrowed(key)), Value::from_json(value, schema))
            })),
            Map::Entries(entries) => Box::new(entries.entries.iter().cloned()),
        }
    }

    /// The key at a position in that order.
    pub(crate) fn keys(&self) -> Box<dyn Iterator<Item = Value<'a>> + '_> {
        match self {
            Map::Json(object, _) => Box::new(object.keys().map(|key| Value::String(Text::Borrowed(key)))),
            Map::Entries(entries) => Box::new(entries.entries.iter().map(|(key, _)| key.clone())),
        }
    }
}

impl<'a> From<Entries<'a>> for Map<'a> {
    fn from(entries: Entries<'a>) -> Self {
        Map::Entries(Held::Shared(Arc::new(entries)))
    }
}

/// A message that an expression made.
#[derive(Debug)]
pub struct Struct<'a> {
    /// Its type, such as `Object.spec`.
    pub name: Arc<str>,
    /// Its fields, in the order in which they were written.
    pub fields: Vec<(Arc<str>, Value<'a>)>,
}

impl<'a> Struct<'a> {
    /// The value of a field that was set.
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.fields.iter().find(|(n, _)| **n == *name).map(|(_, v)| v)
    }
}

impl<'a> Value<'a> {
    /// A string made by the caller.
    pub fn string(text: impl Into<Arc<str>>) -> Value<'a> {
        Value::String(Text::Shared(text.into()))
    }

    /// A list made by the caller.
    pub fn list(values: Vec<Value<'a>>) -> Value<'a> {
        Value::List(values.into())
    }

    /// A string that borrows.
    pub(crate) fn borrowed(text: &'a str) -> Value<'a> {
        Value::String(Text::Borrowed(text))
    }

    /// The type of the value, as `type()` gives it.
    pub fn type_of(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::Duration(_) => Type::Duration,
            Value::Timestamp(_) => Type::Timestamp,
            Value::List(_) => Type::list(Type::Dyn),
            Value::Map(Map::Json(_, Some(schema))) => schema.value_type(),
            Value::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Value::Type(_) => Type::Type(None),
            Value::Optional(_) => Type::optional(Type::Dyn),
            Value::Struct(message) => Type::Object(message.name.clone()),
            Value::Opaque(value) => value.type_of(),
        }
    }

    /// Checks that the messages of a mutating policy stand where their names say: `Object.spec` in the field `spec` of
    /// `Object`. Gives Kubernetes' messages otherwise.
    pub fn check_object_names(&self) -> Result<(), String> {
        let Value::Struct(root) = self else {
            return Ok(());
        };
        let mut errors = Vec::new();
        check_names(self, &root.name, &mut errors, &mut 0);
        if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
    }

    /// The value as a `bool`, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The value as a string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }
}

/// The most values that are looked at; expressions can share what a walk has to repeat.
const MAX_CHECKED: usize = 1_000_000;

fn check_names(value: &Value<'_>, expected: &str, errors: &mut Vec<String>, checked: &mut usize) {
    *checked += 1;
    if *checked > MAX_CHECKED {
        return;
    }
    match value {
        Value::Struct(message) => {
            if *message.name != *expected {
                let name = &message.name;
                errors.push(format!(
                    "unexpected type name {name:?}, expected {expected:?}, which matches field name path from root Object type"
                ));
            }
            for (field, value) in &message.fields {
                check_names(value, &format!("{expected}.{field}"), errors, checked);
            }
        }
        Value::List(List::Values(items)) => items.iter().for_each(|v| check_names(v, expected, errors, checked)),
        Value::Map(Map::Entries(entries)) => entries.entries.iter().for_each(|(_, v)| check_names(v, expected, errors, checked)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_put_together_without_copying() {
        let mut list = List::from((0..100).map(Value::Int).collect::<Vec<_>>());
        for _ in 0..40 {
            list = list.concat(&list);
        }
        assert_eq!(list.len(), 100 << 40);
        assert!(matches!(list.get((100 << 40) - 1), Some(Value::Int(99))));
        assert_eq!(list.iter().take(250).count(), 250);
    }

    #[test]
    fn values_are_small_enough_to_pass_around() {
        assert!(size_of::<Value<'_>>() <= 32, "{}", size_of::<Value<'_>>());
        assert!(size_of::<Result<Value<'_>, crate::EvalError>>() <= 40);
    }

    #[test]
    fn equal_numbers_of_different_types_are_the_same_key() {
        let mut entries = Entries::default();
        for i in 0..20 {
            entries.insert(Value::Int(i), Value::Int(i * 2));
        }
        let map = Map::from(entries);
        assert!(matches!(map.get(&Value::Uint(7)), Some(Value::Int(14))));
        assert!(matches!(map.get(&Value::Double(7.0)), Some(Value::Int(14))));
        assert!(map.get(&Value::Double(7.5)).is_none());
        assert!(map.get(&Value::string("7")).is_none());
    }

    #[test]
    fn a_removed_key_is_gone_and_the_others_stay() {
        let mut entries = Entries::default();
        for i in 0..12 {
            entries.insert(Value::Int(i), Value::Null);
        }
        entries.remove(&Value::Int(3));
        assert!(!entries.contains(&Value::Int(3)));
        assert!(entries.contains(&Value::Int(11)));
        assert!(entries.insert(Value::Int(11), Value::Bool(true)).is_some());
    }
}
