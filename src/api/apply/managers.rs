//! `metadata.managedFields`: who set which fields, how, in which version, and when. Read lazily: an entry that a write does not
//! touch keeps its FieldsV1 as it came.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::element::UnreadableElement;
use super::fields_v1;
use super::fieldset::FieldSet;
use super::typed::Type;

/// How many entries of updates an object keeps; the oldest beyond that become one.
pub const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager that the oldest updates are put under.
pub const ANCIENT_CHANGES: &str = "ancient-changes";

/// The manager of what was there before anybody applied.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";

const MAX_MANAGER_LENGTH: usize = 128;

/// How a manager wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    /// The word in an entry.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Who writes: what tells one entry from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    /// The name that the client gave itself.
    pub name: String,
    /// How it writes.
    pub operation: Operation,
    /// The version that its paths are in. Not part of who an applier is.
    pub api_version: String,
    /// The subresource it writes through, or empty.
    pub subresource: String,
}

impl Manager {
    /// Whether both are one manager. An applier may change its version, an updater is another one in each.
    pub fn is(&self, other: &Manager) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The order in which conflicts are told: that of the text by which a real server knows a manager.
    pub fn identity(&self) -> String {
        let mut fields = String::from("{");
        let mut add = |name: &str, value: &str| {
            if !value.is_empty() {
                let comma = if fields.len() > 1 { "," } else { "" };
                fields.push_str(&format!("{comma}\"{name}\":{}", Value::from(value)));
            }
        };
        add("manager", &self.name);
        add("operation", self.operation.as_str());
        if self.operation == Operation::Update {
            add("apiVersion", &self.api_version);
        }
        add("subresource", &self.subresource);
        fields.push('}');
        fields
    }
}

/// One entry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Whose it is.
    pub manager: Manager,
    /// When it last changed.
    pub time: Option<String>,
    /// FieldsV1 as they came; `None` once they are read.
    raw: Option<Value>,
    set: FieldSet,
}

impl Entry {
    /// An entry of this manager with these fields.
    pub fn new(manager: Manager, fields: FieldSet) -> Self {
        Entry { manager, time: None, raw: None, set: fields }
    }

    /// The fields, read when first asked for. What cannot be read owns nothing; it comes from no server.
    pub fn fields(&mut self) -> &mut FieldSet {
        if let Some(raw) = self.raw.take() {
            self.set = FieldSet::from_fields_v1(&raw).unwrap_or_default();
        }
        &mut self.set
    }

    /// Whether the entry owns nothing.
    pub fn is_empty(&self) -> bool {
        match &self.raw {
            Some(raw) => raw.as_object().is_none_or(Map::is_empty),
            None => self.set.is_empty(),
        }
    }

    /// The fields as they are by today's schema, in which a part may be atomic that was not when they were written.
    fn fields_in(&mut self, of: &Type<'_>) -> &mut FieldSet {
        let fields = self.fields();
        if let Some(reconciled) = fields.reconciled(of) {
            *fields = reconciled;
        }
        fields
    }

    /// Whether the entry owns exactly this.
    pub(super) fn holds(&self, set: &FieldSet) -> bool {
        match &self.raw {
            Some(Value::Object(raw)) => fields_v1::equals(set, raw),
            Some(_) => set.is_empty(),
            None => self.set == *set,
        }
    }

    /// What the entry owns of `set`.
    pub(super) fn intersection(&mut self, set: &FieldSet, of: &Type<'_>) -> FieldSet {
        if let Some(Value::Object(raw)) = &self.raw
            && let Ok(common) = fields_v1::intersection(set, raw)
        {
            return common;
        }
        self.fields_in(of).intersection(set)
    }

    /// Takes `set` from the entry.
    pub(super) fn subtract(&mut self, set: &FieldSet, of: &Type<'_>) {
        if set.is_empty() {
            return;
        }
        if let Some(Value::Object(raw)) = &mut self.raw
            && fields_v1::subtract(set, raw).is_ok()
        {
            return;
        }
        self.fields_in(of).subtract(set);
    }

    fn decode(entry: &mut Value, index: usize) -> Result<Self, InvalidManagedFields> {
        let invalid = |why: String| InvalidManagedFields(why);
        let Value::Object(entry) = entry else { return Err(invalid("operation must be `Apply` or `Update`".into())) };
        let operation = match entry.get("operation").and_then(Value::as_str) {
            Some("Apply") => Operation::Apply,
            Some("Update") => Operation::Update,
            _ => return Err(invalid("operation must be `Apply` or `Update`".into())),
        };
        let mut text = |name: &str| match entry.get_mut(name) {
            Some(Value::String(text)) => std::mem::take(text),
            _ => String::new(),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err(invalid("apiVersion must not be empty".into()));
        }
        match text("fieldsType").as_str() {
            "FieldsV1" => {}
            "" => return Err(invalid(format!("missing fieldsType in managed fields entry {index}"))),
            other => return Err(invalid(format!("invalid fieldsType \"{other}\" in managed fields entry {index}"))),
        }
        let manager = Manager { name: text("manager"), operation, api_version, subresource: text("subresource") };
        let time = Some(text("time")).filter(|time| !time.is_empty());
        let fields = entry.remove("fieldsV1").unwrap_or_else(|| Value::Object(Map::new()));
        Ok(Entry { manager, time, raw: Some(fields), set: FieldSet::default() })
    }

