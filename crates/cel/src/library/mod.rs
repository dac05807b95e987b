//! The function libraries of Kubernetes 1.37, one file each, and the values of the types that only they have.
//! The names are exactly Kubernetes'; nothing more is declared.

pub(crate) mod authorizer;
pub(crate) mod cidr;
pub(crate) mod format;
pub(crate) mod ip;
pub(crate) mod jsonpatch;
pub(crate) mod lists;
pub(crate) mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod sets;
pub(crate) mod standard;
pub(crate) mod string_format;
pub(crate) mod strings;
pub(crate) mod timestamps;
pub(crate) mod urls;

use std::sync::Arc;

use crate::declarations::Declaration;
use crate::types::Type;

/// The declarations of all libraries, in the order in which Kubernetes adds them.
pub(crate) const TABLES: &[&[Declaration]] = &[
    urls::DECLARATIONS,
    regex::DECLARATIONS,
    authorizer::DECLARATIONS,
    optional::DECLARATIONS,
    quantity::DECLARATIONS,
    strings::DECLARATIONS,
    sets::DECLARATIONS,
    ip::DECLARATIONS,
    cidr::DECLARATIONS,
    format::DECLARATIONS,
    semver::DECLARATIONS,
    lists::DECLARATIONS,
    jsonpatch::DECLARATIONS,
];

/// A value of one of Kubernetes' own types.
#[derive(Debug, Clone, PartialEq)]
pub enum Opaque<'a> {
    /// `kubernetes.Quantity`
    Quantity(Arc<quantity::Quantity>),
    /// `kubernetes.URL`
    Url(Arc<urls::Url>),
    /// `net.IP`
    Ip(ip::Ip),
    /// `net.CIDR`
    Cidr(cidr::Cidr),
    /// `kubernetes.NamedFormat`
    Format(&'static format::NamedFormat),
    /// `kubernetes.Semver`
    Semver(Arc<semver::Semver>),
    /// `kubernetes.authorization.Authorizer` and what is built from it
    Authorization(Arc<authorizer::Authorization<'a>>),
}

impl Opaque<'_> {
    /// The name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Opaque::Quantity(_) => "kubernetes.Quantity",
            Opaque::Url(_) => "kubernetes.URL",
            Opaque::Ip(_) => "net.IP",
            Opaque::Cidr(_) => "net.CIDR",
            Opaque::Format(_) => "kubernetes.NamedFormat",
            Opaque::Semver(_) => "kubernetes.Semver",
            Opaque::Authorization(a) => a.type_name(),
        }
    }

    pub(crate) fn type_of(&self) -> Type {
        match self {
            Opaque::Ip(_) | Opaque::Cidr(_) => Type::opaque(self.type_name()),
            _ => Type::object(self.type_name()),
        }
    }

    /// The text that `string()` gives, for the types that it takes.
    pub(crate) fn to_text(&self) -> Option<String> {
        match self {
            Opaque::Ip(_) | Opaque::Cidr(_) => Some(self.to_string()),
            _ => None,
        }
    }
}

impl std::fmt::Display for Opaque<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Opaque::Quantity(quantity) => quantity.fmt(f),
            Opaque::Url(url) => f.write_str(url.as_str()),
            Opaque::Ip(ip) => ip.fmt(f),
            Opaque::Cidr(cidr) => cidr.fmt(f),
            Opaque::Format(format) => f.write_str(format.name),
            Opaque::Semver(version) => version.fmt(f),
            Opaque::Authorization(a) => f.write_str(a.type_name()),
        }
    }
}
