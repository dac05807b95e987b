//! The API's description of itself, for `kubectl explain`, client-side validation and code generators: OpenAPI v3, one
//! document per group version, and v2, one document for all, as JSON and as protobuf. Everything is made when it is first
//! asked for, from the registry's table and the same sources as the schemas.

mod enumerations;
mod extension;
mod gnostic;
mod parameters;
mod paths;
mod schemas;
mod v2;
mod v3;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use extension::Extension;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::discovery::{Document, hash};
use crate::registry::Table;

/// Which of the two encodings of v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/com.github.proto-openapi.spec.v2.v1.0+protobuf`.
    Protobuf,
}

/// Documents that have been asked for. Those of built-in groups outlive a change of the table, all others do not.
#[derive(Debug, Default)]
pub struct Documents {
    made: Mutex<HashMap<String, (String, Arc<Document>)>>,
}

impl Documents {
    /// `/openapi/v3`: every document with its address, which changes whenever its content does; those of extension servers have theirs.
    pub fn index(&self, table: &Table, extensions: BTreeMap<String, String>) -> Document {
        let mut paths: Map<String, Value> =
            extensions.into_iter().map(|(path, address)| (path, json!({"serverRelativeURL": address}))).collect();
        for path in v3::paths(table) {
            let url = format!("/openapi/v3/{path}?hash={}", content_hash(table, &path));
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
        Document::json(&json!({"paths": Value::Object(paths)}))
    }

    /// The hash in a document's address; `None` if there is no such document.
    pub fn hash_of(&self, table: &Table, path: &str) -> Option<String> {
        v3::exists(table, path).then(|| content_hash(table, path))
    }

    /// `/openapi/v3/<path>`: one document.
    pub fn v3(&self, table: &Table, path: &str) -> Option<Arc<Document>> {
        let hash = self.hash_of(table, path)?;
        Some(self.get_or_make(path, hash, || serde_json::to_vec(&v3::document(table, path)).unwrap_or_default()))
    }

    /// `/openapi/v2`, with what extension servers say.
    pub fn v2(&self, table: &Table, extensions: &[Arc<Extension>], encoding: Encoding) -> Arc<Document> {
        let mut everything: Vec<String> = v3::paths(table).map(|path| content_hash(table, &path)).collect();
        everything.extend(extensions.iter().map(|extension| extension.hash.clone()));
        let hash = hash(&everything.iter().map(String::as_bytes).collect::<Vec<_>>());
        let name = if encoding == Encoding::Json { " v2 json" } else { " v2 protobuf" };
        self.get_or_make(name, hash, || match encoding {
            Encoding::Json => v2::json(table, extensions),
            Encoding::Protobuf => v2::protobuf(table, extensions),
        })
    }

    /// Whether somebody else makes the same one at the same time does not matter; that nobody waits does.
    fn get_or_make(&self, name: &str, hash: String, make: impl FnOnce() -> Vec<u8>) -> Arc<Document> {
        if let Some((have, document)) = self.made.lock().get(name)
            && *have == hash
        {
            return document.clone();
        }
        let document = Arc::new(Document { body: make().into(), etag: format!("\"{hash}\"") });
        self.made.lock().insert(name.to_owned(), (hash, document.clone()));
        document
    }
}

/// A hash of what a document is made from, so that the index need not make them all. Built-in groups change with the
/// program only.
fn content_hash(table: &Table, path: &str) -> String {
    let mut definitions: Vec<String> = Vec::new();
    if let Some((group, version)) = v3::group_version(path) {
        let custom = table.of_version(group, version).filter_map(|resource| resource.custom.as_ref());
        definitions.extend(custom.map(|custom| {
            let make = || hash(&[custom.version.to_string().as_bytes(), custom.definition["spec"]["names"].to_string().as_bytes()]);
            custom.published_hash.get_or_init(make).clone()
        }));
    }
    let mut parts: Vec<&[u8]> = vec![env!("CARGO_PKG_VERSION").as_bytes(), SERVED.as_bytes(), path.as_bytes()];
    parts.extend(definitions.iter().map(String::as_bytes));
    hash(&parts)
}

/// The version of Kubernetes that is described.
const SERVED: &str = "1.37";

#[cfg(test)]
mod tests;
