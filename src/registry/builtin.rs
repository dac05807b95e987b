//! The built-in resources as data: reads `resources.txt`, which says what a default server serves. What objects look
//! like is not said here (see [`crate::schema`]), nor what is done with them.

use std::sync::{Arc, OnceLock};

use super::{Column, Resource, Subresource};

const RESOURCES: &str = include_str!("resources.txt");

/// What `*` stands for in the table, in discovery's order.
const ALL_VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Every resource that is served by default, in the order of discovery.
pub(super) fn resources() -> Vec<Arc<Resource>> {
    let mut rows = Rows::default();
    for line in RESOURCES.lines() {
        rows.line(line);
    }
    rows.flush();
    rows.done
}

/// The part of the table that has been read.
#[derive(Default)]
struct Rows {
    done: Vec<Arc<Resource>>,
    open: Option<Resource>,
    group: Arc<str>,
    version: Arc<str>,
    off: bool,
}

impl Rows {
    fn line(&mut self, line: &str) {
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        if let Some(section) = line.strip_prefix('[') {
            self.flush();
            let (name, flag) = section.split_once(']').unwrap_or((section, ""));
            let (group, version) = group_version(name);
            (self.group, self.version, self.off) = (group.into(), version.into(), flag.trim() == "off");
            return;
        }
        if self.off {
            return;
        }
        if let Some(detail) = line.strip_prefix("  ") {
            self.detail(detail);
        } else {
            self.flush();
            self.open = self.resource(line);
        }
    }

    fn flush(&mut self) {
        self.done.extend(self.open.take().map(Arc::new));
    }

    fn resource(&self, line: &str) -> Option<Resource> {
        let mut words = line.split(' ');
        let (kind, plural, singular) = (words.next()?, words.next()?, words.next()?);
        let (scope, verbs, hash) = (words.next()?, words.next()?, words.next()?);
        let mut resource = Resource {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: kind.into(),
            list_kind: format!("{kind}List").into(),
            plural: plural.into(),
            singular: singular.into(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: scope == "ns",
            verbs: if verbs == "*" { ALL_VERBS.map(Arc::from).to_vec() } else { list(verbs, ',') },
            subresources: Vec::new(),
            storage_group: self.group.clone(),
            storage_version: self.version.clone(),
            storage_version_hash: if hash == "-" { "".into() } else { hash.into() },
            // No two built-in resources share a plural unless they share their objects, and custom resources are kept
            // under their group, which always has a dot.
            storage: plural.into(),
            columns: Vec::new(),
            selectable: Vec::new(),
            deprecation: None,
            custom: None,
            schema: OnceLock::new(),
        };
        for option in words {
            match option.split_once('=') {
                Some(("short", names)) => resource.short_names = list(names, ','),
                Some(("categories", names)) => resource.categories = list(names, ','),
                Some(("stored", name)) => {
                    let (group, version) = group_version(name);
                    (resource.storage_group, resource.storage_version) = (group.into(), version.into());
                }
                _ => {}
            }
        }
        Some(resource)
    }

    fn detail(&mut self, detail: &str) {
        let Some(resource) = self.open.as_mut() else { return };
        match detail.split_once(' ') {
            Some((">", words)) => resource.subresources.extend(subresource(resource, words)),
            Some(("|", columns)) => resource.columns = columns.split('|').map(column).collect(),
            Some(("?", labels)) => resource.selectable = list(labels, ' '),
            Some(("!", warning)) => resource.deprecation = Some(warning.into()),
            _ => {}
        }
    }
}

fn list(words: &str, separator: char) -> Vec<Arc<str>> {
    words.split(separator).map(Arc::from).collect()
}

/// `core/v1` is the table's way to write the core group.
fn group_version(name: &str) -> (&str, &str) {
    let (group, version) = name.split_once('/').unwrap_or(("", name));
    (if group == "core" { "" } else { group }, version)
}

fn subresource(resource: &Resource, words: &str) -> Option<Subresource> {
    let mut words = words.split(' ');
    let (name, verbs, kind) = (words.next()?, words.next()?, words.next()?);
    let (group, version, kind) = match kind.rsplit_once('/') {
        Some((gv, kind)) => {
            let (group, version) = group_version(gv);
            (group.into(), version.into(), kind)
        }
        None => (resource.group.clone(), resource.version.clone(), kind),
    };
    Some(Subresource { name: name.into(), group, version, kind: kind.into(), verbs: list(verbs, ',') })
}

fn column(text: &str) -> Column {
    let (text, priority) = text.split_once('!').map_or((text, 0), |(rest, p)| (rest, p.parse().unwrap_or(0)));
    let (text, format) = text.split_once('@').unwrap_or((text, ""));
    let (name, kind) = text.split_once(':').unwrap_or((text, "string"));
    Column { name: name.into(), kind: kind.into(), format: format.into(), description: "".into(), priority, json_path: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_server_serves_seventy_two_resources() {
        assert_eq!(
            resources().len(),
            RESOURCES.lines().take_while(|l| !l.ends_with(" off")).filter(|l| l.starts_with(char::is_uppercase)).count()
        );
        assert_eq!(resources().len(), 72);
    }

    #[test]
    fn every_word_of_the_table_is_understood() {
        for resource in resources() {
            assert!(!resource.verbs.is_empty(), "{}", resource.plural);
            assert!(resource.columns.iter().all(|c| ["string", "integer", "number", "boolean", "date"].contains(&&*c.kind)));
            assert!(resource.subresources.iter().all(|s| s.kind.starts_with(char::is_uppercase)));
        }
    }
}
