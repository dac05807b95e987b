//! What `k8s-openapi` does not say of the built-in definitions: reads `overlay.txt`, one definition at a time and only
//! when somebody asks for it. The table's own head explains its words.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde_json::Value;

const OVERLAY: &str = include_str!("overlay.txt");

/// The names in the table leave this out.
const COMMON_PREFIX: &str = "io.k8s.api.";

/// What the table says of one definition.
#[derive(Debug, Default)]
pub struct Definition {
    /// `x-kubernetes-map-type`.
    pub map_type: Option<&'static str>,
    /// Fields that must be there, in the published order.
    pub required: Vec<&'static str>,
    /// `x-kubernetes-unions`.
    pub unions: Option<Value>,
    /// What it says of single fields.
    pub fields: HashMap<&'static str, Field>,
}

/// What the table says of one field. The words are those of the table's head.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Field {
    pub list_type: Option<&'static str>,
    pub list_keys: Vec<&'static str>,
    pub patch_strategy: Option<&'static str>,
    pub patch_merge_key: Option<&'static str>,
    pub map_type: Option<&'static str>,
    pub default: Option<Value>,
    pub enumeration: Vec<String>,
    pub item_enumeration: Vec<String>,
    pub omit: bool,
    pub null: bool,
    pub set: Option<Value>,
    pub go: Option<&'static str>,
}

/// What the table says of a definition; nothing for one that it does not know.
pub fn definition(name: &str) -> Definition {
    let short = name.strip_prefix(COMMON_PREFIX).unwrap_or(name);
    sections().get(short).map(|section| parse(section)).unwrap_or_default()
}

/// The name that decoding errors give the type of a field, where the schema does not tell it.
pub fn go_type(definition_name: &str, field: &str) -> Option<&'static str> {
    definition(definition_name).fields.get(field)?.go
}

/// Where each definition begins.
fn sections() -> &'static HashMap<&'static str, &'static str> {
    static SECTIONS: OnceLock<HashMap<&'static str, &'static str>> = OnceLock::new();
    SECTIONS.get_or_init(|| {
        let mut sections = HashMap::new();
        let mut rest = OVERLAY;
        while !rest.is_empty() {
            // A definition ends where the next line begins that is not indented.
            let end = rest.match_indices('\n').find(|(at, _)| !rest[at + 1..].starts_with(' ')).map_or(rest.len(), |(at, _)| at + 1);
            let (section, behind) = rest.split_at(end);
            if let Some(name) = section.split([' ', '\n']).next().filter(|name| !name.starts_with('#')) {
                sections.insert(name, section);
            }
            rest = behind;
        }
        sections
    })
}

fn parse(section: &'static str) -> Definition {
    let mut definition = Definition::default();
    let mut lines = section.lines();
    for word in lines.next().unwrap_or_default().split(' ').skip(1) {
        match word.split_once('=') {
            Some(("map", kind)) => definition.map_type = Some(kind),
            Some(("required", fields)) => definition.required = fields.split(',').collect(),
            Some(("unions", json)) => definition.unions = serde_json::from_str(json).ok(),
            _ => {}
        }
    }
    for line in lines {
        let Some((fields, flags)) = line.trim_start().split_once(" : ") else { continue };
        let field = flags.split(' ').fold(Field::default(), flag);
        for name in fields.split(' ') {
            definition.fields.insert(name, field.clone());
        }
    }
    definition
}

fn flag(mut field: Field, word: &'static str) -> Field {
    match word.split_once('=') {
        None if word == "omit" => field.omit = true,
        None if word == "null" => field.null = true,
        Some(("list", text)) => {
            let (kind, keys) = text.split_once(':').unwrap_or((text, ""));
            field.list_type = Some(kind);
            field.list_keys = keys.split(',').filter(|k| !k.is_empty()).collect();
        }
        Some(("patch", text)) => {
            let (strategy, key) = text.split_once(':').unwrap_or((text, ""));
            field.patch_strategy = Some(strategy).filter(|s| !s.is_empty());
            field.patch_merge_key = Some(key).filter(|k| !k.is_empty());
        }
        Some(("map", kind)) => field.map_type = Some(kind),
        Some(("default", json)) => field.default = serde_json::from_str(json).ok(),
        Some(("set", json)) => field.set = serde_json::from_str(json).ok(),
        Some(("enum", values)) => field.enumeration = words(values),
        Some(("items", values)) => field.item_enumeration = words(values),
        Some(("go", name)) => field.go = Some(name),
        _ => {}
    }
    field
}

fn words(values: &str) -> Vec<String> {
    values.split(',').map(|value| value.replace('~', " ")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_has_its_ports_keyed_by_number_and_protocol() {
        let container = definition("io.k8s.api.core.v1.Container");
        assert_eq!(container.required, ["name"]);
        let ports = &container.fields["ports"];
        assert_eq!((ports.list_type, ports.list_keys.as_slice()), (Some("map"), ["containerPort", "protocol"].as_slice()));
        assert_eq!((ports.patch_strategy, ports.patch_merge_key), (Some("merge"), Some("containerPort")));
        assert_eq!(container.fields["resources"].default, Some(json!({})));
        assert_eq!(go_type("io.k8s.api.core.v1.Container", "imagePullPolicy"), Some("v1.PullPolicy"));
    }

    #[test]
    fn the_table_says_nothing_of_what_the_sources_do_not_have() {
        let names = super::super::source::names();
        let known = super::super::source::definitions_of_all(names.iter().map(String::as_str));
        for name in sections().keys() {
            let full = if name.starts_with("io.k8s.") { (*name).to_owned() } else { format!("{COMMON_PREFIX}{name}") };
            let source = known.get(&full).unwrap_or_else(|| panic!("{full}"));
            for field in definition(&full).fields.keys() {
                assert!(source["properties"].get(field).is_some(), "{full}.{field}");
            }
        }
    }
}
