//! `usher get --at`: objects as they were.

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::ask::{ask, named, path};
use super::client::{Reach, block_on};
use super::output::{Cell, Format, Screen, Table, note, print};

pub(super) const EXAMPLES: &str = "Examples:
  usher get deploy/web --at 1042                    as it was at a revision
  usher get deploy/web --at 10m -o yaml             as it was ten minutes ago
  usher get pods --at 2030-01-31T12:00:00Z -A       all Pods as they were then";

/// How an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shown {
    Yaml,
    Json,
    /// One object a line, as JSON
    Jsonl,
}

/// What to get.
#[derive(Debug, Args)]
pub struct Get {
    /// KIND, KIND/NAME or KIND NAME
    #[arg(value_name = "KIND[/NAME]", required = true, num_args = 1..=2)]
    what: Vec<String>,
    /// When: a revision, a time, or how long ago; now if absent
    #[arg(long, value_name = "REV|TIME", allow_hyphen_values = true)]
    at: Option<String>,
    /// The namespace [default: that of the kubeconfig's context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// How objects are written; a list is a table unless this is given
    #[arg(short, long, value_enum)]
    output: Option<Shown>,
    #[command(flatten)]
    reach: Reach,
}

impl Get {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        block_on(async {
            let parts: Vec<&str> = ["objects"].into_iter().chain(named(&self.what)?).collect();
            let namespace = self.reach.namespace(self.namespace.as_deref()).await?;
            let all = self.all_namespaces.to_string();
            let parameters = [("at", self.at.as_deref().unwrap_or_default()), ("allNamespaces", &all)];
            let mut answer = whole(&self.reach, &parts, &namespace, &parameters).await?;
            let items = answer.get_mut("items").and_then(Value::as_array_mut);
            match items {
                Some(items) => items.iter_mut().for_each(tidy),
                None => tidy(&mut answer),
            }
            match (self.output, answer["items"].as_array()) {
                (Some(Shown::Json), _) => Format::Json.write(&answer),
                (Some(Shown::Jsonl), _) => Format::Jsonl.write(&answer),
                (None, Some(items)) if items.is_empty() => {
                    note("No resources found.\n");
                    Ok(())
                }
                (None, Some(items)) => print(&table(items).render(&Screen::stdout())),
                _ => Format::Yaml.write(&answer),
            }
        })
    }
}

/// The answer, of a list with all its pages.
async fn whole(reach: &Reach, parts: &[&str], namespace: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
    let mut answer = ask(reach, &path(parts, namespace, parameters)).await?;
    while let Some(token) = answer["metadata"]["continue"].as_str().filter(|_| answer["items"].is_array()) {
        let parameters: Vec<(&str, &str)> = parameters.iter().copied().chain([("continue", token)]).collect();
        let mut next = ask(reach, &path(parts, namespace, &parameters)).await?;
        let more = next["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        answer["metadata"] = next["metadata"].take();
        answer["items"].as_array_mut().into_iter().for_each(|items| items.extend_from_slice(&more));
    }
    Ok(answer)
}

/// As kubectl does: managedFields are shown to nobody who has not asked.
fn tidy(object: &mut Value) {
    object.get_mut("metadata").and_then(Value::as_object_mut).map(|metadata| metadata.remove("managedFields"));
}

fn table(items: &[Value]) -> Table {
    let mut table = Table::new(&["NAMESPACE", "NAME", "REVISION", "CREATED"]);
    for item in items {
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
        table.row(["namespace", "name", "resourceVersion", "creationTimestamp"].map(|field| Cell::from(text(field))));
    }
    table
}
