//! `usher cel`: expressions outside a server.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Subcommand;
use serde_json::{Value, json};
use usher_cel::{Environment, Schema};

pub(super) const EXAMPLES: &str = "Examples:
  echo '{\"expr\": \"[1,2,3].sum() == 6\"}' | usher cel eval
  usher cel check --schema crd.yaml --expr 'self.spec.replicas <= self.spec.maxReplicas'";

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
        #[arg(long)]
        version: Option<String>,
        /// The expression; `self` and `oldSelf` are the object
        #[arg(long)]
        expr: String,
    },
}

impl Cel {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        match self {
            Cel::Eval => eval(),
            Cel::Check { schema, version, expr } => check(&schema, version.as_deref(), &expr),
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
    let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let definition = crate::schema::yaml::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?.value;
    let versions = definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let chosen = versions.iter().find(|v| match version {
        Some(name) => v["name"] == name,
        None => v["storage"] == true,
    });
    let schema = chosen.map(|v| &v["schema"]["openAPIV3Schema"]).filter(|s| s.is_object());
    let schema = schema.ok_or_else(|| format!("{} has no schema for that version", path.display()))?;
    let schema = Schema::from_openapi(schema, true)
        .ok_or_else(|| format!("the schema of {} has no types that an expression could use", path.display()))?;
    let schema = Arc::new(schema);
    let environment = Environment::kubernetes().schema_variable("self", schema.clone()).schema_variable("oldSelf", schema);
    let program = environment.compile(expression).map_err(|e| e.to_string())?;
    let cost = program.cost_estimate();
    println!("type {}, estimated cost {} to {}", program.output_type(), cost.min, cost.max);
    Ok(())
}
