//! `usher cel` as scripts use it: what goes in, what comes out, how it exits.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `usher cel …` with this on standard input: whether it succeeded, what it printed, what it complained of.
fn cel(arguments: &[&str], input: &str) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
    command.arg("cel").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn file(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  versions:
  - name: v1
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              replicas: {type: integer}
              names: {type: array, items: {type: string}}
  - name: v2
    schema:
      openAPIV3Schema: {type: object, properties: {seats: {type: integer}}}
";

#[test]
fn lines_of_json_are_evaluated_in_order() {
    let (ok, out, _) = cel(&["eval"], "{\"expr\": \"1 + 1\"}\n\n{\"expr\": \"nope\"}\nno json\n");
    assert!(ok);
    let lines: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["value"], serde_json::json!({"int64": "2"}), "{out}");
    assert!(lines[1]["compileError"].as_str().unwrap().contains("undeclared reference to 'nope'"));
    assert!(lines[2]["error"].as_str().unwrap().contains("not a line of JSON"));
}

#[test]
fn an_expression_is_checked_against_a_schema_with_its_cost() {
    let directory = tempfile::tempdir().unwrap();
    let definition = file(directory.path(), "crd.yaml", DEFINITION);
    let check = |arguments: &[&str]| cel(&[&["check", "--schema", &definition], arguments].concat(), "");
    let (ok, out, _) = check(&["--expr", "self.spec.replicas > 1"]);
    assert!(ok && out.starts_with("type bool, estimated cost "), "{out}");
    let (ok, _, error) = check(&["--expr", "self.spec.replicaz > 1"]);
    assert!(!ok && error.contains("undefined field 'replicaz'") && error.contains('^'), "{error}");
    let (ok, _, error) = check(&["--expr", "self.spec.names.all(a, self.spec.names.all(b, a == b))"]);
    assert!(!ok && error.contains("over the limit") && error.contains("maxItems"), "{error}");
    assert!(check(&["--api-version", "v2", "--expr", "self.seats == 1"]).0);
    let (ok, _, error) = check(&["--api-version", "v3", "--expr", "true"]);
    assert!(!ok && error.contains("no schema for that version"), "{error}");
}

#[test]
fn a_session_answers_what_is_piped_into_it() {
    let directory = tempfile::tempdir().unwrap();
    let object = file(directory.path(), "object.yaml", "spec: {replicas: 3}\n");
    let definition = file(directory.path(), "crd.yaml", DEFINITION);
    let session = |input: &str| cel(&["repl", "--object", &object, "--schema", &definition], input);
    let (ok, out, error) = session("object.spec.replicas + 1\n\n:explain self.spec.replicas > 5\n:type self.spec\n:quit\nnever\n");
    assert!(ok, "{error}");
    assert!(out.starts_with("4\n  int, cost "), "{out}");
    assert!(out.contains("self.spec.replicas = 3\n") && out.contains("self.spec.replicas > 5 = false\n"), "{out}");
    assert!(!out.contains("never"), "{out}");
    let (ok, out, error) = session("self.spec.nope\n1 + 1\n");
    assert!(!ok && error.contains("one expression failed"), "{error}");
    assert!(out.contains("undefined field 'nope'") && out.contains("2\n  int"), "{out}");
}
