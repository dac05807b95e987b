//! What the columns of a built-in resource's Table are about: a table of texts, most of which are those of the fields that a column shows.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::RwLock;
use serde_json::{Map, Value};

use crate::registry::{Column, Resource};

const TABLE: &str = include_str!("descriptions.txt");

/// Kinds whose fields other kinds' columns are described by.
const ALSO: [&str; 2] = ["io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler", "io.k8s.api.core.v1.Event"];

/// What has been looked up: the definitions are made anew each time, which is slow.
static KNOWN: LazyLock<RwLock<HashMap<String, HashMap<&'static str, String>>>> = LazyLock::new(RwLock::default);

/// The description of a column; nothing where the table has none.
pub fn of(resource: &Resource, column: &Column) -> Option<String> {
    match &*column.name {
        "Name" => return Some(super::metadata_description("name")),
        "Age" | "Created At" => return Some(super::metadata_description("creationTimestamp")),
        "Containers" => return Some("Names of each container in the template.".into()),
        "Images" => return Some("Images referenced by each container in the template.".into()),
        _ => {}
    }
    let separator = if resource.group.is_empty() { "" } else { "/" };
    let section = format!("{}{separator}{} {}", resource.group, resource.version, resource.plural);
    if let Some(texts) = KNOWN.read().get(&section) {
        return texts.get(&*column.name).cloned();
    }
    let texts = read(&section, resource);
    let found = texts.get(&*column.name).cloned();
    KNOWN.write().insert(section, texts);
    found
}

fn read(section: &str, resource: &Resource) -> HashMap<&'static str, String> {
    let mut lines = TABLE.lines().skip_while(|line| *line != section).skip(1);
    let lines: Vec<(&str, &str)> = std::iter::from_fn(|| lines.next()?.strip_prefix(' ')?.split_once(": ")).collect();
    let mut definitions = Map::new();
    if lines.iter().any(|(_, text)| text.starts_with('@')) {
        let own = resource.schema().name.as_ref().map(ToString::to_string).unwrap_or_default();
        definitions = crate::schema::source::definitions_of_all([own.as_str()].into_iter().chain(ALSO));
    }
    let text = |text: &str| match text.strip_prefix('@') {
        None => text.replace("\\n", "\n"),
        Some(reference) => described(&definitions, reference).unwrap_or_default(),
    };
    lines.into_iter().map(|(column, description)| (column, text(description))).collect()
}

/// What a field is about, without the list of its values that the published schema adds.
fn described(definitions: &Map<String, Value>, reference: &str) -> Option<String> {
    let (definition, field) = reference.rsplit_once('.')?;
    let full = if definition.starts_with("io.k8s.") { definition.to_owned() } else { format!("io.k8s.api.{definition}") };
    let text = definitions.get(&full)?["properties"][field]["description"].as_str()?;
    Some(text.split("\n\nPossible enum values").next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn every_column_of_the_table_is_described_and_exists() {
        let registry = Registry::new();
        for line in TABLE.lines().filter(|line| !line.starts_with([' ', '#'])) {
            let (version, plural) = line.split_once(' ').expect("a section");
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let resource = registry.lookup(group, version, plural).unwrap_or_else(|| panic!("{line}"));
            for (column, text) in read(line, &resource) {
                assert!(resource.columns.iter().any(|c| *c.name == *column), "{line}: {column}");
                assert!(!text.is_empty() || column == "Handler", "{line}: {column}");
            }
        }
    }
}
