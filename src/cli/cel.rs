//! `usher cel`: expressions outside a server.

mod repl;
mod session;

use std::io::{BufRead, Write};
use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};
use usher_cel::{Environment, STATIC_ESTIMATED_COST_LIMIT};

pub(super) const EXAMPLES: &str = "Examples:
  echo '{\"expr\": \"[1,2,3].sum() == 6\"}' | usher cel eval
  usher cel check --schema crd.yaml --expr 'self.spec.replicas <= self.spec.maxReplicas'
  usher cel repl --object deployment.yaml
  echo ':explain object.spec.replicas > 5' | usher cel repl --object deployment.yaml";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Cel {
    /// Evaluate expressions: JSON lines {\"expr\", \"types\", \"bindings\"} in, JSON lines with type, value, error and cost out
    Eval,
    /// Check an expression against the schema of a CustomResourceDefinition
    Check {
        /// The definition, YAML or JSON
        #[arg(long, value_name = "FILE")]
        schema: PathBuf,
        /// The version of the definition [default: the stored one]
        #[arg(long, value_name = "VERSION")]
        api_version: Option<String>,
        /// The expression; `self` and `oldSelf` are the object
        #[arg(long)]
        expr: String,
    },
    /// Try expressions on an object, with history and completion
    Repl {
        /// The object, YAML or JSON: the variable `object`, and with a schema also `self` and `oldSelf`
        #[arg(long, value_name = "FILE")]
        object: Option<PathBuf>,
        /// A CustomResourceDefinition: `self` is checked against its schema
        #[arg(long, value_name = "FILE")]
        schema: Option<PathBuf>,
        /// The version of the definition [default: the stored one]
        #[arg(long, value_name = "VERSION", requires = "schema")]
        api_version: Option<String>,
        /// Where to keep what was asked [default: usher/cel-history in the user's state directory]
        #[arg(long, value_name = "FILE")]
        history: Option<PathBuf>,
    },
}

impl Cel {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        match self {
            Cel::Eval => eval(),
            Cel::Check { schema, api_version, expr } => check(&schema, api_version.as_deref(), &expr),
            Cel::Repl { object, schema, api_version, history } => {
                let object = object.map(|path| session::read(&path)).transpose()?.unwrap_or_else(|| json!({}));
                let schema = schema.map(|path| session::schema(&path, api_version.as_deref())).transpose()?;
                repl::run(session::Session::new(object, schema), history.or_else(repl::default_history))
            }
        }
    }
}

fn eval() -> Result<(), String> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| format!("cannot read: {e}"))?;
        if line.trim().is_empty() {
            continue;
        }
        let answer = match serde_json::from_str::<Value>(&line) {
            Ok(line) => usher_cel::golden::evaluate_line(&line),
            Err(error) => json!({"error": format!("not a line of JSON: {error}")}),
        };
        writeln!(out, "{answer}").and_then(|()| out.flush()).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn check(path: &std::path::Path, version: Option<&str>, expression: &str) -> Result<(), String> {
    let schema = session::schema(path, version)?;
    let environment = Environment::kubernetes().schema_variable("self", schema.clone()).schema_variable("oldSelf", schema);
    let program = environment.compile(expression).map_err(|e| e.to_string())?;
    let cost = program.cost_estimate();
    super::output::line(&format!("type {}, estimated cost {} to {}", program.output_type(), cost.min, cost.max))?;
    if cost.max > STATIC_ESTIMATED_COST_LIMIT {
        return Err(format!(
            "the estimated cost is over the limit of {STATIC_ESTIMATED_COST_LIMIT}: simplify the expression, or bound what it loops over with maxItems, maxProperties and maxLength"
        ));
    }
    Ok(())
}
