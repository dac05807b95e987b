//! Kubernetes' expression language: parsed, checked, bounded in cost, and evaluated on JSON in place.
//!
//! An [`Environment`] says what expressions can refer to and compiles them; a [`Program`] is evaluated with an
//! [`Activation`] (the values of the variables) and a [`Budget`] (what it may cost). The functions, types, error
//! texts, limits and costs are those of Kubernetes 1.37. The crate knows nothing of servers.
//!
//! ```
//! use serde_json::json;
//! use usher_cel::{Activation, Budget, Environment, Type};
//!
//! let program = Environment::kubernetes()
//!     .variable("object", Type::Dyn)
//!     .compile("object.metadata.labels.exists(k, k == 'team')")?;
//! let object = json!({"metadata": {"labels": {"team": "billing"}}});
//! let activation = Activation::new().bind("object", &object);
//! assert_eq!(program.evaluate(&activation, &mut Budget::default())?.value.as_bool(), Some(true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod activation;
mod aggregates;
mod ast;
mod attribute;
mod check;
mod conjuncts;
mod convert;
mod cost;
mod declarations;
mod environment;
mod error;
mod eval;
mod explain;
mod fold;
pub mod golden;
mod json;
mod lexer;
mod library;
mod literal;
mod macros;
mod meter;
mod operations;
mod parser;
mod plan;
mod program;
mod reads;
mod schema;
mod source;
mod time;
mod types;
mod unify;
mod validate;
mod value;

pub use activation::Activation;
pub use conjuncts::{Conjunct, conjuncts};
pub use cost::{CostEstimate, STATIC_ESTIMATED_COST_LIMIT, STATIC_ESTIMATED_CRD_COST_LIMIT};
pub use environment::Environment;
pub use error::{CompileError, EvalError};
pub use explain::{Explanation, Step};
pub use json::JsonError;
pub use library::Opaque;
pub use library::authorizer::{Authorization, Authorizer, CheckAttributes, Decision};
pub use library::cidr::Cidr;
pub use library::format::NamedFormat;
pub use library::ip::Ip;
pub use library::quantity::Quantity;
pub use library::semver::Semver;
pub use library::urls::Url;
pub use meter::{Budget, MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, RUNTIME_BUDGET};
pub use parser::{MAX_EXPRESSION_CODE_POINTS, MAX_RECURSION_DEPTH};
pub use program::{Evaluation, Program};
pub use reads::Reads;
pub use schema::{MAX_REQUEST_SIZE_BYTES, Schema, escape as escape_property, is_reserved};
pub use source::{Issue, Issues, Location};
pub use time::Timestamp;
pub use types::{Type, TypeVariable};
pub use value::{Concat, Entries, Held, List, ListIter, Map, Struct, Text, Value};
