//! The descriptor of every message, read from `messages.txt` when it is first needed (its head says how it is written). Holds no strings of its
//! own: names point into the embedded text.

use std::collections::HashMap;
use std::sync::LazyLock;

const TEXT: &str = include_str!("messages.txt");

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(TEXT));

/// Every message, and which of them are kinds.
pub(super) struct Table {
    messages: Vec<Message>,
    kinds: HashMap<(&'static str, &'static str), MessageId>,
    /// Kinds that exist under every version: options and watch events.
    everywhere: HashMap<&'static str, MessageId>,
    pub(super) list_meta: MessageId,
    pub(super) json_schema_props: MessageId,
}

/// A message by its place in the table.
pub(super) type MessageId = u16;

/// One message.
pub(super) struct Message {
    pub(super) name: &'static str,
    /// By number.
    pub(super) fields: Box<[Field]>,
    /// The places of those fields that JSON shows even when they are not on the wire.
    pub(super) always: Box<[u8]>,
    /// The places of all fields but the inlined ones, by name.
    by_name: Box<[u8]>,
}

/// No message has more fields; a set of them is the bits of a word.
pub(super) const MAX_FIELDS: usize = 64;

/// One field.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// The JSON name.
    pub(super) name: &'static str,
    pub(super) kind: Type,
    pub(super) form: Form,
    pub(super) omit: Omit,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    String,
    Int32,
    Int64,
    Bool,
    Double,
    Bytes,
    Message(MessageId),
    /// The messages whose JSON form is not an object.
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// `RawExtension`: any JSON, or an enveloped object.
    Raw,
    /// `FieldsV1`.
    Fields,
    /// `apiextensions.v1.JSON`.
    Json,
    /// A message around a list of strings (`ExtraValue`, `Verbs`).
    Strings,
    SchemaOrArray,
    SchemaOrBool,
    SchemaOrStrings,
}

/// How often the value is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Always; absent means zero.
    Plain,
    /// Perhaps; absent is not zero.
    Pointer,
    List,
    /// By string keys.
    Map,
    /// Always, and its fields are fields of the enclosing JSON object.
    Inline,
}

/// When JSON leaves the field out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Omit {
    Never,
    /// Go's `omitempty`: empty scalars, lists and maps, and nil pointers.
    Empty,
    /// Go's `omitzero`: also messages that are zero.
    Zero,
}

pub(super) fn get() -> &'static Table {
    &TABLE
}

impl Table {
    pub(super) fn message(&self, id: MessageId) -> &Message {
        &self.messages[usize::from(id)]
    }

    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<MessageId> {
        self.kinds.get(&(api_version, kind)).or_else(|| self.everywhere.get(kind)).copied()
    }

    /// Every kind with its version, for tests.
    #[cfg(test)]
    pub(super) fn kinds(&self) -> impl Iterator<Item = (&'static str, &'static str, MessageId)> {
        self.kinds.iter().map(|((api_version, kind), id)| (*api_version, *kind, *id))
    }

    #[cfg(test)]
    pub(super) fn named(&self, package: &str, name: &str) -> Option<&Message> {
        let mut within = "";
        let at = lines(TEXT)
            .filter_map(|line| match line {
                Line::Package(package, _) => {
                    within = package;
                    None
                }
                Line::Message(name, _) => Some((within, name)),
                Line::Field(..) => None,
            })
            .position(|message| message == (package, name))?;
        self.messages.get(at)
    }

    fn parse(text: &'static str) -> Self {
        // First the names, so that a field may name a message that comes later.
        let mut names = HashMap::new();
        let mut package = "";
        for line in lines(text) {
            match line {
                Line::Package(name, _) => package = name,
                Line::Message(name, ..) => {
                    let id = names.len() as MessageId;
                    names.insert((package, name), id);
                }
                Line::Field(..) => {}
            }
        }
        let mut table = Table {
            messages: Vec::with_capacity(names.len()),
            kinds: HashMap::new(),
            everywhere: HashMap::new(),
            list_meta: names.get(&("meta.v1", "ListMeta")).copied().unwrap_or_default(),
            json_schema_props: names.get(&("apiextensions.v1", "JSONSchemaProps")).copied().unwrap_or_default(),
        };
        let mut served = "";
        let mut fields = Vec::new();
        let mut current = "";
        for line in lines(text) {
            match line {
                Line::Package(name, api_version) => (package, served) = (name, api_version),
                Line::Message(name, kind) => {
                    table.finish(current, &mut fields);
                    current = name;
                    let id = table.messages.len() as MessageId;
                    match kind {
                        Some(Some("*")) => drop(table.everywhere.insert(name, id)),
                        Some(api_version) => drop(table.kinds.insert((api_version.unwrap_or(served), name), id)),
                        None => {}
                    }
                }
                Line::Field(number, name, kind) => fields.extend(Field::parse(number, name, kind, package, &names)),
            }
        }
        table.finish(current, &mut fields);
        table
    }

    fn finish(&mut self, name: &'static str, fields: &mut Vec<Field>) {
        if name.is_empty() {
            return;
        }
        let fields: Box<[Field]> = std::mem::take(fields).into();
        let places = |is_one: fn(&Field) -> bool| {
            let places = fields.iter().enumerate().filter(move |(_, field)| is_one(field));
            places.map(|(place, _)| place as u8).collect::<Box<[u8]>>()
        };
        let always = places(Field::is_always_shown);
        let mut by_name = places(|field| field.form != Form::Inline);
        by_name.sort_by_key(|place| fields[usize::from(*place)].name);
        self.messages.push(Message { name, fields, always, by_name });
    }
}

