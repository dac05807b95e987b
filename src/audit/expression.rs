//! A CEL expression over `event`, with the knowledge of what it reads: a million events are answered in seconds only if what nobody asks
//! about is not made.

use std::sync::Arc;

use serde_json::Value;
use usher_cel::{Activation, Budget, Environment, Program, Reads, Type};

/// The variable that stands for the event.
const EVENT: &str = "event";

/// What an event can have.
const FIELDS: [&str; 20] = [
    "kind",
    "apiVersion",
    "level",
    "auditID",
    "stage",
    "requestURI",
    "verb",
    "user",
    "impersonatedUser",
    "authenticationMetadata",
    "sourceIPs",
    "userAgent",
    "objectRef",
    "responseStatus",
    "requestObject",
    "responseObject",
    "requestReceivedTimestamp",
    "stageTimestamp",
    "annotations",
    "trace",
];

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Expression {
    program: Arc<Program>,
    reads: Arc<Reads>,
}

impl Expression {
    /// Compiles; what it gives must be true or false.
    pub fn compile(source: &str) -> Result<Expression, String> {
        let program = Environment::kubernetes().variable(EVENT, Type::Dyn).compile(source).map_err(|e| e.to_string())?;
        if !matches!(program.output_type(), Type::Bool | Type::Dyn) {
            return Err(format!("the expression gives {}, not bool", program.output_type()));
        }
        let reads = Reads::of(source, EVENT);
        // A field that no event has would be no match in every event, and nobody would know why.
        if let Some(unknown) = reads.names().find(|name| !FIELDS.contains(name)) {
            return Err(format!("an event has no field {unknown}; it has {}", FIELDS.join(", ")));
        }
        Ok(Expression { program: Arc::new(program), reads: Arc::new(reads) })
    }

    /// The text.
    pub fn source(&self) -> &str {
        self.program.source()
    }

    /// Whether an event is one of those. One for which the expression fails, because a field is not there, is not.
    pub fn holds(&self, event: &Value) -> bool {
        let activation = Activation::new().bind(EVENT, event);
        let evaluated = self.program.evaluate(&activation, &mut Budget::default());
        evaluated.is_ok_and(|evaluated| evaluated.value.as_bool() == Some(true))
    }

    /// What it reads of an event.
    pub fn reads(&self) -> &Reads {
        &self.reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_that_cannot_be_true_or_false_is_refused() {
        assert!(Expression::compile("event.verb == ").is_err());
        assert!(Expression::compile("1 + 1").unwrap_err().contains("not bool"));
    }
}
