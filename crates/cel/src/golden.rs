//! The form of the vector files: one expression in, its type, value, error and costs out. This is what `usher cel
//! eval` reads and writes, a line each.

use serde_json::{Map, Value as Json, json};

use crate::activation::Activation;
use crate::declarations::read_type;
use crate::environment::Environment;
use crate::error::CompileError;
use crate::meter::Budget;
use crate::value::Value;

/// Evaluates `{"expr": …, "types": {name: type}, "bindings": {name: typed value}}`; the last two may be absent.
///
/// ```
/// use serde_json::json;
///
/// let answer = usher_cel::golden::evaluate_line(&json!({"expr": "1 + 1"}));
/// assert_eq!(answer["value"], json!({"int64": "2"}));
/// assert_eq!(answer["cost"], json!(1));
/// ```
pub fn evaluate_line(line: &Json) -> Json {
    let Some(expr) = line.get("expr").and_then(Json::as_str) else {
        return json!({"compileError": "the line has no expr"});
    };
    let mut answer = Map::new();
    answer.insert("expr".into(), json!(expr));
    let (environment, values) = match read(line) {
        Ok(read) => read,
        Err(message) => {
            answer.insert("compileError".into(), json!(message));
            return Json::Object(answer);
        }
    };
    let program = match environment.compile(expr) {
        Ok(program) => program,
        Err(CompileError::Issues(issues)) => {
            answer.insert("compileError".into(), json!(issues.to_string()));
            return Json::Object(answer);
        }
        Err(CompileError::Program { message, output_type, cost }) => {
            answer.insert("type".into(), json!(output_type.to_string()));
            answer.insert("error".into(), json!(format!("program: {message}")));
            answer.insert("estMin".into(), json!(cost.min));
            answer.insert("estMax".into(), json!(cost.max));
            return Json::Object(answer);
        }
    };
    let mut activation = Activation::new();
    for (name, value) in &values {
        activation = activation.bind_value(name, value.clone());
    }
    let (value, cost) = program.evaluate_with_cost(&activation, &mut Budget::default());
    answer.insert("type".into(), json!(program.output_type().to_string()));
    match value {
        Ok(value) => answer.insert("value".into(), value.to_typed_json()),
        Err(error) => answer.insert("error".into(), json!(error.to_string())),
    };
    answer.insert("cost".into(), json!(cost));
    answer.insert("estMin".into(), json!(program.cost_estimate().min));
    answer.insert("estMax".into(), json!(program.cost_estimate().max));
    Json::Object(answer)
}

type Bindings = Vec<(String, Value<'static>)>;

fn read(line: &Json) -> Result<(Environment, Bindings), String> {
    let mut environment = Environment::kubernetes();
    for (name, text) in line.get("types").and_then(Json::as_object).into_iter().flatten() {
        let cel_type = text.as_str().and_then(read_type).ok_or_else(|| format!("unknown type of {name}: {text}"))?;
        environment = environment.variable(name, cel_type);
    }
    let mut values = Vec::new();
    for (name, typed) in line.get("bindings").and_then(Json::as_object).into_iter().flatten() {
        let value = Value::from_typed_json(typed).ok_or_else(|| format!("unknown value of {name}: {typed}"))?;
        values.push((name.clone(), value));
    }
    Ok((environment, values))
}
