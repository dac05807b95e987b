//! Whole writes, one after the other, as a server sees them.

mod applied;
mod migration;
mod properties;
mod recorded;
mod tracked;
mod versioned;

use std::sync::Arc;

use serde_json::{Value, json};

use super::{ApplyError, Context, OneVersion, ResetFields, apply, track_update};
use crate::schema::{Schema, builtin};

/// A resource with one object, written to by whoever is named.
struct Server {
    schema: Arc<Schema>,
    api_version: &'static str,
    kind: &'static str,
    live: Option<Value>,
    now: String,
    reset: Option<ResetFields>,
    subresource: &'static str,
}

impl Server {
    fn of(api_version: &'static str, kind: &'static str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let schema = builtin::of_kind(group, version, kind).expect("a built-in kind");
        let now = "2026-11-16T00:00:00Z".to_owned();
        Server { schema, api_version, kind, live: None, now, reset: None, subresource: "" }
    }

    fn config_map() -> Self {
        Server::of("v1", "ConfigMap")
    }

    fn at(&mut self, minute: u32) -> &mut Self {
        self.now = format!("2026-11-16T00:{minute:02}:00Z");
        self
    }

    fn object(&self, fields: Value) -> Value {
        let mut object = json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": "a1"}});
        crate::api::patch::merge::apply(&mut object, fields).expect("fields of an object");
        object
    }

    fn context<'c>(&'c self, manager: &'c str, force: bool) -> Context<'c> {
        Context {
            manager,
            subresource: self.subresource,
            api_version: self.api_version,
            kind: self.kind,
            force,
            now: &self.now,
            reset_fields: self.reset.as_ref(),
            versions: &OneVersion,
        }
    }

    fn try_apply(&mut self, manager: &str, fields: Value, force: bool) -> Result<(), ApplyError> {
        let applied = self.object(fields);
        let mut new = apply(self.live.as_ref(), &applied, &self.schema, &self.context(manager, force))?;
        new["metadata"]["uid"] = "u".into();
        self.live = Some(new);
        Ok(())
    }

    fn apply(&mut self, manager: &str, fields: Value) {
        self.try_apply(manager, fields, false).expect("applied");
    }

    /// A merge patch, or a create.
    fn update(&mut self, manager: &str, fields: Value) {
        let mut new = match &self.live {
            Some(live) => {
                let mut new = live.clone();
                crate::api::patch::merge::apply(&mut new, fields).expect("patched");
                new
            }
            None => self.object(fields),
        };
        track_update(self.live.as_ref(), &mut new, &self.schema, &self.context(manager, false));
        new["metadata"]["uid"] = "u".into();
        self.live = Some(new);
    }

    fn live(&self) -> &Value {
        self.live.as_ref().expect("an object")
    }

    fn managed(&self) -> &Value {
        &self.live()["metadata"]["managedFields"]
    }

    /// The fields of a manager's entry.
    fn fields(&self, manager: &str, operation: &str) -> Value {
        let entries = self.managed().as_array().map(Vec::as_slice).unwrap_or_default();
        let mut found = entries.iter().filter(|entry| entry["manager"] == manager && entry["operation"] == operation);
        found.next().map_or(Value::Null, |entry| entry["fieldsV1"].clone())
    }

    fn time(&self, manager: &str) -> Value {
        let entries = self.managed().as_array().map(Vec::as_slice).unwrap_or_default();
        entries.iter().find(|entry| entry["manager"] == manager).map_or(Value::Null, |entry| entry["time"].clone())
    }
}
