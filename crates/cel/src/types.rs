//! The types of the language, and the two ways in which they are written: as `type()` names them and as the
//! checker's messages name them. What may be assigned to what is in [`crate::unify`].

use std::fmt;
use std::sync::Arc;

/// A type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// Anything; decided when the expression is evaluated.
    Dyn,
    /// What an expression with an error in it has.
    Error,
    /// `null`
    Null,
    /// `bool`
    Bool,
    /// `int`, 64 bits
    Int,
    /// `uint`, 64 bits
    Uint,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// `google.protobuf.Duration`
    Duration,
    /// `google.protobuf.Timestamp`
    Timestamp,
    /// `list(T)`
    List(Arc<Type>),
    /// `map(K, V)`
    Map(Arc<(Type, Type)>),
    /// A named type with fields, or one of Kubernetes' own such as `kubernetes.Quantity`.
    Object(Arc<str>),
    /// A named type without fields but possibly with parameters, such as `optional_type(T)` or `net.IP`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// A type yet to be found out.
    Variable(TypeVariable),
}

/// A placeholder for a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TypeVariable {
    /// In a declaration: `A`, `B`, …
    Declared(char),
    /// In an expression being checked.
    Fresh(u32),
}

pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    /// `list(element)`
    pub fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    /// `map(key, value)`
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// `optional_type(inner)`
    pub fn optional(inner: Type) -> Type {
        Type::Opaque(OPTIONAL.into(), [inner].into())
    }

    /// A type with fields, declared to the environment under this name.
    pub fn object(name: &str) -> Type {
        Type::Object(name.into())
    }

    pub(crate) fn opaque(name: &str) -> Type {
        Type::Opaque(name.into(), [].into())
    }

    pub(crate) fn type_of(inner: Type) -> Type {
        Type::Type(Some(Arc::new(inner)))
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// The type inside an optional, if this is one.
    pub(crate) fn unwrap_optional(&self) -> Option<&Type> {
        match self {
            Type::Opaque(name, parameters) if &**name == OPTIONAL => parameters.first(),
            _ => None,
        }
    }

    /// The name of the type without its parameters.
    pub fn name(&self) -> &str {
        match self {
            Type::Dyn => "dyn",
            Type::Error => "*error*",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Object(name) | Type::Opaque(name, _) => name,
            Type::Type(_) => "type",
            Type::Variable(_) => "*typeparam*",
        }
    }

    /// The name as the checker's messages have it.
    pub(crate) fn in_messages(&self) -> InMessages<'_> {
        InMessages(self)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::List(element) => write!(f, "list({element})"),
            Type::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Type::Type(Some(inner)) => write!(f, "type({inner})"),
            Type::Opaque(name, parameters) if !parameters.is_empty() => {
                write!(f, "{name}(")?;
                for (i, parameter) in parameters.iter().enumerate() {
                    write!(f, "{}{parameter}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
            Type::Variable(TypeVariable::Declared(name)) => write!(f, "{name}"),
            Type::Variable(TypeVariable::Fresh(number)) => write!(f, "_var{number}"),
            _ => f.write_str(self.name()),
        }
    }
}

/// A type as the checker's messages write it.
pub(crate) struct InMessages<'t>(&'t Type);

impl fmt::Display for InMessages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Type::Duration => f.write_str("duration"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Null => f.write_str("null"),
            Type::Error => f.write_str("!error!"),
            Type::List(element) => write!(f, "list({})", InMessages(element)),
            Type::Map(entry) => {
                write!(f, "map({}, {})", InMessages(&entry.0), InMessages(&entry.1))
            }
            Type::Type(Some(inner)) => write!(f, "type({})", InMessages(inner)),
            Type::Opaque(name, parameters) if !parameters.is_empty() => {
                write!(f, "{name}(")?;
                for (i, parameter) in parameters.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { ", " } else { "" }, InMessages(parameter))?;
                }
                f.write_str(")")
            }
            other => other.fmt(f),
        }
    }
}

/// `target.(a, b)` or `(a, b)`, as the checker's messages write the arguments of a call.
pub(crate) fn signature(member: bool, arguments: &[Type]) -> String {
    let (target, rest) = match arguments.split_first() {
        Some((first, rest)) if member => (format!("{}.", first.in_messages()), rest),
        _ => (String::new(), arguments),
    };
    let rest: Vec<_> = rest.iter().map(|t| t.in_messages().to_string()).collect();
    format!("{target}({})", rest.join(", "))
}

/// The types that can be written as names in an expression.
pub(crate) fn named_type(name: &str) -> Option<Type> {
    let anything = || Type::Dyn;
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "string" => Type::String,
        "null_type" => Type::Null,
        "type" => Type::Type(None),
        "list" => Type::list(anything()),
        "map" => Type::map(anything(), anything()),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "optional_type" => Type::optional(anything()),
        "net.IP" => Type::opaque("net.IP"),
        "net.CIDR" => Type::opaque("net.CIDR"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_written_in_two_ways() {
        let t = Type::map(Type::String, Type::optional(Type::Timestamp));
        assert_eq!(t.to_string(), "map(string, optional_type(google.protobuf.Timestamp))");
        assert_eq!(t.in_messages().to_string(), "map(string, optional_type(timestamp))");
        assert_eq!(signature(true, &[Type::String, Type::Null]), "string.(null)");
        assert_eq!(signature(false, &[Type::list(Type::Int)]), "(list(int))");
    }
}