    fn encode(self) -> Value {
        let mut entry = Map::new();
        entry.insert("apiVersion".into(), self.manager.api_version.into());
        entry.insert("fieldsType".into(), "FieldsV1".into());
        entry.insert("fieldsV1".into(), self.raw.unwrap_or_else(|| self.set.to_fields_v1()));
        if !self.manager.name.is_empty() {
            entry.insert("manager".into(), self.manager.name.into());
        }
        entry.insert("operation".into(), self.manager.operation.as_str().into());
        if !self.manager.subresource.is_empty() {
            entry.insert("subresource".into(), self.manager.subresource.into());
        }
        if let Some(time) = self.time {
            entry.insert("time".into(), time.into());
        }
        Value::Object(entry)
    }
}

/// managedFields that a real server would not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidManagedFields(pub String);

impl From<UnreadableElement> for InvalidManagedFields {
    fn from(error: UnreadableElement) -> Self {
        InvalidManagedFields(format!("error decoding set: {error}"))
    }
}

/// Everybody who owns something.
#[derive(Clone, Debug, Default)]
pub struct Managed {
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Managed {
    /// Reads what the server itself has written.
    pub fn decode(entries: Value) -> Result<Self, InvalidManagedFields> {
        let Value::Array(mut entries) = entries else { return Ok(Managed::default()) };
        let entries: Result<Vec<Entry>, _> = entries.iter_mut().enumerate().map(|(i, entry)| Entry::decode(entry, i)).collect();
        Ok(Managed { entries: entries? })
    }

    /// Reads what a client has sent: its fields are read at once, so that what cannot be read is found, and what is there
    /// twice is one.
    pub fn decode_untrusted(entries: Value) -> Result<Self, InvalidManagedFields> {
        let mut managed = Managed::default();
        for mut entry in Managed::decode(entries)?.entries {
            if let Some(raw) = entry.raw.take() {
                entry.set = FieldSet::from_fields_v1(&raw)?;
            }
            match managed.entries.iter_mut().find(|other| other.manager.is(&entry.manager)) {
                Some(other) => *other = entry,
                None => managed.entries.push(entry),
            }
        }
        Ok(managed)
    }

    /// The entry of a manager.
    pub fn get(&mut self, manager: &Manager) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.manager.is(manager))
    }

    /// The list to write; `None` if nobody owns anything.
    pub fn encode(mut self) -> Option<Value> {
        self.entries.sort_by(order);
        (!self.entries.is_empty()).then(|| Value::Array(self.entries.into_iter().map(Entry::encode).collect()))
    }

    /// Puts the oldest updates beyond the limit under one manager for each version.
    pub fn cap_update_managers(&mut self, limit: usize) {
        let mut count = self.entries.iter().filter(|entry| entry.manager.operation == Operation::Update).count();
        if count <= limit {
            return;
        }
        let (mut updates, others): (Vec<Entry>, Vec<Entry>) =
            std::mem::take(&mut self.entries).into_iter().partition(|entry| entry.manager.operation == Operation::Update);
        updates.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.manager.identity().cmp(&b.manager.identity())));
        let mut kept: Vec<Entry> = Vec::with_capacity(updates.len());
        for mut entry in updates {
            if count > limit {
                let bucket = Manager {
                    name: ANCIENT_CHANGES.into(),
                    operation: Operation::Update,
                    api_version: entry.manager.api_version.clone(),
                    subresource: String::new(),
                };
                // The first of a version only becomes a bucket when a second one is put into it.
                if let Some(first) = kept.iter_mut().find(|first| first.manager.api_version == entry.manager.api_version) {
                    first.manager = bucket;
                    let merged = std::mem::take(first.fields()).union(entry.fields());
                    *first.fields() = merged;
                    first.time = entry.time;
                    count -= 1;
                    continue;
                }
            }
            kept.push(entry);
        }
        self.entries = others;
        // A bucket of an earlier time may have become the fellow of a new one.
        for mut entry in kept {
            match self.get(&entry.manager) {
                Some(bucket) => {
                    let merged = std::mem::take(bucket.fields()).union(entry.fields());
                    *bucket.fields() = merged;
                    bucket.time = entry.time;
                }
                None => self.entries.push(entry),
            }
        }
    }
}

/// Appliers before updaters, then by time, name, version and subresource.
fn order(a: &Entry, b: &Entry) -> Ordering {
    // All times are written by one clock as RFC 3339 in UTC and seconds, whose order is that of the text.
    (a.manager.operation.cmp(&b.manager.operation))
        .then_with(|| a.time.cmp(&b.time))
        .then_with(|| a.manager.name.cmp(&b.manager.name))
        .then_with(|| a.manager.api_version.cmp(&b.manager.api_version))
        .then_with(|| a.manager.subresource.cmp(&b.manager.subresource))
}

/// The name of a manager: what the request says, or else what stands before the first slash of its User-Agent.
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let product = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::with_capacity(product.len().min(MAX_MANAGER_LENGTH));
    for c in product.chars().filter(|c| is_print(*c)) {
        if name.len() + c.len_utf8() > MAX_MANAGER_LENGTH {
            break;
        }
        name.push(c);
    }
    name
}

/// Whether a character shows; of all spaces only the plain one does.
fn is_print(c: char) -> bool {
    c == ' ' || !(c.is_control() || c.is_whitespace() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{feff}'))
}