impl Message {
    /// The place of the field with this number.
    pub(super) fn place(&self, number: u32) -> Option<usize> {
        // Numbers are mostly 1, 2, 3, …
        let guess = number.wrapping_sub(1) as usize;
        match self.fields.get(guess) {
            Some(field) if field.number == number => Some(guess),
            _ => self.fields.binary_search_by_key(&number, |field| field.number).ok(),
        }
    }

    /// The place of the field with this JSON name.
    pub(super) fn place_of(&self, name: &str) -> Option<usize> {
        let at = self.by_name.binary_search_by_key(&name, |at| self.fields[usize::from(*at)].name).ok()?;
        Some(usize::from(self.by_name[at]))
    }
}

impl Field {
    /// `None` for a line that cannot be read; a test holds that there is none.
    fn parse(
        number: &str,
        name: &'static str,
        kind: &'static str,
        package: &str,
        names: &HashMap<(&str, &str), MessageId>,
    ) -> Option<Self> {
        let (form, kind) = if name == "=" {
            (Form::Inline, kind)
        } else if let Some(kind) = kind.strip_prefix('*') {
            (Form::Pointer, kind)
        } else if let Some(kind) = kind.strip_prefix("[]") {
            (Form::List, kind)
        } else if let Some(kind) = kind.strip_prefix("{}") {
            (Form::Map, kind)
        } else {
            (Form::Plain, kind)
        };
        let (name, omit) = if let Some(name) = name.strip_suffix("??") {
            (name, Omit::Zero)
        } else if let Some(name) = name.strip_suffix('?') {
            (name, Omit::Empty)
        } else {
            (name, Omit::Never)
        };
        let kind = match kind {
            "string" => Type::String,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "bool" => Type::Bool,
            "double" => Type::Double,
            "bytes" => Type::Bytes,
            "time" => Type::Time,
            "microtime" => Type::MicroTime,
            "quantity" => Type::Quantity,
            "intorstring" => Type::IntOrString,
            "raw" => Type::Raw,
            "fields" => Type::Fields,
            "json" => Type::Json,
            "strings" => Type::Strings,
            "schemaorarray" => Type::SchemaOrArray,
            "schemaorbool" => Type::SchemaOrBool,
            "schemaorstrings" => Type::SchemaOrStrings,
            named => Type::Message(*names.get(&named.rsplit_once('.').unwrap_or((package, named)))?),
        };
        Some(Self { number: number.parse().ok()?, name, kind, form, omit })
    }

    fn is_always_shown(&self) -> bool {
        match (self.form, self.omit) {
            (Form::Inline, _) => true,
            (_, Omit::Zero) => false,
            (_, Omit::Never) => true,
            // omitempty has no meaning for a message that is not a pointer.
            (Form::Plain, Omit::Empty) => !self.kind.is_scalar(),
            (_, Omit::Empty) => false,
        }
    }
}

impl Type {
    pub(super) fn is_scalar(self) -> bool {
        matches!(self, Type::String | Type::Int32 | Type::Int64 | Type::Bool | Type::Double | Type::Bytes)
    }
}

enum Line {
    Package(&'static str, &'static str),
    /// The name, and for a kind the version that it names, if any.
    Message(&'static str, Option<Option<&'static str>>),
    Field(&'static str, &'static str, &'static str),
}

fn lines(text: &'static str) -> impl Iterator<Item = Line> {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let first = words.next()?;
        if first == "#" || first.is_empty() {
            None
        } else if first == "@" {
            Some(Line::Package(words.next()?, words.next()?))
        } else if let Some(kind) = first.strip_prefix('!') {
            Some(Line::Message(kind, Some(words.next())))
        } else if line.starts_with(' ') {
            Some(Line::Field(first, words.next()?, words.next()?))
        } else {
            Some(Line::Message(first, None))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let table = get();
        let written = TEXT.lines().filter(|line| line.starts_with(' ')).count();
        assert_eq!(table.messages.iter().map(|message| message.fields.len()).sum::<usize>(), written);
        assert!(table.messages.len() < usize::from(MessageId::MAX));
        assert_eq!(table.message(table.list_meta).name, "ListMeta");
        assert_eq!(table.message(table.json_schema_props).name, "JSONSchemaProps");
        for message in &table.messages {
            assert!(message.fields.is_sorted_by_key(|field| field.number), "{}", message.name);
            assert!(message.fields.len() <= MAX_FIELDS, "{}", message.name);
        }
    }

    #[test]
    fn options_are_known_under_every_version_and_other_kinds_under_their_own() {
        let table = get();
        assert!(table.kind("apps/v1", "Deployment").is_some());
        assert!(table.kind("apps/v1", "DeploymentList").is_some());
        assert!(table.kind("v1", "Deployment").is_none());
        assert!(table.kind("v1", "Status").is_some());
        assert!(table.kind("v1", "List").is_some());
        assert!(table.kind("apps/v1", "DeleteOptions").is_some());
        assert!(table.kind("meta.k8s.io/v1", "PartialObjectMetadataList").is_some());
        assert!(table.kind("meta.k8s.io/v1", "Table").is_none());
        assert!(table.kind("v1", "Container").is_none());
    }
}
